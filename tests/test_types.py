"""Types that users see: what is annotated, what the stubs of compiled modules promise."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from typing import get_args

import pytest

from fabric.engine.engine import Engine
from harness.kit.modules import OWN_PACKAGES
from tests.conftest import ROOT
from tests.trees import BODIES

PACKAGES = (*OWN_PACKAGES, "tools")

with open(ROOT / "pyproject.toml", "rb") as _stream:
    MYPY = tomllib.load(_stream)["tool"]["mypy"]


def test_the_checker_looks_at_every_package_in_full():
    assert set(MYPY["files"]) == set(PACKAGES)
    assert all(MYPY[rule] for rule in ("disallow_untyped_defs", "disallow_incomplete_defs", "check_untyped_defs"))
    for row in MYPY["overrides"]:  # of libraries alone, which are not read
        assert set(row) == {"module", "follow_imports"}
        assert not {name.split(".")[0] for name in row["module"]} & set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_function_is_annotated_in_full(package):
    """The checker says so too; this needs no checker."""
    paths = [*(ROOT / package).rglob("*.py"), *(ROOT / package).rglob("*.pyi")]
    found = {path.relative_to(ROOT).as_posix(): unannotated(path) for path in paths}
    assert {path: missing for path, missing in found.items() if missing} == {}


def functions(path):
    """Yield (name, node) of all functions and methods of a module."""

    def walk(parent, prefix):
        for node in (node for body in BODIES for node in getattr(parent, body, ())):
            name = prefix
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{prefix}{node.name}."
                if not isinstance(node, ast.ClassDef):
                    yield prefix + node.name, node
            yield from walk(node, name)

    return walk(ast.parse(path.read_text(encoding="utf-8")), "")


def gaps(node):
    """Return what a function leaves without annotation: names of parameters, and ``return``."""
    args = node.args
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    named += [arg for arg in (args.vararg, args.kwarg) if arg]
    missing = [arg.arg for arg in named if arg.annotation is None and arg.arg not in ("self", "cls")]
    return missing + (["return"] if node.returns is None and node.name != "__init__" else [])


def unannotated(path):
    """Return [(function, its gaps)] of a module."""
    return [(name, missing) for name, node in functions(path) if (missing := gaps(node))]


def test_gaps_are_seen(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        "class A:\n    def f(self, a: int, *b): ...\n    def _g(self) -> None:\n        def h(x) -> int: ...\n",
        encoding="utf-8",
    )
    assert unannotated(path) == [("A.f", ["b", "return"]), ("A._g.h", ["x"])]


def choices(node):
    """Yield (parameter, words that its docstring gives as choices, words of its annotation) of a function."""
    text = ast.get_docstring(node) or ""
    for arg in [*node.args.args, *node.args.kwonlyargs]:
        said = re.search(rf"^{arg.arg} : \{{(.*?)\}}", text, re.MULTILINE)
        if said:
            yield arg.arg, set(ast.literal_eval(f"[{said[1]}]")), arg.annotation


HANDED_OUT = (
    "fabric/host/fabric.py", "fabric/host/recording.py", "fabric/program/program.py", "fabric/program/tasks.py",
    "fabric/program/operations.py", "fabric/program/flow.py", "fabric/program/scalar.py", "fabric/program/dsrs.py",
    "fabric/layout/layout.py", "harness/train/trainer.py", "harness/train/pipelined.py", "traces/trace.py",
)  # fmt: skip
"""Modules of the classes that `wse` hands out."""


@pytest.mark.parametrize("path", HANDED_OUT)
def test_choices_are_types_that_a_checker_knows(path):
    """What a docstring gives as ``{"one", "other"}`` is a `Literal` of the same words, or an alias of one."""
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = 0
    for owner in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
        for node in (node for node in owner.body if isinstance(node, ast.FunctionDef)):
            if node.name == "__init__":
                node.body.insert(0, ast.Expr(ast.Constant(ast.get_docstring(owner) or "")))
            for name, words, annotation in choices(node):
                source = ast.unparse(annotation).removesuffix(" | None")
                assert set(get_args(eval(source, vars(module)))) == words, (node.name, name)
                found += 1
    assert found


@pytest.mark.parametrize(("stub", "owner"), [("fabric/engine/engine.pyi", Engine)], ids=["Engine"])
def test_a_stub_has_what_the_compiled_class_has(stub, owner):
    """Public members of the class and of its stub are the same."""
    tree = ast.parse((ROOT / stub).read_text(encoding="utf-8"))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner.__name__)
    promised = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    promised |= {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    public = {name for name in vars(owner) if not name.startswith("_")}
    assert {name for name in promised if not name.startswith("_")} == public
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            assert gaps(node) == [], node.name
