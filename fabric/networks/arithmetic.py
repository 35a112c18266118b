"""Mixed precision on bit patterns, as the machine rounds: what the oracles of networks calculate with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.program import functions
from wse_core import numerics
from wse_core.formats import Arithmetic, Half
from wse_core.params import Machine

__all__ = ["MixedArithmetic"]

Bits = NDArray[np.uint32]
Halves = NDArray[np.uint16]


class MixedArithmetic:
    """A 16-bit format beside f32; arrays are bit patterns.

    Parameters
    ----------
    machine : Machine
    dtype : {"f16", "cb16"}

    Attributes
    ----------
    half, single : Arithmetic
    functions : Evaluate
    one : numpy.uint16
        Bits of 1 in the 16-bit format.
    """

    def __init__(self, machine: Machine, dtype: Half) -> None:
        self.half, self.single = Arithmetic.of(machine, dtype), Arithmetic.of(machine, "f32")
        self.functions = functions.EvaluatedFunctions(machine)
        self.one = np.uint16(self.half.encode(1.0))

    def add(self, a: Bits, b: Bits) -> Bits:
        """Return a + b in f32."""
        return self.single.call("add", a, b)

    def sub(self, a: Bits, b: Bits) -> Bits:
        """Return a - b in f32."""
        return self.single.call("sub", a, b)

    def mul(self, a: Bits, b: Bits) -> Bits:
        """Return a b in f32."""
        return self.single.call("mul", a, b)

    def larger(self, a: Bits, b: Bits) -> Bits:
        """Return the larger of a and b in f32."""
        return self.single.call("maximum", a, b)

    def times(self, a: Bits, number: float) -> Bits:
        """Return a times a number in f32."""
        return self.mul(a, np.full_like(a, np.array(number, np.float32).view(np.uint32)))

    def plus(self, a: Bits, number: float) -> Bits:
        """Return a plus a number in f32."""
        return self.add(a, np.full_like(a, np.array(number, np.float32).view(np.uint32)))

    def fma(self, a: Halves, b: Halves, c: Bits) -> Bits:
        """Return a b + c in f32, rounded once."""
        return self.half.call("fma_mixed", *np.broadcast_arrays(a, b), c)

    def widen(self, bits: Halves) -> Bits:
        """Return 16-bit numbers as f32."""
        return np.asarray(numerics.convert(bits, self.half.fmt, "f32", self.half.bias, self.half.ftz), np.uint32)

    def narrow(self, bits: Bits) -> Halves:
        """Return f32 numbers rounded to the 16-bit format."""
        return np.asarray(numerics.convert(bits, "f32", self.half.fmt, self.half.bias, self.half.ftz), np.uint16)
