"""Which arrays a PE has for the tensors of a schedule, and which tensors share one.

An operation that works in place leaves its result where its input was; so there is an array of activations for the
samples and one for each product.  A tensor is born with the step that writes it first and dies with the last one that
reads it.  Tensors of one kind whose lives do not meet share a place: they are looked at in the order of the graph, and
each goes into the first place that is free.  In a chain activations and what operations keep all live across the loss,
and gradients take two places in turns.

==========  ===============================================================================================
array       what it holds, for level k: the samples (0) and the results of products
==========  ===============================================================================================
``ak``      activations, behind a row of ones
``sk``      slopes of an activation
``nk, vk``  unit rows of a normalisation, and one over the deviations (f32)
``dj``      gradients
``labels``  wanted probabilities, ``expo`` exponentials (f32)
==========  ===============================================================================================
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from fabric.networks.graph.layouts import ColumnLayout
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.reverse import schedule
from fabric.networks.graph.tensors import INPUT, NetworkTensor
from wse_core.errors import UnsupportedError

__all__ = ["MemoryPlan", "PlannedArray"]

ORDER = "snv"
"""Letters of what operations keep, in the order in which the arrays of a level lie."""


@dataclass(frozen=True)
class PlannedArray:
    """An array of a PE has rows of tokens.

    Attributes
    ----------
    rows : int
        Of tokens.
    format : {"half", "f32"}
    ones : bool
        The first row is that of the constant input.
    """

    rows: int
    format: str = "half"
    ones: bool = False


class MemoryPlan:
    """The plan says which arrays a network has on some columns of PEs.

    Parameters
    ----------
    network : Network
    columns : int
    done : container of str, optional
        Operations that the mode has; default all.

    Attributes
    ----------
    layouts : list of ColumnLayout
        Of the features of each level: the samples, and the result of each product.
    arrays : dict[str, PlannedArray]
        In the order in which they lie.
    """

    def __init__(self, network: Network, columns: int, done: Container[str] | None = None) -> None:
        self.network = network
        self.steps = schedule(network, "train", done)
        self._level = {INPUT: 0}
        for node, row, _ in network.chain():
            below = self._level[node.inputs[0]]
            if row.in_place and not below:
                raise UnsupportedError(f"{node.name}: {node.op} works on the result of a product", where="graph")
            self._level[node.name] = below if row.in_place else max(self._level.values()) + 1
        names = {level: name for name, level in self._level.items()}
        self.layouts = [ColumnLayout.even(network.tensors[names[k]].rows, columns) for k in range(len(names))]
        self._kept: dict[tuple[str, str], str] = {}
        kept = self._keep()
        most = [layout.most for layout in self.layouts]
        self.arrays = {f"a{k}": PlannedArray(1 + rows, ones=True) for k, rows in enumerate(most)}
        self.arrays |= dict(sorted(kept.items(), key=lambda item: (int(item[0][1:].split(".")[0]), _rank(item[0]))))
        for number, levels in enumerate(self._places()):
            self.arrays[f"d{number}"] = PlannedArray(max((most[k] for k in levels), default=1))
        self.arrays["labels"] = PlannedArray(most[-1])
        self.arrays["expo"] = PlannedArray(most[-1], "f32")

    def _keep(self) -> dict[str, PlannedArray]:
        """Return the arrays of what operations keep; a second one of a letter and level has a number behind a dot."""
        found: dict[str, PlannedArray] = {}
        for node, row, _ in self.network.chain():
            level = self._level[node.name]
            for letter, per, number_format in row.keeps:
                name, again = f"{letter}{level}", 2
                while name in found:
                    name, again = f"{letter}{level}.{again}", again + 1
                rows = self.layouts[level].most if per == "feature" else 1
                found[name] = PlannedArray(rows, number_format)
                self._kept[node.name, letter] = name
        return found

    def _places(self) -> list[list[int]]:
        """Return the levels whose gradients share each place; there are two places at least, perhaps an empty one."""
        born: dict[int, int] = {}
        died: dict[int, int] = {}
        for at, step in enumerate(self.steps):
            for part in (step, *step.then):
                for tensor in (*part.reads, *part.writes):
                    if tensor.kind == "gradient":
                        level = self._level[tensor.name]
                        born.setdefault(level, at)
                        died[level] = at
        found: list[list[int]] = [[], []]
        for level in sorted(born):
            free = (
                place
                for place in found
                if all(born[level] > died[other] or died[level] < born[other] for other in place)
            )
            place = next(free, None)
            if place is None:
                place = []
                found.append(place)
            place.append(level)
        self._gradients = {level: f"d{number}" for number, place in enumerate(found) for level in place}
        return found

    # --- where things are ---------------------------------------------------------------------------------------------

    def level(self, name: str) -> int:
        """Return the number of the array of activations in which a node leaves its result."""
        return self._level[name]

    def array(self, tensor: NetworkTensor) -> str:
        """Return the name of the array of an activation or a gradient."""
        level = self._level[tensor.name]
        return self._gradients[level] if tensor.kind == "gradient" else f"a{level}"

    def kept(self, step: NetworkStep, letter: str) -> str:
        """Return the name of an array that the operation of a step keeps."""
        return self._kept[step.node.name, letter]

    def slopes(self, tensor: NetworkTensor) -> str | None:
        """Return the first array of slopes on the level of a tensor, if there is one."""
        name = f"s{self._level[tensor.name]}"
        return name if name in self.arrays else None

    def layout(self, tensor: NetworkTensor) -> ColumnLayout:
        """Return the layout of an activation or a gradient."""
        return self.layouts[self._level[tensor.name]]


def _rank(name: str) -> tuple[int, str]:
    return ORDER.index(name[0]), name
