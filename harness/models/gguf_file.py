"""GGUF files are read: a head of keys and values, a list of tensors, and their values, mapped into memory.

A file is the word GGUF, a version, two counts, the keys with their values, the tensors with shape, type and offset, and
from the next multiple of `general.alignment` on their values.  Numbers are little-endian; a shape begins with the axis
whose values lie side by side, so that it is turned round here.  Nothing of a file is believed: counts that the file has
no room for, offsets outside of it, overlaps and unknown types are refused, and a list is read in as much time as it
takes bytes.

Own code, although the package `gguf` has a reader: that one runs without end on a damaged count, and takes seconds for
a vocabulary.  What quantized values are is the package's to say (`harness.models.tensors`); a test reads the same files
by both.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness.models.tensors import BLOCKS, TYPES, Tensor
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.errors.values import named, shown

__all__ = ["SUFFIX", "GgufFile", "read_gguf"]

SUFFIX = ".gguf"

MAGIC, VERSIONS = b"GGUF", (2, 3)

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of a value, as `struct` calls them."""
FLOAT, STRING, ARRAY = 6, 8, 9

KINDS = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K",
         12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
         21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0",
         39: "MXFP4"}  # fmt: skip
"""Types of tensors have these numbers."""

MOST_AXES = 4
"""A shape of the format has at most so many axes."""

LONGEST_NAME = 1 << 16
"""The name of a key or a tensor has at most so many bytes."""


@dataclass(frozen=True)
class GgufFile:
    """A `GgufFile` is what a file holds.

    Attributes
    ----------
    path : Path
    metadata : dict
        Values by key; floats of 32 bits are the shortest decimal numbers that round to them.
    tensors : dict
        By the names of the file.
    """

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, Tensor]


class _Head:
    """A `_Head` reads the head of a file from its first byte on."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path, self.data, self.at = path, data, 0

    def refused(self, what: str, **parts: Any) -> ConfigError:
        """Return the error of a file that is none."""
        return ConfigError(what, where=self.path, path=str(self.path), **parts)

    def take(self, count: int, what: str) -> memoryview:
        """Return the next bytes."""
        if count > len(self.data) - self.at:
            raise self.refused(
                f"{what} of {count:,} bytes at byte {self.at:,} of {len(self.data):,}", cause="cut off or damaged"
            )
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str, what: str) -> Any:
        """Return the next number."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}"), what))[0]

    def text(self, what: str, most: int | None = None) -> str:
        """Return the next text."""
        count = self.number("Q", what)
        if most is not None and count > most:
            raise self.refused(f"{what} of {count:,} bytes; at most {most:,} are read", cause="damaged")
        raw = bytes(self.take(count, what))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            if most is None:  # tokens may be parts of characters; no token of a text is like this
                return raw.decode("utf-8", "surrogateescape")
            raise self.refused(f"{what} is no text: {named(repr(raw))}", cause="damaged") from None

    def value(self, key: str) -> Any:
        """Return the next value, of any type."""
        return self.of_type(self.number("I", "a type"), f"the value of {named(key)}")

    def of_type(self, kind: int, what: str) -> Any:
        """Return the next value, of this type."""
        if kind == STRING:
            return self.text(what)
        if kind == ARRAY:
            return self.array(what)
        if kind not in SCALARS:
            raise self.refused(f"{what} is of the unknown type {kind}", cause="damaged")
        found = self.number(SCALARS[kind], what)
        return _shortest(found) if kind == FLOAT else found

    def array(self, what: str) -> list[Any]:
        """Return the next list."""
        kind, count = self.number("I", what), self.number("Q", what)
        if kind == STRING:
            if 8 * count > len(self.data) - self.at:  # each has a length
                raise self.refused(f"{what} has {count:,} texts in {len(self.data) - self.at:,} bytes",
                                   cause="cut off or damaged")  # fmt: skip
            return [self.text(what) for _ in range(count)]
        if kind not in SCALARS:
            raise self.refused(f"{what} is a list of the unknown type {kind}", cause="damaged")
        dtype = np.dtype(f"<{SCALARS[kind]}")
        found = np.frombuffer(self.take(count * dtype.itemsize, what), dtype).tolist()
        return [_shortest(each) for each in found] if kind == FLOAT else found


def _shortest(value: float) -> float:
    """Return the shortest decimal number that is this one in 32 bits: files are made of such."""
    return float(str(np.float32(value))) if math.isfinite(value) else value


