"""Products of a decoder layer on a small mesh, whose tiles are those of a smaller model of the same shape."""

from __future__ import annotations

from dataclasses import replace

from harness.figures.waferllm_layer import layer, products
from harness.models.presets import PRESETS
from wse_core.params import machine

BIG = PRESETS["LLaMA3-8B"]


def test_all_weights_of_a_layer_are_multiplied():
    found = products(BIG)
    assert found["q, k, v"] == (6144, 4096)
    assert found["gate, up"] == (28672, 4096)
    assert sum(rows * columns for rows, columns in found.values()) == BIG.product_parameters


def test_products_are_right_and_as_long_as_the_closed_form_says():
    small = replace(BIG, hidden=96, heads=8, kv_heads=2, head_size=12, ffn=336)
    rows = layer(machine("wse2"), small, 8)
    assert [row["product"] for row in rows] == ["q, k, v", "O", "gate, up", "down"]
    for row in rows:
        assert row["verified"]
        assert abs(row["error"]) <= 0.01
        assert row["host_seconds"] > 0
    assert rows[0]["tile"] == "18x12"
