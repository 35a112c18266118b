"""These builtins are for modules, layouts and symbols: imports, programs and routes of PEs, exports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.csl import tree
from fabric.csl.comptime.builtins.table import Operand, builtin
from fabric.csl.comptime.colors import ColorConfig, color_config, routable
from fabric.csl.comptime.lanes import LaneValue, lifted, uniform
from fabric.csl.comptime.units import ColorEntry, Export, ExportedName, TileEntry
from fabric.csl.comptime.values import NOTHING, FunctionValue, Global, Module, Scope, Struct, Value, integer, record
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.types import (
    BOOL,
    U16,
    ArrayType,
    BoolType,
    FloatType,
    FnType,
    IdType,
    IntType,
    PointerType,
    StructType,
    Type,
    VoidType,
)
from fabric.csl.types.rules import is_integer, widens

if TYPE_CHECKING:
    from fabric.csl.comptime.interpreter import Interpreter
    from fabric.csl.comptime.session import Options

GROUP = "modules and layout"
COLOR = IdType("color")
MOST_PARAMS = 15


def bindings(ev: Interpreter, node: n.SyntaxNode | None, scope: Scope) -> dict[str, tuple[Any, Any]]:
    """Return the params that a struct gives to a module, each with the place for messages."""
    if node is None:
        return {}
    value = ev.known(node, scope, "the params of a module")
    if (
        value.__class__ is not Value
        or not isinstance(value.data, Struct)
        or (value.data.is_tuple and value.data.fields)
    ):
        raise Fault(f"params are given as a struct, not as {value.type}", node.span, ".{ .name = value }")
    places = dict(node.fields) if isinstance(node, n.StructLiteral) else {}
    return {
        name: (entry, places[name].span if name in places else node.span) for name, entry in value.data.fields.items()
    }


@builtin("@import_module", 1, 2, "any", GROUP, "an instance of another file")
def _import_module(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    name = ev.text(node.arguments[0], scope, "the name of a module")
    given = bindings(ev, node.arguments[1] if len(node.arguments) > 1 else None, scope)
    return ev.import_module(name, scope.module, given, node.arguments[0].span)


def _size(ev: Interpreter, node: n.SyntaxNode, scope: Scope, what: str) -> int:
    size = ev.number(node, scope, what)
    if size < 1:
        raise Fault(f"{what} is {size}; it must be at least 1", node.span)
    return size


@builtin("@set_rectangle", 2, 2, "layout", GROUP, "the size of the program in PEs")
def _set_rectangle(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    if ev.unit.rectangle is not None:
        raise Fault("@set_rectangle is called twice", node.span)
    width = _size(ev, node.arguments[0], scope, "the width of the rectangle")
    height = _size(ev, node.arguments[1], scope, "the height of the rectangle")
    most = ev.session.options.fabric
    if width > most[0] or height > most[1]:
        raise Fault(
            f"a rectangle of {width} x {height} PEs does not fit into a fabric of {most[0]} x {most[1]}", node.span
        )
    _check_place(ev.session.options, width, height, node.span)
    ev.unit.rectangle = (width, height)
    return NOTHING


def _check_place(options: Options, width: int, height: int, at: Span) -> None:
    """Refuse a fabric in which the program and the frame of the host around it find no room."""
    if options.frame is None:
        return
    left, above, behind, below = options.frame
    (x, y), (columns, rows) = options.offsets, options.fabric
    what = f"a rectangle of {width} x {height} PEs at ({x}, {y})"
    frame = f" with the frame of --memcpy ({left} columns in front, {behind} behind, a row above and below)"
    if x < left or y < above:
        raise Fault(f"{what} leaves no room{frame}", at, f"--fabric-offsets={left},{above}")
    needed = (x + width + behind, y + height + below)
    if needed[0] > columns or needed[1] > rows:
        what = f"{what} does not fit into a fabric of {columns} x {rows}{frame if behind else ''}"
        raise Fault(what, at, f"--fabric-dims={max(needed[0], columns)},{max(needed[1], rows)}")


def _coordinates(ev: Interpreter, node: n.Builtin, scope: Scope) -> tuple[np.ndarray, np.ndarray]:
    """Return the PEs that a call is about: one, or one per lane."""
    if ev.unit.rectangle is None:
        raise Fault(f"{node.name} comes before @set_rectangle", node.span)
    found = []
    for entry, size, name in zip(node.arguments[:2], ev.unit.rectangle, "xy", strict=True):
        value = ev.known(entry, scope, f"the coordinate {name}")
        if not is_integer(value.type):
            raise Fault(f"the coordinate {name} must be an integer, not {value.type}", entry.span)
        if value.__class__ is LaneValue:
            assert ev.level is not None  # lanes are those of a level
            array = lifted(value, ev.level)
        else:
            array = np.array([value.data], np.int64)
        outside = array[(array < 0) | (array >= size)]
        if outside.size:
            raise Fault(f"the coordinate {name} is {outside[0]}; the rectangle has 0 to {size - 1}", entry.span)
        found.append(array)
    count = ev.level.count if ev.level else 1
    if any(len(array) != count for array in found):
        found = [np.broadcast_to(array, (count,)) for array in found]
    return found[0], found[1]


def _per_lane(value: Any, level: Any) -> Operand:
    """Return a param with its lanes as an array of numbers, inside of structs too."""
    if value.__class__ is LaneValue:
        return Value(value.type, lifted(value, level))
    if value.__class__ is Value and value.data.__class__ is Struct:
        fields = {name: _per_lane(entry, level) for name, entry in value.data.fields.items()}
        return Value(value.type, Struct(fields, value.data.is_tuple))
    return value


@builtin("@set_tile_code", 2, 4, "layout", GROUP, "the program of a PE and its params")
def _set_tile_code(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    xs, ys = _coordinates(ev, node, scope)
    arguments = node.arguments[2:]
    path = scope.module.source.path
    if arguments:
        path = ev.session.find(ev.text(arguments[0], scope, "the file"), scope.module.source, arguments[0].span)
    assert path is not None  # a layout is a file
    given = bindings(ev, arguments[1] if len(arguments) > 1 else None, scope)
    params = {name: (_per_lane(value, ev.level), at) for name, (value, at) in given.items()}
    ev.unit.log.append(TileEntry(xs, ys, path, params, node.span))
    return NOTHING


def _color(ev: Interpreter, node: n.SyntaxNode, scope: Scope) -> int:
    value = ev.scalar(node, scope, "the color")
    if value.type != COLOR:
        raise Fault(f"a color is needed here, not {value.type}", node.span, "make one with @get_color(...)")
    return routable(value.data, node.span)


def _config(ev: Interpreter, node: n.SyntaxNode, scope: Scope) -> ColorConfig:
    value = ev.known(node, scope, "the configuration")
    made = color_config(_settle(value, ev.level), node.span)
    if bool(made.rx) != bool(made.tx) and not made.positions:
        side, other = ("tx", "rx") if made.rx else ("rx", "tx")
        what = f"the route says {other} and no {side}: nothing can pass"
        ev.session.report.warn(what, node.span, f".{side} = .{{ RAMP }}, or another direction")
    return made


def _settle(value: Any, level: Any) -> Operand:
    """Return a struct whose fields, at every depth, are the same for all lanes."""
    if value.__class__ is Value and value.data.__class__ is Struct:
        fields = {name: _settle(entry, level) for name, entry in value.data.fields.items()}
        return Value(value.type, Struct(fields, value.data.is_tuple))
    return uniform(value, level)


@builtin("@set_color_config", 4, 4, "layout", GROUP, "what the router of a PE does with a color")
def _set_color_config(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    xs, ys = _coordinates(ev, node, scope)
    color, config = _color(ev, node.arguments[2], scope), _config(ev, node.arguments[3], scope)
    ev.unit.log.append(ColorEntry(xs, ys, color, config, node.span))
    return NOTHING


@builtin("@set_local_color_config", 2, 2, "setup", GROUP, "the same, said by the program of the PE")
def _set_local_color_config(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    color, config = _color(ev, node.arguments[0], scope), _config(ev, node.arguments[1], scope)
    what = f"color {color} is configured twice at this PE"
    ev.unit.once(ev.unit.configs, color, (config, node.span), what, node.span)
    return NOTHING


@builtin("@get_rectangle", 0, 0, "any", GROUP, "size of program and fabric, and where the program stands in it")
def _get_rectangle(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    if ev.unit.rectangle is None:
        raise Fault("@get_rectangle comes before @set_rectangle", node.span)
    options = ev.session.options

    def pair(size: tuple[int, int]) -> dict[str, Any]:
        return {"width": integer(size[0], U16), "height": integer(size[1], U16)}

    fields = {
        **pair(ev.unit.rectangle),
        "fabric": record(pair(options.fabric)),
        "offsets": record(pair(options.offsets)),
    }
    return record(fields)


def _is_host_scalar(kind: Type) -> bool:
    return isinstance(kind, (IntType, FloatType, BoolType)) and kind.words in (1, 2)


def _is_host_data(kind: Type) -> bool:
    """Whether the host may copy what a pointer leads to: numbers, arrays of them, structs as their words."""
    if isinstance(kind, ArrayType):
        return _is_host_data(kind.element)
    return _is_host_scalar(kind) or (isinstance(kind, StructType) and kind.words is not None)


def _check_host_type(kind: Type, node: n.SyntaxNode) -> None:
    """Refuse a type that the host cannot use."""
    if isinstance(kind, FnType):
        if len(kind.params) > MOST_PARAMS:
            raise Fault(f"a function for the host has at most {MOST_PARAMS} parameters", node.span)
        bad = next((p for p in kind.params if not _is_host_scalar(p)), None)
        if bad is not None:
            raise Fault(f"the host cannot pass a {bad}", node.span, "numbers of 16 or 32 bits")
        if not isinstance(kind.result, VoidType):
            raise Fault("a function for the host returns void", node.span)
    elif not (_is_host_data(kind.target) if isinstance(kind, PointerType) else _is_host_scalar(kind)):
        raise Fault(f"the host cannot use a {kind}", node.span, "a number, a pointer to numbers or a function")


@builtin("@export_name", 2, 3, "layout", GROUP, "a symbol that the host may use")
def _export_name(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    name = ev.text(node.arguments[0], scope, "the symbol")
    kind = ev.type(node.arguments[1], scope)
    _check_host_type(kind, node.arguments[1])
    mutable = False
    if len(node.arguments) > 2:
        flag = ev.scalar(node.arguments[2], scope, "the mutability")
        if flag.type != BOOL:
            raise Fault(f"the mutability is true or false, not {flag.type}", node.arguments[2].span)
        mutable = flag.data
    known = ev.unit.names.get(name)
    if known is not None:
        raise Fault(
            f"the symbol '{name}' is exported twice", node.span, None, (("the first time is here", known.span),)
        )
    ev.unit.names[name] = ExportedName(name, kind, mutable, len(ev.unit.names), node.span)
    return NOTHING


def global_of(ev: Interpreter, node: n.SyntaxNode, scope: Scope) -> Global | None:
    """Return the global that an expression names, or None."""
    if isinstance(node, n.Name) and scope.find(node.name) is None:
        return scope.module.globals.get(node.name)
    if isinstance(node, n.FieldAccess):
        base = ev.expr(node.base, scope)
        if base.__class__ is Value and isinstance(base.data, Module):
            return base.data.globals.get(node.name)
    return None


@builtin("@export_symbol", 1, 2, "setup", GROUP, "what this PE offers under an exported name")
def _export_symbol(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    what = node.arguments[0]
    value = ev.expr(what, scope)
    entry = global_of(ev, what, scope)
    target: tree.Variable | FunctionValue
    kind: Any
    if value.__class__ is Value and isinstance(value.data, FunctionValue):
        target, kind, default = value.data, value.type, value.data.decl.name
    elif entry is not None:
        target = ev.variable_of(entry, what.span)
        kind, default = target.type, entry.name
    else:
        raise Fault("only a function or a global can be exported", what.span)
    name = ev.text(node.arguments[1], scope, "the symbol") if len(node.arguments) > 1 else default
    wanted = ev.unit.names.get(name)
    if wanted is None:
        raise Fault(f"no @export_name in the layout has the name '{name}'", node.span)
    if kind != wanted.type and not widens(kind, wanted.type):
        raise Fault(
            f"'{name}' has type {kind}, but is exported as {wanted.type}",
            what.span,
            None,
            (("exported here", wanted.span),),
        )
    if any(known.name == name for known in ev.unit.exports):
        raise Fault(f"this PE exports '{name}' twice", node.span)
    ev.unit.exports.append(Export(name, target, node.span))
    return NOTHING


@builtin("@rpc", 1, 1, "setup", GROUP, "old: the color of host calls; means nothing now")
def _rpc(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    ev.scalar(node.arguments[0], scope, "the id")
    return NOTHING
