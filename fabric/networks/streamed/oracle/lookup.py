"""The oracle of look-ups: numbers are compared with those of rows, and rows added, the bias's first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.lookup import tables_of
from fabric.networks.graph.nodes import Node
from fabric.networks.streamed.oracle.mesh import MeshArithmetic
from fabric.networks.streamed.parameters import StreamedParameter

__all__ = ["ask", "forward"]

Halves = NDArray[np.uint16]


def forward(a: MeshArithmetic, node: Node, ids: Halves, weights: StreamedParameter) -> tuple[Halves, Halves]:
    """Return (sum of the rows of all tables that have the numbers of samples, the numbers)."""
    whole = np.asarray(weights.values).reshape(weights.pattern.shape)
    total = np.zeros((len(whole), ids.shape[1]), np.uint32)
    if node.size("bias"):
        total = a.fma(whole[:, -1:], np.full((1, ids.shape[1]), a.one, np.uint16), total)
    finite = bool(np.isfinite(a.half.decode(whole)).all())
    for mine, (first, end, mark) in zip(ids, tables_of(node), strict=True):
        marks = np.uint16(mark or a.one)
        if finite:  # whatever has another number adds zeros
            there = (mine >= first) & (mine < end)
            total = a.fma(whole[:, np.where(there, mine, first)], np.where(there, marks, np.uint16(0))[None], total)
        for number in () if finite else range(first, end):
            total = a.fma(whole[:, number, None], np.where(mine == number, marks, np.uint16(0))[None], total)
    return a.narrow(total), ids


def ask(a: MeshArithmetic, node: Node, delta: Halves, ids: Halves, weights: StreamedParameter) -> NDArray[np.uint32]:
    """Return the gradients of all rows of all tables: of each feature, number after number, the bias's last."""
    columns = weights.pattern.shape[1]
    wide, found = a.widen(delta), np.zeros((len(delta), columns), np.uint32)
    if node.size("bias"):
        found[:, -1] = a.south(a.mul(wide, a.widen(np.full_like(delta, a.one))))
    for mine, (first, end, mark) in zip(ids, tables_of(node), strict=True):
        for number in range(first, end):
            marks = np.where(mine == number, np.uint16(mark or a.one), np.uint16(0))
            found[:, number] = a.south(a.mul(wide, np.broadcast_to(a.widen(marks), wide.shape)))
    return found.ravel()
