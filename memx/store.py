"""The dense store of a parameter lies in memory, or in files for runs that are larger than memory.

A file holds one float32 array, row-major, and is mapped: pages come and go with use.  `memx.parameter` touches it row
by row in the order of the stream, a block at a time (`BLOCK`), so memory holds a block, not the model; the index and
the 16-bit values of the active weights stay in memory.  Files are what is read and written here at real speed; how fast
the modelled service does it is `memx.tiers`.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np

from wse_core.errors import ConfigError

__all__ = ["BLOCK", "FileStore", "MemoryStore", "row_blocks"]

BLOCK = 1 << 20
"""So many elements of a matrix are worked on at a time."""


def row_blocks(shape: tuple[int, ...], block: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield (first row, row after the last) of blocks of at most `block` elements, at least one row each."""
    rows, columns = shape
    step = max(1, (block or BLOCK) // max(1, columns))
    for start in range(0, rows, step):
        yield start, min(rows, start + step)


class MemoryStore:
    """This store has its arrays in memory."""

    def zeros(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array of float32 zeros; `name` says what it is for."""
        return np.zeros(shape, np.float32)

    def flush(self) -> None:
        """Do nothing: there is nothing to write."""


class FileStore:
    """This store has its arrays in files of a directory.

    Parameters
    ----------
    directory : path
        Made if it is not there.  Files of other stores in it are not touched, files of the same name are opened.
    scratch : bool, optional
        Files without names: nobody else can meet them, and they are gone when the process ends, however it does.  Their
        room is taken at once, so that a full disk is an error here and not a signal later.

    Raises
    ------
    ConfigError
        The directory cannot be made.
    """

    def __init__(self, directory: str | PathLike[str], scratch: bool = False) -> None:
        self.directory, self.scratch = Path(directory), scratch
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot be made: {error.strerror}", where=f"file store {self.directory}", hint="another directory"
            ) from None
        self._arrays: dict[str, np.memmap] = {}

    def zeros(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return a mapped array of float32 in a new file; the file system writes zeros where nothing was written.

        Raises
        ------
        ConfigError
            The name is used already or is no file name, or the disk has no room.
        """
        path = self._path(name)
        if path.exists():
            raise ConfigError(
                f"{path.name} is there already",
                where=f"file store {self.directory}",
                hint="open() reads it; another directory begins anew",
            )
        return self._map(path, name, shape, "w+")

    def open(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return the mapped array of a file that is there.

        Raises
        ------
        ConfigError
            There is no such file, or it has another size; the message names the bytes.
        """
        path, wanted = self._path(name), 4 * math.prod(shape)
        size = path.stat().st_size if path.exists() else None
        if size != wanted:
            there = "is not there" if size is None else f"has {size:,} bytes"
            raise ConfigError(
                f"{path.name} {there}, {shape} in float32 takes {wanted:,}", where=f"file store {self.directory}"
            )
        return self._map(path, name, shape, "r+")

    def fill(self, name: str, shape: tuple[int, ...], rows: Callable[[int, int], np.ndarray]) -> np.ndarray:
        """Return a new array whose rows are made a block at a time.

        Parameters
        ----------
        rows : callable
            ``rows(first, end)`` returns float32 of shape (end - first, columns).
        """
        array = self.zeros(name, shape)
        for first, end in row_blocks(shape):
            array[first:end] = rows(first, end)
        return array

    def flush(self) -> None:
        """Write everything to the files."""
        for array in self._arrays.values():
            array.flush()

    def _path(self, name: str) -> Path:
        if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
            raise ConfigError(
                f"{name!r} is no name of a file",
                where=f"file store {self.directory}",
                hint="letters, digits, dot, dash and underscore",
            )
        return self.directory / f"{name}.f32"

    def _map(self, path: Path, name: str, shape: tuple[int, ...], mode: Literal["r+", "w+"]) -> np.ndarray:
        if 0 in shape:
            return np.zeros(shape, np.float32)
        try:
            if self.scratch:
                self._arrays[name] = self._nameless(shape)
            else:
                self._arrays[name] = np.memmap(path, np.float32, mode, shape=tuple(shape))
        except OSError as error:
            raise ConfigError(
                f"{4 * math.prod(shape):,} bytes cannot be mapped: {error.strerror}",
                where=str(path),
                hint="a directory with room",
            ) from None
        return self._arrays[name]

    def _nameless(self, shape: tuple[int, ...]) -> np.memmap:
        """Return a mapped array of zeros in a file that has no name."""
        with tempfile.TemporaryFile(dir=self.directory) as file:
            os.posix_fallocate(file.fileno(), 0, 4 * math.prod(shape))
            return np.memmap(file, np.float32, "r+", shape=tuple(shape))
