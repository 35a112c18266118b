"""The oracle of normalisation goes over the features of a token."""

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
    a: MeshArithmetic, tensor: NetworkTensor, x: Halves, weights: StreamedParameter, centred: bool = True
) -> tuple[Halves, tuple[Halves, Bits]]:
    """Return (rows, (unit rows, 1 / deviation))."""
    wide = a.widen(x)
    zero = np.zeros(wide.shape[1:], np.uint32)
    apart = a.sub(wide, (a.mean(wide, tensor) if centred else zero)[None])
    inverse = a.functions.rsqrt(a.plus(a.mean(a.mul(apart, apart), tensor), a.epsilon))
    unit = a.narrow(a.mul(apart, inverse[None]))
    factors, *shifts = _factors(weights)
    shift = a.widen(shifts[0]) if shifts else zero
    return a.narrow(a.fma(unit, factors, np.broadcast_to(shift, wide.shape))), (unit, inverse)


def back(
    a: MeshArithmetic,
    tensor: NetworkTensor,
    delta: Halves,
    kept: tuple[Halves, Bits],
    weights: StreamedParameter,
    centred: bool = True,
) -> tuple[Halves, Bits]:
    """Return (gradients of the rows before normalisation, gradients of factors and shifts)."""
    (unit, inverse), wide = kept, a.widen(delta)
    units = a.widen(unit)
    shifted = len(_factors(weights)) > 1
    gradients = np.concatenate([a.south(a.mul(wide, units)), *([a.south(wide)] if shifted else [])])
    scaled = a.fma(delta, _factors(weights)[0], np.zeros_like(wide))
    dot = a.mean(a.mul(scaled, units), tensor)
    mean = a.mean(scaled, tensor) if centred else np.zeros_like(dot)
    found = a.sub(a.sub(scaled, mean[None]), a.mul(units, dot[None]))
    return a.narrow(a.mul(found, inverse[None])), gradients


def _factors(weights: StreamedParameter) -> Halves:
    """Return factors, and shifts if there are any, as columns, shape (1 or 2, features, 1)."""
    return np.asarray(weights.values).reshape(weights.pattern.shape[0], -1, 1)
