"""Listings: every instruction word survives its text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import disasm
from fabric.program.program import Program
from tests.examples import examples
from wse_core import isa
from wse_core.errors import ProgramError

words = st.integers(0, 2**32 - 1)
codes = st.builds(lambda code, rest: code << 25 | rest & 0x1FFFFFF, st.integers(0, len(isa.OPS) - 1), words)


@given(codes, words)
@examples(500)
def test_every_instruction_word_survives_its_listing(word, extension):
    code = [word, extension] if word >> 24 & 1 else [word]
    [(_, op, a, b, c, d, imm)] = isa.decode(code)
    assert isa.encode(op, a, b, c, d, imm) == code
    text = disasm.format_instruction(op, a, b, c, d, imm)
    assert disasm.parse_instruction(text) == code


@given(st.sampled_from(isa.OPS), st.tuples(*[st.integers(0, 63)] * 4), st.one_of(st.none(), words))
@examples(500)
def test_every_encodable_instruction_survives_its_listing(op, fields, imm):
    text = disasm.format_instruction(op, *fields, imm)
    assert disasm.parse_instruction(text) == isa.encode(op, *fields, imm=imm)


def test_what_the_assembler_writes_is_listed_in_words():
    p = Program("p")
    a = p.array("a", 8, "f32")
    i, o = p.input_queue(0, 1), p.output_queue(3, 2)
    with p.task("main", priority="high"):
        p.fadds(p.fabout(o, 8), a, p.fabin(i, 8), async_=True, activate="end")
        with p.loop(3), p.if_("gt", p.r[5], 4):
            p.add16(p.r[5], p.r[5], 1)
            p.ld16(p.r[6], p.r[5], offset=2)
        p.call("f")
    with p.task("end"):
        p.sw_pos(2, 1)
    with p.function("f"):
        p.trap(1)
    image = p.assemble()
    text = disasm.listing(image)
    assert ".word" not in text
    assert "main:  ; task 24 (high)" in text
    assert "dsr_load dest[0], descriptor 2 ; fabout 8 queue 3 (color 2)" in text
    assert "fadds dest[0], src0[0], src1[0], {async priority=medium activate=25}" in text
    assert "; input queue 0 = color 1" in text
    assert "a: 8 x f32" in text
    assert np.array_equal(disasm.parse_listing(text), image.code)


@pytest.mark.parametrize("text", ["frob r1", "add16 r1, r2", "add16 r1, r2, x3"])
def test_texts_that_are_no_instruction(text):
    with pytest.raises(ProgramError, match=r"unknown instruction|operands, not|is not an operand"):
        disasm.parse_instruction(text)
