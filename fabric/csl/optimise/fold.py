"""Operations on known integers become their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric.csl.ir import Instr, Operand, Sym, signed
from wse_core import isa

__all__ = ["COMMUTE", "PURE", "folded", "holds", "needs_register"]

COMMUTE = frozenset(
    (
        "add16", "mul16", "and16", "or16", "xor16", "add32", "mul32", "and32", "or32", "xor32",
        "faddh", "fmulh", "fmaxh", "fminh", "fadds", "fmuls", "fmaxs", "fmins",
    )
)  # fmt: skip
"""The sources of these operations may change places."""


FOLD: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul": lambda a, b, n: a * b,
    "and": lambda a, b, n: a & b,
    "or": lambda a, b, n: a | b,
    "xor": lambda a, b, n: a ^ b,
    "sll": lambda a, b, n: a << (b & n - 1),
    "slr": lambda a, b, n: a >> (b & n - 1),
    "sar": lambda a, b, n: signed(a, n) >> (b & n - 1),
}
INTEGER = {f"{name}{bits}": (name, bits) for name in FOLD for bits in (16, 32)}


def folded(op: str, args: tuple[Any, ...]) -> int | Sym | None:
    """Return the result of an operation on known operands, None if it is not known."""
    if op in ("add16", "sub16") and len(args) == 2:
        a, b = args
        if isinstance(a, Sym) and isinstance(b, int):
            return a + (signed(b, 16) if op == "add16" else -signed(b, 16))
        if isinstance(b, Sym) and isinstance(a, int) and op == "add16":
            return b + signed(a, 16)
    if not all(isinstance(arg, int) for arg in args):
        return None
    if op in INTEGER:
        name, bits = INTEGER[op]
        return FOLD[name](args[0], args[1], bits) & (1 << bits) - 1
    if op == "sx32":
        return signed(args[0] & 0xFFFF, 16) & 0xFFFFFFFF
    if op == "zx32":
        return int(args[0]) & 0xFFFF
    if op == "low":
        return int(args[0]) & 0xFFFF
    if op == "high":
        return int(args[0]) >> 16
    return None


def holds(row: str, condition: str, a: Operand, b: Operand) -> bool | None:
    """Return whether a comparison of integers holds, None if that is not known."""
    if a is b and isinstance(a, object) and row in ("br16", "br32") and not isinstance(a, int):
        return condition in ("eq", "le", "leu")
    if not (isinstance(a, int) and isinstance(b, int)) or row not in ("br16", "br32"):
        return None
    bits = 16 if row == "br16" else 32
    if condition in ("lt", "le"):
        a, b = signed(a, bits), signed(b, bits)
    return bool({"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "ltu": a < b, "leu": a <= b}[condition])


PURE = frozenset(op.name for op in isa.OPS if op.form == "alu") | {"const", "copy", "low", "high"}
"""These operations do nothing but set their register."""


def needs_register(instr: Instr, place: int) -> bool:
    """Whether an operand says its size only by its register, so that no constant may take its place."""
    return instr.op in ("vector", "flt_set") or (instr.op in ("store", "poke") and place == 0)
