"""Files of ``wse train``: what is accepted, what follows from it, and what each mistake is told."""

from __future__ import annotations

import dataclasses

import pytest

from harness.cli.main import main
from harness.train.config import EXAMPLES, load_train, parse_train
from harness.train.sparsity import initial_masks
from swarm.cluster import graph_costs, layer_costs
from swarm.cluster.graph_costs import GraphShape
from swarm.cluster.shapes import Mesh, shapes_of
from wse_core.errors import ConfigError, UnsupportedError

TEXT = """
wafers = 2
[network]
inputs = 64
layers = [{outputs = 32, activation = "relu"}, {outputs = 10}]
[data]
batch = 64
[mesh]
width = 4
height = 4
[train]
iterations = 20
"""


def change(old="", new="", text=TEXT):
    assert old in text
    return parse_train(text.replace(old, new, 1) if old else text + new, "a.toml")


def test_help_names_every_example(capsys):
    assert main(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split()).replace("- ", "-")
    named = text.partition("Examples by name: ")[2].partition(".")[0].replace(" (default)", "").split(", ")
    assert named == list(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_right(name):
    config = load_train(name)
    assert config.name == name
    assert config.build_network().features == config.widths
    assert not config.warnings
    for wafers in (1, 2, 4):
        assert config.override(wafers).wafers == wafers


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("iterations = 20", "iteration = 20", r"a\.toml: train\.iteration: unknown key.*iterations"),
        ("iterations = 20", "iterations = 0", r"train\.iterations: 0 is too small"),
        ("iterations = 20", "iterations = 20\nepochs = 1", r"a\.toml: train: exactly one of iterations and epochs"),
        ("iterations = 20", "", "exactly one of iterations and epochs"),
        ("inputs = 64\n", "", "required key is missing: network.inputs"),
        ("inputs = 64", "inputs = 64\ninputs = 3", r"a\.toml: not valid TOML.*line 5"),
        ('"relu"', '"swoosh"', r"network\.layers\[0\]\.activation: 'swoosh' is not a possible value"),
        ("{outputs = 10}", '{outputs = 10, activation = "gelu"}', r"network\.layers\[1\]: the last layer gives logits"),
        ("{outputs = 10}", "{outputs = 10, norm = true}", "the last layer gives logits"),
        ("{outputs = 10}", "{outputs = 1}", "at least 2 classes"),
        ("{outputs = 10}", "{outputs = 10, wide = 3}", r"network\.layers\[1\]\.wide: unknown key"),
        ('[{outputs = 32, activation = "relu"}, {outputs = 10}]', "[]", "without layers"),
        (
            "batch = 64",
            "batch = 60",
            r"data\.batch: a batch of 60 does not divide over 2 wafers of 4 rows of PEs: "
            r"60 / \(2 x 4\) leaves 4.*56 or 64",
        ),
        ("height = 4", "height = 1000", "4 x 1000 PEs exceed the"),
        ("", '[checkpoint]\ndirectory = "a\\nb"', r"checkpoint\.directory: a name with control characters"),
        ("iterations = 20", 'iterations = 20\ndtype = "f32"', "'f32' is not a possible value"),
        (
            "iterations = 20",
            'iterations = 20\noptimizer = {name = "sgd", beta1 = 0.5}',
            r"train\.optimizer: sgd has no option 'beta1'",
        ),
        ("iterations = 20", 'iterations = 20\noptimizer = {name = "adam", beta1 = 1.5}', "never forgets"),
        ("[train]", "[machine]\nclock.ghz = 0.0\n[train]", r"machine\.clock\.ghz: without a clock"),
        ("iterations = 20", "iterations = 20\nloss_scale = {initial = 3.0}", "3.0 is not a power of two"),
        ("iterations = 20", "iterations = 20\nloss_scale = {initial = 65536.0}", "not a power of two up to 32768"),
        ("iterations = 20", "iterations = 20\nschedule = {warmup = 20}", "a warm-up of 20 leaves nothing"),
        ("", "[sparsity]\ndensity = 0", "nothing is left at a density of 0"),
        ("", "[sparsity]\ndensity = 1.5", "1.5 is too large"),
        ("", "[sparsity]\nrounds = 3", r"sparsity\.rounds: the schedule static has no rounds"),
        ("", '[sparsity]\nschedule = "pruning"', "either rounds and fraction, or densities"),
        ("", '[sparsity]\nschedule = "pruning"\ndensities = []', "there is no density to prune to"),
        ("", '[sparsity]\nschedule = "pruning"\nrounds = 2', "a fraction between 0 and 1"),
        ("", '[sparsity]\nschedule = "pruning"\ndensities = [0.5, 0.6]', "densities must fall: 1.0, 0.5, 0.6"),
        ("", '[sparsity]\nschedule = "pruning"\nrounds = 30\nfraction = 0.1', "20 iterations for 31 phases"),
        ("", '[sparsity]\nschedule = "dense-finetune"\nswitch = 1', "the switch lies between"),
        ("", "[machine]\nrouter.hops = 3", r"a\.toml: machine"),
        ("wafers = 2", "wafers = 0", "wafers: 0 is too small"),
    ],
)
def test_mistakes_are_one_message(old, new, match):
    with pytest.raises(ConfigError, match=match):
        change(old, new)


