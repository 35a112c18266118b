"""A contest problem solved: searches in processes side by side, for a time or a number of rounds, until interrupted.

Each process has its own seed, made of the given one and its number; so a number of rounds gives the same placement
everywhere, and a time gives what the rounds done by then have found.  Time is that of the clock: what else runs on the
machine changes what one gets, not how long one waits.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from harness.kit.endings import Terminated
from harness.place.bands import Sizer
from harness.place.kernels import Arguments, ContestKernel
from harness.place.kgraph import ContestProblem
from harness.place.search import Found, Search, SearchTask
from harness.place.shapes import FOREVER, NEVER, Shapes, least_time
from harness.place.solution import PlacedKernel, Score, no_adapters, scored
from harness.place.wiring import shortened
from wse_core.errors import ConfigError, InternalError, LayoutError

__all__ = ["OBJECTIVES", "PlaceOutcome", "Prepared", "prepare", "solve"]

OBJECTIVES = ("score", "slowest")
TIE = 1e-3
"""With the objective `slowest` a PE of wire has this share of the time weight: between equal times the shorter wire is
taken.
"""

Report = Callable[[float, int, Found | None], None]
"""What is told about the search: share of the work done, rounds, the best so far."""


@dataclass(frozen=True)
class Prepared:
    """A `Prepared` is a problem with the shapes of its kernels.

    Attributes
    ----------
    problem : ContestProblem
    shapes : sequence of Shapes
        Of each kind of kernel.
    task : SearchTask
        For the search; its bound is that by area.
    """

    problem: ContestProblem
    shapes: Sequence[Shapes]
    task: SearchTask


@dataclass(frozen=True)
class PlaceOutcome:
    """A `PlaceOutcome` is a placement, what it achieves, and what was done for it.

    Attributes
    ----------
    placed : list of PlacedKernel
    score : Score
    bound : Fraction
        No slowest kernel is faster.
    rounds : int
    seconds : float
        Of the clock, of the search that took longest.
    ended_by : int
        The signal that ended the search; 0: it came to its end.
    """

    placed: list[PlacedKernel]
    score: Score
    bound: Fraction
    rounds: int
    seconds: float
    ended_by: int


def prepare(problem: ContestProblem, objective: str = "score") -> Prepared:
    """Return a problem ready to be searched.

    Raises
    ------
    UnsupportedError
        The score is wanted and adapters count in it.
    LayoutError
        A kernel fits on the wafer at no time limit.
    """
    if objective not in OBJECTIVES:
        raise ConfigError(f"{objective!r} is no objective", hint=f"one of {', '.join(OBJECTIVES)}")
    if objective == "score" and problem.adapter_weight:
        raise no_adapters(problem)
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}
    kinds, shapes = [], []
    for kernel in problem.kernels:
        key = kernel.kind, kernel.formal
        if key not in numbers:
            numbers[key] = len(numbers)
            shapes.append(Shapes(kernel, problem.width, problem.height, problem.memory))
            if shapes[-1].area(Fraction(FOREVER)) >= NEVER:
                raise LayoutError(
                    f"fits nowhere: no rectangle of {problem.width} x {problem.height} PEs keeps the memory limit of "
                    f"{problem.memory} words",
                    where=kernel.name,
                    hint="a larger wafer or memlimit",
                )
        kinds.append(numbers[key])
    least, room = sum(shapes[kind].area(Fraction(FOREVER)) for kind in kinds), problem.width * problem.height
    if least > room:
        raise LayoutError(
            f"the smallest rectangles of all kernels have {least:,} PEs, the wafer has {room:,}",
            where=problem.name or "problem",
            hint="a larger wafer or fewer kernels",
        )
    bound = least_time(shapes, np.bincount(kinds).tolist(), room)
    slowest = objective == "slowest"
    task = SearchTask(
        kinds,
        lambda limit: [shape.curve(limit) for shape in shapes],
        problem.width,
        problem.height,
        problem.wires,
        bound * Fraction(4095, 4096),
        1.0 if slowest else problem.time_weight,
        TIE * float(bound) / (problem.width + problem.height) / max(1, len(problem.wires))
        if slowest
        else problem.wire_weight,
    )
    return Prepared(problem, shapes, task)


def realise(prepared: Prepared, found: Found) -> list[PlacedKernel]:
    """Return the rectangles of a plan, slid together so that wires are short."""
    problem, task = prepared.problem, prepared.task
    rooms = Sizer(task.curves(found.limit), task.kinds, problem.height).rooms(found.plan, found.stretch)
    given: list[tuple[ContestKernel, Arguments, bool]] = []
    corners, sizes = np.zeros((len(rooms), 2), int), np.zeros((len(rooms), 2), int)
    for index, kernel in enumerate(problem.kernels):
        x, y, width, height = rooms[index]
        chosen = prepared.shapes[task.kinds[index]].arguments(found.limit, width, height)
        if chosen is None:
            raise InternalError(f"{kernel.name} does not fit into the room that was made for it")
        given.append((kernel, *chosen))
        natural = kernel.size(chosen[0])
        sizes[index] = natural[::-1] if chosen[1] else natural
        corners[index] = x + (width - sizes[index][0]) // 2, y + (height - sizes[index][1]) // 2
    corners = shortened(corners, sizes, problem.wires, (problem.width, problem.height))
    return [
        PlacedKernel(kernel, arguments, int(x), int(y), turned)
        for (kernel, arguments, turned), (x, y) in zip(given, corners, strict=True)
    ]


def solve(
    problem: ContestProblem,
    objective: str = "score",
    *,
    seconds: float = 60.0,
    rounds: int | None = None,
    processes: int = 1,
    seed: int = 0,
    report: Report | None = None,
) -> PlaceOutcome:
    """Place the kernels of a problem.

    Parameters
    ----------
    problem : ContestProblem
    objective : str
        ``score`` of the contest, or ``slowest``: the time of the slowest kernel, then the wires.
    seconds : float
        Of the clock, for each process.
    rounds : int, optional
        Of each process, instead of a time: the same placement everywhere.
    processes : int
        Searches side by side, each with its own seed.
    seed : int
    report : callable, optional
        Called now and then with the share of the work done, the rounds so far and the best so far.

    Returns
    -------
    Outcome
        Ctrl-C and a request to end stop the search, not the function: `PlaceOutcome.ended_by` says so.

    Raises
    ------
    UnsupportedError
        The score is wanted and adapters count in it.
    LayoutError
        No placement was found.
    """
    need_wiring()
    prepared = prepare(problem, objective)
    bests: list[Found | None] = [None] * processes
    best: Found | None = None
    done, spent = [0] * processes, [0.0] * processes
    ended: BaseException | None = None
    steps = _side_by_side if processes > 1 else _alone
    try:
        for number, count, cpu, found in steps(problem, prepared, objective, seconds, rounds, processes, seed):
            done[number], spent[number] = count, cpu
            if found is not None:
                bests[number] = found
                # of equal ones that of the first process, whoever came first
                best = min((each for each in bests if each is not None), key=lambda each: each.cost)
            if report is not None:
                share = sum(done) / rounds / processes if rounds else sum(spent) / seconds / processes
                report(min(1.0, share), sum(done), best)
    except (KeyboardInterrupt, Terminated) as signalled:
        ended = signalled
    if best is None:
        if ended is not None:
            raise ended
        raise LayoutError(
            f"no placement of {len(problem.kernels)} kernels on {problem.width} x {problem.height} PEs was found",
            cause="the wafer is too small for them, or has room for them only if they interlock",
            hint="more --seconds, or fewer kernels",
        )
    placed = realise(prepared, best)
    return PlaceOutcome(placed, scored(problem, placed), prepared.task.bound, sum(done), max(spent), _number(ended))


def _number(ended: BaseException | None) -> int:
    """Return the signal that ended a search, 0 for none."""
    if ended is None:
        return 0
    return ended.number if isinstance(ended, Terminated) else int(signal.SIGINT)


def need_wiring() -> None:
    """Refuse to begin what could not be finished for want of a library."""
    from harness.kit.modules import need

    need("scipy.optimize", "placing the kernels of a contest problem")


Step = tuple[int, int, float, Found | None]
"""Process, its rounds and seconds so far, and what is new: its best."""


def _rounds(
    task: SearchTask, seed: str, seconds: float, rounds: int | None
) -> Iterator[tuple[int, float, Found | None]]:
    """Yield rounds done, seconds, and the best plan if it is new, until time or rounds are over."""
    begun = time.monotonic()
    search = Search(task, seed)
    while True:
        better = search.round()
        cpu = time.monotonic() - begun
        yield search.rounds, cpu, search.best if better else None
        if not search.pool or (search.rounds >= rounds if rounds else cpu >= seconds):
            return


def _alone(
    problem: ContestProblem,
    prepared: Prepared,
    objective: str,
    seconds: float,
    rounds: int | None,
    processes: int,
    seed: int,
) -> Iterator[Step]:
    """Search in this process."""
    for count, cpu, found in _rounds(prepared.task, f"{seed}/0", seconds, rounds):
        yield 0, count, cpu, found


def _work(
    pipe: Connection, problem: ContestProblem, objective: str, seed: str, seconds: float, rounds: int | None
) -> None:
    """Search in a process of its own and tell what is found; the parent ends it, also after Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for step in _rounds(prepare(problem, objective).task, seed, seconds, rounds):
            pipe.send(step)
    except (BrokenPipeError, ConnectionResetError):
        return
    pipe.close()


