"""Graphs that work along the tokens of a sequence: tokens are pixels, and sides may change, or it is refused."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.networks.graph.plain import PlainGraph
from harness.train.config import parse_train
from harness.train.data import load
from harness.train.onnx_turned import TurnedReader
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from wse_core.errors import ConfigError, UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tests.harness.train.sequence_files import VOCABULARY, D, S, SequenceFile  # noqa: E402

TEXT = """
wafers = {wafers}
[network]
file = "m.onnx"
[data]
source = "d.npz"
batch = 8
{data}
[mesh]
width = 2
height = 2
[train]
iterations = 2
{train}
loss_scale = {{initial = 256.0}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def looked(f):
    return f.op("Gather", f.parameter("e.weight", VOCABULARY, D), "x")


def behind(f, x):
    return f.op("Transpose", x, perm=[0, 2, 1])


def along(f, x, name, outputs, kernel, **more):
    """Append a convolution along tokens of x, whose second axis has channels."""
    weight = f.parameter(f"{name}.weight", outputs, D, kernel)
    return f.op("Conv", x, weight, f.parameter(f"{name}.bias", outputs), kernel_shape=[kernel], **more)


def normed(f, x, name, count=D):
    return f.op(
        "LayerNormalization", x, f.parameter(f"{name}.weight", count, around=1.0), f.parameter(f"{name}.bias", count)
    )


def head(f, x, features, outputs=5):
    return f.op("Gemm", x, f.parameter("h.weight", outputs, features), f.parameter("h.bias", outputs), transB=1)


def mean(f, x, axis):
    return f.op("ReduceMean", x, f.constant([axis], np.int64), keepdims=0)


def text_cnn(f):
    x = behind(f, looked(f))
    parts = [
        f.op("ReduceMax", f.op("Relu", along(f, x, f"c{k}", 4, k)), f.constant([2], np.int64), keepdims=0)
        for k in (2, 3)
    ]
    return head(f, f.op("Concat", *parts, axis=1), 8)


def text_cnn_plane(f):
    """Windows over all features of some tokens: images of one channel."""
    x = f.op("Unsqueeze", looked(f), f.constant([1], np.int64))
    x = f.op("Conv", x, f.parameter("c.weight", 4, 1, 3, D), kernel_shape=[3, D])
    x = f.op("Relu", f.op("Squeeze", x, f.constant([3], np.int64)))
    return head(f, f.op("ReduceMax", x, f.constant([2], np.int64), keepdims=0), 4)


def flattened(f):
    """All features of all tokens, in the order of the file; a parameter per token and feature before."""
    x = f.op("Add", looked(f), f.parameter("place", 1, S, D))
    return head(f, f.shape(x, -1, S * D), S * D)


def mixer(f):
    x = looked(f)
    y = behind(f, normed(f, x, "n"))
    y = f.op("Gelu", f.linear(y, "t1", 4, S))
    x = f.op("Add", x, behind(f, f.linear(y, "t2", S, 4)))
    y = f.linear(f.op("Relu", f.linear(normed(f, x, "m"), "c1", 12, D)), "c2", D, 12)
    return head(f, mean(f, f.op("Add", x, y), 1), D)


def gated(f):
    """Half of the features gates the other, convolved across tokens: gMLP."""
    f.nodes.append(
        onnx.helper.make_node("SplitToSequence", [looked(f), f.constant(D // 2, np.int64)], ["parts"], "cut", axis=-1)
    )
    a, b = (f.op("SequenceAt", "parts", f.constant(k, np.int64)) for k in (0, 1))
    weight = f.parameter("s.weight", S, S, 1)
    b = f.op("Conv", normed(f, b, "n", D // 2), weight, f.parameter("s.bias", S), kernel_shape=[1])
    return head(f, mean(f, f.op("Mul", a, b), -2), D // 2)


def last_token(f):
    y = f.op("Relu", along(f, behind(f, looked(f)), "c", D, 3, pads=[2, 0]))
    y = behind(f, y)
    return head(f, f.op("Gather", y, f.constant(-1, np.int64), axis=1), D)


def by_token(f):
    y = f.op("Relu", along(f, behind(f, looked(f)), "c", D, 3, pads=[2, 0]))
    return f.linear(normed(f, behind(f, y), "n"), "o", 5, D)


KINDS = {one.__name__: one for one in (text_cnn, text_cnn_plane, flattened, mixer, gated, last_token, by_token)}


def written(how, samples=8):
    """Write a file and data for it; return its parameters and the samples for tests."""
    f, rng, every = SequenceFile(0), np.random.default_rng(1), how == "by_token"
    f.write("m.onnx", KINDS[how](f), axes=3 if every else 2)
    shape = (samples, S) if every else (samples,)
    x = {part: rng.integers(0, VOCABULARY, (samples, S)) for part in ("train", "test")}
    np.savez("d.npz", **{f"x_{n}": x[n] for n in x}, **{f"y_{n}": rng.integers(0, 5, shape) for n in x})
    return f.given, x["test"]


def config(wafers=1, data="", train=""):
    return parse_train(TEXT.format(wafers=wafers, data=data, train=train), "a.toml")


@pytest.mark.parametrize("how", KINDS)
def test_logits_are_those_of_the_reference_evaluator(folder, how):
    """What comes in goes out again too, in every bit."""
    parameters, x = written(how)
    run = PlainTrainer(config())
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    found = found.reshape(len(x), 5, S).swapaxes(1, 2) if how == "by_token" else found
    assert np.allclose(found, wanted, atol=3e-5)
    out = run.state_dict()
    assert {name: array.tobytes() for name, array in out.items()} == {n: a.tobytes() for n, a in parameters.items()}
    assert (run.config.network.image, run.config.data.sequence) == ((VOCABULARY, 1, S), 1)


def places(f, x):
    """Numbers of places of tokens that stand the other way round, and factors for each."""
    x = f.op("Slice", x, *(f.constant([k], np.int64) for k in (-1, -99, 1, -1)))
    return f.op("Mul", f.op("Add", x, f.parameter("place", S, D)), f.parameter("gain", 1, S, D, around=1.0))


def turned_weights(f, x):
    """Filters that are a parameter the other way round, and rows of one that are cut out."""
    weight = f.op("Transpose", f.parameter("w.weight", 1, D, D), perm=[1, 2, 0])
    bias = f.op("Slice", f.parameter("w.bias", D + 2), *(f.constant([k], np.int64) for k in (1, D + 1)))
    return behind(f, f.op("Conv", behind(f, x), weight, bias, kernel_shape=[1]))


@pytest.mark.parametrize("between", [places, turned_weights])
def test_parameters_go_out_as_they_came(folder, between):
    f = SequenceFile(0)
    f.write("m.onnx", head(f, f.shape(between(f, looked(f)), -1, S * D), S * D), axes=2)
    x = np.random.default_rng(1).integers(0, VOCABULARY, (8, S))
    np.savez("d.npz", x_train=x, y_train=x[:, 0] % 5, x_test=x, y_test=x[:, 0] % 5)
    run = PlainTrainer(config())
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    assert np.allclose(found, wanted, atol=3e-5)
    out = run.state_dict()
    assert all(np.array_equal(out[name], array) for name, array in f.given.items())


@pytest.mark.parametrize(("how", "wafers"), [("mixer", 2), ("flattened", 1), ("by_token", 4)])
def test_wafers_train_them_as_numpy_does_bit_for_bit(folder, how, wafers):
    written(how)
    machine, oracle = (Trainer(config(wafers), backend=name) for name in ("compiled", "numpy"))
    steps, others = ([run.step() for _ in range(2)] for run in (machine, oracle))
    assert [step.loss for step in steps] == [step.loss for step in others]
    assert min(step.cycles for step in steps) > 10_000
    found, other = machine.tensors(), oracle.tensors()
    assert all(np.array_equal(found[name], other[name]) for name in found)


def test_numbers_change_sides_by_ones_alone(folder):
    """The product that turns has a weight for each number, and no zeros are streamed."""
    written("mixer")
    run = Trainer(config(), backend="numpy")
    turned = [node for node in run.config.network.nodes if node.op == "linear" and node.fixed]
    assert [node.image for node in turned] == [(S, 1, D), (D, 1, S)]
    held = {one.name: one for one in run.matrices}
    assert [int(held[f"{node.name}.weight"].pattern.count) for node in turned] == [S * D] * 2


def test_tokens_have_labels_as_those_of_sequences_have(folder):
    written("by_token")
    for data in ("", 'labels = "token"', 'labels = "pixel"'):
        assert config(data=data).data.labels == "pixel"
    with pytest.raises(UnsupportedError, match="targets stand in another order"):
        config(train='loss = "mse"')
    arrays = dict(np.load("d.npz"))
    np.savez("d.npz", **arrays | {"x_test": np.full((8, S), VOCABULARY)})
    with pytest.raises(ConfigError, match=f"tokens of d.npz are {VOCABULARY} to {VOCABULARY}, the network knows"):
        load(config())


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("compared", "numbers of tokens are looked up in tables, and nothing else"),
        ("doubled", "is no table with a row for each of them"),
        ("attends", "is not read where channels stand behind rows and columns"),
    ],
)
def test_what_pixels_do_not_do_is_named(folder, how, what):
    f = SequenceFile(0)
    x = behind(f, looked(f))
    if how == "compared":
        x = f.op("Mul", x, f.op("Unsqueeze", f.op("Cast", f.op("Sin", "x"), to=1), f.constant([1], np.int64)))
    if how == "doubled":
        x = behind(f, f.op("Add", looked(f), f.op("Gather", f.parameter("o.weight", VOCABULARY + 1, D), "x")))
    x = along(f, x, "c", D, 3, pads=[1, 1])
    if how == "attends":
        x = f.op("MatMul", behind(f, x), x)
    f.write("m.onnx", head(f, f.op("Flatten", x), S * (S if how == "attends" else D)), axes=2)
    with pytest.raises(UnsupportedError, match=what):
        TurnedReader(folder / "m.onnx", onnx.load("m.onnx")).network()
    with pytest.raises(UnsupportedError, match="products are of a token's own here|looks tokens up|" + what):
        config()


EACH = """
image = [1, 4, 4]
inputs = 16
nodes = [
    {name = "a", op = "convolution", outputs = 2, kernel = 3, padding = 1},
    {name = "b", op = "shift", each = true},
    {name = "c", op = "scale", each = true},
    {name = "d", op = "relu"},
    {name = "e", op = "linear", outputs = 5},
]
"""


@pytest.mark.parametrize("rows", [1, 2])
def test_numbers_for_each_pixel_train_on_wafers_and_rows(folder, rows):
    """Strips are gathered before them."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 16)).astype(np.float32), rng.integers(0, 5, 8)
    np.savez("d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    text = TEXT.format(wafers=1, data="", train="").replace('file = "m.onnx"', EACH)
    made = parse_train(text.replace("height = 2", f"height = 2\nimage_rows = {rows}"), "a.toml")
    machine, oracle = (Trainer(made, backend=name) for name in ("compiled", "numpy"))
    first = machine.tensors()["b.bias"]
    assert [machine.step().loss for _ in range(2)] == [oracle.step().loss for _ in range(2)]
    found, other = machine.tensors(), oracle.tensors()
    assert (found["b.bias"].shape, found["c.weight"].shape) == ((32,), (32,))
    assert len(np.unique(found["b.bias"] - first)) > 16
    assert all(np.array_equal(found[name], other[name]) for name in found)
    with pytest.raises(UnsupportedError, match="shift of each pixel is not written"):
        machine.save_onnx("out.onnx")
    with pytest.raises(ConfigError, match="relu has no each"):
        parse_train(text.replace('op = "relu"', 'op = "relu", each = true'), "a.toml")
