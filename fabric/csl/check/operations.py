"""Vector operations, `@map` and `@dfilt` are checked: which operands they take."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from fabric.csl import tree
from fabric.csl.check.values import RunTimeValues
from fabric.csl.comptime.builtins.dsds import options
from fabric.csl.comptime.builtins.ids import by_queue
from fabric.csl.comptime.builtins.operations import OPTIONS, Operation
from fabric.csl.comptime.globals import is_generic
from fabric.csl.comptime.values import DsdValue, FunctionValue, Scope, Struct, TensorAccess, Value
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
from wse_core import isa

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
        self._warn_of_elements(row, [dest, *sources], node)
        self._check_inputs(sources, node)
        if row.name == "@faddhs" and not isinstance(dest.type, PointerType):
            kinds = [element_of(source) for source in sources]
            if (kinds[0] == F32) > (kinds[1] == F32) or (is_half(kinds[1]) > is_half(kinds[0])):
                sources.reverse()  # the machine takes the one of 16 bits first
        return tree.BuiltinCall(BOOL, node.span, row.name, (dest, *sources), chosen)

    def _check_inputs(self, sources: list[Any], node: n.Builtin) -> None:
        """Refuse a second input from the fabric where an operation has one."""
        fabric = [k for k, source in enumerate(sources) if str(source.type) == "fabin_dsd"]
        if len(fabric) > 1 and by_queue(self):
            what = f"on WSE-3 an operation has one input from the fabric; {node.name} is given {len(fabric)}"
            raise Fault(what, node.arguments[1 + fabric[1]].span, "receive one of them into memory first")

    def _warn_of_elements(self, row: Operation, operands: list[Any], node: n.Builtin) -> None:
        """Add a warning of an operation on floats that would take them for floats of another size."""
        types = isa.BY_NAME[row.name[1:]].types[: len(operands)]
        if not row.name.startswith("@f") or len({isa.WORDS[kind] for kind in types}) != 1:
            return
        for value, entry in zip(operands, node.arguments, strict=False):
            kind = element_of(value) if isinstance(value.type, DsdType) else None
            if isinstance(kind, FloatType) and kind.words != isa.WORDS[types[0]]:
                other = row.name[:-1] + ("s" if row.name.endswith("h") else "h")
                hint = f"is {other} meant?" if other[1:] in isa.BY_NAME else None
                self.report.warn(f"{row.name} takes elements of {row.dest}; these are {kind}", entry.span, hint)

    def _destination(self, row: Operation, value: Any, node: n.SyntaxNode) -> Any:
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

    def _source(self, row: Operation, code: str, value: Any, node: n.SyntaxNode) -> Any:
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

    def _literal(self, row: Operation, code: str, value: Value, node: n.SyntaxNode) -> Value:
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
        """Return the typed tree of a `@map`, its operands checked against the parameters of the mapped function."""
        what = self.expr(node.arguments[0], scope)
        if not isinstance(what, Value) or not isinstance(what.data, FunctionValue) or what.data.decl.kind != "fn":
            raise Fault(f"@map takes a function first, not {what.type}", node.arguments[0].span)
        values = [self.expr(entry, scope) for entry in node.arguments[1:]]
        count = len(what.data.decl.params)
        elements: dict[int, Any] = {}
        arguments: list[Any] = []
        for place, (value, entry) in enumerate(zip(values[:count], node.arguments[1:], strict=False)):
            if not isinstance(value.type, (DsdType, DsrType)):
                arguments.append(value)
                continue
            if str(value.type) == "fabout_dsd":
                raise Fault("@map cannot read a fabout_dsd", entry.span)
            element = tree.Expr(self._map_element(what, place, value, entry), entry.span)
            elements[id(element)] = value
            arguments.append(element)
        call = None
        if len(arguments) == count:
            inner = n.Call(node.arguments[0], node.arguments[1 : 1 + count], span=node.span)
            call = self.call_of(what.data, arguments, inner, site=False)
        wanted = count + (call is None or call.type != VOID)
        if call is None or len(values) != wanted:
            raise Fault(f"@map of '{what.data.decl.name}' takes {wanted} operands, not {len(values)}", node.span)
        taken = [value.value if isinstance(value, tree.Convert) else value for value in call.arguments]
        operands = [elements.get(id(inner), value) for inner, value in zip(taken, call.arguments, strict=True)]
        if call.type != VOID:
            operands.append(self._map_output(call.type, values[-1], node.arguments[-1]))
        if not any(isinstance(value.type, (DsdType, DsrType)) for value in values):
            raise Fault("@map needs a DSD among its operands", node.span)
        return tree.BuiltinCall(VOID, node.span, "@map", (call.function, *operands))

    def _map_element(self, what: Value, place: int, value: Any, node: n.SyntaxNode) -> Type:
        """Return the type in which a function takes the elements of a vector."""
        assert isinstance(what.data, FunctionValue)
        if not is_generic(what.data.decl) and isinstance(what.type, FnType):
            return what.type.params[place]
        declared = what.data.decl.params[place]
        if isinstance(declared.type, n.Name) and declared.type.name != "anytype":
            return self.type(declared.type, Scope(what.data.module, what.data.module.scope))
        found = element_of(value)
        if found is None:
            hint = "name a function of one type, such as sqrt_f32"
            raise Fault(f"what the elements of this {value.type} are is not known", node.span, hint)
        return found

    def _map_output(self, result: Type, value: Any, node: n.SyntaxNode) -> Any:
        if isinstance(value.type, (DsdType, DsrType)):
            if str(value.type) == "fabin_dsd":
                raise Fault("@map cannot write to a fabin_dsd", node.span)
            return value
        if not isinstance(value.type, PointerType) or value.type.target != result or value.type.const:
            raise Fault(f"the result of @map goes to a DSD or a *{result}, not to {value.type}", node.span)
        return self.as_expr(value, node.span)

    @abstractmethod
    def call_of(self, function: FunctionValue, arguments: list[Any], node: n.Call, site: bool = True) -> tree.Call:
        """Return a call of a function with operands; `site` tells whether its code may stand there alone."""

    def run_dfilt(self, node: n.Builtin, scope: Scope) -> Any:
        """Return the typed tree of a `@dfilt`, whose operand must be a fabin_dsd."""
        value = self.expr(node.arguments[0], scope)
        if str(value.type) != "fabin_dsd":
            raise Fault(f"@dfilt takes a fabin_dsd, not {value.type}", node.arguments[0].span)
        return tree.BuiltinCall(
            BOOL, node.span, "@dfilt", (value,), options(self, node.arguments[1], scope, OPTIONS, "@dfilt")
        )


def element_of(value: Any) -> Type | None:
    """Return the type of what a vector was made of, None where that is not known; of a number its own type."""
    if isinstance(value, tree.Const):
        value = value.value
    if isinstance(value, tree.BuiltinCall):
        base = value.options.get("base_address") if value.name == "@get_dsd" else None
        if value.name == "@set_dsd_base_addr":
            base = value.arguments[1]
        if base is not None:
            return _pointed(base.type)
        return element_of(value.arguments[0]) if value.arguments else None
    if isinstance(value, tree.Load):
        initial = getattr(getattr(value.place, "variable", None), "initial", None)
        if not isinstance(value.type, DsdType):
            return value.type
        return None if initial is None else element_of(initial)
    if not isinstance(value, Value):
        return None if isinstance(value.type, (DsdType, DsrType)) else value.type
    if not isinstance(value.data, DsdValue):
        return None if isinstance(value.type, (DsdType, DsrType)) else value.type
    for name, arguments in reversed(value.data.edits):
        if name == "@set_dsd_base_addr":
            return _pointed(arguments[0].type)
    access = value.data.fields.get("tensor_access")
    data = getattr(access, "data", None)
    if isinstance(data, TensorAccess):
        return data.element
    base = data.fields.get("base_address") if isinstance(data, Struct) else value.data.fields.get("base_address")
    return None if base is None else _pointed(base.type)


def is_half(kind: Type | None) -> bool:
    """Whether a type is a float of 16 bits."""
    return isinstance(kind, FloatType) and kind.bits == 16


def _pointed(kind: Type) -> Type | None:
    """Return the type of the elements behind a pointer, or of an array."""
    kind = kind.target if isinstance(kind, PointerType) else kind
    return kind.element if isinstance(kind, ArrayType) else kind
