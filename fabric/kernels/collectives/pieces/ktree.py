"""A two-way K-tree is the sum of vectors over a line, from both ends of groups toward their middle, K levels.

What moves
    The places of a line form groups.  In a group of g places, place g // 2 is the root: chains from both ends add
    toward it, and it adds what the two chains bring, that of the shorter side first.  The roots are the line of the
    next level; messages of higher levels pass the places between in their routers.  After K levels one place has the
    sum.  Default groups: the smallest g with g^K >= P on every level, the last one takes what is left.

Colors and queues
    Two colors per level: the members of a group send in turn in the one and in the other, counted along the line, so
    that both chains reach the root in the same color and a member never sends in the color in which it receives.  A
    root lets one side in first and then the other: a control wavelet behind each message moves its switch, which is a
    ring, so that the tree can be used again.  All other routes are static.  One input and one output queue per level.

Order of additions (bit exact)
    Chains from their far end; a root x: x + (chain of the shorter side, or of the far one if equal), then + the other.
    On the critical path ceil(g / 2) additions per level: 360, 28, 15, 11 for 720 places and K = 1 .. 4.

Cycles
    `KTree.end`: every level waits for the descriptors of its operations, for the chain (down the ramp, one addition, up
    the ramp, the links between two members) and for both vectors, one wavelet per cycle.

Sources
    He et al., WaferLLM (OSDI 2025), sections 6.1 and 6.2.  The colors and the order at the roots are derived here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Var
from fabric.kernels.collectives.pieces import trees
from fabric.kernels.collectives.pieces.line_reduce import COMBINE, Reduce, Role
from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.kit.data import wavelets_of
from fabric.kernels.kit.plmr import ktree_groups
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["QUEUES", "KTree", "Sides", "group_sizes"]

QUEUES = (2, 4, 5, 1, 0)
"""Each level has an input and an output queue, which is the limit of K."""


def group_sizes(n: int, levels: int, group: int = 0) -> tuple[int, ...]:
    """Return the groups of `ktree_groups` for a tree that can be built.

    Parameters
    ----------
    n : int
        Places of the line.
    levels : int
        K.
    group : int
        Places of a group on all levels but the last; 0: the smallest g with g^K >= n.

    Raises
    ------
    ConfigError
        More levels than there are halvings of the line.
    """
    most = max(1, (n - 1).bit_length())
    if not 1 <= levels <= most:
        raise ConfigError(
            f"a tree of {levels} levels over {n} PEs",
            where="K-tree",
            value=levels,
            hint=f"1 .. {most} levels: groups have at least two members",
        )
    return tuple(ktree_groups(n, levels, group))


Starts: TypeAlias = "int | Sequence[int] | NDArray[Any]"
"""Places of a line begin at these cycles."""


class Sides(NamedTuple):
    """The sides that the roots of a level let in at the same turn; shorter ones are filled up.

    Attributes
    ----------
    roots : ndarray, shape (groups,)
    places, members, hops : ndarray, shape (groups, longest)
        Places of a side, how many messages it is from each to the root, and how many links.
    loads : ndarray, shape (groups, longest)
        Descriptors that a member loads: the far end only sends.
    """

    roots: NDArray[np.int64]
    places: NDArray[np.int64]
    members: NDArray[np.int64]
    hops: NDArray[np.int64]
    loads: NDArray[np.int64]

    @staticmethod
    def of(chains: Sequence[tuple[int, list[int]]]) -> Sides:
        """Return the turn of chains, each with its root; what fills up repeats the member next to the root."""
        longest = max(len(side) for _, side in chains)
        roots = np.array([root for root, _ in chains])
        places = np.array([side + side[-1:] * (longest - len(side)) for _, side in chains])
        members = np.array([[max(1, len(side) - k) for k in range(longest)] for _, side in chains])
        loads = np.full_like(places, 3)
        loads[:, 0] = 2
        loads[[len(side) == 1 for _, side in chains]] = 2
        return Sides(roots, places, members, abs(places - roots[:, np.newaxis]), loads)

    def delays(self, machine: Machine) -> NDArray[np.int64]:
        """Return the cycles from when a member begins to when what it adds can arrive at the root."""
        ways = self.members * timing.ramps(machine) + self.hops * machine["router.hop"]
        found: NDArray[np.int64] = ways + timing.load(machine, self.loads) + timing.issue(machine)
        return found


@dataclass(frozen=True)
class KTree:
    """A `KTree` is the sum of vectors over a line, to a place in its middle.

    Attributes
    ----------
    line : Line
    groups : tuple of int
        Members of a group per level, bottom level first; the last group of a level may have fewer.
    colors : tuple of int
        Two per level.
    n : int
        Elements; an even number of 16-bit ones.
    dtype : str
        Format of the data and of the sums.
    queues : tuple of int
        Input and output queue of each level.
    combine : {"add", "max", "min"}
        What makes one number of two; the largest and the smallest are for f32 only.
    """

    line: Line
    groups: tuple[int, ...]
    colors: tuple[int, ...]
    n: int
    dtype: str
    queues: tuple[int, ...] = QUEUES
    combine: str = "add"

    @property
    def wavelets(self) -> int:
        """A message has so many wavelets."""
        return wavelets_of(self.n, self.dtype)

    @cached_property
    def levels(self) -> list[list[list[int]]]:
        """Per level the groups, each a list of places; a group of one keeps its value."""
        found: list[list[list[int]]] = []
        members = list(range(len(self.line)))
        for size in self.groups:
            found.append([members[k : k + size] for k in range(0, len(members), size)])
            members = [group[len(group) // 2] for group in found[-1]]
        return found

    @property
    def root(self) -> int:
        """This place has the sum at the end."""
        top = self.levels[-1][0] if self.levels else [0]
        return top[len(top) // 2]

    def sides(self, group: list[int]) -> list[list[int]]:
        """Return the chains of a group in the order in which its root takes them; each from its far end."""
        middle = len(group) // 2
        return [side for side in (group[:middle:-1], group[:middle]) if side]

    def roles(self) -> list[tuple[Role | None, ...]]:
        """Return per place a tuple with its `Role` on each level, None where it takes no part."""
        found: list[list[Role | None]] = [[None] * len(self.groups) for _ in range(len(self.line))]
        for number, level in enumerate(self.levels):
            pair = self.colors[2 * number : 2 * number + 2]
            for group in level:
                middle = len(group) // 2
                sides = len(self.sides(group))
                for i, place in enumerate(group):
                    mine, other = pair[i % 2], pair[1 - i % 2]
                    if i == middle:
                        role = Role(sides, other, None, "none") if sides else None
                    else:
                        inner, ends = 0 < i < len(group) - 1, sides == 2 and abs(i - middle) == 1
                        role = Role(int(inner), other if inner else None, mine, "way" if ends else "none")
                    found[place][number] = role
        return [tuple(roles) for roles in found]

    def routes(self, layout: Layout) -> None:
        """Paint the routes of all groups into a layout."""
        for number, level in enumerate(self.levels):
            pair = self.colors[2 * number : 2 * number + 2]
            for group in level:
                middle = len(group) // 2
                for i, place in enumerate(group):
                    if i == middle:
                        continue
                    step = 1 if i < middle else -1
                    ahead, behind = ("A", "T") if step > 0 else ("T", "A")
                    color, target = pair[i % 2], group[i + step]
                    self.line.route(layout, color, place, "R", ahead)
                    for k in range(place + step, target, step):
                        self.line.route(layout, color, k, behind, ahead)
                    if i + step != middle:
                        self.line.route(layout, color, target, behind, "R")
                sides = len(self.sides(group))
                if sides == 2:
                    self.line.route(layout, pair[1 - middle % 2], group[middle], "A", "R", {"rx": "T"}, ring=True)
                elif sides:
                    self.line.route(layout, pair[1 - middle % 2], group[middle], "T", "R")

    def emit(self, p: Program, roles: Sequence[Role | None], x: Var, total: Var) -> None:
        """Write the part of a PE into the task of a program: `x` is its vector, `total`, the same, takes the sums."""
        one = trees.star(1)  # `Reduce.emit` asks its tree only whether messages of one PE are one operation
        for role, queue in zip(roles, self.queues, strict=False):
            if role is not None:
                Reduce(self.line, one, (), self.n, self.dtype, self.dtype, queue, self.combine).emit(p, role, x, total)

    # --- reference, counts, cycles ------------------------------------------------------------------------------------

    def total(self, parts: Sequence[Bits], arithmetic: Arithmetic, result: Arithmetic) -> Bits:
        """Return the bits of the sum in the order of the PEs; both arithmetics are the same, as for other pieces."""
        values: list[NDArray[Any]] = list(parts)
        combine = COMBINE[self.combine][1]
        for group in (group for level in self.levels for group in level):
            root = group[len(group) // 2]
            for side in self.sides(group):
                total = values[side[0]]
                for place in side[1:]:
                    total = result.call(combine, values[place], total)
                values[root] = result.call(combine, values[root], total)
        return values[self.root]

    @property
    def depth(self) -> int:
        """The critical path has so many additions: the most that depend on one another."""
        done = [0] * len(self.line)
        for group in (group for level in self.levels for group in level):
            root = group[len(group) // 2]
            for side in self.sides(group):
                late = done[side[0]]
                for place in side[1:]:
                    late = 1 + max(late, done[place])
                done[root] = 1 + max(late, done[root])
        return done[self.root]

    @property
    def hops(self) -> int:
        """All copies of the line take so many wavelet hops, control wavelets included."""
        total = 0
        for group in (group for level in self.levels for group in level):
            middle, both = len(group) // 2, len(self.sides(group)) == 2
            for i, (a, b) in enumerate(pairwise(group)):
                total += (1 + b - a) * (self.wavelets + (both and i in (middle - 1, middle)))
        return self.line.copies * total

    @property
    def additions(self) -> int:
        """All copies together do so many additions of elements: (P - 1) n each."""
        return self.line.copies * (len(self.line) - 1) * self.n

    @cached_property
    def turns(self) -> list[list[Sides]]:
        """Each level has the sides that roots let in first, and those that they let in second."""
        found: list[list[Sides]] = []
        for level in self.levels:
            chains = [(group[len(group) // 2], self.sides(group)) for group in level]
            turns = ([(root, sides[turn]) for root, sides in chains if len(sides) > turn] for turn in range(2))
            found.append([Sides.of(each) for each in turns if each])
        return found

    def end(self, start: Starts, machine: Machine) -> Any:
        """Return the cycle in which the root can issue what follows, if the places begin in cycle `start`.

        `start` is one number for all places, one for each, or an array whose last axis has one for each: then there is
        a result for each of the others.
        """
        m, w, drain = machine, self.wavelets, machine["vec.drain"]
        load, issue = timing.load(m), timing.issue(m)
        given = np.asarray(start)
        times = np.array(np.broadcast_to(given, (*given.shape[:-1], len(self.line))))
        for number, level in enumerate(self.turns):
            queue = self.queues[number]
            room = m["queue.in_depth"][queue] + m["ramp.in_buffer"]
            behind = timing.train(m, w, queue, queue) + timing.command(m)  # to the next message, behind a command
            received = timing.receiver(m, w, queue, queue)
            passed: Any = 0
            for turn, sides in enumerate(level):
                arrival = (times[..., sides.places] + sides.delays(m)).max(axis=-1)
                if turn == 0:
                    ready = times[..., sides.roots] + 2 * load + issue
                else:  # groups with a second side are the first ones: only the last group may be short
                    count = len(sides.roots)
                    ready, arrival = ready[..., :count], np.maximum(arrival, passed[..., :count])
                taken = np.maximum(ready, arrival)
                # The control wavelet follows the last one, which enters the queue when there is room for it.
                full = taken + w - room + m["ramp.in"] + 1 + timing.command(m)
                passed = np.maximum(arrival + behind, full if w > room else 0)
                ready = received(ready, arrival)
                times[..., sides.roots] = ready + drain
        root = times[..., self.root]
        return root if root.ndim else root.item()
