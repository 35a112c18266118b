"""The command line: dispatch, exit status, one message per failure, JSON, signals, broken pipes.

Kernels and jobs are stand-ins here, so that every path can be reached without the engine.
"""

from __future__ import annotations

import errno
import json
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import types
from dataclasses import dataclass, field

import numpy as np
import pytest

import wse_core
from fabric.kernels.kit.kernel import KernelParam
from harness import jobs
from harness.cli import main as cli
from harness.cli.cmd_kernel import KEYS
from harness.config.options import option
from traces.reader import RunFile
from wse_core.errors import DeadlockError, SramFault


@dataclass
class Kernel:
    """Stand-in for a kernel; `run` returns or raises what the test put into `answer`."""

    name: str = "sum"
    summary: str = "adds numbers"
    source: str = "a paper"
    params: list = field(
        default_factory=lambda: [
            KernelParam("n", 16, int, "meaning"),
            KernelParam("scale", 1.0, float, "meaning"),
            KernelParam("dtype", "f16", str, "meaning", choices=("f16", "f32")),
            KernelParam("flag", False, bool, "meaning"),
            KernelParam("size", 4, int, "meaning", low=1),
        ]
    )
    answer: object = None
    calls: list = field(default_factory=list)

    def run(self, machine, **params):
        """Record the call and answer."""
        self.calls.append((machine, params))
        if isinstance(self.answer, BaseException):
            raise self.answer
        counts = {"cycles": 22, "wavelet_hops": 0, "macs": np.int64(16)}
        checks = {"verified": True, "bit_exact": True, "max_abs_error": np.float32(0)}
        arrays = {"counters": {"busy": (np.ones((2, 3), np.uint32), "cycles")}}
        return counts | checks | arrays | (self.answer or {})


@pytest.fixture
def kernel(monkeypatch):
    """A registry with one kernel."""
    stand_in = Kernel()
    registry = types.ModuleType("fabric.kernels.registry")
    registry.KERNELS = {"sum": stand_in}
    monkeypatch.setitem(sys.modules, "fabric.kernels", types.ModuleType("fabric.kernels"))
    monkeypatch.setitem(sys.modules, "fabric.kernels.registry", registry)
    return stand_in


@dataclass(frozen=True)
class Options:
    """Options of the stand-in job."""

    p: int = option(2, doc="side", low=1)


@pytest.fixture
def job(monkeypatch):
    """A registry of jobs with one job that writes a file; `job.answer` is what it returns or raises."""
    module = types.ModuleType("harness.jobs.example")
    module.Options = Options
    module.answer = {"accuracy": np.float64(0.5), "verified": True}

    def run(config, out_dir, progress):
        progress.phase("work")
        (out_dir / "a.txt").write_text(f"p={config.options.p} seed={config.seed}")
        if isinstance(module.answer, BaseException):
            raise module.answer
        return module.answer

    module.run = run
    monkeypatch.setitem(sys.modules, "harness.jobs.example", module)
    monkeypatch.setattr(jobs, "JOBS", {"example": jobs.Job("example", "harness.jobs.example", "an example")})
    return module


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Run each test in an empty directory and without the debugging switch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WSE_DEBUG", raising=False)


def run(capsys, *words):
    """Return (status, stdout, stderr) of one command."""
    capsys.readouterr()
    status = cli.main(list(words))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_help_lists_every_command(capsys):
    for words in ([], ["--help"]):
        status, out, err = run(capsys, *words)
        assert status == 0
        assert err == ""
        assert all(f"\n    {name} " in out for name in cli.COMMANDS)


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"wse-sim {wse_core.__version__}\n", "")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_and_the_common_options(capsys, name):
    status, out, _ = run(capsys, name, "--help")
    assert status == 0
    assert all(word in out for word in ("--json", "--progress", "--debug"))


@pytest.mark.parametrize("words", ["bogus", "run --bogus", "run a b", "kernel", "doctor x", "--js"])
def test_wrong_usage_is_one_message_and_status_two(capsys, words):
    status, out, err = run(capsys, *words.split())
    assert (status, out) == (2, "")
    assert err.startswith("wse: error: ")
    assert err.count("\n") == 1
    assert "--help" in err


