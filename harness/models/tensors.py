"""Tensors are read from safetensors files through a memory map, so that a model of many gigabytes loads at once.

A file is eight bytes with the length N of the header (little-endian), N bytes of JSON, ``name: {dtype, shape,
data_offsets}`` and an optional ``__metadata__``, and then the values, little-endian, row by row, without gaps; offsets
count from the end of the header.  Nothing of a file is believed: a header longer than the file, offsets outside of it,
gaps, overlaps and sizes that do not fit are refused.

Own code, although there is a library: the shipped model must answer without extras, bf16 has no type in numpy, and the
library says of a damaged file neither tensor nor place.  A test reads and writes files of the library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.kit.modules import need
from traces.atomic import atomic_file
from wse_core.errors import ConfigError
from wse_core.errors.values import named, shown

__all__ = ["BLOCKS", "MAX_HEADER", "Tensor", "read_tensors", "write_tensors"]

Array = np.ndarray[Any, np.dtype[Any]]

NORM = ("norm.weight", "norm.bias")
"""Norms have weights and biases whose names end so; PEs hold these in f32."""

MAX_HEADER = 100 << 20
"""A header of more bytes is not read, as in the library."""

MOST_AXES = 32
"""Longest shape that is read; no model has half of it, and a header of megabytes could be one shape."""

TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""These types are read: name -> how it lies in memory; bf16 as bit patterns."""

BLOCKS: dict[str, tuple[int, int]] = {
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "IQ2_XXS": (256, 66),
    "IQ2_XS": (256, 74),
    "IQ2_S": (256, 82),
    "IQ3_XXS": (256, 98),
    "IQ3_S": (256, 110),
    "IQ1_S": (256, 50),
    "IQ1_M": (256, 56),
    "IQ4_NL": (32, 18),
    "IQ4_XS": (256, 136),
    "TQ1_0": (256, 54),
    "TQ2_0": (256, 66),
    "MXFP4": (32, 17),
}
"""Quantized types of GGUF files have blocks of so many values, which take so many bytes."""


