"""One configuration of a distributed training run has intensities, overheads, memory and time.

The formulas are those of the paper on layered accumulation and modular pipelines, appendix C; equation numbers stand
beside each.  Intensities are operations per byte, to be compared with `Device.threshold`.  Every overhead is a
fraction of the compute time.

How overheads come together is not printed; here it is what a device does (`slowdown`).  Tensor parallelism and the
reduction of a standard pipeline stop it, so they add.  What is hidden behind compute needs other links at the same
time, so only the longest of them shows.  The bubble of a pipeline stretches all of it.  So no configuration gets
slower on a faster device or link, which products of overheads do not promise, and every printed cell follows.

All formulas take numbers or arrays of numpy; `harness.plan.optimum` asks for thousands of configurations at once.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harness.plan.hardware import Device
from harness.plan.models import Sizes
from harness.plan.units import DAY
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = [
    "ACTIVATION_BYTES",
    "METHODS",
    "STEPS",
    "Degrees",
    "Method",
    "check",
    "days",
    "efficiency",
    "gpu_days",
    "intensities",
    "memory",
    "overheads",
    "reduction_bytes",
    "slowdown",
]

ACTIVATION_BYTES = 102
"""Activations take so many bytes per token and unit of width inside a layer.  The formula is lost in the paper (C.3);
this is the only whole number that gives every cell of Table 6.2, whose digits allow 101.99 to 102.07.  A declared fit.
"""

STEPS = 1e5
"""Batches of critical size in a training run; a smaller batch takes more steps for the same work (section 6)."""

TOLERANCE = 0.25
"""The rules take at most this overhead from tensor parallelism or from a reduction that is not hidden."""


def _choose(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where a condition holds and `no` elsewhere."""
    return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else yes if condition else no


def _most(*values: Any) -> Any:
    """Return the largest value, element by element."""
    found = values[0]
    for value in values[1:]:
        both = isinstance(found, np.ndarray) or isinstance(value, np.ndarray)
        found = np.maximum(found, value) if both else max(found, value)
    return found


@dataclass(frozen=True)
class Method:
    """A `Method` says how training is scheduled: layers or micro-batches in the outer loop, training state whole or
    partitioned.
    """

    layered: bool
    partitioned: bool


METHODS = {
    "baseline": Method(False, False),
    "partitioned": Method(False, True),
    "improved": Method(True, True),
    "improved-whole": Method(True, False),
}
"""Methods by name; the last is the dotted line of Figure 8."""


@dataclass(frozen=True)
class Degrees:
    """A `Degrees` has the degrees of a training run.

    Attributes
    ----------
    method : str
        One of `METHODS`.
    micro : float
        b_mu, sequences in a micro-batch.
    count : float
        n_mu, micro-batches in sequence.
    data, pipeline, tensor : float
        n_b, n_l, n_a.  Sweeps use numbers that are not whole.
    offload : bool
        Whether training state and activation checkpoints are kept by the host.
    """

    method: str
    micro: float = 1
    count: float = 1
    data: float = 1
    pipeline: float = 1
    tensor: float = 1
    offload: bool = False

    @property
    def rule(self) -> Method:
        """The configuration follows this `Method`."""
        return METHODS[self.method]

    @property
    def batch(self) -> float:
        """A batch has b sequences."""
        return self.micro * self.count * self.data

    @property
    def devices(self) -> float:
        """The run takes n_gpu devices."""
        return self.data * self.pipeline * self.tensor

    def as_dict(self) -> dict[str, Any]:
        """Return the degrees with batch and devices."""
        return asdict(self) | {"batch": self.batch, "devices": self.devices}


def check(model: Sizes, config: Degrees, hardware: Device | None = None) -> None:
    """Raise `ConfigError` unless the degrees are possible; the message names the bound."""
    if config.method not in METHODS:
        raise ConfigError(f"no strategy {config.method!r}", hint=suggestion(config.method, METHODS))
    for name in ("micro", "count", "data", "pipeline", "tensor"):
        value = getattr(config, name)
        if not (value >= 1 and math.isfinite(value)) or value != int(value):
            raise ConfigError(f"degree {name} = {value} must be a whole number from 1", where=model.name)
    bounds: list[tuple[str, float, float, str]] = [
        ("pipeline", config.pipeline, model.layers, "layers of the model"),
        ("tensor", config.tensor, model.heads, "attention heads of the model"),
        ("batch", config.batch, math.floor(model.critical_batch), "critical batch in sequences"),
    ]
    if config.pipeline > 1:
        bounds.append(("pipeline", config.pipeline, config.count, "micro-batches that keep it busy"))
    if hardware is not None:
        bounds.append(("tensor", config.tensor, hardware.node, f"devices in a node of {hardware.name}"))
    for name, value, bound, what in bounds:
        if value > bound:
            raise ConfigError(f"{name} = {value:g} exceeds {bound:g}, the {what}", where=model.name)


