"""The oracle of normalisation over the channels of each pixel adds a column's channels, then those of the columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.oracle.mesh import MeshArithmetic
from fabric.networks.streamed.parameters import StreamedParameter

__all__ = ["back", "forward"]

Halves = NDArray[np.uint16]
Bits = NDArray[np.uint32]


def forward(
    a: MeshArithmetic, tensor: NetworkTensor, x: Halves, weights: StreamedParameter
) -> tuple[Halves, tuple[Halves, Bits]]:
    """Return (rows, (unit planes, 1 / deviation of each pixel))."""
    factors, shifts = _factors(weights)
    planes = a.widen(x.reshape(len(factors), -1, x.shape[1]))
    centred = a.sub(planes, _mean(a, planes, tensor)[None])
    inverse = a.functions.rsqrt(a.plus(_mean(a, a.mul(centred, centred), tensor), a.epsilon))
    unit = a.narrow(a.mul(centred, np.asarray(inverse)[None]))
    found = a.narrow(a.fma(unit, factors, np.broadcast_to(a.widen(shifts), planes.shape)))
    return found.reshape(x.shape), (unit, np.asarray(inverse))


def back(
    a: MeshArithmetic, tensor: NetworkTensor, delta: Halves, kept: tuple[Halves, Bits], weights: StreamedParameter
) -> tuple[Halves, Bits]:
    """Return (gradients of the rows before normalisation, gradients of factors and shifts)."""
    (unit, inverse), (factors, _) = kept, _factors(weights)
    halves, units = delta.reshape(unit.shape), a.widen(unit)
    wide = a.widen(halves)
    gradients = np.concatenate([a.south_of_planes(a.mul(wide, units)), a.south_of_planes(wide)])
    scaled = a.fma(halves, factors, np.zeros_like(wide))
    mean, dot = _mean(a, scaled, tensor), _mean(a, a.mul(scaled, units), tensor)
    found = a.sub(a.sub(scaled, mean[None]), a.mul(units, dot[None]))
    return a.narrow(a.mul(found, inverse[None])).reshape(delta.shape), gradients


def _mean(a: MeshArithmetic, planes: Bits, tensor: NetworkTensor) -> Bits:
    """Return the mean over the channels of planes of shape (channels, pixels, samples)."""
    parts = a.over_columns(planes, a.add, 0, tensor, planes.shape[1])
    return a.times(a.joined(parts, a.add), 1 / len(planes))


def _factors(weights: StreamedParameter) -> Halves:
    """Return factors and shifts, shape (2, channels, 1, 1)."""
    return np.asarray(weights.values).reshape(2, -1, 1, 1)
