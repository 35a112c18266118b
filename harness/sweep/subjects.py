"""The subject of a point is a kernel of the registry, or a plan of `harness.plan`; its parameters and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.kit.modules import need
from wse_core.errors import ConfigError
from wse_core.params import Machine
from wse_core.schema import Field, suggestion

__all__ = ["SUBJECTS", "Subject", "find"]

PLAN = {
    "strategy": (Field("strategy", str, "how the work is spread"), "streaming"),
    "hardware": (Field("hardware", str, "a100, cs2 or a TOML file"), "a100"),
    "network": (Field("network", str, "link between nodes; empty: that of the hardware"), ""),
    "devices": (Field("devices", int, "most devices; 0: any number", 0, 10**12), 0),
    "days": (Field("days", float, "longest time; 0: any", 0, 1e9, unit="days"), 0.0),
}
"""Parameters of a plan, with their defaults; those of kernels are declared by the kernels."""


@dataclass(frozen=True)
class Subject:
    """A `Subject` is a kind of thing that a point runs.

    Attributes
    ----------
    name : str
        Of a kernel, or of a model that is planned.
    fields : dict
        What its parameters may be, by name.
    defaults : dict
    run : callable
        ``run(machine, values)`` returns a flat dict of what was measured.
    """

    name: str
    fields: Mapping[str, Field]
    defaults: Mapping[str, Any]
    run: Callable[[Machine, Mapping[str, Any]], Mapping[str, Any]]


def _kernel(name: str) -> Subject:
    kernels = need("fabric.kernels.registry", "a sweep over kernels").KERNELS
    if name not in kernels:
        raise ConfigError(f"unknown kernel {name!r}", hint=suggestion(name, kernels), kernel=name)
    found = kernels[name]

    def run(machine: Machine, values: Mapping[str, Any]) -> Mapping[str, Any]:
        from fabric.kernels.kit.report import without_counters

        with without_counters():
            return found.run(machine, **values)

    return Subject(
        name,
        {param.name: param.field for param in found.params},
        {param.name: param.default for param in found.params},
        run,
    )


def _plan(name: str) -> Subject:
    from harness.plan.models import find_model

    model = find_model(name)

    def run(machine: Machine, values: Mapping[str, Any]) -> Mapping[str, Any]:
        from harness.plan.hardware import find_hardware
        from harness.plan.registry import STRATEGIES, PlanRequest

        strategy = values["strategy"]
        if strategy not in STRATEGIES:
            raise ConfigError(f"no strategy {strategy!r}", hint=suggestion(strategy, STRATEGIES))
        hardware = find_hardware(values["hardware"], machine)
        if values["network"]:
            hardware = hardware.with_network(values["network"])
        request = PlanRequest(model, hardware, machine, values["devices"] or None, values["days"] or None)
        return STRATEGIES[strategy](request, strategy)

    return Subject(
        name, {key: field for key, (field, _) in PLAN.items()}, {key: given for key, (_, given) in PLAN.items()}, run
    )


SUBJECTS: dict[str, Callable[[str], Subject]] = {"kernel": _kernel, "plan": _plan}
"""A file may name subjects by these keys, each with the function that finds one by its name."""


def find(kind: str, name: str) -> Subject:
    """Return a subject by kind and name.

    Raises
    ------
    ConfigError
        There is none of that name.
    """
    return SUBJECTS[kind](name)