@pytest.mark.parametrize(
    ("words", "meant"),
    [("kernle", "kernel"), ("csl chek", "check"), ("kernel a --trace ful", "full"), ("export x --format vdc", "vcd")],
)
def test_a_misspelt_word_is_answered_with_the_nearest(capsys, words, meant):
    status, out, err = run(capsys, *words.split())
    assert (status, out) == (2, "")
    assert f"did you mean {meant}?" in err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_any_command_with_two_letters_changed_places_is_found(capsys, name):
    misspelt = name[:-2] + name[-1] + name[-2] if name[-1] != name[-2] else name + "x"
    status, _, err = run(capsys, misspelt)
    assert status == 2
    assert re.search("did you mean ([a-z]+)[?]", err)[1] in cli.COMMANDS


def test_module_and_console_script_are_the_same(wse_process, root):
    done = wse_process("--version")
    assert (done.returncode, done.stdout) == (0, f"wse-sim {wse_core.__version__}\n")
    assert 'wse = "harness.cli.main:main"' in (root / "pyproject.toml").read_text(encoding="utf-8")


def test_kernels_lists_parameters_and_source(capsys, kernel):
    status, out, _ = run(capsys, "kernels")
    assert status == 0
    assert all(word in out for word in ("sum: adds numbers", "n=16", "dtype=f16", "(f16, f32)", "source: a paper"))
    status, out, _ = run(capsys, "kernels", "--json")
    found = json.loads(out)["kernels"]
    assert found[0]["name"] == "sum"
    assert found[0]["params"][2] == {
        "name": "dtype", "kind": "str", "default": "f16", "choices": ["f16", "f32"], "doc": "meaning",
    }  # fmt: skip


def test_kernel_prints_exactly_one_object_with_all_keys(capsys, kernel):
    status, out, err = run(capsys, "kernel", "sum", "n=0x20", "--json", "dtype=f32", "flag=yes", "size=8")
    assert (status, err) == (0, "")
    assert out.count("\n") == 1
    found = json.loads(out)
    assert list(found) == list(KEYS)
    assert found["params"] == {"n": 32, "scale": 1.0, "dtype": "f32", "flag": True, "size": 8}
    assert found["cycles"] == 22
    assert found["macs"] == 16
    assert found["host_seconds"] >= 0
    assert found["peak_rss_bytes"] > 1 << 20
    assert kernel.calls[0][1] == {"n": 32, "dtype": "f32", "flag": True, "size": 8}


def test_kernel_prints_text(capsys, kernel):
    kernel.answer = {"bit_exact": None, "cycles": 123456}
    status, out, _ = run(capsys, "kernel", "sum")
    assert status == 0
    assert out.startswith("sum n=16 scale=1.0 dtype=f16")
    assert "cycles          123,456\n" in out
    assert "bit_exact       not checked\n" in out
    assert "verified        yes\n" in out


def test_kernel_keeps_what_the_result_already_says(capsys, kernel):
    kernel.answer = {"kernel": "other", "params": {"n": 1}, "host_seconds": 5.0, "peak_rss_bytes": 7, "extra": (1, 2)}
    found = json.loads(run(capsys, "kernel", "sum", "--json")[1])
    assert found | {"extra": None} == found | kernel.answer | {"extra": None}
    assert found["extra"] == [1, 2]