def test_messages_name_the_file_once():
    with pytest.raises(ConfigError) as found:
        change("batch = 64", "batch = 60")
    assert str(found.value).count("a.toml") == 1


def test_another_number_of_wafers_is_checked_too():
    with pytest.raises(ConfigError, match="over 3 wafers"):
        change().override(3)
    with pytest.raises(ConfigError, match="--wafers"):
        change().override(0)


def test_training_is_mixed_precision_only():
    with pytest.raises(UnsupportedError, match="mixed precision only"):
        change("iterations = 20", "iterations = 20\nmixed_precision = false")


def test_cb16_needs_both_switches():
    dtype, switch = 'iterations = 20\ndtype = "cb16"\n', "[csconfig]\nuse_cbfloat16 = true\n"
    both, one, other = change("iterations = 20", dtype + switch), change("iterations = 20", dtype), change("", switch)
    assert (both.dtype, both.warnings) == ("cb16", ())
    for config, word in ((one, "use_cbfloat16 is not set"), (other, "train.dtype is f16")):
        assert config.dtype == "f16"
        assert len(config.warnings) == 1
        assert word in config.warnings[0]
    assert both.build_network().dtype == "cb16"


def test_bf16_is_for_the_host_and_without_loss_scale():
    config = change("iterations = 20", 'iterations = 20\ndtype = "bf16"')
    with pytest.raises(UnsupportedError, match="do not calculate in bf16"):
        config.build_network()
    for scale in ("{initial = 2.0}", "{dynamic = true}"):
        with pytest.raises(ConfigError):
            change("iterations = 20", f'iterations = 20\ndtype = "bf16"\nloss_scale = {scale}')


def test_epochs_are_whole_batches():
    config = change("iterations = 20", "epochs = 3")
    assert config.iterations(1438) == 3 * 22


def test_sparse_layers_that_are_wider():
    """1 / sqrt(density) times as wide; as many weights as in the plain network (WS-51)."""
    config = change("", '[sparsity]\nschedule = "sparse-ift"\ndensity = 0.25')
    assert config.widths == (64, 64, 10)
    assert config.plain_widths == (64, 32, 10)
    assert config.build_network().features == (64, 64, 10)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("", "[checkpoint]\ninterval = 5", True),
        ("iterations = 20", "iterations = 20\nevaluate = 5", True),
        ("iterations = 20", "iterations = 30", True),
        ("iterations = 20", "iterations = 20\noptimizer = {lr = 0.1}", False),
        ("wafers = 2", "wafers = 1", False),
        ("batch = 64", "batch = 128", False),
        ("", "[sparsity]\ndensity = 0.5", False),
        ("", "[machine]\nrouter.hop = 2", False),
    ],
)
def test_fingerprints_are_of_what_decides(old, new, same):
    assert (change(old, new).fingerprint() == change().fingerprint()) is same


