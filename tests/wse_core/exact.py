"""Oracles for the arithmetic tests that share no code and no method with the package.

`Bisection`   finds the nearest number of a format by bisection over its codes, so it never computes an exponent, an ulp
              or a rounding increment; specials and signs follow from a host operation on stand-ins of the same class.
`Mpfr`        asks MPFR, with the format's precision, exponent range and subnormals; only if gmpy2 is installed.
`round_array` and `fma_array` are vectorised, for millions of operands: float64 with numpy.rint on scaled values, and
              a float64 sum rounded to odd (Boldo and Melquiond).
`codes` and the tie builders make operands; uniform bit patterns meet almost no tie of a fused multiply-add.
"""

import math
from fractions import Fraction

import numpy as np

try:
    import gmpy2
except ImportError:  # an extra of the test environment
    gmpy2 = None


class Layout:
    """Field widths and bias of a format, with its values looked up or computed from the code."""

    def __init__(self, name, bits, exponent_bits, fraction_bits, bias):
        self.name, self.bits, self.bias = name, bits, bias
        self.m = fraction_bits
        self.top = 2**exponent_bits - 1
        self.inf = self.top << fraction_bits
        self.sign = 1 << (bits - 1)
        self.nan = self.inf + (1 << (fraction_bits - 1))
        self.emax = self.top - 1 - bias
        self.emin = 1 - bias

    def size(self, code):
        """Value of a code without sign; the code of infinity counts as the next power of two."""
        e, f = code >> self.m, code & ((1 << self.m) - 1)
        if e == 0:
            return Fraction(f) * Fraction(2) ** (self.emin - self.m)
        return (1 + Fraction(f, 1 << self.m)) * Fraction(2) ** (e - self.bias)

    def split(self, code):
        """(sign, class, size) of a code; class is 'zero', 'finite', 'inf' or 'nan'."""
        sign, code = code >> (self.bits - 1), code & (self.sign - 1)
        if code >= self.inf:
            return sign, "nan" if code > self.inf else "inf", None
        return sign, "finite" if code else "zero", self.size(code)

    def flush(self, code, ftz):
        return code & self.sign if ftz and not code & self.inf else code

    def decode_array(self, codes):
        """float64 values of an array of codes."""
        codes = np.asarray(codes).astype(np.int64)
        e, f = (codes >> self.m) & self.top, codes & ((1 << self.m) - 1)
        size = np.where(
            e == 0, np.ldexp(f * 1.0, self.emin - self.m), np.ldexp((f + (1 << self.m)) * 1.0, e - self.bias - self.m)
        )
        size = np.where(e == self.top, np.where(f, np.nan, np.inf), size)
        return np.where(codes & self.sign, -size, size)

    def round_array(self, x):
        """Codes of float64 values, each rounded once: the size in units of its last place, through numpy.rint."""
        x = np.asarray(x, np.float64)
        size = np.abs(x)
        with np.errstate(invalid="ignore"):
            _, e = np.frexp(size)
            unit = np.maximum(e.astype(np.int64) - 1, self.emin) - self.m
            size = np.ldexp(np.rint(np.ldexp(size, -unit)), unit)
        size = np.where(size >= 2.0 ** (self.emax + 1), np.inf, size)
        finite = np.where(np.isfinite(size), size, 0.0)
        _, e = np.frexp(finite)
        e = np.where(finite > 0, np.maximum(e.astype(np.int64) - 1, self.emin), self.emin)
        code = ((e - self.emin) << self.m) + np.ldexp(finite, self.m - e).astype(np.int64)
        code = np.where(np.isinf(size), self.inf, code) | np.where(np.signbit(x), self.sign, 0)
        return np.where(np.isnan(x), self.nan, code).astype(f"u{self.bits // 8}")


F16 = Layout("f16", 16, 5, 10, 15)
BF16 = Layout("bf16", 16, 8, 7, 127)
F32 = Layout("f32", 32, 8, 23, 127)


def cb16(bias):
    """Return the layout of CB16 with an exponent bias."""
    return Layout("cb16", 16, 6, 9, bias)


def layout(fmt, bias):
    """Return the layout of a format by name."""
    return {"f16": F16, "bf16": BF16, "f32": F32}.get(fmt) or cb16(bias)


def nearest(out, compare):
    """Code nearest to an unknown size > 0, ties to the even code. compare(q) tells the sign of (size - q)."""
    low, high = 0, out.inf  # low <= size; high > size, or nothing is
    while high - low > 1:
        middle = (low + high) // 2
        if compare(out.size(middle)) >= 0:
            low = middle
        else:
            high = middle
    side = compare((out.size(low) + out.size(low + 1)) / 2)
    return low + 1 if side > 0 or (side == 0 and low % 2) else low


