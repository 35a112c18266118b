"""`stencil`: values bit for bit and within bounds, counts by closed forms, cycles by its closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.registry import KERNELS
from fabric.kernels.stencil import points7
from tests.examples import examples
from wse_core.errors import ConfigError
from wse_core.params import machine


@examples(14)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 40),
    st.integers(1, 4),
    st.sampled_from(["f16", "f32"]),
    st.sampled_from(["normal", "ones", "special"]),
)
def test_any_size(width, height, nz, steps, dtype, data):
    result = KERNELS["stencil"].run(machine(), width=width, height=height, nz=nz, steps=steps, dtype=dtype, data=data)
    assert result["bit_exact"]
    assert result["verified"]
    assert result["macs"] == result["expected_macs"]
    assert result["wavelet_hops"] == result["expected_hops"]
    assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.1)


@pytest.mark.parametrize("nz", [1, 10, 1000])
def test_cycles_follow_every_pe(nz):
    """Also where a step is hardly more than its tasks, and far more than what the datapath does in it."""
    result = KERNELS["stencil"].run(machine(), width=4, height=4, nz=nz, steps=5)
    assert result["verified"]
    assert abs(result["cycle_error"]) <= 0.03


def test_steps_are_counted_once_pes_follow_one_another_evenly():
    short, long = (points7.expected_cycles(machine(), 3, 4, 20, "f32", steps) for steps in (100, 1000))
    measured = [
        KERNELS["stencil"].run(machine(), width=3, height=4, nz=20, steps=steps)["cycles"] for steps in (50, 60)
    ]
    assert (long - short) / 900 == pytest.approx((measured[1] - measured[0]) / 10, rel=0.03)


def test_ones_by_hand():
    u = KERNELS["stencil"].run(machine(), width=3, height=3, nz=3, steps=1, data="ones")["arrays"]["u"]
    values = u.view(np.float32)
    assert values[1, 1, 1] == 1.0
    assert values[0, 0, 0] == 0.25 + 3 * 0.125


def test_too_long_columns_are_refused():
    with pytest.raises(ConfigError, match="nz="):
        KERNELS["stencil"].run(machine(), width=3, height=3, nz=3000)