def test_a_schedule_that_depends_on_the_length_makes_it_count():
    cosine = 'iterations = 20\nschedule = {kind = "cosine"}'
    first = change("iterations = 20", cosine)
    assert first.fingerprint() != change("iterations = 20", cosine.replace("20", "30")).fingerprint()


def test_names_without_a_file():
    with pytest.raises(ConfigError, match="did you mean digits"):
        load_train("digit")
    with pytest.raises(ConfigError, match="no such file"):
        load_train("digit.toml")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("iterations = 20", "iterations = 20\noptimizer = {lr = 0.0}", "no weight will ever change"),
        ("[mesh]\nwidth = 4", "[mesh]\nwidth = 700", "no layer has more than 64 features"),
        ("", "[sparsity]\ndensity = 1e-9", "layer 2 has a single weight"),
    ],
)
def test_what_is_seldom_meant_is_said(old, new, says):
    assert any(says in warning for warning in change(old, new).warnings)


def test_options_reach_the_optimizer():
    config = change("iterations = 20", 'iterations = 20\noptimizer = {name = "sgd", lr = 1, momentum = 0.5}')
    assert dataclasses.asdict(config.train.optimizer.build()) == {"lr": 1.0, "weight_decay": 0.0, "momentum": 0.5}


def test_numbers_of_memory_service_and_tree_have_tables_of_their_own():
    """They are the machine's numbers; the command line sets them by table, or without one."""
    config = parse_train(
        TEXT + "\n[memx]\ndram.bytes = 1000\nfiles = 'here'\n[swarm]\nlink.planes = 3\nnode.ways = 2\n", "a.toml"
    )
    machine = config.build_machine()
    assert (machine["dram.bytes"], machine["link.planes"], machine["node.ways"]) == (1000, 3, 2)
    assert config.memx.files == "here"
    words = ["swarm.link.planes=5", "update.rate=0x10", "train.optimizer.lr=0.5", "memx.dense_rows=steps", "wafers = 1"]
    config = parse_train(TEXT + "\n[swarm]\nlink.planes = 3\n", "a.toml", words)
    assert (config.build_machine()["link.planes"], config.build_machine()["update.rate"]) == (5, 16)
    assert (config.train.optimizer.lr, config.memx.dense_rows, config.wafers) == (0.5, "steps", 1)
    assert config.assignments == tuple(words)
    plain = parse_train(TEXT, "a.toml")
    moved = parse_train(TEXT, "a.toml", ["memx.files=elsewhere"])
    assert plain.fingerprint() == moved.fingerprint() != parse_train(TEXT, "a.toml", ["link.planes=5"]).fingerprint()


@pytest.mark.parametrize(
    ("table", "words", "message"),
    [
        ("[memx]\nflash.rates = 3", [], r"memx\.flash\.rates: unknown key.*did you mean flash\.rate"),
        ("[memx]\nlink.rate = 3", [], r"memx\.link\.rate: unknown key"),
        ("[memx]\nfile = 3", [], r"memx\.file: unknown key.*did you mean files"),
        ("[swarm]\nlink.planes = 0", [], r"swarm\.link\.planes: 0 links is too small"),
        ("[swarm]\nlink = 3", [], r"swarm\.link: unknown key"),
        ("swarm = 3", [], "expected a table"),
        ("[memx]\nfiles = 3", [], r"memx\.files: expected a text"),
        ("[machine]\nlink.rate = 3\n[swarm]\nlink.rate = 4", [], r"swarm\.link\.rate: is set in \[machine\] too"),
        ("", ["swarms.link.rate=3"], "--set swarms.link.rate: unknown key.*did you mean swarm"),
        ("", ["link.rate=fast"], "--set link.rate: expected a whole number"),
        ("", ["wafers.many=3"], "--set wafers.many: wafers is no table"),
        ("", ["train.epochs=1", "train.epochs=2"], "train.epochs is given twice"),
    ],
)
def test_mistakes_in_them_are_named_with_the_nearest_name(table, words, message):
    text = f"{table}\n{TEXT}" if table.startswith("swarm =") else f"{TEXT}\n{table}\n"
    with pytest.raises(ConfigError, match=message):
        parse_train(text, "a.toml", words)


