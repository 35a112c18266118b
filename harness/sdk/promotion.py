"""Host scripts compute with scalars as NumPy 1 did, which they were written for.

There ``np.uint16(5) << 16`` is 327,680, since a scalar of NumPy and a Python int become an int64 together; NumPy 2
keeps the 16 bits and says 0.  Scripts put time stamps of three 16-bit words together in that way, so all cycles above
65,535 would be printed wrong.  The source of a script, and of modules beside it, is compiled with each operator of two
numbers passed through `promoted`.  Arrays, and scalars among themselves, have the same rules in both.
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any

import numpy as np

__all__ = ["compiled", "promoted", "scripted"]

HOOK = "__wse_promoted__"
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.LShift, ast.BitOr, ast.BitXor)
"""These operators can leave the 16 or 32 bits of an operand."""


def promoted(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two operands: a scalar of NumPy beside a Python int as int64, anything else as it is."""
    if isinstance(left, np.integer) and type(right) is int and left.dtype.itemsize < 8:
        return np.int64(left), right
    if isinstance(right, np.integer) and type(left) is int and right.dtype.itemsize < 8:
        return left, np.int64(right)
    return left, right


class _Operators(ast.NodeTransformer):
    """The transformer makes ``(lambda x: x[0] + x[1])(promoted(a, b))`` of ``a + b``."""

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        return node  # a pattern is no expression

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, OPERATORS) or all(isinstance(x, ast.Constant) for x in (node.left, node.right)):
            return node
        pair = ast.Call(ast.Name(HOOK, ast.Load()), [node.left, node.right], [])
        taken = [ast.Subscript(ast.Name("x", ast.Load()), ast.Constant(k), ast.Load()) for k in (0, 1)]
        names = ast.arguments(posonlyargs=[], args=[ast.arg("x")], kwonlyargs=[], kw_defaults=[], defaults=[])
        whole = ast.Call(ast.Lambda(names, ast.BinOp(taken[0], node.op, taken[1])), [pair], [])
        for part in ast.walk(whole):
            if not hasattr(part, "lineno"):
                ast.copy_location(part, node)
        return ast.fix_missing_locations(whole)


def compiled(source: bytes | str, path: str) -> CodeType:
    """Compile a script; it finds `promoted` among the builtins of `scripted`."""
    return compile(_Operators().visit(ast.parse(source, path)), path, "exec")


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module that lies beside a script; no compiled file is read or left."""

    def get_code(self, fullname: str) -> CodeType:
        return compiled(self.get_data(self.path), self.path)


class _Beside(importlib.abc.MetaPathFinder):
    """Finds modules in the directory of a script."""

    def __init__(self, home: str) -> None:
        self.home = home

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for place in [self.home] if path is None else path:
            if os.path.abspath(place).startswith(self.home):
                finder = importlib.machinery.FileFinder(place, (_Loader, importlib.machinery.SOURCE_SUFFIXES))
                spec = finder.find_spec(fullname)
                if spec is not None and spec.loader is not None:
                    return spec
        return None


@contextmanager
def scripted(path: str) -> Iterator[None]:
    """Have modules beside a script compiled as the script is, inside of a block."""
    finder = _Beside(os.path.dirname(os.path.abspath(path)))
    sys.meta_path.insert(0, finder)
    setattr(builtins, HOOK, promoted)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        delattr(builtins, HOOK)
