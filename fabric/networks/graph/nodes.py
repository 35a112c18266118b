"""A graph has nodes, and a schedule has steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fabric.networks.graph.tensors import NetworkTensor

__all__ = ["NetworkStep", "Node", "as_size", "of_size"]


def as_size(number: float) -> int:
    """Return a number as one of a node's sizes, which are whole: its bits in f32."""
    return int(np.array(number, np.float32).view(np.uint32))


def of_size(size: int) -> float:
    """Return the number that a size stands for; inverse of `as_size`."""
    return float(np.array(size, np.uint32).view(np.float32))


@dataclass(frozen=True)
class Node:
    """A node stands for an operation in a network.

    Attributes
    ----------
    name : str
        Unique; ``layer3.norm`` belongs to the group ``layer3``.
    op : str
        Name of a row of `fabric.networks.graph.table.OPERATIONS`.
    inputs : tuple of str
        Names of the nodes whose results it takes; ``input`` is the samples.
    sizes : tuple of (str, int)
        What the operation has to know besides: of a linear one ``inputs``, ``outputs`` and ``bias``, of attention
        ``heads``, ``sequence``, ``causal`` and perhaps ``kv_heads``, of rotary the first two; of a normalisation that
        has one of its own ``epsilon`` (`as_size`).  A mapping may be given.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...] | Mapping[str, int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(sorted(dict(self.sizes).items())))

    def size(self, name: str) -> int:
        """Return one of the sizes; `KeyError` if the node has none of that name."""
        return dict(self.sizes)[name]

    def epsilon(self, otherwise: float) -> float:
        """Return what a normalisation adds below its root: a number of its own, or another."""
        sizes = dict(self.sizes)
        return of_size(sizes["epsilon"]) if "epsilon" in sizes else otherwise

    @property
    def group(self) -> str:
        """The group is the part of the name before the last dot, or all of it."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def number(self) -> str:
        """The digits at the end of the group are its number, or the whole group is if it has parts."""
        return self.group if "." in self.group else self.group[len(self.group.rstrip("0123456789")) :]

    @property
    def place(self) -> str:
        """The group is spoken of as ``layer 3``."""
        return f"{self.group.removesuffix(self.number)} {self.number}".strip()


@dataclass(frozen=True)
class NetworkStep:
    """A `NetworkStep` is what is done at once in a schedule.

    Attributes
    ----------
    node : Node
    direction : {"forward", "known", "test", "back", "ask", "copy", "sum"}
        ``known`` is forward with statistics of earlier batches; ``test`` counts what is right instead of a loss;
        ``ask`` gives the gradient of a parameter alone; ``copy`` and
        ``sum`` are those of the operation add: what is read is kept, or added to what is there.
    reads, writes : tuple of NetworkTensor
        Activations and gradients.
    parameter : NetworkTensor or None
        What is streamed, or whose gradient is asked for.
    then : tuple of NetworkStep
        Steps on each row of the result as soon as it is there.
    again : bool
        A step of the forward pass that comes again on the way back (`Network.recompute`).
    """

    node: Node
    direction: str
    reads: tuple[NetworkTensor, ...] = ()
    writes: tuple[NetworkTensor, ...] = ()
    parameter: NetworkTensor | None = None
    then: tuple[NetworkStep, ...] = ()
    again: bool = False

    @property
    def op(self) -> str:
        """The step belongs to the operation of this name."""
        return self.node.op
