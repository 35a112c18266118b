"""Functions of f32 vectors: programs against their evaluation bit by bit, evaluation against numpy in float64."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.fabric import Fabric
from fabric.layout import Layout
from fabric.pe.functions import EXP, LOG, Emit, Evaluate, coefficients
from fabric.program import Program
from tests.examples import examples
from wse_core.errors import ProgramError
from wse_core.params import machine

BITS = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from(
    [0, 0x80000000, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x3F800000, 0x3F350000, 0x3F34FFFF, 0x00800000,
     0x7F7FFFFF, 0xC2AE0000, 0x42B00000]))
NAMES = ("exp", "log", "reciprocal", "rsqrt")


def run(name, source, backend="compiled", machine=None):
    """Return (results of a PE, cycles of the task)."""
    n = len(source)
    p = Program(name, machine)
    x, y, z = (p.array(k, n, "f32") for k in "xyz")
    functions = Emit(p, n)
    with p.task("main"):
        getattr(functions, name)(*((y, z) if name == "gelu" else (y,)), x)
    layout = Layout(1, 1, machine)
    layout.place(p, 0, 0)
    fabric = Fabric(layout, backend)
    fabric.write("x", source.view(np.float32))
    fabric.launch("main")
    cycles = fabric.run().cycles
    found = [fabric.read(k)[0, 0].view(np.uint32) for k in "yz"]
    return (tuple(found) if name == "gelu" else found[0]), cycles


@examples(40)
@given(st.sampled_from([*NAMES, "gelu"]), st.lists(BITS, min_size=1, max_size=9), st.booleans())
def test_programs_give_the_evaluated_bits(name, bits, ftz):
    """All bit patterns, also those outside the range that a function is made for."""
    source, m = np.array(bits, np.uint32), machine("wse2", {"num.ftz": int(ftz)})
    found, cycles = run(name, source, machine=m)
    assert np.array_equal(found, getattr(Evaluate(m), name)(source))
    # Values do not change the time, and both machines take the same.
    assert cycles == run(name, np.full(len(bits), 0x3F800000, np.uint32), machine=m)[1]


@pytest.mark.parametrize("name", [*NAMES, "gelu"])
def test_both_machines_agree(name):
    source = np.linspace(0.1, 3, 5).astype(np.float32).view(np.uint32)
    (found, cycles), (expected, steps) = run(name, source), run(name, source, "reference")
    assert np.array_equal(found, expected)
    assert cycles == steps


def ulps(found, exact):
    """Return the distance in units of the last place of the exact result rounded to f32."""
    return np.abs(found - exact) / np.spacing(np.abs(exact.astype(np.float32))).astype(np.float64)


def evaluate(name, x):
    found = getattr(Evaluate(machine()), name)(x.astype(np.float32).view(np.uint32))
    return [part.view(np.float32).astype(np.float64) for part in (found if isinstance(found, tuple) else (found,))]


def test_exp_is_close():
    x = np.linspace(-87, 88, 200_001).astype(np.float32)
    assert ulps(evaluate("exp", x)[0], np.exp(x.astype(np.float64))).max() < 1.5
    assert evaluate("exp", np.array([-1e9, -np.inf]))[0].max() < 1.7e-38
    assert np.isnan(evaluate("exp", np.array([np.nan]))[0]).all()
    assert evaluate("exp", np.zeros(1))[0] == 1.0


def test_log_is_close():
    x = np.concatenate([np.exp(np.linspace(-87, 88, 100_001)), np.linspace(0.5, 2, 100_001)]).astype(np.float32)
    assert ulps(evaluate("log", x)[0], np.log(x.astype(np.float64))).max() < 2
    assert evaluate("log", np.ones(1))[0] == 0.0


def test_inverses_are_rounded_once_per_operation():
    x = np.array([3, 1e-38, 1e38, -7, 0, -0.0, np.inf, -np.inf, np.nan, 1e-45], np.float32)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        assert np.array_equal(evaluate("reciprocal", x)[0], (1 / x).astype(np.float64), equal_nan=True)
        assert np.array_equal(evaluate("rsqrt", x)[0], (1 / np.sqrt(x)).astype(np.float64), equal_nan=True)


def test_gelu_is_close_at_every_half_precision_number():
    """Values within 1e-6, relatively; slopes within 3e-6: less than half a unit of a 16-bit result near one."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = x[np.isfinite(x)].astype(np.float64)
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    value, slope = evaluate("gelu", x)
    exact = 0.5 * x * (1 + np.tanh(u))
    assert (np.abs(value - exact) <= 1e-6 * np.maximum(np.abs(exact), 1)).all()
    exact = 0.5 * (1 + np.tanh(u)) + 0.5 * x * (1 - np.tanh(u)**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    assert np.abs(slope - exact).max() < 3e-6


def test_time_per_element():
    """Steps of the operations in the head of the module; divisions in a loop."""
    m = machine()
    cycles = {name: [run(name, np.ones(n, np.float32).view(np.uint32))[1] for n in (100, 200)]
              for name in (*NAMES, "gelu")}
    per = {name: (b - a) / 100 for name, (a, b) in cycles.items()}
    # exp: nine multiplications, two limits, ten additions by twos, a shift, a 16-bit addition by fours, a move.
    assert per["exp"] == pytest.approx(9 + 2 + 10 / 2 + 1 + 1 / 4 + 1 / 2, abs=0.1)
    assert m["ce.divide"] < per["reciprocal"] < m["ce.divide"] + 30
    assert per["rsqrt"] - per["reciprocal"] == pytest.approx(m["ce.divide"], abs=3)
    assert per["gelu"] < per["exp"] + per["reciprocal"] + 16


def test_coefficients_are_those_of_the_fit():
    for given_, fitted in zip((EXP, LOG), coefficients(), strict=True):
        assert given_ == pytest.approx(fitted, rel=1e-4)


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
