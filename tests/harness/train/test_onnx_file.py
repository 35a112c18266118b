"""Networks from ONNX files: logits as the reference evaluator of ONNX has them, weights out as they came in."""

from __future__ import annotations

import copy
import re
import sys

import numpy as np
import pytest

import wse
from fabric.networks.graph.plain import PlainGraph
from fabric.networks.graph.table import OPERATIONS
from harness.cli.main import main
from harness.train.config import TrainConfig, parse_train
from harness.train.nodes import SIDES, graph_of
from harness.train.onnx_file import read_onnx, save_onnx
from harness.train.plain import PlainTrainer
from harness.train.tables import NodeConfig
from harness.train.trainer import Trainer
from wse_core.errors import ConfigError, TraceError, UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

TEXT = """
wafers = {wafers}
[network]
file = "m.onnx"
[data]
source = "blobs.npz"
batch = 16
[mesh]
width = 3
height = 2
[train]
iterations = 4
optimizer = {{name = "adam", lr = 0.01}}
"""


def values(rng, **shapes):
    """Return parameters by name; dots in names are written as two underlines."""
    return {
        name.replace("__", "."): (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in shapes.items()
    }


def sized(sizes):
    """Return the sizes of a tensor of samples of so many features, or those that are given."""
    return ["n", sizes] if isinstance(sizes, int) else sizes


def write(path, nodes, parameters, inputs=12, outputs=4, opset=20):
    """Write a file of nodes; `parameters` are its initializers."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sized(inputs))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sized(outputs))],
        [numpy_helper.from_array(array, name) for name, array in parameters.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)


def mixed(path, end=()):
    """Write a file with every kind of node that is read; return its parameters."""
    rng = np.random.default_rng(5)
    given = values(
        rng, a__weight=(9, 12), a__bias=(9,), n__weight=(9,), n__bias=(9,), b__weight=(7, 9), b__bias=(7,), c=(7, 6)
    )
    given |= values(rng, d__weight=(4, 6), d__bias=(4,))
    node = helper.make_node
    nodes = [
        node("Flatten", ["x"], ["rows"], "flat", axis=1),
        node("Gemm", ["rows", "a.weight", "a.bias"], ["a"], "a", transB=1),
        node("LayerNormalization", ["a", "n.weight", "n.bias"], ["n"], "norm", axis=-1, epsilon=1e-5),
        node("Relu", ["n"], ["r"], "relu"),
        node("Identity", ["r"], ["i"], "same"),
        node("Transpose", ["b.weight"], ["bt"], "turn", perm=[1, 0]),
        node("MatMul", ["i", "bt"], ["b0"], "b"),
        node("Add", ["b.bias", "b0"], ["b1"], "b bias"),
        node("Gelu", ["b1"], ["g"], "gelu", approximate="tanh"),
        node("Dropout", ["g"], ["drop"], "drop"),
        node("MatMul", ["drop", "c"], ["c0"], "c"),
        node("Sigmoid", ["c0"], ["s"], "sigmoid"),
        node("Mul", ["c0", "s"], ["silu"], "silu"),
        node("Gemm", ["silu", "d.weight", "d.bias"], ["logits" if end else "y"], "d", transB=1),
        *end,
    ]
    write(path, nodes, given)
    return given


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make a directory with samples; it is the one that commands run in."""
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((100, 12)).astype(np.float32)
    labels = (samples @ rng.standard_normal((12, 4))).argmax(1)
    np.savez(tmp_path / "blobs.npz", x_train=samples[:80], y_train=labels[:80], x_test=samples[80:], y_test=labels[80:])
    (tmp_path / "a.toml").write_text(TEXT.format(wafers=1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_logits_are_those_of_the_reference_evaluator(folder):
    mixed("m.onnx")
    config = parse_train(TEXT.format(wafers=1), "a.toml")
    assert config.widths == (12, 9, 7, 6, 4)
    shown = [(layer.activation, layer.bias, layer.norm) for layer in config.network.layers]
    assert shown == [("relu", True, True), ("gelu", True, False), ("silu", False, False), ("none", True, False)]
    run, x = PlainTrainer(config), np.load("blobs.npz")["x_test"]
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = run.model.forward(run._active(), x)
    assert np.abs(found - wanted).max() < 0.01 * np.abs(wanted).max()  # weights and activations of 16 bits
    assert (found.argmax(1) == wanted.argmax(1)).mean() > 0.9


def test_what_came_in_goes_out_with_the_same_bytes(folder):
    given = mixed("m.onnx")
    run = PlainTrainer(parse_train(TEXT.format(wafers=1), "a.toml"))
    run.save_onnx("again.onnx")
    assert (folder / "again.onnx").read_bytes() == (folder / "m.onnx").read_bytes()
    out = run.state_dict()
    assert {name: (array.shape, array.tobytes()) for name, array in out.items()} == {
        name: (array.shape, array.tobytes()) for name, array in given.items()
    }


@pytest.mark.parametrize("wafers", [1, 2])
def test_wafers_train_it_bit_for_bit_as_the_oracle_does(folder, wafers):
    given = mixed("m.onnx")
    config = parse_train(TEXT.format(wafers=wafers), "a.toml")
    machine, oracle = Trainer(config), Trainer(config, backend="numpy")
    steps = [(machine.step().loss, oracle.step().loss) for _ in range(4)]
    assert all(a == b for a, b in steps)
    one, other = machine.state_dict(), oracle.state_dict()
    for name, array in given.items():
        assert np.array_equal(one[name], other[name])
        assert not np.array_equal(one[name], array)


def test_the_command_trains_a_file_and_writes_it_again(folder, capsys):
    given = mixed("m.onnx", [helper.make_node("Softmax", ["logits"], ["y"], "probabilities")])
    assert main(["train", "a.toml", "--reference", "--save-onnx", "out.onnx", "--iterations", "3"]) == 0
    assert "probabilities of m.onnx is left out" in capsys.readouterr().err
    trained = {item.name: numpy_helper.to_array(item) for item in onnx.load("out.onnx").graph.initializer}
    assert trained.keys() == given.keys()
    assert all(not np.array_equal(trained[name], given[name]) for name in given)
    assert read_onnx("out.onnx").layers == read_onnx("m.onnx").layers


def test_every_node_that_is_not_trained_is_named(folder, capsys):
    node, given = helper.make_node, values(np.random.default_rng(0), w=(4, 12), p__weight=(4,), p__bias=(4,))
    nodes = [
        node("Log", ["x"], ["t"], "first"),
        node("Gemm", ["t", "w"], ["g"], "product", transB=1),
        node("Sqrt", ["g"], ["e"], "bent"),
        node("LayerNormalization", ["e", "p.weight", "p.bias"], ["l"], "small", epsilon=1e-13),
        node("Exp", ["l"], ["y"]),
    ]
    write("m.onnx", nodes, given)
    assert main(["train", "a.toml", "--validate-only"]) != 0
    said = capsys.readouterr().err
    for line in ("first (Log)", "bent (Sqrt)", "small (LayerNormalization): epsilon", "y (Exp)"):
        assert line in said
    assert "product" not in said


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ("shared", ConfigError, r"(?s)w is the parameter of 2 nodes.*optimize=False"),
        ("lost", ConfigError, r"(?s)val_3 is no name of a parameter.*optimize=False"),
        ("batch norm", ConfigError, r"(?s)statistics of inference.*TrainingMode.TRAINING.*from_torch"),
        ("known norm", ConfigError, "statistics of inference"),
        ("small norm", UnsupportedError, "legit__0 .BatchNormalization.: epsilon is 1e-12 to 1 here"),
        ("two ways", UnsupportedError, "relu .Relu.: nothing takes its result"),
        ("alpha", UnsupportedError, "first .Gemm.: alpha and beta are 1"),
        ("fit", UnsupportedError, "second .Gemm.: takes 5 features, what it is given has 12"),
        ("two factors", UnsupportedError, "both .MatMul.: products of two tensors are not trained here"),
        ("gate", UnsupportedError, "(?s)gate .Log.: takes a function of numbers that is none of relu.*optimize=False"),
        ("old", ConfigError, "operators of version 11"),
    ],
)
def test_files_that_are_refused(folder, change, error, match):
    node, given = helper.make_node, values(np.random.default_rng(0), w=(12, 12), v=(4, 12), val_3=(12, 12), u=(4, 5))
    extra = values(np.random.default_rng(0), s=(12,), t=(12,), m=(12,))
    extra |= {"n": np.abs(extra["m"])}
    norm = ["h", "s", "t", "m", "n"]
    head, tail = node("Gemm", ["x", "w"], ["h"], "first"), node("Gemm", ["k", "v"], ["y"], "second", transB=1)
    yes = numpy_helper.from_array(np.array(True), "yes")
    middle = {
        "shared": [head, node("Gemm", ["h", "w"], ["k"], "again", transB=1), tail],
        "lost": [node("Gemm", ["x", "val_3"], ["k"], "first"), tail],
        "batch norm": [head, node("BatchNormalization", norm, ["k"], "norm"), tail],
        "known norm": [head, node("BatchNormalization", norm, ["k"], "_native_batch_norm_legit_no_training"), tail],
        "small norm": [head, node("BatchNormalization", norm, ["k"], "_native_batch_norm_legit__0", epsilon=2.0), tail],
        "two ways": [head, node("Relu", ["h"], ["k"], "relu"), node("Gemm", ["x", "v"], ["y"], "second", transB=1)],
        "alpha": [node("Gemm", ["x", "w"], ["k"], "first", alpha=2.0), tail],
        "fit": [head, node("Gemm", ["h", "u"], ["y"], "second", transB=1)],
        "two factors": [head, node("MatMul", ["h", "h"], ["k"], "both"), tail],
        "gate": [head, node("Log", ["h"], ["g"], "gate"), node("Mul", ["g", "x"], ["k"], "times"), tail],
        "old": [head, node("Relu", ["h"], ["k"]), tail],
    }[change]
    write("m.onnx", middle, given | extra | {"yes": numpy_helper.to_array(yes)}, opset=11 if change == "old" else 20)
    with pytest.raises(error, match=match):
        read_onnx("m.onnx")


def test_other_mistakes(folder):
    with pytest.raises(ConfigError, match="no such file"):
        parse_train(TEXT.format(wafers=1), "a.toml")
    (folder / "m.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_onnx("m.onnx")
    mixed("m.onnx")
    with pytest.raises(ConfigError, match="the file says it"):
        parse_train(TEXT.format(wafers=1), "a.toml", ["network.inputs=12"])
    with pytest.raises(TraceError, match="cannot be written"):
        save_onnx("m.onnx", "blobs.npz/a.onnx", PlainTrainer(parse_train(TEXT.format(wafers=1), "a.toml")).tensors())


def test_any_network_goes_out_as_a_file_that_other_programs_run(folder):
    mixed("m.onnx")
    layers = read_onnx("m.onnx").layers
    text = TEXT.format(wafers=1).replace('file = "m.onnx"', "inputs = 12\nlayers = [{outputs = 4}]")
    plain = parse_train(text, "a.toml")
    config = TrainConfig.of("a.toml", network={"inputs": 12, "layers": layers}, data=plain.data, train=plain.train)
    run = PlainTrainer(config)
    with pytest.raises(ConfigError, match="came from no ONNX file"):
        run.state_dict()
    for _ in range(4):
        run.step()
    run.save_onnx("new.onnx")
    found, x = read_onnx("new.onnx"), np.load("blobs.npz")["x_test"]
    assert (found.inputs, found.layers, found.warnings) == (12, layers, ())
    kept = run.tensors()
    assert all(np.array_equal(values, kept[name]) for name, values in found.tensors.items())
    (wanted,) = ReferenceEvaluator("new.onnx").run(None, {"x": x})
    logits = run.model.forward(run._active(), x)
    assert np.abs(logits - wanted).max() < 0.01 * np.abs(wanted).max()


# --- graphs that are no chains ----------------------------------------------------------------------------------------

IMAGES = TEXT.format(wafers=1).replace("blobs.npz", "images.npz")


def images(shape, classes=3, samples=40):
    """Write samples of images."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples, *shape)).astype(np.float32)
    y = rng.integers(0, classes, samples)
    np.savez("images.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])


def normalised(given, name, x, y, groups):
    """Return the nodes of a group norm as an exporter takes it apart, shapes worked out from those of tensors."""
    node = helper.make_node
    given |= {f"{name}.ones": np.ones(groups, np.float32), f"{name}.zeros": np.zeros(groups, np.float32)}
    given |= {f"{name}.into": np.array([0, groups, -1]), f"{name}.axes": np.array([1, 2])}
    return [
        node("Shape", [x], [f"{name}.shape"], f"{name} shape"),
        node("Reshape", [x, f"{name}.into"], [f"{name}.grouped"], f"{name} into groups"),
        node("InstanceNormalization", [f"{name}.grouped", f"{name}.ones", f"{name}.zeros"], [f"{name}.unit"], name),
        node("Reshape", [f"{name}.unit", f"{name}.shape"], [f"{name}.image"], f"{name} back"),
        node("Unsqueeze", [f"{name}.weight", f"{name}.axes"], [f"{name}.w"], f"{name} factors"),
        node("Unsqueeze", [f"{name}.bias", f"{name}.axes"], [f"{name}.b"], f"{name} shifts"),
        node("Mul", [f"{name}.image", f"{name}.w"], [f"{name}.scaled"], f"{name} times"),
        node("Add", [f"{name}.scaled", f"{name}.b"], [y], f"{name} plus"),
    ]


def write_images(path, nodes, parameters, shape, classes=3, opset=20):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", classes])],
        [numpy_helper.from_array(array, name) for name, array in parameters.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)


def lenet(path):
    """Write two convolutions with pooling and two products."""
    node, rng = helper.make_node, np.random.default_rng(1)
    given = {
        "features.0.weight": rng.standard_normal((3, 1, 3, 3)) / 3,
        "features.0.bias": rng.standard_normal(3),
        "features.3.weight": rng.standard_normal((4, 3, 2, 2)) / 4,
        "classifier.0.weight": rng.standard_normal((5, 16)) / 4,
        "classifier.0.bias": rng.standard_normal(5),
        "classifier.2.weight": rng.standard_normal((3, 5)) / 2,
        "classifier.2.bias": rng.standard_normal(3),
    }
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node("Conv", ["x", "features.0.weight", "features.0.bias"], ["a"], "conv 1", pads=[1] * 4),
        node("Relu", ["a"], ["b"], "relu 1"),
        node("MaxPool", ["b"], ["c"], "pool 1", **window),
        node("Conv", ["c", "features.3.weight"], ["d"], "conv 2", pads=[1] * 4),
        node("AveragePool", ["d"], ["e"], "pool 2", **window),
        node("Flatten", ["e"], ["f"], "flat"),
        node("Gemm", ["f", "classifier.0.weight", "classifier.0.bias"], ["g"], "product 1", transB=1),
        node("Relu", ["g"], ["h"], "relu 2"),
        node("Gemm", ["h", "classifier.2.weight", "classifier.2.bias"], ["y"], "product 2", transB=1),
    ]
    given = {name: array.astype(np.float32) for name, array in given.items()}
    write_images(path, nodes, given, (1, 6, 6))
    return (1, 6, 6), given


def residual(path):
    """Write a depthwise convolution, group norms as exporters take them apart, a sum, padded pooling, and a mean."""
    node, rng = helper.make_node, np.random.default_rng(2)
    given = {
        "stem.weight": rng.standard_normal((4, 2, 3, 3)) / 4,
        "norm1.weight": rng.standard_normal(4),
        "norm1.bias": rng.standard_normal(4),
        "deep.weight": rng.standard_normal((4, 1, 3, 3)) / 3,
        "point.weight": rng.standard_normal((4, 4, 1, 1)) / 2,
        "norm2.weight": rng.standard_normal(4),
        "norm2.bias": rng.standard_normal(4),
        "fc.weight": rng.standard_normal((3, 4)),
        "fc.bias": rng.standard_normal(3),
    }
    given = {name: array.astype(np.float32) for name, array in given.items()}
    given["rows"] = np.array([0, -1])
    nodes = [
        node("Conv", ["x", "stem.weight"], ["a"], "stem", pads=[1] * 4, strides=[2, 2]),
        *normalised(given, "norm1", "a", "b", 2),
        node("Relu", ["b"], ["r1"], "relu"),
        node("MaxPool", ["r1"], ["c"], "near", kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4),
        node("Conv", ["c", "deep.weight"], ["d"], "deep", pads=[1] * 4, group=4),
        node("Conv", ["d", "point.weight"], ["e"], "point"),
        *normalised(given, "norm2", "e", "f", 4),
        node("Add", ["f", "c"], ["g"], "sum"),
        node("Sigmoid", ["g"], ["s"], "gate"),
        node("Mul", ["g", "s"], ["h"], "silu"),
        node(
            "AveragePool", ["h"], ["p"], "wide", count_include_pad=1, kernel_shape=[3, 2], strides=[2, 2], pads=[1] * 4
        ),
        node("GlobalAveragePool", ["p"], ["m"], "mean"),
        node("Reshape", ["m", "rows"], ["r"], "rows"),
        node("Gemm", ["r", "fc.weight", "fc.bias"], ["y"], "product", transB=1),
    ]
    write_images(path, nodes, given, (2, 6, 6))
    return (2, 6, 6), {name: array for name, array in given.items() if name.endswith((".weight", ".bias"))}


@pytest.mark.parametrize("shape", [(4,), (4, 1), (1, 1, 4), (1, 4, 1)])
def test_factors_of_channels_lie_along_channels(folder, shape):
    """Images of four channels, rows and columns: factors of rows or columns are as many."""
    node = helper.make_node
    given = {
        "stem.weight": np.ones((4, 2, 1, 1), np.float32),
        "norm.weight": np.ones((4, 1, 1), np.float32),
        "norm.bias": np.ones(shape, np.float32),
        "end.weight": np.ones((3, 64), np.float32),
        "channels": np.array([1]),
        "two": np.array(2.0, np.float32),
        "epsilon": np.array(1e-6, np.float32),
    }
    nodes = [
        node("Conv", ["x", "stem.weight"], ["a"], "stem"),
        node("ReduceMean", ["a", "channels"], ["m"], "mean"),
        node("Sub", ["a", "m"], ["c"], "centred"),
        node("Pow", ["c", "two"], ["s"], "squares"),
        node("ReduceMean", ["s", "channels"], ["v"], "variance"),
        node("Add", ["v", "epsilon"], ["w"], "plus"),
        node("Sqrt", ["w"], ["r"], "root"),
        node("Div", ["c", "r"], ["u"], "unit"),
        node("Mul", ["u", "norm.weight"], ["p"], "factors"),
        node("Add", ["p", "norm.bias"], ["b"], "shifts"),
        node("Flatten", ["b"], ["f"], "flat"),
        node("Gemm", ["f", "end.weight"], ["y"], "end", transB=1),
    ]
    write_images("m.onnx", nodes, given, (2, 4, 4))
    with pytest.raises(UnsupportedError, match="does not lie along the axis that is normalised"):
        read_onnx("m.onnx")
    given["norm.bias"] = np.ones((1, 4, 1, 1), np.float32)
    write_images("m.onnx", nodes, given, (2, 4, 4))
    assert [one["op"] for one in read_onnx("m.onnx").nodes][:2] == ["convolution", "channelnorm"]


def test_a_bias_of_zeros_that_an_exporter_adds_is_none(folder):
    """Where the file says them as a constant; zeros among its parameters are learned."""
    node, rng = helper.make_node, np.random.default_rng(0)
    zeros = numpy_helper.from_array(np.zeros(4, np.float32))
    for constant in (True, False):
        given = values(rng, stem__weight=(4, 2, 1, 1), end__weight=(3, 64))
        if not constant:
            given["stem.bias"] = np.zeros(4, np.float32)
        nodes = [node("Constant", [], ["stem.bias"], "zeros", value=zeros)] if constant else []
        nodes += [
            node("Conv", ["x", "stem.weight", "stem.bias"], ["a"], "stem"),
            node("Flatten", ["a"], ["f"], "flat"),
            node("Gemm", ["f", "end.weight"], ["y"], "end", transB=1),
        ]
        write_images("m.onnx", nodes, given, (2, 4, 4))
        found = read_onnx("m.onnx")
        assert found.nodes[0]["bias"] is not constant
        assert ("stem.bias" in found.tensors) is not constant


@pytest.mark.parametrize("made", [lenet, residual])
def test_networks_of_images_give_the_logits_of_the_reference_evaluator(folder, made):
    shape, given = made("m.onnx")
    images(shape)
    config = parse_train(IMAGES, "a.toml")
    assert config.network.image == shape
    run, x = PlainTrainer(config), np.load("images.npz")["x_test"]
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = run.model.forward(run._active(), x.reshape(len(x), -1))
    assert np.abs(found - wanted).max() < 0.01 * np.abs(wanted).max()
    run.save_onnx("again.onnx")
    assert (folder / "again.onnx").read_bytes() == (folder / "m.onnx").read_bytes()
    out = run.state_dict()
    assert {name: (array.shape, array.tobytes()) for name, array in out.items()} == {
        name: (array.shape, array.tobytes()) for name, array in given.items()
    }


def test_operations_are_called_as_their_modules(folder):
    lenet("m.onnx")
    names = [node["name"] for node in read_onnx("m.onnx").nodes]
    assert names == [
        *("features.0", "relu_1", "pool_1", "features.3", "pool_2"),
        *("classifier.0", "relu_2", "classifier.2"),
    ]
    residual("m.onnx")
    found = read_onnx("m.onnx")
    assert [(node["name"], node["op"]) for node in found.nodes] == [
        ("stem", "convolution"),
        ("norm1", "groupnorm"),
        ("relu", "relu"),
        ("near", "maxpool"),
        ("deep", "convolution"),
        ("point", "convolution"),
        ("norm2", "groupnorm"),
        ("sum", "add"),
        ("silu", "silu"),
        ("wide", "avgpool"),
        ("mean", "avgpool"),
        ("fc", "linear"),
    ]
    assert found.nodes[1]["groups"] == 2
    assert found.nodes[7]["inputs"] == ["norm2", "near"]
    assert "norm1.norm.weight" in found.tensors


def hourglass(path):
    """Write a network that makes images smaller, then larger, beside what they were, normalised over batches."""
    node, rng = helper.make_node, np.random.default_rng(2)
    given = {
        "down.weight": rng.standard_normal((3, 2, 3, 3)) / 3,
        "norm.weight": rng.standard_normal(3),
        "norm.bias": rng.standard_normal(3),
        "norm.running_mean": rng.standard_normal(3) / 9,
        "norm.running_var": 1 + rng.random(3),
        "up.weight": rng.standard_normal((3, 2, 3, 3)) / 3,
        "up.bias": rng.standard_normal(2),
        "more": rng.standard_normal((4, 1, 1)),
        "end.weight": rng.standard_normal((3, 4, 1, 1)) / 2,
    }
    norm = ["a", *(f"norm.{name}" for name in ("weight", "bias", "running_mean", "running_var"))]
    strided = {"pads": [1] * 4, "strides": [2, 2]}
    nodes = [
        node("Conv", ["x", "down.weight"], ["a"], "down", **strided),
        node("BatchNormalization", norm, ["b"], "norm", momentum=0.75, training_mode=1),
        node("Relu", ["b"], ["c"], "relu"),
        node("ConvTranspose", ["c", "up.weight", "up.bias"], ["d"], "up", output_padding=[1, 1], **strided),
        node("Concat", ["x", "d"], ["e"], "both", axis=-3),
        node("Add", ["e", "more"], ["f"], "shift"),
        node("Relu", ["f"], ["g"], "relu 2"),
        node("Conv", ["g", "end.weight"], ["h"], "end"),
        node("GlobalAveragePool", ["h"], ["i"], "mean"),
        node("Flatten", ["i"], ["y"], "flat"),
    ]
    given = {name: array.astype(np.float32) for name, array in given.items()}
    write_images(path, nodes, given, (2, 6, 4))
    return (2, 6, 4), given


def squeezed(path):
    """Write a network whose channels have gates made of their means, and whose small images are repeated."""
    node, rng = helper.make_node, np.random.default_rng(3)
    given = {
        "first.weight": rng.standard_normal((4, 2, 3, 3)) / 3,
        "squeeze.weight": rng.standard_normal((2, 4, 1, 1)),
        "excite.weight": rng.standard_normal((4, 2, 1, 1)),
        "last.weight": rng.standard_normal((3, 8, 1, 1)) / 2,
        "scales": np.array([1, 1, 2, 2]),
    }
    near = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes = [
        node("Conv", ["x", "first.weight"], ["a"], "first", pads=[1] * 4),
        node("Relu", ["a"], ["b"], "relu"),
        node("MaxPool", ["b"], ["c"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["c"], ["d"], "mean"),
        node("Conv", ["d", "squeeze.weight"], ["e"], "squeeze"),
        node("Relu", ["e"], ["f"], "relu 2"),
        node("Conv", ["f", "excite.weight"], ["g"], "excite"),
        node("Sigmoid", ["g"], ["h"], "gate"),
        node("Mul", ["c", "h"], ["i"], "times"),
        node("Resize", ["i", "", "scales"], ["j"], "up", **near),
        node("Concat", ["j", "b"], ["k"], "both", axis=1),
        node("Conv", ["k", "last.weight"], ["l"], "last"),
        node("GlobalAveragePool", ["l"], ["m"], "mean 2"),
        node("Flatten", ["m"], ["y"], "flat"),
    ]
    given = {name: array.astype(np.float32) for name, array in given.items()}
    write_images(path, nodes, given, (2, 6, 4))
    return (2, 6, 4), {name: array for name, array in given.items() if name != "scales"}


def resized(path):
    """Write a network whose small images get other sides, with a mean that does not count its padding."""
    node, rng = helper.make_node, np.random.default_rng(5)
    given = {
        "first.weight": rng.standard_normal((4, 2, 3, 3)) / 3,
        "inner.weight": rng.standard_normal((3, 4, 3, 3)) / 3,
        "last.weight": rng.standard_normal((3, 7, 1, 1)) / 2,
        "scales": np.array([1, 1, 2, 2]),
        "larger": np.array([9, 5]),
        "sides": np.array([6, 4]),
    }
    corners = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "first.weight"], ["a"], "first", pads=[1] * 4),
        node("AveragePool", ["a"], ["b"], "pool", **window),
        node("Conv", ["b", "inner.weight"], ["c"], "inner", pads=[1] * 4),
        node("Resize", ["c", "", "scales"], ["d"], "up", mode="linear"),
        node("Concat", ["d", "a"], ["e"], "both", axis=1),
        node("Resize", ["e", "", "", "larger"], ["f"], "curve", mode="cubic", axes=[2, 3]),
        node("Resize", ["f", "", "", "sides"], ["g"], "corners", axes=[2, 3], **corners),
        node("Conv", ["g", "last.weight"], ["h"], "last"),
        node("GlobalAveragePool", ["h"], ["i"], "mean"),
        node("Flatten", ["i"], ["y"], "flat"),
    ]
    held = {
        name: array.astype(np.int64 if name in ("larger", "sides") else np.float32) for name, array in given.items()
    }
    write_images(path, nodes, held, (2, 6, 4))
    return (2, 6, 4), {name: array for name, array in held.items() if "weight" in name}


def sound(path):
    """Write a network of samples of one side: windows of every kind, zeros beside them, columns that are left out."""
    node, rng = helper.make_node, np.random.default_rng(3)
    given = {
        "first.weight": rng.standard_normal((4, 2, 3)),
        "first.bias": rng.standard_normal(4),
        "late.weight": rng.standard_normal((6, 4, 2)),
        "cut.weight": rng.standard_normal((4, 6, 3)) / 3,
        "up.weight": rng.standard_normal((4, 3, 4)) / 3,
        "pads": np.array([0, 0, 2, 0, 0, 0]),
        "starts": np.array([0]),
        "ends": np.array([-2]),
        "axes": np.array([2]),
        "one": np.array([2]),
    }
    nodes = [
        node("Conv", ["x", "first.weight", "first.bias"], ["a"], "first", strides=[2], pads=[1, 1]),
        node("Relu", ["a"], ["b"], "relu"),
        node("Pad", ["b", "pads"], ["c"], "zeros"),
        node("Conv", ["c", "late.weight"], ["d"], "late", dilations=[2]),
        node("Conv", ["d", "cut.weight"], ["e"], "cut", pads=[2, 2]),
        node("Slice", ["e", "starts", "ends", "axes"], ["f"], "slice"),
        node("MaxPool", ["f"], ["g"], "pool", kernel_shape=[2], strides=[2], ceil_mode=1),
        node("ConvTranspose", ["g", "up.weight"], ["h"], "up", strides=[3], pads=[1, 1], output_padding=[1]),
        node("Unsqueeze", ["h", "one"], ["i"], "more"),
        node("GlobalAveragePool", ["i"], ["j"], "mean"),
        node("Flatten", ["j"], ["y"], "flat"),
    ]
    given = {name: array.astype(np.float32 if name[-4:] in ("ight", "bias") else int) for name, array in given.items()}
    write_images(path, nodes, given, (2, 14))
    return (2, 14), {name: array for name, array in given.items() if array.dtype == np.float32}


def turned(path):
    """Write a normalisation of channels that stand last, and one of features."""
    node, rng = helper.make_node, np.random.default_rng(3)
    shapes = {
        "stem.weight": (4, 2, 2, 2),
        "norm.weight": (4,),
        "norm.bias": (4,),
        "last.weight": (4,),
        "last.bias": (4,),
    }
    given = {name: rng.standard_normal(shape) for name, shape in (shapes | {"end.weight": (3, 4)}).items()}
    nodes = [
        node("Conv", ["x", "stem.weight"], ["a"], "stem"),
        node("Transpose", ["a"], ["b"], "behind", perm=[0, 2, 3, 1]),
        node("LayerNormalization", ["b", "norm.weight", "norm.bias"], ["c"], "norm", axis=-1),
        node("Transpose", ["c"], ["d"], "before", perm=[0, 3, 1, 2]),
        node("GlobalAveragePool", ["d"], ["e"], "mean"),
        node("Flatten", ["e"], ["f"], "flat"),
        node("LayerNormalization", ["f", "last.weight", "last.bias"], ["g"], "last", axis=-1),
        node("Gemm", ["g", "end.weight"], ["y"], "end", transB=1),
    ]
    given = {name: array.astype(np.float32) for name, array in given.items()}
    write_images(path, nodes, given, (2, 6, 4))
    return (2, 6, 4), given


def channels_last(path):
    """Write a block whose channels stand last, normalised there, and a normalisation of channels in steps before it."""
    node, rng = helper.make_node, np.random.default_rng(3)
    given = {
        "stem.weight": rng.standard_normal((4, 2, 2, 2)) / 2,
        "norm.weight": rng.standard_normal((4, 1, 1)),
        "norm.bias": rng.standard_normal((4, 1, 1)),
        "block.norm.weight": rng.standard_normal(4),
        "block.norm.bias": rng.standard_normal(4),
        "up.weight": rng.standard_normal((4, 6)) / 2,
        "up.bias": rng.standard_normal(6),
        "down.weight": rng.standard_normal((6, 4)) / 2,
        "gamma": rng.standard_normal(4),
        "end.weight": rng.standard_normal((3, 4)),
        "channels": np.array([1]),
        "pixels": np.array([2, 3]),
        "two": np.array(2.0),
        "small": np.array(1e-6),
    }
    small = {"axis": -1, "epsilon": 1e-6}
    nodes = [
        node("Conv", ["x", "stem.weight"], ["a"], "stem"),
        node("ReduceMean", ["a", "channels"], ["b"], "mean", keepdims=1),
        node("Sub", ["a", "b"], ["c"], "apart"),
        node("Pow", ["c", "two"], ["d"], "squares"),
        node("ReduceMean", ["d", "channels"], ["e"], "variance", keepdims=1),
        node("Add", ["e", "small"], ["f"], "more"),
        node("Sqrt", ["f"], ["g"], "root"),
        node("Div", ["c", "g"], ["h"], "unit"),
        node("Mul", ["norm.weight", "h"], ["i"], "factors"),
        node("Add", ["i", "norm.bias"], ["j"], "shifts"),
        node("Transpose", ["j"], ["k"], "last", perm=[0, 2, 3, 1]),
        node("LayerNormalization", ["k", "block.norm.weight", "block.norm.bias"], ["l"], "block norm", **small),
        node("MatMul", ["l", "up.weight"], ["m"], "up"),
        node("Add", ["m", "up.bias"], ["n"], "up bias"),
        node("Gelu", ["n"], ["o"], "gelu", approximate="tanh"),
        node("MatMul", ["o", "down.weight"], ["p"], "down"),
        node("Mul", ["gamma", "p"], ["q"], "scale"),
        node("Add", ["k", "q"], ["r"], "sum"),
        node("Transpose", ["r"], ["s"], "first", perm=[0, 3, 1, 2]),
        node("ReduceMean", ["s", "pixels"], ["t"], "pool", keepdims=0),
        node("Gemm", ["t", "end.weight"], ["y"], "end", transB=1),
    ]
    whole = ("channels", "pixels")
    given = {name: array if name in whole else array.astype(np.float32) for name, array in given.items()}
    write_images(path, nodes, given, (2, 6, 4))
    return (2, 6, 4), {name: given[name] for name in given if name not in (*whole, "two", "small")}


def test_channels_behind_pixels_are_channels(folder):
    """Products of pixels are convolutions; norms over channels, whole or in steps, one operation; names go back."""
    channels_last("m.onnx")
    images((2, 6, 4))
    found = read_onnx("m.onnx")
    ops = ["convolution", "channelnorm", "channelnorm", "convolution", "gelu", "convolution", "scale", "add", "avgpool"]
    assert [node["op"] for node in found.nodes] == [*ops, "linear"]
    assert (found.nodes[1]["name"], found.nodes[2]["name"], found.epsilon) == ("norm", "block", 1e-6)
    config = parse_train(IMAGES, "a.toml")
    run, x = PlainTrainer(config), np.load("images.npz")["x_test"]
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    logits = run.model.forward(run._active(), x.reshape(len(x), -1))
    assert np.abs(logits - wanted).max() < 0.01 * np.abs(wanted).max()
    save_onnx("m.onnx", "again.onnx", found.tensors)
    one, other = (onnx.load(name) for name in ("m.onnx", "again.onnx"))
    assert [held.SerializeToString() for held in one.graph.initializer] == [
        held.SerializeToString() for held in other.graph.initializer
    ]
    assert [node.op_type for node in one.graph.node] == [node.op_type for node in other.graph.node]


WRONG_TURNS = [
    ("last", {"perm": [0, 2, 1, 3]}, "last (Transpose): only channels of images are put behind"),
    ("block norm", {"axis": -2}, "block norm (LayerNormalization): only the channels of each pixel"),
    ("first", {"perm": [0, 1, 3, 2]}, "first (Transpose): only channels of images are put behind"),
    ("root", "Exp", "squares (Pow): is not trained here"),
    ("gelu", "Softmax", "gelu (Softmax): is not read where channels stand behind"),
    ("first", "Identity", "pool (ReduceMean): only the mean over rows and columns"),
]


@pytest.mark.parametrize(("name", "change", "what"), WRONG_TURNS, ids=str)
def test_turns_of_images_that_are_none_of_channels_are_named(folder, name, change, what):
    channels_last("m.onnx")
    model = onnx.load("m.onnx")
    node = next(node for node in model.graph.node if node.name == name)
    node.op_type = change if isinstance(change, str) else node.op_type
    kept = [item for item in node.attribute if isinstance(change, dict) and item.name not in change]
    del node.attribute[:]
    more = change.items() if isinstance(change, dict) else ()
    node.attribute.extend([*kept, *(helper.make_attribute(*item) for item in more)])
    onnx.save(model, "m.onnx")
    with pytest.raises(UnsupportedError, match=re.escape(what)):
        read_onnx("m.onnx")


def test_samples_of_one_side_are_images_of_one_row(folder):
    """The result is the reference evaluator's; zeros on the left and columns that are left out are sides of windows."""
    sound("m.onnx")
    images((2, 14))
    found = read_onnx("m.onnx")
    nodes = {node["name"]: node for node in found.nodes}
    assert (found.image, found.tensors["first.weight"].shape) == ((2, 1, 14), (4, 2, 1, 3))
    late = [nodes["late"].get(key) for key in ("dilation", "dilation_width", "padding_width", "padding_right")]
    assert late == [1, 2, 2, 0]
    assert [nodes["cut"].get(key, 0) for key in ("padding_width", "padding_right")] == [2, 0]
    config = parse_train(IMAGES, "a.toml")
    run, x = PlainTrainer(config), np.load("images.npz")["x_test"]
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    logits = run.model.forward(run._active(), x.reshape(len(x), -1))
    assert np.abs(logits - wanted).max() < 0.01 * np.abs(wanted).max()
    save_onnx("m.onnx", "again.onnx", found.tensors)
    one, other = (onnx.load(name).graph.initializer for name in ("m.onnx", "again.onnx"))
    assert [held.SerializeToString() for held in one] == [held.SerializeToString() for held in other]


def test_pixels_that_are_repeated_become_nodes(folder):
    """Gates of channels are repeated over their pixels; other ways to enlarge an image are refused."""
    squeezed("m.onnx")
    found = {node["name"]: node for node in read_onnx("m.onnx").nodes}
    assert [found[name]["op"] for name in ("times", "times_2", "up")] == ["upsample", "mul", "upsample"]
    assert [(found[name]["kernel"], found[name]["kernel_width"]) for name in ("times", "up")] == [(3, 2), (2, 2)]
    model = onnx.load("m.onnx")
    for node in model.graph.node:
        if node.op_type == "Resize":
            del node.attribute[:]
            node.attribute.extend(
                [helper.make_attribute("mode", "cubic"), helper.make_attribute("cubic_coeff_a", -0.5)]
            )
    onnx.save(model, "m.onnx")
    with pytest.raises(UnsupportedError, match=r"up \(Resize\): 3 x 2 pixels become 6 x 4 in a way that is none of"):
        read_onnx("m.onnx")


MODES = [
    ({"mode": "linear"}, "linear"),
    ({"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}, "linear"),
    ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}, "corners"),
    ({"mode": "cubic"}, "cubic"),
    ({"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, ""),
    ({"mode": "cubic", "exclude_outside": 1}, ""),
    ({"mode": "linear", "antialias": 1}, "linear"),
    ({"mode": "nearest", "nearest_mode": "ceil", "coordinate_transformation_mode": "asymmetric"}, ""),
]


@pytest.mark.parametrize(("how", "method"), MODES)
def test_images_of_other_sides_are_told_by_what_is_made_of_them(folder, how, method):
    """A file's sides are those of all samples and channels, whose numbers may be those of pixels too."""
    rng = np.random.default_rng(0)
    given = {"a.weight": rng.standard_normal((6, 2, 3, 3)), "b.weight": rng.standard_normal((3, 6, 1, 1))}
    nodes = [
        helper.make_node("Conv", ["x", "a.weight"], ["a"], "a", pads=[1, 1, 1, 1]),
        helper.make_node("Resize", ["a", "", "", "sides"], ["r"], "up", **how),
        helper.make_node("Conv", ["r", "b.weight"], ["y"], "b"),
    ]
    held = {name: np.asarray(array, np.float32) for name, array in given.items()}
    held["sides"] = np.array([6, 6, 6, 6], np.int64)
    write("m.onnx", nodes, held, inputs=[6, 2, 6, 3], outputs=[6, 3, 6, 6])
    if not method:
        with pytest.raises(
            UnsupportedError, match=r"up \(Resize\): 6 x 3 pixels become 6 x 6 in a way that is none of"
        ):
            read_onnx("m.onnx")
        return
    found = read_onnx("m.onnx")
    assert found.nodes[1] == {"name": "up", "op": "resample", "inputs": ["a"], "method": method, "sides": (6, 6)}
    assert found.planes == (6, 6)


@pytest.mark.parametrize(
    ("more", "op", "padding"),
    [
        ({"pads": [1, 1, 1, 1]}, "resample", 1),
        ({"pads": [1, 1, 1, 1], "count_include_pad": 1}, "avgpool", 1),
        ({"auto_pad": "SAME_UPPER"}, "resample", 0),
        ({"ceil_mode": 1}, "resample", 0),
        ({"ceil_mode": 1, "count_include_pad": 1}, "resample", 0),
        ({"ceil_mode": 1, "pads": [1, 1, 1, 1]}, "resample", 1),
        ({"ceil_mode": 1, "pads": [1, 1, 0, 0], "count_include_pad": 1}, "", 1),
    ],
)
def test_means_count_padding_or_not(folder, more, op, padding):
    """Windows of 2 x 2 pixels over 6 x 5, two apart; what the file's operator makes is the reference evaluator's."""
    x = np.random.default_rng(0).standard_normal((4, 2, 6, 5)).astype(np.float32)
    nodes = [
        helper.make_node("AveragePool", ["x"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2], **more),
        helper.make_node("Conv", ["p", "b.weight"], ["y"], "b"),
    ]
    held = {"b.weight": np.eye(2, dtype=np.float32)[:, :, None, None]}
    write("m.onnx", nodes, held, inputs=["n", 2, 6, 5], outputs=["n", 2, "h", "w"])
    if not op:
        with pytest.raises(UnsupportedError, match=r"pool \(AveragePool\): .* those that ceil_mode adds"):
            read_onnx("m.onnx")
        return
    found = read_onnx("m.onnx").nodes[0]
    assert (found["op"], found.get("padding", 0)) == (op, padding)
    network = graph_of(60, [NodeConfig(**found | {"inputs": ("input",)})], 0, image=(2, 6, 5))
    got, _ = OPERATIONS[op].plain(PlainGraph(network, "f64"), network.nodes[0], x.reshape(4, -1), None)
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    assert np.allclose(got, wanted.reshape(4, -1), atol=1e-6)


def test_a_network_that_enlarges_images_becomes_nodes(folder):
    hourglass("m.onnx")
    found = read_onnx("m.onnx")
    ops = ["convolution", "batchnorm", "relu", "transposed", "concat", "shift", "relu", "convolution", "avgpool"]
    assert [node["op"] for node in found.nodes] == ops
    assert (found.nodes[1]["momentum"], found.nodes[3]["output_padding"], found.nodes[3]["bias"]) == (0.25, 1, True)
    assert found.nodes[4]["inputs"] == ["input", "up"]
    assert found.tensors["shift.bias"].shape == (4,)


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        ("both", {"axis": 2}, "both (Concat): only channels of images"),
        ("up", {"output_shape": [6, 4]}, "up (ConvTranspose): rows and columns are enlarged by output_padding"),
        ("down", {"pads": [4] * 4}, "both (Concat): takes images of one size here, not of [(2, 6, 4), (2, 12, 10)]"),
        ("norm", {"epsilon": 2.0}, "norm (BatchNormalization): epsilon is 1e-12 to 1 here"),
        ("down", {"pads": [0] * 4}, "both (Concat): takes images of one size here, not of [(2, 6, 4), (2, 4, 2)]"),
    ],
)
def test_what_does_not_enlarge_is_named(folder, name, change, what):
    hourglass("m.onnx")
    model = onnx.load("m.onnx")
    node = next(node for node in model.graph.node if node.name == name)
    kept = [item for item in node.attribute if item.name not in change]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(*item) for item in change.items())])
    onnx.save(model, "m.onnx")
    with pytest.raises(UnsupportedError, match=re.escape(what)):
        read_onnx("m.onnx")


