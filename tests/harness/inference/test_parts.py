"""Parts of the composed model against simulations, and what the composed model must obey whatever its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabric.networks.inference.decoder import Decoder
from harness.inference import authors, correct, costs
from harness.inference.parts import COUNT, measured
from harness.inference.running import running
from harness.models.presets import PRESETS
from wse_core.errors import UnsupportedError
from wse_core.params import machine

WSE2 = machine("wse2")
SMALL = Decoder(24, 2, 6, 2, 8, 40, 50, 64)


@pytest.mark.slow
def test_every_part_is_within_five_percent_of_the_simulation():
    found = list(measured(WSE2))
    assert len(found) == COUNT
    for part in found:
        assert abs(part.error) <= 0.05, part
    # What is followed step by step is exact; the scores are a short form of a longer one.
    exact = [part.error for part in found if part.name != "scores"]
    assert max(map(abs, exact)) <= 0.001


def test_products_of_the_mesh_are_those_of_the_kernel():
    assert costs.mesh_gemm(WSE2, 12, 9, 8, 3, 5, "f32") > costs.mesh_gemm(WSE2, 12, 9, 8, 3, 5, "same")
    # On 12 x 9 PEs the summed dimension is cut into 36 slices: four times those of 9 x 9.
    ratio = costs.mesh_gemm(WSE2, 12, 9, 8, 3, 5, "f32") / costs.mesh_gemm(WSE2, 9, 9, 8, 3, 5, "f32")
    assert ratio == pytest.approx(4, rel=0.05)


def test_lines_of_one_and_few_places():
    assert costs.all_reduce(WSE2, 1, 5, "f32") == 0
    assert costs.axis_sums(WSE2, 1, (3, 4), "f32") == ([0, 0], 0)
    for places in (2, 3, 4, 5):
        (cycles,), levels = costs.axis_sums(WSE2, places, (7,), "f32")
        assert cycles > 0
        assert levels >= 1


def test_functions_grow_evenly():
    per = costs.vector_function(WSE2, "exp", 204) - costs.vector_function(WSE2, "exp", 200)
    assert per == pytest.approx(65, abs=1)
    assert costs.vector_function(WSE2, "exp", 201) == costs.vector_function(WSE2, "exp", 204)


def test_rotary_pairs_stay_on_a_column():
    found = correct.tiles(PRESETS["LLaMA3-8B"], 360, 360)
    assert (found.group, found.keys, found.values, found.queries) == (45, 4, 3, 4)
    assert found.projected == 4 * 4 + 4 + 3
    few = correct.tiles(PRESETS["LLaMA2-13B"], 16, 16)  # 40 key heads on 16 columns: three, one after the other
    assert (few.group, few.rounds) == (1, 3)
    assert few.keys == 128


def test_decode_takes_longer_with_more_tokens_and_f32_sums():
    for decoder in PRESETS.values():
        short, long = (correct.decode(WSE2, decoder, 420, 420, tokens).cycles for tokens in (420, 4200))
        assert short < long
        # Sums of one value gain nothing from fewer bits, and small models with LayerNorm have little else.
        if not (decoder.centred and decoder.hidden < 2000):
            assert correct.decode(WSE2, decoder, 420, 420, 4200, "f16").cycles < long


def test_the_skeleton_has_ten_sums_and_wants_a_square():
    phase = authors.decode(WSE2, SMALL, 8, 8, 16)
    assert len(phase.sums) == 10
    assert phase.cycles == 2 * phase.layer
    with pytest.raises(UnsupportedError, match="8 x 9 PEs"):
        authors.decode(WSE2, SMALL, 8, 9, 16)
    for side in (1, 2, 3):
        assert authors.decode(WSE2, SMALL, side, side, 16).cycles > 0
        assert authors.prefill(WSE2, SMALL, side, side, 16).cycles > 0


@pytest.mark.parametrize("mesh", [(1, 1), (1, 7), (7, 1), (5, 3), (12, 9)])
def test_a_correct_program_takes_any_mesh(mesh):
    for phase in (correct.decode(WSE2, SMALL, *mesh, 17), correct.prefill(WSE2, SMALL, *mesh, 17)):
        assert phase.cycles > 0
        if mesh[0] == 1:
            assert phase.sums.get("O", 0) == 0


def test_norms_of_heads_cost_a_sum_in_the_group():
    decoder = PRESETS["Qwen3-8B"]
    without = replace(decoder, head_norms=False)
    for phase in (correct.decode, correct.prefill):
        more, less = (phase(WSE2, each, 420, 420, 4096) for each in (decoder, without))
        own = more.sums["norms of heads"] + more.local["norms of heads"]
        assert more.layer - less.layer == pytest.approx(own)
        assert own > 0


@pytest.mark.parametrize(("name", "side"), [("Mixtral-8x7B", 384), ("Qwen3-30B-A3B", 256), ("OLMoE-1B-7B", 192)])
def test_experts_are_priced_as_they_run(name, side):
    """Steps within 10 % of the resident decoder's; work grows with what is chosen, prompts with what is there."""
    decoder = PRESETS[name]
    phase = correct.decode(WSE2, decoder, side, side, 2048)
    assert phase.layer == pytest.approx(running(WSE2, decoder, side, side, 2048).layer, rel=0.1)
    more = correct.decode(WSE2, replace(decoder, chosen=decoder.chosen + 1), side, side, 2048)
    assert more.products["down"] == pytest.approx(phase.products["down"] * (1 + 1 / decoder.chosen))
    twice = replace(decoder, experts=2 * decoder.experts)
    assert correct.decode(WSE2, twice, side, side, 2048).products["down"] == phase.products["down"]
    before, behind = (correct.prefill(WSE2, each, side, side, 2048) for each in (decoder, twice))
    assert behind.products["down"] > 1.3 * before.products["down"]


@pytest.mark.parametrize("name", ["router.hop", "ce.dsr_load"])
def test_a_slower_machine_is_slower(name):
    slower = machine("wse2", {name: WSE2[name] + 1})
    for program in (authors, correct):
        for phase in (program.decode, program.prefill):
            assert (
                phase(slower, PRESETS["LLaMA3-8B"], 420, 420).cycles
                > phase(WSE2, PRESETS["LLaMA3-8B"], 420, 420).cycles
            )
