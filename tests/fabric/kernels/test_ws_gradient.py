"""The weight gradient at the places of a mask: bits, counts, order of what comes back, time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import control
from fabric.kernels.streamed.gradient import TASKS, mask_streams
from fabric.kernels.streamed.placement import Placement
from memx.pattern import Pattern
from tests.examples import examples
from tests.fabric.kernels import run
from wse_core.errors import ConfigError


@examples(25)
@given(
    inputs=st.integers(1, 16),
    outputs=st.integers(1, 12),
    columns=st.integers(1, 5),
    groups=st.integers(1, 3),
    height=st.integers(1, 4),
    more=st.integers(0, 9),
    density=st.floats(0, 1),
    dtype=st.sampled_from(["f16", "cb16"]),
    data=st.sampled_from(["normal", "ones", "special"]),
    seed=st.integers(0, 99),
)
def test_gradients_are_bit_exact(columns, groups, height, more, **values):
    tokens = groups * height + more
    result = run("ws_gradient", width=columns * groups, groups=groups, height=height, tokens=tokens, **values)
    assert result["multiplications"] == result["asked"] * tokens
    assert result["bytes_back"] == 4 * result["asked"]


def test_cycles_follow_the_places_that_are_asked_for():
    cycles = {}
    for density in (1.0, 0.5, 0.1):
        result = run("ws_gradient", inputs=1200, outputs=10, tokens=32, width=2, height=2, density=density)
        assert abs(result["cycle_error"]) < 0.1
        cycles[density] = result["cycles"]
    for density in (0.5, 0.1):
        assert cycles[density] / cycles[1.0] == pytest.approx(density, rel=0.1)


def test_cycles_when_columns_wait_for_each_other():
    """Few places, spread unevenly; rows of few tokens wait in queues, rows of many make all columns wait."""
    for density in (0.2, 1.0):
        for tokens in (1, 4, 32):
            result = run("ws_gradient", inputs=64, outputs=64, width=8, height=8, tokens=8 * tokens, density=density)
            assert abs(result["cycle_error"]) < 0.06


def test_sums_are_f32():
    """4,096 products 1 x 1 would stop at 2,048 in an FP16 accumulator and at 1,024 in a CB16 one."""
    for dtype in ("f16", "cb16"):
        result = run(
            "ws_gradient", inputs=1, outputs=1, tokens=4096, width=1, height=4, density=1.0, data="ones", dtype=dtype
        )
        assert result["arrays"]["gradients"].view(np.float32).tolist() == [4096.0]
        assert result["additions"] == 3


@given(seed=st.integers(0, 99), columns=st.integers(1, 4))
def test_every_column_is_asked_for_its_features(seed, columns):
    pattern = Pattern.random((6, 9), 0.4, np.random.default_rng(seed))
    places = [Placement(n, 4, columns, 1) for n in (9, 6)]
    found = np.zeros((6, 9), bool)
    for column, (payload, is_control) in enumerate(mask_streams(pattern.indptr, pattern.indices, *places)):
        assert is_control.all()
        row, feature = -1, 0
        for decoded in map(control.decode, payload.tolist()):
            if decoded.task == TASKS["ask"]:
                feature += decoded.data
                found[row, feature] = True
                continue
            row, feature = row + 1, int(places[0].feature_starts[column])
            owner = places[1].owner(row)
            assert decoded.task == TASKS["send" if owner == column else "from_west" if owner < column else "from_east"]
        assert row == 5
    assert np.array_equal(found, pattern.mask())


def test_too_many_groups_for_the_colors():
    with pytest.raises(ConfigError, match="at most 8 columns a group"):
        run("ws_gradient", width=20, groups=2, tokens=40, inputs=20)


@pytest.mark.parametrize("overrides", [{}, {"router.hop": 7}, {"router.depth": 5, "ramp.in": 6}])
@pytest.mark.parametrize("tokens", [8, 19, 40])
def test_cycles_of_rows_that_wait_for_a_late_column(tokens, overrides):
    """Few entries, unevenly over the columns: who is late keeps others waiting once queues are full, not before."""
    values = {"inputs": 30, "outputs": 46, "width": 4, "height": 1, "density": 0.18, "tokens": tokens}
    result = run("ws_gradient", overrides=overrides, **values)
    assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.03)


@pytest.mark.parametrize("height", [2, 3])
@pytest.mark.parametrize("width", [2, 4, 6])
def test_cycles_of_short_gradients_in_groups(width, height):
    """A few sums: the southern row has more to load, and so need not wait for those from the north."""
    result = run("ws_gradient", inputs=1, outputs=1, width=width, height=height, groups=2, tokens=2 * height, density=1)
    assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.05)
