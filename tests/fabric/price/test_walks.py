"""Ways of operands through memory: what their steps cost follows from where each element lies."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabric.engine.engine import Engine
from fabric.price import price_run
from fabric.program.program import Program
from tests.examples import examples
from wse_core.image import FabricSpec
from wse_core.params import machine

COUNT = 64
BOXES = [(2, 6), (6, 2), (3, 4), (2, 2, 3), (3, 2, 2)]
LENGTH = 12


@st.composite
def walks(draw):
    """Return what gives a program a walk of `LENGTH` elements: over a line, a box of some dimensions, or a circle."""
    kind, stride, start = (
        draw(st.sampled_from(["line", "box", "circle"])),
        draw(st.integers(1, 4)),
        draw(st.integers(0, 7)),
    )
    if kind == "line":
        return lambda p, x: p.mem1d(x, LENGTH, stride, start)
    if kind == "circle":
        length = draw(st.integers(8, 20))
        return lambda p, x: p.circular(x, LENGTH, start, length=length)
    box = draw(st.sampled_from(BOXES))
    strides = [draw(st.integers(1, 4)) for _ in box]
    return lambda p, x: p.mem4d(x, box, strides, start)


@examples(300, least=60)
@given(walks(), walks(), st.sampled_from(["f16", "f32"]), st.integers(0, 3), st.sampled_from(["wse2", "wse3"]))
def test_steps_of_any_two_walks_cost_what_the_engine_takes(one, other, dtype, apart, preset):
    m = machine(preset)
    p = Program("walks", m)
    x = p.array("x", COUNT, dtype)
    p.array("between", 1 + apart, "u16")
    y, z = p.array("y", COUNT, dtype), p.array("z", COUNT, dtype)
    with p.task("main"):
        (p.faddh if dtype == "f16" else p.fadds)(p.mem1d(z, LENGTH), one(p, x), other(p, y))
    p.start("main")
    image = p.assemble()
    engine = Engine(FabricSpec(m, 1, 1, (image,), np.zeros((1, 1), np.int16), {}))
    assert engine.run(10_000) == "complete"
    assert price_run(image, m) == engine.last_active + 1
