"""A prompt that is read in pieces has the bits of one that is read token by token, and no memory that grows with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.networks.inference.batch import BatchResident
from fabric.networks.inference.chunks import Chunks
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder
from fabric.networks.inference.fit import admit, largest, needed_words, tokens_per_row
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill.fit import prompt_words
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.prefill.reading import addresses, read_prompt
from fabric.networks.inference.resident import ResidentDecoder
from fabric.networks.inference.rows import POLICIES, Rows
from tests.examples import examples
from tests.fabric.networks.inference.small_models import decoders, have_room, random_weights
from wse_core.errors import PlanError
from wse_core.params import machine

WITHIN, ONCE = 0.01, 60
LONG = Decoder(24, 1, 4, 2, 8, 20, 17, 4096, 1e-5)


def chunks_of(decoder, width, height, length, size, policy="round", behind=3, dtype="f16"):
    """Return the programs of a prompt of so many tokens and one, and of an answer behind it."""
    place = DecoderPlacement(decoder, width, height, tokens_per_row(length + behind, height, policy), dtype)
    return Chunks(machine(), place, length, size, policy)


def texts(decoder, count, seed=0):
    """Return tokens."""
    return [int(token) for token in np.random.default_rng(seed).integers(decoder.vocabulary, size=count)]


@examples(12)
@given(
    decoder=decoders(),
    width=st.integers(1, 7),
    height=st.integers(1, 5),
    length=st.integers(1, 9),
    size=st.integers(2, 5),
    policy=st.sampled_from(POLICIES),
    dtype=st.sampled_from(["f16", "cb16"]),
    seed=st.integers(0, 99),
)
def test_bits_are_those_of_a_prompt_that_is_read_token_by_token(
    decoder, width, height, length, size, policy, dtype, seed
):
    """Every token of the prompt and of what follows has the oracle's bits; cycles are within 1 % of the price."""
    built = chunks_of(decoder, width, height, length, size, policy, dtype=dtype)
    assume(have_room(built.words()))
    weights, tokens = random_weights(decoder, seed), texts(decoder, length + 3, seed)
    # Token by token, in a cache whose entries move each row takes its block first.
    oracle = Oracle(Decode(machine(), built.decode.place, policy, blocks=built.decode.blocks), weights)
    reading = built.read(weights, built.decode.tables(weights), tokens[:length])
    came = [each for step in reading.steps for each in step.came if each is not None]
    assert len(came) == length
    wanted = [oracle.step(token) for token in tokens]
    for each, (token, bits) in zip(came, wanted[:length], strict=True):
        assert np.array_equal(each.logits, bits)
        assert each.token == token
    cycles = [step.cycles for step in reading.steps]
    priced = StepCycles(built.reader).steps(built.pieces()).tolist()
    assert priced[1:] == pytest.approx(cycles[1:], rel=WITHIN)
    # The first piece waits for what programs do once, where their tokens have their caches.
    assert priced[0] == pytest.approx(cycles[0], rel=WITHIN, abs=ONCE)
    resident = built.answering(weights, reading.kept)
    form = StepCycles(built.decode)
    for count, (token, (_, bits)) in enumerate(zip(tokens[length:], wanted[length:], strict=True), length):
        step = resident.step(token)
        assert np.array_equal(step.logits, bits)
        assert form.step(count) == pytest.approx(step.cycles, rel=WITHIN)


@pytest.mark.parametrize("policy", POLICIES)
def test_both_programs_have_the_same_at_the_same_place(policy):
    """Weights and cache stay where they are when the PEs get the other code."""
    built = chunks_of(LONG, 3, 2, 7, 3, policy)
    weights, names = random_weights(LONG), ["weights", "cache", "norms"]
    empty = Decode(machine(), built.decode.place, policy, code=built.decode.code)
    fabrics = BatchResident(built.reader, weights).fabric, ResidentDecoder(empty, weights).fabric
    one, other = (addresses(fabric, names) for fabric in fabrics)
    for name in names:
        assert np.array_equal(one[name], other[name])


