"""Rows of the functions that networks apply to each number: all that an activation is stands here.

An activation has a numpy form, a form on bit patterns for the oracles, and one that writes instructions; both modes
call the same three.  What is multiplied with the gradient on the way back, its *slope*, is made with the value, rounded
to 16 bits, and kept.

A function that is smooth is written once, over the few operations of `fabric.program.functions`: the bits and the
instructions follow from that.  A new one is a subclass of `Smooth` here, and its name in `ACTIVATIONS`.

Sources: D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016; S. Elfwing, E. Uchibe and K. Doya,
"Sigmoid-weighted linear units for neural network function approximation in reinforcement learning", 2018 (SiLU).
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
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.program.functions import Emit
from fabric.program.functions.mathematics import Functions
from fabric.program.program import Program

__all__ = ["ACTIVATIONS", "Activation", "ActivationOperands"]

Halves = NDArray[np.uint16]
ERF = np.frompyfunc(math.erf, 1, 1)
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


def _logistic(f: Functions, source: Any, rate: float) -> None:
    """Set v = 1 / (1 + exp(-rate source)); u, w and t change."""
    f.mul(f.t, source, -rate)
    f.minimum(f.t, f.t, LARGEST_EXPONENT)
    f.power(f.w, f.t)
    f.add(f.w, f.w, 1.0)
    f.inverse(f.v)


ACTIVATIONS = {row.name: row for row in (Relu(), Gelu(), Silu(), GeluErf(), Tanh())}
"""The activations have these rows, by name.  What is applied to nothing, ``none``, is no operation."""
