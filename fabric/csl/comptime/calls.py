"""Calls of functions are evaluated at compile time."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.budget import CALL
from fabric.csl.comptime.earlier import Checked
from fabric.csl.comptime.globals import Globals, is_generic
from fabric.csl.comptime.intrinsics import known_result
from fabric.csl.comptime.lanes import uniform
from fabric.csl.comptime.values import (
    NOTHING,
    ComptimeVariable,
    FunctionValue,
    Global,
    Pointer,
    Scope,
    Value,
    copied,
    frozen,
)
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.types import MODULE, VOID, AnyType, FnType, PointerType, Type

__all__ = ["Calls", "Left", "Signal"]

MOST_CALLS = 200
"""Calls at compile time may nest at most so deep."""

SETTINGS = ("<tile_config/task_priority>", "<tile_config/main_thread_priority>")
"""Modules whose functions a comptime block may call: they say with what a program begins."""


PLAIN = (int, float, bool, str)


class Signal:
    """A `Signal` says how a statement was left before its end: ``return``, ``break`` or ``continue``."""

    __slots__ = ("kind", "label", "value")

    def __init__(self, kind: str, label: str | None = None, value: Any = None) -> None:
        self.kind = kind
        self.label = label
        self.value = value


class Left(Fault):
    """A statement was left from inside of a value, as by ``const v = if (c) 1 else return 2;``."""

    def __init__(self, message: str, span: Span, signal: Signal) -> None:
        super().__init__(message, span)
        self.signal = signal


def _is_plain(value: Any) -> bool:
    """Whether a value is a number or the like, or an array of those: nothing that a function could change."""
    data = getattr(value, "data", value)
    if data.__class__ is list:
        return all(map(_is_plain, data))
    return value.__class__ in (Value, *PLAIN) and data.__class__ in PLAIN


class Calls(Globals):
    """`Calls` evaluates calls of functions; a mix-in of `fabric.csl.comptime.interpreter.Interpreter`."""

    calls = 0

    @abstractmethod
    def execute(self, node: n.SyntaxNode, scope: Scope) -> Signal | None:
        """Run a statement at compile time."""

    def callee(self, node: n.Call, scope: Scope) -> Any:
        """Return what is called: a `FunctionValue`, or a run-time function pointer."""
        value = self.expr(node.callee, scope)
        if value.__class__ is Value and isinstance(value.data, FunctionValue):
            if value.data.decl.kind == "task":
                raise Fault(
                    f"'{value.data.decl.name}' is a task; tasks are started, not called",
                    node.span,
                    "@activate its task id, or make it a fn",
                )
            return value.data
        if (
            isinstance(value, tree.Expr)
            and isinstance(value.type, PointerType)
            and isinstance(value.type.target, FnType)
        ):
            return value
        if isinstance(value, tree.Load) and isinstance(value.type, FnType) and isinstance(value.place, tree.Deref):
            return value.place.pointer
        if value.__class__ is Value and isinstance(value.data, Pointer):
            raise Fault("calls through pointers that the host sets are not supported", node.span)
        what = "a module" if value.type == MODULE else f"a {value.type}"
        raise Fault(f"{what} cannot be called", node.callee.span)

    def call(self, node: n.Call, scope: Scope) -> Any:
        function = self.callee(node, scope)
        if not isinstance(function, FunctionValue):
            raise self.refuse(node.span)
        arguments = [self.known(entry, scope, "an argument") for entry in node.arguments]
        if self.calls or self.unit.earlier is None or not all(map(_is_plain, arguments)):
            return self.invoke(function, arguments, node)
        return self._invoke_once(function, arguments, node)

    def _invoke_once(self, function: FunctionValue, arguments: list[Any], node: n.Call) -> Any:
        """Return the result of a call, which an earlier program may have made with what is still the same."""
        earlier = self.unit.earlier
        key = (id(function.decl), id(function.module), function.type, tuple(map(frozen, arguments)))
        known = earlier.calls.get(key)
        if known is not None and all(self.is_as_it_was(need, known.held) for need in known.needs):
            for need in known.needs:
                self.need(need)
            return known.made
        found: dict[Any, None] = {}
        outer, self.needs = self.needs, found
        lasting, self.lasting = self.lasting, True
        try:
            result = self.invoke(function, arguments, node)
            if self.lasting and all(need.lasting for need in found if need.__class__ is Global):
                earlier.calls[key] = Checked(result, found, earlier.round)
            return result
        finally:
            self.needs, self.lasting = outer, lasting and self.lasting
            for need in found:
                self.need(need)

    def invoke(self, function: FunctionValue, arguments: list[Any], node: n.Call) -> Any:
        """Run a function at compile time and return its result."""
        decl = function.decl
        self.check_count(function, node)
        scope, result = self.bind(function, arguments, node)
        if decl.body is None:
            given = [uniform(scope.names[p.name].value, self.level) for p in decl.params if p.name is not None]
            if function.module.source.name in SETTINGS and self.place == "setup":
                self.lasting = False
                self.unit.settings.append((decl.name, tuple(given), node.span))
                return NOTHING
            found = known_result(function, given, node.span)
            if found is None:
                raise Fault(f"'{decl.name}' works on the machine only, not at compile time", node.span)
            return found
        self.session.budget.spend(CALL, node.span)
        self.calls += 1
        if self.calls > MOST_CALLS:
            self.calls = 0
            raise Fault(f"calls nest deeper than {MOST_CALLS} at compile time", node.span, "does the recursion end?")
        try:
            signal = self.execute(decl.body, scope)
        except Fault as fault:
            fault.blame(node.span)
            raise
        finally:
            self.calls = max(0, self.calls - 1)
        if signal is None or signal.kind != "return":
            if result == VOID:
                return NOTHING
            raise Fault(f"'{decl.name}' ended without returning a {result}", node.span)
        return self.convert(signal.value, result, node.span, f"the result of '{decl.name}'")

    def check_count(self, function: FunctionValue, node: n.Call) -> None:
        """Refuse a wrong number of arguments."""
        wanted, given = len(function.decl.params), len(node.arguments)
        if wanted != given:
            raise Fault(
                f"'{function.decl.name}' takes {wanted} argument{'s' * (wanted != 1)}, not {given}",
                node.span,
                None,
                (("declared here", function.decl.span),),
            )

    def bind(self, function: FunctionValue, arguments: list[Any], node: n.Call) -> tuple[Scope, Type]:
        """Return the scope of a call with its parameters, and the type of its result."""
        decl = function.decl
        scope = Scope(function.module, function.module.scope)
        generic = is_generic(decl) if function.type is None or not function.type.params else False
        for i, (param, value) in enumerate(zip(decl.params, arguments, strict=True)):
            known = function.type
            kind = self.type(param.type, scope) if generic or known is None else known.params[i]
            at = node.arguments[i].span
            value = self.convert(value, kind, at, f"the argument '{param.name}'")
            if param.name is not None:
                held = None if isinstance(kind, AnyType) else kind
                scope.names[param.name] = ComptimeVariable(held, copied(value), True, param.name, self.depth)
        if generic or function.type is None or not decl.params:
            return scope, self.type(decl.result, scope)
        return scope, function.type.result
