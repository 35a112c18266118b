"""What editors, `help` and notebooks see of programs, layouts and fabrics."""

from __future__ import annotations

import ast
import inspect
import re

import numpy as np
import pytest

from fabric import Fabric, Layout, Program, Received
from fabric.program.methods import operand_names
from tools import stubs
from wse_core import isa


def test_the_stub_is_current():
    assert stubs.FILE.read_text(encoding="utf-8") == stubs.text(), "python -m tools.stubs --write"


def test_the_stub_has_every_public_name_of_a_program():
    tree = ast.parse(stubs.text())
    face = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Program")
    seen = {node.name for node in face.body if isinstance(node, ast.FunctionDef)}
    seen |= {node.targets[0].id for node in face.body if isinstance(node, ast.Assign)}
    seen |= {node.target.id for node in face.body if isinstance(node, ast.AnnAssign)}
    assert {name for name in (*dir(Program), *vars(Program("p"))) if not name.startswith("_")} <= seen
    assert {op.name for op in isa.OPS if op.form == "alu"} <= seen


def test_the_stub_can_be_printed(capsys):
    assert stubs.main([]) == 0
    assert capsys.readouterr().out == stubs.text()


@pytest.mark.parametrize(
    ("name", "operands"),
    [("fmovs", ["dst", "a"]), ("fadds", ["dst", "a", "b"]), ("fmacs", ["dst", "a", "b", "scalar"])],
)
def test_operations_have_signatures_and_docstrings(name, operands):
    method = getattr(Program, name)
    signature = inspect.signature(method)
    attributes = list(inspect.signature(Program.async_).parameters.values())[1:]
    assert list(signature.parameters) == ["self", *operands, "async_", *(p.name for p in attributes), "again"]
    assert all(p.annotation is not p.empty for p in list(signature.parameters.values())[1:])
    for attribute in attributes:
        assert signature.parameters[attribute.name].default == attribute.default
    assert inspect.getdoc(method).startswith(f"{name}({', '.join(operands)}): ")
    assert method.__qualname__ == f"Program.{name}"


@pytest.mark.parametrize("op", [op for op in isa.OPS if op.form == "alu"], ids=lambda op: op.name)
def test_what_an_operation_does_is_said_in_the_names_of_its_signature(op):
    names = operand_names(op)
    text = inspect.getdoc(getattr(Program, op.name))
    first = text.splitlines()[0]
    assert first.startswith(f"{op.name}({', '.join(names)}): dst = ")
    said = first.partition("): ")[2]
    assert set(re.findall(r"\b(dst|scalar|[abcd])\b", said)) == set(names)
    assert "table's words" not in text


def test_methods_of_parts_keep_their_signatures_and_docstrings():
    assert list(inspect.signature(Program.array).parameters)[:4] == ["self", "name", "count", "dtype"]
    assert inspect.getdoc(Program.array).startswith("Declare a variable of `count` elements.")
    assert list(inspect.signature(Program.task).parameters)[:2] == ["self", "name"]


def test_what_a_notebook_shows_is_one_short_line():
    p = Program("show")
    a = p.array("a", 8, "f32")
    queue = p.input_queue(0, 3)
    d = p.dsr("src1", 2)
    with p.task("main") as task:
        p.fadds(a, a, 1.0)
    assert repr(p) == "Program('show', 4 instructions)"
    assert repr(a) == "Var('a', 8 x f32)"
    assert repr(a[2:6]) == "Dsd(mem1d of 'a', 4 x f32)"
    assert repr(p.fabin(3, 5)) == "Dsd(fabin on input queue 0, color 3, 5)"
    assert repr(d) == "Dsr(src1 DSR 2)"
    assert repr(task) == "Task('main', local)"
    assert repr(queue) == "Queue(kind='input', id=0, color=3)"
    assert repr(p.unit) == "Unit('show', 4 instructions)"
    layout = Layout(3, 2)
    layout.place(p, 0, 0)
    assert repr(layout) == "Layout(3 x 2, 1 programs, colors [])"
    fabric = Fabric(layout, "reference")
    assert repr(fabric) == "Fabric(3 x 2, reference, cycle 0)"
    fabric.launch("main")
    text = repr(fabric.run())
    assert text.startswith("RunResult(complete, ")
    assert "1 PEs" in text
    assert len(text) < 80
    nothing = np.zeros(0, np.uint32)
    assert repr(Received(nothing, nothing, nothing)) == "Received(no wavelets)"
    two = np.array([4, 9])
    assert repr(Received(two, two, two > 4)) == "Received(2 wavelets, cycles 4 .. 9, 1 control)"
