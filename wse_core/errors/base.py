"""All errors have one base, which puts a message together and names a place.

Imports nothing but the standard library.
"""

from __future__ import annotations

import copyreg
from typing import Any

__all__ = ["EXIT_INPUT", "EXIT_RUN", "InternalError", "WseError", "join_place", "machine_place"]

EXIT_RUN = 1
EXIT_INPUT = 2


def _sentence(text: object) -> str:
    """Return `text` stripped and closed with a full stop unless it already ends a sentence."""
    text = str(text).strip()
    return text if not text or text[-1] in ".!?:" else text + "."


class WseError(Exception):
    """A `WseError` is the base of every error that this package raises on purpose.

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


class InternalError(WseError):
    """The model has broken a promise to itself; please report it together with the configuration that led here."""

    exit_code = EXIT_RUN


def machine_place(
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


def join_place(*places: object) -> str:
    """Return the non-empty places joined by a comma."""
    return ", ".join(str(place) for place in places if place)
