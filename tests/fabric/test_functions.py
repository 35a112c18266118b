"""Functions of f32 vectors: programs against their evaluation bit by bit, evaluation against numpy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.program.functions import Emit, EvaluatedFunctions, mathematics
from fabric.program.program import Program
from tests.examples import examples
from wse_core.errors import ProgramError
from wse_core.params import machine

BITS = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from(
        [
            0,
            0x80000000,
            1,
            0x807FFFFF,
            0x7F800000,
            0xFF800000,
            0x7FC00000,
            0x7F800001,
            0xFFFFFFFF,
            0x3F800000,
            0x3F350000,
            0x3F34FFFF,
            0x00800000,
            0x7F7FFFFF,
            0x7E000000,
            0x7F000000,
            0xC2AE0000,
            0x42B00000,
            0x42B17218,
            0xC2CFF1B5,
        ]
    ),
)
CYCLES = {"exp": (109, 16.25), "log": (120, 20), "reciprocal": (69, 8.5), "rsqrt": (82, 13.5), "gelu": (187, 36.25),
          "gelu_erf": (201, 39.5)}  # fmt: skip
"""Of n numbers, n a multiple of four: a + b n."""


def run(name, source, backend="compiled", machine=None, how="variables"):
    """Return (results of a PE, cycles of the task)."""
    n = len(source)
    p = Program(name, machine)
    x, *results = (p.array(k, n, "f32") for k in ("xyz" if name == "gelu" else "xy"))
    functions = Emit(p, n)
    with p.task("main"):
        operands = [*results, x]
        if how == "in place":
            operands[-2] = results[-1] = x
        elif how == "registers":
            for k, var in enumerate(operands):
                operands[k] = p.reg16()
                p.ldi(operands[k], var)
        elif how == "DSRs":
            for k, var in enumerate(operands):
                operands[k] = p.dsr("src1" if var is x else "dest")
                p.load(operands[k], p.mem1d(var, save=True))
        getattr(functions, name)(*operands)
    layout = Layout(1, 1, machine)
    layout.place(p, 0, 0)
    fabric = Fabric(layout, backend)
    fabric.write("x", source.view(np.float32))
    fabric.launch("main")
    cycles = fabric.run().cycles
    found = [fabric.read(var.name)[0, 0].view(np.uint32) for var in results]
    return np.array(found if name == "gelu" else found[0]), cycles


@examples(60)
@given(
    st.sampled_from([*CYCLES]),
    st.lists(BITS, min_size=1, max_size=9),
    st.booleans(),
    st.sampled_from(["variables", "in place", "registers", "DSRs"]),
)
def test_programs_give_the_evaluated_bits(name, bits, ftz, how):
    """All bit patterns, also those outside the range that a function is made for."""
    source, m = np.array(bits, np.uint32), machine("wse2", {"num.ftz": int(ftz)})
    found, cycles = run(name, source, machine=m, how=how)
    assert np.array_equal(found, getattr(EvaluatedFunctions(m), name)(source))
    # Values do not change the time.
    assert cycles == run(name, np.full(len(bits), 0x3F800000, np.uint32), machine=m, how=how)[1]


@pytest.mark.parametrize("n", [1, 4, 7])
@pytest.mark.parametrize("name", [*CYCLES])
def test_both_machines_agree(name, n):
    source = np.linspace(0.1, 3, n).astype(np.float32).view(np.uint32)
    (found, cycles), (expected, steps) = run(name, source), run(name, source, "reference")
    assert np.array_equal(found, expected)
    assert cycles == steps


@pytest.mark.parametrize("name", [*CYCLES])
def test_cycles_follow_the_table(name):
    fixed, per = CYCLES[name]
    for n in (4, 20, 64):
        assert run(name, np.zeros(n, np.uint32))[1] == fixed + per * n
    # Whole steps: no more than those of the next multiple of four, no fewer than with half of an element per operation.
    assert fixed + per * 5 <= run(name, np.zeros(5, np.uint32))[1] <= fixed + per * 8


def test_functions_can_follow_one_another():
    """DSRs are loaded anew in each call: one Emit serves all tasks."""
    p = Program("two")
    x, y = p.array("x", 6, "f32"), p.array("y", 9, "f32")
    functions = Emit(p, 5)
    with p.task("main"):
        functions.exp(y[2], x)
        p.activate("next")
    with p.task("next"):
        functions.log(x, y[2])
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    fabric = Fabric(layout)
    source = np.array([-3, -1, 0.5, 2, 4, 7], np.float32)
    fabric.write("x", source)
    fabric.launch("main")
    fabric.run()
    evaluated = EvaluatedFunctions(machine())
    powers = evaluated.exp(source[:5].view(np.uint32))
    assert np.array_equal(fabric.read("y")[0, 0].view(np.uint32), [0, 0, *powers, 0, 0])
    assert np.array_equal(fabric.read("x")[0, 0][:5].view(np.uint32), evaluated.log(powers))
    assert fabric.read("x")[0, 0][5] == 7


def test_evaluation_keeps_shapes_and_arguments():
    bits = np.linspace(-1, 1, 24).astype(np.float32).view(np.uint32).reshape(2, 3, 4)
    kept = bits.copy()
    found = EvaluatedFunctions(machine()).exp(bits.transpose(2, 0, 1))
    assert np.array_equal(found, EvaluatedFunctions(machine()).exp(bits).transpose(2, 0, 1))
    assert np.array_equal(bits, kept)


def test_what_is_no_vector_is_refused():
    p = Program("wrong")
    x, y, h = p.array("x", 4, "f32"), p.array("y", 3, "f32"), p.array("h", 4, "f16")
    functions = Emit(p, 4)
    with p.task("main"):
        with pytest.raises(ProgramError, match="fewer than 4 elements"):
            functions.exp(x, y)
        with pytest.raises(ProgramError, match="fewer than 4 elements"):
            functions.exp(x, x[1])
        with pytest.raises(ProgramError, match="no f32 vector"):
            functions.exp(x, h)


# --- closeness --------------------------------------------------------------------------------------------------------


def ulps(found, exact):
    """Return the distance in units of the last place of the exact result rounded to f32."""
    return np.abs(found - exact) / np.spacing(np.abs(exact.astype(np.float32))).astype(np.float64)


def evaluate(name, x):
    found = getattr(EvaluatedFunctions(machine()), name)(x.astype(np.float32).view(np.uint32))
    return [part.view(np.float32).astype(np.float64) for part in (found if isinstance(found, tuple) else (found,))]


def halves():
    """Return all finite f16 numbers."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return x[np.isfinite(x)].astype(np.float32)


