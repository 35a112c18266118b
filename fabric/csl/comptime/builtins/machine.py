"""These builtins give ids of colors, tasks and queues, bind them, and set the machine up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fabric.csl import tree
from fabric.csl.comptime.builtins.dsds import check_parts
from fabric.csl.comptime.builtins.ids import (
    COLOR,
    CONTROL,
    DATA,
    INPUT,
    LOCAL,
    OUTPUT,
    THREAD,
    activated,
    by_queue,
    gates,
    only_by_queue,
)
from fabric.csl.comptime.builtins.table import Operand, builtin
from fabric.csl.comptime.colors import MOST_COLORS, routable
from fabric.csl.comptime.lanes import uniform
from fabric.csl.comptime.values import NOTHING, FunctionValue, Scope, Struct, Value
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.types import BOOL, U16, VOID, FnType, IdType, Type
from fabric.csl.types.rules import is_integer
from wse_core.encoding import N_COLORS, N_CONTROL_IDS, N_QUEUES, TASK_NULL

if TYPE_CHECKING:
    from fabric.csl.comptime.interpreter import Interpreter

GROUP = "colors, tasks, queues"


def _locals(ev: Interpreter) -> range:
    return range(N_QUEUES if by_queue(ev) else 0, TASK_NULL)


def _queues(kind: str) -> Callable[[Interpreter], range]:
    return lambda ev: range(sum(bool(depth) for depth in ev.session.machine[f"queue.{kind}_depth"]))


NUMBERED: dict[str, tuple[IdType, Callable[[Interpreter], range], str]] = {
    "@get_color": (COLOR, lambda ev: range(MOST_COLORS), "a color"),
    "@get_local_task_id": (LOCAL, _locals, "the id of a local task"),
    "@get_control_task_id": (CONTROL, lambda ev: range(N_CONTROL_IDS), "the id of a control task"),
    "@get_input_queue": (INPUT, _queues("in"), "an input queue"),
    "@get_output_queue": (OUTPUT, _queues("out"), "an output queue"),
    "@get_ut_id": (THREAD, lambda ev: range(ev.session.machine["ut.count"]), "the id of a microthread"),
}
"""Builtins that make an id of a number: type, the numbers there are on an architecture, what it is."""


def _numbered(name: str, kind: IdType, numbers: Callable[[Interpreter], range], what: str) -> None:
    @builtin(name, 1, 1, "any", GROUP, what)
    def make(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
        if kind == THREAD:
            only_by_queue(ev, name, node.span)
        value = ev.expr(node.arguments[0], scope)
        at = node.arguments[0].span
        if not is_integer(value.type):
            raise Fault(f"{name} takes an integer, not {value.type}", at)
        if isinstance(value, tree.Expr):
            return ev.run_bitcast(ev.run_convert(value, U16, at, "the number"), kind, node.span)
        number = uniform(value, ev.level).data
        there = numbers(ev)
        if number not in there:
            where = f" on {ev.session.options.arch}" if kind != COLOR else ""
            raise Fault(f"{number} is not {what}{where}; there are {there[0]} to {there[-1]}", at)
        if kind == COLOR and number >= N_COLORS:
            ev.session.dialect.use("a color that no router has", at)
        return Value(kind, number)


for _name, (_kind, _there, _what) in NUMBERED.items():
    _numbered(_name, _kind, _there, _what)


@builtin("@get_data_task_id", 1, 1, "any", GROUP, "the id of the data task of a color, on WSE-3 of an input queue")
def _data_task_id(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    value = ev.expr(node.arguments[0], scope)
    if value.type == INPUT and not by_queue(ev):
        raise Fault("on WSE-2 a data task belongs to a color, not to an input queue", node.span)
    if value.type == COLOR and by_queue(ev):
        hint = "give it the queue, and the queue its color: @initialize_queue(queue, .{ .color = ... })"
        raise Fault("on WSE-3 a data task belongs to an input queue, not to a color", node.span, hint)
    wanted = INPUT if by_queue(ev) else COLOR
    if value.type != wanted:
        raise Fault(f"@get_data_task_id takes a {wanted}, not {value.type}", node.arguments[0].span)
    if isinstance(value, tree.Expr):
        return ev.run_bitcast(value, DATA, node.span)
    number = uniform(value, ev.level).data
    return Value(DATA, number if wanted == INPUT else routable(number, node.arguments[0].span))


def _task(ev: Interpreter, node: n.SyntaxNode, scope: Scope, kind: str) -> FunctionValue:
    value = ev.scalar(node, scope, "a task")
    if not isinstance(value.data, FunctionValue) or value.data.decl.kind != kind:
        what = f"a {value.data.decl.kind}" if isinstance(value.data, FunctionValue) else f"a {value.type}"
        raise Fault(f"a {kind} is needed here, not {what}", node.span)
    return value.data


def _check_params(function: FunctionValue, kind: str, node: n.SyntaxNode) -> None:
    """Refuse a task whose parameters the hardware cannot fill."""
    assert isinstance(function.type, FnType)
    params = function.type.params
    sizes = [param.words for param in params]
    if kind == "local" and params:
        raise Fault("a local task has no parameters", node.span, None, (("declared here", function.decl.span),))
    if any(size not in (1, 2) for size in sizes) or len(params) > 2 or (len(params) == 2 and sizes != [1, 1]):
        raise Fault(
            "a wavelet fills one parameter of 16 or 32 bits, or two of 16",
            node.span,
            None,
            (("declared here", function.decl.span),),
        )
    if kind == "data" and not params:
        return
    if kind == "control" and (len(params) > 1 or sizes not in ([], [1])):
        raise Fault("a control task has no parameter, or one of 16 bits", node.span)
    if function.type.result != VOID:
        raise Fault("a task returns void", node.span, None, (("declared here", function.decl.span),))


def _bind(name: str, kind: str, ident: IdType) -> None:
    @builtin(name, 2, 2, "setup", GROUP, f"what the {kind} task of an id does")
    def bind(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
        function = _task(ev, node.arguments[0], scope, "task")
        value = ev.scalar(node.arguments[1], scope, "the id")
        if value.type != ident:
            hint = f"make one with @get_{ident}(...)"
            raise Fault(f"{name} takes a {ident}, not {value.type}", node.arguments[1].span, hint)
        _check_params(function, kind, node.arguments[0])
        key = ("control" if kind == "control" else "task", value.data)
        what = f"two tasks are bound to the {'control task ' if kind == 'control' else ''}id {value.data}"
        ev.unit.once(ev.unit.tasks, key, (kind, function, node.span), what, node.span)
        return NOTHING


_bind("@bind_data_task", "data", DATA)
_bind("@bind_local_task", "local", LOCAL)
_bind("@bind_control_task", "control", CONTROL)


@builtin("@bind_rotating_tasks", 4, 4, "setup", GROUP, "WSE-3: a data task, instead of which another starts at times")
def _bind_rotating(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    only_by_queue(ev, "@bind_rotating_tasks", node.span)
    main, other = (_task(ev, entry, scope, "task") for entry in node.arguments[:2])
    value = ev.scalar(node.arguments[2], scope, "the id")
    if value.type != DATA:
        raise Fault(f"{node.name} takes a data_task_id, not {value.type}", node.arguments[2].span)
    _check_params(main, "data", node.arguments[0])
    _check_params(other, "control", node.arguments[1])
    config = ev.scalar(node.arguments[3], scope, "the counter")
    numbers = config.data.fields if isinstance(config.data, Struct) else {}
    if set(numbers) != {"init", "limit"} or not all(
        is_integer(entry.type) and 0 <= entry.data <= 0xFFFF for entry in numbers.values()
    ):
        what = "the counter is a struct of 'init' and 'limit', numbers of 16 bits"
        raise Fault(what, node.arguments[3].span, ".{ .init = 0, .limit = 9 }")
    for key, kind, function in ((("task", value.data), "data", main), (("control", 0), "control", other)):
        what = f"two tasks are bound to the {'control task ' * (kind == 'control')}id {key[1]}"
        ev.unit.once(ev.unit.tasks, key, (kind, function, node.span), what, node.span)
    ev.unit.rotating[value.data] = (numbers["init"].data, numbers["limit"].data)
    return NOTHING


@builtin("@bind_task", 2, 2, "setup", GROUP, "old: what the task of a color or id does")
def _bind_task(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    if by_queue(ev):
        raise Fault("@bind_task exists on WSE-2 only", node.span, "@bind_data_task, @bind_local_task")
    function = _task(ev, node.arguments[0], scope, "task")
    value = ev.scalar(node.arguments[1], scope, "the id")
    if value.type not in (COLOR, DATA, LOCAL):
        raise Fault(f"@bind_task takes a color or the id of a task, not {value.type}", node.arguments[1].span)
    assert isinstance(function.type, FnType)
    kind = "data" if function.type.params or value.type == DATA else "local"
    if value.data > TASK_NULL:  # of a color that no router has
        kind = "control"
    _check_params(function, kind, node.arguments[0])
    what = f"two tasks are bound to the id {value.data}"
    key = ("control" if kind == "control" else "task", value.data)
    ev.unit.once(ev.unit.tasks, key, (kind, function, node.span), what, node.span)
    if kind == "data":
        ev.unit.either.add(value.data)
    return NOTHING


def ident(ev: Interpreter, node: n.SyntaxNode, scope: Scope, kinds: tuple[Type, ...], name: str) -> Operand:
    """Return an id of one of some kinds, or a task that stands for its own id."""
    value = ev.expr(node, scope)
    if value.__class__ is Value and isinstance(value.data, FunctionValue) and value.data.decl.kind == "task":
        return value
    if value.type not in kinds:
        raise Fault(f"{name} takes a {' or '.join(map(str, kinds))}, not {value.type}", node.span)
    return value if isinstance(value, tree.Expr) else uniform(value, ev.level)


def _number(ev: Interpreter, value: Operand, at: n.SyntaxNode, otherwise: str) -> int:
    """Return the number of an id before the program runs; refuse a task, and an id that is not known then."""
    known = ev.settle(value, at.span, "the id") if isinstance(value, tree.Expr) else uniform(value, ev.level)
    if isinstance(known.data, FunctionValue):
        raise Fault(otherwise, at.span)
    return int(known.data)


@builtin("@activate", 1, 1, "setup run", GROUP, "starts a local task")
def _activate(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    value = ident(ev, node.arguments[0], scope, activated(ev), "@activate")
    if ev.place == "run":
        return ev.run_builtin(node, (value,), VOID)
    ev.unit.active[_number(ev, value, node.arguments[0], "@activate takes the id of a task here")] = node.span
    return NOTHING


def _gate(name: str, blocked: bool, meaning: str) -> None:
    @builtin(name, 1, 1, "setup run", GROUP, meaning)
    def gate(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
        threads = (THREAD,) if by_queue(ev) else ()
        value = ident(ev, node.arguments[0], scope, (*gates(ev), *threads), name)
        if value.type == THREAD and ev.place != "run":
            raise Fault(f"{name} of a microthread is for a program that runs", node.span, "call it in a task")
        if ev.place == "run":
            return ev.run_builtin(node, (value,), VOID)
        number = _number(ev, value, node.arguments[0], f"{name} takes an id here")
        ev.unit.blocked[number] = (blocked, node.span)
        return NOTHING


_gate("@block", True, "keeps a task from starting")
_gate("@unblock", False, "lets a task start")


@builtin("@set_teardown_handler", 2, 2, "setup", GROUP, "what runs when a color enters teardown")
def _teardown(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    function = _task(ev, node.arguments[0], scope, "fn")
    value = ev.scalar(node.arguments[1], scope, "the color")
    if value.type != COLOR:
        raise Fault(f"@set_teardown_handler takes a color, not {value.type}", node.arguments[1].span)
    what = f"color {value.data} has two teardown handlers"
    ev.unit.once(ev.unit.teardown, value.data, (function, node.span), what, node.span)
    return NOTHING


@builtin("@set_empty_queue_handler", 2, 2, "setup", GROUP, "WSE-3: what runs when a queue that is flushed is empty")
def _empty_handler(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    only_by_queue(ev, "@set_empty_queue_handler", node.span)
    function = _task(ev, node.arguments[0], scope, "fn")
    queue = _flushed(ev, node.arguments[1], scope, "@set_empty_queue_handler")
    if not isinstance(queue, Value):
        raise Fault("the queue is not known when the program is compiled", node.arguments[1].span)
    what = f"{queue.type} {queue.data} has two handlers"
    ev.unit.once(ev.unit.empty, (str(queue.type), queue.data), (function, node.span), what, node.span)
    return NOTHING


@builtin("@queue_flush", 1, 1, "run", GROUP, "WSE-3: runs the handler of a queue when that is empty")
def _queue_flush(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    only_by_queue(ev, "@queue_flush", node.span)
    return ev.run_builtin(node, (_flushed(ev, node.arguments[0], scope, "@queue_flush"),), VOID)


def _flushed(ev: Interpreter, node: n.SyntaxNode, scope: Scope, name: str) -> Operand:
    """Return a queue that is emptied; of the two kinds only one is modelled."""
    queue = ident(ev, node, scope, (INPUT, OUTPUT), name)
    if queue.type == INPUT:
        what = f"{name} of an input queue is not modelled"
        raise Fault(what, node.span, "an operation that takes what comes ends when it has all of it")
    return queue


@builtin("@initialize_queue", 1, 2, "setup", GROUP, "color and priority of a queue")
def _initialize_queue(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    queue = ev.scalar(node.arguments[0], scope, "the queue")
    if queue.type not in (INPUT, OUTPUT):
        raise Fault(f"@initialize_queue takes a queue, not {queue.type}", node.arguments[0].span)
    fields: dict[str, Value] = {}
    if len(node.arguments) > 1:
        config = ev.scalar(node.arguments[1], scope, "the configuration")
        if not isinstance(config.data, Struct):
            raise Fault("the configuration of a queue is a struct", node.arguments[1].span)
        fields = config.data.fields
        _check_queue(ev, fields, queue, node.arguments[1].span)
    _check_one_queue(ev, fields, queue, node.span)
    what = f"{queue.type} {queue.data} is initialized twice"
    ev.unit.once(ev.unit.queues, (str(queue.type), queue.data), (fields, node.span), what, node.span)
    return NOTHING


def _check_one_queue(ev: Interpreter, fields: dict[str, Value], queue: Value, span: Span) -> None:
    """Refuse a color that is bound to another input queue already, where queues are bound by hand."""
    if not by_queue(ev) or queue.type != INPUT or "color" not in fields:
        return
    for (kind, number), (others, where) in ev.unit.queues.items():
        if kind != str(INPUT) or number == queue.data or "color" not in others:
            continue
        if others["color"].data == fields["color"].data:
            what = f"color {fields['color'].data} is bound to two input queues, {number} and {queue.data}"
            raise Fault(what, span, "a wavelet comes into one queue", (("the other one is here", where),))


def _check_queue(ev: Interpreter, fields: dict[str, Value], queue: Value, span: Span) -> None:
    """Refuse fields of a queue's configuration that the architecture does not have."""
    known = ("color", "ctrl_table_id") if by_queue(ev) else ("color", "priority")
    for name, value in fields.items():
        if name not in known:
            what = f"the configuration of a queue has no field '{name}' on {ev.session.options.arch}"
            raise Fault(what, span, f"it has {', '.join(known)}")
        if name == "color" and value.type != COLOR:
            raise Fault(f"the color of a queue must be a color, not {value.type}", span)
        if name == "color" and queue.type == OUTPUT and not by_queue(ev):
            raise Fault("on WSE-2 an output queue is not bound to a color", span, "leave .color out, or test @is_arch")
        if name == "ctrl_table_id" and (not is_integer(value.type) or value.data != 0):
            raise Fault("one table of control tasks is modelled, number 0", span)
        if name == "priority":
            if not isinstance(value.data, Struct):
                raise Fault(f"the priority of a queue is a struct, not {value.type}", span)
            check_parts(ev, value.data.fields, name, span)


