"""Places of expressions are evaluated: addresses, elements, fields, access expressions."""

from __future__ import annotations

from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.asking import Asking
from fabric.csl.comptime.lanes import uniform
from fabric.csl.comptime.names import closest
from fabric.csl.comptime.values import (
    ComptimeVariable,
    FunctionValue,
    Module,
    Pointer,
    Scope,
    Struct,
    TensorAccess,
    Value,
    integer,
)
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.types import COMPTIME_INT, COMPTIME_STRUCT, ArrayType, DsdType, EnumType, PointerType, Type
from fabric.csl.types.rules import is_integer

__all__ = ["Places"]

MOST_EXTENT, MOST_STRIDE = 0xFFFF, 0x7FFF
"""Lengths and strides of descriptors can be at most this."""


class Places(Asking):
    """`Places` evaluates places in memory and in values; a mix-in of `fabric.csl.comptime.interpreter.Interpreter`."""

    # ---- places

    def address(self, node: n.SyntaxNode, scope: Scope, span: Span) -> Any:
        """Return the address of a place."""
        if isinstance(node, n.Name):
            found = scope.find(node.name)
            if isinstance(found, ComptimeVariable):
                assert found.value is not None
                return Value(PointerType(found.value.type, found.const), Pointer(found))
            entry = scope.module.globals.get(node.name) if found is None else None
            if entry is not None and not isinstance(entry.decl, n.FnDecl):
                value = self.resolve(entry, node.span)
                if isinstance(value, Value) and isinstance(value.data, FunctionValue):
                    return value
                if value.__class__ is Value and entry.variable is None and value.type.words is None:
                    raise Fault(f"'{node.name}' of type {value.type} has no address", span)
                variable = self.variable_of(entry, node.span)
                if isinstance(variable.type, DsdType):
                    hint = "let a function return the changed descriptor"
                    raise Fault(f"'{node.name}', a {variable.type}, has no address", node.span, hint)
                return Value(PointerType(variable.type, variable.const), Pointer(variable))
        value = self.expr(node, scope)
        if isinstance(value, tree.Load):
            return self.address_of(value.place, span)
        if value.__class__ is Value and isinstance(value.data, FunctionValue):
            return value
        if isinstance(node, n.Index) and value.__class__ is Value:
            return self._address_of_element(node, scope, span)
        raise Fault("only a variable, an element or a field has an address", span)

    def _address_of_element(self, node: n.Index, scope: Scope, span: Span) -> Value:
        base = self.address(node.base, scope, span)
        array = base.type.target
        offset = self.offset(node, array, [self.scalar(s, scope) for s in node.subscripts])
        return Value(PointerType(array.element, base.type.const), Pointer(base.data.target, offset))

    def address_of(self, place: tree.Lvalue, span: Span) -> Any:
        """Return the address of a run-time place: known if it is one of a global at a known element."""
        kind = PointerType(place.type, place.const)
        if isinstance(place, tree.VariablePlace) and isinstance(place.variable, tree.Variable):
            return Value(kind, Pointer(place.variable))
        if isinstance(place, tree.Element) and isinstance(place.base, tree.VariablePlace):
            variable = place.base.variable
            if isinstance(variable, tree.Variable) and all(isinstance(s, tree.Const) for s in place.subscripts):
                assert isinstance(variable.type, ArrayType)
                offset = 0
                for subscript, size in zip(place.subscripts, variable.type.dims, strict=True):
                    index = subscript.value.data  # type: ignore[attr-defined]
                    if not 0 <= index < size:
                        raise Fault(f"index {index} is outside of {variable.type}", subscript.span)
                    offset = offset * size + index
                return Value(kind, Pointer(variable, offset))
        return self.run_address(place, span)

    def _deref(self, node: n.Deref, scope: Scope) -> Any:
        pointer = self.expr(node.base, scope)
        return self.pointee(pointer, node.span)

    def pointee(self, pointer: Any, span: Span) -> Any:
        """Return what a pointer points to."""
        kind = pointer.type
        if not isinstance(kind, PointerType):
            raise Fault(f"'.*' needs a pointer, not {kind}", span)
        if kind.many:
            raise Fault(f"a {kind} is indexed, it has no '.*'", span)
        if pointer.__class__ is not Value:
            return self.run_load(tree.Deref(kind.target, span, pointer), span)
        where = pointer.data
        if isinstance(where, FunctionValue):
            return Value(kind.target, where)
        if not isinstance(where, Pointer):  # a number: the address of a register
            return self.run_load(tree.Deref(kind.target, span, tree.Const(kind, span, pointer)), span)
        if isinstance(where.target, ComptimeVariable):
            whole = self.read(where.target, span)
            return whole if where.offset is None else Value(whole.type.element, whole.data[where.offset])
        if where.offset is None and where.target.type == kind.target:
            place: tree.Lvalue = tree.VariablePlace(kind.target, span, where.target)
        else:
            place = tree.Deref(kind.target, span, tree.Const(kind, span, pointer))
        return self.run_load(place, span)

    def offset(self, node: n.Index, kind: ArrayType, subscripts: list[Value]) -> int:
        """Return the place of a known element in row-major order."""
        self.check_rank(node, kind)
        offset = 0
        for value, size, at in zip(subscripts, kind.dims, node.subscripts, strict=True):
            if not is_integer(value.type):
                raise Fault(f"an index must be an integer, not {value.type}", at.span)
            if not 0 <= value.data < size:
                raise Fault(f"index {value.data} is outside of {kind}", at.span)
            offset = offset * size + value.data
        return offset

    def _index(self, node: n.Index, scope: Scope) -> Any:
        base = self.expr(node.base, scope)
        subscripts = [self.expr(entry, scope) for entry in node.subscripts]
        for value, at in zip(subscripts, node.subscripts, strict=True):
            if not is_integer(value.type):
                raise Fault(f"an index must be an integer, not {value.type}", at.span)
        kind = base.type
        if base.__class__ is Value and isinstance(base.data, Pointer) and isinstance(kind, PointerType):
            if isinstance(kind.target, ArrayType):
                base, kind = self.pointee(base, node.span), kind.target
            elif not kind.many:
                raise Fault(f"a {kind} is not indexed", node.span, "write .* for what it points to")
        if base.__class__ is Value:
            if any(isinstance(entry, tree.Expr) for entry in subscripts):
                return self.run_element(node, scope, base, subscripts)
            known = [uniform(entry, self.level) for entry in subscripts]
            if isinstance(kind, ArrayType):
                return Value(kind.element, base.data[self.offset(node, kind, known)])
            if isinstance(base.data, Struct) and base.data.is_tuple:
                index = known[0].data
                if len(known) != 1 or not 0 <= index < len(base.data.fields):
                    raise Fault(f"index {index} is outside of a tuple of {len(base.data.fields)}", node.span)
                return base.data.fields[str(index)]
            if not isinstance(base.data, Pointer):
                raise Fault(f"a {kind} has no elements", node.span)
        elif not isinstance(kind, (ArrayType, PointerType)):
            raise Fault(f"a {kind} has no elements", node.span)
        return self.run_element(node, scope, base, subscripts)

    def _field(self, node: n.FieldAccess, scope: Scope) -> Any:
        return self.member(self.expr(node.base, scope), node.name, node.span)

    def member(self, base: Any, name: str, span: Span) -> Any:
        """Return a field of a struct, a global of a module, or a member of an enum."""
        if base.__class__ is not Value:
            if isinstance(base, tree.Expr):
                return self.run_member(base, name, span)
            raise Fault(f"a {base.type} has no fields", span)
        data = base.data
        if data.__class__ is Struct:
            found = data.fields.get(name)
            if found is None or data.is_tuple:
                names = ", ".join(data.fields) or "none"
                raise Fault(f"the struct has no field '{name}'", span, f"its fields: {names}")
            return found
        if data.__class__ is Module:
            entry = data.globals.get(name)
            if entry is None:
                near = closest(name, None, data.globals)
                raise Fault(
                    f"the module {data.source.name} has no '{name}'", span, f"did you mean '{near}'?" if near else None
                )
            return self.resolve(entry, span)
        if isinstance(data, EnumType):
            for member, number in data.members:
                if member == name:
                    return Value(data, number)
            raise Fault(f"the enum has no member '{name}'", span, f"it has {', '.join(m for m, _ in data.members)}")
        if isinstance(data, Pointer):
            return self.member(self.pointee(base, span), name, span)
        raise Fault(f"a {base.type} has no field '{name}'", span)

    # ---- access expressions

    def _access(self, node: n.Access, scope: Scope) -> Value:
        extents = []
        for entry in node.extents:
            size = self.number(entry, scope, "an extent")
            if size < 0:
                raise Fault(f"an extent of {size} is negative", entry.span)
            if size > MOST_EXTENT:
                raise Fault(f"an extent of {size} does not fit into the 16 bits of a length", entry.span)
            extents.append(size)
        base, dims, element = self._access_base(node, scope)
        if dims is not None and len(dims) != len(node.subscripts):
            raise Fault(f"{len(node.subscripts)} subscripts for an array of {len(dims)} dimensions", node.span)
        inner = Scope(scope.module, scope)
        zeros = [0] * len(node.names)
        points = [zeros, *([*zeros[:i], 1, *zeros[i + 1 :]] for i in range(len(zeros)))]
        points += [[*zeros[:i], 2, *zeros[i + 1 :]] for i in range(len(zeros))]
        offsets = [self._access_at(node, inner, point, dims) for point in points]
        strides = [offsets[1 + i] - offsets[0] for i in range(len(zeros))]
        for i, stride in enumerate(strides):
            if offsets[1 + len(zeros) + i] != offsets[0] + 2 * stride:
                raise Fault(f"the subscripts are not affine in '{node.names[i]}'", node.span)
            if abs(stride) > MOST_STRIDE:
                raise Fault(f"a stride of {stride} elements does not fit into 16 bits", node.span)
        access = TensorAccess(base, integer(offsets[0]), tuple(extents), tuple(strides), element)
        return Value(COMPTIME_STRUCT, access)

    def _access_base(self, node: n.Access, scope: Scope) -> tuple[Any, tuple[int, ...] | None, Type | None]:
        """Return pointer, dimensions and element type of what an access expression walks over."""
        base = self.expr(node.base, scope)
        if not (base.__class__ is Value and isinstance(base.data, Pointer)) and not isinstance(base.type, PointerType):
            base = self.address(node.base, scope, node.base.span)
        target = base.type.target if isinstance(base.type, PointerType) else None
        if isinstance(target, ArrayType):
            return base, target.dims, target.element
        if isinstance(base.type, PointerType) and base.type.many:
            return base, None, target
        raise Fault(f"an access expression walks over an array, not {base.type}", node.base.span)

    def _access_at(self, node: n.Access, inner: Scope, point: list[int], dims: tuple[int, ...] | None) -> int:
        """Return the element's offset for one setting of the induction variables."""
        for name, number in zip(node.names, point, strict=True):
            inner.names[name] = Value(COMPTIME_INT, number)
        offset = 0
        for at, entry in enumerate(node.subscripts):
            offset = offset * (dims[at] if dims else 1) + self.number(entry, inner, "a subscript")
        return offset
