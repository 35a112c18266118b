"""One schema serves every value that a user sets: kernel parameters, modelled numbers, keys of TOML files, key=value.

A `Field` says what a value is called, of which type it is, within which limits, in which unit, and what it means.  It
takes values in two ways: `Field.check` for a value that has a type already (Python, TOML), `Field.parse` for text (the
command line).  Both give the value or raise `ConfigError` in one form::

    where: what is wrong with which value; what would be right. Try: the nearest legal one.

Nothing is converted silently, with one exception: a whole number is accepted where a decimal number is expected.  In
particular true and false are no numbers, and neither infinity nor "not a number" is one that can be used.

`suggestion` is the one place that says "did you mean".
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wse_core.errors import ConfigError
from wse_core.errors.values import MOST_SHOWN, shown

__all__ = ["Field", "close_match", "described", "suggestion"]

TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", dict: "a table"}
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def close_match(word: object, known: Iterable[object]) -> str | None:
    """Return the known name that resembles a word most, or None if none does."""
    near = difflib.get_close_matches(str(word)[:MOST_SHOWN], [str(name) for name in known], n=1)
    return near[0] if near else None


def suggestion(word: object, known: Iterable[object]) -> str:
    """Return "did you mean ...?" for a word that resembles a known one, with the list of all.

    Parameters
    ----------
    word
        What was written.
    known : iterable
        What would have been right.

    Examples
    --------
    >>> suggestion("hopz", ["hops", "color"])
    'did you mean hops? Known are hops, color'
    """
    names = [str(name) for name in known]
    near = close_match(word, names)
    listing = f"known are {', '.join(names)}" if names else "there are none"
    return f"did you mean {near}? {listing[0].upper()}{listing[1:]}" if near else listing


def described(value: object) -> str:
    """Return of which type a value is, in the words of `TYPES`."""
    return "a list" if isinstance(value, (list, tuple)) else TYPES.get(type(value), type(value).__name__)


@dataclass(frozen=True)
class Field:
    """A `Field` is a value that a user may set.

    Attributes
    ----------
    name : str
    kind : type
        ``bool``, ``int``, ``float``, ``str``, or ``tuple`` for a list of whole numbers.
    doc : str
        Meaning.
    low, high : number, optional
        Limits, both included; of a list: of each item.
    choices : tuple
        The only legal values, if not empty.
    unit : str
    length : int, optional
        Of a list: how many items it has.
    """

    name: str
    kind: Any
    doc: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    unit: str = ""
    length: int | None = None

    def check(self, value: Any, where: str) -> Any:
        """Return a value that has a type already, as `kind`.

        Raises
        ------
        ConfigError
            Another type, or outside the limits; `where` says in the message whose value it is.
        """
        if getattr(value, "shape", None) == ():  # a number of numpy
            value = value.item()
        if self.kind is tuple:
            return self._check_list(value, where)
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = self._decimal(value, where)
        if type(value) is not self.kind:
            wanted = TYPES.get(self.kind, self.kind.__name__)
            raise ConfigError(f"expected {wanted}, found {described(value)}: {shown(value)}", where=where, value=value)
        if self.kind is float and not math.isfinite(value):
            raise ConfigError(f"{value} is not a usable number", where=where, value=value)
        self.check_limits(value, where)
        return value

    def parse(self, text: str, where: str) -> Any:
        """Return the value that a text means.

        Raises
        ------
        ConfigError
            The text means nothing of this kind, or a value outside the limits.
        """
        word = text.strip()
        value: Any
        try:
            if self.kind is bool:
                if word.lower() not in TRUE + FALSE:
                    raise ValueError
                value = word.lower() in TRUE
            elif self.kind is int:
                value = int(word, 0)
            elif self.kind is float:
                value = float(word)
            elif self.kind is tuple:
                value = tuple(int(item, 0) for item in word.split(","))
            else:
                value = word
        except ValueError:
            wanted = "whole numbers separated by commas" if self.kind is tuple else TYPES[self.kind]
            raise ConfigError(f"expected {wanted}, found {shown(word)}", where=where, value=word) from None
        return self.check(value, where)

    def check_limits(self, value: Any, where: str) -> None:
        """Raise `ConfigError` unless a value of the right type is one of the choices and within the limits."""
        unit = f" {self.unit}" if self.unit else ""
        if self.choices and value not in self.choices:
            raise ConfigError(
                f"{shown(value)} is not a possible value",
                where=where,
                hint=suggestion(value, self.choices),
                value=value,
            )
        if self.low is not None and value < self.low:
            what = f"{shown(value)}{unit} is too small; the least is {self.low}{unit}"
            raise ConfigError(what, where=where, value=value)
        if self.high is not None and value > self.high:
            what = f"{shown(value)}{unit} is too large; the most is {self.high}{unit}"
            raise ConfigError(what, where=where, value=value)

    def _check_list(self, value: Any, where: str) -> tuple:
        """Return a list of whole numbers as a tuple."""
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"expected a list, found {described(value)}: {shown(value)}", where=where, value=value)
        if self.length is not None and len(value) != self.length:
            raise ConfigError(f"expected {self.length} values, found {len(value)}", where=where, value=value)
        item = Field(self.name, int, self.doc, self.low, self.high, self.choices, self.unit)
        return tuple(item.check(entry, f"{where}[{k}]") for k, entry in enumerate(value))

    @staticmethod
    def _decimal(value: int, where: str) -> float:
        """Return a whole number as a decimal one."""
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{shown(value)} is not a usable number", where=where, value=value) from None
