"""Vector operations of the reference machine in memory and registers: cycles and values by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.wse_core.one_pe import COUNT, between_time_stamps
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
    floats,
    mem,
    pair,
    reg,
    route,
    src0,
    src1,
)
from wse_core import isa
from wse_core.image import F_SAVE


@pytest.mark.parametrize("n", [0, 1, 2, 7, 30])
def test_fmuls_takes_n_plus_6_between_time_stamps(n):
    rows = mem(DATA + 200, n), mem(DATA, n), mem(DATA + 102, n)  # banks 0 and 6: not equal modulo 4
    machine, cycles = between_time_stamps("fmuls", rows, data={DATA: COUNT[:40], DATA + 102: COUNT[::-1][:40]})
    assert cycles == n + 6
    assert floats(machine, DATA + 200, n).tolist() == (COUNT * COUNT[::-1])[:n].tolist()
    assert machine.counters()["elements"][0, 0] == machine.counters()["steps"][0, 0] == n


@pytest.mark.parametrize(("n", "apart", "rule", "ports", "conflicts"), [
    (30, 104, "mod4", 2, True), (30, 100, "mod4", 2, True), (30, 102, "mod4", 2, False),
    (30, 104, "bank", 2, True), (30, 100, "bank", 2, False), (30, 104, "none", 2, False),
    (30, 102, "none", 1, True),
])  # fmt: skip
def test_bank_conflicts_take_a_cycle_per_step(n, apart, rule, ports, conflicts):
    rows = mem(DATA + 300, n), mem(DATA, n), mem(DATA + apart, n)
    machine, cycles = between_time_stamps("fmuls", rows, mem_conflict_rule=rule, mem_read_ports=ports)
    assert cycles == (2 if conflicts else 1) * n + 6
    assert machine.counters()["stall_conflict"][0, 0] == (n if conflicts else 0)


WIDTHS = [
    # op, stride of the destination, stride of the source, steps for 10 elements on wse2
    ("faddh", 1, 1, 3),
    ("fadds", 1, 1, 5),
    ("fmuls", 1, 1, 10),
    ("fmach", 1, 1, 3),
    ("fh2s", 1, 1, 10),
    ("fmaxh", 1, 1, 10),
    ("faddh", 1, 2, 3),
    ("faddh", 1, -3, 3),
    ("faddh", 1, 5, 3),
    ("faddh", 6, 1, 3),
    ("faddh", 1, 4, 5),
    ("faddh", 1, -1, 5),
    ("faddh", 1, 7, 5),
    ("faddh", 9, 1, 5),
    ("faddh", 1, 8, 10),
    ("faddh", 16, 4, 10),
    ("faddh", 1, 0, 3),
    ("faddh", 0, 1, 10),
]


@pytest.mark.parametrize(("name", "to", "by", "steps"), WIDTHS)
def test_simd_widths(name, to, by, steps):
    base = DATA + 300 if by < 0 else DATA + 2
    rows = mem(DATA + 400, 10, to), mem(base, 10, by)
    c = None if name == "fh2s" else reg(0)
    machine, cycles = between_time_stamps(name, rows, c=c, d=reg(4) if name == "fmach" else 0)
    assert cycles == steps + 6
    assert machine.counters()["elements"][0, 0] == 10


def test_stride_4_lanes_is_a_parameter():
    _, cycles = between_time_stamps("faddh", (mem(DATA, 8), mem(DATA, 8, 4)), c=reg(0), vec_stride4_lanes=1)
    assert cycles == 8 + 6


def test_wse3_widths():
    rows = mem(DATA + 400, 16), mem(DATA, 16)
    _, cycles = between_time_stamps("faddh", rows, c=reg(0), preset="wse3")
    assert cycles == 2 + 6


def test_start_and_drain_are_parameters():
    rows = mem(DATA + 400, 4), mem(DATA, 4)
    _, cycles = between_time_stamps("fmuls", rows, c=reg(0), vec_start=3, vec_drain=0)
    assert cycles == 5 + 1 + 3 + 4


@pytest.mark.parametrize(
    ("n", "to", "between", "late"),
    [(1, 10, 0, 2), (1, 18, 0, 0), (2, 10, 0, 0), (2, 8, 0, 2), (1, 10, 1, 1), (1, 10, 2, 0)],
)
def test_what_was_just_written_is_read_later(n, to, between, late):
    """Two cycles later here: only the last element counts, and instructions in between make up for it."""
    cycles = []
    for vec_raw in (0, 2):
        code = Code()
        code("ldi32", reg(0), imm=f32_bits(2.0))
        code.load(dest(0), mem(DATA + to, n))
        code.load(src1(0), mem(DATA + 20, n))
        code.load(dest(1), mem(DATA + 40, n))
        code.load(src1(1), mem(DATA + 10, n))
        code("fmuls", dest(0), reg(0), src1(0))
        for _ in range(between):
            code("nop")
        code("fmuls", dest(1), reg(0), src1(1))
        code("done")
        machine = fabric(code.image(data={DATA + 20: COUNT[:n]}), vec_raw=vec_raw)
        cycles.append(changes(machine, "instructions"))
        assert floats(machine, DATA + to, n).tolist() == [2.0 * k for k in range(1, n + 1)]
    assert [after - before for before, after in zip(*cycles, strict=True)] == [0] * (len(cycles[0]) - 1) + [late]


def test_elements_go_one_after_the_other():
    rows = mem(DATA + 1, 6), mem(DATA, 6)  # each element reads what the one before it wrote
    data = {DATA: np.array([3, 0, 0, 0, 0, 0, 0], np.uint16)}
    machine, cycles = between_time_stamps("add16", rows, c=reg(0), data=data)
    assert machine.read_words(0, 0, DATA, 7).tolist() == [3] * 7
    assert cycles == 2 + 6


def test_sum_into_a_register():
    code = Code()
    code.load(src1(0), mem(DATA, 10))
    code("ldi32", reg(2), imm=f32_bits(0.5))
    code("fadds", reg(2), reg(2), src1(0))
    code("fadds", reg(4), reg(2), reg(2))
    code("done")
    machine = fabric(code.image(data={DATA: COUNT[:10]}))
    at = changes(machine, "instructions")
    # loaded 0 .. 5, ldi32 in 6, issue in 7, steps 8 .. 17, register ready in 17 + 2, next issue in 7 + 10 + 2
    assert [cycle - FIRST for cycle in at] == [0, 6, 7, 19, 20]
    assert pair(machine, 2) == f32_bits(55.5)
    assert pair(machine, 4) == f32_bits(111)


def test_scalars_are_captured_at_the_issue():
    """r0 is overwritten while the operation runs on a microthread."""
    code = Code()
    code.load(dest(0), desc("fabout", 4, queue=0))
    code("ldi32", reg(0), imm=7)
    code("mov32", dest(0), reg(0), imm=isa.async_word())
    code("ldi32", reg(0), imm=9)
    code("done")
    machine = fabric(code.image(outq={0: 1}), {1: {(0, 0): route("R", "E")}}, outputs=[(0, 0, "E", 1)])
    assert machine.run(100) == "complete"
    assert machine.pop_output(0)[1].tolist() == [7] * 4


def test_a_multiplier_that_is_also_the_destination_is_read_anew():
    code = Code()
    code.load(src1(0), mem(DATA, 3))
    code("ldi32", reg(2), imm=f32_bits(1))
    code("fmacs", reg(2), reg(2), src1(0), reg(2))  # r = r + c * r
    code("done")
    machine = fabric(code.image(data={DATA: f32(1, 2, 3)}))
    assert machine.run(100) == "complete"
    assert pair(machine, 2) == f32_bits(2 * 3 * 4)


@pytest.mark.parametrize(("n", "wait"), [(0, 0), (1, 3), (3, 3)])
def test_no_elements_leave_the_destination_register_alone(n, wait):
    code = Code()
    code.load(src1(0), mem(DATA, n))
    code("fadds", reg(2), reg(2), src1(0))
    code("fadds", reg(4), reg(2), reg(2))
    code("done")
    machine = fabric(code.image(), ce_fp_latency=4)
    # issue in 6, steps in 7 .., next issue n + 1 after the first, or when the register of the last step is ready
    assert [cycle - FIRST for cycle in changes(machine, "instructions")][1:3] == [6, 6 + n + 1 + wait]


def test_sum_into_one_place_of_memory():
    rows = mem(DATA, 8, 0), mem(DATA, 8, 0), mem(DATA + 10, 8)
    machine, cycles = between_time_stamps("fadds", rows, data={DATA + 10: COUNT[:8]})
    assert cycles == 8 + 2 + 6  # every fourth element of the second source lies in the bank of the sum
    assert floats(machine, DATA, 1)[0] == 36


def test_four_dimensions():
    rows = desc("mem1d", 24, base=DATA + 200, stride=1), desc("mem4d", (2, 3, 4), base=DATA, stride=(50, 10, 2))
    words = np.arange(128, dtype=np.uint16)
    machine, cycles = between_time_stamps("mov16", rows, data={DATA: words})
    expected = [50 * i + 10 * j + 2 * k for i in range(2) for j in range(3) for k in range(4)]
    assert machine.read_words(0, 0, DATA + 200, 24).tolist() == expected
    assert cycles == 6 + 6


def test_groups_do_not_cross_a_row():
    rows = mem(DATA + 200, 15), desc("mem4d", (3, 5), base=DATA, stride=(5, 1))
    machine, cycles = between_time_stamps("mov16", rows, data={DATA: np.arange(15, dtype=np.uint16)})
    assert machine.read_words(0, 0, DATA + 200, 15).tolist() == list(range(15))
    assert cycles == 6 + 6  # 4 + 1 per row


def test_the_length_of_four_dimensions_is_their_product():
    machine, cycles = between_time_stamps(
        "mov16", (mem(DATA + 200, 3), desc("mem4d", (2, 2, 2), base=DATA, stride=(4, 2, 1)))
    )
    assert machine.counters()["elements"][0, 0] == 8
    assert cycles == 4 + 6


def test_circular_buffer_and_saved_addresses():
    code = Code()
    code.load(dest(0), mem(DATA + 100, 4, 2, flags=F_SAVE))
    code.load(src0(0), desc("circular", 4, base=DATA, length=6, index=1, flags=F_SAVE))
    code("mov16", dest(0), src0(0))
    code("mov16", dest(0), src0(0))
    code("done")
    machine = fabric(code.image(data={DATA: np.arange(6, dtype=np.uint16)}))
    assert machine.run(200) == "complete"
    assert machine.read_words(0, 0, DATA + 100, 16)[::2].tolist() == [1, 2, 3, 4, 5, 0, 1, 2]
    assert machine.snapshot()["pe"][0, 0]["dsr"] == {(0, 0): (DATA + 116, 4, 2, 0), (1, 0): (DATA, 4, 1, 3)}


def test_one_dsr_as_source_and_destination_moves_once():
    code = Code()
    code.load(src0(0), mem(DATA, 4, flags=F_SAVE))
    code("fadds", src0(0), src0(0), src0(0))
    code("done")
    machine = fabric(code.image(data={DATA: COUNT[:4]}))
    assert machine.run(200) == "complete"
    assert floats(machine, DATA, 4).tolist() == [2, 4, 6, 8]
    assert machine.snapshot()["pe"][0, 0]["dsr"][1, 0][0] == DATA + 8


def test_a_fault_in_a_step_keeps_the_elements_before_it():
    code = Code()
    code.load(dest(0), mem(DATA + 252, 8))
    code("mov16", dest(0), reg(0))
    machine = fabric(code.image())
    machine.ces[0, 0].regs[0] = 5
    assert machine.run(100) == "fault"
    assert machine.read_words(0, 0, DATA + 250, 6).tolist() == [0, 0, 5, 5, 5, 5]
    assert (machine.fault["kind"], machine.fault["address"]) == ("sram_range", DATA + 256)
    assert machine.fault["cycle"] == FIRST + 6 + 2  # loaded in 0 .. 5, issue in 6, steps in 7 and 8
    assert_accounts(machine)


def test_one_step_may_mix_widths():
    """Mixed precision accumulates in place, one element per lane."""
    halves = np.array([1, 2, 3, 4], np.float16)
    rows = mem(DATA, 4), mem(DATA, 4), mem(DATA + 50, 4)
    machine, cycles = between_time_stamps("fmachs", rows, d=reg(0), data={DATA: f32(1, 1, 1, 1), DATA + 50: halves})
    assert floats(machine, DATA, 4).tolist() == [1, 1, 1, 1]  # times zero
    assert cycles == 1 + 2 + 6  # banks 0 and 2; then banks 4 and 4: the second step conflicts
