"""A configuration is searched for by the rules of the paper on layered accumulation (section 5).

They give every published row, and `wse plan --rules` shows them; the fastest of all is found by `harness.plan.optimum`.

What every method has in common: the batch is at most the critical one, the degree of tensor parallelism is the largest
whose overhead stays within a quarter, and state and checkpoints are offloaded only if a device cannot hold them.

baseline
    The deepest pipeline that the batch can fill, if possible one layer per device; just enough micro-batches to hide
    the transfers between stages; then the smallest micro-batch without a bottleneck, as many data-parallel instances
    as the batch allows, and what is left of the batch as further micro-batches.
partitioned
    The same without a pipeline.
improved
    Micro-batches of one sequence and the fewest of them that hide the reduction, therefore the most data-parallel
    instances; then the depth of pipeline that is fastest, with its transfers hidden or not.

`complete` applies the same rules when batch and number of devices are given (Table 6.3); `for_devices` and `for_days`
look for the best configuration of a cluster, or the smallest cluster for a time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

from harness.plan.hardware import Device
from harness.plan.models import TransformerSizes
from harness.plan.strategies import METHODS, TOLERANCE, Degrees, check, days, intensities, memory, overheads
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = [
    "PARALLELISM",
    "complete",
    "fastest",
    "for_days",
    "for_devices",
    "micro_batches",
    "tensor_degree",
    "too_few_days",
    "too_large",
]

PARALLELISM = ("data", "pipe", "tensor")


def tensor_degree(model: TransformerSizes, hardware: Device, limit: int | None = None) -> int:
    """Return the largest power of two whose tensor overhead is within `TOLERANCE`, inside a node."""
    most = min(hardware.node, model.heads) if limit is None else limit
    degree = 1
    while (
        2 * degree <= most and overheads(model, Degrees("baseline", tensor=2 * degree), hardware)["tensor"] <= TOLERANCE
    ):
        degree *= 2
    return degree


def micro_batches(model: TransformerSizes, hardware: Device, pipeline: int) -> int:
    """Return the fewest micro-batches that keep a standard pipeline busy and hide its transfers (C.4.2)."""
    if pipeline == 1:
        return 1
    need = intensities(model, Degrees("baseline", pipeline=pipeline))["pipeline"]
    return math.ceil(pipeline * (1 + hardware.threshold("network") / need))


def fastest(model: TransformerSizes, hardware: Device, method: str, parallelism: Collection[str]) -> Degrees:
    """Return the fastest configuration of one method.

    Parameters
    ----------
    model : TransformerSizes
    hardware : Device
    method : str
        One of `METHODS`.
    parallelism : collection of str
        Which of `PARALLELISM` may be used.

    Returns
    -------
    Config

    Raises
    ------
    ConfigError
        Unknown names, a pipeline with the partitioned method, or a model that fits no device.
    """
    _known(method, parallelism)
    batch = math.floor(model.critical_batch)
    tensor = tensor_degree(model, hardware) if "tensor" in parallelism else 1
    rule = METHODS[method]
    for pipeline in [1] if rule.layered else _depths(model, method, parallelism)[::-1]:
        for offload in (False, True):
            if rule.layered:
                found = _layered(model, hardware, method, parallelism, batch, tensor, offload)
            else:
                found = _standard(model, hardware, method, parallelism, batch, tensor, pipeline, offload)
            if found and _fits(model, found, hardware):
                check(model, found, hardware)
                return found
    raise too_large(model, hardware, method, parallelism)


def complete(
    model: TransformerSizes,
    hardware: Device,
    method: str,
    parallelism: Collection[str],
    batch: int,
    devices: int,
    tensor: int,
) -> Degrees:
    """Return the configuration of a given batch, number of devices and tensor degree, by the same rules.

    Raises
    ------
    ConfigError
        If no division of the devices obeys the rules.
    """
    _known(method, parallelism)
    if batch > math.floor(model.critical_batch):
        raise ConfigError(
            f"batch {batch} exceeds the critical batch of {model.critical_batch:.0f} sequences", where=model.name
        )
    rest, left = divmod(devices, tensor)
    if left:
        raise ConfigError(f"{devices} devices are no multiple of the tensor degree {tensor}", where=model.name)
    depths = _depths(model, method, parallelism)
    for pipeline in depths if METHODS[method].layered else depths[-1:]:  # shallow first: the most data parallelism
        data, left = divmod(rest, pipeline)
        if left or not data or batch % data:
            continue
        found = _split(model, hardware, method, batch // data, data, pipeline, tensor)
        if found:
            return found
    raise ConfigError(
        f"no {method} configuration has batch {batch}, {devices} devices and tensor degree {tensor}", where=model.name
    )


def for_devices(
    model: TransformerSizes, hardware: Device, method: str, devices: int, parallelism: Collection[str] = PARALLELISM
) -> Degrees:
    """Return the fastest configuration with at most a number of devices, or raise `ConfigError`."""
    _known(method, parallelism)
    if devices < 1:
        raise ConfigError(f"{devices} devices: at least one is needed", where=model.name)
    found = list(_within(model, hardware, method, devices, parallelism))
    if not found:
        raise too_large(model, hardware, method, parallelism)
    return min(found, key=lambda config: (days(model, config, hardware), config.devices))


def for_days(
    model: TransformerSizes, hardware: Device, method: str, limit: float, parallelism: Collection[str] = PARALLELISM
) -> Degrees:
    """Return the configuration with the fewest devices that trains within a number of days, or raise `ConfigError`."""
    if not limit > 0:
        raise ConfigError(f"{limit} days: must be above zero", where=model.name)
    best = fastest(model, hardware, method, parallelism)
    if days(model, best, hardware) > limit:
        raise too_few_days(model, hardware, method, limit, best)
    low, high = 0, int(best.devices)
    while high - low > max(1, high // 500):
        middle = (low + high) // 2
        options = [
            c for c in _within(model, hardware, method, middle, parallelism) if days(model, c, hardware) <= limit
        ]
        if options:
            best = min(options, key=lambda config: (config.devices, days(model, config, hardware)))
            high = min(int(best.devices), middle)
        else:
            low = middle
    return best


def too_few_days(model: TransformerSizes, hardware: Device, method: str, limit: float, best: Degrees) -> ConfigError:
    """Return the error of a time that the fastest configuration, `best`, exceeds."""
    return ConfigError(
        f"{limit:g} days are too few: the fastest {method} configuration needs "
        f"{days(model, best, hardware):.3g} on {best.devices} devices",
        where=model.name,
        hint="more days, another --strategy, or other hardware",
    )


def _known(method: str, parallelism: Collection[str]) -> None:
    """Raise unless method and kinds of parallelism exist and go together."""
    if method not in METHODS:
        raise ConfigError(f"no strategy {method!r}", hint=suggestion(method, METHODS))
    for kind in parallelism:
        if kind not in PARALLELISM:
            raise ConfigError(f"no parallelism {kind!r}", hint=suggestion(kind, PARALLELISM))
    if method == "partitioned" and "pipe" in parallelism and "data" not in parallelism:
        raise ConfigError("the partitioned method uses no pipeline; it divides over data parallelism")


def _depths(model: TransformerSizes, method: str, parallelism: Collection[str]) -> list[int]:
    """Return the pipeline depths that a method considers, shallow first; the standard one has equal chunks."""
    if "pipe" not in parallelism or method == "partitioned":
        return [1]
    depths = range(1, model.layers + 1)
    return list(depths) if METHODS[method].layered else _divisors(model.layers, depths)


def _divisors(number: int, options: Iterable[int]) -> list[int]:
    """Return those options that divide a number."""
    return [option for option in options if number % option == 0]


def _bottleneck(model: TransformerSizes, config: Degrees, hardware: Device) -> bool:
    """Whether the reduction or the host's link slows a configuration more than the rules allow."""
    costs = overheads(model, config, hardware)
    hidden = config.rule.layered or config.rule.partitioned or config.pipeline == 1
    return costs["reduction"] > (0 if hidden else TOLERANCE) or costs["offload"] > 0


