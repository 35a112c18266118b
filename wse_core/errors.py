"""Exceptions of the whole package: one class per kind of mistake or fault.

The families mirror when something can go wrong:

* before a run: `ConfigError`, `LayoutError`, `RouteError`, `ProgramError`, `UnsupportedError`, `MemoryLimitError`,
  `PlanError`;
* during a run: `MachineFault` (with `SramFault`, `RouterFault`, `QueueFault`, `ProgramFault`), `DeadlockError`,
  `CycleLimitError`;
* during training: `TrainingError`;
* around a run: `TraceError` for run files, `CheckpointError` for checkpoints, `InternalError` for a broken promise
  inside the model itself.

A message is put together from four parts, each of them optional except the first: *what* happened, *where*, the
likely *cause* and what to *try*.  Everything that a program may want to look at is also kept as an attribute, and
every exception survives pickling with its attributes, so that it can cross a process pool.

Compiled code never raises inside ``nogil``; it records a fault and the boundary turns the record into one of these.
This module imports nothing but the standard library, and every other module may import it.
"""

from __future__ import annotations

import copyreg
import os
from collections.abc import Iterable
from typing import Any

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

EXIT_RUN = 1
EXIT_INPUT = 2


def _sentence(text: object) -> str:
    """Return `text` stripped and closed with a full stop unless it already ends a sentence."""
    text = str(text).strip()
    return text if not text or text[-1] in ".!?:" else text + "."


class WseError(Exception):
    """Base of every error that this package raises on purpose.

    Parameters
    ----------
    what : str
        What happened, as one sentence.
    where : str, optional
        Place: a file and key, a PE, a route, a program name.
    cause : str, optional
        Likely reason.
    hint : str, optional
        What to try.
    **fields
        Any further facts; each becomes an attribute of the same name.

    Attributes
    ----------
    what, where, cause, hint : str or None
        The parts of the message.
    fields : dict
        The further facts, also available as attributes.
    exit_code : int
        Exit status of the command line for this error: 2 for bad input, 1 for a failure during a run.

    Examples
    --------
    >>> str(WseError("width is 0", where="job.toml: fabric.width", hint="use at least 1"))
    'job.toml: fabric.width: width is 0. Try: use at least 1.'
    """

    exit_code = EXIT_INPUT

    def __init__(
        self, what: str = "", *, where: Any = None, cause: str | None = None, hint: str | None = None, **fields: Any
    ) -> None:
        super().__init__(what)
        self.what = str(what)
        self.where = where
        self.cause = cause
        self.hint = hint
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)

    def place(self) -> str:
        """Return the place as text, or an empty string when none is known."""
        return str(self.where) if self.where else ""

    def details(self) -> list[str]:
        """Return extra lines shown below the message, as a list of str."""
        return []

    def __str__(self) -> str:
        place = self.place()
        head = self.what or type(self).__name__
        message = f"{place}: {head}" if place else head
        if self.cause:
            message = f"{_sentence(message)} Likely cause: {self.cause}"
        if self.hint:
            message = f"{_sentence(message)} Try: {_sentence(self.hint)}"
        return "\n".join([message, *self.details()])

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), self.__dict__ | {"args": self.args}  # type: ignore[attr-defined]

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        state = dict(state or {})
        self.args = state.pop("args", ())
        self.__dict__.update(state)

    def as_dict(self) -> dict[str, Any]:
        """Return the error as plain data for JSON output.

        Returns
        -------
        dict
            `type`, `message` and every field that was given.
        """
        return {"type": type(self).__name__, "message": str(self), **self.fields}


class ConfigError(WseError):
    """A configuration, a command-line value or a parameter that makes no sense, found before a run."""


class MemoryLimitError(ConfigError):
    """The requested model needs more host memory than there is.

    Parameters
    ----------
    what : str
        What was asked for.
    needed_bytes, available_bytes : int, optional
        Estimate and limit [bytes].
    **parts
        See `WseError`.
    """

    needed_bytes: int | None
    available_bytes: int | None

    def __init__(
        self, what: str = "", *, needed_bytes: int | None = None, available_bytes: int | None = None, **parts: Any
    ) -> None:
        super().__init__(what, **parts, needed_bytes=needed_bytes, available_bytes=available_bytes)


