"""Images that are cut into patches train as sequences: cuts, files of vision transformers, what is fixed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fabric.networks.graph.plain import PlainGraph
from harness.train.config import parse_train
from harness.train.data import load
from harness.train.patches import patched, tokens_of
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from wse_core.errors import ConfigError, UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tests.harness.train.sequence_files import S, SequenceFile  # noqa: E402

D, CLASSES = 4, 3
TEXT = """
[network]
file = "m.onnx"
[data]
source = "images.npz"
batch = {batch}
[mesh]
width = 2
height = 2
[train]
iterations = 2
optimizer = {{name = "adamw", lr = 0.01, weight_decay = 0.1}}
loss_scale = {{initial = 256.0}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(("before", "marked"), [(0, 0), (2, 1), (1, 0)])
def test_images_are_cut_as_they_say(before, marked, last):
    """Pixel by pixel; rows behind the last whole patch are left out."""
    sizes = (2, 5, 6, 2, 3, before, marked, last)
    x = np.random.default_rng(0).standard_normal((3, 2, 5, 6))
    assert tokens_of(sizes) == (before + 4, 12 + before + marked)
    found = patched(x.reshape(3, -1), sizes).reshape(3, before + 4, -1)
    for n, i, j, c, u, v in np.ndindex(3, 2, 2, 2, 2, 3):
        place = (u * 3 + v) * 2 + c if last else (c * 2 + u) * 3 + v
        assert found[n, before + 2 * i + j, place] == x[n, c, 2 * i + u, 3 * j + v]
    assert np.all(found[:, :before, :12] == 0)
    marks = np.zeros((before + 4, before + marked))
    marks[before:, :marked] = 1
    marks[range(before), range(marked, before + marked)] = 1
    assert np.array_equal(found[:, :, 12:], np.broadcast_to(marks, (3, *marks.shape)))


def arranged(f, cut):
    """Append patches of 2 x 2 pixels that are arranged, and the product that takes them."""
    if cut == "unfolded":
        at = np.array([[0, 1], [2, 3]])
        x = f.op("Gather", f.op("Gather", "x", f.constant(at, np.int64), axis=2), f.constant(at, np.int64), axis=4)
        x = f.op("Transpose", x, perm=[0, 2, 4, 1, 3, 5])
    else:
        perm = {"last": [0, 2, 4, 3, 5, 1], "turned": [0, 4, 2, 1, 3, 5], "odd": [0, 2, 4, 1, 5, 3]}
        x = f.op("Transpose", f.shape("x", 0, 2, 2, 2, 2, 2), perm=perm.get(cut, [0, 2, 4, 1, 3, 5]))
    return f.linear(f.shape(x, 0, 4, 8), "cut", D, 8)


def vision(path, form="class", bias=True, cut=""):
    """Write a small vision transformer: patches, a class token or a mean, places, attention, a product."""
    f = SequenceFile(3)
    x = arranged(f, cut) if cut else convolved(f, bias)
    count = 4
    return attended(f, x, count, form, path)


def convolved(f, bias):
    patches, more = [f.parameter("cut.weight", D, 2, 2, 2)], [f.parameter("cut.bias", D)] if bias else []
    x = f.op("Conv", "x", *patches, *more, kernel_shape=[2, 2], strides=[2, 2])
    return f.op("Transpose", f.shape(x, 0, D, -1), perm=[0, 2, 1])


def attended(f, x, count, form, path):
    """Append what follows patches, and write the file and data; return its parameters, images and tokens of one."""
    if form != "mean":
        every = f.op("Concat", f.op("Shape", "x", start=0, end=1), f.constant([1, D], np.int64), axis=0)
        token = f.op("Expand", f.parameter("token", 1, 1, D), every)
        x, count = f.op("Concat", *((x, token) if form == "behind" else (token, x)), axis=1), 5
    x = f.op("Add", x, f.parameter("place", 1, count, D))
    q, k, v = (f.linear(x, name, D, D) for name in "qkv")
    scores = f.op("Div", f.op("MatMul", q, f.op("Transpose", k, perm=[0, 2, 1])), f.constant(2.0))
    x = f.op("Add", x, f.op("MatMul", f.op("Softmax", scores, axis=-1), v))
    if form == "class":
        x = f.op("Gather", x, f.constant(0, np.int64), axis=1)
    else:
        x = f.op("ReduceMean", x, f.constant([1], np.int64), keepdims=0)
    y = f.linear(x, "head", CLASSES, D)
    write(f, path, y)
    rng = np.random.default_rng(1)
    x = {name: rng.standard_normal((4, 2, 4, 4)).astype(np.float32) for name in ("x_train", "x_test")}
    np.savez("images.npz", **x, **{f"y_{name}": rng.integers(0, CLASSES, 4) for name in ("train", "test")})
    return f.given, x["x_test"], count


def write(f, path, y):
    """Write a file that takes images."""
    graph = helper.make_graph(
        [*f.nodes, helper.make_node("Identity", [y], ["y"], "end")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in f.given.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9), path)


@pytest.mark.parametrize(
    ("form", "bias", "cut"),
    [
        ("class", True, ""),
        ("class", False, ""),
        ("mean", True, ""),
        ("class", True, "first"),
        ("mean", True, "last"),
        ("mean", True, "unfolded"),
    ],
)
def test_vision_transformers_are_read_and_train(folder, form, bias, cut):
    """Logits are those of the reference evaluator; wafers and numpy train alike, bit for bit."""
    given, x, count = vision("m.onnx", form, bias, cut)
    config = parse_train(TEXT.format(batch=4 * count), "a.toml")
    assert config.network.patches == (2, 4, 4, 2, 2, count - 4, int(bias and count > 4), int(cut == "last"))
    run = PlainTrainer(config)
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(config.graph, "f64").forward(run._active(), load(config).x_test[:])[::count]
    assert np.allclose(found, wanted, atol=3e-5)
    assert {name: array.tobytes() for name, array in run.state_dict().items()} == {
        name: array.tobytes() for name, array in given.items()
    }
    machine, oracle = Trainer(config), Trainer(config, backend="numpy")
    assert [machine.step().loss for _ in range(2)] == [oracle.step().loss for _ in range(2)]
    out, other = machine.state_dict(), oracle.state_dict()
    for name, array in given.items():
        assert np.array_equal(out[name], other[name])
        assert out[name].shape == array.shape
        assert not np.array_equal(out[name], array)


@pytest.mark.parametrize("cut", ["", "first"])
def test_of_several_readers_the_one_that_came_furthest_says_why(folder, cut):
    """Images that are convolved, and patches: what stands behind them is named, and nothing before."""
    f = SequenceFile(3)
    x = arranged(f, cut) if cut else f.op("Conv", "x", f.parameter("c.weight", 2, 2, 3, 3), pads=[1] * 4)
    x = f.op("Sin", x)
    x = f.op("ReduceMean", x, f.constant([1], np.int64), keepdims=0) if cut else f.op("Flatten", x)
    write(f, "m.onnx", f.linear(x, "head", CLASSES, D if cut else 32))
    with pytest.raises(UnsupportedError, match=r"m.onnx: Sin_\d+ .Sin.: "):
        parse_train(TEXT.format(batch=16), "a.toml")


@pytest.mark.parametrize("cut", ["turned", "odd"])
def test_other_arrangements_of_pixels_are_named(folder, cut):
    """Column by column of patches, or of the pixels of one."""
    vision("m.onnx", "mean", True, cut)
    with pytest.raises(UnsupportedError, match=r"MatMul.*patches of them alone are tokens here"):
        parse_train(TEXT.format(batch=16), "a.toml")


@pytest.mark.parametrize("behind", [False, True])
def test_rows_before_which_a_token_stands_are_patches_of_a_row(folder, behind):
    """Logits are those of ONNX, wafers train as numpy does; a token behind them is named."""
    f = SequenceFile(1)
    x = f.linear("x", "first", D, 3)
    every = f.op("Concat", f.op("Shape", "x", start=0, end=1), f.constant([1, D], np.int64), axis=0)
    token = f.op("Expand", f.parameter("token", 1, 1, D), every)
    x = f.op("Concat", *((x, token) if behind else (token, x)), axis=1)
    x = f.op("Add", x, f.parameter("place", 1, S + 1, D))
    q, k, v = (f.linear(x, name, D, D) for name in "qkv")
    scores = f.op("Div", f.op("MatMul", q, f.op("Transpose", k, perm=[0, 2, 1])), f.constant(2.0))
    x = f.op("Add", x, f.op("MatMul", f.op("Softmax", scores, axis=-1), v))
    f.write("m.onnx", f.linear(f.op("Gather", x, f.constant(0, np.int64), axis=1), "head", CLASSES, D), 2, features=3)
    rng, text = np.random.default_rng(1), TEXT.format(batch=4 * (S + 1))
    rows = {name: rng.standard_normal((4, S, 3)).astype(np.float32) for name in ("x_train", "x_test")}
    np.savez("images.npz", **rows, **{f"y_{name}": rng.integers(0, CLASSES, 4) for name in ("train", "test")})
    if behind:
        with pytest.raises(UnsupportedError, match=r"Concat.*: puts tensors beside constants"):
            parse_train(text, "a.toml")
        return
    config = parse_train(text, "a.toml")
    assert config.network.patches == (1, S, 3, 1, 3, 1, 1, 0)
    run = PlainTrainer(config)
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": rows["x_test"]})
    found = PlainGraph(config.graph, "f64").forward(run._active(), load(config).x_test[:])[:: S + 1]
    assert np.allclose(found, wanted, atol=3e-5)
    machine, oracle = Trainer(config), Trainer(config, backend="numpy")
    assert [machine.step().loss for _ in range(2)] == [oracle.step().loss for _ in range(2)]
    out, other = machine.state_dict(), oracle.state_dict()
    assert out.keys() == f.given.keys()
    assert all(np.array_equal(out[name], other[name]) and out[name].shape == f.given[name].shape for name in out)


def test_tokens_behind_the_patches_are_named(folder):
    vision("m.onnx", "behind")
    with pytest.raises(UnsupportedError, match=r"Concat.*: parameters are put before all patches as they are cut"):
        parse_train(TEXT.format(batch=20), "a.toml")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("patches = [1, 4, 4, 2, 2, 0, 0]", "eight numbers"),
        ("patches = [1, 4, 4, 2, 2, 0, 0, 0]", "4 tokens of 4 features, data.sequence is 2, inputs leave 8"),
        ("fixed_places = [0]", "tables that are not trained are places"),
    ],
)
def test_patches_that_do_not_fit_are_refused(line, what):
    text = f"""
[network]
inputs = 8
{line}
nodes = [{{name = "a", op = "linear", outputs = 3}}]
[data]
source = "digits"
batch = 8
sequence = 2
labels = "first"
"""
    with pytest.raises(ConfigError, match=re.escape(what)):
        parse_train(text, "a.toml")


