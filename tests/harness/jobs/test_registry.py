"""The registry of jobs, the built-in job file, and directories that are filled completely or not at all."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tomllib

import pytest

from harness import jobs
from harness.kit.modules import OWN_PACKAGES, need
from harness.kit.staging import alone, staged_directory
from wse_core.errors import ConfigError


def test_unknown_job_suggests_a_known_one():
    with pytest.raises(ConfigError, match=r"unknown job 'digit'.*did you mean digits\?"):
        jobs.load("digit")


def test_the_built_in_file_names_the_default_job():
    text, name = jobs.default_config()
    assert tomllib.loads(text)["job"] == jobs.DEFAULT_JOB
    assert name == "built-in digits.toml"


@pytest.mark.parametrize("name", jobs.JOBS)
def test_every_job_keeps_the_protocol(name):
    try:
        module = jobs.load(name)
    except ConfigError as error:
        assert error.module.split(".")[0] not in OWN_PACKAGES, "a module of this project is missing"
        pytest.skip(f"{name} needs the library {error.module}")
    assert dataclasses.is_dataclass(module.Options)
    assert callable(module.run)
    assert all(item.metadata.get("doc") for item in dataclasses.fields(module.Options))


def test_need_names_the_missing_module_of_ours():
    with pytest.raises(ConfigError, match=r"somebody needs the module harness\.nothing.*make build") as caught:
        need("harness.nothing", "somebody")
    assert caught.value.module == "harness.nothing"


def test_need_names_the_missing_library_and_its_extra(monkeypatch):
    import importlib

    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"needs scikit-learn, which is not installed.*wse-sim\[demo\]"):
        need("sklearn", "the job")
    with pytest.raises(ConfigError, match="pip install other"):
        need("other", "the job")


def test_need_explains_a_module_that_does_not_load(monkeypatch):
    import importlib

    def broken(name):
        raise ImportError("undefined symbol: x")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ConfigError, match=r"does not load \(undefined symbol: x\).*make clean"):
        need("wse_core.mesh", "the job")


def test_staged_files_appear_at_the_end(tmp_path):
    target = tmp_path / "a" / "b"
    with staged_directory(target) as stage:
        (stage / "x.txt").write_text("x")
        (stage / "sub").mkdir()
        (stage / "sub" / "y.txt").write_text("y")
        assert not (target / "x.txt").exists()
    assert (target / "x.txt").read_text() == "x"
    assert (target / "sub" / "y.txt").read_text() == "y"
    assert sorted(path.name for path in target.iterdir()) == ["sub", "x.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_is_left_of_a_failed_block(tmp_path, error):
    def fail(stage):
        (stage / "x.txt").write_text("half")
        raise error

    with pytest.raises(error), staged_directory(tmp_path / "a" / "b") as stage:
        fail(stage)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_block_keeps_older_files(tmp_path):
    (tmp_path / "x.txt").write_text("old")
    with pytest.raises(ValueError, match="stop"), staged_directory(tmp_path) as stage:
        (stage / "x.txt").write_text("new")
        raise ValueError("stop")
    assert (tmp_path / "x.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]


def test_one_process_at_a_time(tmp_path, child_env):
    """The lock is there while the block runs, in any process, and gone with a process that is killed."""
    code = (
        "import sys\nfrom harness.kit.staging import alone\nwith alone(sys.argv[1]):\n    print('in', flush=True)\n"
        "    input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "a")], env=child_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"in\n"
    with pytest.raises(ConfigError, match="another process works in this directory"), alone(tmp_path / "a"):
        pass
    child.kill()
    child.communicate()
    with alone(tmp_path / "a"), pytest.raises(ConfigError, match="another process"), alone(tmp_path / "a"):
        pass
    with alone(tmp_path / "b" / "c"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["a"]  # what was made and stayed empty is gone
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"), alone(tmp_path / "file" / "x"):
        pass


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "x").write_text("file")
    for target in (tmp_path / "x", tmp_path / "x" / "y"):
        with pytest.raises(ConfigError, match="not a directory|cannot be written"), staged_directory(target):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
