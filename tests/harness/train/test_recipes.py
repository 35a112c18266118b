"""What sparse training is for, on the digits: by the numpy reference, which training on wafers equals."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from harness.train.config import parse_train
from harness.train.plain import PlainTrainer

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")

TEXT = """
[network]
inputs = 64
layers = [{{outputs = 32, activation = "relu"}}, {{outputs = 10}}]
[data]
batch = 64
[train]
iterations = {iterations}
optimizer = {{name = "adam", lr = 0.02}}
schedule = {{kind = "cosine", warmup = 5, floor = 0.01}}
[sparsity]
{sparsity}
"""
SPARSITIES = (0.20, 0.36, 0.50, 0.60, 0.70, 0.799, 0.838, 0.865, 0.891)
"""Of iterative pruning in the white paper, section 6.2.2."""


def train(iterations, sparsity=""):
    """Return (trainer, loss of each iteration)."""
    run = PlainTrainer(parse_train(TEXT.format(iterations=iterations, sparsity=sparsity)))
    return run, np.array([run.step().loss for _ in range(iterations)])


def whole_loss(run):
    """Return (mean loss of the training set, accuracy on held-out digits)."""
    data = run.dataset
    loss, _ = run.model.loss(run.model.forward(run._active(), data.x_train), data.y_train)
    return loss / len(data.x_train), run.evaluate(data.x_test, data.y_test)


def test_sparse_then_dense_reaches_the_dense_loss():
    """Half of the iterations with a quarter of the weights, then all of them (WS-49)."""
    dense, mixed = train(300)[0], train(400, 'density = 0.25\nschedule = "dense-finetune"')[0]
    first, second = whole_loss(dense), whole_loss(mixed)
    assert second[0] <= 1.02 * first[0]
    assert second[1] > 0.95
    assert all(mask.all() for mask in mixed.masks.values())


def test_pruning_lifts_the_loss_which_recovers():
    """Nine prunings to 89.1%: from 60% on each is felt, and mended before the next (WS-50)."""
    densities = ", ".join(str(round(1 - sparsity, 3)) for sparsity in SPARSITIES)
    run, losses = train(600, f'schedule = "pruning"\ndensities = [{densities}]')
    assert [phase.begin for phase in run.phases] == list(range(0, 600, 60))
    for begin in range(240, 600, 60):
        before, after, mended = (losses[begin + a : begin + b].mean() for a, b in ((-10, 0), (0, 10), (50, 60)))
        assert after > 1.25 * before
        assert mended < after
    assert whole_loss(run)[1] > 0.9
    assert run.masks["layer1.weight"][:, :64].mean() == pytest.approx(0.109, abs=1e-3)


def test_wide_sparse_layers_cost_no_more_and_learn_as_well():
    """A quarter of the weights of layers twice as wide: as many weights (WS-51)."""
    plain, wide = train(150)[0], train(150, 'density = 0.25\nschedule = "sparse-ift"')[0]
    counts = [sum(int(run.masks[f"layer{k}.weight"][:, :-1].sum()) for k in (1, 2)) for run in (plain, wide)]
    assert counts == [64 * 32 + 32 * 10] * 2
    assert wide.weights["layer1.weight"].shape == (64, 65)
    assert whole_loss(wide)[1] > whole_loss(plain)[1] - 0.02
