"""Activations are functions that networks apply to each number: all that one is stands in its row here.

An activation has a numpy form, a form on bit patterns for the oracles, and one that writes instructions; both modes
call the same three.  What is multiplied with the gradient on the way back, its *slope*, is made with the value, rounded
to 16 bits, and kept.

A function that is smooth is written once, over the few operations of `fabric.program.functions`: the bits and the
instructions follow from that.  A new one is a subclass of `Smooth` here, and its name in `ACTIVATIONS`.

Sources: D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016; S. Elfwing, E. Uchibe and K. Doya,
"Sigmoid-weighted linear units for neural network function approximation in reinforcement learning", 2018 (SiLU);
A. Howard et al., "Searching for MobileNetV3", 2019 (the hard forms); D. Misra, "Mish", 2019; D.-A. Clevert et al.,
"Exponential linear units", 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Dsr, Var
from fabric.networks.arithmetic import MixedArithmetic
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import APART, Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.program.functions import Emit
from fabric.program.functions.mathematics import Functions
from fabric.program.program import Program

__all__ = ["ACTIVATIONS", "Activation", "ActivationOperands", "LeakyRelu"]

Halves = NDArray[np.uint16]
ERF = np.frompyfunc(math.erf, 1, 1)
MISH_CUT = 20.0
"""From here on the hyperbolic tangent of softplus is one in f32, and squares of exponentials are in range."""
LARGEST_EXPONENT = 86.0
"""An exponential of more is out of the range in which `Functions.inverse` takes the reciprocal of 1 plus it."""


@dataclass(frozen=True)
class ActivationOperands:
    """The operands are what the instructions of an activation work on, all of the same length.

    Attributes
    ----------
    p : Program
    source : Var or Dsr
        16-bit numbers.
    held : Var
        16-bit numbers, where the result stands until its slope is known; may be the source.
    result : Dsr or None
        Where the result goes besides.
    scratch : Var
        16-bit numbers that may be spoilt; may be `held` if the result goes elsewhere.
    slope : Dsr
        Where slopes go.
    wide : tuple of Var
        f32 numbers of a smooth function: argument, value (may be the argument), slope.
    functions : Emit or None
        For smooth functions.
    """

    p: Program
    source: Var | Dsr
    held: Var
    result: Dsr | None
    scratch: Var
    slope: Dsr
    wide: tuple[Var, ...] = ()
    functions: Emit | None = None


class Activation(NetworkOperation):
    """An activation is a function that a network applies to each number."""

    rowwise = True
    keeps = (("s", "feature", "half"),)
    smooth = False
    """Whether it needs f32 rows and `fabric.program.functions`."""

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (values, slopes) of real numbers, not rounded."""
        raise NotImplementedError

    def bits(self, a: MixedArithmetic, rows: Halves) -> tuple[Halves, Halves]:
        """Return (values, slopes) of 16-bit patterns, as the machine rounds them."""
        raise NotImplementedError

    def emit(self, o: ActivationOperands) -> None:
        """Emit the instructions that give the values and the slopes of a vector."""
        raise NotImplementedError

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        found, slopes = self.numbers(x)
        return a.round(found), a.round(slopes)

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        return a.round(kept * delta), None


class Relu(Activation):
    """The larger of a number and zero; the slope of zero is zero."""

    name, meaning = "relu", "y = max(x, 0)"

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.maximum(x, 0), (x > 0).astype(x.dtype)

    def bits(self, a: MixedArithmetic, rows: Halves) -> tuple[Halves, Halves]:
        rows = a.half.call("maximum", rows, np.zeros_like(rows))
        return rows, np.where(rows.view(np.int16) > 0, a.one, 0).astype(np.uint16)

    def emit(self, o: ActivationOperands) -> None:
        """Emit a maximum; integer arithmetic makes a mask of what is above zero."""
        p = o.p
        one = 0x3C00 if p.half == "f16" else p.machine["num.cb16_bias"] << 9
        p.fmaxh(o.held, o.source, 0.0)
        if o.result is not None:
            p.fmovh(o.result, o.held)
        bits = p.mem1d(o.scratch, dtype="u16")
        p.sub16(bits, 0, p.mem1d(o.held, dtype="u16"))
        p.sar16(bits, bits, 15)
        p.and16(bits, bits, one)
        p.fmovh(o.slope, o.scratch)


