"""Queues and registers of a program."""

from __future__ import annotations

import pytest

from fabric.program.program import Program
from tests.fabric.program.image import instructions
from wse_core.errors import ProgramError


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: p.input_queue(1, 6), "input queue 1 is bound twice, to colors 5 and 6"),
        (lambda p: p.input_queue(2, 5), "color 5 is bound to two input queues, 1 and 2"),
        (lambda p: p.input_queue(8, 6), "input queue 8 does not exist on wse2.*queues 0 .. 7"),
        (lambda p: p.output_queue(6, 6), "output queue 6 does not exist on wse2.*queues 0 .. 5"),
        (lambda p: p.output_queue(0, 24), "color 24 of output queue 0 is not routable"),
    ],
)
def test_queue_bindings_that_no_machine_has(write, message):
    p = Program("p")
    p.input_queue(1, 5)
    with pytest.raises(ProgramError, match=rf"test_ports.py:\d+, program 'p': {message}"):
        write(p)


def test_registers_of_a_task_are_free_again_and_those_of_functions_never_overlap():
    p = Program("p")
    shared = p.reg16("shared")
    with p.task("a", kind="data", color=3) as t:
        assert (t.data.id, t.index.id, t.word.id) == (0, 1, 0)
        in_a = {p.reg16().id, p.reg16().id}
    with p.task("b"):
        in_b = {p.reg16().id, p.reg16().id}
    with p.function("f"):
        in_f = {p.reg32().id, p.reg16().id}
    assert in_a == in_b
    assert not in_f & (in_a | {shared.id, 0, 1})
    assert shared.id not in in_a | {0, 1}


def test_local_tasks_may_use_r0_and_r1_last():
    p = Program("p")
    with p.task("a"):
        ids = [p.reg16().id for _ in range(16)]
        assert ids[-2:] == [0, 1]
        with pytest.raises(ProgramError, match=r"no 1 free register for x; taken: r0, r1.*p\.free"):
            p.reg16("x")
        p.free(*[p.r[0].__class__(0, 1, "")])
        assert p.reg16().id == 0


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: p.pair(3), "register pair r3:r4: the first register of a pair is even"),
        (lambda p: p.mov32(p.r[5], 1), "register pair r5:r6: the first register of a pair is even"),
        (lambda p: p.r[16], "register 16 does not exist"),
        (lambda p: p.add16(p.reg32(), p.r[2], 1), "has 32 bits, a 16-bit integer has 16"),
        (lambda p: p.add32(p.reg16(), p.reg32(), 1), "has 16 bits, a 32-bit integer has 32"),
        (lambda p: p.add16(p.r[2], p.r[3], 65536), "65536 does not fit 16 bits"),
        (lambda p: p.add16(p.r[2], p.r[3], 0.5), "0.5 given where a 16-bit integer belongs"),
        (lambda p: p.add16(p.r[2], p.r[3], "x"), "'x' is neither a register nor a number"),
        (lambda p: p.tsc(p.r[14]), "tsc: r14 and the two registers after it"),
        (lambda p: p.ld32(p.reg32(), p.scalar("h", "u16")), "elements of type u16.*ld16"),
        (lambda p: p.ld16(p.r[2], p.r[3], index=p.r[4]), "base and index are both registers"),
        (lambda p: p.route(1, "X", "R"), "'X' in rx is not a direction"),
        (lambda p: p.sw_pos(24, 0), "sw_pos: color 24 is not routable"),
        (lambda p: p.sw_pos(2, 4), "position 4 is outside"),
        (lambda p: p.flt_set(0, "min", 1), "unknown field 'min'"),
        (lambda p: p.prng(4), "generator 4 does not exist"),
        (lambda p: p.branch("above", p.r[2], 0, "x"), "unknown condition 'above'"),
        (lambda p: p.branch("ltu", p.r[2], 0, "x", "s"), "no unsigned comparison of floats"),
        (lambda p: p.branch("lt", p.r[2], 0, "x", "64"), "unknown kind of comparison"),
    ],
)
def test_scalar_operands_that_do_not_fit(write, message):
    p = Program("p")
    with p.task("main"), pytest.raises(ProgramError, match=message):
        write(p)


def test_special_instructions():
    p = Program("p")
    v = p.array("v", 3, "u16")
    with p.task("main"):
        p.store_tsc(v)
        p.rand16(p.r[4])
        p.prng(3)
        p.sw_pos(7, 2)
        p.route(7, "RW", "EN", position=1)
        p.td_exit(7)
        p.in_td(p.r[4], 7)
        p.q_state(p.r[4], "empty_outputs")
        p.flt_set(0, "limit", p.r[4])
        p.trap(5)
        p.ret()
        p.st32(p.reg32(), p.r[3], offset=4)
    found = instructions(p.assemble())
    assert [name for name, _, _ in found] == [
        "tsc",
        "st16",
        "st16",
        "st16",
        "rand16",
        "prng",
        "sw_pos",
        "route",
        "td_exit",
        "in_td",
        "q_state",
        "flt_set",
        "trap",
        "ret",
        "st32",
    ]
    assert [imm for name, _, imm in found if name == "st16"] == [v.address, v.address + 1, v.address + 2]
    assert next(imm for name, _, imm in found if name == "route") == 0b10001 | 0b00110 << 5 | 1 << 10
