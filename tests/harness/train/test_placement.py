"""Where the layers of a pipelined run lie: the faster of two placements, and what it says it takes it takes."""

from __future__ import annotations

import json

import pytest

from fabric.networks.pipelined.costs import network_cycles
from harness.cli.main import main
from harness.train import placement
from harness.train.config import TrainConfig, load_train
from harness.train.pipelined import PipelinedTrainer
from wse_core.errors import ConfigError

TEXT = """
mode = "pipelined"
wafers = 1
[network]
inputs = 64
layers = [{{outputs = {first}, activation = "relu"}}, {{outputs = {second}, activation = "relu"}}, {{outputs = 10}}]
[data]
source = "digits"
batch = 64
[mesh]
width = {width}
height = {height}
[train]
iterations = 4
dtype = "f16"
optimizer = {{name = "sgd", lr = 0.002}}
"""


def config(tmp_path, width=40, height=20, first=64, second=64) -> TrainConfig:
    path = tmp_path / "net.toml"
    path.write_text(TEXT.format(width=width, height=height, first=first, second=second), encoding="utf-8")
    return load_train(str(path))


def row(given):
    """Return the layers in a row of rectangles."""
    return placement._row(placement._plan(given), given.mesh.width, given.mesh.height)


def cycles(given):
    """Return what training takes by the simulated wafer."""
    trainer = PipelinedTrainer(given)
    for _ in range(trainer.iterations):
        trainer.step()
    return trainer.cycles


def test_a_placement_that_is_searched_for_trains_in_fewer_cycles(tmp_path, monkeypatch):
    """On 40 x 20 PEs: the row leaves PEs idle below its shorter layers."""
    given = config(tmp_path)
    chosen = placement.placement(given)
    assert chosen != row(given)
    searched = cycles(given)
    monkeypatch.setattr(placement, "_searched", lambda *_: None)
    monkeypatch.setattr(placement, "_placed", placement._placed.__wrapped__)  # which remembers the search
    assert placement.placement(given) == row(given)
    assert searched < 0.97 * cycles(given)


def test_a_row_that_is_as_fast_stays(tmp_path, monkeypatch):
    """What the search finds counts only if its programs take fewer cycles."""
    given = config(tmp_path, 24, 9, 16, 16)
    pipeline = placement._plan(given).pipeline(row(given), 9)
    cycles = tuple(network_cycles(pipeline).values())
    for more, how in ((0, "row"), (1, "row"), (-1, "search")):
        found = placement.Laid(pipeline, tuple(each + more for each in cycles), "search")
        monkeypatch.setattr(placement, "_searched", lambda *_, found=found: found)
        assert placement.laid(given).how == how


def test_what_no_row_holds_may_fit_all_the_same(tmp_path):
    """Layers under each other where side by side they are too wide; too few PEs are refused."""
    given = config(tmp_path, 9, 40)
    with pytest.raises(ConfigError):
        row(given)
    assert len(placement.placement(given)) == 3
    with pytest.raises(ConfigError):
        placement.placement(config(tmp_path, 4, 3))


def test_place_says_what_training_lays(tmp_path, capsys):
    """``wse place`` of a file gives the rectangles of ``wse train``, and the cycles of their programs."""
    given = config(tmp_path)
    assert main(["place", str(tmp_path / "net.toml"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    pipeline = PipelinedTrainer(given).compile().pipeline
    names = ("x", "y", "width", "height")
    assert [tuple(layer[name] for name in names) for layer in facts["layers"]] == [
        pipeline.rectangle(number) for number in range(3)
    ]
    assert (facts["width"], facts["height"], facts["minibatch"], facts["how"]) == (40, 20, 64, "search")
    assert [layer["cycles"] for layer in facts["layers"]] == list(network_cycles(pipeline).values())
