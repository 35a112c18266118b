"""Machines with other numbers, on which prices of inference are held against the engine."""

from __future__ import annotations

from wse_core.params import machine

__all__ = ["CHANGES", "machine_of"]

CHANGES = {
    "wse2": {},
    "vec.start": {"vec.start": 4},
    "vec.drain": {"vec.drain": 3},
    "ce.dsr_load": {"ce.dsr_load": 5},
    "ce.load_latency": {"ce.load_latency": 6},
    "ce.fp_latency": {"ce.fp_latency": 7},
    "ce.branch_taken": {"ce.branch_taken": 9},
    "ramp": {"ramp.in": 4, "ramp.out": 3},
    "wse3": {},
}
"""Number that is another one -> values; the last one is a preset."""


def machine_of(name):
    """Return a machine by its name in `CHANGES`."""
    return machine("wse3" if name == "wse3" else "wse2", CHANGES[name])
