"""Heads that are normalised one by one: what they are, bits of wafers, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.plain import PlainGraph
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.streamed.resident import Resident
from harness.train.config import parse_train
from harness.train.trainer import Trainer
from wse_core.errors import UnsupportedError
from wse_core.params import machine

TEXT = """
wafers = {wafers}
[network]
inputs = 5
epsilon = 0.01
nodes = [
    {{name = "a", op = "linear", outputs = 12}},
    {{name = "q", op = "linear", outputs = 8}},
    {{name = "k", op = "linear", outputs = 4, inputs = ["a"]}},
    {{name = "qn", op = "{op}", groups = 2, shared = 4, inputs = ["q"]}},
    {{name = "kn", op = "{op}", groups = 1, inputs = ["k"]}},
    {{name = "qr", op = "rotary", heads = 2, inputs = ["qn"]}},
    {{name = "kr", op = "rotary", heads = 1, inputs = ["kn"]}},
    {{name = "mix", op = "attention", heads = 2, kv_heads = 1, inputs = ["qr", "kr", "k"]}},
    {{name = "b", op = "linear", outputs = 3}},
]
[data]
source = "ids.npz"
batch = {batch}
sequence = 4
labels = "token"
[mesh]
width = {width}
height = 2
head_columns = {columns}
[csconfig]
use_cbfloat16 = {cb16}
[train]
dtype = "{dtype}"
iterations = 2
optimizer = {{name = "adam", lr = 0.01}}
loss_scale = {{initial = 256.0}}
"""


def text(dtype="f16", wafers=1, width=2, columns=1, op="headrms"):
    """Return a configuration."""
    cb16 = str(dtype == "cb16").lower()
    return TEXT.format(dtype=dtype, cb16=cb16, wafers=wafers, width=width, batch=16, columns=columns, op=op)


@pytest.mark.parametrize("op", ["headrms", "groupnorm"])
@pytest.mark.parametrize(("dtype", "wafers", "width"), [("f16", 1, 2), ("cb16", 1, 1), ("f16", 2, 3)])
def test_heads_are_normalised_bit_by_bit(ids, dtype, wafers, width, op):
    """Losses and weights of wafers are those of the oracle; factors that heads share stay alike."""
    config = parse_train(text(dtype, wafers, width, op=op), "a.toml")
    assert config.build_network().dtype == dtype
    one, other = Trainer(config), Trainer(config, backend="numpy")
    before = one.tensors()
    assert [one.step().loss for _ in range(2)] == [other.step().loss for _ in range(2)]
    after, wanted = one.tensors(), other.tensors()
    assert all(np.array_equal(array, wanted[name]) for name, array in after.items())
    for numbers in (after[name] for name in ("qn.norm.weight", "qn.norm.bias") if name in after):
        assert np.array_equal(numbers[:4], numbers[4:])
        assert len(np.unique(numbers)) == 4
    for name in ("qn.norm.weight", "kn.norm.weight", "q.weight", "k.weight", "a.weight"):
        assert not np.array_equal(before[name], after[name])


def heads(groups=2, more=()):
    """Return a network with a normalisation of heads."""
    sizes = {"channels": 8, "height": 1, "width": 1, "groups": groups}
    nodes = [
        Node("a.linear", "linear", ("input",), {"inputs": 5, "outputs": 8, "bias": 1}),
        Node("n.headrms", "headrms", ("a.linear",), sizes),
        *more,
        Node("b.linear", "linear", (more[-1].name if more else "n.headrms",), {"inputs": 8, "outputs": 3, "bias": 1}),
    ]
    return Network((*nodes, Node("loss", "cross_entropy", ("b.linear",))), 5)


def test_a_head_is_divided_by_the_root_of_its_mean_square():
    """Numbers from the formula, and gradients by central differences."""
    network, rng = heads(), np.random.default_rng(1)
    a, x, g = PlainGraph(network, "f64"), rng.standard_normal((3, 8)), rng.standard_normal((1, 8))
    node, row = network.nodes[1], OPERATIONS["headrms"]
    found, kept = row.plain(a, node, x, g)
    by_head = x.reshape(3, 2, 4)
    wanted = by_head / np.sqrt(np.square(by_head).mean(2, keepdims=True) + network.epsilon)
    assert np.allclose(found, wanted.reshape(3, 8) * g, rtol=1e-12)
    delta, step = rng.standard_normal((3, 8)), 1e-6
    below, gradient = row.plain_back(a, node, delta, kept, g)
    for array, slopes in ((x, below), (g, gradient)):
        for place in np.ndindex(array.shape):
            ends = []
            for sign in (1, -1):
                array[place] += sign * step
                ends.append((row.plain(a, node, x, g)[0] * delta).sum())
                array[place] -= sign * step
            assert slopes[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


def test_what_is_not_normalised_by_heads_is_refused(ids):
    sizes = {"channels": 8, "height": 1, "width": 1, "groups": 4}
    network = heads(more=(Node("m.headrms", "headrms", ("n.headrms",), sizes),))
    with pytest.raises(UnsupportedError, match="heads of 2 and of 4 features are normalised"):
        Resident(network, machine(), 2, 1, 4).program(0, "only")
    with pytest.raises(UnsupportedError, match="qn.headrms works on whole heads"):
        Trainer(parse_train(text(columns=2), "a.toml"))
