"""A PE has arrays for the tensors of a schedule, some of which share one.

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
``labels`` wanted probabilities, or numbers of classes, ``expo`` exponentials, or rows that are looked up (f32),
``labelled`` 1 or 0 where tokens may have no label (f32)
``ids``     numbers of samples that are looked up, a row for each table and for biases, ``hot`` marks of a number
``kept``    weights of the last product (`Network.keep_output`), row by row; ``gathered`` the gradients of its results
==========  ===============================================================================================
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container
from dataclasses import dataclass

from fabric.networks.graph.layouts import ColumnLayout, layouts_of
from fabric.networks.graph.lookup import Lookup, has_bias
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.reverse import schedule
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.tensors import NetworkTensor

__all__ = ["HOT", "IDS", "MemoryPlan", "PlannedArray"]

IDS, HOT = "ids", "hot"
"""The arrays of look-ups have these names."""

ORDER = "snvl"
"""Letters of what operations keep have the order in which the arrays of a level lie."""


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

    def count(self, tokens: int) -> int:
        """Return the numbers of a PE that has so many tokens."""
        return self.rows * (1 if self.single else tokens)

    def words(self, tokens: int) -> int:
        """Return the words of 16 bits that a PE needs for it."""
        return self.count(tokens) * (2 if self.format == "f32" else 1)


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
        self._slopes: dict[tuple[int, str], str] = {}
        self._activations: dict[int, str] = {}
        self._gradients: dict[tuple[int, int], str] = {}
        kept = self._keep()
        most = [layout.most for layout in self.layouts]
        self.arrays = {}
        for place in self._places("activation"):
            name = f"a{min(place)[0]}"
            self.arrays[name] = PlannedArray(1 + max(most[level] for level, _ in place), ones=True)
            self._activations |= dict.fromkeys((level for level, _ in place), name)
        self.arrays |= dict(sorted(kept.items(), key=lambda item: (int(item[0][1:].split(".")[0]), _rank(item[0]))))
        for number, place in enumerate(self._places("gradient")):
            self.arrays[f"d{number}"] = PlannedArray(max((most[level] for level, _ in place), default=1))
            self._gradients |= dict.fromkeys(place, f"d{number}")
        self.arrays["labels"] = PlannedArray(1 if network.numbered else most[-1])
        looked = {node.name: most[self._level[node.name]] for node in network.nodes if node.op == Lookup.name}
        wide = most[-1] if network.loss.judges else 1
        self.arrays["expo"] = PlannedArray(max([wide, *looked.values()]), "f32")
        if looked:
            self.arrays |= {IDS: PlannedArray(network.inputs + has_bias(network)), HOT: PlannedArray(1)}
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
        inside = {node.name: number for number, nodes in enumerate(self.network.segments) for node in nodes}
        shared: dict[tuple[str, str], list[str]] = {}
        count: Counter[tuple[int, str]] = Counter()
        for node in self.network.nodes[:-1]:
            level, row = self._level[node.name], OPERATIONS[node.op]
            segment = inside.get(node.name)
            for letter, per, number_format in row.keeps:
                name, again = f"{letter}{level}", 2
                while name in found:
                    name, again = f"{letter}{level}.{again}", again + 1
                units = {"feature": 1, "unit": row.unit(node, self.network.tensors[node.name].rows)}
                rows = self.layouts[level].most // units[per] if per in units else 1
                if per == "pixel":
                    rows = node.size("height") * node.size("width")
                if per == "unit" and self.network.head_columns > 1:  # a column has a part of each head of a unit
                    rows = self.network.tensors[node.name].unit // units[per]
                if segment is not None:  # those of another segment are not needed at the same time
                    places = shared.setdefault((letter, number_format), [])
                    count[segment, letter] += 1
                    if len(places) < count[segment, letter]:
                        places.append(name)
                    name = places[count[segment, letter] - 1]
                    rows = max(rows, found[name].rows if name in found else 0)
                found[name] = PlannedArray(rows, number_format)
                self._kept[node.name, letter] = name
                self._slopes.setdefault((level, letter), name)
        return found

    def _places(self, kind: str) -> list[list[tuple[int, int]]]:
        """Return the (level, part) of tensors that share each place.

        The samples are there before the first step; of gradients there are two places at least, perhaps an empty one.
        """
        lives = self._lives(kind)
        found: list[list[tuple[int, int]]] = [[], []] if kind == "gradient" else []
        large = self.network.recompute  # what is large first, so that nothing small lives long in a large place
        for key in sorted(lives, key=lambda key: (-self.layouts[key[0]].most * large, key)):
            free = (place for place in found if not any(_meet(lives[key], lives[other]) for other in place))
            place = next(free, None)
            if place is None:
                place = []
                found.append(place)
            place.append(key)
        return found

    def _lives(self, kind: str) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Return from which step to which the (level, part) of tensors of a kind live; -1 is before the first.

        What is computed again lives twice.
        """
        found: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        if kind == "activation":
            found[0, 0] = [(-1, -1)]
        written: set[NetworkTensor] = set()
        for at, step in enumerate(self.steps):
            for part in (step, *step.then):
                before = {(self._level[tensor.name], tensor.part) for tensor in part.reads if tensor.kind == kind}
                for tensor in part.writes:
                    key = self._level[tensor.name], tensor.part
                    again = tensor.kind == "activation" and tensor in written and key not in before
                    if tensor.kind == kind and (key not in found or again):
                        found[key].append((at, at))
                    written.add(tensor)
                for tensor in (*part.reads, *part.writes, *self._again(part)):
                    if tensor.kind == kind:
                        lives = found[self._level[tensor.name], tensor.part]
                        lives[-1] = (lives[-1][0], at)
        return dict(found)

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
        lives = [(key, begin, end) for key, every in self._lives(kind).items() for begin, end in every]
        return [
            sum(self.layouts[key[0]].most for key, begin, end in lives if begin <= at < end)
            for at in range(len(self.steps))
        ]

    def _again(self, step: NetworkStep) -> list[NetworkTensor]:
        """Return what a step back reads of the way forward besides what its operation keeps."""
        row, node = OPERATIONS[step.op], step.node
        if step.direction != "back" or not (row.again or row.retakes):
            return []
        return [self.network.tensors[name] for name in (*node.inputs, *[node.name] * row.again)]

    # --- where things are ---------------------------------------------------------------------------------------------

    def words(self, tokens: int) -> int:
        """Return the words of 16 bits that all arrays take in a PE that has so many tokens."""
        return sum(array.words(tokens) for array in self.arrays.values())

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
        return self._slopes.get((self._level[tensor.name], "s"))

    def layout(self, tensor: NetworkTensor) -> ColumnLayout:
        """Return the layout of an activation or a gradient."""
        return self.layouts[self._level[tensor.name]]


def _meet(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> bool:
    """Whether two tensors live at the same time."""
    return any(a <= d and c <= b for a, b in one for c, d in other)


def _rank(name: str) -> tuple[int, str]:
    return ORDER.index(name[0]), name
