"""These builtins tell about types, structs and strings, all at compile time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabric.csl.comptime.budget import check_text
from fabric.csl.comptime.builtins.table import Operand, builtin
from fabric.csl.comptime.lanes import uniform
from fabric.csl.comptime.session import ARCHITECTURES
from fabric.csl.comptime.values import FALSE, TRUE, Scope, Struct, Value, boolean, integer, of_type, shown, string
from fabric.csl.diagnostics import Fault, read_text
from fabric.csl.syntax import nodes as n
from fabric.csl.types import (
    COMPTIME_FLOAT,
    COMPTIME_STRING,
    COMPTIME_STRUCT,
    U8,
    U16,
    U32,
    VOID,
    ArrayType,
    FloatType,
    StructType,
    VoidType,
)

if TYPE_CHECKING:
    from fabric.csl.comptime.interpreter import Interpreter

GROUP = "reflection, structs, strings"


@builtin("@type_of", 1, 1, "any", GROUP, "the type of an expression")
def _type_of(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    return of_type(ev.expr(node.arguments[0], scope).type)


@builtin("@is_same_type", 2, 2, "any", GROUP, "whether two types are the same")
def _is_same_type(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    return boolean(ev.type(node.arguments[0], scope) == ev.type(node.arguments[1], scope))


def _array(ev: Interpreter, node: n.Builtin, scope: Scope) -> ArrayType:
    kind = ev.type(node.arguments[0], scope)
    if not isinstance(kind, ArrayType):
        raise Fault(f"{node.name} takes a type of arrays, not {kind}", node.span)
    return kind


@builtin("@element_type", 1, 1, "any", GROUP, "the type of an array's elements")
def _element_type(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    return of_type(_array(ev, node, scope).element)


@builtin("@element_count", 1, 1, "any", GROUP, "the number of an array's elements")
def _element_count(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    return integer(_array(ev, node, scope).count, U32)


@builtin("@rank", 1, 1, "any", GROUP, "the number of an array's dimensions")
def _rank(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    return integer(len(_array(ev, node, scope).dims), U16)


@builtin("@dimensions", 1, 1, "any", GROUP, "the sizes of an array's dimensions")
def _dimensions(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    dims = _array(ev, node, scope).dims
    return Value(ArrayType((len(dims),), U16), list(dims))


def _struct(ev: Interpreter, value: Any, node: n.SyntaxNode) -> Struct:
    if value.__class__ is not Value or not isinstance(value.data, Struct):
        raise Fault(f"a struct is needed here, not {value.type}", node.span)
    return value.data


@builtin("@has_field", 2, 2, "any", GROUP, "whether a struct has a field")
def _has_field(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    value = ev.expr(node.arguments[0], scope)
    name = ev.text(node.arguments[1], scope, "a field's name")
    if isinstance(value.type, StructType):
        return boolean(value.type.field(name) is not None)
    found = _struct(ev, value, node.arguments[0])
    return boolean(name in found.fields and not found.is_tuple)


@builtin("@field", 2, 2, "any", GROUP, "the field of a struct by its name as a string")
def _field(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    value = ev.expr(node.arguments[0], scope)
    return ev.member(value, ev.text(node.arguments[1], scope, "a field's name"), node.span)


@builtin("@concat_structs", 2, 2, "any", GROUP, "one struct of the fields of two (SDK 1)")
def _concat(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    left, right = (_struct(ev, ev.expr(entry, scope), entry) for entry in node.arguments)
    if (left.is_tuple and right.fields and not right.is_tuple) or (
        right.is_tuple and left.fields and not left.is_tuple
    ):
        raise Fault("a tuple and a struct with names do not join", node.span)
    if left.is_tuple or right.is_tuple:
        items = [*left.fields.values(), *right.fields.values()]
        return Value(COMPTIME_STRUCT, Struct({str(i): item for i, item in enumerate(items)}, True))
    both = left.fields.keys() & right.fields.keys()
    # Up to SDK 0.9 a PE gave the colors of its streams to <memcpy/memcpy>; now those of the layout come from there.
    both -= {name for name in both if name.startswith("MEMCPY") and left.fields[name].type == VOID}
    if both:
        raise Fault(f"both structs have the field '{sorted(both)[0]}'", node.span)
    return Value(COMPTIME_STRUCT, Struct({**left.fields, **right.fields}))


@builtin("@fp16", 0, 0, "any", GROUP, "the 16-bit float type of this program")
def _fp16(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    return of_type(FloatType(ev.session.options.fp16))


@builtin("@strlen", 1, 1, "any", GROUP, "the number of bytes of a string")
def _strlen(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    return integer(len(ev.text(node.arguments[0], scope, "the argument")), U16)


@builtin("@strcat", 1, None, "any", GROUP, "strings one after the other")
def _strcat(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    return string(check_text((ev.text(entry, scope, "an argument") for entry in node.arguments), node.span))


@builtin("@get_array", 1, 1, "any", GROUP, "the bytes of a string")
def _get_array(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    data = [ord(char) & 0xFF for char in ev.text(node.arguments[0], scope, "the argument")]
    return Value(ArrayType((len(data),), U8), data)


@builtin("@get_string_from_byte", 1, 1, "any", GROUP, "a string of one byte")
def _from_byte(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    return string(chr(ev.number(node.arguments[0], scope, "the byte", U8)))


@builtin("@is_arch", 1, 1, "any", "modules and layout", "whether this is compiled for an architecture")
def _is_arch(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    name = ev.text(node.arguments[0], scope, "the architecture")
    if name not in ARCHITECTURES:
        raise Fault(f"'{name}' is no architecture", node.arguments[0].span, "wse2 or wse3")
    return boolean(name == ev.session.options.arch)


@builtin("@is_comptime", 0, 0, "any", "modules and layout", "whether this is evaluated at compile time")
def _is_comptime(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    return FALSE if ev.place == "run" else TRUE


@builtin("@comptime_assert", 1, 2, "any", "modules and layout", "an error of the compiler unless something holds")
def _comptime_assert(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    if not ev.decided(node.arguments[0], scope):
        text = ev.text(node.arguments[1], scope, "the message") if len(node.arguments) > 1 else ""
        raise Fault(f"assertion failed{': ' + text if text else ''}", node.span)
    return Value(VoidType(), None)


STEPS_PER_MESSAGE = 100


@builtin("@comptime_print", 0, None, "any", "modules and layout", "a message while compiling")
def _comptime_print(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    values = [ev.expr(entry, scope) for entry in node.arguments]
    text = " ".join(shown(uniform(value, ev.level)) for value in values)
    ev.session.budget.spend(STEPS_PER_MESSAGE, node.span)
    ev.report.note(text, node.span)
    ev.lasting = False
    return Value(VoidType(), None)


@builtin("@import_comptime_value", 2, 2, "any", "modules and layout", "a value from a JSON file")
def _import_value(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    kind = ev.type(node.arguments[0], scope)
    name = ev.text(node.arguments[1], scope, "the file")
    base = scope.module.source.path.parent if scope.module.source.path else Path()
    try:
        data = json.loads(read_text(Path(base, name)))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise Fault(f"'{name}' cannot be read as JSON: {why}", node.arguments[1].span) from None
    return ev.convert(_from_json(data, node), kind, node.span, f"the value of '{name}'")


def _from_json(data: Any, node: n.Builtin) -> Value:
    """Return a JSON value; keys of objects may carry a type after a colon, which their use decides anyway."""
    if isinstance(data, dict):
        return Value(
            COMPTIME_STRUCT, Struct({k.partition(":")[0].strip(): _from_json(v, node) for k, v in data.items()})
        )
    if isinstance(data, list):
        return Value(COMPTIME_STRUCT, Struct({str(i): _from_json(v, node) for i, v in enumerate(data)}, True))
    if isinstance(data, bool):
        return boolean(data)
    if isinstance(data, int):
        return integer(data)
    if isinstance(data, float):
        return Value(COMPTIME_FLOAT, data)
    if isinstance(data, str):
        return Value(COMPTIME_STRING, data)
    raise Fault("null means nothing in CSL", node.span)
