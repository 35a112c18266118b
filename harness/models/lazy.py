"""Weights of a model are made when they are asked for, some rows at a time, so that no more of them is in memory.

`RoundedTensors` is a mapping as `rounded` of a model gives it, of tensors as the PEs have them; but each of its tensors
is only the way to its rows.  What is asked for twice is read, or drawn, and rounded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.models.rounding import Loss

__all__ = ["RoundedTensor", "RoundedTensors"]

Rows = Callable[[int, int], NDArray[np.float32]]
"""Gives the rows from one on and before another one."""


class RoundedTensor:
    """A `RoundedTensor` is a tensor whose rows are made when they are asked for: an index, a slice, or as an array.

    Parameters
    ----------
    shape : tuple of int
    rows : callable
        Gives the rows from one on and before another one.
    """

    def __init__(self, shape: tuple[int, ...], rows: Rows) -> None:
        self.shape, self._rows = shape, rows

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int | slice) -> NDArray[Any]:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            return self._rows(first, max(first, last))[::step]
        found: NDArray[Any] = self._rows(int(index), int(index) + 1)[0]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = self._rows(0, len(self))
        return found if dtype is None else found.astype(dtype, copy=False)


class RoundedTensors(Mapping[str, RoundedTensor]):
    """A `RoundedTensors` has the tensors of a model by their names.

    Parameters
    ----------
    shapes : mapping
        Of each tensor.
    rows : callable
        Gives, for a name, the rows from one on and before another one as float32, and what rounding them lost; None if
        nothing can be lost.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        rows: Callable[[str, int, int], tuple[NDArray[np.float32], Loss | None]],
    ) -> None:
        self._shapes, self._make = shapes, rows
        self._losses: dict[tuple[str, int, int], Loss] = {}

    def __getitem__(self, name: str) -> RoundedTensor:
        def rows(first: int, last: int) -> NDArray[np.float32]:
            found, loss = self._make(name, first, last)
            if loss is not None and last - first > 1:  # the row of a token is no part of the count
                self._losses[name, first, last] = loss
            return found

        return RoundedTensor(self._shapes[name], rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    @property
    def losses(self) -> list[Loss]:
        """All that was asked for has lost this, by tensors or parts of them."""
        return list(self._losses.values())
