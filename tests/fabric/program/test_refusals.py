"""Things of another program, and other requests that are refused with words."""

from __future__ import annotations

import pytest

from fabric.program.program import Program
from tests.fabric.program.image import instructions, task
from wse_core import image as im
from wse_core import isa
from wse_core.errors import ProgramError


def foreign():
    other = Program("other")
    v = other.array("v", 4, "f32")
    queue = other.input_queue(0, 1)
    with other.task("elsewhere") as t:
        other.nop()
    return v, queue, other.mem1d(v), other.fabin(queue, 4), other.dsr("dest"), t


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p, v, q, m, f, d, t: p.mem1d(v), "symbol 'v'.*: the variable belongs to program 'other'"),
        (lambda p, v, q, m, f, d, t: p.ld32(p.reg32(), v), "the variable belongs to program 'other'"),
        (lambda p, v, q, m, f, d, t: p.fmovs(m, 0.0), "mem1d of 'v' belongs to program 'other'"),
        (lambda p, v, q, m, f, d, t: p.fabin(q, 4), "belongs to another program"),
        (lambda p, v, q, m, f, d, t: p.fmovs(p.array("a", 4, "f32"), f), "color 1 belongs to another program"),
        (lambda p, v, q, m, f, d, t: p.fmovs(d, 0.0), "is not a DSR of this program"),
        (lambda p, v, q, m, f, d, t: p.fabin(p.output_queue(0, 4), 4), "an output queue given where an input queue"),
        (lambda p, v, q, m, f, d, t: p.mem1d(7), "7 is not a variable of this program"),
        (lambda p, v, q, m, f, d, t: p.load(p.dsr("src0"), 7), "7 is not a descriptor"),
        (lambda p, v, q, m, f, d, t: p.free(p.r[3]), "r3 is not a register of the task being written"),
        (lambda p, v, q, m, f, d, t: p.rand16(5), "rand16: 5 is not a register"),
        (lambda p, v, q, m, f, d, t: p.tsc((p.r[2], p.r[4], p.r[5])), "three consecutive registers needed"),
        (lambda p, v, q, m, f, d, t: p.route(1, "W", "R", position=4), "position 4 is outside 0 .. 3"),
        (lambda p, v, q, m, f, d, t: p.flt_set(6, "max", 1), "filter 6 does not exist"),
        (lambda p, v, q, m, f, d, t: p.place(p.label()), "is placed twice"),
        (lambda p, v, q, m, f, d, t: p.loop(-1).__enter__(), "-1 is not a number of turns"),
        (lambda p, v, q, m, f, d, t: p.if_("is", p.r[2], 0).__enter__(), "unknown condition 'is'"),
        (lambda p, v, q, m, f, d, t: p.task("inner").__enter__(), "task 'inner' begins inside local 'main'"),
        (lambda p, v, q, m, f, d, t: p.function("inner").__enter__(), "function 'inner' begins inside local 'main'"),
        (lambda p, v, q, m, f, d, t: p.load(p.dsr("src0"), p.fifo(p.array("b", 4, "u16"), 4)), "FIFO cannot be"),
        (lambda p, v, q, m, f, d, t: p.mem1d(p.array("b", 4, "u16"), dtype="f32"), "'f32' is not a type of the size"),
        (lambda p, v, q, m, f, d, t: p.mem1d(p.array("b", 4, "u16"), dtype="cb16"), "cb16 in a program whose"),
        (lambda p, v, q, m, f, d, t: p.mem4d(p.array("b", 4, "u16"), (2, 2), (1,)), "2 extents but 1 strides"),
        (lambda p, v, q, m, f, d, t: p.mem4d(p.array("b", 4, "u16"), (1, 2), (40000, 1)), "do not fit 16 bits"),
        (lambda p, v, q, m, f, d, t: p.fabout(p.output_queue(0, 4), 4, index=1 << 16), "index 65536 of fabout"),
        (lambda p, v, q, m, f, d, t: p.fabout(p.output_queue(0, 4), 4, dtype="f8"), "unknown element type 'f8'"),
        (lambda p, v, q, m, f, d, t: p.fabout(p.output_queue(0, 4), 4, simd="simd_16"), "unknown packing 'simd_16'"),
        (lambda p, v, q, m, f, d, t: p.fabout(p.output_queue(0, 4), 4).at(1), "fabout descriptor has no base address"),
    ],
)
def test_what_belongs_elsewhere_or_does_not_exist(write, message):
    p = Program("p")
    with p.task("main"), pytest.raises(ProgramError, match=message):
        write(p, *foreign())