def intensities(model: Sizes, config: Degrees) -> dict[str, Any]:
    """Return operations per byte of each kind of traffic; those that do not occur are infinite.

    Returns
    -------
    dict
        ``data`` (5-9), ``pipeline`` (10, 11), ``tensor`` (12), ``state`` (13), ``checkpoint`` (14).
    """
    rule, sequence = config.rule, model.sequence
    micro = config.micro * sequence
    whole = micro * config.count  # tokens per data-parallel instance and batch: b d_s / n_b
    if rule.layered:
        data = whole / 2 if rule.partitioned else 3 * whole / 4
    elif rule.partitioned:
        data = micro / 2
    else:
        data = whole if config.pipeline > 1 else 3 * micro / 4
    spread = 1 if rule.layered else model.layers / config.pipeline
    inner = (model.factor / 2) * model.width  # (2 + n_I) d_m
    return {
        "data": _choose(config.data > 1, data, math.inf),
        "pipeline": inner * spread if config.pipeline > 1 else math.inf,
        "tensor": 2 * inner / (3 * (config.tensor - 1)) if config.tensor > 1 else math.inf,
        "state": (whole if rule.layered else micro) * (config.data if rule.partitioned else 1),
        "checkpoint": 2 * inner,
    }


def reduction_bytes(model: Sizes, config: Degrees) -> float:
    """Return bytes that one device sends and receives per batch to restore parameters and reduce gradients (C.4.1).

    Whole state: 8 bytes per parameter that the device holds; partitioned, 12, which the standard order repeats for each
    micro-batch.
    """
    if config.data <= 1:
        return 0.0
    repeats = 1 if config.rule.layered or not config.rule.partitioned else config.count
    return (12 if config.rule.partitioned else 8) * repeats * model.core / config.pipeline / config.tensor


def overheads(model: Sizes, config: Degrees, hardware: Device) -> dict[str, Any]:
    """Return each overhead as a fraction of the compute time.

    Returns
    -------
    dict
        ``bubble`` (section 4), ``tensor`` (never hidden), ``transfer`` between stages (hidden by enough micro-batches,
        C.4.2: a micro-batch is back after n_l steps and transfers, and a device waits for it if its own n_mu steps are
        over before), ``reduction`` (hidden, except in a standard pipeline), ``offload`` (hidden; the host's link and,
        with the network, the shared PCI express are limits).
    """
    rule, need = config.rule, intensities(model, config)
    bubble = (config.pipeline - 1) / config.count * (config.pipeline / model.layers if rule.layered else 1)
    inside = "node" if config.tensor <= hardware.node else "network"
    tensor = hardware.threshold(inside) / need["tensor"] if config.tensor > 1 else 0.0
    reduction = hardware.threshold("network") / need["data"]
    if _hides_reduction(config):
        reduction = _most(0.0, reduction - 1)
    transfer: Any = 0.0
    if config.pipeline > 1:
        longer = 1 + hardware.threshold("network") / need["pipeline"]
        transfer = _most(0.0, longer * config.pipeline / config.count - 1)
    offload: Any = 0.0
    if config.offload:
        shared = 1 / need["data"] + 1 / need["state"]
        offload = _most(
            0.0,
            hardware.threshold("cpu") / need["state"] - 1,
            hardware.threshold("cpu") / need["checkpoint"] - 1,
            hardware.threshold("pcie") * shared - 1,
        )
    return {"bubble": bubble, "tensor": tensor, "transfer": transfer, "reduction": reduction, "offload": offload}


def _hides_reduction(config: Degrees) -> bool:
    """Whether reductions happen behind compute; in a standard pipeline they come after it."""
    return config.rule.layered or config.rule.partitioned or config.pipeline == 1


def slowdown(model: Sizes, config: Degrees, hardware: Device) -> Any:
    """Return how many times longer a batch takes than its compute alone."""
    costs = overheads(model, config, hardware)
    behind, stops = [costs["transfer"], costs["offload"]], costs["tensor"]
    if _hides_reduction(config):
        behind.append(costs["reduction"])
    else:
        stops = stops + costs["reduction"]
    return (1 + costs["bubble"]) * (1 + stops + _most(*behind))


def efficiency(model: Sizes, config: Degrees, hardware: Device) -> Any:
    """Return the share of time in which devices compute."""
    return 1 / slowdown(model, config, hardware)


def memory(model: Sizes, config: Degrees) -> dict[str, Any]:
    """Return bytes per device (C.3).

    Returns
    -------
    dict
        ``state``, ``checkpoint``, ``buffers``, ``activations``, and the sums ``offloadable`` (the first two) and
        ``resident``.  Gradients need none that lasts: weights are updated as soon as a layer's gradient is complete.
    """
    split = config.devices if config.rule.partitioned else config.pipeline * config.tensor
    state = 12 * model.core / split
    checkpoint = 2 * config.batch * model.sequence * model.width * model.layers / config.devices
    buffers = 6 * model.layer_parameters / config.tensor
    activations = config.micro * model.sequence * ACTIVATION_BYTES * model.width / config.tensor
    return {
        "state": state,
        "checkpoint": checkpoint,
        "buffers": buffers,
        "activations": activations,
        "offloadable": state + checkpoint,
        "resident": buffers + activations,
    }


def gpu_days(model: Sizes, hardware: Device, steps: float = STEPS, batch: float | None = None) -> float:
    """Return device days at perfect efficiency: 8 operations per token and parameter (C.1)."""
    # Memory and traffic take p as the weights of the matrices, work as the parameters of Table B.1: each is what gives
    # the printed digits (61.2 K GiB in Table 6.2, 180 days in Table 6.3); the two differ by 5e-5 for X160.
    batch = model.critical_batch if batch is None else batch
    return 8 * steps * batch * model.sequence * model.counted / hardware.flops / DAY


def days(model: Sizes, config: Degrees, hardware: Device) -> Any:
    """Return days of a training run of fixed work: `STEPS` critical batches, whatever the batch is."""
    return gpu_days(model, hardware) / config.devices * slowdown(model, config, hardware)
