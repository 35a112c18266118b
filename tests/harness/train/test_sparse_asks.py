"""Gradients of matrices with gaps come by whole rows where that takes fewer cycles, and train the same bits."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from fabric.networks.streamed.operations.gradients import rows_pay
from harness.cli import main as cli
from harness.train.config import parse_train
from harness.train.trainer import Trainer
from memx.pattern import Pattern
from tests.examples import mixed, some
from tests.fabric.networks import Case
from wse_core.params import machine

TEXT = """
seed = 1
[network]
inputs = 64
layers = [{{outputs = 30, activation = "relu"}}, {{outputs = 10}}]
[data]
source = "digits"
batch = 32
[mesh]
width = 2
height = 4
[train]
iterations = {iterations}
{train}
[sparsity]
density = {density}
{schedule}
[memx]
dense_rows = "{rows}"
"""


def trained(density=0.5, rows="pairs", iterations=4, train="", schedule=""):
    """Train; return weights and losses of every iteration, cycles, and how often an update was left out."""
    text = TEXT.format(density=density, rows=rows, iterations=iterations, train=train, schedule=schedule)
    trainer = Trainer(parse_train(text))
    steps = [trainer.step() for _ in range(iterations)]
    weights = [parameter.dense.tobytes() for parameter in trainer.parameters]
    return weights, [(one.loss, one.skipped, one.norm) for one in steps], trainer.cycles, trainer


@pytest.mark.parametrize(
    ("train", "schedule"),
    [
        ("", ""),
        ('optimizer = {name = "adamw", lr = 0.01, weight_decay = 0.1}\nclip = 0.5', ""),
        ("loss_scale = {initial = 32768.0}\noptimizer = {lr = 0.5}", ""),
        ("", 'schedule = "rigl"\nfraction = 0.3\nevery = 2'),
        ("", 'schedule = "set"\nfraction = 0.3\nevery = 2'),
        ("accumulate = 2", ""),
    ][: some(6, 3)],
)
@pytest.mark.parametrize("density", [0.5, 0.85])
def test_rows_and_places_train_the_same_bits(train, schedule, density):
    """Whatever is clipped, skipped, exchanged or added; what there is no weight for decides nothing, sent or not."""
    by_rows = trained(density, train=train, schedule=schedule)
    by_places = trained(density, "steps", train=train, schedule=schedule)
    assert all(matrix.whole for matrix in by_rows[3].matrices) == (density > 0.8)
    assert any(matrix.by_rows for matrix in by_rows[3].matrices)
    assert not any(matrix.by_rows for matrix in by_places[3].matrices)
    assert by_rows[:2] == by_places[:2]
    assert by_rows[2] < by_places[2]


def test_half_of_the_weights_gone_saves_time():
    """Of the time of all weights, which take the fast way too; and the sparser, the less time."""
    cycles = {density: trained(density, iterations=1)[2] for density in (1.0, 0.5, 0.3, 0.1)}
    assert cycles[0.1] < cycles[0.3] < cycles[0.5] < 0.97 * cycles[1.0]
    assert cycles[0.5] < 0.75 * trained(0.5, "steps", iterations=1)[2]


MESHES = list(product([0.05, 0.15, 0.4, 0.8], [(1, 4), (2, 8), (4, 16)]))
"""Densities, columns and tokens."""


@pytest.mark.parametrize(("mesh", "features"), mixed(MESHES, [(60, 30, 8), (98, 33, 7), (40, 40, 40)]))
def test_whole_rows_are_asked_for_where_that_takes_fewer_cycles(mesh, features):
    """What is chosen takes no more than a twentieth above the other."""
    density, (width, tokens) = mesh
    taken = {}
    for by_rows in (False, True):
        case = Case(features, width, 2, tokens, form="both", seed=3)
        names = [parameter.name for parameter in case.network.parameters[: len(case.matrices)]]
        for name, matrix in zip(names, case.matrices, strict=True):
            matrix.set_pattern(Pattern.random(matrix.pattern.shape, density, np.random.default_rng(5)))
            everywhere = Pattern.dense(matrix.pattern.shape)
            matrix.gradient_pattern = everywhere if by_rows and name in case.resident.turned else matrix.pattern
        both = zip(names, case.matrices, strict=True)
        chosen = [case.resident.asks_rows(name, matrix.pattern.density) for name, matrix in both]
        taken[by_rows] = case.train()[0].cycles
    if all(chosen):
        assert taken[True] < 1.05 * taken[False]
    elif not any(chosen):
        assert taken[False] < 1.05 * taken[True]


def test_the_price_decides():
    """A matrix of which hardly a weight is there asks for these; without a copy nothing else can be asked for."""
    place = machine(), "f16", 8, 100, 10, 20, True
    assert rows_pay(*place, 0.9)
    assert not rows_pay(*place, 0.01)
    assert not rows_pay(machine(), "f16", 10_000, 100, 10, 20, True, 0.9)
    case = Case((60, 30, 8), 2, 2, 8, form="steps")
    assert not case.resident.asks_rows("layer1.weight", 0.9)
    case = Case((60, 30, 8), 2, 2, 8, form="both")
    assert case.resident.asks_rows("layer1.weight", 0.9)
    assert not case.resident.asks_rows("layer1.weight", 1.0)


@pytest.mark.parametrize(("density", "said"), [(0.9, True), (0.1, False), (1.0, False)])
def test_a_mask_that_cannot_pay_is_warned_of(tmp_path, monkeypatch, capsys, density, said):
    monkeypatch.chdir(tmp_path)
    text = TEXT.format(density=density, rows="pairs", iterations=1, train="", schedule="")
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    words = ["train", "a.toml", "--wafers", "1", "--mode", "streaming", "--compile-only", "--json"]
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1])["compiled"]
    assert ("these masks save no time here" in err) == said
