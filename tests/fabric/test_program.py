"""The assembler: what it emits, what it decides, and what it refuses with which words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import control, disasm
from fabric.asm.values import decode_array, encode_array
from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.examples import examples
from tests.fabric import BACKENDS
from wse_core import image as im
from wse_core import isa
from wse_core.errors import ProgramError, UnsupportedError
from wse_core.image import ENDLESS
from wse_core.params import machine


def instructions(image, skip=("dsr_load", "done")):
    """Return [(name, fields, imm)] of an image without what is not asked for."""
    return [(op.name, (a, b, c, d), imm) for _, op, a, b, c, d, imm in isa.decode(image.code) if op.name not in skip]


def one(write, **kwargs):
    """Assemble a program with one task whose body `write(p)` emits."""
    p = Program("one", **kwargs)
    with p.task("main"):
        write(p)
    return p.assemble()


# --- the op table -----------------------------------------------------------------------------------------------------


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


# --- immediates -------------------------------------------------------------------------------------------------------


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


# --- variables --------------------------------------------------------------------------------------------------------

variables = st.lists(
    st.tuples(
        st.sampled_from(["f32", "u16"]),
        st.integers(1, 40),
        st.sampled_from([None, 2, 4, 6, 16]),
        st.sampled_from([None, 0, 2, 4, 6]),
    ),
    max_size=12,
)


@given(variables)
def test_variables_are_disjoint_aligned_and_in_their_banks(rows):
    p = Program("p")
    placed = []
    for k, (dtype, count, align, bank) in enumerate(rows):
        try:
            placed.append((p.array(f"v{k}", count, dtype, align=align, bank=bank), align, bank))
        except ProgramError as error:
            assert "no address" in str(error)
    with p.task("main"):
        p.nop()
    image = p.assemble()
    taken = np.zeros(image.footprint, int)
    taken[: image.code_words] += 1
    for var, align, bank in placed:
        assert image.symbols[var.name].address == var.address
        assert var.address % (align or var.words_per_element) == 0
        assert bank is None or var.address % 8 == bank
        taken[var.address : var.address + var.words] += 1
    assert taken.max() <= 1
    assert image.footprint % 4 == image.code_words % 4 == 0


def test_initial_values_and_parameters_are_data_and_zeros_are_not():
    p = Program("p")
    p.array("a", 4, "f32", init=[1, 2])
    p.array("z", 4, "f32", init=np.zeros(4))
    n = p.param("n", "u16", 7)
    with p.task("main"):
        p.ld16(p.r[2], n)
    image = p.assemble()
    assert [(address, words.tolist()) for address, words in image.data] == [
        (image.symbols["a"].address, [0, 0x3F80, 0, 0x4000]),
        (image.symbols["n"].address, [7]),
    ]


def test_a_program_that_exceeds_the_sram_names_its_parts():
    p = Program("big")
    p.array("small", 10, "u16")
    p.array("weights", 12000, "f32")
    p.array("more", 1000, "u16")
    with p.task("main"):
        p.nop()
    message = r"^program 'big': the program needs \d+ words, a PE has 24576.*'weights' 24000, 'more' 1000, 'small' 10"
    with pytest.raises(ProgramError, match=message):
        p.assemble()


def test_48_kb_can_be_filled_to_the_last_word():
    p = Program("full")
    with p.task("main"):
        p.nop()
    p.array("a", 24576 - 4, "u16")
    image = p.assemble()
    assert image.footprint == 24576


# --- DSRs -------------------------------------------------------------------------------------------------------------


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
    assert str(info.value).startswith("test_program.py:")
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


# --- descriptors ------------------------------------------------------------------------------------------------------


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


# --- queues and registers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: p.input_queue(1, 6), "input queue 1 is bound twice, to colors 5 and 6"),
        (lambda p: p.input_queue(2, 5), "color 5 is bound to two input queues, 1 and 2"),
        (lambda p: p.input_queue(8, 6), "input queue 8 does not exist on wse2.*queues 0 .. 7"),
        (lambda p: p.output_queue(6, 6), "output queue 6 does not exist on wse2.*queues 0 .. 5"),
        (lambda p: p.output_queue(0, 24), "color 24 of output queue 0 is not routable"),
    ],
)
def test_queue_bindings_that_no_machine_has(write, message):
    p = Program("p")
    p.input_queue(1, 5)
    with pytest.raises(ProgramError, match=rf"test_program.py:\d+, program 'p': {message}"):
        write(p)


def test_registers_of_a_task_are_free_again_and_those_of_functions_never_overlap():
    p = Program("p")
    shared = p.reg16("shared")
    with p.task("a", kind="data", color=3) as t:
        assert (t.data.id, t.index.id, t.word.id) == (0, 1, 0)
        in_a = {p.reg16().id, p.reg16().id}
    with p.task("b"):
        in_b = {p.reg16().id, p.reg16().id}
    with p.function("f"):
        in_f = {p.reg32().id, p.reg16().id}
    assert in_a == in_b
    assert not in_f & (in_a | {shared.id, 0, 1})
    assert shared.id not in in_a | {0, 1}


def test_local_tasks_may_use_r0_and_r1_last():
    p = Program("p")
    with p.task("a"):
        ids = [p.reg16().id for _ in range(16)]
        assert ids[-2:] == [0, 1]
        with pytest.raises(ProgramError, match=r"no 1 free register for x; taken: r0, r1.*p\.free"):
            p.reg16("x")
        p.free(*[p.r[0].__class__(0, 1, "")])
        assert p.reg16().id == 0


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: p.pair(3), "register pair r3:r4: the first register of a pair is even"),
        (lambda p: p.mov32(p.r[5], 1), "register pair r5:r6: the first register of a pair is even"),
        (lambda p: p.r[16], "register 16 does not exist"),
        (lambda p: p.add16(p.reg32(), p.r[2], 1), "has 32 bits, a 16-bit integer has 16"),
        (lambda p: p.add32(p.reg16(), p.reg32(), 1), "has 16 bits, a 32-bit integer has 32"),
        (lambda p: p.add16(p.r[2], p.r[3], 65536), "65536 does not fit 16 bits"),
        (lambda p: p.add16(p.r[2], p.r[3], 0.5), "0.5 given where a 16-bit integer belongs"),
        (lambda p: p.add16(p.r[2], p.r[3], "x"), "'x' is neither a register nor a number"),
        (lambda p: p.tsc(p.r[14]), "tsc: r14 and the two registers after it"),
        (lambda p: p.ld32(p.reg32(), p.scalar("h", "u16")), "elements of type u16.*ld16"),
        (lambda p: p.ld16(p.r[2], p.r[3], index=p.r[4]), "base and index are both registers"),
        (lambda p: p.route(1, "X", "R"), "'X' in rx is not a direction"),
        (lambda p: p.sw_pos(24, 0), "sw_pos: color 24 is not routable"),
        (lambda p: p.sw_pos(2, 4), "position 4 is outside"),
        (lambda p: p.flt_set(0, "min", 1), "unknown field 'min'"),
        (lambda p: p.prng(4), "generator 4 does not exist"),
        (lambda p: p.branch("above", p.r[2], 0, "x"), "unknown condition 'above'"),
        (lambda p: p.branch("ltu", p.r[2], 0, "x", "s"), "no unsigned comparison of floats"),
        (lambda p: p.branch("lt", p.r[2], 0, "x", "64"), "unknown kind of comparison"),
    ],
)
def test_scalar_operands_that_do_not_fit(write, message):
    p = Program("p")
    with p.task("main"), pytest.raises(ProgramError, match=message):
        write(p)


def test_special_instructions():
    p = Program("p")
    v = p.array("v", 3, "u16")
    with p.task("main"):
        p.store_tsc(v)
        p.rand16(p.r[4])
        p.prng(3)
        p.sw_pos(7, 2)
        p.route(7, "RW", "EN", position=1)
        p.td_exit(7)
        p.in_td(p.r[4], 7)
        p.flt_set(0, "limit", p.r[4])
        p.trap(5)
        p.ret()
        p.st32(p.reg32(), p.r[3], offset=4)
    found = instructions(p.assemble())
    assert [name for name, _, _ in found] == [
        "tsc",
        "st16",
        "st16",
        "st16",
        "rand16",
        "prng",
        "sw_pos",
        "route",
        "td_exit",
        "in_td",
        "flt_set",
        "trap",
        "ret",
        "st32",
    ]
    assert [imm for name, _, imm in found if name == "st16"] == [v.address, v.address + 1, v.address + 2]
    assert next(imm for name, _, imm in found if name == "route") == 0b10001 | 0b00110 << 5 | 1 << 10


# --- tasks ------------------------------------------------------------------------------------------------------------


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


def task(p, name, body=None, **kwargs):
    with p.task(name, **kwargs):
        if body:
            body()


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


# --- things of another program, and other refusals --------------------------------------------------------------------


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


# --- control flow, on machines ----------------------------------------------------------------------------------------

CONDITIONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "ltu": lambda a, b: a < b,
    "leu": lambda a, b: a <= b,
    "gtu": lambda a, b: a > b,
    "geu": lambda a, b: a >= b,
    "lt": lambda a, b: signed(a) < signed(b),
    "le": lambda a, b: signed(a) <= signed(b),
    "gt": lambda a, b: signed(a) > signed(b),
    "ge": lambda a, b: signed(a) >= signed(b),
}
ARITHMETIC = {
    "add16": lambda a, b: a + b,
    "sub16": lambda a, b: a - b,
    "mul16": lambda a, b: a * b,
    "and16": lambda a, b: a & b,
    "or16": lambda a, b: a | b,
    "xor16": lambda a, b: a ^ b,
    "sll16": lambda a, b: a << (b & 15),
    "slr16": lambda a, b: a >> (b & 15),
    "sar16": lambda a, b: signed(a) >> (b & 15),
}


def signed(a):
    return a - 0x10000 if a & 0x8000 else a


numbers = st.one_of(st.integers(0, 3), st.integers(0, 0xFFFF))
operands = st.one_of(st.tuples(st.just("v"), st.integers(0, 3)), st.tuples(st.just("#"), numbers))
assignments = st.tuples(st.just("set"), st.integers(0, 3), st.sampled_from(sorted(ARITHMETIC)), operands, operands)
conditions = st.tuples(st.sampled_from(sorted(CONDITIONS)), st.integers(0, 3), operands)


def blocks(children):
    body = st.lists(children, max_size=3)
    return st.one_of(
        st.tuples(st.just("if"), conditions, body, st.one_of(st.none(), body)),
        st.tuples(st.just("loop"), st.one_of(st.integers(0, 3), st.tuples(st.just("v"), st.integers(0, 3))), body),
        st.tuples(st.just("index"), st.integers(0, 3), st.integers(0, 3), body),
        st.tuples(st.just("call"), body),
    )


statements = st.lists(st.recursive(assignments, blocks, max_leaves=8), min_size=1, max_size=6)


def interpret(body, v):
    """What the program below means."""
    for kind, *rest in body:
        if kind == "set":
            target, op, a, b = rest
            a, b = (v[x] if where == "v" else x for where, x in (a, b))
            v[target] = ARITHMETIC[op](a, b) & 0xFFFF
        elif kind == "if":
            (cond, a, (where, b)), then, other = rest
            interpret(then if CONDITIONS[cond](v[a], v[b] if where == "v" else b) else other or [], v)
        elif kind == "loop":
            count = rest[0] if isinstance(rest[0], int) else v[rest[0][1]] & 3
            for _ in range(count):
                interpret(rest[1], v)
        elif kind == "index":
            for i in range(rest[0]):
                v[rest[1]] = v[rest[1]] + i & 0xFFFF
                interpret(rest[2], v)
        else:
            interpret(rest[0], v)


def emit(p, body, regs, functions):
    """Write the same with the assembler."""

    def value(operand):
        where, x = operand
        return regs[x] if where == "v" else x

    for kind, *rest in body:
        if kind == "set":
            target, op, a, b = rest
            getattr(p, op)(regs[target], value(a), value(b))
        elif kind == "if":
            (cond, a, b), then, other = rest
            with p.if_(cond, regs[a], value(b)):
                emit(p, then, regs, functions)
            if other is not None:
                with p.else_():
                    emit(p, other, regs, functions)
        elif kind == "loop":
            count = rest[0]
            if not isinstance(count, int):
                masked = p.reg16()
                p.and16(masked, regs[count[1]], 3)
                count = masked
            with p.loop(count):
                emit(p, rest[1], regs, functions)
            if not isinstance(rest[0], int):
                p.free(masked)
        elif kind == "index":
            with p.loop(rest[0], index=True) as i:
                p.add16(regs[rest[1]], regs[rest[1]], i)
                emit(p, rest[2], regs, functions)
        else:
            functions.append(rest[0])
            p.call(f"f{len(functions) - 1}")


@pytest.mark.parametrize("backend", BACKENDS)
@given(statements, st.lists(numbers, min_size=4, max_size=4))
def test_random_structured_programs_mean_what_they_say(backend, body, start):
    p = Program("p")
    out = p.array("out", 4, "u16", init=np.array(start))
    regs = [p.reg16(f"v{k}") for k in range(4)]
    functions = []
    try:
        with p.task("main"):
            for k, reg in enumerate(regs):
                p.ld16(reg, out[k])
            emit(p, body, regs, functions)
            for k, reg in enumerate(regs):
                p.st16(reg, out[k])
        k = 0
        while k < len(functions):
            with p.function(f"f{k}"):
                emit(p, functions[k], regs, functions)
            k += 1
    except ProgramError as error:
        assert "free register" in str(error)
        return
    expected = list(start)
    interpret(body, expected)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    assert fabric.run(2_000_000).status == "complete"
    assert fabric.read("out").ravel().tolist() == expected
    assert np.array_equal(disasm.parse_listing(disasm.listing(p.assemble())), p.assemble().code)


@pytest.mark.parametrize("backend", BACKENDS)
def test_while_and_typed_branches(backend):
    p = Program("p")
    out = p.array("out", 4, "u16")
    with p.task("main"):
        n, wide = p.reg16(), p.reg32()
        p.mov16(n, 0)
        with p.while_("ltu", n, 7):
            p.add16(n, n, 2)
        p.st16(n, out[0])
        p.mov32(wide, 1)
        with p.while_("lt", wide, 100_000):
            p.add32(wide, wide, wide)
        p.slr32(wide, wide, 4)
        p.st16(wide.low, out[1])
        p.fmovs(wide, 1.0)
        with p.while_("le", wide, 10.0):
            p.fadds(wide, wide, wide)
        p.st16(wide.high, out[2])
        for name, reg, value in (("br16", n, 8), ("br32", wide, 0), ("brh", n, 0.0), ("brs", wide, 16.0)):
            skip = p.new_label()
            getattr(p, name)("eq", reg, value, skip)
            p.done() if name == "brs" else None
            p.place(skip)
        p.mov16(n, 3)
        p.st16(n, out[3])
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    fabric.run(100_000)
    assert fabric.read("out").ravel().tolist() == [8, 131072 >> 4, 0x4180, 3]


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]),
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, float("nan"), float("inf")]), min_size=2, max_size=2),
    st.sampled_from(["h", "s"]),
    st.booleans(),
)
@examples(30)
def test_float_conditions_are_exact_for_nan_in_both_branches(backend, cond, values, kind, immediate):
    p = Program("p")
    v = p.array("v", 2, "half" if kind == "h" else "f32", init=values)
    out = p.scalar("out", "u16")
    with p.task("main"):
        regs = [p.reg16() if kind == "h" else p.reg32() for _ in range(2)]
        load = p.ld16 if kind == "h" else p.ld32
        load(regs[0], v[0])
        load(regs[1], v[1])
        answer = p.reg16()
        with p.if_(cond, regs[0], values[1] if immediate else regs[1], kind):
            p.mov16(answer, 1)
        with p.else_():
            p.mov16(answer, 2)
        p.st16(answer, out)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    fabric.run(10_000)
    a, b = values
    truth = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[cond]
    assert fabric.read("out").item() == (1 if truth else 2)


def test_else_needs_its_if():
    p = Program("p")
    with p.task("main"):
        with p.if_("eq", p.r[2], 0):
            p.nop()
        p.nop()
        with pytest.raises(ProgramError, match="else_ without an if_ right before it"), p.else_():
            pass


def test_assembly_is_deterministic():
    def build():
        p = Program("p")
        a = p.array("a", 8, "f32", bank=2)
        with p.task("main"), p.loop(3):
            p.fadds(a, a, p.fabin(p.input_queue(0, 1), 8))
        return p.assemble()

    first, second = build(), build()
    assert np.array_equal(first.code, second.code)
    assert np.array_equal(first.descriptors, second.descriptors)
    assert first.symbols == second.symbols


# --- listings ---------------------------------------------------------------------------------------------------------

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


# --- control wavelets -------------------------------------------------------------------------------------------------

commands = st.lists(st.sampled_from(sorted(control.COMMANDS)), max_size=8)
tasks = st.one_of(st.none(), st.integers(0, 63).filter(lambda k: k != 31))


@given(commands, tasks, st.data())
def test_control_payloads_round_trip(names, number, data):
    flags = data.draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    found = control.decode(control.encode(names, number, flags))
    assert found.task == number
    assert list(found.commands[: len(names)]) == names
    assert set(found.commands[len(names) :]) <= {"nop"}
    if names:
        assert list(found.deliver) == flags + [False] * (8 - len(names))


@given(words)
def test_popping_moves_commands_down_by_one(payload):
    before, after = control.decode(payload), control.decode(control.pop(payload))
    assert after.commands == (*before.commands[1:], "nop")
    assert after.deliver == (*before.deliver[1:], False)
    assert after.task == before.task
    assert control.pop(payload) >> 30 == payload >> 30


def test_published_control_constants():
    assert control.encode(["teardown"], deliver=False) == 0x09DF9249
    assert control.pop(0x09DF9249) == 0x091F9249
    assert control.encode(["adv"], deliver=False) == control.ADVANCE == 0x095F9249
    assert control.single("adv", task=5, data=7) == 5 << 16 | 1 << 22 | 7


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: control.encode(["jump"]), "unknown router command 'jump'"),
        (lambda: control.encode(["nop"] * 9), "carries 8 commands, not 9"),
        (lambda: control.encode(["nop"], deliver=[True, True]), "1 commands but 2 deliver flags"),
        (lambda: control.encode([], task=31), "control task id 31"),
        (lambda: control.single(data=1 << 16), "does not fit 16 bits"),
    ],
)
def test_control_payloads_that_do_not_exist(write, message):
    with pytest.raises(ProgramError, match=message):
        write()
