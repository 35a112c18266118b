"""The run-time library has functions of CSL for what the machine has no instruction for."""

from __future__ import annotations

from fabric.csl import tree
from fabric.csl.check.checker import Checker
from fabric.csl.comptime.interpreter import Interpreter
from fabric.csl.comptime.session import LIBRARY, CompilerSession
from fabric.csl.comptime.units import ProgramUnit
from fabric.csl.comptime.values import FunctionValue
from fabric.csl.diagnostics import Fault, Span

__all__ = ["Runtime"]


class Runtime:
    """A `Runtime` has the functions of ``library/runtime.csl``, checked when they are first needed."""

    def __init__(self, session: CompilerSession) -> None:
        self._module = session.module(LIBRARY / "runtime.csl", "runtime", {})
        self._interpreter = Interpreter(session, ProgramUnit())
        self._known: dict[str, tree.Function] = {}

    def function(self, name: str, span: Span) -> tree.Function:
        """Return a function by its name."""
        found = self._known.get(name)
        if found is None:
            entry = self._module.globals.get(name)
            if entry is None:
                raise Fault(f"the run-time library has no {name}", span)
            value = self._interpreter.resolve(entry, span)
            assert isinstance(value.data, FunctionValue)
            checker = Checker(self._interpreter)
            found = self._known[name] = checker.root(value.data)
            checker.finish()
        return found
