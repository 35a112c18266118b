"""Files of tensors: round trips, the library's own files, and every way in which a file can lie."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.models import tensors
from harness.models.tensors import Tensor, read_tensors, write_tensors
from wse_core.errors import ConfigError

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "empty": np.zeros((0, 4), np.float16),
    "odd": np.array([1, 2, 3], np.float16),
    "scalar": np.array(2.5, np.float32),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.safetensors"


def lie(path, header, data=b"\0" * 8, length=None):
    """Write a file whose header says anything."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


@given(
    arrays=st.dictionaries(
        st.text(min_size=1, max_size=9).filter(lambda name: name != "__metadata__"),
        hnp.arrays(st.sampled_from([np.float32, np.float16]), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
        max_size=4,
    )
)
def test_what_is_written_is_read(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("tensors") / "m.safetensors"
    write_tensors(path, arrays)
    found = read_tensors(path)
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].shape == array.shape
        assert found[name].data.tobytes() == array.tobytes()
        np.testing.assert_array_equal(found[name].f32(), array.astype(np.float32))


def test_files_of_the_library_and_back(path):
    library = pytest.importorskip("safetensors.numpy")
    library.save_file(ARRAYS, path)
    found = read_tensors(path)
    assert {name: tensor.dtype for name, tensor in found.items()} == {
        name: {"float32": "F32", "float16": "F16"}[array.dtype.name] for name, array in ARRAYS.items()
    }
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name].data, array)
    write_tensors(path.with_name("own.safetensors"), ARRAYS)
    for name, array in library.load_file(path.with_name("own.safetensors")).items():
        assert array.dtype == ARRAYS[name].dtype
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_every_code_of_bf16_is_exact(path):
    codes = np.arange(1 << 16, dtype=np.uint16)
    write_tensors(path, {"w": Tensor("w", "BF16", codes)})
    values = read_tensors(path)["w"].f32()
    np.testing.assert_array_equal(values.view(np.uint32), codes.astype(np.uint32) << 16)


def test_values_need_not_lie_at_multiples_of_their_size(path):
    values = np.array([1.5, -2.25], "<f4")
    header = {"b": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]}}
    header["a"] = {"dtype": "F32", "shape": [2], "data_offsets": [2, 10]}
    lie(path, header, np.float16(3).tobytes() + values.tobytes())
    np.testing.assert_array_equal(read_tensors(path)["a"].f32(), values)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
LIES = [
    (b"", 1 << 40, "a header of 1,099,511,627,776 bytes in a file"),
    (b"{", None, "not JSON"),
    (b"\xff\xfe", None, "not JSON"),
    (b"[" * 100_000, None, "not JSON"),
    ([1], None, "no table of tensors"),
    ({"w": 3}, None, "tensor w: no dtype"),
    ({"w": {**ENTRY, "dtype": "I64"}}, None, "values of type I64"),
    ({"w": {**ENTRY, "dtype": ["F32"]}}, None, "values of type"),
    ({"w": {**ENTRY, "shape": [-2]}}, None, "a shape of"),
    ({"w": {**ENTRY, "shape": "2"}}, None, "a shape of"),
    ({"w": {**ENTRY, "shape": [2.0]}}, None, "a shape of"),
    ({"w": {**ENTRY, "shape": [1] * 65}}, None, "a shape of 65 numbers; at most 32 are read"),
    ({"w": {**ENTRY, "shape": [10**18] * 200_000}}, None, "a shape of 200,000 numbers"),
    ({"w": {**ENTRY, "shape": [10**4000] * 32}}, None, "8 bytes for"),
    ({"w" * 10_000: {**ENTRY, "shape": "x" * 1_000_000}}, None, "a shape of 'xxx"),
    ({"\x1b[31mw": {**ENTRY, "dtype": "\x07" * 1000}}, None, r"tensor \\x1b\[31mw: values of type \\x07"),
    ({"w": {**ENTRY, "data_offsets": [0, 800]}}, None, "of 8"),
    ({"w": {**ENTRY, "data_offsets": [8, 0]}}, None, "of 8"),
    ({"w": {**ENTRY, "data_offsets": [-8, 0]}}, None, "of 8"),
    ({"w": {**ENTRY, "data_offsets": [0]}}, None, "of 8"),
    ({"w": {**ENTRY, "shape": [3]}}, None, "8 bytes for"),
    ({"w": {**ENTRY, "shape": [1 << 62, 1 << 62]}}, None, "8 bytes for"),
    ({"w": {**ENTRY, "shape": [1], "data_offsets": [4, 8]}}, None, "begins at byte 4"),
    ({"w": {**ENTRY, "shape": [1], "data_offsets": [0, 4]}}, None, "4 bytes behind the last"),
    ({"w": ENTRY, "v": ENTRY}, None, "begins at byte 0, the one before it ends at 8"),
]


@pytest.mark.parametrize(("header", "length", "what"), LIES)
def test_a_file_that_lies_is_refused_in_one_line(path, header, length, what):
    lie(path, header, length=length)
    with pytest.raises(ConfigError, match=what) as caught:
        read_tensors(path)
    text = str(caught.value)
    assert str(path) in text
    assert text.isprintable()
    assert len(text) < len(str(path)) + 400


def test_a_huge_header_is_not_read(path, monkeypatch):
    monkeypatch.setattr(tensors, "MAX_HEADER", 10)
    with pytest.raises(ConfigError, match="at most 10 are read"):
        read_tensors(lie(path, {"w": ENTRY}))


@pytest.mark.parametrize("size", [0, 3, 8, 40])
def test_a_file_cut_off(path, size):
    write_tensors(path, ARRAYS)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ConfigError):
        read_tensors(path)


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        read_tensors(tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tensors(tmp_path)


def test_other_types_are_not_written(path):
    with pytest.raises(ConfigError, match="values of type int64"):
        write_tensors(path, {"w": np.arange(3)})
    assert not path.exists()
