"""Port maps, in which host scripts before SDK 1.0 gave their transfers; and what a simulator leaves behind."""

from __future__ import annotations

import numpy as np
import pytest

from harness.sdk.portmaps import (
    convert_input_tensor,
    format_output_tensor,
    output_array_from_u32,
    prepare_output_tensor,
)
from wse_core.errors import ConfigError

TILES = """{ A[j=0:3][i=0:5] -> [PE[i//3 + 2, j//2] ->
    index[i%3, j%2]] }"""


def test_a_tensor_is_cut_into_tiles_whose_elements_lie_by_their_index():
    tensor = np.arange(24, dtype=np.float32).reshape(4, 6)
    x, y, w, h, n, words = convert_input_tensor(TILES, tensor)
    assert (x, y, w, h, n) == (2, 0, 2, 2, 6)
    tiles = tensor.reshape(2, 2, 2, 3).transpose(0, 2, 3, 1).reshape(2, 2, 6)  # the first number is the slowest
    assert words.view(np.float32).reshape(2, 2, 6).tolist() == tiles.tolist()
    assert format_output_tensor(TILES, np.float32, words).tolist() == tensor.tolist()
    assert prepare_output_tensor(TILES, np.float32)[:5] == (2, 0, 2, 2, 6)


def test_axes_are_numbers_or_go_between_expressions_of_them():
    """As scripts of SDK 0.4 write them."""
    tensor = np.arange(4, dtype=np.float32).reshape(4, 1)
    *area, words = convert_input_tensor("{ x[i=0:2*2-1, 0] -> [PE[i//2, -1] -> index[i mod 2]] }", tensor)
    assert area == [0, -1, 2, 1, 2]
    assert words.view(np.float32).tolist() == [0, 1, 2, 3]


def test_numbers_of_16_bits_fill_the_lower_halves():
    line = "{out_tensor[idx=0:3] -> [PE[idx,0] -> index[0]]}"
    tensor = np.array([1, -1, 2, -2], np.int16)
    *area, words = convert_input_tensor(line, tensor)
    assert area == [0, 0, 4, 1, 1]
    assert words.tolist() == [1, 0xFFFF, 2, 0xFFFE]
    assert format_output_tensor(line, np.int16, words | 0x50000).tolist() == tensor.tolist()
    assert output_array_from_u32(np.array([0x12340003C00], np.uint64).astype(np.uint32), np.float16).tolist() == [1.0]
    *area, empty = prepare_output_tensor("{ n[i=0:0][j=0, k=5:6] -> [PE[1, 7 - i] -> index[-k]] }", np.float32)
    assert area == [1, 7, 1, 1, 2]
    assert empty.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A[i=0:3] -> PE[i, 0]", "is no port map"),
        ("{ A[i=0:x] -> [PE[i, 0] -> index[0]] }", "have another form"),
        ("{ A[i=3:0] -> [PE[i, 0] -> index[0]] }", "has no element"),
        ("{ A[i=0:3] -> [PE[i] -> index[0]] }", "two coordinates, not 1"),
        ("{ A[i=0:3] -> [PE[i +, 0] -> index[0]] }", "is no expression"),
        ("{ A[i=0:3] -> [PE[k, 0] -> index[0]] }", "'k' in .* is not known here"),
        ("{ A[i=0:3] -> [PE[exit(), 0] -> index[0]] }", r"'exit\(\)' in .* is not known here"),
        ("{ A[i=0:2] -> [PE[i//2, 0] -> index[i]] }", "have 1 to 2 elements"),
    ],
)
def test_port_maps_that_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        prepare_output_tensor(text, np.float32)
    with pytest.raises(ConfigError, match="3 elements, its port map 24"):
        convert_input_tensor(TILES, np.zeros(3, np.float32))
