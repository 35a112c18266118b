"""A plan beside the layer-level model: the same machine, and the reasons for the difference in figures."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.cli import main
from harness.plan.approaches import streaming_run
from harness.plan.hardware import wafer
from harness.plan.layers import find_model
from harness.plan.levels import levels, paragraph
from harness.plan.units import DAY
from swarm.cluster import layer_costs, mixing
from wse_core.params import machine

MODEL = "gpt2-xl"


@pytest.fixture(scope="module", autouse=True)
def _few_rows():
    """Follow fewer rows, price fewer columns of a head than users, and those of one machine once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_costs, "FOLLOWED", 64)
        patch.setattr(mixing, "BESIDE", 1)
        patch.setattr(mixing, "SIZES", (1, 2))
        layer_costs._followed.cache_clear()
        yield
    layer_costs._followed.cache_clear()
    mixing.attention_cost.cache_clear()


def asked(numbers, **sizes):
    """Return what both levels say on a machine with some numbers changed, of the model or of one of other sizes."""
    given, model = machine("wse2", numbers), replace(find_model(MODEL), **sizes)
    return levels(model, given, streaming_run(model, wafer(given), 4))


def test_both_read_the_same_machine():
    """A clock twice as fast halves the model's compute and not the plan's; a slower link lengthens both."""
    small = {"layers": 1, "width": 384, "sequence": 256, "heads": 6}
    plain, fast = asked({}, **small), asked({"clock.ghz": 1.7}, **small)
    assert fast["compute"] == pytest.approx(plain["compute"] / 2)
    assert fast["planned_compute"] == plain["planned_compute"]
    slow = asked({"link.rate": 10**9}, **small)
    assert slow["planned_traffic"] == pytest.approx(100 * plain["planned_traffic"])
    assert slow["traffic"] == pytest.approx(100 * plain["traffic"])


def test_the_reasons_make_up_the_difference():
    """Full rate of cores, of PEs, and what programs do: each longer than the one before."""
    found = asked({})
    assert found["planned_compute"] < found["compute_at_full_rate_of_pes"] < found["compute"] <= found["seconds"]
    ratio = 850_000 * 8 * 1.1 / (757 * 996 * 4 * 0.85)
    assert found["compute_at_full_rate_of_pes"] / found["planned_compute"] == pytest.approx(ratio, rel=0.15)
    assert found["planned_traffic"] < found["traffic"]  # commands come on top
    text = paragraph(found)
    for key in ("seconds", "planned_seconds", "planned_compute", "compute", "traffic"):
        assert f"{found[key] / DAY:,.3g} days" in text


@pytest.mark.parametrize(("systems", "tree_nodes", "stages"), [(4, 12, 1), (16, 60, 2)])
def test_the_tree_of_a_plan(systems, tree_nodes, stages):
    """Twelve planes of nodes that are one 1:4 or two 1:2, and a latency per level."""
    given, model = machine("wse2"), replace(find_model(MODEL), layers=1)
    found = levels(model, given, streaming_run(model, wafer(given), systems))
    assert found["tree_nodes"] == tree_nodes
    assert found["tree_seconds"] == pytest.approx(stages * given["node.latency"] * 1e-9)
    assert f"Trees of {tree_nodes} nodes on 12 planes tie {systems} systems" in paragraph(found)


def test_command(capsys):
    words = ["plan", MODEL, "--strategy", "streaming", "--hardware", "cs2", "--devices", "4", "--layer-level"]
    assert not main.main([*words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["layer_level"]["planned_seconds"] == found["plans"][0]["seconds"]
    assert not main.main(words)
    assert "The layer-level model says" in capsys.readouterr().out
    assert main.main(["plan", "bert", "--strategy", "baseline", "--layer-level"]) == 2
    assert "--strategy streaming" in capsys.readouterr().err
