"""Which arrays a PE has for the tensors of a schedule, and which tensors share one.

An operation that works in place leaves its result where its input was (`Network.level`).  A tensor is born with the
step that writes it first and dies with the last one that reads it.  Tensors of one kind whose lives do not meet share a
place: they are looked at in the order of the graph, and each goes into the first place that is free.  In a chain
activations and what operations keep all live across the loss, and gradients take two places in turns.

==========  ===============================================================================================
array       what it holds, for level k: the samples (0) and the results of operations that are not in place
==========  ===============================================================================================
``ak``      activations, behind a row of ones; k is the first level that lies there
``sk``      slopes of an activation
``nk, vk``  unit rows of a normalisation, and one over the deviations (f32)
``lk``      logs of the sums of attention, a row per head (f32)
``dj``      gradients
``labels``  wanted probabilities, ``expo`` exponentials (f32), ``labelled`` 1 or 0 where tokens may have no label (f32)
``kept``    weights of the last product (`Network.keep_output`), row by row; ``gathered`` the gradients of its results
==========  ===============================================================================================
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from fabric.networks.graph.layouts import ColumnLayout, layouts_of
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.reverse import schedule
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.tensors import NetworkTensor

__all__ = ["MemoryPlan", "PlannedArray"]

ORDER = "snvl"
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
    single : bool
        A row is one number, not one of each token.
    """

    rows: int
    format: str = "half"
    ones: bool = False
    single: bool = False


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
        Of the features of each level: the samples, and the result of each operation that is not in place.
    arrays : dict[str, PlannedArray]
        In the order in which they lie.
    """

    def __init__(self, network: Network, columns: int, done: Container[str] | None = None) -> None:
        self.network = network
        self.steps = schedule(network, "train", done)
        self._level = network.level
        layouts = layouts_of(network, columns)
        self.layouts = [layouts[name] for name in network.levels]
        self._kept: dict[tuple[str, str], str] = {}
        self._activations: dict[int, str] = {}
        self._gradients: dict[tuple[int, int], str] = {}
        kept = self._keep()
        most = [layout.most for layout in self.layouts]
        self.arrays = {}
        for place in self._places("activation"):
            name = f"a{place[0][0]}"
            self.arrays[name] = PlannedArray(1 + max(most[level] for level, _ in place), ones=True)
            self._activations |= dict.fromkeys((level for level, _ in place), name)
        self.arrays |= dict(sorted(kept.items(), key=lambda item: (int(item[0][1:].split(".")[0]), _rank(item[0]))))
        for number, place in enumerate(self._places("gradient")):
            self.arrays[f"d{number}"] = PlannedArray(max((most[level] for level, _ in place), default=1))
            self._gradients |= dict.fromkeys(place, f"d{number}")
        self.arrays["labels"] = PlannedArray(most[-1])
        self.arrays["expo"] = PlannedArray(most[-1] if network.loss.judges else 1, "f32")
        if network.some:
            self.arrays["labelled"] = PlannedArray(network.label_pixels, "f32")
        if network.keep_output:
            product = next(node for node in network.nodes if network.keeps(node))
            wide = self.layouts[self.level(product.inputs[0])].most
            self.arrays["kept"] = PlannedArray(network.logits.rows * wide, single=True)
            self.arrays["gathered"] = PlannedArray(network.logits.rows)

    def _keep(self) -> dict[str, PlannedArray]:
        """Return the arrays of what operations keep; a second one of a letter and level has a number behind a dot."""
        found: dict[str, PlannedArray] = {}
        for node in self.network.nodes[:-1]:
            level, row = self._level[node.name], OPERATIONS[node.op]
            for letter, per, number_format in row.keeps:
                name, again = f"{letter}{level}", 2
                while name in found:
                    name, again = f"{letter}{level}.{again}", again + 1
                units = {"feature": 1, "unit": row.unit(node, self.network.tensors[node.name].rows)}
                rows = self.layouts[level].most // units[per] if per in units else 1
                if per == "unit" and self.network.head_columns > 1:  # a column has a part of each head of a unit
                    rows = self.network.tensors[node.name].unit // units[per]
                found[name] = PlannedArray(rows, number_format)
                self._kept[node.name, letter] = name
        return found

    def _places(self, kind: str) -> list[list[tuple[int, int]]]:
        """Return the (level, part) of tensors that share each place.

        The samples are there before the first step; of gradients there are two places at least, perhaps an empty one.
        """
        born, died = self._lives(kind)
        found: list[list[tuple[int, int]]] = [[], []] if kind == "gradient" else []
        for key in sorted(born):
            free = (
                place for place in found if all(born[key] > died[other] or died[key] < born[other] for other in place)
            )
            place = next(free, None)
            if place is None:
                place = []
                found.append(place)
            place.append(key)
        return found

    def _lives(self, kind: str) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """Return at which steps the (level, part) of tensors of a kind are born, and die; -1 is before the first."""
        born: dict[tuple[int, int], int] = {(0, 0): -1} if kind == "activation" else {}
        died = dict(born)
        for at, step in enumerate(self.steps):
            for part in (step, *step.then):
                for tensor in (*part.reads, *part.writes, *self._again(part)):
                    if tensor.kind == kind:
                        key = self._level[tensor.name], tensor.part
                        born.setdefault(key, at)
                        died[key] = at
        return born, died

    def live(self, kind: str = "activation") -> list[int]:
        """Return the rows of tokens that live behind each step in the fullest column, of activations or gradients.

        Parameters
        ----------
        kind : {"activation", "gradient"}

        Returns
        -------
        list of int
            Per step of ``steps``.  What operations keep beside their results is not counted.
        """
        born, died = self._lives(kind)
        return [
            sum(self.layouts[key[0]].most for key in born if born[key] <= at < died[key])
            for at in range(len(self.steps))
        ]

    def _again(self, step: NetworkStep) -> list[NetworkTensor]:
        """Return what a step back reads of the way forward besides what its operation keeps."""
        if step.direction != "back" or not OPERATIONS[step.op].again:
            return []
        return [self.network.tensors[name] for name in (*step.node.inputs, step.node.name)]

    # --- where things are ---------------------------------------------------------------------------------------------

    def level(self, name: str) -> int:
        """Return the number of the array of activations in which a node leaves its result."""
        return self._level[name]

    def array(self, tensor: NetworkTensor) -> str:
        """Return the name of the array of an activation or a gradient."""
        level = self._level[tensor.name]
        return self._gradients[level, tensor.part] if tensor.kind == "gradient" else self._activations[level]

    def activation(self, name: str) -> str:
        """Return the name of the array in which a node leaves its result."""
        return self._activations[self._level[name]]

    def place(self, level: int) -> str:
        """Return the name of the array of activations of a level."""
        return self._activations[level]

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
