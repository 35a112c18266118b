"""The oracle has a function per operation and direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.tensors import INPUT, NetworkTensor
from fabric.networks.streamed.oracle import (
    attention,
    batch,
    channel_norm,
    images,
    linear,
    lookup,
    loss,
    norm,
    rotary,
    token_mean,
)
from fabric.networks.streamed.oracle.dropout import dropped
from fabric.networks.streamed.oracle.mesh import MeshArithmetic

__all__ = ["BACK", "FORWARD"]

Halves = NDArray[np.uint16]


class StreamedArithmetic(MeshArithmetic):
    """A mesh has a network on it; `fabric.networks.streamed.oracle.walk.StreamedOracle` is one."""

    network: Network
    test = False
    keys: Mapping[str, Halves] = MappingProxyType({})
    said: Sequence[NDArray[np.int64]] = ()
    first = 0


def _tensors(a: StreamedArithmetic, node: Node) -> tuple[NetworkTensor, NetworkTensor]:
    return a.network.tensors[node.inputs[0]], a.network.tensors[node.name]


def _linear(a: StreamedArithmetic, node: Node, delta: Halves, kept: Any, weights: Any) -> tuple[Halves, Any]:
    gradient = linear.ask(a, delta, kept, weights)
    return (delta if node.inputs[0] == INPUT else linear.back(a, *_tensors(a, node), delta, weights)), gradient


def _convolution(a: StreamedArithmetic, node: Node, delta: Halves, kept: Any, weights: Any) -> tuple[Halves, Any]:
    gradient = images.ask(a, node, delta, kept, weights)
    if node.inputs[0] == INPUT:
        return delta, gradient
    return images.convolved_back(a, node, *_tensors(a, node), delta, weights), gradient


def _transposed(a: StreamedArithmetic, node: Node, delta: Halves, x: Any, weights: Any) -> tuple[Halves, Any]:
    gradient = images.ask(a, node, x, delta, weights)  # the other way: gradients of the result are what is convolved
    if node.inputs[0] == INPUT:
        return delta, gradient
    given, result = _tensors(a, node)
    return images.convolved(a, node, result, given, delta, weights)[0], gradient


def _row(name: str) -> Callable[..., Any]:
    return lambda a, node, x, weights: ACTIVATIONS[name].bits(a, x)


def _slope(a: StreamedArithmetic, node: Node, delta: Halves, slopes: Halves, weights: Any) -> tuple[Halves, None]:
    return a.half.call("mul", slopes, delta), None


def _dropped(a: StreamedArithmetic, node: Node, rows: Halves) -> Halves:
    return rows if a.test else dropped(a, node, rows, a.keys, a.first)


FORWARD: dict[str, Callable[..., Any]] = {
    "linear": lambda a, node, x, weights: linear.forward(a, *_tensors(a, node), x, weights),
    "lookup": lambda a, node, ids, weights: lookup.forward(a, node, ids, weights, a.said),
    "norm": lambda a, node, x, weights: norm.forward(a, _tensors(a, node)[1], x, weights),
    "centred": lambda a, node, x, weights: norm.forward(a, _tensors(a, node)[1], x, weights),
    "rms": lambda a, node, x, weights: norm.forward(a, _tensors(a, node)[1], x, weights, centred=False),
    "add": lambda a, node, x, weights: (a.half.call("add", *x), None),
    "mul": lambda a, node, x, weights: (a.half.call("mul", *x), x),
    "concat": lambda a, node, x, weights: (np.concatenate(x), len(x[0])),
    "rotary": lambda a, node, x, weights: (rotary.turned(a, node, x), None),
    "attention": attention.forward,
    "tokenmean": lambda a, node, x, weights: (token_mean.averaged(a, node, x), None),
    "convolution": lambda a, node, x, weights: images.convolved(a, node, *_tensors(a, node), x, weights),
    "transposed": lambda a, node, x, weights: images.enlarged(a, node, *_tensors(a, node), x, weights),
    "shift": images.shifted,
    "scale": images.scaled,
    "multiple": lambda a, node, x, weights: (images.multiplied(a, node, x), None),
    "dropout": lambda a, node, x, weights: (_dropped(a, node, x), None),
    "groupnorm": images.normalised,
    "channelnorm": lambda a, node, x, weights: channel_norm.forward(a, _tensors(a, node)[1], x, weights),
    "headrms": images.normalised_heads,
    "batchnorm": lambda a, node, x, weights: batch.known(a, x, weights) if a.test else batch.forward(a, x, weights),
    "maxpool": lambda a, node, x, weights: images.pooled_largest(a, node, x),
    "avgpool": lambda a, node, x, weights: images.pooled_mean(a, node, x),
    "upsample": lambda a, node, x, weights: images.repeated(a, node, x),
    "resample": lambda a, node, x, weights: (images.resampled(a, node, x), None),
    "cross_entropy": loss.forward,
    "mse": loss.squares,
    **{name: _row(name) for name in ACTIVATIONS},
}
"""Each takes (arithmetic, node, rows, parameter) and returns (rows, what is kept), of several operands tuples; the loss
takes (arithmetic, tensor, logits, labels, scale).  What needs sums of all wafers is a generator that returns so."""

BACK: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    "lookup": lambda a, node, delta, ids, weights: (delta, lookup.ask(a, node, delta, ids, weights, a.said)),
    "norm": lambda a, node, delta, kept, weights: norm.back(a, _tensors(a, node)[1], delta, kept, weights),
    "centred": lambda a, node, delta, kept, weights: norm.back(a, _tensors(a, node)[1], delta, kept, weights),
    "rms": lambda a, node, delta, kept, weights: norm.back(
        a, _tensors(a, node)[1], delta, kept, weights, centred=False
    ),
    "add": lambda a, node, delta, kept, weights: ((delta, delta), None),
    "mul": lambda a, node, delta, kept, weights: (
        (a.half.call("mul", delta, kept[1]), a.half.call("mul", delta, kept[0])),
        None,
    ),
    "concat": lambda a, node, delta, kept, weights: ((delta[:kept], delta[kept:]), None),
    "rotary": lambda a, node, delta, kept, weights: (rotary.turned(a, node, delta, back=True), None),
    "convolution": _convolution,
    "transposed": _transposed,
    "shift": images.shifted_back,
    "scale": images.scaled_back,
    "multiple": lambda a, node, delta, kept, weights: (images.multiplied(a, node, delta), None),
    "dropout": lambda a, node, delta, kept, weights: (_dropped(a, node, delta), None),
    "groupnorm": images.normalised_back,
    "channelnorm": lambda a, node, delta, kept, weights: channel_norm.back(
        a, _tensors(a, node)[1], delta, kept, weights
    ),
    "headrms": images.normalised_heads_back,
    "batchnorm": batch.back,
    "maxpool": lambda a, node, delta, kept, weights: (images.pooled_largest_back(a, node, delta, kept), None),
    "avgpool": lambda a, node, delta, kept, weights: (images.pooled_mean_back(a, node, delta, kept), None),
    "upsample": lambda a, node, delta, kept, weights: (images.repeated_back(a, node, delta), None),
    "resample": lambda a, node, delta, kept, weights: (images.resampled_back(a, node, delta), None),
    "attention": attention.back,
    "tokenmean": lambda a, node, delta, kept, weights: (token_mean.averaged(a, node, delta), None),
    "cross_entropy": loss.forward,  # losses give the gradients too
    "mse": loss.squares,
    **dict.fromkeys(ACTIVATIONS, _slope),
}
"""Each takes (arithmetic, node, gradients, what was kept, parameter) and returns gradients, also of the parameter."""
