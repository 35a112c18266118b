"""Features and tokens of an activation lie on the wafer so, and sparse weights are cut into column streams.

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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabric.asm import control
from fabric.kernels.kit.kernel import KernelParam
from wse_core import sparse
from wse_core.errors import ConfigError
from wse_core.formats import Bits

__all__ = [
    "TASKS",
    "Placement",
    "chunks",
    "column_streams",
    "cut",
    "interleave",
    "placement_params",
    "placements",
    "random_mask",
    "resident",
    "sum_tasks",
]

TASKS = {"begin": 0, "pass": 1, "land": 2}
"""The partial-sum commands have these control task ids."""


def chunks(count: int, parts: int) -> NDArray[np.int64]:
    """Return where contiguous, nearly equal parts of `count` things begin, and `count` at the end."""
    size, rest = divmod(count, parts)
    return np.concatenate([[0], np.cumsum([size + (k < rest) for k in range(parts)])]).astype(np.int64)


@dataclass(frozen=True)
class Placement:
    """A placement says where activations of `features` features and `tokens` tokens lie on width x height PEs.

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

    def __post_init__(self) -> None:
        if self.width % self.groups:
            raise ConfigError(
                f"{self.width} columns cannot form {self.groups} equal groups",
                where="layout",
                hint="groups that divide the width",
            )
        if self.tokens < self.height * self.groups:
            raise ConfigError(
                f"{self.tokens} tokens leave some of {self.height} rows in {self.groups} group(s) empty",
                where="layout",
                hint=f"height up to {max(1, self.tokens // self.groups)}",
            )

    @property
    def columns(self) -> int:
        """A group has so many columns of PEs."""
        return self.width // self.groups

    @cached_property
    def feature_starts(self) -> NDArray[np.int64]:
        """Each column of a group begins with this feature; behind the last stands `features`."""
        return chunks(self.features, self.columns)

    @cached_property
    def token_starts(self) -> NDArray[np.int64]:
        """Each part begins with this token: group 0 from north to south, then group 1; and `tokens`."""
        return chunks(self.tokens, self.groups * self.height)

    def owner(self, feature: int) -> int:
        """Return the column of a group that owns a feature."""
        return int(self.owners(np.int64(feature)))

    def owners(self, features: NDArray[np.int64] | np.int64) -> NDArray[np.int64]:
        """Return the column of a group that owns each of some features."""
        return np.asarray(np.searchsorted(self.feature_starts, features, side="right") - 1)

    def held(self, x: int, y: int) -> tuple[slice, slice]:
        """Return (slice of features, slice of tokens) of PE (x, y)."""
        group, column = divmod(x, self.columns)
        part = group * self.height + y
        return (
            slice(*self.feature_starts[column : column + 2].tolist()),
            slice(*self.token_starts[part : part + 2].tolist()),
        )


def placement_params(features: int) -> list[KernelParam]:
    """Return the declarations of the parameters that say what lies where; `features` is the default of both sides."""
    return [
        KernelParam("inputs", features, int, "input features", low=1),
        KernelParam("outputs", features, int, "output features", low=1),
        KernelParam("tokens", 64, int, "tokens: positions of all sequences", low=1),
        KernelParam("width", 4, int, "PEs in x: features", low=1),
        KernelParam("height", 4, int, "PEs in y: tokens", low=1),
        KernelParam("groups", 1, int, "groups of columns: 1 is layout A, more are layout B", low=1),
    ]


def placements(
    where: str, inputs: int, outputs: int, tokens: int, width: int, height: int, groups: int
) -> tuple[Placement, Placement]:
    """Return the `Placement` of input and of output features; `where` says who asks if that is impossible."""
    try:
        return (Placement(inputs, tokens, width, height, groups), Placement(outputs, tokens, width, height, groups))
    except ConfigError as error:
        raise ConfigError(error.what, where=where, hint=error.hint) from None


def resident(name: str, place: Placement, values: Bits) -> Iterator[tuple[str, Bits, int, int]]:
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
            tile[: len(held)] = held
            yield name, tile[None, None], x, y


def random_mask(shape: tuple[int, int], density: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a matrix of bool with round(density * size) true elements, any set of that size equally likely."""
    mask = np.zeros(shape[0] * shape[1], bool)
    mask[rng.permutation(mask.size)[: round(density * mask.size)]] = True
    return mask.reshape(shape)


def cut(
    rows: NDArray[np.int64], owner: NDArray[np.int64], local: NDArray[np.int64], columns: int
) -> list[tuple[NDArray[np.int64], NDArray[np.uint32]]]:
    """Return what each column gets of a stream of matrix entries, [(entries, steps)].

    Parameters
    ----------
    rows : ndarray of int
        Row of each entry.
    owner, local : ndarray of int
        Column of PEs that owns the entry's feature, and the feature's row in that column's tile.
    columns : int

    Returns
    -------
    list of (entries, steps)
        Numbers of the entries, row by row, features ascending; the step of each from the one before it in the row.
    """
    found = []
    for column in range(columns):
        mine = np.flatnonzero(owner == column)
        mine = mine[np.lexsort((local[mine], rows[mine]))]
        starts = np.searchsorted(rows[mine], np.arange(rows.max(initial=-1) + 2))
        _, steps, _ = sparse.encode_steps(starts, local[mine])  # no escapes: a tile has fewer rows than that
        found.append((mine, steps.astype(np.uint32)))
    return found


def interleave(
    rows: NDArray[np.int64], blocks: NDArray[np.int64], before: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the words of rows come to stand when a block of commands goes with each row.

    Parameters
    ----------
    rows : ndarray of int
        Row of each word, ascending.
    blocks : ndarray of int
        Commands per row.
    before : bool
        Commands stand before the words of their row, not behind them.

    Returns
    -------
    tuple of ndarray
        Places of the words, and of the commands.
    """
    n_rows = len(blocks)
    until = np.concatenate([[0], np.cumsum(blocks)])
    words = np.arange(len(rows)) + until[rows + 1 if before else rows]
    ahead = np.searchsorted(rows, np.arange(n_rows), side="left" if before else "right")
    return words, np.arange(until[-1]) + np.repeat(ahead, blocks)


def sum_tasks(owner: NDArray[np.int64], column: int, columns: int) -> NDArray[np.int64]:
    """Return the partial-sum command of each row for a column, given the column that owns each row."""
    if columns == 1:
        return np.full(len(owner), TASKS["land"])
    return np.where(
        owner == column, TASKS["land"], np.where((owner + 1) % columns == column, TASKS["begin"], TASKS["pass"])
    )


def column_streams(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    values: NDArray[np.uint16],
    columns: Placement,
    owners: Placement,
) -> list[tuple[NDArray[np.uint32], NDArray[np.bool_]]]:
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
    n_rows, found = len(indptr) - 1, []
    rows, landing = np.repeat(np.arange(n_rows), np.diff(indptr)), owners.owners(np.arange(n_rows))
    owner = columns.owners(indices)
    commands = np.array([control.single("nop", k) for k in range(3)], np.uint32)
    for column, (entries, steps) in enumerate(
        cut(rows, owner, indices - columns.feature_starts[owner], columns.columns)
    ):
        words, ends = interleave(rows[entries], np.ones(n_rows, np.int64))
        payload, is_control = np.zeros(len(words) + n_rows, np.uint32), np.zeros(len(words) + n_rows, bool)
        payload[words] = sparse.pack(np.asarray(values)[entries], steps)
        payload[ends], is_control[ends] = commands[sum_tasks(landing, column, columns.columns)], True
        found.append((payload, is_control))
    return found