@builtin("@set_control_task_table", 0, 1, "setup", GROUP, "WSE-3: control tasks have ids of their own")
def _control_table(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    only_by_queue(ev, "@set_control_task_table", node.span)
    sizes = {"instructions": (2, 4, 8), "stride": tuple(range(1, 8))}
    if node.arguments:
        config = ev.scalar(node.arguments[0], scope, "the table")
        if not isinstance(config.data, Struct):
            raise Fault("the configuration of the table is a struct", node.arguments[0].span)
        for name, value in config.data.fields.items():
            if name not in sizes:
                what = f"the configuration of the table has no field '{name}'"
                raise Fault(what, node.arguments[0].span, f"it has {', '.join(sizes)}")
            if not is_integer(value.type) or value.data not in sizes[name]:
                hint = "; ".join(f".{key} is one of {', '.join(map(str, known))}" for key, known in sizes.items())
                raise Fault(f"a table of control tasks has no '{name}' of this value", node.arguments[0].span, hint)
    ev.unit.once(ev.unit.tables, "control", (node.span,), "the table of control tasks is set twice", node.span)
    return NOTHING


@builtin("@assert", 1, 1, "any", GROUP, "stops a run unless something holds")
def _assert(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    value = ev.truth(node.arguments[0], scope)
    if ev.place == "run":
        return ev.run_builtin(node, (Value(BOOL, value) if isinstance(value, bool) else value,), VOID)
    if not value:
        raise Fault("assertion failed", node.span)
    return NOTHING


@builtin("@random16", 0, 0, "run", "hardware", "the next number of the PE's generator")
def _random16(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    return ev.run_builtin(node, (), U16)


@builtin("@set_active_prng", 1, 1, "run", "hardware", "which generator is used")
def _set_prng(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    return ev.run_builtin(node, (ev.convert(ev.expr(node.arguments[0], scope), U16, node.span),), VOID)


@builtin("@get_filter_id", 1, 1, "any", GROUP, "the number of a color's filter at this PE")
def _filter_id(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    value = ident(ev, node.arguments[0], scope, (COLOR,), "@get_filter_id")
    if ev.unit.kind != "program":
        raise Fault("@get_filter_id belongs into the program of a PE", node.span)
    color = _number(ev, value, node.arguments[0], "@get_filter_id takes a color")
    ev.lasting = False  # it follows from what the layout and comptime blocks say of other colors
    return Value(U16, ev.unit.filter_number(color, node.span))