def test_exp_is_close_and_right_at_its_ends():
    for x in (np.linspace(-103.9, 88.72, 300_001).astype(np.float32), np.clip(halves(), -103.9, 88.72)):
        assert ulps(evaluate("exp", x)[0], np.exp(x.astype(np.float64))).max() < 1
    x = np.array([-np.inf, -3e38, -104, -87.5, -0.0, 0, 1e-45, 88.8, 3e38, np.inf, np.nan])
    found = evaluate("exp", x)[0]
    assert np.array_equal(found[[0, 1, 2, 4, 5, 6]], [0, 0, 0, 1, 1, 1])
    assert 0 < found[3] < 2.0**-126
    assert np.isinf(found[7:10]).all()
    assert np.isnan(found[10])


def test_log_is_close():
    positive = halves()[halves() > 0]
    for x in (
        np.exp(np.linspace(-87, 88.7, 200_001)).astype(np.float32),
        np.linspace(0.5, 2, 200_001).astype(np.float32),
        positive,
    ):
        assert ulps(evaluate("log", x)[0], np.log(x.astype(np.float64))).max() < 1.6
    assert evaluate("log", np.ones(1))[0] == 0.0
    assert np.isnan(evaluate("log", np.array([np.nan, np.inf]))[0]).all()


def test_inverses_are_close():
    positive = halves()[halves() > 0]
    ends = np.array([2.0**-125, 2.0**125, 1, 2, 4])
    for x in (np.exp(np.linspace(-86.6, 86.6, 200_001)).astype(np.float32), np.linspace(1, 4, 200_001), positive, ends):
        x = x.astype(np.float32)
        exact = 1 / x.astype(np.float64)
        found = evaluate("reciprocal", x)[0]
        assert ulps(found, exact).max() < 2
        assert np.array_equal(evaluate("reciprocal", -x)[0], -found)
        assert ulps(evaluate("rsqrt", x)[0], np.sqrt(exact)).max() < 2.2
    assert np.isnan(evaluate("reciprocal", np.array([0, -0.0, np.nan]))[0]).all()
    assert np.isnan(evaluate("rsqrt", np.array([np.nan]))[0]).all()


