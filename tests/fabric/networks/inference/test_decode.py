"""The resident decoder gives the oracle's bits on any mesh, and plain numpy's logits within rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decoder import HEAD_NORMS, Decoder, LayerKind
from fabric.networks.inference.fit import needed_words, tokens_per_row
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.resident import ResidentDecoder
from fabric.networks.inference.rows import POLICIES
from harness.models.bound import bounded_logits
from harness.models.plain import PlainDecoder
from tests.examples import examples, few, mixed
from tests.fabric.networks.inference.small_models import CLASSIC, decoders, have_room, random_weights, rounded
from wse_core.errors import ConfigError
from wse_core.params import machine

SMALL = Decoder(24, 2, 4, 2, 8, 20, 17, 64, 1e-5)
TINY = Decoder(6, 2, 2, 1, 2, 5, 5, 64, 1e-5)
NORMED = Decoder(4, 1, 2, 1, 4, 3, 5, 64, 1e-5, head_norms=True, activation="gelu")
BIASED = Decoder(
    6, 2, 2, 1, 2, 5, 5, 64, 1e-5, o_bias=True, ffn_bias=True, different=(LayerKind(), LayerKind(turns=False))
)
BEHIND = Decoder(6, 1, 2, 1, 2, 5, 5, 64, 1e-5, norms="both", projection_norms=True)
NEAR, FAR = LayerKind(window=3), LayerKind()
WINDOWED = Decoder(6, 2, 2, 1, 2, 5, 5, 64, 1e-5, score_cap=2.0, logit_cap=3.0, local_base=9.0,
                   different=(FAR, LayerKind(window=1, local=True)))  # fmt: skip
"""For the plain-Python machine."""


def placed(decoder, width, height, tokens, policy="shift", dtype="f16"):
    """Return where a decoder lies that has room for so many tokens."""
    return DecoderPlacement(decoder, width, height, tokens_per_row(tokens, height, policy), dtype)


def run(decoder, width, height, tokens, policy="shift", dtype="f16", backend=None, seed=0):
    """Feed tokens and compare each step with the oracle; return (resident, oracle, logits as numbers, weights)."""
    weights = random_weights(decoder, seed)
    decode = Decode(machine(), placed(decoder, width, height, tokens, policy, dtype), policy)
    resident, oracle = ResidentDecoder(decode, weights, backend), Oracle(decode, weights)
    token, logits, fed = seed % decoder.vocabulary, [], []
    for _ in range(tokens):
        step = resident.step(token)
        wanted, bits = oracle.step(token)
        assert np.array_equal(step.logits, bits)
        values = step.logits.view(np.float32)
        assert step.token == wanted == int(np.argmax(values))
        fed.append(token)
        logits.append(values)
        token = (3 * token + 1 + len(fed)) % decoder.vocabulary
    return resident, oracle, np.array(logits), weights, fed


@examples(25)
@given(
    decoder=decoders(),
    width=st.integers(1, 12),
    height=st.integers(1, 9),
    rounds=st.floats(0, 3),
    policy=st.sampled_from(POLICIES),
    dtype=st.sampled_from(["f16", "f16", "cb16"]),
    seed=st.integers(0, 99),
)
def test_bits_are_the_oracles(decoder, width, height, rounds, policy, dtype, seed):
    """Heads, groups, odd sizes, any mesh, up to three rounds over the rows: the same bits, and near plain numpy."""
    tokens = min(12, 1 + round(rounds * height))
    assume(have_room(needed_words(placed(decoder, width, height, tokens, policy, dtype))))
    _, _, logits, weights, fed = run(decoder, width, height, tokens, policy, dtype, seed=seed)
    plain = PlainDecoder(decoder, rounded(weights, dtype), np.float64).forward(fed)
    unit = {"f16": 2.0**-11, "cb16": 2.0**-10}[dtype]
    assert np.abs(logits - plain).max() <= 60 * unit * (1 + np.abs(plain).max())


@pytest.mark.parametrize("policy", POLICIES)
def test_many_tokens_over_few_rows(policy):
    """Three times as many tokens as rows and some more: entries moved many times give the oracle's bits."""
    resident, oracle, *_ = run(SMALL, 4, 3, 17, policy)
    place = resident.place
    keys = np.array([resident.fabric.read("held")[r, 0, 0] for r in range(place.height)])
    assert keys.tolist() == [len(row.slots) for row in oracle.rows.rows]


