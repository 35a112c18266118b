"""The 16-bit index: round trips, escapes, and the four bytes per entry that the stream costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wse_core.sparse import ESCAPE, decode_steps, encode_steps, pack, unpack

COLUMNS = st.one_of(
    st.integers(0, 20),
    st.integers(0, 400_000),
    st.sampled_from([ESCAPE - 1, ESCAPE, ESCAPE + 1, 2 * ESCAPE, 2 * ESCAPE + 1]),
)


@given(rows=st.lists(st.sets(COLUMNS, max_size=12), min_size=1, max_size=6))
def test_round_trip(rows):
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([column for row in rows for column in sorted(row)], np.int64)
    starts, steps, source = encode_steps(indptr, indices)
    back = decode_steps(starts, steps)
    assert np.array_equal(back[0], indptr)
    assert np.array_equal(back[1], indices)
    assert np.array_equal(source[source >= 0], np.arange(len(indices)))
    assert np.array_equal(source < 0, steps == ESCAPE)
    for row in range(len(rows)):  # the receiver's way: walk along the row
        column, found = 0, []
        for step in steps[starts[row] : starts[row + 1]].tolist():
            column += step
            if step != ESCAPE:
                found.append(column)
        assert found == sorted(rows[row])


@pytest.mark.parametrize(("width", "density"), [(64, 0.3), (70_000, 2e-4), (200_000, 1e-5)])
def test_entries_cost_four_bytes(width, density):
    rng = np.random.default_rng(1)
    masks = rng.random((20, width)) < density
    indptr, indices = np.concatenate([[0], np.cumsum(masks.sum(axis=1))]), np.nonzero(masks)[1]
    _, steps, source = encode_steps(indptr, indices)
    escapes = int((source < 0).sum())
    words = pack(np.zeros(len(steps)), steps)
    assert words.nbytes == 4 * (len(indices) + escapes)
    assert escapes <= len(masks) * (width // ESCAPE)
    if width < ESCAPE:
        assert escapes == 0


@given(values=st.lists(st.integers(0, 0xFFFF)), step=st.integers(0, 0xFFFF))
def test_wavelets_carry_value_and_step(values, step):
    words = pack(values, [step] * len(values))
    assert words.tolist() == [value | step << 16 for value in values]
    assert unpack(words)[0].tolist() == values
