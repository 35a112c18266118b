"""One point of a sweep is a subject with values on a machine, and what measuring it gives.

What is measured has no trace of the host that did it (`OF_THE_HOST` is left out), so that a sweep that was ended and
goes on, or that other processes do, has the same table to the last bit.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.kit.console import plain
from harness.sweep.subjects import find
from traces.provenance import commit, package_version
from wse_core.errors import WseError
from wse_core.params import machine

__all__ = ["OF_THE_HOST", "Measured", "Point", "measure", "origin"]

OF_THE_HOST = (
    "host_seconds",
    "run_seconds",
    "run_cpu_seconds",
    "peak_rss_bytes",
    "hops_per_second",
    "pe_cycles_per_second",
)
"""These parts of results are about the host that simulated."""
NAMES = ("kernel", "params", "counters", "arrays")
"""The axes of a sweep, or run files, have these already."""


@dataclass(frozen=True)
class Point:
    """A `Point` is one run of a sweep: what is run, with which parameters and numbers.

    Attributes
    ----------
    kind, name : str
        Subject, see `harness.sweep.subjects`.
    values : dict
        All its parameters.
    preset : str
    numbers : dict
        Modelled numbers that are changed.
    """

    kind: str
    name: str
    values: Mapping[str, Any]
    preset: str
    numbers: Mapping[str, Any]

    def identity(self) -> str:
        """Return a text of 16 letters that equal points share, and different ones do not."""
        whole = [self.kind, self.name, dict(self.values), self.preset, dict(self.numbers)]
        return hashlib.sha256(json.dumps(plain(whole), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Measured:
    """A `Measured` is what a point gave.

    Attributes
    ----------
    facts : dict
        Numbers, words and lists that JSON can carry; ``error`` if the point failed.
    final : bool
        Whether it would be the same again: running out of memory is not.
    seconds : float
        CPU time of the process.
    origin : tuple
        As `origin` says where it was measured.
    """

    facts: dict[str, Any]
    final: bool = True
    seconds: float = 0.0
    origin: tuple[str | None, ...] = ()


def origin() -> tuple[str | None, ...]:
    """Return version and commit of this installation; no commit outside a checkout."""
    return package_version(), commit()


def measure(point: Point) -> Measured:
    """Run a point; what it cannot do is a fact like others."""
    begin = time.process_time()
    final = True
    try:
        subject = find(point.kind, point.name)
        result = subject.run(machine(point.preset, dict(point.numbers)), point.values)
        facts = {key: value for key, value in result.items() if key not in (*OF_THE_HOST, *NAMES)}
        facts = {key: value for key, value in facts.items() if not isinstance(value, np.ndarray)}
    except WseError as error:
        facts = {"error": str(error)}
    except MemoryError as error:
        facts, final = {"error": f"out of memory{f': {error}' if str(error) else ''}"}, False
    except Exception as error:  # a defect at one point does not take the others with it
        facts = {"error": f"internal error, {type(error).__name__}: {' '.join(str(error).split())}"}
    return Measured(plain(facts), final, time.process_time() - begin, origin())
