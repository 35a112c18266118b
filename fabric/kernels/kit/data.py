"""Data of kernels are made here: the parameters `seed` and `data` of every kernel, whole numbers at random, wavelets of
a vector.

Floats come from `wse_core.formats.Arithmetic.random`.
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.kit.kernel import KernelParam

__all__ = ["DATA", "data_params", "integers", "wavelets_of"]

DATA = ("normal", "ones", "special")


def data_params(*, seed: int = 0, data: str = "normal") -> list[KernelParam]:
    """Return the declarations of the parameters `seed` and `data`, which every kernel has."""
    return [
        KernelParam("seed", seed, int, "seed of the input data", low=0),
        KernelParam(
            "data",
            data,
            str,
            "input: normally distributed numbers, ones, or the former with NaN, infinities, "
            "huge and subnormal numbers, and zeros of both signs among them",
            DATA,
        ),
    ]


def integers(rng: np.random.Generator, shape: tuple[int, ...], bits: int, data: str = "normal") -> np.ndarray:
    """Return whole numbers of 16 or 32 bits as uint16 or uint32: of the whole range, ones, or with the extremes."""
    dtype = np.dtype(f"u{bits // 8}")
    if data == "ones":
        return np.ones(shape, dtype)
    values = rng.integers(0, 1 << bits, shape, dtype=dtype)
    if data == "special" and values.size:
        flat = values.reshape(-1)
        extremes = np.array([0, 1, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1], dtype)
        count = min(flat.size, max(len(extremes), flat.size // 8))
        flat[rng.choice(flat.size, count, replace=False)] = np.resize(extremes, count)
    return values


def wavelets_of(elements: int, dtype: str) -> int:
    """Return the wavelets of that many elements: two 16-bit ones in one."""
    return elements if dtype == "f32" else -(-elements // 2)
