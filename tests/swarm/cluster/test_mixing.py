"""Attention and sums of models that no wafer holds, against what programs take where they do the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.plan.layers import find_model, layers_of
from swarm.cluster import graph_costs, layer_costs, mixing
from swarm.cluster.graph_costs import GraphShape
from swarm.cluster.mixing import _network, attention_cost, sum_cost
from swarm.cluster.shapes import AttentionShape, Mesh
from tests.examples import few
from wse_core.params import machine


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "sequence", "tokens", "columns", "height", "causal", "most"),
    few(
        [
            (4, 4, 10, 24, 4, 1, 6, True, 0.02),
            (2, 2, 12, 24, 4, 3, 6, True, 0.03),
            (1, 1, 32, 16, 4, 8, 4, True, 0.08),
            (3, 3, 10, 32, 8, 1, 8, False, 0.02),
            (4, 2, 12, 12, 12, 1, 2, True, 0.02),
        ],
        3,
    ),
)
def test_commands_take_what_they_take_in_programs(
    heads, kv_heads, size, sequence, tokens, columns, height, causal, most
):
    """Of features, rows and columns that no priced program has; every word is counted."""
    mesh = Mesh(machine(), columns * kv_heads, height)
    network = replace(_network(kv_heads, heads, size, sequence, causal), head_columns=columns)
    wanted = {one.phase: one.cost for one in graph_costs.phases(GraphShape(network), tokens * height, mesh)}
    found = attention_cost(AttentionShape(heads, kv_heads, size, sequence, causal), tokens, mesh)
    for phase, cycles in found.cycles.items():
        assert cycles == pytest.approx(wanted[phase].busy, rel=most), phase
        assert found.words[phase] == wanted[phase].words
    assert not found.beyond


def test_sums_of_few_features_stand_for_those_of_many():
    mesh = Mesh(machine(), 2, 3)
    network = _network(2, 2, 30, 4, True)
    wanted = {one.phase: one.cost.busy for one in graph_costs.phases(GraphShape(network), 12, mesh)}
    assert sum_cost(60, 4, mesh) == pytest.approx(wanted["add"], rel=0.15)


def test_what_no_program_does_is_said():
    """Sequences that do not divide over rows, scores that do not fit a PE."""
    mesh = Mesh(machine(), 757, 996)
    assert not attention_cost(AttentionShape(12, 12, 64, 1024), 8, mesh).beyond
    odd = attention_cost(AttentionShape(757, 757, 2, 128), 9, mesh)
    assert odd.beyond == "sequences that do not divide over rows of PEs"
    large = attention_cost(AttentionShape(757, 757, 2, 8192), 8, mesh)
    assert large.beyond == "524,288 bytes of scores in a PE"


def test_nothing_of_a_model_is_left_out():
    """Every block has its attention and two sums, each way; products are what they are without."""
    model = find_model("gpt2-small")
    layers, mesh = layers_of(model), Mesh(machine())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_costs, "FOLLOWED", 48)
        patch.setattr(mixing, "BESIDE", 1)
        layer_costs._followed.cache_clear()
        found = mixing.phases(layers, 8 * model.sequence, mesh)
        products = layer_costs.phases(layers, 8 * model.sequence, mesh)
    layer_costs._followed.cache_clear()
    attention_cost.cache_clear()
    counts = {name: sum(one.phase == name for one in found) for name in {one.phase for one in found}}
    assert counts["attend"] == counts["attend back"] == model.layers
    assert counts["add"] == counts["sum"] == 2 * model.layers
    assert counts["normalise"] == counts["norm"] == 2 * model.layers + 1
    assert [one for one in found if one in products] == list(products)
    order = [one.phase for one in found if one.layer == 3]
    assert order == ["attend", "forward", "normalise", "add", "sum", "norm", "backward", "attend back", "gradient"]