def test_gelu_is_close():
    dense = np.concatenate([np.linspace(-20, 20, 100_001), np.geomspace(1e-30, 2**29, 10_001)])
    for x in (halves(), np.concatenate([dense, -dense[-10_001:]])):
        x = x.astype(np.float32).astype(np.float64)
        u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
        value, slope = evaluate("gelu", x)
        exact = 0.5 * x * (1 + np.tanh(u))
        assert (np.abs(value - exact) <= 4e-7 * np.maximum(np.abs(exact), 1)).all()
        exact = 0.5 * (1 + np.tanh(u))
        exact += 0.5 * x * (1 - np.tanh(u) ** 2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
        assert np.abs(slope - exact).max() < 4e-6


def test_gelu_with_the_error_function_is_close():
    """As close as the published formula; and no difference of large numbers where the result is small."""
    dense = np.concatenate([np.linspace(-20, 20, 20_001), np.geomspace(1e-30, 2**29, 2_001)])
    for x in (halves()[::8], np.concatenate([dense, -dense[-2_001:]])):
        x = x.astype(np.float32).astype(np.float64)
        exact = x * np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in x])
        error = np.abs(evaluate("gelu_erf", x)[0] - exact)
        assert (error <= 2e-7 * np.maximum(np.abs(x), 1)).all()
    far = np.linspace(-5, -3, 501)
    exact = far * np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in far])
    assert (np.abs(evaluate("gelu_erf", far)[0] - exact) <= 0.02 * np.abs(exact)).all()
    assert np.isnan(evaluate("gelu_erf", np.array([np.nan]))[0]).all()


def test_constants_are_the_best():
    """Coefficients by least squares of the relative error; guesses and first steps by search."""
    points = np.cos(np.pi * (np.arange(4000) + 0.5) / 4000)

    def fit(function, low, high, degree, fixed):
        x = (low + high) / 2 + (high - low) / 2 * points
        rest = function(x) - np.polynomial.polynomial.polyval(x, fixed)
        terms = np.stack([x**k for k in range(len(fixed), degree + 1)], 1) / function(x)[:, None]
        return (*fixed, *np.linalg.lstsq(terms, rest / function(x), rcond=None)[0])

    edge = math.log(2) / 2 * 1.01
    fitted = fit(np.exp, -edge, edge, 6, (1.0, 1.0, 0.5))
    assert fitted == pytest.approx(mathematics.EXP, rel=1e-4)
    fitted = fit(lambda f: np.log1p(f) / f, math.sqrt(0.5) - 1.002, math.sqrt(2) - 0.998, 9, (1.0, -0.5))
    assert fitted == pytest.approx(mathematics.LOG, rel=1e-4)

    x = np.linspace(1, 4, 20_001).astype(np.float32)
    upper = (x.view(np.uint32) >> 16).astype(np.int64)

    def worst(high, constant, kind, low=0x8000):
        y = ((high - (upper >> (kind == "root")) << 16) + low).astype(np.uint32).view(np.float32).astype(np.float64)
        if kind == "root":
            return np.abs(y * (constant - x * y * y / 2) * np.sqrt(x) - 1).max()
        return np.abs(x * y * (constant - x * y) - 1).max()

    for (high, low), constant, kind in (
        (mathematics.INVERSE_GUESS, mathematics.INVERSE_FIRST, "inverse"),
        (mathematics.ROOT_GUESS, mathematics.ROOT_FIRST, "root"),
    ):
        chosen = worst(high, constant, kind, low)
        assert chosen < 0.0016
        assert chosen <= 1.001 * min(
            worst(high + k, constant + step, kind) for k in (-1, 0, 1) for step in (-0.001, -0.0005, 0, 0.0005, 0.001)
        )


def test_halves_of_a_vector_can_be_described_but_not_wholes_of_halves():
    p = Program("views")
    x, y = p.array("x", 4, "f32"), p.array("y", 4, "u16")
    high = p.mem1d(x, stride=2, offset=1, dtype="u16")
    assert high.extent == (4,)
    assert p.mem1d(x, dtype="u16").extent == (8,)
    with pytest.raises(ProgramError, match="reaches element 9, outside 0 .. 7"):
        p.mem1d(x, 5, stride=2, offset=1, dtype="u16")
    with pytest.raises(ProgramError, match="not a type of the size"):
        p.mem1d(y, dtype="f32")
