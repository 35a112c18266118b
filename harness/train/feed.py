"""A program may hand samples over batch by batch, in the place of `harness.train.data.DataService`.

Anything that can be iterated over serves: a list, an object that begins anew with each `iter`, a generator.  Each item
is one batch over all wafers.  Only batches that are needed are asked for, so the data need not fit memory.  A run that
goes on from a checkpoint passes over those that it has used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from harness.train.sources import marked
from wse_core.errors import CheckpointError, ConfigError

__all__ = ["BatchFeed"]


class BatchFeed:
    """A `BatchFeed` gives every wafer its shard of batches that come from outside.

    Parameters
    ----------
    batches : iterable of (inputs, labels)
        Real numbers of shape (batch, features), whole numbers of shape (batch,) or (batch, rows, columns), or targets.
    size, wafers, features, classes : int
        Samples of a batch, and what they are cut into and must be.
    some : bool
        Labels may be -100: none.
    image : sequence of int
        Each pixel of so many rows and columns has a label; empty: each sample has one.
    targets : int
        Instead of labels so many numbers are wanted of a sample: shape (batch, ...); NaN, if `some`, for none.

    Examples
    --------
    >>> feed = BatchFeed([(np.eye(4), [0, 1, 0, 1])], 4, wafers=2, features=4, classes=2)
    >>> [(x.shape, y.tolist()) for x, y in feed.batch(0)]
    [((2, 4), [0, 1]), ((2, 4), [0, 1])]
    """

    def __init__(
        self,
        batches: Iterable[tuple[ArrayLike, ArrayLike]],
        size: int,
        wafers: int,
        features: int,
        classes: int,
        some: bool = False,
        image: Sequence[int] = (),
        targets: int = 0,
    ) -> None:
        self.batches, self.size, self.wafers, self.some, self.image = batches, size, wafers, some, tuple(image)
        self.features, self.classes, self.targets = features, classes, targets
        self._begin()

    def _begin(self) -> None:
        try:
            self._iterator: Iterator[Any] = iter(self.batches)
        except TypeError:
            raise ConfigError(
                f"a {type(self.batches).__name__} gives no batches", where="data", hint="a list or a generator of them"
            ) from None
        self._taken, self._present = 0, (np.empty(0, np.float32), np.empty(0, np.int64))

    def _go_to(self, iteration: int) -> None:
        """Make the batch of an iteration, counted from 0, the present one."""
        if iteration < self._taken - 1:
            if iter(self.batches) is self.batches:
                raise ConfigError(
                    f"batch {iteration + 1} is wanted again, and a generator cannot go back",
                    where="data",
                    hint="a list, or an object whose __iter__ begins anew",
                )
            self._begin()
        while self._taken <= iteration:
            try:
                item = next(self._iterator)
            except StopIteration:
                raise ConfigError(
                    f"there are no batches after {self._taken}",
                    where="data",
                    hint="as many as train.iterations, or data without an end",
                ) from None
            self._taken += 1
            if self._taken > iteration:
                self._present = self._checked(item)

    def _checked(self, item: Any) -> tuple[np.ndarray, np.ndarray]:
        where = f"data: batch {self._taken}"
        try:
            inputs, labels = item
            x, y = np.asarray(inputs, np.float32), np.asarray(labels)
        except (TypeError, ValueError):
            raise ConfigError("is no pair of inputs and labels", where=where) from None
        x = x.reshape(len(x), -1) if x.ndim > 2 else x
        if self.targets:
            return x, self._aimed(x, y, where)
        if x.shape != (self.size, self.features) or y.shape != (self.size, *self.image):
            raise ConfigError(
                f"inputs of shape {x.shape} and labels of shape {y.shape}",
                where=where,
                hint=f"{(self.size, self.features)} and {(self.size, *self.image)}",
            )
        if y.dtype.kind not in "iu" or not np.isfinite(x).all():
            raise ConfigError("labels are whole numbers and inputs finite ones", where=where)
        y = marked(y.astype(np.int64), where) if self.some else y.astype(np.int64)
        if y.min() < -int(self.some) or y.max() >= self.classes:
            raise ConfigError(f"labels are {y.min()} to {y.max()}, there are {self.classes} classes", where=where)
        return x, y.reshape(len(y), -1) if self.image else y

    def _aimed(self, x: np.ndarray, y: np.ndarray, where: str) -> np.ndarray:
        """Return the targets of a batch as rows."""
        rows = y.reshape(len(y), -1) if y.ndim else y
        if x.shape != (self.size, self.features) or rows.shape != (self.size, self.targets):
            raise ConfigError(
                f"inputs of shape {x.shape} and targets of shape {y.shape}",
                where=where,
                hint=f"{(self.size, self.features)} and {(self.size, self.targets)}",
            )
        if y.dtype.kind not in "fiu" or not np.isfinite(x).all():
            raise ConfigError("targets are numbers and inputs finite ones", where=where)
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float32)
        none = np.isnan(rows)
        if np.isinf(rows).any() or (none.any() and not self.some) or (none.any(1) != none.all(1)).any():
            hint = "all NaN for a token without targets" if self.some else None
            raise ConfigError("targets are not finite", where=where, hint=hint)
        return rows

    def parts(self, iteration: int, count: int) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Return the shards of an iteration, as `harness.train.data.DataService.parts` does."""
        self._go_to(iteration)
        x, y = self._present
        cut = zip(np.split(x, count * self.wafers), np.split(y, count * self.wafers), strict=True)
        shards = list(cut)
        return [shards[k * self.wafers : (k + 1) * self.wafers] for k in range(count)]

    def batch(self, iteration: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the shards of an iteration, counted from 0, one per wafer."""
        return self.parts(iteration, 1)[0]

    def state(self) -> dict[str, Any]:
        """Return the position in the data, as data for JSON."""
        return {"batches": self._taken, "batch": self.size}

    def restore(self, state: Any) -> None:
        """Go on after the batches that were used; they are asked for and passed over.

        Raises
        ------
        CheckpointError
            It is no such state, or that of other data.
        """
        if not isinstance(state, dict) or type(state.get("batches")) is not int or state.get("batch") != self.size:
            raise CheckpointError(
                "the checkpoint was made with other data", hint="batches of the same size from the same place"
            )