def test_cache_holds_the_oracles_entries():
    """Keys and values in SRAM are those of the oracle, entry by entry, after shifts."""
    resident, oracle, *_ = run(SMALL, 4, 3, 11)
    place, layers = resident.place, SMALL.layers
    held = resident.fabric.read("cache").view(np.uint16).reshape(3, 4, layers, place.cache_words)
    half = place.kv_rows * place.capacity
    for r, row in enumerate(oracle.rows.rows):
        n = len(row.slots)
        assert n >= 3
        for c in range(4):
            for layer in range(layers):
                keys = held[r, c, layer, :half].reshape(place.kv_heads, place.part, -1)
                values = held[r, c, layer, half:].reshape(place.kv_heads, -1, place.part)
                assert np.array_equal(keys[..., :n], oracle.keys[layer, r, c, ..., :n])
                assert np.array_equal(values[:, :n], oracle.values[layer, r, c, :, :n])


@pytest.mark.parametrize("decoder", few([NORMED, WINDOWED, CLASSIC[0], BEHIND, *CLASSIC[1:], TINY, BIASED], 4))
def test_both_engines_give_the_same(decoder):
    """The plain-Python machine gives the same bits, cycles and hops."""
    found = {}
    for backend in ("compiled", "reference"):
        weights = random_weights(decoder)
        resident = ResidentDecoder(Decode(machine(), DecoderPlacement(decoder, 2, 2, 1)), weights, backend)
        found[backend] = [resident.step(token) for token in (3, 1)]
    for a, b in zip(*found.values(), strict=True):
        assert (a.token, a.cycles, a.hops) == (b.token, b.cycles, b.hops)
        assert np.array_equal(a.logits, b.logits)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 2), (5, 2), (7, 3), (20, 2)])
def test_norms_of_heads(width, height):
    """Several heads in a column, a head in several, columns without: the oracle's bits, and near plain numpy."""
    decoder = Decoder(22, 2, 6, 3, 10, 13, 19, 64, 1e-5, qkv_bias=True, head_norms=True)
    _, _, logits, weights, fed = run(decoder, width, height, height + 3)
    plain = PlainDecoder(decoder, rounded(weights, "f16"), np.float64).forward(fed)
    assert np.abs(logits - plain).max() <= 20 * 2.0**-11 * (1 + np.abs(plain).max())


@pytest.mark.parametrize("turns", [(False, True, True), (False, False, False)])
def test_layers_without_positions(turns):
    """Each layer has what is its own: the oracle's bits near plain numpy, which is far from one that turns all."""
    decoder = replace(SMALL, layers=3, different=tuple(LayerKind(turns=each) for each in turns))
    _, _, logits, weights, fed = run(decoder, 5, 3, 9)
    plain, other = (
        PlainDecoder(each, rounded(weights, "f16"), np.float64).forward(fed)
        for each in (decoder, replace(decoder, different=()))
    )
    assert np.abs(logits - plain).max() <= 20 * 2.0**-11 * (1 + np.abs(plain).max())
    assert np.abs(logits - other).max() > 0.1


@pytest.mark.parametrize(("mesh", "norms"), mixed([(2, 1), (3, 2), (7, 3), (20, 2)], ["before", "behind", "both"]))
def test_norms_of_projections(norms, mesh):
    """Heads of all columns together, columns without, norms anywhere: the oracle's bits, and near plain numpy."""
    width, height = mesh
    decoder = Decoder(22, 2, 6, 3, 10, 13, 19, 64, 1e-5, qkv_bias=True, norms=norms, projection_norms=True)
    _, _, logits, weights, fed = run(decoder, width, height, height + 3)
    plain = PlainDecoder(decoder, rounded(weights, "f16"), np.float64).forward(fed)
    assert np.abs(logits - plain).max() <= 20 * 2.0**-11 * (1 + np.abs(plain).max())


@pytest.mark.parametrize(("layers", "policy"), mixed([(NEAR, NEAR), (FAR, NEAR), (NEAR, FAR)], POLICIES))
def test_windows(layers, policy):
    """Tokens outside of the window are not seen, wherever the cache has them; those that are seen make all the bits."""
    decoder = replace(SMALL, different=layers)
    _, _, logits, weights, fed = run(decoder, 4, 3, 17, policy)
    plain, whole = (
        PlainDecoder(each, rounded(weights, "f16"), np.float64).forward(fed) for each in (decoder, decoder.within(3))
    )
    assert np.abs(logits - plain).max() <= 20 * 2.0**-11 * (1 + np.abs(plain).max())
    assert np.abs(logits[3:] - whole[3:]).max() > 0.1
    if layers == (NEAR, NEAR):  # what lies more than two windows back has no say
        other = [(token + 1) % decoder.vocabulary for token in fed[:5]] + fed[5:]
        resident = ResidentDecoder(Decode(machine(), placed(decoder, 4, 3, 17, policy), policy), weights)
        again = [resident.step(token).logits for token in other]
        assert np.array_equal(np.array(again[9:]).view(np.float32), logits[9:])


