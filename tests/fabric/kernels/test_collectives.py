"""`ping`, `broadcast` and `chain_reduce`: latencies, counts, and sums in the order of the chain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.registry import KERNELS
from fabric.price import timing
from tests.examples import SLOW_BUILD, examples
from tests.fabric.kernels import run
from wse_core.params import machine

DATA = st.sampled_from(["normal", "ones", "special"])
PRESET = st.sampled_from(["wse2", "wse3"])


@pytest.mark.parametrize("direction", "EWNS")
@pytest.mark.parametrize(("preset", "hop"), [("wse2", 1), ("wse3", 2)])
def test_ping_takes_one_hop_per_step(direction, preset, hop):
    for hops in (1, 2, 37):
        result = run("ping", preset, hops=hops, direction=direction, seed=hops)
        ends = {"wse2": 9, "wse3": 13}[preset]  # the way out of a CE is longer there
        assert result["cycles"] == ends + hop * hops == result["expected_cycles"]
        assert result["wavelet_hops"] == hops + 1
        assert np.diff(result["arrays"]["arrivals"]).tolist() == [hop] * (hops - 1)
        assert result["cycles_per_hop"] == (hop if hops > 1 else None)


@examples(20)
@given(
    st.integers(1, 60),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 5),
    st.sampled_from(["normal", "ones", "special"]),
)
def test_ping_on_other_machines(hops, hop, into, out, start, data):
    overrides = {"router.hop": hop, "ramp.in": into, "ramp.out": out, "task.start": start}
    result = run("ping", overrides=overrides, hops=hops, data=data)
    assert result["cycles"] == result["expected_cycles"] == 2 + into + out + start + hop * hops


@examples(60)
@given(
    PRESET,
    st.sampled_from(["row", "column", "2d"]),
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(1, 40),
    st.sampled_from(["f16", "cb16", "f32"]),
    DATA,
    st.integers(0, 1000),
)
def test_broadcast(preset, shape, width, height, n, dtype, data, seed):
    result = run("broadcast", preset, shape=shape, width=width, height=height, n=n, dtype=dtype, data=data, seed=seed)
    assert result["cycles"] == result["expected_cycles"]
    got = result["arrays"]["x"]
    assert got.shape == (height, width, n)
    source = {"row": got[:, :1], "column": got[:1], "2d": got[:1, :1]}[shape]
    assert (got == source).all()


def test_broadcast_is_within_the_published_form_and_its_time_stamps():
    for shape in ("row", "column", "2d"):
        result = run("broadcast", shape=shape, width=20, height=30, n=512)
        assert 0 < result["cycles"] - result["published_form"] <= 8


def test_published_chain():
    """512 PEs, 4,096 elements: 7,218 cycles on the machine; slow builds check the form at a smaller size."""
    if SLOW_BUILD:
        assert run("chain_reduce", pes=64, n=64)["cycles"] == 64 + 6 * 63 + 18
        return
    result = run("chain_reduce", pes=512, n=4096)
    assert result["cycles"] == pytest.approx(7218, rel=0.01)
    assert result["cycles"] == 4096 + 6 * 511 + 18
    assert result["wavelet_hops"] == 2 * 511 * 4096


@pytest.mark.parametrize(("preset", "stage"), [("wse2", 6), ("wse3", 11)])
def test_each_pe_of_a_chain_adds_one_stage(preset, stage):
    assert timing.stage(machine(preset)) == stage
    cycles = [run("chain_reduce", preset, pes=pes, n=50)["cycles"] for pes in (5, 6, 25)]
    assert cycles[1] - cycles[0] == stage
    assert cycles[2] - cycles[0] == 20 * stage
    assert run("chain_reduce", preset, pes=5, n=150)["cycles"] - cycles[0] == 100
    assert run("chain_reduce", preset, pes=5, n=100, dtype="f16")["cycles"] == cycles[0]


@examples(80)
@given(
    PRESET,
    st.integers(1, 20),
    st.integers(1, 60),
    st.sampled_from(["f16", "cb16", "f32"]),
    st.booleans(),
    DATA,
    st.integers(0, 1000),
    st.sampled_from(
        [{}, {"num.ftz": 1}, {"ramp.in": 1, "ramp.out": 1}, {"router.hop": 3, "router.depth": 4}, {"num.cb16_bias": 31}]
    ),
)
def test_chain(preset, pes, n, dtype, wide, data, seed, overrides):
    sums = "f32" if wide else "auto"
    result = run("chain_reduce", preset, overrides, pes=pes, n=n, dtype=dtype, sums=sums, data=data, seed=seed)
    assert result["cycles"] == result["expected_cycles"]
    assert result["additions"] == (pes - 1) * n


def test_chain_adds_from_the_east():
    """A loop over numpy numbers, without the kernel's own reference."""
    x = np.random.default_rng(7).standard_normal((1, 6, 9)).astype(np.float32)[0]
    total = x[-1]
    for row in x[-2::-1]:
        total = row + total
    found = KERNELS["chain_reduce"].run(machine(), pes=6, n=9, seed=7)["arrays"]["total"]
    assert found.tobytes() == total.tobytes()
    half = np.random.default_rng(7).standard_normal((1, 6, 9)).astype(np.float16)[0]
    total = half[-1]
    for row in half[-2::-1]:
        total = row + total
    found = KERNELS["chain_reduce"].run(machine(), pes=6, n=9, seed=7, dtype="f16")["arrays"]["total"]
    assert found.tobytes() == total.tobytes()


def test_ones_add_up_to_the_number_of_pes():
    result = run("chain_reduce", pes=33, n=5, data="ones", dtype="cb16", sums="f32")
    assert result["arrays"]["total"].view(np.float32).tolist() == [33.0] * 5
