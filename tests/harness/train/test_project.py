"""``wse train --project``: a network of one's own on any number of systems."""

from __future__ import annotations

import json

import pytest

from harness.cli import main
from harness.train import project as module
from harness.train.config import load_train, parse_train
from tests.examples import few
from wse_core.errors import ConfigError, UnsupportedError

TEXT = """
wafers = 2
[network]
inputs = 12
layers = [{outputs = 10, activation = "relu"}, {outputs = 3}]
[data]
source = "digits"
batch = 16
[mesh]
width = 2
height = 2
[train]
iterations = 4
"""


def config(**replaced):
    """Return a configuration with some words of the text replaced."""
    text = TEXT
    for old, new in replaced.values():
        assert old in text
        text = text.replace(old, new)
    return parse_train(text, "own.toml")


def test_measured_sizes_and_what_is_beyond():
    """Sizes that are simulated carry their cycles; the others the error of the nearest, and say where it was found."""
    found = module.project(config(), [1, 2, 192])
    share = [row for row in found["rows"] if row["kind"] == "fixed share"]
    assert [row["systems"] for row in share] == [1, 2, 192]
    assert [row["batch"] for row in share] == [8, 16, 8 * 192]
    checked = {one["systems"]: one for one in found["checked"]}
    for row in share:
        assert row["error"] == checked[row["error_at"]]["error"]
        assert abs(row["error"]) < 0.05
        assert (row["measured_cycles"] is None) == (row["systems"] not in checked)
    assert share[0]["efficiency"] == 1
    assert share[2]["efficiency"] < share[1]["efficiency"] < 1  # a round trip more per level, in so small a network
    assert {row["limit"] for row in share} == {"round trip"}
    batch = [row["systems"] for row in found["rows"] if row["kind"] == "fixed batch"]
    assert batch == [1, 2]  # 16 samples do not divide over 192 systems


def test_one_efficiency_holds_against_cycles():
    """Two systems beside one, both simulated."""
    found = module.project(config(), [1, 2])
    one, two = (row for row in found["rows"] if row["kind"] == "fixed share")
    assert two["efficiency"] == pytest.approx(one["measured_cycles"] / two["measured_cycles"], rel=0.02)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("extra", ["", "[memx]\ndram.bytes = 2000\nflash.rate = 20000000\n"])
def test_the_error_is_that_of_the_row(optimizer, extra):
    """With the file's own optimizer, whose bytes decide what flash takes: the row over the cycles that are printed."""
    words = f'iterations = 4\noptimizer = {{name = "{optimizer}"}}\n{extra}'
    rows = module.project(config(end=("iterations = 4", words)), [1, 2])["rows"]
    measured = [row for row in rows if row["measured_cycles"]]
    assert len(measured) == 2
    for row in measured:
        assert row["error"] == pytest.approx(row["cycles"] / row["measured_cycles"] - 1, abs=1e-9)


def test_what_is_too_large_is_held_against_a_part_of_it(monkeypatch):
    """Half the features on half the columns, two rows of PEs: as many features and samples per PE."""
    monkeypatch.setattr(module, "MOST_TASKS", 1500)
    large = config(mesh=("width = 2\nheight = 2", "width = 4\nheight = 4"))
    found = module.project(large, [4, 64])
    (checked,) = found["checked"]
    assert checked["mesh"] < [4, 4]
    assert max(checked["features"]) < 12
    assert abs(checked["error"]) < 0.05
    assert all(row["measured_cycles"] is None for row in found["rows"])


@pytest.fixture(scope="module")
def bert():
    """What is said of a transformer on some systems."""
    return module.project(load_train("digits-bert"), [1, 2, 4, 8, 64])


@pytest.mark.parametrize("name", few(["digits-bert", "digits-cnn", "digits-unet", "chars"], 2))
def test_graphs_are_projected(name, bert):
    """Attention, convolutions and round trips: the error is that of a simulation, and small."""
    found = bert if name == "digits-bert" else module.project(load_train(name), [1, 64])
    share = [row for row in found["rows"] if row["kind"] == "fixed share" and row["systems"] in (1, 64)]
    assert [row["systems"] for row in share] == [1, 64]
    assert share[0]["measured_cycles"]
    assert abs(share[0]["error"]) < 0.02
    assert share[1]["efficiency"] <= 1 + 1e-9


def test_a_graph_that_is_too_large_is_held_against_fewer_rows(monkeypatch):
    """All of its columns; beyond some limit nothing would say how far it is off, so it is refused."""
    monkeypatch.setattr(module, "MOST_TASKS", 1e5)
    found = module.project(load_train("digits-bert"), [4])
    (checked,) = found["checked"]
    assert checked["mesh"] == [4, 1]
    assert abs(checked["error"]) < 0.02
    monkeypatch.setattr(module, "MOST_TASKS", 100)
    with pytest.raises(UnsupportedError, match="too many to hold"):
        module.project(load_train("digits-bert"), [4])


def test_sequences_of_a_divided_batch_stay_whole(bert):
    """512 tokens on 16 rows of PEs: eight systems would cut sequences of eight tokens."""
    assert [row["systems"] for row in bert["rows"] if row["kind"] == "fixed batch"] == [1, 2, 4]


def test_slow_links_and_updates_are_what_limits():
    slow = config(end=("iterations = 4", "iterations = 4\n[swarm]\nlink.rate = 2000000"))
    assert {row["limit"] for row in module.project(slow, [1, 64])["rows"]} <= {"link out", "link back"}


def test_parts_of_a_batch_take_their_time_each():
    """Two parts of half the samples wait once for updates; the model's error is that of one part."""
    parts = config(end=("iterations = 4", "iterations = 4\naccumulate = 2"), batch=("batch = 16", "batch = 32"))
    (two,), (one,) = (module.project(given, [2])["rows"][:1] for given in (parts, config()))
    assert two["batch"] == 2 * one["batch"]
    assert one["cycles"] < two["cycles"] < 2 * one["cycles"]
    assert two["measured_cycles"] is None


def test_command(tmp_path, capsys):
    (tmp_path / "own.toml").write_text(TEXT, encoding="utf-8")
    words = ["train", str(tmp_path / "own.toml"), "--project", "1,64", "--out", str(tmp_path / "run")]
    assert main.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["systems"] for row in found["rows"] if row["kind"] == "fixed share"] == [1, 64]
    assert (tmp_path / "run" / "project.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "run" / "project.csv").read_text(encoding="utf-8").startswith("kind,systems,batch")
    assert main.main(words) == 0
    text = capsys.readouterr().out
    assert "cycle by cycle: " in text
    assert "% at 1 system" in text or "% at 64 systems" in text or text.count("cycle by cycle") > 2


@pytest.mark.parametrize("text", ["", "0", "1,,2", "two", "1,2000", "1.5"])
def test_what_is_no_number_of_systems_is_refused(text):
    with pytest.raises(ConfigError, match="is no number of systems"):
        module.systems_of(text)
