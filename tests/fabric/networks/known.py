"""What activations are, by their textbook formulas: what every form of them is held against."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["KNOWN"]

KNOWN = {
    "none": lambda x: x,
    "relu": lambda x: np.where(x > 0, x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * np.array([1 + math.erf(one / math.sqrt(2)) for one in x.ravel()]).reshape(x.shape),
    "tanh": lambda x: (np.exp(x) - np.exp(-x)) / (np.exp(x) + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
"""By name, of float64."""
