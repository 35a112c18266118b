"""Cycles of a fully connected layer on a wafer, for weights that are spread evenly.

The closed forms of `fabric.kernels.streamed.forward` and `fabric.kernels.streamed.gradient` follow every column
of PEs through every row of a given pattern.  Here a row stands for all rows and a column for all columns, so that a
cost takes no longer to calculate for a large layer.  With i inputs, o outputs, density d, C columns, T tokens of a PE:

    row of a product   = d i/C weight + lead + T + tail + landing
    row of a gradient  = d i/C dot + command + broadcast

``weight`` and ``dot`` are the kernels' own functions.  Column after column owns the rows, and the ring passes the delay
of an owner on to the next one, so every row costs a landing.  Divisions round up: the largest tile sets the pace.

A random pattern does not give all columns the same number of entries.  Of a column's n = d o i/C entries the standard
deviation is s = sqrt(n (1 - d)); the busiest of C columns has about s sqrt(2 ln C) more (the largest of C normal
numbers), and the others wait for it at the ring.  That vanishes for large layers.

Not included: commands of element-wise work, losses, attention between tokens; they have no weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fabric.kernels.kit import timing
from fabric.kernels.streamed.forward import weight_cycles
from fabric.kernels.streamed.gradient_cycles import dot_cycles
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["Cost", "LayerShape", "Mesh", "backward", "forward", "gradient"]


@dataclass(frozen=True)
class LayerShape:
    """A fully connected layer as a cluster sees it.

    Attributes
    ----------
    inputs, outputs : int
        Features.
    density : float
        Share of the weights that are not zero.
    name : str
    """

    inputs: int
    outputs: int
    density: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        if self.inputs < 1 or self.outputs < 1:
            raise ConfigError(f"a layer from {self.inputs} to {self.outputs} features", where=self.name or "layer")
        if not 0 <= self.density <= 1:
            raise ConfigError(f"{self.density} is no density", where=self.name or "layer", hint="a number from 0 to 1")

    @property
    def weights(self) -> int:
        """Weights that are not zero."""
        return round(self.inputs * self.outputs * self.density)

    @property
    def dense_weights(self) -> int:
        """All weights."""
        return self.inputs * self.outputs


@dataclass(frozen=True)
class Mesh:
    """The PEs that a layer is laid out on: features over x, tokens over y.

    Attributes
    ----------
    machine : Machine
    width, height : int
        PEs; 0 is all of the wafer.
    """

    machine: Machine
    width: int = 0
    height: int = 0

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            most = self.machine[f"fabric.{name}"]
            given = getattr(self, name) or most
            if not 1 <= given <= most:
                raise ConfigError(f"{given} PEs do not fit the wafer", where=f"mesh: {name}", hint=f"1 to {most}")
            object.__setattr__(self, name, given)

    @property
    def hertz(self) -> float:
        """Cycles per second."""
        return self.machine["clock.ghz"] * 1e9


@dataclass(frozen=True)
class Cost:
    """Cycles of a phase of a layer.

    Attributes
    ----------
    rows : int
        Rows of the matrix that is streamed.
    busy : float
        Cycles in which the wafer can do no other phase.
    latency : float
        Cycles from the edge of the wafer to the first PEs' work, or from the last work to the edge; phases that follow
        one another hide it.
    """

    rows: int
    busy: float
    latency: float


def _share(features: int, columns: int, rows: int, density: float) -> float:
    """Return the entries of a row that set the pace: the largest tile, the busiest column of a random pattern."""
    mean = -(-features // columns) * density
    spread = math.sqrt(2 * math.log(columns) * mean * (1 - density) / rows) if columns > 1 else 0.0
    return min(mean + spread, -(-features // columns))


def _product(inputs: int, outputs: int, tokens: int, density: float, mesh: Mesh) -> Cost:
    m, columns = mesh.machine, mesh.width
    each = -(-tokens // mesh.height)
    lead, tail = m["task.start"] + timing.issue(m), m["vec.drain"] + m["ce.dsr_edit"] + 1
    landing = sum(timing.elementwise(m, op, each) for op in ("fs2h", "mov32"))
    ring = each if columns > 1 else 0
    row = _share(inputs, columns, outputs, density) * weight_cycles(each, m) + lead + ring + tail + landing
    fill = 2 * columns * timing.stage(m) if columns > 1 else 0  # the first row goes round, each owner adds a stage
    return Cost(outputs, outputs * row + fill, 2 + m["ramp.in"] + m["router.hop"] * mesh.height)


def forward(layer: LayerShape, tokens: int, mesh: Mesh) -> Cost:
    """Return the `Cost` of the activations of a layer for so many tokens of a wafer."""
    return _product(layer.inputs, layer.outputs, tokens, layer.density, mesh)


def backward(layer: LayerShape, tokens: int, mesh: Mesh) -> Cost:
    """Return the `Cost` of the gradients of a layer's inputs: the product with the transposed stream."""
    return _product(layer.outputs, layer.inputs, tokens, layer.density, mesh)


def gradient(layer: LayerShape, tokens: int, mesh: Mesh) -> Cost:
    """Return the `Cost` of the gradients of a layer's weights; `latency` is that of the sums to the southern edge."""
    m, columns = mesh.machine, mesh.width
    each = -(-tokens // mesh.height)
    empty, lead = timing.operation(m, 0), m["task.start"] + m["ce.dsr_edit"]
    taking = max(timing.steps(m, "fh2s", each), -(-each // 2))
    broadcast = m["ce.config"] + empty + timing.ramps(m) if columns > 1 else 0
    row = (
        _share(layer.inputs, columns, layer.outputs, layer.density) * dot_cycles(each, m)
        + lead
        + broadcast
        + taking
        + empty
        + m["ce.dsr_edit"]
        + 1
    )
    return Cost(layer.outputs, layer.outputs * row, (timing.stage(m) + 20) * mesh.height)
