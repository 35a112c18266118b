"""`Checker` turns functions and tasks of a PE program into the typed tree.

It is the evaluator with code where the evaluator refuses.  A function is checked once per instance: per module it
belongs to, per known argument that a ``comptime`` or generic parameter takes.  Calls only put their callee on a list;
`finish` works it off, so calls nest as deep as they like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric.csl import tree
from fabric.csl.check.order import in_registers, ordered
from fabric.csl.check.statements import RunTimeStatements
from fabric.csl.comptime.earlier import Checked
from fabric.csl.comptime.globals import is_generic
from fabric.csl.comptime.interpreter import Interpreter
from fabric.csl.comptime.values import ComptimeVariable, FunctionValue, Scope, Struct, Value, copied, frozen
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.tree import Local
from fabric.csl.types import (
    COMPTIME_INT,
    I16,
    VOID,
    AnyType,
    ArrayType,
    ComptimeType,
    DsdType,
    DsrType,
    FnType,
    IdType,
    PointerType,
    StructType,
    Type,
    named_type,
)

__all__ = ["Checker"]

OF_FUNCTIONS = ("instance", "pointer")
"""Functions need these beside globals: (``instance``, its key, the function), (``pointer``, what it points to)."""
DEEP, STEPS_PER_LEVEL = 20, 20
"""An instance for values of more levels than `DEEP`, structs in structs, costs `STEPS_PER_LEVEL` steps for each level.
"""
NEVER = -1
"""A function of this round has to be checked for each program."""
FORMER = {("<collectives_2d/pe>", "init", 1): "init_with"}
"""A module's function, called with so many arguments, is this one: before SDK 0.7 it took more."""


