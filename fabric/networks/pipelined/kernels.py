"""Which kernels of the pipelined mode do which operations of a network.

A kernel with its epilogue (normalisation, activation) is one layer, and has a rectangle of PEs.  Operations that no
kernel does are listed by the names of their nodes, and nothing is mapped.

Source: vendor documentation, page on execution modes: the compiler extracts the graph of operations and maps them to
kernels, of which each makes a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.graph.network import Layer, Network
from fabric.networks.graph.tensors import INPUT
from wse_core.errors import UnsupportedError

__all__ = ["EPILOGUE", "KERNELS", "Matched", "layers_of", "matched"]

KERNELS = {"linear": "fully connected", "cross_entropy": "softmax cross-entropy"}
"""Operations that begin a kernel, and its name."""
EPILOGUE = {"norm": 0} | dict.fromkeys(ACTIVATIONS, 1)
"""Operations that the kernel of a product does behind it, by their place there: at most one for each."""


@dataclass(frozen=True)
class Matched:
    """What kernels do of a network.

    Attributes
    ----------
    kernels : list of (str, tuple of str)
        Name of each kernel and the operations that it does: each is a layer.
    unsupported : list of str
        Operations that none does, and why.
    """

    kernels: list[tuple[str, tuple[str, ...]]]
    unsupported: list[str]


def matched(network: Network) -> Matched:
    """Return which kernels do the operations of a network; nothing is mapped."""
    kernels: list[tuple[str, list[str]]] = []
    unsupported, place = [], len(EPILOGUE)
    for node in network.nodes:
        last = kernels[-1][1][-1] if kernels else INPUT
        if node.op in KERNELS:
            kernels.append((KERNELS[node.op], [node.name]))
            place = 0 if node.op == "linear" else len(EPILOGUE)
        elif node.op not in EPILOGUE:
            unsupported.append(f"{node.name}: no kernel does {node.op}")
            continue
        elif EPILOGUE[node.op] < place:
            unsupported.append(f"{node.name}: {node.op} does not follow a kernel that could do it")
            continue
        else:
            kernels[-1][1].append(node.name)
            place = EPILOGUE[node.op] + 1
        if node.inputs != (last,):
            unsupported.append(f"{node.name}: takes {', '.join(node.inputs)}, not only what {last} gives")
    names = [name for node in network.nodes for name in node.inputs]
    counts = {name: names.count(name) for name in names}
    unsupported += [f"{name}: {count} operations take its result" for name, count in counts.items() if count > 1]
    if network.nodes[-1].op != "cross_entropy":
        unsupported.append(f"{network.nodes[-1].name}: a graph ends with its loss")
    return Matched([(name, tuple(parts)) for name, parts in kernels], unsupported)


def layers_of(network: Network) -> tuple[Layer, ...]:
    """Return the layers of a network that kernels do.

    Raises
    ------
    UnsupportedError
        Operations that no kernel does; all are named.
    """
    found = matched(network)
    if found.unsupported:
        raise UnsupportedError("; ".join(found.unsupported), feature="operation", where="graph", hint="wse kernels")
    return network.layers
