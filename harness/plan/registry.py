"""The strategies of `wse plan` by name: one row of `STRATEGIES` says who answers; no other file lists them.

A strategy is a function of a `PlanRequest` and its own name that returns a plan as a flat dict, whose first key is
``strategy``, or raises `ConfigError` for what is impossible.  Three families stand behind the names: configurations
that are searched for (`harness.plan.optimum`, or by the paper's rules in `harness.plan.search`), weights that are
streamed and weights that are stored (`harness.plan.approaches`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.config.assignments import parse_assignments
from harness.plan import approaches
from harness.plan.checkpoints import media
from harness.plan.hardware import Device, wafer
from harness.plan.models import TransformerSizes
from harness.plan.optimum import DEGREES, fewest, optimum
from harness.plan.search import PARALLELISM, fastest, for_days, for_devices
from harness.plan.strategies import METHODS, days, efficiency, memory, overheads, reduction_bytes
from harness.plan.units import DAY
from wse_core.errors import ConfigError
from wse_core.params import Machine
from wse_core.schema import Field, suggestion

__all__ = ["STRATEGIES", "PlanRequest"]

STORED_DEGREES = ("batch", "data", "tensor", "pipeline", "shard")


@dataclass(frozen=True)
class PlanRequest:
    """A `PlanRequest` is what is asked of a strategy.

    Attributes
    ----------
    model : TransformerSizes
    hardware : Device
    numbers : Machine
        Modelled numbers of a wafer.
    devices : int or None
        Most devices.
    days : float or None
        Longest time.
    degrees : tuple of str
        Words ``key=value`` that fix degrees.
    rules : bool
        Search by the rules of the paper instead of all configurations.
    """

    model: TransformerSizes
    hardware: Device
    numbers: Machine
    devices: int | None = None
    days: float | None = None
    degrees: tuple[str, ...] = ()
    rules: bool = False

    def fixed(self, name: str, known: tuple[str, ...]) -> dict[str, Any]:
        """Return the degrees as numbers; refuse one that the strategy `name` does not have."""
        given = {}
        for key, text in parse_assignments(self.degrees, "--degree").items():
            if key not in known:
                raise ConfigError(
                    f"{name} has no degree {key!r}", where="--degree", hint=suggestion(key, known) if known else None
                )
            kind = float if key in ("batch", "shard") else int
            given[key] = Field(key, kind, low=1, high=10**15).parse(text, f"--degree {key}")
        return given


def searched(request: PlanRequest, name: str) -> dict[str, Any]:
    """Return the best configuration of a method for the devices or the days, or the fastest of all."""
    model, hardware = request.model, request.hardware
    fixed = request.fixed(name, DEGREES)
    if request.rules and fixed:
        raise ConfigError("the rules of the paper choose all degrees", where="--degree", hint="without --rules")
    if not request.rules:
        if request.days is not None:
            config = fewest(model, hardware, name, request.days, fixed)
        else:
            config = optimum(model, hardware, name, request.devices, fixed)
    elif request.devices is not None:
        config = for_devices(model, hardware, name, request.devices)
    elif request.days is not None:
        config = for_days(model, hardware, name, request.days)
    else:
        kinds = tuple(kind for kind in PARALLELISM if kind != "pipe" or name != "partitioned")
        config = fastest(model, hardware, name, kinds)
    follows = {link: loss for link, loss in media(model, config, hardware).items() if loss}
    return {
        "strategy": name,
        "search": "rules of the paper" if request.rules else "all configurations",
        **config.as_dict(),
        "efficiency": efficiency(model, config, hardware),
        "days": days(model, config, hardware),
        **{f"overhead {key}": value for key, value in overheads(model, config, hardware).items() if value},
        **{f"memory {key}": value for key, value in memory(model, config).items()},
        "traffic of state": reduction_bytes(model, config),
        "checkpoints to": ", ".join(f"{link} (a crash loses one {loss})" for link, loss in follows.items()),
    }


def streamed(request: PlanRequest, name: str) -> dict[str, Any]:
    """Return a run by weight streaming, on wafers if the hardware is none."""
    request.fixed(name, ())
    device = request.hardware if "node" not in request.hardware.links else wafer(request.numbers)
    seconds = None if request.days is None else request.days * DAY
    found = approaches.streaming_run(request.model, device, request.devices, seconds)
    return {"strategy": f"{name} on {device.name}"} | found


def stored(request: PlanRequest, name: str) -> dict[str, Any]:
    """Return Table 1 of the weight-streaming paper for given degrees, in elements."""
    if request.devices is not None or request.days is not None:
        raise ConfigError(f"{name} takes degrees, no devices and no days", where="wse plan", hint="--degree data=64")
    model, given = request.model, request.fixed(name, STORED_DEGREES)
    batch = given.pop("batch", None) or model.batch_tokens / model.sequence or int(model.critical_batch)
    parts = approaches.stored(model, name, batch, **given)
    return {
        "strategy": name,
        "batch": batch,
        "activation elements": parts.activations,
        "parameter elements": parts.parameters,
        "elements exchanged per batch": parts.traffic,
    }


STRATEGIES: dict[str, Callable[[PlanRequest, str], dict[str, Any]]] = {
    **dict.fromkeys(METHODS, searched),
    "streaming": streamed,
    **dict.fromkeys(approaches.APPROACHES, stored),
}
"""Each name of a strategy has a function that answers for it."""
