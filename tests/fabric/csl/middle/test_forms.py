"""Promises that functions keep, and forms by which what passes did is found again."""

from __future__ import annotations

import pytest

from fabric.csl.ir.form import Form
from fabric.csl.ir.printer import listing
from fabric.csl.ir.reader import read
from fabric.csl.ir.verify import verify
from fabric.csl.optimise import optimise, prepare
from fabric.csl.recall import Recall
from tests.fabric.csl.middle.test_meaning import Frame
from tests.fabric.csl.middle.texts import become, text
from wse_core.errors import InternalError


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("v1 = rand16", "b1 has no end"),
        ("ret\nv1 = rand16\nret", "'ret' stands in a wrong place"),
        ("v1 = add16 3\nret", "wrong number of operands"),
        ("add16 3, 4\nret", "wrong number of operands"),
        ("d1 = rand16\nv2 = add16 d1, 3\nret", "operand of a wrong size"),
        ("v1 = rand16\nd2 = copy v1\nret", "operand of a wrong size"),
    ],
)
def test_a_broken_promise(body, said):
    with pytest.raises(InternalError, match=said):
        verify(read(text(body)), "a test")


def test_a_jump_to_nowhere_is_a_broken_promise():
    function = read(text("jmp [b2]\nb2:\nret"))
    del function.blocks[1]
    with pytest.raises(InternalError, match="jumps to b2, which is not there"):
        verify(function, "a test")


def test_what_is_not_optimised_is_legal():
    body = "v1 = rand16\nv2 = add16 3, v1\nv3 = add16 3, v1\nret"
    assert become(prepare, body) == ["v1 = rand16", "v2 = add16 v1, 3", "v3 = add16 v1, 3", "ret"]
    assert become(optimise, body) == ["v1 = rand16", "ret"]


FORMS = {
    "apart": ("@a = memory(u16, 8)", "@a = memory(u16, 8, apart=True)"),
    "noted": ("@a = memory(u16, 8)", "@a = memory(u16, 8, noted=True)"),
    "words": ("@a = memory(u16, 8)", "@a = memory(u16, 9)"),
    "frame": ("@a = memory(u16, 8)", "@a = memory(u16, 8, frame=True)"),
    "init": ("@a = memory(u16, 8)", "@a = memory(u16, 8, init=(1, 2, 3, 4, 5, 6, 7, 8))"),
    "kind": ("fn f", "task f"),
    "result": ("f():", "f() result=1:"),
    "size": (" v1", " d1"),
    "fixed": (" v1", " v1=r3"),
    "order of registers": ("v2 = const", "v9 = const"),
    "thread": ("src1#1", "src1#1.5"),
    "flags": ("base=@a,", "base=@a, flags=1,"),
    "on control": ("base=@a,", "base=@a, on_control=(1, None),"),
    "number": ("const 7", "const 8"),
    "op": ("add16", "sub16"),
    "ending": ("src1#1)]", "src1#1, ending=later())]"),
    "named": ("dest:1 = None", "dest:1 = mem1d(base=@a)"),
    "depth": ("b1:", "b1: depth 1"),
    "offset": ("[@a]", "[@a+1]"),
}
FORM = """@a = memory(u16, 8)
dest:1 = None
fn f():
  b1:
    v1 = rand16
    v2 = const 7
    v3 = add16 v1, v2
    store v3 [@a]
    dsr_load [src1#1, mem1d(base=@a, extents=(3,))]
    vector [mov16(dest:1, src1#1)]
    ret"""
ALIKE = {
    "name": ("@a", "@other"),
    "name of the function": ("fn f", "fn other"),
    "names of registers": (" v1", " v1.x"),
    "length": ("extents=(3,)", "extents=(5,)"),
    "stride": ("extents=(3,)", "extents=(3,), strides=(2,)"),
    "color": ("extents=(3,)", "extents=(3,), color=2"),
}


