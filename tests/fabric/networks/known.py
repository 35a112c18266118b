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
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu6": lambda x: np.where(x < 0, 0, np.where(x > 6, 6, x)),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "leaky_relu_tenth": lambda x: np.where(x > 0, x, 0.1 * x),
    "leaky_relu_fifth": lambda x: np.where(x > 0, x, 0.2 * x),
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "softplus": lambda x: np.log(1 + np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log(1 + np.exp(x))),
    "hardsigmoid": lambda x: np.where(x < -3, 0, np.where(x > 3, 1, x / 6 + 0.5)),
    "hardtanh": lambda x: np.where(x < -1, -1, np.where(x > 1, 1, x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "hardswish": lambda x: np.where(x < -3, 0, np.where(x > 3, x, x * (x + 3) / 6)),
}
"""By name, of float64."""
