"""Weights are rounded once to the formats of the PEs, with a report of what that lost.

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

__all__ = ["Loss", "held", "rounded", "rounded_weights"]

Array = np.ndarray[Any, np.dtype[Any]]

PIECE = 1 << 15
"""Values that are rounded at a time: what is reckoned in between stays in a core's cache."""


@dataclass(frozen=True)
class Loss:
    """A `Loss` is what rounding did to a tensor.

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
    values = np.ascontiguousarray(values, np.float32)
    near = np.empty_like(values)
    inexact = flushed = 0
    relative = 0.0
    for first in range(0, values.size, PIECE):
        given, found = (each.reshape(-1)[first : first + PIECE] for each in (values, near))
        if not np.isfinite(given).all():
            raise _refused(name, values, arithmetic)
        exact, kept = given.astype(np.float64), arithmetic.decode(arithmetic.encode(given))
        if not np.isfinite(kept).all():
            raise _refused(name, values, arithmetic)
        found[:] = kept
        changed = kept != exact
        inexact += (count := int(np.count_nonzero(changed)))
        if count:
            other = changed & (kept != 0)
            flushed += count - int(np.count_nonzero(other))
            own = exact[other]
            relative = max(relative, float(np.abs((kept[other] - own) / own).max(initial=0.0)))
    return near, Loss(name, values.size, inexact, flushed, relative)


def _refused(name: str, values: Array, arithmetic: Arithmetic) -> ConfigError:
    """Return what names the first value that is no number, or none that the format has."""
    numbers = np.isfinite(values)
    bad = ~numbers | ~np.isfinite(arithmetic.decode(arithmetic.encode(np.where(numbers, values, 0)))).reshape(
        values.shape
    )
    first = tuple(int(place) for place in np.argwhere(bad)[0])
    value, where = values[first], f"at {list(first)}"
    if not np.isfinite(value):
        count = np.count_nonzero(~numbers)
        return ConfigError(
            f"tensor {name}: {value:g} {where} is no number; {count:,} of its {values.size:,} values are none",
            cause="a damaged file, or a training that diverged",
            hint="another copy of the model; no format has such values",
        )
    most = f"{arithmetic.largest:,.0f}"
    return ConfigError(
        f"tensor {name}: {value:g} {where} is no number that {arithmetic.fmt} has (up to {most})",
        hint="--dtype cb16 has a wider range" if arithmetic.fmt == "f16" else None,
    )


def held(name: str, arithmetic: Arithmetic) -> Arithmetic:
    """Return the format in which PEs hold a tensor: that of matrices and biases, or f32 for norms."""
    return replace(arithmetic, fmt="f32") if name.endswith(NORM) else arithmetic


def rounded_weights(tensors: Mapping[str, Tensor], arithmetic: Arithmetic) -> tuple[dict[str, Array], list[Loss]]:
    """Return all tensors as PEs hold them, matrices and biases in the format, and the losses of those that lost any."""
    weights, losses = {}, []
    for name, tensor in tensors.items():
        weights[name], loss = rounded(name, tensor.f32(), held(name, arithmetic))
        if loss.inexact:
            losses.append(loss)
    return weights, losses