def test_what_is_fixed_stays(folder):
    """With an optimizer that lets weights decay; all else moves."""
    rng = np.random.default_rng(0)
    y = {f"y_{name}": rng.integers(0, 3, (8, 2)) for name in ("train", "test")}
    np.savez("ids.npz", **{f"x_{name}": rng.integers(0, 4, (8, 2)) for name in ("train", "test")}, **y)
    text = """
[network]
inputs = 6
places = [2, 0, 1]
fixed_places = [0]
token_scale = 2.0
nodes = [
    {name = "a", op = "linear", outputs = 4, bias = false},
    {name = "n", op = "norm", fixed = true},
    {name = "b", op = "linear", outputs = 4, fixed = true},
    {name = "s", op = "scale", shared = 2},
    {name = "c", op = "linear", outputs = 3},
]
[data]
source = "ids.npz"
batch = 16
sequence = 2
labels = "token"
[mesh]
width = 2
height = 2
[train]
iterations = 3
optimizer = {name = "adamw", lr = 0.01, weight_decay = 0.1}
loss_scale = {initial = 256.0}
"""
    config = parse_train(text, "a.toml")
    assert sorted(set(load(config).x_train[:][:, :4].ravel())) == [0.0, 2.0]
    machine, oracle = Trainer(config), Trainer(config, backend="numpy")
    before = machine.tensors()
    assert [machine.step().loss for _ in range(3)] == [oracle.step().loss for _ in range(3)]
    after = machine.tensors()
    assert all(np.array_equal(array, oracle.tensors()[name]) for name, array in after.items())
    same = {name for name in before if name.endswith(("weight", "bias")) and np.array_equal(before[name], after[name])}
    assert same == {"n.norm.weight", "n.norm.bias", "b.weight", "b.bias"}
    assert np.array_equal(before["a.weight"][:, 4:], after["a.weight"][:, 4:])
    factors = after["s.weight"]
    assert np.array_equal(factors[:2], factors[2:])
    assert factors[0] != factors[1]


def test_features_that_are_not_there_are_refused():
    text = """
[network]
inputs = 64
nodes = [{name = "a", op = "linear", outputs = 10, fixed_outputs = [10]}]
[data]
source = "digits"
batch = 8
"""
    with pytest.raises(ConfigError, match="feature 10 of 10"):
        parse_train(text, "a.toml")


def test_numbers_that_are_not_repeated_evenly_are_refused():
    text = """
[network]
inputs = 64
nodes = [{name = "a", op = "linear", outputs = 10}, {name = "s", op = "scale", shared = 3}]
[data]
source = "digits"
batch = 8
"""
    with pytest.raises(ConfigError, match="3 numbers are not repeated over 10 channels"):
        parse_train(text, "a.toml")
