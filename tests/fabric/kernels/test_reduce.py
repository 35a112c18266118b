"""`reduce`: sums in the order of the trees, cycles by the closed form, counts, bounds, refusals."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.collectives import costs
from fabric.kernels.collectives.pieces import trees
from fabric.kernels.collectives.pieces.sums import AUTO, color_pool
from fabric.kernels.registry import KERNELS
from tests.examples import SLOW_BUILD, examples
from tests.fabric.kernels import run
from tests.fabric.kernels.sums import calls, closing
from wse_core.errors import ConfigError, PlanError
from wse_core.params import machine

MACHINES = (
    {},
    {},
    {"num.ftz": 1},
    {"ramp.in": 1, "ramp.out": 3},
    {"router.hop": 2, "router.depth": 3},
    {"vec.drain": 2, "vec.start": 1},
    {"ce.dsr_load": 3},
)


def slip(result, preset):
    """Most cycles that wavelets of waiting streams can take on links that another color still uses."""
    return 2 * 2 * machine(preset)["router.depth"] + 4 if result["colors"] > 1 else 0


def early(call):
    """Most cycles that gaps save which close while place 0 adds its first message in an operation of its own."""
    mixed = call["dtype"] != "f32" and call["sums"] == "f32"
    return closing(machine(call["preset"], call["overrides"]), call["n"]) if mixed else 0


@examples(150)
@given(calls(("auto", *costs.ALGORITHMS), MACHINES))
def test_reduce(call):
    result = run("reduce", **call)
    form, preset, overrides = call["form"], call["preset"], call["overrides"]
    width, height, n = call["width"], call["height"], call["n"]
    pes = {"row": (width, height), "column": (height, width)}.get(form, (width * height, 1))
    assert result["additions"] == (pes[0] - 1) * pes[1] * n
    assert result["cycles"] >= result["lower_bound"]
    over = result["cycles"] - result["expected_cycles"]
    assert -early(call) <= over <= slip(result, preset) + 2 * overrides.get("router.depth", 0)
    if call["algorithm"] in ("star", "chain"):
        assert -early(call) <= over <= 0 or form == "xy"
    if call["data"] == "ones" and width * height > 1:
        assert (result["arrays"]["total"] == result["arrays"]["total"].flat[0]).all()


@pytest.mark.parametrize("preset", ["wse2", "wse3"])
@pytest.mark.parametrize("n", [3, 4, 5, 8, 11])
def test_a_star_of_two_formats_closes_gaps_at_its_beginning_only(preset, n):
    """By so much it ends earlier than what its closed form says, however many PEs there are."""
    saved = []
    for width in (9, 20, 40):
        call = {"preset": preset, "overrides": {}, "algorithm": "star", "form": "row", "width": width, "height": 1,
                "n": n, "dtype": "f16", "sums": "f32"}  # fmt: skip
        result = run("reduce", **call)
        saved.append(result["expected_cycles"] - result["cycles"])
    assert 0 <= saved[0] <= saved[1] == saved[2] <= early(call)


def test_star_and_chain_are_exact():
    for name in ("star", "chain"):
        for form, n in (("row", 1), ("row", 50), ("column", 7), ("snake", 13), ("xy", 20)):
            result = run("reduce", algorithm=name, form=form, width=11, height=3, n=n, dtype="f16", sums="f32")
            assert result["cycles"] == result["expected_cycles"]


@pytest.mark.parametrize("sums", ["f16", "f32"])
def test_order_of_the_binary_tree_without_the_kernels_reference(sums):
    """((x0 + x1) + (x2 + x3)) + ((x4 + x5) + x6), by numpy."""
    x = np.random.default_rng(3).standard_normal((1, 7, 9)).astype(np.float16)[0].astype(sums.replace("f", "float"))
    expected = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6])
    found = run("reduce", algorithm="tree", width=7, n=9, seed=3, dtype="f16", sums=sums)["arrays"]["total"]
    assert found.tobytes() == expected.tobytes()


def test_order_of_two_phases_without_the_kernels_reference():
    """Groups of three: x0 + (x1 + x2), then the next leader's."""
    x = np.random.default_rng(4).standard_normal((1, 8, 5)).astype(np.float32)[0]
    last = x[6] + x[7]
    middle = (x[3] + (x[4] + x[5])) + last
    expected = (x[0] + (x[1] + x[2])) + middle
    found = run("reduce", algorithm="two_phase", group=3, width=8, n=5, seed=4)["arrays"]["total"]
    assert found.tobytes() == expected.tobytes()


def test_one_group_is_the_chain():
    pair = [
        run("reduce", algorithm="two_phase", group=30, width=17, n=33),
        run("reduce", algorithm="chain", width=17, n=33),
    ]
    chain = run("chain_reduce", pes=17, n=33)
    assert pair[0]["cycles"] == pair[1]["cycles"] == chain["cycles"]
    assert (pair[0]["arrays"]["total"].ravel() == chain["arrays"]["total"]).all()


def test_published_forms_are_close():
    """Beyond the forms: time stamps, descriptors and the gap between two phases."""
    for name, n, slack in (("star", 64, 0.08), ("chain", 256, 0.08), ("tree", 256, 0.1), ("two_phase", 1024, 0.06)):
        result = run("reduce", algorithm=name, width=64, n=n)
        assert 1 - slack <= result["cycles"] / result["model_cycles"] <= 1 + slack


