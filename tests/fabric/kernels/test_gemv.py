"""`gemv`: all-reduces of matrix-vector products, and the two-way K-tree by itself."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.kernels.collectives.pieces import ktree
from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.kit.plmr import gemv_plan
from fabric.kernels.kit.session import Session
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matvec import gemv
from fabric.kernels.matvec.gemv import Gemv
from fabric.kernels.registry import KERNELS
from tests.examples import examples
from tests.fabric.kernels import run
from wse_core.errors import ConfigError, PlanError
from wse_core.formats import Arithmetic
from wse_core.params import machine

SUMS = ("pipeline", "ring", "folded_ring", "ktree")


def tree(places, levels, group=0, n=1):
    """Return a K-tree over a row."""
    groups = ktree.group_sizes(places, levels, group)
    return ktree.KTree(Line.rows(places, 1), groups, tuple(range(2 * len(groups))), n, "f32")


@examples(100)
@given(
    st.sampled_from(["wse2", "wse3"]),
    st.sampled_from([{}, {}, {"num.ftz": 1}, {"ramp.in": 3}, {"vec.drain": 2}]),
    st.sampled_from((*SUMS, "ktree", "auto")),
    st.integers(1, 14),
    st.integers(1, 4),
    st.integers(1, 60),
    st.integers(1, 40),
    st.integers(0, 4),
    st.sampled_from([0, 0, 2, 3, 5]),
    st.sampled_from(["f16", "cb16", "f32"]),
    st.sampled_from(["f32", "same"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["normal", "ones", "special"]),
    st.integers(0, 1000),
)
def test_gemv(
    preset, overrides, algorithm, p, height, m, n, levels, group, dtype, sums, broadcast, replicated, data, seed
):
    assume(levels <= max(1, (p - 1).bit_length()) and group <= p)
    result = run(
        "gemv",
        preset,
        overrides,
        algorithm=algorithm,
        p=p,
        height=height,
        m=m,
        n=n,
        levels=levels,
        group=group,
        dtype=dtype,
        sums=sums,
        broadcast=broadcast,
        replicated=replicated,
        data=data,
        seed=seed,
    )
    rows, depth = 2 * -(-m // (2 * height)), -(-n // p)
    assert result["macs"] == p * height * rows * depth
    assert result["additions"] == height * (p - 1) * rows
    assert result["arrays"]["y"].shape == (m,)
    assert result["compute_cycles"] == result["expected_compute_cycles"]
    assert result["compute_cycles"] + result["communication_cycles"] == result["cycles"]
    assert result["cycles"] >= result["lower_bound"]
    error = result["cycles"] - result["expected_cycles"]
    if result["algorithms"] == "pipeline":
        assert error == 0
    elif result["algorithms"] == "ktree":
        # Short groups are early and fill buffers on their way; of few numbers the last group's are there before it.
        assert -6 <= error <= 12 * result["groups"].count("x")
    else:
        assert abs(error) <= 0.1 * result["cycles"]


@pytest.mark.parametrize(("places", "levels"), [(7, 1), (8, 1), (16, 1), (16, 2), (25, 2), (36, 2), (27, 3), (16, 4)])
def test_k_trees_of_equal_groups_take_the_cycles_of_the_formula(places, levels):
    for m, dtype, sums in ((2, "f16", "f32"), (46, "f16", "same"), (300, "f32", "f32")):
        for broadcast in (False, True):
            result = run(
                "gemv",
                p=places,
                height=2,
                m=2 * m,
                n=places,
                algorithm="ktree",
                levels=levels,
                dtype=dtype,
                sums=sums,
                broadcast=broadcast,
            )
            assert result["cycles"] == result["expected_cycles"]
            assert result["colors"] == 2 * levels + 1 + broadcast


def test_additions_on_the_critical_path():
    """The published figures: 360, 28, 15 and 11 for 720 PEs."""
    assert [tree(720, k).depth for k in (1, 2, 3, 4)] == [360, 28, 15, 11]
    assert [sum(-(-g // 2) for g in ktree.group_sizes(720, k)) for k in (1, 2, 3, 4)] == [360, 28, 15, 11]
    assert tree(256, 2).depth == 16
    assert [tree(64, k).depth for k in (2, 3, 4)] == [8, 6, 8]


def test_routes_of_the_analysis_table():
    for levels in (1, 2, 3):
        plan = Gemv(machine(), Problem(30, 1, 30, 30), algorithm="ktree", levels=levels, replicated=True)
        assert plan.colors == gemv_plan("ktree", 30, 1, levels).routes
    assert Gemv(machine(), Problem(30, 1, 30, 30), algorithm="pipeline", replicated=True).colors == 2
    assert Gemv(machine(), Problem(30, 1, 30, 30), algorithm="ring", replicated=True).colors == 3


@pytest.mark.parametrize(("places", "levels"), [(9, 1), (12, 1), (16, 2), (21, 2), (27, 3), (16, 4)])
def test_additions_that_the_machine_does(places, levels):
    """Elements that PEs work on beside the product: those of a K-tree.  The longest dependent path has `depth` of them.

    A PE adds as many vectors as it has children; one that sends without adding moves one.
    """
    rows = 4
    result = run("gemv", p=places, height=1, m=rows, n=places, algorithm="ktree", levels=levels, replicated=True)
    found = tree(places, levels)
    counters = result["counters"]
    vectors = (counters["elements"][0] - counters["macs"][0])[0] // rows
    roles = found.roles()
    leaves = [sum(role is not None and not role.messages for role in own) for own in roles]
    additions = vectors - leaves
    assert additions.tolist() == [sum(role.messages for role in own if role is not None) for own in roles]
    assert additions.sum() == places - 1
    own, late = list(found.levels), [0] * places
    for group in (group for level in own for group in level):  # the longest path through the additions just counted
        middle, root = len(group) // 2, group[len(group) // 2]
        for side in (group[:middle:-1], group[:middle]):
            arriving = None
            for place in side:
                arriving = late[place] if arriving is None else max(arriving, late[place]) + 1
            if arriving is not None:
                late[root] = max(late[root], arriving) + 1
    assert max(late) == found.depth == result["critical_additions"]
    assert found.depth <= sum(-(-g // 2) for g in found.groups)


@examples(60)
@given(st.integers(1, 200), st.integers(1, 8), st.sampled_from([0, 0, 2, 3, 7, 300]))
def test_groups(places, levels, group):
    assume(levels <= max(1, (places - 1).bit_length()))
    found = tree(places, levels, group)
    assert len(found.groups) <= levels
    assert sum(len(g) - 1 for level in found.levels for g in level) == places - 1
    assert found.root == 0 if places == 1 else 0 < found.root < places
    for roles in found.roles():
        assert sum(role.out is not None for role in roles if role is not None) <= 1
        assert all(role.into != role.out for role in roles if role is not None)
    if not group and levels == 1:
        assert found.root == places // 2


def test_sum_without_the_trees_reference():
    """Five PEs: (x2 + (x3 + x4)) + (x1 + x0), in float32 numbers of numpy."""
    values = np.random.default_rng(4).standard_normal((5, 6)).astype(np.float32)
    x0, x1, x2, x3, x4 = values
    arithmetic = Arithmetic.of(machine(), "f32")
    found = tree(5, 1).total([value.view(np.uint32) for value in values], arithmetic, arithmetic)
    assert found.tobytes() == ((x2 + (x3 + x4)) + (x1 + x0)).tobytes()


def test_the_plain_machine_agrees():
    plan = Gemv(machine(), Problem(5, 2, 12, 10), "ktree", levels=2, broadcast=True)
    rng, layout = np.random.default_rng(0), plan.layout()
    inputs = [
        ("a", rng.integers(0, 1 << 14, (2, 5, 12), np.uint16), 0, 0),
        ("x", rng.integers(0, 1 << 14, (1, 5, 2), np.uint16), 0, 0),
    ]
    fast, plain = (Session(layout, inputs, backend=name) for name in ("compiled", "reference"))
    assert fast.run.cycles == plain.run.cycles
    assert fast.run.counters == plain.run.counters
    assert np.array_equal(fast.read("y", 0, 0, 5, 2), plain.read("y", 0, 0, 5, 2))


def test_auto_takes_the_fastest():
    for p, m in ((2, 4), (16, 32), (24, 4000)):
        cycles = {name: run("gemv", p=p, height=1, m=m, n=p, algorithm=name)["cycles"] for name in (*SUMS, "auto")}
        assert cycles["auto"] == min(cycles.values())


def test_k_is_the_best_one():
    chosen = run("gemv", p=48, height=1, m=8, n=48)["cycles"]
    assert chosen == min(run("gemv", p=48, height=1, m=8, n=48, levels=k)["cycles"] for k in range(1, 6))


def test_mesh_gemv_wins_at_scale():
    """Rows of 360 PEs, all of them simulated: the chain pays a stage per PE, the tree hardly more than the distance."""
    cycles = {
        name: run("gemv", p=360, height=1, m=6, n=360, algorithm=name, replicated=True)["cycles"]
        for name in ("pipeline", "ktree")
    }
    assert cycles["pipeline"] > 4 * cycles["ktree"]


def test_a_refusal_builds_no_wafer(monkeypatch):
    """What would fit is looked for with one program per size; only what is named is laid out."""
    laid_out = []

    def layout(self):
        laid_out.append(self.width)
        return real(self)

    real = Gemv.layout
    monkeypatch.setattr(Gemv, "layout", layout)
    with pytest.raises(PlanError, match="Try: m=84 or n=120 or p=2") as caught:
        KERNELS["gemv"].run(machine(), algorithm="folded_ring", broadcast=True, sums="same", p=1, m=200, n=284)
    assert caught.value.limit == "memory"
    assert max(laid_out) == 2


def test_what_cannot_be():
    def fails(error, match, overrides=None, **values):
        with pytest.raises(error, match=match) as info:
            KERNELS["gemv"].run(machine("wse2", overrides or {}), **values)
        return info.value

    fails(ConfigError, "a tree of 4 levels over 8 PEs", p=8, levels=4)
    assert fails(PlanError, "6 input queues for its sums, there are 5", p=64, height=1, levels=6).limit == "queues"
    few = {"router.colors": 4}
    assert fails(PlanError, "needs 4 colors, 3 are left", few, p=8, levels=2).limit == "routes"
    fails(PlanError, "needs 3 colors, 2 are left", {"router.colors": 3}, p=8, algorithm="ring")
    assert run("gemv", overrides=few, p=8, m=8, n=8)["groups"] == "8"  # chosen within the colors
    fails(ConfigError, "does not fit", p=2, m=4000, n=4000)
    fails(PlanError, "PEs along x", {"fabric.width": 4}, p=5, height=1)


@pytest.mark.parametrize(("verify", "least", "most"), [("sample", 0.0, 0.5), ("off", 0.0, 0.5), ("full", 1.0, 4.0)])
def test_a_large_matrix_is_never_there_beside_the_pes(verify, least, most, monkeypatch):
    """Drawn while it is written, of a matrix that is not compared as a whole the host has no more than a part."""
    monkeypatch.setattr(gemv, "ELEMENTS", 1 << 16)
    run("gemv", p=16, m=19, n=1999)  # what is there once
    tracemalloc.start()
    try:
        result = KERNELS["gemv"].run(machine(), p=16, m=1999, n=1999, verify=verify)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result["verified"] is (None if verify == "off" else True)
    assert least <= peak / (1999**2 * 2) < most
