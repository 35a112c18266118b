"""The element's arithmetic is done with exact rationals: slow, and short enough to be checked by reading.

What      every scalar form of wse_core/arithmetic.pxd under the same name, as a method of `Num`; whole-number bit
          patterns in and out.
Contract  decode exactly, calculate exactly, round once (`Format.encode`). Nothing is ever held in a host float, so no
          compiler flag, host float mode or library can change a result.
Timing    some 3 microseconds per sum and product, 10 per other operation.
Known     as arithmetic.pxd: CB16's infinities and NaN, the fused multiply-adds and the rounding mode are assumptions
differences listed in docs/numerics.md.
Sources   IEEE 754-2019 clauses 3, 4.3.1, 5, 6, 9.6; CSL language guide for the formats.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import NamedTuple, TypeAlias

__all__ = ["BF16", "F16", "F32", "FMT_BF16", "FMT_CB16", "FMT_F16", "FMT_F32", "Format", "Num", "Real", "cb16_format"]

FMT_F16, FMT_CB16, FMT_BF16, FMT_F32 = range(4)
BIAS_DEFAULT = 42  # source: CSL type page, 6.0 = 0x5900; confidence: published for CSL


class Real(NamedTuple):
    """A real number as IEEE 754 sees it has a sign and a size.

    `size` is a Fraction >= 0, or one of the marks `INFINITE` and `NAN`.
    """

    negative: bool
    size: Fraction | str

    @property
    def finite(self) -> Fraction:
        """The size of a finite number is this rational."""
        assert isinstance(self.size, Fraction)
        return self.size

    @property
    def value(self) -> Fraction:
        """The value of a finite number is this rational, with its sign."""
        return -self.finite if self.negative else self.finite


INFINITE, NAN = "infinite", "nan"
NOT_A_NUMBER = Real(False, NAN)


def power_of_two(n: int) -> Fraction:
    """Return 2**n as a Fraction, for any whole n."""
    return Fraction(1 << n) if n >= 0 else Fraction(1, 1 << -n)


def floor_log2(x: Fraction) -> int:
    """Return the whole e with 2**e <= x < 2**(e+1), for a Fraction x > 0."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if power_of_two(e) <= x else e - 1


def nearest_even(x: Fraction) -> int:
    """Return the whole number nearest to the Fraction x >= 0, the even one of two equally near."""
    whole, rest = divmod(x, 1)
    return int(whole) + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1))


class Format(NamedTuple):
    """A binary interchange format has 1 sign bit, then the fields below; top exponent field infinity and NaN."""

    exponent_bits: int
    fraction_bits: int
    bias: int

    @property
    def infinity(self) -> int:
        """The code of +infinity is this bit pattern."""
        return (1 << self.exponent_bits) - 1 << self.fraction_bits

    @property
    def sign(self) -> int:
        """The sign bit is this mask."""
        return 1 << self.exponent_bits + self.fraction_bits

    @property
    def nan(self) -> int:
        """Arithmetic returns one NaN, which has this code: positive, quiet, no payload."""
        return self.infinity | 1 << self.fraction_bits - 1

    @property
    def e_min(self) -> int:
        """The smallest normal number has this exponent."""
        return 1 - self.bias

    def decode(self, code: int) -> Real:
        """Return the `Real` that a code stands for."""
        negative = bool(code & self.sign)
        exponent, fraction = divmod(code & self.sign - 1, 1 << self.fraction_bits)
        if exponent == (1 << self.exponent_bits) - 1:
            return Real(negative, NAN if fraction else INFINITE)
        if exponent > 0:
            fraction += 1 << self.fraction_bits
        return Real(negative, fraction * power_of_two(max(exponent, 1) - self.bias - self.fraction_bits))

    def encode(self, number: Real) -> int:
        """Return the code of a `Real` rounded to this format: to nearest even, gradual underflow, overflow."""
        if number.size == NAN:
            return self.nan
        sign = self.sign if number.negative else 0
        if number.size == INFINITE:
            return sign | self.infinity
        if number.size == 0:
            return sign
        exponent = max(floor_log2(number.finite), self.e_min)
        units = nearest_even(number.finite / power_of_two(exponent - self.fraction_bits))
        # A normal number has 2**fraction_bits units or more: that leading one steps the exponent field up by one, and
        # so does a rounding that reaches the next power of two.
        code = (exponent - self.e_min << self.fraction_bits) + units
        return sign | min(code, self.infinity)

    def is_subnormal(self, code: int) -> bool:
        """Return whether a code is zero or subnormal."""
        return code & self.infinity == 0


