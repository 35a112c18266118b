"""What the Makefile asks before it builds: is everything there that a build needs?"""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.cli.preflight import build_requires, main, problems


def answer(**changes):
    """Return the problems of a healthy machine with some facts changed."""
    facts = {
        "version": (3, 12, 1),
        "find_module": lambda name: object(),
        "which": lambda name: name,
        "include_dir": answer.include,
        "in_venv": False,
    }
    return problems(**(facts | changes))


@pytest.fixture(autouse=True)
def _headers(tmp_path):
    """Provide a directory with a Python.h."""
    (tmp_path / "Python.h").touch()
    answer.include = str(tmp_path)


def test_a_healthy_machine_has_no_problem():
    assert answer() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": (3, 10, 9)}, "Python 3.10 is too old"),
        ({"find_module": lambda name: None}, "venv and ensurepip is missing"),
        ({"find_module": lambda name: None if name == "ensurepip" else 1}, "Python's ensurepip is missing"),
        ({"which": lambda name: None}, "no C compiler"),
        ({"include_dir": "nowhere"}, "Python.h is missing in nowhere"),
    ],
)
def test_each_missing_thing_is_one_sentence(changes, words):
    found = answer(**changes)
    assert len(found) == 1
    assert words in found[0]
    assert "\n" not in found[0]


def test_inside_an_environment_none_has_to_be_made():
    assert answer(find_module=lambda name: None, in_venv=True) == []


def test_missing_things_end_the_program_with_status_one(monkeypatch, capsys):
    monkeypatch.setattr("harness.cli.preflight.problems", lambda: ["no gcc"])
    assert main([]) == 1
    assert capsys.readouterr().err == "make: no gcc\n"


def test_build_requirements_are_those_of_the_project(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert main(["--requires", "dev"]) == 0
    found = [name.split(">")[0] for name in capsys.readouterr().out.splitlines()]
    assert found == ["cython-lint", "ipykernel", "jupytext", "mkdocs-material", "mypy", "nbclient", "ruff"]
    assert main(["--requires", "dependencies", "demo"]) == 0
    both = [name.split(">")[0] for name in capsys.readouterr().out.splitlines()]
    assert both == ["numpy", "h5py", "matplotlib", "safetensors", "scikit-learn"]
    assert main(["--build-requires"]) == 0
    assert capsys.readouterr().out.splitlines() == build_requires()
    assert any(name.startswith("cython") for name in build_requires())


def test_it_runs_before_anything_is_installed(root, tmp_path):
    command = [sys.executable, "-I", "-S", str(root / "harness" / "cli" / "preflight.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0
    assert done.stderr == b""
