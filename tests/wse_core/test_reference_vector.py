"""Vector operations, microthreads and FIFOs of the reference machine: cycles and values by hand."""

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
    floats,
    mem,
    pair,
    reg,
    register,
    route,
    src0,
    src1,
)
from wse_core import isa
from wse_core.image import (
    ENDLESS,
    F_ADVANCE,
    F_CONTROL,
    F_INDEX,
    F_PACKED,
    F_SAVE,
    F_TERMINATE,
    F_ZERO,
    ON_ACTIVATE,
    ON_TERMINATE,
    ON_UNBLOCK,
)

COUNT = np.arange(1, 65, dtype=np.float32)


def between_time_stamps(name, rows, b=None, c=None, d=0, data=None, **parameters):
    """Return (machine, cycles between two time stamps around one operation); `rows` goes into dest, src0, src1."""
    code = Code()
    fields = []
    for field, row in zip((dest(0), src0(0), src1(0)), rows, strict=False):
        if row is not None:
            code.load(field, row)
        fields.append(field)
    fields += [b, c][len(fields) - 1 :]
    fields = [field for field in fields if field is not None]
    code("tsc", reg(9))
    code(name, *[*fields, 0, 0][:3], d)
    code("tsc", reg(12))
    code("done")
    machine = fabric(code.image(data=data, size=1024), **parameters)
    assert machine.run(3000) == "complete"
    assert_accounts(machine)
    return machine, register(machine, 12) - register(machine, 9)


# --- costs of steps -------------------------------------------------------------------------------------------------


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


# --- fabric operands ------------------------------------------------------------------------------------------------


def source(n, packed=False):
    """Return a fabric input of `n` elements from input queue 0."""
    return desc("fabin", n, queue=0, flags=F_PACKED if packed else 0)


ROUTES = {1: {(0, 0): route("W", "R")}, 2: {(0, 0): route("R", "E")}}
STREAMS = {"inputs": [(0, 0, "W", 1)], "outputs": [(0, 0, "E", 2)]}


def one_pe(code, **image):
    """Return a PE whose input queue 0 gets color 1 from a stream, and whose output queue 0 feeds one."""
    return fabric(code.image(inq={0: 1}, outq={0: 2}, **image), ROUTES, **STREAMS)


def test_fabric_to_memory_takes_one_wavelet_per_step():
    code = Code()
    code.load(dest(0), mem(DATA, 5))
    code.load(src1(0), source(5))
    code("fmovs", dest(0), src1(0))
    code("done")
    machine = one_pe(code)
    machine.push_input(0, COUNT[:5].view(np.uint32))
    assert [cycle - FIRST for cycle in changes(machine, "elements")] == [13, 14, 15, 16, 17]
    assert floats(machine, DATA, 5).tolist() == [1, 2, 3, 4, 5]


def test_packed_wavelets_carry_two_elements():
    code = Code()
    code.load(dest(0), desc("fabout", 5, queue=0, flags=F_PACKED))
    code.load(src1(0), source(5, packed=True))
    code("add16", dest(0), src1(0), reg(0))
    code("done")
    machine = one_pe(code)
    machine.push_input(0, [0x00020001, 0x00040003, 0x00060005])
    assert [cycle - FIRST for cycle in changes(machine, "elements")] == [13, 13, 14, 14, 15]
    cycles, payloads, _ = machine.pop_output(0)
    assert payloads.tolist() == [0x00020001, 0x00040003, 0x00000005]
    # step, + execute 1 + ramp 2: moved by the router, + hop 1
    assert (cycles - FIRST).tolist() == [17, 18, 19]


def test_packed_wavelets_and_one_lane_take_two_cycles():
    code = Code()
    code.load(dest(0), mem(DATA, 6, 8))
    code.load(src1(0), source(6, packed=True))
    code("add16", dest(0), src1(0), reg(0))
    code("done")
    machine = one_pe(code)
    machine.push_input(0, [0x00020001, 0x00040003, 0x00060005])
    assert [cycle - FIRST for cycle in changes(machine, "steps")] == [13, 15, 17]
    assert machine.read_words(0, 0, DATA, 48)[::8].tolist() == [1, 2, 3, 4, 5, 6]