@pytest.mark.parametrize(
    ("layer", "sparsity", "message"),
    [
        ("density = 0.0", "", r"layers\[1\]\.density: nothing is left"),
        (
            "density = 0.5",
            'schedule = "sparse-ift"\ndensity = 0.5',
            r"density: sparse-ift gives all layers one density",
        ),
        ("density = 0.5", 'schedule = "pruning"\nrounds = 1\nfraction = 0.5', "pruning gives all layers one density"),
        ("bias = true", 'schedule = "rigl"\nswitch = 0.5', "the schedule rigl has no switch"),
        ("bias = true", "every = 5", "the schedule static has no every"),
        ("bias = true", 'schedule = "rig"', "did you mean rigl"),
    ],
)
def test_densities_and_exchanges_that_cannot_be(layer, sparsity, message):
    text = TEXT.replace("{outputs = 10}", f"{{outputs = 10, {layer}}}")
    with pytest.raises(ConfigError, match=message):
        parse_train(f"{text}\n[sparsity]\n{sparsity}\n", "a.toml")


def test_layers_with_hardly_a_weight_are_warned_of():
    warnings = parse_train(f"{TEXT}\n[sparsity]\ndensity = 0.001\n", "a.toml").warnings
    assert warnings == (
        "layer 1 has 2 weights for 32 features: 30 of them or more see no input",
        "layer 2 has a single weight for 10 features: 9 of them or more see no input",
    )
    assert not parse_train(f"{TEXT}\n[sparsity]\ndensity = 0.1\n", "a.toml").warnings
    (warning,) = parse_train(f'{TEXT}\n[sparsity]\nschedule = "set"\n', "a.toml").warnings
    assert "no weight is exchanged" in warning


@pytest.mark.parametrize("sparsity", ["density = 0.2", 'schedule = "pruning"\nrounds = 2\nfraction = 0.5'])
def test_weights_that_have_gaps_at_some_time_are_not_kept(sparsity):
    """It is said before a run, not when its masks change."""
    text = f"{TEXT}\n[sparsity]\n{sparsity}\n"
    with pytest.raises(UnsupportedError, match=r"memx.keep_output: layer\d.weight has gaps, now or later"):
        parse_train(text, "a.toml", ["memx.keep_output=true"])
    assert parse_train(f"{TEXT}\n[sparsity]\ndensity = 0.9\n", "a.toml", ["memx.keep_output=true"]).form == "pairs"


@pytest.mark.parametrize(
    ("sparsity", "form"),
    [
        ("", "pairs"),
        ("density = 0.5", "both"),  # gradients come by rows
        ("density = 0.02", "steps"),
        ('schedule = "pruning"\nrounds = 2\nfraction = 0.5', "both"),
        ('density = 0.5\nschedule = "dense-finetune"', "pairs"),  # half a training has all weights
        ("density = 0.9", "pairs"),
    ],
)
def test_the_form_of_words_takes_the_fewest_cycles(sparsity, form):
    text = f"{TEXT}\n[sparsity]\n{sparsity}\n"
    assert parse_train(text, "a.toml").form == form
    assert parse_train(text, "a.toml", ["memx.dense_rows=steps"]).form == "steps"


@pytest.mark.parametrize("density", [1.0, 0.9, 0.5, 0.02])
@pytest.mark.parametrize("graph", [False, True])
def test_the_layer_level_takes_the_form_of_words_that_a_training_takes(density, graph):
    config = parse_train(f"{TEXT}\n[sparsity]\ndensity = {density}\n", "a.toml")
    network, masks = config.build_network(), initial_masks(config)
    costs, shape = (graph_costs, GraphShape.of(network, masks)) if graph else (layer_costs, shapes_of(network, masks))
    mesh = Mesh(config.build_machine(), config.mesh.width, config.mesh.height)
    assert costs.form_of(shape, config.at_once // config.wafers, mesh) == config.form
