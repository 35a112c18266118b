"""GPT-style models: layers, what fits, and how throughput grows with systems under published constants."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import pairwise

import pytest

from harness import figures
from harness.kit import files
from harness.plan.approaches import service_bytes
from harness.plan.layers import GPT, LADDER, find_model, layers_of, saving, sequences, tokens_of
from harness.plan.models import TransformerSizes
from memx.tiers import Tier, Tiers
from swarm.cluster import layer_costs, mixing
from swarm.cluster.cluster import Cluster
from swarm.cluster.shapes import Mesh
from swarm.cluster.timeline import iteration
from tests.examples import few
from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS, machine


@pytest.fixture(scope="module", autouse=True)
def _few_rows():
    """Follow fewer rows of a matrix, price fewer columns of a head than users: ratios of systems are asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_costs, "FOLLOWED", 48)
        patch.setattr(mixing, "BESIDE", 1)
        patch.setattr(mixing, "SIZES", (1, 2))
        layer_costs._followed.cache_clear()
        yield
    layer_costs._followed.cache_clear()
    mixing.attention_cost.cache_clear()


@pytest.mark.parametrize("name", [*GPT, "gpt2-xl", "gpt-3", "llama3-8b"])
def test_layers_hold_the_published_parameters(name):
    """What is streamed, a shared table once, within 4% of the published number; the rest are biases and norms."""
    model = find_model(name)
    layers = layers_of(model)
    matrices, tokens = sum(layer.dense_weights for layer in layers if not layer.lookup), tokens_of(model)
    assert matrices == model.core + tokens * model.width
    assert [layer.inputs for layer in layers if layer.lookup] == [tokens + model.sequence]
    table = tokens * model.width * model.untied
    assert matrices + table == pytest.approx(model.parameters, rel=0.04)
    for below, above in pairwise(layers):
        assert below.outputs == above.inputs or below.name.endswith(("qkv", "up"))


def test_sparse_blocks():
    model = find_model("gpt2-small")
    layers = layers_of(model, 0.25)
    assert [layer.density for layer in layers] == [1.0] + [0.25] * 48 + [1.0]
    assert sum(layer.weights for layer in layers[1:-1]) == model.core // 4


def test_savings_of_the_paper():
    """Figure 9: operations of a sparse GPT-3 1.3B, and 40% of them at 75% zeros (section 6.2.1)."""
    printed = {0.2: 1.2, 0.36: 1.4, 0.5: 1.7, 0.6: 1.9, 0.7: 2.3, 0.799: 2.8, 0.838: 3.0, 0.865: 3.2, 0.891: 3.5}
    assert {sparsity: round(saving(sparsity), 1) for sparsity in printed} == printed
    assert 1 / saving(0.75) == pytest.approx(0.4)
    with pytest.raises(ConfigError, match="leaves nothing"):
        saving(1.2)


def test_sequences_fit_the_wafer():
    """GPT-3: 4.83 GB a sequence, so eight fit 40 GB."""
    assert sequences(find_model("gpt-3")) == 8
    assert sequences(find_model("gpt2-small"), 8) == 8
    with pytest.raises(ConfigError, match="does not fit: .* bytes"):
        sequences(TransformerSizes("long", 96, 12288, 65536, 96))


@pytest.mark.parametrize("name", few([LADDER[0], LADDER[-1], *LADDER[1:-1]], 3))
def test_throughput_of_64_systems(name):
    """At least 0.95 of 64 times one system, at the same share of each, with published constants.

    At most six blocks of a model are followed: more of the same hide the way to the systems better, not worse.
    """
    model = find_model(name)
    model = replace(model, layers=min(model.layers, 6))
    layers, tokens = layers_of(model), sequences(model, 8) * model.sequence
    one, many = (iteration(layers, tokens * n, Cluster(n)) for n in (1, 64))
    ratio = (64 * tokens / many.seconds) / (64 * (tokens / one.seconds))
    assert 0.95 <= ratio <= 1.0 + 1e-9
    assert many.idle == 0
    assert (many.bytes_out, many.bytes_back) == (one.bytes_out, one.bytes_back)
    assert one.bottleneck == "compute"


def test_throughput_falls_off_when_the_round_trip_is_long():
    """The ratio is a result: a tree with a thousand times the latency does not reach it for a small model."""
    layers = layers_of(find_model("gpt2-small"))
    slow = Cluster(64)
    slow = Cluster(64, links=type(slow.links)(latency=5e-3))
    seconds = [iteration(layers, 8192 * cluster.systems, cluster).seconds for cluster in (slow.of(1), slow)]
    assert seconds[0] / seconds[1] < 0.9


# --- capacity of the memory service -----------------------------------------------------------------------------------


def test_which_models_fit_the_memory_service():
    """Twenty bytes a parameter with Adam: GPT-3 fits 4 TB, a model of 530 billion parameters does not, but 2.4 PB."""
    gpt3, large = find_model("gpt-3"), find_model("megatron-turing")
    least = Tiers(behind=(Tier("flash", PARAMETERS["capacity.least"].value, 1),))
    small = Cluster(mesh=Mesh(machine()), tiers=least)
    small.check(layers_of(gpt3))
    needed = 20 * sum(layer.dense_weights + layer.norms for layer in layers_of(large))
    with pytest.raises(ConfigError, match=rf"need {needed:,} bytes.*4,000,000,000,000"):
        small.check(layers_of(large))
    Cluster().check(layers_of(large))
    assert needed == pytest.approx(service_bytes(large), rel=0.03)


# --- figure -----------------------------------------------------------------------------------------------------------


def test_figure(tmp_path):
    spec = figures.load("throughput")
    result = spec.function(machine(), 4, None, models=("gpt2-small",), systems=(1, 8, 16, 64))
    files.write_table(tmp_path / "throughput.csv", result.rows)
    files.write_picture(tmp_path / "throughput.png", result.draw)
    assert (tmp_path / "throughput.png").read_bytes().startswith(b"\x89PNG")
    with open(tmp_path / "throughput.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(result.rows) == 4 + 3
    share = [row for row in rows if row["kind"] == "fixed share"]
    assert all(float(row["efficiency"]) > 0.95 for row in share)
    batch = [float(row["efficiency"]) for row in rows if row["kind"] == "fixed batch"]
    assert batch == sorted(batch, reverse=True)
    assert batch[-1] < 0.5
    assert all(abs(error) < 0.1 for name, error in result.notes.items() if name.startswith("cost of"))
    assert result.notes["least efficiency, fixed share, up to 64 systems"] > 0.95


def test_models_without_matrices_are_refused():
    from harness.plan.models import TensorSize

    with pytest.raises(ConfigError, match="nothing of its matrices"):
        layers_of(TransformerSizes("image", 1, 1, 1, tensors=[TensorSize("image", 100)]))
