"""Where features and tokens of an activation lie on the wafer, and how sparse weights are cut into column streams.

Features lie in contiguous chunks over x, tokens (positions of all sequences of the batch, one after the other) over y.
In layout A all columns are one group.  In layout B the columns fall into groups; each group holds all features, and the
tokens are also split over the groups, so that tiles are nearer to square and sums have shorter ways.

A stream of weights for a column holds, row by row, the entries whose input feature the column owns: value in the lower
half, step to the feature from the one before in the upper half (`wse_core.sparse`; steps count within the column's
chunk).  After each row a control wavelet tells the column what to do with its partial sums: begin the way round the
ring, pass on, or land, the last for the column that owns the output feature.

Source: weight streaming white paper, sections 7.2 (layouts, figures 15 and 16) and 7.3.1 (commands).
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fabric import control
from wse_core.errors import ConfigError

__all__ = ["TASKS", "Placement", "chunks", "column_streams", "random_mask", "resident"]

TASKS = {"begin": 0, "pass": 1, "land": 2}
"""Control task ids of the partial-sum commands."""


def chunks(count, parts):
    """Return where contiguous, nearly equal parts of `count` things begin, and `count` at the end."""
    size, rest = divmod(count, parts)
    return np.concatenate([[0], np.cumsum([size + (k < rest) for k in range(parts)])]).astype(np.int64)


@dataclass(frozen=True)
class Placement:
    """Activations of `features` features and `tokens` tokens on width x height PEs.

    Attributes
    ----------
    features, tokens : int
    width, height : int
        PEs; `width` is a multiple of `groups`.
    groups : int
        1 is layout A.
    """

    features: int
    tokens: int
    width: int
    height: int
    groups: int = 1

    def __post_init__(self):
        if self.width % self.groups:
            raise ConfigError(f"{self.width} columns cannot form {self.groups} equal groups", where="layout",
                              hint="groups that divide the width")
        if self.tokens < self.height * self.groups:
            raise ConfigError(f"{self.tokens} tokens leave some of {self.height} rows in {self.groups} group(s) empty",
                              where="layout", hint=f"height up to {max(1, self.tokens // self.groups)}")

    @property
    def columns(self):
        """Columns of a group."""
        return self.width // self.groups

    @cached_property
    def feature_starts(self):
        """First feature of each column of a group, and `features`."""
        return chunks(self.features, self.columns)

    @cached_property
    def token_starts(self):
        """First token of each part: group 0 from north to south, then group 1; and `tokens`."""
        return chunks(self.tokens, self.groups * self.height)

    def owner(self, feature):
        """Return the column of a group that owns a feature."""
        return int(np.searchsorted(self.feature_starts, feature, side="right") - 1)

    def held(self, x, y):
        """Return (slice of features, slice of tokens) of PE (x, y)."""
        group, column = divmod(x, self.columns)
        part = group * self.height + y
        return (slice(*self.feature_starts[column:column + 2].tolist()),
                slice(*self.token_starts[part:part + 2].tolist()))


def resident(name, place, values):
    """Yield (symbol, tile, x, y) for every PE: its features, one after the other, each with the PE's tokens.

    Parameters
    ----------
    name : str
        Symbol.
    place : Placement
    values : ndarray, shape (features, tokens)
    """
    most = max(1, int(np.diff(place.feature_starts).max()))
    for x in range(place.width):
        for y in range(place.height):
            features, part = place.held(x, y)
            tile = np.zeros(most * (part.stop - part.start), values.dtype)
            held = values[features, part].reshape(-1)
            tile[:len(held)] = held
            yield name, tile[None, None], x, y


def random_mask(shape, density, rng):
    """Return a matrix of bool with round(density * size) true elements, any set of that size equally likely."""
    mask = np.zeros(shape[0] * shape[1], bool)
    mask[rng.permutation(mask.size)[: round(density * mask.size)]] = True
    return mask.reshape(shape)


def column_streams(indptr, indices, values, columns, owners):
    """Return the wavelets of each column of a group.

    Parameters
    ----------
    indptr, indices : ndarray of int
        The weights in CSR form; rows are output features, columns input features.
    values : ndarray of uint16
        Of the entries.
    columns : Placement
        Of the input features.
    owners : Placement
        Of the output features.

    Returns
    -------
    list of (payload, is control)
        Arrays of uint32 and of bool.
    """
    starts, found = columns.feature_starts, []
    n_rows, n_columns = len(indptr) - 1, columns.columns
    owner = np.searchsorted(owners.feature_starts, np.arange(n_rows), side="right") - 1
    rows = np.repeat(np.arange(n_rows), np.diff(indptr))
    for column in range(n_columns):
        mine = np.flatnonzero((indices >= starts[column]) & (indices < starts[column + 1]))
        local, row = indices[mine] - starts[column], rows[mine]
        steps = np.diff(local, prepend=0)
        first = np.flatnonzero(np.diff(row, prepend=-1))
        steps[first] = local[first]
        entries = np.asarray(values)[mine].astype(np.uint32) | steps.astype(np.uint32) << 16
        if n_columns == 1:
            task = np.full(n_rows, TASKS["land"])
        else:
            task = np.where(owner == column, TASKS["land"],
                            np.where((owner + 1) % n_columns == column, TASKS["begin"], TASKS["pass"]))
        commands = np.array([control.single("nop", int(k)) for k in range(3)], np.uint32)[task]
        place = np.arange(len(mine)) + row  # one command stands after each earlier row
        ends = np.searchsorted(row, np.arange(n_rows), side="right") + np.arange(n_rows)
        payload, is_control = np.zeros(len(mine) + n_rows, np.uint32), np.zeros(len(mine) + n_rows, bool)
        payload[place], payload[ends], is_control[ends] = entries, commands, True
        found.append((payload, is_control))
    return found
