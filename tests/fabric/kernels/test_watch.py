"""How far a run of a kernel is, and what is left of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from fabric.host import running
from fabric.kernels.kit.watch import Status, Watch, watching
from fabric.kernels.registry import KERNELS
from fabric.layout.layout import Layout
from harness.cli import cmd_kernel
from harness.cli import main as cli
from wse_core.params import machine

CASES = {
    "gemm": {"p": 3, "m": 60, "k": 60, "n": 60},
    "gemm_t": {"p": 3, "m": 60, "k": 60, "n": 60},
    "gemv": {"p": 4, "m": 400, "n": 400},
    "gemv_chain": {"p": 4, "m": 300, "n": 300},
    "allreduce": {"width": 8, "n": 2000},
    "ws_forward": {"inputs": 90, "outputs": 60, "tokens": 24},
    "ws_gradient": {"inputs": 40, "outputs": 40},
    "stencil25": {"width": 5, "height": 4, "nz": 60, "steps": 30},
}


@pytest.mark.parametrize("name", CASES)
def test_runs_say_how_far_they_are_by_their_closed_forms(name, monkeypatch):
    monkeypatch.setattr(running, "PIECE_SECONDS", 0.0)  # the shortest pieces
    heard = []
    with watching(heard.append):
        result = KERNELS[name].run(machine(), **CASES[name])
    assert heard
    assert {status.expected for status in heard} == {result["expected_cycles"]}
    cycles = [status.cycles for status in heard]
    assert cycles == sorted(cycles)
    assert cycles[-1] <= result["run_cycles"]


def test_the_time_left_is_that_of_the_pace_lately():
    """A slow beginning does not count for ever."""
    heard = []
    watch = Watch(heard.append, lambda: 1000.0)
    for cycles, seconds in ((1, 1.0), (2, 2.0), (102, 3.0), (202, 4.0), (402, 6.0), (602, 8.0)):
        watch(cycles, seconds)
    assert [round(status.pace) for status in heard] == [1, 1, 50, 100, 100, 100]
    assert heard[-1].left == pytest.approx(3.98)
    assert Status(10, None, 1.0, 10.0).left is None
    assert Status(0, 100.0, 0.0, 0.0).left is None
    assert Status(120, 100.0, 1.0, 10.0).left == 0


def test_a_long_run_says_what_is_left(monkeypatch, capsys):
    monkeypatch.setattr(running, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(cmd_kernel, "LONG", 1e-9)
    words = ["kernel", "gemv", "p=4", "m=400", "n=400", "--json"]
    assert cli.main(words) == 0
    assert "of simulation are left" in capsys.readouterr().err
    assert cli.main([*words, "--no-progress"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(cmd_kernel, "LONG", 1e9)
    assert cli.main(words) == 0
    assert capsys.readouterr().err == ""


def test_long_preparations_are_said(monkeypatch, capsys):
    """Before a large run begins nothing is known of its time, but that something goes on."""
    prepared = Layout.build

    def slowly(self):
        start, err = time.process_time(), ""
        while not heard and not err and time.process_time() < start + 20:
            err = capsys.readouterr().err
        heard.append(err)
        return prepared(self)

    heard = []
    monkeypatch.setattr(cmd_kernel, "LONG", 1e-3)
    monkeypatch.setattr(Layout, "build", slowly)
    assert cli.main(["kernel", "gemv", "p=2", "m=4", "n=4", "--json"]) == 0
    assert heard[0] == "wse: programs and data are being made; how long the run takes is said when it goes on\n"


def test_a_large_fabric_is_heard_of_after_few_cycles(monkeypatch):
    """A piece of 4,096 cycles would be a minute there."""
    monkeypatch.setattr(running, "PIECE_SECONDS", 0.0)
    heard = []
    with watching(heard.append):
        KERNELS["broadcast"].run(machine(), width=64, n=2000)
    assert heard
    assert heard[0].cycles <= 64  # 16, and on to the next cycle in which there is something to do


def test_an_interrupt_ends_a_long_kernel_and_leaves_no_file(tmp_path, child_env):
    """Nothing is made after Ctrl-C; the process would take minutes otherwise."""
    code = (
        "import sys; from harness.cli import cmd_kernel; cmd_kernel.LONG = 1e-3\n"
        "from harness.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["kernel", "gemm", "p=24", "m=960", "k=960", "n=960", "algorithm=meshgemm", "--out", "run.h5"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=tmp_path, env=child_env, stderr=subprocess.PIPE, text=True
    ) as process:
        while "of simulation are left" not in (line := process.stderr.readline()):
            assert "are being made" in line
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.strip().splitlines()[-1] == "wse: interrupted"
    assert list(tmp_path.iterdir()) == []
