"""CONTRIBUTING.md says which files to touch for which change: each task is there, and so is each file that it names."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace

import pytest

from tests import costs
from tests.costs import COSTS, is_long

TASKS = {
    "Change the ramp's latency": "wse_core/numbers.py",
    "Add an ALU op": "wse_core/isa.py",
    "Add a collective": "fabric/kernels/registry.py",
    "New flag of a command": "tests/harness/cli/test_main.py",
    "New optimizer": "memx/optimizer.py",
    "New trace event": "wse_core/events.py",
    "New exporter": "traces/export/formats.py",
    "Add an operation of a network": "fabric/networks/graph/operations.py",
    "Add an attention variant": "fabric/networks/inference/attention.py",
    "Change the checkpoint format": "harness/train/checkpoint.py",
    "New machine preset": "wse_core/numbers.py",
    "New builtin of CSL": "fabric/csl/comptime/builtins/table.py",
    "New planner strategy": "harness/plan/registry.py",
}
"""Title of a task: a file that it cannot do without."""


@pytest.fixture(scope="module")
def tasks(root):
    """Title: files that the task names."""
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## To change X, touch these files\n")[1]
    parts = re.split(r"^### (.*)$", text.split("\n## ")[0], flags=re.MULTILINE)[1:]
    return {
        title: re.findall(r"`([a-z_]+/[\w./]+|[A-Z]+\.md|Makefile)`", body)
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def test_each_task_is_there(tasks):
    assert set(TASKS) <= set(tasks)


@pytest.mark.parametrize("title", TASKS)
def test_every_named_file_exists(tasks, root, title):
    assert TASKS[title] in tasks[title]
    assert [name for name in tasks[title] if not (root / name).exists()] == []


def test_tests_with_a_cost_exist(root):
    """A test that has gone, or has another name, leaves the file too."""
    gone = []
    for name in COSTS:
        path, _, function = name.partition("::")
        text = (root / path).read_text(encoding="utf-8") if (root / path).exists() else ""
        if f"def {function.rpartition('::')[2]}(" not in text:
            gone.append(name)
    assert gone == [], "WSE_COSTS=tests/costs.json make test"


def test_what_a_module_shares_is_long_for_each_of_its_tests(monkeypatch):
    """Whichever of them runs first makes it."""
    item = SimpleNamespace(nodeid="tests/a.py::test_b[c]", fixturenames=["made"], obj=None)
    assert not is_long(item)
    monkeypatch.setitem(COSTS, "tests/a.py::made", 3.0)
    assert is_long(item)
    item.fixturenames = []
    assert not is_long(item)
    monkeypatch.setitem(COSTS, "tests/a.py::test_b", 0.5)
    assert is_long(item)


def test_a_process_that_died_has_no_cost(monkeypatch):
    """What is told of its test then comes from elsewhere, and must not end the whole run."""
    used = Counter()
    monkeypatch.setattr(costs, "_used", used)
    costs.pytest_runtest_logreport(SimpleNamespace(nodeid="tests/a.py::test_b[c]"))
    costs.pytest_runtest_logreport(SimpleNamespace(nodeid="tests/a.py::test_b[d]", cpu=2.0, shared={"made": 1.0}))
    assert used == {"tests/a.py::test_b": 2.0, "made": 1.0}