Whole: TypeAlias = tuple[int, int]
"""A number n * 2**e, n not 0, is (n, e): sums and products of such are again such, and take a tenth of the time of
rationals.  What is neither finite nor zero, quotients and roots are left to `Real`, which does all of it as well: that
both give the same is shown in tests/wse_core/test_numerics.py.
"""


@lru_cache(maxsize=64)
def fields(fmt: Format) -> tuple[int, int, int, int]:
    """Return the bits of the fraction, the sign bit, infinity, and the power of two of the smallest subnormal."""
    return fmt.fraction_bits, fmt.sign, fmt.infinity, fmt.e_min - fmt.fraction_bits


def whole_of(fmt: Format, code: int) -> Whole | None:
    """Return the `Whole` that a code stands for, None if it is zero, infinite or no number."""
    bits, sign, infinity, least = fields(fmt)
    size = code & sign - 1
    if not 0 < size < infinity:
        return None
    exponent = size >> bits
    if exponent:
        size = size & (1 << bits) - 1 | 1 << bits
        least += exponent - 1
    return (-size if code & sign else size), least


def times(x: Whole | None, y: Whole | None) -> Whole | None:
    """Return the exact product, None if a factor is None."""
    return None if x is None or y is None else (x[0] * y[0], x[1] + y[1])


def plus(x: Whole | None, y: Whole | None) -> Whole | None:
    """Return the exact sum, None if a term is None or the sum is zero."""
    if x is None or y is None:
        return None
    (n, e), (m, f) = x, y
    total = (n << e - f) + m if e >= f else n + (m << f - e)
    return (total, min(e, f)) if total else None


def rounded(fmt: Format, number: Whole) -> int:
    """Return the code of a `Whole` rounded to a format, as `Format.encode` does it."""
    bits, sign, infinity, least = fields(fmt)
    n, e = number
    size = abs(n)
    last = max(size.bit_length() - 1 + e - bits, least)  # the last place of the result has the weight 2**last
    left = last - e
    if left <= 0:
        units = size << -left
    else:
        units, rest, half = size >> left, size & (1 << left) - 1, 1 << left - 1
        units += rest > half or (rest == half and units & 1)
    return (sign if n < 0 else 0) | min((last - least << bits) + units, infinity)


F16 = Format(5, 10, 15)
BF16 = Format(8, 7, 127)
F32 = Format(8, 23, 127)


def cb16_format(bias: int = BIAS_DEFAULT) -> Format:
    """Return CB16 with the given exponent bias."""
    return Format(6, 9, bias)


def add(x: Real, y: Real) -> Real:
    """Return the exact sum of two `Real`, signs of zero as in round-to-nearest."""
    if NAN in (x.size, y.size):
        return NOT_A_NUMBER
    if INFINITE in (x.size, y.size):
        if x.size == y.size and x.negative != y.negative:
            return NOT_A_NUMBER
        return x if x.size == INFINITE else y
    total = x.value + y.value
    if total == 0:
        return Real(x.negative and y.negative, Fraction(0))
    return Real(total < 0, abs(total))


