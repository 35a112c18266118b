"""How a value that a user or a file gave appears in a message: short, on one line, and with nothing that steers."""

from __future__ import annotations

import math
import reprlib

__all__ = ["CONTROLS", "MOST_SHOWN", "named", "shown"]

MOST_SHOWN = 80
"""Longest value that a message repeats as it was written [characters]."""

CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""Characters that steer a terminal or end a line, and what is shown in their place."""

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxlist, _SHORT.maxtuple = 4, 8, 24, 24
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 4 * MOST_SHOWN


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
    if isinstance(value, int) and value.bit_length() > 4 * MOST_SHOWN:  # Python refuses to write out the longest
        return f"a number of about {round(value.bit_length() * math.log10(2)):,} digits"
    if isinstance(value, str):
        return _cut(repr(value[: 2 * MOST_SHOWN]))
    try:
        return _cut(_SHORT.repr(value) if isinstance(value, (list, tuple, dict)) else repr(value))
    except ValueError:  # a list with such a number in it
        return f"a {type(value).__name__} with a number of thousands of digits"


def named(name: str) -> str:
    """Return a name as a message repeats it, without quotes: in full, unless that is too long.

    Control characters are shown as escapes.
    """
    part = name[: 2 * MOST_SHOWN]
    return _cut(part if part.isprintable() else repr(part)[1:-1])
