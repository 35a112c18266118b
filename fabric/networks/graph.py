"""The graph of a network: operations and what flows between them; the form that both ways to run a network start from.

`graph_of` writes a network as operations; `matched` says which kernel does which of them.  A kernel with its epilogue
(bias, normalisation, activation) is one layer; operations that no kernel does are listed, and nothing is mapped.
Convolution and attention are operations too, so that a graph that has them can be read and said to be unsupported.

Source: vendor documentation, page on execution modes: the compiler extracts the graph of operations and maps them to
kernels, of which each makes a layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fabric.networks.streamed.network import ACTIVATIONS, Layer, Network
from wse_core.errors import ConfigError, UnsupportedError

__all__ = ["EPILOGUE", "KERNELS", "Graph", "Matched", "Node", "graph_of", "matched", "network_of"]

KERNELS = {"matmul": "fully connected", "cross_entropy": "softmax cross-entropy"}
"""Operations that begin a kernel, and its name."""
EPILOGUE = ("bias", "norm", *(name for name in ACTIVATIONS if name != "none"))
"""Operations that go with the kernel before them, in this order."""


@dataclass(frozen=True)
class Node:
    """An operation.

    Attributes
    ----------
    name : str
    op : str
    inputs : tuple of str
        Names of the nodes whose results it takes; ``input`` is the samples.
    sizes : dict[str, int]
        Of a matmul ``inputs`` and ``outputs``.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """Operations in an order in which they can be done."""

    nodes: tuple[Node, ...]
    dtype: str = "f16"

    def __post_init__(self) -> None:
        known = {"input"}
        for node in self.nodes:
            missing = [name for name in node.inputs if name not in known]
            if missing:
                raise ConfigError(f"{node.name} takes {missing[0]!r}, which comes later or never", where="graph")
            if node.name in known:
                raise ConfigError(f"two operations are called {node.name!r}", where="graph")
            known.add(node.name)


@dataclass(frozen=True)
class Matched:
    """What kernels do of a graph.

    Attributes
    ----------
    kernels : list of (str, tuple of str)
        Name of each kernel and the operations that it does: each is a layer.
    unsupported : list of str
        Operations that none does, and why.
    """

    kernels: list[tuple[str, tuple[str, ...]]]
    unsupported: list[str]


def graph_of(network: Network) -> Graph:
    """Return the graph of a network with its loss."""
    nodes: list[Node] = []
    before = "input"
    for number, layer in enumerate(network.layers, 1):
        sizes = {"inputs": layer.inputs, "outputs": layer.outputs}
        steps = ["matmul", *(["bias"] if layer.bias else []), *(["norm"] if layer.norm else [])]
        if layer.activation != "none":
            steps.append(layer.activation)
        for op in steps:
            name = f"layer{number}.{op}"
            nodes.append(Node(name, op, (before,), sizes if op == "matmul" else {}))
            before = name
    nodes.append(Node("loss", "cross_entropy", (before,)))
    return Graph(tuple(nodes), network.dtype)


def matched(graph: Graph) -> Matched:
    """Return which kernels do the operations of a graph; nothing is mapped."""
    kernels: list[tuple[str, list[str]]] = []
    unsupported = []
    used: dict[str, int] = {}
    place = 0
    for node in graph.nodes:
        for name in node.inputs:
            used[name] = used.get(name, 0) + 1
    for node in graph.nodes:
        last = kernels[-1][1][-1] if kernels else "input"
        if node.op in KERNELS:
            kernels.append((KERNELS[node.op], [node.name]))
            place = 0
        elif node.op not in EPILOGUE:
            unsupported.append(f"{node.name}: no kernel does {node.op}")
            continue
        elif EPILOGUE.index(node.op) < place or not kernels:
            unsupported.append(f"{node.name}: {node.op} does not follow a kernel that could do it")
            continue
        else:
            kernels[-1][1].append(node.name)
            place = EPILOGUE.index(node.op) + 1
        if node.inputs != (last,):
            unsupported.append(f"{node.name}: takes {', '.join(node.inputs)}, not only what {last} gives")
    unsupported += [f"{name}: {count} operations take its result" for name, count in used.items() if count > 1]
    return Matched([(name, tuple(parts)) for name, parts in kernels], unsupported)


def network_of(graph: Graph) -> Network:
    """Return the network of a graph that kernels do; inverse of `graph_of`.

    Raises
    ------
    UnsupportedError
        Operations that no kernel does; all are named.
    """
    found = matched(graph)
    if found.unsupported:
        raise UnsupportedError("; ".join(found.unsupported), feature="operation", where="graph", hint="wse kernels")
    by_name = {node.name: node for node in graph.nodes}
    layers = [_layer([by_name[name] for name in parts]) for kind, parts in found.kernels if kind == KERNELS["matmul"]]
    return Network(tuple(layers), graph.dtype)


def _layer(parts: Sequence[Node]) -> Layer:
    """Return the layer of a kernel's operations."""
    ops = [node.op for node in parts]
    activation = next((op for op in ops if op in ACTIVATIONS), "none")
    return Layer(parts[0].sizes["inputs"], parts[0].sizes["outputs"], activation, "bias" in ops, "norm" in ops)
