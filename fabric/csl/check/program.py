"""A file becomes a `Compilation`: its layout, and one `CheckedProgram` per class of PEs that needs one of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from fabric.csl.check.checker import Checker
from fabric.csl.comptime.earlier import Earlier
from fabric.csl.comptime.globals import is_import
from fabric.csl.comptime.interpreter import Interpreter
from fabric.csl.comptime.layout import LayoutDescription, bind_params, evaluate, layout_block
from fabric.csl.comptime.session import CompilerSession, Options
from fabric.csl.comptime.units import FILTERS, ProgramUnit
from fabric.csl.comptime.values import FAULTY, FunctionValue, Module, Scope, frozen
from fabric.csl.diagnostics import CslError, Diagnostic, Fault, Report, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.tree import Function as TypedFunction
from wse_core.errors import ConfigError

__all__ = ["CheckedProgram", "Compilation", "check_file", "room"]

FRAMES = 10_000
"""The evaluator may take so many frames of Python."""


@dataclass(eq=False)
class CheckedProgram:
    """A `CheckedProgram` is a PE program after checking: what it sets up, its functions and its variables.

    Attributes
    ----------
    unit : ProgramUnit
        What its comptime blocks set up: tasks, queues, colors, exports, loads.
    functions : list of tree.Function
        Every function and task that can run, callees before callers.
    entries : dict
        Per function value that is a root (task, export, handler) its checked form.
    variables : list of tree.Variable
        Every global that code or the host can reach, in the order in which they were met.
    """

    unit: ProgramUnit
    functions: list[TypedFunction]
    entries: dict[int, TypedFunction]
    variables: list[Any]


@dataclass(eq=False)
class Compilation:
    """A `Compilation` is a file after checking: its layout and its programs.

    Attributes
    ----------
    path : pathlib.Path
        The file.
    layout : LayoutDescription or None
        None for a file without a layout block, which is one program.
    programs : list of CheckedProgram
        The different programs.
    program_of : list of int
        Per class of the layout the index of its program: classes share one if they agree in every param that is read.
    report : Report
        The messages.
    earlier : dict
        Per file of programs what they have found out one after the other.
    by_address : bool
        Whether a number became a pointer somewhere: it may lead to a register.
    beside : bool
        Whether words for the host leave while others still enter, as before SDK 1.0, whose module of copies it imports.
    """

    path: Path
    layout: LayoutDescription | None
    programs: list[CheckedProgram] = field(default_factory=list)
    program_of: list[int] = field(default_factory=list)
    report: Report = field(default_factory=Report)
    earlier: dict[Path, Earlier] = field(default_factory=dict)
    by_address: bool = False
    beside: bool = False


def check_file(path: str | Path, options: Options | None = None) -> Compilation:
    """Check a layout file with all programs that it names, or a file that is a program by itself.

    Parameters
    ----------
    path : path
        The file.
    options : Options, optional
        Params, import paths and the like.

    Returns
    -------
    Compilation

    Raises
    ------
    CslError
        If there is a mistake; it has all messages.
    ConfigError
        If the file cannot be read.
    """
    path = Path(path)
    session = CompilerSession(options or Options(), top=path)
    if not path.is_file():
        raise ConfigError("there is no such file", where=str(path))
    found = Compilation(path, None, report=session.report)
    with room(path):
        try:
            _check(session, found, path)
        except Fault as fault:
            session.report.fault(fault)
    session.report.check()
    return found


@contextmanager
def room(path: Path) -> Iterator[None]:
    """Let stages nest as deep as calls at compile time may; each takes about ten frames of Python.

    Raises
    ------
    CslError
        If a stage nests deeper all the same; it says where the stage was.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, FRAMES))
    try:
        yield
    except RecursionError as error:
        what = "the program nests deeper here than the compiler can follow"
        span = _reached(error.__traceback__)
        if span is None:
            raise ConfigError(what, where=str(path)) from None
        raise CslError([Diagnostic("error", what, span, "fewer calls or blocks inside of each other")]) from None
    finally:
        sys.setrecursionlimit(before)


def _reached(traceback: TracebackType | None) -> Span | None:
    """Return the place of the source that the innermost stage of a traceback was at."""
    found = None
    while traceback is not None:
        spans = (getattr(held, "span", None) for held in traceback.tb_frame.f_locals.values())
        found = next((span for span in spans if isinstance(span, Span)), found)
        traceback = traceback.tb_next
    return found


def _check(session: CompilerSession, found: Compilation, path: Path) -> None:
    """Check a file into a compilation."""
    try:
        _check_parts(session, found, path)
    finally:
        found.by_address = session.by_address
        found.beside = bool(session.renamed)


def _check_parts(session: CompilerSession, found: Compilation, path: Path) -> None:
    _, tree = session.load(path)
    if layout_block(tree) is None:
        module = session.module(path, "", {})
        bind_params(session, module)
        found.programs.append(_program(session, module, ProgramUnit()))
    else:
        found.layout = evaluate(session, path)
        session.report.check()
        _programs(session, found)


