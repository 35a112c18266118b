"""Networks of operations and transformers in ``wse train``: wafers against numpy, texts, weights, refusals."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from pathlib import Path

import numpy as np
import pytest

from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.graph.plain import PlainGraph
from harness.cli import main as cli
from harness.models.hub import find_model
from harness.train.config import TrainConfig, load_train, parse_train
from harness.train.data import DataService, load
from harness.train.mode import choose
from harness.train.onnx_file import read_onnx
from harness.train.plain import PlainTrainer
from harness.train.tables import LayerConfig, NetworkConfig
from harness.train.text import TokenRows, characters
from harness.train.trainer import Trainer
from tests.examples import few, mixed
from wse_core.errors import ConfigError, UnsupportedError

TEXT = """
wafers = 1
[network]
preset = "gpt"
hidden_size = 8
num_hidden_layers = 1
num_attention_heads = 4
intermediate_size = 12
[data]
source = "a.txt"
sequence = 4
batch = 16
[mesh]
width = 3
height = 2
[train]
iterations = 5
optimizer = {name = "adamw", lr = 0.02}
"""
SHARED = ("network.hidden_size=16", "network.num_key_value_heads=2")
NODES = """
[network]
inputs = 5
nodes = [
    {name = "first", op = "linear", outputs = 6},
    {name = "unit", op = "norm"},
    {name = "bent", op = "silu"},
    {name = "wide", op = "linear", outputs = 6, bias = false},
    {name = "sum", op = "add", inputs = ["first", "wide"]},
    {name = "logits", op = "linear", outputs = 3},
]
[data]
source = "none.npz"
batch = 8
[mesh]
width = 2
height = 2
[train]
iterations = 3
optimizer = {name = "adam", lr = 0.02}
"""


def write_text(length):
    """Write a text whose characters depend on those three places before."""
    found = list("abacbdcd")
    rng = np.random.default_rng(0)
    while len(found) < length:
        found.append("abcd"[("abcd".index(found[-3]) + int(rng.random() < 0.05)) % 4])
    Path("a.txt").write_text("".join(found), encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A directory with such a text."""
    monkeypatch.chdir(tmp_path)
    write_text(700)


def run(text=TEXT, words=(), backend=None, cls=Trainer):
    """Train to the end; return (trainer, steps)."""
    config = parse_train(text, "a.toml", words)
    trainer = cls(config, backend) if cls is Trainer else cls(config)
    return trainer, [trainer.step() for _ in range(trainer.iterations)]


@pytest.mark.parametrize(
    ("network", "words", "wafers"),
    mixed(
        [("f16", "gpt"), ("cb16", "bert"), ("f16", "llama"), ("cb16", "llama")],
        [(), ("train.accumulate=2", "train.clip=0.5"), ("sparsity.density=0.6",)],
        [1, 2],
    ),
    ids=str,
)
def test_wafers_train_a_transformer_as_numpy_does_bit_for_bit(network, words, wafers):
    dtype, preset = network
    given = [
        *words,
        f"network.preset={preset}",
        f"wafers={wafers}",
        f"train.dtype={dtype}",
        "csconfig.use_cbfloat16=true",
        "mesh.height=1",
    ]
    (one, steps), (other, expected) = run(words=given), run(words=given, backend="numpy")
    assert [step.loss for step in steps] == [step.loss for step in expected]
    assert all(step.cycles > 0 for step in steps)
    for a, b in zip(one.parameters, other.parameters, strict=True):
        assert np.array_equal(a.dense, b.dense), a.name
    held = one.dataset.x_test, one.dataset.y_test
    assert one.test(*held) == other.test(*held)


@pytest.mark.parametrize(
    ("wafers", "height", "dtype", "preset", "more"),
    few(
        [
            (1, 8, "f16", "gpt", []),
            (2, 4, "cb16", "llama", ["network.num_key_value_heads=2"]),
            (2, 8, "f16", "bert", ["train.accumulate=1", "train.clip=0.5"]),
            (1, 4, "f16", "llama", ["train.accumulate=2", "sparsity.density=0.6"]),
            (2, 4, "cb16", "bert", ["mesh.head_columns=2", "mesh.width=9", "train.accumulate=2"]),
            (2, 2, "f16", "llama", ["mesh.head_columns=2", "mesh.width=4", *SHARED, "sparsity.density=0.6"]),
            (4, 2, "f16", "llama", ["mesh.head_columns=2", "mesh.width=9", "network.hidden_size=16"]),
            (1, 1, "f16", "gpt", ["mesh.head_columns=2", "mesh.width=8"]),
            (4, 2, "cb16", "bert", []),
        ],
        6,
    ),
    ids=str,
)
def test_sequences_on_rows_and_heads_on_columns_train_as_in_numpy(wafers, height, dtype, preset, more):
    """Sequences of four tokens on several rows of PEs, heads on columns: weights, losses and tests, bit for bit."""
    words = [f"network.preset={preset}", f"wafers={wafers}", f"mesh.height={height}", f"train.dtype={dtype}", *more]
    words.append("csconfig.use_cbfloat16=true")
    (one, steps), (other, expected) = run(words=words), run(words=words, backend="numpy")
    assert [step.loss for step in steps] == [step.loss for step in expected]
    assert all(step.cycles > 0 for step in steps)
    for a, b in zip(one.parameters, other.parameters, strict=True):
        assert np.array_equal(a.dense, b.dense), a.name
    assert one.test(one.dataset.x_test, one.dataset.y_test) == other.test(other.dataset.x_test, other.dataset.y_test)


