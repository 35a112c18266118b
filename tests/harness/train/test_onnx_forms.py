"""Forms of blocks that people write and exporters take apart: read as what they are, with the reference's logits."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.networks.graph.plain import PlainGraph
from harness.train.config import parse_train
from harness.train.data import load
from harness.train.plain import PlainTrainer
from wse_core.errors import ConfigError, UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tests.harness.train.sequence_files import VOCABULARY, D, S, SequenceFile  # noqa: E402

TEXT = """
[network]
file = "m.onnx"
[data]
source = "d.npz"
batch = {batch}
[mesh]
width = 2
height = 2
[train]
iterations = 1
optimizer = {{{optimizer}}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def looked(f, ids="x"):
    return f.op("Gather", f.parameter("e.weight", VOCABULARY, D), ids)


def scaled_places(f):
    """Places times a number: x-transformers."""
    where = f.constant(np.arange(S), np.int64)
    places = f.op("Unsqueeze", f.op("Gather", f.parameter("p.weight", S + 2, D), where), f.constant([0], np.int64))
    return f.linear(f.op("Add", looked(f), f.op("Mul", places, f.constant(0.25))), "h", 5, D)


def tokens_first(f):
    """Tokens before samples, and places beside them."""
    x = f.op("Add", looked(f, f.op("Transpose", "x", perm=[1, 0])), f.parameter("p", S, 1, D))
    return f.op("Transpose", f.linear(x, "h", 5, D), perm=[1, 0, 2])


def one_more(f):
    """Factors of one and a parameter: Gemma."""
    x = looked(f)
    square = f.op("ReduceMean", f.op("Mul", x, x), f.constant([-1], np.int64), keepdims=1)
    unit = f.op("Mul", x, f.op("Reciprocal", f.op("Sqrt", f.op("Add", square, f.constant(1e-5)))))
    return f.linear(f.op("Mul", unit, f.op("Add", f.constant(1.0), f.parameter("n.weight", D))), "h", 5, D)


def pooled(f):
    """A window over all tokens, samples in the place of channels."""
    x = f.op("Unsqueeze", looked(f), f.constant([0], np.int64))
    x = f.op("Squeeze", f.op("AveragePool", x, kernel_shape=[S, 1], strides=[S, 1]), f.constant([0, 2], np.int64))
    return f.linear(x, "h", 5, D)


def cut(f):
    """A parameter that is cut in pieces, one of which makes keys and values: attention to another tensor."""
    f.parameter("in.weight", 3 * D, D)
    x, pieces, parts = looked(f), f.constant([D, 2 * D], np.int64), []
    f.nodes.append(onnx.helper.make_node("SplitToSequence", ["in.weight", pieces], ["pieces"], "cut", axis=0))
    for k, given in enumerate((f.op("Tanh", x), x)):
        weight = f.op("Transpose", f.op("SequenceAt", "pieces", f.constant(k, np.int64)), perm=[1, 0])
        parts.append(f.op("MatMul", given, weight))
    q, (k, v) = parts[0], f.op("Split", parts[1], outputs=2, axis=2, num_outputs=2)
    q, k, v = (f.op("Transpose", f.shape(one, -1, S, 2, D // 2), perm=[0, 2, 1, 3]) for one in (q, k, v))
    scores = f.op("Mul", f.op("MatMul", q, f.op("Transpose", k, perm=[0, 1, 3, 2])), f.constant((D // 2) ** -0.5))
    y = f.op("MatMul", f.op("Softmax", scores, axis=-1), v)
    return f.linear(f.shape(f.op("Transpose", y, perm=[0, 2, 1, 3]), -1, S, D), "h", 5, D)


FORMS = {one.__name__: one for one in (scaled_places, tokens_first, one_more, pooled, cut)}


def written(how, optimizer='name = "sgd"'):
    """Write a file and its data; return its parameters, the samples, and the configuration."""
    f, rng = SequenceFile(0), np.random.default_rng(1)
    f.write("m.onnx", FORMS[how](f), axes=2 if how == "pooled" else 3)
    x = rng.integers(0, VOCABULARY, (8, S))
    y = rng.integers(0, 5, (8,) if how == "pooled" else (8, S))
    np.savez("d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return f.given, x, parse_train(TEXT.format(batch=8 * S, optimizer=optimizer), "a.toml")


@pytest.mark.parametrize("how", FORMS)
def test_logits_are_those_of_the_reference_evaluator(folder, how):
    parameters, x, config = written(how)
    run = PlainTrainer(config)
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(config.graph, "f64").forward(run._active(), load(config).x_test[:])
    found = found[::S] if how == "pooled" else found
    assert np.allclose(found, wanted.reshape(found.shape), atol=3e-5)
    out = run.state_dict()
    assert set(out) == set(parameters)
    assert all(np.allclose(out[name], array, rtol=0, atol=1e-7) for name, array in parameters.items())
    assert config.network.place_scales == ((0.25,) if how == "scaled_places" else ())


def test_weight_decay_of_factors_that_are_one_more_is_refused(folder):
    """It would shrink them to nothing, and PyTorch shrinks them to one."""
    for optimizer in ('name = "adamw"', 'name = "adam", weight_decay = 0.1'):
        with pytest.raises(ConfigError, match="n.weight and one are factors"):
            written("one_more", optimizer)
        assert written("one_more", f'{optimizer}, decays = "weights"')[2].network.nodes[1].op == "rms"
        assert written("scaled_places", optimizer)[2].network.nodes[0].op == "linear"


@pytest.mark.parametrize("scales", ["[1.0, 2.0]", "[0.0]"])
def test_numbers_of_places_are_one_for_each_table(folder, scales):
    text = TEXT.format(batch=12, optimizer="").replace(
        'file = "m.onnx"',
        f"inputs = 9\nplaces = [3, 0, 1]\nplace_scales = {scales}\n"
        'nodes = [{name = "a", op = "linear", outputs = 4}, {name = "b", op = "linear", outputs = 4}]',
    )
    with pytest.raises(ConfigError, match="for 1 tables of places"):
        parse_train(text.replace("batch = 12", "batch = 12\nsequence = 3"), "a.toml")


def counted(f, how):
    """Places that count the tokens which are no padding, number 3, and stand two further, as RoBERTa has them."""
    there = f.op("Cast", f.op("Not", f.op("Equal", "x", f.constant(3, np.int64))), to=7)
    axis = f.constant(0 if how == "across" else 1, np.int64)
    counts = f.op("CumSum", f.op("Mul", there, f.constant(2, np.int64)) if how == "twice" else there, axis)
    rows = f.op("Add", f.op("Mul", counts, there), f.constant(1, np.int64))
    x = f.op("Add", looked(f), f.op("Gather", f.parameter("p.weight", S + 2, D), rows))
    q, k, v = (f.linear(x, name, D, D) for name in "qkv")
    scores = f.op("MatMul", q, f.op("Transpose", k, perm=[0, 2, 1]))
    scores = f.op("Mul", scores, f.constant(D**-0.5))
    if how == "hidden":
        hidden = f.op("Unsqueeze", f.op("Equal", "x", f.constant(3, np.int64)), f.constant([1], np.int64))
        scores = f.op("Where", hidden, f.constant(-1e9), scores)
    return f.linear(f.op("MatMul", f.op("Softmax", scores, axis=-1), v), "h", 5, D)


def padded(how, change=None, labels="token"):
    """Write such a file, and data whose sequences end with padding; return samples, labels and the configuration."""
    f, rng = SequenceFile(0), np.random.default_rng(1)
    f.write("m.onnx", counted(f, how))
    x = np.where((x := rng.integers(0, VOCABULARY, (8, S))) == 3, 4, x)
    y = rng.integers(0, 5, (8, S))
    if how == "hidden":
        x[:4, 4:], y[:4, 4:] = 3, -100
    if change:
        x[change], y[change] = 3, -100 if how == "hidden" else 1
    np.savez("d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    text = TEXT.format(batch=8 * S, optimizer="").replace("[mesh]", f'labels = "{labels}"\n[mesh]')
    return x, y, parse_train(text, "a.toml")


@pytest.mark.parametrize("how", ["hidden", "seen"])
def test_places_that_count_tokens_are_those_of_sequences(folder, how):
    """Padding behind all others has other places in the file, and nothing depends on it."""
    x, y, config = padded(how)
    assert (config.network.ending, config.network.absent) == (((3,), ()) if how == "hidden" else ((), (3,)))
    assert config.network.places == (S + 2, 2, 1)
    run = PlainTrainer(config)
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(config.graph, "f64").forward(run._active(), load(config).x_test[:]).reshape(wanted.shape)
    assert np.allclose(found[y >= 0], wanted[y >= 0], atol=3e-5)


def test_padding_that_is_not_counted_where_it_matters_is_refused(folder):
    """It stands before others, has a label, or is seen."""
    with pytest.raises(ConfigError, match=r"tokens of \[3\] before others"):
        load(padded("hidden", (5, 2))[2])
    arrays = padded("hidden")
    np.savez("d.npz", **dict(np.load("d.npz")) | {"y_train": np.maximum(arrays[1], 0)})
    with pytest.raises(ConfigError, match=r"labels for tokens of \[3\]"):
        load(arrays[2])
    with pytest.raises(ConfigError, match=r"has tokens of \[3\], which the file does not count"):
        load(padded("seen", (5, 5))[2])
    for how, what in (("twice", "in a way that is none of places"), ("across", "otherwise than along a sequence")):
        with pytest.raises(UnsupportedError, match=what):
            padded(how)
