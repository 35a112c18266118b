"""Targets: numbers that are wanted in the place of classes, and the mean squares of what is missed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main as cli
from harness.train.config import TrainConfig, parse_train
from harness.train.data import load
from harness.train.loop import missed
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from tests.harness.train.test_ways import interrupted, same, tensors
from wse_core.errors import ConfigError, UnsupportedError

TEXT = """
[network]
inputs = 6
layers = [{outputs = 5, activation = "tanh", norm = true}, {outputs = 3}]
[data]
source = "aims.npz"
batch = 8
[mesh]
width = 2
height = 2
[train]
loss = "mse"
iterations = 4
optimizer = {name = "adam", lr = 0.01}
loss_scale = {initial = 64.0}
"""
NODES = {
    "inputs": 6,
    "nodes": [
        {"name": "in", "op": "linear", "outputs": 4},
        {"name": "mix", "op": "attention", "inputs": ["in", "in", "in"], "heads": 2, "causal": False},
        {"name": "sum", "op": "add", "inputs": ["mix", "in"]},
        {"name": "out", "op": "linear", "outputs": 3},
    ],
}
MODES = {"one wafer": "", "two wafers": "--wafers 2", "numpy": "--reference"}


@pytest.fixture(autouse=True)
def aims(folder):
    """Samples and three smooth functions of each."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((60, 6)).astype(np.float32)
    y = np.tanh(x @ rng.standard_normal((6, 3))).astype(np.float32)
    np.savez("aims.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    Path("a.toml").write_text(TEXT, encoding="utf-8")
    return {"x_train": x[:40], "y_train": y[:40], "x_test": x[40:], "y_test": y[40:]}


def run(capsys, words):
    """Run ``wse train``; return (exit status, result or None, standard error)."""
    status = cli.main(["train", *words.split(), "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out else None, err


def given(words="", text=TEXT):
    """Return the configuration with some keys set."""
    return parse_train(text, "a.toml", words.split())


@pytest.mark.parametrize("dtype", ["f16", "cb16"])
@pytest.mark.parametrize("words", ["", "wafers=2", "train.accumulate=2 network.layers=[{outputs=3}]", "wafers=4"])
def test_wafers_equal_numpy_in_their_order_bit_for_bit(dtype, words):
    words += f" train.dtype={dtype} csconfig.use_cbfloat16={str(dtype == 'cb16').lower()} mesh.height=1"
    wafers, exact, plain = (Trainer(given(words)), Trainer(given(words), "numpy"), PlainTrainer(given(words)))
    for _ in range(4):
        steps = [one.step() for one in (wafers, exact, plain)]
        assert steps[0].loss == steps[1].loss
        assert steps[0].loss == pytest.approx(steps[2].loss, rel=1e-5)
        assert [step.accuracy for step in steps] == [None] * 3
    for a, b, c in zip(wafers.parameters, exact.parameters, plain.parameters, strict=True):
        assert np.array_equal(a.dense.view(np.uint32), b.dense.view(np.uint32))
        assert np.allclose(a.dense, c.dense.reshape(a.dense.shape), atol=2e-3)
    data = load(given(words))
    tests = [one.test(data.x_test, data.y_test) for one in (wafers, exact, plain)]
    assert tests[0] == tests[1]
    assert tests[0].accuracy is None
    assert tests[0].loss == pytest.approx(tests[2].loss, rel=1e-4)


def test_the_loss_is_the_mean_over_samples_and_outputs(aims):
    """As `torch.nn.MSELoss` has it; of weights that are zero that of the targets themselves."""
    trainer = PlainTrainer(given("data.batch=40 network.layers=[{outputs=3}] train.iterations=1"), fmt="f64")
    trainer.matrices[0].dense[:] = 0
    step = trainer.step()
    assert step.loss == pytest.approx(np.square(aims["y_train"]).mean(), rel=1e-6)
    rows = aims["x_train"].astype(np.float64)
    wanted = -2 * aims["y_train"].T @ rows / (40 * 3)
    moment = trainer.matrices[0].state["m"].reshape(3, -1)[:, :-1]
    assert np.allclose(moment, 0.1 * wanted, rtol=1e-4, atol=1e-7)


def test_wafers_add_the_losses_of_a_test():
    """What they count is what the host takes from their outputs, also where the last batch is not full."""
    trainer = Trainer(given())
    data, total = trainer.dataset, 0.0
    for start in (0, 8, 16):
        part = slice(start, start + 8)
        x, y = trainer.encode(data.x_test[part].T), trainer.encode(data.y_test[part].T)
        total += trainer.compile().test(x, y)[0]
    assert total / 20 == pytest.approx(trainer.test(data.x_test, data.y_test).loss, rel=2e-3)


@pytest.fixture(scope="module")
def wholes():
    """What runs that were not cut short have learned, by mode."""
    return {}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ending", ["end", "interrupted", "resumed"])
def test_a_run_leaves_log_result_and_weights(capsys, monkeypatch, wholes, mode, ending):
    words = f"{MODES[mode]} --set train.evaluate=2 --set checkpoint.best=true --set train.patience=5"
    if mode not in wholes:
        assert run(capsys, f"a.toml {words} --out whole --no-report")[0] == 0
        wholes[mode] = tensors("whole")[1]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    if ending != "end":
        with monkeypatch.context() as patch:
            interrupted(patch)
            assert run(capsys, f"a.toml {words} --out run --no-report")[0] == 130
    if ending != "interrupted":
        more = f"--resume run {MODES[mode]} --report" if ending == "resumed" else f"a.toml {words} --out run --report"
        status, result, _ = run(capsys, more)
        assert status == 0
        assert same(tensors("run")[1], wholes[mode])
        assert "test_accuracy" not in result
        assert 0 < result["test_loss"] < 2
        assert Path("run/loss.png").is_file()
    signal.signal(signal.SIGINT, before)
    rows = [json.loads(line) for line in Path("run/log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == (2 if ending == "interrupted" else 4)
    assert all("accuracy" not in row and "test_accuracy" not in row for row in rows)
    assert [row["iteration"] for row in rows if "test_loss" in row] == [2, 4][: len(rows) // 2]
    assert Path("run/best.npz").is_file()


def test_the_report_has_a_loss_and_nothing_of_classes(capsys):
    assert cli.main(["train", "a.toml", "--report"]) == 0
    out = capsys.readouterr().out
    assert "held out" in out
    assert "accuracy" not in out
    page = Path("runs/a/report.html").read_text(encoding="utf-8")
    assert "accuracy" not in page
    assert "confusion" not in page


def test_the_pipelined_mode_refuses_it_and_is_not_chosen(capsys):
    status, _, err = run(capsys, "a.toml --mode pipelined")
    assert status == 2
    assert "train.loss" in err
    assert run(capsys, "a.toml --no-report")[1]["mode"] == "streaming"


# --- data -------------------------------------------------------------------------------------------------------------


def test_targets_of_a_csv_are_its_last_columns_or_those_called_so(aims):
    x, y = aims["x_train"], aims["y_train"]
    np.savetxt("bare.csv", np.column_stack([x, y]), delimiter=",")
    named = np.column_stack([y[:, :1], x, y[:, 1:]])
    header = "y1,a,b,c,d,e,f,target,y_2"
    np.savetxt("named.csv", named, delimiter=",", header=header, comments="")
    found = [load(given(f"data.source={name}.csv")) for name in ("bare", "named")]
    assert found[0].y_train.shape == (32, 3)
    for name in ("x_train", "y_train", "x_test", "y_test"):
        assert np.allclose(getattr(found[0], name), getattr(found[1], name))
    with pytest.raises(ConfigError, match=r"no whole numbers.*mse"):
        load(given("data.source=bare.csv train.loss=cross-entropy"))


def test_one_target_may_be_a_number_per_sample(aims):
    np.savez("one.npz", **{name: y[:, 0] if name[0] == "y" else y for name, y in aims.items()})
    config = given("data.source=one.npz network.layers=[{outputs=1}]")
    assert load(config).y_train.shape == (40, 1)
    assert Trainer(config).step().loss > 0


def test_every_token_may_have_targets_or_none(aims):
    """Of tokens without targets nothing is learned, whatever the rest of the file says."""
    y = aims["y_train"].reshape(10, 4, 3).copy()
    y[::2, 1] = np.nan
    files = {"x_train": aims["x_train"].reshape(10, 4, 6), "y_train": y, "x_test": aims["x_test"].reshape(5, 4, 6)}
    np.savez("tokens.npz", **files, y_test=aims["y_test"].reshape(5, 4, 3))
    data = {"source": "tokens.npz", "batch": 8, "sequence": 4, "labels": "token"}
    config = TrainConfig.of(
        network=NODES, data=data, mesh={"width": 2, "height": 2}, train={"iterations": 3, "loss": "mse"}
    )
    found = load(config)
    assert found.y_train.shape == (40, 3)
    assert np.isnan(found.y_train).any(1).sum() == 5
    wafers, exact, plain = Trainer(config), Trainer(config, "numpy"), PlainTrainer(config)
    for _ in range(3):
        steps = [one.step().loss for one in (wafers, exact, plain)]
        assert steps[0] == steps[1] == pytest.approx(steps[2], rel=1e-3)
    assert all(np.array_equal(a.dense, b.dense) for a, b in zip(wafers.parameters, exact.parameters, strict=True))
    assert wafers.test(found.x_train, found.y_train).loss == exact.test(found.x_train, found.y_train).loss
    y[0, 0, 1] = np.nan
    np.savez("tokens.npz", **files, y_test=y[:5])
    with pytest.raises(ConfigError, match="some targets of a token are numbers"):
        load(config)


def test_the_first_token_of_a_sequence_may_have_the_targets(aims):
    np.savez("cut.npz", **{name: np.tile(y, 2) if name[0] == "x" else y for name, y in aims.items()})
    data = {"source": "cut.npz", "batch": 8, "sequence": 2, "labels": "first"}
    train = {"iterations": 1, "loss": "mse"}
    config = TrainConfig.of(network=NODES, data=data, mesh={"width": 2, "height": 2}, train=train)
    found = load(config)
    assert found.y_train.shape == (80, 3)
    assert np.isnan(found.y_train[1::2]).all()
    assert np.array_equal(found.y_train[::2], aims["y_train"])
    assert Trainer(config).step().loss == Trainer(config, "numpy").step().loss


def test_images_may_have_an_image_as_target():
    """A convolution gives it, one number after the other as in the file."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((24, 1, 4, 4)).astype(np.float32)
    np.savez("images.npz", x_train=x, y_train=x / 2, x_test=x, y_test=x / 2)
    nodes = [{"name": "c", "op": "convolution", "outputs": 1, "kernel": 3, "padding": 1}]
    config = TrainConfig.of(
        network={"image": [1, 4, 4], "nodes": nodes},
        data={"source": "images.npz", "batch": 8},
        mesh={"width": 2, "height": 2},
        train={"iterations": 40, "loss": "mse", "optimizer": {"lr": 0.1}},
    )
    trainer, exact = Trainer(config), Trainer(config, "numpy")
    losses = [trainer.step().loss for _ in range(40)]
    assert losses[:3] == [exact.step().loss for _ in range(3)]
    assert losses[-1] < 0.05 * losses[0]


def test_batches_may_be_handed_over(aims):
    batches = [(aims["x_train"][k : k + 8], aims["y_train"][k : k + 8]) for k in (0, 8, 16, 24)]
    trainer, plain = Trainer(given("wafers=2"), data=batches), PlainTrainer(given(), data=batches)
    assert trainer.step().loss == pytest.approx(plain.step().loss, rel=1e-5)
    for wrong in (
        (batches[0][0], batches[0][1][:, :2]),
        (batches[0][0], np.full((8, 3), np.nan)),
        (batches[0][0], np.full((8, 3), np.inf)),
        (batches[0][0], np.full((8, 3), "a")),
    ):
        with pytest.raises(ConfigError, match="data: batch 1"):
            Trainer(given(), data=[wrong]).step()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("train.label_smoothing=0.1", "targets have no probability"),
        ("data.source=digits", "has classes, and the loss is mse"),
        ("data.source=pydoc", "is a class, and the loss is mse"),
        ("network.layers=[{outputs=4}]", "with 4 targets of a sample"),
        ("data.labels=pixel", "pixels have classes"),
        ("train.loss=mean", "mse"),
        ("data.source=large.npz", "more than f16 can hold"),
        ("data.source=none.npz", "targets that are no numbers"),
        ("data.source=text.npz", "numbers for both"),
    ],
)
def test_what_does_not_go_with_targets_is_refused(aims, words, match):
    np.savez("large.npz", **aims | {"y_test": aims["y_test"] * 1e6})
    np.savez("none.npz", **aims | {"y_test": aims["y_test"] * np.nan})
    np.savez("text.npz", **aims | {"y_test": aims["y_test"].astype(str)})
    with pytest.raises((ConfigError, UnsupportedError), match=match):
        load(given(words))


def test_classes_are_told_right_and_targets_are_not():
    trainer = Trainer(given())
    with pytest.raises(ConfigError, match="not told right or wrong"):
        trainer.evaluate(trainer.dataset.x_test, trainer.dataset.y_test)
    assert missed(np.zeros((2, 2)), np.array([[1.0, 3.0], [np.nan, np.nan]])) == 5


def test_checkpoints_of_one_loss_are_not_those_of_another():
    assert given().fingerprint() != given("train.loss=cross-entropy").fingerprint()
