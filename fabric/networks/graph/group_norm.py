"""Group normalisation goes over the pixels of an image in each group of channels.

``u = r((x - mean x) / sqrt(var x + eps))``, ``y = r(g_c u + s_c)`` with a factor and a shift per channel; one group is
layer normalisation over the whole image, a group per channel is instance normalisation.

`HeadRms` goes over groups of features by the root of the mean square instead: each head of queries, or of keys, by
itself.

Source: Y. Wu and K. He, "Group normalization", 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.graph.windows import channels_of
from wse_core.errors import ConfigError

__all__ = ["GroupNorm", "HeadRms"]


class GroupNorm(NetworkOperation):
    """This operation normalises groups of ``channels``; its node has that, ``height``, ``width`` and ``groups``."""

    name, meaning, normalises = "groupnorm", "norm over the pixels of each group of channels", True
    keeps = (("n", "feature", "half"), ("v", "unit", "f32"))
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode normalises over all features of a sample"}

    def features(self, node: Node, given: int) -> int:
        channels, groups = channels_of(node, given), node.size("groups")
        if groups < 1 or channels % groups:
            raise ConfigError(f"{node.name}: {channels} channels in {groups} groups", where="network")
        return given

    def unit(self, node: Node, given: int) -> int:
        return given // node.size("groups")

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        return NetworkTensor(f"{node.group}.norm", 2, "parameter", node.size("channels"))

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        assert values is not None
        groups, channels = node.size("groups"), node.size("channels")
        rows = x.reshape(len(x), groups, -1)
        centred = rows - rows.mean(2, keepdims=True)
        inverse = 1 / np.sqrt((centred * centred).mean(2, keepdims=True) + a.dtype.type(node.epsilon(a.epsilon)))
        unit = a.round(centred * inverse)
        found = unit.reshape(len(x), channels, -1) * values[0][:, None] + values[1][:, None]
        return a.round(found.reshape(x.shape)), (unit, inverse)

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        assert values is not None
        (unit, inverse), channels = kept, node.size("channels")
        rows, units = (found.reshape(len(delta), channels, -1) for found in (delta, unit))
        gradient = np.stack([(rows * units).sum((0, 2)), rows.sum((0, 2))])
        scaled = (rows * values[0][:, None]).reshape(unit.shape)
        mean, dot = scaled.mean(2, keepdims=True), (scaled * unit).mean(2, keepdims=True)
        return a.round(((scaled - mean - unit * dot) * inverse).reshape(delta.shape)), gradient


class HeadRms(GroupNorm):
    """This operation divides groups of ``channels`` by the roots of their mean squares; it has factors alone."""

    name, meaning = "headrms", "rms over the features of each head"

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        return NetworkTensor(f"{node.group}.norm", 1, "parameter", node.size("channels"))

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        assert values is not None
        rows = x.reshape(len(x), node.size("groups"), -1)
        inverse = 1 / np.sqrt((rows * rows).mean(2, keepdims=True) + a.dtype.type(node.epsilon(a.epsilon)))
        unit = a.round(rows * inverse)
        return a.round(unit.reshape(x.shape) * values[0]), (unit, inverse)

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        assert values is not None
        unit, inverse = kept
        scaled = (delta * values[0]).reshape(unit.shape)
        dot = (scaled * unit).mean(2, keepdims=True)
        below = a.round(((scaled - unit * dot) * inverse).reshape(delta.shape))
        return below, (delta * unit.reshape(delta.shape)).sum(0)[None]
