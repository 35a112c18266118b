"""What the composed model says PEs do is held against runs of the same programs on other and larger meshes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabric.kernels.registry import KERNELS
from fabric.networks.inference.decoder import Decoder
from harness.inference import authors, correct, works
from harness.inference.costs import all_reduce, matrix_vector, mesh_gemm, scores, vector_function
from harness.inference.ledger import PartCost, wafer_energy
from harness.inference.requests import request
from harness.models.presets import PRESETS
from wse_core.params import machine
from wse_core.work import CAUSES, CountedWork

WSE2 = machine("wse2")
JOULES = ("energy", *(f"energy_{cause}" for cause in CAUSES if cause != "standing"))


def of_kernel(name, **values):
    """Return the energy of a kernel's run by cause, without what powered PEs take anyhow."""
    found = KERNELS[name].run(WSE2, **values)
    assert found["verified"]
    return {key.removeprefix("energy_"): found[key] for key in JOULES[1:]}


def composed(cost, pes):
    energy = (cost.work * pes).energy(WSE2)
    return {cause: joules for cause, joules in energy.causes.items() if cause != "standing"}


@pytest.mark.parametrize(
    ("width", "height", "tiles", "sums"),
    [(5, 5, (6, 5, 4), "same"), (7, 7, (8, 3, 10), "f32"), (6, 4, (6, 5, 4), "same"), (12, 12, (10, 4, 4), "same")],
)
def test_mesh_gemm_on_other_meshes_than_were_run(width, height, tiles, sums):
    """Squares are exact; where PEs hold several tiles, moving on to the next one takes another branch."""
    whole = works._product(WSE2, width, height, *tiles, sums)
    ran = works.run_work(whole.layout) * (1 / (width * height))
    form = mesh_gemm(WSE2, width, height, *tiles, sums).work
    assert form.hop == pytest.approx(ran.hop, rel=1e-12)
    if width == height:
        assert form.as_dict() == pytest.approx(ran.as_dict(), rel=1e-9)
    else:
        assert form.energy(WSE2).joules == pytest.approx(ran.energy(WSE2).joules, rel=0.01)


def test_mesh_gemm_is_what_the_kernel_takes():
    found = of_kernel("gemm", algorithm="meshgemm", p=8, m=48, k=40, n=32, sums="same", align="host")
    form = composed(mesh_gemm(WSE2, 8, 8, 6, 5, 4, "same"), 64)
    assert form == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize(
    ("places", "n", "sums", "levels"), [(12, 10, "f32", 0), (40, 24, "same", 2), (720, 24, "same", 2)]
)
def test_mesh_gemv_is_what_a_row_of_the_kernel_takes(places, n, sums, levels):
    """Rows with x in place have nothing to do with one another: 720 of this one are table 6."""
    found = of_kernel(
        "gemv", p=places, height=1, m=n, n=places * 6, sums=sums, levels=levels, broadcast=True, replicated=True
    )
    dtype = "f32" if sums == "f32" else "f16"
    cost = matrix_vector(WSE2, n, 6, sums) + all_reduce(WSE2, places, n, dtype, levels)
    form = composed(cost, places)
    assert form["communication"] == pytest.approx(found["communication"])
    assert form["arithmetic"] == pytest.approx(found["arithmetic"])
    assert form["memory"] == pytest.approx(found["memory"], rel=0.03)
    slots = (found["instructions"] - form["instructions"]) / (WSE2["energy.issue"] * 1e-12 * places)
    assert 20 < slots < 30  # readings of the clock


@pytest.mark.parametrize(("side", "rows", "depth", "sums"), [(8, 8, 4, "f32"), (12, 8, 6, "same")])
def test_scores_are_what_the_transposed_product_takes(side, rows, depth, sums):
    found = of_kernel("gemm_t", p=side, m=rows * side, k=depth * side, n=rows * side, sums=sums)
    form = composed(scores(WSE2, side, side, rows, depth, sums), side**2)
    assert sum(form.values()) == pytest.approx(sum(found.values()), rel=0.05)
    for cause in ("communication", "memory", "arithmetic"):
        assert form[cause] == pytest.approx(found[cause], rel=0.05)


def test_functions_grow_evenly():
    run, form = works.run_function(WSE2, "exp", 160), vector_function(WSE2, "exp", 160)
    assert form == run.cycles
    assert form.work.as_dict() == pytest.approx(works.done_in(run).as_dict(), rel=0.001)


def test_costs_are_numbers_that_remember():
    calls = []

    def work(count):
        calls.append(count)
        return CountedWork(read=count)

    one, other = PartCost.of(10, work, 3), PartCost.of(4, work, 5)
    whole = 2 * one + other / 2 - one + sum([other, other]) + 1
    assert (float(whole), whole > 20, min(one, other)) == (10 + 2 + 8 + 1, True, 4.0)
    assert not calls
    assert whole.work == CountedWork(read=3 + 5 * 2.5)
    assert calls == [3, 5]
    assert (PartCost.code(7) * 3).work == CountedWork(issue=21)


@pytest.mark.parametrize("program", [authors, correct])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_multiply_adds_of_a_phase(program, phase):
    """Products of a phase have as many multiply-adds as the model, with the padding of tiles."""
    model, side, tokens = PRESETS["LLaMA3-8B"], 256, 1024
    found = getattr(program, phase)(WSE2, model, side, side, tokens)
    work = sum((cost for cost in found.products.values()), PartCost(0)).work * side**2
    keys = model.hidden if program is authors else model.heads * model.head_size
    wanted = model.product_parameters if program is correct else 4 * model.hidden**2 + 3 * model.hidden * model.ffn
    wanted += 2 * tokens * keys
    wanted *= tokens if phase == "prefill" else 1
    assert work.f16_multiply == pytest.approx(wanted, rel=0.12)
    assert work.read + work.write > 2.5 * work.f16_multiply


def test_the_energy_of_a_request_adds_up():
    model = replace(PRESETS["LLaMA3-8B"], layers=4)
    assert isinstance(model, Decoder)
    found = request(WSE2, "B", model, (256, 256), (128, 128), 512, 8)
    energy = found.energy(WSE2)
    wafer = WSE2["fabric.width"] * WSE2["fabric.height"]
    assert energy.causes["standing"] == pytest.approx(found.cycles * wafer * WSE2["energy.cycle"] * 1e-12)
    parts = [(found.prefill.work * 256**2), (found.steps.work * 128**2)]
    assert energy.causes["memory"] == pytest.approx(sum(part.energy(WSE2).causes["memory"] for part in parts))
    assert energy.seconds == found.cycles / 0.85e9
    alone = wafer_energy(WSE2, [(found.steps, 128**2)], found.steps)
    assert alone.joules < energy.joules


def test_a_product_on_all_pes_takes_what_is_published_of_a_wafer():
    """A large MeshGEMM takes 8 to 13 kW of 23 that a system has at most; no PE can take more than its peak."""
    cost = mesh_gemm(WSE2, 720, 720, 46, 46, 46, "same")
    watts = wafer_energy(WSE2, [(cost, 720**2)], cost).watts
    assert 8e3 < watts < 13e3
    busy = CountedWork(read=8, write=4, f16_add=4, f16_multiply=4, cycle=1).energy(WSE2, 1)
    assert busy.watts * 1.1 / 0.85 == pytest.approx(30e-3, rel=1e-3)
    assert watts < busy.watts * WSE2["fabric.width"] * WSE2["fabric.height"] < 23e3
