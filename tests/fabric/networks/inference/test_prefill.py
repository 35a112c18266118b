"""A prompt read at once gives the oracle's bits on any mesh, and decoding goes on from where it ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.fit import needed_words, tokens_per_row
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill.fit import admit_prompt, prompt_words
from fabric.networks.inference.prefill.oracle import PrefillOracle
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.prefill.reading import addresses, read_prompt
from fabric.networks.inference.resident import ResidentDecoder
from fabric.networks.inference.rows import POLICIES
from fabric.networks.inference.writer import code_words
from harness.models.bound import bounded_logits
from harness.models.plain import PlainDecoder
from tests.examples import examples, few, mixed
from tests.fabric.networks.inference.hops import prompt_hops
from tests.fabric.networks.inference.small_models import CLASSIC, decoders, have_room, random_weights, rounded
from wse_core.errors import ConfigError, PlanError
from wse_core.params import machine

SMALL = Decoder(24, 2, 4, 2, 8, 20, 17, 64, 1e-5)
TINY = Decoder(6, 2, 2, 1, 2, 5, 5, 64, 1e-5)
SEVERAL = replace(TINY, o_bias=True, ffn_bias=True, different=(LayerKind(turns=False), LayerKind()))
BEHIND = replace(TINY, norms="behind", projection_norms=True)
WINDOWED = replace(TINY, different=(LayerKind(window=1), LayerKind()), score_cap=2.0, logit_cap=3.0)
"""For the plain-Python machine."""
BIASED = Decoder(22, 2, 6, 2, 8, 13, 19, 64, 1e-5, qkv_bias=True)


class Both:
    """A prompt, and the decoder behind it, on the wafer and by the oracle.

    Parameters
    ----------
    decoder : Decoder
    width, height, prompt, steps : int
        Mesh, tokens of the prompt, tokens that follow it.
    """

    def __init__(self, decoder, width, height, prompt, steps=0, policy="shift", dtype="f16", backend=None, seed=0):
        self.decoder, self.dtype, self.weights = decoder, dtype, random_weights(decoder, seed)
        self.place = DecoderPlacement(decoder, width, height, tokens_per_row(prompt + steps, height, policy), dtype)
        self.prompt = PromptPlacement(self.place, prompt)
        self.decode = Decode(machine(), self.place, policy, prompt=self.prompt)
        self.prefill, tables = Prefill(machine(), self.prompt), self.decode.tables(self.weights)
        self.tokens = [(5 * k + seed) % decoder.vocabulary for k in range(prompt)]
        self.reading = read_prompt(self.prefill, self.weights, tables, self.tokens, backend)
        self.resident = ResidentDecoder(self.decode, self.weights, backend, kept=self.reading.kept)
        self.oracle = Oracle(self.decode, self.weights, tables)
        self.found, self.steps, self.backend = [], [], backend

    def check(self, steps):
        """Compare the answer to the prompt, and the steps behind it, with the oracle."""
        hidden = PrefillOracle(self.prefill, self.oracle).read(self.tokens)
        self.resumed = self.resident.resume()
        token, bits = self.oracle.answer(hidden)
        assert np.array_equal(self.resumed.logits, bits)
        assert self.resumed.token == token == int(np.argmax(bits.view(np.float32)))
        self.found.append(self.resumed.logits.view(np.float32))
        for _ in range(steps):
            self.tokens.append(token)
            step = self.resident.step(token)
            token, bits = self.oracle.step(token)
            assert np.array_equal(step.logits, bits)
            assert step.token == token
            self.found.append(step.logits.view(np.float32))
            self.steps.append(step)

    def plain(self):
        """Return what plain numpy gives for the logits that were found."""
        weights = rounded(self.weights, self.dtype)
        return PlainDecoder(self.decoder, weights, np.float64).forward(self.tokens)[-len(self.found) :]

    def bounds(self):
        """Return how far from plain numpy the logits that were found may lie."""
        weights, places = rounded(self.weights, self.dtype), self.place.width + self.place.height
        return bounded_logits(self.decoder, weights, self.tokens, self.dtype, places)[1][-len(self.found) :]


@examples(10)
@given(
    decoder=decoders(),
    width=st.integers(1, 12),
    height=st.integers(1, 9),
    rounds=st.floats(0, 3),
    policy=st.sampled_from(POLICIES),
    dtype=st.sampled_from(["f16", "f16", "cb16"]),
    seed=st.integers(0, 99),
)
@example(Decoder(7, 1, 5, 5, 2, 3, 5, 64), 4, 3, 2.5, "shift", "f16", 1)  # several heads in a column, one without
@example(Decoder(8, 2, 6, 3, 6, 7, 9, 64, qkv_bias=True, head_norms=True), 2, 3, 2.0, "shift", "f16", 3)  # two heads
@example(Decoder(9, 1, 6, 3, 6, 11, 9, 64, qkv_bias=True), 11, 2, 3.0, "concat", "f16", 2)  # two columns without
def test_bits_are_the_oracles(decoder, width, height, rounds, policy, dtype, seed):
    """Heads, groups, odd sizes, any mesh, up to 3 tokens per row, then 16 steps: the same bits, near plain numpy."""
    length = max(1, round(rounds * height))
    place = DecoderPlacement(decoder, width, height, tokens_per_row(length + 16, height, policy), dtype)
    assume(have_room(prompt_words(PromptPlacement(place, length)), needed_words(place)))
    both = Both(decoder, width, height, length, 16, policy, dtype, seed=seed)
    both.check(16)
    plain, unit = both.plain(), {"f16": 2.0**-11, "cb16": 2.0**-10}[dtype]
    error = np.abs(np.array(both.found) - plain)
    assert error.max() <= 60 * unit * (1 + np.abs(plain).max())
    assert (error <= both.bounds()).all()


@examples(6)
@given(decoder=decoders(), width=st.integers(1, 9), height=st.integers(1, 7), length=st.integers(1, 18))
def test_every_hop_has_its_reason(decoder, width, height, length):
    """Hops are those of rings, sums and homes: element-wise parts and transposes move nothing."""
    place = DecoderPlacement(decoder, width, height, tokens_per_row(length, height, "shift"))
    assume(have_room(prompt_words(PromptPlacement(place, length)), needed_words(place)))
    both = Both(decoder, width, height, length)
    hops = prompt_hops(both.prefill)
    assert both.reading.hops == sum(hops.values())


def test_nothing_moves_on_one_pe():
    """On a mesh of one PE nothing is sent but the embeddings that enter."""
    hops = prompt_hops(Both(SMALL, 1, 1, 5).prefill)
    assert {name for name, count in hops.items() if count} == {"tokens in"}


@pytest.mark.parametrize("head_norms", [False, True])
def test_keys_and_values_stay_where_they_are(head_norms):
    """Both programs of a PE have weights and cache at the same place, and the cache's bits are the oracle's."""
    both = Both(replace(BIASED, head_norms=head_norms), 5, 3, 8, 4)
    both.check(0)
    fabric = both.resident.fabric
    for name, words in addresses(fabric, tuple(both.reading.kept)).items():
        assert np.array_equal(words, both.reading.addresses[name])
        assert (words >= code_words(both.place)).all()
        if name != "last":  # which an all-reduce has changed since
            assert np.array_equal(fabric.read(name).view(both.reading.kept[name].dtype), both.reading.kept[name])
    place, half = both.place, both.place.kv_rows * both.place.capacity
    held = both.reading.kept["cache"].reshape(3, 5, BIASED.layers, place.cache_words)
    for row, count in enumerate(both.prompt.counts):
        for layer in range(BIASED.layers):
            keys = held[row, :, layer, :half].reshape(5, place.kv_heads, place.part, -1)
            values = held[row, :, layer, half:].reshape(5, place.kv_heads, -1, place.part)
            assert np.array_equal(keys[..., :count], both.oracle.keys[layer, row, ..., :count])
            assert np.array_equal(values[:, :, :count], both.oracle.values[layer, row, :, :, :count])


def test_a_later_token_changes_nothing_before_it():
    """Keys and values of the first tokens do not depend on the last one: attention looks back only."""
    both = Both(SMALL, 4, 3, 7)
    tables = both.decode.tables(both.weights)
    other = read_prompt(both.prefill, both.weights, tables, [*both.tokens[:-1], (both.tokens[-1] + 1) % 17])
    place, row = both.place, both.prompt.last[0]
    one, two = (
        kept.reshape(3, 4, SMALL.layers, place.cache_words)
        for kept in (both.reading.kept["cache"], other.kept["cache"])
    )
    assert np.array_equal(one[:row], two[:row])
    assert not np.array_equal(one[row], two[row])


@pytest.mark.parametrize(("window", "policy"), mixed([1, 3, 7, 8], ["shift", "concat", "round"]))
def test_windows(window, policy):
    """Prompts longer than a window, and steps behind them: blocks that lie outside, partly and not."""
    both = Both(replace(SMALL, different=(LayerKind(window=window), LayerKind())), 4, 3, 8, 9, policy)
    both.check(9)
    error = np.abs(np.array(both.found) - both.plain())
    assert (error <= both.bounds()).all()


def test_prompt_and_steps_agree():
    """A prompt read at once and the same read token by token end near each other, and reading at once is faster."""
    both = Both(SMALL, 4, 3, 9)
    both.check(0)
    resident = ResidentDecoder(Decode(machine(), both.place), both.weights)
    steps = [resident.step(token) for token in both.tokens]
    logits = steps[-1].logits.view(np.float32)
    assert np.abs(logits - both.found[0]).max() <= 60 * 2.0**-11 * (1 + np.abs(logits).max())
    assert both.reading.cycles + both.resumed.transition + both.resumed.cycles < sum(step.cycles for step in steps)


BOTH = [BEHIND, WINDOWED, CLASSIC[1], replace(TINY, head_norms=True), CLASSIC[0], *CLASSIC[2:], SEVERAL, TINY]


@pytest.mark.parametrize("decoder", few(BOTH, 3))
def test_both_engines_give_the_same(decoder):
    """The plain-Python machine gives the same bits, cycles and hops."""
    found = [Both(decoder, 2, 2, 2, backend=backend) for backend in ("compiled", "reference")]
    one, two = (both.reading for both in found)
    assert (one.cycles, one.hops) == (two.cycles, two.hops)
    for name, bits in one.kept.items():
        assert np.array_equal(bits, two.kept[name])
    first, second = (both.resident.resume() for both in found)
    assert (first.token, first.transition, first.cycles) == (second.token, second.transition, second.cycles)


@examples(6)
@given(decoder=decoders(), width=st.integers(1, 9), height=st.integers(1, 7), length=st.integers(1, 20))
def test_programs_take_what_is_reckoned(decoder, width, height, length):
    """Code stays below its share; variables are those that are counted, but for the gaps between them."""
    prompt = PromptPlacement(DecoderPlacement(decoder, width, height, tokens_per_row(length, height, "shift")), length)
    assume(have_room(prompt_words(prompt)))
    counted = {name: words for name, words in prompt_words(prompt).items() if name != "code"}
    for image in Prefill(machine(), prompt).layout().build().programs:
        assert 2 * len(image.code) <= code_words(prompt.place)
        words = sum(symbol.words for symbol in image.symbols.values())
        assert sum(counted.values()) - 250 <= words <= sum(counted.values())


@pytest.mark.parametrize("preset", ["wse2", "wse3"])
def test_rows_have_the_program_that_would_be_written_for_them(preset):
    """Written once and given the colors of a row, it is to the last field the one that is written with them."""
    prefill = Prefill(machine(preset), PromptPlacement(DecoderPlacement(BIASED, 2, 5, 2), 9))
    for colors in prefill.prompt.ring.kinds():
        for column in prefill.columns():
            wanted = prefill.write(column, colors, None).assemble()
            found = vars(prefill.program(column, colors)) | {"name": wanted.name}
            assert colors is not None
            for name, value in vars(wanted).items():
                np.testing.assert_equal(found[name], value, err_msg=name)


def test_what_is_refused():
    """An empty prompt, one that the cache has no room for, another length, a token that is none, too little memory."""
    place = DecoderPlacement(SMALL, 2, 2, 2)
    with pytest.raises(ConfigError, match="empty prompt"):
        PromptPlacement(place, 0)
    with pytest.raises(ConfigError, match="5 tokens; the cache has room for 4"):
        PromptPlacement(place, 5)
    prefill = Prefill(machine(), PromptPlacement(place, 3))
    tables = Decode(machine(), place).tables(random_weights(SMALL))
    with pytest.raises(ConfigError, match="2 tokens for a program that reads 3"):
        read_prompt(prefill, random_weights(SMALL), tables, [1, 2])
    with pytest.raises(ConfigError, match="token 17 does not exist"):
        read_prompt(prefill, random_weights(SMALL), tables, [1, 17, 2])
    long = PromptPlacement(DecoderPlacement(SMALL, 1, 1, 100), 100)
    with pytest.raises(PlanError, match="reading 100 tokens at once does not fit .* for scores"):
        admit_prompt(long, machine())