@pytest.mark.parametrize("made", [lenet, residual, hourglass, squeezed, resized, sound, channels_last])
def test_wafers_train_networks_of_images_from_files(folder, made):
    """Bit for bit as the oracle does; every parameter moves."""
    shape, given = made("m.onnx")
    images(shape)
    config = parse_train(IMAGES, "a.toml")
    machine, oracle = Trainer(config), Trainer(config, backend="numpy")
    steps = [(machine.step().loss, oracle.step().loss) for _ in range(3)]
    assert all(a == b for a, b in steps)
    one, other = machine.state_dict(), oracle.state_dict()
    for name, array in given.items():
        assert np.array_equal(one[name], other[name])
        assert not np.array_equal(one[name], array)


@pytest.mark.parametrize("made", [lenet, residual, hourglass, squeezed, resized, sound, turned])
def test_networks_of_images_go_out_as_files_of_their_own(folder, made):
    shape, _ = made("m.onnx")
    images(shape)
    found = read_onnx("m.onnx")
    plain = parse_train(IMAGES, "a.toml")
    network = {"image": list(found.image), "inputs": found.inputs, "nodes": found.nodes}
    config = TrainConfig.of("a.toml", network=network, data=plain.data, train=plain.train)
    run, x = PlainTrainer(config), np.load("images.npz")["x_test"]
    run.step()
    run.save_onnx("new.onnx")
    (wanted,) = ReferenceEvaluator("new.onnx").run(None, {"x": x.reshape(-1, *found.image)})
    logits = run.model.forward(run._active(), x.reshape(len(x), -1))
    assert np.abs(logits - wanted).max() < 0.01 * np.abs(wanted).max()
    again = read_onnx("new.onnx")
    kept = run.tensors()
    keys = "op", "groups", "padding", "method", "sides", *SIDES[1:]  # a window alone has any stride
    kinds = [[[node.get(key) or None for key in keys] for node in x.nodes] for x in (again, found)]
    assert kinds[0] == kinds[1]
    assert all(np.array_equal(values, kept[name]) for name, values in again.tensors.items())


