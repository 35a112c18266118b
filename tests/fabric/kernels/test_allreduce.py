"""`allreduce`: every PE ends with the same sum; orders, counts, cycles, and what ``auto`` takes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from fabric.kernels.collectives import costs
from fabric.kernels.collectives.allreduce import RINGS
from fabric.kernels.registry import KERNELS
from tests.examples import examples
from tests.fabric.kernels import run
from tests.fabric.kernels.sums import calls
from wse_core.errors import PlanError
from wse_core.params import machine

NAMES = ("auto", *costs.ALGORITHMS, *RINGS)


@examples(120)
@given(calls(NAMES, [{}, {}, {"num.ftz": 1}, {"ramp.in": 3}, {"vec.drain": 2}]))
def test_allreduce(call):
    result = run("allreduce", **call)
    algorithm, form, preset = call["algorithm"], call["form"], call["preset"]
    width, height, n = call["width"], call["height"], call["n"]
    total = result["arrays"]["total"]
    assert total.shape == (height, width, n)
    assert (total == {"row": total[:, :1], "column": total[:1]}.get(form, total[:1, :1])).all()
    pes = {"row": (width, height), "column": (height, width)}.get(form, (width * height, 1))
    if algorithm in RINGS and form == "xy":
        pes = (width - 1) * height + (height - 1) * width + 1, 1  # every column does the second half
    assert result["additions"] == (pes[0] - 1) * pes[1] * n
    assert result["cycles"] >= result["lower_bound"]
    if result["algorithms"] in RINGS:
        assert result["cycle_error"] == pytest.approx(0, abs=0.04)
    else:
        assert 0 <= result["cycles"] - result["expected_cycles"] <= 4 * machine(preset)["router.depth"] + 4


@pytest.mark.parametrize("preset", ["wse2", "wse3"])
@pytest.mark.parametrize("kind", RINGS)
def test_rings_are_exact(preset, kind):
    for p, n in ((1, 5), (2, 1), (2, 9), (3, 7), (6, 100), (9, 9), (13, 300), (40, 41)):
        for sums in ("f16", "f32"):
            result = run("allreduce", preset, algorithm=kind, width=p, n=n, dtype="f16", sums=sums)
            assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.003 if kind == "ring" else 0)
            assert result["colors"] == 3


def test_a_ring_is_near_its_published_form_while_chunks_are_short():
    """Sending and receiving share the CE: a long chunk takes its time twice, a short one hides in the latency."""
    short, long = (run("allreduce", algorithm="ring", width=64, n=n) for n in (256, 4096))
    assert short["cycles"] / short["model_cycles"] == pytest.approx(1.2, abs=0.05)
    assert 1.7 < long["cycles"] / long["model_cycles"] < 2


def test_order_of_the_ring_without_the_kernels_reference():
    """Chunk j goes from PE j to the west: x[j-1] + x[j], then x[j-2] + that, around the ring."""
    x = np.random.default_rng(9).standard_normal((1, 4, 7)).astype(np.float32)[0]
    expected = []
    for j in range(4):
        part = slice(2 * j, min(2 * j + 2, 7))
        total = x[j, part]
        for i in (1, 2, 3):
            total = x[(j - i) % 4, part] + total
        expected.append(total)
    found = run("allreduce", algorithm="ring", width=4, n=7, seed=9)["arrays"]["total"]
    assert found.tobytes() == np.tile(np.concatenate(expected), 4).tobytes()


def test_a_broadcast_adds_its_form():
    for name in ("chain", "tree", "star", "two_phase"):
        for form in ("row", "xy"):
            sizes = {"form": form, "width": 12, "height": 6, "n": 40, "algorithm": name}
            both, alone = run("allreduce", **sizes), run("reduce", **sizes)
            assert both["model_cycles"] > alone["model_cycles"]
            distance = 11 if form == "row" else 16
            assert both["cycles"] - alone["cycles"] == 2 * 6 + 1 + 40 + distance + 5
            assert (both["arrays"]["total"][:, :1] == alone["arrays"]["total"]).all()


@pytest.mark.parametrize("n", [1, 30, 400])
def test_auto_takes_the_fastest(n):
    cycles = {name: run("allreduce", algorithm=name, width=16, n=n)["cycles"] for name in NAMES}
    assert cycles["auto"] <= 1.02 * min(cycles.values())


def test_rings_pay_for_every_stage():
    """2 (P - 1) dependent stages against one chain: the ring loses for short vectors, as published."""
    ring = run("allreduce", algorithm="ring", width=32, n=32)
    chain = run("allreduce", algorithm="chain", width=32, n=32)
    assert ring["model_cycles"] > chain["model_cycles"]
    assert ring["cycles"] > chain["cycles"]


def test_plans_that_do_not_fit():
    with pytest.raises(PlanError, match="allreduce needs 3 colors per PE, the device has 2"):
        KERNELS["allreduce"].run(machine("wse2", {"router.colors": 2}), algorithm="chain", width=4, n=2)
    with pytest.raises(PlanError, match="allreduce by ring needs 6 colors per PE, the device has 5"):
        KERNELS["allreduce"].run(machine("wse2", {"router.colors": 5}), algorithm="ring", form="xy", height=2, n=2)
