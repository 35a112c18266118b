"""Entries of filters have places: the column whose planes they meet, and where their walk over those begins.

`fabric.networks.streamed.writer` makes words of them, `swarm.cluster.graph_costs` counts them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.layouts import ColumnLayout
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.plan import MemoryPlan
from fabric.networks.graph.windows import Window, window_of
from fabric.networks.streamed.operations.shapes import ConvolutionShape
from fabric.networks.streamed.parameters import StreamedPattern

__all__ = ["FilterEntries", "asked_filters_of", "filters_of", "windows_asked"]

Numbers = NDArray[np.int64]


class FilterEntries(NamedTuple):
    """Entries of filters stand in the order in which they are sent or asked for.

    Attributes
    ----------
    entries : ndarray of int
        Number of each in its pattern.
    rows : ndarray of int
        Row of each: the channel that it gives, on the way back that which it was given.
    owner, local : ndarray of int
        Column that has the plane, and row in its padded planes where the walk over them begins.
    bias : ndarray of bool
        It is a bias, which belongs to the column of the result.
    """

    entries: Numbers
    rows: Numbers
    owner: Numbers
    local: Numbers
    bias: NDArray[np.bool_]

    def of(self, chosen: Numbers) -> FilterEntries:
        """Return some of the entries."""
        return FilterEntries(
            self.entries[chosen], self.rows[chosen], self.owner[chosen], self.local[chosen], self.bias[chosen]
        )


def filters_of(plan: MemoryPlan, step: NetworkStep, pattern: StreamedPattern) -> tuple[FilterEntries, Numbers]:
    """Return the entries of the filters of a product, and the column where each row lands."""
    node, entries = step.node, np.arange(pattern.count)
    window, above, below = _images(plan, step)
    back = (step.direction == "back") != (node.op == "transposed")
    owner, local, channel, bias = _places(plan, step, pattern, "back" if back else "forward")
    if back:
        order = np.flatnonzero(~bias)
        landing = below.owners(np.arange(window.channels) * window.plane)
        rows = channel
    else:
        order = np.lexsort((~bias, pattern.rows))  # the bias of a row first
        landing = above.owners(np.arange(node.size("outputs")) * window.out_plane)
        rows = pattern.rows
    return FilterEntries(entries[order], rows[order], owner[order], local[order], bias[order]), landing


def asked_filters_of(plan: MemoryPlan, step: NetworkStep, pattern: StreamedPattern) -> tuple[FilterEntries, Numbers]:
    """Return the entries of filters whose gradients are asked for, and the column that sends each row."""
    window, above, _ = _images(plan, step)
    owner, local, _, bias = _places(plan, step, pattern, "forward")
    sender = above.owners(np.arange(step.node.size("outputs")) * window.out_plane)
    order = np.lexsort((~bias, pattern.rows))  # the bias of a row first
    return FilterEntries(order, pattern.rows[order], owner[order], local[order], bias[order]), sender


def windows_asked(plan: MemoryPlan, step: NetworkStep, mine: FilterEntries) -> tuple[Numbers, Numbers]:
    """Return the first entry of each request of a column for whole windows, or for a bias, and the data of the former.

    A row without gaps asks for the places of all channels of its group that the column has, one after the other; data
    are the first of them in the column, times 256, and how many.
    """
    window, _, _ = _images(plan, step)
    around = ConvolutionShape.of(window, "ask").padded
    first = (np.diff(mine.rows, prepend=-1) != 0) | np.append(False, mine.bias[:-1])  # a bias stands alone
    begins = np.flatnonzero(first[: len(mine.rows)])
    return begins, mine.local[begins] // around << 8 | np.diff(begins, append=len(mine.rows)) // window.taps


def _images(plan: MemoryPlan, step: NetworkStep) -> tuple[Window, ColumnLayout, ColumnLayout]:
    """Return the window of a convolution, the layout of what it gives, and of what it is given.

    Of a transposed one they are those of the convolution that goes the other way.
    """
    names = step.node.inputs[0], step.node.name
    below, above = names[::-1] if step.node.op == "transposed" else names
    window = window_of(step.node, plan.network.tensors[below].rows)
    return window, plan.layouts[plan.level(above)], plan.layouts[plan.level(below)]


def _places(
    plan: MemoryPlan, step: NetworkStep, pattern: StreamedPattern, direction: str
) -> tuple[Numbers, Numbers, Numbers, NDArray[np.bool_]]:
    """Return owner, local place, channel of what is given, and whether it is a bias, of each entry of filters."""
    window, above, below = _images(plan, step)
    node, around = step.node, ConvolutionShape.of(window, direction).around
    of_group, results = window.channels // node.size("groups"), node.size("outputs") // node.size("groups")
    bias = pattern.indices == of_group * window.taps
    tap = np.where(bias, 0, pattern.indices)
    channel = pattern.rows // results * of_group + tap // window.taps
    u, v = tap % window.taps // window.kernel_width, tap % window.kernel_width
    met, layout, plane = channel, below, window.plane
    if direction == "back":
        met, layout, plane = pattern.rows, above, window.out_plane
        u, v = window.kernel_height - 1 - u, window.kernel_width - 1 - v
    (down, along), copy = window.dilations, around[0] * around[1]
    local = layout.local(met * plane) // plane * copy + u * down * around[1] + v * along
    owner = np.where(bias, above.owners(pattern.rows * window.out_plane), layout.owners(met * plane))
    return owner, np.where(bias, 0, local), channel, bias
