"""The all-reduces of matrix-vector products add up the partial results of a line and, if wanted, give them to all
places.

`LineSum` joins the pieces of `fabric.kernels.collectives.pieces` that exist, behind one face: ``pipeline`` is the chain
of `line_reduce`, ``ktree`` the two-way tree of `ktree`, ``ring`` and ``folded_ring`` are those of `ring_allreduce`,
after which every place has the sum.  After the first
two one place has it, the root, and a flood by the routers gives it to the others.  ``auto`` takes the fastest by the
closed forms; K of a K-tree that is not given is chosen in the same way, among those that colors and queues allow.

Colors: pipeline 2, rings 3, ktree 2 K, the broadcast one more.  Queues: `Queues`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Var
from fabric.kernels.collectives.pieces import ktree, trees
from fabric.kernels.collectives.pieces.flood import flood_line
from fabric.kernels.collectives.pieces.line_reduce import Reduce
from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.collectives.pieces.ring_allreduce import RingAllreduce
from fabric.kernels.kit.data import wavelets_of
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.errors import ConfigError, PlanError
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["ALGORITHMS", "LineSum", "Queues", "check_group"]

ALGORITHMS = ("pipeline", "ring", "folded_ring", "ktree")
RINGS = {"ring": "plain", "folded_ring": "folded"}

Piece: TypeAlias = ktree.KTree | Reduce | RingAllreduce
"""A piece is what sums along a line."""


class Queues(NamedTuple):
    """A `LineSum` has these queues: input and output of each level, and those of the broadcast."""

    levels: tuple[int, ...] = ktree.QUEUES
    flood_in: int = 6
    flood_out: int = 2


def check_group(group: int, *lines: Line) -> None:
    """Refuse groups that are longer than every line."""
    longest = max(map(len, lines))
    if group > longest:
        raise ConfigError(
            f"a group of {group} PEs is longer than the line of {longest}",
            where="group",
            hint=f"2 to {longest}, or 0 for equal groups",
            value=group,
        )


class LineSum:
    """A `LineSum` is the sum of vectors over a line.

    Parameters
    ----------
    algorithm : str
        One of `ALGORITHMS` or ``auto``.
    line : Line
    n : int
        Elements; an even number of 16-bit ones.
    dtype : str
        Format of data and sums.
    machine : Machine
    colors : sequence of int
        Colors that may be used.
    levels, group : int
        K and the group size of a K-tree; 0: chosen.
    broadcast : bool
        Whether all places get the sum.
    queues : Queues
    among : sequence of str
        What ``auto`` chooses from.
    combine : {"add", "max", "min"}
        What makes one number of two; the largest and the smallest are for a K-tree of f32 only.

    Attributes
    ----------
    name : str
        Of the algorithm taken.
    padded : int
        Elements that the variable of the vector needs.
    root : int or None
        Place that has the sum; None: all have it.

    Raises
    ------
    PlanError
        More colors or queues than there are; names the limit.
    ConfigError
        A number of levels that no groups of this line have.
    """

    def __init__(
        self,
        algorithm: str,
        line: Line,
        n: int,
        dtype: str,
        machine: Machine,
        colors: tuple[int, ...],
        levels: int = 0,
        group: int = 0,
        broadcast: bool = False,
        queues: Queues | None = None,
        among: tuple[str, ...] = ALGORITHMS,
        combine: str = "add",
    ) -> None:
        self.line, self.n, self.dtype, self.machine, self.combine = line, n, dtype, machine, combine
        self.broadcast, self.queues, self.pool = broadcast and len(line) > 1, queues or Queues(), tuple(colors)
        names = among if algorithm == "auto" else (algorithm,)
        found = [self._piece(name, k, group) for name in names for k in self._choices(name, levels, algorithm)]
        self.piece, self.name = min(found, key=lambda pair: self._end(pair[0], 0))

    def _choices(self, name: str, levels: int, algorithm: str) -> Sequence[int]:
        """Return the numbers of levels to try."""
        if name != "ktree":
            return (0,)
        most = max(1, (len(self.line) - 1).bit_length())
        limit = max(1, min(len(self.queues.levels), (len(self.pool) - self.broadcast) // 2))
        if levels and not (algorithm == "auto" and levels > most):
            return (levels,)
        return range(1, min(most, limit) + 1)

    def _piece(self, name: str, levels: int, group: int) -> tuple[Piece, str]:
        if name == "ktree":
            groups = ktree.group_sizes(len(self.line), levels, group)
            self._check(f"a K-tree of {levels} levels", 2 * len(groups))
            if len(groups) > len(self.queues.levels):
                raise PlanError(
                    f"a K-tree of {levels} levels needs {len(groups)} input queues for its sums, there are "
                    f"{len(self.queues.levels)}",
                    where="all-reduce",
                    hint="a smaller K",
                    limit="queues",
                    needed=len(groups),
                    available=len(self.queues.levels),
                )
            return ktree.KTree(
                self.line, groups, self.pool[: 2 * len(groups)], self.n, self.dtype, self.queues.levels, self.combine
            ), name
        if name in RINGS:
            self._check(name, 3, False)
            return RingAllreduce(
                self.line, self.pool[:3], self.n, self.dtype, self.dtype, RINGS[name], self.queues.levels[0]
            ), name
        self._check(name, 2)
        return Reduce(
            self.line, trees.chain(len(self.line)), self.pool[:2], self.n, self.dtype, self.dtype, self.queues.levels[0]
        ), name

    def _check(self, what: str, needed: int, flooded: bool = True) -> None:
        needed += self.broadcast and flooded
        if len(self.line) > 1 and needed > len(self.pool):
            raise PlanError(
                f"{what} needs {needed} colors, {len(self.pool)} are left",
                where="all-reduce",
                hint="an algorithm with fewer colors, a smaller K",
                limit="routes",
                needed=int(needed),
                available=len(self.pool),
            )

    @property
    def is_ring(self) -> bool:
        """The algorithm is a ring, by which all places get the sum."""
        return self.name in RINGS

    @property
    def root(self) -> int | None:
        """Place that has the sum; None: all have it."""
        if self.is_ring or self.broadcast:
            return None
        return self._root()

    def _root(self) -> int:
        return self.piece.root if isinstance(self.piece, ktree.KTree) else 0

    @property
    def floods(self) -> bool:
        """Whether a broadcast follows."""
        return self.broadcast and not self.is_ring

    @property
    def wavelets(self) -> int:
        """A vector has so many wavelets."""
        return wavelets_of(self.n, self.dtype)

    @property
    def padded(self) -> int:
        """The variable of the vector needs so many elements."""
        return self.piece.padded if isinstance(self.piece, RingAllreduce) else self.n

    @property
    def groups(self) -> tuple[int, ...]:
        """A K-tree has groups of these sizes, bottom level first; empty for others."""
        return self.piece.groups if isinstance(self.piece, ktree.KTree) else ()

    @property
    def colors(self) -> tuple[int, ...]:
        """These colors are used, those of the broadcast last."""
        if len(self.line) == 1:
            return ()
        count = 3 if self.is_ring else 2 * len(self.groups) if self.name == "ktree" else 2
        return self.pool[: count + self.floods]

    def roles(self) -> list[tuple[Any, bool]]:
        """Return the role of each place, hashable."""
        found = list(self.piece.roles())
        return (
            [(role, k == self._root()) for k, role in enumerate(found)]
            if self.floods
            else [(role, False) for role in found]
        )

    def routes(self, layout: Layout) -> None:
        """Paint the routes of the line into a layout."""
        self.piece.routes(layout)
        if self.floods:
            flood_line(self.line, layout, self.colors[-1], self._root())

    def emit(self, p: Program, role: tuple[Any, bool], x: Var) -> None:
        """Write the part of a PE: `x` is its vector and takes the sum."""
        own, is_root = role
        self.piece.emit(p, own, x, x)
        if not self.floods:
            return
        move = p.mov32 if self.dtype == "f32" else p.mov16
        if is_root:
            move(p.fabout(p.output_queue(self.queues.flood_out, self.colors[-1]), self.n), x)
        else:
            move(x, p.fabin(p.input_queue(self.queues.flood_in, self.colors[-1]), self.n))

    # --- reference, counts, cycles ------------------------------------------------------------------------------------

    def total(self, parts: Sequence[Bits], arithmetic: Arithmetic) -> Bits:
        """Return the bits of the sum in the order of the PEs; `parts` are the bit patterns of the places."""
        return self.piece.total(parts, arithmetic, arithmetic)

    @property
    def hops(self) -> int:
        """The sum takes so many wavelet hops, control included."""
        flood = self.line.copies * self.wavelets * len(self.line) if self.floods else 0
        return self.piece.hops + flood

    @property
    def additions(self) -> int:
        """The sum takes so many additions of elements."""
        return self.piece.additions

    @property
    def depth(self) -> int:
        """The sum has so many additions that follow one another."""
        return self.piece.depth if isinstance(self.piece, ktree.KTree) else len(self.line) - 1

    def end(self, start: int) -> int:
        """Return the cycle in which the last place with the sum can go on, if all places begin in cycle `start`."""
        return self._end(self.piece, start)

    def ends(self, starts: NDArray[Any]) -> NDArray[Any]:
        """Return when each place of a K-tree whose sum is given to all can go on, if each begins when `starts` says.

        The last axis of `starts` has the places; each of the others is a sum of its own.
        """
        assert isinstance(self.piece, ktree.KTree)
        m, root = self.machine, self.piece.root
        now = np.asarray(self.piece.end(starts, m))[..., np.newaxis]
        if not self.floods:
            return np.broadcast_to(now, starts.shape).copy()
        w, into, out = self.wavelets, self.queues.flood_in, self.queues.flood_out
        load, issue = timing.load(m, 2), timing.issue(m)
        first = now + load + issue  # the step that sends the first wavelet
        arrival = first + timing.way(m, abs(np.arange(starts.shape[-1]) - root))
        found: NDArray[Any] = timing.receiver(m, w, into, out)(starts + load + issue, arrival) + m["vec.drain"]
        found[..., root] = first[..., 0] + timing.sending(m, w, into, out) + m["vec.drain"]
        return found

    def _end(self, piece: Piece, start: int) -> int:
        m = self.machine
        if isinstance(piece, RingAllreduce):
            return piece.estimate(start, m)
        now = piece.end(start, m)
        if not self.broadcast:
            return now
        root = piece.root if isinstance(piece, ktree.KTree) else 0
        far = max(root, len(self.line) - 1 - root)
        return now + timing.transfer(m, self.wavelets, far, self.queues.flood_in, self.queues.flood_out)

    def lower_bound(self) -> int:
        """Return cycles that no algorithm stays below.

        One place has the sum: the wavelets of the farthest other place (half the line at least) leave it one by one,
        and the last one has that way to go.  A ring leaves to every place its own chunk: a P-th less leaves.
        """
        m, p, w = self.machine, len(self.line), self.wavelets
        if p == 1:
            return 0
        if self.is_ring:
            return max(w * (p - 1) // p + timing.stage(m), timing.way(m, p // 2))
        return w + timing.way(m, p // 2)
