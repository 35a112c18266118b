"""A vector operation is checked by `wse_core.numerics` and by plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.kit.check import Check, check_sum
from wse_core import isa, numerics
from wse_core.formats import Arithmetic, Bits

__all__ = ["check", "reference"]


def _i16(bits: NDArray[np.uint16]) -> NDArray[np.int16]:
    return np.asarray(bits, np.uint16).astype(np.int16)


def _count_bits(values: NDArray[np.uint16], what: str) -> NDArray[np.uint16]:
    """Return leading zeros, trailing zeros or ones of 16-bit numbers, by their binary text."""

    def one(text: str) -> int:
        if what == "popcnt":
            return text.count("1")
        return 16 if "1" not in text else text.index("1") if what == "clz" else 15 - text.rindex("1")

    return np.array([one(format(int(v), "016b")) for v in np.ravel(values)], np.uint16).reshape(np.shape(values))


def reference(name: str, half: Arithmetic, single: Arithmetic, b: Any, c: Any, d: Any) -> Bits:
    """Return the destination of an operation as bit patterns, calculated by `wse_core.numerics`.

    Parameters
    ----------
    name : str
        Operation.
    half, single : Arithmetic
        The 16-bit format of the program, and f32.
    b, c, d : ndarray or None
        Sources in the order of the table.
    """
    own = single if name.endswith("s") else half
    convert = numerics.convert
    with np.errstate(over="ignore"):
        table = {
            "add16": lambda: b + c,
            "sub16": lambda: b - c,
            "and16": lambda: b & c,
            "or16": lambda: b | c,
            "xor16": lambda: b ^ c,
            "sll16": lambda: b << (c & np.uint16(15)),
            "slr16": lambda: b >> (c & np.uint16(15)),
            "sar16": lambda: (_i16(b) >> (_i16(c) & 15)).view(np.uint16),
            "mov16": lambda: b,
            "mov32": lambda: b,
            "clz": lambda: _count_bits(b, name),
            "ctz": lambda: _count_bits(b, name),
            "popcnt": lambda: _count_bits(b, name),
            "fadd": lambda: own.call("add", b, c),
            "fsub": lambda: own.call("sub", b, c),
            "fmul": lambda: own.call("mul", b, c),
            "fmax": lambda: own.call("maximum", b, c),
            "fmin": lambda: own.call("minimum", b, c),
            "fabs": lambda: own.call("absolute", b),
            "fneg": lambda: own.call("neg", b),
            "fmov": lambda: b,
            "fscale": lambda: own.call("scale", b, _i16(c)),
            "fmac": lambda: own.call("fma", c, d, b),
            "faddhs": lambda: half.call("add_mixed", b, c),
            "fmachs": lambda: half.call("fma_mixed", c, d, b),
            "fh2s": lambda: convert(b, half.fmt, "f32", half.bias, half.ftz),
            "fs2h": lambda: convert(b, "f32", half.fmt, half.bias, half.ftz),
            "fh2xp16": lambda: numerics.to_int(b, half.fmt, "int16", "truncate", half.bias),
            "fs2xp16": lambda: numerics.to_int(b, "f32", "int16", "truncate", half.bias),
            "xp162fh": lambda: numerics.from_int(_i16(b), half.fmt, half.bias),
            "xp162fs": lambda: numerics.from_int(_i16(b), "f32", half.bias),
        }
        result = np.asarray((table.get(name) or table[name[:-1]])())
    return result.view(f"u{result.itemsize}")


def check(name: str, half: Arithmetic, single: Arithmetic, got: Bits, expected: Bits, b: Any, c: Any, d: Any) -> Check:
    """Compare the result of an operation with `reference` and, in float64, with plain numpy.

    Results that are whole numbers or copies must be equal.  The others are sums of at most two terms with one rounding:
    the bound is that of `fabric.kernels.kit.check` with one rounding.
    """
    op = isa.BY_NAME[name]
    arithmetic = {"h": half, "s": single}
    if op.types[0] not in arithmetic:
        exact = np.array_equal(got, expected)
        error = np.abs(got.astype(np.int64) - expected.astype(np.int64)).max(initial=0)
        if op.types[1] not in arithmetic:
            return Check(exact, exact, float(error), 0.0, got.size, got.size)
        with np.errstate(invalid="ignore"):  # whole numbers of floats, toward zero, saturating
            plain = np.trunc(np.clip(np.nan_to_num(arithmetic[op.types[1]].decode(b), nan=0.0), -32768, 32767))
        error = np.abs(_i16(got) - plain)
        return Check(exact, not error.any(), float(error.max(initial=0)), 0.0, got.size, got.size)
    values: list[Any] = [
        None
        if bits is None
        else arithmetic[letter].operand(bits)
        if letter in arithmetic
        else _i16(bits).astype(np.float64)
        for bits, letter in zip((b, c, d), op.types[1:], strict=True)
    ]
    x, y, z = values
    kinds = ("fadd", "fsub", "fmul", "fmax", "fmin", "fabs", "fneg", "fmov", "fscale")
    base = name[:-1] if name[:-1] in kinds else name
    copies = base in ("fmax", "fmin", "fabs", "fneg", "fmov", "fh2s")
    if base in ("fabs", "fneg", "fmov"):
        x = arithmetic[op.types[1]].decode(b)  # these never flush
    with np.errstate(all="ignore"):
        terms: dict[str, Callable[[], tuple[NDArray[np.float64], ...]]] = {
            "fadd": lambda: (x, y),
            "fsub": lambda: (x, -y),
            "fmul": lambda: (x * y,),
            "faddhs": lambda: (x, y),
            "fmax": lambda: (np.maximum(x, y),),
            "fmin": lambda: (np.minimum(x, y),),
            "fabs": lambda: (np.abs(x),),
            "fneg": lambda: (-x,),
            "fscale": lambda: (np.ldexp(x, y.astype(np.int64)),),
        }
        parts = (terms.get(base) or (lambda: (x,) if y is None else (x, y * z)))()
        return check_sum(
            arithmetic[op.types[0]],
            got,
            expected,
            np.asarray(sum(parts)),
            np.asarray(sum(np.abs(part) for part in parts)),
            0 if copies else 1,
        )
