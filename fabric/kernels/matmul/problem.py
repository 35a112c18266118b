"""A matrix product is asked for by the mesh of PEs, the sizes and the formats."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Problem"]


@dataclass(frozen=True)
class Problem:
    """A matrix product C = A B that is asked for, before anybody knows whether it fits.

    A product of a matrix and a vector is one with a single column.

    Attributes
    ----------
    width, height : int
        PEs along x and y.
    m, k, n : int
        C is m x n, k is summed over.
    dtype : {"f16", "cb16", "f32"}
        Format of A and B.
    sums : {"f32", "same"}
        Format of C and of the sums: f32 or `dtype`.
    """

    width: int
    height: int
    m: int
    k: int
    n: int = 1
    dtype: str = "f16"
    sums: str = "f32"
