"""A shift adds a learned number to each channel of an image, or to each feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fabric.networks.graph.channels import ChannelOperation
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.networks.graph.tensors import NetworkTensor

__all__ = ["ChannelShift"]


class ChannelShift(ChannelOperation):
    """This operation adds a number to each channel; its node has ``channels``, ``height`` and ``width``."""

    name, meaning = "shift", "y = x + b, a number b per channel"
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode adds biases of products only"}

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        return NetworkTensor(f"{node.group}.shift", 1, "parameter", node.size("channels"))

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        assert values is not None
        rows = x.reshape(len(x), node.size("channels"), -1)
        return a.round((rows + values[0][:, None]).reshape(x.shape)), rows.shape

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        return delta, delta.reshape(kept).sum((0, 2))[None]
