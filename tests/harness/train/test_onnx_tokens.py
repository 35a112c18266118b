"""Transformers from ONNX files: what exporters make of attention is read back, whatever the form, or named."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wse
from fabric.networks.graph.plain import PlainGraph
from harness.train.config import parse_train
from harness.train.data import load
from harness.train.lookup import without_padding
from harness.train.onnx_tokens import TokenReader
from harness.train.plain import PlainTrainer
from harness.train.text import TokenRows
from harness.train.trainer import Trainer
from wse_core.errors import ConfigError, UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tests.harness.train.sequence_files import BUCKETS, HEADS, VOCABULARY, D, S, SequenceFile, transformer  # noqa: E402

TEXT = """
wafers = {wafers}
[network]
file = "m.onnx"
[data]
source = "tokens.npz"
batch = {batch}
[mesh]
width = 2
height = {height}
[train]
iterations = 3
optimizer = {{name = "adam", lr = 0.01}}
loss_scale = {{initial = 256.0}}
"""
PLAIN = {
    "places": "learned",
    "norm": "layer",
    "joined": "no",
    "scaled": "queries",
    "mask": "add",
    "function": "gelu",
    "gate": "no",
    "result": "all",
    "attention": "steps",
}
FORMS = {
    "places": ("none", "learned", "rotary", "rotary halves", "rotary pairs"),
    "norm": ("layer", "rms pow", "rms div"),
    "joined": ("no", "yes", "conv1d", "by head", "axis", "letters", "letters of one"),
    "scaled": ("both", "queries", "scores"),
    "mask": ("none", "add", "where", "filled", "window", "near", "alibi", "far", "keys"),
    "function": ("gelu", "gelu steps", "silu", "relu", "gelu_erf", "gelu_erf steps", "tanh"),
    "gate": ("no", "yes", "joined"),
    "result": ("all", "first", "last", "rows", "mean", "sum", "pooled"),
    "attention": ("steps", "node", "side by side"),
}


ONE = ("first", "last", "mean", "sum", "pooled")
"""Of these results a sequence has one."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tokens(form, classes=5, samples=8, seed=1):
    """Write data for a file; return the samples that are for tests."""
    rng, first = np.random.default_rng(seed), form["result"] in ONE
    features = form.get("features", 0)

    def drawn():
        if features:
            return rng.standard_normal((samples, S, features)).astype(np.float32)
        return rng.integers(0, VOCABULARY, (samples, S))

    x, y = {n: drawn() for n in ("train", "test")}, (samples,) if first else (samples, S)
    if first and features:
        x = {name: array.reshape(samples, -1) for name, array in x.items()}
    arrays = {f"x_{n}": x[n] for n in x} | {f"y_{n}": rng.integers(0, classes, y) for n in x}
    np.savez("tokens.npz", **arrays)
    return x["test"].reshape(samples, S, *([features] if features else []))


def config(wafers=1, batch=8 * S, height=2):
    return parse_train(TEXT.format(wafers=wafers, batch=batch, height=height), "a.toml")


def compare(form):
    """Write a file and compare its logits with those of the network that is read from it, and what goes out."""
    parameters, x = transformer("m.onnx", form), tokens(form)
    run = PlainTrainer(config())
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    graph = PlainGraph(run.config.graph, "f64")
    found = graph.forward(run._active(), load(run.config).x_test[:])
    if form["result"] in ONE:
        found = found[S - 1 if form["result"] == "last" else 0 :: S]
    assert np.allclose(found, wanted.reshape(found.shape), atol=3e-5)
    out = run.state_dict()
    assert {name: (array.shape, array.tobytes()) for name, array in out.items()} == {
        name: (array.shape, array.tobytes()) for name, array in parameters.items()
    }
    assert run.config.data.sequence == S
    return run.config


@given(st.fixed_dictionaries({key: st.sampled_from(every) for key, every in FORMS.items()}), st.booleans())
@settings(deadline=None)
def test_any_form_of_a_transformer_gives_the_logits_of_the_reference_evaluator(tmp_path_factory, form, more):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("form"))
        extra = {"turned": True, "safe": True, "kinds": True, "spare": 3, "offset": 2, "epsilon": 0.25} if more else {}
        read = compare(form | extra)
    ops = [node.op for node in read.network.nodes]
    assert ops.count("attention") == 1
    assert ops.count("rotary") == 2 * form["places"].startswith("rotary")
    assert ops.count("rms") == 3 * form["norm"].startswith("rms")
    assert form["function"].split()[0] in ops
    (attention,) = [node for node in read.network.nodes if node.op == "attention"]
    assert (attention.heads, attention.causal) == (HEADS, form["mask"] not in ("none", "near", "far"))
    assert attention.window == {"window": 3, "near": 2}.get(form["mask"])
    assert attention.slopes == pytest.approx((0.5, 0.125) if form["mask"] in ("alibi", "far", "keys") else ())
    alone = "last" if form["result"] == "last" else "first"
    assert read.data.labels == (alone if form["result"] in ONE else "class")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("result", ["all", "first", "mean"])
