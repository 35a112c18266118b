"""Images get other sides: each pixel of the result is a sum of some that are given, times constants.

Rows and columns are independent of each other: the constants of a pixel are those of its row times those of its column.
Columns are made first and rounded, then rows.  The constants are rounded to 16 bits as weights are; no gradient is
theirs.  On the way back the same is done with the constants the other way round, columns first again.

=======  ===============================================================================================================
method   a pixel of the result
=======  ===============================================================================================================
linear   is between the two nearest ones, images being as wide as their pixels; what is outside is the pixel at the edge
corners  is between the two nearest ones, the first and the last pixels of both images being in the same places
cubic    is on the curve through the four nearest ones, with -3/4 for the outer slope, images as of ``linear``
area     is the mean of those that it lies over, each of them whole
mean     is the mean of those that its window lies over; what is outside of the image does not count
pick     is the one of a row and a column that are said for its own, or zero where one of them is -1
=======  ===============================================================================================================

Sources: `torch.nn.functional.interpolate`, `adaptive_avg_pool2d`, `avg_pool2d`; ONNX operator Resize, version 19;
R. Keys, "Cubic convolution interpolation for digital image processing", 1981; that columns come first is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

import numpy as np

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.networks.graph.windows import Window, channels_of, window_of
from wse_core.errors import ConfigError

__all__ = ["METHODS", "SIZED", "SLOPE", "Lines", "Resample", "resampled", "sides_of", "turned"]

Lines: TypeAlias = tuple[tuple[tuple[int, float], ...], ...]
"""`Lines` say for each line of a result which lines are summed for it, and times what."""
METHODS = ("linear", "corners", "cubic", "area", "mean", "pick")
"""A node has the number of one of these as ``method``."""
SIZED = METHODS[:4]
"""These follow from the sides of both images."""
SLOPE = -0.75
"""The outer part of the cubic curve has this slope."""


def _between(place: float, given: int) -> list[tuple[int, float]]:
    """Return the two lines next to a place, and the share of each; beyond the edge it is that of the edge."""
    below = math.floor(place)
    share = place - below
    return [(min(max(n, 0), given - 1), part) for n, part in ((below, 1 - share), (below + 1, share))]


def _curve(place: float, given: int) -> list[tuple[int, float]]:
    """Return the four lines next to a place, and their factors."""
    below, found = math.floor(place), list[tuple[int, float]]()
    for n in range(below - 1, below + 3):
        far = abs(place - n)
        inner = ((SLOPE + 2) * far - (SLOPE + 3)) * far * far + 1
        outer = ((far - 5) * far + 8) * far * SLOPE - 4 * SLOPE
        found.append((min(max(n, 0), given - 1), inner if far <= 1 else outer))
    return found


def _summed(parts: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return each line once, in order, with the sum of its factors; none that is zero."""
    found: dict[int, float] = {}
    for n, factor in parts:
        found[n] = found.get(n, 0.0) + factor
    return tuple((n, factor) for n, factor in sorted(found.items()) if factor)


