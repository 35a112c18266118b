"""The plain numpy trainer: its gradients by finite differences, its rounding, loss scaling, masks, going on."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest

from fabric.networks.graph.network import Layer, Network
from fabric.networks.graph.plain import PlainArithmetic, PlainGraph
from fabric.networks.graph.table import CHOICES
from harness.train.config import parse_train
from harness.train.data import Dataset
from harness.train.plain import PlainTrainer
from harness.train.sparsity import initial_masks
from memx.parameter import Parameter
from memx.pattern import Pattern
from wse_core.errors import CheckpointError, TrainingError

TEXT = """
[network]
inputs = 12
layers = [{outputs = 10, activation = "relu"}, {outputs = 4}]
[data]
source = "blobs.npz"
batch = 16
[mesh]
height = 1
[train]
iterations = 20
optimizer = {name = "adam", lr = 0.01}
"""


def blobs():
    """Return a small separable problem."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 200)
    samples = (rng.standard_normal((4, 12))[labels] + 0.3 * rng.standard_normal((200, 12))).astype(np.float32)
    return Dataset(samples[:160], labels[:160], samples[160:], labels[160:])


def trainer(text=TEXT, fmt=None, scale=1.0):
    """Return a trainer with normal first weights, times `scale`."""
    config = parse_train(text)
    rng, matrices, norms = np.random.default_rng(1), [], {}
    for k, (mask, layer) in enumerate(zip(initial_masks(config), config.network.layers, strict=True)):
        outputs, inputs = mask.shape
        weights = np.zeros((outputs, inputs + layer.bias), np.float32)
        weights[:, :inputs] = scale * rng.standard_normal(mask.shape) * math.sqrt(2 / inputs)
        whole = np.concatenate([mask, np.ones((outputs, int(layer.bias)), bool)], axis=1)
        matrices.append(Parameter(f"layer{k + 1}.weight", weights, pattern=Pattern.of_mask(whole), slots=("m", "v")))
        if layer.norm:
            norms[k] = Parameter(
                f"layer{k + 1}.norm", np.stack([np.ones(outputs), np.zeros(outputs)]), slots=("m", "v")
            )
    return PlainTrainer(config, blobs(), fmt, (matrices, norms))


def example(activation, norm, bias, seed=0, widths=(6, 5, 7, 3), fmt="f64"):
    """Return (model, parameters, samples, labels) of three layers."""
    rng, last = np.random.default_rng(seed), len(widths) - 2
    layers = [
        Layer(n, m, activation if k < last else "none", bias, norm and k < last)
        for k, (n, m) in enumerate(pairwise(widths))
    ]
    parameters = {
        f"layer{k}.weight": rng.standard_normal((m, n + bias)) / 2 for k, (n, m) in enumerate(pairwise(widths), 1)
    }
    for k, layer in enumerate(layers, 1):
        if layer.norm:
            parameters[f"layer{k}.norm"] = rng.standard_normal((2, layer.outputs))
    model = PlainGraph(Network.of(layers), fmt)
    return model, parameters, rng.standard_normal((4, widths[0])), rng.integers(0, widths[-1], 4)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("activation", CHOICES)
def test_gradients_are_those_of_finite_differences(activation, norm, bias):
    """Central differences of every parameter in float64: h^2 f''' / 6 and 2^-53 f / h stay below 1e-8."""
    model, parameters, x, labels = example(activation, norm, bias)
    _, found = model.gradients(parameters, x, labels)
    assert found.keys() == parameters.keys()
    step = 1e-5
    for name, values in parameters.items():
        numeric = np.zeros_like(values)
        for place in np.ndindex(values.shape):
            kept = values[place]
            losses = []
            for sign in (1, -1):
                values[place] = kept + sign * step
                losses.append(model.loss(model.forward(parameters, x), labels)[0])
            values[place] = kept
            numeric[place] = (losses[0] - losses[1]) / (2 * step)
        assert np.abs(found[name] - numeric).max() < 1e-7, name


def test_the_loss_is_cross_entropy():
    model = PlainGraph(Network.dense((2, 3)), "f64")
    logits, labels = np.array([[1.0, 2, 3], [1000, 0, -1000]]), np.array([0, 2])
    loss, delta = model.loss(logits, labels)
    assert loss == pytest.approx(math.log(1 + math.e + math.e**2) + 2000)
    assert delta[1] == pytest.approx([1, 0, -1])
    assert delta.sum(1) == pytest.approx([0, 0])


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_smoothed_labels_are_those_of_the_definition(smoothing):
    """A share of each label is spread over all classes: loss and gradients by the probabilities, one by one."""
    rng, classes = np.random.default_rng(3), 4
    network = Network.of([Layer(3, classes)])
    model, labels = PlainGraph(network, "f64"), np.array([2, 0, 3, 3, 1])
    logits = rng.standard_normal((5, classes))
    loss, delta = model.loss(logits, labels, smoothing)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    total = 0.0
    for sample, label in enumerate(labels):
        for k in range(classes):
            wanted = smoothing / classes + (1 - smoothing) * (k == label)
            total -= wanted * math.log(shares[sample, k])
            assert delta[sample, k] == pytest.approx(shares[sample, k] - wanted, abs=1e-12)
    assert loss == pytest.approx(total)


