"""Batches that pass in parts, and gradients that are clipped: against numpy, going on, and refused where impossible."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.train.config import parse_train
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from tests.examples import few
from wse_core.errors import ConfigError

TEXT = """
wafers = {wafers}
[network]
inputs = 12
layers = [{{outputs = 6, activation = "relu"}}, {{outputs = 4}}]
[data]
source = "blobs.npz"
batch = 16
[mesh]
width = 2
height = 2
[train]
iterations = 10
optimizer = {{name = "sgd", lr = 0.5}}
"""


def config(*words, wafers=2):
    return parse_train(TEXT.format(wafers=wafers), "a.toml", words)


def bits(run):
    return np.concatenate([p.dense.reshape(-1) for p in run.parameters]).view(np.uint32)


def train(run, iterations):
    return [run.step() for _ in range(iterations)]


def test_parts_of_a_batch_add_up_in_f32(folder):
    """By hand: gradients of each part from a trainer that has only that part, added in order, one step of SGD."""
    whole = Trainer(config("train.accumulate=4"))
    before, indices = [p.dense.copy() for p in whole.parameters], whole.data.indices(0)
    single = Trainer(config("data.batch=4")).compile()
    classes, total = np.eye(4), None
    for part in np.split(indices, 4):
        x, y = whole.dataset.x_train[part].reshape(2, 2, -1), whole.dataset.y_train[part].reshape(2, 2)
        shards = [(whole.encode(a.T), whole.encode(classes[b].T)) for a, b in zip(x, y, strict=True)]
        found = single.train(shards, 2.0**15).gradients
        total = found if total is None else total + found
    step = whole.step()
    start = 0
    for old, parameter in zip(before, whole.parameters, strict=True):
        own = (total[start : start + old.size] / np.float32(2.0**15 * 16)).reshape(old.shape)
        assert np.array_equal(parameter.dense, old - np.float32(0.5) * own)
        start += old.size
    assert step.words == 4 * single.coordinator.script("train").n_words
    assert step.gradient_words == 4 * (start + 2)


@pytest.mark.parametrize(
    "words",
    few(
        [
            ("train.accumulate=4", "train.clip=0.2", "train.label_smoothing=0.2"),
            ("train.accumulate=2",),
            ("train.clip=0.05",),
        ],
        2,
    ),
)
def test_wafers_and_numpy_agree_bit_for_bit_and_runs_go_on(folder, words):
    runs = [Trainer(config(*words)), Trainer(config(*words), "numpy")]
    steps = [train(run, 6) for run in runs]
    assert [s.loss for s in steps[0]] == [s.loss for s in steps[1]]
    assert [s.norm for s in steps[0]] == [s.norm for s in steps[1]]
    assert np.array_equal(bits(runs[0]), bits(runs[1]))
    first, second = Trainer(config(*words)), Trainer(config(*words))
    train(first, 3)
    tensors, state = first.state()
    second.restore({k: v.copy() for k, v in tensors.items()}, json.loads(json.dumps(state)))
    assert [s.cycles for s in train(second, 3)] == [s.cycles for s in steps[0][3:]]
    assert np.array_equal(bits(runs[0]), bits(second))
    plain = PlainTrainer(config(*words))
    assert [plain.step().loss for _ in range(6)] == pytest.approx([s.loss for s in steps[0]], rel=2e-3)


def test_any_number_of_wafers_passes_the_same_parts(folder):
    runs = [Trainer(config("train.accumulate=2", wafers=wafers)) for wafers in (1, 2, 4)]
    losses = [[step.loss for step in train(run, 4)] for run in runs]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[2] == pytest.approx(losses[0], rel=1e-4)


def test_no_step_is_longer_than_the_clipped_norm(folder):
    """With SGD the way that the weights go is rate times norm: the limit where gradients are larger, else their own."""
    limit = 0.9
    run = Trainer(config(f"train.clip={limit}"))
    norms = []
    for _ in range(8):
        before = bits(run).view(np.float32).astype(np.float64)
        step = run.step()
        moved = np.linalg.norm(bits(run).view(np.float32) - before) / 0.5
        assert moved == pytest.approx(min(step.norm, limit), rel=1e-5)
        norms.append(step.norm)
    assert max(norms) > limit > min(norms)


def test_updates_wait_for_the_norm(folder):
    """No new weight leaves before the last gradient has come, so the boundary is longer than without a limit."""
    free, clipped = Trainer(config()), Trainer(config("train.clip=1000"))
    for run in (free, clipped):
        train(run, 3)
    system = clipped.system
    assert system.up.new[system.up._updated].min() >= system.up.came.max()
    assert free.system.up.new[system.up._updated].min() < free.system.up.came.max() + free.system.up.latency
    assert np.array_equal(bits(free), bits(clipped))  # a limit that nothing reaches
    assert free.cycles <= clipped.cycles


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train.accumulate=3",), r"a batch of 16 does not divide over 3 passes over 2 wafers of 2 rows.*12 or 24"),
        (("train.accumulate=0",), "0 is too small"),
        (("train.clip=0",), r"train\.clip: gradients without a length"),
        (("train.clip=-1",), "too small"),
    ],
)
def test_what_cannot_be_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        config(*words)


def test_a_batch_that_does_not_fit_passes_in_parts(folder):
    words = ["network.inputs=12", "data.batch=80000", "mesh.width=1"]
    with pytest.raises(ConfigError, match="does not fit"):
        config(*words).check_memory()
    config(*words, "train.accumulate=2000").check_memory()
