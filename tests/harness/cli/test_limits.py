"""What nobody means: huge numbers, endless files, devices as results.  Each is refused at once with its bound."""

from __future__ import annotations

import json
import os

import pytest

from harness.cli import main as cli


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Run each test in an empty directory and without the debugging switch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WSE_DEBUG", raising=False)


def run(capsys, *words):
    """Return (status, stdout, stderr) of one command."""
    status = cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def refused(capsys, says, *words):
    """Assert that a command ends in one line with status 2 that says something; return the line."""
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, ""), err
    assert err.count("\n") == 1, err
    assert says in err
    assert "internal error" not in err
    return err


NETWORK = """
[network]
inputs = 64
layers = [{{outputs = {outputs}}}, {{outputs = 10}}]
[train]
epochs = 1
"""


@pytest.mark.parametrize("command", ["train", "run", "plan"])
@pytest.mark.parametrize("value", ["1" * 4301, "[" * 5000 + "]" * 5000], ids=["digits", "brackets"])
def test_toml_beyond_what_python_reads(capsys, tmp_path, command, value):
    (tmp_path / "a.toml").write_text(f"seed = {value}")
    assert refused(capsys, "a.toml: not valid TOML", command, "a.toml")


@pytest.mark.parametrize("command", ["train", "run"])
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_an_endless_file_is_no_configuration(capsys, command, device):
    """A device says that it has 0 bytes."""
    assert refused(capsys, "longer than 1,048,576 bytes", command, device)


@pytest.mark.parametrize("suffix", ["", ".toml"])
def test_an_endless_plan(capsys, tmp_path, suffix):
    os.symlink("/dev/zero", tmp_path / "zero.toml")
    assert refused(capsys, "longer than 1,048,576 bytes", "plan", "zero.toml")


def test_a_missing_file_names_what_would_do(capsys, tmp_path):
    (tmp_path / "chain.html").touch()
    (tmp_path / "nothin.txt").touch()
    assert "chain" not in refused(capsys, "wse run without a file", "run", "nothing.toml")
    assert "nothin.txt" not in refused(capsys, "digits-sparse75", "train", "nothing.toml")
    refused(capsys, "gpt-3", "plan", "nothing.toml")
    refused(capsys, "a100", "plan", "gpt-3", "--hardware", "nothing.toml")


def test_a_network_larger_than_its_wafer_is_refused_before_it_is_made(capsys, tmp_path, monkeypatch):
    from harness.train.trainer import Trainer

    monkeypatch.setattr(Trainer, "__init__", lambda *_: pytest.fail("weights were drawn"))
    (tmp_path / "a.toml").write_text(NETWORK.format(outputs=10**7))
    refused(capsys, "does not fit into a PE's 49152 bytes", "train", "a.toml")
    status, out, _ = run(capsys, "train", "a.toml", "--reference", "--validate-only")
    assert (status, "10,000,000" in out or "10000000" in out) == (0, True)


def test_a_network_larger_than_the_host_is_refused_before_it_is_made(capsys, tmp_path, monkeypatch):
    """Plain numpy keeps all weights in the memory of the host."""
    from harness.train.plain import PlainTrainer

    monkeypatch.setattr(PlainTrainer, "__init__", lambda *_: pytest.fail("weights were drawn"))
    monkeypatch.setattr("fabric.host.engines.available_bytes", lambda: 40 << 30)
    (tmp_path / "a.toml").write_text(NETWORK.format(outputs=10**7))
    err = refused(capsys, "750,000,010 weights need about", "train", "a.toml", "--reference")
    assert "there are 40.0" in err
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["gemm-scaling", "gemv-scaling"])
def test_a_mesh_larger_than_the_fabric(capsys, name):
    assert refused(capsys, "the most is 757 PEs a side", "figure", name, "--max-cycle-level", 10**9)
    assert refused(capsys, "the least is 1", "figure", name, "--max-cycle-level", 0)


