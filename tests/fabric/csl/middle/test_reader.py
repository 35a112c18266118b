"""The text of the intermediate form: what is read is what was written, for functions of every stage and source."""

from __future__ import annotations

import contextlib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl import recall
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.diagnostics import CslError
from fabric.csl.ir.form import Form
from fabric.csl.ir.printer import listing
from fabric.csl.ir.reader import read
from tests.examples import examples
from tests.fabric.csl.middle.random_functions import make
from tests.fabric.csl.test_programs import EXAMPLES, PROGRAMS
from wse_core.errors import ConfigError


def without_places(function):
    """Return the form of a function that stands nowhere in a source."""
    kept = function.span, [instr.span for instr in function.instructions()]
    function.span = None
    for instr in function.instructions():
        instr.span = None
    found = Form(function).whole
    function.span = kept[0]
    for instr, span in zip(function.instructions(), kept[1], strict=True):
        instr.span = span
    return found


def check(function):
    """Write a function, read it, and compare what came with it."""
    text = listing(function)
    again = read(text)
    assert listing(again) == text
    assert without_places(again) == without_places(function)


@contextlib.contextmanager
def watched(look):
    """Let ``look(function)`` look at each function of all compilations: lowered, optimised, with its registers."""
    optimise, allocate = recall.optimise, recall.allocate

    def optimised(function, *more):
        look(function)
        optimise(function, *more)
        look(function)

    def allocated(function, *more):
        allocate(function, *more)
        look(function)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall, "optimise", optimised)
        patch.setattr(recall, "allocate", allocated)
        yield


@pytest.mark.parametrize("name", EXAMPLES)
def test_functions_of_our_programs(name):
    seen = []
    with watched(lambda function: seen.append(check(function))), contextlib.suppress(CslError):
        compile_file(PROGRAMS / name, Options(params=EXAMPLES[name][0]))
    assert len(seen) >= 3


@examples(100, shrink=False)
@given(seed=st.integers(0, 1 << 40))
def test_random_functions(seed):
    text = make(seed)
    function = read(text)
    check(function)
    written, made = (whole.partition("\nfn ")[2].splitlines() for whole in (listing(function), text))
    assert [line.split()[0] for line in written] == [line.split()[0] for line in made]  # no line is lost


MEASURED = {"products": {"t": 8}, "coo": {"rows": 4, "cols": 3, "length": 8, "stored": 6}}
"""Sources of `harness.validation` with params."""

WHOLE = """@a = memory(u16, 3, align=2, const=True, apart=True, noted=True, frame=True, init=(1, 2, 0))
@b = memory(half, 1)
@a~2 = memory(u32, 1)
&g = function(fn, result=2, places=(2, 4), clobbers=(2, 3), circle=True)
&g~2 = function(task)
@f = memory(u16, 9)
fifo#1 = storage(memory=@f, push=3, actions=(suspend, terminate))
@a+1 = @a
@a+2 = @b-1
dest:3 = None
src0:1 = mem1d(base=@b, extents=(4,), flags=1)
fn f.of:x#1(v1.n=r2, d2=r4) result=1 places=(2, 4) clobbers=(2,) circle=True:
  b2: depth 1
    entry [v1.n=r2, d2=r4]
    v3.f:y#2 = load v1.n=r2 [@a-2]
    store d2=r4 [@a~2]
    v4=r-1 = copy v3.f:y#2
    call v4=r-1 [&g]
    d5=r2 = call [&g~2]
    dsr_load [src1#1.64, mem4d(base=7, extents=(2, 3), strides=(-1, 2), packed=True)]
    dsr_load [dest#1, fabout(extents=(1,), color=3, queue=2, on_control=(2, None))]
    dsr_load [src1#2, fifo(fifo=fifo#1)]
    vector v3.f:y#2 [add16(dest#1, src1#1.64, 0, ending=later(priority=high, activate=3))]
    route [3, "", "RE", 0, set]
    tsc [v6, v7, v8]
    br v6, @b+1 [br16, ne, b2, b1]
  b1:
    ret"""


def test_all_that_a_text_can_say():
    function = read(WHOLE)
    assert listing(function) == WHOLE
    check(function)
    (own,) = function.frame
    assert (own.name, own.words, own.noted, own.init.tolist()) == ("a", 3, True, [1, 2, 0])
    assert own.relocations[2].memory.name == "b"
    assert (function.result, function.circle, function.clobbers) == (1, True, {2})
    assert [str(place) for place in (function.span, function.blocks[0].code[1].span)] == ["text:12:1", "text:15:5"]


def test_names_and_numbers_are_those_of_the_text():
    """Registers are made in the order of their numbers, by which passes take them."""
    first, second = (register for instr in read("fn f():\n  b1:\n    v9 = const 1\n    v2 = copy v9\n    ret")
                     .instructions() for register in instr.defs())  # fmt: skip
    assert first.number > second.number


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no function"),
        ("fn f():\n", "there is no function"),
        ("  b1:\n    ret", "there is no function"),
        ("fn f():\n    ret", "outside of a block"),
        ("fn f():\n  b1:\n    jmp [b2]", "text:3:5: b2 is not known"),
        ("fn f():\n  b1:\n    load [@a]", "@a is not known"),
        ("fn f():\n  b1:\n    call [&g]", "&g is not known"),
        ("fn f():\n  b1:\n    ret v1 v2", "'v2' is too much"),
        ("fn f():\n  b1:\n    v1 = const (1", "'\\)' is missing"),
        ("fn f():\n  b1:\n    v1 = const $", "is not understood"),
        ("fn f():\n  b1:\n    v1 = const ]", "'\\]' is no value"),
        ("fn f() size=3:\n  b1:\n    ret", "'size' is no fact"),
        ("fn f() result=x:\n  b1:\n    ret", "'x' is no int"),
        ("@a = memory(u16)\nfn f():\n  b1:\n    ret", "text:1:1"),
        ("@a = place(u16, 1)\nfn f():\n  b1:\n    ret", "'place' declares nothing"),
        ("@a = memory(u16, 1, size=3)\nfn f():\n  b1:\n    ret", "size"),
        ("fn f():\n  b1:\n    dsr_load [src1#1, mem1d(length=1, what=2)]", "what"),
        ("fn f():\n  b1:\n    dsr_load [src1#1, fifo(fifo=fifo#1)]", "fifo#1 is not declared"),
    ],
)
def test_what_is_no_text(text, said):
    with pytest.raises(ConfigError, match=said):
        read(text)


def test_what_has_no_place_in_a_text():
    function = read("fn f():\n  b1:\n    ret")
    function.blocks[0].code[0].data = 1.5
    with pytest.raises(TypeError, match=r"1\.5 has no place"):
        listing(function)


def test_sources_that_are_measured():
    """Functions of the programs of `harness.validation`, which use what our own do not."""
    seen = []
    with watched(lambda function: seen.append(check(function))):
        for name, params in MEASURED.items():
            with resources.as_file(resources.files("harness.validation") / "csl" / f"{name}.csl") as path:
                compile_file(path, Options(params=params))
    assert seen
