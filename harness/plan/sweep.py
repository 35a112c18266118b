"""Sweeps go over the size of X_[x] with x and every degree as real numbers, as behind Figures 4 to 8.

Whole degrees would draw saw teeth over thirteen orders of magnitude; the price is that limits read off these curves
differ from those printed, which were read off the authors' own approximation (docs/planner.md has both).

Curves have no jumps: a size one percent larger takes at most 1.3 percent longer, and never less time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.plan.hardware import Device
from harness.plan.models import Sizes, critical_sequences
from harness.plan.strategies import METHODS, TOLERANCE, Degrees, days, intensities, memory
from harness.plan.units import GIB

__all__ = ["SmoothModel", "continuous", "limit_days", "limit_memory", "month_ratio", "row", "smooth_model", "sweep"]

MONTH, YEAR = 30.0, 365.0


@dataclass(frozen=True)
class SmoothModel:
    """X_[x] with real sizes and one head, the `Sizes` of a sweep; see `TransformerSizes`."""

    name: str
    layers: float
    width: float
    sequence: float
    heads: float = 1

    @property
    def layer_parameters(self) -> float:
        """One layer has p_l weights in its matrices."""
        return 2 * self.width * (self.width + self.width) + 2 * self.width * (4 * self.width)

    @property
    def core(self) -> float:
        """All layers have p weights in their matrices."""
        return self.layer_parameters * self.layers

    @property
    def counted(self) -> float:
        """The same: biases and norms are left out."""
        return self.core

    @property
    def factor(self) -> float:
        """A layer has so many weights for each square of the width."""
        return self.layer_parameters / self.width**2

    @property
    def critical_batch(self) -> float:
        """The critical batch is b_c, in sequences (equation 2)."""
        return critical_sequences(self.core, self.sequence)


def smooth_model(parameters: float) -> SmoothModel:
    """Return X_[x] of a number of parameters, x real."""
    x = (parameters / 12) ** 0.2
    return SmoothModel(f"X{x:.4g}", layers=x, width=x * x, sequence=16 * x)


def tensor_degrees(model: Sizes, hardware: Device) -> list[float]:
    """Return the largest real degrees within the tolerance: inside a node, and over the network if that is more.

    Which of the two is faster is for time to decide: just above the size of a node the network costs the whole
    tolerance, for hardly more devices.
    """
    gain = TOLERANCE * intensities(model, Degrees("baseline", tensor=2))["tensor"]
    inside = max(1.0, min(hardware.node, 1 + gain / hardware.threshold("node")))
    over = 1 + gain / hardware.threshold("network")
    return [inside, over] if over > hardware.node else [max(inside, over)]


def continuous(model: Sizes, hardware: Device, method: str, tensor: float | None = None) -> Degrees:
    """Return the fastest of the configurations with real degrees that follow the rules of `harness.plan.search`.

    Where the rules take another branch the fastest of both is taken, so days are a continuous function of the size:
    at the edge of a branch the other one is there already.
    """
    degrees = tensor_degrees(model, hardware) if tensor is None else [tensor]
    options = [option for degree in degrees for option in _branches(model, hardware, method, degree)]
    return min(options, key=lambda config: days(model, config, hardware))


def _branches(model: Sizes, hardware: Device, method: str, tensor: float) -> Iterator[Degrees]:
    """Yield a configuration for each branch of the rules of a method."""
    batch, need = max(1.0, model.critical_batch), hardware.threshold("network")
    rule, each = METHODS[method], need / model.sequence  # each: sequences per operation and byte of the network
    if rule.layered:
        count = min(batch, max(1.0, each * (2 if rule.partitioned else 4 / 3)))
        deepest = max(1.0, min(count, model.layers))
        hidden = max(1.0, min(deepest, count / (1 + need / (model.factor / 2 * model.width))))
        flat = Degrees(method, 1.0, count, batch / count, 1.0, tensor)
        yield from (dataclasses.replace(flat, pipeline=depth) for depth in (1.0, hidden, deepest))
        yield _fastest_depth(model, hardware, flat, hidden, deepest)
        return
    micro = min(batch, max(1.0, each * (2 if rule.partitioned else 4 / 3)))
    yield Degrees(method, micro, 1.0, batch / micro, 1.0, tensor)
    if rule.partitioned:
        return
    # In a pipeline of depth n transfers hide behind n (1 + slope n) micro-batches, and that is at most the batch.
    slope = need / (model.factor / 2 * model.width * model.layers)
    depth = max(1.0, min(model.layers, 2 * batch / (1 + math.sqrt(1 + 4 * slope * batch))))
    yield Degrees(method, 1.0, batch, 1.0, depth, tensor)  # one instance reduces nothing
    count = depth * (1 + slope * depth)
    micro = max(1.0, each / (TOLERANCE * count))
    if micro * count <= batch:
        yield Degrees(method, micro, count, batch / (micro * count), depth, tensor)


def _fastest_depth(model: Sizes, hardware: Device, flat: Degrees, low: float, high: float) -> Degrees:
    """Return the fastest depth between two; days have one minimum there, as sums of a/n, b n and c n^2."""
    for _ in range(60):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        slower = [days(model, dataclasses.replace(flat, pipeline=depth), hardware) for depth in (left, right)]
        low, high = (low, right) if slower[0] < slower[1] else (left, high)
    return dataclasses.replace(flat, pipeline=(low + high) / 2)


def row(parameters: float, hardware: Device, method: str) -> dict[str, Any]:
    """Return one point of a sweep: parameters, days, and bytes that stay and that may be offloaded."""
    model = smooth_model(parameters)
    config = continuous(model, hardware, method)
    parts = memory(model, config)
    return {
        "parameters": parameters,
        "method": method,
        "days": days(model, config, hardware),
        "resident_gib": parts["resident"] / GIB,
        "offloadable_gib": parts["offloadable"] / GIB,
        "devices": config.devices,
    }


def sweep(
    hardware: Device,
    methods: Sequence[str] = ("baseline", "partitioned", "improved"),
    low: float = 1e9,
    high: float = 1e17,
    points: int = 49,
) -> list[dict[str, Any]]:
    """Return the points of a figure, method by method."""
    sizes = np.geomspace(low, high, points).tolist()
    return [row(size, hardware, method) for method in methods for size in sizes]


def wide_node(hardware: Device) -> Device:
    """Return the same hardware with nodes of any size (Figure 5)."""
    return dataclasses.replace(hardware, name=f"{hardware.name}, any node", node=math.inf)


def month_ratio(parameters: float, hardware: Device, method: str) -> dict[str, Any]:
    """Return bytes per operation/s that training in a month needs (Figure 6).

    Data and pipeline parallelism are as in the fastest configuration; the tensor degree, which may be below one, is
    whatever makes the cluster fast enough with the devices as they are.
    """
    model = smooth_model(parameters)
    base = continuous(model, hardware, method, 1.0)
    seconds = days(model, base, hardware)
    config = dataclasses.replace(base, tensor=seconds / MONTH)
    parts = memory(model, config)
    fast = memory(model, continuous(model, hardware, method))
    return {
        "parameters": parameters,
        "method": method,
        "resident": parts["resident"] / hardware.flops,
        "offloadable": parts["offloadable"] / hardware.flops,
        "resident_now": fast["resident"] / hardware.flops,
        "offloadable_now": fast["offloadable"] / hardware.flops,
        "tensor": config.tensor,
    }


def _crossing(value: Callable[[float], float], low: float = 1e8, high: float = 1e19) -> float:
    """Return where an increasing function of the parameters crosses zero, on a logarithmic axis."""
    low, high = math.log(low), math.log(high)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if value(math.exp(middle)) < 0 else (low, middle)
    return math.exp(low)


def limit_days(hardware: Device, method: str, limit: float) -> float:
    """Return the number of parameters that trains in `limit` days."""
    return _crossing(lambda size: row(size, hardware, method)["days"] - limit)


def limit_memory(hardware: Device, method: str, offload: bool) -> float:
    """Return the number of parameters from which a device is full, with or without what may be offloaded."""

    def excess(size: float) -> float:
        found = row(size, hardware, method)
        used = found["resident_gib"] + (0 if offload else found["offloadable_gib"])
        return used - hardware.memory / GIB

    return _crossing(excess, low=1e12)