def test_kernel_that_is_wrong_ends_with_status_one(capsys, kernel):
    kernel.answer = {"verified": False}
    status, out, _ = run(capsys, "kernel", "sum", "--json")
    assert status == 1
    assert json.loads(out)["verified"] is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["summ"], "unknown kernel 'summ'. Try: did you mean sum?"),
        (["sum", "m=1"], "kernel sum: unknown parameter 'm'. Try: known are n, scale, dtype, flag, size."),
        (["sum", "scal=1"], "did you mean scale?"),
        (["sum", "n=1.5"], "kernel sum: n: expected a whole number, found '1.5'"),
        (["sum", "dtype=f33"], "did you mean f32?"),
        (["sum", "flag=2"], "expected true or false"),
        (["sum", "size=0"], "kernel sum: size: 0 is too small; the least is 1"),
        (["sum", "n"], "'n' sets nothing"),
        (["sum", "n=1", "n=2"], "n is given twice"),
        (["sum", "--preset", "wse9"], "wse9"),
        (["sum", "--set", "machine.router.hopp=2"], "router.hop"),
        (["sum", "--set", "router.hop=x"], "--set router.hop: expected a whole number"),
        (["sum", "--set", "router.hop"], "sets nothing"),
        (["sum", "--out", "/dev/null/x.h5"], "/dev/null/x.h5: cannot be written: Not a directory"),
    ],
)
def test_bad_input_to_a_kernel(capsys, kernel, words, message):
    status, out, err = run(capsys, "kernel", *words)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert kernel.calls == []


def test_kernel_machine_options(capsys, kernel):
    words = ("--preset", "wse3", "--set", "machine.router.hop=4", "--set", "queue.in_depth=9,9,9,9,9,9,9,9")
    assert run(capsys, "kernel", "sum", *words)[0] == 0
    machine = kernel.calls[0][0]
    assert (machine.preset, machine["router.hop"], machine["queue.in_depth"]) == ("wse3", 4, (9,) * 8)


def test_kernel_writes_a_run_file(capsys, kernel, tmp_path):
    kernel.answer = {"arrays": {"y": np.arange(4)}, "max_abs_error": float("inf")}
    status, out, _ = run(capsys, "kernel", "sum", "--out", "r.h5", "n=3")
    assert status == 0
    assert "written: r.h5" in out
    with RunFile(tmp_path / "r.h5") as file:
        file.verify()
        assert file.meta.job == "kernel sum"
        assert file.meta.machine["router.hop"] == 1
        assert file.counter("busy").values.tolist() == [[[1, 1, 1], [1, 1, 1]]]
        assert file.counter("busy").unit == "cycles"
        assert file.result("y").tolist() == [0, 1, 2, 3]
        assert file.result("params")["n"] == 3
        assert file.result("cycles") == 22


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (SramFault("out of range", x=1, y=2, cycle=3), 1, "wse: error: PE (1, 2), cycle 3: out of range"),
        (DeadlockError("nothing moves", waiters=["a waits for b"]), 1, "a waits for b"),
        (MemoryError("3 GiB"), 1, "out of memory (3 GiB)"),
        (OSError(errno.ENOSPC, "No space left on device", "x.h5"), 1, "x.h5: No space left on device"),
        (ZeroDivisionError("division\nby zero"), 1, "internal error, ZeroDivisionError: division by zero"),
        (KeyboardInterrupt(), 130, "wse: interrupted"),
        (cli.Terminated(signal.SIGTERM), 143, "wse: ended by SIGTERM"),
    ],
)
def test_failures_become_one_message(capsys, kernel, tmp_path, error, status, message):
    kernel.answer = error
    found, out, err = run(capsys, "kernel", "sum", "--out", "r.h5", "--json")
    assert (found, out) == (status, "")
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "status", "said"), [(None, 0, ""), (3, 3, ""), ("no more", 1, "wse: no more\n")])
def test_an_exit_has_the_status_that_python_gives_it(capsys, kernel, code, status, said):
    """A text instead of a status is a failure, and is shown."""
    kernel.answer = SystemExit(code)
    assert cli.main(["kernel", "sum"]) == status
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_the_traceback(capsys, kernel, monkeypatch, how):
    kernel.answer = SramFault("out of range")
    words = ["kernel", "sum"]
    if how == "option":
        words.insert(1, "--debug")
    else:
        monkeypatch.setenv("WSE_DEBUG", "1")
    status, _, err = run(capsys, *words)
    assert status == 1
    assert "Traceback" in err
    assert err.endswith("wse: error: out of range\n")


