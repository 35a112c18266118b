"""Of tables that are looked up the rows go out that a batch asks for; of the others no word goes out and none comes.

A row that is not asked for has a gradient of zero, and is updated as all others are: moments decay.  So that words need
not be laid out anew for every batch, some rows more go out, until their number has four bits that count: at most an
eighth more, and eight numbers from one power of two to the next.

Source: weight streaming white paper, section 4 (what leaves the memory service follows from the batch); how, is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.lookup import LookupTable
from memx.pattern import Pattern

if TYPE_CHECKING:
    from fabric.networks.streamed.parameters import StreamedParameter

__all__ = ["ChosenRows", "chosen_numbers"]

BITS = 4
"""So many bits of a number of rows count, the others are zeros."""


def chosen_numbers(tables: Sequence[LookupTable], ids: NDArray[np.uint16]) -> tuple[NDArray[np.int64], ...]:
    """Return the numbers of each table whose rows go out for a batch, ascending.

    Parameters
    ----------
    tables : sequence of LookupTable
    ids : ndarray of uint16, shape (tables, samples)
        Of all wafers.
    """
    found = []
    for table, mine in zip(tables, ids, strict=True):
        every, used = np.arange(table.first, table.end), np.unique(mine).astype(np.int64)
        used = used[(used >= table.first) & (used < table.end)]
        unit = 1 << max(0, len(used).bit_length() - BITS)
        count = min(len(every), max(1, -(-len(used) // unit) * unit))
        others = np.setdiff1d(every, used, assume_unique=True)[: count - len(used)]
        found.append(np.sort(np.concatenate([used, others])))
    return tuple(found)


class ChosenRows:
    """A parameter is streamed so of which some columns of the matrix, the rows of a table, go out.

    Parameters
    ----------
    whole : StreamedParameter
        Without gaps.
    columns : ndarray of int
    pattern : Pattern
        The dense one of so many columns.
    """

    def __init__(self, whole: StreamedParameter, columns: NDArray[np.int64], pattern: Pattern) -> None:
        self.name, self.statistics = whole.name, whole.statistics
        self.pattern = self.gradient_pattern = pattern
        self.values = whole.values.reshape(whole.pattern.shape)[:, columns].ravel()

    @cached_property
    def transposed(self) -> tuple[Pattern, np.ndarray]:
        """The transposed matrix is (pattern, entry behind each of its entries)."""
        return self.pattern.transpose()