def _programs(session: CompilerSession, found: Compilation) -> None:
    """Check the programs of all classes; those that agree in what is read share one."""
    layout = found.layout
    assert layout is not None
    # Per file the sets of params that some program read, and per values of those the program.
    known: dict[Path, dict[frozenset[str], dict[Any, int]]] = {}
    whole: dict[Path, Path] = {}
    for index, cls in enumerate(layout.classes):
        path = whole.get(cls.path)
        if path is None:
            path = whole[cls.path] = cls.path.resolve()
        tables = known.setdefault(path, {})
        for names, table in tables.items():
            number = table.get(_key(layout, index, names))
            if number is not None:
                found.program_of.append(number)
                break
        else:
            earlier = found.earlier.setdefault(path, Earlier())
            earlier.begin()
            unit = ProgramUnit(names=layout.names, rectangle=(layout.width, layout.height), earlier=earlier)
            unit.filters = layout.filtered(index)
            x, y = layout.example(index)
            with session.report.recover():
                module = earlier.module(session, cls.path, "", dict(cls.params))
                program = _program(session, module, unit)
                _check_colors(session, layout, index, unit, (x, y))
                found.programs.append(program)
            names = frozenset(unit.params_read)
            tables.setdefault(names, {})[_key(layout, index, names)] = len(found.programs) - 1
            found.program_of.append(len(found.programs) - 1)
    _warn_of_names(session, found)


def _warn_of_names(session: CompilerSession, found: Compilation) -> None:
    """Say which names for the host no program offers, unless something is wrong anyway."""
    assert found.layout is not None
    if session.report.errors:
        return
    offered = {entry.name for program in found.programs for entry in program.unit.exports}
    for name, entry in found.layout.names.items():
        if name not in offered:
            session.report.warn(f"no program offers '{name}' to the host", entry.span, f'@export_symbol(..., "{name}")')


def _key(layout: LayoutDescription, index: int, names: frozenset[str]) -> tuple[Any, ...]:
    """Return what a class binds to some params."""
    params = layout.classes[index].params
    found = tuple((name, frozen(params[name][0])) for name in sorted(names) if name in params)
    return (*found, layout.filtered(index)) if FILTERS in names else found


def _check_colors(
    session: CompilerSession, layout: LayoutDescription, index: int, unit: ProgramUnit, at: tuple[int, int]
) -> None:
    """Refuse a color that both the layout and the program configure."""
    for color, (_, span) in unit.configs.items():
        grid = layout.routes.get(color)
        if grid is not None and ((layout.grid == index) & (grid >= 0)).any():
            what = f"color {color} is configured here and in the layout"
            session.report.fault(Fault(f"{what} (PE ({at[0]}, {at[1]}))", span))


def _program(session: CompilerSession, module: Module, unit: ProgramUnit) -> CheckedProgram:
    """Evaluate the comptime blocks of a program and check the code that they reach."""
    session.budget.begin()
    interpreter = Interpreter(session, unit)
    _set_up(interpreter, module)
    checker = Checker(interpreter)
    entries: dict[int, TypedFunction] = {}
    roots: list[FunctionValue] = [function for _, function, _ in unit.tasks.values()]
    roots += [entry.target for entry in unit.exports if isinstance(entry.target, FunctionValue)]
    roots += [function for function, _ in (*unit.teardown.values(), *unit.empty.values())]
    for root in roots:
        with session.report.recover():
            made = checker.root(root)
            entries[id(root.decl)] = made
    functions = checker.finish()
    _keep_exported(interpreter)
    return CheckedProgram(unit, functions, entries, unit.variables)


def _keep_exported(interpreter: Interpreter) -> None:
    """Evaluate what is declared with ``export``: the host can look at it, whoever else does."""
    for module in interpreter.unit.ready:
        for entry in module.globals.values():
            if isinstance(entry.decl, n.VarDecl) and entry.decl.storage == "export":
                with interpreter.report.recover():
                    interpreter.resolve(entry, entry.decl.span)


def _set_up(interpreter: Interpreter, module: Module) -> None:
    """Make the modules that a module imports, run their comptime blocks, then its own."""
    report, unit = interpreter.report, interpreter.unit
    if module in unit.ready:
        return
    unit.ready.append(module)
    for entry in list(module.globals.values()):
        if isinstance(entry.decl, n.VarDecl) and is_import(entry.decl):
            with report.recover():
                value = interpreter.resolve(entry, entry.decl.span)
                if isinstance(value.data, Module):
                    _set_up(interpreter, value.data)
    assert module.scope is not None
    for item in module.tree.items:
        if isinstance(item, n.ComptimeBlock):
            _comptime_block(interpreter, item.body, module)


def _comptime_block(interpreter: Interpreter, block: n.Block, module: Module) -> None:
    """Run a global comptime block; a statement that fails does not keep the next from being looked at."""
    scope = Scope(module, module.scope)
    for statement in block.body:
        try:
            interpreter.execute(statement, scope)
        except Fault as fault:
            interpreter.report.fault(fault)
            if isinstance(statement, n.VarDecl):
                scope.names.setdefault(statement.name, FAULTY)