@pytest.mark.parametrize(("wafers", "dtype", "shared"), [(1, "f16", 1), (2, "cb16", 2), (2, "f16", 2)])
def test_heads_of_keys_and_values_are_shared_on_wafers_as_in_numpy(wafers, dtype, shared):
    """Weights, losses and tests, bit for bit; there are as many fewer weights."""
    words = ["network.preset=llama", f"network.num_key_value_heads={shared}", f"wafers={wafers}", "mesh.height=1"]
    words += [f"train.dtype={dtype}", "csconfig.use_cbfloat16=true"]
    (one, steps), (other, expected) = run(words=words), run(words=words, backend="numpy")
    assert [step.loss for step in steps] == [step.loss for step in expected]
    for a, b in zip(one.parameters, other.parameters, strict=True):
        assert np.array_equal(a.dense, b.dense), a.name
    assert one.test(one.dataset.x_test, one.dataset.y_test) == other.test(other.dataset.x_test, other.dataset.y_test)
    rows = {parameter.name: len(parameter.dense) for parameter in one.parameters}
    assert [rows[f"block1.{name}.weight"] for name in "qkv"] == [8, 2 * shared, 2 * shared]


def test_plain_numpy_trains_the_same():
    """Sums in numpy's own order: losses agree to a thousandth."""
    for preset, more in (("gpt", []), ("llama", []), ("llama", ["network.num_key_value_heads=2"])):
        words = [f"network.preset={preset}", *more]
        losses = [[step.loss for step in run(TEXT, words, "numpy", cls)[1]] for cls in (Trainer, PlainTrainer)]
        assert np.allclose(*losses, rtol=1e-3)


@pytest.mark.parametrize("preset", ["gpt", "llama"])
def test_a_transformer_learns_what_lies_three_characters_back(preset):
    """Nothing but attention can know it: without, no better than the frequencies of the characters."""
    write_text(6000)
    words = ["train.iterations=500", "network.hidden_size=16", "data.batch=128", f"network.preset={preset}"]
    words += ["network.num_attention_heads=2", "data.sequence=8"]
    (trainer, _), text = run(words=words, cls=PlainTrainer), Path("a.txt").read_text(encoding="utf-8")
    found = trainer.test(trainer.dataset.x_test, trainer.dataset.y_test)
    shares = np.array([text.count(c) for c in characters(text)]) / len(text)
    # the first places of a sequence do not see so far back
    assert found.loss < 0.65 * -(shares * np.log(shares)).sum()


def test_a_text_becomes_sequences_that_stay_whole():
    config = parse_train(TEXT, "a.toml")
    text = Path("a.txt").read_text(encoding="utf-8")
    data = load(config)
    known = characters(text)
    assert (config.network.inputs, config.classes) == (len(known) + 4, len(known))
    plain = load(parse_train(TEXT, "a.toml", ["network.preset=llama"]))
    assert np.array_equal(plain.x_train[:], data.x_train[:][:, : len(known)])
    rows = [*data.x_train[:], *data.x_test[:]]
    said = "".join(known[int(row[: len(known)].argmax())] for row in rows)
    assert text.startswith(said)
    assert [int(row[len(known) :].argmax()) for row in rows] == [k % 4 for k in range(len(rows))]
    labels = np.concatenate([data.y_train, data.y_test])
    assert "".join(known[label] for label in labels) == text[1 : len(labels) + 1]
    service = DataService.of(config, data)
    for iteration in range(2 * service.per_epoch):
        found = service.indices(iteration).reshape(-1, 4)
        assert np.array_equal(found - found[:, :1], np.tile(np.arange(4), (len(found), 1)))
        assert (found[:, 0] % 4 == 0).all()
    seen = np.concatenate([service.indices(k) for k in range(service.per_epoch)])
    assert len(set(seen.tolist())) == len(seen)


def test_rows_of_a_text_are_those_of_the_whole_array():
    rows = TokenRows(np.array([2, 0, 1, 1]), 3, 2, (2, 0, 1))
    whole = rows[:]
    assert whole.sum() == 2 * len(rows)
    assert np.array_equal(rows[np.array([3, 1])], whole[[3, 1]])
    assert np.array_equal(rows[1:3], whole[1:3])


