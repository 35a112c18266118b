"""Programs, pieces of code and whole runs of a PE are priced here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fabric.price.code import Code, NotKnown
from fabric.price.prices import ProgramPrice, TaskPrice, Unknown
from fabric.price.state import Given, KnownArithmetic, begin
from fabric.price.tasks import Odds, Pricer
from fabric.price.walk import Walker
from fabric.program.program import Program
from wse_core import isa
from wse_core.encoding import N_TASK_IDS
from wse_core.errors import ProgramError
from wse_core.formats import Half
from wse_core.image import ProgramImage
from wse_core.params import Machine
from wse_core.params import machine as default_machine

__all__ = ["price", "price_code", "price_run", "pricer"]

Priced = Program | ProgramImage
PIECE = "piece"


def _image_and_places(program: Priced) -> tuple[ProgramImage, dict[int, str]]:
    """Return the image of a program, and the source line of each code word that begins an instruction."""
    if isinstance(program, ProgramImage):
        return program, dict(program.lines)
    image = program.assemble()
    decoded = isa.decode(image.code)
    found = {}
    for (at, *_), ins in zip(decoded, program.unit.instructions, strict=True):
        if ins.at is not None:
            found[at] = f"{ins.at.file}:{ins.at.line}"
    return image, found


def pricer(
    program: Priced,
    machine: Machine | None = None,
    *,
    given: Given | None = None,
    initial: bool = False,
    odds: Odds = None,
    places: Mapping[int, str] | None = None,
) -> Pricer:
    """Return the `Pricer` of a program: prices of single tasks, with what is known of their data.

    The parameters are those of `price`.
    """
    image, lines = _image_and_places(program)
    lines = lines if places is None else dict(places)
    if machine is None:
        machine = program.machine if isinstance(program, Program) else default_machine()
    return Pricer(image, machine, given, initial, odds, lambda at: lines.get(at, f"code word {at}"))


def price(
    program: Priced,
    machine: Machine | None = None,
    *,
    given: Given | None = None,
    initial: bool = False,
    odds: Odds = None,
    places: Mapping[int, str] | None = None,
) -> ProgramPrice:
    """Return what the tasks of a program cost, before anything runs.

    Parameters
    ----------
    program : Program or ProgramImage
    machine : Machine, optional
        Default that of a `Program`, else wse2.
    given : mapping of (str or int) to array_like, optional
        Contents of variables, or of words by address, that cycles depend on, as whole numbers or bit patterns:
        lengths, counters, addresses.
    initial : bool
        Whether all other variables are taken to hold what the program begins with.
    odds : float or mapping of str to float, optional
        How often branches are taken that depend on data: by source line (``"file.py:12"``), or for all.
    places : mapping of int to str, optional
        Source line by code word; default what the program says.

    Returns
    -------
    ProgramPrice

    Raises
    ------
    ProgramError
        The program cannot be assembled, or has no variable of a name in `given`.
    """
    found = pricer(program, machine, given=given, initial=initial, odds=odds, places=places)
    return ProgramPrice(found.image.name, {name: found.task(*task) for name, task in found.names().items()})


def price_code(
    write: Callable[[Program], object],
    machine: Machine | None = None,
    half: Half = "f16",
    *,
    declare: Callable[[Program], object] | None = None,
    given: Given | None = None,
    initial: bool = False,
    odds: Odds = None,
) -> TaskPrice:
    """Return what a piece of code costs: from the issue of its first instruction until the one behind it can issue.

    Parameters
    ----------
    write : callable
        Emits the instructions into the program that it is handed, inside of a task.
    machine : Machine, optional
        Default wse2.
    half : {"f16", "cb16"}
        What a 16-bit float is.
    declare : callable, optional
        Is called with the program before the task begins: variables, queues, functions.  What it returns is passed to
        `write` as second argument, if it is not None.
    given, initial, odds
        As of `price`.

    Returns
    -------
    TaskPrice
    """
    p = Program(PIECE, machine, half=half)
    made = None if declare is None else declare(p)
    with p.task(PIECE):
        if made is None:
            write(p)
        else:
            write(p, made)  # type: ignore[call-arg]
    found = price(p, p.machine, given=given, initial=initial, odds=odds).tasks[PIECE]
    return found.without(p.machine["task.start"], 1)


def price_run(
    program: Priced,
    machine: Machine | None = None,
    launch: Sequence[int] = (),
    *,
    given: Given | None = None,
    initial: bool = True,
) -> int:
    """Return the cycles of a whole run of a program on a PE alone, without wavelets: exactly those of the engine.

    Parameters
    ----------
    program, machine, given, initial
        As of `price`.
    launch : sequence of int
        Tasks that the host activates in cycle 0.

    Raises
    ------
    ProgramError
        The way of the program depends on what is not known, or it meets the fabric.
    """
    image, lines = _image_and_places(program)
    machine = default_machine() if machine is None else machine
    walker = Walker(
        image,
        machine,
        Code(image, machine),
        KnownArithmetic(image, machine),
        begin(image, given, initial),
        fabric=False,
    )
    try:
        return _run(walker, int(image.active) | sum(1 << task for task in set(launch)))
    except NotKnown as fact:
        unknown = Unknown(fact.what, lines.get(fact.at, f"code word {fact.at}"))
        raise ProgramError(
            f"the cycles of the run are not known before it: {unknown.what}", program=image.name, where=unknown.where
        ) from None


def _run(walker: Walker, active: int) -> int:
    """Let the picker choose tasks until none is left, and return the cycles."""
    image, machine = walker.image, walker.machine
    blocked, last, idle_from, woken = int(image.blocked), N_TASK_IDS - 1, 0.0, 0.0
    while True:
        for what, task in walker.activated:
            if what == "activate":
                if task >= N_TASK_IDS or image.entry[task] < 0:
                    raise NotKnown(f"activate of id {task}, which has no entry", max(0, walker.pc))
                active |= 1 << task
            else:
                blocked = blocked | 1 << task if what == "block" else blocked & ~(1 << task)
            woken = walker.now + 1
        walker.activated.clear()
        ready = [k for k in range(N_TASK_IDS) if (active & ~blocked) >> k & 1 and image.entry[k] >= 0]
        if walker.main == "idle" and ready:
            group = [k for k in ready if image.high >> k & 1] or ready
            by_turn = machine["task.priority_rule"] == "round_robin"
            last = min(group, key=lambda k: (k - last - 1) % N_TASK_IDS if by_turn else k)
            active &= ~(1 << last)
            walker.start(int(image.entry[last]), max(idle_from, woken))
        elif walker.main == "idle" and not walker.flights:
            return int(walker.now) + 1
        running = walker.main != "idle"
        walker.issue()
        if running and walker.main == "idle":
            idle_from = walker.now + 1
