"""Experts: those that a token chooses are computed, and no others; bits of the oracle, and cycles by their number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder
from fabric.networks.inference.fit import GAPS, needed_words, tokens_per_row
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.pipeline import RegionPipeline
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill import cycles
from fabric.networks.inference.prefill.cycles import PromptCycles
from fabric.networks.inference.prefill.fit import prompt_words
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.resident import ResidentDecoder
from fabric.networks.inference.rows import POLICIES
from fabric.networks.inference.writer import code_words
from harness.inference.estimate import BY_EXPERTS
from harness.models.plain import PlainDecoder
from tests.examples import examples, few, mixed
from tests.fabric.networks.inference.small_models import decoders, have_room, random_weights, rounded
from tests.fabric.networks.inference.test_batch import decode_of
from tests.fabric.networks.inference.test_batch import run as run_batch
from tests.fabric.networks.inference.test_chunks import chunks_of, texts
from tests.fabric.networks.inference.test_move import meshes
from tests.fabric.networks.inference.test_move import run as run_move
from tests.fabric.networks.inference.test_prefill import Both
from wse_core.errors import ConfigError
from wse_core.params import machine

TINY = Decoder(6, 2, 2, 1, 2, 5, 5, 64, 1e-5, experts=3, chosen=2, renormalised=True)
SMALL = Decoder(22, 2, 4, 2, 4, 9, 17, 64, 1e-5, experts=6, chosen=2, renormalised=True)
QWEN = replace(SMALL, experts=8, chosen=3, renormalised=False, head_norms=True)
OLMOE = replace(SMALL, experts=5, chosen=4, renormalised=False, projection_norms=True, gated=False)


def run(decoder, width, height, tokens, policy="shift", dtype="f16", seed=0, preset="wse2", backend=None):
    """Let a wafer answer; compare each step with the oracle, and its cycles with the price; return logits and steps."""
    m = machine(preset)
    place = DecoderPlacement(decoder, width, height, tokens_per_row(tokens, height, policy), dtype)
    decode, weights = Decode(m, place, policy), rounded(random_weights(decoder, seed), dtype)
    resident, oracle, form = ResidentDecoder(decode, weights, backend), Oracle(decode, weights), StepCycles(decode)
    fed, logits, steps, token = [], [], [], seed % decoder.vocabulary
    for number in range(tokens):
        fed.append(token)
        step = resident.step(token)
        token, bits = oracle.step(token)
        assert np.array_equal(step.logits, bits)
        assert step.token == token
        assert form.step(number) == pytest.approx(step.cycles, rel=0.01)
        logits.append(step.logits.view(np.float32))
        steps.append(step)
    return np.array(logits), PlainDecoder(decoder, weights, np.float64).forward(fed), steps


CHOICES = {
    "decoder": decoders(),
    "experts": st.integers(1, 9),
    "share": st.floats(0, 1),
    "renormalised": st.booleans(),
    "policy": st.sampled_from(POLICIES),
    "dtype": st.sampled_from(["f16", "cb16"]),
    "seed": st.integers(0, 99),
}
"""Decoders of all kinds with experts, and what they are tried with."""


@examples(8)
@given(**CHOICES, width=st.integers(1, 9), height=st.integers(1, 7))
def test_bits_are_the_oracles(decoder, experts, share, renormalised, width, height, policy, dtype, seed):
    """Decoders of all kinds with experts, any mesh: the oracle's bits, and cycles within 1 % of the price."""
    assume(not decoder.parallel)
    decoder = replace(
        decoder, experts=experts, chosen=max(1, round(share * experts)), renormalised=renormalised, ffn_bias=False
    )
    assume(have_room(needed_words(DecoderPlacement(decoder, width, height, tokens_per_row(4, height, policy), dtype))))
    run(decoder, width, height, 4, policy, dtype, seed)


@pytest.mark.parametrize(
    ("decoder", "mesh", "preset"), mixed([SMALL, QWEN, OLMOE], [(1, 1), (3, 4), (8, 3), (2, 3)], ["wse2", "wse3"])
)
def test_logits_are_near_plain_numpy(decoder, mesh, preset):
    logits, plain, _ = run(decoder, *mesh, 6, preset=preset)
    assert np.abs(logits - plain).max() <= 20 * 2.0**-11 * (1 + np.abs(plain).max())


def test_both_engines_give_the_same():
    one, two = (run(TINY, 2, 2, 2, backend=backend)[2] for backend in ("compiled", "reference"))
    for a, b in zip(one, two, strict=True):
        assert (a.token, a.cycles, a.hops) == (b.token, b.cycles, b.hops)


