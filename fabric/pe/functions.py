"""Functions of f32 vectors that the machine has no instruction for: exp, log, reciprocal, 1 / sqrt, GELU.

Each function is written once, over the few operations of a calculator.  `Emit` turns them into instructions of a PE
program, `Evaluate` does the same roundings with numpy on bit patterns: what a program must give, bit by bit.

==============  ===================================================================================================
exp             e^x = 2^k e^f, k = x / ln 2 to the nearest integer by adding 1.5 * 2^23, f = x - k ln 2 in two steps,
                e^f by a polynomial of degree 6, k added to the exponent with 16-bit operations on the upper halves
log             x = 2^k m with m in [0.71, 1.42), by 16-bit operations on the upper halves; polynomial in m - 1
reciprocal      scalar divisions in a loop: correctly rounded, all special values
rsqrt           scalar roots and divisions in a loop: two roundings, all special values
gelu            x s and its slope, s = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form
==============  ===================================================================================================

Range and error: see `exp`, `log`, `gelu`.

Cycles: an operation takes a DSR load per operand, its issue and its steps; f32 multiplication, maximum and minimum
make one element a cycle, addition, subtraction and 32-bit moves two, 16-bit additions four, shifts one.

Sources: the op table (`wse_core.isa`); Cody and Waite, "Software manual for the elementary functions", 1980 (reduction
of arguments); D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016 (tanh form).  Coefficients: least squares
at Chebyshev points, ``python -m fabric.pe.functions`` prints them.
"""
from __future__ import annotations

import math

import numpy as np

from wse_core import numerics

__all__ = ["Emit", "Evaluate"]

ROUND = 1.5 * 2.0**23
"""Added to a number below 2^22 it leaves the nearest integer in the low bits of the sum."""
ROUND_BITS = int(np.float32(ROUND).view(np.uint32))
LN2_HIGH, LN2_LOW = 0.693359375, -2.1219444e-4
"""ln 2 as a number of ten bits, whose products with integers to 128 are exact, and the rest."""
EXP = (1.0, 1.0, 0.5, 0.16666513, 0.041666858, 0.008369601, 0.001389935)
"""Of e^f for |f| <= ln 2 / 2, lowest first."""
LOG = (1.0, -0.5, 0.33333354, -0.25000888, 0.19999933, -0.16620106, 0.14223186, -0.13210735, 0.12655853,
       -0.0738688)
"""Of log(1 + f) / f for f from 0.7071 - 1 to 1.4142 - 1, lowest first."""
SPLIT = 0x3F35
"""Upper half of sqrt(1/2): where log cuts between two exponents."""
GELU_CUBIC = 0.044715
GELU_SCALE = 2 * math.sqrt(2 / math.pi)


class Functions:
    """The functions, in terms of operations that subclasses have.

    Operations are ``name(dest, a, b)`` with vectors, or a number for `b`; any of them may be the same vector.
    """

    def exp(self, dest, source):
        """Set dest = e^source; arguments below -87 and above 88 count as these; NaN stays.  Error below 2 ulp."""
        u, v, w = self.temporaries[:3]
        self.maximum(w, source, -87.0)
        self.minimum(w, w, 88.0)
        self.mul(u, w, math.log2(math.e))
        self.add(u, u, ROUND)
        self.sub(v, u, ROUND)
        for part in (LN2_HIGH, LN2_LOW):
            self.mul(dest, v, part)
            self.sub(w, w, dest)
        self.polynomial(v, w, EXP)
        self.shift_low(u, 7)
        self.add_low_to_high(v, u)
        self.move(dest, v)

    def log(self, dest, source):
        """Set dest = log(source) for normal positive numbers.  Error below 2 ulp."""
        u, v, w = self.temporaries[:3]
        self.split(u, v, source)
        self.sub(v, v, 1.0)
        self.polynomial(w, v, LOG)
        self.mul(w, w, v)
        self.sub(u, u, ROUND + 128)
        self.mul(v, u, LN2_LOW)
        self.add(w, w, v)
        self.mul(v, u, LN2_HIGH)
        self.add(dest, w, v)

    def gelu(self, dest, slope, source):
        """Set dest = gelu(source) and its slope, for |source| < 2^17; neither may be the source."""
        t = self.temporaries[3]
        self.mul(t, source, source)
        self.mul(slope, t, GELU_SCALE * GELU_CUBIC)
        self.add(slope, slope, GELU_SCALE)
        self.mul(slope, slope, source)                      # 2 u
        self.mul(dest, slope, -1.0)
        self.exp(dest, dest)
        self.add(dest, dest, 1.0)
        self.reciprocal(dest, dest)                         # s
        self.mul(t, t, 3 * GELU_SCALE * GELU_CUBIC)
        self.add(t, t, GELU_SCALE)                          # derivative of 2 u
        self.mul(t, t, source)
        self.mul(t, t, dest)                                # x s u'
        self.sub(slope, dest, 1.0)
        self.mul(slope, slope, t)                           # -x s (1 - s) u'
        self.sub(slope, dest, slope)
        self.mul(dest, dest, source)

    def polynomial(self, dest, x, coefficients):
        """Set dest to the polynomial in x, by Horner's rule."""
        *lower, highest = coefficients
        self.mul(dest, x, highest)
        for k, coefficient in enumerate(reversed(lower)):
            if k:
                self.mul(dest, dest, x)
            self.add(dest, dest, coefficient)


