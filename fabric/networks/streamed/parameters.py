"""A parameter as weight streaming is given it: bits, and which entries they belong to."""

from __future__ import annotations

from typing import Protocol

import numpy as np

__all__ = ["StreamedParameter", "StreamedPattern", "StreamedStatistics"]


class StreamedPattern(Protocol):
    """Which entries of a matrix exist; `memx.pattern.Pattern` is one."""

    @property
    def shape(self) -> tuple[int, int]:
        """The matrix has so many rows and columns."""

    @property
    def rows(self) -> np.ndarray:
        """Each entry has a row: its output feature."""

    @property
    def indices(self) -> np.ndarray:
        """Each entry has a column: its input feature, the bias behind the last one."""

    @property
    def count(self) -> int:
        """The pattern has so many entries."""

    @property
    def density(self) -> float:
        """This share of the matrix exists."""


class StreamedStatistics(Protocol):
    """What a batch normalisation works with; `memx.statistics.BatchStatistics` is one."""

    @property
    def sent(self) -> dict[str, np.ndarray]:
        """The numbers of each channel that the memory service sends in this pass."""


class StreamedParameter(Protocol):
    """A parameter with its values; `memx.parameter.Parameter` is one."""

    @property
    def name(self) -> str:
        """The parameter is spoken of by this name."""

    @property
    def values(self) -> np.ndarray:
        """The entries of `pattern` have these bit patterns."""

    @property
    def pattern(self) -> StreamedPattern:
        """These entries are streamed."""

    @property
    def statistics(self) -> StreamedStatistics | None:
        """A batch normalisation works with these; None: it is something else."""

    @property
    def gradient_pattern(self) -> StreamedPattern:
        """Gradients are asked for of these entries."""

    @property
    def transposed(self) -> tuple[StreamedPattern, np.ndarray]:
        """The transposed matrix has this (pattern, entry behind each of its entries)."""
