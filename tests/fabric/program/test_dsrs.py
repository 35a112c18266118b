"""DSRs: numbers, partners, what goes into which file, what they refuse."""

from __future__ import annotations

import pytest

from fabric.program.program import Program
from tests.fabric.program.image import instructions
from wse_core import isa
from wse_core.errors import ProgramError
from wse_core.params import machine


def test_descriptors_given_to_an_operation_are_loaded_right_before_it():
    p = Program("p")
    a, b = p.array("a", 8, "f32"), p.array("b", 8, "f32")
    with p.task("main"):
        p.fadds(a, b, a)
    names = [(op.name, a >> 4, a & 15) for _, op, a, *_ in isa.decode(p.assemble().code)]
    assert names == [("dsr_load", 1, 0), ("dsr_load", 2, 0), ("dsr_load", 0, 0), ("fadds", 0, 0), ("done", 0, 0)]


def test_an_operation_in_place_uses_one_src0_dsr_for_both():
    p = Program("p")
    a, b = p.array("a", 8, "f32"), p.array("b", 8, "f32")
    with p.task("main"):
        p.fadds(a, a, b)
        p.fnegs(a, a)
    found = instructions(p.assemble())
    assert found == [("fadds", (0x10, 0x10, 0x20, 0), None), ("fnegs", (0x10, 0x10, 0, 0), None)]


def test_equal_descriptors_share_a_number():
    p = Program("p")
    a = p.array("a", 8, "f32")
    with p.task("main"):
        for _ in range(3):
            p.fadds(a, a, a[::-1])
    assert len(p.assemble().descriptors) == 2


def test_each_microthread_has_its_own_dsrs():
    p = Program("p")
    a = p.array("a", 8, "f32")
    one_, two = p.output_queue(2, 1), p.output_queue(3, 2)
    with p.task("main"):
        p.fmovs(p.fabout(one_, 8), a, async_=True)
        p.fmovs(p.fabout(two, 8), a, async_=True)
        p.fmovs(p.fabout(one_, 8), a)
    ids = [fields[0] & 15 for _, fields, _ in instructions(p.assemble())]
    assert len(set(ids)) == 3


def test_dest_and_src0_of_one_operation_are_paired_on_wse2():
    p = Program("p")
    a = p.array("a", 8, "f32")
    d1, d2, s2, s1 = (p.dsr(f) for f in ("dest", "dest", "src0", "src0"))
    with p.task("main"):
        for dsr in (d1, d2, s1, s2):
            p.load(dsr, a)
        p.fadds(d1, s1, p.reg32())
        p.fadds(d2, s2, p.reg32())
    p.assemble()
    assert d1.id == s1.id
    assert d2.id == s2.id
    assert d1.id != d2.id


def test_explicit_ids_that_break_the_pairing_are_refused():
    p = Program("p")
    a = p.array("a", 8, "f32")
    d, s = p.dsr("dest", id=1, name="sum"), p.dsr("src0", id=2)
    with p.task("main"):
        p.load(d, a)
        p.load(s, a)
        with pytest.raises(ProgramError, match=r"fadds: dest DSR sum and src0 DSR 2 are used together; on wse2"):
            p.fadds(d, s, p.reg32())


def test_one_dest_with_two_src0_partners_is_refused():
    p = Program("p")
    a = p.array("a", 8, "f32")
    d, s, t = p.dsr("dest"), p.dsr("src0", name="s"), p.dsr("src0", name="t")
    with p.task("main"):
        for dsr in (d, s, t):
            p.load(dsr, a)
        p.fadds(d, s, p.reg32())
        p.fadds(d, t, p.reg32())
    with pytest.raises(ProgramError, match=r"src0 DSR s and src0 DSR t are both used with one and the same partner"):
        p.assemble()


