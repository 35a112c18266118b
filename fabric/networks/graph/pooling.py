"""Pooling takes the largest pixel of each window of a channel, or their mean.

Padding is never the largest pixel; a mean counts it as zeros, and divides by all places of a window.  Gradients go to
the pixels tap after tap of the windows, rounded after each addition; that of a largest pixel goes to the first one of
its window.

Upsampling is a mean the other way round, and without a division: each pixel goes to all places of its window in a
larger image, and its gradient is the sum of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.networks.graph.windows import Window, unfolded, window_of
from wse_core.errors import ConfigError

__all__ = ["AveragePool", "MaxPool", "Upsample"]


class _Pool(NetworkOperation):
    """A `_Pool` has what all nodes that pool have in common: the sizes of a window."""

    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode has no pooling"}
    in_place, channelwise = False, True

    def features(self, node: Node, given: int) -> int:
        window = window_of(node, given)
        return window.channels * window.out_plane

    def units(self, node: Node, given: int) -> tuple[int, int]:
        window = window_of(node, given)
        return window.plane, window.out_plane

    def given_back(self, a: PlainArithmetic, window: Window, parts: Floats, dtype: Any) -> Floats:
        """Return gradients of images, shape (samples, features), given those of each tap of the windows."""
        found = np.zeros((len(parts), window.channels, *window.around), dtype)
        for u, v in np.ndindex(window.kernel_height, window.kernel_width):
            there = window.met(found, u, v)
            there[...] = a.round(there + parts[:, :, u, v])
        return window.inside(found).reshape(len(parts), -1)


class MaxPool(_Pool):
    """The largest pixel of each window is taken."""

    name, meaning, again = "maxpool", "y = largest pixel of each window", True

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        window = window_of(node, x.shape[1])
        pixels = unfolded(window, x, -np.inf)
        flat = pixels.reshape(len(x), window.channels, window.taps, -1)
        return flat.max(2).reshape(len(x), -1), (flat.argmax(2), x.shape[1])

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Any, Values]:
        where, window = kept[0], window_of(node, kept[1])
        hits = where[:, :, None] == np.arange(window.taps)[:, None]
        parts = hits * delta.reshape(len(delta), window.channels, 1, -1)
        shape = -1, window.channels, window.kernel_height, window.kernel_width, window.out_height, window.out_width
        return self.given_back(a, window, parts.reshape(shape), delta.dtype), None


class AveragePool(_Pool):
    """The mean of each window is taken; a window as large as the image gives the mean of a channel."""

    name, meaning = "avgpool", "y = mean of each window"

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        window = window_of(node, x.shape[1])
        pixels = unfolded(window, x).reshape(len(x), window.channels, window.taps, -1)
        return a.round(pixels.sum(2) * a.dtype.type(1 / window.taps)).reshape(len(x), -1), x.shape[1]

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Any, Values]:
        window = window_of(node, kept)
        part = delta.reshape(-1, window.channels, 1, 1, window.out_height, window.out_width)
        shape = len(part), window.channels, window.kernel_height, window.kernel_width, *part.shape[4:]
        parts = np.broadcast_to(part * a.dtype.type(1 / window.taps), shape)
        return self.given_back(a, window, parts, delta.dtype), None


class Upsample(_Pool):
    """Each pixel is repeated: the nearest one of a larger image.

    Its node has the sizes of windows over the result, which lie side by side: ``channels``, ``height`` and ``width`` of
    the larger image, ``kernel_height`` and ``kernel_width`` pixels for one that is given.
    """

    name, meaning = "upsample", "y = each pixel, repeated over a window"

    def window(self, node: Node) -> Window:
        """Return the windows over the larger image.

        Raises
        ------
        ConfigError
            They overlap, or leave pixels out.
        """
        result = math.prod(node.size(name) for name in ("channels", "height", "width"))
        window = window_of(node, result)
        sides = window.out_height * window.kernel_height, window.out_width * window.kernel_width
        if sides != (window.height, window.width) or window.bordered:
            what = f"{window.kernel_height} x {window.kernel_width} pixels for each do not make an image of "
            raise ConfigError(f"{node.name}: {what}{window.height} x {window.width}", where="network")
        return window

    def features(self, node: Node, given: int) -> int:
        window = self.window(node)
        if window.channels * window.out_plane != given:
            image = f"{window.channels} x {window.out_height} x {window.out_width}"
            raise ConfigError(f"{node.name}: {given} features are no image of {image}", where="network")
        return window.features

    def units(self, node: Node, given: int) -> tuple[int, int]:
        window = self.window(node)
        return window.out_plane, window.plane

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        window = self.window(node)
        pixels = x.reshape(len(x), window.channels, window.out_height, window.out_width)
        return pixels.repeat(window.kernel_height, 2).repeat(window.kernel_width, 3).reshape(len(x), -1), None

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Any, Values]:
        window = self.window(node)
        pixels = unfolded(window, delta).reshape(len(delta), window.channels, window.taps, -1)
        return a.round(pixels.sum(2)).reshape(len(delta), -1), None
