"""What ``from fabric import ...`` hands out, and what importing the package does not load."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import fabric
from tests.conftest import ROOT


def test_importing_the_package_loads_none_of_its_parts():
    code = (
        "import sys, fabric\n"
        "print(sorted(m for m in sys.modules if m.partition('.')[0] in ('fabric', 'wse_core', 'numpy')))\n"
        "from fabric import Program\n"
        "print('fabric.engine.engine' in sys.modules, 'fabric.host.fabric' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['fabric']", "False False"]


def test_every_name_is_handed_out_and_listed():
    for name in fabric.__all__:
        assert getattr(fabric, name) is not None
        assert name in dir(fabric)
    assert fabric.Program.__module__ == "fabric.program.program"
    assert fabric.price is sys.modules["fabric.price"]
    assert fabric.debug.Debugger.__name__ == "Debugger"
    assert fabric.machine("wse3").preset == "wse3"


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "fabric" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {}
    for node in block.body:
        for alias in node.names:
            whole = alias.name in ("control", "debug", "price")
            seen[alias.name] = f"{node.module}.{alias.name}" if whole else node.module
    assert seen == fabric._HOME
    assert sorted(seen) == sorted(fabric.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Wafer'"):
        fabric.Wafer  # noqa: B018