def test_a_descriptor_joins_the_reserved_dsr_it_is_used_with():
    p = Program("p")
    a = p.array("a", 8, "f32")
    d = p.dsr("dest", id=5)
    with p.task("main"):
        p.load(d, a)
        p.fadds(d, a, a)
    [(_, fields, _)] = instructions(p.assemble())
    assert fields[:2] == (0x05, 0x15)
    p = Program("p")
    a = p.array("a", 8, "f32")
    d, s = p.dsr("dest", id=5), p.dsr("src0", id=5, name="taken")
    with p.task("main"):
        p.load(d, a)
        p.load(s, a)
        p.fadds(d, a, a)
    with pytest.raises(ProgramError, match=r"must go into src0 DSR 5.*reserves that one as src0 DSR taken"):
        p.assemble()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p, d, s, a: p.fadds(d, d, s), "dest DSR 0 cannot be source 1.*src0 DSR can be both"),
        (lambda p, d, s, a: p.fadds(s, a, a), "src1 DSR 0 cannot be the destination"),
        (lambda p, d, s, a: p.load(s, p.fabout(2, 4)), "can only be a destination, so it belongs into a dest DSR"),
        (lambda p, d, s, a: p.load(d, p.fabin(1, 4)), "can only be a source, so it belongs into a src0 or src1 DSR"),
        (lambda p, d, s, a: p.load(d, p.mem1d(a, stride=0)), "does not say how many elements"),
        (lambda p, d, s, a: p.fadds(a, p.mem1d(a, save=True), a), "save_address needs an explicit DSR"),
        (lambda p, d, s, a: p.dsr("dest", id=0), "dest DSR 0 is reserved twice"),
        (lambda p, d, s, a: p.dsr("dest", id=16), "dest DSR 16 does not exist"),
        (lambda p, d, s, a: p.dsr("src3"), "unknown DSR file 'src3'"),
        (lambda p, d, s, a: p.load(7, a), "7 is not a DSR of this program"),
        (lambda p, d, s, a: p.dsr_len(d, 1.5), "1.5 given where a 16-bit integer belongs"),
    ],
)
def test_what_dsrs_cannot_do(write, message):
    p = Program("p")
    a = p.array("a", 8, "f32")
    p.input_queue(1, 1), p.output_queue(2, 2)
    d, s = p.dsr("dest", id=0), p.dsr("src1", id=0)
    with p.task("main"), pytest.raises(ProgramError, match=message) as info:
        write(p, d, s, a)
    assert str(info.value).startswith("test_dsrs.py:")
    assert info.value.program == "p"


def test_edits_of_dsrs():
    p = Program("p")
    a = p.array("a", 8, "f32")
    d = p.dsr("dest", id=4)
    with p.task("main"):
        p.load(d, a)
        p.dsr_base(d, a[3])
        p.dsr_off(d, -2)
        p.dsr_len(d, p.r[3])
        p.dsr_stride(d, 2)
        p.fmovs(d, 1.0)
    found = instructions(p.assemble())
    assert found[0] == ("dsr_base", (4, 0, 0, 0), a.address + 6)
    assert found[1:4] == [
        ("dsr_off", (4, 0, 0, 0), 0xFFFE),
        ("dsr_len", (4, 0x33, 0, 0), None),
        ("dsr_stride", (4, 0, 0, 0), 2),
    ]


def test_a_dsr_that_nothing_is_loaded_into():
    p = Program("p")
    with p.task("main"):
        p.fmovs(p.dsr("dest", name="x"), 1.0)
    with pytest.raises(ProgramError, match="fmovs: nothing is ever loaded into dest DSR x"):
        p.assemble()


def test_extended_dsrs_are_counted():
    p = Program("p", machine("wse2", {"dsr.xdsr": 8}))
    v = [p.array(f"v{k}", 4, "u16") for k in range(9)]
    for k in range(8):
        p.fifo(v[k])
    with pytest.raises(ProgramError, match="more than 8 FIFOs"):
        p.fifo(v[8])
    with p.task("main"):
        p.mov16(p.circular(v[8]), 0)
    with pytest.raises(ProgramError, match=r"8 FIFOs and 1 DSRs with circular or four-dim.*need 9 extended DSRs"):
        p.assemble()
