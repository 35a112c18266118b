"""Training from Python: configurations of objects, batches that are handed over, weights in and out of files."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from harness.train.config import TrainConfig, parse_train
from harness.train.feed import BatchFeed
from harness.train.plain import PlainTrainer
from harness.train.tables import LayerConfig, MeshConfig, OptimizerConfig, RunConfig
from harness.train.trainer import Trainer
from tests.harness.train import blobs
from wse_core.errors import CheckpointError, ConfigError, WseError

LAYERS = ({"outputs": 6, "activation": "relu", "norm": True}, LayerConfig(3))


def config(iterations=6, **tables):
    given = {
        "network": {"inputs": 5, "layers": LAYERS},
        "data": {"batch": 8},
        "mesh": MeshConfig(2, 2),
        "train": RunConfig(iterations=iterations, optimizer=OptimizerConfig(lr=0.01)),
        "wafers": 2,
    }
    return TrainConfig.of(**(given | tables))


def batches(seed=0):
    """Batches without an end."""
    rng = np.random.default_rng(seed)
    while True:
        yield rng.standard_normal((8, 5)), rng.integers(0, 3, 8)


def bits(trainer):
    return np.concatenate([p.dense.reshape(-1) for p in trainer.parameters]).view(np.uint32)


def train(trainer, iterations):
    return [trainer.step() for _ in range(iterations)]


def test_a_configuration_of_objects_is_that_of_a_file():
    text = """
wafers = 2
[network]
inputs = 5
layers = [{outputs = 6, activation = "relu", norm = true}, {outputs = 3}]
[data]
batch = 8
[mesh]
width = 2
height = 2
[train]
iterations = 6
optimizer = {lr = 0.01}
"""
    assert config().fingerprint() == parse_train(text).fingerprint()
    with pytest.raises(ConfigError, match=r"mine: train\.iteration: unknown key.*did you mean iterations"):
        TrainConfig.of("mine", network={"inputs": 5, "layers": LAYERS}, train={"iteration": 3})
    with pytest.raises(ConfigError, match=r"data\.batch: a batch of 6 does not divide"):
        config(data={"batch": 6})


def test_batches_that_are_handed_over_train_wafers_and_numpy_alike():
    """A generator, a list, and numpy in the wafers' place: the same losses and bits; the order is that of the feed."""
    runs = [
        Trainer(config(), backend, data)
        for backend, data in ((None, batches()), (None, list(islice(batches(), 6))), ("numpy", batches()))
    ]
    steps = [train(run, 6) for run in runs]
    assert [[step.loss for step in part] for part in steps[1:]] == [[step.loss for step in steps[0]]] * 2
    assert all(np.array_equal(bits(runs[0]), bits(run)) for run in runs[1:])
    inputs, labels = next(batches())
    assert 0 <= runs[0].evaluate(inputs, labels) <= 1
    with pytest.raises(ConfigError, match="there are no batches after 6"):
        runs[1].step()
    with pytest.raises(ConfigError, match="there is no data set"):
        runs[0].dataset  # noqa: B018


def test_a_run_from_batches_goes_on_behind_those_that_it_used():
    whole, first, second = (Trainer(config(), data=batches()) for _ in range(3))
    train(whole, 5)
    train(first, 2)
    tensors, state = first.state()
    second.restore({k: v.copy() for k, v in tensors.items()}, json.loads(json.dumps(state)))
    steps = train(second, 3)
    assert np.array_equal(bits(whole), bits(second))
    assert steps[-1].iteration == 5
    assert second.cycles == whole.cycles
    with pytest.raises(CheckpointError, match="other data"):
        first.restore(tensors, state | {"data": {"batches": 2, "batch": 4}})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "a int gives no batches"),
        ([7], "batch 1: is no pair"),
        ([(np.zeros((8, 4)), np.zeros(8, int))], r"batch 1: inputs of shape \(8, 4\).*\(8, 5\)"),
        ([(np.zeros((8, 5)), np.zeros(8))], "labels are whole numbers"),
        ([(np.full((8, 5), np.inf), np.zeros(8, int))], "inputs finite ones"),
        ([(np.zeros((8, 5)), np.full(8, 3))], "labels are 3 to 3, there are 3 classes"),
    ],
)
def test_batches_that_cannot_be_trained_with_are_refused(data, message):
    with pytest.raises(ConfigError, match=message):
        Trainer(config(), data=data).step()