def test_packed_wavelets_across_the_rows_of_a_matrix():
    code = Code()
    code.load(dest(0), desc("mem4d", (2, 3), base=DATA, stride=(10, 1)))
    code.load(src1(0), source(6, packed=True))
    code("mov16", dest(0), src1(0))
    code("done")
    machine = one_pe(code)
    machine.push_input(0, [0x00020001, 0x00040003, 0x00060005])
    assert machine.run(100) == "complete"
    assert machine.read_words(0, 0, DATA, 13).tolist() == [1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 4, 5, 6]


def test_unpacked_halves_and_index():
    code = Code()
    code.load(dest(0), desc("fabout", 3, queue=0, flags=F_INDEX, index=0xABC))
    code.load(src1(0), source(3))
    code("add16", dest(0), src1(0), reg(0))
    code.load(dest(0), desc("fabout", 1, queue=0, flags=F_CONTROL))
    code("mov16", dest(0), reg(0))
    code("done")
    machine = one_pe(code)
    machine.push_input(0, [0x00020001, 0x00040003, 0x00060005])
    assert machine.run(100) == "complete"
    _, payloads, controls = machine.pop_output(0)
    assert payloads.tolist() == [0xABC0001, 0xABC0003, 0xABC0005, 0]
    assert controls.tolist() == [False] * 3 + [True]


def test_the_index_half_moves_the_destination():
    code = Code()
    code.load(dest(0), mem(DATA, 3, 0, flags=F_INDEX))
    code.load(src1(0), source(3))
    code("add16", dest(0), src1(0), reg(0))
    code("done")
    machine = one_pe(code)
    machine.push_input(0, [0x00050001, 0x00000002, 0x00030003])
    assert machine.run(100) == "complete"
    assert machine.read_words(0, 0, DATA, 6).tolist() == [2, 0, 0, 3, 0, 1]


def test_sent_elements_are_zeroed():
    code = Code()
    code.load(dest(0), desc("fabout", 4, queue=0, flags=F_ZERO))
    code.load(src0(0), mem(DATA, 4))
    code("fmovs", dest(0), src0(0))
    code("done")
    machine = one_pe(code, data={DATA: COUNT[:6]})
    assert machine.run(100) == "complete"
    assert machine.pop_output(0)[1].view(np.float32).tolist() == [1, 2, 3, 4]
    assert floats(machine, DATA, 6).tolist() == [0, 0, 0, 0, 5, 6]


@pytest.mark.parametrize("n", [0, 3])
def test_advance_switch_follows_the_last_element(n):
    code = Code()
    code.load(dest(0), desc("fabout", n, queue=0, flags=F_ADVANCE))
    code("mov32", dest(0), reg(0))
    code("done")
    machine = one_pe(code)
    cycles = changes(machine, "instructions")
    assert cycles[-1] == FIRST + 6 + n + 2  # n + 1 steps
    _, payloads, controls = machine.pop_output(0)
    assert payloads.tolist() == [0] * n + [0x095F9249]
    assert controls.tolist() == [False] * n + [True]
    assert machine.counters()["steps"][0, 0] == n + 1
    assert machine.counters()["elements"][0, 0] == n