STAND_IN = {"zero": 0.0, "finite": 1.0, "inf": math.inf, "nan": math.nan}


def sign_of(x):
    """Return -1, 0 or 1."""
    return (x > 0) - (x < 0)


class Bisection:
    """Rational arithmetic, rounding by search."""

    name = "bisection"

    def _finish(self, out, ftz, sign, compare):
        return out.flush(nearest(out, compare) | (out.sign if sign else 0), ftz)

    def _special(self, out, x):
        """Code of a host result that is zero, infinite or NaN."""
        if math.isnan(x):
            return out.nan
        return (out.inf if math.isinf(x) else 0) | (out.sign if math.copysign(1.0, x) < 0 else 0)

    def calculate(self, op, out, ftz, *operands):
        """Result code of op in ('add', 'sub', 'mul', 'div', 'fma', 'sqrt', 'move'); operands are (layout, code)."""
        parts = [f.split(f.flush(code, ftz)) for f, code in operands]
        stand = [math.copysign(STAND_IN[kind], -sign or 1) for sign, kind, _ in parts]
        ordinary = all(size is not None for _, _, size in parts)
        v = [-size if sign else size for sign, _, size in parts] if ordinary else []
        if op == "move":
            if not ordinary or not v[0]:
                return self._special(out, stand[0])
            exact = v[0]
        elif op == "sqrt":
            if math.isnan(stand[0]) or stand[0] < 0:
                return out.nan
            if not ordinary or not v[0]:
                return self._special(out, stand[0])
            return self._finish(out, ftz, 0, lambda q: sign_of(v[0] - q * q))
        elif op == "div":
            if not ordinary or not v[0] or not v[1]:
                with np.errstate(all="ignore"):
                    return self._special(out, float(np.float64(stand[0]) / np.float64(stand[1])))
            return self._finish(out, ftz, v[0] * v[1] < 0, lambda q: sign_of(abs(v[0]) - q * abs(v[1])))
        else:
            if op == "fma":
                host = stand[0] * stand[1]
                product = (host, v[0] * v[1] if ordinary else None)
                addend = (stand[2], v[2] if ordinary else None)
            elif op == "mul":
                host = stand[0] * stand[1]
                product, addend = (host, v[0] * v[1] if ordinary else None), None
            else:
                flip = -1 if op == "sub" else 1
                product = (stand[0], v[0] if ordinary else None)
                addend = (flip * stand[1], flip * v[1] if ordinary else None)
            if not ordinary:
                return self._special(out, product[0] if addend is None else product[0] + addend[0])
            if addend is None:
                if not product[1]:
                    return self._special(out, product[0])
                exact = product[1]
            else:
                exact = product[1] + addend[1]
                if not exact:
                    both_zero = not product[1] and not addend[1]
                    return self._special(out, product[0] + addend[0] if both_zero else 0.0)
        return self._finish(out, ftz, exact < 0, lambda q: sign_of(abs(exact) - q))


class Mpfr:
    """The same through MPFR. Its exponents are one higher: significands lie in [1/2, 1)."""

    name = "mpfr"

    def calculate(self, op, out, ftz, *operands):
        context = gmpy2.context(
            precision=out.m + 1,
            emax=out.emax + 1,
            emin=out.emin - out.m + 1,
            subnormalize=True,
            round=gmpy2.RoundToNearest,
        )
        v = []
        for f, code in operands:
            code = f.flush(code, ftz)
            v.append(gmpy2.mpfr(float(f.decode_array([code])[0]), 53))
        with gmpy2.context(context):
            if op == "move":
                result = +v[0]
            elif op == "sqrt":
                result = gmpy2.sqrt(v[0])
            elif op == "fma":
                result = gmpy2.fma(*v)
            else:
                result = {"add": gmpy2.add, "sub": gmpy2.sub, "mul": gmpy2.mul, "div": gmpy2.div}[op](*v)
        if gmpy2.is_nan(result):
            return out.nan
        sign = out.sign if gmpy2.is_signed(result) else 0
        if gmpy2.is_infinite(result):
            return sign | out.inf
        if gmpy2.is_zero(result):
            return sign
        size = abs(Fraction(*map(int, result.as_integer_ratio())))
        low, high = 0, out.inf
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if out.size(middle) <= size else (low, middle)
        assert out.size(low) == size
        return out.flush(sign | low, ftz)


ORACLES = [Bisection(), *([Mpfr()] if gmpy2 else [])]


def fma_array(a, b, c):
    """float64 a*b + c rounded to odd, for operands whose product is exact in float64."""
    with np.errstate(all="ignore"):
        p = a * b
        s = p + c
        t = s - p
        error = (p - (s - t)) + (c - t)
        odd = s.view(np.int64) & 1
        move = np.isfinite(s) & (error != 0) & (odd == 0)
        return np.where(move, np.nextafter(s, np.where(error > 0, np.inf, -np.inf)), s)


