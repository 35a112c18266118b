"""`vector`: every operation, its lanes, conflicts and results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.basic.vector import VECTOR_OPS, lanes_of
from tests.examples import examples
from tests.fabric.kernels import run
from wse_core import isa
from wse_core.errors import ConfigError
from wse_core.params import machine


def test_published_counts():
    assert run("vector", op="fmuls", n=5124)["cycles"] == 5130
    assert run("vector", op="fmuls", n=5124, conflict=True)["cycles"] == 10254


@pytest.mark.parametrize("n", [1, 2, 7, 64, 1000])
def test_fp32_products_take_n_plus_6(n):
    assert run("vector", n=n)["cycles"] == n + 6
    assert run("vector", n=n, conflict=True)["cycles"] == 2 * n + 6
    assert run("vector", op="fmacs", n=n)["cycles"] == n + 6
    assert run("vector", op="fadds", n=n)["cycles"] == (n + 1) // 2 + 6
    assert run("vector", op="faddh", n=n)["cycles"] == (n + 3) // 4 + 6
    assert run("vector", preset="wse3", op="faddh", n=n, conflict=True)["cycles"] == 2 * ((n + 7) // 8) + 6


@pytest.mark.parametrize("name", VECTOR_OPS)
@pytest.mark.parametrize("preset", ["wse2", "wse3"])
def test_every_operation(name, preset):
    op = isa.BY_NAME[name]
    for dtype in ("f16", "cb16") if "h" in op.types else ("auto",):
        for n, stride, data in ((37, 1, "special"), (64, 4, "special"), (33, -3, "normal"), (1, 1, "normal")):
            for conflict in (False, True) if op.types[2] != "-" else (False,):
                result = run("vector", preset, op=name, dtype=dtype, n=n, stride=stride, data=data, conflict=conflict)
                assert result["cycles"] == result["expected_cycles"]
                assert result["macs"] == (n if op.types[3] != "-" else 0)


@examples(60)
@given(
    st.sampled_from(VECTOR_OPS),
    st.sampled_from(["wse2", "wse3"]),
    st.integers(1, 80),
    st.integers(-17, 17),
    st.booleans(),
    st.integers(0, 2**20),
    st.sampled_from(["normal", "special"]),
    st.sampled_from(
        [
            {},
            {"num.ftz": 1},
            {"num.cb16_bias": 31},
            {"mem.read_ports": 1},
            {"mem.conflict_rule": "bank"},
            {"mem.conflict_cycles": 3, "vec.start": 2, "vec.drain": 0, "ce.tsc_read": 1},
        ]
    ),
)
def test_property(name, preset, n, stride, conflict, seed, data, overrides):
    op = isa.BY_NAME[name]
    conflict = conflict and op.types[2] != "-"
    result = run("vector", preset, overrides, op=name, n=n, stride=stride or 1, conflict=conflict, seed=seed, data=data)
    assert result["cycles"] == result["expected_cycles"]


@pytest.mark.parametrize(
    ("stride", "lanes"),
    [(1, 4), (2, 4), (3, 4), (4, 2), (5, 4), (6, 4), (7, 2), (8, 1), (9, 2), (-1, 2), (-3, 4), (16, 1), (12, 2)],
)
def test_stride_rule(stride, lanes):
    if stride == -1:
        lanes = 2
    assert lanes_of(isa.BY_NAME["faddh"], stride, machine()) == lanes
    written_where_it_is_read = 48 if stride % 8 == 0 else 0  # all elements in one bank, result in place
    assert run("vector", op="faddh", n=48, stride=stride)["cycles"] == 48 // lanes + written_where_it_is_read + 6


@pytest.mark.parametrize("n", range(1, 12))
@pytest.mark.parametrize("stride", [-1, -2, -3, -4, -8])
def test_sources_of_different_width_walked_backwards(n, stride):
    """Arrays of different width put their last elements into banks that depend on the length."""
    for conflict in (False, True):
        result = run("vector", op="fscales", n=n, stride=stride, conflict=conflict)
        assert result["cycles"] == result["expected_cycles"]


def test_plain_values():
    result = run("vector", op="add16", n=100, seed=5)
    assert result["arrays"]["result"].dtype == np.uint16
    assert run("vector", op="fmuls", n=3, data="ones")["arrays"]["result"].view(np.float32).tolist() == [1, 1, 1]


def test_what_wse2_has_no_vector_form_of():
    missing = [op.name for op in isa.OPS if op.form == "alu" and not any(op.lanes)]
    assert missing
    assert not set(missing) & set(VECTOR_OPS)
    with pytest.raises(ConfigError, match="mul32"):
        run("vector", op="mul32")
