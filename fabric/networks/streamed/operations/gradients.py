"""Gradients of matrices are made as rows times scalars, from a turned copy of the features, or as dots: which is said
here.

Both give the same bits (`fabric.kernels.streamed.gradient`).  A *dot* goes over the tokens of a feature: three vector
operations each, whatever the machine's width.  *Rows times scalars* go over the features of a token: one multiply-add
each, two features a cycle, but the tokens' features have to follow one another, so a phase begins with a copy.  The
form of a phase is the one whose program takes fewer cycles, copy included, in the column with the most features.  Masks
with gaps ask place by place, or for whole rows of which the memory service drops what it has no weight for, where that
takes fewer (`rows_pay`): from about a sixth of the weights on.  Filters have both forms too: there a window of all
channels of a column takes the place of a token's features, and nothing is copied.

Source: weight streaming white paper, section 7.3.2 (a dot product per place of the mask); the other form is ours, and
the costs of both are those of their tasks' instructions (`fabric.price`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from fabric.asm.operands import Reg
from fabric.kernels.streamed.gradient import SKIP, TASKS, TURNED, GradientTasks
from fabric.kernels.streamed.placement import Placement
from fabric.networks.graph.lookup import Lookup
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.plan import MemoryPlan
from fabric.networks.graph.windows import window_of
from fabric.networks.streamed.operations.shapes import ConvolutionShape
from fabric.price.tasks import Pricer
from fabric.program.program import Program
from wse_core.errors import ProgramError
from wse_core.formats import Half
from wse_core.params import Machine

__all__ = ["asked_cycles", "copies", "lacks_memory", "lacks_room", "pays", "rows_pay", "sums_of_windows", "windows_pay"]

TURN = max(TASKS.values()) + 1
"""The command that copies has this id, in the program whose tasks are priced; or the one that asks for windows."""
MOST_CHANNELS = 0xFF
"""A request for windows has room for so many channels of a column in its data."""
MOST_WORDS = 0x7FFF
"""Planes of more words than this do not fit a PE; numbers that move windows are signed."""


def copies(plan: MemoryPlan, machine: Machine, tokens: int, wanted: Collection[str] | None = None) -> dict[str, int]:
    """Return the features of a column, an even number, that are copied for each parameter for which that pays.

    Parameters
    ----------
    plan : MemoryPlan
    machine : Machine
    tokens : int
        Of a PE.
    wanted : collection of str, optional
        Parameters for which it shall be done, whether it pays or not.
    """
    found = {}
    for step in plan.steps:
        if step.direction == "ask" and step.op in ("linear", Lookup.name) and step.parameter is not None:
            name, bias = step.parameter.name, bool(step.node.size("bias"))
            x, delta = step.reads
            rows, owned = delta.rows, plan.layout(delta).most
            if step.op == Lookup.name:  # marks are rows, and what they are multiplied by are the gradients
                x, rows, owned, bias = delta, step.parameter.columns, 0, False
            features = plan.layout(x).most
            if wanted is None:
                taken = pays(machine, plan.network.dtype, tokens, rows, owned, features, bias)
            else:
                taken = name in wanted
            if taken:
                found[name] = features + bias + (features + bias) % 2
    return found


def pays(machine: Machine, half: Half, tokens: int, rows: int, owned: int, features: int, bias: bool) -> bool:
    """Whether rows of gradients take fewer cycles from a turned copy, the copy included.

    Parameters
    ----------
    machine : Machine
    half : str
        Format of the features.
    tokens : int
        Of a PE.
    rows, owned : int
        Rows of the matrix, and those that a column owns: only there their biases are asked for.
    features : int
        Of the fullest column.
    bias : bool
    """
    prices = _prices(machine, half, tokens)
    if prices is None:
        return False
    copied = prices.task("control", TURN, data=features + bias).alone
    dots, turned = (_all_rows(prices, form, rows, owned, features, bias) for form in (0, TURNED))
    return copied + turned < dots


def rows_pay(
    machine: Machine, half: Half, tokens: int, rows: int, owned: int, features: int, bias: bool, density: float
) -> bool:
    """Whether all gradients of a matrix with gaps take fewer cycles from a turned copy than those of its mask as dots.

    Parameters
    ----------
    machine, half, tokens, rows, owned, features, bias
        As for `pays`.
    density : float
        Share of the weights that exist.
    """
    dots, by_rows = asked_cycles(machine, half, tokens, rows, owned, features, bias, density)
    return by_rows < dots


def asked_cycles(
    machine: Machine, half: Half, tokens: int, rows: int, owned: int, features: int, bias: bool, density: float
) -> tuple[float, float]:
    """Return the cycles of the gradients of a matrix with gaps as dots, those of its mask, and by whole rows.

    So many tokens that the program does not fit have none: both are the same.

    Parameters
    ----------
    machine, half, tokens, rows, owned, features, bias, density
        As for `rows_pay`.
    """
    prices = _prices(machine, half, tokens)
    if prices is None:
        return 0.0, 0.0
    row, place = (prices.task("control", TASKS[name], data=0).alone for name in ("from_west", "ask"))
    dots = rows * (row + density * features * place) + owned * bias * place
    by_rows = _all_rows(prices, TURNED, rows, owned, features, bias)
    return dots, prices.task("control", TURN, data=features + bias).alone + by_rows


def _all_rows(prices: Pricer, form: int, rows: int, owned: int, features: int, bias: bool) -> float:
    """Return the cycles of all rows of a dense matrix, as dots (0) or `TURNED`."""
    plain = features | SKIP * (bias or not form) | form if features else 0
    each, own = (prices.task("control", TASKS["from_west"], data=one) for one in (plain, features + bias | form))
    return rows * each.alone + owned * (own.alone - each.alone)


@lru_cache(maxsize=64)
def _prices(machine: Machine, half: Half, tokens: int) -> Pricer | None:
    """Return the prices of a program that has both forms; its arrays have no size to speak of, but their banks.

    So many tokens that not even this program fits have none.
    """
    p = Program("gradients of a dense row", machine, half=half)
    x, d = p.array("x", tokens, "half", bank=1), p.array("d", tokens, "half")
    turned, totals = p.array("turned", tokens, "half", bank=1), p.array("totals", 1, "f32", bank=0)
    tasks = GradientTasks(
        p, 1, Placement(3, 3 * tokens, 3, 3), 1, 0, x, d, tokens, whole=True, turned=turned, totals=totals
    )
    tasks.features = p.dsr("src1")
    with p.task("prepare"):
        tasks.prepare()
        p.load(tasks.features, p.mem1d(turned, tokens, save=True))
    p.start("prepare")
    tasks.tasks()
    with p.task("turn", kind="control", id=TURN) as t:
        tasks.turn(t.data)
    try:
        return Pricer(p.assemble(), machine)
    except ProgramError as error:
        if not lacks_memory(error):
            raise
        return None


def lacks_memory(error: ProgramError) -> bool:
    """Whether a program was refused since it does not fit the memory of a PE."""
    return getattr(error, "limit", None) == "memory"


def lacks_room(error: ProgramError) -> bool:
    """Whether a program was refused since it does not fit the memory, or the registers, of a PE."""
    return lacks_memory(error) or getattr(error, "limit", None) == "registers"


def _asks_of(plan: MemoryPlan) -> list[NetworkStep]:
    """Return the requests for gradients of filters."""
    kinds = ("convolution", "transposed")
    return [step for step in plan.steps if step.direction == "ask" and step.op == step.node.op and step.op in kinds]


def sums_of_windows(
    plan: MemoryPlan, machine: Machine, tokens: int, wanted: Collection[str] | None = None
) -> dict[str, int]:
    """Return the sums that a column makes at once for each parameter of filters for which windows times numbers pay.

    Parameters
    ----------
    plan, machine, tokens, wanted
        As of `copies`.
    """
    found = {}
    for step in _asks_of(plan):
        assert step.parameter is not None
        below = step.node.name if step.op == "transposed" else step.node.inputs[0]
        window = window_of(step.node, plan.network.tensors[below].rows)
        held = plan.layouts[plan.level(below)].most // window.plane
        channels = min(held, window.channels // step.node.size("groups"))
        shape = ConvolutionShape.of(window, "ask")
        if wanted is None:
            taken = windows_pay(machine, plan.network.dtype, tokens, shape, channels)
        else:
            taken = step.parameter.name in wanted
        if taken and held <= MOST_CHANNELS:
            found[step.parameter.name] = channels * window.taps
    return found


@lru_cache(maxsize=256)
def windows_pay(machine: Machine, half: Half, tokens: int, shape: ConvolutionShape, channels: int) -> bool:
    """Whether a row's gradients take fewer cycles as windows of so many channels times numbers than as dots.

    Planes so long that not even their sums fit a PE do not.
    """
    moves = shape.moves(tokens)
    if max(moves.values()) > MOST_WORDS:
        return False
    p, elements = Program("gradients of filters", machine, half=half), shape.rows * tokens
    x, d = p.array("x", tokens, "half", bank=1), p.array("d", tokens, "half")
    totals = p.array("totals", channels * shape.kernel[0] * shape.kernel[1], "f32", bank=0)
    try:
        tasks = GradientTasks(
            p, 1, Placement(3, 3 * tokens, 3, 3), 1, 0, x, d, tokens, longest=elements, totals=totals, windows=elements
        )
        tasks.features, row = p.dsr("src1"), p.dsr("dest")
        held = {name: p.scalar(name, "i16", value) for name, value in moves.items()}

        def number(name: str) -> Reg:
            found = p.reg16(name)
            p.ld16(found, held[name])
            return found

        with p.task("prepare"):
            tasks.prepare()
            tasks.over(shape.windows(p, x, tokens), elements)
            p.load(tasks.features, shape.window(p, x, tokens))
            p.load(row, p.mem1d(tasks.scalars, elements))
        p.start("prepare")
        tasks.tasks()
        with p.task("windows", kind="control", id=TURN) as t:
            tasks.answer_windows(t.data, row, x, number)
        given: dict[str | int, object] = dict(moves.items())
        prices = Pricer(p.assemble(), machine, given)
    except ProgramError as error:
        if not lacks_memory(error):
            raise
        return False
    dots = shape.kernel[0] * shape.kernel[1] * channels * prices.task("control", TASKS["ask"], data=0).alone
    return prices.task("control", TURN, data=channels).alone < dots