def codes(rng, f, n):
    """n codes of every kind: uniform, near one, short fractions, subnormal, the edges of the format, NaNs."""
    top = 2**f.bits
    uniform = rng.integers(0, top, n, dtype=np.int64)
    sign = rng.integers(0, 2, n) * f.sign
    fraction = rng.integers(0, 1 << f.m, n)
    short = fraction & ~((1 << rng.integers(0, f.m + 1, n)) - 1)
    near_one = sign | ((f.bias + rng.integers(-4, 5, n)) << f.m)
    edge = np.array(
        [
            0,
            1,
            2,
            (1 << f.m) - 1,
            1 << f.m,
            (1 << f.m) + 1,
            f.inf - 1,
            f.inf - 2,
            f.inf,
            f.inf + 1,
            f.nan,
            f.bias << f.m,
        ]
    )
    kinds = [
        uniform,
        near_one | fraction,
        near_one | short,
        sign | fraction,
        sign | short,
        sign | ((uniform & (f.sign - 1)) & ~((1 << f.m) - 1)) | short,
        sign | edge[rng.integers(0, len(edge), n)],
    ]
    pick = rng.choice(len(kinds), n, p=[0.3, 0.25, 0.15, 0.1, 0.05, 0.1, 0.05])
    return np.choose(pick, kinds).astype(f"u{f.bits // 8}")


def edge_codes(f):
    """The codes around every boundary of a format, both signs."""
    one = f.bias << f.m
    least = 1 << f.m
    some = [
        0,
        1,
        2,
        3,
        least // 2,
        least - 1,
        least,
        least + 1,
        least * 2,
        one - 1,
        one,
        one + 1,
        one + least // 2,
        f.inf - 2,
        f.inf - 1,
        f.inf,
        f.inf + 1,
        f.nan,
        f.nan | 5,
    ]
    some = [c for c in some if 0 <= c < f.sign]
    return some + [c | f.sign for c in some]


def odd_factors(rng, width, most):
    """Two odd numbers of at most `most` bits whose product has exactly `width` bits."""
    while True:
        left = int(rng.integers(max(1, width - most), min(most, width - 1) + 1))
        a = int(rng.integers(1 << (left - 1), 1 << left)) | 1
        b = int(rng.integers(1 << (width - left - 1), 1 << (width - left + 1))) | 1
        if b.bit_length() <= most and (a * b).bit_length() == width:
            return a, b


def code_of(f, significand, exponent):
    """Code of significand * 2**exponent, or None if the format has no such number."""
    size = significand * Fraction(2) ** exponent
    code = int(f.round_array(np.array([float(size)]))[0])
    return code if code < f.inf and f.size(code) == size and code else None


def fma_ties(rng, factors, out, n):
    """n operand triples: the product is exactly halfway between two numbers of `out`, the addend tiny or zero.

    These are the sums that arithmetic with too few spare bits pulls onto the tie. Codes of (factors, factors, out);
    sizes over the whole range of both formats, subnormal midpoints included.
    """
    triples = []
    while len(triples) < n:
        # a midpoint of `out` has m+2 bits and ends in one; in the subnormal range it has fewer
        width = out.m + 2 if rng.random() < 0.8 else int(rng.integers(2, out.m + 2))
        if width > 2 * (factors.m + 1):
            continue
        a, b = odd_factors(rng, width, factors.m + 1)
        span = factors.emax - factors.emin + factors.m
        e_a = factors.emin - factors.m + int(rng.integers(0, span))
        if width == out.m + 2:
            e_b = factors.emin - factors.m + int(rng.integers(0, span))
        else:
            e_b = out.emin - out.m - 1 - e_a
        x, y = code_of(factors, a, e_a), code_of(factors, b, e_b)
        if x is None or y is None:
            continue
        product = e_a + e_b + width - 1
        gap = int(rng.choice([0, 1, 2, 24 - out.m, 25, 29, 40, 53, 54, 60, 70]))
        tiny = code_of(out, 1, product - out.m - 1 - gap) if rng.random() < 0.9 else 0
        if tiny is None:
            tiny = int(rng.integers(0, 3))
        signs = rng.integers(0, 2, 3)
        triples.append(
            (x | int(signs[0]) * factors.sign, y | int(signs[1]) * factors.sign, tiny | int(signs[2]) * out.sign)
        )
    dtype = f"u{factors.bits // 8}", f"u{factors.bits // 8}", f"u{out.bits // 8}"
    return [np.array(column, kind) for column, kind in zip(zip(*triples, strict=True), dtype, strict=True)]
