"""Dropout is drawn, whatever the wafers, or left out of files where the configuration says so."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import wse
from fabric.networks.graph.dropout import Draw, kept
from fabric.networks.graph.nodes import Node, as_size
from harness.train.config import TrainConfig
from harness.train.onnx_file import read_onnx
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from tests.harness.train.test_onnx_file import values, write
from wse_core.errors import ConfigError, UnsupportedError

onnx = pytest.importorskip("onnx")
node = onnx.helper.make_node
GIVEN = {"w": (12, 12), "v": (4, 12)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def chain(path, *middle, **constants):
    """Write a file with two products, and nodes between them."""
    given = values(np.random.default_rng(0), **GIVEN) | {name: np.array(one) for name, one in constants.items()}
    last = middle[-1].output[0] if middle else "h"
    ends = node("Gemm", ["x", "w"], ["h"], "first"), node("Gemm", [last, "v"], ["y"], "second", transB=1)
    write(path, [ends[0], *middle, ends[1]], given)


def config(file, **network):
    return TrainConfig.of(
        network={"file": file} | network, data={"batch": 8}, mesh={"width": 2, "height": 2}, train={"iterations": 2}
    )


def test_what_is_ignored_is_named_and_drops_nothing(folder):
    """A node of its own, or numbers that are drawn and compared, divided by the share that stays."""
    drops = [
        node("Dropout", ["h", "half", "yes"], ["d", "mask"], "drop"),
        node("RandomUniformLike", ["h"], ["r"], "draw"),
        node("Less", ["r", "share"], ["l"], "less"),
        node("CastLike", ["l", "h"], ["c"], "like"),
        node("Div", ["c", "share"], ["f"], "div"),
        node("Mul", ["d", "f"], ["k"], "times"),
    ]
    constants = {"half": np.float32(0.5), "yes": True, "share": np.float32(0.8)}
    chain("m.onnx", *drops, **constants)
    chain("plain.onnx")
    with pytest.raises(UnsupportedError, match="draw .RandomUniformLike.: is not trained here"):
        read_onnx("m.onnx")  # what is drawn for each number, and not for channels, exporters write otherwise
    found = config("m.onnx", dropout="ignore")
    assert "dropout is left out: drop, times" in found.warnings
    batches = [(np.random.default_rng(1).standard_normal((8, 12)), np.arange(8) % 4)] * 2
    with_it, without = (Trainer(one, data=batches) for one in (found, config("plain.onnx")))
    assert [with_it.step().loss for _ in range(2)] == [without.step().loss for _ in range(2)]
    with_it.save_onnx("again.onnx")
    nodes = [one.op_type for one in onnx.load("again.onnx").graph.node]
    assert nodes.count("Dropout") == 1  # a file goes out as it came in
    assert all(np.array_equal(one, without.state_dict()[name]) for name, one in with_it.state_dict().items())


@pytest.mark.parametrize("how", ["drawn", "before", "behind", "cut", "none", "other"])
def test_samples_may_be_dropped_whole(folder, how):
    """Stochastic depth: what is drawn for a sample is divided, or the tensor before or behind; or none by its share."""
    draws = [
        node("Shape", ["h"], ["n"], "samples", start=0, end=1),
        node("Concat", ["n", "one"], ["s"], "shape", axis=0),
        node("ConstantOfShape", ["s"], ["z"], "empty"),
        node("RandomUniformLike", ["z"], ["r"], "draw"),
        *([node("Add", ["r", "share"], ["l"], "above"), node("Floor", ["l"], ["c"], "cut")] if how == "cut" else ()),
        *([node("Less", ["r", "share"], ["l"], "less"), node("Cast", ["l"], ["c"], "made", to=1)] * (how != "cut")),
    ]
    x, factor = ("d", "c") if how in ("before", "cut") else ("h", "f" if how == "drawn" else "c")
    divides = node("Div", ["c" if how == "drawn" else "h", "share"], ["f" if how == "drawn" else "d"], "div")
    products = [node("Mul", [x, factor], ["k"], "times")]
    products += [node("Div", ["k", "share"], ["m"], "div")] if how == "behind" else []
    if how == "other":
        products = [node("Mul", ["d", "c"], ["q"], "times"), node("Div", ["q", "quarter"], ["k"], "more")]
        divides = node("Div", ["h", "quarter"], ["d"], "quarter")
    constants = {"one": [1], "share": np.float32(0.8), "quarter": np.float32(0.25)}
    chain("m.onnx", *draws, *[divides] * (how not in ("behind", "none")), *products, **constants)
    if how in ("none", "other"):
        with pytest.raises(UnsupportedError, match="draw .RandomUniformLike.: is not trained here"):
            read_onnx("m.onnx")
        return
    first, drop, last = config("m.onnx").network.nodes
    assert (first.op, drop.op, drop.ratio, drop.together, last.op) == ("linear", "dropout", 0.2, 12, "linear")
    chain("plain.onnx")
    assert config("m.onnx", dropout="ignore").network.layers == config("plain.onnx").network.layers


def test_dropout_that_drops_nothing_needs_no_key(folder):
    chain("m.onnx", node("Dropout", ["h", "none", "yes"], ["k"], "drop"), none=np.float32(0), yes=True)
    assert [layer["outputs"] for layer in read_onnx("m.onnx").layers] == [12, 4]
    assert not read_onnx("m.onnx", dropout="ignore").warnings


def test_mistakes(folder):
    chain("m.onnx")
    with pytest.raises(ConfigError, match="how to read dropout"):
        config("m.onnx", dropout="all")
    with pytest.raises(ConfigError, match="there is none"):
        TrainConfig.of(network={"inputs": 4, "layers": [{"outputs": 2}], "dropout": "ignore"}, data={"batch": 8})


@pytest.mark.slow
def test_modules_train_as_without_their_dropout(folder):
    """Of features, of channels, in attention and beside it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.3, batch_first=True)
    rows = nn.Sequential(nn.Linear(8, 16), nn.TransformerEncoder(layer, 1, enable_nested_tensor=False))
    images = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout2d(0.3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 5))
    )
    for module, x in ((rows.append(nn.Linear(16, 5)), torch.randn(4, 6, 8)), (images, torch.randn(8, 1, 8, 8))):
        module.train()
        twin, shape = copy.deepcopy(module), (4, 6) if x.ndim == 3 else (8,)
        for one in twin.modules():
            for name in ("p", "dropout"):
                if isinstance(getattr(one, name, None), float):
                    setattr(one, name, 0.0)
        labels = torch.randint(0, 5, shape)
        optimizer, losses = torch.optim.SGD(twin.parameters(), lr=0.05), []
        for _ in range(3):
            optimizer.zero_grad()
            losses.append(nn.functional.cross_entropy(twin(x).flatten(0, -2), labels.flatten()))
            losses[-1].backward()
            optimizer.step()
        np.savez("t.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
        found = wse.train.from_torch(
            module,
            x,
            dropout="ignore",
            data={"source": "t.npz", "batch": labels.numel()} | ({"labels": "token"} if x.ndim == 3 else {}),
            mesh={"width": 2, "height": 2},
            train={"iterations": 3, "optimizer": {"name": "sgd", "lr": 0.05}, "loss_scale": {"initial": 1024.0}},
        )
        trainer = Trainer(found)
        assert np.allclose([trainer.step().loss for _ in range(3)], [one.item() for one in losses], atol=5e-4)


# --- dropout that is drawn --------------------------------------------------------------------------------------------

NODES = (
    {"name": "a", "op": "linear", "outputs": 10},
    {"name": "r", "op": "relu"},
    {"name": "d", "op": "dropout", "ratio": 0.25},
    {"name": "b", "op": "linear", "outputs": 6},
    {"name": "s", "op": "add", "inputs": ("b", "b")},
    {"name": "e", "op": "dropout", "ratio": 0.5, "together": 2},
    {"name": "c", "op": "linear", "outputs": 4},
)


def drawn(wafers=1, mesh=(2, 2), batch=24, train=None, **more):
    """Return the configuration of a network with dropout on random samples."""
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((48, 8)).astype(np.float32), np.arange(48) % 4
    np.savez("t.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return TrainConfig.of(
        network={"inputs": 8, "nodes": list(NODES)},
        data={"source": "t.npz", "batch": batch},
        mesh={"width": mesh[0], "height": mesh[1]},
        wafers=wafers,
        train={"iterations": 4, "loss_scale": {"initial": 64.0}} | (train or {}),
        **more,
    )


def steps(trainer, count=4):
    return [trainer.step().loss for _ in range(count)]


def weights_of(trainer):
    return np.concatenate([one.dense.ravel() for one in trainer.parameters])


@pytest.mark.parametrize(
    ("wafers", "mesh", "accumulate"), [(1, (2, 2), 1), (3, (1, 2), 1), (2, (3, 1), 2), (1, (4, 6), 4)]
)
def test_wafers_train_as_numpy_does_bit_for_bit(folder, wafers, mesh, accumulate):
    config = drawn(wafers, mesh, train={"accumulate": accumulate})
    both = [Trainer(config, backend) for backend in (None, "numpy")]
    assert steps(both[0]) == steps(both[1])
    assert np.array_equal(*map(weights_of, both))
    data = both[0].dataset
    assert both[0].test(data.x_test, data.y_test) == both[1].test(data.x_test, data.y_test)


def test_neither_wafers_nor_meshes_nor_parts_show(folder):
    """What is dropped is the same, so only the order of sums differs; another seed drops others."""
    first = Trainer(drawn(), "numpy")
    losses = steps(first)
    for wafers, mesh, accumulate in ((2, (2, 2), 1), (3, (1, 4), 2), (1, (4, 3), 4)):
        other = Trainer(drawn(wafers, mesh, train={"accumulate": accumulate}), "numpy")
        assert np.allclose(steps(other), losses, atol=2e-3)
        assert np.abs(weights_of(other) - weights_of(first)).max() < 5e-3
    plain = PlainTrainer(drawn())
    assert np.allclose(steps(plain), losses, atol=2e-3)
    held = first.dataset.x_test, first.dataset.y_test
    assert np.allclose(plain.test(*held).loss, first.test(*held).loss, atol=5e-3)
    weights = Trainer(drawn(), "numpy").tensors()
    other = Trainer(drawn(seed=5), "numpy")
    other.load_weights(weights)
    assert np.abs(np.subtract(steps(other), losses)).max() > 0.02


def test_a_run_that_goes_on_drops_as_one_that_was_not_interrupted(folder):
    whole = Trainer(drawn(2))
    losses = steps(whole)
    begun = Trainer(drawn(2))
    steps(begun, 2)
    tensors, state = begun.state()
    other = Trainer(drawn(2))
    other.restore({name: np.array(one) for name, one in tensors.items()}, state)
    assert steps(other, 2) == losses[2:]
    assert np.array_equal(weights_of(whole), weights_of(other))


def test_batches_with_more_samples_than_numbers(folder):
    with pytest.raises(UnsupportedError, match="which have numbers of 16 bits"):
        drawn(batch=2**17)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "tokens", "images"])
