"""A parameter as the oracle is given it: bits, and which entries they belong to."""

from __future__ import annotations

from typing import Protocol

import numpy as np

__all__ = ["Entries", "StreamedWeights"]


class Entries(Protocol):
    """Places in a matrix, in any order."""

    @property
    def rows(self) -> np.ndarray:
        """The output feature of each."""

    @property
    def indices(self) -> np.ndarray:
        """The input feature of each; the one after the last is that of the bias."""


class StreamedWeights(Protocol):
    """A parameter with its values; `memx.parameter.Parameter` is one."""

    @property
    def values(self) -> np.ndarray:
        """Bit patterns of the entries of `pattern`."""

    @property
    def pattern(self) -> Entries:
        """Weights that exist."""

    @property
    def gradient_pattern(self) -> Entries:
        """Weights whose gradients are asked for."""
