"""What a recipe cannot honour it refuses; unrolling and generations; the points of the package."""

from __future__ import annotations

import re

import pytest

from fabric.asm import disasm
from harness.cli import cmd_validate
from harness.kit.console import Progress
from harness.validation import compare, sources
from harness.validation.points import load_points
from harness.validation.registry import RECIPES
from wse_core.errors import ConfigError
from wse_core.params import machine

POINTS = {point["id"]: point for point in load_points()}


def row(point_id, changed=None, **keys):
    """Return the row of a point of the package with some parameters, or other keys, changed."""
    point = POINTS[point_id] | keys
    point["params"] = point["params"] | (changed or {})
    return compare.validate([point], machine(), Progress())[0]


@pytest.mark.parametrize(
    ("point_id", "changed", "reason"),
    [
        ("SUMMA-P2-T46", {"K": "x"}, "K='x', but the other parameters say 92"),
        ("SUMMA-P2-T46", {"N": 93}, "N=93"),
        ("SUMMA-P2-T46", {"colors": 2}, "no parameter colors"),
        ("FMACS-TRACE-1", {"dtype": 10**40}, "the recipe is for f32"),
        ("GEMMLOC-05", {"rows_per_pe": 64}, "rows_per_pe=64"),
        ("GEMMLOC-05", {"density_pct": 50}, "density_pct=50"),
        ("MATVEC-N10", {"unroll": 4}, "no parameter unroll"),
    ],
)
def test_parameters_that_are_not_honoured_are_refused(point_id, changed, reason):
    found = row(point_id, changed)
    assert found.error is None
    assert reason in found.reason


def test_a_whole_summa_of_two_colors_is_not_one_local_product():
    point = POINTS["SUMSIM-DC-COMPUTE"]
    params = {key: value for key, value in point["params"].items() if key != "fmacs"}
    found = compare.validate([point | {"params": params}], machine(), Progress())[0]
    assert found.error is None
    assert "whole SUMMA" in found.reason


def test_every_recipe_that_runs_says_what_it_honours():
    for point in POINTS.values():
        entry = RECIPES[point["recipe"], point["kind"]]
        told = {key: value for key, value in point["params"].items() if key not in ("values", "min", "max")}
        entry.admit(told)  # refuses none of the package
        assert entry.params or entry.function.__name__ == "refuse"


def test_a_point_runs_on_the_machine_of_its_generation():
    here, there = row("FMACS-TRACE-2"), row("FMACS-TRACE-2", generation="WSE-3")
    assert (here.measured, there.measured) == (27, 27)  # both have the same banks
    assert there.generation == "WSE-3"
    assert here.counts
    assert not there.counts
    total = compare.summarise([here, there])
    assert total["generations"]["WSE-3"]["compared"] == 1
    assert total["worst"]["id"] == here.id
    changed = compare.of_generation(machine("wse2", {"ce.load_latency": 9}), "WSE-3")
    assert changed["ce.load_latency"] == 9
    assert changed["router.hop"] == machine("wse3")["router.hop"]
    with pytest.raises(ConfigError, match="WSE-4"):
        compare.of_generation(machine(), "WSE-4")


def test_a_point_runs_on_the_machine_of_its_platform():
    """Late multiply-adds and cycles of their own of a CS-2 of 2023; whoever changes a number gets what it says."""
    here = row("GEMMLOC-05")
    simulator = row("GEMMLOC-05", platform="vendor simulator")
    rows, products = 128, 8 * 64
    assert here.measured - simulator.measured == 1520 + products * (rows * 3 // 16)
    total = compare.summarise([here, simulator])["platforms"]
    assert {name: part["compared"] for name, part in total.items()} == {here.platform: 1, "vendor simulator": 1}
    asked = machine().replace({"vec.mac_late": 5})
    assert compare.of_platform(asked, here.platform)["vec.mac_late"] == 5
    assert compare.of_platform(machine("wse3"), "vendor simulator") == machine("wse3")
    said = cmd_validate.describe([here], compare.summarise([here]))
    assert f"points of {here.platform} run with vec.mac_late = 3, vec.fill_late = 114, tsc.own = 1520, unless" in said
    cells = [cell.strip() for cell in compare.markdown([here]).splitlines()[-1].split("|")]
    assert cells[1:6] == [here.id, f"{here.measured:.0f}", "", f"{here.published:.0f}", ""]


@pytest.mark.parametrize(
    ("t", "operations"), [(1, 1), (4, 16), (5, 25), (8, 8), (11, 11), (13, 1), (14, 1), (16, 16), (32, 1)]
)
def test_loops_of_a_product_are_unrolled_by_their_weight(t, operations):
    """Both loops for tiles of up to 5, the inner one up to 11, and of 16, whose index takes one shift."""
    listing = disasm.listing(sources.compiled(machine(), "products", t=t).programs[0])
    assert len(re.findall(r" fmacs ", listing)) == operations


def test_summa_with_tiles_of_16_takes_what_was_measured():
    found = row("SUMMA-P32-T16")
    assert found.published == 478344
    assert abs(found.error) < 0.05


def test_the_count_that_a_point_is_padded_to_is_honoured():
    """COO-05 has 149 elements, as its twin in CSC shows; a count that cannot be is refused, and so one of CSC."""
    found = row("SPMM-COO-05")
    assert abs(found.error) < 0.05
    point = POINTS["SPMM-COO-05"]
    median = compare.validate([point | {"assumed": {}}], machine(), Progress())[0]
    one = row("SPMM-COO-05", assumed={"padded": 150}).measured - found.measured
    assert found.measured - median.measured == (149 - 137) * one > 0
    for point_id, padded, reason in (
        ("SPMM-COO-05", 12, "12 elements, of which 102 are stored"),
        ("SPMM-COO-05", 5000, "2048 have room"),
        ("SPMM-CSC-05", 149, "CSC is not padded"),
    ):
        refused = row(point_id, assumed={"padded": padded})
        assert refused.error is None
        assert reason in refused.reason


def test_padded_counts_are_those_of_the_twins():
    """Each is what the largest count of CSC on the same grid leaves: whole numbers of elements, to a seventh."""
    told = {
        key: point["params"] | point["assumed"] for key, point in POINTS.items() if "padded" in point.get("assumed", {})
    }
    assert len(told) == 10
    for key, params in told.items():
        twin = POINTS[key.replace("COO", "CSC")]["params"]
        assert all(twin[name] == params[name] for name in ("pe_grid", "N", "K", "M", "density_pct"))
        columns = params["K"] // int(params["pe_grid"].split("x")[0])
        assert (twin["max"] - 1513 - 53 * columns) / (39.2 + 1.1875 * params["M"]) == pytest.approx(
            params["padded"], abs=0.15
        )
