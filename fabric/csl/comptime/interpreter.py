"""The `Interpreter` is the evaluator as a whole: expressions, globals, calls, statements, loops, builtins."""

from __future__ import annotations

from fabric.csl.comptime.builtins import BUILTINS
from fabric.csl.comptime.loops import Loops

__all__ = ["Interpreter"]


class Interpreter(Loops):
    """Evaluates and runs what is known at compile time.

    Parameters
    ----------
    session : fabric.csl.comptime.session.CompilerSession
        Options, messages, files.
    unit : fabric.csl.comptime.units.EvaluatedUnit
        What the builtins with effects fill: a layout or a program.
    """

    builtins = BUILTINS
