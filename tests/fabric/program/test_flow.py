"""Control flow, on machines: structured programs mean what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import disasm
from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.examples import examples
from tests.fabric import BACKENDS
from wse_core.errors import ProgramError

CONDITIONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "ltu": lambda a, b: a < b,
    "leu": lambda a, b: a <= b,
    "gtu": lambda a, b: a > b,
    "geu": lambda a, b: a >= b,
    "lt": lambda a, b: signed(a) < signed(b),
    "le": lambda a, b: signed(a) <= signed(b),
    "gt": lambda a, b: signed(a) > signed(b),
    "ge": lambda a, b: signed(a) >= signed(b),
}
ARITHMETIC = {
    "add16": lambda a, b: a + b,
    "sub16": lambda a, b: a - b,
    "mul16": lambda a, b: a * b,
    "and16": lambda a, b: a & b,
    "or16": lambda a, b: a | b,
    "xor16": lambda a, b: a ^ b,
    "sll16": lambda a, b: a << (b & 15),
    "slr16": lambda a, b: a >> (b & 15),
    "sar16": lambda a, b: signed(a) >> (b & 15),
}


def signed(a):
    return a - 0x10000 if a & 0x8000 else a


numbers = st.one_of(st.integers(0, 3), st.integers(0, 0xFFFF))
operands = st.one_of(st.tuples(st.just("v"), st.integers(0, 3)), st.tuples(st.just("#"), numbers))
assignments = st.tuples(st.just("set"), st.integers(0, 3), st.sampled_from(sorted(ARITHMETIC)), operands, operands)
conditions = st.tuples(st.sampled_from(sorted(CONDITIONS)), st.integers(0, 3), operands)


def blocks(children):
    body = st.lists(children, max_size=3)
    return st.one_of(
        st.tuples(st.just("if"), conditions, body, st.one_of(st.none(), body)),
        st.tuples(st.just("loop"), st.one_of(st.integers(0, 3), st.tuples(st.just("v"), st.integers(0, 3))), body),
        st.tuples(st.just("index"), st.integers(0, 3), st.integers(0, 3), body),
        st.tuples(st.just("call"), body),
    )


statements = st.lists(st.recursive(assignments, blocks, max_leaves=8), min_size=1, max_size=6)


def interpret(body, v):
    """What the program below means."""
    for kind, *rest in body:
        if kind == "set":
            target, op, a, b = rest
            a, b = (v[x] if where == "v" else x for where, x in (a, b))
            v[target] = ARITHMETIC[op](a, b) & 0xFFFF
        elif kind == "if":
            (cond, a, (where, b)), then, other = rest
            interpret(then if CONDITIONS[cond](v[a], v[b] if where == "v" else b) else other or [], v)
        elif kind == "loop":
            count = rest[0] if isinstance(rest[0], int) else v[rest[0][1]] & 3
            for _ in range(count):
                interpret(rest[1], v)
        elif kind == "index":
            for i in range(rest[0]):
                v[rest[1]] = v[rest[1]] + i & 0xFFFF
                interpret(rest[2], v)
        else:
            interpret(rest[0], v)


def emit(p, body, regs, functions):
    """Write the same with the assembler."""

    def value(operand):
        where, x = operand
        return regs[x] if where == "v" else x

    for kind, *rest in body:
        if kind == "set":
            target, op, a, b = rest
            getattr(p, op)(regs[target], value(a), value(b))
        elif kind == "if":
            (cond, a, b), then, other = rest
            with p.if_(cond, regs[a], value(b)):
                emit(p, then, regs, functions)
            if other is not None:
                with p.else_():
                    emit(p, other, regs, functions)
        elif kind == "loop":
            count = rest[0]
            if not isinstance(count, int):
                masked = p.reg16()
                p.and16(masked, regs[count[1]], 3)
                count = masked
            with p.loop(count):
                emit(p, rest[1], regs, functions)
            if not isinstance(rest[0], int):
                p.free(masked)
        elif kind == "index":
            with p.loop(rest[0], index=True) as i:
                p.add16(regs[rest[1]], regs[rest[1]], i)
                emit(p, rest[2], regs, functions)
        else:
            functions.append(rest[0])
            p.call(f"f{len(functions) - 1}")


@pytest.mark.parametrize("backend", BACKENDS)
@given(statements, st.lists(numbers, min_size=4, max_size=4))
def test_random_structured_programs_mean_what_they_say(backend, body, start):
    p = Program("p")
    out = p.array("out", 4, "u16", init=np.array(start))
    regs = [p.reg16(f"v{k}") for k in range(4)]
    functions = []
    try:
        with p.task("main"):
            for k, reg in enumerate(regs):
                p.ld16(reg, out[k])
            emit(p, body, regs, functions)
            for k, reg in enumerate(regs):
                p.st16(reg, out[k])
        k = 0
        while k < len(functions):
            with p.function(f"f{k}"):
                emit(p, functions[k], regs, functions)
            k += 1
    except ProgramError as error:
        assert "free register" in str(error)
        return
    expected = list(start)
    interpret(body, expected)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    assert fabric.run(2_000_000).status == "complete"
    assert fabric.read("out").ravel().tolist() == expected
    assert np.array_equal(disasm.parse_listing(disasm.listing(p.assemble())), p.assemble().code)


@pytest.mark.parametrize("backend", BACKENDS)
def test_while_and_typed_branches(backend):
    p = Program("p")
    out = p.array("out", 4, "u16")
    with p.task("main"):
        n, wide = p.reg16(), p.reg32()
        p.mov16(n, 0)
        with p.while_("ltu", n, 7):
            p.add16(n, n, 2)
        p.st16(n, out[0])
        p.mov32(wide, 1)
        with p.while_("lt", wide, 100_000):
            p.add32(wide, wide, wide)
        p.slr32(wide, wide, 4)
        p.st16(wide.low, out[1])
        p.fmovs(wide, 1.0)
        with p.while_("le", wide, 10.0):
            p.fadds(wide, wide, wide)
        p.st16(wide.high, out[2])
        for name, reg, value in (("br16", n, 8), ("br32", wide, 0), ("brh", n, 0.0), ("brs", wide, 16.0)):
            skip = p.new_label()
            getattr(p, name)("eq", reg, value, skip)
            p.done() if name == "brs" else None
            p.place(skip)
        p.mov16(n, 3)
        p.st16(n, out[3])
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    fabric.run(100_000)
    assert fabric.read("out").ravel().tolist() == [8, 131072 >> 4, 0x4180, 3]


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]),
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, float("nan"), float("inf")]), min_size=2, max_size=2),
    st.sampled_from(["h", "s"]),
    st.booleans(),
)
@examples(30)
def test_float_conditions_are_exact_for_nan_in_both_branches(backend, cond, values, kind, immediate):
    p = Program("p")
    v = p.array("v", 2, "half" if kind == "h" else "f32", init=values)
    out = p.scalar("out", "u16")
    with p.task("main"):
        regs = [p.reg16() if kind == "h" else p.reg32() for _ in range(2)]
        load = p.ld16 if kind == "h" else p.ld32
        load(regs[0], v[0])
        load(regs[1], v[1])
        answer = p.reg16()
        with p.if_(cond, regs[0], values[1] if immediate else regs[1], kind):
            p.mov16(answer, 1)
        with p.else_():
            p.mov16(answer, 2)
        p.st16(answer, out)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    fabric.run(10_000)
    a, b = values
    truth = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[cond]
    assert fabric.read("out").item() == (1 if truth else 2)


def test_else_needs_its_if():
    p = Program("p")
    with p.task("main"):
        with p.if_("eq", p.r[2], 0):
            p.nop()
        p.nop()
        with pytest.raises(ProgramError, match="else_ without an if_ right before it"), p.else_():
            pass


def test_assembly_is_deterministic():
    def build():
        p = Program("p")
        a = p.array("a", 8, "f32", bank=2)
        with p.task("main"), p.loop(3):
            p.fadds(a, a, p.fabin(p.input_queue(0, 1), 8))
        return p.assemble()

    first, second = build(), build()
    assert np.array_equal(first.code, second.code)
    assert np.array_equal(first.descriptors, second.descriptors)
    assert first.symbols == second.symbols
