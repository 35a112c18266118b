"""Prices of the reading of a prompt against the engine: all of it and each part, on sizes and machines of all kinds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill import cycles
from fabric.networks.inference.prefill.channels import FROM_WEST, TO_EAST
from fabric.networks.inference.prefill.cycles import PromptCycles, PromptRun
from fabric.networks.inference.prefill.elementwise import emit_gated
from fabric.networks.inference.prefill.placement import EAST, HERE, WEST, PromptPlacement
from fabric.networks.inference.prefill.program import PARTS, Prefill
from fabric.networks.inference.prefill.reading import read_prompt
from fabric.networks.inference.prefill.rows import Channel, RowWays
from fabric.price import timing
from fabric.price.walk import Walker
from tests.examples import SOAK, examples, few, mixed
from tests.fabric.networks.inference.machines import CHANGES, machine_of
from tests.fabric.networks.inference.small_models import PLAIN, random_weights
from tests.fabric.networks.inference.test_prefill import Both
from wse_core.params import machine

WITHIN = 0.02
SIZES = few(
    [
        (Decoder(64, 2, 4, 2, 16, 96, 60, 64, 1e-5), 7, 5, 13),
        (Decoder(64, 2, 4, 4, 16, 96, 60, 64, 1e-5, activation="gelu", learned=True,
                 different=(LayerKind(turns=False),) * 2, **PLAIN), 7, 5, 13),
        (Decoder(60, 2, 6, 6, 8, 96, 60, 64, 1e-5, rotary=4, norms="beside", activation="gelu_erf", **PLAIN), 9, 4, 13),
        (Decoder(64, 3, 4, 2, 24, 96, 60, 64, 1e-5, norms="both", head_norms=True, score_cap=3.0, logit_cap=5.0,
                 local_base=50.0, different=(LayerKind(window=4, local=True),) * 2 + (LayerKind(),)), 9, 4, 13),
        (Decoder(64, 4, 6, 2, 24, 96, 60, 64, 1e-5, qkv_bias=True, o_bias=True, ffn_bias=True,
                 different=(LayerKind(), LayerKind(turns=False)) * 2), 9, 4, 13),
        (Decoder(64, 2, 6, 2, 24, 96, 60, 64, 1e-5, norms="behind", projection_norms=True), 9, 4, 13),
        (Decoder(64, 2, 6, 2, 24, 96, 60, 64, 1e-5, head_norms=True, activation="gelu"), 9, 4, 13),
        (Decoder(48, 2, 6, 6, 16, 80, 40, 64, 1e-5, qkv_bias=True), 12, 4, 11),
        (Decoder(64, 2, 6, 2, 24, 96, 60, 64, 1e-5, norms="both", head_norms=True), 5, 6, 13),
        (Decoder(30, 2, 8, 4, 4, 30, 20, 64, 1e-5), 1, 3, 8),
        (Decoder(40, 1, 2, 1, 24, 70, 30, 64, 1e-5), 5, 7, 15),
        (Decoder(56, 1, 3, 3, 12, 90, 30, 64, 1e-5), 10, 4, 20),
        (Decoder(128, 1, 4, 2, 32, 344, 100, 64, 1e-5), 16, 7, 15),
        (Decoder(64, 1, 2, 2, 16, 96, 60, 64, 1e-5), 6, 1, 4),
    ],
    6,
)  # fmt: skip


@pytest.mark.parametrize(("decoder", "width", "height", "length"), SIZES)
def test_prompts_and_their_parts(decoder, width, height, length):
    """A prompt is within 2 %, its transition within 20 cycles, each part of a layer within 4 % or 60 cycles."""
    both = Both(decoder, width, height, length, 1)
    form = PromptCycles(both.prefill)
    assert form.prompt_cycles() == pytest.approx(both.reading.cycles, rel=WITHIN)
    assert StepCycles(both.decode).transition() == pytest.approx(both.resident.resume().transition, abs=20)

    timed = Prefill(machine(), both.prompt, timed=True)
    reading = read_prompt(timed, both.weights, both.decode.tables(both.weights), both.tokens)
    ends = reading.stamps.max(axis=(1, 2))
    got = dict(zip(PARTS, np.diff(np.concatenate([[ends[-1] - reading.cycles], ends[1:]])), strict=True))
    expected = PromptCycles(timed).parts()
    for part in PARTS:
        if decoder.layers == 1 or part != "norm 1":  # which begins with the end of the layer before
            assert expected[part] == pytest.approx(got[part], rel=0.04, abs=60), part


@pytest.mark.parametrize(("size", "name"), mixed(few(SIZES, 4), CHANGES))
def test_prompts_on_other_machines(size, name):
    """Machines with other numbers: within 2 %."""
    decoder, width, height, length = size
    if not SOAK:  # rows and columns of every kind
        width, height = min(width, 5), min(height, 4)
    m = machine_of(name)
    prompt = PromptPlacement(DecoderPlacement(decoder, width, height, -(-length // height)), length)
    prefill, weights = Prefill(m, prompt), random_weights(decoder)
    tables = Decode(m, prompt.place, prompt=prompt).tables(weights)
    reading = read_prompt(prefill, weights, tables, [k % 7 for k in range(length)])
    assert PromptCycles(prefill).prompt_cycles() == pytest.approx(reading.cycles, rel=WITHIN)


def form_of(decoder, width, height, length):
    """Return the price of a prompt."""
    place = DecoderPlacement(decoder, width, height, -(-length // height))
    return PromptCycles(Prefill(machine(), PromptPlacement(place, length)))


def test_an_instruction_more_costs_what_it_costs(monkeypatch):
    """The price follows the program: what the writer of a part emits is paid, once per layer."""
    monkeypatch.setattr("fabric.networks.inference.prefill.program._written", Prefill.write)  # which keeps programs
    size = SIZES[0]
    before = form_of(*size).prompt_cycles()

    def longer(w):
        emit_gated(w)
        for _ in range(7):
            w.p.nop()

    monkeypatch.setattr("fabric.networks.inference.prefill.program.emit_gated", longer)
    assert form_of(*size).prompt_cycles() == pytest.approx(before + 7 * size[0].layers, abs=1.5)


@pytest.mark.parametrize(("width", "height", "length"), few([(60, 70, 150), (128, 100, 60), (20, 120, 240)], 1))
def test_steps_are_drawn_on(monkeypatch, width, height, length):
    """Of many steps those that are followed say how long all take: within 0.5 % of following all."""
    decoder = Decoder(8 * height, 2, 8, 4, 2 * width, 8 * width, 100, 8192)
    drawn = form_of(decoder, width, height, length).prompt_cycles()
    monkeypatch.setattr(cycles, "STEPS", height)
    assert drawn == pytest.approx(form_of(decoder, width, height, length).prompt_cycles(), rel=0.005)


def test_layers_are_not_followed_one_by_one():
    """Layers take equally long, whether they are followed or not."""
    each = [form_of(Decoder(64, n, 4, 2, 16, 96, 60, 64, 1e-5), 7, 5, 13).prompt_cycles() for n in (3, 4, 30)]
    assert each[2] == pytest.approx(each[0] + 27 * (each[1] - each[0]), rel=0.002)


def test_work_does_not_grow_with_the_mesh(monkeypatch):
    """Instructions followed and steps of products reckoned are as many for 64 x 64 PEs as for the whole wafer."""
    counts = {}

    def counted(owner, name):
        inner = getattr(owner, name)

        def call(*args, **more):
            counts[name] = counts.get(name, 0) + 1
            return inner(*args, **more)

        monkeypatch.setattr(owner, name, call)

    for owner, name in ((Walker, "issue"), (Channel, "spread"), (Channel, "sum"), (PromptRun, "_along_rows")):
        counted(owner, name)
    found = []
    for width, height in ((64, 64), (757, 996)):
        counts.clear()
        decoder = Decoder(4 * height, 30, 16, 8, width // 4 // 2 * 2, 8 * width, 4 * width, 8192)
        form_of(decoder, width, height, height).ends()
        found.append(dict(counts))
    for name, count in found[0].items():
        assert found[1][name] <= 1.5 * count + 50, name


# --- lines, place by place --------------------------------------------------------------------------------------------


def spread_by_place(channel, at, home):
    """Return the times behind a piece that the home spreads, one PE after the other; nothing is owed to tiles."""
    m, w, ways, last = channel.m, channel.w, channel.ways, len(at) - 1
    found, way = list(at), timing.way(m, 1)
    sent = timing.sending(m, w, FROM_WEST, TO_EAST)
    now, firsts = at[home] + ways.first[HERE][home], {}
    for number, side in enumerate(side for side, there in ((1, home < last), (-1, home > 0)) if there):
        now += ways.second[HERE][home] if number else 0
        firsts[side] = now
        now += sent
    found[home] = now + ways.behind[HERE][home]
    for side, first in firsts.items():
        where, x = WEST if side > 0 else EAST, home + side
        while 0 <= x <= last:
            came = timing.received(m, w, at[x] + ways.first[where][x], first + way, FROM_WEST, TO_EAST)
            if 0 <= x + side <= last:
                first = came + ways.second[where][x]
                came = first + sent
            found[x] = came + ways.behind[where][x]
            x += side
    return found


def sum_by_place(channel, at, home):
    """Return the times behind a sum toward the home, one PE after the other."""
    m, w, ways, last = channel.m, channel.w, channel.ways, len(at) - 1
    found, way, arrivals = list(at), timing.way(m, 1), []
    for side, where in ((1, EAST), (-1, WEST)):
        arrival, x = None, 0 if side > 0 else last
        while x != home:
            ready = at[x] + ways.first[where][x]
            if arrival is None:
                end, first = ready + timing.sending(m, w, FROM_WEST, TO_EAST), ready
            else:
                end, first = timing.received(m, w, ready, arrival, FROM_WEST, TO_EAST), max(ready, arrival)
            found[x], arrival = end + ways.behind[where][x], first + way
            x += side
        arrivals.append(arrival)
    now, gap = at[home], ways.first[HERE][home]
    for arrival in arrivals:
        if arrival is not None:
            now = timing.received(m, w, now + gap, arrival, FROM_WEST, TO_EAST)
            gap = ways.second[HERE][home]
    found[home] = now + ways.behind[HERE][home]
    return found


@examples(60)
@given(data=st.data(), places=st.integers(2, 14), wavelets=st.integers(1, 40), name=st.sampled_from(list(CHANGES)))
def test_a_line_at_once_is_the_line_place_by_place(data, places, wavelets, name):
    """All places together are what one after the other gives, for a home anywhere and PEs that are late at will."""

    def gaps(place, where):
        ends = place == 0, place == places - 1
        if (where == WEST and ends[0]) or (where == EAST and ends[1]):
            return None
        count = (1 if any(ends) else 2) if where == HERE or spreads else 1
        return tuple(7 + 3 * k + where for k in range(count + 1))

    spreads = data.draw(st.booleans())
    channel = Channel(machine_of(name), RowWays.of(places, gaps), wavelets)
    at = data.draw(st.lists(st.integers(0, 400), min_size=places, max_size=places))
    home = data.draw(st.integers(0, places - 1))
    times = np.array(at, float).reshape(1, 1, places)
    move, slow = (channel.spread, spread_by_place) if spreads else (channel.sum, sum_by_place)
    move(times, np.zeros_like(times), np.array([[[home]]]))
    assert times.ravel().tolist() == slow(channel, at, home)
