"""Units: inside the planner everything is in bytes, operations and seconds; units have names only at the edges.

The two papers mean different things by "GB": 10^9 bytes in the weight-streaming paper, 2^30 bytes in the paper on
layered accumulation.  Here ``GB`` is always 10^9 and ``GiB`` always 2^30, and a number without a unit is refused.
"""

from __future__ import annotations

import math
import re

from wse_core.errors import ConfigError

__all__ = ["DAY", "GB", "GIB", "WEEK", "YEAR", "amount", "parse_bytes", "printed", "rounded", "span"]

GB = 10**9
GIB = 2**30
DAY = 86_400.0
WEEK = 7 * DAY
YEAR = 365.25 * DAY

SIZES = (
    {"B": 1}
    | {f"{p}B": 1000**i for i, p in enumerate("kMGTP", 1)}
    | {f"{p}iB": 1024**i for i, p in enumerate("KMGTP", 1)}
)
SIZE = re.compile(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]+)(/s)?\s*")


def parse_bytes(text: object, place: object, per_second: bool = False) -> float:
    """Return bytes (or bytes/s) from a text such as ``80 GiB`` or ``600 GB/s``.

    Raises
    ------
    ConfigError
        No number, no unit, or an unknown one.
    """
    match = SIZE.fullmatch(text) if isinstance(text, str) else None
    rate = "/s" if per_second else ""
    if match is None or match[2] not in SIZES or bool(match[3]) != per_second:
        raise ConfigError(
            f"{text!r} is no amount of bytes{rate}",
            where=place,
            hint=f'a number and a unit, for example "80 GB{rate}" (10^9) or "80 GiB{rate}" (2^30)',
        )
    try:
        value = float(match[1]) * SIZES[match[2]]
    except ValueError:
        value = 0.0
    if not (0 < value < math.inf):
        raise ConfigError(f"{text!r} is not above zero", where=place)
    return value


def rounded(value: float, digits: int) -> float:
    """Return `value` rounded to a number of significant digits; an exact half goes to the even digit."""
    return float(f"{value:.{digits - 1}e}") if math.isfinite(value) else value


def printed(value: float, digits: int = 3) -> str:
    """Return a number in the way papers print it: significant digits and k, M, B, T, Q (10^15) for thousands."""
    if value == 0 or not math.isfinite(value):
        return str(value)
    value = rounded(value, digits)
    for power, letter in ((15, " Q"), (12, " T"), (9, " B"), (6, " M"), (3, " k")):
        if abs(value) >= 10.0**power:
            return f"{value / 10.0**power:.{digits}g}{letter}"
    if abs(value) < 1e-3:
        return f"{value:.{digits}g}"
    return f"{value:.{max(digits - 1 - math.floor(math.log10(abs(value))), 0)}f}"


def amount(value: float, binary: bool = False) -> str:
    """Return bytes as text, in GB (10^9) or GiB (2^30) as named."""
    base, suffix = (1024, "iB") if binary else (1000, "B")
    for power, letter in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K" if binary else "k")):
        if value >= base**power:
            return f"{value / base**power:.4g} {letter}{suffix}"
    return f"{value:.4g} B"


def span(seconds: float) -> str:
    """Return a time as years, days, hours, minutes or seconds, two to three digits."""
    for unit, length in (("y", YEAR), ("d", DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"