class Smooth(Activation):
    """A function that is calculated in f32; subclasses have `function` and `numbers`."""

    smooth = True

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest and slope by operations of a calculator, from its `call` on."""
        raise NotImplementedError

    def bits(self, a: MixedArithmetic, rows: Halves) -> tuple[Halves, Halves]:
        def function(dest: Any, slope: Any, source: Any) -> None:
            self.function(a.functions, dest, slope, source)

        values, slopes = a.functions.over(function, a.widen(rows), 2)
        return a.narrow(values), a.narrow(slopes)

    def emit(self, o: ActivationOperands) -> None:
        (argument, value, slope), functions = o.wide, o.functions
        assert functions is not None
        o.p.fh2s(argument, o.source)
        with functions.first(argument.count):
            self.function(functions, value, slope, argument)
        o.p.fs2h(o.held if o.result is None else o.result, value)
        o.p.fs2h(o.slope, slope)


class Gelu(Smooth):
    """GELU is a number times the normal distribution, in the tanh form."""

    name, meaning = "gelu", "y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        Functions.gelu(f, dest, slope, source)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        c, k = x.dtype.type(np.sqrt(2 / np.pi)), x.dtype.type(0.044715)
        square = x * x
        t = np.tanh(c * x * (1 + k * square))
        return x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) * c * (1 + 3 * k * square) / 2


class GeluErf(Smooth):
    """GELU is a number times the normal distribution, in the exact form."""

    name, meaning = "gelu_erf", "y = x (1 + erf(x / sqrt(2))) / 2"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        Functions.gelu_erf(f, dest, source, slope)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        share = (1 + np.asarray(ERF(np.asarray(x, np.float64) / math.sqrt(2)), np.float64)) / 2
        density = np.exp(-np.square(x, dtype=np.float64) / 2) / math.sqrt(2 * math.pi)
        return (x * share).astype(x.dtype), (share + x * density).astype(x.dtype)


class Tanh(Smooth):
    """The hyperbolic tangent takes numbers to between -1 and 1."""

    name, meaning = "tanh", "y = tanh(x)"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest = 2 s - 1 and slope = 4 s (1 - s), s = 1 / (1 + exp(-2 x)); NaN stays NaN.

        Errors below 3e-7 and, of the slope, 1e-6.
        """
        v, q = f.v, f.q
        with f.call():
            _logistic(f, source, 2.0)  # s
            f.sub(q, 1.0, v)
            f.mul(q, q, v)
            f.mul(slope, q, 4.0)
            f.fma(dest, -1.0, v, 2.0)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = np.tanh(x)
        return value, 1 - value * value


class Silu(Smooth):
    """SiLU is a number times the logistic function of it."""

    name, meaning = "silu", "y = x / (1 + exp(-x))"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest = x s and slope = s + x s (1 - s), s = 1 / (1 + exp(-x)), for abs(x) < 2^30; NaN stays NaN.

        Errors below 2e-7 and, of the slope, 2e-6, times the larger of the exact value and 1.
        """
        v, x, q = f.v, f.x, f.q
        with f.call():
            f.move(x, source)
            _logistic(f, x, 1.0)  # s
            f.sub(q, 1.0, v)
            f.mul(q, q, x)
            f.mul(q, q, v)
            f.add(slope, q, v)
            f.mul(dest, x, v)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(over="ignore"):  # then s is zero
            s = 1 / (1 + np.exp(-x))
        return x * s, s + x * s * (1 - s)


class Sigmoid(Smooth):
    """The logistic function takes numbers to between 0 and 1."""

    name, meaning = "sigmoid", "y = 1 / (1 + exp(-x))"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest = s and slope = s (1 - s), s = 1 / (1 + exp(-x)); NaN stays NaN.  Errors below 2e-7."""
        with f.call():
            _logistic(f, source, 1.0)  # s
            f.sub(f.q, 1.0, f.v)
            f.mul(slope, f.q, f.v)
            f.move(dest, f.v)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        s = _share(x)
        return s, s * (1 - s)