def test_results_never_replace_a_device(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(capsys, "pipe: cannot be written: is a device", "kernel", "vector", "n=5", "--out", "pipe")
    assert not (tmp_path / "pipe").is_file()


def test_out_makes_directories(capsys):
    """For every command that writes a file or a directory."""
    assert run(capsys, "kernel", "vector", "n=5", "--trace", "full", "--out", "a/b/x.h5")[0] == 0
    for words in (
        ("report", "a/b/x.h5", "--out", "c/d/x.html"),
        ("export", "a/b/x.h5", "--format", "csv", "--out", "e/f/x.csv"),
        ("view", "a/b/x.h5", "--figure", "heat", "--out", "g/h"),
        ("plan", "--figures", "ws4", "--out", "i/j"),
    ):
        status, _, err = run(capsys, *words)
        assert status == 0, err
    for name in ("c/d/x.html", "e/f/x.csv", "g/h/x-busy.png", "i/j/ws4.png"):
        assert os.path.getsize(name)


def test_a_log_writes_through_no_foreign_link(tmp_path):
    """In a directory that others can write to, a name that can be guessed may be a link already."""
    from harness.train.record import RunLog

    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / f".log-{os.getpid()}").symlink_to(victim)
    RunLog(tmp_path / "run").close()
    assert victim.read_text() == "kept"
    assert (tmp_path / "run" / "log.jsonl").read_text() == ""


# --- points of validation ---------------------------------------------------------------------------------------------

POINT = {"id": "A", "kind": "trace", "recipe": "R6", "params": {}, "cycles": 1}


@pytest.mark.parametrize("flags", [(), ("--no-limits",)])
def test_a_validation_in_which_nothing_ran_fails(capsys, tmp_path, flags):
    point = {"id": "A", "kind": "k", "recipe": "R7", "params": {"elements": "x"}, "cycles": 1}
    (tmp_path / "p.json").write_text(json.dumps([point]))
    status, out, _ = run(capsys, "validate", "--points", "p.json", *flags)
    assert status == 1
    assert out.splitlines()[-1] == "nothing compared: FAILED"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("workload", True, "workload: expected a text or null, found true or false"),
        ("source", ["x"], "source: expected a text or null, found a list"),
        ("generation", 2, "generation: expected a text or null"),
        ("clock_ghz", "x", "clock_ghz: expected a positive number or null"),
        ("clock_ghz", True, "clock_ghz: expected a positive number or null"),
        ("cycles", 10**400, "cycles: expected a positive number or null"),
        ("cycles_wse3", -1, "cycles_wse3: expected a positive number or null"),
    ],
)
def test_a_point_with_values_of_the_wrong_kind(capsys, tmp_path, key, value, says):
    (tmp_path / "p.json").write_text(json.dumps([POINT | {key: value}]))
    assert refused(capsys, says, "validate", "--points", "p.json")


def test_numbers_of_a_help_text_are_written_once(capsys):
    _, out, _ = run(capsys, "validate", "--help")
    assert "%%" not in out
    assert "3 %" in out


def test_a_terminal_gets_no_control_characters(capsys, tmp_path):
    """A name in a file could clear the screen, or worse."""
    (tmp_path / "a.toml").write_text('"\\u001b[2J\\u009b" = 1\n')
    _, _, err = run(capsys, "run", "a.toml")
    assert "unknown key" in err
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in err.rstrip("\n"))


# --- kernels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("gemv p=16 group=40", "a group of 40 PEs is longer than the line of 16"),
        ("gemv_chain p=4 group=5", "a group of 5 PEs is longer than the line of 4"),
        ("stencil25 radius=1", "wse kernel stencil"),
        ("gemv p=8 m=999999999", "an array longer than the memory"),
    ],
)
def test_sizes_of_kernels_that_cannot_be(capsys, words, says):
    assert refused(capsys, says, "kernel", *words.split())
