"""The fastest configuration, and the one with the fewest devices, are found by looking at all that could be it.

The rules of the paper (`harness.plan.search`) choose by thresholds, so a faster device can end up with a slower
configuration.  Here every configuration within the bounds counts:

* the batch is at most the critical one, a pipeline has at least as many micro-batches as stages;
* a standard pipeline has equal chunks of layers, a modular one any depth; the partitioned method has no pipeline;
* tensor degrees lie inside a node: its divisors and powers of two, at most one per attention head;
* what stays on a device fits its memory, with training state and checkpoints or, offloaded, without.

Three kinds are left out, because another configuration with the same devices is at least as fast and as small: fewer
instances than the batch allows, unless it is one, which reduces nothing; micro-batches of more than one sequence in a
layered method, where only their product with the count matters for transfers and the count shortens the bubble, or in
a standard pipeline that does not offload; and several micro-batches in a row without a pipeline in a standard method.
Pairs of tensor degree and depth are visited by a lower bound of their days, until none can be better.
`tests/harness/plan/test_optimum.py` compares with plain enumeration.

More devices, days, memory, operations per second or bandwidth never give a slower or a larger answer: the set of
configurations grows or stays, and none of them gets slower (`harness.plan.strategies`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np

from harness.plan.hardware import Device
from harness.plan.models import TransformerSizes
from harness.plan.search import too_few_days, too_large
from harness.plan.strategies import METHODS, Degrees, check, days, gpu_days, memory, overheads
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = ["DEGREES", "MOST_SEQUENCES", "fewest", "optimum"]

DEGREES = ("micro", "count", "data", "pipeline", "tensor")
"""These degrees can be fixed."""

MOST_SEQUENCES = 1_000_000
"""Critical batches of at most so many sequences are searched: some seconds."""

SAME = 1 + 1e-12
"""Times that differ by less are equal; then fewer devices are better."""


def optimum(
    model: TransformerSizes,
    hardware: Device,
    method: str,
    devices: int | None = None,
    fixed: Mapping[str, int] | None = None,
) -> Degrees:
    """Return the fastest configuration of a method, with at most a number of devices if one is given.

    Parameters
    ----------
    model : TransformerSizes
    hardware : Device
    method : str
        One of `harness.plan.strategies.METHODS`.
    devices : int, optional
    fixed : dict, optional
        Degrees of `DEGREES` that are set already.

    Raises
    ------
    ConfigError
        Unknown names, degrees beyond a bound, or a model that fits no device.
    """
    best = _Space(model, hardware, method, devices, dict(fixed or {})).best()
    if best is None:
        if fixed or devices is not None:
            at_most = "" if devices is None else f" with at most {devices} devices"
            given = "".join(f", {name} = {value}" for name, value in (fixed or {}).items())
            raise ConfigError(
                f"no {method} configuration fits{at_most}{given}",
                where=f"{model.name} on {hardware.name}",
                hint="more devices, other degrees, or more memory",
            )
        raise too_large(model, hardware, method, ("data", "pipe", "tensor"))
    check(model, best, hardware)
    return best


def fewest(
    model: TransformerSizes, hardware: Device, method: str, limit: float, fixed: Mapping[str, int] | None = None
) -> Degrees:
    """Return the configuration with the fewest devices that trains within a number of days, or raise `ConfigError`."""
    best = optimum(model, hardware, method, None, fixed)
    if days(model, best, hardware) > limit:
        raise too_few_days(model, hardware, method, limit, best)
    low, high = math.ceil(gpu_days(model, hardware) / limit) - 1, int(best.devices)
    while high - low > 1:  # the fastest of more devices is never slower
        middle = (low + high) // 2
        found = _Space(model, hardware, method, middle, dict(fixed or {})).best(limit)
        if found is not None and days(model, found, hardware) <= limit:
            high = int(found.devices)
        else:
            low = middle
    return optimum(model, hardware, method, high, fixed)


class _Space:
    """The configurations within the bounds."""

    def __init__(
        self, model: TransformerSizes, hardware: Device, method: str, devices: int | None, fixed: dict[str, int]
    ) -> None:
        if method not in METHODS:
            raise ConfigError(f"no strategy {method!r}", hint=suggestion(method, METHODS))
        for name in fixed:
            if name not in DEGREES:
                raise ConfigError(f"unknown degree {name!r}", hint=suggestion(name, DEGREES))
        self.model, self.hardware, self.method, self.fixed = model, hardware, method, fixed
        self.rule, self.batch = METHODS[method], math.floor(model.critical_batch)
        where = f"{model.name} on {hardware.name}"
        if devices is not None and devices < 1:
            raise ConfigError(f"{devices} devices: at least one is needed", where=where)
        if self.batch > MOST_SEQUENCES:
            raise ConfigError(
                f"a critical batch of {self.batch:,} sequences is not searched",
                where=where,
                hint=f"at most {MOST_SEQUENCES:,}, by the key critical of a model file",
            )
        self.most = devices or math.inf
        depth = fixed.get("pipeline", 1)
        if fixed:
            asked = {**dict.fromkeys(DEGREES, 1), "count": depth, **fixed}
            micro, count, data, pipeline, tensor = (asked[name] for name in DEGREES)
            check(model, Degrees(method, micro, count, data, pipeline, tensor), hardware)
        if self.rule == METHODS["partitioned"] and depth > 1:
            raise ConfigError("the partitioned method uses no pipeline; it divides over data parallelism", where=where)
        if not self.rule.layered and model.layers % depth:
            raise ConfigError(
                f"a standard pipeline of {depth} stages does not divide the {model.layers} layers", where=where
            )
        self.offloads = (False, True) if {"cpu", "pcie"} <= set(hardware.links) else (False,)

    def best(self, limit: float | None = None) -> Degrees | None:
        """Return the fastest configuration, or with a limit any that trains within so many days; None if none does."""
        best, time = None, math.inf
        for bound, tensor, depth in self.pairs():
            if bound > time * SAME or (limit is not None and (bound > limit or time <= limit)):
                break
            found = self.best_of(tensor, depth)
            if found is None:
                continue
            new = days(self.model, found, self.hardware)
            if new * SAME < time or (new <= time * SAME and best is not None and found.devices < best.devices):
                best, time = found, min(new, time)
        return best

    def tensors(self) -> list[int]:
        """Return the tensor degrees."""
        if "tensor" in self.fixed:
            return [self.fixed["tensor"]]
        most = math.floor(min(self.hardware.node, self.model.heads)) if "node" in self.hardware.links else 1
        found = [n for n in range(1, most + 1) if self.hardware.node % n == 0 or n & (n - 1) == 0]
        least = Degrees(self.method, micro=self.fixed.get("micro", 1))

        def stays(tensor: int) -> float:
            return memory(self.model, dataclasses.replace(least, tensor=tensor))["resident"]

        return [tensor for tensor in found if stays(tensor) <= self.hardware.memory]

    def depths(self) -> np.ndarray:
        """Return the depths of a pipeline."""
        if "pipeline" in self.fixed:
            return np.array([self.fixed["pipeline"]])
        if self.rule == METHODS["partitioned"]:
            return np.array([1])
        found = np.arange(1, max(1, min(self.model.layers, self.batch)) + 1)
        return found if self.rule.layered else found[self.model.layers % found == 0]

    def pairs(self) -> Iterator[tuple[float, int, int]]:
        """Yield (lower bound of the days, tensor degree, depth), smallest bound first."""
        model, depths, batch = self.model, self.depths(), max(1, self.batch)
        work, bounds = gpu_days(model, self.hardware), []
        spread = depths / model.layers if self.rule.layered else 1.0
        idle = (depths - 1) * spread  # the bubble is this over the count
        for tensor in self.tensors():
            cost = overheads(model, Degrees(self.method, tensor=tensor), self.hardware)["tensor"]
            group = depths * tensor
            # With c micro-batches there are at most batch / c instances, and c is at least the depth.
            by_batch = (np.minimum(depths, batch) + idle) / batch / group
            by_devices = (1 + idle / batch) / self.most
            bound = work * (1 + cost) * np.maximum(by_batch, by_devices)
            bounds += [
                (low, tensor, depth)
                for low, depth in zip(bound.tolist(), depths.tolist(), strict=True)
                if tensor * depth <= self.most
            ]
        yield from sorted(bounds)

    def best_of(self, tensor: int, depth: int) -> Degrees | None:
        """Return the fastest configuration of a tensor degree and a depth, None if none fits."""
        best, least = None, (math.inf, math.inf)
        for offload in self.offloads:
            micro, count = self._shares(depth, offload)
            if not len(micro):
                continue
            room = np.maximum(1, self.batch // (micro * count))
            if self.most < math.inf:
                room = np.minimum(room, self.most // (tensor * depth))
            for data in (
                [np.full_like(micro, self.fixed["data"])] if "data" in self.fixed else [np.ones_like(room), room]
            ):
                options = Degrees(self.method, micro, count, data, depth, tensor, offload)  # type: ignore[arg-type]
                parts = memory(self.model, options)
                used = parts["resident"] + (0 if offload else parts["offloadable"])
                fits = (used <= self.hardware.memory) & (data <= room)
                time = np.where(fits, days(self.model, options, self.hardware), math.inf)
                low = time.min()
                if low > least[0] * SAME or low == math.inf:
                    continue
                same = np.flatnonzero(time <= low * SAME)
                at = same[np.argmin((micro * count * data)[same])]
                if (low, data[at]) < least:
                    least = (low, data[at])
                    best = dataclasses.replace(options, micro=int(micro[at]), count=int(count[at]), data=int(data[at]))
        return best

    def _shares(self, depth: int, offload: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return (micro, count) of all pairs that are worth a look, by what the module's head says."""
        most = max(1, self.batch // self.fixed.get("data", 1))
        if "micro" in self.fixed:
            micros = np.array([self.fixed["micro"]])
        elif self.rule.layered or (depth > 1 and not offload):
            micros = np.array([1])
        else:
            micros = np.arange(1, most // depth + 1)
        if "count" in self.fixed or (depth == 1 and not self.rule.layered):
            counts = np.full(len(micros), self.fixed.get("count", 1))
            fit = (micros * counts <= most) & (counts >= depth)
            return micros[fit], counts[fit]
        sizes = np.maximum(0, most // micros - depth + 1)
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.repeat(micros, sizes), np.arange(sizes.sum()) - first + depth