def test_tasks_that_cannot_be_named():
    for target, message in ((foreign()[-1], "task 'elsewhere' belongs to another program"), (1.5, "1.5 is not a task")):
        p = Program("p")
        task(p, "t", body=lambda p=p, target=target: p.unblock(target))
        with pytest.raises(ProgramError, match=message):
            p.assemble()
    p = Program("p")
    task(p, "t", id=5)
    p.start(5)
    assert p.assemble().active == 1 << 5
    p = Program("p")
    for k in range(31):
        task(p, f"t{k}")
    with pytest.raises(ProgramError, match="task 't30': no task id is left"):
        p.assemble()


def test_variables_and_things_have_readable_names():
    p = Program("p")
    v = p.array("v", 4, "f32")
    assert repr(v) == "Var('v', 4 x f32)"
    assert len(v) == 4
    assert str(p.mem1d(v).at(1)) == "mem1d of 'v'"
    with pytest.raises(TypeError, match="cannot be iterated"):
        iter(v)
    with p.task("main") as t:
        pair = p.reg32("sum")
        assert (str(pair), pair.low.id, pair.high.id) == ("r2:r3 (sum)", 2, 3)
        p.ldi32(pair, 1.0)
        p.ldi(p.r[4], 1.0)
        p.ld16(p.r[4], 100)
    assert repr(t) == "Task('main', local)"
    assert repr(p) == "Program('p', 4 instructions)"
    assert t.id == 24  # assembles
    assert p.listing().startswith("; program 'p'")
    assert v.address == p.assemble().symbols["v"].address
    assert [imm for _, _, imm in instructions(p.assemble())] == [0x3F800000, 0x3C00, 100]
    d = Program("q").dsr("dest", name="d")
    assert str(d) == "dest DSR d"
    assert repr(p.new_label.__self__) == repr(p)


def test_dfilt():
    p = Program("p")
    i = p.input_queue(3, 5)
    d = p.dsr("src0", id=7)
    with p.task("main"):
        p.dfilt(p.fabin(i, 4), activate="main")
        p.load(d, p.fabin(i, 2))
        p.dfilt(d, async_=p.async_("low"))
    first, second = instructions(p.assemble())
    assert first[1][1] >> 4 == isa.FILE_SRC1
    assert isa.async_fields(first[2])["activate"] == 24
    assert second == ("dfilt", (0, 0x17, 0, 0), isa.async_word("low"))


def test_dsrs_that_are_loaded_further_down_are_checked_at_the_end():
    def build(dsd, op="mov16", **kwargs):
        p = Program("p")
        b = p.array("b", 8, "u16")
        i = p.input_queue(3, 5)
        d = p.dsr("src1", name="d")
        with p.task("main"):
            getattr(p, op)(p.mem1d(b, 8, dtype="f16") if op == "fmovh" else p.mem1d(b, 8), d, **kwargs)
        with p.task("init"):
            p.load(d, dsd(p, b, i))
        return p.assemble()

    image = build(lambda p, b, i: p.fabin(i, 8), async_=True)
    assert image.descriptors["flags"][image.descriptors["kind"] == im.DSD_FABIN].tolist() == [im.F_PACKED]
    with pytest.raises(ProgramError, match=r"task 'main'.*mov16 source: fabin.*type f32"):
        build(lambda p, b, i: p.fabin(i, 8, dtype="f32"))
    with pytest.raises(ProgramError, match="fmovh source: mem1d of 'b' has elements of type u16"):
        build(lambda p, b, i: b, "fmovh")
    with pytest.raises(ProgramError, match="needs an operand on the fabric or a FIFO"):
        build(lambda p, b, i: b, async_=True)
    with pytest.raises(ProgramError, match="microthread 2 asked for, but wse2 runs this operation on microthread 3"):
        build(lambda p, b, i: p.fabin(i, 8), async_=True, ut=2)


