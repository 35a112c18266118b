"""The shift of the cache: balance, order, moves, capacity, and that the wafer moves no more than the rule says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.inference.axes import COLOR_SHIFT
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.resident import ResidentDecoder
from fabric.networks.inference.rows import Rows
from tests.examples import examples
from tests.fabric.networks.inference.small_models import random_weights
from tests.fabric.networks.inference.test_decode import SMALL
from wse_core.errors import ConfigError
from wse_core.params import machine


@examples(60)
@given(rows=st.integers(1, 13), capacity=st.integers(1, 5))
def test_shift_keeps_balance_and_order(rows, capacity):
    """Rows differ by one token at most, the upper ones have more, top to bottom is oldest to newest; full is full."""
    cache = Rows(rows, capacity)
    for t in range(rows * capacity):
        before = cache.moves
        cache.append()
        counts = [len(row.order) for row in cache.rows]
        assert max(counts) - min(counts) <= 1
        assert counts == sorted(counts, reverse=True)
        assert [token for row in cache.rows for token in row.tokens] == list(range(t + 1))
        a, b = divmod(t, rows)
        assert cache.moves - before == (rows - 1 - b if a else 0)
        assert counts == [a + (r <= b) for r in range(rows)]
    with pytest.raises(
        ConfigError, match=f"row 0 of PEs holds {capacity} tokens and cannot take token {rows * capacity}"
    ):
        cache.append()


def test_other_policies_place_as_they_say():
    """Concat fills the bottom row only, round robin takes the rows in turn; neither moves an entry."""
    concat, turns = Rows(3, 4, "concat"), Rows(3, 4, "round")
    for _ in range(4):
        concat.append()
        turns.append()
    assert [row.tokens for row in concat.rows] == [[], [], [0, 1, 2, 3]]
    assert [row.tokens for row in turns.rows] == [[0, 3], [1], [2]]
    assert concat.moves == turns.moves == 0
    with pytest.raises(ConfigError, match="row 2 of PEs"):
        concat.append()


@pytest.mark.parametrize(("width", "height"), [(3, 4), (4, 5), (1, 3)])
def test_the_wafer_moves_what_the_rule_moves(width, height):
    """Wavelets of the shift: one entry per layer, column and move, one hop each (up the ramp and over one link)."""
    tokens = 2 * height + 2
    place = DecoderPlacement(SMALL, width, height, 3)
    resident, cache = ResidentDecoder(Decode(machine(), place), random_weights(SMALL)), Rows(height, 3)
    for token in range(tokens):
        resident.step(token % 5)
        cache.append()
    links = resident.fabric.link_counts()
    grants = sum(int(links[color].sum()) for color in COLOR_SHIFT if color in links)
    assert grants == 2 * cache.moves * SMALL.layers * width * place.kv_rows
    assert cache.moves > 0
