"""Two tensors become one: the features of the second lie behind those of the first; of images their channels do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic

__all__ = ["Concat"]


class Concat(NetworkOperation):
    """This operation puts two tensors side by side; each feature stays in its column of PEs."""

    name, meaning, operands, differ, in_place = "concat", "y = a, then b", 2, True, False
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode places chains of layers"}

    def plain(self, a: PlainArithmetic, node: Node, x: Any, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        return np.concatenate(x, axis=1), x[0].shape[1]

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Any, Values]:
        return (delta[:, :kept], delta[:, kept:]), None
