"""`stencil`: values bit for bit and within bounds, counts by closed forms, cycles above the datapath's bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.registry import KERNELS
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
    overhead = 30 * 6 + 7 * 13 + 40  # at most 30 loads of DSRs, 7 tasks that count and branch, and filling the pipes
    assert result["expected_cycles"] <= result["cycles"] <= 1.35 * result["expected_cycles"] + overhead * steps


def test_long_columns_come_near_the_bound():
    result = KERNELS["stencil"].run(machine(), width=4, height=4, nz=1000, steps=2)
    assert result["verified"]
    assert 0 <= result["cycle_error"] <= 0.1


def test_ones_by_hand():
    u = KERNELS["stencil"].run(machine(), width=3, height=3, nz=3, steps=1, data="ones")["arrays"]["u"]
    values = u.view(np.float32)
    assert values[1, 1, 1] == 1.0
    assert values[0, 0, 0] == 0.25 + 3 * 0.125


def test_too_long_columns_are_refused():
    with pytest.raises(ConfigError, match="nz="):
        KERNELS["stencil"].run(machine(), width=3, height=3, nz=3000)
