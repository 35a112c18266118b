"""A vector operation has steps, each of which takes its time: groups, lanes, bank conflicts.

Timing: docs/machine.md, "Vector step".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from fabric.price.content import FABRIC, MEMORY, Content
from wse_core import isa
from wse_core.image import DSD_CIRCULAR, DSD_FABOUT, DSD_FIFO, DSD_MEM1D, DSD_MEM4D, F_ADVANCE
from wse_core.isa import Op
from wse_core.params import Machine

__all__ = ["Steps", "modulus_of", "offset_of", "steps_of"]


class Steps(NamedTuple):
    """`Steps` are what the steps of an operation do.

    Attributes
    ----------
    groups : tuple of int
        Elements of each step; the last one is 0 if a wavelet follows that moves switches on.
    costs : tuple of int
        Cycles of each.
    total : int
        Cycles of all.
    """

    groups: tuple[int, ...]
    costs: tuple[int, ...]
    total: int


class _Walk(NamedTuple):
    """A `_Walk` is an operand in memory as far as steps depend on it: addresses count modulo the number of banks."""

    kind: int
    words: int
    base: int
    start: int
    length: int
    extent: tuple[int, ...]
    stride: tuple[int, ...]

    def address(self, k: int) -> int:
        """Return the word address of element k."""
        if self.kind == DSD_MEM1D:
            return self.base + k * self.stride[0] * self.words
        if self.kind == DSD_CIRCULAR:
            return self.base + (self.start + k) % self.length * self.words
        offset = 0
        for dimension in reversed(range(len(self.extent))):
            i = k
            if dimension:
                k, i = divmod(k, self.extent[dimension])
            offset += i * self.stride[dimension]
        return self.base + offset * self.words


def offset_of(content: Content, k: int, words: int) -> int | None:
    """Return how far from the base an element in memory lies; None if that is not known or it lies elsewhere.

    Parameters
    ----------
    content : Content
        Of the operand's DSR.
    k : int
        The element.
    words : int
        Of an element.
    """
    return None if content.kind not in MEMORY or content.moves else _walk(content, words, 0).address(k)


def _walk(one: Content, words: int, base: int) -> _Walk:
    """Return how an operand in memory goes through it from an address on."""
    shape = one.shape
    dimensions = shape.ndim if one.kind == DSD_MEM4D else 1
    extent, stride = (tuple(int(v or 0) for v in numbers[:dimensions]) for numbers in (shape.extent, shape.stride))
    return _Walk(one.kind, words, base, shape.start or 0, shape.length, extent, stride)


def modulus_of(machine: Machine) -> int:
    """Return by how many words operands may be moved without any change of steps, or a multiple of it."""
    banks = int(machine["mem.banks"])
    return max(1, banks // 2) if machine["mem.conflict_rule"] == "mod4" else banks


def steps_of(
    machine: Machine, op: Op, n: int, dest: Content | None, sources: Sequence[Content | None], row: int = 0
) -> Steps:
    """Return the `Steps` of n elements.

    Parameters
    ----------
    machine : Machine
    op : Op
    n : int
    dest : Content or None
        None: a register, or none at all.
    sources : sequence of (Content or None)
        Of b and c.
    row : int
        Of operands whose base moves: the row of the array at which they stand.
    """
    modulus = modulus_of(machine)

    def walk(one: Content | None, letter: str) -> _Walk | None:
        if one is None or one.kind not in MEMORY:
            return None
        words = isa.WORDS[letter]
        at = one.base + (row * int(one.shape.extent[0] or 0) * words if one.moves else 0)
        return _walk(one, words, at % modulus)

    held = [one for one in (*sources, dest) if one is not None]
    packed = any(
        one.packed and isa.WORDS[letter] == 1
        for one, letter in zip((dest, *sources), op.types, strict=False)
        if one is not None
    )
    streamed = any(one.kind in (*FABRIC, DSD_FIFO) for one in held)
    advances = dest is not None and dest.kind == DSD_FABOUT and bool(dest.shape.flags & F_ADVANCE)
    read = tuple(walk(one, letter) for one, letter in zip(sources, op.types[1:], strict=False))
    return _steps(machine, op, n, walk(dest, op.types[0]), read, dest is None, streamed, packed, advances)


@lru_cache(maxsize=16384)
def _steps(
    machine: Machine,
    op: Op,
    n: int,
    dest: _Walk | None,
    sources: tuple[_Walk | None, ...],
    to_register: bool,
    streamed: bool,
    packed: bool,
    advances: bool,
) -> Steps:
    """Return the `Steps` of an operation, of which all that they depend on is given."""
    memory = [one for one in (*sources, dest) if one is not None]
    lanes = _lanes(machine, op, memory)
    to_one_place = to_register or (dest is not None and dest.kind == DSD_MEM1D and dest.stride[0] == 0)
    group = (2 if packed else 1) if streamed else 1 if to_one_place and n > 1 else lanes
    rows = [] if streamed else [one.extent[-1] for one in memory if one.kind == DSD_MEM4D]
    groups, costs, k = [], [], 0
    while k < n:
        g = min(group, n - k, *(row - k % row for row in rows))
        groups.append(g)
        costs.append(-(-g // lanes) + _conflict(machine, n, dest, [one for one in sources if one is not None], k, g))
        k += g
    if advances:
        groups.append(0)
        costs.append(1)
    return Steps(tuple(groups), tuple(costs), sum(costs))


def _lanes(machine: Machine, op: Op, memory: Sequence[_Walk]) -> int:
    """Return the elements that are done in a cycle."""
    lanes = machine.lanes(op) or 1
    for one in memory:
        stride = one.stride[-1]
        if one.kind == DSD_CIRCULAR or stride in (0, 1):
            continue
        most = {0: 1, 1: 2, 7: 2, 4: machine["vec.stride4_lanes"]}.get(abs(stride) % 8, lanes)
        lanes = min(lanes, most)
    return lanes


def _conflict(machine: Machine, n: int, dest: _Walk | None, sources: Sequence[_Walk], k: int, group: int) -> int:
    """Return the cycles that a step loses in memory, which begins with element k."""
    banks, rule, modulus = machine["mem.banks"], machine["mem.conflict_rule"], modulus_of(machine)

    def of(one: _Walk, count: int) -> set[int]:
        return {one.address(k + i) % modulus for i in range(count)}

    lost = 0
    if len(sources) == 2:
        both = group if all(one.words == 2 for one in sources) else 1
        meet = rule != "none" and not of(sources[0], both).isdisjoint(of(sources[1], both))
        lost = machine["mem.conflict_cycles"] if meet or machine["mem.read_ports"] == 1 else 0
    if dest is not None and dest.kind == DSD_MEM1D and n > 1 and dest.stride[0] and rule != "none":
        written = of(dest, 1)
        if dest.stride[0] * dest.words % banks == 0 and any(written == of(one, 1) for one in sources):
            lost = max(lost, machine["mem.write_cycles"])
    return lost
