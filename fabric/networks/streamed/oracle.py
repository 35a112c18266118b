"""What a wafer computes, by numpy on bit patterns, in the machine's order of operations: the oracle of its tests.

Whole arrays at a time: rows of all columns and PEs together, since no rounding depends on a neighbour except where
columns are joined (ring order), tokens are summed (in order) and PEs are chained (north to south).

Weights are arrays (`Weights`, one per layer): the oracle knows nothing of who keeps, streams or trains them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.placement import cut
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.rows import APART, EPSILON
from fabric.program import functions
from wse_core import numerics
from wse_core.formats import Arithmetic

__all__ = ["Oracle", "Weights"]


@dataclass(frozen=True)
class Weights:
    """Weights of a layer as arrays, and the gradients that are asked for.

    Attributes
    ----------
    values : ndarray of uint16
        Bit patterns of the weights that exist, any order.
    rows, indices : ndarray of int
        Output feature and input feature of each; the input after the last one is that of the bias.
    asked_rows, asked_indices : ndarray of int
        The same for each gradient, in the order in which `Oracle.backward` gives them.
    norm : ndarray of uint16 or None
        Factors, then shifts of a normalised layer.
    """

    values: np.ndarray
    rows: np.ndarray
    indices: np.ndarray
    asked_rows: np.ndarray
    asked_indices: np.ndarray
    norm: np.ndarray | None = None


class Oracle:
    """The same network with the same placement as a `Resident`.

    Parameters
    ----------
    resident : Resident

    Attributes
    ----------
    activations : list of ndarray of uint16, shape (features, samples)
        Of each level, after `forward`.
    """

    def __init__(self, resident: Resident) -> None:
        self.resident, machine = resident, resident.machine
        self.half, self.single = Arithmetic.of(machine, resident.network.dtype), Arithmetic.of(machine, "f32")
        self.functions = functions.Evaluate(machine)

    # --- small pieces -------------------------------------------------------------------------------------------------

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return a + b in f32."""
        return self.single.call("add", a, b)

    def sub(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return a - b in f32."""
        return self.single.call("sub", a, b)

    def mul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return a b in f32."""
        return self.single.call("mul", a, b)

    def widen(self, bits: np.ndarray) -> np.ndarray:
        """Return 16-bit numbers as f32."""
        return np.asarray(numerics.convert(bits, self.half.fmt, "f32", self.half.bias, self.half.ftz), np.uint32)

    def narrow(self, bits: np.ndarray) -> np.ndarray:
        """Return f32 numbers rounded to the 16-bit format."""
        return np.asarray(numerics.convert(bits, "f32", self.half.fmt, self.half.bias, self.half.ftz), np.uint16)

    def joined(self, parts: Sequence[np.ndarray], operation: Callable) -> np.ndarray:
        """Return a sum or maximum over columns, column 0 first; `parts` has one row of samples per column."""
        total = parts[0]
        for part in parts[1:]:
            total = operation(part, total)
        return total

    def over_rows(
        self,
        rows: NDArray[np.uint32],
        level: int,
        operation: Callable[[NDArray[np.uint32], NDArray[np.uint32]], NDArray[np.uint32]],
        start: int,
    ) -> list[NDArray[np.uint32]]:
        """Return per column the operation over its rows, from `start` on."""
        starts, found = self.resident.places[level].feature_starts, []
        for low, high in pairwise(starts):
            total = np.full(rows.shape[1:], start, np.uint32)
            for row in rows[low:high]:
                total = operation(total, row)
            found.append(total)
        return found

    def south(self, vectors: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return sums over the tokens: in each PE from 0, then north to south; the last axis goes."""
        r = self.resident
        by_pe = vectors.reshape(*vectors.shape[:-1], r.height, r.tokens)
        own = np.zeros(by_pe.shape[:-1], np.uint32)
        for token in range(r.tokens):
            own = self.add(by_pe[..., token], own)
        total = own[..., 0]
        for y in range(1, r.height):
            total = self.add(total, own[..., y])
        return total

    # --- passes -------------------------------------------------------------------------------------------------------

    def product(
        self,
        values: NDArray[np.uint16],
        rows: NDArray[np.int64],
        owner: NDArray[np.int64],
        local: NDArray[np.int64],
        source: NDArray[np.uint16],
        landing: NDArray[np.int64],
    ) -> NDArray[np.uint16]:
        """Return a streamed product, rounded to 16 bits."""
        columns = self.resident.width
        samples = source.shape[-1]
        parts = np.zeros((columns, len(landing), samples), np.uint32)
        for column, (order, _) in enumerate(cut(rows, owner, local, columns)):
            by_feature = order[np.argsort(local[order], kind="stable")]
            ends = np.flatnonzero(np.diff(local[by_feature], append=-1)) + 1
            for entries in np.split(by_feature, ends)[:-1]:
                at, feature = rows[entries], local[entries[0]]
                parts[column, at] = self.half.call(
                    "fma_mixed", values[entries][:, None], source[column, feature][None], parts[column, at]
                )
        total = parts[(landing + 1) % columns, np.arange(len(landing))]
        for step in range(2, columns + 1):
            total = self.add(parts[(landing + step) % columns, np.arange(len(landing))], total)
        return self.narrow(total)

    def tiles(self, level: int, rows: NDArray[np.uint16], ones: bool) -> NDArray[np.uint16]:
        """Return the rows by column and place in its tile, a row of ones first if asked for."""
        place, first = self.resident.places[level], int(ones)
        found = np.zeros((self.resident.width, first + self.resident.most[level], rows.shape[1]), np.uint16)
        found[:, 0] = self.resident.one if ones else 0
        for column in range(self.resident.width):
            low, high = place.feature_starts[column : column + 2]
            found[column, first : first + high - low] = rows[low:high]
        return found

    def forward(self, inputs: np.ndarray, weights: Sequence[Weights]) -> np.ndarray:
        """Return the logits of a batch, bit patterns of shape (classes, samples); `weights` has one per layer."""
        self.weights = weights
        self.activations: list[NDArray[np.uint16]] = [inputs]
        self.slopes: list[NDArray[np.uint16] | None] = [None]
        self.norms: dict[int, tuple[NDArray[np.uint16], NDArray[np.uint32]]] = {}
        for level, layer in enumerate(self.resident.network.layers, 1):
            given, place = weights[level - 1], self.resident.places[level]
            rows = self.product(
                given.values,
                given.rows,
                *self.resident.located(given.rows, given.indices, level),
                self.tiles(level - 1, self.activations[-1], True),
                place.owners(np.arange(layer.outputs)),
            )
            if layer.norm:
                rows, unit, inverse = self.normalise(level, rows)
                self.norms[level] = unit, inverse
            rows, slopes = self.activate(layer.activation, rows)
            self.activations.append(rows)
            self.slopes.append(slopes)
        return self.activations[-1]

    def activate(
        self, activation: str, rows: NDArray[np.uint16]
    ) -> tuple[NDArray[np.uint16], NDArray[np.uint16] | None]:
        """Return (activations, slopes)."""
        if activation == "relu":
            rows = self.half.call("maximum", rows, np.zeros_like(rows))
            return rows, np.where(rows.view(np.int16) > 0, self.resident.one, 0).astype(np.uint16)
        if activation == "gelu":
            values, slopes = self.functions.gelu(self.widen(rows))
            return self.narrow(values), self.narrow(slopes)
        return rows, None

    def below(self) -> NDArray[np.uint32]:
        """Return the logits less the largest of their sample, in f32."""

        def larger(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> NDArray[np.uint32]:
            return self.single.call("maximum", a, b)

        logits = self.widen(self.activations[-1])
        peak = self.joined(self.over_rows(logits, len(self.resident.network.layers), larger, 0xFF800000), larger)
        return self.sub(logits, peak[None])

    def right(self, labels: np.ndarray) -> np.ndarray:
        """Return per column how many samples no logit of which is larger than that of their label, as f32 bits."""
        below, one = self.below(), np.float32(1).view(np.uint32)
        far = self.mul(below, np.full_like(below, np.float32(APART).view(np.uint32)))
        found = self.add(self.single.call("maximum", far, np.full_like(far, one | 1 << 31)), np.full_like(far, one))
        level = len(self.resident.network.layers)
        return self.south(np.array(self.over_rows(self.mul(found, self.widen(labels)), level, self.add, 0)))

    def loss(self, labels: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """Return (losses per column as f32 bits, gradients of the logits)."""
        level, below, wanted = len(self.resident.network.layers), self.below(), self.widen(labels)
        hits = np.array(self.over_rows(self.mul(wanted, below), level, self.sub, 0))
        powers = self.functions.exp(below)
        sums = self.joined(self.over_rows(powers, level, self.add, 0), self.add)
        share = self.functions.reciprocal(sums)
        hits[0] = self.add(hits[0], self.functions.log(sums))
        delta = self.sub(self.mul(share[None], powers), wanted)
        bits = np.uint32(int(np.array(scale, np.float32).view(np.uint32)) & 0xFFFF0000)
        return self.south(hits), self.narrow(self.mul(delta, np.full_like(delta, bits)))

    def backward(self, delta: np.ndarray) -> list[tuple[np.ndarray, np.ndarray | None]]:
        """Return the gradients that are asked for: per layer f32 bits of its weights, and of its factors and shifts."""
        layers, found = self.resident.network.layers, []
        for level in range(len(layers), 0, -1):
            layer, given, norm = layers[level - 1], self.weights[level - 1], None
            below, above = self.resident.places[level - 1], self.resident.places[level]
            if layer.norm:
                delta, norm = self.denormalise(level, delta)
            source = np.concatenate(
                [self.activations[level - 1], np.full((1, delta.shape[1]), self.resident.one, np.uint16)]
            )
            products = self.mul(self.widen(source[given.asked_indices]), self.widen(delta[given.asked_rows]))
            found.append((self.south(products), norm))
            if level > 1:
                kept = given.indices < layer.inputs  # nothing goes back through a bias
                owner = above.owners(given.rows[kept])
                rows = self.product(
                    given.values[kept],
                    given.indices[kept],
                    owner,
                    given.rows[kept] - above.feature_starts[owner],
                    self.tiles(level, delta, False),
                    below.owners(np.arange(layer.inputs)),
                )
                slopes = self.slopes[level - 1]
                delta = rows if slopes is None else self.half.call("mul", slopes, rows)
        return found[::-1]

    # --- normalisation ------------------------------------------------------------------------------------------------

    def constant(self, level: int) -> NDArray[np.uint32]:
        """Return 1 / features as bits."""
        return np.array(1 / self.resident.places[level].features, np.float32).view(np.uint32)

    def mean(self, rows: NDArray[np.uint32], level: int) -> NDArray[np.uint32]:
        """Return the mean over the features."""
        total = self.joined(self.over_rows(rows, level, self.add, 0), self.add)
        return self.mul(total, np.full_like(total, self.constant(level)))

    def factors(self, level: int, row: int) -> NDArray[np.uint16]:
        """Return the factors (row 0) or shifts (row 1) of a normalised layer as a column of 16-bit patterns."""
        return np.asarray(self.weights[level - 1].norm).reshape(2, -1)[row][:, None]

    def normalise(
        self, level: int, rows: NDArray[np.uint16]
    ) -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint32]]:
        """Return (rows, normalised rows, 1 / deviation)."""
        wide = self.widen(rows)
        centred = self.sub(wide, self.mean(wide, level)[None])
        variance = self.mean(self.mul(centred, centred), level)
        epsilon = np.full_like(variance, np.array(EPSILON, np.float32).view(np.uint32))
        inverse = self.functions.rsqrt(self.add(variance, epsilon))
        unit = self.narrow(self.mul(centred, inverse[None]))
        shifted = self.half.call("fma_mixed", unit, self.factors(level, 0), self.widen(self.factors(level, 1)))
        return self.narrow(shifted), unit, inverse

    def denormalise(self, level: int, delta: NDArray[np.uint16]) -> tuple[NDArray[np.uint16], NDArray[np.uint32]]:
        """Return (gradients of the rows before normalisation, gradients of factors and shifts)."""
        unit, inverse = self.norms[level]
        wide, wide_unit = self.widen(delta), self.widen(unit)
        gradients = np.concatenate([self.south(self.mul(wide, wide_unit)), self.south(wide)])
        scaled = self.half.call("fma_mixed", delta, self.factors(level, 0), np.zeros_like(wide))
        mean, dot = self.mean(scaled, level), self.mean(self.mul(scaled, wide_unit), level)
        back = self.sub(self.sub(scaled, mean[None]), self.mul(wide_unit, dot[None]))
        return self.narrow(self.mul(back, inverse[None])), gradients
