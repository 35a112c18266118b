"""What the programs of a layout that came before have found out, and whether it still holds.

Programs of one file differ in a few params, and most of their globals and functions do not depend on them.  So a module
lives on from program to program: it is bound anew, and whatever was made of its names is asked for what it was made of
(`Global.needs`, in the order in which it was needed).  Where all of that is as it was, the value is; where a param
changed, the value is worked out again; if it is the same after all, what depends on it stays.  The same goes for
checked functions and for calls at compile time.  What a program gets of its own, such as its variables, it gets in the
order in which they are met (`ProgramUnit.meet`), which is the order in which working everything out would meet them.

Programs themselves do not change: what is made of a name that changed is made new.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabric.csl.comptime.session import CompilerSession
from fabric.csl.comptime.values import Global, Module, frozen

__all__ = ["Checked", "Earlier", "is_bound_alike", "is_same"]


@dataclass(eq=False, slots=True)
class Checked:
    """A `Checked` is what was made of a function or of a call: what it needs, and when that was last found to hold, and
    asked.
    """

    made: Any
    needs: dict[Any, None]
    held: int
    asked: int = 0


class Earlier:
    """An `Earlier` keeps the modules and functions of the programs of one file for those that follow.

    Attributes
    ----------
    round : int
        Counts the programs from 1 on.
    functions : dict
        Per key of an instance its `Checked`.
    calls : dict
        Per function and arguments of a call at compile time its result.
    worked_out : int
        How many globals and functions were worked out, in all rounds.
    """

    def __init__(self) -> None:
        self.round = 0
        self.functions: dict[Any, Checked] = {}
        self.calls: dict[Any, Checked] = {}
        self.worked_out = 0
        self._modules: dict[tuple[Path, str], Module] = {}
        self._bound: set[tuple[Path, str]] = set()

    def begin(self) -> None:
        """Begin with another program: everything has to be asked for anew."""
        self.round += 1
        self._bound.clear()
        for module in self._modules.values():
            for entry in module.globals.values():
                entry.state = "old" if entry.state in ("done", "old") else "new"

    def module(self, session: CompilerSession, path: Path, name: str, bindings: dict[str, Any]) -> Module:
        """Return the instance of a file under a name, bound anew.

        One of our own library is what it was made with: stages that come later ask it for its params.
        """
        key = path, name
        known = self._modules.get(key)
        again = known is not None and key not in self._bound
        if known is None or not again or (known.builtin and not _are_bound_alike(known.bindings, bindings)):
            known = session.module(path, name, bindings)
            self._modules[key] = known
        known.bindings = bindings
        self._bound.add(key)
        return known


def is_bound_alike(one: tuple[Any, Any] | None, other: tuple[Any, Any] | None) -> bool:
    """Whether two params are bound to the same; each is a value with its place, or None."""
    if one is None or other is None:
        return one is other
    return frozen(one[0]) == frozen(other[0])


def _are_bound_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(is_bound_alike(one[name], other[name]) for name in one)


def is_same(before: Global, now: Global) -> bool:
    """Whether a global, worked out again, has the value or the memory that it had."""
    if frozen(before.value) != frozen(now.value) or before.type != now.type:
        return False
    one, other = before.variable, now.variable
    if not (before.own or now.own):
        return True
    if one is None or other is None:
        return False
    return (one.type, one.align, one.section, frozen(one.initial)) == (
        other.type, other.align, other.section, frozen(other.initial),
    )  # fmt: skip
