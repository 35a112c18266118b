"""Features that are an image from some node on: generators, decoders, samples that are seen as images."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.networks.graph.plain import PlainGraph
from harness.train.config import parse_train
from harness.train.data import load
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from wse_core.errors import ConfigError, UnsupportedError

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper, save
from onnx.reference import ReferenceEvaluator

TEXT = """
wafers = {wafers}
[network]
{network}
[data]
source = "d.npz"
batch = 8
[mesh]
width = 2
height = 2
[train]
iterations = 2
dtype = "{dtype}"
loss_scale = {{initial = 256.0}}
[csconfig]
use_cbfloat16 = {cb16}
"""
NODES = """
inputs = 4
nodes = [
    {name = "a", op = "linear", outputs = 12},
    {name = "r", op = "relu", image = [3, 2, 2]},
    {name = "t", op = "transposed", outputs = 2, kernel = 2, stride = 2},
    {name = "b", op = "relu"},
    {name = "c", op = "linear", outputs = 3},
]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 4)).astype(np.float32), rng.integers(0, 3, 8)
    np.savez("d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return x


def config(network=NODES, wafers=1, dtype="f16"):
    cb16 = str(dtype == "cb16").lower()
    return parse_train(TEXT.format(network=network, wafers=wafers, dtype=dtype, cb16=cb16), "a.toml")


@pytest.mark.parametrize(("wafers", "dtype"), [(1, "f16"), (2, "cb16")])
def test_wafers_train_features_that_become_images(folder, wafers, dtype):
    machine, oracle = (Trainer(config(wafers=wafers, dtype=dtype), backend=name) for name in ("compiled", "numpy"))
    steps, others = ([run.step() for _ in range(2)] for run in (machine, oracle))
    assert [step.loss for step in steps] == [step.loss for step in others]
    assert len({step.cycles - step.boundary for step in steps}) == 1
    found, other = machine.tensors(), oracle.tensors()
    assert all(np.array_equal(found[name], other[name]) for name in found)


def test_files_say_it_as_a_reshape(folder):
    """What is written is calculated by ONNX as here, and read again as the same nodes."""
    run = PlainTrainer(config())
    run.save_onnx("m.onnx")
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": folder})
    again = PlainTrainer(config('file = "m.onnx"'))
    nodes = [(node.op, node.image) for node in again.config.network.nodes]
    plain = [(op, ()) for op in ("linear", "relu", "transposed", "relu", "linear")]
    assert nodes == [*plain[:1], ("relu", (3, 2, 2)), *plain[2:]]
    for one in (run, again):
        graph = PlainGraph(one.config.graph, "f64")
        assert np.allclose(graph.forward(one._active(), load(one.config).x_test[:]), wanted, atol=3e-5)


def written(how):
    """Write a file whose features are seen as images, or nearly so."""
    rng, sizes = np.random.default_rng(0), np.array([0, 2, 2, 2] if how != "other" else [0, 4, 1, 2], np.int64)
    held = {"w.weight": (8, 4), "k.weight": (2, 4 if how == "other" else 2, 1, 1), "h.weight": (3, 8)}
    if how == "samples":
        held |= {"k.weight": (2, 1, 1, 1), "h.weight": (3, 8)}
        sizes = np.array([0, 1, 2, 2], np.int64)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in held.items()}
    first = [] if how == "samples" else [helper.make_node("Gemm", ["x", "w.weight"], ["f"], "first", transB=1)]
    given = "x" if how == "samples" else "f"
    nodes = [*first, helper.make_node("Reshape", [given, "sizes"], ["i"], "see")]
    if how == "other":
        nodes[-1:] = [
            helper.make_node("Reshape", ["f", "before"], ["j"], "see"),
            helper.make_node("Relu", ["j"], ["k"], "bend"),
            helper.make_node("Reshape", ["k", "sizes"], ["i"], "again"),
        ]
    nodes += [
        helper.make_node("Conv", ["i", "k.weight"], ["c"], "cut"),
        helper.make_node("Flatten", ["c"], ["g"], "flat"),
    ]
    if how == "samples":
        nodes[-1].output[0] = "g"
    last = "g"
    if how == "taken":
        nodes += [helper.make_node("Add", ["g", "f"], ["s"], "sum")]
        last = "s"
    width = 8 if how != "other" else 4
    arrays["h.weight"] = arrays["h.weight"][:, :width]
    nodes += [helper.make_node("Gemm", [last, "h.weight"], ["y"], "head", transB=1)]
    arrays |= {"sizes": sizes} | ({"before": np.array([0, 2, 2, 2], np.int64)} if how == "other" else {})
    arrays = {name: array for name, array in arrays.items() if any(name in node.input for node in nodes)}
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", count]) for name, count in (("x", 4), ("y", 3))
    ]
    graph = helper.make_graph(
        nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9), "m.onnx")


@pytest.mark.parametrize("how", ["features", "samples", "other"])
def test_files_whose_features_are_seen_as_images(folder, how):
    """Features, samples; or an image as one of other channels, whose numbers are put elsewhere then."""
    written(how)
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": folder})
    run = PlainTrainer(config('file = "m.onnx"'))
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    assert np.allclose(found, wanted, atol=3e-5)
    assert run.config.network.image == ((1, 2, 2) if how == "samples" else ())


def test_features_that_are_taken_otherwise_too_are_named(folder):
    written("taken")
    with pytest.raises(UnsupportedError, match=r"cut \(Conv\): takes features as an image that are taken as features"):
        config('file = "m.onnx"')


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("[3, 2, 2]", "[3, 2, 1]"), "r gives 12 features"),
        (("[3, 2, 2]", "[12]"), "an image has three sizes"),
        (('{name = "b", op = "relu"', '{name = "b", op = "relu", image = [2, 4, 4]'), "b gives an image already"),
    ],
)
def test_images_that_features_are_not_are_named(folder, change, what):
    with pytest.raises(ConfigError, match=what):
        config(NODES.replace(*change))
