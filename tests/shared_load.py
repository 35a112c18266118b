"""Processes of one run that load the same files share the work of the first time.

In a fresh checkout nothing is kept yet: assertions of some four hundred files are rewritten, as many modules are
translated to bytecode, and Hypothesis reads the constants of the sources, twice as much work as all of collecting.
Every process would do all of that at the same time.  Here each does its share first; what a process does is kept in
files, which the others then read.  A run in one process, and one of a few files, has nothing to share.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from pathlib import Path

import pytest

__all__ = ["pytest_collection", "pytest_collection_modifyitems"]

ROOT = Path(__file__).resolve().parent.parent


def share(config, things):
    """Return each n-th one for the n-th process; none where there is only one."""
    if not hasattr(config, "workerinput"):
        return []
    number, count = int(config.workerinput["workerid"].removeprefix("gw")), config.workerinput["workercount"]
    return things[number::count] if count > 1 else []


def asked(config):
    """Return names of the modules of tests that will be collected, as the command line names directories."""
    places = [(config.invocation_params.dir / text.partition("::")[0]).resolve() for text in config.args]
    files = sorted({file for place in places if place.is_dir() for file in place.rglob("test_*.py")})
    return [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if file.is_relative_to(ROOT)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    """Import a share of the modules; one that cannot be imported, or warns, is left to collection, which says so."""
    for name in share(session.config, asked(session.config)):
        with warnings.catch_warnings(), contextlib.suppress(Exception, pytest.skip.Exception):
            warnings.simplefilter("error")
            importlib.import_module(name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config):
    """Read the constants of a share of the sources before Hypothesis wants those of all."""
    try:
        from hypothesis.internal.constants_ast import constants_from_module, is_local_module_file
    except ImportError:  # nothing that the library promises; it reads them by itself then
        return
    modules = [(str(getattr(module, "__file__", None)), module) for module in list(sys.modules.values())]
    sources = sorted((file, module.__name__) for file, module in modules if file.endswith(".py"))
    for _file, name in share(config, [one for one in sources if is_local_module_file(one[0])]):
        constants_from_module(sys.modules[name])
