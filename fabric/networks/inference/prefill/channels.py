"""Neighbours of a row are connected for sums toward a home that moves, and for pieces of numbers from it.

Each PE sends to both neighbours and receives from both, in colors of the parity of its column, so that no route ever
changes, wherever the home of a step is.

sum to the home
    PEs at the ends begin; each adds its own numbers to those that pass, own + passing, and the home adds what comes
    from the west and then what comes from the east.
spread from the home
    The home sends to both sides, each PE keeps a copy and passes it on.
all-reduce inside a head
    Along the columns of a head to its last one, own with passing, and back.
entering
    A row's embeddings come in at the west edge, those of column 0 first; each column keeps its own and passes the rest.

Lines are whole rows or the columns of one head; what lies beyond the end of a line is not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fabric.asm.operands import Reg, Var
from fabric.layout.layout import Layout
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.writer import PromptWriter

__all__ = [
    "COLOR_EAST",
    "COLOR_WEST",
    "FROM_EAST",
    "FROM_WEST",
    "TO_EAST",
    "TO_WEST",
    "Channels",
    "Ends",
    "route_channels",
]

COLOR_EAST, COLOR_WEST = (10, 11), (12, 13)
"""Numbers toward the east and toward the west have these colors, by the parity of the sender's column."""
FROM_WEST, FROM_EAST = 2, 3
"""Numbers from the west and from the east come by these input queues."""
TO_EAST, TO_WEST = 2, 4
"""Numbers to the east and to the west are sent by these output queues."""


class Ends(NamedTuple):
    """Whether a PE has a neighbour in its line to the west, to the east."""

    west: bool
    east: bool


def route_channels(layout: Layout, prompt: PromptPlacement) -> None:
    """Paint the routes between neighbours and those of the west edge."""
    width, height = prompt.place.width, prompt.place.height
    layout.route(COLOR_EAST[1], (0, 0, 1, height), rx="W", tx="R")
    for x in range(width - 1):
        for color, sender, receiver, ahead, behind in (
            (COLOR_EAST[x % 2], x, x + 1, "E", "W"),
            (COLOR_WEST[(x + 1) % 2], x + 1, x, "W", "E"),
        ):
            layout.route(color, (sender, 0, 1, height), rx="R", tx=ahead)
            layout.route(color, (receiver, 0, 1, height), rx=behind, tx="R")


class Channels:
    """A `Channels` writes into a program how a PE sends to its neighbours of the row and receives from them.

    Parameters
    ----------
    w : PromptWriter
    parity : int
        Of the column.
    ends : Ends
        Of the row.
    """

    def __init__(self, w: PromptWriter, parity: int, ends: Ends) -> None:
        p = w.p
        self.w, self.ends = w, ends
        self.from_west = p.input_queue(FROM_WEST, COLOR_EAST[1 - parity])
        if ends.west:
            self.to_west = p.output_queue(TO_WEST, COLOR_WEST[parity])
        if ends.east:
            self.from_east = p.input_queue(FROM_EAST, COLOR_WEST[1 - parity])
            self.to_east = p.output_queue(TO_EAST, COLOR_EAST[parity])

    def enter(self, own: Var, behind: Var) -> None:
        """Write that embeddings come in: as many as `own` has for each column, `behind` columns farther east."""
        p = self.w.p
        p.mov16(own, p.fabin(self.from_west, own.count))
        if self.ends.east:
            columns = p.reg16("columns behind")
            p.ld16(columns, behind)
            with p.loop(columns):
                p.mov16(p.fabout(self.to_east, own.count), p.fabin(self.from_west, own.count))
            p.free(columns)

    def _either(
        self, ends: Ends, goes: Reg, west: Callable[[], None], east: Callable[[], None], here: Callable[[Reg], None]
    ) -> None:
        """Write what happens if the home is to the west, to the east, here; `here` takes its slot; frees `goes`."""
        p, end = self.w.p, self.w.p.new_label()
        if ends.west:
            with p.if_("eq", goes, 0, "16"):
                west()
                p.jump(end)
        p.sub16(goes, goes, 1)
        if ends.east:
            with p.if_("eq", goes, 0, "16"):
                east()
                p.jump(end)
        p.sub16(goes, goes, 1)
        here(goes)
        p.place(end)
        p.free(goes)

    def sum_home(self, ends: Ends, goes: Reg, numbers: Var, count: int, keep: Callable[[Reg], None]) -> None:
        """Write that `count` numbers are summed along a line; `keep` takes the slot at the home, where the sum is."""
        p = self.w.p
        own = p.mem1d(numbers, count)

        def west() -> None:
            out = p.fabout(self.to_west, count)
            p.fadds(out, own, p.fabin(self.from_east, count)) if ends.east else p.mov32(out, own)

        def east() -> None:
            out = p.fabout(self.to_east, count)
            p.fadds(out, own, p.fabin(self.from_west, count)) if ends.west else p.mov32(out, own)

        def here(slot: Reg) -> None:
            for there, queue in ((ends.west, "from_west"), (ends.east, "from_east")):
                if there:
                    p.fadds(own, own, p.fabin(getattr(self, queue), count))
            keep(slot)

        self._either(ends, goes, west, east, here)

    def spread(self, ends: Ends, goes: Reg, piece: Var, base: Reg, find: Callable[[Reg, Reg], None]) -> None:
        """Write that the home's piece of 16-bit numbers comes to all of a line.

        Parameters
        ----------
        ends : Ends
        goes : Reg
            Freed.
        piece : Var
            Takes the piece where it comes from elsewhere.
        base : Reg
            Its address, in the end.
        find : callable
            Takes the slot and `base`, and writes at the home how `base` becomes the address of the piece.
        """
        p, w, count = self.w.p, self.w, piece.count

        def passed(queue: str, on: bool, to: str) -> Callable[[], None]:
            def write() -> None:
                p.mov16(piece, p.fabin(getattr(self, queue), count))
                if on:
                    p.mov16(p.fabout(getattr(self, to), count), piece)
                p.ldi(base, piece)

            return write

        def here(slot: Reg) -> None:
            find(slot, base)
            if ends.west or ends.east:
                p.load(w.second_half, p.mem1d(piece, count))
                p.dsr_base(w.second_half, base)
            for there, to in ((ends.east, "to_east"), (ends.west, "to_west")):
                if there:
                    p.mov16(p.fabout(getattr(self, to), count), w.second_half)

        west, east = passed("from_west", ends.east, "to_east"), passed("from_east", ends.west, "to_west")
        self._either(ends, goes, west, east, here)

    def all_reduce(self, ends: Ends, numbers: Var, operation: Callable[..., None]) -> None:
        """Write that numbers become the sum, or whatever `operation` makes of two, over a line."""
        p, n = self.w.p, numbers.count
        if ends.west and ends.east:
            operation(p.fabout(self.to_east, n), numbers, p.fabin(self.from_west, n))
        elif ends.east:
            p.mov32(p.fabout(self.to_east, n), numbers)
        elif ends.west:
            operation(numbers, numbers, p.fabin(self.from_west, n))
            p.mov32(p.fabout(self.to_west, n), numbers)
        if ends.east:
            p.mov32(numbers, p.fabin(self.from_east, n))
            if ends.west:
                p.mov32(p.fabout(self.to_west, n), numbers)