class Relu6(Smooth):
    """A number, but no less than zero and no more than six; at both ends the slope is zero."""

    name, meaning = "relu6", "y = min(max(x, 0), 6)"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest and slope, both exact."""
        x, t, q = f.x, f.t, f.q
        with f.call():
            f.move(x, source)
            _above(f, t, x)
            f.sub(q, 6.0, x)
            _above(f, q, q)
            f.mul(slope, t, q)
            f.maximum(x, x, 0.0)
            f.minimum(dest, x, 6.0)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.clip(x, 0, 6), ((x > 0) & (x < 6)).astype(x.dtype)


class LeakyRelu(Smooth):
    """A number, or a share of it if that is below zero; the slope of zero is the share.

    Parameters
    ----------
    name : str
    share : float
    """

    def __init__(self, name: str, share: float) -> None:
        self.share = share
        self.name, self.meaning = name, f"y = max(x, {share:g} x)"  # type: ignore[misc]

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest, rounded once in f32, and slope."""
        x, t = f.x, f.t
        with f.call():
            f.move(x, source)
            _above(f, t, x)
            f.maximum(slope, t, self.share)
            f.mul(t, x, self.share)
            f.maximum(dest, x, t)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        share = x.dtype.type(self.share)
        return np.maximum(x, share * x), np.where(x > 0, x.dtype.type(1), share)


class Elu(Smooth):
    """An `Elu` gives a number, or the exponential of it less one if that is below zero."""

    name, meaning = "elu", "y = max(x, 0) + exp(min(x, 0)) - 1"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest and slope = exp(min(x, 0)); errors below 2e-7."""
        x, q = f.x, f.q
        with f.call():
            f.move(x, source)
            f.minimum(q, x, 0.0)
            f.power(q, q)
            f.move(slope, q)
            f.sub(q, q, 1.0)
            f.maximum(x, x, 0.0)
            f.add(dest, x, q)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low = np.minimum(x, 0)
        return np.maximum(x, 0) + np.expm1(low), np.exp(low)


class Softplus(Smooth):
    """The logarithm of one and the exponential of a number; its slope is the logistic function."""

    name, meaning = "softplus", "y = log(1 + exp(x))"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest = max(x, 0) + log(1 + exp(-abs(x))) and slope; errors below 3e-7, times the larger of both."""
        x, q, v, w = f.x, f.q, f.v, f.w
        with f.call():
            f.move(x, source)
            _logistic(f, x, 1.0)
            f.move(slope, v)
            f.move(q, x)
            f.half("and16", q.high, q.high, 0x7FFF)
            f.mul(q, q, -1.0)
            f.power(q, q)
            f.add(w, q, 1.0)
            f.logarithm(v, w)
            f.maximum(x, x, 0.0)
            f.add(dest, x, v)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.logaddexp(x, x.dtype.type(0)), _share(x)


class Mish(Smooth):
    """Mish is a number times the hyperbolic tangent of its softplus."""

    name, meaning = "mish", "y = x tanh(log(1 + exp(x)))"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest = x h and slope = h + x (1 - h^2) e / (1 + e), h = n / (n + 2), n = e (e + 2), e = exp(x).

        Errors below 5e-7 and, of the slope, 3e-6, times the larger of the exact value and 1.
        """
        x, q, t, u, v, w = f.x, f.q, f.t, f.u, f.v, f.w
        with f.call():
            f.move(x, source)
            f.minimum(q, x, MISH_CUT)
            f.power(q, q)  # e
            f.add(t, q, 2.0)
            f.mul(t, t, q)  # n
            f.add(w, t, 2.0)
            f.inverse(v)
            f.mul(t, t, v)  # h
            f.mul(v, v, 2.0)  # 1 - h
            f.add(u, t, 1.0)
            f.mul(v, v, u)
            f.mul(v, v, x)
            f.mul(slope, v, q)
            f.add(w, q, 1.0)
            f.inverse(v)
            f.mul(v, v, slope)
            f.add(slope, v, t)
            f.mul(dest, x, t)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        h, s = np.tanh(np.logaddexp(x, x.dtype.type(0))), _share(x)
        return x * h, h + x * (1 - h * h) * s


class HardSigmoid(Smooth):
    """The logistic function in three straight pieces; at both ends the slope is zero."""

    name, meaning = "hardsigmoid", "y = min(max(x + 3, 0), 6) / 6"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest and slope; errors below 1e-7."""
        x, t = f.x, f.t
        with f.call():
            f.move(x, source)
            _between(f, t, x)
            f.mul(slope, t, 1 / 6)
            _sixth(f, dest, x)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.clip(x + 3, 0, 6) / 6, (np.abs(x) < 3).astype(x.dtype) / 6