WRONG_IMAGES = [
    ("pool 1", {"dilations": [2, 2]}, "pool 1 (MaxPool): pooled windows have no gaps here"),
    ("conv 1", {"auto_pad": "SOME", "pads": None}, "conv 1 (Conv): sides are padded by numbers"),
    ("flat", {"axis": 2}, "flat (Flatten): axis is 1 here"),
]


@pytest.mark.parametrize(("name", "attributes", "what"), WRONG_IMAGES, ids=[row[2][:24] for row in WRONG_IMAGES])
def test_windows_that_are_not_moved_here_are_named(folder, name, attributes, what):
    lenet("m.onnx")
    model = onnx.load("m.onnx")
    node = next(node for node in model.graph.node if node.name == name)
    kept = [item for item in node.attribute if item.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items() if value is not None)
    onnx.save(model, "m.onnx")
    with pytest.raises(UnsupportedError) as caught:
        read_onnx("m.onnx")
    assert what in str(caught.value)


def test_residuals_of_features_become_nodes(folder):
    """A chain stays layers; a sum with what came before makes operations of it."""
    node, rng = helper.make_node, np.random.default_rng(3)
    given = values(
        rng, a__weight=(6, 12), a__bias=(6,), n__weight=(6,), n__bias=(6,), b__weight=(6, 6), d__weight=(4, 6)
    )
    nodes = [
        node("Gemm", ["x", "a.weight", "a.bias"], ["a"], "a", transB=1),
        node("LayerNormalization", ["a", "n.weight", "n.bias"], ["n"], "n", axis=-1),
        node("Gelu", ["n"], ["g"], "gelu", approximate="tanh"),
        node("Gemm", ["g", "b.weight"], ["b"], "b", transB=1),
        node("Add", ["a", "b"], ["s"], "sum"),
        node("Gemm", ["s", "d.weight"], ["y"], "d", transB=1),
    ]
    write("m.onnx", nodes, given)
    config = parse_train(TEXT.format(wafers=2), "a.toml")
    assert [node.op for node in config.network.nodes] == ["linear", "norm", "gelu", "linear", "add", "linear"]
    run, x = PlainTrainer(config), np.load("blobs.npz")["x_test"]
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    assert np.abs(run.model.forward(run._active(), x) - wanted).max() < 0.01 * np.abs(wanted).max()
    machine, oracle = Trainer(config), Trainer(config, backend="numpy")
    assert [machine.step().loss for _ in range(3)] == [oracle.step().loss for _ in range(3)]
    assert all(np.array_equal(array, oracle.state_dict()[name]) for name, array in machine.state_dict().items())