def test_tokens_may_have_features_of_their_own(folder, bias, result):
    read = compare(PLAIN | {"features": 3, "bias": bias, "result": result})
    assert (read.network.inputs, read.network.places) == (3 + S, (S, 0, 1))
    compare(PLAIN | {"features": 3, "bias": bias, "result": result, "places": "none"})


@pytest.mark.parametrize("base", [100, 500, 500_000, 10_000])
@pytest.mark.parametrize("places", ["rotary", "rotary halves"])
def test_places_may_turn_at_other_rates(folder, places, base):
    read = compare(PLAIN | {"places": places, "base": float(base)})
    turned = [node for node in read.network.nodes if node.op == "rotary"]
    assert [node.base for node in turned] == [None if base == 10_000 else base] * 2


@pytest.mark.parametrize(
    ("mask", "causal"), [("buckets", False), ("buckets before", True), ("hidden buckets", True), ("pairs", False)]
)
def test_tables_of_what_scores_get_are_learned(folder, mask, causal):
    """A bucket of distances, of queries before keys too, has one number; what no distance has stays as it is."""
    read = compare(PLAIN | {"mask": mask})
    (attention,) = [node for node in read.network.nodes if node.op == "attention"]
    assert attention.causal == causal
    if mask == "pairs":
        assert sorted(attention.biases) == list(range(S * S))
    else:
        away = BUCKETS[:, 0] if causal else np.concatenate([BUCKETS[0, :0:-1], BUCKETS[:, 0]])
        assert attention.biases == tuple(np.unique(away, return_inverse=True)[1])


