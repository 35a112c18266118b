"""Samples that come with a library."""

from __future__ import annotations

import numpy as np

from harness.kit.modules import need

__all__ = ["load_digits"]


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return (images, labels): float64 (1797, 65) with pixels in 0 .. 1 and a last column of ones, and int64.

    Raises
    ------
    ConfigError
        If scikit-learn is not installed.
    """
    found = need("sklearn.datasets", "the data set digits").load_digits()
    pixels = np.asarray(found.data, np.float64) / 16.0
    return np.hstack([pixels, np.ones((len(pixels), 1))]), np.asarray(found.target, np.int64)
