"""Groups of columns (layout B) in ``wse train``: wafers against numpy, what they save, projections, refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.train.config import parse_train
from harness.train.project import groupings, project
from harness.train.trainer import Trainer
from tests.harness.train.as_numpy import trained_as_in_numpy
from wse_core.errors import ConfigError, UnsupportedError

pytestmark = pytest.mark.usefixtures("folder")
PAGE = Path(__file__).parents[3] / "docs/weight-streaming.md"

TEXT = """
mode = "streaming"
[network]
inputs = 64
layers = [{outputs = 12, activation = "relu", norm = true}, {outputs = 10}]
[data]
source = "digits"
batch = 24
[mesh]
width = 6
height = 2
column_groups = 3
[train]
iterations = 3
optimizer = {name = "adam", lr = 0.02}
loss_scale = {initial = 256.0}
"""
GPT = [
    *("network.layers=[]", "network.preset=gpt", "network.hidden_size=8", "network.num_hidden_layers=1"),
    *("network.num_attention_heads=2", "network.vocab_size=10", "network.inputs=16", "data.sequence=4"),
]
IMAGES = (
    "network.layers=[]",
    "network.image=[1,8,8]",
    'network.nodes=[{name="a",op="convolution",outputs=4,kernel=3,padding=1},{name="b",op="batchnorm"},'
    '{name="c",op="dropout",ratio=0.3},{name="d",op="linear",outputs=10}]',
    "mesh.image_rows=2",
)


def run(words, backend=None):
    """Train to the end; return (trainer, steps)."""
    trainer = Trainer(parse_train(TEXT, "a.toml", tuple(words)), backend)
    return trainer, [trainer.step() for _ in range(trainer.iterations)]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("mesh.width=3", "mesh.height=1", "train.dtype=cb16", "csconfig.use_cbfloat16=true", "memx.dense_rows=steps"),
        ("wafers=2", "data.batch=48", "train.clip=0.5", "train.accumulate=2", "sparsity.density=0.4"),
        ("sparsity.density=0.5", "sparsity.schedule=rigl", "sparsity.every=1", "machine.link.rate=1000000000"),
        ("memx.keep_output=true", "mesh.column_groups=2", "machine.link.buffer=4096"),
        (*GPT, "data.labels=first", "train.recompute=true"),
        (*IMAGES, "wafers=2"),
    ],
    ids=lambda words: " ".join(words) or "plain",
)
def test_groups_train_as_in_numpy(words):
    """Losses, weights, statistics and what a test says, bit for bit."""
    trained_as_in_numpy(run, words)


def test_both_machines_take_the_same_cycles():
    words = ("train.iterations=1", "data.batch=2", "mesh.width=4", "mesh.height=1", "mesh.column_groups=2")
    assert [step.cycles for step in run(words)[1]] == [step.cycles for step in run(words, "reference")[1]]


def test_groups_save_time_where_columns_have_few_features():
    """What a row costs without weights rules: the table of docs/weight-streaming.md, and what wafers take."""
    words = (
        *("mesh.width=16", "data.batch=128", "train.iterations=2", "train.loss_scale={}"),
        'network.layers=[{outputs=64,activation="relu"},{outputs=10}]',
    )
    config = parse_train(TEXT, "a.toml", (*words, "mesh.column_groups=1"))
    found = {one["column_groups"]: one["cycles"] for one in groupings(config)}
    page = PAGE.read_text(encoding="utf-8")
    assert f"| groups of columns | {' | '.join(map(str, found))} |" in page
    assert f"| cycles of an iteration | {' | '.join(f'{cycles:,.0f}' for cycles in found.values())} |" in page
    best = min(found, key=lambda count: found[count])
    assert 1 < best < 16
    runs = [run((*words, f"mesh.column_groups={count}")) for count in (1, best)]
    assert runs[1][0].utilisation() > runs[0][0].utilisation()  # rows where groups meet do not count
    taken = [steps[-1].cycles for _, steps in runs]
    assert taken[1] < 0.6 * taken[0]
    assert [found[1], found[best]] == pytest.approx(taken, rel=0.02)


def test_a_projection_knows_groups():
    """A batch of two on six rows of PEs: the layer-level model is a fiftieth off."""
    found = project(parse_train(TEXT, "a.toml", ()), [1])
    (row,) = (row for row in found["rows"] if row["kind"] == "fixed share")
    assert row["measured_cycles"]
    assert abs(row["error"]) < 0.02
    assert found["checked"][0]["mesh"] == [6, 2]  # of all groups
    assert [one["column_groups"] for one in found["groupings"]] == [1, 2, 3, 6]


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        (["data.batch=20"], ConfigError, "a batch of 20 does not divide over 1 wafer of 2 rows of PEs in 3 groups"),
        (["mesh.column_groups=4"], ConfigError, "6 columns of PEs do not divide into 4 groups. Try: 3 or 6."),
        (["mode=pipelined"], UnsupportedError, "3 groups of columns: each layer has a rectangle of its own"),
        (["mesh.height=995"], ConfigError, "995 rows of PEs and 2 in which 3 groups of columns meet exceed"),
    ],
)
def test_what_groups_cannot_do_is_refused(words, kind, says):
    with pytest.raises(kind, match=re.escape(says)):
        config = parse_train(TEXT, "a.toml", words)
        from harness.train.mode import choose

        choose(config)


def test_columns_of_a_group_without_features_are_told():
    """Features lie over the columns of a group, not over all of them."""
    assert not parse_train(TEXT, "a.toml", ("mesh.width=192",)).warnings
    (said,) = parse_train(TEXT, "a.toml", ("mesh.width=195",)).warnings
    assert said.startswith("mesh.width is 195, 65 in each of 3 groups: no layer has more than 64 features")


def test_sequences_lie_in_one_group():
    words = ("data.labels=first", "data.batch=24", "mesh.height=1", "mesh.width=12", "mesh.column_groups=4")
    config = parse_train(TEXT, "a.toml", (*GPT, *words))
    with pytest.raises(ConfigError, match="6 samples of a group of columns are no whole sequences of 4"):
        config.check_memory()
