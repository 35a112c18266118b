"""Types that users see: what is annotated, what the stubs of compiled modules promise."""

from __future__ import annotations

import ast
import tomllib

import pytest

from fabric.engine.engine import Engine
from tests.conftest import ROOT

FACES = (
    "fabric/engine/engine.pyi",
    "fabric/host/copies.py",
    "fabric/host/debug.py",
    "fabric/host/fabric.py",
    "fabric/host/result.py",
    "fabric/host/streams.py",
    "fabric/kernels/kit/kernel.py",
    "fabric/layout/layout.py",
    "fabric/layout/rectangles.py",
    "memx/coordinator.py",
    "memx/optimizer.py",
    "memx/parameter.py",
    "memx/pattern.py",
    "memx/store.py",
    "memx/tiers.py",
    "swarm/cluster/cluster.py",
    "swarm/cluster/layer_costs.py",
    "swarm/cluster/timeline.py",
    "swarm/oracle.py",
    "swarm/planes.py",
    "swarm/system.py",
    "swarm/timing.py",
    "swarm/tree.py",
    "traces/marks.py",
    "traces/reader.py",
    "traces/run_format.py",
    "traces/trace.py",
    "traces/writer.py",
    "wse_core/errors/base.py",
    "wse_core/errors/faults.py",
    "wse_core/errors/files.py",
    "wse_core/errors/refusals.py",
    "wse_core/events.py",
    "wse_core/numerics.pyi",
    "wse_core/params.py",
)
"""Modules that users touch: every public function and method of these is annotated in full."""


with open(ROOT / "pyproject.toml", "rb") as _stream:
    OVERRIDES = tomllib.load(_stream)["tool"]["mypy"]["overrides"]
TYPED = {name.removesuffix(".*") for each in OVERRIDES if each["disallow_untyped_defs"] for name in each["module"]}
LEFT = {name for each in OVERRIDES if not each["disallow_untyped_defs"] for name in each["module"]}
"""Packages in which the type checker refuses an untyped function, and the modules that it leaves out of them."""


def modules_of(packages):
    """Return {dotted name: path} of the Python modules of packages."""
    found = {}
    for package in packages:
        for path in sorted((ROOT / package.replace(".", "/")).rglob("*.py")):
            found[".".join(path.relative_to(ROOT).with_suffix("").parts)] = path
    return found


@pytest.mark.parametrize("name", sorted(modules_of(TYPED).keys() - LEFT))
def test_typed_packages_are_annotated_in_full(name):
    assert unannotated(modules_of(TYPED)[name]) == []


def test_what_is_typed_does_not_shrink():
    """Packages are added here when they are annotated in full."""
    rooms = ("cli", "config", "docs", "figures", "jobs", "kit", "train")
    assert {"fabric", "memx", "swarm", "traces", *(f"harness.{room}" for room in rooms)} <= TYPED
    assert set() == LEFT


def functions(path):
    """Yield (name, node) of the public functions and methods of a module that stand outside of functions."""

    def walk(body, prefix):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if not node.name.startswith("_") or node.name == "__init__":
                    yield prefix + node.name, node
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from walk(node.body, f"{node.name}.")

    return walk(ast.parse(path.read_text(encoding="utf-8")).body, "")


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


@pytest.mark.parametrize("name", FACES)
def test_what_users_touch_is_annotated(name):
    assert unannotated(ROOT / name) == []


def test_gaps_are_seen(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("class A:\n    def f(self, a: int, *b): ...\n    def _g(self, x): ...\n", encoding="utf-8")
    assert unannotated(path) == [("A.f", ["b", "return"])]


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