@dataclass(frozen=True)
class Tensor:
    """A `Tensor` is a named array of a file.

    Attributes
    ----------
    name : str
    dtype : str
        Of the file: F32, F16, BF16, or one of `BLOCKS`.
    data : numpy.ndarray
        float32, float16, uint16 bit patterns of bf16, or bytes of the blocks of each row.
    factor : float
        Of all values, which `f32` has; 1 for tensors as files have them.
    more : float
        What `f32` adds to all values times the factor; 0 for tensors as files have them.
    order : numpy.ndarray or None
        Which row of the file each row that `f32` has is; None for tensors as files have them.
    """

    name: str
    dtype: str
    data: Array
    factor: float = 1.0
    more: float = 0.0
    order: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape is that of the tensor."""
        if self.dtype not in BLOCKS:
            return self.data.shape
        values, size = BLOCKS[self.dtype]
        return *self.data.shape[:-1], self.data.shape[-1] // size * values

    def rows(self, first: int, last: int) -> Tensor:
        """Return the rows of `f32` from one on and before another one as a tensor."""
        if self.order is not None:
            return replace(self, order=self.order[first:last])
        return replace(self, data=self.data[first:last])

    def f32(self) -> Array:
        """Return the values as float32, exact if none is changed: every type of `TYPES` is part of it.

        Quantized values are those that the library `gguf` makes of them.
        """
        data = self.data if self.order is None else self.data[self.order]
        if self.dtype in BLOCKS:
            values = self._dequantized(data)
        elif self.dtype == "BF16":
            values = (data.astype(np.uint32) << np.uint32(16)).view(np.float32)
        else:
            values = data.astype(np.float32)
        values = values if self.factor == 1 else values * np.float32(self.factor)
        return values if self.more == 0 else values + np.float32(self.more)

    def _dequantized(self, data: Array) -> Array:
        """Return the values of rows of blocks."""
        library = need("gguf", f"tensor {named(self.name)} of type {self.dtype}")
        values = library.quants.dequantize(data, library.GGMLQuantizationType[self.dtype])
        return np.ascontiguousarray(values, np.float32)

    @property
    def is_changed(self) -> bool:
        """Whether `f32` has other values than the file, or of another type than is written."""
        return self.dtype in BLOCKS or self.factor != 1 or self.more != 0 or self.order is not None


def _refused(what: str, path: Path, **parts: Any) -> ConfigError:
    return ConfigError(what, where=path, path=str(path), **parts)


def _header(path: Path) -> tuple[dict[str, Any], int, int]:
    """Return the header of a file, where its data begin and how many bytes they are."""
    try:
        with open(path, "rb") as file:
            total = path.stat().st_size
            first = file.read(8)
            length = int.from_bytes(first, "little")
            if len(first) < 8 or 8 + length > total:
                raise _refused(
                    f"a header of {length:,} bytes in a file of {total:,}",
                    path,
                    cause="cut off, or no safetensors file",
                )
            if length > MAX_HEADER:
                raise _refused(f"a header of {length:,} bytes; at most {MAX_HEADER:,} are read", path)
            raw = file.read(length)
    except FileNotFoundError:
        raise _refused("no such file", path) from None
    except OSError as error:
        raise _refused(f"cannot be read: {error.strerror}", path) from None
    try:
        header = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _refused("its header is not JSON", path, cause="damaged, or no safetensors file") from None
    if not isinstance(header, dict):
        raise _refused("its header is no table of tensors", path)
    header.pop("__metadata__", None)
    return header, 8 + length, total - 8 - length


def _whole(values: Any, count: int | None = None) -> bool:
    """Whether this is a list of whole numbers that are not negative."""
    return (
        isinstance(values, list)
        and (count is None or len(values) == count)
        and all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values)
    )


def _place(name: str, entry: Any, size: int, path: Path) -> tuple[int, int, str]:
    """Return where a tensor begins and ends, given its entry in the header and the bytes that there are."""
    name = named(name)
    if not isinstance(entry, dict):
        raise _refused(f"tensor {name}: no dtype, shape and offsets", path)
    dtype, shape = entry.get("dtype"), entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in TYPES:
        kind = named(dtype) if isinstance(dtype, str) else shown(dtype)
        raise _refused(f"tensor {name}: values of type {kind}", path, hint="F32, F16 and BF16 are read")
    if not isinstance(shape, list) or len(shape) > MOST_AXES:
        what = f"{len(shape):,} numbers; at most {MOST_AXES} are read" if isinstance(shape, list) else shown(shape)
        raise _refused(f"tensor {name}: a shape of {what}", path)
    if not _whole(shape):
        raise _refused(f"tensor {name}: a shape of {shown(shape)}", path)
    if not _whole(offsets, 2) or not offsets[0] <= offsets[1] <= size:
        raise _refused(f"tensor {name}: bytes {shown(offsets)} of {size:,}", path, cause="cut off or damaged")
    if offsets[1] - offsets[0] != math.prod(shape) * TYPES[dtype].itemsize:
        raise _refused(f"tensor {name}: {offsets[1] - offsets[0]:,} bytes for {shown(shape)} of {dtype}", path)
    return offsets[0], offsets[1], name


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name, as views of its memory map.

    Raises
    ------
    ConfigError
        The file is missing, damaged, or holds a type other than F32, F16 and BF16; the message names the tensor.
    """
    path = Path(path)
    header, begin, size = _header(path)
    places = {name: _place(name, entry, size, path) for name, entry in header.items()}
    end = 0
    for first, last, name in sorted(places.values()):
        if first != end:
            raise _refused(f"tensor {name}: begins at byte {first:,}, the one before it ends at {end:,}", path)
        end = last
    if end != size:
        raise _refused(f"{size - end:,} bytes behind the last tensor", path)
    data = np.memmap(path, np.uint8, "r", begin, (size,)) if size else np.zeros(0, np.uint8)
    found = {}
    for name, (first, last, _) in places.items():
        entry = header[name]
        # A start that is no multiple of the item's size is legal; numpy reads such views as well.
        values = np.ndarray(tuple(entry["shape"]), TYPES[entry["dtype"]], data[first:last].data)
        found[name] = Tensor(name, entry["dtype"], values)
    return found


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor | Array]) -> None:
    """Write tensors as a file of the format, all or nothing; arrays are float32 or float16.

    Raises
    ------
    ConfigError
        An array of another type, or the file cannot be written.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    end = 0
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            kind = {"float32": "F32", "float16": "F16"}.get(tensor.dtype.name)
            if kind is None:
                raise ConfigError(f"tensor {name}: values of type {tensor.dtype}", hint="float32 or float16")
            tensor = Tensor(name, kind, tensor)
        elif tensor.is_changed:
            tensor = Tensor(name, "F32", tensor.f32())
        parts.append(np.ascontiguousarray(tensor.data, TYPES[tensor.dtype]).tobytes())
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [end, end + len(parts[-1])]}
        end += len(parts[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # data begin at a multiple of eight, as the library wants them
    with atomic_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(parts)
