"""Reductions are trees over a line of PEs: who adds what in which order, and the colors and switches for it.

PE 0 keeps the sum; every other PE sends one message, toward PE 0, after it has added those of its children, nearest
child first.  The subtree of a PE is a contiguous stretch that begins with it.  All algorithms are such trees:

``star``
    everybody is a child of PE 0.
``chain``
    PE k is the child of PE k - 1.
``two_phase``
    chains inside groups of S PEs, then a chain over the first PEs (leaders) of the groups.
``tree``
    binary (binomial): PE k sends to k with its lowest set bit cleared.
``optimal``
    the tree of least cost for a vector of given length, found by dynamic programming over energy and depth.

A message passes the PEs between sender and receiver in their routers.  For that each router of a color has up to two
positions: its own use first (send: R to T; receive: A to R), then passing (A to T).  What moves them on
comes behind a message: where only the sender is passed, it moves its own switch (advance_switch); where the receiver
is, a control wavelet goes the way of the message and moves on the routers of sender and receiver; those between are
passing already and stay.
A stream that comes too early waits in a router that is still in its first position: order on a link is that of the
switches, nearest sender first.  Two ways to choose colors make that safe:

*by depth*: color = depth of the sender.  A PE receives on one color that nobody passes it on, because who passes a PE
has at most its depth.  Colors: height of the tree.  For star, tree and optimal.

*alternating*: two colors, changing from PE to PE inside a group, and such that a leader receives on one color in both
phases and sends on the other.  A PE with a single child may be passed on the color it received on, since one control
wavelet ends both its receiving and the sending of its child.  For chain and two_phase.

Sources: Luczynski et al., HPDC 2024 (arXiv 2404.15888): the algorithms; two colors with switches: program measured in
pr0f3ss/SpMM_Cerebras, reduce_2colors_2phase.  The assignment of colors by depth is derived here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.collectives import costs
from fabric.kernels.collectives.costs import Wire
from fabric.kernels.collectives.pieces.lines import Line
from fabric.layout.layout import Layout
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["LONGEST", "Advance", "Tree", "binary", "build", "chain", "gap_closes", "optimal", "star", "two_phase"]

Advance = Literal["none", "own", "way"]
"""It is what a message moves on behind it: no switch, that of its sender (advance_switch), or those of its way."""

LONGEST = 2048
"""An optimal tree is searched for lines of at most so many PEs: time and memory grow with the square."""


@dataclass(frozen=True)
class Tree:
    """A `Tree` is a reduction tree over PEs 0 ..  P-1.

    Attributes
    ----------
    parent : tuple of int
        Receiver of each PE's message; -1 for PE 0.
    color : tuple of int
        Number (0, 1 ..) of the color of each PE's message; -1 for PE 0.
    merge : bool
        Whether all messages that a PE adds into its memory are one operation (else one each).
    name : str
        Of the algorithm.
    """

    parent: tuple[int, ...]
    color: tuple[int, ...]
    merge: bool = True
    name: str = ""

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def colors(self) -> int:
        """The tree needs so many colors."""
        return max(self.color) + 1

    @cached_property
    def children(self) -> list[list[int]]:
        """Each PE has these children, nearest first."""
        found: list[list[int]] = [[] for _ in self.parent]
        for k, parent in enumerate(self.parent):
            if parent >= 0:
                found[parent].append(k)
        return found

    @property
    def energy(self) -> int:
        """One wavelet per message takes so many hops, all messages together."""
        return sum(k - parent for k, parent in enumerate(self.parent) if parent >= 0)

    @cached_property
    def depth(self) -> int:
        """A path to PE 0 has at most so many messages."""
        depth = [0] * len(self)
        for k in range(1, len(self)):
            depth[k] = depth[self.parent[k]] + 1
        return max(depth)

    @cached_property
    def roundings(self) -> int:
        """The value of a PE goes through at most so many additions."""
        most = [0] * len(self)
        for k in range(len(self)):
            children = self.children[k]
            above = most[k]
            most[k] = above + len(children)
            for i, child in enumerate(children):
                most[child] = above + len(children) - i
        return max(most)

    @cached_property
    def passes(self) -> NDArray[np.bool_]:
        """The array (colors, P) says whether messages of a color pass a PE."""
        change = np.zeros((max(1, self.colors), len(self) + 1), np.int32)
        for k in range(1, len(self)):
            change[self.color[k], self.parent[k] + 1] += 1
            change[self.color[k], k] -= 1
        return change.cumsum(axis=1)[:, :-1] > 0

    @cached_property
    def advance(self) -> list[Advance]:
        """This is the end of each PE's message, by who will be passed on its color: receiver, sender alone, or
        nobody.
        """
        found: list[Advance] = ["none"]
        for k in range(1, len(self)):
            passed = self.passes[self.color[k]]
            found.append("way" if passed[self.parent[k]] else "own" if passed[k] else "none")
        return found

    def role(self, k: int) -> tuple[int, int, int, Advance]:
        """Return (children, color received on or -1, color sent on or -1, what moves switches on) of PE k."""
        children = self.children[k]
        return len(children), self.color[children[0]] if children else -1, self.color[k], self.advance[k]

    def routes(self, line: Line, layout: Layout, colors: Sequence[int]) -> None:
        """Paint the routes of all colors along a `Line`; ``colors[i]`` is color number i."""
        into, out = np.array([self.role(k)[1:3] for k in range(len(self))]).T
        for number in range(self.colors):
            passed, sends, takes = self.passes[number], out == number, into == number
            for places, rx, tx, switch in (
                (sends & passed, "R", "T", {"rx": "A"}),
                (sends & ~passed, "R", "T", None),
                (takes & ~sends & passed, "A", "R", {"tx": "T"}),
                (takes & ~sends & ~passed, "A", "R", None),
                (passed & ~sends & ~takes, "A", "T", None),
            ):
                line.route_each(layout, colors[number], np.flatnonzero(places).tolist(), rx, tx, switch)


def gap_closes(machine: Machine, wavelets: int) -> bool:
    """Return whether messages of so many wavelets that wait for one another follow without a gap.

    Each sender moves its own switch behind its message, which takes a cycle of its router.  It has done so before the
    message is asked for if all of it fits into the next router; else that router bridges the gap if it has more room
    than there are wavelets in flight to it.
    """
    return wavelets <= machine["router.depth"] or machine["router.depth"] > machine["router.hop"] + 1


def _by_depth(parent: Sequence[int]) -> Tree:
    depth = [0] * len(parent)
    for k in range(1, len(parent)):
        depth[k] = depth[parent[k]] + 1
    return Tree(tuple(parent), tuple(d - 1 for d in depth))


def star(p: int) -> Tree:
    """Return the tree in which everybody is a child of PE 0."""
    return _by_depth([-1] + [0] * (p - 1))


def binary(p: int) -> Tree:
    """Return the binomial tree: ceil(log2 P) rounds, in round r odd multiples of 2^r send over 2^r hops."""
    return _by_depth([k & (k - 1) if k else -1 for k in range(p)])


def two_phase(p: int, group: int) -> Tree:
    """Return chains in groups of `group` PEs and a chain over the groups' first PEs."""
    parent, color = [-1], [-1]
    for k in range(1, p):
        number, place = divmod(k, group)
        parent.append(k - 1 if place else k - group)
        color.append((number + place + 1) % 2)
    return Tree(tuple(parent), tuple(color), merge=False)


