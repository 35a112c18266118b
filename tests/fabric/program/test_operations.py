"""Operations: every row of the op table, immediates and scalars of vector operations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm.values import decode_array, encode_array
from fabric.program.program import Program
from tests.fabric.program.image import instructions, one
from wse_core import isa
from wse_core.errors import ProgramError, UnsupportedError
from wse_core.params import machine


@pytest.mark.parametrize("op", isa.OPS, ids=lambda op: op.name)
def test_every_row_of_the_op_table_has_a_method_with_a_docstring(op):
    assert getattr(Program, op.name).__doc__


@pytest.mark.parametrize("op", [op for op in isa.OPS if op.form == "alu"], ids=lambda op: op.name)
def test_scalar_and_vector_form_of_every_alu_op(op):
    types = {"h": "half", "i": "u16", "s": "f32", "l": "u32"}
    letters = op.types.replace("-", "")

    def scalar(p):
        regs = [p.reg16() if t in "hi" else p.reg32() for t in letters]
        getattr(p, op.name)(*regs)

    [(name, fields, imm)] = instructions(one(scalar))
    assert name == op.name
    assert imm is None
    assert all(field >> 4 == isa.FILE_REG for field in fields[: len(letters)])
    assert not any(fields[len(letters) :])

    p = Program("vector")
    operands = [p.array(f"v{k}", 8, types[t]) for k, t in enumerate(letters[:3])]
    with p.task("main"):
        if len(letters) == 4:
            operands.append(p.reg16() if letters[3] in "hi" else p.reg32())
        if not op.lanes[0]:
            with pytest.raises(ProgramError, match=f"{op.name} has no vector form on wse2"):
                getattr(p, op.name)(*operands)
            return
        getattr(p, op.name)(*operands)
    [(name, fields, imm)] = instructions(p.assemble())
    assert (name, imm) == (op.name, None)
    files = [isa.FILES[field >> 4] for field in fields[: min(3, len(letters))]]
    assert files == (["dest", "src0", "src1"] if len(letters) > 2 else ["dest", "src1"])


@pytest.mark.parametrize("name", ["addc16", "fnormh", "fnorms", "map"])
def test_instructions_of_the_real_machine_that_are_refused(name):
    def write(p):
        with pytest.raises(UnsupportedError, match=f"{name} is not modelled.*cause: ") as info:
            getattr(p, name)()
        assert info.value.feature == name
        assert isa.UNSUPPORTED[name] in str(info.value)

    one(write)


def test_wse3_has_its_own_lanes_and_no_pairing():
    p = Program("p", machine("wse3"))
    a, b = p.array("a", 4, "f32"), p.array("b", 4, "f32")
    d, s = p.dsr("dest", id=3), p.dsr("src0", id=5)
    with p.task("main"):
        p.load(d, a)
        p.load(s, b)
        p.fadds(d, s, p.reg32())
    assert p.assemble().outq_color == (-1,) * 8


def test_an_immediate_second_source_is_an_extension_word_and_still_a_scalar_instruction():
    [(name, fields, imm)] = instructions(one(lambda p: p.add16(p.r[2], p.r[3], -1)))
    assert (name, imm) == ("add16", 0xFFFF)
    assert all(field >> 4 == isa.FILE_REG for field in fields[:3])


def test_an_immediate_first_source_commutes_or_takes_a_register():
    assert instructions(one(lambda p: p.add16(p.r[2], 5, p.r[3])))[0][1][1] == 0x33
    names = [name for name, _, _ in instructions(one(lambda p: p.sub16(p.r[2], 5, p.r[3])))]
    assert names == ["ldi", "sub16"]


@pytest.mark.parametrize(
    ("half", "value", "bits"), [("f16", 1.5, 0x3E00), ("cb16", 6.0, 0x5900), ("f16", float("inf"), 0x7C00)]
)
def test_float_immediates_are_in_the_format_of_the_program(half, value, bits):
    [(_, _, imm)] = instructions(one(lambda p: p.fmovh(p.r[4], value), half=half))
    assert imm == bits


def test_a_scalar_of_a_vector_operation_goes_through_a_register_that_is_free_again():
    p = Program("p")
    a = p.array("a", 4, "f32")
    with p.task("main"):
        p.fmuls(a, a, 2.0)
        p.fmacs(a, a, a, 0.5)
        assert p.reg32().id == 2
    names = [(name, imm) for name, _, imm in instructions(p.assemble())]
    assert names == [("ldi32", 0x40000000), ("fmuls", None), ("ldi32", 0x3F000000), ("fmacs", None)]


@given(st.sampled_from(["f16", "cb16", "f32", "i16", "u16", "i32", "u32"]), st.data())
def test_words_of_arrays_and_back(dtype, data):
    wide = dtype in ("f32", "i32", "u32")
    view = {"f16": "f2", "cb16": "u2", "f32": "f4", "i16": "i2", "u16": "u2", "i32": "i4", "u32": "u4"}[dtype]
    bits = np.array(
        data.draw(st.lists(st.integers(0, (1 << (32 if wide else 16)) - 1), max_size=6)),
        np.uint32 if wide else np.uint16,
    )
    words = encode_array(bits if "f" in view else bits.view(view), dtype)  # unsigned arrays are bits of floats
    back = decode_array(words, dtype)
    assert back.dtype == np.dtype(view)
    assert np.array_equal(back.view(bits.dtype), bits)
    if wide:
        assert np.array_equal(words[::2] + (words[1::2].astype(np.uint32) << 16), bits)
