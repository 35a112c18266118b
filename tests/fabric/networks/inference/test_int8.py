"""A cache of 8 bits holds the oracle's bits, and all that reads it gives the oracle's, on any mesh."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.networks.inference.batch import BatchOracle, BatchResident, LaneToken
from fabric.networks.inference.chunks import Chunks
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.fit import needed_words, tokens_per_row
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill.cycles import PromptCycles
from fabric.networks.inference.prefill.fit import prompt_words
from fabric.networks.inference.prefill.oracle import PrefillOracle
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.prefill.reading import read_prompt
from fabric.networks.inference.resident import ResidentDecoder, with_room
from fabric.networks.inference.rows import POLICIES
from fabric.networks.inference.writer import code_words
from tests.examples import examples, mixed
from tests.fabric.networks.inference.small_models import decoders, have_room, random_weights
from wse_core.formats import Arithmetic
from wse_core.params import machine

SMALL = Decoder(12, 1, 4, 2, 8, 10, 17, 64, 1e-5)
WINDOWED = replace(SMALL, layers=2, different=(LayerKind(window=3), LayerKind()), head_norms=True, qkv_bias=True)
TINY = Decoder(6, 1, 2, 1, 4, 5, 5, 64, 1e-5)


def placed(decoder, width, height, tokens, policy="shift", dtype="f16", **more):
    """Return where a decoder lies with a cache of 8 bits."""
    return DecoderPlacement(
        decoder, width, height, tokens_per_row(tokens, height, policy), dtype, **{"int8": True} | more
    )


def fed(decoder, count, seed=0):
    """Return so many tokens."""
    return [(5 * k * k + 3 * k + seed) % decoder.vocabulary for k in range(count)]


def follow(resident, oracle, tokens):
    """Feed tokens and compare each step, and all of the cache, with the oracle; return the cycles."""
    cycles = []
    for token in tokens:
        step = resident.step(token)
        wanted, bits = oracle.step(token)
        assert np.array_equal(step.logits, bits)
        assert step.token == wanted
        cycles.append(step.cycles)
    assert oracle.has(resident.cache())
    return cycles


@examples(8)
@given(
    decoder=decoders(),
    width=st.integers(1, 9),
    height=st.integers(1, 6),
    rounds=st.floats(0, 3),
    policy=st.sampled_from(POLICIES),
    dtype=st.sampled_from(["f16", "cb16"]),
    seed=st.integers(0, 99),
)
def test_bits_are_the_oracles(decoder, width, height, rounds, policy, dtype, seed):
    """Heads, groups, windows, any mesh, entries that moved: logits and all words of the cache are the oracle's."""
    tokens = min(10, 1 + round(rounds * height))
    place = placed(decoder, width, height, tokens, policy, dtype)
    assume(have_room(needed_words(place)))
    weights, decode = random_weights(decoder, seed), Decode(machine(), place, policy)
    resident = ResidentDecoder(decode, weights)
    cycles = follow(resident, Oracle(decode, weights), fed(decoder, tokens, seed))
    assert StepCycles(decode).steps(range(tokens)) == pytest.approx(cycles, rel=0.01)
    used = max(len(image.code) for image in resident.fabric.spec.programs)
    assert 2 * used <= code_words(place)


def test_both_engines_give_the_same():
    """The plain-Python machine gives the same bits, cycles and hops."""
    found = []
    for backend in ("compiled", "reference"):
        resident = ResidentDecoder(Decode(machine(), placed(TINY, 2, 1, 2)), random_weights(TINY), backend)
        found.append([resident.step(token) for token in (3, 1)])
    for a, b in zip(*found, strict=True):
        assert (a.token, a.cycles, a.hops) == (b.token, b.cycles, b.hops)
        assert np.array_equal(a.logits, b.logits)


@examples(8)
@given(
    decoder=decoders(),
    width=st.integers(1, 8),
    height=st.integers(1, 5),
    length=st.integers(1, 9),
    dtype=st.sampled_from(["f16", "cb16"]),
)
def test_prompts_that_are_read_at_once(decoder, width, height, length, dtype):
    """What a prompt leaves, and what is decoded behind it, are the oracle's bits; cycles are those that are priced."""
    place = placed(decoder, width, height, length + 2, dtype=dtype)
    prompt = PromptPlacement(place, length)
    assume(have_room(needed_words(place, prompt.slots)) and have_room(prompt_words(prompt)))
    weights, tokens = random_weights(decoder), fed(decoder, length)
    decode, prefill = Decode(machine(), place, prompt=prompt), Prefill(machine(), prompt)
    tables = decode.tables(weights)
    reading = read_prompt(prefill, weights, tables, tokens)
    resident, oracle = ResidentDecoder(decode, weights, kept=reading.kept), Oracle(decode, weights, tables)
    token, bits = oracle.answer(PrefillOracle(prefill, oracle).read(tokens))
    assert oracle.has(reading.kept["cache"])
    assert np.array_equal(resident.resume().logits, bits)
    follow(resident, oracle, [token, 1 % decoder.vocabulary])
    assert PromptCycles(prefill).prompt_cycles() == pytest.approx(reading.cycles, rel=0.04, abs=60)


