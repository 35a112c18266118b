"""A decoder's step has all-reduces along columns, along rows, and along the columns of one head.

Both axes have one two-way K-tree with the flood of its sum, used again by every all-reduce of the step with vectors of
other lengths.  Along x the lowest level of the tree has the columns of a head of keys and values as its groups, so that
level alone, with a flood of its own, sums the scores of each head: no colors and no input queues beside the tree's.

Colors
    y: 4 and the flood; x: 4 and the flood; the flood inside a head; two for the shift of the cache; token in, id out;
    two from region to region (`fabric.networks.inference.pipeline`).
Queues
    Input queues: levels of y 2 and 4, its flood 6; levels of x 3 and 5, its flood 7; flood inside a head 0; shift 1.
    The token enters column 0 on queue 3: a column at the edge sends on the lowest level and never receives there.  What
    column 0 hands over leaves on output queue 0, with which only roots inside a head flood.

Source: WaferLLM, section 6 (K-trees); the shared level is of this project.
"""

from __future__ import annotations

from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.matvec.line_sum import LineSum, Queues
from fabric.networks.inference.placement import DecoderPlacement
from wse_core.params import Machine

__all__ = [
    "COLOR_HAND",
    "COLOR_HEAD",
    "COLOR_IN",
    "COLOR_OUT",
    "COLOR_SHIFT",
    "QUEUE_HEAD",
    "QUEUE_IN",
    "QUEUE_SHIFT",
    "Axis",
    "axes",
]

COLORS_Y, COLORS_X = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
COLOR_HEAD, COLOR_SHIFT, COLOR_IN, COLOR_OUT, COLOR_HAND = 10, (11, 12), 13, 14, (15, 16)
QUEUES_Y, QUEUES_X = Queues((2, 4), 6, 2), Queues((3, 5), 7, 3)
QUEUE_HEAD, QUEUE_SHIFT, QUEUE_IN = 0, 1, 3
LEVELS = 2
"""Most levels of a tree: input queues are left for no more."""


class Axis:
    """An `Axis` is the reduction tree of all rows or of all columns, with its colors and queues.

    Parameters
    ----------
    machine : Machine
    line : Line
        All rows, or all columns.
    colors : tuple of int
    queues : Queues
    group : int
        Places of the lowest groups; 1: whatever is fastest for `typical` values.
    typical : int
        Values of a usual vector.
    """

    def __init__(
        self, machine: Machine, line: Line, colors: tuple[int, ...], queues: Queues, group: int, typical: int
    ) -> None:
        self.machine, self.line, self.colors, self.queues = machine, line, colors, queues
        if group > 1:
            self.levels, self.group = (1, 0) if group == len(line) else (LEVELS, group)
        else:
            most = max(1, (len(line) - 1).bit_length())
            ends = {}
            for levels in range(1, min(LEVELS, most) + 1):
                self.levels, self.group = levels, 0
                ends[levels] = self.sum(typical).end(0)
            self.levels = min(ends, key=lambda levels: ends[levels])

    def sum(self, n: int, combine: str = "add") -> LineSum:
        """Return the all-reduce of vectors of n f32 values."""
        return LineSum(
            "ktree",
            self.line,
            n,
            "f32",
            self.machine,
            self.colors,
            self.levels,
            self.group,
            broadcast=True,
            queues=self.queues,
            combine=combine,
        )


def axes(machine: Machine, place: DecoderPlacement, x: int = 0) -> tuple[Axis, Axis]:
    """Return the axes along x and along y of a placement that begins in column `x`."""
    rows, columns = Line.rows(place.width, place.height, x), Line.columns(place.width, place.height, x)
    along_x = Axis(machine, rows, COLORS_X, QUEUES_X, place.group, place.hidden)
    along_y = Axis(machine, columns, COLORS_Y, QUEUES_Y, 1, place.shapes["qkv"].rows)
    return along_x, along_y
