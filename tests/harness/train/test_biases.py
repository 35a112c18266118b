"""Learned numbers of scores as they are trained: one for several distances, one table of several nodes."""

from __future__ import annotations

import numpy as np
import pytest

from harness.train.config import parse_train
from harness.train.trainer import Trainer
from wse_core.errors import ConfigError

TEXT = """
[network]
inputs = 5
nodes = [
    {{name = "a", op = "linear", outputs = 8}},
    {{name = "m", op = "attention", heads = 2, causal = {causal}, biases = {biases}, inputs = ["a", "a", "a"]}},
    {{name = "n", op = "attention", heads = 2, causal = {causal}, biases = {biases}, inputs = ["m", "a", "a"]{more}}},
    {{name = "b", op = "linear", outputs = 3}},
]
[data]
source = "ids.npz"
batch = 16
sequence = 4
labels = "token"
[mesh]
width = 2
height = 2
[train]
iterations = 3
optimizer = {{name = "adam", lr = 0.01}}
loss_scale = {{initial = 256.0}}
"""


def config(biases="[0, 1, 1, 2]", causal="true", more=""):
    """Return a configuration of two nodes of attention."""
    return parse_train(TEXT.format(biases=biases, causal=causal, more=more), "a.toml")


@pytest.mark.parametrize(
    ("biases", "causal"),
    [("[0, 1, 1, 2]", "true"), ("[3, 3, 2, 0, 2, 1, 1]", "false"), (str([0, 1, 2, 1] * 4), "false")],
)
def test_biases_of_one_number_stay_one_bit_by_bit(ids, biases, causal):
    """Losses and weights of wafers are those of the oracle; nodes may share a table."""
    given = config(biases, causal, ', shares = "m"')
    one, other = Trainer(given), Trainer(given, backend="numpy")
    assert [one.step().loss for _ in range(3)] == [other.step().loss for _ in range(3)]
    after, wanted = one.tensors(), other.tensors()
    assert all(np.array_equal(array, wanted[name]) for name, array in after.items())
    table = after["m.bias"].reshape(2, -1)
    assert np.array_equal(after["n.bias"], after["m.bias"])
    numbers = [np.unique(table[:, np.array(given.network.nodes[1].biases) == k], axis=1) for k in range(3)]
    assert all(own.shape == (2, 1) and own.all() for own in numbers)
    assert len(np.unique(numbers)) == 6


def test_biases_may_stay_as_they_are(ids):
    run = Trainer(config(more=", fixed = true"))
    run.step()
    assert run.tensors()["m.bias"].any()
    assert not run.tensors()["n.bias"].any()


@pytest.mark.parametrize(
    ("biases", "more", "what"),
    [
        ("[0, 1]", "", "2 biases for 4 distances, or 16 pairs, of tokens"),
        ("[0, 1, -1, 2]", "", "4 biases for 4 distances"),
        ("[]", ", fixed = true", "n has no biases"),
        ("[]", ', shares = "m"', "n has no biases"),
        (str([0] * 16), "", "biases 2 of scores, 0 slopes, masked"),
    ],
)
def test_biases_of_another_number_are_refused(ids, biases, more, what):
    with pytest.raises(ConfigError, match=what):
        config(biases, more=more)