def test_four_times_the_longest_prompt_that_fits_at_once():
    """Scores at once take the square of the prompt's length; in pieces four times as many tokens are read."""
    width, height, room = 3, 2, machine()["mem.words"]

    def at_once(length):
        place = DecoderPlacement(LONG, width, height, tokens_per_row(length + 1, height, "round"))
        prompt = PromptPlacement(place, length)
        return max(sum(prompt_words(prompt).values()), sum(needed_words(place, prompt.slots).values()))

    longest = next(length for length in range(1, 4096) if at_once(length + 1) > room)
    length = 4 * longest
    built = chunks_of(LONG, width, height, length - 1, 8)
    admit(built.reader.place, machine(), length, "round")
    weights, tokens = random_weights(LONG), texts(LONG, length)
    reading = built.read(weights, built.decode.tables(weights), tokens[:-1])
    assert len(reading.steps) == -(-(length - 1) // 8)
    step = built.answering(weights, reading.kept).step(tokens[-1])
    oracle = Oracle(built.decode, weights)
    assert np.array_equal(step.logits, [oracle.step(token)[1] for token in tokens][-1])
    # Where both fit, the tokens are the same.
    short = tokens[:longest]
    place = DecoderPlacement(LONG, width, height, tokens_per_row(longest, height, "round"))
    prompt = PromptPlacement(place, longest)
    decode = Decode(machine(), place, "round", prompt=prompt)
    read = read_prompt(Prefill(machine(), prompt), weights, decode.tables(weights), short)
    pieces = chunks_of(LONG, width, height, longest - 1, 8)
    reading = pieces.read(weights, pieces.decode.tables(weights), short[:-1])
    answer = pieces.answering(weights, reading.kept).step(short[-1])
    resumed = ResidentDecoder(decode, weights, kept=read.kept).resume()
    assert resumed.token == answer.token
    assert np.abs(resumed.logits.view(np.float32) - answer.logits.view(np.float32)).max() < 0.02


def test_memory_is_linear_in_the_piece_and_in_the_text():
    """A token more in a piece, or in each row, takes the same room wherever: nothing grows with a square."""

    def words(size, room):
        return sum(needed_words(replace(DecoderPlacement(LONG, 3, 2, room), batch=1, ahead=size)).values())

    for room in (40, 400):
        assert {words(k + 2, room) - words(k, room) for k in range(4, 40, 4)} == {words(6, room) - words(4, room)}
    place = DecoderPlacement(LONG, 3, 2, 4)
    for size in (2, 8, 32):
        each = LONG.layers * place.entry_words + size * 2 * place.heads  # of scores, whose place shares take
        assert {words(size, room + 4) - words(size, room) for room in (4, 400, 4000)} == {4 * each}


def test_pieces_that_do_not_fit_are_refused_with_some_that_do():
    """The message names the largest pieces for this mesh; their memory does not depend on the prompt but for caches."""
    place = DecoderPlacement(LONG, 2, 2, 40)
    wide = replace(place, batch=1, ahead=200)
    with pytest.raises(PlanError, match=r"of 200 tokens at a time does not fit .* or --chunk \d+ on this one"):
        admit(wide, machine(), 80, "round")
    most = largest(wide, machine(), "ahead")
    assert 8 < most < 200
    admit(replace(wide, ahead=most), machine(), 80, "round")
    with pytest.raises(PlanError):
        admit(replace(wide, ahead=most + 1), machine(), 80, "round")


def test_pieces_of_a_large_mesh_take_less_than_their_tokens():
    """On 64 x 64 PEs eight tokens of a prompt in one step take less than three steps of one, by the price of both."""
    decoder = Decoder(128, 2, 8, 8, 16, 128, 128, 64, 1e-5)
    built = chunks_of(decoder, 64, 64, 48, 8)
    pieces, one = StepCycles(built.reader).steps(built.pieces()), StepCycles(built.decode).step(40)
    assert pieces.max() < 3 * one


@pytest.mark.parametrize(("rows", "length"), [(4, 3), (4, 11), (3, 9), (1, 5)])
def test_blocks_are_where_a_cache_that_shifts_has_its_tokens(rows, length):
    """Behind the prompt each row holds what it would hold had the tokens come one by one, and what follows moves."""
    built = chunks_of(LONG, 2, rows, length, 2, "shift", behind=2 * rows)
    blocks, shifted = Rows(rows, 20, "shift", built.decode.blocks), Rows(rows, 20)
    for count in range(length + 2 * rows):
        blocks.append()
        shifted.append()
        if count >= length - 1:
            assert [row.tokens for row in blocks.rows] == [row.tokens for row in shifted.rows]
