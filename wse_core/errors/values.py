"""A value given by a user or a file is shown in a message short, on one line, and with nothing that steers."""

from __future__ import annotations

import math
import reprlib

__all__ = ["CONTROLS", "MOST_SHOWN", "named", "shown"]

MOST_SHOWN = 80
"""A message repeats a value as it was written up to so many characters."""

CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""These texts are shown in place of characters that steer a terminal or end a line."""


class _Short(reprlib.Repr):
    """A `_Short` shows values, also those in lists and tables, without writing out numbers of hundreds of digits."""

    def repr_int(self, x: int, level: int) -> str:
        """Return a number in full, unless it is too long; Python refuses to write out the longest."""
        if x.bit_length() <= 4 * MOST_SHOWN:
            return repr(x)
        return f"a number of about {round(x.bit_length() * math.log10(2)):,} digits"


_SHORT = _Short()
_SHORT.maxlevel, _SHORT.maxdict = 4, 8
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = 24
_SHORT.maxstring = _SHORT.maxother = 4 * MOST_SHOWN


def _cut(text: str) -> str:
    """Return a text that is no longer than a message wants; its end stays, which closes what its beginning opens."""
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 4]}...{text[-1]}"


def shown(value: object) -> str:
    """Return a value as a message repeats it, in quotes if it is a text: in full, unless that is too long.

    Control characters are shown as escapes.

    Examples
    --------
    >>> shown([3, "x\\n"])
    "[3, 'x\\\\n']"
    """
    if isinstance(value, str):
        return _cut(repr(value[: 2 * MOST_SHOWN]))
    return _cut(_SHORT.repr(value))


def named(name: str) -> str:
    """Return a name as a message repeats it, without quotes: in full, unless that is too long.

    Control characters are shown as escapes.
    """
    part = name[: 2 * MOST_SHOWN]
    return _cut(part if part.isprintable() else repr(part)[1:-1])
