"""Prices of the decoder against the engine: whole steps and each part, on sizes and machines of all kinds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.kernels.collectives.pieces.ktree import KTree, group_sizes
from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.matvec.line_sum import LineSum
from fabric.networks.inference import decode_cycles, elementwise
from fabric.networks.inference.decode import PARTS, Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.fit import needed_words, tokens_per_row
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.resident import ResidentDecoder
from fabric.price import timing
from fabric.price.walk import Walker
from tests.examples import SOAK, examples, few, mixed
from tests.fabric.networks.inference.machines import CHANGES, machine_of
from tests.fabric.networks.inference.small_models import PLAIN, decoders, have_room, random_weights
from wse_core.errors import ConfigError, PlanError
from wse_core.params import machine

WITHIN = 0.01
SIZES = few(
    [
        (Decoder(64, 2, 4, 2, 16, 96, 60, 64, 1e-5), 7, 5, "shift"),
        (Decoder(64, 2, 2, 2, 24, 96, 60, 64, 1e-5, activation="gelu", learned=True, head_bias=True,
                 different=(LayerKind(turns=False),) * 2, **PLAIN), 7, 5, "shift"),
        (Decoder(60, 2, 6, 6, 8, 96, 60, 64, 1e-5, rotary=4, norms="beside", activation="gelu_erf", **PLAIN),
         9, 4, "round"),
        (Decoder(48, 3, 2, 1, 24, 70, 30, 64, 1e-5), 3, 8, "concat"),
        (Decoder(64, 3, 4, 2, 24, 96, 60, 64, 1e-5, norms="both", head_norms=True, score_cap=3.0, logit_cap=5.0,
                 local_base=50.0, different=(LayerKind(window=4, local=True),) * 2 + (LayerKind(),)), 9, 4, "shift"),
        (Decoder(64, 4, 6, 2, 24, 96, 60, 64, 1e-5, qkv_bias=True, o_bias=True, ffn_bias=True,
                 different=(LayerKind(), LayerKind(turns=False)) * 2), 9, 4, "shift"),
        (Decoder(64, 2, 6, 2, 24, 96, 60, 64, 1e-5, norms="behind", projection_norms=True), 9, 4, "shift"),
        (Decoder(64, 2, 6, 2, 24, 96, 60, 64, 1e-5, head_norms=True, activation="gelu"), 9, 4, "shift"),
        (Decoder(96, 2, 6, 6, 16, 200, 80, 64, 1e-5, qkv_bias=True), 24, 6, "round"),
        (Decoder(64, 2, 6, 2, 24, 96, 60, 64, 1e-5, norms="both", head_norms=True), 5, 6, "shift"),
        (Decoder(30, 2, 8, 4, 4, 30, 20, 64, 1e-5), 1, 1, "shift"),
        (Decoder(128, 4, 4, 2, 32, 344, 100, 64, 1e-5), 16, 9, "shift"),
        (Decoder(256, 1, 8, 4, 32, 512, 200, 64, 1e-5), 32, 10, "concat"),
    ],
    7,
)  # fmt: skip


def decode_of(decoder, width, height, policy, tokens, numbers=None, **options):
    """Return a decoder with room for so many tokens."""
    place = DecoderPlacement(decoder, width, height, tokens_per_row(tokens, height, policy), **options)
    return Decode(numbers or machine(), place, policy)


def steps_of(decode, tokens):
    """Run some tokens; return the cycles of each step."""
    resident = ResidentDecoder(decode, random_weights(decode.place.decoder))
    return [resident.step(token % 2).cycles for token in range(tokens)]


@pytest.mark.parametrize(("size", "name"), mixed(few(SIZES, 4), CHANGES))
def test_steps_on_other_machines(size, name):
    """Every step is within 1 % of the engine, before, in and after the first rounds of the cache."""
    decoder, width, height, policy = size
    if not SOAK:  # rows and columns of every kind
        width, height = min(width, 4), min(height, 4)
    tokens = min(height + 3, 24)
    decode = decode_of(decoder, width, height, policy, tokens, machine_of(name))
    assert StepCycles(decode).steps(range(tokens)) == pytest.approx(steps_of(decode, tokens), rel=WITHIN)


@examples(8)
@given(
    decoder=decoders(layers=3),
    width=st.integers(1, 13),
    height=st.integers(1, 9),
    policy=st.sampled_from(["shift", "concat", "round"]),
    dtype=st.sampled_from(["f16", "cb16"]),
    name=st.sampled_from(list(CHANGES)),
)
def test_steps_of_any_decoder(decoder, width, height, policy, dtype, name):
    """Decoders, meshes, caches, formats and machines as they come: within 1 %, the first token's start included."""
    tokens = height + 4
    decode = decode_of(decoder, width, height, policy, tokens, machine_of(name), dtype=dtype)
    assume(have_room(needed_words(decode.place)))
    assert StepCycles(decode).steps(range(tokens)) == pytest.approx(steps_of(decode, tokens), rel=WITHIN)


