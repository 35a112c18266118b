"""``wse report A B`` says what was changed: whatever two runs were asked for that differs, by every way to ask."""

from __future__ import annotations

import contextlib
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


def compared(*paths):
    with contextlib.ExitStack() as stack:
        traces = [stack.enter_context(Trace.open(path)) for path in paths]
        return page.compare(*traces), differences(*map(asked_for, traces))


def leaves(table):
    return {
        (key, inner): one
        for key, value in table.items()
        for inner, one in (value.items() if isinstance(value, dict) and value else [("", value)])
    }


@given(st.lists(TABLES, min_size=2, max_size=4))
def test_runs_with_any_other_key_are_never_called_the_same(tmp_path_factory, tables):
    folder = tmp_path_factory.mktemp("runs")
    paths = [made(folder / str(k) / "run.h5", job="train", config_toml=toml_of(one)) for k, one in enumerate(tables)]
    text, found = compared(*paths)
    each = [leaves(table) for table in tables]
    wanted = {
        ".".join(filter(None, key))
        for key in set().union(*each)
        if len({repr(one[key]) if key in one else None for one in each}) > 1
    }
    assert {name for name, *_ in found} == wanted
    assert all(len(values) == len(tables) and len(set(values)) > 1 for _, *values in found)
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
    ("first", "second", "name"),
    [
        ("seed = 1", "seed = 2", "seed (in the file)"),  # the seed of the run is another thing of that name
        ("commit = 1", "", "commit (in the file)"),
        ('"a.b" = 1', "[a]\nb = 1", "a.b"),
        ('"a.b" = 1', "[a]\nb = 1", '"a.b"'),
        ('a = "1"', "a = 1", "a"),
        ("[[a]]\n[[a]]", "[[a]]", "a[1]"),
        ("[a]", "", "a"),
        ("a = '-'", "", "a"),
        ("command = 1", "command = 2", "command (in the file)"),
        ("[params]\nn = 1", "[params]\nn = 2", "params.n"),
    ],
)
def test_no_key_hides_another_one(tmp_path, first, second, name):
    paths = [made(tmp_path / f"{k}.h5", job="mine", config_toml=text) for k, text in enumerate((first, second, first))]
    text, found = compared(*paths)
    assert NOTHING not in text
    values = {key: values for key, *values in found}[name]
    assert values[0] == values[2] != values[1]


def test_parameters_of_a_file_and_of_a_run_are_told_once(tmp_path):
    paths = []
    for k, (written, taken) in enumerate(((1, 1), (2, 2), (2, 3))):
        paths.append(tmp_path / f"{k}.h5")
        with RunWriter(paths[-1], RunMeta(job="kernel", config_toml=f"[params]\nn = {written}")) as writer:
            writer.add_result("params", {"n": taken})
    started = made(tmp_path / "started.h5", job="kernel x", config_toml="[params]\nn = 1")
    with RunWriter(tmp_path / "ended.h5", RunMeta(job="kernel x", config_toml="[params]\nn = 1")) as writer:
        writer.add_result("params", {"n": 1})
    assert compared(started, tmp_path / "ended.h5")[1] == []  # it did not come to its results
    assert compared(*paths[:2])[1] == [("n", "1", "2")]
    assert compared(*paths[1:])[1] == [("n", "2", "3"), ("n (in the file)", "-", "2")]


def test_an_option_that_is_given_twice_is_told_twice(tmp_path):
    paths = [made(tmp_path / f"{k}.h5", job=f"train --kinds {k} --kinds b") for k in "ab"]
    assert compared(*paths)[1] == [("--kinds", "a b", "b b")]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("runs/a/run.h5", "runs/b/run.h5"), ("a", "b")),
        (("runs/a/run.h5", "runs/b/c/run.h5"), ("a", "b/c")),
        (("a.h5", "b.h5"), ("a.h5", "b.h5")),
        (("run.h5", "b/run.h5"), ("run.h5", "b/run.h5")),
        (("a/run.h5", "a/b/run.h5", "a/c/run.h5"), ("run.h5", "b/run.h5", "c/run.h5")),
        (("r/a/x/run.h5", "r/a/y/run.h5", "r/b/x/run.h5"), ("a/x", "a/y", "b/x")),
        (("a/run.h5", "a/run.h5"), ("run.h5 (1)", "run.h5 (2)")),
    ],
)
def test_columns_have_the_names_that_tell_runs_apart(paths, names):
    assert names_of(*map(Path, paths)) == names


@given(st.sets(st.lists(st.sampled_from("ab"), max_size=4).map(tuple), min_size=2, max_size=5))
def test_no_two_columns_have_the_same_name(folders):
    names = names_of(*(Path(*folder, "run.h5") for folder in folders))
    assert len(set(names)) == len(folders)
    assert all(names)


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
