"""The oracle of look-ups: numbers are compared with those of rows, and rows added, the bias's first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.lookup import tables_of
from fabric.networks.graph.nodes import Node
from fabric.networks.streamed.oracle.mesh import MeshArithmetic
from fabric.networks.streamed.parameters import StreamedParameter

__all__ = ["ask", "forward"]

Halves = NDArray[np.uint16]
Said = Sequence[NDArray[np.int64]]


def forward(
    a: MeshArithmetic, node: Node, ids: Halves, weights: StreamedParameter, said: Said
) -> tuple[Halves, Halves]:
    """Return (sum of the rows of all tables that have the numbers of samples, the numbers).

    `said` are the numbers of each table whose rows the weights are, or nothing: all rows.
    """
    whole = np.asarray(weights.values).reshape(weights.pattern.shape)
    total = np.zeros((len(whole), ids.shape[1]), np.uint32)
    if node.size("bias"):
        total = a.fma(whole[:, -1:], np.full((1, ids.shape[1]), a.one, np.uint16), total)
    finite = bool(np.isfinite(a.half.decode(whole)).all())
    for mine, numbers, first, mark in _tables(a, node, ids, said):
        if finite:  # whatever has another number adds zeros
            at = np.minimum(np.searchsorted(numbers, mine), len(numbers) - 1)
            marks = np.where(numbers[at] == mine, mark, np.uint16(0))
            total = a.fma(whole[:, first + at], marks[None], total)
        for place, number in enumerate(() if finite else numbers):
            total = a.fma(whole[:, first + place, None], np.where(mine == number, mark, np.uint16(0))[None], total)
    return a.narrow(total), ids


def ask(
    a: MeshArithmetic, node: Node, delta: Halves, ids: Halves, weights: StreamedParameter, said: Said
) -> NDArray[np.uint32]:
    """Return the gradients of the same rows: of each feature, number after number, the bias's last."""
    wide, found = a.widen(delta), np.zeros(weights.pattern.shape, np.uint32)
    if node.size("bias"):
        found[:, -1] = a.south(a.mul(wide, a.widen(np.full_like(delta, a.one))))
    for mine, numbers, first, mark in _tables(a, node, ids, said):
        for place, number in enumerate(numbers):
            marks = a.widen(np.where(mine == number, mark, np.uint16(0)))
            found[:, first + place] = a.south(a.mul(wide, np.broadcast_to(marks, wide.shape)))
    return found.ravel()


def _tables(
    a: MeshArithmetic, node: Node, ids: Halves, said: Said
) -> Iterator[tuple[Halves, NDArray[np.int64], int, np.uint16]]:
    """Yield (numbers of samples, those of rows, place of the first row, mark) of each table."""
    place, tables = 0, tables_of(node)
    every = said or [np.arange(table.first, table.end) for table in tables]
    for mine, numbers, table in zip(ids, every, tables, strict=True):
        yield mine, numbers, place, np.uint16(table.mark or a.one)
        place += len(numbers)