def test_a_generator_cannot_go_back():
    feed = BatchFeed(batches(), 8, 2, 5, 3)
    feed.batch(3)
    with pytest.raises(ConfigError, match="a generator cannot go back"):
        feed.batch(1)
    listed = BatchFeed(list(islice(batches(), 4)), 8, 2, 5, 3)
    late = listed.batch(3)
    assert np.array_equal(listed.batch(0)[1][0], next(batches())[0][4:].astype(np.float32))
    assert np.array_equal(listed.batch(3)[0][0], late[0][0])
    with pytest.raises(ConfigError, match="no epochs"):
        Trainer(config(train=RunConfig(epochs=2)), data=batches())


# --- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_weights_masks_and_state_in_and_out_go_on_bit_by_bit(tmp_path, suffix):
    """Three iterations, a file, three more: as six in one, but for the batches, which are the same ones again."""
    data, sparse = list(islice(batches(), 6)), {"density": 0.5}
    whole, first = (Trainer(config(sparsity=sparse), data=data) for _ in range(2))
    train(whole, 6)
    train(first, 3)
    path = tmp_path / f"half{suffix}"
    first.save_weights(path)
    network = {"inputs": 5, "layers": LAYERS, "weights": str(path)}
    by_key = Trainer(config(network=network, sparsity=sparse), data=data[3:])
    by_call = Trainer(config(sparsity={"density": 0.5, "seed": 9}), data=data[3:])
    by_call.load_weights(path)
    for run in (by_key, by_call):
        assert [m.pattern for m in run.matrices] == [m.pattern for m in first.matrices]
        train(run, 3)
        for mine, theirs in zip(run.parameters, whole.parameters, strict=True):
            there = theirs.pattern.mask()
            for a, b in ((mine.dense, theirs.dense), *((mine.state[slot], theirs.state[slot]) for slot in "mv")):
                assert np.array_equal(a[there].view(np.uint32), b[there].view(np.uint32))
    with pytest.raises(ConfigError, match="training has begun"):
        by_call.load_weights(path)
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_written_is_what_other_programs_read(tmp_path):
    run = Trainer(config(sparsity={"density": 0.5}), data=batches())
    train(run, 2)
    run.save_weights(tmp_path / "a.safetensors")
    found = load_file(tmp_path / "a.safetensors")
    names = {"weight", "bias", "norm.weight", "norm.bias", "mask"}
    states = {f"{name}.{slot}" for name in names - {"mask"} for slot in ("m", "v")}
    assert set(found) == {"updates"} | {f"layer1.{name}" for name in names | states} | {
        f"layer2.{name}" for name in names | states if "norm" not in name
    }
    x, y = next(batches(3))
    hidden = x @ (found["layer1.weight"].T) + found["layer1.bias"]
    centred = hidden - hidden.mean(1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    hidden = np.maximum(normed * found["layer1.norm.weight"] + found["layer1.norm.bias"], 0)
    logits = hidden @ found["layer2.weight"].T + found["layer2.bias"]
    assert run.evaluate(x, y) == (logits.argmax(1) == y).mean()
    assert found["updates"].tolist() == [2]
    assert found["layer1.mask"].sum() == 15
    assert not found["layer1.weight"][~found["layer1.mask"]].any()


def test_a_file_of_weights_alone_or_of_masks_alone(tmp_path):
    rng = np.random.default_rng(5)
    weights = {"layer1.weight": rng.standard_normal((6, 5)), "layer2.weight": rng.standard_normal((3, 6))}
    masks = {"layer1.mask": rng.random((6, 5)) < 0.4, "layer2.mask": np.ones((3, 6), np.int8)}
    np.savez(tmp_path / "w.npz", **weights)
    save_file({name: np.ascontiguousarray(mask) for name, mask in masks.items()}, tmp_path / "m.safetensors")
    found = config(
        network={"inputs": 5, "layers": LAYERS, "weights": str(tmp_path / "w.npz")},
        sparsity={"masks": str(tmp_path / "m.safetensors")},
    )
    run, plain = Trainer(found, data=batches()), Trainer(found, "numpy", batches())
    for k, matrix in enumerate(run.matrices, 1):
        inputs = matrix.dense.shape[1] - 1
        assert np.array_equal(matrix.dense[:, :inputs], weights[f"layer{k}.weight"].astype(np.float32))
        assert np.array_equal(matrix.pattern.mask()[:, :inputs], masks[f"layer{k}.mask"] != 0)
        assert not matrix.dense[:, inputs].any()
    assert [s.loss for s in train(run, 2)] == [s.loss for s in train(plain, 2)]
    assert found.form == "both"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"layer3.weight": np.zeros((3, 6))}, r"the network has no layer3\.weight.*did you mean"),
        ({"layer1.weight": np.zeros((5, 6)), "layer2.weight": np.zeros((3, 6))}, r"layer1\.weight has shape \(5, 6\)"),
        ({"layer1.weight": np.zeros((6, 5))}, r"layer2\.weight is missing.*the weight of every layer, or of none"),
        ({"layer1.weight": np.full((6, 5), 1e60), "layer2.weight": np.zeros((3, 6))}, "no finite numbers in float32"),
        ({"layer1.mask": np.full((6, 5), 2), "layer2.mask": np.ones((3, 6))}, r"layer1\.mask is no mask"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_weights_that_do_not_fit_are_refused_and_change_nothing(tmp_path, tensors, message):
    run = Trainer(config(), data=batches())
    before = bits(run).copy()
    np.savez(tmp_path / "w.npz", **tensors)
    with pytest.raises(ConfigError, match=message):
        run.load_weights(tmp_path / "w.npz")
    assert np.array_equal(bits(run), before)


def test_files_that_are_no_weights_are_refused(tmp_path):
    run = Trainer(config(), data=batches())
    (tmp_path / "cut.safetensors").write_bytes(b"\x40\0\0\0\0\0\0\0{")
    (tmp_path / "cut.npz").write_bytes(b"PK\3\4")
    for name in ("cut.safetensors", "cut.npz"):
        with pytest.raises(ConfigError, match="cannot be read"):
            run.load_weights(tmp_path / name)
    with pytest.raises(ConfigError, match="is no form of weights"):
        run.save_weights(tmp_path / "w.bin")
    with pytest.raises(ConfigError, match="No such file"):
        run.load_weights(tmp_path / "none.npz")
    with pytest.raises(WseError, match="cannot be written"):
        run.save_weights(tmp_path / "cut.npz" / "w.npz")


def test_the_command_takes_and_gives_weights(folder, capsys):
    blobs.write(iterations=4)
    status, result, _ = blobs.run(capsys, "a.toml --out one --save-weights one.npz")
    assert status == 0
    assert "one.npz" in result["files"]
    status, result, err = blobs.run(capsys, "a.toml --out two --set network.weights=one.npz --compare 2")
    assert (status, result["bit_exact"]) == (0, True), err
    status, _, err = blobs.run(capsys, "a.toml --out three --save-weights one.bin")
    assert status == 2
    assert "no form of weights" in err
    run = PlainTrainer(parse_train((folder / "a.toml").read_text(), "a.toml", ["network.weights=one.npz"]))
    assert run.earlier == 4
    assert run.slots["layer1.weight"]["m"].any()
