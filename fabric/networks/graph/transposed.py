"""A transposed convolution gives what the gradient of a convolution would: a small image becomes a large one.

``y[o, i s + u - p, j s + v - p] += W[c, o, u, v] x[c, i, j]``, rounded when all is added.  Its node has the sizes of
the convolution that goes the other way, from its result to what it is given: ``channels``, ``height`` and ``width`` are
those of the result, ``outputs`` are the channels that are given.  So the parameter is a matrix with a row per channel
that is given, and a column per channel of the group and place of the window.

Source: V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep learning", 2016, section 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.networks.graph.convolution import ImageConvolution, by_group, folded
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.networks.graph.tensors import INPUT, NetworkTensor
from fabric.networks.graph.windows import Window, window_of
from wse_core.errors import ConfigError

__all__ = ["TransposedConvolution"]


class TransposedConvolution(ImageConvolution):
    """This operation enlarges images; its node has the sizes of the convolution that goes the other way."""

    name, meaning = "transposed", "the transposed operation of a convolution"

    def window(self, node: Node) -> Window:
        """Return the window of the convolution that goes the other way."""
        return window_of(node, node.size("channels") * node.size("height") * node.size("width"))

    def results(self, node: Node) -> int:
        return node.size("channels")

    def features(self, node: Node, given: int) -> int:
        window = self.window(node)
        if super().features(node, window.features) != given:
            image = f"{node.size('outputs')} x {window.out_height} x {window.out_width}"
            raise ConfigError(f"{node.name}: {given} features are no image of {image}", where="network")
        if node.size("bias"):
            raise ConfigError(f"{node.name}: biases are an operation of their own", where="network", hint="shift")
        return window.features

    def units(self, node: Node, given: int) -> tuple[int, int]:
        window = self.window(node)
        return window.out_plane, window.plane

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        return super().parameter(node, self.window(node).features)

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        assert values is not None
        window, groups = self.window(node), node.size("groups")
        weights = values.reshape(groups, -1, values.shape[1])
        planes = x.reshape(len(x), groups, -1, window.out_plane)
        return a.round(folded(window, np.matmul(weights.swapaxes(1, 2), planes))), planes

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        assert values is not None
        pixels = by_group(node, self.window(node), delta)
        gradient = np.matmul(kept, pixels.swapaxes(2, 3)).sum(0).reshape(values.shape)
        if node.inputs == (INPUT,):  # nobody needs the gradient of the samples
            return delta, gradient
        weights = values.reshape(node.size("groups"), -1, values.shape[1])
        return a.round(np.matmul(weights, pixels).reshape(len(delta), -1)), gradient
