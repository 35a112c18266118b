"""Ranks as processes under MPI: the same results as in one process, and one end for all of them.

Borders and exchanges are tested without MPI in `test_ranks.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from harness.cli.main import main
from harness.report.facts import HOST
from tests.mpi import MPIEXEC, environment, mpiexec, needs_mpi
from traces.reader import RunFile

WORDS = ["-m", "harness", "kernel", "allreduce"]

STUCK = """
from fabric import Fabric, Layout, Program
from fabric.ranks.joined import joined

p = Program("waits")
a, q = p.array("a", 3, "f32"), p.input_queue(0, 3)
with p.task("main"):
    p.fmovs(a, p.fabin(q, 3))
layout = Layout(3, 4)
layout.place(p, 1, 0, 2, 4)
layout.route(3, (1, 0, 2, 4), "W", "R")
{joined}
    fabric = Fabric(layout)
    fabric.launch("main")
    fabric.run()
"""
"""A script whose PEs all wait for ever."""

BUSY = """
from fabric import Fabric, Layout, Program
from fabric.ranks.joined import joined

p = Program("busy")
a = p.array("a", 200, "f32")
with p.task("main"):
    p.fmuls(a, a, 1.0)
layout = Layout(3, 4)
layout.place(p, 0, 0, 3, 4)
with joined() as ranks:
    fabric = Fabric(layout)
    while True:
        fabric.launch("main")
        fabric.run()
        if fabric.cycle > 1000 and ranks.rank == 0:
            print("at it", flush=True)
"""
"""A script that works until somebody ends it."""


@needs_mpi
@pytest.mark.parametrize("size", [1, 3])
def test_a_kernel_over_ranks_gives_what_one_process_gives(size, capsys, tmp_path):
    words = ["allreduce", "width=20", "height=7", "n=30", "--json", "--out"]
    assert main(["kernel", *words, str(tmp_path / "one.h5")]) == 0
    alone = json.loads(capsys.readouterr().out)
    done = mpiexec(size, "-m", "harness", "kernel", *words, "many.h5", "--ranks", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["host_ranks"] == size
    for name in HOST:
        alone.pop(name, None)
        found.pop(name, None)
    assert found == alone
    with RunFile(tmp_path / "one.h5") as one, RunFile(tmp_path / "many.h5") as many:
        assert one.counters == many.counters != ()
        for name in one.counters:
            assert np.array_equal(one.counter(name).values, many.counter(name).values)


@needs_mpi
def test_a_deadlock_is_told_once_with_the_text_of_one_process(tmp_path):
    (tmp_path / "ranks.py").write_text(STUCK.format(joined="with joined() as ranks:"))
    (tmp_path / "alone.py").write_text(STUCK.format(joined="if True:"))
    done = mpiexec(3, "ranks.py", cwd=tmp_path)
    alone = mpiexec(1, "alone.py", cwd=tmp_path)
    assert done.returncode == alone.returncode == 1
    assert done.stderr.count("DeadlockError") == 1
    assert done.stderr.splitlines()[-1] == alone.stderr.splitlines()[-1]


@needs_mpi
def test_wrong_words_are_refused_once(tmp_path):
    for words in (["width=0"], ["--threads", "2"], ["--trace-window", "10"]):
        done = mpiexec(2, *WORDS, *words, "--ranks", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("wse: error:") == 1


def busy(tmp_path):
    """Start ranks that work for ever; return the launcher when they are at it."""
    (tmp_path / "busy.py").write_text(BUSY)
    command = [str(MPIEXEC), "-n", "2", sys.executable, "busy.py"]
    pipe = subprocess.PIPE
    launcher = subprocess.Popen(command, env=environment(), cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)
    assert launcher.stdout.readline() == "at it\n"
    return launcher


def ranks_of(launcher):
    """Return the processes of ranks: children of the launcher's proxy."""
    found = []
    for task in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = task.read_text().rpartition(")")[2].split()
            found.append((int(task.parent.name), int(words[1])))
    proxies = {pid for pid, parent in found if parent == launcher.pid}
    return [pid for pid, parent in found if parent in proxies]


def gone(pids):
    """Whether processes end before long."""
    for _ in range(6000):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.1)
    return False


@needs_mpi
@pytest.mark.parametrize("how", ["interrupt", "one rank is interrupted", "one rank is killed"])
def test_all_ranks_end_together(how, tmp_path):
    """Ctrl-C at the launcher, which it hands on; an end of one rank ends the other."""
    with busy(tmp_path) as launcher:
        pids = ranks_of(launcher)
        assert len(pids) == 2
        if how == "interrupt":
            launcher.send_signal(signal.SIGINT)
        else:
            os.kill(pids[1], signal.SIGKILL if "killed" in how else signal.SIGINT)
        told = launcher.communicate(timeout=600)[1]
        assert gone(pids)
    if how == "interrupt":
        assert told.count("\nKeyboardInterrupt") == 1, told
    said = re.findall(r"rank [01] of 2 ends all: KeyboardInterrupt", told)
    assert len(said) == (how == "one rank is interrupted"), told