def test_what_a_file_has_twice_of_one_tensor_is_done_once(folder):
    """A normalisation before each of two products: one node; of another tensor its parameters are shared still."""
    node, rng = helper.make_node, np.random.default_rng(3)
    given = values(rng, a__weight=(6, 12), n__weight=(6,), n__bias=(6,), b__weight=(4, 6), c__weight=(4, 6))
    norms = [
        node("LayerNormalization", [x, "n.weight", "n.bias"], [y], y, axis=-1) for x, y in (("a", "n"), ("a", "m"))
    ]
    nodes = [
        node("Gemm", ["x", "a.weight"], ["a"], "a", transB=1),
        norms[0],
        node("Gemm", ["n", "b.weight"], ["b"], "b", transB=1),
        norms[1],
        node("Gemm", ["m", "c.weight"], ["c"], "c", transB=1),
        node("Add", ["b", "c"], ["y"], "sum"),
    ]
    write("m.onnx", nodes, given)
    assert [one["op"] for one in read_onnx("m.onnx").nodes] == ["linear", "norm", "linear", "linear", "add"]
    save_onnx("m.onnx", "again.onnx", read_onnx("m.onnx").tensors)
    assert len(onnx.load("again.onnx").graph.node) == len(nodes)
    del norms[1].attribute[:]
    norms[1].attribute.append(helper.make_attribute("epsilon", 1e-3))
    write("m.onnx", nodes, given)
    found = read_onnx("m.onnx")
    assert found.epsilon == 1e-5
    assert [one.get("epsilon") for one in found.nodes if one["op"] == "norm"] == [None, 1e-3]
    assert [one.get("shares", "") for one in found.nodes if one["op"] == "norm"] == ["", "n"]