@pytest.mark.parametrize("fmt", ["f16", "cb16", "bf16"])
@pytest.mark.parametrize(("activation", "norm"), [("relu", False), ("gelu", True)])
def test_rounding_moves_gradients_by_little(fmt, activation, norm):
    """At most some ten roundings of 16 bits stand between inputs and a gradient; f32 sums add nothing visible."""
    model, parameters, x, labels = example(activation, norm, True, fmt=fmt, widths=(12, 10, 8, 4))
    rounded = {name: model.round(value).astype(np.float64) for name, value in parameters.items()}
    exact = PlainGraph(model.network, "f64")
    loss, expected = exact.gradients(rounded, model.round(x).astype(np.float64), labels)
    found_loss, found = model.gradients(parameters, x, labels)
    unit = {"f16": 2.0**-11, "cb16": 2.0**-10, "bf16": 2.0**-8}[fmt]
    assert found_loss == pytest.approx(loss, rel=20 * unit)
    for name, value in expected.items():
        assert found[name].dtype == np.float32
        assert np.linalg.norm(found[name] - value) < 20 * unit * np.linalg.norm(value), name
    assert any(np.abs(found[name] - value).max() > 0.1 * unit * np.abs(value).max() for name, value in expected.items())


def test_rounding_is_that_of_the_formats():
    values = np.float32([1 + 2**-11, 1 + 3 * 2**-11, 65520, 1e-8, -(2**-25)])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).astype(np.float32)
    assert np.array_equal(PlainArithmetic().round(values), expected)
    assert PlainArithmetic("bf16").round(np.float32([1 + 2**-9, 3e38]))[0] == 1
    assert PlainArithmetic("f64").round(1 + 2**-50) == 1 + 2**-50


@pytest.mark.parametrize("fmt", ["f16", "cb16"])
def test_a_loss_scale_changes_no_gradient_that_16_bits_can_hold(fmt):
    model, parameters, x, labels = example("relu", False, True, fmt=fmt)
    plain, scaled = model.gradients(parameters, x, labels)[1], model.gradients(parameters, x, labels, 256.0)[1]
    for name, value in plain.items():
        assert np.abs(scaled[name] / 256 - value).max() <= 2**-9 * np.abs(value).max()


def test_small_gradients_need_a_scale_in_f16_and_none_in_cb16():
    """Softmax that is almost right leaves 2e-8: nothing in f16, half of whose least number is 3e-8."""
    parameters = {"layer1.weight": np.array([[1.0], [0.0]])}
    x, labels = np.array([[17.75]]), np.array([0])

    def gradients(fmt, scale=1.0):
        model = PlainGraph(Network.dense((1, 2), bias=False), fmt)
        return model.gradients(parameters, x, labels, scale)[1]["layer1.weight"]

    exact = gradients("f64")[1]
    assert 0 < exact < 1e-6
    assert not gradients("f16").any()
    for found in (gradients("f16", 2.0**15)[1] / 2**15, gradients("cb16")[1]):
        assert found == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("dtype", ["f16", "cb16", "bf16"])
@pytest.mark.parametrize("layer", ["", ", norm = true"])
def test_training_learns_and_follows_float64(dtype, layer):
    text = TEXT.replace('"relu"', f'"gelu"{layer}') + f'dtype = "{dtype}"\n'
    if dtype == "cb16":
        text += "[csconfig]\nuse_cbfloat16 = true\n"
    run, exact = trainer(text), trainer(text, "f64")
    steps, wanted = [run.step() for _ in range(20)], [exact.step() for _ in range(20)]
    assert steps[-1].loss < 0.5 * steps[0].loss
    assert steps[-1].accuracy > steps[0].accuracy
    unit = {"f16": 2.0**-11, "cb16": 2.0**-10, "bf16": 2.0**-8}[dtype]
    assert [step.loss for step in steps] == pytest.approx([step.loss for step in wanted], rel=20 * unit)
    assert run.evaluate(run.dataset.x_test, run.dataset.y_test) > 0.8


