r"""Two comparisons decide `verified`; the second one has a bound.

**Two comparisons.**  *Bit-exact*: the result equals, bit for bit, what `wse_core.numerics` gives when it is called in
the order in which the PEs calculate.  *Within bounds*: it is as close to plain numpy in float64 as the error analysis
below allows.  The first says that nothing was lost, mixed up or calculated in another order; the second, which shares
neither arithmetic nor order with the machine, says that the order and the arithmetic give the right thing at all.

**Bound.**  Let every result be a sum of terms t_k that are inputs or products of two inputs, calculated by roundings
fl(z) = z (1 + d) + e with |d| <= u, half a unit in the last place of 1, and |e| <= h / 2, where h is the spacing of
the subnormal numbers (e is 0 unless the result is subnormal; a machine that flushes has |e| <= the smallest normal
number, and its inputs are flushed before the comparison).  If every term goes through at most r roundings, and q
roundings are done in all, then

    | computed - sum t_k |  <=  g sum |t_k|  +  q (h / 2) (1 + g),     g = r u / (1 - r u),

because a product of at most r factors (1 + d) differs from 1 by at most g (Higham, Accuracy and Stability of Numerical
Algorithms, lemma 3.1).  numpy's own error in float64, the same with u = 2^-53, is added.  The bound holds if nothing
overflows, which is sure if (1 + g) sum |t_k| is a finite number of the format.  Where that is not sure, because the
data hold NaN, infinities or huge numbers, less is asked: NaN in plain numpy is NaN on the machine, and an infinity in
plain numpy is no finite number on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wse_core.formats import Arithmetic

__all__ = ["BLOCK", "Check", "check_sum", "sequential_sum"]

BLOCK = 1 << 16
"""So many results are compared at a time: a dozen float64 copies of them stay in cache."""


@dataclass(frozen=True)
class Check:
    """A `Check` is the outcome of the two comparisons.

    Attributes
    ----------
    bit_exact : bool
        Equal to the reference in the order of the PEs, bit for bit.
    within_bound : bool
        As close to plain numpy as the derived bound allows, everywhere.
    max_abs_error : float
        Largest distance to plain numpy among the results that a bound applies to (if none: where both are finite).
    max_bound : float
        Largest bound that applied; NaN if none did.
    n_results, n_bounded : int
        Results compared, and those of them that a bound applied to.
    fraction : float
        Share of all results that were compared; 0: nothing was (`fabric.kernels.kit.verify`).
    """

    bit_exact: bool
    within_bound: bool
    max_abs_error: float
    max_bound: float
    n_results: int
    n_bounded: int
    fraction: float = 1.0

    @classmethod
    def of_nothing(cls) -> Check:
        """Return what is said if nothing was compared."""
        return cls(False, False, math.nan, math.nan, 0, 0, 0.0)

    @property
    def verified(self) -> bool:
        """The result is verified if both comparisons succeeded."""
        return self.bit_exact and self.within_bound

    def fields(self) -> dict[str, Any]:
        """Return what a result says about it."""
        compared = self.fraction > 0
        return {
            "verified": self.verified if compared else None,
            "bit_exact": self.bit_exact if compared else None,
            "max_abs_error": self.max_abs_error if compared else None,
            "compared_fraction": self.fraction,
            "max_bound": self.max_bound,
            "n_results": self.n_results,
            "n_bounded": self.n_bounded,
        }


def check_sum(
    arithmetic: Arithmetic,
    got: np.ndarray,
    expected: np.ndarray,
    plain: np.ndarray | None,
    magnitude: np.ndarray | None,
    roundings: int,
    operations: float | None = None,
) -> Check:
    """Compare results that are sums of terms, a part at a time; see the head of this module.

    Parameters
    ----------
    arithmetic : Arithmetic
        Of the results.
    got, expected : ndarray
        Bit patterns from the machine and from the reference.
    plain, magnitude : ndarray of float64
        Sum of the terms and of their absolute values by numpy, of the same shape; None for copies: what `expected` is.
    roundings : int
        Roundings that a term goes through at most; 0 for copies.
    operations : float, optional
        Roundings done in all for one result; default the same.

    Returns
    -------
    Check
    """
    operations = roundings if operations is None else operations
    got, expected = np.asarray(got), np.asarray(expected)
    plain, magnitude = (
        None if given is None else np.broadcast_to(np.asarray(given, np.float64), got.shape)
        for given in (plain, magnitude)
    )
    same = got.shape == expected.shape and all(np.array_equal(got[at], expected[at]) for at in _parts(got.shape, BLOCK))
    n_results, times = got.size, 1
    if same:  # copies of one result are told by the first of them
        first = _first_of_copies(expected, plain, magnitude)
        got, expected = got[first], expected[first]
        plain, magnitude = (None if given is None else given[first] for given in (plain, magnitude))
        times = n_results // max(1, got.size)
    found = []
    for at in _parts(got.shape, BLOCK):
        values = arithmetic.decode(got[at])
        near = arithmetic.decode(expected[at]) if plain is None else plain[at]
        size = np.abs(near) if magnitude is None else magnitude[at]
        found.append(_compared(arithmetic, values, near, size, roundings, operations))
    bounded = sum(part.n_bounded for part in found)
    errors = [part.bounded_error if bounded else part.finite_error for part in found]
    return Check(
        bit_exact=bool(same),
        within_bound=all(part.within_bound for part in found),
        max_abs_error=float(np.max(errors, initial=0.0)),  # NaN, if one is
        max_bound=max((part.max_bound for part in found if part.n_bounded), default=math.nan),
        n_results=int(n_results),
        n_bounded=bounded * times,
    )


def _first_of_copies(*arrays: np.ndarray | None) -> tuple[slice, ...]:
    """Return slices that leave of each axis along which all arrays were broadcast its first place."""
    given = [array for array in arrays if array is not None]
    copied = [all(steps) for steps in zip(*([step == 0 for step in array.strides] for array in given), strict=True)]
    return tuple(slice(1) if copy else slice(None) for copy in copied)


class _Part(NamedTuple):
    """A `_Part` is what was found of a part: as in `Check`; the largest error where a bound applies, and where both are
    finite.
    """

    within_bound: bool
    bounded_error: float
    finite_error: float
    max_bound: float
    n_bounded: int


def _compared(
    arithmetic: Arithmetic,
    values: np.ndarray,
    plain: np.ndarray,
    magnitude: np.ndarray,
    roundings: int,
    operations: float,
) -> _Part:
    """Hold values against plain numpy."""
    growth = arithmetic.growth(roundings)
    host = roundings * 2.0**-52  # g for u = 2^-53, with room
    with np.errstate(over="ignore", invalid="ignore"):
        bound = (growth + host) * magnitude + operations * arithmetic.underflow * (1 + growth)
        applies = np.isfinite(bound) & ((1 + growth) * magnitude <= arithmetic.largest) & np.isfinite(plain)
        error = np.abs(values - plain)
    finite = np.isfinite(values) & np.isfinite(plain)
    sound = np.where(
        applies,
        error <= np.where(applies, bound, 0.0),
        np.where(np.isnan(plain), np.isnan(values), np.isfinite(plain) | ~np.isfinite(values)),
    )
    return _Part(
        bool(sound.all()),
        float(np.max(error, initial=0.0, where=applies)),
        float(np.max(error, initial=0.0, where=finite)),
        float(np.max(bound, initial=0.0, where=applies)),
        int(np.count_nonzero(applies)),
    )


def _parts(shape: tuple[int, ...], most: int) -> Iterator[tuple[slice, ...]]:
    """Yield slices that cut an array into parts of at most so many elements."""
    if math.prod(shape) <= most:
        yield ()
        return
    rest = math.prod(shape[1:])
    step = max(1, most // rest)
    for first in range(0, shape[0], step):
        for inner in _parts(shape[1:], most) if rest > most else ((),):
            yield (slice(first, first + step), *inner)


def sequential_sum(arithmetic: Arithmetic, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return ``parts[-1]``, then ``parts[k] + sum`` for k = -2, -3 ... 0, each addition rounded: a chain of PEs."""
    total = parts[-1]
    for part in parts[-2::-1]:
        total = arithmetic.call("add", part, total)
    return total
