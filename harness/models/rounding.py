"""Weights in the formats of the PEs: every one rounded once, and a report of what that lost.

Weights of norms are f32 in the PEs and lose nothing.

=============== ============================================================================
from -> to      loss
=============== ============================================================================
bf16 -> f16     none for 2^-17 <= abs(w) <= 65,280; smaller ones lose bits, larger are refused
bf16 -> cb16    none for 2^-43 <= abs(w) <= 2,088,960
f32 -> 16 bit   one rounding each
f16 -> f16      none
=============== ============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.models.tensors import NORM, Tensor
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic

__all__ = ["Loss", "rounded", "rounded_weights"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Loss:
    """What rounding did to a tensor.

    Attributes
    ----------
    name : str
    values : int
        How many there are.
    inexact, flushed : int
        Values that changed, and those of them that became zero.
    relative : float
        Largest change over the value's own size, of those that did not become zero.
    """

    name: str
    values: int
    inexact: int
    flushed: int
    relative: float


def rounded(name: str, values: Array, arithmetic: Arithmetic) -> tuple[Array, Loss]:
    """Return f32 values rounded to the format of the PEs, again as f32, and what was lost.

    Raises
    ------
    ConfigError
        A value is no number, or is too large for the format; the message names the tensor and the first such place.
    """
    bad = ~np.isfinite(values)
    exact = values.astype(np.float64)
    near = arithmetic.decode(arithmetic.encode(np.where(bad, 0, exact))).reshape(values.shape)
    bad |= ~np.isfinite(near)
    if bad.any():
        first = tuple(int(place) for place in np.argwhere(bad)[0])
        value, where = values[first], f"at {list(first)}"
        if not np.isfinite(value):
            count = np.count_nonzero(~np.isfinite(values))
            raise ConfigError(
                f"tensor {name}: {value:g} {where} is no number; {count:,} of its {values.size:,} values are none",
                cause="a damaged file, or a training that diverged",
                hint="another copy of the model; no format has such values",
            )
        most = f"{arithmetic.largest:,.0f}"
        raise ConfigError(
            f"tensor {name}: {value:g} {where} is no number that {arithmetic.fmt} has (up to {most})",
            hint="--dtype cb16 has a wider range" if arithmetic.fmt == "f16" else None,
        )
    changed = near != exact
    zero = changed & (near == 0)
    kept = changed & ~zero
    relative = float(np.max(np.abs(near - exact)[kept] / np.abs(exact)[kept])) if kept.any() else 0.0
    return near.astype(np.float32), Loss(
        name, values.size, int(np.count_nonzero(changed)), int(np.count_nonzero(zero)), relative
    )


def rounded_weights(tensors: Mapping[str, Tensor], arithmetic: Arithmetic) -> tuple[dict[str, Array], list[Loss]]:
    """Return all tensors as PEs hold them, matrices and biases in the format, and the losses of those that lost any."""
    weights, losses, whole = {}, [], replace(arithmetic, fmt="f32")
    for name, tensor in tensors.items():
        weights[name], loss = rounded(name, tensor.f32(), whole if name.endswith(NORM) else arithmetic)
        if loss.inexact:
            losses.append(loss)
    return weights, losses