class PlanError(ConfigError):
    """A plan that needs more of something than the cores of a device have.

    Parameters
    ----------
    what : str
        What does not fit.
    limit : str
        ``width``, ``height``, ``memory`` (16-bit words per core), ``routes`` (colors per core), ``queues`` or
        ``filters`` (per core).
    needed, available : int
        What the plan needs and what there is.
    **parts
        See `WseError`.
    """

    limit: str | None
    needed: int | None
    available: int | None

    def __init__(
        self,
        what: str = "",
        *,
        limit: str | None = None,
        needed: int | None = None,
        available: int | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(what, **parts, limit=limit, needed=needed, available=available)


class LayoutError(WseError):
    """A rectangle, placement, symbol or queue binding that no machine could load.

    Parameters
    ----------
    what : str
        What is wrong with the layout.
    x, y, color : int, optional
        PE coordinates (x grows east, y grows south) and color.
    **parts
        See `WseError`.
    """

    x: int | None
    y: int | None
    color: int | None

    def __init__(
        self, what: str = "", *, x: int | None = None, y: int | None = None, color: int | None = None, **parts: Any
    ) -> None:
        super().__init__(what, **parts, x=x, y=y, color=color)

    def place(self) -> str:
        return _join_place(self.where, _machine_place(self.x, self.y, color=self.color))


class RouteError(LayoutError):
    """A route that leaves the rectangle, ends nowhere, or names a color or direction that does not exist."""


class ProgramError(WseError):
    """A PE program that cannot be assembled or does not fit into a PE.

    Parameters
    ----------
    what : str
        What is wrong with the program.
    program, task, symbol : str, optional
        Names of the program, task and symbol involved.
    instruction : int, optional
        Index of the instruction.
    **parts
        See `WseError`.
    """

    program: str | None
    task: str | int | None
    symbol: str | None
    instruction: int | None

    def __init__(
        self,
        what: str = "",
        *,
        program: str | None = None,
        task: str | int | None = None,
        symbol: str | None = None,
        instruction: int | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(what, **parts, program=program, task=task, symbol=symbol, instruction=instruction)

    def place(self) -> str:
        names = [
            f"{label} {value!r}" if isinstance(value, str) else f"{label} {value}"
            for label, value in (
                ("program", self.program),
                ("task", self.task),
                ("symbol", self.symbol),
                ("instruction", self.instruction),
            )
            if value is not None
        ]
        return _join_place(self.where, ", ".join(names))


class UnsupportedError(WseError):
    """Something that the real machine has and this model does not.

    Parameters
    ----------
    what : str
        The request that cannot be honoured.
    feature : str, optional
        Name of the feature as the support matrix lists it.
    **parts
        See `WseError`.
    """

    feature: str | None

    def __init__(self, what: str = "", *, feature: str | None = None, **parts: Any) -> None:
        super().__init__(what, **parts, feature=feature)


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
        return _join_place(self.where, _machine_place(self.x, self.y, self.cycle, self.color, self.address))

    def details(self) -> list[str]:
        return [f"  {line}" for line in str(self.detail).splitlines()] if self.detail else []


class SramFault(MachineFault):
    """An SRAM access out of range or not aligned as its width demands."""


class RouterFault(MachineFault):
    """A router saw what it must never see: two inputs of one color in one cycle, a wavelet without a route."""


class QueueFault(MachineFault):
    """A queue was used against its binding, direction or depth."""


class ProgramFault(MachineFault):
    """A running program executed an instruction or descriptor that has no defined meaning."""


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
        return _join_place(self.where, _machine_place(cycle=self.cycle))

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
        return _join_place(self.where, _machine_place(cycle=self.cycle))


class TraceError(WseError):
    """A run file that cannot be written, or that cannot be read because it is damaged, foreign or too new.

    Parameters
    ----------
    what : str
        What went wrong.
    path : str or os.PathLike, optional
        The file.
    exit_code : int, optional
        2 when the file was an input; the default of 1 fits a failed write.
    **parts
        See `WseError`.
    """

    exit_code = EXIT_RUN

    path: str | None

    def __init__(
        self, what: str = "", *, path: str | os.PathLike[str] | None = None, exit_code: int | None = None, **parts: Any
    ) -> None:
        super().__init__(what, **parts, path=None if path is None else str(path))
        if exit_code is not None:
            self.exit_code = exit_code

    def place(self) -> str:
        return _join_place(self.where, self.path)


class CheckpointError(WseError):
    """A checkpoint that is damaged, foreign or of another network, found before anything is touched.

    Parameters
    ----------
    what : str
        What is wrong.
    path : str or os.PathLike, optional
        The checkpoint or the file in it.
    **parts
        See `WseError`.
    """

    path: str | None

    def __init__(self, what: str = "", *, path: str | os.PathLike[str] | None = None, **parts: Any) -> None:
        super().__init__(what, **parts, path=None if path is None else str(path))

    def place(self) -> str:
        return _join_place(self.where, self.path)


class TrainingError(WseError):
    """Training that cannot go on: a loss or gradients that are not finite.

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
        return _join_place(self.where, *(f"{name} {value}" for name, value in named if value is not None))


class InternalError(WseError):
    """The model broke a promise to itself; please report it together with the configuration that led here."""

    exit_code = EXIT_RUN


def _machine_place(
    x: int | None = None,
    y: int | None = None,
    cycle: int | None = None,
    color: int | None = None,
    address: int | None = None,
) -> str:
    """Return "PE (x, y), cycle c, color k, address 0xhhhh" with the parts that are known."""
    parts = []
    if x is not None or y is not None:
        parts.append(f"PE ({'?' if x is None else x}, {'?' if y is None else y})")
    if cycle is not None:
        parts.append(f"cycle {cycle}")
    if color is not None:
        parts.append(f"color {color}")
    if address is not None:
        parts.append(f"address 0x{int(address):04x}" if hasattr(address, "__index__") else f"address {address}")
    return ", ".join(parts)


def _join_place(*places: object) -> str:
    """Return the non-empty places joined by a comma."""
    return ", ".join(str(place) for place in places if place)
