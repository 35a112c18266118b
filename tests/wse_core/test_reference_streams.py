"""Vector operations of the reference machine with the fabric as operand: cycles and values by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.wse_core.one_pe import COUNT, one_pe, source
from tests.wse_core.test_reference_kit import (
    DATA,
    FIRST,
    Code,
    assert_accounts,
    changes,
    desc,
    dest,
    floats,
    mem,
    reg,
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
    F_ZERO,
    ON_ACTIVATE,
    ON_TERMINATE,
    ON_UNBLOCK,
)


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
def test_advance_switch_moves_the_own_switch_behind_the_last_element(n):
    """The word that does so takes a step of the operation, and goes no further than the router of the PE."""
    code = Code()
    code.load(dest(0), desc("fabout", n, queue=0, flags=F_ADVANCE))
    code("mov32", dest(0), reg(0))
    code("done")
    machine = one_pe(code)
    cycles = changes(machine, "instructions")
    assert cycles[-1] == FIRST + 6 + n + 2  # n + 1 steps
    _, payloads, controls = machine.pop_output(0)
    assert payloads.tolist() == [0] * n
    assert controls.tolist() == [False] * n
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
