"""Labels per pixel: a network of images whose loss is a mean over the labelled pixels of a batch, on all wafers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fabric.networks.graph.plain import PlainGraph
from harness.train.config import load_train, parse_train
from harness.train.data import load
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from tests.examples import few
from wse_core.errors import ConfigError

pytestmark = pytest.mark.usefixtures("folder")

TEXT = """
wafers = 2
[network]
image = [1, 4, 4]
nodes = [
    {name = "first", op = "convolution", outputs = 3, kernel = 3, padding = 1},
    {name = "unit", op = "batchnorm"},
    {name = "bent", op = "relu"},
    {name = "small", op = "maxpool", kernel = 3, stride = 2, padding = 1},
    {name = "wide", op = "convolution", outputs = 4, kernel = 3, padding = 1, bias = false},
    {name = "large", op = "transposed", outputs = 3, kernel = 2, stride = 2},
    {name = "both", op = "concat", inputs = ["large", "bent"]},
    {name = "logits", op = "convolution", outputs = 3, kernel = 1},
]
[data]
source = "pixels.npz"
labels = "pixel"
batch = 12
[mesh]
width = 3
height = 2
[train]
iterations = 3
optimizer = {name = "adam", lr = 0.02}
loss_scale = {initial = 256.0}
"""


@pytest.fixture
def pixels(folder):
    """Write images whose pixels have labels by what is around them; a third has none."""
    rng, data = np.random.default_rng(3), {}
    for part, count in (("train", 36), ("test", 7)):
        x = rng.standard_normal((count, 1, 4, 4)).astype(np.float32)
        y = (x[:, 0] > 0) + (np.roll(x[:, 0], 1, 1) > 0).astype(int)
        y[rng.random(y.shape) < 0.3] = -100
        data |= {f"x_{part}": x, f"y_{part}": y}
    np.savez("pixels.npz", **data)
    return data


def run(words=(), backend=None, cls=Trainer, text=TEXT):
    """Train to the end; return (trainer, steps)."""
    config = parse_train(text, "a.toml", words)
    trainer = cls(config, backend) if cls is Trainer else cls(config)
    return trainer, [trainer.step() for _ in range(trainer.iterations)]


OPTIONS = few(
    [
        ("wafers=3", "train.dtype=cb16", "csconfig.use_cbfloat16=true"),
        ("train.accumulate=3", "train.clip=0.5"),
        ("train.label_smoothing=0.2", "train.loss_scale.initial=32768.0"),
        ("sparsity.density=0.6", "sparsity.schedule=rigl", "sparsity.every=1", "sparsity.fraction=0.5"),
        ("mesh.image_rows=2", "mesh.height=4", "train.dtype=cb16", "csconfig.use_cbfloat16=true"),
        ("mesh.width=1", "memx.dense_rows=steps"),
        ("mesh.image_rows=2",),
        ("wafers=1",),
    ],
    6,
)


@pytest.mark.parametrize("words", OPTIONS, ids=lambda words: words[0])
def test_wafers_train_pixels_as_numpy_does_bit_for_bit(pixels, words):
    """Losses, accuracies, weights, statistics, and what a test of seven images says; then a run that goes on."""
    (one, steps), (other, expected) = run(words), run(words, "numpy")
    assert [(step.loss, step.accuracy) for step in steps] == [(step.loss, step.accuracy) for step in expected]
    assert any(step.skipped for step in steps) is (
        words[-1] == "train.loss_scale.initial=32768.0"
    )  # gradients overflow
    found = one.tensors()
    assert all(np.array_equal(values, found[name]) for name, values in other.tensors().items())
    held = one.dataset.x_test, one.dataset.y_test
    assert one.test(*held) == other.test(*held)
    going = Trainer(one.config)
    going.restore(*one.state())
    last, again = going.step(), one.step()
    assert (last.loss, last.cycles) == (again.loss, again.cycles)


def test_both_machines_take_the_same_cycles(pixels):
    words = ["train.iterations=1", "wafers=1", "data.batch=2", "mesh.width=2", "mesh.height=1"]
    (one, steps), (other, expected) = (run(words, backend) for backend in ("compiled", "reference"))
    assert [(step.loss, step.cycles) for step in steps] == [(step.loss, step.cycles) for step in expected]
    assert all(np.array_equal(a.dense, b.dense) for a, b in zip(one.parameters, other.parameters, strict=True))


def test_losses_are_means_over_the_labelled_pixels(pixels):
    """Against a formula, and near the plain trainer; wafers have different numbers of labels."""
    first = PlainTrainer(parse_train(TEXT, "a.toml"))
    values = {p.name: p.dense.astype(np.float64) for p in first.parameters}
    shards = first.data.batch(0)
    counts = [(y >= 0).sum() for _, y in shards]
    assert counts[0] != counts[1]
    x, y = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    logits = PlainGraph(first.config.graph, "f64").forward(values, x.astype(np.float64)).reshape(12, 3, 16)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    own = np.take_along_axis(logs, np.maximum(y, 0)[:, None], 1)[:, 0]
    (wafers, steps), (plain, losses) = run(), run(cls=PlainTrainer)
    assert steps[0].loss == pytest.approx(-own[y >= 0].mean(), rel=2e-3)
    assert steps[0].accuracy == pytest.approx((logits.argmax(1) == y)[y >= 0].mean(), abs=0.02)
    assert np.allclose([step.loss for step in losses], [step.loss for step in steps], rtol=3e-3)
    found = wafers.tensors()
    assert all(np.allclose(a, found[name], atol=2e-2) for name, a in plain.tensors().items())
    unlabelled = pixels["y_test"], pixels["y_test"].reshape(7, 16)
    assert plain.test(plain.dataset.x_test, unlabelled[0]) == plain.test(plain.dataset.x_test, unlabelled[1])


def test_batches_that_are_handed_over(pixels):
    x, y = pixels["x_train"][:12], pixels["y_train"][:12]
    feed = Trainer(parse_train(TEXT, "a.toml"), "numpy", data=[(x, y)] * 3)
    whole = parse_train(TEXT, "a.toml")
    np.savez("few.npz", **pixels | {"x_train": x, "y_train": y})
    file = Trainer(parse_train(TEXT, "a.toml", ["data.source=few.npz"]), "numpy")
    assert whole.graph.label_image == (4, 4)
    assert feed.step().loss == file.step().loss
    wrong = Trainer(whole, "numpy", data=[(x, y.reshape(12, 16))])
    with pytest.raises(ConfigError, match=re.escape("(12, 16) and (12, 4, 4)")):
        wrong.step()


@pytest.mark.parametrize(
    ("change", "words", "what"),
    [
        (
            {},
            ["data.labels=class"],
            r'y_train of pixels.npz have shape (36, 4, 4), .* sample is (36,).*labels = "pixel"',
        ),
        ({"y_train": lambda y: y[:, :2]}, [], r"y_train of odd.npz have shape (36, 2, 4), .* pixel is (36, 4, 4)"),
        ({"y_test": lambda y: y[:, 0, 0] * 0}, [], r"y_test of odd.npz have shape (7,), .* pixel is (7, 4, 4)"),
        ({"y_train": lambda y: y - 5 * (y >= 0)}, [], r"-[345] is no class, and none is -100"),
        ({"y_train": lambda y: y + 101}, [], r"labels of odd.npz are 0 to 103, the network has 3 classes"),
    ],
)
def test_labels_that_do_not_fit_are_refused(pixels, change, words, what):
    np.savez("odd.npz", **pixels | {name: of(pixels[name]) for name, of in change.items()})
    source = ["data.source=odd.npz"] if change else []
    pattern = what.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ConfigError, match=f"(?s){pattern}"):
        load(parse_train(TEXT, "a.toml", [*source, *words]))


def test_features_are_no_pixels(pixels):
    text = TEXT.replace("kernel = 1},", 'kernel = 1},\n    {name = "flat", op = "linear", outputs = 3},')
    with pytest.raises(ConfigError, match=r"(?s)data\.labels.*flat gives features, and pixels have the labels"):
        parse_train(text, "a.toml").graph  # noqa: B018
    with pytest.raises(ConfigError, match="layers take a class for every sample"):
        parse_train(TEXT, "a.toml", ["network.nodes=[]", "network.layers=[{outputs=3}]", "network.inputs=16"])


def test_a_network_learns_where_ink_is():
    """The example's data, and its first iterations by plain numpy."""
    config = load_train("digits-unet", ["train.iterations=25"])
    data, plain = load(config), load(load_train("digits"))
    assert np.array_equal(data.x_train, plain.x_train)
    ink = data.y_test < 10
    assert np.array_equal(ink, plain.x_test >= 0.5)
    assert (data.y_test == plain.y_test[:, None])[ink].all()
    trainer = PlainTrainer(config)
    steps = [trainer.step() for _ in range(25)]
    assert steps[-1].loss < 0.5 * steps[0].loss
    config.check_memory()