@pytest.mark.parametrize("bits", [0, ON_TERMINATE, ON_ACTIVATE, ON_UNBLOCK, ON_ACTIVATE | ON_TERMINATE])
def test_control_wavelets_at_a_fabric_input(bits):
    code = Code()
    code.load(dest(0), mem(DATA, 3, flags=F_SAVE))
    code.load(src1(0), desc("fabin", 3, queue=0, on_control=bits, control_task=4))
    code("mov32", dest(0), src1(0), imm=isa.async_word(activate=5))
    code("done")
    task = code("add16", reg(3), reg(3), reg(3), imm=1)
    code("done")
    end = code("tsc", reg(4))
    code("done")
    machine = one_pe(code, tasks={0: 0, 4: task, 5: end, 6: task}, blocked=(1, 4))
    machine.push_input(0, [7, 99 | 31 << 16, 8, 9], [False, True, False, False])
    assert machine.run(200) == ("stuck" if bits & (ON_TERMINATE | ON_ACTIVATE) else "complete")
    terminated = bool(bits & ON_TERMINATE)
    state = machine.snapshot()["pe"][0, 0]
    assert floats(machine, DATA, 3).view(np.uint32).tolist() == ([7, 0, 0] if terminated else [7, 8, 9])
    assert state["dsr"][0, 0][0] == DATA + (2 if terminated else 6)
    # loaded 0 .. 11, issue in 12, steps in 13, 14 (control), 15, 16; `done` has the lower level and comes after them,
    # then the picker, and 3 cycles later the time stamp
    assert state["regs"][4] == FIRST + (14 if terminated else 16) + 1 + 1 + 3
    assert state["activated"] == (1 << 4 if bits & ON_ACTIVATE else 0)
    assert state["blocked"] == (2 if bits & ON_UNBLOCK else 2 | 1 << 4)
    assert state["counters"]["received"] == (2 if terminated else 4)
    assert [len(queue) for queue in state["inq"].values()] == ([2] if terminated else [])


def test_dfilt_discards_data():
    code = Code()
    code.load(src1(0), source(2))
    code("dfilt", 0, src1(0), imm=isa.async_word(activate=5))
    code("done")
    end = code("tsc", reg(4))
    code("done")
    machine = one_pe(code, tasks={0: 0, 5: end}, blocked=(1,))
    machine.push_input(0, [1, 2, 31 << 16, 3, 31 << 16, 6], [False, False, True, False, True, False])
    assert machine.run(200) == "stuck"
    state = machine.snapshot()["pe"][0, 0]
    assert state["regs"][4] == FIRST + 11 + 1 + 1 + 3  # issue in 6, steps in 7 .. 11, then done, picker, start
    assert [wavelet[0] for wavelet in state["inq"][0]] == [6]
    assert state["counters"]["steps"] == 5
    assert state["counters"]["elements"] == 2


def test_an_endless_operation_waiting_for_input_is_no_deadlock():
    code = Code()
    code.load(dest(0), mem(DATA, 1, 0))
    code.load(src1(0), source(ENDLESS))
    code("mov32", dest(0), src1(0), imm=isa.async_word())
    code("done")
    machine = one_pe(code)
    machine.push_input(0, [5, 6])
    assert machine.run(200) == "complete"
    assert machine.snapshot()["pe"][0, 0]["threads"] == {0: (2, ENDLESS)}
    machine.push_input(0, [7])
    assert machine.run(300) == "complete"
    assert machine.read_words(0, 0, DATA, 1).tolist() == [7]
    assert_accounts(machine)


def test_a_finite_operation_without_input_is_stuck():
    code = Code()
    code.load(dest(0), mem(DATA, 3))
    code.load(src1(0), source(3))
    code("mov32", dest(0), src1(0))
    code("done")
    machine = one_pe(code)
    machine.push_input(0, [5])
    assert machine.run(200) == "stuck"
    assert machine.waiters() == [
        {
            "kind": "thread",
            "x": 0,
            "y": 0,
            "thread": "main",
            "op": "mov32",
            "reason": "input",
            "color": 1,
            "queue": 0,
            "done": 1,
            "length": 3,
        }
    ]
    assert_accounts(machine)


# --- threads --------------------------------------------------------------------------------------------------------


