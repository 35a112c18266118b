"""A run is ended by these errors: faults of the modelled machine, deadlocks, limits, a training that cannot go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wse_core.errors.base import EXIT_RUN, WseError, join_place, machine_place

__all__ = [
    "CycleLimitError",
    "DeadlockError",
    "MachineFault",
    "ProgramFault",
    "QueueFault",
    "RouterFault",
    "SramFault",
    "TrainingError",
]


class MachineFault(WseError):
    """The modelled machine did something that its hardware forbids, during a run.

    Parameters
    ----------
    what : str
        What happened.
    x, y : int, optional
        PE coordinates; x grows east, y grows south.
    cycle : int, optional
        Fabric cycle, counted from 0.
    color : int, optional
        Color of the wavelet involved.
    address : int, optional
        SRAM address in words of 16 bits.
    detail : str, optional
        A short dump of the state around the fault, shown below the message.
    **parts
        See `WseError`.

    Examples
    --------
    >>> fault = SramFault("load past the end of memory", x=3, y=1, cycle=40, address=24576)
    >>> str(fault)
    'PE (3, 1), cycle 40, address 0x6000: load past the end of memory'
    >>> fault.address
    24576
    """

    exit_code = EXIT_RUN

    x: int | None
    y: int | None
    cycle: int | None
    color: int | None
    address: int | None
    detail: str | None

    def __init__(
        self,
        what: str = "",
        *,
        x: int | None = None,
        y: int | None = None,
        cycle: int | None = None,
        color: int | None = None,
        address: int | None = None,
        detail: str | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(what, **parts, x=x, y=y, cycle=cycle, color=color, address=address, detail=detail)

    def place(self) -> str:
        return join_place(self.where, machine_place(self.x, self.y, self.cycle, self.color, self.address))

    def details(self) -> list[str]:
        return [f"  {line}" for line in str(self.detail).splitlines()] if self.detail else []


class SramFault(MachineFault):
    """An SRAM access is out of range, or not aligned as its width demands."""


class RouterFault(MachineFault):
    """A router saw what it must never see: two inputs of one color in one cycle, a wavelet without a route."""


class QueueFault(MachineFault):
    """A queue was used against its binding, direction or depth."""


class ProgramFault(MachineFault):
    """A `ProgramFault` is raised when a program executes an instruction or descriptor without a defined meaning."""


class DeadlockError(WseError):
    """Nothing can move any more although work is left.

    Parameters
    ----------
    what : str
        What was detected.
    waiters : list, optional
        The wait-for chain, one entry per waiting party; each entry is a str or anything with a readable str().
    cycle : int, optional
        Cycle of the last progress.
    **parts
        See `WseError`.

    Attributes
    ----------
    waiters : list
        The chain in full; the message shows the first `MAX_SHOWN` entries.
    """

    exit_code = EXIT_RUN
    MAX_SHOWN = 12

    waiters: list[Any]
    cycle: int | None

    def __init__(
        self, what: str = "", *, waiters: Iterable[object] | None = None, cycle: int | None = None, **parts: Any
    ) -> None:
        super().__init__(what, **parts, waiters=list(waiters or ()), cycle=cycle)

    def place(self) -> str:
        return join_place(self.where, machine_place(cycle=self.cycle))

    def details(self) -> list[str]:
        lines = [f"  {waiter}" for waiter in self.waiters[: self.MAX_SHOWN]]
        hidden = len(self.waiters) - len(lines)
        return [*lines, f"  ... and {hidden} more"] if hidden > 0 else lines


class CycleLimitError(WseError):
    """The run was still making progress when its cycle limit was reached.

    Parameters
    ----------
    what : str
        What was cut short.
    cycle, limit : int, optional
        Cycle that was reached and the limit [cycles].
    **parts
        See `WseError`.
    """

    exit_code = EXIT_RUN

    cycle: int | None
    limit: int | None

    def __init__(self, what: str = "", *, cycle: int | None = None, limit: int | None = None, **parts: Any) -> None:
        super().__init__(what, **parts, cycle=cycle, limit=limit)

    def place(self) -> str:
        return join_place(self.where, machine_place(cycle=self.cycle))


class TrainingError(WseError):
    """A `TrainingError` is raised when training cannot go on: a loss or gradients are not finite.

    Parameters
    ----------
    what : str
        What happened.
    iteration : int, optional
        Counted from 1.
    layer : int, optional
        First layer with a value that is not finite, from 1; 0 for the inputs.
    **parts
        See `WseError`.
    """

    exit_code = EXIT_RUN

    iteration: int | None
    layer: int | None

    def __init__(self, what: str = "", *, iteration: int | None = None, layer: int | None = None, **parts: Any) -> None:
        super().__init__(what, **parts, iteration=iteration, layer=layer)

    def place(self) -> str:
        named = (("iteration", self.iteration), ("layer", self.layer))
        return join_place(self.where, *(f"{name} {value}" for name, value in named if value is not None))
