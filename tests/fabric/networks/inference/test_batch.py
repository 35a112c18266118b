"""A step that takes tokens of several requests gives each the bits that it has alone, in less time than they take."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.networks.inference.batch import BatchOracle, BatchResident, LaneToken
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.fit import admit, largest, needed_words, tokens_per_row
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.resident import ResidentDecoder
from fabric.networks.inference.rows import POLICIES
from tests.examples import SOAK, examples, few, mixed
from tests.fabric.networks.inference.machines import CHANGES, machine_of
from tests.fabric.networks.inference.small_models import CLASSIC, decoders, have_room, random_weights
from wse_core.errors import ConfigError, PlanError, UnsupportedError
from wse_core.params import machine

WITHIN = 0.01
SMALL = Decoder(24, 2, 4, 2, 8, 20, 17, 64, 1e-5)
TINY = Decoder(6, 2, 2, 1, 2, 5, 5, 64, 1e-5)
FULL = Decoder(6, 2, 4, 2, 4, 5, 5, 64, 1e-5, o_bias=True, ffn_bias=True, qkv_bias=True, head_norms=True, rotary=2,
               norms="both", score_cap=2.0, logit_cap=3.0, local_base=9.0, activation="gelu",
               different=(LayerKind(), LayerKind(window=2, local=True)))  # fmt: skip
PROJECTED = Decoder(6, 1, 4, 2, 4, 5, 5, 64, 1e-5, norms="behind", projection_norms=True)
"""Small ones, two of them for the plain-Python machine; `FULL` has all but norms of projections."""


def decode_of(decoder, width, height, batch, tokens, policy="shift", numbers=None, dtype="f16"):
    """Return a decoder of a batch with room for so many tokens of each request."""
    place = DecoderPlacement(decoder, width, height, tokens_per_row(tokens, height, policy), dtype, batch=batch)
    return Decode(numbers or machine(), place, policy)


def given_of(rng, decoder, batch, tokens, counts):
    """Return tokens for all lanes: some have no request, some begin one, none goes on beyond its cache."""
    found = []
    for lane in range(batch):
        first = counts[lane] in (0, tokens) or rng.random() < 0.2
        counts[lane] = 1 if first else counts[lane] + 1
        found.append(LaneToken(int(rng.integers(decoder.vocabulary)), first))
        if counts[lane] > 0 and rng.random() < 0.1:
            counts[lane], found[lane] = 0, None
    return found


def assert_priced(form, before, step, within, first):
    """A step takes what it is priced at; what programs do once before their first token ever comes on top of that."""
    once = 64 + 24 * form.place.lanes if first else 0
    assert (step.cycles - once) * (1 - within) <= form.step(before) <= step.cycles * (1 + within)


def run(decode, tokens, steps, seed=0, backend=None):
    """Let lanes take tokens as they come; compare every one with the oracle of its request alone, return the steps."""
    decoder, lanes = decode.place.decoder, decode.place.lanes
    rng, counts, weights = np.random.default_rng(seed), [0] * lanes, random_weights(decoder, seed)
    resident, oracle, form = BatchResident(decode, weights, backend), BatchOracle(decode, weights), StepCycles(decode)
    found = []
    for _ in range(steps):
        had = list(counts)
        given = given_of(rng, decoder, lanes, tokens, counts)
        step = resident.step(given)
        before = [0 if each is None or each.first else n for each, n in zip(given, had, strict=True)]
        for lane, (each, came) in enumerate(zip(given, step.came, strict=True)):
            if each is None:
                assert came is None
                continue
            wanted, bits = oracle.step(lane, each)
            assert np.array_equal(came.logits, bits)
            assert came.token == wanted
        assert_priced(form, before, step, WITHIN, first=not found)
        found.append(step)
    return found


@examples(20)
@given(
    decoder=decoders(),
    width=st.integers(1, 9 if SOAK else 6),
    height=st.integers(1, 7 if SOAK else 4),
    batch=st.integers(1, 5 if SOAK else 3),
    policy=st.sampled_from(POLICIES),
    dtype=st.sampled_from(["f16", "f16", "cb16"]),
    name=st.sampled_from(list(CHANGES)),
    seed=st.integers(0, 99),
)
def test_bits_are_those_of_each_request_alone(decoder, width, height, batch, policy, dtype, name, seed):
    """All kinds of layers, meshes, caches and machines: bits of a decoder alone, and cycles within 1 % of the price."""
    tokens = height + 3
    decode = decode_of(decoder, width, height, batch, tokens, policy, machine_of(name), dtype)
    assume(have_room(needed_words(decode.place)))
    run(decode, tokens, 6 if SOAK else 4, seed)


@pytest.mark.parametrize(("decoder", "policy"), mixed(few([FULL, PROJECTED, SMALL, *CLASSIC[:3]], 2), POLICIES))
def test_requests_over_few_rows(decoder, policy):
    """More tokens than rows, requests that end and begin at any time: entries move, each in its own cache."""
    run(decode_of(decoder, 4, 3, 4, 9, policy), 9, 16, seed=5)


@pytest.mark.parametrize("decoder", few([FULL, PROJECTED, TINY, *CLASSIC], 2))
def test_both_engines_give_the_same(decoder):
    """The plain-Python machine gives the same bits, cycles and hops."""
    found = [run(decode_of(decoder, 2, 2, 2, 4), 4, 2, backend=backend) for backend in ("compiled", "reference")]
    for one, other in zip(*found, strict=True):
        assert (one.cycles, one.hops) == (other.cycles, other.hops)
        assert [came and came.cycles for came in one.came] == [came and came.cycles for came in other.came]
        assert all(np.array_equal(a.logits, b.logits) for a, b in zip(one.came, other.came, strict=True) if a)


def test_positions_beyond_a_leap():
    """Lanes whose coarse angles turn in different steps have the bits of a request alone."""
    decoder = Decoder(4, 1, 1, 1, 4, 3, 5, 128, 1e-5, 100.0)
    decode = decode_of(decoder, 2, 2, 3, 70)
    weights = random_weights(decoder)
    resident, oracle = BatchResident(decode, weights), BatchOracle(decode, weights)
    for n in range(70):
        given = [LaneToken(n % 5, n == first) if n >= first else None for first in (0, 1, 30)]
        for lane, came in enumerate(resident.step(given).came):
            if came is not None:
                assert np.array_equal(oracle.step(lane, given[lane])[1], came.logits)


def test_eight_requests_take_less_than_three_times_one():
    """On 32 x 32 PEs, where a step is mostly waiting for sums: eight tokens of eight requests, one before each."""
    decoder = Decoder(64, 1, 8, 8, 8, 64, 64, 64, 1e-5)
    weights, place = random_weights(decoder), DecoderPlacement(decoder, 32, 32, 1)
    alone = ResidentDecoder(Decode(machine(), place), weights)
    together = BatchResident(Decode(machine(), replace(place, batch=8)), weights)
    for n in range(2):
        given = [LaneToken((n + lane) % 7, n == 0) for lane in range(8)]
        eight, one = together.step(given), alone.step(given[3].token)
        assert np.array_equal(eight.came[3].logits, one.logits)
    assert eight.cycles <= 3 * one.cycles
    assert 8 * one.hops > eight.hops  # sums of eight are no more messages than those of one
    assert StepCycles(together.decode).step([1] * 8) == pytest.approx(eight.cycles, rel=WITHIN)


def test_a_batch_that_does_not_fit_is_refused_with_one_that_does():
    """The largest tensor and its bytes, the smallest mesh for all, and the largest batch on this mesh."""
    place = DecoderPlacement(SMALL, 2, 2, 40, batch=60)
    with pytest.raises(PlanError, match=r"of a batch of 60 .* the most of them for cache \(\d.* bytes\)") as refused:
        admit(place, machine(), 80, "shift")
    most = largest(place, machine(), "batch")
    assert 1 < most < 60
    assert f"or --batch {most} on this one" in str(refused.value)
    width, height = (int(n) for n in str(refused.value).split(" tokens is ")[1].split(";")[0].split(" x "))
    admit(replace(place, width=width, height=height, tokens_per_row=-(-80 // height)), machine(), 80, "shift")
    admit(replace(place, batch=most), machine(), 80, "shift")
    with pytest.raises(PlanError):
        admit(replace(place, batch=most + 1), machine(), 80, "shift")
    weights = random_weights(SMALL)
    step = BatchResident(Decode(machine(), replace(place, batch=most)), weights).step([LaneToken(3, True)] * most)
    assert len({came.token for came in step.came}) == 1


def test_what_is_refused():
    """Tokens that do not exist, one more than a cache holds, a token for each lane, both kinds of requests."""
    resident = BatchResident(decode_of(SMALL, 2, 2, 2, 2), random_weights(SMALL))
    with pytest.raises(ConfigError, match="token 17 does not exist"):
        resident.step([LaneToken(17, True), None])
    with pytest.raises(ConfigError, match="1 tokens for 2 lanes"):
        resident.step([LaneToken(1, True)])
    resident.step([LaneToken(1, True), None])
    resident.step([LaneToken(1), LaneToken(1, True)])
    with pytest.raises(ConfigError, match="room for 2 tokens of a request"):
        resident.step([LaneToken(1), LaneToken(1)])
    with pytest.raises(ConfigError, match="in turns or together"):
        DecoderPlacement(SMALL, 2, 2, 1, requests=2, batch=2)
    with pytest.raises(ConfigError, match="batch is -1"):
        DecoderPlacement(SMALL, 2, 2, 1, batch=-1)


def test_no_number_is_an_error_and_not_a_token():
    """A weight that makes a logit infinite ends the run with a message."""
    weights = random_weights(SMALL)
    weights["lm_head.weight"][3] = np.inf
    with pytest.raises(ConfigError, match="logits of token 0 are no finite numbers"):
        BatchResident(decode_of(SMALL, 2, 2, 2, 2), weights).step([None, LaneToken(0, True)])


def tries(rng, decoder, batch, ahead, states, counts, oracle, tokens):
    """Return tokens for all lanes, what goes before them, and oracles behind them.

    Each request tries some tokens behind one of the last step, any of them, or begins.
    """
    given, before, found = [], [], []
    for request in range(batch):
        first, lane = not states[request] or rng.random() < 0.15, 0
        if not first:
            lane = int(rng.integers(len(states[request])))
            first = counts[request][lane] >= tokens
        alone = oracle.plain.anew() if first else deepcopy(states[request][lane])
        count, take = 0 if first else counts[request][lane], int(rng.integers(1, ahead + 1))
        states[request], counts[request] = [], []
        for k in range(ahead):
            if k >= take or count >= tokens:
                given.append(None)
                found.append(None)
                before.append(before[-1])
                continue
            token = int(rng.integers(decoder.vocabulary))
            given.append(LaneToken(token, first and k == 0, request * ahead + (k - 1 if k else lane)))
            found.append(alone.step(token))
            before.append(count)
            count += 1
            states[request].append(deepcopy(alone))
            counts[request].append(count)
    return given, before, found


def run_tries(decode, tokens, steps, seed=0, backend=None, within=WITHIN):
    """Let requests try tokens and take them back; every one has the bits of the oracle of its text alone."""
    place, decoder = decode.place, decode.place.decoder
    rng, weights = np.random.default_rng(seed), random_weights(decoder, seed)
    resident, oracle, form = BatchResident(decode, weights, backend), BatchOracle(decode, weights), StepCycles(decode)
    states, counts, found = [[] for _ in range(place.batch)], [[] for _ in range(place.batch)], []
    for _ in range(steps):
        given, before, wanted = tries(rng, decoder, place.batch, place.ahead, states, counts, oracle, tokens)
        step = resident.step(given)
        for want, came in zip(wanted, step.came, strict=True):
            assert (want is None) == (came is None)
            if want is not None:
                assert np.array_equal(came.logits, want[1])
                assert came.token == want[0]
        assert_priced(form, before, step, within, first=not found)
        found.append(step)
    return found


def ahead_of(decoder, width, height, batch, ahead, tokens, policy="round", numbers=None, dtype="f16"):
    """Return a decoder that takes several tokens of each request in a step."""
    room = tokens_per_row(tokens, height, policy)
    place = DecoderPlacement(decoder, width, height, room, dtype, batch=batch, ahead=ahead)
    return Decode(numbers or machine(), place, policy)


@examples(15)
@given(
    decoder=decoders(),
    width=st.integers(1, 7),
    height=st.integers(1, 5),
    batch=st.integers(1, 3),
    ahead=st.integers(2, 4),
    policy=st.sampled_from(["round", "concat"]),
    dtype=st.sampled_from(["f16", "f16", "cb16"]),
    name=st.sampled_from(list(CHANGES)),
    seed=st.integers(0, 99),
)
def test_tokens_that_are_tried_together(decoder, width, height, batch, ahead, policy, dtype, name, seed):
    """All kinds of layers and machines: each token has the bits of its text alone, whatever was taken back before."""
    tokens = height + 2 * ahead
    decode = ahead_of(decoder, width, height, batch, ahead, tokens, policy, machine_of(name), dtype)
    assume(have_room(needed_words(decode.place)))
    run_tries(decode, tokens, 4, seed)


@pytest.mark.parametrize(("decoder", "policy"), mixed(few([SMALL, FULL, PROJECTED], 2), ["round", "concat"]))
def test_tries_over_few_rows(decoder, policy):
    """More tokens than rows: what was taken back is overwritten."""
    run_tries(ahead_of(decoder, 4, 3, 2, 3, 12, policy), 12, 8, seed=3)


@pytest.mark.parametrize(("hidden", "layers"), [(1, 2), (2, 3), (3, 2), (5, 4)])
def test_norms_of_heads_cost_the_same_however_many_layers_there_are(hidden, layers):
    """They begin in a bank of their own: one layer is priced, and what lies before them differs."""
    decoder = replace(TINY, hidden=hidden, layers=layers, heads=1, head_size=8, head_norms=True, norms="shared")
    run_tries(ahead_of(decoder, 1, 1, 1, 2, 5), 5, 4, within=0.006)


def test_both_engines_try_the_same():
    """The plain-Python machine gives the same bits, cycles and hops for several tokens of a request."""
    found = [run_tries(ahead_of(FULL, 2, 2, 1, 2, 6), 6, 2, backend=backend) for backend in ("compiled", "reference")]
    assert [(step.cycles, step.hops) for step in found[0]] == [(step.cycles, step.hops) for step in found[1]]


def test_what_is_refused_of_several_tokens():
    """A cache whose entries move, lanes of other requests, several tokens without a batch, too many lanes."""
    with pytest.raises(UnsupportedError, match="cache whose entries move"):
        ahead_of(SMALL, 2, 2, 1, 2, 4, "shift")
    resident = BatchResident(ahead_of(SMALL, 2, 2, 2, 2, 4), random_weights(SMALL))
    with pytest.raises(ConfigError, match="lane 2 goes on behind lane 1, of another request"):
        resident.step([LaneToken(1, True), None, LaneToken(1, False, 1), None])
    with pytest.raises(ConfigError, match="are for a batch"):
        DecoderPlacement(SMALL, 2, 2, 1, ahead=2)
    with pytest.raises(ConfigError, match="at most 500"):
        DecoderPlacement(SMALL, 2, 2, 1, batch=251, ahead=2)
