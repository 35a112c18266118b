"""Tasks, priorities, numbers, and the end of a program."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.program.program import Program
from tests.fabric.program.image import instructions, task
from wse_core.errors import ProgramError


def test_task_ids_and_initial_bits():
    p = Program("p")
    p.input_queue(0, 2)
    with p.task("local"):
        p.activate("later")
        p.block("recv")
        p.unblock(2)
    with p.task("recv", kind="data", color=4, priority="high"):
        p.nop()
    with p.task("ctl", kind="control"):
        p.nop()
    with p.task("ctl5", kind="control", id=5):
        p.nop()
    with p.task("later"):
        p.nop()
    p.start("local")
    p.blocked("later")
    p.unblocked(2)
    image = p.assemble()
    assert image.entry[24] == image.labels["local"]
    assert image.entry[25] == image.labels["later"]
    assert image.entry[4] == image.labels["recv"]
    assert image.control_entry[0] == image.labels["ctl"]
    assert image.control_entry[5] == image.labels["ctl5"]
    assert image.data_tasks == image.high == 1 << 4
    assert image.active == 1 << 24
    assert image.blocked == (0xFFFFFF & ~(1 << 4 | 1 << 2)) | 1 << 25
    assert image.inq_color[:3] == (2, 4, -1)  # a queue was found for the data task
    assert [fields[0] for _, fields, _ in instructions(image, ("done", "nop"))] == [25, 4, 2]


def test_local_ids_avoid_colors_with_a_queue_and_reserved_ids():
    p = Program("p")
    for q in range(8):
        p.input_queue(q, 23 - q)
    for k in range(22):
        with p.task(f"t{k}"):
            p.nop()
    image = p.assemble()
    used = set(np.flatnonzero(image.entry >= 0).tolist())
    assert not used & {29, 31, *range(16, 24)}
    assert len(used) == 22


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: p.nop(), "nop: an instruction outside a task or function"),
        (lambda p: task(p, "t", id=31), "id 31 is outside 0 .. 31 or is 31"),
        (lambda p: task(p, "t", kind="control", id=64), "id 64 is outside"),
        (lambda p: task(p, "t", kind="data"), "a data task, and no other, has a color"),
        (lambda p: task(p, "t", color=3), "a data task, and no other, has a color"),
        (lambda p: task(p, "t", kind="data", color=3, id=4), "its id is its color 3, not 4"),
        (lambda p: task(p, "t", kind="weird"), "unknown kind of task 'weird'"),
        (lambda p: task(p, "t", priority="urgent"), "unknown priority 'urgent'"),
        (lambda p: (task(p, "t"), task(p, "t")), "two tasks or functions are called 't'"),
        (lambda p: (task(p, "t", id=4), task(p, "u", id=4)), "tasks 't' and 'u' have the same id 4"),
        (lambda p: (p.input_queue(0, 3), task(p, "t", id=3), p.assemble()), "id 3 is a color with an input queue"),
        (lambda p: task(p, "t", body=lambda: p.activate("x")) or p.assemble(), "activate: there is no task 'x'.*: t"),
        (lambda p: task(p, "t", body=lambda: p.activate(7)) or p.assemble(), "activate: no task has the id 7"),
        (
            lambda p: (task(p, "c", kind="control"), task(p, "t", body=lambda: p.activate("c")), p.assemble()),
            "'c' is a control task; only a control wavelet starts it",
        ),
        (lambda p: task(p, "t", body=lambda: p.call("g")) or p.assemble(), "there is no function 'g'"),
        (lambda p: task(p, "t", body=lambda: p.jump("away")) or p.assemble(), "jmp: there is no label 'away'"),
        (lambda p: task(p, "t", body=lambda: p.jump(p.new_label("l"))) or p.assemble(), "label 'l' is never placed"),
        (lambda p: task(p, "t", body=lambda: (p.label("l"), p.label("l"))), "label 'l' exists already"),
        (lambda p: task(p, "t", body=lambda: p.assemble()), "assemble\\(\\) inside task 't'|inside local 't'"),
        (lambda p: (p.start("t"), p.assemble()), "start: there is no task 't'"),
        (lambda p: (p.array("a", 1, "u16"), p.array("a", 1, "u16")), "symbol 'a': a variable of this name exists"),
        (lambda p: p.array("a", 1, "u8"), "unknown element type 'u8'"),
        (lambda p: p.array("a", 0, "u16"), "0 is not a number of elements"),
        (lambda p: p.array("a", 1, "cb16"), "cb16 in a program whose 16-bit float is f16"),
        (lambda p: p.array("a", 1, "f32", bank=3), "no address is a multiple of 2 and 3 modulo 8"),
        (lambda p: p.array("a", 1, "u16", bank=8), "bank 8 is outside 0 .. 7"),
        (lambda p: p.array("a", 1, "f32", align=3), "alignment 3 does not fit f32"),
        (lambda p: p.array("a", 1, "u16", init=[1, 2]), "2 initial values for 1 elements"),
        (lambda p: p.array("a", 1, "u16", init=[-1]), "initial value of 'a': -1 is outside 0 .. 65535 of u16"),
        (lambda p: p.array("a", 1, "u16", init=[0.5]), "floating point given for u16"),
        (lambda p: Program("q", half="bf16"), "half 'bf16' is not a 16-bit float"),
        (lambda p: Program("q", main_priority="top"), "main_priority 'top' is unknown"),
    ],
)
def test_programs_that_cannot_be_assembled(write, message):
    with pytest.raises(ProgramError, match=message) as info:
        write(Program("p"))
    assert info.value.program in ("p", "q", None)


def test_an_assembled_program_is_finished():
    p = Program("p")
    task(p, "t")
    image = p.assemble()
    assert p.assemble() is image
    with pytest.raises(ValueError, match="read-only"):
        image.code[0] = 0
    with pytest.raises(ProgramError, match="assembled and cannot be changed"):
        p.array("a", 1, "u16")


def test_a_data_task_without_a_queue_left():
    p = Program("p")
    for q in range(8):
        p.input_queue(q, q)
    task(p, "t", kind="data", color=9)
    with pytest.raises(ProgramError, match="data task 't': no input queue left for color 9"):
        p.assemble()