@pytest.mark.parametrize(("width", "n"), [(2, 1), (4, 1), (4, 300), (33, 1), (33, 8), (33, 40), (33, 500)])
def test_auto_takes_the_fastest(width, n):
    cycles = {name: run("reduce", algorithm=name, width=width, n=n)["cycles"] for name in AUTO}
    chosen = run("reduce", width=width, n=n)
    assert chosen["cycles"] == cycles[chosen["algorithms"]]
    assert chosen["cycles"] <= 1.02 * min(cycles.values())


def test_auto_chooses_for_each_line():
    assert run("reduce", form="xy", width=33, height=2, n=8)["algorithms"] == "tree+chain"


def test_the_optimal_tree_is_near_the_best():
    for n in (1, 8, 24, 200):
        cycles = {name: run("reduce", algorithm=name, width=64, n=n)["cycles"] for name in costs.ALGORITHMS}
        assert cycles["optimal"] <= 1.28 * min(cycles.values())


def test_plans_that_do_not_fit():
    few = machine("wse2", {"router.colors": 3})
    with pytest.raises(PlanError, match="reduce needs 4 colors per PE, the device has 3") as caught:
        KERNELS["reduce"].run(few, algorithm="tree", width=16, n=2)
    assert caught.value.limit == "routes"
    assert KERNELS["reduce"].run(few, algorithm="optimal", width=16, n=2)["colors"] <= 3
    with pytest.raises(ConfigError, match="at most 2048 PEs, not 2500"):
        KERNELS["reduce"].run(machine(), algorithm="optimal", form="snake", width=50, height=50, n=1)
    with pytest.raises(PlanError, match="width|along x"):
        KERNELS["reduce"].run(machine(), width=800, n=1)
    with pytest.raises(ConfigError, match=r"24576 words of a PE.*Try: n=12\d\d\d"):
        KERNELS["reduce"].run(machine(), width=2, n=20000)
    with pytest.raises(ConfigError, match="f32 data cannot be summed in f16"):
        KERNELS["reduce"].run(machine(), dtype="f32", sums="f16")


def test_colors_with_switches_come_first_on_wse3():
    pool = color_pool(machine("wse3"))
    assert sorted(pool) == list(range(24))
    assert pool[10:12] == (12, 13)
    assert color_pool(machine()) == tuple(range(24))


def test_table_of_the_documentation(root):
    """docs/kernels.md, "Collectives": measured cycles and the lower bound, 64 PEs."""
    text = (root / "docs" / "kernels.md").read_text()
    rows = re.findall(r"^\| (\d+) \|((?: \d+ \|){5}) ([\d.]+) \|$", text, re.MULTILINE)
    assert len(rows) == 3
    for n, cycles, bound in rows[: 1 if SLOW_BUILD else 3]:
        results = [run("reduce", algorithm=name, width=64, n=int(n)) for name in costs.ALGORITHMS]
        assert [result["cycles"] for result in results] == [int(word) for word in cycles.split("|")[:-1]]
        assert results[0]["lower_bound"] == pytest.approx(float(bound), abs=0.06)


@given(st.integers(1, 70), st.integers(1, 90), st.integers(1, 20))
def test_trees(p, b, group):
    wire = costs.Wire()
    for name in costs.ALGORITHMS:
        tree = trees.build(name, p, b, wire, group)
        assert len(tree) == p
        assert all(0 <= parent < k for k, parent in enumerate(tree.parent) if k)
        for k in range(p):
            messages, into, out, _ = tree.role(k)
            assert (out == -1) == (k == 0)
            assert messages == 0 or into != out
            assert {tree.color[child] for child in tree.children[k]} <= {into}
            # Who has several children is never passed on the color that they send on.
            assert messages < 2 or not tree.passes[into, k]
        assert tree.roundings <= max(0, p - 1)
    assert trees.star(p).energy == p * (p - 1) // 2
    assert trees.chain(p).energy == p - 1
    assert trees.chain(p).depth == p - 1
    assert trees.binary(p).depth == (p - 1).bit_length() or p & (p - 1)


@given(st.integers(2, 60), st.integers(1, 200), st.integers(1, 8))
def test_optimal_trees_have_the_energy_of_the_bound(p, b, most):
    wire = costs.Wire()
    tree = trees.optimal(p, b, wire, most)
    depth, cost = costs.optimal_depth(p, b, wire, most)
    if costs.chain(p, b, wire) <= cost:
        assert tree.parent == trees.chain(p).parent
        return
    assert tree.depth <= depth <= most
    assert tree.energy == costs.energy(p)[0][p, depth]
    assert tree.colors <= most


def test_moved_switches_between_messages_do_not_go_down_the_ramp():
    """Of a star: where a ramp is the slowest part of the way, what moves a switch is no wavelet more."""
    overrides = {"router.depth": 6, "ramp.in": 6, "ramp.out": 6}
    result = run("reduce", overrides=overrides, algorithm="star", form="row", dtype="f32", width=21, height=1, n=5)
    assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.021)
