"""Tensors are what flows between the operations of a network."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["INPUT", "NetworkTensor"]

INPUT = "input"
"""The samples have this name in a graph."""


@dataclass(frozen=True)
class NetworkTensor:
    """A tensor of a network; tokens are no axis of it, since every PE row has its own.

    Attributes
    ----------
    name : str
        That of the node that gives it, ``input`` for the samples; a parameter has a name of its own.
    rows : int
        Features of a token; of a parameter rows of its matrix.
    kind : {"activation", "gradient", "parameter", "number"}
        Numbers are the samples of a network that looks them up (`fabric.networks.graph.lookup`).
    columns : int
        Of a parameter's matrix, else 0.
    unit : int
        So many neighbouring features stay in one column of PEs: those of a head.
    head : int
        If attention works on it: so many neighbouring features are a head, one or more of which are a unit; else 0.
    part : int
        Of a gradient: 0, or the number of what is added to it when it is whole.
    """

    name: str
    rows: int
    kind: str = "activation"
    columns: int = 0
    unit: int = 1
    head: int = 0
    part: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """A parameter's matrix has this shape."""
        return self.rows, self.columns

    @property
    def gradient(self) -> NetworkTensor:
        """An activation has a gradient of the same name and size."""
        return NetworkTensor(self.name, self.rows, "gradient", unit=self.unit, head=self.head)
