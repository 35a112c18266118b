"""A published point is one measurement, read and checked.

A *point* says what ran, with which parameters, how many cycles it took, and who published it.  ``calibration.json``
beside this module holds the known ones; a file of the same form can take its place.  Keys that a point may have are
`REQUIRED` and `OPTIONAL`; any other is refused, for a misspelt one would be lost silently.

What a source leaves open and the comparison needs stands in ``assumed``, apart from ``params``: parameters of the
program, and ``clock_ghz`` where a time was published and no cycles.  Every table repeats it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from importlib import resources
from typing import Any

from wse_core.errors import ConfigError
from wse_core.schema import described, suggestion

__all__ = [
    "OPTIONAL",
    "QUICK",
    "REQUIRED",
    "assumptions",
    "generations",
    "load_points",
    "program_params",
    "published_cycles",
    "select",
]

MAX_BYTES = 1 << 24
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Published times have these units."""
REQUIRED = {"id": str, "kind": str, "recipe": str, "params": dict}
OPTIONAL = {
    **dict.fromkeys(("workload", "source", "exactness", "generation", "platform", "run", "notes"), str),
    "published_unit": str,
    "assumed": dict,
    **dict.fromkeys(("cycles", "clock_ghz", "gcell_per_s"), float),
    "published_value": object,  # as printed, which may be ">270000"
    **dict.fromkeys(("cycles_wse3", "cycles_at_0p85_ghz", "cycles_at_1p1_ghz"), float),
}
"""Keys that a point may have: texts, numbers above zero, and what is assumed; null says that it is not known."""
QUICK = (
    "SUMMA-P32-T4",
    "MATVEC-N10",
    "MATVEC-N25x1",
    "RED-CHAIN512",
    "STEN1-3",
    "STENT-R1-1x1",
    "STENT-R2-2x2",
    "STEN25-T3-NZ100",
    "FMULS-1028-A",
    "FMACS-TRACE-1",
    "FMACS-TRACE-2",
    "SUMSIM-DC-SEND196",
    "SPMM-CSC-08",
    "FORM-CHAIN",
)
"""The quick run has these points."""


def load_points(path: str | None = None) -> list[dict[str, Any]]:
    """Return the points of a file as a list of dicts; those that come with the package if `path` is None.

    Raises
    ------
    ConfigError
        The file is not JSON of the right form; the message names the point and the key.
    """
    if path is None:
        where, text = (
            "calibration.json",
            resources.files("harness.validation").joinpath("calibration.json").read_text("utf-8"),
        )
    else:
        where = str(path)
        try:
            with open(path, "rb") as file:
                raw = file.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:
                raise ConfigError(f"longer than {MAX_BYTES} bytes, certainly not a list of points", where=where)
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"not a text file: {error.reason}", where=where) from None
    try:
        points = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}", where=where) from None
    if not isinstance(points, list):
        raise ConfigError("expected a list of points", where=where)
    seen = set()
    for k, point in enumerate(points):
        _check(point, f"{where}: point {k + 1}")
        if point["id"] in seen:
            raise ConfigError(f"two points have the id {point['id']!r}", where=where)
        seen.add(point["id"])
    return points


def _check(point: Any, where: str) -> None:
    """Refuse a point of another form."""
    if not isinstance(point, Mapping):
        raise ConfigError("a point is a table of keys and values", where=where)
    for key, kind in REQUIRED.items():
        if key not in point:
            raise ConfigError(f"the key {key!r} is missing", where=where, hint="every point has " + ", ".join(REQUIRED))
        if not isinstance(point[key], kind):
            raise ConfigError(f"{key}: expected a {kind.__name__}, got {point[key]!r}", where=where)
        if key != "params":
            where = f"{where.split(' (')[0]} ({point['id']})" if key == "id" else where
    for key in point:
        if key not in REQUIRED and key not in OPTIONAL:
            raise ConfigError(f"unknown key {key!r}", where=where, hint=suggestion(key, (*REQUIRED, *OPTIONAL)))
    for key, value in point.items():
        wanted = OPTIONAL.get(key)
        if wanted is str and not (value is None or isinstance(value, str)):
            raise ConfigError(f"{key}: expected a text or null, found {_short(value)}", where=where)
        if wanted is float and not (value is None or _positive(value)):
            raise ConfigError(f"{key}: expected a positive number or null, found {_short(value)}", where=where)
    if point.get("assumed") is not None:
        _check_assumed(point, where)