@pytest.mark.parametrize(("decoder", "policy"), mixed([SMALL, WINDOWED], POLICIES))
def test_several_requests_in_a_step(decoder, policy):
    """Lanes with caches of their own, one of which begins anew: bits of an oracle for each lane."""
    place = placed(decoder, 3, 2, 5, policy, batch=2)
    weights, decode = random_weights(decoder), Decode(machine(), place, policy)
    resident, oracle = BatchResident(decode, weights), BatchOracle(decode, weights)
    for k in range(5):
        given = [LaneToken(k, first=k == 0), LaneToken((3 * k + 1) % 17, first=k in (0, 3))]
        step = resident.step(given)
        for lane, each in enumerate(given):
            token, bits = oracle.step(lane, each)
            assert step.came[lane].token == token
            assert np.array_equal(step.came[lane].logits, bits)


@pytest.mark.parametrize(("decoder", "policy"), mixed([SMALL, WINDOWED], POLICIES))
def test_prompts_in_pieces(decoder, policy):
    """Pieces over the cache, and the decoder behind them: the oracle's bits, those of tokens one by one."""
    place, weights = placed(decoder, 3, 2, 9, policy), random_weights(decoder)
    built = Chunks(machine(), place, 7, 3, policy)
    tables, tokens = built.decode.tables(weights), fed(decoder, 9)
    reading, oracle = built.read(weights, tables, tokens[:7]), Oracle(built.decode, weights, tables)
    came = [each for step in reading.steps for each in step.came if each is not None]
    for token, each in zip(tokens[:7], came, strict=True):
        assert np.array_equal(oracle.step(token)[1], each.logits)
    follow(built.answering(weights, reading.kept), oracle, tokens[7:])


@pytest.mark.parametrize("dtype", ["f16", "cb16"])
def test_numbers_come_back_within_their_bound(dtype):
    """Any numbers of f32 come back within half a unit of 1/128 of the part's largest, or a unit at the limit."""
    decode = Decode(machine(), placed(TINY, 1, 1, 4, dtype=dtype))
    oracle, single = Oracle(decode, random_weights(TINY)), Arithmetic.of(machine(), "f32")
    rng = np.random.default_rng(0)
    values = rng.standard_normal((400, 2, 4)) * 2.0 ** rng.uniform(-9, 9, (400, 2, 1))
    values[0], values[1, 0], values[2, 0] = 0.0, [127.0, -127.0, 0.5, 1.5], [255.0, -256.0, 127.9, -64.0]
    back = oracle.half.decode(oracle.read_back(oracle.coded(single.encode(values.reshape(400, -1)))))
    back, unit = (
        back.reshape(values.shape),
        2.0 ** np.floor(np.log2(np.abs(values).max(-1, keepdims=True) + 1e-99)) / 64,
    )
    error = np.abs(back - np.float32(values)) / unit
    assert error.max() <= 1.0
    assert (error[np.abs(values) < 126.9 * unit] <= 0.5 + 1e-6).all()
    assert not back[0].any()
    assert back[1, 0].tolist() == [127.0, -127.0, 0.0, 2.0]  # ties go to even numbers
    assert back[2, 0].tolist() == [256.0, -256.0, 128.0, -64.0]


def test_numbers_that_are_none_have_codes():
    """The wafer and the oracle agree where keys are infinite: what follows is no number on both."""
    weights = random_weights(TINY)
    name = "model.layers.0.self_attn.k_proj.weight"
    weights[name] = np.where(np.arange(weights[name].shape[0])[:, None] == 0, 6e4, weights[name])
    weights["model.layers.0.input_layernorm.weight"] = np.full(6, 3e38)
    decode = Decode(machine(), placed(TINY, 1, 1, 4))
    resident, oracle = ResidentDecoder(decode, weights), Oracle(decode, weights)
    with pytest.raises(Exception, match="no finite numbers"):
        resident.step(1)
    oracle.through(oracle.embedding(1))
    assert oracle.has(resident.cache())
    assert oracle.keys.max() >> 8 == 255


def test_a_longer_context_fits():
    """Memory that holds a cache of 16 bits holds one of 8 bits with more tokens, as many as the words say."""
    decoder = Decoder(64, 8, 4, 4, 16, 64, 50, 1 << 16)

    def most(int8):
        low, high = 1, 1 << 14
        while low < high:
            middle = (low + high + 1) // 2
            place = placed(decoder, 8, 8, middle, int8=int8)
            low, high = (middle, high) if have_room(needed_words(place)) else (low, middle - 1)
        return low

    wide, narrow = (placed(decoder, 8, 8, 64, int8=int8) for int8 in (False, True))
    assert (wide.entry_words, narrow.entry_words) == (2 * 8, 8 + 1)
    assert most(True) > 1.5 * most(False)
    cycles = [StepCycles(Decode(machine(), replace(place, decoder=SMALL))).step(40) for place in (wide, narrow)]
    assert 1.02 < cycles[1] / cycles[0] < 1.6  # what a step costs more


def test_a_cache_with_more_room():
    """Keys, values and exponents are where a decoder with room for more tokens has them."""
    weights, tokens = random_weights(SMALL), fed(SMALL, 9)
    before, behind = (Decode(machine(), placed(SMALL, 3, 2, count)) for count in (4, 11))
    resident, oracle = ResidentDecoder(before, weights), Oracle(before, weights)
    follow(resident, oracle, tokens[:4])
    lasting = with_room(resident.lasting(), behind.place)
    onward, other = ResidentDecoder(behind, weights), Oracle(behind, weights)
    onward.go_on(resident.lasting(), 4)
    other.take_over(lasting["cache"], 4)
    follow(onward, other, tokens[4:])
