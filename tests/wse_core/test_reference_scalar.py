"""Scalar instructions of the reference machine: cycles, values and faults by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.wse_core.test_reference_kit import (
    DATA,
    FIRST,
    Code,
    assert_accounts,
    changes,
    desc,
    dest,
    f32,
    f32_bits,
    fabric,
    mem,
    pair,
    reg,
    register,
    route,
    src0,
    src1,
)
from wse_core import isa

CONDITION = {name: number for number, name in enumerate(isa.CONDITIONS)}


def offsets(code, data=None, **parameters):
    """Return (machine, cycles of the issues counted from the first one)."""
    machine = fabric(code.image(data=data), **parameters)
    cycles = changes(machine, "instructions")
    assert cycles[0] == FIRST
    assert_accounts(machine)
    return machine, [cycle - FIRST for cycle in cycles]


# --- costs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [1, 2, 3])
def test_integers_issue_every_cycle_and_pairs_take_more(wide):
    code = Code()
    code("ldi", reg(0), imm=0xFFFF)
    code("ldi32", reg(2), imm=0x12345678)
    code("add16", reg(0), reg(0), reg(0), imm=3)
    code("add32", reg(4), reg(2), reg(2))
    code("sub16", reg(1), reg(2), reg(3))
    code("done")
    machine, at = offsets(code, ce_pair=wide)
    assert at == [0, 1, 2, 3, 3 + wide, 4 + wide]
    assert register(machine, 0) == 2
    assert pair(machine, 4) == 0x2468ACF0
    assert register(machine, 1) == 0x5678 - 0x1234
    assert machine.counters()["busy"][0, 0] == 5 + wide
    assert machine.counters()["stall_pipe"][0, 0] == FIRST  # starting


@pytest.mark.parametrize("compared", [1, 5])
@pytest.mark.parametrize("is_taken", [False, True])
def test_comparisons_of_pairs_take_longer(is_taken, compared):
    code = Code()
    code("ldi32", reg(2), imm=0x12345678)
    code("br32", reg(2), reg(2), d=CONDITION["eq" if is_taken else "ne"], imm=code.here + 4)
    code("nop")
    code("nop")
    code("done")
    _, at = offsets(code, ce_branch32=compared)
    ends = [6] if is_taken else [1, 2, 3]
    assert at == [0, 1, *(compared + cycles for cycles in ends)]


@pytest.mark.parametrize(("given", "ends"), [(0, 6), (1, 1), (3, 3)])
def test_a_branch_to_the_end_of_the_task_may_take_less(given, ends):
    """Another branch takes what it takes; 0 means that the end is as any goal."""
    code = Code()
    code("br16", reg(2), reg(2), d=CONDITION["eq"], imm=code.here + 4)
    code("nop")
    code("nop")
    code("br16", reg(2), reg(2), d=CONDITION["eq"], imm=code.here + 4)
    code("nop")
    code("nop")
    code("done")
    _, at = offsets(code, ce_branch_end=given)
    assert at == [0, 6, 6 + ends]


@pytest.mark.parametrize(("row", "expected"), [(0, [0, 6, 12, 18, 27, 33, 34]), (1, [0, 1, 2, 8, 17, 23, 24])])
def test_known_descriptors_of_one_dimension_in_a_row_load_at_once(row, expected):
    """The last of them takes what any takes, and so do those with a base that was computed or of more dimensions."""
    code = Code()
    line, plane = mem(DATA, 4), desc("mem4d", (2, 2), stride=(2, 1), base=DATA)
    for k, (what, base) in enumerate([(line, 0), (line, 0), (line, reg(1)), (plane, 0), (line, 0)]):
        code.descriptors.append(what)
        code("dsr_load", src1(k), base, imm=k)
    code("nop")
    code("done")
    _, at = offsets(code, ce_dsr_row=row)
    assert at == expected


@pytest.mark.parametrize(("latency", "expected"), [(2, [0, 1, 2, 4, 5, 6]), (5, [0, 1, 2, 7, 8, 9])])
def test_loads(latency, expected):
    code = Code()
    code("ldi", reg(0), imm=2)
    code("st16", reg(0), 0, imm=DATA)
    code("ld16", reg(1), reg(0), imm=DATA - 2)
    code("add16", reg(2), reg(1), reg(1))  # waits for the load
    code("st32", reg(2), reg(0), imm=DATA + 2)
    code("done")
    machine, at = offsets(code, ce_load_latency=latency)
    assert at == expected
    assert register(machine, 2) == 4
    assert machine.read_words(0, 0, DATA, 8).tolist() == [2, 0, 0, 0, 4, 0, 0, 0]


def test_floats_depend_for_two_cycles():
    code = Code()
    code("ldi32", reg(0), imm=f32_bits(1.5))
    code("fadds", reg(2), reg(0), reg(0))
    code("fadds", reg(4), reg(0), reg(0), imm=f32_bits(4.0))  # independent of the one before
    code("fmacs", reg(6), reg(2), reg(4), reg(0))
    code("fmuls", reg(6), reg(6), reg(6))
    code("done")
    machine, at = offsets(code)
    assert at == [0, 1, 2, 4, 6, 7]
    assert pair(machine, 6) == f32_bits((3 + 5.5 * 1.5) ** 2)
    assert machine.counters()["macs"][0, 0] == 1


def test_divide_takes_all_slots():
    code = Code()
    code("ldi32", reg(0), imm=f32_bits(3.0))
    code("fdivs", reg(2), reg(0), reg(0), imm=f32_bits(4.0))
    code("ldi", reg(4), imm=1)
    code("fsqrts", reg(2), reg(2))
    code("done")
    machine, at = offsets(code)
    assert at == [0, 1, 51, 52, 102]
    assert pair(machine, 2) == f32_bits(np.sqrt(np.float32(0.75)))
    assert machine.counters()["busy"][0, 0] == 103


def test_branches_calls_and_returns():
    code = Code()
    code("ldi", reg(0), imm=0xFFFF)  # 0
    code("br16", reg(0), 0, d=CONDITION["ltu"], imm=8)  # 1: 0xffff < 0 unsigned is false, next after 1
    skip = code.here + 4
    code("br16", reg(0), 0, d=CONDITION["lt"], imm=skip)  # 2: -1 < 0 is true, target after 6
    code("trap", imm=1)
    assert code.here == skip
    call = code("call", imm=0)  # 8: target after 6
    code("jmp", imm=0)  # 19: target after 6
    function = code("ldi", reg(1), imm=5)  # 14
    code("ret")  # 15: back after 4
    end = code("done")  # 25
    code.words[call + 1], code.words[call + 3] = function, end
    machine, at = offsets(code)
    assert at == [0, 1, 2, 8, 14, 15, 19, 25]
    assert register(machine, 1) == 5


@pytest.mark.parametrize(
    ("op", "a", "b", "true"),
    [
        ("br16", 5, 5, "eq le leu"),
        ("br16", 0x8000, 1, "ne lt le"),
        ("br16", 1, 2, "ne lt le ltu leu"),
        ("br32", 0x80000000, 1, "ne lt le"),
        ("br32", 0x10001, 0x10001, "eq le leu"),
        ("brs", f32_bits(-1.0), f32_bits(2.0), "ne lt le"),
        ("brs", f32_bits(-0.0), f32_bits(0.0), "eq le"),
        ("brs", 0x7FC00000, f32_bits(0.0), "ne"),
        ("brh", 0x3C00, 0x3C00, "eq le"),
        ("brh", 0x7E00, 0x7E00, "ne"),
    ],
)
def test_conditions(op, a, b, true):
    for name in isa.CONDITIONS[: 4 if op in ("brs", "brh") else 6]:
        code = Code()
        code("ldi32", reg(0), imm=a)
        code("ldi32", reg(2), imm=b)
        code(op, reg(0), reg(2), d=CONDITION[name], imm=8)
        code("ldi", reg(4), imm=1)
        code("done")
        machine, at = offsets(code)
        taken = name in true.split()
        assert register(machine, 4) == (0 if taken else 1)
        wide = 4 if op == "br32" else 0
        assert at == [0, 1, 2, *(cycle + wide for cycle in ([8] if taken else [3, 4]))]


def test_slots_of_special_instructions():
    code = Code()
    code("ldi", reg(0), imm=0xFFFE)  # 0
    code.load(dest(0), mem(DATA, 4))  # 1
    code("dsr_len", dest(0), imm=9)  # 7
    code("dsr_off", dest(0), reg(0))  # 8
    code("dsr_stride", dest(0), imm=0xFFFF)  # 9
    code("tsc", reg(4))  # 10
    code("sw_pos", 3, imm=1)  # 15
    code("in_td", reg(7), imm=3)  # 17
    code("add16", reg(7), reg(7), reg(7))  # 19
    code("dsr_base", dest(1), imm=3)  # 20: empty
    machine = fabric(code.image(), {3: {(0, 0): route("W", "E", ("E", "W"), teardown=True)}})
    assert [cycle - FIRST for cycle in changes(machine, "instructions")] == [0, 1, 7, 8, 9, 10, 15, 17, 19]
    assert machine.fault["cycle"] == FIRST + 20
    state = machine.snapshot()
    assert state["pe"][0, 0]["dsr"] == {(0, 0): (DATA - 2, 9, -1, 0)}
    assert state["pe"][0, 0]["regs"][4:8] == [FIRST + 10, 0, 0, 2]
    assert state["router"][0, 0][3]["pos"] == 1


def test_a_load_takes_its_base_from_a_register_in_the_same_cycles():
    code = Code()
    code("ldi", reg(0), imm=DATA + 8)  # 0
    code.load(dest(0), mem(DATA, 4))  # 1
    code("dsr_load", dest(1), reg(0), imm=0)  # 7
    code("done")  # 13
    machine = fabric(code.image())
    assert [cycle - FIRST for cycle in changes(machine, "instructions")] == [0, 1, 7, 13]
    assert machine.snapshot()["pe"][0, 0]["dsr"] == {(0, 0): (DATA, 4, 1, 0), (0, 1): (DATA + 8, 4, 1, 0)}


def test_time_stamp_is_48_bits_wide():
    code = Code()
    code("tsc", reg(4))
    code("done")
    machine = fabric(code.image())
    machine.cycle = (0xABCD << 32) + (0x1234 << 16) + 5 - FIRST
    machine.run(machine.cycle + 20)
    assert [register(machine, r) for r in (4, 5, 6)] == [5, 0x1234, 0xABCD]


def test_random_generators_are_shift_registers():
    code = Code()
    code("rand16", reg(0))
    code("prng", 2)
    code("rand16", reg(1))
    code("rand16", reg(2))
    code("done")
    machine, at = offsets(code, prng_steps=3)
    assert at == [0, 1, 2, 3, 4]
    state, seen = 0xDEADBEEF, []
    for _ in range(2):
        for _ in range(3):
            text = f"{state:032b}"
            state = int(text[1:] + str(int(text[31 - 22] != text[31 - 17])), 2)
        seen.append(state)
    active, states = machine.snapshot()["pe"][0, 0]["prng"]
    assert (active, states) == (2, [seen[0], 0xDEADBEEF, seen[1], 0xDEADBEEF])
    assert [register(machine, r) for r in range(3)] == [seen[0] & 0xFFFF, seen[0] & 0xFFFF, seen[1] & 0xFFFF]


# --- arithmetic ----------------------------------------------------------------------------------------------------

ARITHMETIC = [
    ("mul16", 0xFFFF, 0xFFFF, 0, 1),
    ("xor16", 0xFF00, 0x0FF0, 0, 0xF0F0),
    ("sll16", 0x8001, 17, 0, 2),
    ("slr16", 0x8000, 15, 0, 1),
    ("sar16", 0x8000, 15, 0, 0xFFFF),
    ("clz", 1, 0, 0, 15),
    ("clz", 0, 0, 0, 16),
    ("ctz", 0x50, 0, 0, 4),
    ("ctz", 0, 0, 0, 16),
    ("popcnt", 0xF0F0, 0, 0, 8),
    ("mul32", 0x10001, 0x10001, 0, 0x20001),
    ("sub32", 0, 1, 0, 0xFFFFFFFF),
    ("sll32", 1, 31, 0, 0x80000000),
    ("sar32", 0x80000000, 31, 0, 0xFFFFFFFF),
    ("sx32", 0x8000, 0, 0, 0xFFFF8000),
    ("zx32", 0x8000, 0, 0, 0x8000),
    ("faddh", 0x3C00, 0x4000, 0, 0x4200),
    ("fsubh", 0x3C00, 0x4000, 0, 0xBC00),
    ("fmaxh", 0x8000, 0x0000, 0, 0x0000),
    ("fminh", 0x8000, 0x0000, 0, 0x8000),
    ("fabsh", 0xC000, 0, 0, 0x4000),
    ("fnegh", 0x4000, 0, 0, 0xC000),
    ("fscaleh", 0x3C00, 0xFFFF, 0, 0x3800),
    ("fdivh", 0x3C00, 0x4000, 0, 0x3800),
    ("fmach", 0x3C00, 0x4000, 0x4200, 0x4700),
    ("fsubs", f32_bits(1), f32_bits(3), 0, f32_bits(-2)),
    ("fmins", f32_bits(1), f32_bits(3), 0, f32_bits(1)),
    ("fscales", f32_bits(1.5), 3, 0, f32_bits(12)),
    ("faddhs", 0x3C00, f32_bits(0.5), 0, f32_bits(1.5)),
    ("fmachs", f32_bits(0.25), 0x4000, 0x4200, f32_bits(6.25)),
    ("fh2s", 0xC000, 0, 0, f32_bits(-2)),
    ("fs2h", f32_bits(1e6), 0, 0, 0x7C00),
    ("fh2xp16", 0xC100, 0, 0, 0xFFFE),
    ("fs2xp16", f32_bits(1e6), 0, 0, 0x7FFF),
    ("xp162fh", 0xFFFF, 0, 0, 0xBC00),
    ("xp162fs", 0x8000, 0, 0, f32_bits(-32768)),
    ("fs2xp32", f32_bits(-2.75), 0, 0, 0xFFFFFFFE),
    ("xp322fs", 0xFFFFFFFF, 0, 0, f32_bits(-1)),
]


@pytest.mark.parametrize(("name", "b", "c", "d", "expected"), ARITHMETIC)
def test_arithmetic(name, b, c, d, expected):
    code = Code()
    for number, value in ((2, b), (4, c), (6, d)):
        code("ldi32", reg(number), imm=value)
    code(name, reg(8), reg(2), reg(4), reg(6))
    code("done")
    machine, at = offsets(code)
    wide = isa.WORDS[isa.BY_NAME[name].types[0]] == 2
    assert (pair(machine, 8) if wide else register(machine, 8)) == expected
    assert at == [0, 1, 2, 3, 3 + {"divide": 50, "pair": 2}.get(isa.BY_NAME[name].cost, 1)]


def test_every_arithmetic_row_has_a_meaning():
    from wse_core.reference.alu import ALU

    assert set(ALU) == {op.name for op in isa.OPS if op.form == "alu"}


def test_sixteen_bit_floats_may_be_cb16():
    code = Code()
    code("ldi", reg(2), imm=0x5900)  # 6.0 in cb16
    code("fh2s", reg(4), reg(2))
    code("done")
    for half, expected in (("cb16", f32_bits(6.0)), ("f16", f32_bits(160.0))):
        machine = fabric(code.image(half=half))
        machine.run(100)
        assert pair(machine, 4) == expected


# --- faults ---------------------------------------------------------------------------------------------------------


def test_memory_faults():
    for name, address, kind in (
        ("ld16", DATA - 1, "sram_range"), ("ld16", DATA + 256, "sram_range"), ("st16", 0, "sram_range"),
        ("ld32", DATA + 1, "sram_align"), ("st32", DATA + 254, None), ("st32", DATA + 256, "sram_range"),
        ("st16", 0xFFFF, "sram_range"),
    ):  # fmt: skip
        code = Code()
        code(name, reg(0), 0, imm=address)
        code("done")
        machine = fabric(code.image())
        assert machine.run(100) == ("fault" if kind else "complete")
        if kind:
            assert (machine.fault["kind"], machine.fault["address"], machine.fault["cycle"]) == (kind, address, FIRST)


def test_addresses_wrap():
    code = Code()
    code("ldi", reg(0), imm=DATA + 9)
    code("ld16", reg(1), reg(0), imm=0xFFFF)
    code("done")
    machine = fabric(code.image(data={DATA + 8: np.array([77], np.uint16)}))
    assert machine.run(100) == "complete"
    assert register(machine, 1) == 77


def test_program_faults():
    def too_deep(code):
        code("call", imm=0)

    def no_call(code):
        code("ret")

    def no_entry(code):
        code("activate", 9)

    def falls_off(code):
        code("nop")

    def empty(code):
        code("fadds", dest(0), src1(0), reg(0))

    def wrong_source(code):
        code.load(src1(0), desc("fabout", 3))
        code("fadds", reg(0), src1(0), reg(0))

    def wrong_destination(code):
        code.load(dest(0), desc("fabin", 3))
        code("fadds", dest(0), reg(0), reg(0))

    def no_length(code):
        code.load(dest(0), desc("circular", 3, base=DATA))
        code("fadds", dest(0), reg(0), reg(0))

    def filter_of_memory(code):
        code.load(src1(0), mem(DATA, 3))
        code("dfilt", 0, src1(0), imm=isa.async_word(ut=1))

    def unbound(code):
        code.load(src1(0), desc("fabin", 3, queue=2))
        code("fadds", reg(0), src1(0), reg(0))

    def packing(code):
        code.load(src1(0), desc("fabin", 3, queue=0, flags=32))
        code.load(dest(0), desc("fabout", 3, queue=0))
        code("faddh", dest(0), src1(0), reg(0))

    def same_queue(code):
        for field in (src0(0), src1(0)):
            code.load(field, desc("fabin", 3, queue=0))
        code("fadds", reg(0), src0(0), src1(0))

    def same_fifo(code):
        for field in (src0(0), src1(0)):
            code.load(field, desc("fifo", 3, base=DATA, length=4, xdsr=1))
        code("fadds", reg(0), src0(0), src1(0))

    def no_microthread(code):
        code.load(dest(0), mem(DATA, 3))
        code("fadds", dest(0), reg(0), reg(0), imm=isa.async_word())

    for build in (too_deep, no_call, no_entry, falls_off, empty, wrong_source, wrong_destination, no_length,
                  filter_of_memory, unbound, packing, same_queue, same_fifo, no_microthread):  # fmt: skip
        code = Code()
        build(code)
        machine = fabric(code.image(inq={0: 1}, outq={0: 2}), {1: {}, 2: {}})
        assert machine.run(200) == "fault", build.__name__
        assert machine.fault["kind"] == ("queue" if build is unbound else "program"), build.__name__
        assert machine.snapshot()["pe"][0, 0]["main"] == "fault"
        assert_accounts(machine)


@pytest.mark.parametrize(("depth", "status", "left"), [(8, "complete", 0), (9, "fault", 1)])
def test_calls_nest_eight_deep(depth, status, left):
    code = Code()
    code("ldi", reg(0), imm=depth)
    call = code("call", imm=0)
    code("done")
    function = code("sub16", reg(0), reg(0), reg(0), imm=1)
    out = code.here + 4
    code("br16", reg(0), 0, d=CONDITION["eq"], imm=out)
    code("call", imm=function)
    assert code("ret") == out
    code.words[call + 1] = function
    machine = fabric(code.image())
    assert machine.run(500) == status
    assert register(machine, 0) == left


def test_a_task_begins_without_return_addresses():
    code = Code()
    code("call", imm=2)
    inside = code("activate", 4)
    assert inside == 2
    code("done")
    other = code("ret")
    machine = fabric(code.image({0: 0, 4: other}))
    assert machine.run(100) == "fault"
    assert machine.fault["detail"] == "ret without call"


def test_values_survive_between_tasks():
    code = Code()
    code("ldi32", reg(6), imm=f32_bits(2.5))
    code("activate", 4)
    code("done")
    other = code("fadds", reg(6), reg(6), reg(6))
    code("st32", reg(6), 0, imm=DATA)
    code("done")
    machine = fabric(code.image({0: 0, 4: other}))
    assert machine.run(100) == "complete"
    assert machine.read_words(0, 0, DATA, 2).view(np.float32).tolist() == f32(5.0).tolist()