@pytest.mark.parametrize(("op", "becomes"), [("LayerNormalization", "groupnorm"), ("RMSNormalization", "headrms")])
def test_heads_are_normalised_with_numbers_that_they_share(folder, op, becomes):
    read = compare(PLAIN | {"normed": op})
    found = [(node.groups, node.shared) for node in read.network.nodes if node.op == becomes]
    assert found == [(HEADS, D // HEADS)] * 2


@pytest.mark.parametrize("places", ["learned", "rotary"])
@pytest.mark.parametrize(
    ("repeated", "shared"),
    [*((how, count) for how in ("expand", "concat", "gather") for count in (1, 2)), ("alone", 1)],
)
def test_heads_of_keys_that_are_repeated_become_shared_ones(folder, shared, repeated, places):
    form = {"places": places, "heads": 4, "shared": shared, "repeated": repeated}
    read = compare(PLAIN | form)
    (attention,) = [node for node in read.network.nodes if node.op == "attention"]
    assert (attention.heads, attention.kv_heads) == (4, shared)
    turned = [node.heads for node in read.network.nodes if node.op == "rotary"]
    assert turned == ([4, shared] if places == "rotary" else [])


@pytest.mark.parametrize("wafers", [1, 2])
def test_wafers_train_it_bit_for_bit_as_the_oracle_does(folder, wafers):
    form = PLAIN | {"joined": "by head", "places": "rotary", "gate": "joined", "norm": "rms pow", "function": "silu"}
    parameters = transformer("m.onnx", form)
    tokens(form)
    machine, oracle = (Trainer(config(wafers), backend=name) for name in ("compiled", "numpy"))
    assert [machine.step().loss for _ in range(3)] == [oracle.step().loss for _ in range(3)]
    one, other = machine.state_dict(), oracle.state_dict()
    for name, array in parameters.items():
        assert np.array_equal(one[name], other[name])
        assert not np.array_equal(one[name], array), name
    machine.save_onnx("new.onnx")
    (wanted,) = ReferenceEvaluator("new.onnx").run(None, {"x": np.load("tokens.npz")["x_test"]})
    (before,) = ReferenceEvaluator("m.onnx").run(None, {"x": np.load("tokens.npz")["x_test"]})
    assert not np.allclose(wanted, before)


def test_the_row_of_a_token_that_fills_sequences_is_not_trained(folder):
    transformer("m.onnx", PLAIN)
    tokens(PLAIN)
    text = TEXT.format(wafers=1, batch=8 * S, height=2).replace('"m.onnx"', '"m.onnx"\npadding = 2')
    run = Trainer(parse_train(text, "a.toml"))
    before = run.state_dict()["wte.weight"]
    run.step()
    after = run.state_dict()["wte.weight"]
    assert np.array_equal(after[2], before[2])
    assert (np.load("tokens.npz")["x_train"] == 2).any()
    assert not np.array_equal(after[3], before[3])
    rows = TokenRows(np.array([2, 1, 2, 0]), 3, 2, (2, 0, 1))
    assert rows[:].tolist() == [[0, 0, 1, 1, 0], [0, 1, 0, 0, 1], [0, 0, 1, 1, 0], [1, 0, 0, 0, 1]]
    graph, plain = PlainGraph(run.config.graph, "f64"), PlainTrainer(run.config)
    x, y = plain.data.batch(0)[0]
    _, gradients = graph.gradients(plain._active(), x, y)
    held = without_padding(run.config, plain.matrices, [gradients[one.name].ravel() for one in plain.parameters])
    kept = dict(zip((one.name for one in plain.parameters), held, strict=True))["wte.weight"].reshape(D, -1)
    assert not kept[:, 2].any()
    assert np.array_equal(np.delete(kept, 2, 1), np.delete(gradients["wte.weight"], 2, 1))
    assert gradients["wte.weight"][:, 2].any()


TIED = PLAIN | {"tied": True}


def test_a_table_that_is_multiplied_with_too_is_trained_once(folder):
    """A step of plain descent: both gradients in f64, added, and their norm counted once."""
    parameters = transformer("m.onnx", TIED)
    tokens(TIED, VOCABULARY)
    text = TEXT.format(wafers=1, batch=8 * S, height=2).replace(
        '{name = "adam", lr = 0.01}', '{name = "sgd", lr = 0.5}'
    )
    for clip in (1e9, 0.01):
        run = PlainTrainer(parse_train(text + f"clip = {clip}\n", "a.toml"))
        assert run.config.network.tied
        graph, (x, y) = PlainGraph(run.config.graph, "f64"), run.data.batch(0)[0]
        _, gradients = graph.gradients(run._active(), x, y)
        gradients = {name: array / len(x) for name, array in gradients.items()}
        table, head = gradients["wte.weight"], gradients[f"{run.config.network.tied}.weight"]
        whole = table.copy()
        whole[:, :VOCABULARY] += head[:, :D].T
        others = [array for name, array in gradients.items() if array is not table and array is not head]
        norm = np.sqrt(sum((array**2).sum() for array in [*others, whole, head[:, D:]]))
        step = run.step()
        assert step.norm == pytest.approx(norm, rel=1e-3)
        moved = run.state_dict()["wte.weight"] - parameters["wte.weight"]
        wanted = -0.5 * whole[:, :VOCABULARY].T * min(1.0, clip / norm)
        assert np.abs(moved - wanted).max() < 3e-3 * np.abs(wanted).max()


@pytest.mark.parametrize("wafers", [1, 2])
def test_wafers_keep_both_uses_of_a_table_equal(folder, wafers):
    transformer("m.onnx", TIED)
    tokens(TIED, VOCABULARY)
    machine, oracle = (Trainer(config(wafers), backend=name) for name in ("compiled", "numpy"))
    assert [machine.step().loss for _ in range(3)] == [oracle.step().loss for _ in range(3)]
    one, other = machine.tensors(), oracle.tensors()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    head = one[f"{machine.config.network.tied}.weight"]
    assert np.array_equal(head, one["wte.weight"][:, :VOCABULARY].T)
    machine.save_onnx("new.onnx")
    (wanted,) = ReferenceEvaluator("new.onnx").run(None, {"x": np.load("tokens.npz")["x_test"]})
    graph = PlainGraph(machine.config.graph, "f64")
    held = {parameter.name: parameter.dense for parameter in machine.parameters}
    found = graph.forward(held, load(machine.config).x_test[:])
    assert np.allclose(found, wanted.reshape(found.shape), atol=3e-5)


def test_a_file_says_how_else_a_module_calls_a_parameter(folder):
    transformer("m.onnx", TIED)
    tokens(TIED, VOCABULARY)
    model = onnx.load("m.onnx")
    model.metadata_props.add(key="wse.also_called:head.weight", value="wte.weight")
    onnx.save(model, "m.onnx")
    out = PlainTrainer(config()).state_dict()
    assert np.array_equal(out["head.weight"], out["wte.weight"])


CHAIN = """
[network]
inputs = 11
{}
nodes = [
    {{name = "first", op = "linear", outputs = 6}},
    {{name = "wide", op = "linear", outputs = 8}},
    {{name = "narrow", op = "linear", outputs = 5}},
    {{name = "back", op = "linear", outputs = 6}},
    {{name = "last", op = "linear", outputs = 9}},
]
[data]
batch = 16
[mesh]
width = 2
height = 2
[train]
iterations = 3
{}
"""


@pytest.mark.parametrize(
    ("tied", "more", "what"),
    [
        ("nobody", "", "'nobody' shares no table"),
        ("first", "", "'first' shares no table"),
        ("narrow", "", r"narrow.weight of 5 x 8 is no part of first.weight, turned: 6 x 11"),
        ("last", "[sparsity]\ndensity = 0.5", "have no gaps"),
    ],
)
def test_products_that_share_no_table_are_named(tied, more, what):
    with pytest.raises(ConfigError, match=what):
        parse_train(CHAIN.format(f'tied = "{tied}"', more), "a.toml")
    assert parse_train(CHAIN.format('tied = "last"', ""), "a.toml").tie == (4, 0, 9, 6)


WRONG = {
    "uneven": ({"mask": "uneven"}, "only masks, slopes of heads times distances, and a table"),
    "one table": ({"mask": "one table"}, "and a table of each head's own are added to scores"),
    "hidden pairs": ({"mask": "hidden pairs"}, "and a table of each head's own are added to scores"),
    "blocks": ({"mask": "blocks"}, "a mask is that of all tokens, or of those that came before, or of a window"),
    "in turns": (
        {"heads": 4, "shared": 2, "repeated": "in turns"},
        "neighbouring heads of queries share one, in order",
    ),
    "unevenly": (
        {"heads": 4, "shared": 2, "repeated": "unevenly"},
        "neighbouring heads of queries share one, in order",
    ),
    "base": ({"places": "rotary", "base": 500.5}, "pairs are turned otherwise"),
}


@pytest.mark.parametrize("attention", ["steps", "node"])
@pytest.mark.parametrize(("scale", "scaled"), [(1.0, 1), (1 / 16, 256), (1 / np.sqrt(3), 3), (0.5, None)])
def test_scores_of_another_scale_are_read(folder, attention, scale, scaled):
    """By the number of features of a head, 4, nothing is said of it."""
    read = compare(PLAIN | {"scale": scale, "attention": attention})
    (node,) = [node for node in read.network.nodes if node.op == "attention"]
    assert node.scaled == scaled


@pytest.mark.parametrize(("scale", "attention"), [(0.7, "steps"), (0.7, "node"), (-0.5, "steps")])
def test_queries_are_multiplied_if_scores_have_an_odd_scale(folder, scale, attention):
    read = compare(PLAIN | {"scale": scale, "attention": attention})
    (attends,) = [node for node in read.network.nodes if node.op == "attention"]
    (times,) = [node for node in read.network.nodes if node.op == "multiple"]
    assert (attends.scaled, attends.inputs[0]) == (None, times.name)
    assert times.factor == pytest.approx(scale * 2)


@pytest.mark.parametrize("name", WRONG)
def test_attention_of_another_kind_is_named(folder, name):
    form, what = WRONG[name]
    transformer("m.onnx", PLAIN | form)
    tokens(PLAIN)
    with pytest.raises(UnsupportedError, match=what):
        config()


def mean(f, x):
    few = f.op("Slice", x, f.constant([0], np.int64), f.constant([S // 2], np.int64), f.constant([1], np.int64))
    return f.op("ReduceMean", few, f.constant([1], np.int64), keepdims=0)


def mean_of_features(f, x):
    return f.op("Mul", x, f.op("ReduceMean", x, f.constant([-1], np.int64)))


def third(f, x):
    return f.op("Gather", x, f.constant(2, np.int64), axis=1)


def learned_scale(f, x):
    return f.op("Mul", x, f.op("Exp", f.parameter("temperature", 1)))


def learned_number(f, x):
    f.given["scale"] = np.float32(1.5)
    return f.op("Mul", "scale", x)


def odd(f, x):
    return f.op("Mul", f.op("Sigmoid", x), f.constant(3.0))


def bare(f, x):
    square = f.op("ReduceMean", f.op("Mul", x, x), f.constant([-1], np.int64), keepdims=1)
    return f.op("Div", x, f.op("Sqrt", square))


def squared(f, x):
    square = f.op("ReduceMean", f.op("Mul", x, x), f.constant([-1], np.int64), keepdims=1)
    return f.op("Div", x, f.op("Add", square, f.constant(1e-5)))


def mixed(f, x):
    return f.op("Add", x, f.op("Transpose", f.shape(x, -1, D, S), perm=[0, 2, 1]))


def between(f, x):
    return f.op("Add", x, f.parameter("place", S, D))


def flipped(f, x):
    back = [f.constant([k], np.int64) for k in (-1, -99, 1, -1)]
    return f.op("Add", f.op("Slice", x, *back), f.parameter("place", S, D))


def over_tokens(f, x):
    names = [f.parameter(f"bn.{name}", S, around=1.0) for name in ("weight", "bias", "running_mean", "running_var")]
    return f.op("BatchNormalization", x, *names, training_mode=1, outputs=3)[0]


def per_token(f, x):
    square = f.op("ReduceMean", f.op("Mul", x, x), f.constant([-1], np.int64), keepdims=1)
    unit = f.op("Div", x, f.op("Sqrt", f.op("Add", square, f.constant(1e-5))))
    return f.op("Mul", unit, f.parameter("norm.weight", S, 1, around=1.0))


def far(f, x):
    """Nearly a rectifier: only numbers above nine tell."""
    return f.op("Sub", f.op("Relu", x), f.op("Sqrt", f.op("Relu", f.op("Sub", x, f.constant(9.0)))))


def neutral(f, x):
    f.given["gain"] = np.ones((S, D), np.float32)
    return f.op("Mul", x, "gain")


def letters_of_heads(f, x):
    """Each head has a matrix of its own."""
    heads = f.shape(x, -1, S, HEADS, D // HEADS)
    return f.op("Einsum", heads, f.parameter("own", HEADS, D // HEADS, D), equation="bthm,hmd->bthd")


def half(f, x):
    return f.op("Split", x, outputs=2, axis=2, num_outputs=2)[0]


ENDS = {
    letters_of_heads: "bthm,hmd->bthd: a product with a parameter is that of features here",
    mean: "only means over all tokens of a sequence are taken here",
    mean_of_features: "only the mean of squares of all features is taken here",
    third: "results of all tokens, or of the first or last of a sequence, are trained here",
    learned_scale: "takes a number that is a parameter, or made of them",
    bare: "epsilon is 1e-12 to 1 here, not 0",
    squared: "of a mean of squares is no normalisation",
    mixed: "in an order, or with factors, that no operation here gives",
    between: "places are added to what the first product gives",
    flipped: "places are added to tokens that stand in another order",
    over_tokens: "tokens stand where it has its channels",
    per_token: "one for each of 8 features",
    far: "a function of numbers that is none of",
    neutral: "numbers that are parameters, or made of them",
    half: "not every feature of it is taken once",
}


@pytest.mark.parametrize("end", ENDS, ids=[end.__name__ for end in ENDS])
def test_what_is_no_operation_here_is_named(folder, end):
    """A token is looked up and multiplied; then something, then the logits."""
    f = SequenceFile(0)
    x = f.linear(f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x"), "first", D, D)
    y = end(f, x)
    f.write("m.onnx", f.linear(y, "head", 5, D // 2 if end is half else D), 2 if end in (mean, third) else 3)
    with pytest.raises(UnsupportedError, match=ENDS[end]):
        TokenReader(folder / "m.onnx", onnx.load("m.onnx")).network()


def layer_scale(f, x):
    return f.op("Add", f.op("Mul", f.op("Tanh", x), f.parameter("gamma", D)), x)


def bent(f, x):
    return f.op("PRelu", x, f.parameter("slope", D))


def bent_alike(f, x):
    return f.op("PRelu", x, f.parameter("slope", 1))


def quick(f, x):
    return f.op("Mul", x, f.op("Sigmoid", f.op("Mul", x, f.constant(1.702))))


def leaky(f, x):
    return f.op("LeakyRelu", x, alpha=0.3)


def soft(f, x):
    return f.op("Div", f.op("Softplus", f.op("Mul", x, f.constant(3.0))), f.constant(3.0))


def apart(f, x):
    return f.op("Sub", f.op("Tanh", x), x)


MULTIPLES = {
    apart: ["tanh", "multiple", "add"],
    learned_number: ["scale"],
    layer_scale: ["tanh", "scale", "add"],
    bent: ["relu", "multiple", "relu", "scale", "multiple", "add"],
    bent_alike: ["relu", "multiple", "relu", "scale", "multiple", "add"],
    odd: ["sigmoid", "multiple"],
    quick: ["multiple", "silu", "multiple"],
    leaky: ["relu", "multiple", "multiple", "add"],
    soft: ["multiple", "softplus", "multiple"],
}


@pytest.mark.parametrize("end", MULTIPLES, ids=[end.__name__ for end in MULTIPLES])
def test_multiples_become_operations(folder, end):
    """Learned ones, of features or of all numbers; functions of multiples, and multiples of functions."""
    f = SequenceFile(0)
    x = f.linear(f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x"), "first", D, D)
    f.write("m.onnx", f.op("Div", f.linear(end(f, x), "head", 5, D), f.constant(2.0)))
    x = tokens(PLAIN)
    run = PlainTrainer(config())
    assert [node.op for node in run.config.network.nodes][2:-2] == MULTIPLES[end]
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    assert np.allclose(found, wanted.reshape(found.shape), atol=3e-5)
    run.step()
    out, names = run.state_dict(), {name: array.shape for name, array in f.given.items()}
    assert {name: array.shape for name, array in out.items()} == names


@pytest.mark.parametrize("how", ["constant", "buffer", "alone"])
def test_places_that_are_not_trained_are_read(folder, how):
    """Sines of places behind tokens that are multiplied: constants, or what a module keeps; or no places at all."""
    f, waves = SequenceFile(0), np.sin(np.arange(S * D)).reshape(1, S, D).astype(np.float32)
    x = f.op("Mul", f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x"), f.constant(2.5))
    if how != "alone":
        f.given |= {"waves": waves} if how == "buffer" else {}
        x = f.op("Add", x, "waves" if how == "buffer" else f.constant(waves))
    f.write("m.onnx", f.linear(x, "head", 5, D))
    if how == "buffer":
        model = onnx.load("m.onnx")
        for key in ("wse.kept:", "wse.fixed:"):
            model.metadata_props.add(key=f"{key}waves", value="waves")
        onnx.save(model, "m.onnx")
    x, run = tokens(PLAIN), PlainTrainer(config())
    network = run.config.network
    assert (network.token_scale, network.fixed_places) == (2.5, () if how == "alone" else (0,))
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    assert np.allclose(found, wanted.reshape(found.shape), atol=3e-5)
    run.step()
    out = run.state_dict()
    assert set(out) == set(f.given)
    assert how != "buffer" or np.array_equal(out["waves"], waves)


def padded(f, how):
    """Write attention in which token 3 is hidden, as exporters write it; `how` also says what is wrong with it."""
    x = f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x")
    if how == "places":
        x = f.op("Add", x, f.parameter("place", S, D))
    q, k, v = (f.shape(f.linear(x, name, D, D, bias=how != "bare"), -1, S, 2, D // 2) for name in "qkv")
    q, k, v = (f.op("Transpose", one, perm=[0, 2, 1, 3]) for one in (q, k, v))
    scores = f.op("Mul", f.op("MatMul", q, f.op("Transpose", k, perm=[0, 1, 3, 2])), f.constant(0.5))
    hides = f.op("Equal", "x", f.constant(3, np.int64))
    keys = f.op("Unsqueeze", hides, f.constant([1, 3] if how == "queries" else [1, 2], np.int64))
    if how == "chosen":
        scores = f.op("Where", keys, f.constant(-np.inf), scores)
    elif how in ("biased", "bare", "places", "queries"):
        lets = f.op("Sub", f.constant(1.0), f.op("Cast", f.op("Not", keys), to=1))
        scores = f.op("Add", scores, f.op("Mul", lets, f.constant(-1.0 if how == "biased" else -1e4)))
    else:  # a mask of numbers, and another one of places
        lets = f.op("Where", keys, f.constant(-np.inf), f.constant(0.0))
        scores = f.op("Add", f.op("Add", scores, f.constant(np.triu(np.full((S, S), -1e9, np.float32), 1))), lets)
    y = f.op("Transpose", f.op("MatMul", f.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return f.linear(f.op("Add", x, f.linear(f.shape(y, -1, S, D), "o", D, D)), "head", 5, D)


@pytest.mark.parametrize("how", ["chosen", "bare", "places", "causal"])
def test_tokens_that_are_hidden_are_read(folder, how):
    """Keys of one number get a feature more in each head; wafers and numpy train alike, and what goes out is whole."""
    f = SequenceFile(0)
    f.write("m.onnx", padded(f, how))
    tokens(PLAIN)
    given = dict(np.load("tokens.npz"))
    for name in ("x_train", "x_test"):
        given[name][:, 0] = 1  # nobody sees nothing
    np.savez("tokens.npz", **given)
    run = PlainTrainer(config())
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": given["x_test"]})
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    assert np.allclose(found, wanted.reshape(found.shape), atol=3e-5)
    assert (given["x_test"] == 3).any()
    out = run.state_dict()
    assert {name: array.tobytes() for name, array in out.items()} == {
        name: array.tobytes() for name, array in f.given.items()
    }
    machine, oracle = Trainer(run.config), Trainer(run.config, backend="numpy")
    before = machine.tensors()
    assert [machine.step().loss for _ in range(2)] == [oracle.step().loss for _ in range(2)]
    after, others = machine.tensors(), oracle.tensors()
    assert all(np.array_equal(array, others[name]) for name, array in after.items())
    for node in run.config.network.nodes:
        for kind in ("weight", "bias") if node.fixed or node.fixed_outputs else ():
            rows = slice(None) if node.fixed else list(node.fixed_outputs)
            name = f"{node.name}.{kind}"
            assert name not in after or np.array_equal(before[name][rows], after[name][rows])
    assert not np.array_equal(before["k.weight"], after["k.weight"])


@pytest.mark.parametrize(("how", "what"), [("queries", "hides tokens by something else"), ("biased", "only masks are")])
def test_other_ways_to_hide_tokens_are_named(folder, how, what):
    f = SequenceFile(0)
    f.write("m.onnx", padded(f, how))
    with pytest.raises(UnsupportedError, match=what):
        config()


def test_heads_that_are_normalised_are_read(folder):
    """Queries and keys of two heads by one vector of factors each, before the heads change places."""
    f = SequenceFile(0)
    x = f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x")
    q, k, v = (f.shape(f.linear(x, name, D, D), -1, S, 2, D // 2) for name in "qkv")
    normed = []
    for one, name in ((q, "qn"), (k, "kn")):
        square = f.op("ReduceMean", f.op("Mul", one, one), f.constant([-1], np.int64), keepdims=1)
        unit = f.op("Div", one, f.op("Sqrt", f.op("Add", square, f.constant(1e-5))))
        normed.append(f.op("Mul", unit, f.parameter(f"{name}.weight", D // 2, around=1.0)))
    q, k, v = (f.op("Transpose", one, perm=[0, 2, 1, 3]) for one in (*normed, v))
    scores = f.op("Mul", f.op("MatMul", q, f.op("Transpose", k, perm=[0, 1, 3, 2])), f.constant(0.5))
    y = f.op("Transpose", f.op("MatMul", f.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    f.write("m.onnx", f.linear(f.shape(y, -1, S, D), "head", 5, D))
    x, run = tokens(PLAIN), PlainTrainer(config())
    assert [(node.groups, node.shared) for node in run.config.network.nodes if node.op == "headrms"] == [(2, 4)] * 2
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    assert np.allclose(found, wanted.reshape(found.shape), atol=3e-5)
    run.step()
    assert {name: array.shape for name, array in run.state_dict().items()} == {
        name: array.shape for name, array in f.given.items()
    }


def test_attention_in_letters_is_read(folder):
    f = SequenceFile(0)
    x = f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x")
    q, k, v = (f.shape(f.linear(x, name, D, D), -1, S, 2, D // 2) for name in "qkv")
    scores = f.op("Mul", f.op("Einsum", q, k, equation="bqhd, bkhd -> bhqk"), f.constant(0.5))
    y = f.op("Einsum", f.op("Softmax", scores, axis=-1), v, equation="bhqk,bkhd->bqhd")
    f.write("m.onnx", f.linear(f.shape(y, -1, S, D), "head", 5, D))
    x, run = tokens(PLAIN), PlainTrainer(config())
    (attends,) = [node for node in run.config.network.nodes if node.op == "attention"]
    assert (attends.heads, attends.causal) == (2, False)
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    assert np.allclose(found, wanted.reshape(found.shape), atol=3e-5)


def bare_and_biased(f, x):
    """Write a product that is taken with a parameter and without."""
    h = f.linear(x, "a", D, D, bias=False)
    return f.op("Add", f.op("Relu", f.op("Add", h, f.parameter("b", D))), h)


def bare_before(f, x):
    h = f.linear(x, "a", D, D, bias=False)
    return f.op("Add", f.op("Relu", h), f.op("Add", h, f.parameter("b", D)))


@pytest.mark.parametrize("end", [bare_and_biased, bare_before])
def test_a_product_that_is_taken_bare_too_keeps_its_bias_apart(folder, end):
    f = SequenceFile(0)
    y = end(f, f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x"))
    f.write("m.onnx", f.linear(y, "head", 5, D))
    x = tokens(PLAIN)
    run = PlainTrainer(config())
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    assert np.allclose(found, wanted.reshape(found.shape), atol=3e-5)
    assert "shift" in {node.op for node in run.config.network.nodes}


def test_numbers_of_tokens_are_looked_up_as_they_are(folder):
    f = SequenceFile(0)
    doubled = f.op("Mul", "x", f.constant(2, np.int64))
    f.write("m.onnx", f.linear(f.op("Gather", f.parameter("wte.weight", 40, D), doubled), "head", 5, D))
    with pytest.raises(UnsupportedError, match="looks up what is no number of a token"):
        config()


def test_results_that_are_cut_are_named(folder):
    f = SequenceFile(0)
    x = f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x")
    x = f.op("Add", x, f.parameter("place", S, D))
    f.write("m.onnx", f.op("Slice", x, *(f.constant([k], np.int64) for k in (0, 5, 2))))
    with pytest.raises(UnsupportedError, match="which looks places up too"):
        TokenReader(folder / "m.onnx", onnx.load("m.onnx")).network()


def test_weights_that_are_shared_and_differ_in_a_file_are_refused(folder):
    transformer("m.onnx", TIED)
    tokens(TIED, VOCABULARY)
    run = PlainTrainer(config())
    run.step()
    kept = run.tensors()
    np.savez("w.npz", **kept)
    text = TEXT.format(wafers=1, batch=8 * S, height=2).replace('"m.onnx"', '"m.onnx"\nweights = "w.npz"')
    again = PlainTrainer(parse_train(text, "a.toml")).tensors()
    assert all(np.array_equal(again[name], kept[name]) for name in kept)
    for name in (f"{run.config.network.tied}.weight", f"{run.config.network.tied}.weight.v"):
        np.savez("w.npz", **(kept | {name: kept[name] + 1}))
        with pytest.raises(ConfigError, match="share weights, and differ there"):
            PlainTrainer(parse_train(text, "a.toml"))


def test_sequences_of_another_length_are_refused(folder):
    transformer("m.onnx", PLAIN)
    x = np.zeros((32, S - 2), int)
    np.savez("tokens.npz", x_train=x, y_train=x, x_test=x, y_test=x)
    with pytest.raises(ConfigError, match=f"x_train has sequences of {S - 2} tokens"):
        PlainTrainer(config())


def test_files_and_data_that_do_not_fit_each_other(folder):
    transformer("m.onnx", PLAIN)
    tokens(PLAIN)
    text = TEXT.format(wafers=1, batch=8 * S, height=2)
    for change, what in (
        ("batch = 48", "batch = 48\nsequence = 3"),
        ("batch = 48", 'batch = 48\nlabels = "first"'),
        ('file = "m.onnx"', 'file = "m.onnx"\nplaces = [6, 0, 1]'),
        ('file = "m.onnx"', 'file = "m.onnx"\npadding = 11'),
    ):
        with pytest.raises(ConfigError, match=r"sequences of 6|every token|the file says it|token 11 of 11"):
            parse_train(text.replace(change, what), "a.toml")
    x = np.full((8, S), VOCABULARY)
    np.savez("tokens.npz", x_train=x, y_train=x * 0, x_test=x, y_test=x * 0)
    with pytest.raises(ConfigError, match="tokens of tokens.npz are 11 to 11, the network knows 11"):
        PlainTrainer(config())


def test_places_of_a_configuration(folder):
    """Networks of nodes look places up without a file too."""
    tokens(PLAIN)
    nodes = '[{{name = "a", op = "linear", outputs = 8, bias = false}}, {{name = "b", op = "linear", outputs = 5}}]'
    text = TEXT.format(wafers=1, batch=8 * S, height=2)
    text = text.replace('file = "m.onnx"', f"inputs = {VOCABULARY + 9}\nplaces = [7, 1, 1, 2, 1, 0]\nnodes = {nodes}")
    text = text.replace("{{", "{").replace("}}", "}").replace("batch", f"sequence = {S}\nbatch")
    rows, ids = load(parse_train(text, "a.toml")).x_test[:], np.load("tokens.npz")["x_test"].ravel()
    wanted = np.zeros((len(ids), VOCABULARY + 9))
    for k, number in enumerate(ids):
        wanted[k, [number, VOCABULARY + 1 + k % S, VOCABULARY + 8]] = 1
    assert np.array_equal(rows, wanted)
    for places, what in (
        ("[7, 1]", "three numbers each"),
        ("[5, 0, 1]", "look up rows 0 to 5 of 5"),
        ("[20, 0, 1]", "leave no features"),
    ):
        with pytest.raises(ConfigError, match=what):
            parse_train(text.replace("[7, 1, 1, 2, 1, 0]", places), "a.toml")


MODULES = ("gpt", "gpt tied", "gpt by hand", "bert", "llama", "llama shared", "neox", "rows")
LIBRARY = (
    "gpt2",
    "llama",
    "llama shared",
    "qwen2",
    "phi",
    "phi in part",
    "stablelm",
    "llama slow",
    "mistral",
    "neox",
    "opt",
    "bert",
    "classes",
    "masked",
    "electra",
    "albert",
    "distilbert",
)
MASKED = ("bert", "gpt2")
"""These models of the library are given a mask of padding too."""


def called(module, x, given):
    """Return logits, also of a model that gives more than these."""
    result = module(x, **given)
    return result.logits if given else result


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*MODULES, *(f"library {name}" for name in LIBRARY), *(f"masked {name}" for name in MASKED)]
)
def test_transformers_that_torch_exports_train_as_there(folder, name):
    """Five steps of plain descent on four sequences: losses, weights, and names of weights."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from tests.harness.train.torch_transformers import transformer

    torch.manual_seed(0)
    module = transformer(torch, name).train()
    x = torch.randn(4, 8, 8) if name == "rows" else torch.randint(0, 20, (4, 8))
    given = {}
    if name.startswith("masked "):
        x[x == 3] = 4
        x[1, 5:] = x[3, 7:] = 3
        given = {"attention_mask": (x != 3).long()}
    logits = called(module, x, given)
    labels = torch.randint(0, logits.shape[-1], logits.shape[:-1])
    exported, optimizer, losses = copy.deepcopy(module), torch.optim.SGD(module.parameters(), lr=0.05), []
    for _ in range(5):
        optimizer.zero_grad()
        logits = called(module, x, given)
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten()))
        losses[-1].backward()
        optimizer.step()
    rows = x.flatten(1) if name == "rows" else x
    np.savez("t.npz", x_train=rows, y_train=labels, x_test=rows, y_test=labels)
    train = {"iterations": 5, "optimizer": {"name": "sgd", "lr": 0.05}, "loss_scale": {"initial": 1024.0}}
    mesh, data = {"width": 4, "height": 2}, {"source": str(folder / "t.npz"), "batch": 32}
    example = {"input_ids": x, **given} if given else x
    machine = Trainer(wse.train.from_torch(exported, example, folder / "m.onnx", data=data, mesh=mesh, train=train))
    found = [machine.step().loss for _ in range(5)]
    assert np.allclose(found, [loss.item() for loss in losses], atol=5e-4)
    wanted, got = module.state_dict(), machine.state_dict()
    assert got.keys() == wanted.keys()
    assert all(np.allclose(got[name], wanted[name].numpy(), atol=1e-3) for name in got)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in got.items()}, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["detached", "without", "hooked", "frequent", "still places"])
def test_what_a_module_leaves_out_on_the_way_back_is_named(folder, what):
    """A file does not say it: one gradient of the example does."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(9, 8, scale_grad_by_freq=what == "frequent")
            self.places = nn.Embedding(4, 8, padding_idx=0 if what == "still places" else None)
            self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 5)
            if what == "hooked":
                self.inner.weight.register_hook(lambda gradient: gradient * 0)

        def forward(self, ids):
            x = self.tokens(ids) + self.places(torch.arange(4))
            if what == "without":
                with torch.no_grad():
                    still = torch.relu(self.inner(x))
                return self.head(x + still)
            return self.head(x + torch.relu(self.inner(x.detach() if what == "detached" else x)))

    torch.manual_seed(0)
    x = torch.tensor([[1, 1, 1, 2], [3, 3, 4, 1]])
    given = {"data": {"batch": 8}, "mesh": {"width": 2, "height": 2}, "train": {"iterations": 1}}
    with pytest.raises(UnsupportedError, match="its gradient is another one in PyTorch"):
        wse.train.from_torch(Model(), x, folder / "m.onnx", **given)
    what = "nothing"
    module = Model()
    read = wse.train.from_torch(module, x, folder / "m.onnx", **given, sparsity={"density": 0.5})
    assert read.density == pytest.approx(0.5, abs=0.02)  # the whole module is compared, not what masks leave of it
    np.savez("w.npz", **{"head.weight": np.zeros((5, 8), np.float32)})
    first = {"weights": str(folder / "w.npz")}
    assert wse.train.from_torch(module, x, folder / "m.onnx", **given, network=first).network.weights


@pytest.mark.slow
def test_masks_that_a_module_keeps_come_back(folder):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from tests.harness.train.torch_transformers import transformer

    torch.manual_seed(0)
    module = transformer(torch, "gpt by hand")
    for block in module.blocks:
        block.mix.register_buffer("mask", torch.tril(torch.ones(8, 8)).bool(), persistent=True)
    x = torch.randint(0, 20, (4, 8))
    np.savez("t.npz", x_train=x, y_train=x, x_test=x, y_test=x)
    given = {"data": {"source": str(folder / "t.npz"), "batch": 32}, "mesh": {"width": 4, "height": 2}}
    out = Trainer(wse.train.from_torch(module, x, folder / "m.onnx", train={"iterations": 1}, **given)).state_dict()
    assert out.keys() == module.state_dict().keys()
    module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in out.items()}, strict=True)
