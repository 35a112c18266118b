"""Builtins that are operations on vectors have one row each, checked by `fabric.csl.check.operations`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabric.csl.comptime.builtins.table import Operand, builtin
from fabric.csl.comptime.values import Scope
from fabric.csl.syntax import nodes as n

if TYPE_CHECKING:
    from fabric.csl.comptime.interpreter import Interpreter

__all__ = ["OPERATIONS", "OPTIONS", "Operation"]

OPTIONS = ("async", "activate", "unblock", "on_control", "priority", "index", "ut_id")
GROUP = "operations on vectors"


@dataclass(frozen=True)
class Operation:
    """An `Operation` says which operands a vector operation of CSL takes.

    Attributes
    ----------
    name : str
    dest : str
        What an element of the destination is: ``x16`` (any 16-bit integer), ``b16`` and ``b32`` (any bits), ``f16``,
        ``f32``.
    sources : tuple of str
        The same for each source; a trailing ``!`` asks for a scalar, a leading ``?`` takes f16 or f32.
    pointer : str
        What a destination that is a pointer means: empty for nothing, ``move``, or ``reduce``.
    meaning : str
    """

    name: str
    dest: str
    sources: tuple[str, ...]
    pointer: str
    meaning: str


def _rows() -> list[Operation]:
    rows = [
        Operation(f"@{op}16", "x16", ("x16", "x16"), "", meaning)
        for op, meaning in (
            ("add", "a + b"), ("sub", "a - b"), ("and", "a & b"), ("or", "a | b"), ("xor", "a ^ b"),
            ("sll", "a << b"), ("slr", "a >> b, zeros come in"), ("sar", "a >> b, the sign comes in"),
        )
    ]  # fmt: skip
    rows += [
        Operation(f"@{op}", "x16", ("x16",), "", meaning)
        for op, meaning in (("clz", "leading zeros"), ("ctz", "trailing zeros"), ("popcnt", "ones"))
    ]
    rows += [Operation(f"@mov{bits}", f"b{bits}", (f"b{bits}",), "move", "a, untyped") for bits in (16, 32)]
    for letter, kind in (("h", "f16"), ("s", "f32")):
        for op, meaning in (("fadd", "a + b"), ("fsub", "a - b"), ("fmul", "a * b"), ("fmax", "the larger")):
            rows.append(Operation(f"@{op}{letter}", kind, (kind, kind), "reduce", meaning))
        rows.append(Operation(f"@fabs{letter}", kind, (kind,), "", "|a|"))
        rows.append(Operation(f"@fneg{letter}", kind, (kind,), "", "-a"))
        rows.append(Operation(f"@fmov{letter}", f"b{kind[1:]}", (f"b{kind[1:]}",), "move", "a"))
        rows.append(Operation(f"@fmac{letter}", kind, (kind, kind, f"{kind}!"), "", "a + b * s, fused"))
    rows += [
        Operation("@faddhs", "f32", ("?", "?"), "reduce", "a + b of f16 and f32"),
        Operation("@fmachs", "f32", ("f32", "f16", "f16!"), "", "a + b * s, product of f16, sum in f32"),
        Operation("@fh2s", "f32", ("f16",), "", "f16 to f32"),
        Operation("@fs2h", "f16", ("f32",), "", "f32 to f16"),
        Operation("@fh2xp16", "x16", ("f16",), "move", "f16 to i16"),
        Operation("@fs2xp16", "x16", ("f32",), "move", "f32 to i16"),
        Operation("@xp162fh", "f16", ("x16",), "", "i16 to f16"),
        Operation("@xp162fs", "f32", ("x16",), "", "i16 to f32"),
        Operation("@fscaleh", "f16", ("f16!", "x16!"), "only", "s * 2^k"),
        Operation("@fscales", "f32", ("f32!", "x16!"), "only", "s * 2^k"),
    ]
    return rows


OPERATIONS = {row.name: row for row in _rows()}
"""`OPERATIONS` has the vector operations of CSL by the names of their builtins, such as ``@mov16``."""


def _register(row: Operation) -> None:
    least = 1 + len(row.sources)

    @builtin(row.name, least, least + 1, "run", GROUP, row.meaning)
    def operation(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
        return ev.run_operation(row, node, scope)


for _row in OPERATIONS.values():
    _register(_row)


@builtin("@map", 2, None, "run", GROUP, "a function per element")
def _map(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    return ev.run_map(node, scope)


@builtin("@dfilt", 2, 2, "run", GROUP, "drops wavelets of a fabric input until one fits")
def _dfilt(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    return ev.run_dfilt(node, scope)
