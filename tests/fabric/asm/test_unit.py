"""The assembler without the Python sugar: units written as a compiler would, run, and refused at places passed in."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from fabric import Fabric, Layout, Program
from fabric.asm import hints
from fabric.asm.descriptors import fabin, fabout, mem1d
from fabric.asm.instruction import SourcePlace, TaskRef
from fabric.asm.operands import Address, Async, Reg, check_stride
from fabric.asm.unit import Unit
from fabric.program import hints as program_hints
from tests.conftest import ROOT
from tests.fabric import BACKENDS
from wse_core import isa
from wse_core.errors import ProgramError


def at(line, column=None):
    """Return a place in the source of a compiler that does not exist."""
    return SourcePlace("sum.csl", line, column)


def counting():
    """n = n + 1 by scalar instructions, then a vector of 8 times 3."""
    unit = Unit("count")
    n = unit.variable("n", 1, "u16", init=[41], at=at(1))
    v = unit.variable("v", 8, "f32", init=range(8), at=at(2))
    register = unit.register_field(Reg(2), "i", "ld16")
    task = unit.begin_task("main", at=at(3))
    unit.emit("ld16", a=register, imm=Address(n), at=at(4, 9))
    unit.emit("add16", a=register, b=register, c=isa.FILE_REG << 4, imm=unit.immediate(1, "i", "add16"), at=at(4, 12))
    unit.emit("st16", a=register, imm=Address(n), at=at(4, 5))
    walk = unit.automatic_dsr("src0", -1, at=at(5))
    unit.emit("dsr_load", a=walk, imm=(mem1d(unit, v), walk), at=at(5))
    factor = unit.register_field(Reg(4), "s", "ldi32")
    unit.emit("ldi32", a=factor, imm=unit.immediate(3.0, "s", "ldi32"), at=at(5, 20))
    unit.emit("fmuls", walk, walk, factor, at=at(5))
    unit.end(at=at(6))
    assert task.label.at == 0
    return unit


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_unit_runs_without_a_program(backend):
    layout = Layout(2, 1)
    layout.place(counting().assemble(), 0, 0, 2, 1)
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    assert fabric.run(10_000).status == "complete"
    assert fabric.read("n").ravel().tolist() == [42, 42]
    assert fabric.read("v", 1, 0).ravel().tolist() == [3.0 * k for k in range(8)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_units_talk_over_a_color(backend):
    send = Unit("send")
    x = send.variable("x", 5, "u32", init=range(5))
    queue = send.queue("output", 2, 7)
    send.begin_task("main")
    out, source = send.automatic_dsr("dest", 2), send.automatic_dsr("src1", 2)
    send.emit("dsr_load", a=out, imm=(fabout(send, queue, 5), out))
    send.emit("dsr_load", a=source, imm=(mem1d(send, x), source))
    send.emit("mov32", out, source, imm=Async(ut=2, activate="after"))
    send.end()
    send.begin_task("after")
    send.end()

    take = Unit("take")
    y = take.variable("y", 5, "u32")
    queue = take.queue("input", 3, 7)
    take.begin_task("main")
    into, source = take.automatic_dsr("dest", -1), take.automatic_dsr("src1", -1)
    take.emit("dsr_load", a=source, imm=(fabin(take, queue, 5), source))
    take.emit("dsr_load", a=into, imm=(mem1d(take, y), into))
    take.emit("mov32", into, source)
    take.end()
    layout = Layout(2, 1)
    layout.place(send.assemble(), 0, 0)
    layout.place(take.assemble(), 1, 0)
    layout.route(7, (0, 0), rx="R", tx="E")
    layout.route(7, (1, 0), rx="W", tx="R")
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    fabric.run(10_000)
    assert fabric.read("y", 1, 0).ravel().tolist() == [0, 1, 2, 3, 4]


def missing_task(unit):
    unit.emit("activate", a=TaskRef("later", "activate"), at=at(12, 3))
    unit.end(at=at(13))
    unit.assemble()


def missing_label(unit):
    unit.emit("jmp", imm="nowhere", at=at(14))
    unit.end(at=at(15))
    unit.assemble()


def wide(unit):
    unit.dsr("src1", 99, at=at(16, 1))


def inside(unit):
    unit.begin_task("inner", at=at(17))


def twice(unit):
    unit.variable("a", 1, "u16", at=at(18))
    unit.variable("a", 1, "u16", at=at(19, 5))


def never_loaded(unit):
    dsr = unit.dsr("src1", at=at(20))
    unit.emit("fmovs", dsr, dsr, at=at(21, 7))
    unit.end()
    unit.assemble()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (missing_task, r"^sum\.csl:12:3, .*there is no task 'later'"),
        (missing_label, r"^sum\.csl:14, .*there is no label 'nowhere'"),
        (wide, r"^sum\.csl:16:1, .*src1 DSR 99 does not exist"),
        (inside, r"^sum\.csl:17, .*task 'inner' begins inside local 'main'"),
        (twice, r"^sum\.csl:19:5, .*exists already"),
        (never_loaded, r"^sum\.csl:21:7, .*nothing is ever loaded into src1 DSR"),
    ],
)
def test_errors_carry_the_place_that_was_passed(write, message):
    unit = Unit("faulty")
    unit.begin_task("main", at=at(10))
    with pytest.raises(ProgramError, match=message) as caught:
        write(unit)
    assert caught.value.program == "faulty"


def test_a_front_end_can_be_asked_for_the_place():
    line = 7
    unit = Unit("asked", here=lambda: at(line))
    unit.begin_task("main")
    line = 8
    unit.emit("nop")
    assert unit.instructions[0].at == at(8)
    assert unit.tasks["main"].at == at(7)
    with pytest.raises(ProgramError, match=r"^sum\.csl:8, .*two tasks or functions"):
        unit.end()
        unit.begin_task("main")


def test_without_any_place_errors_name_the_program():
    unit = Unit("bare")
    with pytest.raises(ProgramError, match="^program 'bare': nop: an instruction outside a task or function"):
        unit.emit("nop")


def test_an_end_without_a_beginning_is_refused():
    with pytest.raises(ProgramError, match="end of a task or function outside of one"):
        Unit("bare").end()


def wrong_size(unit):
    unit.begin_task("main")
    unit.register_field(Reg(3, 1), "s", "fadds")


@pytest.mark.parametrize(
    ("write", "alone", "sugar"),
    [
        (lambda unit: unit.emit("nop"), "begin_task", "p.task"),
        (wrong_size, "even one", "p.reg32"),
        (lambda unit: unit.variable("a", 1, "cb16"), "of the unit", "Program("),
        (lambda unit: check_stride(unit.variable("a", 1, "u16"), 128), "several dimensions", "p.mem4d"),
    ],
)
def test_hints_speak_the_words_of_the_front_end(write, alone, sugar):
    for unit, words, others in ((Unit("u"), alone, sugar), (Program("u").unit, sugar, alone)):
        with pytest.raises(ProgramError) as caught:
            write(unit)
        assert words in caught.value.hint
        assert others not in caught.value.hint


def test_every_hint_is_there_in_both_kinds_of_words():
    assert set(hints.HINTS) == set(program_hints.HINTS)
    fields = {key: set(re.findall(r"{(\w+)", text)) for key, text in hints.HINTS.items()}
    assert fields == {key: set(re.findall(r"{(\w+)", text)) for key, text in program_hints.HINTS.items()}
    given = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "fabric" / "asm").glob("*.py"))
    assert set(re.findall(r'\.hint\(\s*"([^"]+)"', given)) == set(hints.HINTS)
    assert not re.search(r"\bp\.[a-z]|Program\(|Layout\b", " ".join(hints.HINTS.values()))


def test_the_assembler_does_not_know_the_sugar():
    code = (
        "import sys, fabric.asm.unit, fabric.asm.disasm, fabric.asm.control, fabric.asm.descriptors\n"
        "print([m for m in sys.modules if m.startswith('fabric.') and not m.startswith('fabric.asm')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    for path in (ROOT / "fabric" / "asm").glob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not names & {"_getframe", "f_back", "currentframe"}, path.name


def test_no_part_of_a_program_reaches_for_private_names_of_another():
    for folder in ("asm", "program", "layout", "host"):
        for path in (ROOT / "fabric" / folder).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                    own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "sys")
                    assert own, f"{path.name}:{node.lineno}: {node.attr}"
