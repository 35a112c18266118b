"""`stencil25` and the localized broadcast under it: values bit for bit, counts by closed forms, cycles turn by turn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import control
from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.collectives.pieces.neighbours import Nearby
from fabric.kernels.kit.session import Session
from fabric.kernels.registry import KERNELS
from fabric.kernels.stencil.points25 import weights
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.examples import examples
from wse_core.errors import ConfigError
from wse_core.params import machine


def run(**values):
    return KERNELS["stencil25"].run(machine(), **values)


@examples(16)
@given(
    st.integers(1, 11),
    st.integers(1, 11),
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(2, 4),
    st.sampled_from(["f16", "f32"]),
    st.sampled_from(["normal", "ones", "special"]),
)
def test_any_size(width, height, nz, steps, radius, dtype, data):
    result = run(width=width, height=height, nz=nz, steps=steps, radius=radius, dtype=dtype, data=data)
    assert result["bit_exact"]
    assert result["verified"]
    assert result["macs"] == result["expected_macs"]
    assert result["wavelet_hops"] == result["expected_hops"]
    # What is not counted, early wavelets on the same ramp, is a cycle or two per turn and direction.
    turns = steps * (radius + 1) * 4
    assert result["expected_cycles"] <= result["cycles"] <= result["expected_cycles"] + 2 * turns


@pytest.mark.parametrize(
    ("width", "height", "nz"),
    [(1, 1, 7), (2, 1, 30), (5, 1, 1), (6, 1, 60), (1, 6, 200), (3, 10, 100), (11, 9, 1), (11, 9, 33)],
)
def test_exact_cycles(width, height, nz):
    result = run(width=width, height=height, nz=nz, steps=1)
    assert result["verified"]
    assert result["cycles"] == result["expected_cycles"]


def test_a_step_of_long_columns_costs_what_the_datapath_needs():
    """Sixteen columns in, four out, eight multiply-adds, two of them with bank conflicts, a product and a copy."""
    result = run(width=10, height=10, nz=400, steps=2)
    assert result["verified"]
    datapath = 16 + 4 + 6 + 2 * 2 + 1 / 2 + 1 / 2
    assert datapath < result["cycles_per_step"] / 400 < 1.04 * datapath


def test_ones_by_hand():
    """Cells that are all 1 stay so inside; at the edges the weights of what lies outside are missing."""
    values = weights(4)
    assert values[0] + 6 * values[1:].sum() == pytest.approx(1, abs=1e-15)
    assert 10 * values[1:] == pytest.approx([8 / 5, -1 / 5, 8 / 315, -1 / 560])  # differences of order 8, by the book
    assert 10 * weights(2)[1:] == pytest.approx([4 / 3, -1 / 12])
    u = run(width=9, height=9, nz=9, steps=1, data="ones")["arrays"]["u"].view(np.float32)
    assert u[4, 4, 4] == pytest.approx(1, abs=1e-6)
    corner = values[0] + 3 * values[1:].sum()
    assert u[0, 0, 0] == pytest.approx(corner, abs=1e-6)
    assert u[8, 4, 0] == pytest.approx(values[0] + 4 * values[1:].sum(), abs=1e-6)


@given(st.integers(1, 30), st.integers(2, 7))
def test_every_pair_meets_once(places, reach):
    way = Nearby(Line.rows(places, 1), reach, 0, 5)
    plans = [way.plan(k) for k in range(places)]
    met = [(k - distance, k) for k, plan in enumerate(plans) for distance in plan if distance]
    assert sorted(met) == [(a, b) for a in range(places) for b in range(a + 1, min(a + reach, places - 1) + 1)]
    for turn in range(reach + 1):
        for k, plan in enumerate(plans):
            if plan[turn]:
                assert plans[k - plan[turn]][turn] == 0  # its sender sends then
    assert sum(0 in plan for plan in plans) == places - 1
    assert way.pairs == len(met)


def test_the_command_names_the_sender_the_next_one_and_the_end():
    commands = control.decode(Nearby(Line.rows(9, 1), 4, 0, 5).command)
    assert commands.commands[:5] == ("adv", "adv", "nop", "nop", "adv")
    assert not any(commands.deliver)


def test_too_long_columns_are_refused():
    with pytest.raises(ConfigError, match="nz="):
        run(width=3, height=3, nz=7000)


@examples(25)
@given(st.integers(1, 20), st.integers(2, 7), st.integers(1, 30), st.integers(1, 3), st.booleans(), st.integers(0, 3))
def test_vectors_reach_all_nearby_places(places, reach, n, rounds, own, turned):
    """Every place sends its vector several times; what arrives, in the order of the plan, are the right vectors."""
    across, down = (places, 2) if turned < 2 else (2, places)
    line = Line.rows(across, down) if turned < 2 else Line.columns(across, down)
    way = Nearby(Line(line.rects[::-1]) if turned % 2 else line, reach, 5, n, own)

    def build(roles):
        p = Program(f"nearby {roles}")
        came = sum(d is not None and (d > 0 or own) for d in roles[0])
        x, got = p.array("x", n, "u32"), p.array("got", max(1, came * n * rounds), "u32")
        command = p.array("command", rounds, "u32", init=[way.command] * rounds)
        with p.task("main"):
            if came:
                p.mov32(got, p.fabin(p.input_queue(4, 5), came * n * rounds), async_=True)
            if 0 in roles[0]:
                for _ in range(rounds):
                    p.mov32(p.fabout(p.output_queue(2, 5), n), x)
                    p.mov32(p.fabout(p.output_queue(2, 5), 1, control=True), p.mem1d(command, 1))
        return p

    layout = Layout(across, down)
    compose(layout, [(way.line, [way.plan(k) for k in range(places)])], build)
    way.routes(layout)
    x = np.arange(2 * places * n, dtype=np.uint32).reshape(down, across, n)
    session = Session(layout, [("x", x, 0, 0)])
    assert session.run.wavelet_hops == rounds * way.hops
    for k, (left, top, w, h) in enumerate(way.line.rects):
        senders = [k - d for d in way.plan(k) if d is not None and (d > 0 or own)]
        for dx, dy in np.ndindex(w, h):
            parts = [x[way.line.rects[s][1] + dy, way.line.rects[s][0] + dx] for s in senders] * rounds
            if parts:
                got = session.read("got", left + dx, top + dy)[0, 0]
                assert np.array_equal(got, np.concatenate(parts))
