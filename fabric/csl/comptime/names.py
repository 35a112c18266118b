"""Some names have a meaning everywhere, and misspelt ones get a guess."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from fabric.csl.comptime.values import DIRECTIONS, FALSE, TRUE, Scope, Value
from fabric.csl.types import DIRECTION, PREDEFINED

__all__ = ["CONSTANTS", "closest"]

CONSTANTS = {"true": TRUE, "false": FALSE, **{name: Value(DIRECTION, i) for i, name in enumerate(DIRECTIONS)}}


def closest(name: str, scope: Scope | None, others: Iterable[str] = ()) -> str | None:
    """Return the known name that looks most like a misspelt one, or None."""
    known = list(others)
    if scope is not None:
        known += [*PREDEFINED, *CONSTANTS, *scope.module.globals]
        here: Scope | None = scope
        while here is not None:
            known += here.names
            here = here.parent
    found = difflib.get_close_matches(name, known, 1, 0.75)
    return found[0] if found else None
