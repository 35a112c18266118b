"""Globals of modules are evaluated when first needed, each once per instance of its module."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.budget import MOST_IMPORTS, MOST_NESTED, check_size
from fabric.csl.comptime.colors import MOST_COLORS
from fabric.csl.comptime.convert import cast
from fabric.csl.comptime.earlier import is_bound_alike, is_same
from fabric.csl.comptime.expressions import Expressions
from fabric.csl.comptime.lanes import uniform
from fabric.csl.comptime.values import FunctionValue, Global, Module, Scope, Value, copied, integer
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.types import BOOL, COMPTIME_INT, I16, MODULE, VOID, EnumType, FnType, IdType, Type

__all__ = ["Globals"]


class Globals(Expressions):
    """`Globals` evaluates what global names stand for; a mix-in of `fabric.csl.comptime.interpreter.Interpreter`."""

    naming = ""
    """The global whose value is evaluated: modules made for it carry its name."""
    needs: dict[Any, None] | None = None
    """The global or function at work has needed these so far; None if it is the program itself."""
    lasting = True
    """Whether what is at work does nothing but give a value."""
    nested = 0
    """So many globals are at work, each because the one before needs it."""
    asking = 0
    """How many globals are evaluated only to see whether they are what they were."""

    def resolve(self, entry: Global, span: Span) -> Any:
        """Return the operand of a global: its value, or a load of its memory for a ``var``.

        Raises
        ------
        Fault
            If it has none, or its initial value needs itself.
        """
        if entry.state != "done":
            self._begin(entry, span)
        self.need(entry)
        if entry.value.__class__ is Global:
            return self.resolve(entry.value, span)
        if entry.variable is not None and not entry.variable.const:
            place = tree.VariablePlace(entry.variable.type, span, entry.variable)
            return tree.Load(entry.variable.type, span, place)
        return entry.value

    def _begin(self, entry: Global, span: Span) -> None:
        """Evaluate a global for the first time."""
        if entry.state == "busy":
            if isinstance(entry.decl, n.FnDecl):
                return
            raise Fault(
                f"the value of '{entry.name}' depends on itself", span, None, (("declared here", entry.decl.span),)
            )
        if entry.state == "faulty":
            raise Fault(None)
        if self.nested >= MOST_NESTED:
            what = f"the value of '{entry.name}' ends a chain of more than {MOST_NESTED} that each need the next"
            raise Fault(what, span, "a loop that makes an array of them")
        self.nested += 1
        old, entry.state = entry.state == "old", "busy"
        level, self.level = self.level, None
        depth, self.depth = self.depth, 0
        outer, self.needs = self.needs, {}
        lasting, self.lasting = self.lasting, True
        try:
            if not (old and self._still_holds(entry)):
                self._work_out(entry, replace(entry) if old else None, span)
        except Fault:
            entry.state = "new" if self.asking else "faulty"
            raise
        except BaseException:
            entry.state = "new"
            raise
        finally:
            self.nested -= 1
            self.level, self.depth = level, depth
            self.needs, self.lasting = outer, lasting
        entry.state = "done"

    # ---- what is known from earlier programs

    def need(self, what: Any) -> None:
        """Note that something is needed by what is evaluated, or by the program itself."""
        if self.needs is None:
            self.unit.meet(what)
        else:
            self.needs[what] = None

    def _work_out(self, entry: Global, before: Global | None, span: Span) -> None:
        """Evaluate a global; if it is what it was in an earlier program, it is the same object."""
        earlier = self.unit.earlier
        entry.value = entry.variable = entry.type = None
        entry.own = False
        entry.bound = entry.module.bindings.get(entry.name)
        self._evaluate(entry, span)
        assert self.needs is not None
        entry.needs = self.needs
        entry.lasting = self.lasting and all(need.lasting for need in self.needs if need.__class__ is Global)
        if earlier is None:
            return
        earlier.worked_out += 1
        entry.held = earlier.round
        if before is not None and is_same(before, entry):
            entry.value, entry.variable, entry.own = before.value, before.variable, before.own
        else:
            entry.changed = earlier.round

    def _still_holds(self, entry: Global) -> bool:
        """Whether a global of an earlier program is what it was."""
        earlier = self.unit.earlier
        if earlier is None or not entry.lasting:
            return False
        if not is_bound_alike(entry.bound, entry.module.bindings.get(entry.name)):
            return False
        if not all(self.is_as_it_was(need, entry.held) for need in entry.needs):
            return False
        entry.held = earlier.round
        return True

    def is_as_it_was(self, need: Any, held: int) -> bool:
        """Whether something that was needed is what it was in a round."""
        entry = need[0] if need.__class__ is tuple else need
        if entry.__class__ is not Global:
            return True
        if not entry.lasting:
            return False
        if entry.state == "old":
            self.asking += 1
            try:
                self._begin(entry, entry.decl.span)
            except Fault:
                return False  # said where it is needed
            finally:
                self.asking -= 1
        return entry.state == "done" and entry.changed <= held

    def _evaluate(self, entry: Global, span: Span) -> None:
        decl = entry.decl
        scope = entry.module.scope
        assert scope is not None
        if isinstance(decl, (n.FnDecl, n.VarDecl)) and decl.storage == "extern" and not entry.module.builtin:
            entry.value = self._linked(entry, decl, scope)
        elif isinstance(decl, n.FnDecl):
            entry.value = self.function(entry.module, decl)
        elif isinstance(decl, n.ParamDecl):
            entry.value = self._param(entry, decl, scope, span)
        elif isinstance(decl, n.ColorDecl):
            entry.value = self._color(entry, decl, scope, span)
        else:
            self._declared(entry, decl, scope)

    def _param(self, entry: Global, decl: n.ParamDecl, scope: Scope, span: Span) -> Any:
        kind = self.type(decl.type, scope) if decl.type is not None else None
        if decl.type is None and decl.value is None:
            self.session.dialect.use("a param without a type", decl.span)
        bound = entry.module.bindings.get(entry.name)
        if bound is not None:
            value, at = bound
            if isinstance(kind, IdType) and value.type == COMPTIME_INT and not entry.module.name:
                return self._numbered(kind, value.data, entry, at)
            given = not entry.module.name and entry.name in self.session.options.params
            if given and (kind == BOOL or isinstance(kind, EnumType)):
                return cast(value, kind, at)  # the command line knows numbers only
            # A color that the layout did not give to <memcpy/get_params> is a field without a value there.
            if decl.value is None or kind is None or value.type != VOID or kind == VOID:
                return self.convert(uniform(value, self.level), kind, at, f"the value of param '{entry.name}'")
        if decl.value is None:
            top = not entry.module.name
            here = f"--params {entry.name}:..."
            hint = f"give one with {here}" if top else f"bind it where the file is used: .{{ .{entry.name} = ... }}"
            if not top and not decl.span.source.is_library:
                hint += f"; of wse csl call {here}"
            site = entry.module.site
            if site is not None and decl.span.source.is_library:
                raise Fault(f"the param '{entry.name}' of {entry.module.source.name} has no value", site, hint)
            notes = () if site is None else (("imported here", site),)
            raise Fault(f"the param '{entry.name}' has no value", decl.span, hint, notes)
        value = self.known(decl.value, scope, f"the default of param '{entry.name}'")
        if value.type.words == 0 and kind is not None and kind.words != 0:
            return value  # `param x: T = {}` is void until somebody binds it
        return self.convert(value, kind, decl.value.span, f"the default of param '{entry.name}'")

    def _numbered(self, kind: IdType, number: int, entry: Global, at: Span) -> Value:
        """Return a color or id that the command line gives as a number."""
        if entry.name not in self.session.options.params or kind != IdType("color"):
            return self.convert(integer(number), kind, at, f"the value of param '{entry.name}'")
        if not 0 <= number < MOST_COLORS:
            raise Fault(f"{number} is no color; there are 0 to {MOST_COLORS - 1}", at)
        return Value(kind, number)

    def _color(self, entry: Global, decl: n.ColorDecl, scope: Scope, span: Span) -> Value:
        color = IdType("color")
        bound = entry.module.bindings.get(entry.name)
        if bound is not None:
            value, at = bound
            return Value(color, value.data) if value.type != color else self.convert(value, color, at)
        if decl.value is None:
            raise Fault(f"the color '{entry.name}' has no number", decl.span, f"const {entry.name} = @get_color(N);")
        value = self.scalar(decl.value, scope, "a color")
        return Value(color, value.data) if value.type == COMPTIME_INT else self.convert(value, color, decl.value.span)

    def _declared(self, entry: Global, decl: n.VarDecl, scope: Scope) -> None:
        """Evaluate a ``const`` or ``var``."""
        kind = self.type(decl.type, scope) if decl.type is not None else None
        name = entry.module.path_of(entry.name)
        if decl.begins_with is None or decl.value is None:
            if kind is None:
                raise Fault(f"'{entry.name}' has neither type nor value", decl.span)
            self._memory(entry, decl, kind, None, scope)
            return
        if kind is not None and decl.kind == "var" and kind.words is not None:
            # Known before the value, so that a function in the value may name the variable.
            entry.type = kind
        outer, self.naming = self.naming, name
        try:
            value = self.expr(decl.value, scope)
        finally:
            self.naming = outer
        if isinstance(value, tree.Expr):
            value = self.settle(value, decl.value.span, f"the value of '{entry.name}'")
        value = self.convert(uniform(value, self.level), kind, decl.value.span, f"the value of '{entry.name}'")
        if decl.kind == "const":
            entry.value = value
            if decl.attributes or decl.storage:
                self._memory(entry, decl, value.type, value, scope)
            return
        if value.type == COMPTIME_INT:
            value = self._default_integer(value, decl)
        self._memory(entry, decl, value.type, copied(value), scope)

    def _linked(self, entry: Global, decl: n.VarDecl | n.FnDecl, scope: Scope) -> Global:
        """Return what another file of the program exports under the name of an ``extern`` declaration."""
        self.lasting = False  # what a program exports depends on what it imports
        found = [module.globals[entry.name] for module in self._modules() if exports(module, entry.name)]
        if not found:
            hint = f"write `export` before the declaration of '{entry.name}' in another file of the program"
            raise Fault(f"no file of this program exports '{entry.name}'", decl.span, hint)
        notes = tuple(("exported here", other.decl.span) for other in found)
        if len(found) > 1:
            raise Fault(f"'{entry.name}' is exported {len(found)} times", decl.span, "give them different names", notes)
        target = found[0]
        value = self.resolve(target, decl.span)
        if isinstance(decl, n.FnDecl):
            kind = self.function(entry.module, decl).type
        elif decl.type is not None:
            kind = self.type(decl.type, scope)
        else:
            raise Fault(f"the extern '{entry.name}' has no type", decl.span, f"write {entry.name}: {value.type}")
        if decl.kind != target.decl.kind or kind != value.type:
            what = f"'{entry.name}' is declared as {decl.kind} {kind}, but exported as {target.decl.kind} {value.type}"
            raise Fault(what, decl.span, "declare it alike in both files", notes)
        return target

    def _modules(self) -> list[Module]:
        """Return the modules of a program: the file itself and whatever it imports."""
        found: list[Module] = self.unit.ready[:1] if self.unit.kind == "program" else []
        for module in found:
            for entry in module.globals.values():
                if isinstance(entry.decl, n.VarDecl) and is_import(entry.decl) and entry.state != "busy":
                    value = self.resolve(entry, entry.decl.span)
                    if isinstance(value.data, Module) and value.data not in found:
                        found.append(value.data)
        return found

    def _default_integer(self, value: Value, decl: n.VarDecl) -> Value:
        """Return the initial number of a global ``var`` without a type."""
        self.report.warn(f"'{decl.name}' has no type; i16 is taken", decl.span, f"write var {decl.name}: i16 = ...")
        return self.convert(value, I16, decl.span)

    def _memory(self, entry: Global, decl: n.VarDecl, kind: Type, value: Value | None, scope: Scope) -> None:
        """Give a global a place in memory."""
        if kind.words is None and not str(kind).endswith("_dsd"):
            raise Fault(f"a var cannot have the type {kind}: it exists at compile time only", decl.span, "use const")
        check_size(kind, self.unit.kind == "program", decl.span)
        align = section = None
        for attribute in decl.attributes:
            if attribute.name == "align":
                align = self.number(attribute.value, scope, "the alignment")
                if align <= 0 or align & align - 1:
                    raise Fault(f"an alignment of {align}: it must be a power of two", attribute.value.span)
            elif attribute.name == "linksection":
                section = self.text(attribute.value, scope, "the section")
        symbol = entry.module.path_of(entry.name)
        made = tree.Variable(
            symbol, kind, decl.kind == "const", value, decl.span, align, section, decl.storage == "export"
        )
        entry.variable, entry.type, entry.own = made, kind, True

    def variable_of(self, entry: Global, span: Span) -> tree.Variable:
        """Return the memory of a global; a const gets some when its address is first needed."""
        if entry.state != "done":
            self._begin(entry, span)
        if entry.value.__class__ is Global:
            self.need(entry)
            return self.variable_of(entry.value, span)
        if entry.variable is None:
            value = entry.value
            if value.__class__ is not Value or value.type.words is None:
                raise Fault(f"'{entry.name}' of type {value.type} has no address", span)
            symbol = entry.module.path_of(entry.name)
            entry.variable = tree.Variable(symbol, value.type, True, value, entry.decl.span)
        self.need((entry,))
        return entry.variable

    def function(self, module: Module, decl: n.FnDecl) -> Value:
        """Return a function or task as a value; its type is worked out where nothing generic is in it."""
        found = FunctionValue(decl, module)
        scope = module.scope
        assert scope is not None
        if not is_generic(decl):
            params = tuple(self.type(param.type, scope) for param in decl.params)
            found.type = FnType(decl.kind, params, self.type(decl.result, scope))
            return Value(found.type, found)
        found.type = FnType(decl.kind, (), VOID)
        return Value(found.type, found)

    def import_module(self, name: str, importer: Module, bindings: dict[str, Any], span: Span) -> Value:
        """Return a new instance of a module."""
        if len(importer.chain) > MOST_IMPORTS:
            raise self._circle(importer, span)
        path = self.session.find(name, importer.source, span)
        earlier = self.unit.earlier
        self.lasting = self.lasting and bool(self.naming)
        if earlier is not None and self.naming:
            module = earlier.module(self.session, path, self.naming, bindings)
        else:
            module = self.session.module(path, self.naming, bindings)
        module.chain, module.site = (*importer.chain, importer.source.name), span
        for given, (_, at) in bindings.items():
            entry = module.globals.get(given)
            unknown = entry is None or not isinstance(entry.decl, (n.ParamDecl, n.ColorDecl))
            if unknown and not module.builtin:
                self.report.warn(f"{module.source.name} has no param '{given}'", at)
        self.need(module)
        return Value(MODULE, module)

    def _circle(self, importer: Module, span: Span) -> Fault:
        """Return the fault for imports that come back to where they began."""
        chain = [*importer.chain, importer.source.name]
        again = next((k for k in range(len(chain) - 2, -1, -1) if chain[k] == chain[-1]), 0)
        files = " imports ".join(chain[again:])
        return Fault(f"imports go in a circle: {files}", span, "import what both need from a third file")


def exports(module: Module, name: str) -> bool:
    """Whether a module has a declaration with ``export`` of this name."""
    entry = module.globals.get(name)
    return entry is not None and isinstance(entry.decl, (n.FnDecl, n.VarDecl)) and entry.decl.storage == "export"


def is_import(decl: n.VarDecl) -> bool:
    """Whether a global is made by importing a module."""
    if decl.imports is None:
        decl.imports = decl.value is not None and any(
            isinstance(node, n.Builtin) and node.name == "@import_module" for node in n.walk(decl.value)
        )
    return decl.imports


def is_generic(decl: n.FnDecl) -> bool:
    """Whether the types of a function depend on what it is called with."""
    if decl.generic is None:
        decl.generic = _depends(decl)
    return decl.generic


def _depends(decl: n.FnDecl) -> bool:
    names = {param.name for param in decl.params}
    for node in (*(param.type for param in decl.params), decl.result):
        for inner in n.walk(node):
            if isinstance(inner, n.Name) and (inner.name in names or inner.name in ("anytype", "comptime_struct")):
                return True
    return any(param.comptime for param in decl.params)