def two_senders(first, second, main="medium_low"):
    """Return who issues, in order: m = main (two sends, then four others), 2 and 3 = microthreads of 3 steps."""
    code = Code()
    for k in (2, 3):
        code.load(dest(k), desc("fabout", 3, queue=k))
    code("mov32", dest(2), reg(0), imm=isa.async_word(first))
    code("mov32", dest(3), reg(0), imm=isa.async_word(second))
    for _ in range(3):
        code("nop")
    code("done")
    machine = fabric(
        code.image(outq={2: 2, 3: 3}, main=main),
        {2: {(0, 0): route("R", "E")}, 3: {(0, 0): route("R", "N")}},
        outputs=[(0, 0, "E", 2), (0, 0, "N", 3)],
    )
    order, status, ce, before = "", "limit", machine.ces[0, 0], None
    while status == "limit":
        status = machine.run(machine.cycle + 1)
        now = ce.counters["instructions"], ce.counters["steps"]
        if now != before and now != (0, 0):
            order += "23m"[(2, 3, 8).index(ce.last_issued)]
        before = now
    assert_accounts(machine)
    return order[2:]  # without the loads


@pytest.mark.parametrize(
    ("first", "second", "main", "order"),
    [
        ("low", "low", "medium_low", "mmmmmm232323"),  # main first, its level 1 is above 0; then both in turn
        ("high", "high", "medium_low", "m222m333mmmm"),
        ("medium", "medium", "medium_low", "m222m333mmmm"),
        ("medium", "medium", "medium", "m2m23m23m3mm"),  # all on one level: ut2, ut3, main
        ("low", "high", "medium", "mm333mmmm222"),
    ],
)
def test_issue_priorities(first, second, main, order):
    assert two_senders(first, second, main) == order


def test_a_microthread_in_use_and_its_dsr_hold_the_main_thread():
    code = Code()
    code.load(dest(0), desc("fabout", 30, queue=0))
    code("mov32", dest(0), reg(0), imm=isa.async_word("low"))
    code("nop")
    code("dsr_len", dest(0), imm=2)  # the DSR is in use
    code("mov32", dest(0), reg(0), imm=isa.async_word("low"))
    code("tsc", reg(4))
    code("done")
    machine = one_pe(code)
    cycles = changes(machine, "instructions")
    # issue in 6, nop in 7 (main goes before a low microthread), steps in 8 .. 37
    assert [cycle - FIRST for cycle in cycles[:5]] == [0, 6, 7, 38, 39]
    assert machine.counters()["steps"][0, 0] == 32
    assert machine.counters()["stall_resource"][0, 0] == 0  # no cycle was lost to it
    assert len(machine.pop_output(0)[1]) == 32


def test_completion_activates_and_unblocks():
    code = Code()
    code.load(dest(0), desc("fabout", 4, queue=0))
    code("mov32", dest(0), reg(0), imm=isa.async_word(activate=7, unblock=8))
    code("done")
    first = code("ldi", reg(1), imm=1)
    code("done")
    second = code("ldi", reg(2), imm=2)
    code("done")
    machine = one_pe(code, tasks={0: 0, 7: first, 8: second}, start=(0, 8), blocked=(8,))
    # issue in 6, steps in 7 .. 10, done in 11 (the main thread has the lower level), picker in 12; 17 = 12 + 3 + 1 + 1
    assert [cycle - FIRST for cycle in changes(machine, "tasks")] == [-3, 12, 17]
    assert [register(machine, r) for r in (1, 2)] == [1, 2]


def test_an_operation_of_no_elements_completes_at_once():
    code = Code()
    code.load(dest(0), desc("fabout", 0, queue=0))
    code("mov32", dest(0), reg(0), imm=isa.async_word(activate=7))
    code("done")
    task = code("done")
    machine = one_pe(code, tasks={0: 0, 7: task})
    assert [cycle - FIRST for cycle in changes(machine, "instructions")] == [0, 6, 7, 11]
    assert machine.counters()["steps"][0, 0] == 0


# --- FIFOs ----------------------------------------------------------------------------------------------------------


