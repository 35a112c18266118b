"""Numbers of tokens are samples too: the product that would take ones among zeros looks rows of its matrix up.

A sample has a number for each table that the matrix has side by side: the token, its place in the sequence.  A number
is that of the matrix's column.  What stands for a one there is the table's mark; a bias is added to every sample.

==========  ===================================================  ==========================================
operation   forward                                              backward, from dy
==========  ===================================================  ==========================================
lookup      y = r(b + sum over tables of mark W[:, number])      dW[:, v] = sum of mark dy over tokens of v
==========  ===================================================  ==========================================

Order of additions: the bias first, then table after table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Linear
from fabric.networks.graph.tensors import INPUT
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from fabric.networks.graph.network import Network

__all__ = ["Lookup", "LookupTable", "by_number", "has_bias", "looks_up", "no_number", "tables_of", "with_bias"]

MOST_NUMBERS = 0xFFFF
"""Numbers of 16 bits tell so many rows, or classes, apart, and from what is none of them."""
FEW = 0x7FFF
"""So many are told apart in fewer operations, which take the upper bit of a difference."""


class LookupTable(NamedTuple):
    """A table has rows side by side in the matrix of a look-up.

    Attributes
    ----------
    first, end : int
        Columns of the matrix; a number lies between.
    mark : int
        Bit pattern of what stands for a one, in the format of the network; 0: a one.
    """

    first: int
    end: int
    mark: int


class Lookup(Linear):
    """A `Lookup` is a product whose samples are numbers: the columns of the matrix at which ones would stand."""

    name, meaning, inner = "lookup", "y = W[:, number] + b", True
    refused: ClassVar[Mapping[str, str]] = {
        "plain": "plain numpy multiplies ones among zeros",
        "pipelined": "the pipelined mode multiplies ones among zeros",
    }

    def features(self, node: Node, given: int) -> int:
        if given != node.size("tables"):
            what = f"{node.inputs[0]} gives {given} numbers, {node.name} looks up {node.size('tables')}"
            raise ConfigError(what, where="network")
        return node.size("outputs")


def tables_of(node: Node) -> list[LookupTable]:
    """Return the tables of a look-up, in the order of the numbers of a sample."""
    found, first = [], 0
    for table in range(node.size("tables")):
        end = first + node.size(f"rows{table}")
        found.append(LookupTable(first, end, node.size(f"mark{table}")))
        first = end
    return found


def looks_up(network: Network) -> bool:
    """Return whether the samples of a network are numbers."""
    return any(node.op == Lookup.name for node in network.nodes)


def has_bias(network: Network) -> bool:
    """Return whether a look-up has a bias: a row that all samples have."""
    return any(node.op == Lookup.name and node.size("bias") for node in network.nodes)


def with_bias(network: Network, numbers: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return numbers, shape (tables, samples), with those of a bias behind them if a look-up has one."""
    node = next(node for node in network.nodes if node.op == Lookup.name)
    return np.pad(numbers, ((0, has_bias(network)), (0, 0)), constant_values=node.size("inputs"))


def no_number(network: Network) -> int:
    """Return what stands for the number of a token, or label, that there is not."""
    most = [network.logits.rows, *(node.size("inputs") for node in network.nodes if node.op == Lookup.name)]
    return FEW if max(most) < FEW else MOST_NUMBERS


def by_number(network: Network, rows: Sequence[int], marks: Sequence[int], labels: bool = True) -> Network | None:
    """Return the network that takes numbers in the place of ones among zeros; None if it has to have those.

    Parameters
    ----------
    network : Network
    rows : sequence of int
        Of each table, side by side.
    marks : sequence of int
        Bit patterns of what stands for ones in each, 0 for ones.
    labels : bool
        Classes come as numbers too.
    """
    takes = [node for node in network.nodes if INPUT in node.inputs]
    able = network.image_rows == 1 and sum(rows) == network.inputs and max(sum(rows), network.classes) < MOST_NUMBERS
    kept = [node for node in takes if network.keeps(node)]
    if not able or kept or {node.op for node in takes} != {Linear.name}:
        return None
    tables = {"tables": len(rows)}
    tables |= {f"rows{k}": count for k, count in enumerate(rows)} | {f"mark{k}": mark for k, mark in enumerate(marks)}
    nodes = [
        replace(node, op=Lookup.name, sizes=dict(node.sizes) | tables) if INPUT in node.inputs else node
        for node in network.nodes
    ]
    if labels and network.loss.judges and not network.label_image:
        nodes[-1] = replace(nodes[-1], sizes=dict(nodes[-1].sizes) | {"numbered": 1})
    return replace(network, nodes=tuple(nodes), inputs=len(rows))