def test_a_run_that_is_cut_goes_on_with_the_same_bits(capsys):
    Path("a.toml").write_text(TEXT + "[checkpoint]\ninterval = 2\n", encoding="utf-8")

    def train(words):
        assert cli.main(["train", "a.toml", "--json", "--no-report", *words.split()]) == 0
        return json.loads(capsys.readouterr().out)

    whole = train("--out whole --save-weights whole.npz")
    train("--out part --iterations 3")
    again = train("--resume part --out part --save-weights part.npz")
    assert again["loss"] == whole["loss"]
    with np.load("whole.npz") as a, np.load("part.npz") as b:
        assert set(a.files) == set(b.files)
        assert {"embed.weight", "block1.q.bias", "block1.ln1.norm.weight", "head.weight", "head.mask"} <= set(a.files)
        assert all(np.array_equal(a[name], b[name]) for name in a.files)
    trainer = Trainer(parse_train(TEXT, "a.toml"), "numpy")
    trainer.load_weights("whole.npz")
    held = trainer.dataset.x_test, trainer.dataset.y_test
    assert trainer.test(*held).loss == whole["test_loss"]


def test_mode_is_streaming_and_says_why():
    assert choose(parse_train(TEXT, "a.toml")).mode == "streaming"
    with pytest.raises(UnsupportedError, match="no chain of layers"):
        choose(parse_train(TEXT, "a.toml"), "pipelined")
    with pytest.raises(UnsupportedError, match=r"a\.toml: mesh\.height: .* of 6 tokens and PEs of 4 tokens"):
        parse_train(TEXT, "a.toml", ["data.sequence=6", "data.batch=12", "mesh.height=3"]).check_memory()


def test_labels_of_some_tokens(folder):
    """Loss and accuracy are means over the tokens that have one; wafers and numpy agree in every bit."""
    rng = np.random.default_rng(3)
    data = {}
    for part, count in (("train", 12), ("test", 6)):
        data[f"x_{part}"] = rng.standard_normal((count, 4, 5)).astype(np.float32)
        labels = rng.integers(0, 3, (count, 4))
        labels[rng.random((count, 4)) < 0.5] = -100
        data[f"y_{part}"] = labels
    np.savez("tokens.npz", **data)
    words = ["data.source=tokens.npz", "data.sequence=4", "data.labels=token", "train.clip=1.0", "wafers=2"]
    (one, steps), (other, expected) = run(NODES, words), run(NODES, words, "numpy")
    assert [step.loss for step in steps] == [step.loss for step in expected]
    for a, b in zip(one.parameters, other.parameters, strict=True):
        assert np.array_equal(a.dense, b.dense), a.name
    plain, losses = run(NODES, words[:-1], cls=PlainTrainer)
    assert np.allclose([step.loss for step in losses], [step.loss for step in steps], rtol=1e-3)
    found = plain.test(plain.dataset.x_test, plain.dataset.y_test)
    values = {parameter.name: parameter.dense for parameter in plain.parameters}
    logits = PlainGraph(plain.config.graph, "f64").forward(values, data["x_test"].reshape(-1, 5).astype(np.float64))
    y = data["y_test"].ravel()
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert found.loss == pytest.approx(-logs[y >= 0, y[y >= 0]].mean(), rel=2e-3)
    assert found.accuracy == pytest.approx((logits.argmax(1) == y)[y >= 0].mean(), abs=0.1)
    flat = data["x_train"].reshape(-1, 5)[:8], data["y_train"].ravel()[:8]
    feed = Trainer(parse_train(NODES, "a.toml", ["data.labels=token"]), "numpy", data=[flat] * 3)
    assert np.isfinite(feed.step().loss)
    assert feed.data.batch(0)[0][1].min() == -1
    with pytest.raises(ConfigError, match="are not cut into tokens"):
        Trainer(parse_train(NODES, "a.toml", ["data.labels=first"]), "numpy", data=[flat] * 3)
    np.savez("odd.npz", **data | {"y_train": np.where(data["y_train"] == -100, -5, data["y_train"])})
    with pytest.raises(ConfigError, match="-5 is no class, and none is -100"):
        load(parse_train(NODES, "a.toml", ["data.source=odd.npz", *words[1:]]))
    with pytest.raises(ConfigError, match="labels of tokens.npz are -100"):
        load(parse_train(NODES, "a.toml", [word for word in words if "labels" not in word]))
    with pytest.raises(ConfigError, match="layers take a class for every sample"):
        parse_train(NODES, "a.toml", [*words, "network.nodes=[]", "network.layers=[{outputs=3}]"])


def test_samples_are_cut_into_tokens():
    config = load_train("digits-bert")
    data, plain = load(config), load(load_train("digits"))
    assert data.x_train.shape == (8 * len(plain.x_train), 16)
    assert np.array_equal(data.x_train[:][:, :8].reshape(len(plain.x_train), 64), plain.x_train)
    assert np.array_equal(data.x_train[:8][:, 8:], np.eye(8))
    assert np.array_equal(data.y_train.reshape(-1, 8)[:, 0], plain.y_train)
    assert (data.y_train.reshape(-1, 8)[:, 1:] == -1).all()
    config.check_memory()
    with pytest.raises(ConfigError, match="samples of 64 features are not 7 tokens of one size"):
        load(load_train("digits-bert", ["data.sequence=7", "network.inputs=16", "data.batch=448"]))


