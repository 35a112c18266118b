"""What ``import wse`` hands out, what it does not load, and that no file of others' names stands in its way."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

import fabric
import wse
from tests.conftest import ROOT
from tests.pages import blocks
from wse_core.errors import TraceError

WHOLE = ("control", "debug", "errors", "price", "train")
"""Names that are modules."""


def test_importing_it_loads_none_of_its_parts():
    code = (
        "import sys, wse\n"
        "ours = ('fabric', 'wse', 'wse_core', 'traces', 'harness', 'numpy')\n"
        "print(sorted(m for m in sys.modules if m.partition('.')[0] in ours))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['wse']"]


def test_every_name_is_handed_out_and_listed_and_described():
    for name in wse.__all__:
        assert getattr(wse, name) is not None
        assert name in dir(wse)
        assert f"`{name}`" in wse.__doc__
    assert [name for name in fabric.__all__ if getattr(wse, name) is not getattr(fabric, name)] == []
    assert {name for name in wse.__all__ if inspect.ismodule(getattr(wse, name))} == set(WHOLE)
    assert wse.KERNELS["ping"].name == "ping"


def test_type_checkers_see_the_same_names_at_the_same_places():
    tree = ast.parse((ROOT / "wse" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert sorted([*seen, "open"]) == sorted(wse.__all__)
    for name, module in seen.items():
        whole = name in WHOLE
        assert (f"{module}.{name}" if whole else module) == (wse._HOME | fabric._HOME)[name]


def test_a_run_is_recorded_and_opened(tmp_path):
    program, layout = wse.Program("double"), wse.Layout(1, 1)
    a = program.array("a", 8, "f32", range(8))
    with program.task("main"):
        program.fadds(a, a, a)
    layout.place(program, 0, 0)
    board = wse.Fabric(layout)
    with wse.record(tmp_path / "run.h5", trace="events", fabric=board):
        board.launch("main")
        run = board.run()
    assert board.read("a", 0, 0).ravel().tolist() == [2.0 * k for k in range(8)]
    with wse.open(tmp_path / "run.h5") as trace:
        assert isinstance(trace, wse.Trace)
        assert trace.clock >= run.cycles > 0
    with pytest.raises(TraceError, match="no such file"):
        wse.open(tmp_path / "other.h5")


def test_the_first_program_of_the_readme_runs_from_a_directory_of_its_own(tmp_path, child_env):
    page = list(blocks(ROOT / "README.md"))
    program = next(block.body for block in page if block.language == "python")
    printed = next(block.body for block in page if block.language == "text")
    assert "`.venv/bin/python first.py`" in (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "first.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "first.py"], cwd=tmp_path, env=child_env, capture_output=True, text=True, check=True
    )
    assert done.stdout == printed


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Wafer'"):
        wse.Wafer  # noqa: B018
