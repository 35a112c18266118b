"""The table of builtins: name, number of arguments, when it may be called, who obeys it.

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
from typing import Any

from fabric.csl.diagnostics import Fault
from fabric.csl.syntax import nodes as n

__all__ = ["TABLE", "BuiltinSpec", "builtin"]

TABLE: dict[str, BuiltinSpec] = {}
PLACES = {
    "layout": "in a layout block",
    "setup": "in a comptime block of a PE program",
    "run": "in code that runs on a PE",
    "value": "in what an inline function gives",
}


@dataclass(frozen=True)
class BuiltinSpec:
    """A builtin.

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
    handler: Callable[[Any, n.Builtin, Any], Any]
    group: str
    meaning: str
    refused: bool = False

    def check(self, evaluator: Any, node: n.Builtin) -> None:
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
) -> Callable[[Callable[[Any, n.Builtin, Any], Any]], Callable[[Any, n.Builtin, Any], Any]]:
    """Return a decorator that enters a handler into the table."""

    def register(handler: Callable[[Any, n.Builtin, Any], Any]) -> Callable[[Any, n.Builtin, Any], Any]:
        TABLE[name] = BuiltinSpec(name, least, most, tuple(when.split()), handler, group, meaning)
        return handler

    return register
