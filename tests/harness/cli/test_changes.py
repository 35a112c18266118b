"""``wse report A B`` says what was changed: whatever two runs were asked for that differs, by every way to ask."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import main as cli
from harness.report import page
from harness.report.changes import asked_for, differences, names_of
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter

NAMES = st.text("abcdefgh_", min_size=1, max_size=6)
VALUES = st.one_of(
    st.integers(-9, 9), st.booleans(), st.sampled_from(["x", "a b", "1e-3"]), st.lists(st.integers(0, 3))
)
TABLES = st.dictionaries(NAMES, st.one_of(VALUES, st.dictionaries(NAMES, VALUES, max_size=3)), max_size=4)
NOTHING = "Nothing: the same"


def toml_of(table):
    """Return a table as TOML: what is plain first, then tables of one level."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += [f"[{key}]", *(f"{inner} = {json.dumps(one)}" for inner, one in value.items())]
    return "\n".join(lines)


def made(path, **meta):
    path.parent.mkdir(parents=True, exist_ok=True)
    with RunWriter(path, RunMeta(**meta)) as writer:
        writer.add_result("cycles", 7)
    return path


def compared(one, other):
    with Trace.open(one) as first, Trace.open(other) as second:
        return page.compare(first, second), differences(asked_for(first), asked_for(second))


def leaves(table):
    return {
        (key, inner): one
        for key, value in table.items()
        for inner, one in (value.items() if isinstance(value, dict) else [("", value)])
    }


@given(TABLES, TABLES)
def test_runs_with_any_other_key_are_never_called_the_same(tmp_path_factory, first, second):
    folder = tmp_path_factory.mktemp("runs")
    one = made(folder / "a" / "run.h5", job="train", config_toml=toml_of(first))
    other = made(folder / "b" / "run.h5", job="train", config_toml=toml_of(second))
    text, found = compared(one, other)
    wanted = {
        ".".join(filter(None, key))
        for key in leaves(first).keys() | leaves(second).keys()
        if key not in leaves(first) or key not in leaves(second)
        or str(leaves(first)[key]) != str(leaves(second)[key])
    }  # fmt: skip
    assert {name for name, _, _ in found} == wanted
    assert (NOTHING in text) == (not wanted)


BASE = {"job": "train a.toml --wafers 1", "config_toml": "[train]\nlr = 0.1\n", "preset": "wse2", "seed": 3}


@pytest.mark.parametrize(
    ("changed", "name", "values"),
    [
        ({"job": "train a.toml --wafers 2"}, "--wafers", ("1", "2")),
        ({"job": "train a.toml --wafers 1 --mode pipelined"}, "--mode", ("-", "pipelined")),
        ({"job": "train a.toml --wafers 1 --set train.lr=0.2"}, "train.lr", ("0.1", "0.2")),
        ({"job": "train a.toml --wafers=2"}, "--wafers", ("1", "2")),
        ({"job": "train b.toml --wafers 1"}, "command", ("train a.toml", "train b.toml")),
        ({"job": "train a.toml --wafers 1 --reference"}, "--reference", ("-", "True")),
        ({"config_toml": "[train]\nlr = 0.2\n"}, "train.lr", ("0.1", "0.2")),
        ({"config_toml": "[train]\nlr = 0.1\n[[layers]]\noutputs = 4\n"}, "layers[0].outputs", ("-", "4")),
        ({"config_toml": "no TOML"}, "configuration", ("-", "no TOML")),
        ({"machine": {"router.hop": 2}}, "router.hop", ("-", "2")),
        ({"preset": "wse3"}, "preset", ("wse2", "wse3")),
        ({"seed": 4}, "seed", ("3", "4")),
        ({"commit": "abc"}, "commit", ("", "abc")),
    ],
)
def test_each_way_to_ask_for_something_else(tmp_path, changed, name, values):
    text, found = compared(made(tmp_path / "a.h5", **BASE), made(tmp_path / "b.h5", **BASE | changed))
    assert (name, *values) in found
    assert NOTHING not in text
    assert NOTHING in compared(tmp_path / "a.h5", made(tmp_path / "c.h5", **BASE))[0]


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        ("runs/a/run.h5", "runs/b/run.h5", ("a", "b")),
        ("runs/a/run.h5", "runs/b/c/run.h5", ("a", "b/c")),
        ("a.h5", "b.h5", ("a.h5", "b.h5")),
        ("a/run.h5", "a/run.h5", ("run.h5 (first)", "run.h5 (second)")),
        ("run.h5", "b/run.h5", ("run.h5 (first)", "run.h5 (second)")),
    ],
)
def test_columns_have_the_names_that_tell_runs_apart(one, other, names):
    assert names_of(Path(one), Path(other)) == names


def test_training_with_one_key_changed(tmp_path, monkeypatch, capsys):
    """The cases of users: wafers, mode, learning rate, width."""
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "digits",
        "--iterations",
        "1",
        "--no-progress",
        "--set",
        "network.layers=[{outputs=8},{outputs=10}]",
    ]
    runs = {
        "one": ["--wafers", "1"],
        "two": ["--wafers", "2"],
        "rate": ["--wafers", "1", "--set", "train.optimizer.lr=0.01"],
    }
    for name, more in runs.items():
        status = cli.main([*words[:5], *more, "--out", name])
        assert status == 0, capsys.readouterr().err
    for name, said in {"two": "--wafers", "rate": "train.optimizer.lr"}.items():
        text, found = compared(tmp_path / "one" / "run.h5", tmp_path / name / "run.h5")
        assert NOTHING not in text
        assert said in {key for key, _, _ in found}
        assert f"<h1>one and {name}</h1>" in text
