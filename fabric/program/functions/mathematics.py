"""The functions are written over the operations of a calculator that subclasses have."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["EXP", "INVERSE_FIRST", "INVERSE_GUESS", "LOG", "ROOT_FIRST", "ROOT_GUESS", "TAIL", "TAIL_AT",
           "Functions"]  # fmt: skip

EXP = (1.0, 1.0, 0.5, 0.16666513, 0.041666858, 0.008369601, 0.001389935)
"""The polynomial for e^f has these coefficients, for |f| <= ln 2 / 2, lowest first."""
LOG = (1.0, -0.5, 0.33333354, -0.25000888, 0.19999933, -0.16620106, 0.14223186, -0.13210735, 0.12655853, -0.0738688)
"""The polynomial for log(1 + f) / f has these coefficients, for f from 0.7071 - 1 to 1.4142 - 1, lowest first."""
LN2_HIGH, LN2_LOW = 0.693359375, -2.1219444e-4
"""The number ln 2 is split into one of ten bits, whose products with small integers are exact, and the rest."""
LOWEST, HIGHEST = -104.0, 89.0
"""At these arguments e^x rounds to zero and to infinity."""
SIXTY_FOURTHS = 1.5 * 2.0**17
"""Added to a number below 2^9 it leaves the number of 64ths in the lower half of the sum."""
UNITS = 1.5 * 2.0**23
"""Added to a number below 2^15 it leaves the number of units in the lower half of the sum."""
SPLIT = 0x3F35
"""The upper half of sqrt(1/2) is where log cuts between two exponents."""
INVERSE_GUESS, INVERSE_FIRST = (0x7EF2, 0x8000), 2.0015
"""The first guess of 1 / x is this upper half less that of x, over this lower half; the first step has the constant."""
ROOT_GUESS, ROOT_FIRST = (0x5F36, 0x8000), 1.501
GELU_CUBIC = 0.044715
GELU_SCALE = 2 * math.sqrt(2 / math.pi)
GELU_CUT = 86.0
"""This is the largest -2u for which 1 + exp(-2u) is in the range of `reciprocal`."""
SIGN = 2.0**100
"""Times this, every 16-bit number but zero is beyond one."""
TAIL_AT = 0.3275911
TAIL = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""1 - erf(z) is exp(-z^2) t P(t) for t = 1 / (1 + TAIL_AT z), z >= 0, within 1.5e-7; coefficients of P, lowest first.

Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26 (after Hastings, 1955).
"""