def _mapped(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of a file."""
    try:
        if not path.stat().st_size:
            raise ConfigError("an empty file", where=path, path=str(path))
        return np.memmap(path, np.uint8, "r")
    except FileNotFoundError:
        raise ConfigError("no such file", where=path, path=str(path)) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {named(str(error))}", where=path, path=str(path)) from None


def _begun(head: _Head) -> tuple[int, int]:
    """Return how many tensors and how many keys there are."""
    if bytes(head.data[:4]) != MAGIC:
        raise head.refused("is no GGUF file", cause="another format, or damaged")
    head.at = 4
    version = head.number("I", "a version")
    if version & 0xFFFF == 0:
        raise UnsupportedError("a GGUF file whose numbers are big-endian", where=head.path)
    if version not in VERSIONS:
        raise UnsupportedError(f"version {version} of the format", where=head.path, hint="versions 2 and 3 are read")
    return head.number("Q", "a count"), head.number("Q", "a count")


def _keys(head: _Head, count: int) -> dict[str, Any]:
    """Return the keys and their values."""
    found: dict[str, Any] = {}
    if 13 * count > len(head.data):  # a length, a type and a value of a byte
        raise head.refused(f"{count:,} keys in {len(head.data):,} bytes", cause="cut off or damaged")
    for _ in range(count):
        key = head.text("the name of a key", LONGEST_NAME)
        if key in found:
            raise head.refused(f"key {named(key)} stands twice in it")
        found[key] = head.value(key)
    return found


def _tensor(head: _Head, found: dict[str, Any]) -> tuple[str, str, tuple[int, ...], int]:
    """Return name, type, shape and offset of the next tensor."""
    name = head.text("the name of a tensor", LONGEST_NAME)
    if name in found:
        raise head.refused(f"tensor {named(name)} stands twice in it")
    axes = head.number("I", "a shape")
    if not 1 <= axes <= MOST_AXES:
        raise head.refused(f"tensor {named(name)} has {axes:,} axes; there are 1 to {MOST_AXES}", cause="damaged")
    shape = tuple(head.number("Q", "a shape") for _ in range(axes))[::-1]
    kind, offset = head.number("I", "a type"), head.number("Q", "an offset")
    if kind not in KINDS:
        known = ", ".join(KINDS.values())
        raise UnsupportedError(f"tensor {named(name)} is of type {kind}, which is not read", where=head.path,
                               hint=f"one of {known}")  # fmt: skip
    return name, KINDS[kind], shape, offset


def _placed(dtype: str, shape: tuple[int, ...], refused: Callable[[str], ConfigError]) -> tuple[Any, tuple[int, ...]]:
    """Return type and shape of the bytes of a tensor."""
    if dtype not in BLOCKS:
        return TYPES[dtype], shape
    values, size = BLOCKS[dtype]
    if shape[-1] % values:
        raise refused(f"rows of {shape[-1]:,} values, and blocks of {values}")
    return np.dtype(np.uint8), (*shape[:-1], shape[-1] // values * size)


def read_gguf(path: str | Path) -> GgufFile:
    """Return what a GGUF file holds, tensors as views of its memory map.

    Raises
    ------
    ConfigError
        The file is missing, cut off or damaged.
    UnsupportedError
        Its version, byte order or a type of its tensors is not read.
    """
    path = Path(path)
    data = _mapped(path)
    head = _Head(path, memoryview(data.data))
    count, keys = _begun(head)
    metadata = _keys(head, keys)
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise head.refused(f"general.alignment is {shown(alignment)}, no power of two")
    if 25 * count > len(data):  # a length, a shape, a type and an offset
        raise head.refused(f"{count:,} tensors in {len(data):,} bytes", cause="cut off or damaged")
    entries: dict[str, tuple[str, tuple[int, ...], int]] = {}
    for _ in range(count):
        name, dtype, shape, offset = _tensor(head, entries)
        entries[name] = dtype, shape, offset
    begin = -(-head.at // alignment) * alignment
    tensors, places = {}, []
    for name, (dtype, shape, offset) in entries.items():

        def refused(what: str, name: str = name) -> ConfigError:
            return head.refused(f"tensor {named(name)}: {what}", cause="cut off or damaged")

        kind, inner = _placed(dtype, shape, refused)
        size, first = math.prod(inner) * kind.itemsize, begin + offset
        if offset % alignment or first + size > len(data):
            raise refused(f"bytes {first:,} to {first + size:,} of {len(data):,}")
        tensors[name] = Tensor(name, dtype, np.ndarray(inner, kind, data[first : first + size].data))
        places.append((first, first + size, name))
    places.sort()
    for (_, end, one), (first, _, other) in pairwise(places):
        if first < end:
            raise head.refused(f"tensors {named(one)} and {named(other)} overlap", cause="damaged")
    return GgufFile(path, metadata, tensors)