def test_modules_train_as_in_torch_with_the_same_dropped(folder, kind):
    """PyTorch's own generator is another, so its modules are told what is dropped."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    nn, drops = torch.nn, []

    class Told(nn.Module):
        """Stands where a dropout stands."""

        def __init__(self, ratio, together):
            super().__init__()
            self.ratio, self.number, self.together = ratio, len(drops), together
            drops.append(self)

        def forward(self, x):
            tokens, features = (x.shape[0] * x.shape[1], x.shape[2]) if x.ndim == 3 else (len(x), x[0].numel())
            sizes = {"ratio": as_size(self.ratio), "number": self.number, "together": self.together}
            stays = kept(Node("d", "dropout", ("x",), sizes), features, tokens, Draw(0, self.iteration))
            return x * torch.from_numpy(stays.reshape(x.shape)) / (1 - self.ratio)

    def made(told):
        def drop(ratio, together=1):
            kind = nn.Dropout if together == 1 else nn.Dropout2d
            return Told(ratio, together) if told else kind(ratio)

        torch.manual_seed(3)
        if kind == "rows":
            return nn.Sequential(drop(0.2), nn.Linear(8, 24), nn.ReLU(), drop(0.5), nn.Linear(24, 5))
        if kind == "images":
            begins = nn.Conv2d(1, 4, 3), drop(0.25, 36), nn.ReLU()
            return nn.Sequential(*begins, nn.Flatten(), drop(0.5), nn.Linear(144, 5))
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        layer.self_attn.dropout, layer.dropout1, layer.dropout, layer.dropout2 = 0.0, drop(0.1), drop(0.1), drop(0.1)
        return nn.Sequential(layer, nn.Linear(8, 5))

    torch.manual_seed(1)
    x = {"rows": torch.randn(12, 8), "tokens": torch.randn(4, 6, 8), "images": torch.randn(8, 1, 8, 8)}[kind]
    module, twin = made(False), made(True)
    labels = torch.randint(0, 5, x.shape[:2] if kind == "tokens" else x.shape[:1])
    optimizer, losses = torch.optim.SGD(twin.parameters(), lr=0.05), []
    for iteration in range(5):
        for one in drops:
            one.iteration = iteration
        optimizer.zero_grad()
        losses.append(nn.functional.cross_entropy(twin(x).flatten(0, -2), labels.flatten()))
        losses[-1].backward()
        optimizer.step()
    np.savez("t.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    data = {"source": "t.npz", "batch": labels.numel()} | ({"labels": "token"} if kind == "tokens" else {})
    train = {"iterations": 5, "optimizer": {"name": "sgd", "lr": 0.05}, "loss_scale": {"initial": 1024.0}}
    trainer = Trainer(wse.train.from_torch(module, x, data=data, mesh={"width": 2, "height": 2}, train=train))
    assert np.allclose(steps(trainer, 5), [one.item() for one in losses], atol=5e-4)
    wanted, found = twin.state_dict(), trainer.state_dict()
    assert set(wanted) == set(found)
    assert all(np.allclose(found[name], one.numpy(), atol=1e-3) for name, one in wanted.items())


@pytest.mark.slow
def test_dropout_of_attention_is_named(folder):
    """The exporter does not say that it is trained; it may be left out alone."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    module, x = torch.nn.Sequential(layer, torch.nn.Linear(8, 5)).train(), torch.randn(4, 6, 8)
    given = {"data": {"batch": 24}, "mesh": {"width": 2, "height": 2}, "train": {"iterations": 1}}
    with pytest.raises(UnsupportedError, match=r"drops shares of attention: network.dropout = .ignore. leaves it out"):
        wse.train.from_torch(module, x, **given)
    found = wse.train.from_torch(module, x, dropout="ignore-attention", **given)
    assert sum(node.op == "dropout" for node in found.network.nodes) == 3
    assert any("dropout is left out" in one for one in found.warnings)
