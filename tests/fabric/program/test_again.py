"""An operation that is done as often as a register says, against as many operations written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wse
from fabric.price.program import price
from tests.examples import examples
from wse_core.errors import ProgramError

COLUMNS, ROWS = 9, 12


def product(times, again, op="fmach", saves=True):
    """Return a program that adds so many columns of a matrix, weighted, to y."""
    p = wse.Program("product")
    kind = "f16" if op == "fmach" else "f32"
    rng = np.random.default_rng(times)
    y = p.array("y", ROWS, kind)
    a = p.array("a", ROWS * COLUMNS, kind, rng.integers(-3, 4, ROWS * COLUMNS).astype(float))
    x = p.array("x", COLUMNS, kind, rng.integers(-3, 4, COLUMNS).astype(float))
    with p.task("main"):
        sums, old, column, factor = p.dsr("dest"), p.dsr("src0"), p.dsr("src1"), p.dsr("src1")
        for dsr, dsd in (
            (sums, p.mem1d(y, ROWS)),
            (old, p.mem1d(y, ROWS)),
            (column, p.mem1d(a, ROWS, save=saves)),
            (factor, p.mem1d(x, 1)),
        ):
            p.load(dsr, dsd)
        count, left = p.reg16(), p.array("left", 1, "u16")
        p.ldi(count, times)
        if again:
            getattr(p, op)(sums, old, column, factor, again=count)
        else:
            for _ in range(times):
                getattr(p, op)(sums, old, column, factor)
        p.st16(count, left)
    p.start("main")
    return p


def ran(program):
    layout = wse.Layout(1, 1)
    layout.place(program, 0, 0)
    fabric = wse.Fabric(layout)
    result = fabric.run()
    return {name: fabric.read(name, 0, 0) for name in ("y", "left")}, result.cycles


@given(st.integers(1, COLUMNS), st.sampled_from(("fmach", "fmacs")), st.booleans())
@examples(12)
def test_it_is_the_operations_written_out(times, op, saves):
    """Same numbers, same cycles; the register holds 0 in the end; the price is what the engine takes."""
    (once, cycles), (again, others) = (ran(product(times, again, op, saves)) for again in (False, True))
    assert np.array_equal(once["y"], again["y"])
    assert cycles == others
    assert (once["left"], again["left"]) == (times, 0)
    prices = [price(product(times, again, op, saves)).tasks["main"] for again in (False, True)]
    assert prices[0].most == prices[0].least == prices[1].most == prices[1].least


def refused(write):
    p = wse.Program("refused")
    y, x, d = p.array("y", 4, "f32"), p.array("x", 4, "f32"), p.dsr("src1")
    with p.task("main"):
        p.load(d, p.mem1d(x, 1))
        write(p, y, x, d, p.reg16())


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p, y, x, d, r: p.fadds(y, y, x, async_=True, again=r), "asynchronous operation cannot be done again"),
        (lambda p, y, x, d, r: p.add16(r, r, 1, again=r), "a scalar instruction is not done again and again"),
        (lambda p, y, x, d, r: p.fadds(y, y, x, again=3), "fadds count"),
        (lambda p, y, x, d, r: p.fadds(y, y, x, again=p.reg32()), "fadds count"),
    ],
)
def test_what_is_no_such_operation(write, message):
    with pytest.raises(ProgramError, match=message):
        refused(write)
