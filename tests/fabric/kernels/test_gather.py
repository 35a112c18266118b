"""`scatter`, `gather`, `allgather`: blocks in their places, counts and cycles by the closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.kit.plmr import routes_used
from fabric.kernels.registry import KERNELS
from tests.examples import examples
from tests.fabric.kernels import run
from wse_core.errors import ConfigError, PlanError
from wse_core.params import machine

KINDS = ("scatter", "gather", "allgather")


@examples(120)
@given(
    st.sampled_from(["wse2", "wse3"]),
    st.sampled_from([{}, {}, {"ramp.in": 3}, {"vec.drain": 2, "vec.start": 1}]),
    st.sampled_from(KINDS),
    st.sampled_from(["row", "column", "xy", "snake"]),
    st.integers(1, 8),
    st.integers(1, 5),
    st.integers(1, 40),
    st.sampled_from(["f16", "cb16", "f32"]),
    st.sampled_from(["normal", "ones", "special"]),
    st.integers(0, 1000),
)
def test_moves(preset, overrides, kind, form, width, height, n, dtype, data, seed):
    result = run(kind, preset, overrides, form=form, width=width, height=height, n=n, dtype=dtype, data=data, seed=seed)
    assert result["cycles"] >= result["lower_bound"]
    if kind != "allgather":
        assert result["cycles"] == result["expected_cycles"]
    else:
        assert "expected_cycles" not in result  # named what it is: a lower bound
        assert result["cycles"] <= 2 * result["lower_bound"] + 120


def blocks(seed, width, height, n):
    """The input data as the kernels draw them, without their code."""
    return np.random.default_rng(seed).standard_normal((height, width, n)).astype(np.float32)


@pytest.mark.parametrize("kind", ["gather", "allgather"])
def test_order_of_gathered_blocks(kind):
    x = blocks(5, 4, 3, 2)
    found = {
        form: run(kind, form=form, width=4, height=3, n=2, seed=5)["arrays"]["all"].view(np.float32)
        for form in ("row", "column", "xy", "snake")
    }
    for y in range(3):
        assert (found["row"][y, 0] == x[y]).all()
    for k in range(4):
        assert (found["column"][0, k] == x[:, k]).all()
    assert (found["xy"][0, 0] == x.reshape(12, 2)).all()
    snake = np.concatenate([x[0], x[1, ::-1], x[2]])
    assert (found["snake"][0, 0] == snake).all()
    if kind == "allgather":
        for form in found:
            assert found[form].shape[:2] == (3, 4)
        assert (found["xy"] == found["xy"][:1, :1]).all()


def test_scatter_undoes_gather():
    for form in ("row", "column", "xy", "snake"):
        found = run("scatter", form=form, width=5, height=3, n=3, seed=8)["arrays"]["x"].view(np.float32)
        assert (found == blocks(8, 5, 3, 3)).all()


def test_one_wavelet_per_cycle_leaves_or_enters_the_root():
    for kind, per_block in (("scatter", 50), ("gather", 51)):  # a control wavelet behind each block of a gather
        cycles = [run(kind, width=p, n=50)["cycles"] for p in (6, 7, 16)]
        assert cycles[1] - cycles[0] == per_block
        assert cycles[2] - cycles[0] == 10 * per_block


def test_two_streams_of_an_allgather_share_the_ce():
    """Short lines: the work of a CE.  Long ones wait for one another, but less than half as long again."""
    m = machine()
    for p in (2, 3, 4):
        result = run("allgather", width=p, n=30)
        loads = 6 * m["ce.dsr_load"] + m["ce.dsr_dimension"] + 3  # behind each asynchronous operation two
        assert result["lower_bound"] <= result["cycles"] <= result["lower_bound"] + loads
    long = run("allgather", width=32, n=64)
    assert 1.3 < long["cycles"] / long["lower_bound"] < 1.5


def test_memory_is_the_limit():
    with pytest.raises(PlanError, match="gather needs 30000 16-bit words per PE, the device has 24576") as caught:
        KERNELS["gather"].run(machine(), width=30, n=500)
    assert caught.value.limit == "memory"
    with pytest.raises(ConfigError, match=r"Try: n=\d+") as caught:
        KERNELS["gather"].run(machine(), width=30, n=409)
    best = int(caught.value.hint.split("n=")[1].split()[0])
    assert KERNELS["gather"].run(machine(), width=30, n=best)["verified"]
    with pytest.raises(ConfigError):
        KERNELS["gather"].run(machine(), width=30, n=best + 1)


def test_routes_do_not_grow_with_the_line():
    from fabric.kernels.collectives.gather import _Move
    from fabric.kernels.collectives.pieces.line_moves import AllGather, Gather, Scatter

    for kind, colors in ((Gather, 1), (Scatter, 1), (AllGather, 2)):
        for width in (3, 12):
            assert routes_used(_Move(kind, machine(), "row", width, 2, 3, "f32").layout()) == colors
