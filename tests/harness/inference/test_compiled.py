"""What a PE computes in program A: parts that are compiled for their sizes and follow the machine."""

from __future__ import annotations

import pytest

from harness.inference.compiled import PARTS, part_cycles
from wse_core.params import machine

WSE2 = machine("wse2")
PRODUCTS = {
    "decode": {"square": "dd", "scores": "dt", "values": "td", "wide": "df", "narrow": "fd"},
    "prefill": {"square": "dd", "scores": "dt", "values": "td", "wide": "df", "narrow": "fd"},
}
"""Depth and columns of each product, in the letters of the sizes."""


@pytest.mark.parametrize("phase", PARTS)
def test_every_part_takes_time_and_grows_with_its_sizes(phase):
    small, large = part_cycles(WSE2, phase, 4, 4, 12), part_cycles(WSE2, phase, 8, 8, 24)
    assert tuple(small) == PARTS[phase]
    assert all(0 < small[name] <= large[name] for name in small)
    grown = {"norm", "rotation", "exp", "normalise", "silu", *PRODUCTS[phase]}
    assert all(large[name] > small[name] for name in grown)


def test_a_turn_of_a_product_is_a_multiply_add_and_a_cycle():
    """Per element of the vector: n + 1 cycles for a row of n, four elements a cycle, and no more than a bank costs."""
    short, long = (part_cycles(WSE2, "decode", 8, 8, f)["narrow"] for f in (20, 40))
    assert 20 * 3 <= long - short <= 20 * 5


@pytest.mark.parametrize(
    ("number", "parts"), [("ce.branch_taken", {"square", "scores", "start"}), ("ce.divide", {"silu"})]
)
def test_parts_follow_the_numbers_of_the_machine(number, parts):
    slower = WSE2.replace({number: WSE2[number] + 5})
    before, after = part_cycles(WSE2, "prefill", 4, 4, 12), part_cycles(slower, "prefill", 4, 4, 12)
    assert all(after[name] >= before[name] for name in before)
    assert {name for name in parts if after[name] == before[name]} <= {"start"}
