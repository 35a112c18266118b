"""A result is compared as a whole, by a sample, or not at all.

Every kernel takes the parameter ``verify``.  *full* compares every result.  *sample* compares part of the results of
matrix products, chosen so that every row and every column of PEs has taken part in some of them; kernels whose
comparison is cheap beside their run compare everything then too.  *off* compares nothing, and says so.  *auto*, the
default, is *full* up to the sizes below and *sample* beyond them.  The result says the fraction.

A fault that hits all PEs, a row or a column of them is found by a sample; one that hits a single PE is found with the
probability that the fraction says.

Timing: none; a comparison is made after the run.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fabric.kernels.kit.check import Check

__all__ = ["ELEMENTS", "MODES", "PRODUCTS", "asked_for", "compared", "comparing", "joined", "places", "sampling"]

MODES = ("auto", "full", "sample", "off")
ELEMENTS = 1 << 24
"""Elements of the operands up to which *auto* compares everything: beyond, their float64 copies take gigabytes."""
PRODUCTS = 1 << 31
"""Results of at most so many multiply-adds are compared as a whole: about a second of the host."""

_MODE: contextvars.ContextVar[str] = contextvars.ContextVar("verify", default="auto")


@contextmanager
def asked_for(mode: str) -> Iterator[None]:
    """Compare as `mode` says inside the block."""
    token = _MODE.set(mode)
    try:
        yield
    finally:
        _MODE.reset(token)


def comparing() -> bool:
    """Whether anything is to be compared."""
    return _MODE.get() != "off"


def compared(compare: Callable[[], Check]) -> Check:
    """Return what `compare` finds, or a `Check` of nothing if nothing is to be compared."""
    return compare() if comparing() else Check.of_nothing()


def sampling(elements: int, products: int) -> bool:
    """Whether a comparison of operands of so many elements, by so many multiply-adds, is to be sampled."""
    mode = _MODE.get()
    return mode == "sample" or (mode == "auto" and (elements > ELEMENTS or products > PRODUCTS))


def places(height: int, width: int) -> list[tuple[int, int]]:
    """Return (row, column) of PEs such that every row and every column has one of them."""
    return [(k % height, k % width) for k in range(max(height, width))]


def joined(parts: Sequence[Check], results: int) -> Check:
    """Return the comparison of so many results of which `parts` were compared."""
    bounds = [part.max_bound for part in parts if not math.isnan(part.max_bound)]
    errors = [part.max_abs_error for part in parts if part.n_bounded] or [part.max_abs_error for part in parts]
    count = sum(part.n_results for part in parts)
    return Check(
        bit_exact=all(part.bit_exact for part in parts),
        within_bound=all(part.within_bound for part in parts),
        max_abs_error=max(errors, default=0.0),
        max_bound=max(bounds, default=math.nan),
        n_results=count,
        n_bounded=sum(part.n_bounded for part in parts),
        fraction=count / max(1, results),
    )