def form_of(given):
    """Return the form of a text that stands nowhere."""
    function = read(given)
    function.span = None
    for instr in function.instructions():
        instr.span = None
    return Form(function).whole


@pytest.mark.parametrize("name", FORMS)
def test_functions_that_passes_can_tell_apart_have_two_forms(name):
    old, new = FORMS[name]
    assert old in FORM
    assert form_of(FORM.replace(old, new)) != form_of(FORM)


@pytest.mark.parametrize("name", ALIKE)
def test_functions_that_passes_cannot_tell_apart_have_one_form(name):
    old, new = ALIKE[name]
    assert form_of(FORM.replace(old, new)) == form_of(FORM)


def test_a_length_that_an_edit_can_reach_is_of_the_form():
    for edit in ("dsr_len v1 [src1#1]", "dsr_stride v1 [src1#1]", "dsr_base v1 [src1#1]"):
        edited = FORM.replace("    vector", f"    {edit}\n    vector")
        assert form_of(edited.replace("(3,)", "(5,)")) != form_of(edited)


RECALLED = """@a = memory(u16, 8)
fn f(v1=r2) result=1:
  b1:
    entry [v1=r2,]
    v2 = copy v1=r2
    v3 = const 0
    jmp [b2]
  b2: depth 1
    dsr_load [dest#1, mem1d(base=@a, extents=(3,))]
    vector v2 [mov16(dest#1, 0)]
    v3 = add16 v3, 1
    br v3, v2 [br16, ne, b2, b3]
  b3:
    v4=r2 = copy v3
    ret v4=r2"""


def recalled(recall, given=RECALLED, reserved=frozenset()):
    """Return a function after both halves of the back end."""
    function = read(given)
    function.span = None
    for instr in function.instructions():
        instr.span = None
    recall.optimise(function)
    recall.allocate(function, Frame(), reserved)
    return function


def test_a_function_of_a_known_form_gets_what_passes_would_make():
    recall = Recall()
    first = recalled(recall)
    for changes in ((), ("extents=(3,)", "extents=(5,)"), ("@a", "@other")):
        other = RECALLED.replace(*changes) if changes else RECALLED
        again, anew = recalled(recall, other), recalled(Recall(), other)
        assert (recall.optimised, recall.allocated) == (1, 1)
        assert listing(again) == listing(anew)
        assert (again.clobbers, again.places) == (anew.clobbers, anew.places) == (first.clobbers, first.places)


@pytest.mark.parametrize(("reserved", "counts"), [((), (1, 1)), ((4, 5, 6), (1, 2))])
def test_registers_that_are_free_are_part_of_what_is_recalled(reserved, counts):
    recall = Recall()
    recalled(recall)
    again = recalled(recall, RECALLED, frozenset(reserved))
    assert (recall.optimised, recall.allocated) == counts
    assert listing(again) == listing(recalled(Recall(), RECALLED, frozenset(reserved)))


def test_a_function_that_was_changed_since_is_allocated_anew():
    recall = Recall()
    recalled(recall)
    function = read(RECALLED)
    function.span = None
    for instr in function.instructions():
        instr.span = None
    recall.optimise(function)
    function.blocks[0].code[1:1] = read("fn f():\n  b1:\n    task [activate, 1]\n    ret").blocks[0].code[:1]
    recall.forget(function)
    recall.allocate(function, Frame(), frozenset())
    assert (recall.optimised, recall.allocated) == (1, 2)
    assert "task [activate, 1]" in listing(function)


def test_callees_are_part_of_what_is_recalled():
    given = RECALLED.replace("@a =", "&g = function(fn, clobbers=(2, 9))\n@a =")
    given = given.replace("    v3 = add16", "    call [&g]\n    v3 = add16")
    recall = Recall()
    recalled(recall, given)
    other = given.replace("(2, 9)", "(2, 3, 4, 5, 6, 8)")
    again = recalled(recall, other)
    assert recall.allocated == 2
    assert listing(again) == listing(recalled(Recall(), other))
