"""The interference graph is colored with sixteen registers; some nodes need an even register and the odd one after it.

Registers with few neighbours are put aside first and colored last; what gets no color is kept in memory (constants are
made again instead), and the coloring starts anew.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace

from fabric.csl.allocate.interference import Graph
from fabric.csl.allocate.spill import spill
from fabric.csl.allocate.thin import thin
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import IrFunction, StaticMemory, Vreg
from wse_core.encoding import N_REGS

__all__ = ["allocate"]

ROUNDS = 30


def allocate(
    function: IrFunction, frame: Callable[[int], StaticMemory], reserved: frozenset[int] = frozenset()
) -> None:
    """Give every virtual register of a function a machine register (`Vreg.fixed`).

    Parameters
    ----------
    function : IrFunction
        Its callees have their registers already.
    frame : callable
        Returns memory of a number of words for a register that is kept there.
    reserved : frozenset of int
        Machine registers that no value may lie in.

    Raises
    ------
    Fault
        If an operation alone needs more registers than there are.
    """
    _arguments(function)
    spilled = thin(function, frame)
    for _ in range(ROUNDS):
        graph = Graph(function, reserved)
        colors, failed = _color(graph, spilled)
        if not failed:
            break
        spilled |= spill(function, failed, frame)
    else:
        raise Fault(f"'{function.name}' needs more registers than there are", function.span)
    for reg, color in colors.items():
        reg.fixed = color
    _finish(function, graph)


def _arguments(function: IrFunction) -> None:
    """Put arguments where the functions that are called want them."""
    for instr in function.instructions():
        if instr.op == "call":
            for argument, place in zip(instr.args, instr.data.places, strict=True):
                argument.fixed = place


def _finish(function: IrFunction, graph: Graph) -> None:
    """Drop copies of a register to itself, and note what the function changes."""
    clobbers: set[int] = set()
    for block in function.blocks:
        kept = []
        for instr in block.code:
            for reg in instr.defs():
                assert reg.fixed is not None
                clobbers |= set(range(reg.fixed, reg.fixed + reg.size))
            if instr.op in ("call", "tail"):
                clobbers |= instr.data.clobbers
            if instr.op == "copy" and instr.dst.fixed == instr.args[0].fixed:  # type: ignore[union-attr]
                continue
            kept.append(instr)
        block.code = kept
    function.clobbers = set(range(N_REGS)) if function.circle else clobbers
    if not function.circle:
        function.places = [param.fixed if param.fixed is not None else 0 for param in function.params]


def _color(graph: Graph, spilled: set[Vreg]) -> tuple[dict[Vreg, int], set[Vreg]]:
    """Return machine registers, and the virtual ones for which there are none."""
    # Sets have no order of their own, and the same program shall always get the same registers.
    edges = {reg: sorted(graph.edges[reg], key=_number) for reg in sorted(graph.edges, key=_number)}
    degree = {reg: _pressure(graph, reg) for reg in edges if reg.fixed is None}
    left = dict(degree)
    order: list[Vreg] = []
    remaining = set(left)
    easy = [reg for reg in left if left[reg] + reg.size <= N_REGS - len(graph.banned[reg])]
    hard = _Cheapest(graph, left, spilled)
    while remaining:
        reg = easy.pop() if easy else hard.pop(remaining)
        if reg not in remaining:
            continue
        remaining.discard(reg)
        order.append(reg)
        for other in edges[reg]:
            if other in remaining:
                left[other] -= reg.size if other.size == 1 else 2
                if left[other] + other.size <= N_REGS - len(graph.banned[other]):
                    easy.append(other)
    colors: dict[Vreg, int] = {}
    failed: set[Vreg] = set()
    for reg in reversed(order):
        taken = set(graph.banned[reg])
        for other in graph.edges[reg]:
            if other in colors:
                taken |= set(range(colors[other], colors[other] + other.size))
        color = _choice(graph, reg, taken, colors)
        if color is None:
            failed.add(reg)
        else:
            colors[reg] = color
    if failed & spilled and not failed - spilled:
        neighbours = {other for reg in failed for other in graph.edges[reg]} - spilled
        failed = {min(neighbours, key=lambda r: (graph.cost[r], r.number))} if neighbours else failed
    return colors, failed - spilled or failed


class _Cheapest:
    """A `_Cheapest` gives the register that costs least in memory for each that it is in the way of; spilled ones last.

    Numbers of neighbours only fall, so prices only rise: one that has risen since it was noted goes back.
    """

    def __init__(self, graph: Graph, left: dict[Vreg, int], spilled: set[Vreg]) -> None:
        self._cost, self._left = graph.cost, left
        self._heap = [(reg in spilled, self._price(reg), reg.number, reg) for reg in left]
        heapify(self._heap)

    def _price(self, reg: Vreg) -> float:
        return self._cost[reg] / (self._left[reg] + 1)

    def pop(self, remaining: set[Vreg]) -> Vreg:
        """Return the next one of those that remain."""
        while True:
            last, price, number, reg = self._heap[0]
            now = self._price(reg)
            if reg in remaining and now != price:
                heapreplace(self._heap, (last, now, number, reg))
                continue
            heappop(self._heap)
            if reg in remaining:
                return reg


def _number(reg: Vreg) -> int:
    return reg.number


def _pressure(graph: Graph, reg: Vreg) -> int:
    return sum(other.size if reg.size == 1 else 2 for other in graph.edges[reg])


def _choice(graph: Graph, reg: Vreg, taken: set[int], colors: dict[Vreg, int]) -> int | None:
    """Return a register that is free: that of something it is copied from or to, if it can be."""
    step = reg.size

    def fits(at: int) -> bool:
        return at % step == 0 and at + step <= N_REGS and not any(at + k in taken for k in range(step))

    for other in graph.moves[reg]:
        at = other.fixed if other.fixed is not None else colors.get(other)
        if at is not None and other.size == reg.size and fits(at):
            return at
    for other, which in graph.halves.get(reg, ()):
        at = other.fixed if other.fixed is not None else colors.get(other)
        if at is not None and other.size != reg.size and fits(at := at + which if step == 1 else at - which):
            return at
    # What a neighbour that comes later is copied from or to is left to it, if there is something else.
    wanted = {
        move.fixed + k
        for other in graph.edges[reg]
        if other not in colors
        for move in graph.moves[other]
        if move.fixed is not None
        for k in range(move.size)
    }
    if step == 2:
        free = [at for at in range(0, N_REGS, 2) if fits(at)]
        return min(free, key=lambda at: (not wanted.isdisjoint((at, at + 1)), at)) if free else None
    # Numbers of one word take odd places whose partner is taken first, so that pairs stay free.
    free = [at for at in range(N_REGS) if fits(at)]
    return min(free, key=lambda at: (at in wanted, (at ^ 1) not in taken, at)) if free else None