@pytest.mark.parametrize(("decoder", "width", "height", "policy"), [size for size in SIZES if size[1] > 1])
def test_parts(decoder, width, height, policy):
    """Each part of the last layer is within 1 %, or 12 cycles of the short ones."""
    tokens = height + 2
    place = DecoderPlacement(decoder, width, height, tokens_per_row(tokens, height, policy))
    decode = Decode(machine(), place, policy, timed=True)
    resident = ResidentDecoder(decode, random_weights(decoder))
    for token in range(tokens):
        resident.step(token % 7)
    ends = resident.stamps().max(axis=(1, 2))
    expected = StepCycles(decode).parts(tokens - 1)
    got = dict(zip(PARTS, np.diff(ends), strict=True))
    layers = decoder.layers
    for part in PARTS[2 if layers == 1 else 3 :]:  # what goes before the first of a layer is another layer's end
        if part != "norm 1":
            assert got[part] == pytest.approx(expected[part], rel=WITHIN, abs=12), part


@pytest.mark.parametrize(("decoder", "width", "height"), [
    (Decoder(24, 2, 4, 2, 64, 20, 17, 64, 1e-5), 4, 3), (Decoder(24, 2, 4, 4, 32, 20, 17, 64, 1e-5), 1, 4),
    (Decoder(24, 2, 4, 2, 8, 20, 17, 64, 1e-5), 5, 6),
])  # fmt: skip
def test_rows_that_take_an_entry_and_hand_one_on(decoder, width, height):
    """Entries of 8 to 256 numbers: what the cache does is within 2 cycles in all steps, whoever moves."""
    tokens = 2 * height + 2
    place = DecoderPlacement(decoder, width, height, tokens_per_row(tokens, height, "shift"))
    decode = Decode(machine(), place, "shift", timed=True)
    resident, form, number = ResidentDecoder(decode, random_weights(decoder)), StepCycles(decode), PARTS.index("cache")
    for token in range(tokens):
        resident.step(token % 7)
        got = np.diff(resident.stamps().max(axis=(1, 2)))[number]
        assert got == pytest.approx(form.parts(token)["cache"], abs=2), token


@pytest.mark.parametrize("norms", ["before", "beside"])
def test_a_layer_takes_what_one_more_takes(norms):
    """Parts of a layer, its first norm too, are together what a step with another layer takes more."""
    steps = []
    for layers in (2, 3):
        decoder = Decoder(60, layers, 6, 6, 8, 96, 60, 64, 1e-5, norms=norms, activation="gelu", **PLAIN)
        steps.append(StepCycles(decode_of(decoder, 9, 4, "round", 9)))
    more = steps[1].step(7) - steps[0].step(7)
    assert sum(steps[1].layer(7).values()) == pytest.approx(more, rel=0.02)


def test_an_instruction_more_costs_what_it_costs(monkeypatch):
    """The price follows the program: what the writer of a part emits is paid, once per layer."""
    monkeypatch.setattr("fabric.networks.inference.decode._written", Decode.write)  # which keeps programs
    monkeypatch.setattr(decode_cycles, "_known_of", lambda priced: decode_cycles._Known())  # and what is followed
    decode = decode_of(SIZES[0][0], 7, 5, "shift", 9)
    before = StepCycles(decode).step(7)
    emit = elementwise.emit_gated

    def longer(w):
        emit(w)
        for _ in range(5):
            w.p.nop()

    monkeypatch.setattr("fabric.networks.inference.decode.emit_gated", longer)
    assert StepCycles(decode).step(7) == before + 5 * decode.place.decoder.layers


def test_layers_of_several_kinds_are_followed_by_turns():
    """Of kinds that come again in the same order each turn takes equally long; a rest is followed."""

    def step(count):
        kinds = tuple(LayerKind(turns=(k + 1) % 4 != 0) for k in range(count))
        decoder = Decoder(64, count, 4, 2, 16, 96, 60, 64, 1e-5, different=kinds)
        return StepCycles(decode_of(decoder, 7, 5, "shift", 9)).step(7)

    four = step(12) - step(8)
    assert [step(40), step(42)] == [step(8) + 8 * four, step(10) + 8 * four]
    assert step(5) - step(4) > step(4) - step(3)  # a layer that turns takes longer


