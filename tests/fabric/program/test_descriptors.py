"""Descriptors: what each form encodes and what it refuses."""

from __future__ import annotations

import pytest

from fabric.asm import disasm
from fabric.program.program import Program
from tests.fabric.program.image import instructions
from wse_core import image as im
from wse_core import isa
from wse_core.errors import ProgramError, UnsupportedError
from wse_core.image import ENDLESS


def descriptor(write):
    """Return the descriptors of a program whose task is written by `write(p, a, b)`."""
    p = Program("p")
    a, b = p.array("a", 16, "f32"), p.array("b", 16, "u16")
    p.input_queue(1, 5), p.output_queue(2, 6)
    with p.task("next"):
        p.nop()
    with p.task("main"):
        write(p, a, b)
    image = p.assemble()
    return [disasm.describe(row, image) for row in image.descriptors], image


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda p, a, b: p.fmovs(a[2:10:3], 0.0), "mem1d 3 at a + 4 stride 3"),
        (lambda p, a, b: p.fmovs(a[::-1], 0.0), "mem1d 16 at a + 30 stride -1"),
        (lambda p, a, b: p.fmovs(p.mem4d(a, (2, 4), (8, 2), offset=1), 0.0), "mem4d 2x4 at a + 2 stride 8, 2"),
        (lambda p, a, b: p.fmovs(p.mem4d(a, (2, 8)), 0.0), "mem4d 2x8 at a stride 8, 1"),
        (lambda p, a, b: p.fmovs(p.circular(a, 40, start=3), 0.0), "circular 40 at a length 16 start 3"),
        (
            lambda p, a, b: p.mov16(p.fifo(b, 4, activate_push="next", terminate=True), 0),
            "fifo 4 at b length 16 fifo 0 terminate push activates 24",
        ),
        (lambda p, a, b: p.mov16(p.fabout(6, 16), b), "fabout 16 queue 2 (color 6) packed"),
        (lambda p, a, b: p.mov32(p.fabout(6, 16), a), "fabout 16 queue 2 (color 6)"),
        (lambda p, a, b: p.mov16(p.fabout(6, 16, index=9), b), "fabout 16 queue 2 (color 6) index"),
        (lambda p, a, b: p.mov32(p.fabout(6, 16, control=True), a), "fabout 16 queue 2 (color 6) control"),
        (
            lambda p, a, b: p.mov32(p.fabout(6, 16, advance_switch=True, zero=True), a),
            "fabout 16 queue 2 (color 6) advance_switch zero",
        ),
        (
            lambda p, a, b: p.mov32(a, p.fabin(5, ENDLESS, on_control={"terminate": True, "activate": "next"})),
            "fabin endless queue 1 (color 5) on control terminate on control activate 24",
        ),
        (lambda p, a, b: p.mov16(p.mem1d(b, index=True), p.fabin(5, 99, packed=False)), "fabin 99 queue 1 (color 5)"),
        (lambda p, a, b: p.fmovs(p.mem1d(a, stride=0), p.fabin(5, 7)), "mem1d 7 at a stride 0"),
    ],
)
def test_what_descriptors_become(write, text):
    assert text in descriptor(write)[0]


