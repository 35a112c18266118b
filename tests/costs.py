"""CPU seconds of tests, as ``tests/costs.json`` has them, and what follows: which files begin first, what is quick.

``WSE_COSTS=tests/costs.json make test`` measures them anew and writes the file: per function, all its parameters and
its child processes included, those above half a second.  A test that is not named there counts as short.  What tests of
a module share is made for the first that runs: such fixtures have lines of their own.
"""

from __future__ import annotations

import collections
import json
import os
from pathlib import Path

import pytest

from tests.examples import PROFILES

__all__ = ["COSTS", "cost_of_file", "is_long"]

COSTS = json.loads(Path(__file__).with_name("costs.json").read_text(encoding="utf-8"))
LEAST = 0.5
"""Seconds: shorter ones are not kept in the file, and longer ones are left out of `make quick`."""
QUICK = PROFILES["smoke"][1] / PROFILES["ci"][1]
"""Share of the examples of a property that `make quick` tries."""

_files: collections.Counter[str] = collections.Counter()
for _name, _seconds in COSTS.items():
    _files[_name.partition("::")[0]] += _seconds
_used: collections.Counter[str] = collections.Counter()
_shared: collections.Counter[str] = collections.Counter()
_made = 0.0  # CPU seconds of all fixtures of modules
_seen = sum(os.times()[:4])


def cost_of_file(item: pytest.Item) -> float:
    """Return the seconds of the long tests in the file of a test."""
    return _files[item.nodeid.partition("::")[0]]


def is_long(item: pytest.Item) -> bool:
    """Whether a test has no place between two edits."""
    file = item.nodeid.partition("::")[0]
    if any(COSTS.get(f"{file}::{name}", 0.0) >= LEAST for name in getattr(item, "fixturenames", ())):
        return True
    share = QUICK if getattr(getattr(item, "obj", None), "is_hypothesis_test", False) else 1.0
    return COSTS.get(item.nodeid.partition("[")[0], 0.0) * share >= LEAST


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Note what a fixture of a module takes, those that it asks for left out."""
    global _made
    if fixturedef.scope != "module":
        return (yield)
    begun, before = sum(os.times()[:4]), _made
    try:
        return (yield)
    finally:
        whole = sum(os.times()[:4]) - begun
        _shared[f"{request.node.nodeid}::{fixturedef.argname}"] += whole - (_made - before)
        _made = before + whole


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Tell with each report what the process and its children have used since the one before."""
    global _seen
    report = yield
    now = sum(os.times()[:4])
    report.shared = dict(_shared)
    report.cpu, _seen = now - _seen - sum(_shared.values()), now
    _shared.clear()
    return report


def pytest_runtest_logreport(report):
    """Add up what was used, in the process that writes the file; a process that died has not said it."""
    _used[report.nodeid.partition("[")[0]] += getattr(report, "cpu", 0.0)
    _used.update(getattr(report, "shared", {}))


def pytest_sessionfinish(session):
    """Write the file."""
    if not hasattr(session.config, "workerinput"):
        kept = {name: round(seconds, 1) for name, seconds in sorted(_used.items()) if seconds >= LEAST}
        Path(os.environ["WSE_COSTS"]).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