def _lines(method: str, given: int, result: int) -> Lines:
    """Return the lines of a side of so many for one of so many."""
    if method == "area":
        ends = [(k * given // result, -(-(k + 1) * given // result)) for k in range(result)]
        return tuple(tuple((n, 1 / (last - first)) for n in range(first, last)) for first, last in ends)
    if method == "corners":
        apart = (given - 1) / max(1, result - 1)
        return tuple(_summed(_between(k * apart, given)) for k in range(result))
    places = [(k + 0.5) * given / result - 0.5 for k in range(result)]
    near = _curve if method == "cubic" else _between
    return tuple(_summed(near(place, given)) for place in places)


def _means(window: Window, axis: int) -> Lines:
    """Return the lines of windows along a side, whose means count what is inside of the image."""
    side, first = (window.height, window.width)[axis], window.before[axis]
    count, reach, stride = (window.out_height, window.out_width)[axis], window.reach[axis], window.strides[axis]
    found = []
    for k in range(count):
        inside = range(max(0, k * stride - first), min(side, k * stride - first + reach))
        found.append(tuple((n, 1 / len(inside)) for n in inside))
    return tuple(found)


@lru_cache(maxsize=256)
def sides_of(node: Node) -> tuple[Lines, Lines]:
    """Return the lines of rows, and those of columns, of a node's result."""
    method = METHODS[node.size("method")]
    if method == "mean":
        window = window_of(node, math.prod(node.size(side) for side in ("channels", "height", "width")))
        return _means(window, 0), _means(window, 1)
    if method == "pick":
        rows, columns = (
            tuple(((line, 1.0),) * (line >= 0) for line in (node.size(f"{side} {k}") for k in range(node.size(count))))
            for side, count in (("row", "out_height"), ("column", "out_width"))
        )
        return rows, columns
    sides = (("height", "out_height"), ("width", "out_width"))
    rows, columns = (_lines(method, node.size(given), node.size(result)) for given, result in sides)
    return rows, columns


def turned(lines: Lines, given: int) -> Lines:
    """Return the lines of the way back: to which of the result each of so many that were given went."""
    found: list[list[tuple[int, float]]] = [[] for _ in range(given)]
    for k, parts in enumerate(lines):
        for n, factor in parts:
            found[n].append((k, factor))
    return tuple(map(tuple, found))


def resampled(planes: np.ndarray, method: str, sides: Sequence[int]) -> np.ndarray:
    """Return images of other sides, in float64, as files of networks are told apart by.

    Parameters
    ----------
    planes : ndarray, shape (..., rows, columns)
    method : str
        One of `SIZED`.
    sides : sequence of int
        Rows and columns of the result.
    """
    rows, columns = (
        _matrix(_lines(method, given, result), given) for given, result in zip(planes.shape[-2:], sides, strict=True)
    )
    return np.asarray(rows @ planes @ columns.T)


def _matrix(lines: Lines, given: int) -> np.ndarray:
    """Return the matrix that lines are."""
    found = np.zeros((len(lines), given))
    for k, parts in enumerate(lines):
        for n, factor in parts:
            found[k, n] = factor
    return found


class Resample(NetworkOperation):
    """This operation gives images other sides.

    Its node has ``channels``, ``height`` and ``width`` of what is given, ``out_height`` and ``out_width``, and the
    number of a method of `METHODS`; for a ``mean`` also the sizes of a window, for ``pick`` those of the lines that are
    picked: ``row 0``, ``row 1`` and so on, and ``column 0`` and so on.
    """

    name, meaning = "resample", "y = rows and columns of weighted sums"
    in_place, channelwise = False, True
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode has no images"}

    def features(self, node: Node, given: int) -> int:
        channels = channels_of(node, given)
        rows, columns = sides_of(node)
        sides = node.size("out_height"), node.size("out_width")
        empty = METHODS[node.size("method")] != "pick" and not all((*rows, *columns))
        outside = max((n for lines in rows for n, _ in lines), default=0) >= node.size("height")
        outside |= max((n for lines in columns for n, _ in lines), default=0) >= node.size("width")
        if min(sides) < 1 or (len(rows), len(columns)) != sides or empty or outside:
            image = f"{node.size('height')} x {node.size('width')}"
            what = f"{node.name}: images of {image} pixels do not become such of {sides[0]} x {sides[1]}"
            raise ConfigError(what, where="network")
        return channels * len(rows) * len(columns)

    def units(self, node: Node, given: int) -> tuple[int, int]:
        return node.size("height") * node.size("width"), node.size("out_height") * node.size("out_width")

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        rows, columns = self._matrices(a, node)
        planes = x.reshape(len(x), node.size("channels"), node.size("height"), node.size("width"))
        return a.round(np.matmul(rows, a.round(np.matmul(planes, columns.T)))).reshape(len(x), -1), None

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Any, Values]:
        rows, columns = self._matrices(a, node)
        planes = delta.reshape(len(delta), node.size("channels"), len(rows), len(columns))
        return a.round(np.matmul(rows.T, a.round(np.matmul(planes, columns)))).reshape(len(delta), -1), None

    def _matrices(self, a: PlainArithmetic, node: Node) -> list[np.ndarray]:
        """Return the constants of rows and of columns, rounded."""
        sides = zip(sides_of(node), (node.size("height"), node.size("width")), strict=True)
        return [a.round(_matrix(lines, given).astype(a.dtype)) for lines, given in sides]
