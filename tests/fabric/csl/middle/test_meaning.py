"""No pass changes what a function does: random functions before and after it, run by the slow twin beside this."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.allocate import Stack, allocate
from fabric.csl.ir import IrFunction, StaticMemory
from fabric.csl.ir.printer import listing
from fabric.csl.ir.reader import read
from fabric.csl.optimise import (
    ahead,
    constants,
    dead,
    flow,
    frames,
    hoist,
    induction,
    legal,
    local,
    optimise,
    placing,
    products,
    single,
)
from tests.examples import examples
from tests.fabric.csl.middle.meaning import Machine, TooLong, outcome, world_of
from tests.fabric.csl.middle.random_functions import make

ARGUMENTS = (5, 0x8003)
STACK = 0x4000
"""Numbers of DSRs that may be kept over loops."""


def simplify(function):
    """Do what optimising begins with, so that the later passes meet what they look for."""
    frames.promote(function)
    flow.clean(function)
    for _ in range(2):
        single.propagate(function)
        local.number(function)
        dead.remove(function)
        flow.clean(function)
    dead.merge_copies(function)


PASSES = {
    "frames": frames.promote,
    "flow": flow.clean,
    "single": single.propagate,
    "local": local.number,
    "dead": dead.remove,
    "copies": dead.merge_copies,
    "induction": induction.scale,
    "hoist": hoist.hoist,
    "keep": hoist.keep,
    "placing": placing.order,
    "legal": legal.legalise,
    "constants": constants.share,
    "ahead": ahead.load_ahead,
    "all": optimise,
    "products": lambda function: expanded(function),
}


def expanded(function):
    """Put calls in place of products, of a routine that does them."""
    body = "b1:\n    entry [v1=r2, v2=r3]\n    v3=r2 = mul16 v1=r2, v2=r3\n    ret v3=r2"
    routine = read(f"fn product(v1=r2, v2=r3) result=1 places=(2, 3) clobbers=(2, 3):\n  {body}")
    products.expand([function], lambda: routine, lambda _: None)


def unlike(text, *passes):
    """Return what differs when passes were run; None if nothing does, or if the function does too much."""
    before, after = read(text), read(text)
    world = world_of(before)
    try:
        wanted = outcome(before, ARGUMENTS, world)
    except TooLong:
        return None
    for run in passes:
        run(after)
    found = outcome(after, ARGUMENTS, world)
    return None if found == wanted else f"{text}\n\nbecame\n\n{listing(after)}\n\n{wanted}\n{found}"


@pytest.mark.parametrize("name", PASSES)
@examples(300, shrink=False)
@given(seed=st.integers(0, 1 << 40))
def test_a_pass_alone(name, seed):
    """On what was just lowered, and on what is simple already."""
    text = make(seed)
    assert unlike(text, PASSES[name]) is None
    assert unlike(text, simplify, PASSES[name]) is None


class Frame:
    """Memory for registers that are kept there."""

    def __init__(self):
        self.made: list[StaticMemory] = []

    def __call__(self, words):
        self.made.append(StaticMemory(f"kept#{len(self.made)}", 1, "u32" if words == 2 else "u16"))
        return self.made[-1]


def in_registers(function: IrFunction, reserved: frozenset[int]) -> Frame:
    """Give a function its registers; return the memory that it needs."""
    frame = Frame()
    allocate(function, frame, reserved)
    for instr in function.instructions():
        for register in (*instr.uses(), *instr.defs()):
            assert register.fixed is not None
            assert not reserved & set(range(register.fixed, register.fixed + register.size))
            assert register.size == 1 or register.fixed % 2 == 0
    return frame


RESERVED = {"all": (), "without the stack's": (7,), "six": tuple(range(6, 16)), "five": (0, 1, 6, *range(8, 16))}
"""Registers that no value may lie in; the fewer are left, the more are kept in memory."""


@pytest.mark.parametrize("reserved", RESERVED)
@examples(200, shrink=False)
@given(seed=st.integers(0, 1 << 40), simple=st.booleans())
def test_registers(reserved, seed, simple):
    """Whether a function was optimised or only made legal, and however few registers there are."""
    text = make(seed)
    last = optimise if simple else legal.legalise
    assert unlike(text, last, lambda function: in_registers(function, frozenset(RESERVED[reserved]))) is None


@examples(200, shrink=False)
@given(seed=st.integers(0, 1 << 40))
def test_a_function_that_is_called_leaves_registers_as_they_were(seed):
    """All but those of its result; what it calls may change what it says that it changes."""
    text = make(seed)
    function = read(text)
    world = world_of(function)
    try:
        wanted = outcome(function, ARGUMENTS, world)
    except TooLong:
        return
    after = read(text)
    optimise(after)
    stack = Stack([after])
    in_registers(after, stack.reserved)
    changed = set(after.clobbers)
    stack.save(after)
    stack.finish()
    machine = Machine()
    machine.registers[7] = STACK
    machine.registers[2:4] = ARGUMENTS
    assert outcome(after, ARGUMENTS, world, machine) == wanted
    if after.kind != "fn":
        return
    kept = [number for number in range(16) if stack.memory is not None or number not in changed]
    result = range(2, 2 + after.result)
    begun = Machine().registers
    begun[7] = STACK
    begun[2:4] = ARGUMENTS
    assert [machine.registers[k] for k in kept if k not in result] == [begun[k] for k in kept if k not in result]
    if stack.memory is not None:
        used = [at for at in machine.words if STACK - 64 <= at < STACK + 64]
        assert all(STACK - stack.memory.count <= at < STACK for at in used)