def _standard(
    model: TransformerSizes,
    hardware: Device,
    method: str,
    parallelism: Collection[str],
    batch: int,
    tensor: int,
    pipeline: int,
    offload: bool,
) -> Degrees | None:
    """Return the configuration of the baseline or partitioned rules, or None if there is no micro-batch for it."""
    count = micro_batches(model, hardware, pipeline)
    for micro in range(1, batch // count + 1):
        data = batch // (micro * count) if "data" in parallelism else 1
        config = Degrees(method, micro, count, data, pipeline, tensor, offload)
        if not _bottleneck(model, config, hardware):
            more = batch // (micro * data) if pipeline > 1 or data == 1 else count
            return Degrees(method, micro, more, data, pipeline, tensor, offload)
    return None


def _layered(
    model: TransformerSizes,
    hardware: Device,
    method: str,
    parallelism: Collection[str],
    batch: int,
    tensor: int,
    offload: bool,
) -> Degrees | None:
    """Return the configuration of the improved rules, or None."""
    for count in range(1, batch + 1):
        data = batch // count if "data" in parallelism else 1
        config = Degrees(method, 1, count if data > 1 else batch, data, 1, tensor, offload)
        if not _bottleneck(model, config, hardware):
            break
    else:
        return None
    depths = [n for n in _depths(model, method, parallelism) if n <= config.count]
    options = [Degrees(method, 1, config.count, config.data, n, tensor, offload) for n in depths]
    return min(options, key=lambda option: (days(model, option, hardware), option.pipeline))


def _split(
    model: TransformerSizes, hardware: Device, method: str, share: int, data: int, pipeline: int, tensor: int
) -> Degrees | None:
    """Return the configuration whose instances take `share` sequences each: the smallest micro-batch that works."""
    layered = METHODS[method].layered
    least = pipeline if layered else micro_batches(model, hardware, pipeline)
    for micro in range(1, 2 if layered else share + 1):
        if share % micro or share // micro < least:
            continue
        for offload in (False, True):
            config = Degrees(method, micro, share // micro, data, pipeline, tensor, offload)
            if _fits(model, config, hardware) and not _bottleneck(model, config, hardware):
                return config
    return None


def _within(
    model: TransformerSizes, hardware: Device, method: str, devices: int, parallelism: Collection[str]
) -> Iterator[Degrees]:
    """Yield a configuration per tensor degree and pipeline depth, each with as much data parallelism as is possible."""
    batch = math.floor(model.critical_batch)
    most = tensor_degree(model, hardware) if "tensor" in parallelism else 1
    for tensor in (2**power for power in range(most.bit_length())):
        for pipeline in _divisors(model.layers, _depths(model, method, parallelism)):
            data = min(devices // (tensor * pipeline), batch // pipeline) if "data" in parallelism else 1
            while data * tensor * pipeline <= devices and data >= 1:
                found = _split(model, hardware, method, batch // data, data, pipeline, tensor)
                if found:
                    yield found
                    break
                # Fewer instances with a larger share each; the share must grow for anything to change.
                data = batch // (batch // data + 1) if "data" in parallelism else 0


def _fits(model: TransformerSizes, config: Degrees, hardware: Device) -> bool:
    """Whether a device holds what it must."""
    parts = memory(model, config)
    return parts["resident"] + (0 if config.offload else parts["offloadable"]) <= hardware.memory


def too_large(model: TransformerSizes, hardware: Device, method: str, parallelism: Collection[str]) -> ConfigError:
    """Return the error of a model that fits no device under the rules."""
    tensor = tensor_degree(model, hardware) if "tensor" in parallelism else 1
    least = memory(model, Degrees(method, tensor=tensor))["resident"]
    where = f"{model.name} on {hardware.name}"
    if least > hardware.memory:
        return ConfigError(
            f"no {method} configuration fits: {least:.4g} bytes must stay on a device of {hardware.memory:.4g}",
            where=where,
            hint="other hardware, or tensor parallelism",
        )
    return ConfigError(
        f"no {method} configuration works: within the critical batch of {model.critical_batch:.0f} "
        "sequences no micro-batch keeps up with the links that it needs, the host's included",
        where=where,
        hint="faster links, more memory, or more kinds of parallelism",
    )
