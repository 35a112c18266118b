"""Stored weights and weight streaming have these costs, as the weight-streaming paper models them (sections 3 and 5).

Memory and traffic of Table 1 are in *elements* per compute unit, as there; everything else is in operations, bytes and
bytes per second.  The traffic of the two hybrids with tensor parallelism is printed with N_d (and N_p) after the
fraction; only as part of the denominator do the hybrids collapse to their parts, and so they are computed.  A degree of
one has no partner and exchanges nothing.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from harness.plan.hardware import Device
from harness.plan.models import TransformerSizes
from harness.plan.strategies import STEPS
from harness.plan.units import DAY, WEEK
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = [
    "APPROACHES",
    "Parts",
    "buffered_shards",
    "link_rate",
    "operations",
    "service_bytes",
    "stored",
    "streaming",
    "streaming_run",
    "target_rate",
]

APPROACHES = ("data", "fsdp", "tensor", "pipeline", "data+tensor", "data+pipeline", "data+tensor+pipeline")

SERVICE_PARTS = {"weight": 4, "gradient": 4, "first momentum": 4, "second momentum": 4, "index": 2, "copy": 2}
"""A parameter takes so many bytes in the memory service with Adam: FP32 values, a 16-bit column index, an FP16 copy
(5.2).
"""


@dataclass(frozen=True)
class Parts:
    """`Parts` are the elements that one compute unit stores, and that it exchanges per batch in each direction."""

    activations: float
    parameters: float
    traffic: float

    @property
    def memory(self) -> float:
        """The parts have so many elements stored in all."""
        return self.activations + self.parameters


def stored(
    model: TransformerSizes,
    approach: str,
    batch: float,
    data: int = 1,
    tensor: int = 1,
    pipeline: int = 1,
    shard: float = 1,
    square: bool = True,
) -> Parts:
    """Return what one compute unit stores and exchanges when weights are kept in the compute units.

    Parameters
    ----------
    model : TransformerSizes
        Sizes.
    approach : str
        One of `APPROACHES`.
    batch : float
        B, sequences in a batch.
    data, tensor, pipeline : int
        N_d, N_m, N_p.
    shard : float
        b_p, sequences per shard in a pipeline.
    square : bool
        Whether tensor parallelism splits inputs and outputs (traffic falls with the root of N_m) or one of them.

    Returns
    -------
    Parts

    Raises
    ------
    ConfigError
        A degree that the model, the batch or the approach does not allow.
    """
    if approach not in APPROACHES:
        raise ConfigError(f"no approach {approach!r}", hint=suggestion(approach, APPROACHES))
    uses = {
        "data": approach in ("data", "fsdp") or "data+" in approach,
        "tensor": "tensor" in approach,
        "pipeline": "pipeline" in approach,
    }
    bounds = {
        "data": (data, batch, "sequences in the batch"),
        "tensor": (tensor, model.width, "features"),
        "pipeline": (pipeline, model.layers, "layers"),
    }
    for name, (degree, bound, what) in bounds.items():
        if degree < 1 or degree > bound:
            raise ConfigError(
                f"{name} degree {degree} is impossible: it lies between 1 and {bound:g}, the {what}", where=model.name
            )
        if degree > 1 and not uses[name]:
            raise ConfigError(f"approach {approach} has no {name} degree, {degree} was given", where=model.name)
    size, depth, hidden = model.parameters, model.layers, model.width * model.sequence
    weights = size / tensor / pipeline
    root = math.sqrt(tensor) if square else 1.0
    exchange = depth * hidden * batch / root
    if uses["pipeline"] and shard > batch / data:
        raise ConfigError(
            f"a shard of {shard:g} is more than the {batch / data:g} sequences of a pipeline", where=model.name
        )
    if approach == "fsdp":
        return Parts(depth * hidden * batch / data, size / data + size / depth, size if data > 1 else 0.0)
    if uses["pipeline"]:
        kept = (2 * pipeline - 1) * depth / pipeline * hidden / tensor * shard
    else:
        kept = depth * hidden * batch / data / tensor
    traffic = weights if data > 1 else 0.0
    if tensor > 1:
        traffic += exchange / data / pipeline
    elif pipeline > 1:
        traffic += hidden * batch / data
    return Parts(kept, weights, traffic)


def buffered_shards(stages: int) -> list[int]:
    """Return the shards that each stage of a full pipeline buffers: 2 (N_p - s) - 1 for stage s from 0 (3.2.2)."""
    return [2 * (stages - stage) - 1 for stage in range(stages)]


def operations(model: TransformerSizes, tokens: float | None = None) -> float:
    """Return operations of a training run: 6 per parameter and token (5.1)."""
    return 6 * _known(model, "tokens", tokens) * model.parameters


def target_rate(model: TransformerSizes, seconds: float = WEEK, tokens: float | None = None) -> float:
    """Return operations per second that finish a training run in a time (5.1)."""
    return operations(model, tokens) / seconds


def service_bytes(model: TransformerSizes, momenta: int = 2, sparse_copy: bool = True) -> float:
    """Return bytes of the memory service: FP32 weight, gradient and momenta, with 16-bit index and copy (5.2)."""
    if momenta not in (0, 1, 2):
        raise ConfigError(f"{momenta} momenta: 0 for plain SGD, 1 with momentum, 2 for Adam")
    parts = list(SERVICE_PARTS.values())
    return model.parameters * (sum(parts[: 2 + momenta]) + (sum(parts[4:]) if sparse_copy else 0))


def link_rate(model: TransformerSizes, seconds: float = WEEK, iterations: float | None = None) -> float:
    """Return bytes per second in each direction between memory service and compute units (5.3).

    Per batch a weight goes in twice in 16 bit, a gradient comes out once in 32 bit: 4 bytes in each direction.
    """
    return 4 * model.parameters * _known(model, "iterations", iterations) / seconds


def streaming(model: TransformerSizes, hardware: Device, samples: float, element: int = 2) -> dict[str, Any]:
    """Return the tensors that a wafer keeps for the backward pass, and refuse those that do not fit.

    Parameters
    ----------
    model : TransformerSizes
        Sizes; `tensors` stand for the layers if there are any.
    hardware : Device
        Memory of one system.
    samples : float
        Sequences per system and batch, processed at once.
    element : int
        Bytes per element.

    Returns
    -------
    dict
        ``tensors`` (name, bytes), ``bytes`` and ``parameters resident``, which is 0: no weight is kept.

    Raises
    ------
    ConfigError
        The first tensor that does not fit, and how many sequences would.
    """
    each = [(t.name, t.elements) for t in model.tensors] or [
        (f"activations of layer {layer}", model.width * model.sequence) for layer in range(1, model.layers + 1)
    ]
    used: float = 0
    kept = []
    for name, elements in each:
        used += elements * element * samples
        if used > hardware.memory:
            fits = math.floor(hardware.memory / sum(n * element for _, n in each))
            raise ConfigError(
                f"{name} does not fit: {used:.4g} bytes of {hardware.memory:.4g} are needed up to it "
                f"with {samples:g} samples per system",
                where=f"{model.name} on {hardware.name}",
                hint=f"at most {fits} samples per system" if fits else "one sample is already too much",
            )
        kept.append((name, elements * element * samples))
    return {"tensors": kept, "bytes": used, "parameters resident": 0}


def streaming_run(
    model: TransformerSizes, hardware: Device, systems: int | None = None, seconds: float | None = None
) -> dict[str, Any]:
    """Return what a training run by weight streaming needs on a number of systems, or on the fewest for a time.

    Without either, as many systems as the batch has sequences.

    A batch is divided over the systems.  Where the share of one exceeds its memory it takes several passes, in each of
    which every weight is streamed again.  Weights come in and gradients go out at the same time, each direction of the
    link for itself, while the systems compute; so the slower of compute and link sets the time.  A model without a
    published run trains for `STEPS` critical batches.

    Returns
    -------
    dict
        ``systems``, ``samples`` at once, ``passes``, ``bytes`` of activations, ``service`` [bytes], ``compute`` and
        ``traffic`` [s], ``seconds``.

    Raises
    ------
    ConfigError
        More systems than a batch has sequences, less time than all of them need, or a tensor that does not fit.
    """
    if not model.tokens:
        batch = model.critical_batch * model.sequence
        model = dataclasses.replace(model, batch_tokens=batch, tokens=STEPS * batch, iterations=STEPS)
    limit = math.floor(_known(model, "batch_tokens", None) / model.sequence)
    each = streaming(model, hardware, 1)["bytes"]
    rate = min(hardware.links[name].each_way for name in ("network", "service") if name in hardware.links)

    def run(number: int) -> dict[str, Any]:
        share = math.ceil(limit / number)
        passes = math.ceil(share / math.floor(hardware.memory / each))
        samples = math.ceil(share / passes)
        compute = operations(model) / number / hardware.flops
        iterations = model.iterations or model.tokens / model.batch_tokens
        traffic = link_rate(model, 1.0, iterations) * passes / rate
        return {
            "systems": number,
            "samples": samples,
            "passes": passes,
            "bytes": samples * each,
            "service": service_bytes(model),
            "compute": compute,
            "traffic": traffic,
            "seconds": max(compute, traffic),
        }

    if systems is not None:
        if not 1 <= systems <= limit:
            raise ConfigError(
                f"{systems} systems are impossible: they lie between 1 and {limit}, the sequences in a batch",
                where=model.name,
            )
        return run(systems)
    found = run(limit)
    if seconds is None:
        return found
    if found["seconds"] > seconds:
        raise ConfigError(
            f"{seconds / DAY:.3g} days are too few: {limit} systems, one per sequence of the batch, "
            f"compute for {found['compute'] / DAY:.3g} and stream for {found['traffic'] / DAY:.3g}",
            where=model.name,
            hint="more time",
        )
    low, high = 0, limit  # more systems are never slower
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if run(middle)["seconds"] <= seconds else (middle, high)
    return run(high)


def _known(model: TransformerSizes, name: str, value: float | None) -> float:
    """Return a number that was given or that the model's published run has."""
    value = getattr(model, name) if value is None else value
    if not value:
        raise ConfigError(
            f"number of {name} of the training run is not known",
            where=model.name,
            hint=f"{name} = ... in the model's file",
        )
    return value
