"""Builtins have a table: name, number of arguments, when one may be called, who obeys it.

=======  =============================================================
`when`   may be called
=======  =============================================================
any      everywhere; what it needs to know it asks for
layout   in a layout block and functions called from it
setup    in comptime blocks of a PE program
run      in code that runs on a PE
=======  =============================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabric.csl import tree
from fabric.csl.comptime.lanes import LaneValue
from fabric.csl.comptime.values import Scope, Value
from fabric.csl.diagnostics import Fault
from fabric.csl.syntax import nodes as n

if TYPE_CHECKING:
    from fabric.csl.comptime.interpreter import Interpreter

__all__ = ["TABLE", "BuiltinSpec", "Operand", "builtin"]

Operand = Value | LaneValue | tree.Expr
"""An `Operand` is what an expression gives: a number that is known, one per lane, or what is done at run time."""
TABLE: dict[str, BuiltinSpec] = {}
Handler = Callable[["Interpreter", n.Builtin, Scope], Operand]
PLACES = {
    "layout": "in a layout block",
    "setup": "in a comptime block of a PE program",
    "run": "in code that runs on a PE",
    "value": "in what an inline function gives",
}


@dataclass(frozen=True)
class BuiltinSpec:
    """A `BuiltinSpec` describes a builtin: its arguments, where it may be called, and what handles it.

    Attributes
    ----------
    name : str
    least, most : int
        How many arguments it takes; `most` is None without a limit.
    when : tuple of str
        Where it may be called, see the head.
    handler : callable
        ``handler(evaluator, node, scope)`` returns the operand.
    group : str
        The section of the documentation's table.
    meaning : str
        What it does, in a few words.
    refused : bool
        Whether it is only known in order to be refused.
    """

    name: str
    least: int
    most: int | None
    when: tuple[str, ...]
    handler: Handler
    group: str
    meaning: str
    refused: bool = False

    def check(self, evaluator: Interpreter, node: n.Builtin) -> None:
        """Refuse a call with a wrong number of arguments or at a wrong place."""
        given = len(node.arguments)
        if given < self.least or (self.most is not None and given > self.most):
            if self.most is None:
                wanted = f"at least {self.least}"
            elif self.least == self.most:
                wanted = str(self.least)
            else:
                wanted = f"{self.least} to {self.most}"
            plural = "" if wanted == "1" else "s"
            raise Fault(f"{self.name} takes {wanted} argument{plural}, not {given}", node.span)
        if "any" not in self.when and (place := evaluator.place) not in self.when:
            allowed = " or ".join(PLACES[entry] for entry in self.when)
            raise Fault(f"{self.name} stands {allowed}, not {PLACES[place]}", node.span)
        if "setup" in self.when:
            evaluator.lasting = False  # it does something, and has to do it for each program


def builtin(
    name: str, least: int, most: int | None, when: str, group: str, meaning: str
) -> Callable[[Handler], Handler]:
    """Return a decorator that enters a handler into the table."""

    def register(handler: Handler) -> Handler:
        TABLE[name] = BuiltinSpec(name, least, most, tuple(when.split()), handler, group, meaning)
        return handler

    return register
