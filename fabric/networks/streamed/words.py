"""The weights of one column of PEs become wavelets: each with the step to its feature, or dense rows in pairs.

*Steps*: a wavelet has a 16-bit weight and the 16-bit step from the feature before it; what is zero is not sent.
*Pairs*: every feature has a weight, so its place follows from the order, and a wavelet has the weights of the next two
features.  The weight of the constant input, and the last one of an odd number, come as commands that carry one value.

Source: weight streaming white paper, section 6.2 (sparse weights carry an index of 16 bits, dense ones none).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

__all__ = ["Words", "pairs", "steps"]


class Words(NamedTuple):
    """Wavelets of a column, row by row, before their values are filled in.

    Attributes
    ----------
    rows : ndarray of int
        Of each wavelet, ascending.
    payload : ndarray of uint32
    is_control : ndarray of bool
    low, high : tuple of (ndarray of int, ndarray of int)
        Wavelets whose low, or high, half is a weight, and the numbers of those weights.
    """

    rows: np.ndarray
    payload: np.ndarray
    is_control: np.ndarray
    low: tuple[np.ndarray, np.ndarray]
    high: tuple[np.ndarray, np.ndarray]


def steps(rows: np.ndarray, entries: np.ndarray, between: np.ndarray) -> Words:
    """Return weights with the steps between them.

    Parameters
    ----------
    rows, entries : ndarray of int
        Row and number of each weight, row by row, features ascending.
    between : ndarray of uint32
        Step of each.
    """
    count, none = len(entries), np.empty(0, np.int64)
    return Words(
        rows, between << np.uint32(16), np.zeros(count, bool), (np.arange(count), np.asarray(entries)), (none, none)
    )


def pairs(rows: np.ndarray, entries: np.ndarray, constant: np.ndarray, alone: Mapping[str, np.ndarray]) -> Words:
    """Return the weights of rows without gaps, two by two.

    Parameters
    ----------
    rows, entries : ndarray of int
        As for `steps`.
    constant : ndarray of bool
        Per row: its first weight is that of the constant input.
    alone : dict[str, ndarray of uint32]
        Payload of the commands ``bias`` and ``last``, which carry one weight.
    """
    counts = np.bincount(rows, minlength=len(constant))
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) - constant[rows]  # -1: constant input
    pairs_of_row = (counts - constant + 1) // 2
    lengths = np.where(counts > 0, pairs_of_row + constant, 0)
    word = (np.cumsum(lengths) - lengths)[rows] + np.where(place < 0, 0, constant[rows] + place // 2)
    payload, is_control = np.zeros(int(lengths.sum()), np.uint32), np.zeros(int(lengths.sum()), bool)
    single = (place % 2 == 0) & (place == (counts - constant)[rows] - 1)
    for name, which in (("bias", place < 0), ("last", single)):
        payload[word[which]], is_control[word[which]] = alone[name], True
    upper = (place >= 0) & (place % 2 == 1)
    entries = np.asarray(entries)
    return Words(
        np.repeat(np.arange(len(constant)), lengths),
        payload,
        is_control,
        (word[~upper], entries[~upper]),
        (word[upper], entries[upper]),
    )
