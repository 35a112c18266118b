"""Variables: addresses, banks, initial values, and when a PE is full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.program.program import Program
from wse_core.errors import ProgramError

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
