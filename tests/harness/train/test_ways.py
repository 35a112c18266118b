"""Every option and every key of a training, in every mode, and every way in which a run can end.

A feature has more than one way through it: another mode, another trainer, a run that ends instead of being cut short.
Here each option of ``wse train`` and each key of its file is tried in each mode, and must be used, refused before
anything is trained, or said to have no effect; and a run keeps what it has learned however it ends.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from harness.cli import cmd_train
from harness.cli import main as cli
from harness.train import tables
from harness.train.checkpoint import found, latest, load
from harness.train.config import parse_train
from harness.train.loop import Loop
from harness.train.mode import choose, unused
from harness.train.pipeline_support import REFUSES, SUPPORT
from harness.train.pipelined import PipelinedTrainer
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from tests.examples import SOAK
from tests.harness.train.test_pipeline_support import keys
from traces.trace import Trace
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.formats import Arithmetic
from wse_core.params import machine

pytestmark = pytest.mark.usefixtures("folder", "short_search")

TEXT = """
wafers = 1
[network]
inputs = 12
layers = [{outputs = 6, activation = "relu", norm = true}, {outputs = 4}]
[data]
source = "blobs.npz"
batch = 8
[mesh]
width = 2
height = 2
[train]
iterations = 4
optimizer = {name = "adam", lr = 0.01}
"""
LAID = TEXT.replace("width = 2", "width = 6")
"""The same on as many columns as the layers of a pipeline need; without one all columns that differ are two."""
MODES = {
    "one wafer": "--mode streaming",
    "two wafers": "--mode streaming --wafers 2",
    "pipelined": "--mode pipelined --set pipeline.run=2",
    "numpy": "--reference",
}
STREAMING = "one wafer", "two wafers"
NAMES = {"one wafer": "streaming", "two wafers": "streaming", "pipelined": "pipelined", "numpy": "reference"}


@pytest.fixture
def train(capsys):
    """Run ``wse train`` in a mode; return (exit status, result or None, standard error)."""
    with np.load("blobs.npz") as blobs:
        np.savez("few.npz", **{name: values[:4] for name, values in blobs.items()})

    def call(mode, words="", name="a.toml"):
        if name:
            Path(name).write_text(LAID if mode == "pipelined" else TEXT, encoding="utf-8")
        given = ["train", *name.split(), *MODES[mode].split(), *words.split(), "--json"]
        if "report" not in words and "--project" not in words:
            given.append("--no-report")
        status = cli.main(given)
        out, err = capsys.readouterr()
        return status, json.loads(out) if out else None, err

    return call


def tensors(folder):
    """Return the iteration and the tensors of the newest checkpoint of a run but those of its clock."""
    iteration, values, _ = load(latest(f"{folder}/checkpoints"))
    return iteration, {name: value for name, value in values.items() if not name.startswith("clock.")}


def same(one, other):
    """Return whether two runs learned the same bits."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def turns(names, modes):
    """Return pairs of a name and one of its modes: weights stream past one wafer and past two in turns."""
    return [
        (name, mode)
        for number, name in enumerate(names)
        for mode in MODES
        if SOAK or mode != STREAMING[number % 2] or not set(STREAMING) <= set(modes(name))
    ]


# --- endings ----------------------------------------------------------------------------------------------------------


def interrupted(monkeypatch):
    """Let Ctrl-C come after the second iteration."""
    step = Loop.step

    def second(self):
        done = step(self)
        if done.iteration == 2 and self.iteration == 2:
            signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(Loop, "step", second)


@pytest.fixture(scope="module")
def wholes():
    """What runs that were not cut short have learned, by mode and length."""
    return {}


@pytest.mark.parametrize(("ending", "mode"), turns(["end", "interrupted", "resumed", "extended"], lambda _: MODES))
def test_a_run_keeps_what_it_has_learned(train, monkeypatch, wholes, mode, ending):
    """No key asks for checkpoints: weights are there all the same, and are those of ``--save-weights``."""
    longer = "--set train.iterations=6" if ending == "extended" else ""
    if (mode, longer) not in wholes:
        status, result, err = train(mode, f"--out whole --save-weights whole.npz {longer}")
        assert (status, err) == (0, "")
        wholes[mode, longer] = tensors("whole")[1]
    wanted = 6 if longer else 4
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a run in the background ignores
    if ending == "end":
        status, result, err = train(mode, "--out run --save-weights run.npz")
    elif ending == "extended":
        assert train(mode, "--out run")[0] == 0
        status, result, err = train(mode, f"--resume run {longer} --save-weights run.npz", name="")
    else:
        with monkeypatch.context() as patch:
            interrupted(patch)
            status, result, err = train(mode, "--out run --save-weights run.npz")
            assert (status, result["done"]) == (130, 2)
            assert "interrupted after iteration 2; go on with: wse train --resume run/checkpoints/iteration-" in err
            wanted, status, err = 2, 0, ""
        if ending == "resumed":
            status, result, err = train(mode, "--resume run --save-weights run.npz", name="")
            wanted = 4
    signal.signal(signal.SIGINT, before)
    assert (status, err) == (0, "")
    assert (result["done"], result["mode"]) == (wanted, NAMES[mode])
    assert result["because"]
    iteration, kept = tensors("run")
    assert iteration == wanted
    saved = np.load("run.npz")
    for layer in (1, 2):
        assert np.array_equal(saved[f"layer{layer}.weight"], kept[f"layer{layer}.weight"][:, :-1])
        assert np.array_equal(saved[f"layer{layer}.bias"], kept[f"layer{layer}.weight"][:, -1])
    if ending != "interrupted":
        assert same(kept, wholes[mode, longer])
        assert 0 <= result["test_accuracy"] <= 1
        assert 0 < result["test_loss"] < 3