class Checker(RunTimeStatements):
    """Checks what a program can run.

    Parameters
    ----------
    interpreter : Interpreter
        The evaluator of the same program: session and unit are shared.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        super().__init__(interpreter.session, interpreter.unit)
        self.held = {}
        self.loops = []
        self.givers = []
        self._pointer_calls: list[tuple[tree.Function | None, tree.PointerCall, FnType]] = []
        self._instances: dict[Any, tree.Function] = {}
        self._todo: list[Callable[[], None]] = []
        self._caller: tree.Function | None = None
        self._own: dict[Any, None] | None = None

    # ---- instances

    def root(self, function: FunctionValue) -> tree.Function:
        """Return the instance of a task, an exported function or a handler."""
        return self.instance_of_types(function, function.decl)

    def instance_of_types(self, function: FunctionValue, node: n.SyntaxNode) -> tree.Function:
        if is_generic(function.decl):
            raise Fault(f"'{function.decl.name}' is generic; here each parameter needs one type", node.span)
        assert isinstance(function.type, FnType)
        locals_ = [
            Local(param.name or "", kind, True, param.span)
            for param, kind in zip(function.decl.params, function.type.params, strict=True)
        ]
        names = {local.name: local for local in locals_}
        key = (id(function.decl), id(function.module), tuple(("run", kind) for kind in function.type.params))
        made = self._instance(key, function, locals_, names, function.type.result, node.span)
        self._note_call(made)
        return made

    def _instance(
        self, key: Any, function: FunctionValue, params: list[Local], names: dict[str, Any], result: Type, site: Span
    ) -> tree.Function:
        """Return the instance with a key; a new one, first called at `site`, is put on the list of what is to do."""
        key = (key, result)  # which may be another one in another program, though nothing in the body is
        made = self._instances.get(key) or self._recalled(key)
        if made is None:
            decl = function.decl
            self.session.budget.instance(len(self._instances) + 1, decl.name, site)
            deep = _levels(key)
            if deep > DEEP:
                self.session.budget.spend(STEPS_PER_LEVEL * deep, site)
            made = tree.Function(function.name, decl.kind, tuple(params), result, decl.span, None, decl.inline)
            made.module = function.module
            made.known = {name: cell.value for name, cell in names.items() if isinstance(cell, ComptimeVariable)}
            self._instances[key] = made
            scope = Scope(function.module, function.module.scope)
            scope.names.update(names)
            if decl.body is not None:
                self._todo.append(lambda: self._check(made, key, decl, scope, site))
            elif self.unit.earlier is not None:
                self.unit.earlier.functions[key] = Checked(made, {}, self.unit.earlier.round)
        self._note_need("instance", key, made)
        return made

    def _note_call(self, callee: tree.Function) -> None:
        if self._caller is not None and callee not in self._caller.calls:
            self._caller.calls.append(callee)

    def finish(self) -> list[tree.Function]:
        """Check everything that was asked for and return it, callees before callers."""
        while self._todo:
            while self._todo:
                self._todo.pop()()
            self._caller = None
            for variable in self.unit.variables:
                for function in pointed(variable.initial):
                    self.point_to(function)
        for caller, call, kind in self._pointer_calls:
            for number, (shape, target) in enumerate(self.unit.pointed.values(), 1):
                if shape == kind:
                    call.targets.append((number, tree.Call(call.type, call.span, target, call.arguments)))
                    if caller is not None:
                        caller.calls.append(target)
                        caller.sites.append(call.targets[-1][1])
        return ordered(list(self._instances.values()), self.report)

    def _check(self, made: tree.Function, key: Any, decl: n.FnDecl, scope: Scope, site: Span) -> None:
        """Check the body of an instance, and keep what it needs."""
        self._caller, self.result, self.loops, self.givers = made, made.result, [], []
        assert decl.body is not None
        self.needs = self._own = {}
        self.lasting = True
        before = len(self.report.errors)
        with self.report.blaming(site):
            made.body = self.body(decl.body, scope)
            if made.result != VOID and len(self.report.errors) == before and not self.ends(made.body.body):
                raise Fault(f"'{decl.name}' can end without returning a {made.result}", decl.span)
        needs, self.needs, self._own = self._own, None, None
        for need in needs:
            if not (need.__class__ is tuple and need[0] in OF_FUNCTIONS):
                self.unit.meet(need)
        earlier = self.unit.earlier
        if earlier is not None:
            earlier.worked_out += 1
            lasting = self.lasting and len(self.report.errors) == before
            earlier.functions[key] = Checked(made, needs, earlier.round if lasting else NEVER)

    # ---- what is known from earlier programs

    def _note_need(self, *what: Any) -> None:
        """Note that the function at work needs an instance or a pointer to a function."""
        if self._own is not None and self.needs is self._own:
            self._own[what] = None
        else:
            self.lasting = False

    def _recalled(self, key: Any) -> tree.Function | None:
        """Return an instance as an earlier program has it, None if it has none or something has changed since."""
        earlier = self.unit.earlier
        known = earlier.functions.get(key) if earlier is not None else None
        if known is None or not self._holds(known):
            return None
        self._instances[key] = known.made
        self._todo.append(lambda: self._meet(known))
        return known.made

    def _holds(self, known: Checked) -> bool:
        """Whether all that a function needs is what it was; not if it needs itself."""
        earlier = self.unit.earlier
        assert earlier is not None
        if known.asked == earlier.round or known.held == NEVER:
            return known.held == earlier.round
        known.asked = earlier.round
        for need in known.needs:
            if need.__class__ is tuple and need[0] == "instance":
                callee = earlier.functions.get(need[1])
                if callee is None or callee.made is not need[2] or not self._holds(callee):
                    return False
            elif not ((need.__class__ is tuple and need[0] in OF_FUNCTIONS) or self.is_as_it_was(need, known.held)):
                return False
        known.held = earlier.round
        return True

    def _meet(self, known: Checked) -> None:
        """Take what a function of an earlier program needs into this one, in the order in which checking would."""
        self._caller = None
        for need in known.needs:
            if need.__class__ is tuple and need[0] == "instance":
                if need[1] not in self._instances:
                    self._recalled(need[1])
                assert self._instances[need[1]] is need[2]
            elif need.__class__ is tuple and need[0] == "pointer":
                self.point_to(need[1])
            else:
                self.unit.meet(need)

    # ---- calls

    def call(self, node: n.Call, scope: Scope) -> Any:
        if self.forced:
            return super().call(node, scope)
        function = self.callee(node, scope)
        if not isinstance(function, FunctionValue):
            return self._call_pointer(function, node, scope)
        function = self._former(function, node)
        self.check_count(function, node)
        if self._is_known_only_result(function):
            self.forced += 1
            try:
                return super().call(node, scope)
            finally:
                self.forced -= 1
        arguments = [self.expr(entry, scope) for entry in node.arguments]
        inline = function.decl.inline == "inline" and function.decl.body is not None
        if inline:
            self.session.dialect.use("inline fn", function.decl.span)
        if inline and arguments and all(isinstance(value, Value) for value in arguments):
            return self._expanded(function, arguments, node)
        return self.call_of(function, arguments, node)

    def _former(self, function: FunctionValue, node: n.Call) -> FunctionValue:
        """Return what a call means that gives a function of the library as many arguments as it once took."""
        name = FORMER.get((function.module.source.name, function.decl.name, len(node.arguments)))
        if name is None:
            return function
        self.session.dialect.use(f"an argument of {function.decl.name}", node.span)
        found: FunctionValue = self.resolve(function.module.globals[name], node.span).data
        return found

    def _is_known_only_result(self, function: FunctionValue) -> bool:
        """Whether a function gives what exists at compile time only: then it is called at compile time."""
        if function.decl.body is None:
            return False
        result = function.decl.result
        kind = named_type(result.name) if isinstance(result, n.Name) else None
        return isinstance(kind, ComptimeType)

    def _expanded(self, function: FunctionValue, arguments: list[Any], node: n.Call) -> Any:
        """Return the value of an inline function whose arguments are all known, or a call if it does more."""
        self.forced += 1
        self.trying += 1
        try:
            return self.invoke(function, arguments, node)
        except Fault:
            pass
        finally:
            self.forced -= 1
            self.trying -= 1
        return self.call_of(function, arguments, node)

    def call_of(self, function: FunctionValue, arguments: list[Any], node: n.Call, site: bool = True) -> tree.Call:
        decl = function.decl
        generic = is_generic(decl)
        scope = Scope(function.module, function.module.scope)
        params: list[Local] = []
        passed: list[tree.Expr] = []
        key: list[Any] = []
        for i, (param, value) in enumerate(zip(decl.params, arguments, strict=True)):
            at = node.arguments[i].span
            if generic or not isinstance(function.type, FnType):
                kind = self.type(param.type, scope)
            else:
                kind = function.type.params[i]
            value = self.convert(value, kind, at, f"the argument '{param.name}'")
            kind = value.type if isinstance(kind, AnyType) else kind
            name = param.name or f"#{i}"
            if param.comptime or self._is_known_only(kind, value):
                if not isinstance(value, Value):
                    raise Fault(f"the argument '{name}' must be known at compile time", at)
                scope.names[name] = ComptimeVariable(kind, copied(value), True, name)
                key.append(("known", frozen(value)))
                continue
            if kind == COMPTIME_INT:
                kind = I16
            local = Local(name, kind, True, param.span)
            scope.names[name] = local
            params.append(local)
            passed.append(self.as_expr(self.convert(value, kind, at), at))
            key.append(("run", kind))
        result = self.type(decl.result, scope) if generic else function.type.result  # type: ignore[union-attr]
        whole = (id(decl), id(function.module), tuple(key))
        made = self._instance(whole, function, params, scope.names, result, node.span)
        self._note_call(made)
        call = tree.Call(result, node.span, made, tuple(passed))
        if site and self._caller is not None:
            self._caller.sites.append(call)
        return call

    def _is_known_only(self, kind: Type, value: Any) -> bool:
        """Whether a parameter of a type holds a known value: it does not exist at run time."""
        if kind == COMPTIME_INT and isinstance(value, Value):
            return True
        if (
            kind == VOID
            or isinstance(kind, (FnType, DsrType))
            or (isinstance(kind, IdType) and isinstance(value, Value))
        ):
            return True
        return kind.words is None and not (isinstance(kind, DsdType) and str(kind) != "fifo_dsd")

    # ---- pointers to functions

    def point_to(self, function: FunctionValue) -> None:
        """Keep in mind that a function is called through pointers: it has a number, which is what they hold."""
        key = (id(function.decl), id(function.module))
        self._note_need("pointer", function)
        if key not in self.unit.pointed:
            before, self._caller = self._caller, None
            made = self.instance_of_types(function, function.decl)
            self._caller = before
            self.unit.pointed[key] = (function.type, made)

    def as_expr(self, value: Any, span: Span) -> tree.Expr:
        if isinstance(value, Value):
            for function in pointed(value):
                self.point_to(function)
        return super().as_expr(value, span)

    def _call_pointer(self, pointer: tree.Expr, node: n.Call, scope: Scope) -> Any:
        kind: Any = pointer.type
        shape: FnType = kind.target
        if (large := in_registers(shape.params, shape.result)) is not None:
            hint = "call it by its name"
            raise Fault(f"a function with a {large} is not called through a pointer", node.span, hint)
        if len(node.arguments) != len(shape.params):
            given = len(node.arguments)
            raise Fault(f"a {shape} takes {len(shape.params)} arguments, not {given}", node.span)
        arguments = tuple(
            self.as_expr(self.convert(self.expr(entry, scope), param, entry.span, "the argument"), entry.span)
            for entry, param in zip(node.arguments, shape.params, strict=True)
        )
        made = tree.PointerCall(shape.result, node.span, pointer, arguments, [])
        self._pointer_calls.append((self._caller, made, shape))
        self.lasting = False  # what it may call depends on the program
        return made


def pointed(value: Value | None) -> list[FunctionValue]:
    """Return the functions whose addresses a known value holds."""
    if value is None:
        return []
    if isinstance(value.type, ArrayType) and isinstance(value.type.element, (PointerType, StructType)):
        return [f for entry in value.data for f in pointed(_entry(entry, value.type.element))]
    if isinstance(value.type, StructType) and isinstance(value.data, Struct):
        return [f for name, entry in value.data.fields.items() for f in pointed(_entry(entry, value.type.field(name)))]
    return [value.data] if isinstance(value.type, PointerType) and isinstance(value.data, FunctionValue) else []


def _entry(entry: Any, kind: Type | None) -> Value | None:
    return entry if isinstance(entry, Value) or kind is None else Value(kind, entry)


def _levels(key: Any) -> int:
    """Return how deep tuples lie inside of each other."""
    levels, here = 0, [key]
    while here:
        levels += 1
        here = [part for whole in here for part in whole if part.__class__ is tuple]
    return levels