def test_a_group_norm_without_factors_is_named(folder):
    residual("m.onnx")
    model = onnx.load("m.onnx")
    times = next(node for node in model.graph.node if node.name == "norm2 times")
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = times.input[0] if name == times.output[0] else name
    model.graph.node.remove(times)
    onnx.save(model, "m.onnx")
    with pytest.raises(UnsupportedError, match="norm2 .InstanceNormalization.: factors of channels come first"):
        read_onnx("m.onnx")


CLASSIFIED = [
    helper.make_node("Flatten", ["z"], ["flat"], "flat 1"),
    helper.make_node("Gemm", ["flat", "head.weight"], ["y"], "gemm 1", transB=1),
]


@pytest.mark.parametrize(
    ("nodes", "what"),
    [
        ([("Conv", "x a.weight", "c"), ("Add", "c columns", "z")], "add 2.*shape [(]4,[)] are not one for each of 4"),
        ([("Conv", "x a.weight", "c"), ("Add", "c rows", "z")], "add 2.*shape [(]4, 1[)] are not one for each of 4"),
        (
            [("Conv", "x a.weight", "c"), ("Sigmoid", "c", "s"), ("Sqrt", "s", "m"), ("Mul", "m c", "z")],
            "sqrt 3 .*none of relu",
        ),
        ([("Conv", "x a.weight", "c"), ("Cast", "c", "z")], "cast 2 .*numbers with a point"),
    ],
)
def test_what_only_looks_like_an_operation_of_ours_is_named(folder, nodes, what):
    """Numbers of a column for those of a channel, gates of two: none is silent."""
    rng = np.random.default_rng(5)
    parameters = values(rng, a__weight=(4, 1, 1, 1), b__weight=(1, 1, 1, 1), columns=(4,), rows=(4, 1))
    parameters |= values(rng, head__weight=(3, 64))
    used = {name for _, given, _ in nodes for name in given.split()} | {"head.weight"}
    more = {"Cast": {"to": 7}}
    made = [
        helper.make_node(op, given.split(), [result], f"{op.lower()} {k}", **more.get(op, {}))
        for k, (op, given, result) in enumerate(nodes, 1)
    ]
    held = {name: array for name, array in parameters.items() if name in used}
    write_images("m.onnx", [*made, *CLASSIFIED], held, (1, 4, 4))
    with pytest.raises(UnsupportedError, match=f"(?s){what}"):
        read_onnx("m.onnx")


