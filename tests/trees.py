"""Statements of a source file, for tests that read sources: what stands where, without a look into expressions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

__all__ = ["BODIES", "FUNCTIONS", "statements"]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(nodes: Iterable[ast.AST], at_load: bool = True, for_types: bool = False) -> Iterator[tuple]:
    """Yield (statement, at_load_time, for_types_only) for each of some statements and for all below them.

    Imports and functions are statements, and nine of ten nodes of a file are expressions: this is a tenth of the work
    of `ast.walk`.
    """
    for node in nodes:
        yield node, at_load, for_types
        types = for_types or (isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING")
        for name in BODIES:
            yield from statements(getattr(node, name, ()), at_load and not isinstance(node, FUNCTIONS), types)
