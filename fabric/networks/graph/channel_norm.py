"""Normalisation goes over the channels of each pixel: layer normalisation where channels stand last.

``u = r((x - mean x) / sqrt(var x + eps))`` over the channels of a pixel, ``y = r(g_c u + s_c)`` with a factor and a
shift per channel.

Source: Z. Liu et al., "A ConvNet for the 2020s", 2022, section 2.6 (layer normalisation in residual blocks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fabric.networks.graph.channels import ChannelOperation
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, Norm, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.networks.graph.tensors import NetworkTensor

__all__ = ["ChannelNorm"]

NORM = Norm()


class ChannelNorm(ChannelOperation):
    """This operation normalises the channels of each pixel; its node has ``channels``, ``height`` and ``width``."""

    name, meaning, normalises = "channelnorm", "norm over the channels of each pixel", True
    keeps = (("n", "feature", "half"), ("v", "pixel", "f32"))
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode normalises over all features of a sample"}

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        return NetworkTensor(f"{node.group}.norm", 2, "parameter", node.size("channels"))

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        found, kept = NORM.plain(a, node, _pixels(x, node.size("channels")), values)
        return _planes(found, len(x)), kept

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        below, gradient = NORM.plain_back(a, node, _pixels(delta, node.size("channels")), kept, values)
        return _planes(below, len(delta)), gradient


def _pixels(rows: Floats, channels: int) -> Floats:
    """Return images, rows of samples, as rows of pixels."""
    return rows.reshape(len(rows), channels, -1).swapaxes(1, 2).reshape(-1, channels)


def _planes(pixels: Floats, samples: int) -> Floats:
    """Return rows of pixels as rows of samples, channel by channel; inverse of `_pixels`."""
    return pixels.reshape(samples, -1, pixels.shape[1]).swapaxes(1, 2).reshape(samples, -1)
