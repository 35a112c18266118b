"""The parts of a closed form have these costs on a machine: the words in which kernels say how long they take.

=============  ========================================================================================================
`ramps`        ramp.execute + ramp.out + ramp.in: from the step that makes a wavelet, up one ramp and down another
`way`          `ramps` and some hops: from that step to the one that can use the wavelet so many routers further
`stage`        `way` of one hop: what one more PE of a dependent chain adds
`issue`        1 + vec.start: from the slot in which a vector operation issues to its first step
`operation`    `issue`, steps, vec.drain: from that slot to the one in which the next instruction can issue
`steps`        steps of an operation of the table over some elements, at the machine's lanes, without bank conflicts
`elementwise`  `operation` of so many `steps`
`load`         loads of descriptors into their registers
`command`      from the last step of a message to that of a control wavelet behind it
`train`        wavelets that follow one another: one a cycle, or what the slowest queue on their way lets through
`sending`      how long the sender of a train is busy with it
`received`     when a receiver, late or not, is through with a train; `receiver`: for many trains of one length
`transfer`     a vector sent and received: descriptors, operation, way, train
`stamp`        a reading of the cycle counter with its three stores
=============  ========================================================================================================

All functions take the machine first and return cycles.  A number of the machine that stands alone in a closed form,
such as ``task.start`` or ``ce.dsr_edit``, is written there by its name.

Timing: docs/machine.md, of which these are the sums.
Source: the parameters' own, `wse_core.params`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from wse_core.errors import UnsupportedError
from wse_core.params import Machine

__all__ = [
    "command",
    "elementwise",
    "issue",
    "load",
    "operation",
    "ramps",
    "received",
    "receiver",
    "sending",
    "stage",
    "stamp",
    "steps",
    "through",
    "train",
    "transfer",
    "way",
]

Count = TypeVar("Count", int, NDArray[Any])
"""A count is one number or an array of them."""


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


def _know(machine: Machine, name: str) -> None:
    """Refuse a machine on which a number is not 0 that closed forms do not know."""
    if machine[name]:
        raise UnsupportedError(
            f"closed forms of kernels do not know {name}",
            hint="price the program (`wse price`), or run it: both take the number into account",
        )


def operation(machine: Machine, steps: int) -> int:
    """Return the cycles of a vector operation of so many steps, from its issue to that of the next instruction."""
    _know(machine, "vec.mac_late")
    _know(machine, "vec.fill_late")
    return issue(machine) + steps + machine["vec.drain"]


def steps(machine: Machine, op: str, n: int) -> int:
    """Return the steps of an operation of the table over n elements, bank conflicts left out."""
    return -(-n // machine.lanes(op))


def elementwise(machine: Machine, op: str, n: int) -> int:
    """Return the cycles of an operation of the table over n elements in memory, its descriptors loaded."""
    return operation(machine, steps(machine, op, n))


def load(machine: Machine, count: Any = 1) -> Any:
    """Return the cycles of so many loads of descriptors, of one dimension each."""
    _know(machine, "ce.dsr_row")
    return count * machine["ce.dsr_load"]


def command(machine: Machine) -> int:
    """Return the cycles from the last step of a message to that of a control wavelet sent behind it.

    The operation of the message ends; the payload, a descriptor and the operation of the command follow.
    """
    return 1 + machine["vec.drain"] + 1 + load(machine) + issue(machine)


def through(wavelets: int, room: int, delay: int) -> int:
    """Return the cycles that wavelets take to pass a queue for `room` of them, usable `delay` cycles after they came.

    A place is filled again in the cycle after it was left, so at most `room` wavelets pass in ``delay + 1`` cycles.
    """
    if room > delay or wavelets < 1:
        return wavelets
    full, rest = divmod(wavelets - 1, room)
    return full * (delay + 1) + rest + 1


@lru_cache(maxsize=65536)  # closed forms that follow rows ask for the same few trains again and again
def train(machine: Machine, wavelets: int, into: int | None, out: int | None, hops: int = 1) -> int:
    """Return the cycles from the first to behind the last of wavelets that follow one another.

    Parameters
    ----------
    machine : Machine
    wavelets : int
    into, out : int or None
        Input queue of the receiver and output queue of the sender; None if no one PE takes, or sends, all of them.
    hops : int
        Links between them: the sender's ramp, the buffers of routers and the receiver's ramp each let wavelets through
        at their own rate, and the slowest counts.
    """
    m, found = machine, wavelets
    if out is not None:
        room = m["queue.out_depth"][out] + m["router.depth"]
        found = max(found, through(wavelets, room, m["ramp.execute"] + m["ramp.out"]))
    if into is not None:
        found = max(found, through(wavelets, m["queue.in_depth"][into] + m["ramp.in_buffer"], m["ramp.in"]))
    return max(found, through(wavelets, m["router.depth"], m["router.hop"])) if hops else found


def sending(machine: Machine, wavelets: int, into: int, out: int, hops: int = 1) -> int:
    """Return the cycles that the sender of a train is busy with it: what its ramp has room for need not have left."""
    m = machine
    behind = wavelets - m["queue.out_depth"][out] - m["router.depth"]
    if behind <= 0:
        return wavelets
    return max(wavelets, m["ramp.execute"] + m["ramp.out"] + train(m, behind, into, out, hops) + 1)


def receiver(machine: Machine, wavelets: int, into: int, out: int) -> Callable[[Any, Any], Any]:
    """Return ``received(ready, arrival)`` for trains of so many wavelets: what is the same for all is reckoned once."""
    m = machine
    waiting = m["queue.in_depth"][into] + m["ramp.in_buffer"] + m["router.depth"]
    refill = m["router.hop"] + m["ramp.in"] + 1  # from the first that is taken to the one that comes for it
    whole = train(m, wavelets, into, out)
    rest = refill + train(m, wavelets - waiting, into, out) if wavelets > waiting else wavelets
    rest = max(rest, wavelets)

    def received(ready: Any, arrival: Any) -> Any:
        """Return the cycle behind the last step of a receiver that can begin at `ready`; the first comes at `arrival`.

        One that is late finds wavelets in its queue and in the router before it, and takes those one a cycle.  Both
        are numbers or arrays of them.
        """
        if isinstance(ready, np.ndarray) or isinstance(arrival, np.ndarray):
            return np.maximum(np.maximum(ready, arrival) + rest, arrival + whole)
        return max(max(ready, arrival) + rest, arrival + whole)

    return received


def received(machine: Machine, wavelets: int, ready: float, arrival: float, into: int, out: int) -> float:
    """Return what a `receiver` of one train says."""
    return receiver(machine, wavelets, into, out)(ready, arrival)


def transfer(machine: Machine, wavelets: int, hops: int, into: int, out: int) -> int:
    """Return the cycles of a vector from one PE to another: two descriptors, issue, way, train, drain."""
    return load(machine, 2) + operation(machine, way(machine, hops) + train(machine, wavelets, into, out, hops))


def stamp(machine: Machine) -> int:
    """Return the cycles of a reading of the cycle counter and of its three stores (`Stamps.store`)."""
    return machine["ce.tsc_read"] + 3