def _check_assumed(point: Mapping[str, Any], where: str) -> None:
    """Refuse assumptions that are no table, contradict what the source says, or name no clock that can be one."""
    assumed = point["assumed"]
    if not isinstance(assumed, Mapping):
        raise ConfigError(f"assumed: expected a table of parameters, found {_short(assumed)}", where=where)
    for key in assumed:
        if key in point["params"]:
            raise ConfigError(f"assumed: {key} stands among the parameters too; the source says it", where=where)
    clock = assumed.get("clock_ghz")
    if clock is None:
        return
    if not _positive(clock):
        raise ConfigError(f"assumed: clock_ghz: expected a positive number, found {_short(clock)}", where=where)
    if point.get("published_unit") not in SECONDS or not _positive(point.get("published_value")):
        raise ConfigError(
            "assumed: a clock makes cycles of a time, and no time was published",
            where=where,
            hint=f"published_value is a number above zero, published_unit one of {', '.join(SECONDS)}",
        )


def published_cycles(point: Mapping[str, Any]) -> float | None:
    """Return the published cycles of a point: as printed, or of a time at the clock assumed; None if neither."""
    clock = (point.get("assumed") or {}).get("clock_ghz")
    if point.get("cycles") is None and clock is not None:
        return point["published_value"] * SECONDS[point["published_unit"]] * clock * 1e9
    return point.get("cycles") or point.get("cycles_at_0p85_ghz")


def program_params(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the program behind a point: what was published and what is assumed, no result."""
    told = point["params"] | {k: v for k, v in (point.get("assumed") or {}).items() if k != "clock_ghz"}
    return {key: value for key, value in told.items() if key not in ("values", "min", "max")}


def assumptions(point: Mapping[str, Any]) -> str:
    """Return what is assumed about a point as a text; empty if nothing is."""
    return ", ".join(
        f"{value:g} GHz" if key == "clock_ghz" else f"{key} = {str(value).lower() if value is True else value}"
        for key, value in (point.get("assumed") or {}).items()
    )


def generations(point: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a point, and behind it the same program on the WSE-3 if its cycles there were published too."""
    if point.get("cycles_wse3") is None:
        return [point]
    return [point, point | {"id": f"{point['id']} on WSE-3", "cycles": point["cycles_wse3"], "generation": "WSE-3"}]


def _positive(value: object) -> bool:
    """Whether a value is a number above zero that a decimal number can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return 0 < float(value) < math.inf
    except OverflowError:
        return False


def _short(value: object) -> str:
    """Return a value as a message repeats it."""
    return described(value) if isinstance(value, (list, dict, int)) else repr(value)[:60]


def select(
    points: list[dict[str, Any]],
    kinds: Collection[str] = (),
    recipes: Collection[str] = (),
    ids: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Return the points of the given kinds, recipes and ids (all, where nothing is given).

    Raises
    ------
    ConfigError
        No point has such a kind or recipe.
    """
    for key, wanted in (("kind", kinds), ("recipe", recipes)):
        known = sorted({point[key] for point in points})
        for word in wanted:
            if word not in known:
                raise ConfigError(f"no point has the {key} {word!r}", hint=suggestion(word, known))
    return [
        point
        for point in points
        if (not kinds or point["kind"] in kinds)
        and (not recipes or point["recipe"] in recipes)
        and (ids is None or point["id"] in ids)
    ]
