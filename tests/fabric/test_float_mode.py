"""A run gives the same bits whatever float mode the host's libraries have left behind, and leaves that mode alone."""

from __future__ import annotations

import numpy as np
import pytest

from fabric import Layout, Program, machine
from fabric.engine.engine import Engine
from tests.float_mode import MODES, current, float_mode

N = 64


def results(name: str, limits: tuple[int, ...]) -> bytes:
    """Return what one PE leaves in memory that computes z = x op y over tiny numbers; stops at `limits`, then ends."""
    program = Program("tiny", machine())
    x = np.arange(1, N + 1, dtype=np.uint32) * 0x00030001  # subnormal and just normal
    y = np.full(N, 0x3F000000, np.uint32) + np.arange(N, dtype=np.uint32)
    operands = [program.array(at, N, "f32", init=v.view(np.float32)) for at, v in (("x", x), ("y", y))]
    z = program.array("z", N, "f32")
    with program.task("main"):
        getattr(program, name)(program.mem1d(z), *(program.mem1d(operand) for operand in operands))
    program.start("main")
    layout = Layout(1, 1, machine())
    layout.place(program, 0, 0)
    engine = Engine(layout.build())
    for limit in limits:
        engine.run(limit)
        engine.counters()  # a CE that looks inside catches up
    assert engine.run(10_000) == "complete"
    image = program.assemble()
    return engine.read_words(0, 0, image.code_words, image.footprint - image.code_words).tobytes()


@pytest.mark.parametrize("limits", [(), (20, 30, 41)], ids=["one run", "cut"])
@pytest.mark.parametrize("name", ["fmuls", "fadds"])
@pytest.mark.parametrize("mode", MODES)
def test_bits_of_a_run_do_not_depend_on_the_float_mode(mode: str, name: str, limits: tuple[int, ...]):
    want = results(name, limits)
    with float_mode(mode) as before:
        got = results(name, limits)
        assert current() == before, "the caller's mode is put back"
    assert got == want


def test_the_mode_that_is_set_here_would_change_results():
    tiny = np.full(4, 2.0**-126, np.float32)
    assert (tiny * np.float32(0.5) != 0).all()
    with float_mode("flush to zero"):
        assert (tiny * np.float32(0.5) == 0).all()