def fifo(n, length=4, **fields):
    """Return a FIFO descriptor with storage at DATA + 100."""
    return desc("fifo", n, base=DATA + 100, length=length, xdsr=1, **fields)


def test_fifo_between_two_microthreads():
    code = Code()
    code.load(dest(1), fifo(12, push_task=20))
    code.load(src1(1), source(12))
    code.load(src1(2), fifo(12))
    code.load(dest(2), mem(DATA, 12))
    code("mov32", dest(1), src1(1), imm=isa.async_word(ut=1, priority="high"))
    code("mov32", dest(2), src1(2), imm=isa.async_word(ut=2, priority="low"))
    code("done")
    task = code("add16", reg(5), reg(5), reg(5), imm=1)
    code("done")
    machine = one_pe(code, tasks={0: 0, 20: task})
    machine.push_input(0, np.arange(12))
    filled = []
    status = "limit"
    while status == "limit":
        status = machine.run(machine.cycle + 1)
        filled.append(len(machine.snapshot()["pe"][0, 0]["fifo"].get(1, [])))
    assert status == "complete"
    assert max(filled) == 4
    assert filled[-1] == 0
    assert machine.read_words(0, 0, DATA, 24)[::2].tolist() == list(range(12))
    assert machine.counters()["tasks"][0, 0] > 1
    assert_accounts(machine)


def test_a_full_fifo_holds_its_operation():
    code = Code()
    code.load(dest(1), fifo(12))
    code("mov16", dest(1), reg(0), imm=isa.async_word(ut=1))
    code("done")
    machine = one_pe(code)
    assert machine.run(100) == "stuck"
    state = machine.snapshot()["pe"][0, 0]
    assert state["threads"] == {1: (4, 12)}
    assert state["fifo"] == {1: [0, 0, 0, 0]}
    assert machine.waiters()[0]["reason"] == "fifo"
    assert machine.counters()["stall_fifo"][0, 0] == 1


@pytest.mark.parametrize("push", [True, False])
def test_a_fifo_may_end_its_operation(push):
    code = Code()
    if push:
        code.load(dest(1), fifo(12, flags=F_TERMINATE))
        code("mov16", dest(1), reg(0))
    else:
        code.load(src1(1), fifo(12, flags=F_TERMINATE))
        code.load(dest(1), mem(DATA, 12, flags=F_SAVE))
        code("mov16", dest(1), src1(1))
    code("tsc", reg(4))
    code("done")
    machine = one_pe(code)
    assert machine.run(100) == "complete"
    steps = 5 if push else 1
    assert register(machine, 4) == FIRST + (6 if push else 12) + steps + 1
    assert machine.counters()["steps"][0, 0] == steps
    assert machine.counters()["elements"][0, 0] == steps - 1


def test_pop_task_is_activated_by_each_pop():
    code = Code()
    code.load(dest(1), fifo(2))
    code("mov16", dest(1), reg(0))
    code.load(src1(1), fifo(2, pop_task=9))
    code("mov16", reg(2), src1(1))
    code("done")
    task = code("add16", reg(5), reg(5), reg(5), imm=1)
    code("done")
    machine = one_pe(code, tasks={0: 0, 9: task})
    assert machine.run(100) == "complete"
    assert register(machine, 5) == 1  # two pops while the main thread was busy
    assert machine.snapshot()["pe"][0, 0]["activated"] == 0


def test_one_step_may_mix_widths():
    """Mixed precision accumulates in place, one element per lane."""
    halves = np.array([1, 2, 3, 4], np.float16)
    rows = mem(DATA, 4), mem(DATA, 4), mem(DATA + 50, 4)
    machine, cycles = between_time_stamps("fmachs", rows, d=reg(0), data={DATA: f32(1, 1, 1, 1), DATA + 50: halves})
    assert floats(machine, DATA, 4).tolist() == [1, 1, 1, 1]  # times zero
    assert cycles == 1 + 2 + 6  # banks 0 and 2; then banks 4 and 4: the second step conflicts
