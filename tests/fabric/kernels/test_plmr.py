"""The PLMR device: the analysis tables of WaferLLM, and limits that refuse."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.kit.plmr import (
    GEMM,
    GEMV,
    Plan,
    PlmrDevice,
    critical_additions,
    gemm_plan,
    gemv_plan,
    ktree_groups,
    routes_used,
)
from fabric.layout.layout import Layout
from wse_core.errors import ConfigError, PlanError
from wse_core.params import machine

DEVICE = PlmrDevice.of(machine())


def test_the_device_is_the_machine():
    m = machine("wse3", {"router.colors": 20})
    device = PlmrDevice.of(m)
    assert (device.width, device.height, device.hop, device.words, device.routes) == (762, 1172, 2, 24576, 20)
    assert device.stage == 11
    assert DEVICE.cores == 757 * 996
    assert 2 * DEVICE.words == 48 * 1024  # bytes


def test_the_longest_path_of_a_million_cores():
    mesh = PlmrDevice(1000, 1000, 1, 6, 24576, 24)
    assert mesh.diameter == 1998 == mesh.distance((0, 0), (999, 999))
    torus = PlmrDevice(1000, 1000, 1, 6, 24576, 24, torus=True)
    assert torus.diameter == 1000
    assert torus.distance((0, 0), (999, 999)) == 2


@pytest.mark.parametrize(
    ("algorithm", "hops", "routes", "tiles"),
    [("allgather", 719, 1440, 1441), ("summa", 719, 1440, 5), ("cannon", 719, 6, 3), ("mesh", 2, 6, 3)],
)
def test_table_of_gemm(algorithm, hops, routes, tiles):
    plan = gemm_plan(algorithm, 720, tile_words=1)
    assert (plan.hops, plan.routes, plan.words) == (hops, routes, tiles)


def test_routes_decide_at_720():
    for algorithm in ("summa", "allgather"):
        with pytest.raises(PlanError, match=r"needs 1440 colors per PE, the device has 24") as caught:
            DEVICE.admit(gemm_plan(algorithm, 720, 1), where="kernel gemm")
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.limit, error.needed, error.available, error.exit_code) == ("routes", 1440, 24, 2)
        assert str(error).startswith("kernel gemm: ")
        slow = DEVICE.admit(gemm_plan(algorithm, 720, 1, routing="software"))
        assert DEVICE.latency(slow) == 6 * slow.steps * 719
        assert slow.routes == 8
        assert DEVICE.choose([gemm_plan(algorithm, 720, 1), slow]) == slow
    mesh = DEVICE.admit(gemm_plan("mesh", 720, 1))
    assert DEVICE.latency(mesh) == 720 * 2


def test_the_plan_of_least_latency_that_fits_is_chosen():
    """A small mesh has routes enough for broadcasts, a large one has cores hand tiles on, a poor one nothing at all."""
    for n, routing in ((12, "hardware"), (13, "software")):
        plans = [gemm_plan("summa", n, 1, routing=routing) for routing in ("software", "hardware")]
        assert DEVICE.choose(plans).routing == routing
    mesh = gemm_plan("mesh", 720, 1)
    assert DEVICE.choose([gemm_plan("summa", 720, 1, routing="software"), mesh]) == mesh
    poor = PlmrDevice.of(machine("wse2", {"router.colors": 7}))
    with pytest.raises(PlanError, match="kernel x: .*needs 1440 colors per PE, the device has 7") as caught:
        poor.choose([gemm_plan("summa", 720, 1), gemm_plan("summa", 720, 1, routing="software")], where="kernel x")
    assert (caught.value.limit, caught.value.needed) == ("routes", 1440)
    with pytest.raises(PlanError, match="needs 8 colors"):
        poor.admit(gemm_plan("summa", 720, 1, routing="software"))
    assert [gemv_plan("ktree", 720, 1, 3, routing=routing).routes for routing in ("hardware", "software")] == [6, 4]


def test_memory_and_cores_decide():
    assert DEVICE.admit(gemm_plan("mesh", 8, 8192)).words == 24576
    with pytest.raises(PlanError, match="24579 16-bit words") as caught:
        DEVICE.admit(gemm_plan("mesh", 8, 8193))
    assert caught.value.limit == "memory"
    with pytest.raises(PlanError, match="memory|words"):
        DEVICE.admit(gemm_plan("summa", 8, 8192))
    for n, limit in ((758, "width"), (997, "height")):
        plan = Plan("wide", n if limit == "width" else 1, n if limit == "height" else 1, 1, 1, 1)
        with pytest.raises(PlanError) as caught:
            DEVICE.admit(plan)
        assert (caught.value.limit, caught.value.needed) == (limit, n)


@pytest.mark.parametrize(
    ("n", "levels", "published", "slack"),
    [
        (720, 1, 360, 0),
        (720, 2, 28, 0),
        (720, 3, 15, 0),
        (720, 4, 11, 0),
        (256, 2, 16, 0),
        (64, 2, 8, 0),
        (64, 3, 6, 0),
        (64, 4, 8, 0),
    ],
)
def test_additions_of_the_k_tree(n, levels, published, slack):
    assert abs(critical_additions("ktree", n, levels) - published) <= slack


def test_table_of_gemv():
    assert critical_additions("pipeline", 720) == critical_additions("ring", 720) == 719
    assert gemv_plan("ring", 720, 1).steps == 2 * 719
    assert gemv_plan("pipeline", 720, 1).routes == gemv_plan("pipeline", 9, 1).routes
    assert [gemv_plan("ktree", 720, 1, k).routes for k in (1, 2, 3)] == [2, 4, 6]
    with pytest.raises(PlanError):
        DEVICE.admit(gemv_plan("ktree", 720, 1, levels=13))


@given(st.integers(1, 3000), st.integers(1, 6))
def test_groups_cover_the_line(n, levels):
    groups = ktree_groups(n, levels)
    assert math.prod(groups) >= n
    assert len(groups) <= levels
    left = n
    for size in groups:
        assert left > 1
        left = -(-left // size)
    assert left == 1
    assert critical_additions("ktree", n, levels) <= max(0, critical_additions("ktree", n, 1)) + levels


@given(st.sampled_from(GEMM), st.integers(1, 50))
def test_one_core_needs_no_routes(algorithm, words):
    plan = gemm_plan(algorithm, 1, words)
    assert (plan.hops, plan.routes, plan.words) == (0, 0, 3 * words)
    assert all((gemv_plan(a, 1, words).routes, gemv_plan(a, 1, words).additions) == (0, 0) for a in GEMV)


def test_hops_of_small_meshes():
    assert [gemm_plan("mesh", n, 1).hops for n in (1, 2, 3, 4)] == [0, 1, 2, 2]
    assert [gemv_plan("ring", n, 1).hops for n in (1, 2, 3)] == [0, 1, 2]


def test_unknown_names():
    with pytest.raises(ConfigError, match="'fox'"):
        gemm_plan("fox", 4, 1)
    with pytest.raises(ConfigError, match="'fox'"):
        gemv_plan("fox", 4, 1)
    with pytest.raises(ConfigError, match="routing"):
        gemm_plan("mesh", 4, 1, routing="slow")
    with pytest.raises(ConfigError, match="0 levels"):
        ktree_groups(4, 0)


def test_routes_of_a_layout():
    layout = Layout(3, 1)
    layout.route(1, (0, 0, 3, 1), rx="W", tx="E")
    layout.output_stream(2, 0, "E", 1)
    assert routes_used(layout) == 1
    layout = Layout(3, 1)
    for color, x in ((1, 0), (2, 1), (7, 1)):
        layout.route(color, (x, 0, 3 - x, 1), rx="W", tx="E")
        layout.output_stream(2, 0, "E", color)
    assert routes_used(layout) == 3
