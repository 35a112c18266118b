"""Streams that pass each other in a router, and meet after a command, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import control
from fabric.engine.engine import Engine
from fabric.layout.layout import Layout
from tests.compare import Case, compare
from tests.examples import examples

SIDES = "WENS"
WAITS = st.lists(st.sampled_from([0, 0, 0, 1, 2, 5, 17]), min_size=1, max_size=4)
"""Cycles between words of a stream, over and over."""
TURNS = st.lists(st.sampled_from(SIDES), min_size=2, max_size=3)
"""Sides to which a color leads in its positions."""


def crossing(turns):
    """Return the `FabricSpec` of a router with a color from each side; a command of it moves it on in its `turns`."""
    layout = Layout(1, 1)
    for color, (side, to) in enumerate(zip(SIDES, turns, strict=True)):
        layout.route(color, (0, 0), rx=side, tx=to[0], switches=[{"tx": each} for each in to[1:]], ring=True)
        layout.input_stream(0, 0, side, color)
        for each in sorted(set(to)):
            layout.output_stream(0, 0, each, color)
    return layout.build()


def sent(waits, commands, n=12):
    """Return what the host sends of each color: `n` words, one of them a command."""
    found = []
    for index, (wait, command) in enumerate(zip(waits, commands, strict=True)):
        words, controls = np.arange(n, dtype=np.uint32) + 100 * index, np.zeros(n, bool)
        words[command], controls[command] = control.single("adv", 9), True
        found.append((index, words, controls, np.cumsum(np.resize(wait, n)).tolist()))
    return found


@examples(60)
@given(
    turns=st.lists(TURNS, min_size=4, max_size=4),
    waits=st.lists(WAITS, min_size=4, max_size=4),
    commands=st.lists(st.integers(0, 11), min_size=4, max_size=4),
    step=st.sampled_from([1, 3, 400]),
)
def test_streams_that_meet_after_a_command_take_turns(turns, waits, commands, step):
    """Whoever leads to an output that no other queue of the router wants moves without being asked, as if asked."""
    case = Case(crossing(turns), sent(waits, commands), iter(lambda: step, 0))
    assert compare(case) == "complete"


@pytest.mark.parametrize(("turns", "cycles"), [(("EE", "WW", "SS", "NN"), 13), (("EE", "EE", "EE", "EE"), 49)])
def test_one_word_per_output_and_cycle(turns, cycles):
    """Four streams of twelve words need twelve cycles where they pass each other, and four times as many on one link.

    The first word comes in cycle 1, after router.hop cycles on the way in.
    """
    engine = Engine(crossing(turns))
    for index, words, controls, _ in sent([[0]] * 4, [11] * 4):
        engine.push_input(index, words, controls)
    assert engine.run(1000) == "complete"
    assert engine.last_active == cycles - 1