class HardSwish(Smooth):
    """Hard swish is a number times the logistic function of it in three straight pieces."""

    name, meaning = "hardswish", "y = x min(max(x + 3, 0), 6) / 6"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest and slope = x / 3 + 1 / 2 between -3 and 3, else that of zero or of x; errors below 3e-7."""
        x, t, q, v = f.x, f.t, f.q, f.v
        with f.call():
            f.move(x, source)
            _between(f, t, x)
            f.fma(v, 0.5, x, 1 / 3)
            f.mul(v, v, t)
            f.sub(q, 1.0, q)
            f.add(slope, v, q)
            _sixth(f, t, x)
            f.mul(dest, x, t)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slope = np.where(np.abs(x) < 3, x / 3 + x.dtype.type(0.5), (x >= 3).astype(x.dtype))
        return x * np.clip(x + 3, 0, 6) / 6, slope.astype(x.dtype)


class HardTanh(Smooth):
    """A number between -1 and 1 stays; at both ends the slope is zero."""

    name, meaning = "hardtanh", "y = min(max(x, -1), 1)"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest and slope, both exact."""
        x, t = f.x, f.t
        with f.call():
            f.move(x, source)
            _between(f, t, x, 1.0)
            f.move(slope, t)
            f.maximum(x, x, -1.0)
            f.minimum(dest, x, 1.0)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.clip(x, -1, 1), (np.abs(x) < 1).astype(x.dtype)


class SoftSign(Smooth):
    """Soft sign is a number over one and what it is without its sign."""

    name, meaning = "softsign", "y = x / (1 + abs(x))"

    def function(self, f: Functions, dest: Any, slope: Any, source: Any) -> None:
        """Set dest = x / (1 + abs(x)) and slope = 1 / (1 + abs(x))^2; errors below 3e-7."""
        x, q, v, w = f.x, f.q, f.v, f.w
        with f.call():
            f.move(x, source)
            f.move(q, x)
            f.half("and16", q.high, q.high, 0x7FFF)
            f.add(w, q, 1.0)
            f.inverse(v)
            f.mul(slope, v, v)
            f.mul(dest, x, v)

    def numbers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        share = 1 / (1 + np.abs(x))
        return x * share, share * share


def _share(x: np.ndarray) -> np.ndarray:
    """Return the logistic function."""
    with np.errstate(over="ignore"):  # then it is zero
        return np.asarray(1 / (1 + np.exp(-x)))


def _above(f: Functions, dest: Any, source: Any) -> None:
    """Set dest = 1 where a number of 16 bits, or a difference of such, is above zero, else 0."""
    f.mul(dest, source, APART)
    f.maximum(dest, dest, 0.0)
    f.minimum(dest, dest, 1.0)


def _between(f: Functions, dest: Any, x: Any, end: float = 3.0) -> None:
    """Set dest = 1 where -end < x < end, else 0; q has what is below the end."""
    f.add(dest, x, end)
    _above(f, dest, dest)
    f.sub(f.q, end, x)
    _above(f, f.q, f.q)
    f.mul(dest, dest, f.q)


def _sixth(f: Functions, dest: Any, x: Any) -> None:
    """Set dest = min(max(x + 3, 0), 6) / 6; v changes."""
    f.add(f.v, x, 3.0)
    f.maximum(f.v, f.v, 0.0)
    f.minimum(f.v, f.v, 6.0)
    f.mul(dest, f.v, 1 / 6)


def _logistic(f: Functions, source: Any, rate: float) -> None:
    """Set v = 1 / (1 + exp(-rate source)); u, w and t change."""
    f.mul(f.t, source, -rate)
    f.minimum(f.t, f.t, LARGEST_EXPONENT)
    f.power(f.w, f.t)
    f.add(f.w, f.w, 1.0)
    f.inverse(f.v)


ACTIVATIONS: dict[str, Activation] = {
    row.name: row
    for row in (
        Relu(),
        Gelu(),
        Silu(),
        GeluErf(),
        Tanh(),
        Sigmoid(),
        Relu6(),
        LeakyRelu("leaky_relu", 0.01),
        LeakyRelu("leaky_relu_tenth", 0.1),
        LeakyRelu("leaky_relu_fifth", 0.2),
        Elu(),
        Softplus(),
        Mish(),
        HardSigmoid(),
        HardSwish(),
        HardTanh(),
        SoftSign(),
    )
}
"""The activations have these rows, by name.  What is applied to nothing, ``none``, is no operation."""