def test_a_fifo_takes_its_length_from_the_other_operand():
    texts, image = descriptor(lambda p, a, b: p.mov16(p.fifo(b), p.fabin(5, 12, packed=False)))
    assert "fabin 12 queue 1 (color 5)" in texts
    assert image.descriptors["push_task"].tolist() == [im.NO_TASK] * 2
    _, image = descriptor(lambda p, a, b: p.mov16(p.fabout(6, 12, packed=False), p.fifo(b)))
    assert set(image.descriptors["extent"][:, 0].tolist()) == {12}


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        (lambda p, a, b: p.fadds(b, a, a), ProgramError, "fadds destination: mem1d of 'b' has elements of type u16"),
        (lambda p, a, b: p.faddh(a, a, a), ProgramError, "type f32, the operation wants 16-bit float"),
        (lambda p, a, b: p.fabsh(b, b), ProgramError, "wants 16-bit float.*dtype=... of the descriptor gives a view"),
        (lambda p, a, b: p.mem1d(a, 17), ProgramError, "symbol 'a'.*reaches element 16, outside 0 .. 15"),
        (lambda p, a, b: p.mem1d(a, 4, stride=128), ProgramError, "stride 128 of a one-dimensional descriptor"),
        (lambda p, a, b: p.mem1d(a, 70000), ProgramError, "70000 is not a number of elements"),
        (lambda p, a, b: p.mem4d(a, (2, 2, 2, 2), (2, 3, 4, 5)), ProgramError, "at most three may differ from 1"),
        (lambda p, a, b: p.mem4d(a, (2, 2, 2, 2, 2)), ProgramError, "5 dimensions"),
        (lambda p, a, b: p.mem4d(a, (4, 4), (5, 1)), ProgramError, "reaches element 18"),
        (lambda p, a, b: p.circular(a, start=16), ProgramError, "start 16 is outside"),
        (lambda p, a, b: p.circular(a, length=17), ProgramError, "length 17 is outside 1 .. 16"),
        (lambda p, a, b: a[16], ProgramError, "symbol 'a': element 16 is outside 0 .. 15"),
        (lambda p, a, b: p.fabin(9, 4), ProgramError, "no input queue is bound to color 9.*input_queue\\(q, 9\\)"),
        (lambda p, a, b: p.fabin(5, 4, on_control={"stop": True}), ProgramError, "on_control: unknown key 'stop'"),
        (lambda p, a, b: p.fabin(5, 4, on_control={"activate": "a", "unblock": "b"}), ProgramError, "different tasks"),
        (lambda p, a, b: p.fabin(5, 4, simd="simd_64"), UnsupportedError, "simd_64 is not modelled"),
        (lambda p, a, b: p.fabin(5, 4, simd="simd_32_or_64"), UnsupportedError, "simd_32_or_64 is not modelled"),
        (lambda p, a, b: p.fabout(6, 4, control_transform=True), UnsupportedError, "which bits it writes is not"),
        (lambda p, a, b: p.fabout(6, 4, index=1, packed=True), ProgramError, "index has no place in packed wavelets"),
        (lambda p, a, b: p.fmovs(p.fabin(5, 4), a), ProgramError, "fabin on input queue 1, color 5 cannot be the de"),
        (lambda p, a, b: p.fmovs(a, p.fabout(6, 4)), ProgramError, "cannot be a source"),
        (lambda p, a, b: p.fadds(a, p.fabin(5, 4), p.fabin(5, 4)), ProgramError, "both sources take wavelets from col"),
        (lambda p, a, b: p.fmacs(a, a, a, a), ProgramError, "the multiplier is a scalar"),
        (lambda p, a, b: p.fadds(a, a), ProgramError, "fadds takes 3 operands, not 2"),
        (lambda p, a, b: p.fadds(3.0, a, a), ProgramError, "3.0 cannot be the destination"),
        (lambda p, a, b: p.fadds(a[:8], a, a), ProgramError, "the operation has 16 elements .*only 8"),
        (lambda p, a, b: p.fmovs(p.mem1d(a, stride=0), 0.0), ProgramError, "no operand says how many elements"),
        (lambda p, a, b: p.fmovs(p.fabout(6, 8), a), ProgramError, "has 16 elements .*fabout on output .* only 8"),
        (lambda p, a, b: p.fmovs(a, p.fabin(5, ENDLESS)), ProgramError, "has endless elements .*only 16"),
        (lambda p, a, b: p.fmovs(a, None), ProgramError, "fmovs: None cannot be a source"),
        (lambda p, a, b: p.mov16(p.mem1d(b, index=True), p.fabin(5, 4)), ProgramError, "packed wavelets have no index"),
        (lambda p, a, b: p.mov16(p.mem1d(b, index=True), b), ProgramError, "takes its offset from wavelets, but"),
        (lambda p, a, b: p.mov32(p.fabout(6, 4, zero=True), p.fabin(5, 4)), ProgramError, "source.*must be in mem"),
        (lambda p, a, b: p.xp162fs(p.fabout(6, 4), p.fabin(5, 4)), ProgramError, "fabric operands disagree on packing"),
        (lambda p, a, b: p.add16(b, p.fifo(b), p.fifo(b)), ProgramError, "FIFO cannot be the first of two sources"),
        (lambda p, a, b: p.fmovs(a, 1.0, async_=True), ProgramError, "needs an operand on the fabric or a FIFO"),
        (lambda p, a, b: p.fmovs(p.reg32(), p.fabin(5, 4), async_=True), ProgramError, "cannot return into a reg"),
        (lambda p, a, b: p.mov16(b, p.fifo(b), async_=True), ProgramError, "microthread must be named"),
        (lambda p, a, b: p.fmovs(a, p.fabin(5, 4), activate="next"), ProgramError, "activate given to a sync"),
        (lambda p, a, b: p.fmovs(a, p.fabin(5, 4), async_=True, ut=3), ProgramError, "wse2 runs this operation on"),
        (lambda p, a, b: p.fmovs(a, p.fabin(5, 4), async_=p.async_(ut=9)), ProgramError, "microthread 9 does not"),
        (lambda p, a, b: p.fmovs(a, p.fabin(5, 4), async_=p.async_("top")), ProgramError, "priority 'top' is"),
        (lambda p, a, b: p.fadds(p.r[2], p.r[4], p.r[4], async_=True), ProgramError, "scalar instruction cannot"),
        (lambda p, a, b: p.dfilt(a), ProgramError, r"dfilt: Var\('a', 16 x f32\) is not a fabin"),
        (lambda p, a, b: p.dfilt(p.fabin(5, 4), async_=False), ProgramError, "dfilt: asynchronous only"),
    ],
)
def test_what_descriptors_and_operations_cannot_do(write, error, message):
    p = Program("p")
    a, b = p.array("a", 16, "f32"), p.array("b", 16, "u16")
    p.input_queue(1, 5), p.output_queue(2, 6)
    with p.task("main"), pytest.raises(error, match=message):
        write(p, a, b)


def test_asynchronous_attributes():
    p = Program("p")
    a = p.array("a", 16, "f32")
    i = p.input_queue(1, 5)
    with p.task("main"):
        p.fmovs(a, p.fabin(i, 16), async_=p.async_("high", activate="next", unblock=5))
        p.fmovs(a, p.fabin(i, 16), async_=True, priority="low", ut=1)
    with p.task("next"):
        p.nop()
    first, second = [isa.async_fields(imm) for name, _, imm in instructions(p.assemble()) if name == "fmovs"]
    assert first == {"priority": "high", "ut": None, "activate": 25, "unblock": 5}
    assert second == {"priority": "low", "ut": 1, "activate": None, "unblock": None}
