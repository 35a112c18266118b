"""A column of PEs has these features, worked out from the white paper's layout alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.placement import chunks
from fabric.networks.graph.network import Network
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.tensors import INPUT, NetworkTensor

__all__ = ["evenly", "placed"]

Columns = list[NDArray[np.int64]]


def evenly(tensor: NetworkTensor, width: int) -> Columns:
    """Return the features of each column: nearly equal chunks, whole units of the tensor."""
    starts = tensor.unit * chunks(tensor.rows // tensor.unit, width)
    return [np.arange(first, last) for first, last in pairwise(starts)]


def placed(network: Network, width: int) -> dict[str, Columns]:
    """Return the features of each column, in the order in which they lie there, of every tensor of a network."""
    tensors = network.tensors
    found = {INPUT: _laid(network, tensors[INPUT], width)}
    for node in network.nodes:
        row, given = OPERATIONS[node.op], found[node.inputs[0]]
        found[node.name] = _laid(network, tensors[node.name], width)
        if row.headwise and network.head_columns > 1:
            found[node.name] = given
        elif row.differ:
            behind = tensors[node.inputs[0]].rows
            pairs = zip(given, found[node.inputs[1]], strict=True)
            found[node.name] = [np.concatenate([one, behind + other]) for one, other in pairs]
        elif row.channelwise:
            below, above = row.units(node, tensors[node.inputs[0]].rows)
            found[node.name] = [
                (mine[::below, None] // below * above + np.arange(above)).reshape(-1).astype(np.int64) for mine in given
            ]
        elif row.featurewise or row.in_place:
            found[node.name] = given
    return found


def _laid(network: Network, tensor: NetworkTensor, width: int) -> Columns:
    """Return nearly equal chunks, or, of heads on several columns, each column's part of every head of its unit."""
    parts, halves = network.head_columns, network.halves
    if parts == 1 or not tensor.head:
        return evenly(tensor, width)
    features = np.arange(tensor.rows).reshape(-1, tensor.unit // tensor.head, halves, tensor.head // halves)
    cuts = [np.split(unit, chunks(tensor.head // halves, parts)[1:-1], axis=2) for unit in features]
    found = [part.ravel() for unit in cuts for part in unit]
    return found + [np.arange(0)] * (width - len(found))