class Functions(ABC):
    """`Functions` has the functions, in terms of operations that subclasses have.

    Operations are ``name(dest, a, b)`` with vectors or numbers, any of them the same vector; ``fma(dest, a, b, c)`` is
    a + b c with a number c.  ``low`` and ``high`` are the halves of a vector as 16-bit integers, with operations of
    their own.  A source is read once, before anything is written to dest, so they may be the same.
    """

    u: Any
    v: Any
    w: Any
    t: Any
    q: Any
    x: Any

    @abstractmethod
    def call(self) -> AbstractContextManager[None]:
        """Write a function, from its first operation to its last."""

    @abstractmethod
    def half(self, name: str, dest: Any, *sources: Any) -> None:
        """Do a 16-bit operation on halves."""

    @abstractmethod
    def mul(self, dest: Any, a: Any, b: Any) -> None:
        """Set dest = a b."""

    @abstractmethod
    def add(self, dest: Any, a: Any, b: Any) -> None:
        """Set dest = a + b."""

    @abstractmethod
    def sub(self, dest: Any, a: Any, b: Any) -> None:
        """Set dest = a - b."""

    @abstractmethod
    def fma(self, dest: Any, a: Any, b: Any, c: Any) -> None:
        """Set dest = a + b c."""

    @abstractmethod
    def maximum(self, dest: Any, a: Any, b: Any) -> None:
        """Set dest to the larger of a and b."""

    @abstractmethod
    def minimum(self, dest: Any, a: Any, b: Any) -> None:
        """Set dest to the smaller of a and b."""

    @abstractmethod
    def move(self, dest: Any, a: Any) -> None:
        """Set dest = a for each element."""

    def exp(self, dest: Any, source: Any) -> None:
        """Set dest = e^source.

        Error below 1 ulp.  All numbers: overflow to infinity, gradual underflow (zero if the machine flushes), NaN
        stays NaN.
        """
        with self.call():
            self.power(dest, source)

    def log(self, dest: Any, source: Any) -> None:
        """Set dest = log(source) for normal positive numbers; NaN and infinity give NaN.

        Error below 1.6 ulp.  Others give numbers without meaning.
        """
        with self.call():
            self.logarithm(dest, source)

    def reciprocal(self, dest: Any, source: Any) -> None:
        """Set dest = 1 / source for 2^-125 <= abs(source) <= 2^125; zero and NaN give NaN.

        Error below 2 ulp.  Larger numbers, infinity too, give numbers without meaning.
        """
        with self.call():
            self.move(self.w, source)
            self.inverse(dest)

    def rsqrt(self, dest: Any, source: Any) -> None:
        """Set dest = 1 / sqrt(source) for normal numbers up to 2^125; NaN stays NaN.

        Error below 2.2 ulp.  Others give numbers without meaning.
        """
        u, v, w = self.u, self.v, self.w
        with self.call():
            self.move(w, source)
            self.half("slr16", u.high, w.high, 1)
            self.half("mov16", v.low, ROOT_GUESS[1])
            self.half("sub16", v.high, ROOT_GUESS[0], u.high)
            self.mul(w, w, -0.5)
            for result, constant in ((v, ROOT_FIRST), (v, 1.5), (dest, 1.5)):
                self.mul(u, w, v)
                self.mul(u, u, v)
                self.add(u, u, constant)
                self.mul(result, v, u)

    def gelu(self, dest: Any, slope: Any, source: Any) -> None:
        """Set dest = gelu(source) and its slope, for abs(source) < 2^30; NaN stays NaN.

        Errors below 4e-7 and, of the slope, 4e-6, times the larger of the exact value and 1.
        """
        v, w, x, q, t = self.v, self.w, self.x, self.q, self.t
        with self.call():
            self.move(x, source)
            self.square(q, x)
            self.fma(t, -GELU_SCALE, q, -GELU_SCALE * GELU_CUBIC)
            self.mul(t, t, x)
            self.minimum(t, t, GELU_CUT)  # -2 u
            self.power(w, t)
            self.add(w, w, 1.0)
            self.inverse(v)  # s
            self.fma(q, GELU_SCALE, q, 3 * GELU_SCALE * GELU_CUBIC)
            self.mul(q, q, x)
            self.mul(q, q, v)  # x s (2 u)'
            self.sub(w, 1.0, v)
            self.mul(q, q, w)
            self.add(slope, q, v)
            self.mul(dest, x, v)

    def gelu_erf(self, dest: Any, source: Any, slope: Any = None) -> None:
        """Set dest = source (1 + erf(source / sqrt(2))) / 2, and its slope if asked, for abs(source) < 2^20.

        NaN stays NaN.  Errors below 2e-7 and, of the slope, 1e-6, times the larger of abs(source) and 1.  It is
        max(x, 0) - abs(x) c, with half of 1 - erf of the size as c: no difference of large numbers where the result
        is small.
        """
        t, u, v, w, q, x = self.t, self.u, self.v, self.w, self.q, self.x
        with self.call():
            self.move(x, source)
            self.move(q, x)
            self.half("and16", q.high, q.high, 0x7FFF)
            self.square(t, q)
            self.mul(t, t, -0.5)
            self.power(t, t)
            self.fma(w, 1.0, q, TAIL_AT * math.sqrt(0.5))
            self.inverse(w)
            self.square(u, w)
            self.polynomial(v, w, u, [each / 2 for each in TAIL])
            self.mul(v, v, w)
            self.mul(v, v, t)
            if slope is not None:  # 1/2 + sign (1/2 - c) + x exp(-x^2 / 2) / sqrt(2 pi)
                self.mul(u, x, SIGN)
                self.minimum(u, u, 1.0)
                self.maximum(u, u, -1.0)
                self.sub(w, 0.5, v)
                self.mul(w, w, u)
                self.add(w, w, 0.5)
                self.mul(t, t, x)
                self.fma(slope, w, t, 1 / math.sqrt(2 * math.pi))
            self.mul(v, v, q)
            self.maximum(x, x, 0.0)
            self.sub(dest, x, v)

    def power(self, dest: Any, source: Any) -> None:
        """Set dest = e^source; u, v, w and t change."""
        u, v, w, t = self.u, self.v, self.w, self.t
        self.maximum(w, source, LOWEST)
        self.minimum(w, w, HIGHEST)
        self.fma(u, SIXTY_FOURTHS + 0.5, w, math.log2(math.e))
        self.half("and16", u.low, u.low, 0xFFC0)  # 64 k
        self.sub(t, u, SIXTY_FOURTHS)
        self.fma(w, w, t, -LN2_HIGH)
        self.fma(w, w, t, -LN2_LOW)
        self.square(t, w)
        self.polynomial(v, w, t, EXP)
        self.half("and16", w.high, u.low, 0xFF80)  # 128 (k // 2)
        self.half("add16", v.high, v.high, w.high)
        self.half("sub16", w.high, u.low, w.high)
        self.half("add16", w.high, w.high, u.low)  # 128 (k - k // 2)
        self.half("add16", w.high, w.high, 0x3F80)
        self.half("mov16", w.low, 0)
        self.mul(dest, v, w)

    def logarithm(self, dest: Any, source: Any) -> None:
        """Set dest = log(source) as `log` does; u, v, w, t and q change."""
        u, v, w, t = self.u, self.v, self.w, self.t
        self.move(v, source)
        self.mul(w, v, 0.0)  # NaN if it has to be
        self.move(u, UNITS)
        self.half("sub16", u.low, v.high, SPLIT)
        self.half("and16", u.low, u.low, 0xFF80)  # 128 k
        self.half("sub16", v.high, v.high, u.low)  # m
        self.half("add16", u.low, u.low, 0x4000)  # not negative
        self.sub(u, u, UNITS + 0x4000)
        self.sub(v, v, 1.0)
        self.square(t, v)
        self.fma(w, w, u, LN2_LOW / 128)
        self.polynomial(self.q, v, t, LOG)
        self.mul(v, v, self.q)
        self.add(v, v, w)
        self.fma(dest, v, u, LN2_HIGH / 128)

    def inverse(self, dest: Any) -> None:
        """Set dest = 1 / w; u and v change."""
        u, v, w = self.u, self.v, self.w
        self.half("mov16", v.low, INVERSE_GUESS[1])
        self.half("sub16", v.high, INVERSE_GUESS[0], w.high)
        for result, constant in ((v, INVERSE_FIRST), (v, 2.0), (dest, 2.0)):
            self.mul(u, w, v)
            self.sub(u, constant, u)
            self.mul(result, v, u)

    def square(self, dest: Any, a: Any) -> None:
        """Set dest = a^2: two sources in one bank would take turns, so one is a copy."""
        self.move(dest, a)
        self.mul(dest, dest, a)

    def polynomial(self, dest: Any, x: Any, squared: Any, coefficients: Sequence[float]) -> None:
        """Set dest to the polynomial in x, two degrees at a time."""
        rest = list(coefficients)
        last = rest.pop() if len(rest) % 2 else None
        first = True
        while rest:
            odd, even = rest.pop(), rest.pop()
            if first:
                self.fma(dest, even, x, odd)
                if last is not None:
                    self.fma(dest, dest, squared, last)
            else:
                self.mul(dest, dest, squared)
                if odd == 1.0:
                    self.add(dest, dest, x)
                else:
                    self.fma(dest, dest, x, odd)
                self.add(dest, dest, even)
            first = False