def _side_by_side(
    problem: ContestProblem,
    prepared: Prepared,
    objective: str,
    seconds: float,
    rounds: int | None,
    processes: int,
    seed: int,
) -> Iterator[Step]:
    """Search in several processes."""
    context = multiprocessing.get_context("spawn")
    quiet = threading.current_thread() is threading.main_thread()
    workers: list[Any] = []
    pipes: dict[Any, int] = {}
    try:
        for number in range(processes):
            ours, theirs = context.Pipe(duplex=False)
            worker = context.Process(
                target=_work, args=(theirs, problem, objective, f"{seed}/{number}", seconds, rounds), daemon=True
            )
            # Ctrl-C is sent to the whole group: only this process answers it, also while the others still begin.
            before = signal.signal(signal.SIGINT, signal.SIG_IGN) if quiet else None
            worker.start()
            if quiet:
                signal.signal(signal.SIGINT, before)
            theirs.close()
            workers.append(worker)
            pipes[ours] = number
        while pipes:
            for ready in wait(list(pipes)):
                number = pipes[ready]
                try:
                    yield (number, *ready.recv())  # type: ignore[union-attr, call-arg]
                except EOFError:
                    del pipes[ready]
        for worker in workers:
            worker.join()
            if worker.exitcode:
                raise InternalError(f"a process of the search ended with status {worker.exitcode}")
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
            worker.join()
