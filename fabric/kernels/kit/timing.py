"""What the parts of a closed form cost on a machine: the words in which kernels say how long they take.

=============  ========================================================================================================
`ramps`        ramp.execute + ramp.out + ramp.in: from the step that makes a wavelet, up one ramp and down another
`way`          `ramps` and some hops: from that step to the one that can use the wavelet so many routers further
`stage`        `way` of one hop: what one more PE of a dependent chain adds
`issue`        1 + vec.start: from the slot in which a vector operation issues to its first step
`operation`    `issue`, steps, vec.drain: from that slot to the one in which the next instruction can issue
`steps`        steps of an operation of the table over some elements, at the machine's lanes, without bank conflicts
`elementwise`  `operation` of so many `steps`
`load`         loads of descriptors into their registers
`transfer`     a vector sent and received: descriptors, operation, way, one wavelet per cycle
`stamp`        a reading of the cycle counter with its three stores
=============  ========================================================================================================

All functions take the machine first and return cycles.  A number of the machine that stands alone in a closed form,
such as ``task.start`` or ``ce.dsr_edit``, is written there by its name.

Timing: docs/machine.md, of which these are the sums.
Source: the parameters' own, `wse_core.params`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from numpy.typing import NDArray

from wse_core.params import Machine

__all__ = ["elementwise", "issue", "load", "operation", "ramps", "stage", "stamp", "steps", "transfer", "way"]

Count = TypeVar("Count", int, NDArray[Any])
"""One count, or an array of them."""


def ramps(machine: Machine) -> int:
    """Return the cycles through both ramps: execution, up, down; published as 2 T_R + 1."""
    return machine["ramp.execute"] + machine["ramp.out"] + machine["ramp.in"]


def way(machine: Machine, hops: Count) -> Count:
    """Return the cycles from the step that makes a wavelet to the one that can use it, `hops` routers further."""
    return ramps(machine) + hops * machine["router.hop"]


def stage(machine: Machine) -> int:
    """Return the cycles that one more PE of a dependent chain adds."""
    return way(machine, 1)


def issue(machine: Machine) -> int:
    """Return the cycles from the issue of a vector operation to its first step."""
    return 1 + machine["vec.start"]


def operation(machine: Machine, steps: int) -> int:
    """Return the cycles of a vector operation of so many steps, from its issue to that of the next instruction."""
    return issue(machine) + steps + machine["vec.drain"]


def steps(machine: Machine, op: str, n: int) -> int:
    """Return the steps of an operation of the table over n elements, bank conflicts left out."""
    return -(-n // machine.lanes(op))


def elementwise(machine: Machine, op: str, n: int) -> int:
    """Return the cycles of an operation of the table over n elements in memory, its descriptors loaded."""
    return operation(machine, steps(machine, op, n))


def load(machine: Machine, count: Any = 1) -> Any:
    """Return the cycles of so many loads of descriptors, of one dimension each."""
    return count * machine["ce.dsr_load"]


def transfer(machine: Machine, wavelets: int, hops: int) -> int:
    """Return the cycles of a vector from one PE to another: two descriptors, issue, way, wavelets, drain."""
    return load(machine, 2) + operation(machine, way(machine, hops) + wavelets)


def stamp(machine: Machine) -> int:
    """Return the cycles of a reading of the cycle counter and of its three stores (`Stamps.store`)."""
    return machine["ce.tsc_read"] + 3
