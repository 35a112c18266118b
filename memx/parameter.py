"""One weight matrix in the memory service has a dense store beside a sparse one.

*Dense*: FP32 weights and optimizer state of every element, zeros included; the truth.  *Sparse*: the active weights as
16-bit values in one array, in row order.  The forward stream reads the array with the pattern's own steps, the backward
stream reads the same array through the transposed pattern; only the index is ever transposed, and only when the pattern
changes (white paper, section 7.4).

The dense store is worked on a block of rows at a time and may lie in files (`memx.store`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from memx.optimizer import Optimizer
from memx.pattern import Pattern
from memx.statistics import BatchStatistics
from memx.store import FileStore, MemoryStore, row_blocks
from wse_core import numerics
from wse_core.errors import ConfigError
from wse_core.sparse import pack

if TYPE_CHECKING:
    from fabric.networks.streamed.parameters import StreamedParameter
    from wse_core.numerics import Stored

__all__ = ["FORMATS", "Parameter"]

FORMATS = ("f16", "cb16", "bf16")
"""The stream has these 16-bit formats."""


class Parameter:
    """A parameter is a weight matrix with its optimizer state.

    Parameters
    ----------
    name : str
    weights : array_like of float32, shape (outputs, inputs)
        Initial values; kept in place if they are a float32 array in row-major order that can be written, a memory map
        for example.
    fmt : {"f16", "cb16", "bf16"}
        Format of the stream.
    bias : int
        Exponent bias of cb16.
    pattern : Pattern, optional
        Active weights; default all.
    slots : sequence of str
        Names of the optimizer's state.
    store : MemoryStore or FileStore, optional
        Where the optimizer's state lies; weights lie where they were made.

    Attributes
    ----------
    dense : numpy.ndarray of float32
    state : dict[str, numpy.ndarray of float32]
        Optimizer state, shaped as `dense`.
    pattern : Pattern
        Active weights.
    gradient_pattern : Pattern
        Elements whose gradients are asked for; follows `pattern` unless set apart, or all if `by_rows`.
    by_rows : bool
        Whether gradients are asked for by whole rows, also of weights that do not exist: a dense matrix's are cheaper.
    whole : bool
        Whether rows are streamed whole, zeros where no weight exists: a dense matrix has no steps.
    values : numpy.ndarray of uint16
        Active weights in the format of the stream, in row order.
    transposes : int
        How often an index was transposed.
    decaying : int or None
        So many columns, the first ones, are subject to weight decay; None: all.
    statistics : BatchStatistics or None
        Of a batch normalisation.
    """

    def __init__(
        self,
        name: str,
        weights: ArrayLike,
        fmt: str = "f16",
        bias: int = 42,
        pattern: Pattern | None = None,
        slots: Sequence[str] = (),
        store: MemoryStore | FileStore | None = None,
    ) -> None:
        if fmt not in FORMATS:
            raise ConfigError(
                f"weights cannot be streamed as {fmt!r}", where=f"parameter {name}", hint=", ".join(FORMATS)
            )
        self.name, self.fmt, self.bias = name, cast("Stored", fmt), bias
        if np.ndim(weights) != 2:
            raise ConfigError(f"weights of shape {np.shape(weights)} are no matrix", where=f"parameter {name}")
        self.dense = np.require(weights, np.float32, ["C", "W"])
        store = store or MemoryStore()
        self.state = {slot: store.zeros(f"{name}.{slot}", self.dense.shape) for slot in slots}
        self.transposes, self.decaying = 0, cast("int | None", None)
        self.by_rows = self.whole = False
        self.statistics = cast("BatchStatistics | None", None)
        self._gradient_pattern: Pattern | None = None
        self.set_pattern(pattern or Pattern.dense(self.dense.shape))

    # --- patterns -----------------------------------------------------------------------------------------------------

    def set_pattern(self, pattern: Pattern) -> None:
        """Change which weights are active; others keep their place in the dense store, but are not streamed."""
        if pattern.shape != self.dense.shape:
            raise ConfigError(
                f"a pattern of {pattern.shape} does not fit weights of {self.dense.shape}",
                where=f"parameter {self.name}",
            )
        self.pattern = pattern
        self._transposed: tuple[Pattern, np.ndarray] | None = None
        self.refresh()

    @cached_property
    def _everywhere(self) -> Pattern:
        return Pattern.dense(self.dense.shape)

    @property
    def gradient_pattern(self) -> Pattern:
        """Gradients are asked for of these elements."""
        if self._gradient_pattern is not None:
            return self._gradient_pattern
        return self._everywhere if self.by_rows and self.pattern.density < 1 else self.pattern

    @gradient_pattern.setter
    def gradient_pattern(self, pattern: Pattern | None) -> None:
        self._gradient_pattern = pattern

    @property
    def transposed(self) -> tuple[Pattern, np.ndarray]:
        """The transposed matrix is (pattern, entry behind each of its entries); computed when the pattern is new."""
        if self._transposed is None:
            self._transposed = self.pattern.transpose()
            self.transposes += 1
        return self._transposed

    def become(self, pattern: Pattern) -> int:
        """Change which weights are active; return how many come.  They begin at zero, as does their state."""
        new = np.flatnonzero(pattern.mask() & ~self.pattern.mask())
        for array in (self.dense, *self.state.values()):
            array.reshape(-1)[new] = 0
        self.set_pattern(pattern)
        return len(new)

    # --- streams ------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Round the active weights of the dense store to the format of the stream, to nearest even."""
        self.values = np.empty(self.pattern.count, np.uint16)
        for first, end in row_blocks(self.dense.shape):
            part, places = self.pattern.places(first, end)
            self.values[part] = self._rounded(self.dense.reshape(-1)[places])

    def _rounded(self, weights: np.ndarray) -> np.ndarray:
        """Return float32 weights in the format of the stream."""
        bits = np.ascontiguousarray(weights).view(np.uint32)
        return np.asarray(numerics.convert(bits, "f32", self.fmt, self.bias, False), np.uint16)

    def forward(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (starts, wavelets) of the forward stream: rows in order, each beginning at its place in `starts`."""
        starts, steps, source = self.pattern.steps
        return starts, pack(_with_escapes(self.values, source), steps)

    def backward(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (starts, wavelets) of the backward stream: the rows of the transposed matrix."""
        pattern, entries = self.transposed
        starts, steps, source = pattern.steps
        return starts, pack(_with_escapes(self.values[entries], source), steps)

    def request(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (starts, steps) of the gradients that are asked for, in the form of an index."""
        starts, steps, _ = self.gradient_pattern.steps
        return starts, steps

    @property
    def streamed(self) -> StreamedParameter:
        """The parameter itself is streamed, or its whole rows are."""
        return _WholeRows(self) if self._filled else self

    @property
    def _filled(self) -> bool:
        return self.whole and self.pattern.density < 1

    @cached_property
    def _turned(self) -> tuple[Pattern, np.ndarray]:
        return self._everywhere.transpose()

    def spread(self, own: np.ndarray) -> np.ndarray:
        """Return numbers of the active weights as numbers of what is streamed, zero for what stands in a gap."""
        if not self._filled:
            return own
        found = np.zeros(self.dense.size, own.dtype)
        found[self.pattern.flat] = own
        return found

    def rounded(self) -> np.ndarray:
        """Return the active weights as the stream has them, float32; others are zero."""
        found = np.zeros(self.dense.size, np.float32)
        bits = numerics.convert(self.values, self.fmt, "f32", self.bias, False)
        found[self.pattern.flat] = np.asarray(bits, np.uint32).view(np.float32)
        return found.reshape(self.dense.shape)

    # --- updates ------------------------------------------------------------------------------------------------------

    def update(self, optimizer: Optimizer, step: int, gradients: ArrayLike, lr: float | None = None) -> None:
        """Update the active weights.

        Parameters
        ----------
        optimizer : Optimizer
        step : int
            From 1.
        gradients : array_like of float32
            One per entry of `gradient_pattern`, in its order; those of inactive weights are not used.
        lr : float, optional
            Learning rate of this step.
        """
        g = np.asarray(gradients, np.float32)
        asked = self.gradient_pattern
        if g.shape != (asked.count,):
            raise ConfigError(
                f"{g.size} gradients for {asked.count} that were asked for", where=f"parameter {self.name}"
            )
        dense, columns = self.dense.reshape(-1), self.dense.shape[1]
        for first, end in row_blocks(self.dense.shape):
            part, places = self.pattern.places(first, end)
            if asked is self.pattern:
                mine = g[part]
            else:
                block, here = np.zeros((end - first) * columns, np.float32), asked.places(first, end)
                block[here[1] - first * columns] = g[here[0]]
                mine = block[places - first * columns]
            state = {slot: np.asarray(array.reshape(-1)[places]) for slot, array in self.state.items()}
            decaying = None if self.decaying is None else places % columns < self.decaying
            dense[places] = optimizer.update(step, np.asarray(dense[places]), mine, state, lr, decaying)
            for slot, array in self.state.items():
                array.reshape(-1)[places] = state[slot]
            self.values[part] = self._rounded(np.asarray(dense[places]))


class _WholeRows:
    """A parameter is streamed so if zeros stand where no weight exists."""

    def __init__(self, parameter: Parameter) -> None:
        self.name, self.statistics = parameter.name, parameter.statistics
        self.pattern, self.transposed = parameter._everywhere, parameter._turned
        self.gradient_pattern = parameter.gradient_pattern
        self.values = parameter.spread(parameter.values)


def _with_escapes(values: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Return the value of each step; escapes carry zero."""
    result = np.zeros(len(source), np.uint16)
    real = source >= 0
    result[real] = values[source[real]]
    return result
