"""Files that take a mask of padding besides the tokens: it is made of the tokens, or refused by its name."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.networks.graph.plain import PlainGraph
from harness.train.config import parse_train
from harness.train.data import load
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from wse_core.errors import ConfigError, UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tests.harness.train.sequence_files import HEADS, VOCABULARY, D, S, SequenceFile  # noqa: E402

PAD, COUNT = 3, 8
TEXT = """
wafers = {wafers}
[network]
file = "m.onnx"
{masked}
[data]
source = "t.npz"
batch = {batch}
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
KINDS = {"numbers": TensorProto.INT64, "floats": TensorProto.FLOAT, "padding": TensorProto.BOOL}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(masked=(PAD, 0), wafers=1, dtype="f16"):
    told = f"masked = {list(masked)}" if masked else ""
    cb16 = str(dtype == "cb16").lower()
    return parse_train(TEXT.format(wafers=wafers, masked=told, batch=COUNT * S, dtype=dtype, cb16=cb16), "a.toml")


def samples(kind):
    """Write data whose sequences end in padding; return those for tests, and their mask as a file takes it."""
    rng = np.random.default_rng(2)
    x = rng.integers(4, VOCABULARY, (COUNT, S))
    x[np.arange(S) >= rng.integers(1, S + 1, COUNT)[:, None]] = PAD
    y = rng.integers(0, 5, (COUNT, S))
    np.savez("t.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    types = {"numbers": np.int64, "floats": np.float32, "padding": bool}
    return x, (x == PAD if kind == "padding" else x != PAD).astype(types[kind])


def masked(f, kind, how):
    """Append attention whose scores a mask changes; `how` is the way of an exporter, or what is wrong with it."""
    x = f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x")
    q, k, v = (f.shape(f.linear(x, name, D, D), -1, S, HEADS, D // HEADS) for name in "qkv")
    q, k, v = (f.op("Transpose", one, perm=[0, 2, 1, 3]) for one in (q, k, v))
    scores = f.op("Mul", f.op("MatMul", q, f.op("Transpose", k, perm=[0, 1, 3, 2])), f.constant(0.5))

    def lying(*axes):
        return f.op("Unsqueeze", "mask0", f.constant(axes, np.int64))

    if how in ("taken", "queries"):  # numbers that are added
        keys = f.op("Cast", lying(1, 3) if how == "queries" else lying(1, 2), to=1)
        lets = keys if kind == "padding" else f.op("Sub", f.constant(1.0), keys)
        scores = f.op("Add", scores, f.op("Mul", lets, f.constant(-1e9)))
    elif how == "half":
        scores = f.op("Add", scores, f.op("Cast", lying(1, 2), to=1))
    elif how == "twice":
        both = f.op("And", f.op("Cast", lying(1, 2), to=9), f.op("Cast", lying(1, 3), to=9))
        scores = f.op("Where", both, scores, f.constant(-np.inf))
    else:  # looked up by number and place, with what came before, as the library transformers does
        at = np.stack(np.broadcast_arrays(np.arange(3)[:, None, None, None], np.arange(S)), -1)
        there = f.op("Cast", f.op("GatherND", "mask0", f.constant(at, np.int64)), to=9)
        there = f.op("Not", there) if kind == "padding" else there
        seen = f.op("And", f.constant(np.tri(S)[None, None], bool), there)
        lets = f.op("Where", seen, f.constant(0.0), f.constant(-np.inf))
        scores = f.op("Add", scores, lets)
    y = f.op("Transpose", f.op("MatMul", f.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return f.linear(f.op("Add", x, f.linear(f.shape(y, -1, S, D), "o", D, D)), "head", 5, D)


@pytest.mark.parametrize(
    ("kind", "how", "wafers", "dtype"),
    [
        ("numbers", "taken", 1, "f16"),
        ("floats", "taken", 2, "f16"),
        ("padding", "taken", 1, "cb16"),
        ("padding", "before", 2, "cb16"),
    ],
)
def test_a_mask_is_made_of_the_tokens(folder, kind, how, wafers, dtype):
    f = SequenceFile(0)
    f.write("m.onnx", masked(f, kind, how), masks=[KINDS[kind]])
    x, mask = samples(kind)
    there = int(kind == "padding")
    run = PlainTrainer(config((PAD, there)))
    given = {"x": x, "mask0": mask}
    if how == "before":  # its places are written for three sequences
        given = {name: array[:3] for name, array in given.items()}
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, given)
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
    assert np.allclose(found[: wanted[..., 0].size], wanted.reshape(-1, 5), atol=3e-5)
    assert (x == PAD).any()
    assert any("mask0" in line and f"{there} for token {PAD}" in line for line in run.config.warnings)
    settings = config((PAD, there), wafers, dtype)
    machine, oracle = Trainer(settings), Trainer(settings, backend="numpy")
    steps, others = ([one.step() for _ in range(2)] for one in (machine, oracle))
    assert [step.loss for step in steps] == [step.loss for step in others]
    assert len({step.cycles - step.boundary for step in steps}) == 1
    after, other = machine.state_dict(), oracle.state_dict()
    assert after.keys() == f.given.keys()
    assert all(np.array_equal(after[name], other[name]) for name in after)
    machine.save_onnx("new.onnx")
    assert len(onnx.load("new.onnx").graph.input) == 2


@pytest.mark.parametrize(
    ("kinds", "how", "told", "what"),
    [
        (["numbers"], "taken", (), "mask0: a second input; which token fills sequences"),
        (["numbers"], "queries", (PAD, 0), "hides tokens by something else"),
        (["numbers"], "half", (PAD, 0), "adds numbers to scores"),
        (["numbers"], "twice", (PAD, 0), "tells two tokens from others at once"),
        (["numbers", "numbers"], "taken", (PAD, 0), "3 inputs and 1 outputs: x, mask0, mask1"),
        ([], "", (PAD, 0), "no mask as a second input"),
        (["numbers"], "taken", (PAD, 2), "what it is there, 0 or 1"),
        (["numbers"], "taken", (VOCABULARY, 0), f"token {VOCABULARY} of {VOCABULARY}"),
    ],
)
def test_masks_of_another_kind_are_named(folder, kinds, how, told, what):
    f = SequenceFile(0)
    x = f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x") if not kinds else masked(f, kinds[0], how)
    f.write("m.onnx", f.linear(x, "head", 5, D) if not kinds else x, masks=[KINDS[kind] for kind in kinds])
    samples("numbers")
    with pytest.raises((ConfigError, UnsupportedError), match=what):
        config(told)


def test_a_mask_the_other_way_round_is_another_network(folder):
    """What a file makes of a mask follows what it is said to be: 0 at padding, or 1."""
    f = SequenceFile(0)
    f.write("m.onnx", masked(f, "numbers", "taken"), masks=[KINDS["numbers"]])
    x, mask = samples("numbers")
    x[:, -1] = PAD  # in the other network padding alone is seen
    np.savez("t.npz", **(dict(np.load("t.npz")) | {"x_test": x, "x_train": x}))
    for there in (0, 1):
        run = PlainTrainer(config((PAD, there)))
        given = {"x": x, "mask0": (x == PAD if there else x != PAD).astype(mask.dtype)}
        (wanted,) = ReferenceEvaluator("m.onnx").run(None, given)
        found = PlainGraph(run.config.graph, "f64").forward(run._active(), load(run.config).x_test[:])
        assert np.allclose(found, wanted.reshape(-1, 5), atol=3e-5)


def test_sequences_of_nothing_but_padding_are_refused(folder):
    f = SequenceFile(0)
    f.write("m.onnx", masked(f, "numbers", "taken"), masks=[KINDS["numbers"]])
    x, _ = samples("numbers")
    x[0] = PAD
    np.savez("t.npz", **(dict(np.load("t.npz")) | {"x_test": x}))
    with pytest.raises(ConfigError, match="x_test of t.npz has sequences of nothing but tokens that attention hides"):
        load(config())


def kept(f, how):
    """Append the mean over tokens that are no padding, or what is nearly that."""
    x = f.linear(f.op("Gather", f.parameter("wte.weight", VOCABULARY, D), "x"), "first", D, D)
    there = f.op("Not", f.op("Equal", "x", f.constant(PAD, np.int64)))
    flags = f.op("Cast", f.op("Unsqueeze", there, f.constant([2], np.int64)), to=1)
    if how == "library":
        flags = f.op("Expand", flags, f.constant([1, 1, D], np.int64))
    weights = f.op("Sub", f.constant(1.0), flags) if how == "inverted" else flags
    if how == "filled":
        hides = f.op("Not", f.op("Unsqueeze", there, f.constant([2], np.int64)))
        y = f.op("Where", hides, f.constant(0.0), x)
    else:
        y = f.op("Mul", x, weights) if how != "weighted" else f.op("Mul", x, f.op("Mul", weights, f.constant(0.5)))
    if how in ("sum", "all"):
        y = f.op("ReduceSum" if how == "sum" else "ReduceMean", y, f.constant([1], np.int64), keepdims=0)
    else:
        y = f.op("ReduceSum", y, f.constant([1], np.int64), keepdims=0)
        counts = f.op("ReduceSum", flags, f.constant([1], np.int64), keepdims=0)
        least = {"at least three": 3.0, "library": 1e-9}.get(how, 1.0)
        counts = f.op("Max", counts, f.constant(least)) if how != "more" else f.op("Add", counts, f.constant(1.0))
        y = f.op("Div", y, f.op("Sqrt", counts) if how == "root" else counts)
    return f.linear(y, "head", 5, D)


@pytest.mark.parametrize(
    ("how", "wafers", "dtype"),
    [("plain", 1, "f16"), ("library", 2, "f16"), ("filled", 2, "cb16"), ("sum", 1, "cb16"), ("all", 1, "f16")],
)
def test_means_and_sums_over_tokens_that_are_no_padding(folder, how, wafers, dtype):
    """The mean of those that are kept is that of ONNX; so are the sum of them, and that over all tokens."""
    f = SequenceFile(0)
    f.write("m.onnx", kept(f, how), 2)
    x, _ = samples("numbers")
    y = np.random.default_rng(0).integers(0, 5, COUNT)
    np.savez("t.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    settings = config((), wafers, dtype)
    assert settings.data.labels == "first"
    run = PlainTrainer(settings)
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    found = PlainGraph(settings.graph, "f64").forward(run._active(), load(settings).x_test[:])[::S]
    assert np.allclose(found, wanted, atol=3e-2 if dtype == "cb16" else 3e-5)
    machine, oracle = Trainer(settings), Trainer(settings, backend="numpy")
    steps, others = ([one.step() for _ in range(2)] for one in (machine, oracle))
    assert [step.loss for step in steps] == [step.loss for step in others]
    assert len({step.cycles - step.boundary for step in steps}) == 1
    after, other = machine.state_dict(), oracle.state_dict()
    assert after.keys() == f.given.keys()
    assert all(np.array_equal(after[name], other[name]) for name in after)


@pytest.mark.parametrize("how", ["inverted", "weighted", "at least three", "more", "root"])
def test_other_sums_over_tokens_are_named(folder, how):
    f = SequenceFile(0)
    f.write("m.onnx", kept(f, how), 2)
    samples("numbers")
    with pytest.raises(UnsupportedError, match="divides a sum over tokens by something else than how many of them"):
        config(())
