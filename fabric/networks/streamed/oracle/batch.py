"""Batch normalisation on a wafer: sums of a channel's pixels, then of its samples; other wafers have their own.

Each way stops with its sums, until the parameter's statistics have what the memory service makes of those of all
wafers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.nodes import Node
from fabric.networks.streamed.oracle.mesh import MeshArithmetic
from fabric.networks.streamed.parameters import StreamedParameter

if TYPE_CHECKING:
    from fabric.networks.streamed.oracle.walk import Course

__all__ = ["back", "forward", "known"]

Bits = NDArray[np.uint32]
Halves = NDArray[np.uint16]


def forward(a: MeshArithmetic, x: Halves, weights: StreamedParameter) -> Course[tuple[Halves, Halves]]:
    """Return (rows, unit rows) when the mean and deviation of the batch are there."""
    wide = _by_channel(a, x, weights)
    centred = a.sub(wide, _number(weights, "shift", wide))
    sums = [a.south_of_channels(part) for part in (centred, a.mul(centred, centred))]
    yield "forward", weights, np.concatenate(sums)
    return known(a, x, weights)


def known(a: MeshArithmetic, x: Halves, weights: StreamedParameter) -> tuple[Halves, Halves]:
    """Return (rows, unit rows) with the mean and deviation that the statistics have."""
    wide = _by_channel(a, x, weights)
    centred = a.sub(wide, _number(weights, "mean", wide))
    unit = a.narrow(a.mul(centred, _number(weights, "inverse", wide)))
    factors, shifts = np.asarray(weights.values).reshape(2, -1, 1, 1)
    found = a.fma(unit, factors, np.broadcast_to(a.widen(shifts), unit.shape))
    return a.narrow(found).reshape(x.shape), unit


def back(
    a: MeshArithmetic, node: Node, delta: Halves, unit: Halves, weights: StreamedParameter
) -> Course[tuple[Halves, Bits]]:
    """Return (gradients of the rows before normalisation, gradients of factors and shifts)."""
    wide, units = a.widen(delta).reshape(unit.shape), a.widen(unit)
    gradients = np.concatenate([a.south_of_channels(a.mul(wide, units)), a.south_of_channels(wide)])
    yield "back", weights, gradients
    mean, dot, scale = (_number(weights, name, wide) for name in ("back_mean", "back_dot", "scale"))
    found = a.mul(a.sub(a.sub(wide, mean), a.mul(units, dot)), scale)
    return a.narrow(found).reshape(delta.shape), gradients


def _by_channel(a: MeshArithmetic, x: Halves, weights: StreamedParameter) -> Bits:
    return a.widen(x).reshape(weights.pattern.shape[1], -1, x.shape[1])


def _number(weights: StreamedParameter, name: str, like: Bits) -> Any:
    """Return a number of each channel as often as there are pixels and samples."""
    assert weights.statistics is not None
    numbers = np.ascontiguousarray(weights.statistics.sent[name], np.float32).view(np.uint32)
    return np.broadcast_to(numbers[:, None, None], like.shape)
