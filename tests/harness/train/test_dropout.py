"""Dropout of files is left out where the configuration says so."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import wse
from harness.train.config import TrainConfig
from harness.train.onnx_file import read_onnx
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
    with pytest.raises(UnsupportedError, match=r"drop .Dropout.: dropout is not modelled: network.dropout = .ignore."):
        read_onnx("m.onnx")
    found = config("m.onnx", dropout="ignore")
    assert "dropout is left out: drop, times" in found.warnings
    batches = [(np.random.default_rng(1).standard_normal((8, 12)), np.arange(8) % 4)] * 2
    with_it, without = (Trainer(one, data=batches) for one in (found, config("plain.onnx")))
    assert [with_it.step().loss for _ in range(2)] == [without.step().loss for _ in range(2)]
    with_it.save_onnx("again.onnx")
    nodes = [one.op_type for one in onnx.load("again.onnx").graph.node]
    assert nodes.count("Dropout") == 1  # a file goes out as it came in
    assert all(np.array_equal(one, without.state_dict()[name]) for name, one in with_it.state_dict().items())


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