def test_an_overflow_is_skipped_once_and_touches_nothing():
    """Weights of 1.5 and errors of 4/3 to 2 per sample: 2^15 times that passes 65,504, 2^14 times that does not."""
    run = trainer(TEXT + "loss_scale = {initial = 32768.0}\n")
    run.weights["layer2.weight"][:, :-1] = 1.5 * np.sign(run.weights["layer2.weight"][:, :-1])
    before = {name: value.copy() for name, value in run.weights.items()}
    first = run.step()
    assert first.skipped
    assert first.scale == 2**15
    assert run.updates == 0
    assert all(np.array_equal(value, before[name]) for name, value in run.weights.items())
    assert not any(slot.any() for slots in run.slots.values() for slot in slots.values())
    second = run.step()
    assert not second.skipped
    assert second.scale == 2**14
    assert run.updates == 1
    assert not np.array_equal(run.weights["layer1.weight"], before["layer1.weight"])


def test_a_loss_that_is_not_finite_names_iteration_and_layer():
    run = trainer()
    run.step()
    run.weights["layer2.weight"][:] = 6e4
    with pytest.raises(TrainingError, match=r"iteration 2, layer 2: the loss is (nan|inf)") as found:
        run.step()
    assert (found.value.iteration, found.value.layer) == (2, 2)


def test_what_does_not_exist_is_not_touched():
    run = trainer(TEXT + "[sparsity]\ndensity = 0.4\n")
    gone = {name: ~mask for name, mask in run.masks.items()}
    before = {name: value.copy() for name, value in run.weights.items()}
    for _ in range(10):
        run.step()
    for name, mask in gone.items():
        assert np.array_equal(run.weights[name][mask], before[name][mask])
        assert not any(slot[mask].any() for slot in run.slots[name].values())
        assert (run.weights[name] != before[name])[~mask].all() or name == "layer1.weight"
    assert gone["layer1.weight"].sum() == 120 - 48


def test_pruning_and_a_dense_end():
    run = trainer(TEXT + '[sparsity]\nschedule = "pruning"\nrounds = 3\nfraction = 0.5\n')
    counts = []
    for _ in range(20):
        run.step()
        counts.append(int(run.masks["layer1.weight"][:, :12].sum()))
    assert counts == [120] * 5 + [60] * 5 + [30] * 5 + [15] * 5
    assert run.masks["layer1.weight"][:, 12].all()  # biases stay
    run = trainer(TEXT + '[sparsity]\ndensity = 0.25\nschedule = "dense-finetune"\n')
    for _ in range(10):
        run.step()
    assert run.masks["layer1.weight"][:, :12].sum() == 30
    gone = ~run.masks["layer1.weight"]
    before = run.weights["layer1.weight"][gone].copy()
    run.step()
    assert run.masks["layer1.weight"].all()
    after = run.weights["layer1.weight"][gone]
    assert np.abs(after).max() <= 0.05  # they started from zero: one update of Adam is a learning rate or so
    assert (after != before).any()


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_going_on_from_a_state_gives_the_same_bits(optimizer):
    text = TEXT.replace('"adam"', f'"{optimizer}"') + '[sparsity]\nschedule = "pruning"\nrounds = 1\nfraction = 0.5\n'
    whole, first, second = trainer(text), trainer(text), trainer(text, scale=2.0)
    losses = [whole.step().loss for _ in range(20)]
    for _ in range(7):
        first.step()
    tensors, state = first.state()
    second.restore({name: value.copy() for name, value in tensors.items()}, state)
    assert [second.step().loss for _ in range(13)] == losses[7:]
    for name, values in whole.state()[0].items():
        assert np.array_equal(second.state()[0][name], values), name


def test_a_state_that_does_not_fit_changes_nothing():
    run = trainer()
    tensors, state = run.state()
    before = {name: value.copy() for name, value in run.weights.items()}
    other = {name: value + 1 for name, value in tensors.items()}
    for change, match in (({"layer1.weight": np.zeros((3, 3), np.float32)}, "layer1.weight"), ({"x": before}, "'x'")):
        with pytest.raises(CheckpointError, match=match):
            run.restore(other | change, state)
    with pytest.raises(CheckpointError, match="data"):
        run.restore(other, state | {"data": {}})
    assert all(np.array_equal(value, before[name]) for name, value in run.weights.items())


def test_any_number_of_wafers_is_the_same_batch():
    text = TEXT.replace("batch = 16", "batch = 16\nseed = 4")
    one, four = trainer(text), trainer(f"wafers = 4\n{text}")
    assert dataclasses.asdict(one.step())["loss"] == dataclasses.asdict(four.step())["loss"]
    assert np.array_equal(one.weights["layer1.weight"], four.weights["layer1.weight"])