class Emit(Functions):
    """Functions as instructions of the task that is being written.

    Parameters
    ----------
    p : Program
    count : int
        Elements of all vectors.

    Notes
    -----
    Vectors are variables of f32.  Four variables ``fn0`` to ``fn3`` of `count` elements belong to the functions.
    """

    def __init__(self, p, count):
        self.p, self.count = p, count
        # Two sources whose addresses agree modulo 4 take turns; Horner's rule multiplies the second by the third.
        self.temporaries = [p.array(f"fn{k}", count, "f32", bank=2 - 2 * (k % 2)) for k in range(4)]

    def mul(self, dest, a, b):
        self.p.fmuls(dest, a, b)

    def add(self, dest, a, b):
        self.p.fadds(dest, a, b)

    def sub(self, dest, a, b):
        self.p.fsubs(dest, a, b)

    def maximum(self, dest, a, b):
        self.p.fmaxs(dest, a, b)

    def minimum(self, dest, a, b):
        self.p.fmins(dest, a, b)

    def move(self, dest, a):
        self.p.mov32(dest, a)

    def half(self, var, upper):
        """Return a descriptor of the lower or upper halves of a vector, as 16-bit integers."""
        return self.p.mem1d(var, self.count, stride=2, offset=int(upper), dtype="u16")

    def shift_low(self, var, places):
        """Shift the lower halves to the left."""
        low = self.half(var, False)
        self.p.sll16(low, low, places)

    def add_low_to_high(self, var, other):
        """Add the lower halves of `other` to the upper halves of `var`, as integers."""
        high = self.half(var, True)
        self.p.add16(high, high, self.half(other, False))

    def split(self, exponent, mantissa, source):
        """Set exponent = 1.5 * 2^23 + 128 + k and mantissa = m, where source = 2^k m."""
        p, high, low = self.p, self.half(mantissa, True), self.half(exponent, False)
        p.mov32(mantissa, source)
        p.mov32(exponent, ROUND_BITS)
        p.sub16(low, high, SPLIT)
        p.sar16(low, low, 7)
        shifted = self.half(self.temporaries[2], False)
        p.sll16(shifted, low, 7)
        p.sub16(high, high, shifted)
        p.add16(low, low, 128)

    def elements(self, dest, source, operation):
        """Emit a loop over the elements; `operation` emits what happens to one in a pair of registers."""
        p = self.p
        at = p.reg16("element")
        p.ldi(at, 0)
        with p.loop(self.count):
            value = p.reg32("value")
            p.ld32(value, source, index=at)
            operation(value)
            p.st32(value, dest, index=at)
            p.add16(at, at, 2)
            p.free(value)
        p.free(at)

    def invert(self, value):
        """Emit value = 1 / value."""
        one = self.p.reg32("one")
        self.p.ldi32(one, 1.0)
        self.p.fdivs(value, one, value)
        self.p.free(one)

    def reciprocal(self, dest, source):
        """Set dest = 1 / source, correctly rounded."""
        self.elements(dest, source, self.invert)

    def rsqrt(self, dest, source):
        """Set dest = 1 / sqrt(source), each of the two correctly rounded."""
        def operation(value):
            self.p.fsqrts(value, value)
            self.invert(value)

        self.elements(dest, source, operation)