def test_progress_goes_to_stderr_only_when_asked_for(capsys, kernel):
    assert run(capsys, "kernel", "sum", "--json")[2] == ""
    _, out, err = run(capsys, "kernel", "sum", "--json", "--progress")
    assert err == "==> kernel sum on wse2\n"
    assert json.loads(out)["kernel"] == "sum"


def test_signal_handlers_are_put_back(capsys):
    before = signal.getsignal(signal.SIGTERM)
    run(capsys, "--version")
    assert signal.getsignal(signal.SIGTERM) is before


def test_run_writes_into_the_directory_of_the_job(capsys, job, tmp_path):
    (tmp_path / "c.toml").write_text('job = "example"\nseed = 3\noptions.p = 5\n')
    status, out, _ = run(capsys, "run", "c.toml", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["job"] == "example"
    assert found["accuracy"] == 0.5
    assert found["files"] == ["runs/example/a.txt"]
    assert found["total_seconds"] >= 0
    assert (tmp_path / "runs/example/a.txt").read_text() == "p=5 seed=3"


def test_run_prints_the_report_of_the_job_if_it_has_one(capsys, job, tmp_path):
    (tmp_path / "c.toml").write_text('job = "example"')
    assert "accuracy       0.5\n" in run(capsys, "run", "c.toml", "--out", "o")[1]
    job.report = lambda result: f"accuracy is {result['accuracy']}, files {result['files']}"
    assert run(capsys, "run", "c.toml", "--out", "o")[1] == "accuracy is 0.5, files ['o/a.txt']\n"


def test_run_that_cannot_verify_its_result(capsys, job, tmp_path):
    (tmp_path / "c.toml").write_text('job = "example"')
    job.answer = {"verified": False}
    assert run(capsys, "run", "c.toml", "--json")[0] == 1


def test_run_that_fails_leaves_nothing(capsys, job, tmp_path):
    (tmp_path / "c.toml").write_text('job = "example"')
    for error, status in ((DeadlockError("nothing moves"), 1), (KeyboardInterrupt(), 130)):
        job.answer = error
        assert run(capsys, "run", "c.toml", "--out", "deep/er")[0] == status
        assert [path.name for path in tmp_path.iterdir()] == ["c.toml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "c.toml: no such file"),
        ("job = ", "c.toml: not valid TOML"),
        ('job = "exampel"', "c.toml: job: unknown job 'exampel'. Try: did you mean example?"),
        ('job = "example"\noptions.q = 1', "c.toml: options.q: unknown key"),
        ('job = "example"\noptions.p = 0', "c.toml: options.p: 0 is too small"),
        ('job = "example"\nmachine.router.hop = 99', "c.toml: machine.router.hop: "),
    ],
)
def test_bad_job_files(capsys, job, tmp_path, text, message):
    if text is not None:
        (tmp_path / "c.toml").write_text(text)
    status, out, err = run(capsys, "run", "c.toml")
    assert (status, out) == (2, "")
    assert f"wse: error: {message}" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_out_that_is_a_file(capsys, job, tmp_path):
    (tmp_path / "c.toml").write_text('job = "example"')
    status, _, err = run(capsys, "run", "c.toml", "--out", "c.toml")
    assert status == 2
    assert "c.toml: is in the way: not a directory" in err


SLOW_JOB = """
    import os, sys, time, types
    from dataclasses import dataclass
    from harness import jobs
    from harness.cli import main as cli

    @dataclass(frozen=True)
    class Options:
        pass

    def run(config, out_dir, progress):
        (out_dir / "half.txt").write_text("half")
        os.write(2, b"ready\\n")
        while True:  # as runs go in pieces: the interpreter may miss a signal just before it blocks, until it wakes up
            time.sleep(0.05)

    module = types.ModuleType("harness.jobs.slow")
    module.Options, module.run = Options, run
    sys.modules["harness.jobs.slow"] = module
    jobs.JOBS["slow"] = jobs.Job("slow", "harness.jobs.slow", "waits")
    sys.exit(cli.main(["run", "c.toml", "--out", "out"]))
"""


