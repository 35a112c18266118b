"""Scalars of host scripts add up as NumPy 1 did it, which public scripts count on for their time stamps."""

from __future__ import annotations

import builtins
import sys

import numpy as np
import pytest

from harness.sdk.promotion import promoted
from harness.sdk.python import main

SCRIPT = """
import numpy as np
from parts import together

def here(words):
    return words[0] + (words[1] << 16) + (words[2] << 32)

stamp = np.array([0x1234, 0xFFFF, 0x0001], dtype=np.uint16)
pair = np.float32(0.5) + 1
match 5 - 3:
    case 2:
        name = f"{'a' + 'b'}"
print(here(stamp), together(stamp), 3 | np.uint8(4), np.uint8(200) + 100, (stamp + stamp).dtype, pair.dtype, name)
print(__name__, [k << 2 for k in range(3)], "x" + str(1 << 40), type(np.uint16(1) + np.uint16(1)).__name__)
"""
PARTS = """
def together(words):
    return words[2] * 4294967296 + words[1] * 65536 + words[0]
"""


def test_time_stamps_have_all_their_bits(tmp_path, capsys):
    (tmp_path / "run.py").write_text(SCRIPT)
    (tmp_path / "parts.py").write_text(PARTS)
    main_module = sys.modules["__main__"]
    try:
        assert main([str(tmp_path / "run.py")]) == 0
    finally:
        sys.modules.pop("parts", None)
    stamp = 0x1234 + (0xFFFF << 16) + (1 << 32)
    assert capsys.readouterr().out.splitlines() == [
        f"{stamp} {stamp} 7 300 uint16 float32 ab",
        f"__main__ [0, 4, 8] x{1 << 40} uint16",
    ]
    assert sys.modules["__main__"] is main_module
    assert not hasattr(builtins, "__wse_promoted__")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts.py", "run.py"]  # nothing compiled is left


@pytest.mark.parametrize(
    ("left", "right", "kinds"),
    [
        (np.uint16(1), 16, (np.int64, int)),
        (16, np.int32(1), (int, np.int64)),
        (np.uint64(1), 1, (np.uint64, int)),
        (np.uint16(1), np.uint16(1), (np.uint16, np.uint16)),
        (np.uint16(1), True, (np.uint16, bool)),
        (np.float16(1), 1, (np.float16, int)),
        (np.array([1], np.uint16), 1, (np.ndarray, int)),
        ("a", "b", (str, str)),
    ],
)
def test_only_a_scalar_beside_an_int_is_widened(left, right, kinds):
    assert tuple(type(value) for value in promoted(left, right)) == kinds


def test_a_mistake_keeps_its_line(tmp_path):
    (tmp_path / "run.py").write_text("a = 1\nb = a + 2\n\nc = b +\\\n 'x'\n")
    with pytest.raises(TypeError) as info:
        main([str(tmp_path / "run.py")])
    assert info.traceback[-2].lineno + 1 in (4, 5)
