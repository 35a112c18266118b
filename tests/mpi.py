"""Runs of processes under an MPI launcher, for tests; they are skipped where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

__all__ = ["MPIEXEC", "environment", "mpiexec", "needs_mpi"]

MPIEXEC = Path(sys.executable).with_name("mpiexec")


def _missing():
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        return "mpi4py is not installed"
    return "" if MPIEXEC.exists() else "no MPI launcher beside the interpreter"


needs_mpi = pytest.mark.skipif(bool(_missing()), reason=f"extra mpi: {_missing()}")


def environment():
    """Return the environment of ranks: modules of this tree, no fault handler or settings of the test run."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def mpiexec(size, *words, cwd=None):
    """Run ``python words`` on some ranks; return the completed process."""
    command = [str(MPIEXEC), "-n", str(size), sys.executable, *map(str, words)]
    return subprocess.run(command, env=environment(), cwd=cwd, capture_output=True, text=True, timeout=600)
