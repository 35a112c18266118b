"""The table that C and Python share: numbers fit their names, fields do not overlap, every op has a body."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from wse_core import encoding, image, isa, twins
from wse_core.errors import InternalError
from wse_core.events import EVENT_DTYPE
from wse_core.reference.alu import ALU

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {
    "DSD": encoding.DSD_KINDS,
    "FILTER": encoding.FILTER_KINDS,
    "FILE": encoding.FILES,
    "DIR": tuple(encoding.DIRS),
}


@pytest.mark.parametrize("prefix", GROUPS)
def test_names_and_numbers_of_a_group_agree(prefix):
    for number, name in enumerate(GROUPS[prefix]):
        assert getattr(encoding, f"{prefix}_{name.upper()}") == number


@pytest.mark.parametrize("prefix", encoding.FIELDS)
def test_fields_of_a_word_do_not_overlap(prefix):
    taken = 0
    for low, bits in encoding.FIELDS[prefix].values():
        field = (1 << bits) - 1 << low
        assert taken & field == 0
        taken |= field
    assert taken < 1 << (64 if prefix == "RT" else 32)


def test_the_generated_constants_are_those_of_the_table():
    text = (ROOT / "wse_core" / "constants.pxd").read_text(encoding="utf-8")
    assert text == encoding.constants_pxd()
    found = {name: int(value) for name, value in re.findall(r"^    (\w+) = (\d+)$", text, re.MULTILINE)}
    assert found["FAULT_PROGRAM"] == encoding.FAULT_KINDS.index("program")
    assert found["D_FORMS"] == len(encoding.FAULT_DETAILS) - 1
    assert found["COUNT_STALL_FIFO"] - found["COUNT_IDLE"] == found["WAIT_FIFO"]


def test_waits_of_events_are_the_last_reasons():
    constants = encoding.constants()
    for place, reason in enumerate(encoding.WAITS):
        assert constants[f"WAIT_{reason.upper()}"] == constants["WAIT_RESOURCE"] + place


def test_async_word_and_its_fields_are_inverse():
    word = isa.async_word("high", 5, activate=17, unblock=31)
    assert isa.async_fields(word) == {"priority": "high", "ut": 5, "activate": 17, "unblock": 31}
    assert word == 1 | 2 << 1 | 5 << 4 | 1 << 8 | 17 << 9 | 1 << 15 | 31 << 16


@pytest.mark.parametrize("dtype", [image.DESC_DTYPE, image.ROUTE_DTYPE, image.FILTER_DTYPE, EVENT_DTYPE])
def test_a_record_that_differs_is_refused(dtype):
    offsets = {name: place[1] for name, place in dtype.fields.items()}
    twins.compare("record", dtype, dtype.itemsize, offsets)
    with pytest.raises(InternalError, match="rebuild"):
        twins.compare("record", dtype, dtype.itemsize + 1, offsets)
    first, second, *_ = offsets
    moved = offsets | {first: offsets[second], second: offsets[first]}
    with pytest.raises(InternalError, match="rebuild"):
        twins.compare("record", np.dtype(dtype), dtype.itemsize, moved)


def test_every_alu_op_has_a_body_in_the_reference():
    assert {op.name for op in isa.OPS if op.form == "alu"} == set(ALU)


def test_an_op_without_a_body_ends_the_build(tmp_path):
    for name in ("isa.py", "encoding.py", "alu.pxd"):
        target = tmp_path / "wse_core" / name
        target.parent.mkdir(exist_ok=True)
        target.write_text((ROOT / "wse_core" / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "setup.py").write_text((ROOT / "setup.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "toy"\nversion = "1"\n', encoding="utf-8")
    table = tmp_path / "wse_core" / "alu.pxd"

    def build():
        command = [sys.executable, "setup.py", "--quiet", "--name"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert build().returncode == 0
    table.write_text(table.read_text(encoding="utf-8").replace("op == OP_FMINH", "op == OP_FMAXH"), encoding="utf-8")
    done = build()
    assert done.returncode != 0
    assert "alu.pxd: `alu` has no branch for the op fminh" in done.stderr