@pytest.mark.parametrize(
    ("number", "status", "message"),
    [(signal.SIGINT, 130, "wse: interrupted\n"), (signal.SIGTERM, 143, "wse: ended by SIGTERM\n")],
)
def test_a_signal_ends_a_run_with_one_line_and_nothing_left(tmp_path, child_env, number, status, message):
    (tmp_path / "c.toml").write_text('job = "slow"')
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SLOW_JOB)],
        cwd=tmp_path,
        env=child_env,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (status, "", message)
    assert [path.name for path in tmp_path.iterdir()] == ["c.toml"]


def test_a_signal_that_the_parent_had_ignored_stays_ignored(capsys, monkeypatch):
    """As ``nohup wse ...`` has it."""
    seen = []
    monkeypatch.setattr(cli, "_run", lambda *_: seen.append(signal.getsignal(signal.SIGHUP)) or 0)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        cli.main(["--version"])
        assert seen == [signal.SIG_IGN]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the parent of the tests has
        cli.main(["--version"])
        assert callable(seen[1])
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_reader_that_goes_away_is_no_error(child_env, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "doctor", "--assumptions"],
        cwd=tmp_path,
        env=child_env | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert err == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_an_output_that_is_closed_is_no_error(child_env, tmp_path, closed):
    call = f"{shlex.quote(sys.executable)} -m harness"
    for words, status in (("--version", 0), ("run none.toml", 2)):
        done = subprocess.run(
            ["sh", "-c", f"{call} {words} {closed}"], cwd=tmp_path, env=child_env, capture_output=True, text=True
        )
        assert done.returncode == status
        assert "Traceback" not in done.stderr
        assert bool(done.stdout) == (closed == "2>&-" and status == 0)
        assert bool(done.stderr) == (closed == ">&-" and status != 0)


def test_an_output_of_narrow_characters_takes_any_name(child_env, tmp_path):
    (tmp_path / "gr\u00fcn").mkdir()
    (tmp_path / "gr\u00fcn" / "commands.sh").write_text("exit 0\n")
    done = subprocess.run(
        [sys.executable, "-m", "harness", "csl", "scripts", "."],
        cwd=tmp_path, env=child_env | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr?n/commands.sh" in done.stdout


def test_commands_explain_what_is_not_built(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "fabric.kernels.registry", None)
    for words in (["kernels"], ["kernel", "sum"]):
        status, out, err = run(capsys, *words)
        assert (status, out) == (2, "")
        assert "make build" in err
        assert err.count("\n") == 1


def test_kernels_lists_those_that_are_named(capsys):
    status, out, _ = run(capsys, "kernels", "gemv", "spmv")
    assert status == 0
    assert re.findall(r"^(\w+):", out, re.MULTILINE) == ["gemv", "spmv"]
    status, out, _ = run(capsys, "kernels", "spmv", "--json")
    assert [kernel["name"] for kernel in json.loads(out)["kernels"]] == ["spmv"]
    status, _, err = run(capsys, "kernels", "gemw")
    assert status == 2
    assert "did you mean gemv?" in err


def test_help_of_a_kernel_is_about_that_kernel(capsys):
    status, out, _ = run(capsys, "kernel", "gemv", "--help")
    assert status == 0
    assert out.startswith("usage: wse kernel gemv [key=value ...]")
    assert re.search(r"^    dtype=", out, re.MULTILINE)
    assert "source: " in out
    assert "stencil" not in out
    status, general, _ = run(capsys, "kernel", "--help")
    assert "--trace-window" in general
    assert "dtype=" not in general
    status, _, err = run(capsys, "kernel", "gemw", "--help")
    assert status == 2
    assert "did you mean gemv?" in err


def test_no_room_for_a_thread_is_no_defect(capsys, monkeypatch):
    """What Python says where memory or the number of processes is limited; another RuntimeError is a defect."""
    for text, said in (("can't start new thread", "no room for another thread"), ("else", "a defect of wse-sim")):

        def fail(args, text=text):
            raise RuntimeError(text)

        monkeypatch.setattr("harness.cli.cmd_kernels.main", fail)
        status, _, err = run(capsys, "kernels")
        assert status == 1
        assert said in err
