"""Random expressions and statements: what a PE computes is what Python computes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fabric.csl.running import run_task

INTEGERS = {
    "i16": (16, True),
    "u16": (16, False),
    "i32": (32, True),
    "u32": (32, False),
    "i8": (8, True),
    "u8": (8, False),
}
FLOATS = {"f32": np.float32, "f16": np.float16}
VALUES = 6


def wrapped(value, kind):
    """Return a whole number as one of an integer type."""
    bits, signed = INTEGERS[kind]
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


class Expressions:
    """Makes expressions as pairs of CSL text and value; the same ones for the same seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.inputs = {}
        for kind, (bits, signed) in INTEGERS.items():
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            some = [low, high, 0, 1, self.random.randint(low, high), self.random.randint(low, high)]
            self.inputs[kind] = self.random.sample(some, VALUES)
        for kind, numpy in FLOATS.items():
            some = [0.0, 1.0, -2.5, self.random.uniform(-9, 9), self.random.uniform(-100, 100), 0.125]
            self.inputs[kind] = [numpy(x) for x in self.random.sample(some, VALUES)]

    def declarations(self):
        """Return the globals that hold the inputs: values that the compiler does not know."""
        lines = []
        for kind, values in self.inputs.items():
            text = ", ".join(f"{float(v)!r}" if kind in FLOATS else str(v) for v in values)
            lines.append(f"var in_{kind} = [{VALUES}]{kind}{{ {text} }};")
        return lines

    def number(self, kind, depth):
        """Return an expression of an integer type."""
        if depth == 0 or self.random.random() < 0.15:
            place = self.random.randrange(VALUES)
            return f"in_{kind}[{place}]", self.inputs[kind][place]
        choice = self.random.randrange(9)
        if choice == 0:
            other = self.random.choice(list(INTEGERS))
            text, value = self.number(other, depth - 1)
            return f"@as({kind}, {text})", wrapped(value, kind)
        if choice == 1:
            text, value = self.truth(depth - 1)
            a, b = self.number(kind, depth - 1), self.number(kind, depth - 1)
            return f"(if ({text}) {a[0]} else {b[0]})", a[1] if value else b[1]
        if choice == 2:
            text, value = self.number(kind, depth - 1)
            op = self.random.choice("-~")
            return f"({op}{text})", wrapped(-value if op == "-" else ~value, kind)
        if choice == 3:
            text, value = self.number(kind, depth - 1)
            count = self.random.randrange(INTEGERS[kind][0])
            op = self.random.choice(("<<", ">>"))
            known = self.random.random() < 0.5
            shown = str(count) if known else f"@as(u16, zero + {count})"
            return f"({text} {op} {shown})", wrapped(value << count if op == "<<" else value >> count, kind)
        if choice == 4:
            text, value = self.number(kind, depth - 1)
            by = self.random.choice((1, 2, 3, 7, 8, 10, 100, 64))
            op = self.random.choice("/%")
            quotient = abs(value) // by * (1 if value >= 0 else -1)
            shown = str(by) if self.random.random() < 0.7 else f"@as({kind}, zero + {by})"
            return f"({text} {op} {shown})", quotient if op == "/" else value - quotient * by
        a, b = self.number(kind, depth - 1), self.number(kind, depth - 1)
        if choice == 5:
            by = self.random.choice((0, 1, 2, 3, 5, 6, 7, 12, 24, 31, 33))
            return f"({a[0]} * {by})", wrapped(a[1] * by, kind)
        op = self.random.choice("+-*&|^")
        made = {"+": a[1] + b[1], "-": a[1] - b[1], "*": a[1] * b[1], "&": a[1] & b[1], "|": a[1] | b[1]}
        return f"({a[0]} {op} {b[0]})", wrapped(made.get(op, a[1] ^ b[1]), kind)

    def float(self, kind, depth):
        """Return an expression of a float type."""
        numpy = FLOATS[kind]
        if depth == 0 or self.random.random() < 0.2:
            place = self.random.randrange(VALUES)
            return f"in_{kind}[{place}]", self.inputs[kind][place]
        if self.random.random() < 0.15:
            other = self.random.choice(("i16", "u16", "i32"))
            text, value = self.number(other, depth - 1)
            # A 16-bit float is made of a 32-bit integer by way of f32.
            with np.errstate(all="ignore"):
                return f"@as({kind}, {text})", numpy(np.float32(value)) if other != "i16" else numpy(value)
        a, b = self.float(kind, depth - 1), self.float(kind, depth - 1)
        op = self.random.choice("+-*")
        with np.errstate(all="ignore"):
            return f"({a[0]} {op} {b[0]})", numpy({"+": a[1] + b[1], "-": a[1] - b[1], "*": a[1] * b[1]}[op])

    def truth(self, depth):
        """Return a condition."""
        if depth > 0 and self.random.random() < 0.4:
            op = self.random.choice(("and", "or", "!"))
            a = self.truth(depth - 1)
            if op == "!":
                return f"(!{a[0]})", not a[1]
            b = self.truth(depth - 1)
            return f"({a[0]} {op} {b[0]})", (a[1] and b[1]) if op == "and" else (a[1] or b[1])
        kind = self.random.choice([*INTEGERS, *FLOATS])
        make = self.float if kind in FLOATS else self.number
        a, b = make(kind, max(0, depth - 1)), make(kind, max(0, depth - 1))
        op = self.random.choice(("==", "!=", "<", "<=", ">", ">="))
        x, y = a[1], b[1]
        made = {"==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op]
        return f"({a[0]} {op} {b[0]})", bool(made)


NUMPY = {
    "i16": "i2",
    "u16": "u2",
    "i32": "i4",
    "u32": "u4",
    "i8": "i1",
    "u8": "u1",
    "f32": "f4",
    "f16": "f2",
    "bool": "u2",
}


@examples(50)
@given(seed=st.integers(0, 1 << 32))
def test_expressions(tmp_path_factory, seed):
    make = Expressions(seed)
    kinds = [*INTEGERS, *FLOATS, "bool"]
    body, wanted = [], {kind: [] for kind in kinds}
    for kind in kinds:
        for k in range(3):
            depth = make.random.randint(1, 4)
            text, value = (
                make.truth(depth) if kind == "bool" else (make.float if kind in FLOATS else make.number)(kind, depth)
            )
            wanted[kind].append(value)
            body.append(f"  out_{kind}[{k}] = {text};")
    declarations = [*make.declarations(), "var zero: u16 = 0;", *(f"var out_{kind}: [3]{kind};" for kind in kinds)]
    results = {f"out_{kind}": NUMPY[kind] for kind in kinds}
    found = run_task(tmp_path_factory.mktemp("csl"), "\n".join(body), *declarations, results=results)
    for kind in kinds:
        expected = np.array(wanted[kind], np.dtype(NUMPY[kind]) if kind not in ("i8", "u8") else None)
        got = found[f"out_{kind}"][:3]
        if kind in FLOATS:
            same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        else:
            same = got.astype(np.int64) == (expected.astype(np.int64) & (0xFF if kind == "u8" else -1))
        assert same.all(), (kind, got, expected, body)


@pytest.mark.parametrize(("value", "kind"), [(4294967040.0, "u32"), (3.9, "u16"), (-3.9, "i32"), (70000.0, "u32")])
def test_floats_become_integers(tmp_path, value, kind):
    found = run_task(
        tmp_path, f"y = @as({kind}, x);", f"var x: f32 = {value};", f"var y: {kind};", results={"y": NUMPY[kind]}
    )
    assert found["y"][0] == int(value)


@pytest.mark.parametrize("value", [0, 1, 1 << 31, (1 << 32) - 1, (1 << 31) + 129, 16777217])
def test_unsigned_numbers_become_floats(tmp_path, value):
    found = run_task(tmp_path, "y = @as(f32, x);", f"var x: u32 = {value};", "var y: f32;", results={"y": "f4"})
    assert found["y"][0] == np.float32(value)
