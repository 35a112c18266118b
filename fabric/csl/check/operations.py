"""Vector operations, `@map` and `@dfilt`: which operands they take."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from fabric.csl import tree
from fabric.csl.check.values import RunTimeValues
from fabric.csl.comptime.builtins.dsds import options
from fabric.csl.comptime.builtins.operations import OPTIONS, Operation
from fabric.csl.comptime.values import Function, Scope, Value
from fabric.csl.diagnostics import Fault
from fabric.csl.syntax import nodes as n
from fabric.csl.types import (
    BOOL,
    COMPTIME_FLOAT,
    COMPTIME_INT,
    F32,
    VOID,
    ArrayType,
    DsdType,
    DsrType,
    FloatType,
    FnType,
    IntType,
    PointerType,
    Type,
)

__all__ = ["VectorOperations"]

FABRIC = ("fabin_dsd", "fabout_dsd", "fifo_dsd")
BITS = {"x16": 16, "b16": 16, "b32": 32, "f16": 16, "f32": 32}


class VectorOperations(RunTimeValues):
    """Checks of vector operations; a mix-in of `fabric.csl.check.checker.Checker`."""

    def element(self, code: str) -> str:
        """Return what an element must be, in words."""
        return {"x16": "a 16-bit integer", "b16": "a 16-bit value", "b32": "a 32-bit value"}.get(code, f"an {code}")

    def fits(self, code: str, kind: Type) -> bool:
        """Whether a type is what an operation calls for."""
        if code == "x16":
            return isinstance(kind, IntType) and kind.bits == 16
        if code == "f32":
            return kind == F32
        if code == "f16":
            return isinstance(kind, FloatType) and kind.bits == 16
        if code == "?":
            return isinstance(kind, FloatType)
        return kind.words == BITS[code] // 16 and not isinstance(kind, (ArrayType, PointerType))

    def run_operation(self, row: Operation, node: n.Builtin, scope: Scope) -> Any:
        """Return a vector operation."""
        values = [self.expr(entry, scope) for entry in node.arguments[: 1 + len(row.sources)]]
        dest = self._destination(row, values[0], node.arguments[0])
        sources = [
            self._source(row, code, value, entry)
            for code, value, entry in zip(row.sources, values[1:], node.arguments[1:], strict=False)
        ]
        chosen: dict[str, Any] = {}
        if len(node.arguments) > 1 + len(row.sources):
            chosen = options(self, node.arguments[-1], scope, OPTIONS, row.name)
        self._check_shape(row, dest, sources, chosen, node)
        return tree.BuiltinCall(BOOL, node.span, row.name, (dest, *sources), chosen)

    def _destination(self, row: Operation, value: Any, node: n.Node) -> Any:
        kind = value.type
        if isinstance(kind, DsdType):
            if kind.name == "fabin_dsd":
                raise Fault(f"{row.name} cannot write to a fabin_dsd", node.span, "a fabout_dsd sends")
            if row.pointer == "only":
                raise Fault(f"{row.name} writes through a pointer, not to a {kind}", node.span)
            return value
        if isinstance(kind, DsrType):
            if kind.name == "dsr_src1":
                raise Fault(f"{row.name} cannot write to a dsr_src1", node.span, "dsr_dest or dsr_src0")
            return value
        if isinstance(kind, PointerType) and not isinstance(kind.target, ArrayType):
            if not row.pointer:
                raise Fault(f"{row.name} writes to a vector, not through a pointer", node.span)
            if kind.const:
                raise Fault("the pointer is to a const", node.span)
            if not self.fits(row.dest, kind.target):
                raise Fault(f"{row.name} writes {self.element(row.dest)}, not a {kind.target}", node.span)
            return self.as_expr(value, node.span)
        hint = "make a DSD of it: @get_dsd(mem1d_dsd, ...)" if isinstance(kind, (ArrayType, PointerType)) else None
        raise Fault(f"the destination of {row.name} must be a DSD or DSR, not {kind}", node.span, hint)

    def _source(self, row: Operation, code: str, value: Any, node: n.Node) -> Any:
        kind = value.type
        scalar_only = code.endswith("!")
        code = code.rstrip("!")
        if isinstance(kind, (DsdType, DsrType)):
            if scalar_only:
                raise Fault(f"this operand of {row.name} must be a number, not a {kind}", node.span)
            if str(kind) == "fabout_dsd":
                raise Fault(f"{row.name} cannot read a fabout_dsd", node.span, "a fabin_dsd receives")
            if str(kind) == "dsr_dest":
                raise Fault(f"{row.name} cannot read a dsr_dest", node.span, "dsr_src0 or dsr_src1")
            return value
        if isinstance(value, Value) and kind in (COMPTIME_INT, COMPTIME_FLOAT):
            value = self._literal(row, code, value, node)
            kind = value.type
        if not self.fits(code, kind):
            hint = "make a DSD of it: @get_dsd(mem1d_dsd, ...)" if isinstance(kind, ArrayType) else None
            raise Fault(f"{row.name} takes {self.element(code)} here, not {kind}", node.span, hint)
        return self.as_expr(value, node.span)

    def _literal(self, row: Operation, code: str, value: Value, node: n.Node) -> Value:
        """Return a literal in the type that an operation works in."""
        if code in ("f16", "f32", "?") or row.name.startswith("@fmov") or value.type == COMPTIME_FLOAT:
            target: Type = F32 if code in ("f32", "b32", "?") else FloatType(self.session.options.fp16)
            if code == "x16":
                raise Fault(f"{row.name} takes a 16-bit integer here, not {value.type}", node.span)
        else:
            target = IntType(BITS[code], value.data < 0)
        return self.convert(value, target, node.span, "the operand")

    def _check_shape(
        self, row: Operation, dest: Any, sources: list[Any], chosen: dict[str, Any], node: n.Builtin
    ) -> None:
        """Refuse operands none of which is a vector, and options that need others."""
        vectors = [x for x in (dest, *sources) if isinstance(x.type, (DsdType, DsrType))]
        converts = isinstance(dest.type, PointerType) and row.name.endswith("xp16")  # a number, through a pointer
        if row.pointer != "only" and not converts and not vectors:
            raise Fault(f"{row.name} needs a DSD or DSR among its operands", node.span)
        reduces = row.pointer == "reduce" and isinstance(dest.type, PointerType)
        shape = [isinstance(source.type, (DsdType, DsrType)) for source in sources]
        if reduces and shape != [False, True]:
            raise Fault(f"through a pointer {row.name} takes a number and then a DSD", node.span)
        fabric = any(isinstance(x.type, DsrType) or str(x.type) in FABRIC for x in vectors)
        if "async" in chosen and not fabric and chosen["async"].data:
            raise Fault(
                "an asynchronous operation needs a fabric DSD, a FIFO or a DSR among its operands",
                node.span,
                "leave .async out",
            )
        fifos = [x for x in vectors if str(x.type) == "fifo_dsd"]
        if len(fifos) > 1:
            raise Fault("an operation takes at most one FIFO", node.span)

    # ---- @map

    def run_map(self, node: n.Builtin, scope: Scope) -> Any:
        """Return a `@map`."""
        what = self.expr(node.arguments[0], scope)
        if not isinstance(what, Value) or not isinstance(what.data, Function) or what.data.decl.kind != "fn":
            raise Fault(f"@map takes a function first, not {what.type}", node.arguments[0].span)
        values = [self.expr(entry, scope) for entry in node.arguments[1:]]
        function = self.instance_of_types(what.data, node)
        kind = what.type
        assert isinstance(kind, FnType)
        wanted = len(kind.params) + (kind.result != VOID)
        if len(values) != wanted:
            raise Fault(f"@map of '{what.data.decl.name}' takes {wanted} operands, not {len(values)}", node.span)
        operands = []
        for param, value, entry in zip(kind.params, values, node.arguments[1:], strict=False):
            if isinstance(value.type, (DsdType, DsrType)):
                if str(value.type) == "fabout_dsd":
                    raise Fault("@map cannot read a fabout_dsd", entry.span)
                operands.append(value)
            else:
                operands.append(self.as_expr(self.convert(value, param, entry.span, "the operand"), entry.span))
        if kind.result != VOID:
            operands.append(self._map_output(kind.result, values[-1], node.arguments[-1]))
        if not any(isinstance(value.type, (DsdType, DsrType)) for value in values):
            raise Fault("@map needs a DSD among its operands", node.span)
        return tree.BuiltinCall(VOID, node.span, "@map", (function, *operands))

    def _map_output(self, result: Type, value: Any, node: n.Node) -> Any:
        if isinstance(value.type, (DsdType, DsrType)):
            if str(value.type) == "fabin_dsd":
                raise Fault("@map cannot write to a fabin_dsd", node.span)
            return value
        if not isinstance(value.type, PointerType) or value.type.target != result or value.type.const:
            raise Fault(f"the result of @map goes to a DSD or a *{result}, not to {value.type}", node.span)
        return self.as_expr(value, node.span)

    @abstractmethod
    def instance_of_types(self, function: Function, node: n.Node) -> tree.Function:
        """Return the instance of a function whose parameters are all run-time values."""

    def run_dfilt(self, node: n.Builtin, scope: Scope) -> Any:
        """Return a `@dfilt`."""
        value = self.expr(node.arguments[0], scope)
        if str(value.type) != "fabin_dsd":
            raise Fault(f"@dfilt takes a fabin_dsd, not {value.type}", node.arguments[0].span)
        return tree.BuiltinCall(
            BOOL, node.span, "@dfilt", (value,), options(self, node.arguments[1], scope, OPTIONS, "@dfilt")
        )
