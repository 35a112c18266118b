"""A scale multiplies each channel of an image, or each feature, by a learned number; a multiple all by a constant.

The constant of a multiple is rounded to 16 bits as weights are.  Its node has the bits of the constant in f32 as
``factor``: sizes are whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fabric.networks.graph.channels import ChannelOperation
from fabric.networks.graph.nodes import Node, of_size
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.networks.graph.tensors import NetworkTensor
from wse_core.errors import ConfigError

__all__ = ["ChannelScale", "Multiple", "factor_of"]


def factor_of(node: Node) -> float:
    """Return the constant of a multiple."""
    return of_size(node.size("factor"))


class ChannelScale(ChannelOperation):
    """This operation multiplies each channel by a number; its node has ``channels``, ``height`` and ``width``."""

    name, meaning = "scale", "y = g x, a number g per channel"
    featurewise, in_place, retakes = True, False, True
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode multiplies by factors of norms only"}

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        return NetworkTensor(f"{node.group}.scale", 1, "parameter", node.size("channels"))

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        assert values is not None
        rows = x.reshape(len(x), node.size("channels"), -1)
        return a.round((rows * values[0][:, None]).reshape(x.shape)), rows

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        assert values is not None
        rows = delta.reshape(kept.shape)
        return a.round((rows * values[0][:, None]).reshape(delta.shape)), (rows * kept).sum((0, 2))[None]


class Multiple(NetworkOperation):
    """This operation multiplies all numbers by a constant."""

    name, meaning = "multiple", "y = c x, a constant c"
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode has no products with constants"}

    def features(self, node: Node, given: int) -> int:
        if not np.isfinite(factor_of(node)):
            raise ConfigError(f"{node.name}: {factor_of(node)} is no number to multiply with", where="network")
        return given

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        return a.round(x * a.round(np.array(factor_of(node), a.dtype))), None

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        return a.round(delta * a.round(np.array(factor_of(node), a.dtype))), None