def chain(p: int) -> Tree:
    """Return the tree that is a chain."""
    return two_phase(p, max(1, p))


def optimal(p: int, b: int, wire: Wire, most: int | None = None) -> Tree:
    """Return the tree of least published cost for B wavelets on P PEs, of depth at most `most` (the colors there are).

    Luczynski et al. generate code for such trees (Auto-Gen).

    Raises
    ------
    ConfigError
        More PEs than `LONGEST`.
    """
    if p > LONGEST:
        raise ConfigError(
            f"optimal trees are searched for lines of at most {LONGEST} PEs, not {p}", value=p, hint="two_phase or tree"
        )
    parent = [-1] * p
    if p > 1:
        depth, cost = costs.optimal_depth(p, b, wire, most)
        if costs.chain(p, b, wire) <= cost:
            return chain(p)  # the deepest tree, and the only deep one that two colors are enough for
        split = costs.energy(p)[1]
        todo = [(0, p, depth)]
        while todo:
            root, size, depth = todo.pop()
            while size > 1:
                place = int(split[size, depth])
                parent[root + place] = root
                todo.append((root + place, size - place, depth - 1))
                size = place
    return _by_depth(parent)


def build(algorithm: str, p: int, b: int, wire: Wire, group: int = 0, most: int | None = None) -> Tree:
    """Return the `Tree` of an algorithm by name; `group` is S of two_phase, 0 for the default near sqrt(P)."""
    if algorithm == "two_phase":
        tree = two_phase(p, group or costs.default_group(p))
    elif algorithm == "optimal":
        tree = optimal(p, b, wire, most)
    else:
        tree = {"star": star, "chain": chain, "tree": binary}[algorithm](p)
    return replace(tree, name=algorithm)
