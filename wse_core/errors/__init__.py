"""The exceptions of the whole package are these: one class per kind of mistake or fault.

The families mirror when something can go wrong:

* before a run (`refusals`): `ConfigError`, `LayoutError`, `RouteError`, `ProgramError`, `UnsupportedError`,
  `MemoryLimitError`, `PlanError`;
* during a run (`faults`): `MachineFault` (with `SramFault`, `RouterFault`, `QueueFault`, `ProgramFault`),
  `DeadlockError`, `CycleLimitError`, and `TrainingError` while a network trains;
* around a run: `TraceError` for run files and `CheckpointError` for checkpoints (`files`), `InternalError` for a broken
  promise inside the model itself (`base`).

A message is put together from four parts, each of them optional except the first: *what* happened, *where*, the
likely *cause* and what to *try*.  Everything that a program may want to look at is also kept as an attribute, and
every exception survives pickling with its attributes, so that it can cross a process pool.

Compiled code never raises inside ``nogil``; it records a fault and the boundary turns the record into one of these.
This package imports nothing but the standard library, and every other module may import it.
"""

from __future__ import annotations

from wse_core.errors.base import InternalError, WseError
from wse_core.errors.faults import (
    CycleLimitError,
    DeadlockError,
    MachineFault,
    ProgramFault,
    QueueFault,
    RouterFault,
    SramFault,
    TrainingError,
)
from wse_core.errors.files import CheckpointError, TraceError
from wse_core.errors.refusals import (
    ConfigError,
    LayoutError,
    MemoryLimitError,
    PlanError,
    ProgramError,
    RouteError,
    UnsupportedError,
)

__all__ = [
    "CheckpointError",
    "ConfigError",
    "CycleLimitError",
    "DeadlockError",
    "InternalError",
    "LayoutError",
    "MachineFault",
    "MemoryLimitError",
    "PlanError",
    "ProgramError",
    "ProgramFault",
    "QueueFault",
    "RouteError",
    "RouterFault",
    "SramFault",
    "TraceError",
    "TrainingError",
    "UnsupportedError",
    "WseError",
]