def test_of_equal_logits_the_lower_expert_wins():
    """A router of zeros: the first experts are chosen, as by a sort that is stable."""
    weights = rounded(random_weights(SMALL), "f16")
    for layer in range(SMALL.layers):
        weights[f"model.layers.{layer}.mlp.gate.weight"][:] = 0
    decode = Decode(machine(), DecoderPlacement(SMALL, 3, 2, 4))
    resident, oracle = ResidentDecoder(decode, weights), Oracle(decode, weights)
    assert np.array_equal(resident.step(3).logits, oracle.step(3)[1])
    assert (resident.fabric.read("picked")[..., :2] == [0, 1]).all()
    assert (resident.fabric.read("expert_shares") == 0.5).all()


def test_work_grows_with_what_is_chosen_and_not_with_what_is_there():
    """Another expert that is chosen costs its products; another one that is not costs a row of the router."""

    def taken(experts, chosen):
        decoder = replace(SMALL, hidden=48, ffn=64, experts=experts, chosen=chosen)
        return StepCycles(Decode(machine(), DecoderPlacement(decoder, 3, 2, 4))).step(2)

    two, three, four = (taken(4, chosen) for chosen in (2, 3, 4))
    assert four - three == pytest.approx(three - two, rel=0.15)
    assert three - two > 0.1 * two
    assert taken(8, 2) - two < 0.25 * (three - two)


@pytest.mark.parametrize(
    ("decoder", "lanes"), mixed([SMALL, QWEN, OLMOE], [{}, {"batch": 3}, {"batch": 1, "ahead": 4}])
)
def test_programs_take_what_is_reckoned(decoder, lanes):
    place = DecoderPlacement(decoder, 5, 3, 2, **lanes)
    counted = {name: words for name, words in needed_words(place).items() if name != "code"}
    for image in Decode(machine(), place, "round").layout().build().programs:
        assert 2 * len(image.code) <= code_words(place)
        words = sum(symbol.words for symbol in image.symbols.values())
        assert sum(counted.values()) - GAPS <= words + 64
        assert words <= sum(counted.values())


def test_regions_have_experts_of_their_layers():
    place = DecoderPlacement(SMALL, 3, 2, 4)
    first = RegionPipeline(machine(), place, 2).stages[0]
    assert first.place.weight_words == DecoderPlacement(replace(SMALL, layers=1), 3, 2, 4).head_at


def with_experts(decoder, experts, share, renormalised):
    """Return a decoder with experts instead of one feed-forward part."""
    chosen = max(1, round(share * experts))
    norms = "before" if decoder.parallel else decoder.norms
    return replace(decoder, experts=experts, chosen=chosen, renormalised=renormalised, ffn_bias=False, norms=norms)


@examples(6)
@given(**CHOICES, width=st.integers(1, 7), height=st.integers(1, 5), batch=st.integers(2, 4))
def test_tokens_of_a_step_choose_for_themselves(
    decoder, experts, share, renormalised, width, height, batch, policy, dtype, seed
):
    """Each lane of a batch has the bits that its request has alone, by its own experts; cycles are the price's."""
    decode = decode_of(
        with_experts(decoder, experts, share, renormalised), width, height, batch, height + 3, policy, dtype=dtype
    )
    assume(have_room(needed_words(decode.place)))
    run_batch(decode, height + 3, 5, seed)


@pytest.mark.parametrize("decoder", [SMALL, QWEN, OLMOE])
def test_a_prompt_in_pieces(decoder):
    """Tokens of a piece choose their experts, and every bit is that of a prompt that is read token by token."""
    built = chunks_of(decoder, 4, 3, 7, 3)
    weights, tokens = random_weights(decoder), texts(decoder, 9)
    oracle = Oracle(Decode(machine(), built.decode.place, "round"), weights)
    wanted = [oracle.step(token)[1] for token in tokens]
    reading = built.read(weights, built.decode.tables(weights), tokens[:7])
    came = [each for step in reading.steps for each in step.came if each is not None]
    assert all(np.array_equal(each.logits, bits) for each, bits in zip(came, wanted[:7], strict=True))
    cycles = [step.cycles for step in reading.steps]
    assert StepCycles(built.reader).steps(built.pieces()) == pytest.approx(cycles, rel=0.01)
    resident = built.answering(weights, reading.kept)
    for token, bits in zip(tokens[7:], wanted[7:], strict=True):
        assert np.array_equal(resident.step(token).logits, bits)


