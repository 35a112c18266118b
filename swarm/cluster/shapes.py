"""A fully connected layer and the mesh it is laid out on, as a cluster sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.network import Network
from fabric.networks.graph.table import activation
from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS, Machine

__all__ = ["AttentionShape", "LayerShape", "Mask", "Mesh", "shapes_of"]


@dataclass(frozen=True, eq=False)
class Mask:
    """Which weights of a layer exist; two masks are alike if they are the same object.

    Attributes
    ----------
    exists : ndarray of bool, shape (outputs, inputs)
    """

    exists: NDArray[np.bool_]


@dataclass(frozen=True)
class AttentionShape:
    """Attention stands between two matrices.

    Attributes
    ----------
    heads, kv_heads : int
        Of queries, and of keys and values.
    size : int
        Features of a head.
    sequence : int
        Tokens.
    causal : bool
    """

    heads: int
    kv_heads: int
    size: int
    sequence: int
    causal: bool = True


@dataclass(frozen=True)
class LayerShape:
    """A `LayerShape` is that of a fully connected layer.

    Attributes
    ----------
    inputs, outputs : int
        Features.
    density : float
        Share of the weights that are not zero; biases always exist.
    name : str
    activation : str
        One of `fabric.networks.graph.table.CHOICES`.
    bias : bool
    norm : bool
        Whether the output features are normalised before the activation.
    mask : Mask or None
        Which weights exist, if that is known; any as many as `density` says otherwise.
    attention : AttentionShape or None
        Makes what the layer takes of what the layers before it give.
    residual : bool
        What the layer gives is added to what came before the block that it ends.
    lookup : bool
        What it takes says which inputs are one, that of a token and that of its place; their numbers come to the
        wafer.
    """

    inputs: int
    outputs: int
    density: float = 1.0
    name: str = ""
    activation: str = "none"
    bias: bool = False
    norm: bool = False
    mask: Mask | None = None
    attention: AttentionShape | None = None
    residual: bool = False
    lookup: bool = False

    def __post_init__(self) -> None:
        where = self.name or "layer"
        if self.inputs < 1 or self.outputs < 1:
            raise ConfigError(f"a layer from {self.inputs} to {self.outputs} features", where=where)
        if not 0 <= self.density <= 1:
            raise ConfigError(f"{self.density} is no density", where=where, hint="a number from 0 to 1")
        activation(self.activation)

    @property
    def weights(self) -> int:
        """So many weights are not zero, biases among them."""
        return round(self.inputs * self.outputs * self.density) + self.bias * self.outputs

    @property
    def comes(self) -> int:
        """So many numbers of a token come to a wafer, if the layer is the first one."""
        return 2 if self.lookup else self.inputs

    @property
    def dense_weights(self) -> int:
        """Weights are counted, whether they exist or not."""
        return (self.inputs + self.bias) * self.outputs

    @property
    def norms(self) -> int:
        """Norms are the factors and shifts of the normalisation."""
        return 2 * self.norm * self.outputs


OUTSIDE = ("answer.", "clock.", "link.", "node.", "plan.", "update.")
"""Numbers of a machine whose names begin so say nothing of what a wafer does in a cycle."""


@lru_cache(maxsize=64)
def _apart(given: Machine) -> Machine:
    """Return a machine with the usual numbers for all that is outside of a wafer."""
    return given.replace({name: PARAMETERS[name].value for name in given if name.startswith(OUTSIDE)})


@dataclass(frozen=True)
class Mesh:
    """A `Mesh` is the PEs that a layer is laid out on: features over x, tokens over y.

    Attributes
    ----------
    machine : Machine
    width, height : int
        PEs of a group of columns; 0 is all of the wafer.
    column_groups : int
        Groups of columns, each with other tokens.
    """

    machine: Machine
    width: int = 0
    height: int = 0
    column_groups: int = 1

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            most = self.machine[f"fabric.{name}"]
            given = getattr(self, name) or most
            if not 1 <= given <= most:
                raise ConfigError(f"{given} PEs do not fit the wafer", where=f"mesh: {name}", hint=f"1 to {most}")
            object.__setattr__(self, name, given)

    @property
    def rows(self) -> int:
        """The tokens of a wafer are shared by so many rows of PEs, those of all groups."""
        return self.height * self.column_groups

    @property
    def apart(self) -> Mesh:
        """The mesh is told nothing of what lies outside of its wafer, on which no cycle of it depends.

        What is followed for one stands for all machines that differ in links, nodes, answers and updates only.
        """
        return replace(self, machine=_apart(self.machine))

    @property
    def hertz(self) -> float:
        """The clock has so many cycles per second."""
        return self.machine["clock.ghz"] * 1e9


def shapes_of(network: Network, masks: Sequence[NDArray[np.bool_]] | None = None) -> tuple[LayerShape, ...]:
    """Return the layers of a network that wafers hold; `masks` say which weights exist, biases left out."""
    found = []
    for k, one in enumerate(network.layers):
        mask = None if masks is None or masks[k].all() else Mask(masks[k])
        share = 1.0 if mask is None else float(mask.exists.mean())
        name = f"layer {k + 1}"
        found.append(LayerShape(one.inputs, one.outputs, share, name, one.activation, one.bias, one.norm, mask))
    return tuple(found)
