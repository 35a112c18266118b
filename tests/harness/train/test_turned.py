"""Gradients as rows times scalars under the options that touch gradients: weights equal numpy's, bit for bit."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.train.config import parse_train
from harness.train.trainer import Trainer

TEXT = """
wafers = {wafers}
[network]
inputs = 12
layers = [{{outputs = 10, activation = "relu", norm = true}}, {{outputs = 4{density}}}]
[data]
source = "blobs.npz"
batch = 32
[mesh]
width = 2
height = 1
[train]
iterations = 8
optimizer = {{name = "adam", lr = 0.02}}
"""
EXCHANGE = ('sparsity.schedule="rigl"', "sparsity.every=2", "sparsity.fraction=0.3", "sparsity.until=0.9")


def bits(run):
    return np.concatenate([p.dense.reshape(-1) for p in run.parameters]).view(np.uint32)


@pytest.mark.parametrize(
    ("wafers", "density", "words"),
    [
        (1, "", ()),
        (2, "", ("train.accumulate=2", "train.clip=0.2")),
        (4, "", ('machine.preset="wse3"',)),
        (2, "", ("memx.dram.bytes=500",)),
        (1, ", density = 0.5", EXCHANGE),
    ],
)
def test_wafers_and_numpy_agree_and_runs_go_on(folder, wafers, density, words):
    """Six iterations, the last two of which go on from a state that was taken out and put in again."""
    config = parse_train(TEXT.format(wafers=wafers, density=density), "a.toml", words)
    run, oracle = Trainer(config), Trainer(config, "numpy")
    assert "layer1.weight" in run.compile().resident.turned
    for _ in range(4):
        run.step()
        oracle.step()
    tensors, state = run.state()
    again = Trainer(config)
    again.restore({name: values.copy() for name, values in tensors.items()}, json.loads(json.dumps(state)))
    for one in (again, oracle):
        one.step()
        one.step()
    assert np.array_equal(bits(again), bits(oracle))
