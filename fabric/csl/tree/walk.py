"""Walking over the typed tree."""

from __future__ import annotations

from collections.abc import Iterator
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
            for kind in type(node).__mro__:
                for name in getattr(kind, "__slots__", ()):
                    if name not in ("span", "type", "function"):
                        stack.append(getattr(node, name))