def test_packing_of_explicit_dsrs_is_checked_and_found_from_the_operations():
    def build(first=None, second=None, op="mov16"):
        p = Program("p")
        i, o = p.input_queue(3, 5), p.output_queue(2, 6)
        s, d = p.dsr("src1"), p.dsr("dest", name="d")
        with p.task("main"):
            p.load(s, p.fabin(i, 8, packed=first))
            p.load(d, p.fabout(o, 8, packed=second))
            p.mov16(d, s)
            if op:
                getattr(p, op)(d, s)
        return p.assemble().descriptors["flags"].tolist()

    assert build() == [im.F_PACKED] * 2
    assert build(False, False, "mov32") == [0, 0]
    with pytest.raises(ProgramError, match=r"loaded with packed and with unpacked|disagree on packing"):
        build(first=False)
    with pytest.raises(ProgramError, match="for operations on 16-bit and on 32-bit elements"):
        build(op="mov32")


def test_what_is_loaded_must_fit_the_place_of_its_dsr():
    p = Program("p")
    i = p.input_queue(3, 5)
    s = p.dsr("src0", name="s")
    a = p.array("a", 4, "f32")
    with p.task("main"):
        p.load(s, p.fabin(i, 4))
        p.fmovs(s, a)
    with pytest.raises(ProgramError, match="fabin on input queue 3, color 5 cannot be the destination"):
        p.assemble()
    p = Program("p")
    d = p.dsr("src0")
    with p.task("main"):
        p.dfilt(d, ut=1)
        p.load(d, p.array("a", 4, "f32"))
    with pytest.raises(ProgramError, match="dfilt: mem1d of 'a' is not a fabin"):
        p.assemble()


def test_dsrs_run_out():
    p = Program("p")
    a = p.array("a", 4, "f32")
    for k in range(16):
        p.dsr("dest", id=k)
    with p.task("main"):
        p.fmovs(a, 0.0)
    with pytest.raises(ProgramError, match="the program reserves all DSRs"):
        p.assemble()
    p = Program("p")
    for _ in range(17):
        p.dsr("src1")
    with pytest.raises(ProgramError, match=r"src1 DSR .*no number left in its file"):
        p.assemble()


def test_a_register_destination_takes_the_reduction():
    p = Program("p")
    a = p.array("a", 4, "f32")
    with p.task("main"):
        total = p.reg32()
        p.fadds(total, total, a)
    assert instructions(p.assemble()) == [("fadds", (0x32, 0x32, 0x20, 0), None)]


def test_a_fifo_as_first_source_commutes():
    p = Program("p")
    b = p.array("b", 4, "u16")
    f = p.fifo(p.array("storage", 4, "u16"))
    with p.task("main"):
        p.add16(b, f, b)
    [(_, fields, _)] = instructions(p.assemble())
    assert fields[:3] == (0x10, 0x10, 0x20)  # in place, the FIFO second


@pytest.mark.parametrize(("written", "meant"), [("fmulz", "fmuls"), ("faddz", "fadds"), ("input_que", "input_queue")])
def test_a_misspelt_operation_is_answered_with_the_nearest(written, meant):
    with pytest.raises(AttributeError, match=f"a program has no '{written}'; did you mean {meant}"):
        getattr(Program("p"), written)


@pytest.mark.parametrize(
    ("operation", "dtype", "sibling"),
    [("fmuls", "f16", "fmulh"), ("fadds", "cb16", "faddh"), ("fmulh", "f32", "fmuls"), ("fmovh", "f32", "fmovs")],
)
def test_an_operation_of_another_type_names_its_sibling(operation, dtype, sibling):
    program = Program("p", half="cb16" if dtype == "cb16" else "f16")
    variable = program.array("a", 8, dtype)
    operands = [variable, variable, 2.0] if operation.startswith(("fmul", "fadd")) else [variable, variable]
    with pytest.raises(ProgramError, match=f"{sibling} works on these"), program.task("main"):
        getattr(program, operation)(*operands)
