"""A parameter as weight streaming is given it: bits, and which entries they belong to."""

from __future__ import annotations

from typing import Protocol

import numpy as np

__all__ = ["StreamedParameter", "StreamedPattern"]


class StreamedPattern(Protocol):
    """Which entries of a matrix exist; `memx.pattern.Pattern` is one."""

    @property
    def rows(self) -> np.ndarray:
        """The row of each entry: its output feature."""

    @property
    def indices(self) -> np.ndarray:
        """The column of each entry: its input feature, the bias behind the last one."""

    @property
    def count(self) -> int:
        """The number of entries."""

    @property
    def density(self) -> float:
        """The share of the matrix."""


class StreamedParameter(Protocol):
    """A parameter with its values; `memx.parameter.Parameter` is one."""

    @property
    def name(self) -> str:
        """How it is spoken of."""

    @property
    def values(self) -> np.ndarray:
        """Bit patterns of the entries of `pattern`."""

    @property
    def pattern(self) -> StreamedPattern:
        """Entries that are streamed."""

    @property
    def gradient_pattern(self) -> StreamedPattern:
        """Entries whose gradients are asked for."""

    @property
    def transposed(self) -> tuple[StreamedPattern, np.ndarray]:
        """(Pattern, entry behind each of its entries) of the transposed matrix."""