def test_a_window_that_holds_a_text_is_none():
    """Bits and cycles are those of a decoder without, so that texts within a window pay nothing for it."""
    decoder = replace(SMALL, different=(LayerKind(window=9),) * 2)
    assert decoder.within(9) == SMALL
    assert decoder.within(10) == decoder
    mixed = replace(decoder, local_base=50.0, different=(LayerKind(window=9, local=True), LayerKind()))
    assert mixed.within(9).different == (LayerKind(local=True), LayerKind())


@pytest.mark.parametrize("cap", [0.05, 2.0, 1e6])
def test_caps(cap):
    """Scores and logits far beyond a cap, near it and far below: the oracle's bits, near plain numpy."""
    decoder = replace(SMALL, score_cap=cap, logit_cap=cap)
    _, _, logits, weights, fed = run(decoder, 3, 2, 6)
    plain = PlainDecoder(decoder, rounded(weights, "f16"), np.float64).forward(fed)
    bound = bounded_logits(decoder, rounded(weights, "f16"), fed, "f16", 5)[1]
    assert (np.abs(logits - plain) <= bound).all()
    assert np.abs(logits).max() <= cap


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_gelu_far_from_zero(size):
    """Gates of any size give gelu within rounding, and no infinity."""
    decoder = replace(SMALL, activation="gelu")
    weights = random_weights(decoder)
    for name in [name for name in weights if "gate_proj" in name]:
        weights[name] = size * weights[name]
    decode = Decode(machine(), placed(decoder, 3, 2, 4))
    resident, oracle = ResidentDecoder(decode, weights), Oracle(decode, weights)
    plain = PlainDecoder(decoder, rounded(weights, "f16"), np.float64).forward([3, 1, 4, 1])
    for token, wanted in zip([3, 1, 4, 1], plain, strict=True):
        logits = resident.step(token).logits
        assert np.array_equal(logits, oracle.step(token)[1])
        assert np.abs(logits.view(np.float32) - wanted).max() <= 60 * 2.0**-11 * (1 + np.abs(plain).max())


def test_norms_of_heads_are_by_feature_and_by_product():
    """A weight of queries is not one of keys, and each feature has its own: other weights, other logits."""
    decoder = replace(SMALL, head_norms=True)
    weights = random_weights(decoder)
    for norm in HEAD_NORMS:
        for feature in range(decoder.head_size):
            name = f"model.layers.1.self_attn.{norm}.weight"
            changed = weights | {name: weights[name] * np.where(np.arange(decoder.head_size) == feature, 4.0, 1.0)}
            plain = PlainDecoder(decoder, rounded(changed, "f16"), np.float64).forward([3, 1, 4])
            resident = ResidentDecoder(Decode(machine(), placed(decoder, 4, 2, 3)), changed)
            logits = np.array([resident.step(token).logits.view(np.float32) for token in (3, 1, 4)])
            assert np.abs(logits - plain).max() <= 20 * 2.0**-11 * (1 + np.abs(plain).max())
            other = PlainDecoder(decoder, rounded(weights, "f16"), np.float64).forward([3, 1, 4])
            assert np.abs(plain - other).max() > 0.05


def test_positions_beyond_a_leap():
    """Angles are exact where fine steps begin anew: 70 tokens stay near plain numpy."""
    decoder = Decoder(4, 1, 1, 1, 4, 3, 5, 128, 1e-5, 100.0)
    _, _, logits, weights, fed = run(decoder, 2, 2, 70)
    plain = PlainDecoder(decoder, rounded(weights, "f16"), np.float64).forward(fed)
    assert np.abs(logits - plain).max() <= 20 * 2.0**-11 * (1 + np.abs(plain).max())


def test_what_is_refused():
    """Tokens that do not exist, and one more than the cache holds, are refused by name."""
    resident = ResidentDecoder(Decode(machine(), DecoderPlacement(SMALL, 2, 2, 1)), random_weights(SMALL))
    with pytest.raises(ConfigError, match="token 17 does not exist"):
        resident.step(17)
    resident.step(0)
    resident.step(1)
    with pytest.raises(ConfigError, match="room for 2 tokens"):
        resident.step(2)


def test_no_number_is_an_error_and_not_a_token():
    """A weight that makes a logit infinite ends the run with a message."""
    weights = random_weights(SMALL)
    weights["lm_head.weight"][3] = np.inf
    resident = ResidentDecoder(Decode(machine(), DecoderPlacement(SMALL, 2, 2, 1)), weights)
    with pytest.raises(ConfigError, match="no finite numbers"):
        resident.step(0)
