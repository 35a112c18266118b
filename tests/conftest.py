"""What all tests share: hypothesis profiles, the place of the sources, a way to run the command line.

The environment variable ``WSE_HYPOTHESIS`` selects how many examples a property test tries:

=======  ==============================================================================
smoke    5, for builds that are tens of times slower, and between two edits
quick    8, for the checked and the sanitizer build
dev      8 (default), other ones in every run
ci       8, the same ones in every run
soak     1,000, and all fixed cases
=======  ==============================================================================
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from _pytest.unraisableexception import gc_collect_iterations_key

import wse_core
from tests import costs, shared_load
from tests.examples import FIRST_FAILURE, PHASES, PROFILE, PROFILES

ROOT = Path(__file__).resolve().parent.parent

# Hundreds of processes import the sources: their bytecode is kept, whatever the environment says.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

SLOW_HOST = [hypothesis.HealthCheck.too_slow]
for name, (count, _) in PROFILES.items():
    hypothesis.settings.register_profile(
        name,
        max_examples=count,
        deadline=None,
        phases=PHASES,
        derandomize=name == "ci",
        suppress_health_check=SLOW_HOST,
        print_blob=True,
    )
hypothesis.settings.load_profile(PROFILE)


def pytest_configure(config):
    """Let `tests.costs` see what tests use if it is asked to, and processes share what is done once.

    What the end of a run would still complain of is looked for once instead of five times: a search through all that
    thousands of tests leave behind takes seconds, in each process.
    """
    config.stash[gc_collect_iterations_key] = 1
    if "WSE_COSTS" in os.environ:
        config.pluginmanager.register(costs)
    config.pluginmanager.register(shared_load)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put files that take long first, so that no process is left alone with one of them at the end; mark long tests.

    Where only the first failure is wanted, as `tests.faults` does, they come last.
    """
    for item in items:
        if costs.is_long(item):
            item.add_marker("long")
    items.sort(key=costs.cost_of_file, reverse=not FIRST_FAILURE)


def pytest_collection_finish():
    """Leave what was collected out of the search for garbage: it stays to the end, and is more than a test makes.

    What tests make is searched as seldom as in a command: programs are written object by object, which are no garbage
    yet.
    """
    from harness.cli.main import COLLECT_AFTER

    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


def pytest_sessionstart(session):
    """Refuse to test other sources than those beside the tests, such as an installed copy; heed Ctrl-C.

    A shell without job control has its background ignore Ctrl-C, and a child process does as its parent, so that tests
    that send one would wait for ever.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.fsync = lambda descriptor: None  # no file of a test has to survive a failure of power
    found = Path(wse_core.__file__).resolve().parent.parent
    if found != ROOT:
        pytest.exit(f"wse_core comes from {found}, the tests stand in {ROOT}; run python -m pytest there", returncode=4)


@pytest.fixture(scope="session")
def root():
    """Directory of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def child_env():
    """Environment for a child process that must import these sources from any directory."""
    env = {key: value for key, value in os.environ.items() if key not in ("WSE_DEBUG", "PYTHONPATH")}
    return env | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def wse(tmp_path, monkeypatch):
    """Run a command of ``wse`` in an empty directory, within this process; call it with the words of the command line.

    Returns what a finished process would give: `returncode`, and `stdout` and `stderr` as text.
    """
    from harness.cli import main as cli

    def run(*words, cwd=tmp_path):
        words, out, err = list(map(str, words)), io.StringIO(), io.StringIO()
        with monkeypatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.chdir(cwd)
            patch.delenv("WSE_DEBUG", raising=False)
            patch.setattr(sys, "stdin", io.StringIO())
            status = cli.main(words)
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def wse_process(tmp_path, child_env):
    """As `wse`, in a process of its own, which has imported nothing yet; it takes changes of the environment too."""

    def run(*words, env=None):
        return subprocess.run(
            [sys.executable, "-m", "harness", *map(str, words)],
            cwd=tmp_path,
            env=child_env | (env or {}),
            capture_output=True,
            text=True,
            check=False,
        )

    return run
