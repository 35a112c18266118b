"""Functions of a number, as files have them in one step or many, are told by what they give.

A file may write an activation as an operator of its own, or take it apart.  Either way the steps are followed as one
function of a tensor, and compared, at 400 points, with those that networks here may have.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fabric.networks.graph.activations import ACTIVATIONS, Activation

__all__ = ["BINARY", "GRID", "NEAR", "STEPS", "Call", "Composed", "after", "call_of", "composed", "powers_of", "told"]

Call: TypeAlias = Callable[[np.ndarray], np.ndarray]
NEAR = 1e-5
"""Constants of a file that differ by less from those of ours, in f32, are the same."""
FAR = 20.0, 100.0, 1e3, 3e4
GRID = np.array([*np.linspace(-8, 8, 399), *FAR, *(-x for x in FAR), 8.0, 0.0])
"""Functions are told by what they give here."""
SELU = 1.67326319217681884765625, 1.05070102214813232421875


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def _elu(alpha: float, scale: float = 1.0, rate: float = 1.0) -> Call:
    return lambda x: scale * (np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / rate))


UNARY: dict[str, Call] = {
    "Tanh": np.tanh,
    "Sigmoid": _sigmoid,
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: 1 / x,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Abs": np.abs,
    "Sign": np.sign,
    "Neg": np.negative,
    "Erf": np.vectorize(math.erf, otypes=[float]),
    "Relu": lambda x: np.maximum(x, 0),
    "Not": np.logical_not,
}
"""These functions of one number have no attributes."""
BINARY: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Max": np.maximum,
    "Min": np.minimum,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Equal": np.equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Where": np.where,
}
"""These functions take several numbers, element by element."""
STEPS = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Clip", "Neg", *UNARY)
"""What these make of functions that are known here may be made of their results."""


def call_of(node: Any, known: Mapping[str, np.ndarray], of: Callable[[Any, str, Any], Any]) -> Call | None:
    """Return the function of its first input that a node is; None if it is none.

    Parameters
    ----------
    node : onnx.NodeProto
    known : mapping of str to ndarray
        Constants, of which a node may have limits.
    of : callable
        Takes a node, the name of an attribute and what it is if it is left out.
    """
    op = node.op_type
    if op == "Clip":
        names = [*node.input[1:], *("",) * (3 - len(node.input))]
        if any(name and known.get(name, np.zeros(2)).size != 1 for name in names):
            return None
        low, high = (
            float(known[name].reshape(())) if name else end for name, end in zip(names, (-np.inf, np.inf), strict=False)
        )
        return lambda x: np.clip(x, low, high)
    if op == "LeakyRelu":
        alpha = float(of(node, "alpha", 0.01))
        return lambda x: np.where(x > 0, x, alpha * x)
    if op in ("Elu", "Selu"):
        default = (1.0, 1.0) if op == "Elu" else SELU
        return _elu(float(of(node, "alpha", default[0])), float(of(node, "gamma", default[1])))
    if op == "Celu":
        alpha = float(of(node, "alpha", 1.0))
        return _elu(alpha, 1.0, alpha)
    if op == "HardSigmoid":
        alpha, beta = float(of(node, "alpha", 0.2)), float(of(node, "beta", 0.5))
        return lambda x: np.clip(alpha * x + beta, 0, 1)
    if op == "Gelu":
        half = np.vectorize(lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2))), otypes=[float])
        if of(node, "approximate", b"none") == b"tanh":
            return lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return lambda x: x * half(x)
    return UNARY.get(op)


def after(outer: Callable[..., np.ndarray], inner: Call) -> Call:
    """Return a function of what another gives."""
    return lambda x: outer(inner(x))


class Composed(NamedTuple):
    """A function is made of an activation f: ``outer f(inner (x + before)) + straight x + bent max(x, 0) + behind``.

    Attributes
    ----------
    row : Activation
    inner, outer, straight, bent : float
        One of the last two is zero.
    before, behind : float
    """

    row: Activation
    inner: float = 1.0
    outer: float = 1.0
    straight: float = 0.0
    bent: float = 0.0
    before: float = 0.0
    behind: float = 0.0


@functools.lru_cache(4)
def composed(call: Call) -> Composed | None:
    """Return how a function is made of an activation and multiples; None if it is not so found."""
    with np.errstate(all="ignore"):
        given = np.asarray(call(GRID), np.float64)
        behind, relu = float(given[-1]), ACTIVATIONS["relu"]  # the last number is zero
        below, above = (given[[0, -2]] - behind) / GRID[[0, -2]]
        bent = Composed(relu, 1.0, _few(above - below), _few(below), behind=_few(behind))
        if np.allclose(given, below * GRID + (above - below) * np.maximum(GRID, 0) + behind, rtol=NEAR, atol=NEAR):
            return bent
        low, high = float(given.min()), float(given.max())
        if np.allclose(given, np.clip(GRID, low, high), rtol=NEAR, atol=NEAR) and high > low:
            return _clipped(_few(low), _few(high))
        near = np.abs(GRID) <= 8
        x, y = GRID[near], given[near]
        if not np.isfinite(y).all() or not y.any():
            return None
        for row in ACTIVATIONS.values():
            found = _fitted(row, x, y)
            if found is not None:
                made = found.outer * row.numbers(found.inner * GRID)[0] + found.straight * GRID
                made += found.bent * np.maximum(GRID, 0)
                if np.allclose(made, given, rtol=1e-4, atol=NEAR):
                    return found
    return None


def powers_of(call: Call) -> tuple[float, float, float, float] | None:
    """Return the factors of 1, x, x^2 and x^3 that a function is the sum of; None if it is none."""
    near = np.abs(GRID) <= 8
    with np.errstate(all="ignore"):
        given = np.asarray(call(GRID), np.float64)
    if given.shape != GRID.shape or not np.isfinite(given).all() or not given[near].any():
        return None
    terms, largest = np.vander(GRID, 4, increasing=True), float(np.abs(given[near]).max())
    found = np.linalg.lstsq(terms[near], given[near], rcond=None)[0]
    found = np.where(np.abs(found) * np.abs(terms[near]).max(0) < 1e-6 * largest, 0, found)
    made = [_few(float(factor)) for factor in found]
    same = np.allclose(terms @ np.array(made), given, rtol=1e-4, atol=NEAR * largest)
    return (made[0], made[1], made[2], made[3]) if same else None


def _clipped(low: float, high: float) -> Composed | None:
    """Return what keeps numbers between two ends, either of which may be that of `GRID`: there is none then."""
    open_below, open_above = low <= GRID.min(), high >= GRID.max()
    if open_below or open_above:
        end, sign = (high, -1.0) if open_below else (low, 1.0)
        both = open_below and open_above
        return None if both else Composed(ACTIVATIONS["relu"], sign, sign, before=-end, behind=end)
    middle, half = _few((low + high) / 2), _few((high - low) / 2)
    return Composed(ACTIVATIONS["hardtanh"], _few(1 / half), half, before=-middle, behind=middle)


def _few(number: float) -> float:
    """Return a number with so many digits as constants of a file are told by."""
    return float(f"{number:.7g}")


def _fitted(row: Activation, x: np.ndarray, y: np.ndarray) -> Composed | None:
    """Return the multiples with which an activation comes nearest to a function."""

    def nearest(rates: np.ndarray) -> int:
        return int(np.argmin(_apart(row.numbers(np.multiply.outer(rates, x))[0], beside, y)))

    rates = np.concatenate([sign * np.geomspace(1 / 64, 16, 81) for sign in (1, -1)])
    for kind, beside in (("", np.zeros_like(x)), ("straight", x), ("bent", np.maximum(x, 0))):
        best = float(rates[nearest(rates)])
        low, high = sorted((best / 1.1, best * 1.1))
        for _ in range(18):  # the nearest lies between, by quarters
            tried = np.linspace(low, high, 9)
            at = nearest(tried)
            low, high = float(tried[max(0, at - 1)]), float(tried[min(at + 1, 8)])
        inner = float(f"{(low + high) / 2:.5g}")
        both = np.stack([row.numbers(inner * x)[0], beside], 1)
        factors = np.linalg.lstsq(both, y, rcond=None)[0]
        if np.square(both @ factors - y).sum() < 1e-6 * float(y @ y):
            outer, more = (float(f"{factor:.5g}") for factor in factors)
            return Composed(row, inner, outer, **{kind: more} if kind else {})
    return None


def _apart(rows: np.ndarray, beside: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the squared distance of `y` from multiples of each row and of `beside`, for all rows at once."""
    own, both, other = np.square(rows).sum(1), rows @ beside, float(beside @ beside)
    left = own * other - np.square(both)
    along, across = rows @ y, float(beside @ y)
    alone = left <= 1e-12 * own * other  # the two say the same, or there is nothing beside
    first = np.where(alone, along / own, (other * along - both * across) / left)
    second = np.where(alone, 0.0, (own * across - both * along) / left)
    found = np.square(first[:, np.newaxis] * rows + np.multiply.outer(second, beside) - y).sum(1)
    return np.where(np.isfinite(found), found, np.inf)


def told(call: Call) -> tuple[Activation | None, float | None]:
    """Return (activation, factor): which activation a function is, or what it multiplies numbers with."""
    with np.errstate(all="ignore"):
        given = np.asarray(call(GRID), np.float64)
        factor = given[-2] / GRID[-2]
        if np.allclose(given, factor * GRID, rtol=NEAR, atol=NEAR):
            return None, float(factor)
        for row in ACTIVATIONS.values():
            if np.allclose(row.numbers(GRID)[0], given, rtol=NEAR, atol=NEAR):
                return row, None
    return None, None