@pytest.mark.parametrize("mode", MODES)
def test_the_first_line_and_the_result_say_mode_and_reason(train, capsys, mode):
    train(mode, "--validate-only")
    assert cli.main(["train", "a.toml", *MODES[mode].split(), "--no-report"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"mode: {NAMES[mode]} (asked for")
    assert any(line.split(maxsplit=1) == ["mode", lines[0].removeprefix("mode: ")] for line in lines[1:])


def test_what_suits_a_network_is_said_with_the_reason(train, capsys):
    train("pipelined", "--validate-only")
    for words, mode in (("--wafers 2", "streaming (2 wafers"), ("", "pipelined (less than")):
        assert cli.main(["train", "a.toml", *words.split(), "--no-report", "--overwrite"]) == 0
        assert capsys.readouterr().out.startswith(f"mode: {mode}")


@pytest.mark.parametrize("mode", MODES)
def test_a_run_takes_the_place_of_one_that_ended_and_of_no_other(train, mode):
    assert train(mode)[0] == train(mode, "--set seed=1")[0] == 0
    assert len(found("runs/a/checkpoints")) == 1
    assert train(mode, "--overwrite --set checkpoint.interval=2")[0] == 0
    status, _, err = train(mode)
    assert status == 2
    assert "has checkpoints of another run" in err
    assert [load(path)[0] for path in found("runs/a/checkpoints")] == [2, 4]


@pytest.mark.parametrize("mode", ["one wafer", "two wafers", "numpy"])
@pytest.mark.parametrize("schedule", ["pruning", "dense-finetune", "rigl", "set"])
def test_the_density_of_the_result_is_that_of_the_trained_network(train, mode, schedule):
    words = f"--set sparsity.density=0.5 --set sparsity.schedule={schedule} --save-weights w.npz "
    words += {
        "pruning": "--set sparsity.rounds=1 --set sparsity.fraction=0.5",
        "rigl": "--set sparsity.every=2 --set sparsity.until=1.0",
        "set": "--set sparsity.every=2 --set sparsity.until=1.0",
    }.get(schedule, "")
    status, result, _ = train(mode, words)
    assert status == 0
    file = np.load("w.npz")
    masks = [file[f"layer{k}.mask"] for k in (1, 2)]
    there = sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks)
    assert result["density"] == there == {"pruning": 0.25, "dense-finetune": 1.0}.get(schedule, 0.5)
    log = [json.loads(line) for line in Path("runs/a/log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert log[-1]["density"] == there
    assert log[0]["density"] == 0.5


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ending", ["end", "interrupted"])
def test_weights_are_kept_without_the_library_of_checkpoints(train, monkeypatch, mode, ending):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    if ending == "interrupted":
        interrupted(monkeypatch)
    monkeypatch.setattr("harness.cli.train_run.find_spec", lambda _: None)
    status, result, err = train(mode)
    signal.signal(signal.SIGINT, before)
    assert status == (130 if ending == "interrupted" else 0)
    assert "no checkpoint without safetensors" in err
    assert "runs/a/weights.npz" in result["files"]
    assert np.load("runs/a/weights.npz")["updates"] == result["done"]
    assert not found("runs/a/checkpoints")


# --- options ----------------------------------------------------------------------------------------------------------

WAFERS, ALL = ("one wafer", "two wafers", "pipelined"), tuple(MODES)


def events(kinds):
    """Return a check that a run file has events of some kinds only."""

    def check(result):
        with Trace.open("runs/a/run.h5") as trace:
            return 0 < trace.committed == len(trace.events(kinds=kinds))

    return check


ONE_LAYER = "network.layers=[{outputs=4}]"
OPTIONS = {
    "--wafers": ("--wafers 1", ALL, lambda r: r["wafers"] == 1),
    "--preset": ("--preset wse3", ALL, lambda r: r["preset"] == "wse3"),
    "--set": ("--set train.iterations=2", ALL, lambda r: r["iterations"] == r["done"] == 2),
    "--mode": ("--mode auto", WAFERS, lambda r: "asked" not in r["because"]),
    "--compiled": ("--compiled made/pipeline.json", ("pipelined",), lambda r: r["done"] == 4),
    "--iterations": ("--iterations 2", ALL, lambda r: (r["done"], r["iterations"]) == (2, 4)),
    "--resume": ("--resume earlier --out here", ALL, lambda r: (r["from_iteration"], r["done"]) == (2, 4)),
    "--out": ("--out there", ALL, lambda r: all(name.startswith("there/") for name in r["files"])),
    "--overwrite": ("--overwrite --out earlier", ALL, lambda r: len(found("earlier/checkpoints")) == 1),
    "--compare": ("--compare 4", WAFERS, lambda r: r["bit_exact"] and r["compared_iterations"] == 4),
    "--report": ("--report", ALL, lambda r: Path("runs/a/loss.png").is_file()),
    "--format": ("--report --format svg", ALL, lambda r: Path("runs/a/loss.svg").is_file()),
    "--save-weights": ("--save-weights w.npz", ALL, lambda r: np.load("w.npz")["updates"] == [4]),
    "--reference": ("", ALL, lambda r: True),
    "--validate-only": ("--validate-only", ALL, lambda r: r["valid"] and not Path("runs").exists()),
    "--compile-only": ("--compile-only", WAFERS, lambda r: r["compiled"] and not Path("runs/a/log.jsonl").exists()),
    "--trace": ("--trace events --trace-kinds task_start", WAFERS, events(("task_start",))),
    "--trace-kinds": ("--trace events --trace-kinds task_end", WAFERS, events(("task_end",))),
    "--trace-window": ("--trace-window 5000", WAFERS, lambda r: Path("runs/a/run.h5").is_file()),
    "--trace-cycles": (
        "--trace events --trace-cycles 10:4000 --trace-kinds task_start",
        WAFERS,
        events(("task_start",)),
    ),
    "--trace-region": ("--trace events --trace-region 0,0,2,1 --trace-kinds wait", WAFERS, events(("wait",))),
    "--trace-colors": ("--trace full --trace-colors 0,1,2 --trace-kinds take", WAFERS, events(("take",))),
    "--backend": (
        f"--backend reference --iterations 2 --set {ONE_LAYER} --set data.batch=4 --set data.source=few.npz "
        "--set mesh.width=4",
        WAFERS,
        lambda r: r["done"] == 2,
    ),
    "--progress": ("--progress", ALL, lambda r: r["done"] == 4),
    "--json": ("", ALL, lambda r: r["done"] == 4),
    "--debug": ("--debug", ALL, lambda r: r["done"] == 4),
}
"""By option: words that use it, modes that have it, and what shows that it was used; refused in all other modes."""
ELSEWHERE = {"--save-model", "--save-onnx", "--help", "--ranks", "--project"}
"""Tested in `test_train_mpi.py`, `test_project.py`, `test_onnx_file.py`, `test_nodes.py` and below."""


def test_every_option_is_tried():
    top = argparse.ArgumentParser()
    common = argparse.ArgumentParser(add_help=False)
    for word in ("--json", "--progress", "--debug"):
        common.add_argument(word, action="store_true")
    parser = cmd_train.add_parser(top.add_subparsers(), common)
    words = {word for action in parser._actions for word in action.option_strings if word.startswith("--")}
    assert {word for word in words if not word.startswith("--no-")} == set(OPTIONS) | ELSEWHERE


@pytest.mark.parametrize(("option", "mode"), turns(OPTIONS, lambda option: OPTIONS[option][1]))
def test_every_option_is_used_or_refused(train, capsys, mode, option):
    words, modes, used = OPTIONS[option]
    if "made/" in words:
        assert train("pipelined", "--compile-only --out made")[0] == 0
    if "earlier" in words:
        every = "checkpoint.interval=2" if option == "--overwrite" else "train.evaluate=0"
        assert train(mode, f"--iterations 2 --out earlier --set {every}")[0] == 0
    status, result, err = train(mode, words, name="" if option == "--resume" else "a.toml")
    if mode in modes:
        assert status == 0, err
        assert used(result)
    else:
        assert (status, result) == (2, None)
        assert option in err or "--trace" in err
        assert not Path("runs").exists()


@pytest.mark.parametrize("words", ["--reference", "--compare 2", "--save-weights w.npz", "--iterations 2", "--report"])
def test_what_trains_is_refused_beside_a_projection(train, words):
    status, result, err = train("one wafer", f"--project 1 {words}")
    assert (status, result) == (2, None)
    assert "--project does not train" in err


# --- keys -------------------------------------------------------------------------------------------------------------

SPARSE = "sparsity.density=0.5"
LAYERS = 'network.layers=[{outputs=%s,activation="%s",norm=%s%s},{outputs=4}]'
GPT = (
    "network.layers=[] network.preset=gpt network.hidden_size=4 network.num_hidden_layers=1 data.sequence=2 "
    "network.num_attention_heads=2 network.vocab_size=4"
)
LLAMA = GPT.replace("=gpt", "=llama")
RESNET = (
    "network.layers=[] network.image=[1,3,4] network.preset=resnet network.hidden_sizes=[2] network.depths=[1] "
    "network.vocab_size=4"
)
NODES = (
    'data.sequence=2 network.layers=[] network.nodes=[{name="a",op="linear",outputs=4%s},'
    '{name="b",op="attention",inputs=["a","a","a"]%s},{name="c",op="%s",inputs=["%s","a"]},'
    '{name="%s",op="linear",outputs=%s}]'
)


def nodes(linear="", attention="", op="add", takes="b", last="d", outputs=4):
    """Return the words of a network of nodes."""
    return NODES % (linear, attention, op, takes, last, outputs)


SHARED = (
    nodes("", ",heads=2,kv_heads=1")
    .replace('inputs=["a","a","a"]', 'inputs=["a","k","k"]')
    .replace('{name="b"', '{name="k",op="linear",outputs=2,inputs=["a"]},{name="b"')
)


TURNED = (
    nodes()
    .replace('inputs=["a","a","a"]', 'inputs=["r","r","a"]')
    .replace('{name="b"', '{name="r",op="rotary",inputs=["a"],heads=1},{name="b"')
)


def images(more="", groups=1):
    """Return the words of a network of images."""
    return (
        "network.layers=[] network.image=[1,3,4] "
        f'network.nodes=[{{name="a",op="convolution",outputs=2,kernel=2{more}}},'
        f'{{name="b",op="groupnorm",groups={groups}}},{{name="c",op="linear",outputs=4}}]'
    )


def resampled(sides="[3,5]", method="linear"):
    """Return the words of a network whose images get other sides."""
    return images().replace('"groupnorm",groups=1', f'"resample",method="{method}",sides={sides}')


def picked(rows, columns):
    """Return the words of a network that picks rows and columns of its images."""
    return resampled("[]", "pick").replace("sides=[]", f"rows={rows},columns={columns}")


def striped(rows):
    """Return the words of a network of images that lie on so many rows of PEs."""
    words = images().replace("[1,3,4]", "[1,4,3]").replace("kernel=2", "kernel=3,padding=1")
    return f"{words} mesh.image_rows={rows}"


def batches(more=""):
    """Return the words of a network that normalises over batches."""
    return images().replace('"groupnorm",groups=1', f'"batchnorm"{more}')


def scaled(more=""):
    """Return the words of a network that multiplies channels, or pixels of them."""
    return images().replace('"groupnorm",groups=1', f'"scale"{more}')


def larger(more):
    """Return the words of a network that enlarges images."""
    op = f'{{name="b",op="transposed",outputs=2,kernel=2,stride=2,output_padding={more}}}'
    return images().replace('{name="b",op="groupnorm",groups=1}', op)


def multiplied(op, more):
    """Return the words of a network whose features are multiplied."""
    return (
        nodes()
        .replace('{name="b"', f'{{name="m",op="{op}",inputs=["a"]{more}}},{{name="b"')[::1]
        .replace('inputs=["b","a"]', 'inputs=["b","m"]')
    )


NORMED = (
    'network.layers=[] network.nodes=[{name="a",op="linear",outputs=4},{name="b",op="batchnorm"},'
    '{name="c",op="linear",outputs=4}]'
)
TWICE = nodes(takes="e").replace('{name="c"', '{name="e",op="linear",outputs=4},{name="c"')
PLACES = f"{nodes()} network.inputs=14 network.places=[2,0,1]"
PATCHES = f"{nodes()} network.inputs=6 network.patches=[1,3,4,3,2,0,0,0] data.labels=first"
TOKENS = f"{nodes()} network.inputs=3 data.source=tokens.npz"
STATIC, GROWS = "train.loss_scale.initial=8.0", "train.loss_scale.growth_interval=1"
KEYS = {
    "network.inputs": "network.inputs=13",
    "network.layers.outputs": LAYERS % (7, "relu", "true", ""),
    "network.layers.activation": LAYERS % (6, "gelu", "true", ""),
    "network.layers.norm": LAYERS % (6, "relu", "false", ""),
    "network.layers.bias": LAYERS % (6, "relu", "true", ",bias=false"),
    "network.layers.density": LAYERS % (6, "relu", "true", ",density=0.5"),
    "network.preset": ("", GPT),
    "network.vocab_size": (GPT, GPT.replace("vocab_size=4", "vocab_size=5")),
    "network.hidden_size": (GPT, GPT.replace("hidden_size=4", "hidden_size=6")),
    "network.num_hidden_layers": (GPT, GPT.replace("layers=1", "layers=2")),
    "network.num_attention_heads": (GPT, GPT.replace("heads=2", "heads=1")),
    "network.num_key_value_heads": (LLAMA, f"{LLAMA} network.num_key_value_heads=1"),
    "network.intermediate_size": (GPT, f"{GPT} network.intermediate_size=6"),
    "network.embedding_size": (RESNET, f"{RESNET} network.embedding_size=3"),
    "network.hidden_sizes": (RESNET, RESNET.replace("hidden_sizes=[2]", "hidden_sizes=[3]")),
    "network.depths": (RESNET, RESNET.replace("depths=[1]", "depths=[2]")),
    "network.nodes.name": (nodes(), nodes(last="e")),
    "network.nodes.op": (
        nodes(),
        nodes().replace('{name="b",op="attention",inputs=["a","a","a"]}', '{name="b",op="relu"}'),
    ),
    "network.nodes.inputs": (nodes(), nodes().replace('inputs=["b","a"]', 'inputs=["b","b"]')),
    "network.nodes.outputs": (nodes(), nodes(outputs=5)),
    "network.nodes.bias": (nodes(), nodes(",bias=false")),
    "network.nodes.density": (nodes(), nodes(",density=0.5")),
    "network.nodes.deviation": (nodes(), nodes(",deviation=0.5")),
    "network.nodes.heads": (nodes(), nodes("", ",heads=2")),
    "network.nodes.kv_heads": (nodes("", ",heads=2"), SHARED),
    "network.nodes.base": (TURNED, TURNED.replace(",heads=1", ",heads=1,base=100")),
    "network.nodes.turned": (TURNED, TURNED.replace(",heads=1", ",heads=1,turned=2")),
    "network.nodes.causal": (nodes(), nodes("", ",causal=false")),
    "network.nodes.scaled": (nodes(), nodes("", ",scaled=9")),
    "network.nodes.window": (nodes(), nodes("", ",window=1")),
    "network.nodes.slopes": (nodes(), nodes("", ",slopes=[1.0]")),
    "network.nodes.biases": (nodes(), nodes("", ",biases=[0,1]")),
    "network.nodes.fixed_outputs": (nodes(), nodes(",fixed_outputs=[1]")),
    "network.nodes.fixed": (nodes(), nodes(",fixed=true")),
    "network.nodes.ratio": (multiplied("dropout", ",ratio=0.5"), multiplied("dropout", ",ratio=0.75")),
    "network.nodes.together": (multiplied("dropout", ",ratio=0.5"), multiplied("dropout", ",ratio=0.5,together=4")),
    "network.nodes.factor": (multiplied("multiple", ""), multiplied("multiple", ",factor=0.5")),
    "network.nodes.method": (resampled(), resampled(method="corners")),
    "network.nodes.sides": (resampled(), resampled("[5,3]")),
    "network.nodes.image": (NORMED, NORMED.replace("outputs=4}", "outputs=4,image=[2,1,2]}", 1)),
    "network.nodes.shares": (TWICE, TWICE.replace('{name="d"', '{name="d",shares="e"')),
    "network.nodes.rows": (picked("[0,1]", "[0]"), picked("[1,0]", "[0]")),
    "network.nodes.columns": (picked("[0]", "[0,-1]"), picked("[0]", "[2,0]")),
    "network.nodes.shared": (multiplied("scale", ""), multiplied("scale", ",shared=2")),
    "network.nodes.each": (scaled(), scaled(",each=true")),
    "network.image": (images(), images().replace("[1,3,4]", "[3,2,2]")),
    "network.epsilon": "network.epsilon=0.01",
    "network.tied": (nodes(), f"{nodes()} network.tied=d"),
    "network.places": (PLACES, PLACES.replace("[2,0,1]", "[2,1,-1]")),
    "network.fixed_places": (PLACES, f"{PLACES} network.fixed_places=[0]"),
    "network.token_scale": (TOKENS, f"{TOKENS} network.token_scale=2.0"),
    "network.place_scales": (PLACES, f"{PLACES} network.place_scales=[2.0]"),
    "network.patches": (PATCHES, PATCHES.replace("[1,3,4,3,2,", "[1,2,6,2,3,")),
    "network.padding": (TOKENS, f"{TOKENS} network.padding=1"),
    "network.hidden": (TOKENS, f"{TOKENS} network.hidden=[0,1]"),
    "network.ending": (TOKENS, f"{TOKENS} network.ending=[1]"),
    "network.absent": (TOKENS, f"{TOKENS} network.absent=[1]"),
    "network.masked": (TOKENS, f"{TOKENS} network.masked=[1,0]"),
    "network.dropout": "network.dropout=ignore",
    "network.nodes.kernel": (images(), images().replace("kernel=2", "kernel=1")),
    "network.nodes.kernel_width": (images(), images(",kernel_width=1")),
    "network.nodes.stride": (images(), images(",stride=2")),
    "network.nodes.padding": (images(), images(",padding=1")),
    "network.nodes.groups": (images(), images(groups=2)),
    "network.nodes.stride_width": (images(), images(",stride_width=2")),
    "network.nodes.dilation": (images(), images(",dilation=2")),
    "network.nodes.dilation_width": (images(), images(",dilation_width=2")),
    "network.nodes.padding_width": (images(), images(",padding_width=1")),
    "network.nodes.padding_below": (images(), images(",padding_below=1")),
    "network.nodes.padding_right": (images(), images(",padding_right=1")),
    "network.nodes.output_padding": (larger(0), larger(1)),
    "network.nodes.output_padding_width": (larger(0), larger("0,output_padding_width=1")),
    "network.nodes.momentum": (batches(), batches(",momentum=0.5")),
    "network.nodes.epsilon": (batches(), batches(",epsilon=0.5")),
    "data.sequence": (GPT, GPT.replace("sequence=2", "sequence=4")),
    "network.file": "network.file=m.onnx",
    "network.weights": "network.weights=first.npz",
    "seed": "seed=1",
    "wafers": "wafers=2",
    "data.source": "data.source=other.npz",
    "data.labels": (nodes(), f"{nodes()} network.inputs=6 data.labels=first"),
    "data.scale": "data.scale=2.0",
    "data.held_out": "data.source=table.csv data.held_out=0.4",
    "data.batch": "data.batch=16",
    "data.seed": "data.seed=1",
    "mesh.width": "mesh.width=7",
    "mesh.height": "mesh.height=4",
    "mesh.head_columns": (f"{GPT} mesh.width=4", f"{GPT} mesh.width=4 mesh.head_columns=2"),
    "mesh.image_rows": (striped(1), striped(2)),
    "mesh.column_groups": ("mesh.width=4", "mesh.width=4 mesh.column_groups=2"),
    "train.iterations": "train.iterations=2",
    "train.epochs": "train.epochs=1",
    "train.evaluate": "train.evaluate=2",
    "train.patience": "train.patience=1",
    "train.gradient_norms": "train.gradient_norms=true",
    "train.gradient_histograms": "train.gradient_histograms=true",
    "train.accumulate": "train.accumulate=2",
    "train.loss": ("", "data.source=aims.npz train.loss=mse"),
    "train.label_smoothing": "train.label_smoothing=0.1",
    "train.recompute": (GPT, f"{GPT} train.recompute=true"),
    "train.clip": "train.clip=0.1",
    "train.dtype": "train.dtype=cb16",
    "train.mixed_precision": "train.mixed_precision=false",
    "train.optimizer.name": "train.optimizer.name=sgd",
    "train.optimizer.lr": "train.optimizer.lr=0.02",
    "train.optimizer.weight_decay": "train.optimizer.weight_decay=0.1",
    "train.optimizer.momentum": "train.optimizer.name=sgd train.optimizer.momentum=0.5",
    "train.optimizer.beta1": "train.optimizer.beta1=0.5",
    "train.optimizer.beta2": "train.optimizer.beta2=0.5",
    "train.optimizer.eps": "train.optimizer.eps=0.1",
    "train.optimizer.decays": "train.optimizer.weight_decay=0.1 train.optimizer.decays=weights",
    "train.schedule.kind": "train.schedule.kind=cosine",
    "train.schedule.rise": "train.schedule.kind=one-cycle train.schedule.rise=0.5",
    "train.schedule.warmup": "train.schedule.warmup=2",
    "train.schedule.floor": "train.schedule.kind=cosine train.schedule.floor=0.5",
    "train.schedule.every": "train.schedule.kind=step train.schedule.every=2",
    "train.schedule.factor": "train.schedule.kind=step train.schedule.every=2 train.schedule.factor=0.9",
    "train.loss_scale.initial": STATIC,
    "train.loss_scale.dynamic": (
        f"{STATIC} train.loss_scale.growth_interval=1",
        f"{STATIC} train.loss_scale.dynamic=false",
    ),
    "train.loss_scale.growth_interval": f"{STATIC} train.loss_scale.growth_interval=2",
    "sparsity.density": SPARSE,
    "sparsity.seed": f"{SPARSE} sparsity.seed=1",
    "sparsity.masks": "sparsity.masks=masks.npz",
    "sparsity.schedule": f"{SPARSE} sparsity.schedule=dense-finetune",
    "sparsity.rounds": (SPARSE, f"{SPARSE} sparsity.schedule=pruning sparsity.fraction=0.5 sparsity.rounds=1"),
    "sparsity.fraction": f"{SPARSE} sparsity.schedule=rigl sparsity.every=1 sparsity.fraction=0.9",
    "sparsity.every": f"{SPARSE} sparsity.schedule=rigl sparsity.every=1",
    "sparsity.until": f"{SPARSE} sparsity.schedule=set sparsity.every=1 sparsity.until=0.5",
    "sparsity.densities": (SPARSE, f"{SPARSE} sparsity.schedule=pruning sparsity.densities=[0.25]"),
    "sparsity.switch": f"{SPARSE} sparsity.schedule=dense-finetune sparsity.switch=0.25",
    "checkpoint.directory": "checkpoint.directory=elsewhere",
    "checkpoint.interval": "checkpoint.interval=2",
    "checkpoint.best": "checkpoint.best=true",
    "checkpoint.keep": "checkpoint.interval=2 checkpoint.keep=1",
    "memx.files": "memx.dram.bytes=100 memx.files=flash",
    "memx.dense_rows": "memx.dense_rows=steps",
    "memx.keep_output": "memx.keep_output=true",
    "swarm": "swarm.link.rate=1_000_000_000",
    "csconfig.use_cbfloat16": "csconfig.use_cbfloat16=true",
    "mode": "mode=pipelined",
    "pipeline.updates": "pipeline.updates=drained",
    "pipeline.minibatch": "pipeline.minibatch=4",
    "pipeline.run": "pipeline.run=2",
    "machine": "machine.ramp.in=3",
}
"""By key: words of which the last one sets it, and the others are set in what it is compared with; or both."""
FILES = {
    "train.gradient_norms",
    "train.gradient_histograms",
    "train.evaluate",
    "train.patience",
    "checkpoint.best",
    "checkpoint.directory",
    "checkpoint.interval",
    "checkpoint.keep",
}
"""Keys of files that a run leaves, not of numbers."""
REFUSED = {
    "network.absent",
    "network.dropout",
    "network.ending",
    "network.file",
    "network.hidden",
    "network.inputs",
    "network.masked",
    "train.epochs",
    "train.mixed_precision",
}
"""What no mode does: a file beside layers, samples of another size, epochs beside iterations, another precision."""
SAID = {"train.dtype", "csconfig.use_cbfloat16"}
"""Each of the two alone has no effect, and a warning says so in every mode."""
CHOOSES = {"mode"}
"""What the choice of a trainer here overrules."""
NUMPY_WITHOUT = {
    *(
        "wafers",
        "mesh.width",
        "mesh.height",
        "mesh.head_columns",
        "mesh.image_rows",
        "mesh.column_groups",
        "train.accumulate",
        "train.recompute",
        "memx.files",
        "memx.dense_rows",
        "memx.keep_output",
        "swarm",
        "machine",
    ),
    *("pipeline.updates", "pipeline.minibatch", "pipeline.run"),
}
"""What decides nothing without wafers, as the reason in the first line of a run by numpy says."""
SAME_NUMBERS = {"memx.files"}
"""What changes where numbers lie on the host, and none of them; `test_trainer.py` has it."""


def test_every_key_is_tried():
    assert set(keys(tables.TrainFile)) == set(KEYS)


class Course:
    """A training, which goes on as far as somebody looks at it."""

    def __init__(self, mode, words):
        self.given = given = parse_train(LAID if mode == "pipelined" else TEXT, "a.toml", words)
        if mode == "numpy":
            self.run = PlainTrainer(given)
        else:
            choose(given, mode)
            self.run = PipelinedTrainer(given) if mode == "pipelined" else Trainer(given)
        self.seen = []

    def at(self, k):
        """Return the facts of iteration k; behind the last one all that the training leaves behind in numbers."""
        while len(self.seen) <= k:
            if len(self.seen) < self.run.iterations:
                step = self.run.step()
                self.seen.append((step.loss, step.cycles, step.words, step.scale, step.density))
            else:
                self.seen.append({name: value.tobytes() for name, value in self.run.tensors().items()})
        return self.seen[k]

    def differs(self, other):
        """Whether anything is another than in another training; it goes on until something is."""
        return any(self.at(k) != other.at(k) for k in range(max(self.run.iterations, other.run.iterations) + 1))


def write_data(names):
    """Write those files of samples, masks and weights whose names are given."""
    other = dict(np.load("blobs.npz"))
    if "tokens.npz" in names:
        ids = np.random.default_rng(1).integers(0, 3, (4, 40, 2))
        np.savez("tokens.npz", **dict(zip(("x_train", "y_train", "x_test", "y_test"), ids, strict=True)))
    if "aims.npz" in names:
        aims = {name: np.eye(4)[y] - 0.5 if name.startswith("y") else y for name, y in other.items()}
        np.savez("aims.npz", **aims)
    if "other.npz" in names:
        np.savez("other.npz", **{name: values[::-1] for name, values in other.items()})
    if "table.csv" in names:
        np.savetxt("table.csv", np.column_stack([other["x_train"], other["y_train"]]), delimiter=",")
    if "masks.npz" in names:
        mask = np.ones((6, 12), bool)
        mask[:, ::3] = False
        np.savez("masks.npz", **{"layer1.mask": mask, "layer2.mask": np.ones((4, 6), bool)})
    if "first.npz" in names:
        np.savez("first.npz", **{"layer1.bias": np.ones(6, np.float32), "layer2.bias": np.ones(4, np.float32)})


@pytest.fixture(scope="module")
def known():
    """What was observed already, by mode and words."""
    return {}


@pytest.mark.parametrize("mode", ["streaming", "pipelined", "numpy"])
@pytest.mark.parametrize("key", [key for key in KEYS if key not in FILES])
def test_every_key_is_used_or_refused_or_said(folder, known, mode, key):
    given = KEYS[key] if isinstance(KEYS[key], tuple) else (KEYS[key].rpartition(" ")[0], KEYS[key])
    base, words = given[0].split(), given[1].split()
    write_data({word.partition("=")[2] for word in (*base, *words)})
    try:
        course = Course(mode, words)
        course.at(0)
    except (ConfigError, UnsupportedError) as error:
        refused = mode == "pipelined" and (SUPPORT[key].what == REFUSES or words[0] == "network.layers=[]")
        assert key in REFUSED or refused or words[0] == SPARSE
        assert str(error.where or "")
        return
    assert key not in REFUSED
    if (mode, *base) not in known:
        known[mode, *base] = Course(mode, base)
    changed = course.differs(known[mode, *base])
    said = [text for text in unused(course.given, mode) if key in text]
    if key in SAID:
        assert any(key in text for text in course.given.warnings)
    elif mode == "numpy":
        assert changed == (key not in NUMPY_WITHOUT | CHOOSES | SAME_NUMBERS)
    elif said:
        assert not changed
    else:
        assert changed or key in CHOOSES | SAME_NUMBERS or (mode == "pipelined" and SUPPORT[key].what == REFUSES)


@pytest.mark.parametrize("mode", MODES)
def test_norms_of_gradients_are_in_the_log(train, mode):
    words = f"--set train.gradient_norms=true --set train.clip=0.5 --set {SPARSE}"
    if mode == "pipelined":
        status, _, said = train(mode, "--set train.gradient_norms=true")
        assert status == 2
        assert "gradients never leave the wafer" in said
        return
    assert train(mode, words)[0] == 0
    rows = [json.loads(line) for line in Path("runs/a/log.jsonl").read_text(encoding="utf-8").splitlines()]
    used = [row for row in rows if not row["skipped"]]
    assert used
    assert max(row["norm"] for row in used) > 0.5  # norms are those before clipping
    for row in used:
        norms = row["gradient_norms"]
        assert set(norms) == {"layer1.weight", "layer1.norm", "layer2.weight"}
        assert min(norms.values()) > 0
        assert math.hypot(*norms.values()) == pytest.approx(row["norm"], rel=1e-12)
    assert all("gradient_norms" not in row for row in rows if row["skipped"])


@pytest.mark.parametrize("mode", MODES)
def test_histograms_of_gradients_are_in_the_log(train, mode):
    """Every weight that exists is counted once; norms lie between what the binades allow."""
    asked = "--set train.gradient_histograms=true"
    if mode == "pipelined":
        status, _, said = train(mode, asked)
        assert status == 2
        assert "gradients never leave the wafer" in said
        return
    assert train(mode, f"{asked} --set train.gradient_norms=true --set {SPARSE}")[0] == 0
    rows = [json.loads(line) for line in Path("runs/a/log.jsonl").read_text(encoding="utf-8").splitlines()]
    used = [row for row in rows if not row["skipped"]]
    assert used
    sizes = {name: sum(counts.values()) for name, counts in used[0]["gradient_histograms"].items()}
    assert set(sizes) == {"layer1.weight", "layer1.norm", "layer2.weight"}
    for row in used:
        for name, counts in row["gradient_histograms"].items():
            assert sum(counts.values()) == sizes[name]
            squares = [(count, 4.0 ** int(binade)) for binade, count in counts.items() if binade != "zero"]
            low, high = (sum(count * more * square for count, square in squares) for more in (1, 4))
            assert low <= row["gradient_norms"][name] ** 2 * (1 + 1e-9)
            assert row["gradient_norms"][name] ** 2 < high
            assert [*counts][1:] == sorted([*counts][1:], key=int)
    assert all("gradient_histograms" not in row for row in rows if row["skipped"])


@pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")
def test_cb16_leaves_fewer_gradients_subnormal_than_f16():
    """CB16 has 62 binades of normal numbers where f16 has 30 (requirement FMT-04)."""
    normal = {}
    for name, exponents in (("f16", 5), ("cb16", 6)):
        every = Arithmetic.of(machine(), name).decode(np.arange(1 << 15, dtype=np.uint16)).astype(np.float64)
        binades, numbers = np.unique(np.frexp(every[np.isfinite(every) & (every > 0)])[1] - 1, return_counts=True)
        full = binades[numbers == numbers.max()].tolist()
        normal[name] = min(full)
        assert len(full) == 2**exponents - 2
    words = "train digits --reference --iterations 60 --no-report --out runs/a --set train.gradient_histograms=true"
    assert cli.main(words.split()) == 0
    share = dict.fromkeys(normal, 0)
    for line in Path("runs/a/log.jsonl").read_text(encoding="utf-8").splitlines():
        for counts in json.loads(line).get("gradient_histograms", {}).values():
            for name, least in normal.items():
                share[name] += sum(n for binade, n in counts.items() if binade != "zero" and int(binade) < least)
    assert share["f16"] > 100
    assert share["cb16"] < 0.01 * share["f16"]


@pytest.mark.parametrize("mode", MODES)
def test_training_ends_when_tests_get_no_better_and_the_best_weights_are_kept(train, mode):
    words = "--set train.iterations=16 --set train.evaluate=2 --set train.optimizer.lr=0.8 --set checkpoint.best=true"
    assert train(mode, words)[0] == 0

    def tests():
        """Return (updates before it, loss) of every test."""
        rows = [json.loads(line) for line in Path("runs/a/log.jsonl").read_text(encoding="utf-8").splitlines()]
        made = np.cumsum([not row["skipped"] for row in rows])
        return [(made[k], row["test_loss"]) for k, row in enumerate(rows) if "test_loss" in row]

    every = tests()
    assert len(every) == 8
    assert np.load("runs/a/best.npz")["updates"][0] == min(every, key=lambda test: test[1])[0]
    least = np.minimum.accumulate([loss for _, loss in every])
    rising = next((k for k in range(1, len(every)) if every[k][1] > least[k]), None)
    assert rising in range(1, 7), every
    assert train(mode, f"{words} --set train.patience=1 --overwrite")[0] == 0
    assert tests() == every[: rising + 1]


@pytest.mark.parametrize("mode", MODES)
def test_keys_of_files_are_used(train, mode):
    words = "--set train.evaluate=2 --set checkpoint.interval=2 --set checkpoint.directory=elsewhere"
    assert train(mode, words)[0] == 0
    assert [load(path)[0] for path in found("elsewhere")] == [2, 4]
    log = [json.loads(line) for line in Path("runs/a/log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["iteration"] for row in log if "test_loss" in row and "test_accuracy" in row] == [2, 4]
    assert train(mode, "--out other --set checkpoint.interval=2 --set checkpoint.keep=1")[0] == 0
    assert [load(path)[0] for path in found("other/checkpoints")] == [4]