def test_digits_read_row_by_row_are_told():
    """By plain numpy, in a third of the iterations of the example."""
    trainer = PlainTrainer(load_train("digits-bert", ["train.iterations=120"]))
    for _ in range(120):
        trainer.step()
    assert trainer.test(trainer.dataset.x_test, trainer.dataset.y_test).accuracy > 0.9


def test_what_a_command_says_of_a_graph(capsys):
    """Operations and nothing unsupported before a training."""
    Path("a.toml").write_text(TEXT, encoding="utf-8")
    assert cli.main(["train", "a.toml", "--validate-only", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["valid"]
    assert said["unsupported"] == []
    assert "attention: block1.mix.attention" in said["kernels"]


def test_networks_of_nodes_go_out_as_onnx_files():
    """Its own reference evaluator gives the logits of the plain network."""
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    x, rng = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32), np.random.default_rng(1)
    config = parse_train(NODES, "a.toml")
    data = {
        f"{kind}_{part}": x if kind == "x" else rng.integers(0, 3, 7) for kind in "xy" for part in ("train", "test")
    }
    data = {name: np.concatenate([values] * 2) for name, values in data.items()}
    np.savez("none.npz", **data)
    trainer = Trainer(config, "numpy")
    trainer.step()
    trainer.save_onnx("m.onnx")
    values = {parameter.name: parameter.dense for parameter in trainer.parameters}
    (found,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    assert np.allclose(found, PlainGraph(config.graph, "f64").forward(values, x), atol=2e-5)
    with pytest.raises(UnsupportedError, match=r"block1\.mix\.attention: attention is not written"):
        Trainer(parse_train(TEXT, "a.toml"), "numpy").save_onnx("n.onnx")


def test_each_normalisation_has_its_own_epsilon():
    """Wafers and their oracle agree; the file's own evaluator gives the logits of the plain network, and its numbers
    come back.
    """
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    images()
    epsilons = {"unit": 1e-5, "other": 0.25, "third": 0.5, "norm": 1e-3}
    more = '{name = "other", op = "groupnorm", groups = 1, epsilon = 0.25}'
    more += ', {name = "third", op = "batchnorm", epsilon = 0.5}'
    text = (
        IMAGES.replace('{name = "bent", op = "relu"}', more)
        .replace("maxpool", "avgpool")
        .replace(", density = 0.5", "")
    )
    last = '{name = "logits"'
    flat = '{name = "flat", op = "linear", outputs = 4}, {name = "norm", op = "norm", epsilon = 1e-3}'
    text = text.replace(last, f"{flat}, {last}")
    trainer, oracle = (Trainer(parse_train(text, "a.toml"), name) for name in ("compiled", "numpy"))
    assert [trainer.step().loss for _ in range(3)] == [oracle.step().loss for _ in range(3)]
    trainer.save_onnx("m.onnx")
    values = {parameter.name: parameter.dense for parameter in trainer.parameters}
    x = np.load("images.npz")["x_test"]
    (found,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    wanted = PlainGraph(trainer.config.graph, "f64").forward(values, x.reshape(len(x), -1))
    assert np.allclose(found, wanted, atol=2e-5)
    again = read_onnx("m.onnx")
    assert {
        one["name"]: one.get("epsilon", again.epsilon) for one in again.nodes if one["name"] in epsilons
    } == epsilons


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_goes_out_and_comes_back(name):
    """The file's own reference evaluator gives the logits of the plain network, and the file is read as what it was."""
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(0)
    x = 3 * rng.standard_normal((16, 5)).astype(np.float32)
    np.savez("none.npz", x_train=x, y_train=rng.integers(0, 3, 16), x_test=x, y_test=rng.integers(0, 3, 16))
    text = NODES.replace('op = "silu"', f'op = "{name}"')
    trainer = Trainer(parse_train(text, "a.toml", ["data.source=none.npz", "data.batch=16"]), "numpy")
    trainer.step()
    trainer.save_onnx("m.onnx")
    values = {parameter.name: parameter.dense for parameter in trainer.parameters}
    (found,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    assert np.allclose(found, PlainGraph(trainer.config.graph, "f64").forward(values, x), atol=2e-5)
    assert [node["op"] for node in read_onnx("m.onnx").nodes] == [node.op for node in trainer.config.network.nodes]


def check_card(card, result):
    """The card of a model has what it was trained on, how, and what came out."""
    text = Path("a.txt").read_bytes()
    rows = dict(line.strip("| ").split(" | ", 1) for line in card.splitlines() if line.strip("| ").count(" | ") == 1)
    assert rows["text"].startswith(f"`a.txt`, {len(text):,} characters, SHA-256 ")
    assert rows["text"].endswith(hashlib.sha256(text).hexdigest())
    assert rows["training"].startswith(f"{result['done']:,} iterations of ")
    seen, held = result["loss"], result["test_loss"]
    assert rows["loss"] == f"{seen:.3f} nats in the last iteration and {held:.3f} nats of what was held out"
    assert rows["parameters"] == f"{sum(tensor.size for tensor in find_model('m').weights().values()):,}"
    assert f"Python {platform.python_version()}" in rows["made with"]
    assert rows["arithmetic"] == "f16, by numpy on the host"
    assert f"```toml\n{TEXT.strip()}\n```\n" in card
    assert "Set besides:\n\n- `network.preset=llama`\n" in card


@pytest.mark.parametrize("shared", [4, 2])
def test_a_transformer_that_was_trained_answers_on_wafers(shared, capsys):
    """What ``wse train`` saves, ``wse generate`` loads: the likeliest characters, from PEs that hold it whole."""
    words = ["network.preset=llama", "network.hidden_size=16", "data.sequence=8", "train.iterations=30"]
    words += [f"network.num_key_value_heads={shared}"]
    Path("a.toml").write_text(TEXT, encoding="utf-8")
    given = [word for pair in (("--set", word) for word in words) for word in pair]
    assert cli.main(["train", "a.toml", "--json", "--reference", "--no-report", "--save-model", "m", *given]) == 0
    result = json.loads(capsys.readouterr().out)
    assert "m" in result["files"]
    check_card(Path("m/README.md").read_text(encoding="utf-8"), result)
    assert cli.main(["generate", "m", "--prompt", "abac", "--tokens", "4", "--mesh", "3x2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["bit_exact"] is True
    trainer, _ = run(words=words, cls=PlainTrainer)
    known, text = characters(Path("a.txt").read_text(encoding="utf-8")), "abac"
    for _ in range(4):
        rows = np.zeros((8, len(known)))
        rows[np.arange(len(text)), [known.index(character) for character in text]] = 1
        logits = PlainGraph(trainer.config.graph, "f64").forward(trainer.weights, rows)[len(text) - 1]
        assert np.diff(np.sort(logits))[-1] > 0.01  # the likeliest one is no matter of rounding
        text += known[int(logits.argmax())]
    assert answer["text"] == text[4:]
    assert cli.main(["train", "a.toml", "--save-model", "m", *given]) == 2
    assert "is there already" in capsys.readouterr().err
    assert cli.main(["train", "a.toml", "--save-model", "n", *given[2:-2]]) == 2
    assert "only the preset llama is a model that answers" in capsys.readouterr().err


IMAGES = """
[network]
image = [2, 4, 4]
nodes = [
    {name = "first", op = "convolution", outputs = 4, kernel = 3, kernel_width = 2, padding = 1, groups = 2},
    {name = "unit", op = "groupnorm", groups = 2},
    {name = "bent", op = "relu"},
    {name = "smaller", op = "maxpool", kernel = 2},
    {name = "second", op = "convolution", outputs = 3, kernel = 2, stride = 2, bias = false, density = 0.5},
    {name = "mean", op = "avgpool"},
    {name = "logits", op = "linear", outputs = 3},
]
[data]
source = "images.npz"
batch = 8
[mesh]
width = 2
height = 2
[train]
iterations = 3
optimizer = {name = "adam", lr = 0.02}
"""


def images(samples=24):
    """Write a file of random images."""
    rng = np.random.default_rng(4)
    arrays = {f"x_{part}": rng.standard_normal((samples, 2, 4, 4)).astype(np.float32) for part in ("train", "test")}
    np.savez("images.npz", **arrays, **{f"y_{part}": rng.integers(0, 3, samples) for part in ("train", "test")})


def test_networks_of_images_train_on_wafers_and_in_numpy():
    """Bit-exact to the oracle on two wafers, near plain numpy; weights go out and in again as PyTorch has them."""
    images()
    config = parse_train(IMAGES, "a.toml")
    assert config.network.inputs == 32
    assert [(one.name, one.inputs, one.outputs, one.row) for one in config.matrices] == [
        ("first.weight", 6, 4, (1, 3, 2)),
        ("second.weight", 16, 3, (4, 2, 2)),
        ("logits.weight", 3, 3, (3,)),
    ]
    assert config.form == "both"
    text = IMAGES.replace("[network]", "wafers = 2\n[network]")
    (trainer, steps), (other, expected) = run(text), run(text, backend="numpy")
    assert [step.loss for step in steps] == [step.loss for step in expected]
    found = trainer.tensors()
    assert all(np.array_equal(values, found[name]) for name, values in other.tensors().items())
    held = trainer.dataset.x_test, trainer.dataset.y_test
    assert trainer.test(*held) == other.test(*held)
    assert found["first.weight"].shape == (4, 1, 3, 2)
    assert found["second.mask"].shape == (3, 4, 2, 2)
    assert found["second.mask"].sum() == round(0.5 * 48)
    assert (found["second.weight"][~found["second.mask"]] == 0).all()
    assert found["unit.norm.weight"].shape == (4,)
    trainer.save_weights("w.npz")
    plain, _ = run(IMAGES, cls=PlainTrainer)
    for name, values in plain.tensors().items():
        assert np.allclose(values, found[name], atol=4e-3), name
    again = PlainTrainer(parse_train(IMAGES.replace("image =", 'weights = "w.npz"\nimage ='), "a.toml"))
    assert all(np.array_equal(values, found[name]) for name, values in again.tensors().items() if name != "updates")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_batches_are_normalised_over_two_wafers(accumulate):
    """Bit-exact to the oracle, near plain numpy, also in tests; statistics go out and in, and into checkpoints."""
    images()
    text = IMAGES.replace("[network]", "wafers = 2\n[network]").replace('"groupnorm", groups = 2', '"batchnorm"')
    words = [f"train.accumulate={accumulate}"]
    (trainer, steps), (other, expected) = run(text, words), run(text, words, backend="numpy")
    assert [step.loss for step in steps] == [step.loss for step in expected]
    found = trainer.tensors()
    assert all(np.array_equal(values, found[name]) for name, values in other.tensors().items())
    mean, variance = found["unit.norm.running_mean"], found["unit.norm.running_var"]
    assert (mean != 0).all()
    assert (variance != 1).all()
    plain, same = run(text, words, cls=PlainTrainer)
    assert np.allclose([step.loss for step in same], [step.loss for step in steps], atol=2e-3)
    for name, values in plain.tensors().items():
        assert np.allclose(values, found[name], atol=6e-3), name
    held = trainer.dataset.x_test, trainer.dataset.y_test
    assert trainer.test(*held) == other.test(*held)
    assert trainer.test(*held).loss == pytest.approx(plain.test(*held).loss, abs=2e-3)
    tensors, state = trainer.state()
    going = Trainer(parse_train(text, "a.toml", words))
    going.restore(tensors, state)
    assert going.step().loss == trainer.step().loss
    assert all(np.array_equal(values, trainer.tensors()[name]) for name, values in going.tensors().items())
    trainer.save_weights("w.npz")
    again = PlainTrainer(parse_train(text.replace("image =", 'weights = "w.npz"\nimage ='), "a.toml", words))
    assert np.array_equal(again.tensors()["unit.norm.running_var"], trainer.tensors()["unit.norm.running_var"])
    broken = {"unit.norm.running_mean": mean, "unit.norm.running_var": -variance}
    with pytest.raises(ConfigError, match="unit.norm.running_var has a variance below zero"):
        PlainTrainer(parse_train(text, "a.toml", words)).load_weights(broken)


RESNET = """
[network]
preset = "resnet"
image = [2, 4, 4]
hidden_sizes = [3, 4]
depths = [2, 1]
vocab_size = 3
[data]
source = "images.npz"
batch = 8
[mesh]
width = 2
height = 2
[train]
iterations = 3
optimizer = {name = "sgd", lr = 0.05}
loss_scale = {initial = 1024.0}
"""


def test_a_preset_is_a_residual_network():
    """Two stages, the second on half the sides with a convolution past its first block; bit-exact to the oracle."""
    images()
    config = parse_train(RESNET, "a.toml")
    shapes = {one.name: (one.outputs, *one.row) for one in config.matrices}
    assert shapes["stem.weight"] == (3, 2, 3, 3)
    assert shapes["stage2.block1.shortcut.weight"] == (4, 3, 1, 1)
    assert "stage1.block1.shortcut.weight" not in shapes
    assert shapes["head.weight"] == (3, 4)
    assert sum(node.op == "batchnorm" for node in config.network.nodes) == 1 + 3 * 2 + 1
    (trainer, steps), (other, expected) = run(RESNET), run(RESNET, backend="numpy")
    assert [step.loss for step in steps] == [step.loss for step in expected]
    found = trainer.tensors()
    assert all(np.array_equal(values, found[name]) for name, values in other.tensors().items())
    plain, _ = run(RESNET, cls=PlainTrainer)
    assert np.allclose(plain.tensors()["head.weight"], found["head.weight"], atol=2e-3)


def test_digits_are_told_by_convolutions():
    """By plain numpy, in half of the iterations of the example."""
    config = load_train("digits-cnn", ["train.iterations=60"])
    config.check_memory()
    trainer = PlainTrainer(config)
    for _ in range(60):
        trainer.step()
    assert trainer.test(trainer.dataset.x_test, trainer.dataset.y_test).accuracy > 0.96


LLAMA = TEXT.replace('"gpt"', '"llama"')
ATTENDED = NODES.replace(
    'op = "add", inputs = ["first", "wide"]',
    'op = "attention", inputs = ["first", "wide", "wide"], heads = 6, kv_heads = 2',
).replace("outputs = 6, bias = false", "outputs = 2, bias = false")
LINEAR = 'method = "linear", sides = [3, 5]'
WRONG = [
    (IMAGES, "image = [2, 4, 4]", "image = [2, 4]", "an image has three sizes"),
    (IMAGES, "image = [2, 4, 4]", "image = [2, 4, 4]\ninputs = 31", "images of 2 x 4 x 4 have 32 features, not 31"),
    (IMAGES, "image = [2, 4, 4]", "inputs = 32", "convolution takes images, and input gives features"),
    (IMAGES, "kernel = 3, ", "", "convolution needs a window"),
    (IMAGES, "outputs = 4, ", "", "a convolution needs a number of channels"),
    (IMAGES, "outputs = 4, ", "outputs = 5, ", "2 and 5 channels in 2 groups"),
    (IMAGES, "padding = 1", "padding = 2", "a padding of 2 around windows of 3 x 2"),
    (IMAGES, "kernel = 3", "kernel = 7", "windows of 7 x 2 are larger than an image of 2 x 4 x 4"),
    (IMAGES, '"groupnorm", groups = 2', '"groupnorm"', "groupnorm needs a number of groups"),
    (IMAGES, '"groupnorm", groups = 2', '"groupnorm", groups = 3', "4 channels in 3 groups"),
    (IMAGES, '"maxpool", kernel = 2', '"maxpool", kernel = 2, padding = 2', "a padding of 2 around windows of 2 x 2"),
    (IMAGES, '"groupnorm", groups = 2', '"groupnorm", groups = 2, padding = 1', "groupnorm has no padding"),
    (IMAGES, '"maxpool", kernel = 2', '"maxpool"', "maxpool needs a window"),
    (IMAGES, '"maxpool", kernel = 2', '"resample"', "resample needs a method"),
    (IMAGES, '"maxpool", kernel = 2', '"resample", method = "linear", sides = [3]', "resample needs rows and columns"),
    (IMAGES, '"maxpool", kernel = 2', f'"resample", {LINEAR}, kernel = 2', "linear has no kernel"),
    (IMAGES, '"maxpool", kernel = 2', f'"resample", {LINEAR}, dilation = 2', "resample has no dilation"),
    (IMAGES, '"maxpool", kernel = 2', '"resample", method = "mean"', "a mean needs a window"),
    (IMAGES, '"maxpool", kernel = 2', '"resample", method = "mean", kernel = 2, sides = [2, 2]', "mean has no sides"),
    (IMAGES, '"maxpool", kernel = 2', '"resample", method = "pick", rows = [0]', "which columns are picked"),
    (
        IMAGES,
        '"maxpool", kernel = 2',
        '"resample", method = "pick", rows = [0, 9], columns = [0]',
        "become such of 2 x 1",
    ),
    (IMAGES, '"maxpool", kernel = 2', f'"resample", {LINEAR}, rows = [0]', "linear has no rows"),
    (IMAGES, '"maxpool"', '"maxpool", sides = [2, 2]', "maxpool has no sides"),
    (IMAGES, 'op = "avgpool"', 'op = "linear", outputs = 4}, {name = "m", op = "avgpool"', "linear gives no images"),
    (IMAGES, '"avgpool"', '"instancenorm"', "'instancenorm' is not a possible value"),
    (IMAGES, '"groupnorm", groups = 2', '"batchnorm", groups = 2', "batchnorm has no groups"),
    (IMAGES, "groups = 2},\n    {name", "groups = 2, momentum = 0.5},\n    {name", "convolution has no momentum"),
    (NODES, 'inputs = ["first", "wide"]', 'inputs = ["frist", "wide"]', "there is no 'frist' before 'sum'"),
    (NODES, 'inputs = ["first", "wide"]', 'inputs = ["first"]', "add takes 2 tensors, not 1"),
    (NODES, 'name = "wide", op', 'name = "unit", op', "two operations are called 'unit'"),
    (NODES, 'name = "wide", op', 'name = "unit.norm", op', "unit.norm.weight is a parameter of 'unit' too"),
    (NODES, 'op = "silu"', 'op = "silu", outputs = 3', "silu has no outputs"),
    (NODES, 'op = "norm"', 'op = "norm", heads = 3', "norm has no heads"),
    (NODES, 'op = "linear", outputs = 6, bias', 'op = "linear", bias', "a product needs a number of features"),
    (NODES, "outputs = 6, bias = false", "outputs = 7, bias = false", "add takes tensors of one size, not of 6 and 7"),
    (NODES, '{name = "logits"', '{name = "logits", inputs = ["first"]', "sum.add: nothing takes its result"),
    (NODES, 'op = "silu"', 'op = "selu"', "'selu' is not a possible value"),
    (NODES, "[data]", "layers = [{outputs = 3}]\n[data]", "layers stand there too"),
    (NODES, "[data]", "hidden_size = 3\n[data]", "hidden_size is the size of a preset"),
    (NODES, "batch = 8", "batch = 8\nsequence = 3", "no whole sequences of 3"),
    (TEXT, "hidden_size = 8", "hidden_size = 10", "10 features do not divide into 4 heads"),
    (TEXT, "[data]", "num_key_value_heads = 2\n[data]", "the preset gpt has no num_key_value_heads"),
    (LLAMA, "[data]", "num_key_value_heads = 3\n[data]", "4 query heads do not share 3 of keys"),
    (NODES, 'op = "norm"', 'op = "norm", kv_heads = 3', "norm has no kv_heads"),
    (ATTENDED, "kv_heads = 2", "kv_heads = 3", "takes tensors of 6 and 3 and 3 features, not of 6 and 2 and 2"),
    (ATTENDED, "kv_heads = 2", "kv_heads = 4", "6 query heads do not share 4 of keys"),
    (TEXT, "hidden_size = 8\n", "", "the preset gpt needs hidden_size"),
    (TEXT, "hidden_size = 8\n", "hidden_size = 8\ndepths = [2]\n", "the preset gpt has no depths"),
    (RESNET, "depths = [2, 1]\n", "", "the preset resnet needs depths"),
    (RESNET, "depths = [2, 1]", "depths = [2]", "2 hidden_sizes and 1 depths"),
    (RESNET, "depths = [2, 1]", "depths = [2, 0]", "the preset resnet needs depths"),
    (RESNET, "image = [2, 4, 4]", "inputs = 32", "the preset resnet takes images"),
    (RESNET, "vocab_size", "hidden_size = 3\nvocab_size", "the preset resnet has no hidden_size"),
    (NODES, "[data]", "depths = [3]\n[data]", "depths is the size of a preset"),
    (TEXT, "[data]", "layers = [{outputs = 4}]\n[data]", "a preset says what there is"),
    (TEXT, "sequence = 4", "sequence = 4\nscale = 2.0", "a.txt has no scale"),
    (TEXT, "sequence = 4\nbatch = 16", "sequence = 600\nbatch = 1200", "no two sequences of 600"),
    (TEXT, "a.txt", "b.txt", "cannot be read"),
    (NODES, "[train]", "[train]\nrecompute = true", "there is nothing to compute again"),
    (
        TEXT,
        "[train]",
        '[sparsity]\nschedule = "sparse-ift"\ndensity = 0.5\n[train]',
        "only chains of layers are made wider",
    ),
]


@pytest.mark.parametrize(("text", "old", "new", "what"), WRONG, ids=[row[3][:30] for row in WRONG])
def test_what_does_not_fit_is_said(text, old, new, what):
    assert old in text
    np.savez(
        "none.npz",
        **{f"x_{part}": np.zeros((9, 5)) for part in ("train", "test")},
        y_train=np.zeros(9, int),
        y_test=np.zeros(9, int),
    )
    images()
    with pytest.raises((ConfigError, UnsupportedError), match=re.escape(what)) as caught:
        load(parse_train(text.replace(old, new), "a.toml"))
    assert str(caught.value.where)


def test_what_is_computed_again_has_to_save_memory():
    """Where the begin of a stretch would not stay otherwise, and nothing within it is kept, nothing is saved."""
    numbers = np.ones((4, 1))
    np.savez("one.npz", **{f"{letter}_{part}": numbers for letter in "xy" for part in ("train", "test")})
    nodes = """nodes = [
        {name = "begin", op = "linear", outputs = 1},
        {name = "twice", op = "add", inputs = ["begin", "begin"]},
        {name = "bent", op = "leaky_relu_tenth"},
        {name = "end", op = "linear", outputs = 1},
        {name = "top", op = "tanh"},
    ]"""
    rest = '[data]\nsource = "one.npz"\nbatch = 1\n[mesh]\nwidth = 1\nheight = 1\n'
    rest += '[train]\niterations = 1\nloss = "mse"\n'
    text = f"[network]\ninputs = 1\n{nodes}\n{rest}"
    load(parse_train(text, "a.toml"))
    with pytest.raises(ConfigError, match="arrays have 17 words of a PE .* again, 15 if") as caught:
        load(parse_train(text + "recompute = true\n", "a.toml"))
    assert caught.value.where == "a.toml: train.recompute"


def test_the_example_fits_its_wafers():
    config = load_train("chars")
    config.check_memory()
    assert {"linear", "rms", "silu", "mul", "add", "rotary", "attention"} < {node.op for node in config.graph.nodes}
    assert config.graph.size == sum(parameter.rows * parameter.columns for parameter in config.graph.parameters)


def test_tables_as_objects_may_have_no_image():
    """The dataclass has a key for it, which is empty."""
    network = NetworkConfig(inputs=8, layers=(LayerConfig(3),))
    config = TrainConfig.of(network=network, train={"iterations": 2})
    assert config.widths == (8, 3)
    assert config.network.image == ()
