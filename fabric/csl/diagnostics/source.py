"""A `Source` is a text of CSL, a `Span` a place in it."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

__all__ = ["Source", "Span", "read_text"]

MOST_FILE = 1 << 24
"""A file of more bytes is not read."""


@dataclass(eq=False)
class Source:
    """A `Source` is one file of CSL: its name, its text and where it lies.

    Attributes
    ----------
    name : str
        As messages show it.
    text : str
        The whole text.
    path : pathlib.Path or None
        Where it lies; None for a text that came from elsewhere.
    """

    name: str
    text: str = field(repr=False)
    path: Path | None = None

    @property
    def is_library(self) -> bool:
        """Whether this is a module in angle brackets."""
        return self.name.startswith("<")

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of a character, both from 1."""
        line = max(1, min(bisect_right(self._starts, offset), len(self._starts)))
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return a line without its end; the first has number 1."""
        begin = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[begin:end].rstrip("\r\n")


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """A `Span` is a piece of a source: characters `start` up to, not including, `end`."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        """The first character stands in this line, counted from 1."""
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        """The first character stands in this column, counted from 1."""
        return self.source.position(self.start)[1]

    @property
    def text(self) -> str:
        """The span consists of these characters."""
        return self.source.text[self.start : self.end]

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises
    ------
    OSError
        If it cannot be read, is no plain file, or is too large.
    UnicodeDecodeError
        If it is not UTF-8; comments may have bytes of other encodings.
    """
    if path.exists() and not path.is_file():
        raise OSError(None, "it is no plain file")
    if path.is_file() and path.stat().st_size > MOST_FILE:
        raise OSError(None, f"it has more than {MOST_FILE:,} bytes")
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if b"\0" in data:
            raise
        code = [line.partition(b"//")[0] for line in data.splitlines(keepends=True)]
        if any(not _is_text(line) for line in code):
            raise error from None
        text = data.decode(errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
