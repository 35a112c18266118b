"""A network is operations and what flows between them; everything which runs one starts from this form.

`Network.of` and `Network.dense` make a chain of layers with a classification loss: a layer computes
``y = activation(norm(W x + b))``, the last one gives logits, and the loss is the sum over the samples of
``-log softmax(logits)[label]``.  A bias is the weight of an input feature that is always one: the last column of the
layer's matrix.

Source: vendor documentation, page on execution modes: the compiler extracts the graph of operations; weight streaming
white paper, sections 4 and 7; requirements WS-38 to WS-46.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from fabric.networks.graph.lookup import looks_up
from fabric.networks.graph.nodes import Node, as_size, of_size
from fabric.networks.graph.operations import CrossEntropy, NetworkLoss, NetworkOperation
from fabric.networks.graph.plain import EPSILON
from fabric.networks.graph.table import CHOICES, LOSSES, OPERATIONS, activation
from fabric.networks.graph.tensors import INPUT, NetworkTensor
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.formats import Half

__all__ = ["Layer", "Network"]


@dataclass(frozen=True)
class Layer:
    """A `Layer` is a product and what is done at once to its rows: a recipe for operations.

    Attributes
    ----------
    inputs, outputs : int
        Features.
    activation : str
        One of `fabric.networks.graph.table.CHOICES`.
    bias : bool
    norm : bool
        Normalise the output features of each sample, then scale and shift them, before the activation.
    """

    inputs: int
    outputs: int
    activation: str = "none"
    bias: bool = True
    norm: bool = False

    def __post_init__(self) -> None:
        if self.inputs < 1 or self.outputs < 1:
            raise ConfigError(f"a layer from {self.inputs} to {self.outputs} features", where="network")
        activation(self.activation)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the layer's matrix; the bias is its last column."""
        return self.outputs, self.inputs + self.bias

    def nodes(self, group: str, before: str) -> list[Node]:
        """Return the operations of the layer, the first of which takes what `before` gives."""
        sizes = {"inputs": self.inputs, "outputs": self.outputs, "bias": int(self.bias)}
        found = [Node(f"{group}.linear", "linear", (before,), sizes)]
        for op in ["norm"] * self.norm + [self.activation] * (self.activation != "none"):
            found.append(Node(f"{group}.{op}", op, (found[-1].name,)))
        return found


