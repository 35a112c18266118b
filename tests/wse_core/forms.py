"""Formats of the scalar forms, strategies for their codes, and their witnesses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.examples import SLOW_BUILD
from tests.wse_core import exact
from wse_core.reference import numerics as reference

# (fmt, bias): 31 and 42 are the two candidates for the machine, 1 and 62 the ends of what is legal
HALVES = [("f16", 42), ("cb16", 31), ("cb16", 42), ("cb16", 1), ("cb16", 62)]
ARITHMETIC = [*HALVES, ("f32", 42)]
STORED = [*ARITHMETIC, ("bf16", 42)]
CODE_OF = {"f16": 0, "cb16": 1, "bf16": 2, "f32": 3}
ALL16 = np.arange(65536, dtype=np.uint16)
MANY = 20_000 if SLOW_BUILD else 1_000_000

BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "maximum": "max", "minimum": "min"}
COMPARE = ("eq", "lt", "le")


def over(formats):
    """Parametrize a test over formats (name, bias)."""
    return pytest.mark.parametrize(("fmt", "bias"), formats, ids=lambda value: str(value))


def reference_for(fmt, bias, ftz=0):
    """The reference element, and the prefix of its methods, for a format."""
    num = reference.Num(reference.FMT_CB16 if fmt == "cb16" else reference.FMT_F16, bias, ftz)
    return num, "f32_" if fmt == "f32" else "h_"


def bits_of(x):
    """The bit patterns of an array."""
    return np.asarray(x).view(f"u{np.asarray(x).dtype.itemsize}")


def same_but_nan(ours, numpys, fmt):
    """Whether our bits equal those of a numpy float array, with any of its NaNs standing for the canonical one."""
    f = exact.layout(fmt, 42)
    theirs = np.where(np.isnan(numpys), f.nan, bits_of(numpys))
    return np.array_equal(ours, theirs)


@st.composite
def code(draw, fmt, bias):
    """A code of any kind; short fractions and neighbouring exponents are where ties and cancellations live."""
    f = exact.layout(fmt, bias)
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.integers(0, 2**f.bits - 1))
    if kind == 1:
        return draw(st.sampled_from(exact.edge_codes(f)))
    sign = draw(st.sampled_from([0, f.sign]))
    fraction = draw(st.integers(0, (1 << f.m) - 1))
    if kind == 2:
        fraction &= -1 << draw(st.integers(0, f.m))
    low = max(0, f.bias - f.m - 2)
    return sign | draw(st.integers(low, min(f.top - 1, f.bias + f.m + 2))) << f.m | fraction


def several(n, fmt, bias):
    """Ten operand tuples per example: the cost of an example is mostly hypothesis's own."""
    return st.lists(st.tuples(*[code(fmt, bias) for _ in range(n)]), min_size=1, max_size=10)


def columns(rows, *formats):
    """Return the operands of examples, an array of codes for each format."""
    return [
        np.array(column, np.uint32 if fmt == "f32" else np.uint16)
        for column, fmt in zip(zip(*rows, strict=True), formats, strict=True)
    ]


def witnesses(op, operands, out, ftz):
    """Result of each oracle."""
    return [oracle.calculate(op, out, ftz, *operands) for oracle in exact.ORACLES]