def test_samples_that_a_view_mixes_and_images_without_a_class_are_named(folder):
    rng = np.random.default_rng(6)
    held = values(rng, a__weight=(4, 1, 1, 1), head__weight=(3, 16))
    conv = helper.make_node("Conv", ["x", "a.weight"], ["c"], "conv 1")
    view = helper.make_node("Reshape", ["c", "shape"], ["flat"], "view 1")
    shape = {"shape": np.array([-1, 16], np.int64)}
    write_images("m.onnx", [conv, view, CLASSIFIED[1]], held | shape, (1, 4, 4))
    with pytest.raises(UnsupportedError, match="view 1.*(are not seen as|in other places)"):
        read_onnx("m.onnx")
    last = helper.make_node("Conv", ["x", "a.weight"], ["y"], "conv 1")
    write_images("m.onnx", [last], {"a.weight": held["a.weight"]}, (1, 4, 4))
    assert read_onnx("m.onnx").planes == (4, 4)
    what = r"(?s)a\.toml: data\.labels.*m\.onnx ends in planes of 4 x 4 pixels.*labels = \"pixel\""
    with pytest.raises(UnsupportedError, match=what):
        parse_train(IMAGES, "a.toml")
    assert parse_train(IMAGES, "a.toml", ["data.labels=pixel"]).graph.label_image == (4, 4)
    mixed = helper.make_node("Reshape", ["c", "shape"], ["y"], "view 1")
    write_images("m.onnx", [conv, mixed], held | {"shape": np.array([-1, 2, 32], np.int64)}, (1, 4, 4))
    with pytest.raises(UnsupportedError, match=r"shape \(2, 32\) are no logits: a sample, or a pixel of an image, has"):
        read_onnx("m.onnx")


