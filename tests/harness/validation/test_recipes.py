"""Recipes in general, single vector operations, the rules of compilation, formulas."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl import rules
from fabric.kernels.collectives import costs
from fabric.kernels.registry import KERNELS
from harness.kit.console import Progress
from harness.validation.compare import validate
from harness.validation.points import load_points
from harness.validation.programs import formulas, mesh_products, summa_multicast, vector_operation
from harness.validation.recipe import CannotRun, grid, integer
from harness.validation.registry import RECIPES
from tests.examples import examples
from wse_core.params import machine

M = machine()


def silent(text):
    """Progress that nobody reads."""


def run(recipe, kind, workload, **params):
    """Return the outcome of a point."""
    return RECIPES[recipe, kind].function(M, {"id": "x", "params": params, "workload": workload}, silent)


def test_every_entry_is_complete():
    for (name, kind), entry in RECIPES.items():
        assert name == entry.name
        assert kind in entry.kinds
        assert entry.summary


@pytest.mark.parametrize("value", [None, 0, -1, 1.5, True, "7"])
def test_integer_refuses(value):
    with pytest.raises(CannotRun, match="key"):
        integer({"key": value}, "key")


def test_grid():
    assert grid({"g": "10x12 (independent PEs)"}, "g") == (10, 12)
    assert grid({"g": "1x2x3"}, "g", 3) == (1, 2, 3)
    for text in ("", "3", "3x", "axb", "0x1", "1x2x3"):
        with pytest.raises(CannotRun, match="NxN"):
            grid({"g": text}, "g")


# --- vector operations ------------------------------------------------------------------------------------------------


@examples(10)
@given(n=st.integers(1, 40), conflict=st.booleans(), op=st.sampled_from(list(vector_operation.OPERATIONS.values())))
def test_operate(n, conflict, op):
    cycles, (x, y, result) = vector_operation.operate(M, n, conflict, op)
    assert np.array_equal(result, {"fmuls": x * y, "fadds": x + y, "fsubs": x - y}[op])
    steps = n if op == "fmuls" else -(-n // 2)
    assert cycles == steps * (1 + conflict * M["mem.conflict_cycles"]) + 6


@examples(6)
@given(n=st.integers(1, 12), conflict=st.booleans(), scalars=st.integers(2, 20))  # one alone would be done ahead
def test_distance(n, conflict, scalars):
    cycles, (a, b, result) = vector_operation.distance(M, n, conflict, scalars)
    first = np.float32(a * b[0])
    assert np.allclose(result, first + a * b[1], rtol=1e-5, atol=1e-6)
    assert cycles == n * (1 + conflict) + 1 + scalars + M["ce.load_latency"] - 1


def test_points_of_vector_operations():
    work = "One vector multiply C = C*B between two time stamps"
    assert run("R7", "vector-op", work, elements=1028, alignment="no bank conflict").cycles == 1034
    assert run("R7", "vector-op", work, elements=1028, alignment="two operands in the same bank").cycles == 2062
    add = "One vector addition C = C + B between two time stamps"
    assert run("R7", "vector-op", add, elements=1028, alignment="no bank conflict").cycles == 1028 // 2 + 6
    assert run("R7", "vector-op", "Issue-to-issue distance", elements=5, alignment="no bank conflict").cycles == 22
    assert run("R7", "vector-op", "Same with a bank conflict", elements=5, alignment="conflict").cycles == 27
    for text, params, reason in (
        ("source variant not recorded", {"elements": 3}, "which operation"),
        (work, {"elements": 3}, "share a bank"),
        ("something", {"elements": 3}, "known here"),
    ):
        with pytest.raises(CannotRun, match=reason):
            run("R7", "vector-op", text, **params)


# --- compilation ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 2000))
def test_powers(constant):
    parts = rules.powers(constant)
    if parts is None:
        near = {(1 << a) + sign * (1 << b) for a in range(12) for b in range(12) for sign in (-1, 1)}
        assert constant not in near | {1 << a for a in range(12)}
    else:
        high, low, sign = parts
        assert (1 << high) + sign * (1 << low) == constant


def test_sparse_products_meet_their_published_counts():
    """All of them: what a function costs beside its work counts once per line of CSC and CSR."""
    points = [point for point in load_points() if point["kind"] == "spmm-local"]
    errors = [abs(row.error) for row in validate(points, M, Progress()) if row.counts]
    assert len(errors) == 56
    assert sum(errors) / len(errors) < 0.016
    assert max(errors) < 0.065


# --- formulas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["chain reduce", "star reduce", "binary tree reduce", "1-d flood broadcast", "2-d broadcast on M x N"]
)
def test_kernels_follow_the_published_formulas(name):
    outcome = run("R15", "formula", name, P=16, B=128)
    assert 0 <= outcome.cycles - outcome.reference <= 40


def test_the_general_form_is_that_of_a_gather():
    outcome = run("R15", "formula", "General cost of a 1-D collective", P=16, B=128)
    besides = 128 // 2 + 14  # the copy of the own block, and a control wavelet between two blocks
    assert 0 <= outcome.cycles - outcome.reference - besides <= 40


def test_the_form_of_a_whole_summa_is_that_of_its_products():
    outcome = run("R15", "formula", "SUMMA with hand-written multicast, instruction-level", P=2, tile=6)
    assert outcome.cycles == summa_multicast.products(M, 6, 2, *np.ones((2, 6, 6), np.float32))[0]
    assert outcome.reference == 2 * (120 + 36 * 7 + 43 * 36)


def test_formulas_with_the_published_ramp():
    """With T_R = 2 the formulas are those of the paper."""
    wire = costs.Wire.of(M)
    assert (wire.stage, wire.hop) == (5, 1)
    value = formulas.FORMULAS["chain reduce"][0](512, 4096, 0, wire)
    assert value == 4096 + 6 * 511
    with pytest.raises(CannotRun, match="no kernel|without a kernel"):
        run("R15", "formula", "Cost of a sort")


# --- products on a mesh -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("align", "sums"), [("fabric", "16-bit"), ("host", "f32")])
def test_mesh_gemm_of_many_pes_is_composed(align, sums):
    chosen = {"dtype": "16-bit", "align": align, "sums": sums}
    near = run("R11", "llm-kernel", "MeshGEMM", shape="64 x 64 x 64", pe_grid="8x8", **chosen)
    far = run("R11", "llm-kernel", "MeshGEMM", shape="96 x 96 x 96", pe_grid="12x12", **chosen)
    assert near.method == "fabric"
    off = re.fullmatch(
        r"composed: closed form of 12 x 12 PEs, (\S+) % off on 8 x 8 PEs with the same tiles", far.method
    )
    real, form = mesh_products.mesh_gemm(M, 12, (8, 8, 8), "f16", "same" if sums == "16-bit" else "f32", align)
    assert far.cycles == form == pytest.approx(real, rel=0.01)
    measured, expected = mesh_products.mesh_gemm(M, 8, (8, 8, 8), "f16", "same" if sums == "16-bit" else "f32", align)
    assert near.cycles == measured
    assert float(off[1]) == pytest.approx(100 * (expected / measured - 1), abs=0.01)


def test_mesh_gemv_is_one_row_of_the_mesh():
    found = run("R11", "llm-kernel", "MeshGEMV", shape="[1,64] x [64, 24]", pe_grid="9x6", dtype="16-bit")
    chosen = {"p": 9, "height": 6, "m": 24, "n": 64, "algorithm": "ktree", "sums": "same", "replicated": True}
    assert found.cycles == KERNELS["gemv"].run(M, **chosen)["cycles"]
    back = run("R11", "llm-kernel", "MeshGEMV", shape="[1,64] x [64, 24]", pe_grid="9x6", broadcast=True)
    assert back.cycles == KERNELS["gemv"].run(M, broadcast=True, **chosen)["cycles"] > found.cycles


@pytest.mark.parametrize(
    ("workload", "params", "reason"),
    [
        ("MeshGEMM", {"shape": "16K x 16K x 16K", "pe_grid": "not stated with the table"}, "leaves open"),
        ("MeshGEMV", {"shape": "[1,16K]x[8K,16K]", "pe_grid": "660x660"}, r"\[1, N\]"),
        ("MeshGEMV", {"shape": "[1,16K]x[16K,16K]", "pe_grid": "8x4"}, "does not fit"),
        ("MeshGEMM", {"shape": "16K", "pe_grid": "660x660"}, "M x K x N"),
        ("MeshGEMM", {"shape": "64K x 64K x 64K", "pe_grid": "720x720"}, "does not fit|words"),
        (
            "MeshGEMM",
            {"shape": "8 x 8 x 8", "pe_grid": "2x2", "sums": "64-bit"},
            "sums='64-bit'; known are 16-bit, f32",
        ),
        ("MeshGEMM", {"shape": "8 x 8 x 8", "pe_grid": "2x2", "align": []}, "align="),
        ("MeshGEMM", {"shape": "8 x 8 x 8", "pe_grid": "2x2", "broadcast": True}, "nothing is broadcast"),
        ("MeshGEMV", {"shape": "[1,8]x[8,8]", "pe_grid": "2x2", "align": "host"}, "nothing is aligned"),
    ],
)
def test_mesh_products_that_cannot_run(workload, params, reason):
    with pytest.raises(CannotRun, match=reason):
        run("R11", "llm-kernel", workload, **params)
