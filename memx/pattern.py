"""A sparsity pattern says which weights of a matrix exist; it has steps on the wire, and a transpose.

Rows are output features, columns input features.  A pattern never changes; another pattern is another object, so a
transpose is computed once per pattern, not once per iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from wse_core.errors import ConfigError
from wse_core.sparse import decode_steps, encode_steps

__all__ = ["Pattern"]


@dataclass(frozen=True, eq=False)
class Pattern:
    """A sparsity pattern has the CSR form.

    Attributes
    ----------
    shape : tuple[int, int]
        Rows (output features) and columns (input features).
    indptr : numpy.ndarray of int64
        Where each row begins in `indices`.
    indices : numpy.ndarray of int64
        Columns, ascending in each row.
    """

    shape: tuple[int, int]
    indptr: np.ndarray
    indices: np.ndarray

    @classmethod
    def dense(cls, shape: tuple[int, int]) -> Pattern:
        """Return the pattern of a matrix without zeros."""
        rows, columns = shape
        return cls((rows, columns), np.arange(rows + 1, dtype=np.int64) * columns, np.tile(np.arange(columns), rows))

    @classmethod
    def of_mask(cls, mask: ArrayLike) -> Pattern:
        """Return the pattern of the true elements of a matrix."""
        mask = np.asarray(mask, bool)
        if mask.ndim != 2:
            raise ConfigError(f"a mask of shape {mask.shape} is no matrix", where="pattern")
        counts = np.count_nonzero(mask, axis=1)
        rows, columns = mask.shape
        return cls((rows, columns), np.concatenate([[0], np.cumsum(counts)]), np.nonzero(mask)[1])

    @classmethod
    def random(cls, shape: tuple[int, int], density: float, rng: np.random.Generator) -> Pattern:
        """Return a pattern with round(density * size) entries, any set of that size equally likely."""
        if not 0 <= density <= 1:
            raise ConfigError(f"{density} is no density", where="pattern", hint="a number from 0 to 1")
        size = shape[0] * shape[1]
        mask = np.zeros(size, bool)
        mask[rng.permutation(size)[: round(density * size)]] = True
        return cls.of_mask(mask.reshape(shape))

    @classmethod
    def of_steps(cls, shape: tuple[int, int], starts: np.ndarray, steps: np.ndarray) -> Pattern:
        """Return the pattern of received steps."""
        indptr, indices = decode_steps(starts, steps)
        rows, columns = shape
        return cls((rows, columns), indptr, indices)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Pattern)
            and self.shape == other.shape
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def count(self) -> int:
        """The pattern has so many entries."""
        return len(self.indices)

    @property
    def density(self) -> float:
        """Entries make this share of the matrix."""
        size = self.shape[0] * self.shape[1]
        return self.count / size if size else 0.0

    @cached_property
    def rows(self) -> np.ndarray:
        """Each entry lies in one of these rows."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    @cached_property
    def flat(self) -> np.ndarray:
        """Each entry has this place in the dense matrix, row-major."""
        return self.rows * self.shape[1] + self.indices

    def places(self, first: int, end: int) -> tuple[slice, np.ndarray]:
        """Return (slice of the entries of some rows, their places in the dense matrix); nothing of it is kept."""
        part = slice(int(self.indptr[first]), int(self.indptr[end]))
        rows = np.repeat(np.arange(first, end), np.diff(self.indptr[first : end + 1]))
        return part, rows * self.shape[1] + self.indices[part]

    @cached_property
    def steps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`wse_core.sparse.encode_steps` gives these of the pattern: starts, steps, source."""
        return encode_steps(self.indptr, self.indices)

    def mask(self) -> np.ndarray:
        """Return the pattern as a matrix of bool."""
        result = np.zeros(self.shape[0] * self.shape[1], bool)
        result[self.flat] = True
        return result.reshape(self.shape)

    def transpose(self) -> tuple[Pattern, np.ndarray]:
        """Return (pattern of the transposed matrix, entry of this pattern behind each of its entries)."""
        order = np.argsort(self.indices, kind="stable")
        counts = np.bincount(self.indices, minlength=self.shape[1])
        turned = Pattern(self.shape[::-1], np.concatenate([[0], np.cumsum(counts)]), self.rows[order])
        return turned, order