def multiply(x: Real, y: Real) -> Real:
    """Return the exact product of two `Real`."""
    if NAN in (x.size, y.size):
        return NOT_A_NUMBER
    negative = x.negative != y.negative
    if INFINITE in (x.size, y.size):
        return NOT_A_NUMBER if 0 in (x.size, y.size) else Real(negative, INFINITE)
    return Real(negative, x.finite * y.finite)


def divide(x: Real, y: Real) -> Real:
    """Return the exact quotient of two `Real`."""
    if NAN in (x.size, y.size) or (x.size == y.size and x.size in (0, INFINITE)):
        return NOT_A_NUMBER
    negative = x.negative != y.negative
    if x.size == INFINITE or y.size == 0:
        return Real(negative, INFINITE)
    if y.size == INFINITE:
        return Real(negative, Fraction(0))
    return Real(negative, x.finite / y.finite)


def square_root(x: Real) -> Real:
    """Return the square root of a `Real`; an irrational one with 64 bits and a last bit that says "and more"."""
    if x.size == NAN or (x.negative and x.size != 0):
        return NOT_A_NUMBER
    if x.size in (0, INFINITE):
        return x
    shift = 64 - floor_log2(x.finite) // 2
    scaled = x.finite * power_of_two(2 * shift)
    root = isqrt(scaled.numerator // scaled.denominator)
    more = root * root != scaled
    return Real(False, Fraction(2 * root + more) * power_of_two(-shift - 1))


def negated(x: Real) -> Real:
    """Return the number -x."""
    return Real(not x.negative, x.size)


def larger(x: Real, y: Real) -> Real:
    """Return IEEE 754-2019 maximum of two `Real`."""
    if NAN in (x.size, y.size):
        return NOT_A_NUMBER
    if x.negative != y.negative:  # decides zeros as well
        return y if x.negative else x
    x_is_bigger = x.size == INFINITE or (y.size != INFINITE and x.finite >= y.finite)
    return x if x_is_bigger != x.negative else y


def order(x: Real, y: Real) -> int | None:
    """Return -1, 0 or 1 as x is below, equal to or above y, and None if either is NaN."""
    if NAN in (x.size, y.size):
        return None
    if x.size == y.size and (x.negative == y.negative or x.size == 0):
        return 0
    return 1 if larger(x, y) == x else -1


def whole_number(x: Real, low: int, high: int, rne: int) -> int:
    """Return a `Real` as a whole number: rounded or truncated, then held within low..high; NaN gives 0."""
    if x.size == NAN:
        return 0
    if x.size == INFINITE:
        return low if x.negative else high
    size = nearest_even(x.finite) if rne else int(x.finite)
    return max(low, min(high, -size if x.negative else size))


def real(value: int) -> Real:
    """Return a whole number as a `Real`."""
    return Real(value < 0, Fraction(abs(value)))


class Num:
    """A `Num` has the scalar forms of one element, for given settings.

    Parameters
    ----------
    half : int
        FMT_F16 or FMT_CB16.
    bias : int
        Exponent bias of cb16, 1 to 62.
    ftz : int
        1 to take subnormal operands and results as zeros of their sign, 0 for gradual underflow.
    separate : bool
        Whether multiply-adds of one format round the product too.

    Notes
    -----
    Bit patterns are whole numbers of 16 (`h_`) or 32 bits (`f32_`, `hs_`). Operands come in the order of the compiled
    forms, without their settings argument.

    Examples
    --------
    >>> hex(Num(FMT_CB16).h_fma(0x3100, 0xFDAA, 0x0001))    # in float64 arithmetic: 0xdac0
    '0xdabf'
    """

    def __init__(self, half: int = FMT_F16, bias: int = BIAS_DEFAULT, ftz: int = 0, separate: bool = False) -> None:
        if half not in (FMT_F16, FMT_CB16) or not 1 <= bias <= 62 or ftz not in (0, 1):
            raise ValueError(f"no such settings: half {half}, bias {bias}, ftz {ftz}")
        self.half, self.bias, self.ftz, self.separate = half, bias, ftz, separate
        self.formats = {FMT_F16: F16, FMT_CB16: cb16_format(bias), FMT_BF16: BF16, FMT_F32: F32}
        self.h = self.formats[half]

    def _in(self, fmt: Format, code: int) -> Real:
        if self.ftz and fmt.is_subnormal(code):
            code &= fmt.sign
        return fmt.decode(code)

    def _out(self, fmt: Format, number: Real) -> int:
        code = fmt.encode(number)
        if self.ftz and fmt.is_subnormal(code):
            code &= fmt.sign
        return code

    def _whole(self, fmt: Format, code: int) -> Whole | None:
        return None if self.ftz and fmt.is_subnormal(code) else whole_of(fmt, code)

    def _rounded(self, fmt: Format, number: Whole) -> int:
        code = rounded(fmt, number)
        if self.ftz and fmt.is_subnormal(code):
            code &= fmt.sign
        return code

    def _sum(self, to: Format, fmt: Format, a: int, other: Format, b: int) -> int:
        quick = plus(self._whole(fmt, a), self._whole(other, b))
        if quick is not None:
            return self._rounded(to, quick)
        return self._out(to, add(self._in(fmt, a), self._in(other, b)))

    def _product(self, fmt: Format, a: int, b: int) -> int:
        quick = times(self._whole(fmt, a), self._whole(fmt, b))
        if quick is not None:
            return self._rounded(fmt, quick)
        return self._out(fmt, multiply(self._in(fmt, a), self._in(fmt, b)))

    def _fused(self, fmt: Format, a: int, b: int, to: Format, c: int) -> int:
        quick = plus(times(self._whole(fmt, a), self._whole(fmt, b)), self._whole(to, c))
        if quick is not None:
            return self._rounded(to, quick)
        return self._out(to, add(multiply(self._in(fmt, a), self._in(fmt, b)), self._in(to, c)))

    # f32

    def f32_add(self, a: int, b: int) -> int:
        return self._sum(F32, F32, a, F32, b)

    def f32_sub(self, a: int, b: int) -> int:
        return self._sum(F32, F32, a, F32, b ^ F32.sign)

    def f32_mul(self, a: int, b: int) -> int:
        return self._product(F32, a, b)

    def f32_div(self, a: int, b: int) -> int:
        return self._out(F32, divide(self._in(F32, a), self._in(F32, b)))

    def f32_fma(self, a: int, b: int, c: int) -> int:
        if self.separate:
            return self.f32_add(c, self.f32_mul(a, b))
        return self._fused(F32, a, b, F32, c)

    def f32_sqrt(self, a: int) -> int:
        return self._out(F32, square_root(self._in(F32, a)))

    def f32_max(self, a: int, b: int) -> int:
        return self._out(F32, larger(self._in(F32, a), self._in(F32, b)))

    def f32_min(self, a: int, b: int) -> int:
        return self._out(F32, negated(larger(negated(self._in(F32, a)), negated(self._in(F32, b)))))

    def f32_neg(self, a: int) -> int:
        return a ^ F32.sign

    def f32_abs(self, a: int) -> int:
        return a & F32.sign - 1

    def f32_scale(self, a: int, n: int) -> int:
        return self._out(F32, multiply(self._in(F32, a), Real(False, power_of_two(n))))

    def f32_eq(self, a: int, b: int) -> int:
        return int(order(self._in(F32, a), self._in(F32, b)) == 0)

    def f32_lt(self, a: int, b: int) -> int:
        return int(order(self._in(F32, a), self._in(F32, b)) == -1)

    def f32_le(self, a: int, b: int) -> int:
        return int(order(self._in(F32, a), self._in(F32, b)) in (-1, 0))

    # the chosen 16-bit format

    def h_add(self, a: int, b: int) -> int:
        return self._sum(self.h, self.h, a, self.h, b)

    def h_sub(self, a: int, b: int) -> int:
        return self._sum(self.h, self.h, a, self.h, b ^ self.h.sign)

    def h_mul(self, a: int, b: int) -> int:
        return self._product(self.h, a, b)

    def h_div(self, a: int, b: int) -> int:
        return self._out(self.h, divide(self._in(self.h, a), self._in(self.h, b)))

    def h_fma(self, a: int, b: int, c: int) -> int:
        if self.separate:
            return self.h_add(c, self.h_mul(a, b))
        return self._fused(self.h, a, b, self.h, c)

    def h_sqrt(self, a: int) -> int:
        return self._out(self.h, square_root(self._in(self.h, a)))

    def h_max(self, a: int, b: int) -> int:
        return self._out(self.h, larger(self._in(self.h, a), self._in(self.h, b)))

    def h_min(self, a: int, b: int) -> int:
        return self._out(self.h, negated(larger(negated(self._in(self.h, a)), negated(self._in(self.h, b)))))

    def h_neg(self, a: int) -> int:
        return a ^ self.h.sign

    def h_abs(self, a: int) -> int:
        return a & self.h.sign - 1

    def h_scale(self, a: int, n: int) -> int:
        return self._out(self.h, multiply(self._in(self.h, a), Real(False, power_of_two(n))))

    def h_eq(self, a: int, b: int) -> int:
        return int(order(self._in(self.h, a), self._in(self.h, b)) == 0)

    def h_lt(self, a: int, b: int) -> int:
        return int(order(self._in(self.h, a), self._in(self.h, b)) == -1)

    def h_le(self, a: int, b: int) -> int:
        return int(order(self._in(self.h, a), self._in(self.h, b)) in (-1, 0))

    # mixed

    def hs_fma(self, a: int, b: int, c: int) -> int:
        return self._fused(self.h, a, b, F32, c)

    def hs_add(self, a: int, b: int) -> int:
        return self._sum(F32, self.h, a, F32, b)

    # float formats to float formats; widening never meets a subnormal result that was not one before

    def h_to_f32(self, a: int) -> int:
        return F32.encode(self._in(self.h, a))

    def f32_to_h(self, a: int) -> int:
        return self._out(self.h, self._in(F32, a))

    def f32_to_bf16(self, a: int) -> int:
        return self._out(BF16, self._in(F32, a))

    def bf16_to_f32(self, a: int) -> int:
        return F32.encode(BF16.decode(a))

    def convert(self, from_fmt: int, to_fmt: int, bits: int) -> int:
        return self._out(self.formats[to_fmt], self._in(self.formats[from_fmt], bits))

    # floats to whole numbers and back

    def h_to_i16(self, a: int, rne: int) -> int:
        return whole_number(self.h.decode(a), -(2**15), 2**15 - 1, rne)

    def h_to_u16(self, a: int, rne: int) -> int:
        return whole_number(self.h.decode(a), 0, 2**16 - 1, rne)

    def h_to_i32(self, a: int, rne: int) -> int:
        return whole_number(self.h.decode(a), -(2**31), 2**31 - 1, rne)

    def f32_to_i16(self, a: int, rne: int) -> int:
        return whole_number(F32.decode(a), -(2**15), 2**15 - 1, rne)

    def f32_to_u16(self, a: int, rne: int) -> int:
        return whole_number(F32.decode(a), 0, 2**16 - 1, rne)

    def f32_to_i32(self, a: int, rne: int) -> int:
        return whole_number(F32.decode(a), -(2**31), 2**31 - 1, rne)

    def i16_to_h(self, v: int) -> int:
        return self.h.encode(real(v))

    def u16_to_h(self, v: int) -> int:
        return self.h.encode(real(v))

    def i32_to_h(self, v: int) -> int:
        return self.h.encode(real(v))

    def i16_to_f32(self, v: int) -> int:
        return F32.encode(real(v))

    def u16_to_f32(self, v: int) -> int:
        return F32.encode(real(v))

    def i32_to_f32(self, v: int) -> int:
        return F32.encode(real(v))
