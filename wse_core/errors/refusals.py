"""These errors are found before a run: input, layouts, programs and plans that no machine could take."""

from __future__ import annotations

from typing import Any

from wse_core.errors.base import WseError, join_place, machine_place

__all__ = [
    "ConfigError",
    "LayoutError",
    "MemoryLimitError",
    "PlanError",
    "ProgramError",
    "RouteError",
    "UnsupportedError",
]


class ConfigError(WseError):
    """A `ConfigError` is raised before a run for a configuration, value or parameter that makes no sense."""


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
    """A `LayoutError` is raised for a rectangle, placement, symbol or queue binding that no machine could load.

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
        return join_place(self.where, machine_place(self.x, self.y, color=self.color))


class RouteError(LayoutError):
    """A `RouteError` is raised for a route that leaves the rectangle, ends nowhere, or has no valid direction."""


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
        return join_place(self.where, ", ".join(names))


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