def test_both_engines_give_the_same_to_a_batch():
    decode = decode_of(TINY, 2, 2, 2, 4)
    found = [run_batch(decode, 4, 1, backend=backend) for backend in ("compiled", "reference")]
    for one, other in zip(*found, strict=True):
        assert (one.cycles, one.hops) == (other.cycles, other.hops)


@examples(6)
@given(**CHOICES, width=st.integers(1, 9), height=st.integers(1, 7), rounds=st.floats(0, 3))
def test_prompts_at_once_have_the_oracles_bits(
    decoder, experts, share, renormalised, width, height, rounds, policy, dtype, seed
):
    """Any mesh, rows with an empty place and rows without tokens: the prompt and three steps behind it."""
    decoder, length = with_experts(decoder, experts, share, renormalised), max(1, round(rounds * height))
    place = DecoderPlacement(decoder, width, height, tokens_per_row(length + 3, height, policy), dtype)
    assume(have_room(prompt_words(PromptPlacement(place, length)), needed_words(place)))
    Both(decoder, width, height, length, 3, policy, dtype, seed=seed).check(3)


PROMPTS = few(
    [
        (SMALL, 1, 1, 3),
        (QWEN, 4, 3, 7),
        (replace(OLMOE, norms="both"), 3, 5, 4),
        (replace(SMALL, norms="behind", experts=12), 5, 4, 13),
        (OLMOE, 3, 5, 14),
        (SMALL, 8, 3, 9),
    ],
    4,
)


@pytest.mark.parametrize(("decoder", "width", "height", "length"), PROMPTS)
def test_prompts_are_near_plain_numpy(decoder, width, height, length):
    both = Both(decoder, width, height, length)
    both.check(0)
    assert np.abs(both.found[0] - both.plain()[0]).max() <= 20 * 2.0**-11 * (1 + np.abs(both.plain()).max())


@pytest.mark.parametrize(("decoder", "width", "height", "length"), PROMPTS)
def test_prices_of_prompts(decoder, width, height, length, monkeypatch):
    """Within 10 % with choices by lot, and within 3 % with those that the tokens made."""
    both = Both(replace(decoder, layers=1), width, height, length)
    assert PromptCycles(both.prefill).prompt_cycles() == pytest.approx(both.reading.cycles, rel=BY_EXPERTS)
    picks, plain = [], Oracle.routed

    def routed(oracle, logits):
        found = plain(oracle, logits)
        picks.append(found[0])
        return found

    monkeypatch.setattr(Oracle, "routed", routed)
    both.check(0)
    chosen = np.zeros((height, decoder.experts), int)
    rows = np.repeat(np.arange(height), both.prompt.counts)
    for row, experts in zip(rows, picks, strict=True):
        chosen[row, experts] += 1
    monkeypatch.setattr(PromptCycles, "chosen", lambda form, counts: chosen)
    monkeypatch.setattr(cycles, "EXPERTS", decoder.experts)
    assert PromptCycles(both.prefill).prompt_cycles() == pytest.approx(both.reading.cycles, rel=0.03)


def test_both_engines_give_the_same_to_a_prompt():
    readings = [Both(TINY, 2, 2, 3, backend=backend).reading for backend in ("compiled", "reference")]
    assert readings[0].hops == readings[1].hops
    assert readings[0].cycles == readings[1].cycles
    assert np.array_equal(readings[0].kept["cache"], readings[1].kept["cache"])


@pytest.mark.parametrize("decoder", [SMALL, QWEN, replace(OLMOE, norms="both")])
def test_programs_of_prompts_take_what_is_reckoned(decoder):
    prompt = PromptPlacement(DecoderPlacement(decoder, 5, 3, 4), 8)
    counted = {name: words for name, words in prompt_words(prompt).items() if name != "code"}
    for image in Prefill(machine(), prompt).layout().build().programs:
        assert 2 * len(image.code) <= code_words(prompt.place)
        words = sum(symbol.words for symbol in image.symbols.values())
        assert sum(counted.values()) - 2 * GAPS <= words <= sum(counted.values())


def test_keys_and_values_go_to_another_mesh():
    """A prompt that one mesh reads and another one answers: bits of the oracle."""
    run_move(meshes(SMALL, (4, 3), (3, 4), 7, steps=3), steps=3)


def test_what_is_refused():
    for change in ({"chosen": 7}, {"chosen": 0}, {"experts": 0}, {"ffn_bias": True}, {"norms": "beside"}):
        with pytest.raises(ConfigError, match="experts"):
            replace(SMALL, **change)