def test_a_large_vocabulary_behind_thin_layers():
    """A column of the output matrix that is longer than all matrices of a layer is priced as others are."""
    decode = decode_of(Decoder(8, 1, 2, 1, 4, 5, 900, 64, 1e-5), 2, 4, "shift", 5)
    assert decode.place.layer_words < decode.place.vocabulary
    assert StepCycles(decode).steps(range(5)).tolist() == pytest.approx(steps_of(decode, 5), rel=WITHIN)


@pytest.mark.parametrize("layers", [4, 7, 30])
def test_layers_are_not_followed_one_by_one(layers):
    """All layers from the second on take equally long, whether they are followed or not."""

    def step(count):
        return StepCycles(decode_of(Decoder(64, count, 4, 2, 16, 96, 60, 64, 1e-5), 7, 5, "shift", 9)).step(7)

    assert step(layers) == step(2) + (layers - 2) * (step(3) - step(2))


def test_steps_together_are_steps_alone():
    """Many steps at a time are the same steps."""
    decode = decode_of(SIZES[0][0], 7, 5, "shift", 24)
    together = StepCycles(decode).steps(range(24))
    for before in range(0, 24, 5):
        decode_cycles._known_of.cache_clear()
        assert StepCycles(decode).step(before) == together[before]


def test_work_does_not_grow_with_the_mesh(monkeypatch):
    """Instructions followed and all-reduces reckoned are as many for 64 x 64 PEs as for the whole wafer."""
    counts = {}

    def counted(owner, name):
        inner = getattr(owner, name)

        def call(*args, **more):
            counts[name] = counts.get(name, 0) + 1
            return inner(*args, **more)

        monkeypatch.setattr(owner, name, call)

    counted(Walker, "issue")
    counted(LineSum, "ends")
    found = []
    for width, height in ((64, 64), (757, 996)):
        counts.clear()
        heads = width // 8
        decoder = Decoder(4 * height, 30, 2 * heads, heads, 16, 8 * width, 4 * width, 8192)
        StepCycles(decode_of(decoder, width, height, "shift", 24 * height)).steps(range(1000, 1010))
        found.append(dict(counts))
    for name, count in found[0].items():
        assert found[1][name] == pytest.approx(count, rel=0.25), name
    assert found[0]["ends"] < 100  # of 30 layers with 9 each


def ends_of_a_tree(piece, starts, m):
    """Return when the root of a K-tree goes on: place by place, as the chains do it."""
    times, w = list(starts), piece.wavelets
    load, issue = timing.load(m), timing.issue(m)
    for number, level in enumerate(piece.levels):
        queue = piece.queues[number]
        room = m["queue.in_depth"][queue] + m["ramp.in_buffer"]
        behind = timing.train(m, w, queue, queue) + timing.command(m)
        for group in level:
            root = group[len(group) // 2]
            ready, passed = times[root] + 2 * load + issue, 0
            for side in piece.sides(group):
                first = times[side[0]] + 2 * load + issue
                for before, place in pairwise(side):
                    first = max(times[place] + 3 * load + issue, first + timing.way(m, abs(place - before)))
                arrival = max(first + timing.way(m, abs(side[-1] - root)), passed)
                taken = max(ready, arrival)
                full = taken + w - room + m["ramp.in"] + 1 + timing.command(m)
                passed = max(arrival + behind, full if w > room else 0)
                ready = timing.received(m, w, ready, arrival, queue, queue)
            if len(group) > 1:
                times[root] = ready + m["vec.drain"]
    return times[piece.root]


@examples(60)
@given(data=st.data(), levels=st.integers(1, 3), n=st.integers(1, 40), name=st.sampled_from(list(CHANGES)))
def test_a_tree_at_once_is_the_tree_place_by_place(data, levels, n, name):
    """All groups of a level together, and many sums together, are what each chain does step by step."""
    starts = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=50))
    try:
        groups = group_sizes(len(starts), levels, 0)
    except (ConfigError, PlanError):
        assume(False)
    piece, m = KTree(Line.rows(len(starts), 1), groups, tuple(range(2 * len(groups))), n, "f32"), machine_of(name)
    expected = [ends_of_a_tree(piece, each, m) for each in (starts, starts[::-1])]
    assert piece.end(starts, m) == expected[0]
    assert piece.end(np.array([starts, starts[::-1]]), m).tolist() == expected
