"""Nodes that have the numbers of one before them: modules that are called several times."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.networks.graph.plain import PlainGraph
from harness.train.config import parse_train
from harness.train.data import load
from harness.train.plain import PlainTrainer
from harness.train.shared import trained
from harness.train.trainer import Trainer
from tests.harness.train.sequence_files import VOCABULARY, D, S, SequenceFile
from wse_core.errors import ConfigError, UnsupportedError

TEXT = """
wafers = {wafers}
[network]
inputs = 4
nodes = [
    {{name = "a", op = "linear", outputs = 6}},
    {{name = "b", op = "linear", outputs = 6}},
    {{name = "n", op = "norm"}},
    {{name = "c", op = "linear", outputs = 6{c}}},
    {{name = "m", op = "norm"{m}}},
    {{name = "s", op = "add", inputs = ["m", "n"]}},
    {{name = "d", op = "linear", outputs = 6{d}}},
    {{name = "e", op = "linear", outputs = 3}},
]
[data]
source = "d.npz"
batch = 8
[mesh]
width = 2
height = 2
[train]
iterations = 3
dtype = "{dtype}"
clip = 0.5
optimizer = {{name = "adam", lr = 0.01}}
loss_scale = {{initial = 256.0}}
[csconfig]
use_cbfloat16 = {cb16}
{more}
"""
SAME = {"c": ', shares = "b"', "m": ', shares = "n"', "d": ', shares = "b"'}


def config(wafers=1, dtype="f16", more="", **given):
    words = {"c": "", "m": "", "d": ""} | (given or SAME)
    return parse_train(
        TEXT.format(wafers=wafers, dtype=dtype, cb16=str(dtype == "cb16").lower(), more=more, **words), "a.toml"
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 4)), rng.integers(0, 3, 8)
    np.savez("d.npz", x_train=x, y_train=y, x_test=x, y_test=y)


@pytest.mark.parametrize(("wafers", "dtype"), [(1, "f16"), (2, "cb16")])
def test_wafers_keep_numbers_equal_that_are_one(folder, wafers, dtype):
    machine, oracle = (Trainer(config(wafers, dtype), backend=name) for name in ("compiled", "numpy"))
    before = machine.tensors()
    steps, others = ([run.step() for _ in range(3)] for run in (machine, oracle))
    assert [(step.loss, step.norm) for step in steps] == [(step.loss, step.norm) for step in others]
    assert len({step.cycles - step.boundary for step in steps}) == 1
    found, other = machine.tensors(), oracle.tensors()
    assert all(np.array_equal(found[name], other[name]) for name in found)
    for kind in ("weight", "bias"):
        for one, first in (("c", "b"), ("d", "b"), ("m.norm", "n.norm")):
            assert np.array_equal(found[f"{one}.{kind}"], found[f"{first}.{kind}"])
            assert not np.array_equal(found[f"{one}.{kind}"], before[f"{one}.{kind}"])


def test_gradients_of_what_is_one_are_those_of_small_steps(folder):
    """A step of a number in all of its places changes the loss by its gradient; clipping counts it once."""
    run = PlainTrainer(config())
    settings, graph = run.config, PlainGraph(run.config.graph, "f64")
    data = load(settings)
    held = {one.name: one.dense.astype(np.float64) for one in run.parameters}
    _, apart = graph.gradients(held, data.x_train.astype(np.float64), data.y_train)
    flat = [apart[one.name].ravel() for one in run.parameters]
    found = {
        one.name: array.reshape(one.dense.shape)
        for one, array in zip(run.parameters, trained(settings, run.matrices, flat), strict=True)
    }
    for names, at in ((("b.weight", "c.weight", "d.weight"), (2, 3)), (("n.norm", "m.norm"), (0, 1))):
        losses = []
        for step in (1e-5, -1e-5):
            moved = {name: array.copy() for name, array in held.items()}
            for name in names:
                moved[name][at] += step
            losses.append(graph.gradients(moved, data.x_train.astype(np.float64), data.y_train)[0])
        for name in names:
            assert found[name][at] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-4)
    norm = np.sqrt(sum(np.square(found[name] / 8).sum() for name in ("a.weight", "b.weight", "n.norm", "e.weight")))
    assert run.step().norm == pytest.approx(norm, rel=1e-2)


@pytest.mark.parametrize(
    ("given", "more", "what"),
    [
        ({"c": ', shares = "e"'}, "", "there is no 'e' before 'c'"),
        ({"c": ', shares = "a"'}, "", "'c' has no numbers like those of 'a'"),
        ({"c": ', shares = "n"'}, "", "'c' has no numbers like those of 'n'"),
        ({"c": ', bias = false, shares = "b"'}, "", "'c' has no numbers like those of 'b'"),
        ({"c": ', fixed = true, shares = "b"'}, "", "'c' has no numbers like those of 'b'"),
        ({"c": ', shares = "b"', "d": ', shares = "c"'}, "", "numbers that are others' already"),
        ({"c": ', shares = "b"'}, "[sparsity]\ndensity = 0.5", "weights that are shared have no gaps"),
    ],
)
def test_nodes_that_have_no_numbers_alike_are_named(folder, given, more, what):
    with pytest.raises((ConfigError, UnsupportedError), match=what):
        config(more=more, **given)


def test_statistics_of_batches_are_not_shared(folder):
    text = TEXT.replace("norm", "batchnorm").format(
        wafers=1, dtype="f16", cb16="false", more="", c="", d="", m=', shares = "n"'
    )
    with pytest.raises(UnsupportedError, match="'m' shares statistics of two batches"):
        parse_train(text, "a.toml")


def test_files_of_weights_have_what_is_one_alike(folder):
    run = PlainTrainer(config())
    run.step()
    run.save_weights("w.npz")
    again = PlainTrainer(config())
    again.load_weights("w.npz")
    assert np.array_equal(again.tensors()["d.weight"], run.tensors()["b.weight"])
    held = dict(np.load("w.npz"))
    np.savez("w.npz", **(held | {"c.weight": held["c.weight"] + 1}))
    with pytest.raises(ConfigError, match=r"load_weights.*b.weight and c.weight share numbers, and differ there"):
        PlainTrainer(config()).load_weights("w.npz")
    with pytest.raises(ConfigError, match=r"b.weight and c.weight share numbers, and differ there"):
        PlainTrainer(
            parse_train(
                TEXT.format(wafers=1, dtype="f16", cb16="false", more="", **SAME), "a.toml", ["network.weights=w.npz"]
            )
        )


FILE = """
[network]
file = "m.onnx"
[data]
source = "t.npz"
batch = 24
[train]
iterations = 1
"""


def called_twice(f, how):
    """Append a product and a normalisation that are called twice, or what is nearly that."""
    x = f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x")
    for number in range(2):
        bias = how != "bias"
        y = f.linear(x, "step", D, D, bias=bias)
        y = y if bias else f.op("Add", y, f.parameter(f"b{number}", D))
        names = f.parameter("n.weight", D, around=1.0), f.parameter("n.bias", D)
        f.given["n.bias"] *= how != "merged"
        if how == "turned":
            y = f.op("MatMul", y, f.parameter("turned", D, D) if number else f.op("Transpose", "turned", perm=[1, 0]))
        elif how == "parts":
            part = f.op(
                "Slice", f.parameter("both", D, D + 2), *(f.constant([k], np.int64) for k in (number, number + D, 1))
            )
            y = f.op("MatMul", y, part)
        x = f.op("LayerNormalization", f.op("Add", x, f.op("Tanh", y)), *names, axis=-1, epsilon=1e-5)
    return f.linear(x, "head", 5, D)


@pytest.mark.parametrize("how", ["same", "bias", "merged", "turned", "parts"])
def test_files_whose_nodes_have_the_same_parameters(folder, how):
    """Whole nodes share all that they have; numbers that are all equal may have been merged by an exporter."""
    onnx, f = pytest.importorskip("onnx"), SequenceFile(0)
    if how == "turned":
        f.parameter("turned", D, D)
    f.write("m.onnx", called_twice(f, how))
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (4, S))
    np.savez("t.npz", x_train=ids, y_train=ids % 5, x_test=ids, y_test=ids % 5)
    if how != "same":
        what = {"bias": "step.weight", "merged": "n.bias", "turned": "turned", "parts": "made of both"}[how]
        with pytest.raises((ConfigError, UnsupportedError), match=what):
            parse_train(FILE, "a.toml")
        return
    run = PlainTrainer(parse_train(FILE, "a.toml"))
    shares = {node.name: node.shares for node in run.config.network.nodes if node.shares}
    assert shares == {"step_2": "step", "n_2": "n"}
    (wanted,) = onnx.reference.ReferenceEvaluator("m.onnx").run(None, {"x": ids})
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    assert np.allclose(found, wanted.reshape(found.shape), atol=3e-5)
    run.step()
    assert {name: array.shape for name, array in run.state_dict().items()} == {
        name: array.shape for name, array in f.given.items()
    }