class Evaluate(Functions):
    """The same functions of arrays of bit patterns; each takes an array of uint32 and returns one, `gelu` two.

    Parameters
    ----------
    machine : Machine
        For its treatment of subnormal numbers.
    """

    def __init__(self, machine):
        self.ftz = bool(machine["num.ftz"])
        self.temporaries = None

    def call(self, name, *operands):
        bits = [np.float32(x).view(np.uint32) if isinstance(x, float) else x for x in operands]
        shape = np.broadcast_shapes(*(np.shape(x) for x in bits))
        return getattr(numerics, name)(*(np.broadcast_to(x, shape) for x in bits), "f32", ftz=self.ftz)

    def over(self, function, source, results=1):
        """Return what a function writes, on fresh arrays."""
        source = np.array(source, np.uint32, ndmin=1)
        self.temporaries = [np.zeros_like(source) for _ in range(4)]
        found = [np.zeros_like(source) for _ in range(results)]
        function(*found, source)
        return found[0] if results == 1 else tuple(found)

    def exp(self, *vectors):
        return super().exp(*vectors) if len(vectors) > 1 else self.over(super().exp, *vectors)

    def log(self, source):
        return self.over(super().log, source)

    def gelu(self, source):
        return self.over(super().gelu, source, 2)

    def rsqrt(self, source):
        return self.call("div", 1.0, self.call("sqrt", source))

    def reciprocal(self, *vectors):
        inverse = self.call("div", 1.0, vectors[-1])
        if len(vectors) == 1:
            return inverse
        vectors[0][...] = inverse
        return None

    def mul(self, dest, a, b):
        dest[...] = self.call("mul", a, b)

    def add(self, dest, a, b):
        dest[...] = self.call("add", a, b)

    def sub(self, dest, a, b):
        dest[...] = self.call("sub", a, b)

    def maximum(self, dest, a, b):
        dest[...] = self.call("maximum", a, b)

    def minimum(self, dest, a, b):
        dest[...] = self.call("minimum", a, b)

    def move(self, dest, a):
        dest[...] = a

    def shift_low(self, var, places):
        var[...] = (var & 0xFFFF0000) | (var << np.uint32(places)) & 0xFFFF

    def add_low_to_high(self, var, other):
        var[...] = var + (other << np.uint32(16))

    def split(self, exponent, mantissa, source):
        k = (((source >> np.uint32(16)).astype(np.uint16) - np.uint16(SPLIT)).view(np.int16) >> 7).astype(np.int64)
        exponent[...] = ROUND_BITS | (k + 128) & 0xFFFF
        mantissa[...] = (source.astype(np.int64) - (k << 23)) & 0xFFFFFFFF


def coefficients():
    """Return the coefficients of `EXP` and `LOG` by least squares of the relative error at Chebyshev points."""
    points = np.cos(np.pi * (np.arange(4000) + 0.5) / 4000)

    def fit(function, low, high, degree, fixed):
        x = (low + high) / 2 + (high - low) / 2 * points
        rest = function(x) - np.polynomial.polynomial.polyval(x, fixed)
        terms = np.stack([x**k for k in range(len(fixed), degree + 1)], 1)
        weight = 1 / function(x)
        found = np.linalg.lstsq(terms * weight[:, None], rest * weight, rcond=None)[0]
        return (*fixed, *found)

    edge = math.log(2) / 2 * 1.01
    return (fit(np.exp, -edge, edge, 6, (1.0, 1.0, 0.5)),
            fit(lambda f: np.log1p(f) / f, math.sqrt(0.5) - 1.002, math.sqrt(2) - 0.998, 9, (1.0, -0.5)))


if __name__ == "__main__":
    for name, values in zip(("EXP", "LOG"), coefficients(), strict=True):
        print(name, "=", tuple(float(f"{value:.8g}") for value in values))
