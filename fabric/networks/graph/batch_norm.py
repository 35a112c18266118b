"""Batch normalisation goes over all samples of a batch and the pixels of a channel, on all wafers together.

``u = r((x - mean) / sqrt(var + eps))``, ``y = r(g_c u + s_c)`` with a factor and a shift per channel.  In training mean
and variance are those of the batch, and back, with N numbers of a channel in the batch::

    dg = sum of dy u,  ds = sum of dy,  dx = r(g / sqrt(var + eps) (dy - ds / N - u dg / N))

In a test they are running ones, which the memory service keeps (`memx.statistics`).  Sums of all wafers make a round
trip to it, one forward and one back.

Source: S. Ioffe and C. Szegedy, "Batch normalization", 2015.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fabric.networks.graph.channels import ChannelOperation
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.networks.graph.tensors import NetworkTensor

__all__ = ["NUMBERS", "BatchNorm"]

NUMBERS = ("shift", "mean", "inverse", "scale", "back_mean", "back_dot")
"""The memory service sends these numbers of a channel to the wafers, as f32."""


class BatchNorm(ChannelOperation):
    """This operation normalises channels over batches; its node has ``channels``, ``height`` and ``width``."""

    name, meaning = "batchnorm", "norm over the pixels of each channel and all samples"
    keeps = (("n", "feature", "half"),)
    over_batch, normalises = True, True
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode normalises over all features of a sample"}

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        return NetworkTensor(f"{node.group}.norm", 2, "parameter", node.size("channels"))

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        """Take mean and variance as rows 2 and 3 of `values`, if it has them, else those of the batch."""
        assert values is not None
        rows = x.reshape(len(x), node.size("channels"), -1)
        mean, variance = values[2:] if len(values) > 2 else (rows.mean((0, 2)), rows.var((0, 2)))
        inverse = (1 / np.sqrt(variance + a.dtype.type(node.epsilon(a.epsilon))))[:, None]
        unit = a.round((rows - mean[:, None]) * inverse)
        found = a.round(unit * values[0][:, None] + values[1][:, None])
        return found.reshape(x.shape), (unit, inverse, np.stack([mean, variance]))

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        assert values is not None
        unit, inverse, _ = kept
        rows = delta.reshape(unit.shape)
        gradient = np.stack([(rows * unit).sum((0, 2)), rows.sum((0, 2))])
        dot, mean = gradient / (len(rows) * rows.shape[2])
        found = values[0][:, None] * inverse * (rows - mean[:, None] - unit * dot[:, None])
        return a.round(found.reshape(delta.shape)), gradient
