"""The strategies of `wse plan` by name: one row of `STRATEGIES` says who answers; no other file lists them.

A strategy is a function of a `Request` and its own name that returns a plan as a flat dict, whose first key is
``strategy``, or raises `ConfigError` for what is impossible.  Three families stand behind the names: configurations
that are searched for (`harness.plan.search`), weights that are streamed and weights that are stored
(`harness.plan.approaches`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.config.assignments import parse_assignments
from harness.plan import approaches
from harness.plan.checkpoints import media
from harness.plan.hardware import Device, wafer
from harness.plan.models import Model
from harness.plan.search import PARALLELISM, fastest, for_days, for_devices
from harness.plan.strategies import METHODS, days, efficiency, memory, overheads, reduction_bytes
from harness.plan.units import DAY
from wse_core.errors import ConfigError
from wse_core.params import Machine
from wse_core.schema import Field, suggestion

__all__ = ["STRATEGIES", "Request"]

DEGREES = ("batch", "data", "tensor", "pipeline", "shard")


@dataclass(frozen=True)
class Request:
    """What is asked of a strategy.

    Attributes
    ----------
    model : Model
    hardware : Device
    numbers : Machine
        Modelled numbers of a wafer.
    devices : int or None
        Most devices.
    days : float or None
        Longest time.
    degrees : tuple of str
        Words ``key=value`` for strategies that store weights.
    """

    model: Model
    hardware: Device
    numbers: Machine
    devices: int | None = None
    days: float | None = None
    degrees: tuple[str, ...] = ()


def searched(request: Request, name: str) -> dict[str, Any]:
    """Return the best configuration of a method for the devices or the days, or the fastest of all."""
    model, hardware = request.model, request.hardware
    if request.devices is not None:
        config = for_devices(model, hardware, name, request.devices)
    elif request.days is not None:
        config = for_days(model, hardware, name, request.days)
    else:
        kinds = tuple(kind for kind in PARALLELISM if kind != "pipe" or name != "partitioned")
        config = fastest(model, hardware, name, kinds)
    follows = {link: loss for link, loss in media(model, config, hardware).items() if loss}
    return {
        "strategy": name,
        **config.as_dict(),
        "efficiency": efficiency(model, config, hardware),
        "days": days(model, config, hardware),
        **{f"overhead {key}": value for key, value in overheads(model, config, hardware).items() if value},
        **{f"memory {key}": value for key, value in memory(model, config).items()},
        "traffic of state": reduction_bytes(model, config),
        "checkpoints to": ", ".join(f"{link} (a crash loses one {loss})" for link, loss in follows.items()),
    }


def streamed(request: Request, name: str) -> dict[str, Any]:
    """Return a run by weight streaming, on wafers if the hardware is none."""
    device = request.hardware if "node" not in request.hardware.links else wafer(request.numbers)
    seconds = None if request.days is None else request.days * DAY
    found = approaches.streaming_run(request.model, device, request.devices, seconds)
    return {"strategy": f"{name} on {device.name}"} | found


def stored(request: Request, name: str) -> dict[str, Any]:
    """Return Table 1 of the weight-streaming paper for given degrees, in elements."""
    model, given = request.model, {}
    for key, text in parse_assignments(request.degrees, "--degree").items():
        if key not in DEGREES:
            raise ConfigError(f"unknown degree {key!r}", where="--degree", hint=suggestion(key, DEGREES))
        given[key] = Field(key, float if key in ("batch", "shard") else int).parse(text, f"--degree {key}")
    batch = given.pop("batch", None) or model.batch_tokens / model.sequence or int(model.critical_batch)
    parts = approaches.stored(model, name, batch, **given)
    return {
        "strategy": name,
        "batch": batch,
        "activation elements": parts.activations,
        "parameter elements": parts.parameters,
        "elements exchanged per batch": parts.traffic,
    }


STRATEGIES: dict[str, Callable[[Request, str], dict[str, Any]]] = {
    **dict.fromkeys(METHODS, searched),
    "streaming": streamed,
    **dict.fromkeys(approaches.APPROACHES, stored),
}
"""Who answers for each name."""