@dataclass(frozen=True)
class Network:
    """A `Network` is operations in an order in which they can be done.

    Attributes
    ----------
    nodes : tuple of Node
    inputs : int
        Features of a sample.
    dtype : {"f16", "cb16"}
        Of weights and activations; sums are f32.
    joined : bool
        False: features need not fit from one operation to the next, since only what each costs is asked for.
    epsilon : float
        Normalisations add this to variances, or to means of squares, unless their nodes say another number.
    head_columns : int
        A head of attention lies on so many neighbouring columns of PEs, a part of its features in each.
    image_rows : int
        An image lies on so many neighbouring rows of PEs, a strip of its rows of pixels on each
        (`fabric.networks.graph.strips`).
    keep_output : bool
        The weights of the last product stay on the wafers from the forward pass to the way back.
    recompute : bool
        What lies within `segments` is not kept for the way back, but computed again.

    Raises
    ------
    ConfigError
        Names that occur twice or too late, operations that there are not, features that do not fit.
    """

    nodes: tuple[Node, ...]
    inputs: int
    dtype: Half = "f16"
    joined: bool = True
    epsilon: float = EPSILON
    head_columns: int = 1
    image_rows: int = 1
    keep_output: bool = False
    recompute: bool = False

    def __post_init__(self) -> None:
        if len(self.nodes) < 2:
            raise ConfigError("a network without layers", where="network")
        if self.dtype not in ("f16", "cb16"):
            raise ConfigError(f"a PE has no 16-bit format {self.dtype!r}", where="network", hint="f16 or cb16")
        known = {INPUT: ""}
        for node in self.nodes:
            missing = [name for name in node.inputs if name not in known]
            if missing:
                raise ConfigError(f"{node.name} takes {missing[0]!r}, which comes later or never", where="graph")
            if node.name in known:
                raise ConfigError(f"two operations are called {node.name!r}", where="graph")
            if node.op not in OPERATIONS:
                raise ConfigError(f"{node.name}: there is no operation {node.op!r}", where="graph")
            if len(node.inputs) != OPERATIONS[node.op].operands:
                wanted = OPERATIONS[node.op].operands
                raise ConfigError(
                    f"{node.name}: {node.op} takes {wanted} tensors, not {len(node.inputs)}", where="graph"
                )
            if node.op == "cross_entropy" and known[node.inputs[0]] in ("norm", *CHOICES):
                raise ConfigError(
                    f"{node.name} takes logits, which {node.inputs[0]} does not give: no activation and no "
                    "normalisation behind the last product",
                    where="network",
                )
            known[node.name] = node.op
        assert self.tensors  # features fit
        if self.keep_output and known[self.logits.name] != "linear":
            raise UnsupportedError(
                f"{self.logits.name} gives the logits and is no product: only the weights of one are kept",
                feature="kept weights",
                where="network",
            )

    @classmethod
    def of(
        cls, layers: Sequence[Layer], dtype: Half = "f16", joined: bool = True, loss: str = CrossEntropy.name
    ) -> Network:
        """Return the network of layers, first to last, with its loss, one of `LOSSES`."""
        nodes: list[Node] = []
        for number, layer in enumerate(layers, 1):
            nodes += layer.nodes(f"layer{number}", nodes[-1].name if nodes else INPUT)
        nodes.append(Node("loss", loss, (nodes[-1].name if nodes else INPUT,)))
        return cls(tuple(nodes), layers[0].inputs if layers else 0, dtype, joined)

    @classmethod
    def dense(
        cls,
        features: Sequence[int],
        activation: str = "relu",
        dtype: Half = "f16",
        bias: bool = True,
        norm: bool = False,
    ) -> Network:
        """Return a network of so many features per level; all layers but the last are activated and normalised."""
        last = len(features) - 2
        layers = [
            Layer(n, m, activation if k < last else "none", bias, norm and k < last)
            for k, (n, m) in enumerate(pairwise(features))
        ]
        return cls.of(layers, dtype)

    # --- what flows ---------------------------------------------------------------------------------------------------

    @cached_property
    def tensors(self) -> dict[str, NetworkTensor]:
        """Nodes give these results, by name; the samples are among them."""
        kind = "number" if looks_up(self) else "activation"
        found = {INPUT: NetworkTensor(INPUT, self.inputs, kind)}
        for node in self.nodes:
            sizes = tuple(found[name].rows for name in node.inputs)
            row = OPERATIONS[node.op]
            given = sizes[0] if self.joined or node.op != "linear" else node.size("inputs")
            given = sum(sizes) if row.differ else given
            found[node.name] = NetworkTensor(node.name, row.features(node, given))
            wanted = row.takes(node, sizes[0])
            if sizes != wanted and not row.differ:
                right, said = (" and ".join(map(str, features)) for features in (wanted, sizes))
                right = "one size" if len(set(wanted)) == 1 else f"{right} features"
                raise ConfigError(f"{node.name}: {node.op} takes tensors of {right}, not of {said}", where="network")
        first = self._alike(found)
        units, heads = self._units(found, first), self._heads(found, first)
        return {name: replace(tensor, unit=units[name], head=heads[name]) for name, tensor in found.items()}

    def _alike(self, tensors: Iterable[str]) -> Callable[[str], str]:
        """Return what gives, of all tensors that lie alike, the same one: what is worked on feature by feature does."""
        alike = {name: name for name in tensors}

        def first(name: str) -> str:
            while alike[name] != name:
                name = alike[name]
            return name

        for node in self.nodes:
            row = OPERATIONS[node.op]
            for name in node.inputs if row.in_place or row.featurewise else ():
                alike[first(name)] = first(node.name)
        return first

    def _heads(self, tensors: Mapping[str, NetworkTensor], first: Callable[[str], str]) -> dict[str, int]:
        """Return the features of a head of each tensor, 0 if it has none."""
        found: dict[str, int] = {}
        for node in self.nodes:
            row = OPERATIONS[node.op]
            for name in (*node.inputs, node.name) if row.headwise else ():
                size = row.unit(node, tensors[node.inputs[0]].rows)
                if found.setdefault(first(name), size) != size and self.head_columns > 1:
                    what = f"{name} has heads of {found[first(name)]} and of {size} features"
                    raise UnsupportedError(what, feature="layout", where="graph", hint="a column of PEs for each head")
        for node in self.nodes if self.head_columns > 1 else ():
            row = OPERATIONS[node.op]
            if not row.headwise and first(node.name) in found and row.unit(node, tensors[node.inputs[0]].rows) > 1:
                what = f"{node.name} works on whole heads"
                raise UnsupportedError(what, feature="layout", where="graph", hint="a column of PEs for each head")
        return {name: found.get(first(name), 0) for name in tensors}

    def _units(self, tensors: Mapping[str, NetworkTensor], first: Callable[[str], str]) -> dict[str, int]:
        """Return the unit of each tensor: what an operation works on feature by feature lies alike."""
        wanted: list[tuple[str, int]] = []
        for node in self.nodes:
            wanted += self._wanted(node, tensors)
        found: dict[str, int] = {}
        for name, unit in wanted:
            found[first(name)] = math.lcm(found.get(first(name), 1), unit)
        self._alike_by_channel(tensors, found, first)
        for name, unit in wanted:
            here = found[first(name)]
            if tensors[name].rows % here:
                what = f"{name} lies in units of {here} and of {unit} features"
                raise UnsupportedError(what, feature="layout", where="graph")
        return {name: found.get(first(name), 1) for name in tensors}

    def _wanted(self, node: Node, tensors: Mapping[str, NetworkTensor]) -> list[tuple[str, int]]:
        """Return what a node takes and gives, and how many neighbouring features of each it wants in one column."""
        row, given = OPERATIONS[node.op], [tensors[name].rows for name in node.inputs]
        units = *row.units_of(node, given), row.units(node, given[0])[1]
        return list(zip((*node.inputs, node.name), units, strict=True))

    def _alike_by_channel(
        self, tensors: Mapping[str, NetworkTensor], units: dict[str, int], first: Callable[[str], str]
    ) -> None:
        """Extend units until what works channel by channel has as many channels in those of operands and result.

        What is wanted of two tensors side by side is wanted of each, as far as it has whole units.
        """
        joined = [node for node in reversed(self.nodes) if OPERATIONS[node.op].differ]
        nodes = [node for node in self.nodes if OPERATIONS[node.op].channelwise]
        before = None
        while before != units:
            before = dict(units)
            for node in joined:
                for name in node.inputs:
                    unit = math.lcm(units[first(name)], units[first(node.name)])
                    units[first(name)] = unit if tensors[name].rows % unit == 0 else units[first(name)]
            for node in nodes:
                planes = [(first(name), plane) for name, plane in self._wanted(node, tensors)]
                channels = math.lcm(*(units[name] // plane for name, plane in planes))
                units |= {name: channels * plane for name, plane in planes}

    def parameter(self, node: Node) -> NetworkTensor | None:
        """Return the parameter of a node, if it has one."""
        return OPERATIONS[node.op].parameter(node, self.tensors[node.inputs[0]].rows)

    @cached_property
    def parameters(self) -> tuple[NetworkTensor, ...]:
        """A network has these parameters: matrices of products in order, then the others."""
        ordered = sorted(self.nodes, key=lambda node: not OPERATIONS[node.op].matrix)
        return tuple(found for node in ordered if (found := self.parameter(node)) is not None)

    @cached_property
    def over_batches(self) -> tuple[NetworkTensor, ...]:
        """These parameters belong to what normalises over batches, in the order of the operations."""
        nodes = [node for node in self.nodes if OPERATIONS[node.op].over_batch]
        return tuple(found for node in nodes if (found := self.parameter(node)) is not None)

    def pixels(self, parameter: str) -> int:
        """Return the pixels of a channel that a parameter of `over_batches` normalises."""
        node = self._over_batch(parameter)
        return self.tensors[node.name].rows // node.size("channels")

    def batch_epsilon(self, parameter: str) -> float:
        """Return what the memory service adds to the variances that a parameter of `over_batches` belongs to."""
        return self._over_batch(parameter).epsilon(self.epsilon)

    def _over_batch(self, parameter: str) -> Node:
        """Return the node that has a parameter of `over_batches`."""
        nodes = [node for node in self.nodes if OPERATIONS[node.op].over_batch]
        return next(node for node in nodes if f"{node.group}.norm" == parameter)

    @property
    def size(self) -> int:
        """A network has so many weights, biases and factors."""
        return sum(parameter.rows * parameter.columns for parameter in self.parameters)

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Wafers add one of these numbers of f32 below each root; the memory service has those of whole batches."""
        rows = ((node, OPERATIONS[node.op]) for node in self.nodes)
        found = {as_size(node.epsilon(self.epsilon)) for node, row in rows if row.normalises and not row.over_batch}
        return tuple(map(of_size, sorted(found)))

    def epsilon_number(self, node: Node) -> int | None:
        """Return which of several `epsilons` a node adds below its root; None: it adds none, or there are no others."""
        row, own = OPERATIONS[node.op], of_size(as_size(node.epsilon(self.epsilon)))
        several = len(self.epsilons) > 1 and row.normalises and not row.over_batch
        return self.epsilons.index(own) if several else None

    @property
    def logits(self) -> NetworkTensor:
        """The loss takes this tensor."""
        return self.tensors[self.nodes[-1].inputs[0]]

    @property
    def loss(self) -> NetworkLoss:
        """This is the row of the operation with which the network ends, its loss."""
        row = OPERATIONS[self.nodes[-1].op]
        if not isinstance(row, NetworkLoss):
            raise UnsupportedError(f"{self.nodes[-1].name}: a graph ends with its loss", where="graph")
        return row

    def keeps(self, node: Node) -> bool:
        """Whether the weights of a product stay on the wafers from the forward pass to the way back."""
        return self.keep_output and node.name == self.logits.name

    @property
    def halves(self) -> int:
        """Features of a head lie together in so many halves: 2 if places are turned into them, else 1."""
        return 1 + any(node.op == "rotary" for node in self.nodes)

    @property
    def some(self) -> bool:
        """Tokens may be without a label, or targets."""
        return not self.loss.judges or bool(dict(self.nodes[-1].sizes).get("some", 0))

    @property
    def numbered(self) -> bool:
        """Labels come as numbers of classes, not as ones among zeros."""
        return bool(dict(self.nodes[-1].sizes).get("numbered", 0))

    @property
    def label_rows(self) -> int:
        """What is wanted of a sample comes as so many numbers."""
        return 1 if self.numbered else self.logits.rows

    @property
    def label_image(self) -> tuple[int, ...]:
        """So many rows and columns of pixels have a label each; empty if a sample has one."""
        sizes = dict(self.nodes[-1].sizes)
        return (sizes["height"], sizes["width"]) if "height" in sizes else ()

    @property
    def label_pixels(self) -> int:
        """So many pixels of a sample have a label each; 1 if the sample has one."""
        return math.prod(self.label_image)

    @property
    def classes(self) -> int:
        """A label says one of so many classes."""
        return self.logits.rows // self.label_pixels

    @property
    def features(self) -> tuple[int, ...]:
        """The inputs have so many features, and each product's result so many, or channels."""
        rows = ((node, OPERATIONS[node.op]) for node in self.nodes)
        return (self.inputs, *(row.results(node) for node, row in rows if row.matrix))

    @cached_property
    def used(self) -> Counter[str]:
        """So many operations take each tensor."""
        return Counter(name for node in self.nodes for name in node.inputs)

    @cached_property
    def _read_again(self) -> set[str]:
        """Results that their own operation reads on the way back have these names."""
        return {node.name for node in self.nodes if OPERATIONS[node.op].again}

    def in_place(self, node: Node) -> bool:
        """Return whether the result of a node takes the place of what is given."""
        x = node.inputs[0]
        free = self.used[x] == 1 and x != INPUT and x not in self._read_again
        return OPERATIONS[node.op].in_place and free

    @cached_property
    def level(self) -> dict[str, int]:
        """Tensors have these places, by name: the samples are in place 0; what is done in place stays in it."""
        found = {INPUT: 0}
        for node in self.nodes[:-1]:
            here = self.in_place(node)
            found[node.name] = found[node.inputs[0]] if here else max(found.values()) + 1
        return found

    @property
    def levels(self) -> list[str]:
        """These are the names of the samples, and of what is left in each place when all is done in place that can
        be.
        """
        return list({level: name for name, level in self.level.items()}.values())

    @cached_property
    def segments(self) -> list[list[Node]]:
        """These stretches of nodes are computed again on the way back, in order, each from one tensor to one other.

        Between two tensors that alone are needed behind them, and stay as they are, lies a half of a block of a
        transformer, or a block of a residual network.  A single node is none, nor is what normalises over the batch;
        nor the last stretch, since the way back begins with it.
        """
        if not self.recompute:
            return []
        place = {INPUT: -1} | {node.name: at for at, node in enumerate(self.nodes)}
        last = {name: at for at, node in enumerate(self.nodes) for name in node.inputs}
        stays, cuts = {self.level[name]: name for name in self.level}, [-1]
        for name, at in list(place.items())[1:-1]:
            open_ones = [other for other, end in last.items() if place[other] <= at < end]
            if open_ones == [name] and stays[self.level[name]] == name:
                cuts.append(at)
        found = [list(self.nodes[a + 1 : b + 1]) for a, b in pairwise(cuts)]
        stretches = [nodes for nodes in found if len(nodes) > 1][:-1]
        return [nodes for nodes in stretches if not any(OPERATIONS[node.op].over_batch for node in nodes)]

    # --- how it may be read -------------------------------------------------------------------------------------------

    def refusals(self, done: Container[str], says: str) -> list[str]:
        """Return why a mode that does some operations, one behind the other, cannot run it: a line per node.

        `says` is how a line about an operation that is not done begins: ``no kernel does``.
        """
        found, before = [], INPUT
        for node in self.nodes:
            if node.op not in done:
                found.append(f"{node.name}: {says} {node.op}")
                continue
            if node.inputs != (before,):
                found.append(f"{node.name}: takes {', '.join(node.inputs)}, not only what {before} gives")
            before = node.name
        if self.nodes[-1].op not in LOSSES:
            found.append(f"{self.nodes[-1].name}: a graph ends with its loss")
        return found + [f"{name}: {count} operations take its result" for name, count in self.used.items() if count > 1]

    def operations(
        self, done: Container[str] | None = None, says: str = "plain numpy does not do"
    ) -> list[tuple[Node, NetworkOperation, NetworkTensor | None]]:
        """Return (node, row, parameter) of all nodes before the loss.

        `done` are the operations that a mode has, default all that some mode has; `says` is how a line begins about one
        that it does not have.

        Raises
        ------
        UnsupportedError
            Operations that are not done, results that nothing takes, a graph without a loss at its end; all are named.
        """
        every = [name for name, row in OPERATIONS.items() if "plain" not in row.refused or row.inner]
        refused = [
            f"{node.name}: {says} {node.op}" for node in self.nodes if node.op not in (every if done is None else done)
        ]
        refused += [f"{node.name}: nothing takes its result" for node in self.nodes[:-1] if not self.used[node.name]]
        if self.nodes[-1].op not in LOSSES:
            refused.append(f"{self.nodes[-1].name}: a graph ends with its loss")
        if refused:
            raise UnsupportedError("; ".join(refused), feature="operation", where="graph")
        return [(node, OPERATIONS[node.op], self.parameter(node)) for node in self.nodes[:-1]]

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of a chain as `Network.of` makes it.

        Raises
        ------
        UnsupportedError
            The nodes are no chain, or operations stand in another order; the first one is named.
        """
        odd_ones = self.refusals([name for name, row in OPERATIONS.items() if not row.refused], "a chain does not do")
        if odd_ones:
            raise UnsupportedError("; ".join(odd_ones), feature="operation", where="graph")
        groups: list[tuple[Node, list[str]]] = []
        for node in self.nodes[:-1]:
            if node.op == "linear":
                groups.append((node, []))
            elif groups:
                groups[-1][1].append(node.op)
        found = []
        for node, ops in groups:
            function = next((op for op in ops if op in CHOICES), "none")
            sizes = node.size("inputs"), node.size("outputs")
            found.append(Layer(*sizes, function, bool(node.size("bias")), "norm" in ops))
        made = Network.of(found, self.dtype, self.joined).nodes
        odd = [node for node, again in zip(self.nodes, made, strict=False) if node.op != again.op]
        if odd:
            what = f"{odd[0].name}: {odd[0].op} does not follow a product that it could end"
            raise UnsupportedError(what, feature="operation", where="graph")
        return tuple(found)
