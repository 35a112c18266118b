"""The oracle has a function per operation and direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.tensors import INPUT
from fabric.networks.streamed.oracle import linear, loss, norm
from fabric.networks.streamed.oracle.mesh import MeshArithmetic

__all__ = ["BACK", "FORWARD"]

Halves = NDArray[np.uint16]


def _linear(a: MeshArithmetic, node: Node, delta: Halves, kept: Any, weights: Any) -> tuple[Halves, Any]:
    gradient = linear.ask(a, delta, kept, weights)
    return (delta if node.inputs[0] == INPUT else linear.back(a, node, delta, weights)), gradient


def _row(name: str) -> Callable[..., Any]:
    return lambda a, node, x, weights: ACTIVATIONS[name].bits(a, x)


def _slope(a: MeshArithmetic, node: Node, delta: Halves, slopes: Halves, weights: Any) -> tuple[Halves, None]:
    return a.half.call("mul", slopes, delta), None


FORWARD: dict[str, Callable[..., Any]] = {
    "linear": linear.forward,
    "norm": lambda a, node, x, weights: norm.forward(a, x, weights),
    "cross_entropy": loss.forward,
    **{name: _row(name) for name in ACTIVATIONS},
}
"""Each takes (arithmetic, node, rows, parameter) and returns (rows, what is kept); the loss takes labels and scale."""

BACK: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    "norm": lambda a, node, delta, kept, weights: norm.back(a, delta, kept, weights),
    "cross_entropy": loss.forward,  # gives the gradients with the losses
    **dict.fromkeys(ACTIVATIONS, _slope),
}
"""Each takes (arithmetic, node, gradients, what was kept, parameter) and returns gradients, also of the parameter."""
