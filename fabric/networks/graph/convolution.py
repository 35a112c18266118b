"""A convolution is a sum of images times filters, in groups of channels.

``y[o, i, j] = r(b_o + sum over c, u, v of W[o, c, u, v] x[c, i s + u d - p, j s + v d - p])``, zeros outside of the
image; c runs over the channels of the group of o; strides s, dilations d and paddings p may be others down and along.
The parameter is a matrix: a row per channel of the result, a column per channel of the group and place of the window
(c, u, v), the bias behind them.

Source: weight streaming white paper, sections 6 to 8 (convolutional networks); requirement WS-52.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.networks.graph.tensors import INPUT, NetworkTensor
from fabric.networks.graph.windows import Window, unfolded, window_of
from wse_core.errors import ConfigError

__all__ = ["ImageConvolution", "by_group", "folded"]


class ImageConvolution(NetworkOperation):
    """This operation convolves images; its node has the sizes of a window, ``outputs``, ``groups`` and ``bias``."""

    name, meaning, in_place, matrix = "convolution", "y = sum of products with shifted inputs", False, True
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode has no convolution"}

    def features(self, node: Node, given: int) -> int:
        window, outputs, groups = window_of(node, given), node.size("outputs"), node.size("groups")
        if groups < 1 or outputs < 1 or window.channels % groups or outputs % groups:
            raise ConfigError(
                f"{node.name}: {window.channels} and {outputs} channels in {groups} groups", where="network"
            )
        return outputs * window.out_plane

    def units(self, node: Node, given: int) -> tuple[int, int]:
        window = window_of(node, given)
        return window.plane, window.out_plane

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        window = window_of(node, given)
        columns = window.channels // node.size("groups") * window.taps + node.size("bias")
        return NetworkTensor(f"{node.group}.weight", node.size("outputs"), "parameter", columns)

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        assert values is not None
        pixels = by_group(node, window_of(node, x.shape[1]), x)
        weights = values[:, : pixels.shape[2]].reshape(node.size("groups"), -1, pixels.shape[2])
        found = np.matmul(weights, pixels).reshape(len(x), node.size("outputs"), -1)
        if node.size("bias"):
            found = found + values[:, -1:]
        return a.round(found.reshape(len(x), -1)), (pixels, x.shape[1])

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        assert values is not None
        (pixels, given), groups = kept, node.size("groups")
        window = window_of(node, given)
        by_group = delta.reshape(len(delta), groups, -1, window.out_plane)
        gradient = np.matmul(by_group, pixels.swapaxes(2, 3)).sum(0).reshape(node.size("outputs"), -1)
        if node.size("bias"):
            sums = delta.reshape(len(delta), -1, window.out_plane).sum((0, 2))
            gradient = np.concatenate([gradient, sums[:, None]], axis=1)
        if node.inputs == (INPUT,):  # nobody needs the gradient of the samples
            return delta, gradient
        weights = values[:, : pixels.shape[2]].reshape(groups, -1, pixels.shape[2])
        return a.round(folded(window, np.matmul(weights.swapaxes(1, 2), by_group))), gradient


def by_group(node: Node, window: Window, x: Floats) -> Floats:
    """Return the pixels of all windows, shape (samples, groups, channels of a group x taps, pixels of the result)."""
    pixels = unfolded(window, x)
    return pixels.reshape(len(x), node.size("groups"), -1, window.out_plane)


def folded(window: Window, pixels: Floats) -> Floats:
    """Return the sum of what belongs to each pixel of the images; the transposed operation of `unfolded`."""
    w = window
    shape = -1, w.channels, w.kernel_height, w.kernel_width, w.out_height, w.out_width
    parts = pixels.reshape(shape)
    found = np.zeros((len(parts), w.channels, *w.around), parts.dtype)
    for u, v in np.ndindex(w.kernel_height, w.kernel_width):
        w.met(found, u, v)[...] += parts[:, :, u, v]
    return w.inside(found).reshape(len(parts), -1)
