"""Kernels of the pipelined mode do operations of a network: which kernel does which.

A kernel with its epilogue (normalisation, activation) is one layer, and has a rectangle of PEs.  Operations that no
kernel does are listed by the names of their nodes, and nothing is mapped.

Source: vendor documentation, page on execution modes: the compiler extracts the graph of operations and maps them to
kernels, of which each makes a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.graph.network import Layer, Network
from wse_core.errors import UnsupportedError

__all__ = ["EPILOGUE", "KERNELS", "Matched", "layers_of", "matched"]

KERNELS = {"linear": "fully connected", "cross_entropy": "softmax cross-entropy"}
"""These operations begin a kernel: name -> that of the kernel."""
EPILOGUE = {"norm": 0} | dict.fromkeys(ACTIVATIONS, 1)
"""The kernel of a product does these operations behind it, by their place there: at most one for each."""


@dataclass(frozen=True)
class Matched:
    """A `Matched` is what kernels do of a network.

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
    unsupported, place = network.refusals({*KERNELS, *EPILOGUE}, "no kernel does"), len(EPILOGUE)
    for node in network.nodes:
        if node.op in KERNELS:
            kernels.append((KERNELS[node.op], [node.name]))
            place = 0 if node.op == "linear" else len(EPILOGUE)
        elif node.op in EPILOGUE and EPILOGUE[node.op] >= place:
            kernels[-1][1].append(node.name)
            place = EPILOGUE[node.op] + 1
        elif node.op in EPILOGUE:
            unsupported.append(f"{node.name}: {node.op} does not follow a kernel that could do it")
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
