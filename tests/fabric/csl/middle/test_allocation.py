"""Registers: what is kept in memory, what a function keeps for its caller, how deep the stack is."""

from __future__ import annotations

import pytest

from fabric.csl.allocate import Stack, allocate
from fabric.csl.allocate.spill import spill
from fabric.csl.diagnostics import Fault
from fabric.csl.ir.printer import listing
from fabric.csl.ir.reader import read
from fabric.csl.rules import KEPT
from tests.fabric.csl.middle.test_meaning import Frame
from tests.fabric.csl.middle.texts import lines, text


def test_constants_that_are_spilled_are_made_again():
    function = read(text("v1 = const 5\nv2 = rand16\nv3 = add16 v2, v1\nv2 = add16 v3, v1\nstore v2 [@a]\nret"))
    constant, twice = (next(iter(function.instructions())).dst, list(function.instructions())[1].dst)
    frame = Frame()
    spill(function, {constant, twice}, frame)
    assert lines(function) == [
        "v2 = rand16", "store v2 [@kept#0]", "v3 = load [@kept#0]", "v4 = const 5", "v1 = add16 v3, v4",
        "v5 = const 5", "v6 = add16 v1, v5", "store v6 [@kept#0]", "v7 = load [@kept#0]", "store v7 [@a]", "ret",
    ]  # fmt: skip


def test_an_operation_that_needs_more_than_there_is():
    function = read(text("v1 = rand16\nd2 = rand16\nd3 = zx32 v1\nd4 = add32 d3, d2\nstore d4 [@b]\nret"))
    with pytest.raises(Fault, match="needs more registers than there are"):
        allocate(function, Frame(), frozenset(range(2, 16)))


def chain(depth):
    """Return functions that call each other, callees first, with their registers."""
    made, head = [], ""
    for k in range(depth):
        call = "    v3=r2 = call [&f]\n    v5 = copy v3=r2\n" if made else "    v5 = const 1\n"
        kind = "task" if k == depth - 1 else "fn"
        head = "&f = function(fn, result=1)\n" if made else ""
        end = "    store v6 [@o]\n    ret" if kind == "task" else "    v7=r2 = copy v6\n    ret v7=r2"
        result = " result=1" if kind == "fn" else ""
        begin = f"{head}@o = memory(u16, 1)\n{kind} f{k}(){result}:\n  b1:\n    v4 = const 9"
        function = read(f"{begin}\n{call}    v6 = add16 v5, v4\n{end}")
        for instr in function.instructions():
            if instr.op == "call":
                instr.data = made[-1]
        made.append(function)
    return made


def test_the_stack_holds_what_all_calls_inside_of_each_other_keep():
    functions = chain(4)
    stack = Stack(functions)
    assert stack.reserved == KEPT >= {7}
    saved = []
    for function in functions:
        allocate(function, Frame(), stack.reserved)
        saved.append(len(function.clobbers - {2, 7}) if function.kind == "fn" else 0)
        stack.save(function)
        assert function.clobbers == {2} or function.kind == "task"
    stack.finish()
    assert stack.memory.count == sum(saved) > 0
    assert (
        lines(functions[-1])[0] == f"v1.stack=r7 = const @.stack+{stack.memory.count}"
        or "stack=r7" in lines(functions[-1])[0]
    )
    assert not any("const @.stack" in line for function in functions[:-1] for line in lines(function))


def test_functions_of_a_circle_save_nothing():
    (function, _) = chain(2)
    function.circle = True
    stack = Stack(chain(2))
    allocate(function, Frame(), stack.reserved)
    stack.save(function)
    assert function.clobbers == set(range(16))
    assert "stack" not in listing(function)