def test_modules_that_are_called_as_the_samples(folder):
    """PyTorch's `self.input = nn.Sequential(...)` is a usual name; the samples have it in a graph."""
    rng = np.random.default_rng(7)
    held = values(rng, input__0__weight=(4, 1, 1, 1), input__1__weight=(4,), input__1__bias=(4,), head__weight=(3, 64))
    nodes = [
        helper.make_node("Conv", ["x", "input.0.weight"], ["c"], "conv 1"),
        helper.make_node("GroupNormalization", ["c", "input.1.weight", "input.1.bias"], ["z"], "norm 1", num_groups=2),
    ]
    write_images("m.onnx", [*nodes, *CLASSIFIED], held, (1, 4, 4), opset=21)
    network = read_onnx("m.onnx")
    assert [node["name"] for node in network.nodes] == ["input_0", "input_1", "head"]
    assert network.back(network.tensors).keys() == held.keys()


def test_a_folded_batch_norm_is_refused(folder):
    """An exporter notes it beside the convolution, and nowhere else."""
    lenet("m.onnx")
    model = onnx.load("m.onnx")
    noted = model.graph.node[0].metadata_props.add()
    noted.key, noted.value = "namespace", ": Net/b: torch.nn.modules.batchnorm.BatchNorm2d/_native_batch_norm_legit"
    onnx.save(model, "m.onnx")
    with pytest.raises(ConfigError, match=r"(?s)conv 1: batch normalisation is folded into it.*optimize=False"):
        read_onnx("m.onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["lenet", "residual", "resnet", "stem", "unet", "segments", "enlarging", "features", "depthwise", "gated"]
)
def test_networks_that_torch_exports_train_as_there(folder, name):
    """Five steps of plain descent on eight samples: losses, weights, and names of weights."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from tests.harness.train.torch_networks import network

    torch.manual_seed(0)
    module, x, y = network(torch, name).train(), torch.randn(8, 1, 8, 8), torch.arange(8)
    if name == "segments":  # a label for each pixel, or none
        y = torch.randint(0, 10, (8, 8, 8)).masked_fill(torch.rand(8, 8, 8) < 0.3, -100)
    exported = copy.deepcopy(module).eval()  # its own mode is left as it is
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=0.05), []
    for _ in range(5):
        optimizer.zero_grad()
        losses.append(torch.nn.functional.cross_entropy(module(x), y))
        losses[-1].backward()
        optimizer.step()
    np.savez("images.npz", x_train=x.numpy(), y_train=y.numpy(), x_test=x.numpy(), y_test=y.numpy())
    given = {"iterations": 5, "optimizer": {"name": "sgd", "lr": 0.05}, "loss_scale": {"initial": 1024.0}}
    mesh, data = {"width": 2, "height": 2}, {"source": str(folder / "images.npz"), "batch": 8}
    if name == "segments":
        mesh, data = {"width": 4, "height": 8}, data | {"labels": "pixel"}
    machine = Trainer(wse.train.from_torch(exported, x, folder / "m.onnx", data=data, mesh=mesh, train=given))
    assert not exported.training
    found = [machine.step().loss for _ in range(5)]
    assert np.allclose(found, [loss.item() for loss in losses], atol=8e-4)
    wanted, got = module.state_dict(), machine.state_dict()
    assert got.keys() == {name for name in wanted if not name.endswith("num_batches_tracked")}  # PyTorch adds it
    assert all(np.allclose(got[name], wanted[name].numpy(), atol=2e-3) for name in got)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in got.items()}, strict=True)


@pytest.mark.slow
def test_weights_that_pytorch_leaves_alone_are_named(folder):
    """Buffers and parameters without gradient stay as they are; what is unused would be lost."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    nn, x = torch.nn, torch.randn(2, 1, 8, 8)

    class Blurred(nn.Module):
        def __init__(self, blur, **more):
            super().__init__()
            self.head = nn.Linear(36, 3)
            self.blur = blur
            for name, one in more.items():
                setattr(self, name, one)

        def forward(self, x):
            return self.head(nn.functional.conv2d(x, self.blur).flatten(1))

    blur = torch.ones(1, 1, 3, 3) / 9
    buffered = Blurred(None)
    del buffered.blur
    buffered.register_buffer("blur", blur)
    data = {"source": "digits", "batch": 8}
    for module in (buffered, Blurred(nn.Parameter(blur, requires_grad=False))):
        config = wse.train.from_torch(module, x, folder / "m.onnx", data=data, train={"iterations": 1})
        assert [node.fixed for node in config.network.nodes] == [True, None]
    with pytest.raises((ConfigError, UnsupportedError), match="is no name of a parameter|: a buffer, a constant"):
        wse.train.from_torch(Blurred(blur), x, folder / "m.onnx", data=data, train={"iterations": 1})
    unused = Blurred(nn.Parameter(blur), extra=nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"extra.bias, extra.weight: the logits do not depend on it"):
        wse.train.from_torch(unused, x, folder / "m.onnx", data=data, train={"iterations": 1})


def test_a_module_without_pytorch(folder, monkeypatch):
    """What is missing is said with the extra that has it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r"(?s)torch.*wse-sim\[torch\]"):
        wse.train.from_torch(object(), np.zeros((2, 3)))


@pytest.mark.slow
def test_what_pytorch_cannot_export_is_said(folder):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Odd(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ConfigError, match="PyTorch cannot export the module: <class .*>: Could not guard"):
        wse.train.from_torch(Odd(), torch.ones(2, 3))
    with pytest.raises(ConfigError, match="one sample does not say"):
        wse.train.from_torch(torch.nn.Linear(3, 2), torch.ones(1, 3))
    with pytest.raises(UnsupportedError, match=r"\(Where\): takes a function of numbers that is none of relu"):
        wse.train.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Hardshrink()), torch.ones(2, 3))
