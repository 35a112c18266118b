"""Every arithmetic instruction has its meaning here, one short function each.

What      `ALU` maps the name of an ``alu`` row of the op table to a function of (num, b, c, d) that returns the result;
          `CONDITION` maps the name of a branch and of a condition to a function of (num, a, b) that returns a truth.
Contract  operands and results are bit patterns of the width that the op table states (whole numbers, not negative);
          absent operands are 0. `num` (`wse_core.reference.numerics.Num`) holds the 16-bit format of the program.
Timing    none here; what an instruction costs stands in docs/machine.md, "Issue".
Sources   wse_core/isa.py (column doc); IEEE 754-2019 through `Num`.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["ALU", "CONDITION", "signed"]


def signed(value: int, bits: int) -> int:
    """Return a bit pattern of `bits` bits as a two's complement number."""
    return value - (1 << bits) if value >> bits - 1 & 1 else value


def leading_zeros(value: int) -> int:
    """Return the number of zeros above the highest one of 16 bits."""
    return 16 - value.bit_length()


def trailing_zeros(value: int) -> int:
    """Return the number of zeros below the lowest one of 16 bits; 16 for 0."""
    return (value & -value).bit_length() - 1 if value else 16


LOW16, LOW32 = 0xFFFF, 0xFFFFFFFF

ALU: dict[str, Callable[..., int]] = {
    # 16-bit integers
    "add16": lambda num, b, c, d: b + c & LOW16,
    "sub16": lambda num, b, c, d: b - c & LOW16,
    "mul16": lambda num, b, c, d: b * c & LOW16,
    "and16": lambda num, b, c, d: b & c,
    "or16": lambda num, b, c, d: b | c,
    "xor16": lambda num, b, c, d: b ^ c,
    "sll16": lambda num, b, c, d: b << (c & 15) & LOW16,
    "slr16": lambda num, b, c, d: b >> (c & 15),
    "sar16": lambda num, b, c, d: signed(b, 16) >> (c & 15) & LOW16,
    "mov16": lambda num, b, c, d: b,
    "clz": lambda num, b, c, d: leading_zeros(b),
    "ctz": lambda num, b, c, d: trailing_zeros(b),
    "popcnt": lambda num, b, c, d: b.bit_count(),
    # 32-bit integers
    "add32": lambda num, b, c, d: b + c & LOW32,
    "sub32": lambda num, b, c, d: b - c & LOW32,
    "mul32": lambda num, b, c, d: b * c & LOW32,
    "and32": lambda num, b, c, d: b & c,
    "or32": lambda num, b, c, d: b | c,
    "xor32": lambda num, b, c, d: b ^ c,
    "sll32": lambda num, b, c, d: b << (c & 31) & LOW32,
    "slr32": lambda num, b, c, d: b >> (c & 31),
    "sar32": lambda num, b, c, d: signed(b, 32) >> (c & 31) & LOW32,
    "sx32": lambda num, b, c, d: signed(b, 16) & LOW32,
    "zx32": lambda num, b, c, d: b,
    "mov32": lambda num, b, c, d: b,
    # 16-bit floats
    "faddh": lambda num, b, c, d: num.h_add(b, c),
    "fsubh": lambda num, b, c, d: num.h_sub(b, c),
    "fmulh": lambda num, b, c, d: num.h_mul(b, c),
    "fmaxh": lambda num, b, c, d: num.h_max(b, c),
    "fminh": lambda num, b, c, d: num.h_min(b, c),
    "fabsh": lambda num, b, c, d: num.h_abs(b),
    "fnegh": lambda num, b, c, d: num.h_neg(b),
    "fmovh": lambda num, b, c, d: b,
    "fscaleh": lambda num, b, c, d: num.h_scale(b, signed(c, 16)),
    "fdivh": lambda num, b, c, d: num.h_div(b, c),
    "fsqrth": lambda num, b, c, d: num.h_sqrt(b),
    "fmach": lambda num, b, c, d: num.h_fma(c, d, b),
    # fp32
    "fadds": lambda num, b, c, d: num.f32_add(b, c),
    "fsubs": lambda num, b, c, d: num.f32_sub(b, c),
    "fmuls": lambda num, b, c, d: num.f32_mul(b, c),
    "fmaxs": lambda num, b, c, d: num.f32_max(b, c),
    "fmins": lambda num, b, c, d: num.f32_min(b, c),
    "fabss": lambda num, b, c, d: num.f32_abs(b),
    "fnegs": lambda num, b, c, d: num.f32_neg(b),
    "fmovs": lambda num, b, c, d: b,
    "fscales": lambda num, b, c, d: num.f32_scale(b, signed(c, 16)),
    "fdivs": lambda num, b, c, d: num.f32_div(b, c),
    "fsqrts": lambda num, b, c, d: num.f32_sqrt(b),
    "fmacs": lambda num, b, c, d: num.f32_fma(c, d, b),
    # 16-bit and fp32 together
    "faddhs": lambda num, b, c, d: num.hs_add(b, c),
    "fmachs": lambda num, b, c, d: num.hs_fma(c, d, b),
    # conversions; whole numbers are signed, and truncated toward zero
    "fh2s": lambda num, b, c, d: num.h_to_f32(b),
    "fs2h": lambda num, b, c, d: num.f32_to_h(b),
    "fh2xp16": lambda num, b, c, d: num.h_to_i16(b, 0) & LOW16,
    "fs2xp16": lambda num, b, c, d: num.f32_to_i16(b, 0) & LOW16,
    "xp162fh": lambda num, b, c, d: num.i16_to_h(signed(b, 16)),
    "xp162fs": lambda num, b, c, d: num.i16_to_f32(signed(b, 16)),
    "fs2xp32": lambda num, b, c, d: num.f32_to_i32(b, 0) & LOW32,
    "xp322fs": lambda num, b, c, d: num.i32_to_f32(signed(b, 32)),
}
"""An instruction a = op(b, c, d) has this function for its result, by name."""


def _integer_conditions(bits: int) -> dict[str, Callable[..., int]]:
    return {
        "eq": lambda num, a, b: a == b,
        "ne": lambda num, a, b: a != b,
        "lt": lambda num, a, b: signed(a, bits) < signed(b, bits),
        "le": lambda num, a, b: signed(a, bits) <= signed(b, bits),
        "ltu": lambda num, a, b: a < b,
        "leu": lambda num, a, b: a <= b,
    }


CONDITION: dict[str, dict[str, Callable[..., int]]] = {
    "br16": _integer_conditions(16),
    "br32": _integer_conditions(32),
    "brh": {
        "eq": lambda num, a, b: num.h_eq(a, b),
        "ne": lambda num, a, b: not num.h_eq(a, b),
        "lt": lambda num, a, b: num.h_lt(a, b),
        "le": lambda num, a, b: num.h_le(a, b),
    },
    "brs": {
        "eq": lambda num, a, b: num.f32_eq(a, b),
        "ne": lambda num, a, b: not num.f32_eq(a, b),
        "lt": lambda num, a, b: num.f32_lt(a, b),
        "le": lambda num, a, b: num.f32_le(a, b),
    },
}
"""Whether a branch is taken: a <condition> b."""
