"""Networks from ONNX files: logits as the reference evaluator of ONNX has them, weights out as they came in."""

from __future__ import annotations

import numpy as np
import pytest

from harness.cli.main import main
from harness.train.config import TrainConfig, parse_train
from harness.train.onnx_file import read_onnx, save_onnx
from harness.train.plain import PlainTrainer
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


def write(path, nodes, parameters, inputs=12, outputs=4, opset=20):
    """Write a file of nodes; `parameters` are its initializers."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", outputs])],
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
        node("Tanh", ["x"], ["t"], "first tanh"),
        node("Gemm", ["t", "w"], ["g"], "product", transB=1),
        node("Gelu", ["g"], ["e"], "erf"),
        node("LayerNormalization", ["e", "p.weight", "p.bias"], ["l"], "small", epsilon=1e-12),
        node("Exp", ["l"], ["y"]),
    ]
    write("m.onnx", nodes, given)
    assert main(["train", "a.toml", "--validate-only"]) != 0
    said = capsys.readouterr().err
    for line in ("first tanh (Tanh)", "erf (Gelu): the erf form", "small (LayerNormalization): epsilon", "y (Exp)"):
        assert line in said
    assert "product" not in said


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ("shared", ConfigError, r"(?s)w is the parameter of 2 nodes.*optimize=False"),
        ("lost", ConfigError, r"(?s)val_3 is no name of a parameter.*optimize=False"),
        ("batch norm", ConfigError, r"(?s)statistics of inference.*optimize=False"),
        ("training norm", UnsupportedError, "norm .BatchNormalization.: is not trained here"),
        ("two ways", UnsupportedError, "second .Gemm.: takes x, not what the node before it gives"),
        ("dropout", UnsupportedError, "drop .Dropout.: dropout is not modelled"),
        ("alpha", UnsupportedError, "first .Gemm.: alpha and beta are 1"),
        ("fit", UnsupportedError, "second .Gemm.: takes 5 features, the layer before it gives 12"),
        ("two outputs", UnsupportedError, "first .Relu.: only the result of a product"),
        ("old", ConfigError, "operators of version 11"),
    ],
)
def test_files_that_are_refused(folder, change, error, match):
    node, given = helper.make_node, values(np.random.default_rng(0), w=(12, 12), v=(4, 12), val_3=(12, 12), u=(4, 5))
    extra = values(np.random.default_rng(0), s=(12,), t=(12,), m=(12,))
    norm = ["h", "s", "t", "m", "m"]
    head, tail = node("Gemm", ["x", "w"], ["h"], "first"), node("Gemm", ["k", "v"], ["y"], "second", transB=1)
    yes = numpy_helper.from_array(np.array(True), "yes")
    middle = {
        "shared": [head, node("Gemm", ["h", "w"], ["k"], "again", transB=1), tail],
        "lost": [node("Gemm", ["x", "val_3"], ["k"], "first"), tail],
        "batch norm": [head, node("BatchNormalization", norm, ["k"], "norm"), tail],
        "training norm": [head, node("BatchNormalization", norm, ["k", "a", "b"], "norm", training_mode=1), tail],
        "two ways": [head, node("Relu", ["h"], ["k"], "relu"), node("Gemm", ["x", "v"], ["y"], "second", transB=1)],
        "dropout": [head, node("Dropout", ["h", "", "yes"], ["k"], "drop"), tail],
        "alpha": [node("Gemm", ["x", "w"], ["k"], "first", alpha=2.0), tail],
        "fit": [head, node("Gemm", ["h", "u"], ["y"], "second", transB=1)],
        "two outputs": [node("Relu", ["x"], ["k"], "first"), tail],
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
