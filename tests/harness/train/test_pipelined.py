"""Training layer by layer on one wafer: choice of the mode, compiling, training, checkpoints across both modes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.table import CHOICES
from fabric.networks.pipelined.kernels import layers_of, matched
from harness.train import mode
from harness.train.config import parse_train
from harness.train.pipelined import PipelinedTrainer
from harness.train.trainer import Trainer
from tests.examples import few
from tests.harness.train.blobs import last, lines, run
from traces.trace import Trace
from wse_core.errors import CheckpointError, ConfigError, UnsupportedError, WseError

pytestmark = pytest.mark.usefixtures("folder", "short_search")

TEXT = """
{top}
[network]
inputs = 12
layers = [{{outputs = 10, activation = "relu"{layer}}}, {{outputs = 4}}]
[data]
source = "blobs.npz"
batch = 8
[mesh]
width = {width}
height = {height}
[pipeline]
{pipeline}
[train]
iterations = 12
{train}
[checkpoint]
interval = 4
"""


def text(top="", width=10, height=4, pipeline="", train="", layer=""):
    """Return a configuration."""
    return TEXT.format(top=top, width=width, height=height, pipeline=pipeline, train=train, layer=layer)


def write(**values):
    """Write a configuration into the working directory."""
    Path("a.toml").write_text(text(**values), encoding="utf-8")


# --- choice of the mode -----------------------------------------------------------------------------------------------

WIDE = """
{top}
[network]
inputs = {width}
layers = [{{outputs = {width}}}, {{outputs = 10}}]
[data]
batch = 8
[mesh]
width = 750
height = 990
[train]
iterations = 1
optimizer = {{name = "sgd"}}
"""


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 3), (4, 1), (9, 1), (40, 1), (1, 40)])
def test_a_mesh_without_room_for_what_leads_around_layers_is_refused(width, height):
    with pytest.raises(ConfigError, match=r"mesh\.(width|height)"):
        mode.choose(parse_train(text(width=width, height=height).replace("batch.npz", "")), "pipelined")


def test_less_than_1e9_parameters_that_fit_are_pipelined():
    """Requirement LP-01: 0.9e9 pipelined, 1.1e9 streaming; both can be overridden where they can be at all."""
    texts = [WIDE.format(top="", width=width) for width in (30_000, 33_200)]
    small, large = parse_train(texts[0]), parse_train(texts[1].replace("batch = 8", "batch = 990"))
    assert mode.choose(small).mode == "pipelined"
    found = mode.choose(large)
    assert (found.mode, found.reason) == ("streaming", "1,102,605,210 parameters, 1e+09 or more")
    with pytest.raises(ConfigError, match=r"cannot all lie on one wafer: 1,102,605,210 parameters"):
        mode.choose(large, "pipelined")
    streamed = parse_train(WIDE.format(top="", width=30_000).replace("batch = 8", "batch = 990"))
    assert mode.choose(streamed, "streaming") == mode.ModeChoice("streaming", "asked for")
    with pytest.raises(ConfigError, match="does not divide over 1 wafer of 990 rows"):
        mode.choose(small, "streaming")
    with pytest.raises(ConfigError, match=r"990 rows .* weights are streamed: 1,102,605,210 parameters"):
        mode.choose(parse_train(texts[1]))


def test_a_model_too_large_for_its_pes_streams_or_is_refused():
    """Requirement LP-01: the reason is said."""
    config = parse_train(text(width=4, height=2).replace("batch.npz", ""))
    found = mode.choose(config)
    assert found.mode == "streaming"
    assert "columns of PEs" in found.reason
    with pytest.raises(WseError, match="columns of PEs"):
        mode.choose(config, "pipelined")
    tight = parse_train(WIDE.format(top="", width=30_000).replace("width = 750", "width = 60"))
    with pytest.raises(WseError, match=r"layer|columns"):
        mode.choose(tight, "pipelined")


def test_several_wafers_stream():
    """Requirement LP-18: a single system; N > 1 is refused."""
    config = parse_train(text("wafers = 2"))
    found = mode.choose(config)
    assert (found.mode, found.reason) == ("streaming", "2 wafers: all layers lie on one")
    with pytest.raises(UnsupportedError, match="2 wafers: all layers lie on one"):
        mode.choose(config, "pipelined")
    with pytest.raises(UnsupportedError, match="2 wafers"):
        PipelinedTrainer(config)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"pipeline": "minibatch = 3"}, r"pipeline\.minibatch: a batch of 8 is no whole number of minibatches of 3"),
        ({"pipeline": "run = 3"}, r"checkpoint\.interval: after 4 iterations the pipeline is not empty"),
        ({"pipeline": "run = 4", "train": "evaluate = 6"}, r"train\.evaluate: after 6 iterations"),
        ({"train": "loss_scale = {dynamic = true}"}, r"train\.loss_scale\.dynamic: .*follows overflows"),
    ],
)
def test_what_does_not_go_together_is_refused(values, told):
    """Requirement LP-06 among others: a batch has equal parts."""
    with pytest.raises(WseError, match=told):
        mode.choose(parse_train(text(**values), "a.toml"), "pipelined")


# --- compiling --------------------------------------------------------------------------------------------------------


def test_validation_lists_kernels_and_maps_nothing(capsys, monkeypatch):
    """Requirement LP-03: each matched kernel is a layer; operations that no kernel does are listed."""
    write()
    monkeypatch.setattr("fabric.networks.pipelined.pipeline.Pipeline.__init__", None)
    monkeypatch.setattr("swarm.system.System.__init__", None)
    status, result, _ = run(capsys, "a.toml --validate-only --mode pipelined")
    assert status == 0
    assert result["kernels"] == [
        "fully connected: layer1.linear layer1.relu",
        "fully connected: layer2.linear",
        "softmax cross-entropy: loss",
    ]
    assert result["unsupported"] == []
    nodes = (
        Node("a", "linear", ("input",), {"inputs": 3, "outputs": 4, "bias": 1}),
        Node("b", "batchnorm", ("a",), {"channels": 4, "height": 1, "width": 1}),
        Node("c", "relu", ("a",)),
        Node("d", "norm", ("c",)),
        Node("e", "cross_entropy", ("a",)),
    )
    network = Network(nodes, 3)
    assert matched(network).unsupported == [
        "b: no kernel does batchnorm",
        "e: takes a, not only what d gives",
        "a: 3 operations take its result",
        "d: norm does not follow a kernel that could do it",
    ]
    with pytest.raises(UnsupportedError, match="no kernel does batchnorm"):
        layers_of(network)
    with pytest.raises(ConfigError, match="comes later or never"):
        Network((Node("a", "relu", ("b",)), nodes[-1]), 3)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", CHOICES)
def test_a_network_and_its_layers_are_one(activation, bias, norm):
    network = Network.dense((5, 6, 7, 3), activation, "cb16", bias, norm)
    assert Network.of(layers_of(network), "cb16") == network


def test_a_compiled_network_runs_without_mapping(capsys, monkeypatch):
    """Requirements LP-02 and LP-04: two jobs; the digest of a second compilation is the same."""
    write()
    digests = []
    for name in ("one", "two"):
        status, result, _ = run(capsys, f"a.toml --mode pipelined --compile-only --out {name}")
        assert status == 0
        digests.append(result["digest"])
    assert digests[0] == digests[1]
    assert Path("one/pipeline.json").read_bytes() == Path("two/pipeline.json").read_bytes()
    assert run(capsys, "a.toml --mode pipelined --out direct --no-report")[0] == 0
    monkeypatch.setattr("harness.train.pipelined.placement", None)
    monkeypatch.setattr("fabric.networks.pipelined.pipeline.colored", None)
    status, _, err = run(capsys, "a.toml --mode pipelined --compiled one/pipeline.json --out compiled --no-report")
    assert (status, err) == (0, "")
    assert last("direct") == last("compiled")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda path: path.unlink(), "cannot be read: No such file"),
        (lambda path: path.write_text("{"), "is no compiled network"),
        (lambda path: path.write_text('{"version": 1}'), "is no compiled network"),
        (
            lambda path: path.write_text(path.read_text().replace('"version": 1', '"version": 9')),
            "has version 9, not 1",
        ),
        (
            lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | {"config": "x"})),
            "compiled for another configuration",
        ),
        (
            lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | {"digest": "x"})),
            "programs are not those that were compiled",
        ),
    ],
)
def test_what_was_not_compiled_is_not_run(capsys, change, told):
    """Requirement LP-02: no run without a finished compilation of the same network."""
    write()
    assert run(capsys, "a.toml --mode pipelined --compile-only --out one")[0] == 0
    change(Path("one/pipeline.json"))
    status, _, err = run(capsys, "a.toml --mode pipelined --compiled one/pipeline.json")
    assert status != 0
    assert told in err
    assert "Traceback" not in err


# --- training ---------------------------------------------------------------------------------------------------------


DRAINED, RUNS = 'updates = "drained"\nminibatch = 2', "run = 2\nminibatch = 4"


@pytest.mark.parametrize(
    ("optimizer", "pipeline"),
    few([("adam", ""), ("sgd", RUNS), ("adam", DRAINED), ("sgd", ""), ("adam", RUNS), ("sgd", DRAINED)], 3),
)
def test_a_run_is_bit_exact_and_says_how_the_pipeline_went(capsys, pipeline, optimizer):
    layer = ", norm = true" if optimizer == "adam" else ""
    write(pipeline=pipeline, layer=layer, train=f'optimizer = {{name = "{optimizer}", lr = 0.05}}')
    status, result, err = run(capsys, "a.toml --compare 8 --no-report")
    assert (status, err) == (0, "")
    assert (result["mode"], result["bit_exact"]) == ("pipelined", True)
    assert "parameters, and they fit" in result["because"]
    log = lines("runs/a")
    assert [row["iteration"] for row in log] == list(range(1, 13))
    assert result["cycles"] - result["test_cycles"] == sum(row["cycles"] for row in log)
    assert log[-1]["loss"] < log[0]["loss"]
    facts = result["pipeline"]
    assert facts["slowest"] in facts["utilisation"]
    assert set(facts["utilisation"]) == {"layer 1", "layer 2", "loss"}
    assert all(0 < share < 1 for share in facts["utilisation"].values())
    assert facts["fill_cycles"] > 0
    assert facts["steady_cycles_per_minibatch"] > 0
    with Trace.open("runs/a/run.h5") as trace:
        assert trace.files[0].result("pipeline_slowest") == facts["slowest"]


@pytest.mark.parametrize("pipeline", few(["", 'updates = "drained"\nminibatch = 4'], 1))
def test_twelve_are_four_and_eight(capsys, pipeline):
    """Bit by bit: weights, optimizer state, data, cycles, log; the second half knows the mode from the checkpoint."""
    write(pipeline=pipeline)
    assert run(capsys, "a.toml --mode pipelined --out whole --no-report")[0] == 0
    assert run(capsys, "a.toml --mode pipelined --out parts --iterations 4 --no-report")[0] == 0
    status, result, _ = run(capsys, "--resume parts --no-report")
    assert (status, result["from_iteration"], result["mode"]) == (0, 4, "pipelined")
    assert last("whole")[0] == last("parts")[0]
    assert [row["loss"] for row in lines("whole")] == [row["loss"] for row in lines("parts")]


def test_minibatches_under_way_do_not_stop(capsys):
    write(pipeline="run = 4")
    status, _, err = run(capsys, "a.toml --mode pipelined --iterations 6")
    assert status != 0
    assert "--iterations: after 6 iterations the pipeline is not empty: its runs have 4" in err


def test_an_interrupted_run_ends_with_an_empty_pipeline(capsys, monkeypatch):
    """Ctrl-C while a run of four iterations simulates: all four are told of, and the checkpoint is theirs."""
    write(pipeline="run = 4")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a run in the background ignores
    assert run(capsys, "a.toml --mode pipelined --out whole --no-report")[0] == 0
    simulate = PipelinedTrainer._run

    def interrupted(self):
        steps = simulate(self)
        signal.raise_signal(signal.SIGINT)
        return steps

    monkeypatch.setattr(PipelinedTrainer, "_run", interrupted)
    assert run(capsys, "a.toml --mode pipelined --out parts --no-report")[0] == 130
    assert [row["iteration"] for row in lines("parts")] == [1, 2, 3, 4]
    monkeypatch.setattr(PipelinedTrainer, "_run", simulate)
    signal.signal(signal.SIGINT, before)
    assert run(capsys, "--resume parts --no-report")[0] == 0
    assert last("whole")[0] == last("parts")[0]


@pytest.mark.parametrize("way", ["streaming pipelined", "pipelined streaming"])
def test_a_checkpoint_of_one_mode_goes_on_in_the_other(capsys, way):
    first, then = way.split()
    write(height=4, train='optimizer = {name = "adam", lr = 0.01}')
    assert run(capsys, f"a.toml --mode {first} --out parts --iterations 4 --no-report")[0] == 0
    status, result, err = run(capsys, f"a.toml --mode {then} --resume parts --out parts --no-report")
    assert err == ""
    assert (status, result["mode"], result["from_iteration"]) == (0, then, 4)
    log = lines("parts")
    assert [row["iteration"] for row in log] == list(range(1, 13))
    assert log[-1]["loss"] < log[0]["loss"]
    state = last("parts")[1]
    assert (state["iteration"], state["updates"]) == (12, 12)


def test_both_modes_train_the_same_bits_where_the_order_is_the_same():
    """One tile per layer, one PE: iterations in turns on either, through checkpoints, are those of one."""
    extra = 'optimizer = {name = "sgd", lr = 0.0625, momentum = 0.5}\nloss_scale = {initial = 1.0, dynamic = false}'
    streamed = parse_train(text("mode = 'streaming'", 1, 1, "", extra))
    drained = parse_train(text("mode = 'pipelined'", 6, 2, 'updates = "drained"\nminibatch = 4', extra))
    alone, parts = Trainer(streamed), [PipelinedTrainer(drained), Trainer(streamed)]
    assert [tile.columns * tile.rows for tile in parts[0].compile().pipeline.tiles] == [1, 1]
    for number in range(8):
        alone.step()
        mine, other = parts if number % 4 < 2 else parts[::-1]
        mine.step()
        other.restore(*mine.state())
        for a, b in zip(alone.parameters, mine.parameters, strict=True):
            assert np.array_equal(a.dense.view(np.uint32), b.dense.view(np.uint32))
            assert all(np.array_equal(a.state[slot], b.state[slot]) for slot in a.state)


def test_a_checkpoint_that_does_not_fit_changes_nothing():
    trainer = PipelinedTrainer(parse_train(text()))
    tensors, state = trainer.state()
    before = {name: values.copy() for name, values in tensors.items()}
    for damaged in (
        {name: values for name, values in tensors.items() if name != "layer1.weight"},
        tensors | {"layer1.weight": tensors["layer1.weight"][:1]},
        tensors | {"more": np.zeros(1)},
    ):
        with pytest.raises(CheckpointError, match="tensor"):
            trainer.restore(damaged, state)
    assert all(np.array_equal(values, before[name]) for name, values in trainer.state()[0].items())


def test_weights_that_overflow_end_the_run(capsys):
    write(train='optimizer = {name = "sgd", lr = 1e30}')
    status, _, err = run(capsys, "a.toml --mode pipelined --no-report")
    assert status != 0
    assert "weights are not finite any more" in err
