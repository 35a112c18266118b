"""`nodes` walks over the typed tree."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from fabric.csl.tree.nodes import Expr, Statement

__all__ = ["nodes"]


def nodes(root: Any) -> Iterator[Any]:
    """Yield every node of a typed tree that can run."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, (list, tuple)):
            stack += node
        elif isinstance(node, dict):
            stack += node.values()
        elif isinstance(node, (Expr, Statement)):
            yield node
            stack += [getattr(node, name) for name in _parts(type(node))]  # type: ignore[arg-type]


@cache
def _parts(kind: type) -> list[str]:
    """Return which attributes of a class of nodes can hold nodes."""
    names = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    return [name for name in names if name not in ("span", "type", "function")]
