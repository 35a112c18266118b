"""A prompt read on one mesh and answered on another: entries come where they belong, steps have the oracle's bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fabric.networks.inference.decoder import Decoder
from fabric.networks.inference.fit import tokens_per_row
from fabric.networks.inference.move.cycles import MoveCycles
from fabric.networks.inference.move.plan import shared_out
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.reading import readings
from tests.examples import examples
from tests.fabric.networks.inference.slow_move import SlowMove
from tests.fabric.networks.inference.small_models import decoders, have_room, random_weights
from wse_core.errors import ConfigError, PlanError
from wse_core.params import machine

SMALL = Decoder(24, 2, 4, 2, 8, 20, 17, 64, 1e-5)


def meshes(decoder, first, second, length, steps=2, policy="shift", dtype="f16"):
    """Return two meshes for a prompt of `length` tokens and the one behind it, and so many steps."""
    before = DecoderPlacement(decoder, *first, max(1, -(-length // first[1])), dtype)
    behind = DecoderPlacement(decoder, *second, tokens_per_row(length + steps, second[1], policy), dtype)
    return TwoMeshes(machine(), before, behind, length, policy)


def run(built, steps=2, seed=0):
    """Read, move, decode; return the cycles of the closed form of the move, those that it took, and pairs of arrays.

    A pair is what the wafer has and what the oracle has: caches, logits and tokens, bit by bit.
    """
    decoder, length = built.decode.place.decoder, built.before.length
    weights = random_weights(decoder, seed)
    tokens = [(seed + 5 * n * n) % decoder.vocabulary for n in range(length)]
    resident, move = built.read(weights, tokens)
    first = built.before.place
    ends = readings(resident.fabric, "stamps", (0, 0, first.width, first.height))[-1].astype(float)
    form = MoveCycles(built).moved(ends) - ends.max()
    pairs = []  # the oracle goes on in place, so copies
    oracle, place = built.oracle(weights, tokens), built.decode.place
    rect = built.decode.column, 0, place.width, place.height
    held = resident.fabric.read("cache", rect).view(np.uint16)
    held = held.reshape(place.height, place.width, decoder.layers, place.cache_words)
    half = place.kv_rows * place.capacity
    for r, count in enumerate(built.behind.counts):
        for c in range(place.width):
            keys = held[r, c, :, :half].reshape(decoder.layers, place.kv_heads, place.part, -1)
            values = held[r, c, :, half:].reshape(decoder.layers, place.kv_heads, -1, place.part)
            pairs.append((keys[..., :count], oracle.keys[:, r, c, ..., :count].copy()))
            pairs.append((values[:, :, :count], oracle.values[:, r, c, :, :count].copy()))
    for token in range(steps):
        step = resident.step(token % decoder.vocabulary)
        wanted, bits = oracle.step(token % decoder.vocabulary)
        pairs += [(step.logits, bits), (step.token, wanted)]
    return form, move.transition, pairs


def is_near(form, cycles, short):
    """Whether a closed form is 5 % too long at most, `short` too short, and a few cycles."""
    return (1 - short) * cycles - 12 <= form <= 1.05 * cycles + 12


@given(
    width=st.integers(1, 24),
    height=st.integers(1, 30),
    other=st.tuples(st.integers(1, 30), st.integers(1, 40)),
    length=st.integers(1, 120),
    layers=st.integers(1, 6),
    spread=st.sampled_from([0, 1, 40, 3000]),
    numbers=st.fixed_dictionaries(
        {},
        optional={
            "router.hop": st.integers(1, 3),
            "ce.dsr_load": st.integers(1, 9),
            "vec.drain": st.integers(0, 5),
            "ce.load_latency": st.integers(1, 6),
            "ce.branch_taken": st.integers(1, 9),
        },
    ),
    seed=st.integers(0, 99),
)
def test_entries_in_runs_move_as_those_one_by_one(width, height, other, length, layers, spread, numbers, seed):
    decoder = Decoder(24, layers, 4, 2, 8, 20, 17, 512, 1e-5)
    before = DecoderPlacement(decoder, width, height, max(1, -(-length // height)), "f16")
    behind = DecoderPlacement(decoder, *other, tokens_per_row(length + 2, other[1], "shift"), "f16")
    try:
        built = TwoMeshes(machine("wse2", numbers), before, behind, length, "shift")
    except (ConfigError, PlanError):
        assume(False)
    begun = 1000.0 + np.random.default_rng(seed).integers(0, spread + 1, (height, width))
    assert MoveCycles(built).moved(begun) == pytest.approx(SlowMove(built).moved(begun), abs=1e-6)


@examples(10)
@given(
    decoder=decoders(),
    first=st.tuples(st.integers(1, 5), st.integers(1, 6)),
    second=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    length=st.integers(1, 13),
    policy=st.sampled_from(["shift", "concat", "round"]),
    dtype=st.sampled_from(["f16", "cb16"]),
    seed=st.integers(0, 99),
)
@example(Decoder(1, 2, 1, 1, 4, 2, 2, 64, 1e-5, 100.0), (5, 1), (1, 1), 13, "shift", "f16", 0)  # the form is 9 % short
def test_bits_are_the_oracles(decoder, first, second, length, policy, dtype, seed):
    """Any two meshes, more rows or fewer, any prompt: the cache, the cycles of the move and the steps behind it.

    Where a row hands on many small entries, the form has only its last PE wait, not those behind it: 9 % at most.
    """
    built = meshes(decoder, first, second, length, 2, policy, dtype)
    assume(have_room(*built.words()))
    form, cycles, pairs = run(built, 2, seed)
    assert all(np.array_equal(mine, oracles) for mine, oracles in pairs)
    assert is_near(form, cycles, 0.12)


@pytest.mark.parametrize(("first", "second"), [((3, 2), (2, 3)), ((2, 3), (4, 2)), ((4, 2), (4, 2))])
def test_the_closed_form_is_near(first, second):
    """Meshes of similar sizes: the move takes what the form says."""
    form, cycles, pairs = run(meshes(SMALL, first, second, 9, 1), 1)
    assert all(np.array_equal(mine, oracles) for mine, oracles in pairs)
    assert is_near(form, cycles, 0.05)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12))
def test_rows_share_tokens_out(length, first, second):
    """Each row ends with the tokens that it should have; what is sent arrives, and nothing goes further than needed."""
    before, behind = (PromptPlacement(DecoderPlacement(SMALL, 2, rows, length), length) for rows in (first, second))
    found = shared_out(before, behind)
    assert [share.has for share in found][:second] == behind.counts
    assert sum(share.has for share in found) == length
    order = found if second >= first else found[::-1]
    coming = 0
    for share in order:
        assert min(share.kept, share.sent, share.received, share.passed) >= 0
        assert share.kept + share.sent == share.held
        assert share.received + share.passed == coming
        coming = share.passed + share.sent
    assert coming == 0


def test_what_is_refused():
    """No token to move; meshes that do not lie side by side on the wafer."""
    with pytest.raises(ConfigError, match="a prompt of one token"):
        meshes(SMALL, (2, 2), (2, 2), 0)
    with pytest.raises(PlanError, match=r"take 800 x 2 PEs side by side; the wafer has 757"):
        meshes(SMALL, (400, 2), (400, 2), 4)
