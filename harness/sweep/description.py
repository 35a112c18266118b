"""The file of ``wse sweep`` says what runs, over which axes, in which combinations.

===========  ========================================================================================================
kernel       name of a kernel, or a list of names; or, instead of it,
plan         name of a model that is planned, or a list of names
[params]     parameters; of a plan: strategy, hardware, network, devices, days
[machine]    ``preset`` and any modelled number to change: ``ramp.in = [2, 3]``
zip          axes that go side by side: ``["m", "n"]``, or several such lists; all others are combined with each other
[figure]     ``x`` (an axis), ``y`` (a column of the table), ``scale``: linear, log, log-x or log-y
===========  ========================================================================================================

A value is one value, a list of values, or a range with its ends: ``{from = 4, to = 64, times = 2}``, ``{from = 1, to =
9, step = 2}``.  What has several values is an axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from harness.config import toml
from harness.config.options import from_table, option, place
from harness.sweep.point import Point
from harness.sweep.subjects import SUBJECTS, Subject, find
from wse_core.errors import ConfigError
from wse_core.numbers import DEFAULT_PRESET
from wse_core.params import PARAMETERS, machine
from wse_core.schema import Field, described, suggestion

__all__ = ["MOST", "SCALES", "FigureOptions", "Sweep", "SweepAxis", "load", "parse"]

MOST = 100_000
"""Points of a sweep: more are certainly a mistake."""
SCALES = ("linear", "log", "log-x", "log-y")
RANGE = {"from", "to", "step", "times"}


@dataclass(frozen=True)
class SweepAxis:
    """A `SweepAxis` is what has several values in a sweep.

    Attributes
    ----------
    name : str
        ``kernel`` or ``plan``, a parameter, ``preset``, or a modelled number.
    values : tuple
    """

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class FigureOptions:
    """The table ``[figure]`` has these keys."""

    x: str = option("", doc="axis of the figure; the first one with numbers if not given")
    y: str = option("", doc="column that is drawn; cycles, or days of a plan, if not given")
    scale: str = option("linear", doc="which axes are logarithmic", choices=SCALES)


@dataclass(frozen=True)
class _SweepFile:
    """A `_SweepFile` has the keys that a file may have."""

    kernel: list = option([], doc="name of a kernel, or a list of names")
    plan: list = option([], doc="name of a model, or a list of names")
    params: dict = option({}, doc="parameters")
    machine: dict = option({}, doc="preset and modelled numbers")
    zip: list = option([], doc='axes that go side by side, for example ["m", "n"]')
    figure: FigureOptions = option(FigureOptions(), doc="what is drawn")


@dataclass(frozen=True)
class Sweep:
    """A sweep as a file describes it.

    Attributes
    ----------
    source : str
        Where it came from.
    axes : tuple of SweepAxis
        What has several values, in the order of the file.
    points : tuple of (dict, Point)
        The value of each axis, and what is run.
    figure : FigureOptions
    """

    source: str
    axes: tuple[SweepAxis, ...]
    points: tuple[tuple[dict[str, Any], Point], ...]
    figure: FigureOptions


def load(path: str | Path) -> Sweep:
    """Return the sweep of a TOML file; see the head of this module."""
    return parse(toml.read_text(path, "wse sweep --help, which shows one"), path)


def parse(text: str, source: object = "") -> Sweep:
    """Return the sweep that a TOML text describes.

    Raises
    ------
    ConfigError
        Malformed TOML, unknown names, values outside their limits, lists that do not go side by side; the message names
        file and key.
    """
    table = toml.parse(text, source)
    table |= {kind: [table[kind]] for kind in SUBJECTS if kind in table and not isinstance(table[kind], list)}
    file = from_table(_SweepFile, table, source)
    given = [kind for kind in SUBJECTS if kind in table]
    if len(given) != 1:
        raise ConfigError(
            "exactly one is needed of kernel and plan", where=place(source, ""), hint='for example kernel = "gemv"'
        )
    (kind,) = given
    subjects = _subjects(kind, getattr(file, kind), source)
    values: dict[str, tuple[Any, ...]] = {kind: tuple(subjects)}
    params, numbers = [], []
    for name, value in file.params.items():
        fields = [_field(subject, kind, name, source) for subject in subjects.values()]
        found = _values(value, fields[0], place(source, f"params.{name}"))
        for field in fields[1:]:
            found = tuple(field.check(one, place(source, f"params.{name}")) for one in found)
        params.append(name)
        values[name] = found
    for name, value in _flat(file.machine).items():
        where = place(source, f"machine.{name}")
        if name == "preset":
            values[name] = _values(value, Field(name, str), where)
            for preset in values[name]:
                machine(preset)
            continue
        if name not in PARAMETERS:
            raise ConfigError(f"unknown number {name!r}", where=where, hint=suggestion(name, PARAMETERS), key=name)
        if name in values:
            raise ConfigError("is a parameter too", where=where, key=name)
        numbers.append(name)
        values[name] = _values(value, PARAMETERS[name].field, where)
    axes = tuple(SweepAxis(name, found) for name, found in values.items() if len(found) > 1)
    points = []
    for chosen in _combinations(axes, file.zip, place(source, "zip")):
        whole = {name: found[0] for name, found in values.items()} | chosen
        subject = subjects[whole[kind]]
        point = Point(
            kind,
            subject.name,
            dict(subject.defaults) | {name: whole[name] for name in params},
            whole.get("preset", DEFAULT_PRESET),
            {name: whole[name] for name in numbers},
        )
        points.append((chosen, point))
    _check_axis(file.figure.x, axes, place(source, "figure.x"))
    return Sweep(str(source), axes, tuple(points), file.figure)


def _subjects(kind: str, value: Any, source: object) -> dict[str, Subject]:
    """Return what runs, by name."""
    names = _values(value, Field(kind, str), place(source, kind))
    found = {}
    for name in names:
        try:
            found[name] = find(kind, name)
        except ConfigError as error:
            error.where = error.where or place(source, kind)
            raise
    return found


def _field(subject: Subject, kind: str, name: str, source: object) -> Field:
    """Return what a parameter may be."""
    if name not in subject.fields:
        raise ConfigError(
            f"{kind} {subject.name} has no parameter {name!r}",
            where=place(source, f"params.{name}"),
            hint=suggestion(name, subject.fields),
            key=name,
        )
    return subject.fields[name]


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested table with dotted keys; a range stays a table."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and "from" not in value:
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


def _values(value: Any, field: Field, where: str) -> tuple[Any, ...]:
    """Return the values that a key has, each checked."""
    if isinstance(value, dict):
        items: Sequence[Any] = list(_range(value, where))
    elif isinstance(value, list) and not (field.kind is tuple and not any(isinstance(one, list) for one in value)):
        items = value
        if not items:
            raise ConfigError("an empty list has no point", where=where)
    else:
        items = [value]
    found = tuple(field.check(one, where if len(items) == 1 else f"{where}[{k}]") for k, one in enumerate(items))
    for k, one in enumerate(found):
        if one in found[:k]:
            raise ConfigError(f"{one!r} is there twice", where=f"{where}[{k}]", value=one)
    return found


def _range(table: Mapping[str, Any], where: str) -> Iterator[int | float]:
    """Yield the numbers of a range, in the decimals in which it is written."""
    if set(table) - RANGE or not {"from", "to"} <= set(table) or ("step" in table) == ("times" in table):
        raise ConfigError(
            "is no range", where=where, hint="{from = 4, to = 64, times = 2} or {from = 1, to = 9, step = 2}"
        )
    for key, one in table.items():
        if isinstance(one, bool) or not isinstance(one, (int, float)) or not math.isfinite(one):
            raise ConfigError(f"expected a number, found {described(one)}", where=f"{where}.{key}", value=one)
    whole = all(isinstance(one, int) for one in table.values())
    now, last = Decimal(str(table["from"])), Decimal(str(table["to"]))
    by, grows = Decimal(str(table.get("step", table.get("times")))), "times" in table
    if by <= (1 if grows else 0) or (grows and now <= 0) or last < now:
        raise ConfigError(
            "leads nowhere", where=where, hint="from <= to, a step above 0, or times above 1 from above 0"
        )
    for _ in range(MOST + 1):
        yield int(now) if whole else float(now)
        now = now * by if grows else now + by
        if now > last:
            return
    raise ConfigError(f"has more than {MOST:,} values", where=where)


def _combinations(axes: Sequence[SweepAxis], zipped: list[Any], where: str) -> list[dict[str, Any]]:
    """Return the value of each axis for every point: groups side by side, these combined, the last one fastest."""
    groups = _groups(axes, zipped, where)
    lengths = [len(group[0].values) for group in groups]
    if math.prod(lengths) > MOST:
        raise ConfigError(
            f"{math.prod(lengths):,} points are more than {MOST:,}", where=where.removesuffix("zip").rstrip(": ")
        )
    found = []
    for places in itertools.product(*map(range, lengths)):
        at = {axis.name: axis.values[k] for group, k in zip(groups, places, strict=True) for axis in group}
        found.append({axis.name: at[axis.name] for axis in axes})
    return found


def _groups(axes: Sequence[SweepAxis], zipped: list[Any], where: str) -> list[list[SweepAxis]]:
    """Return the axes in groups that go side by side, in the order of the first of each."""
    lists = [zipped] if zipped and all(isinstance(name, str) for name in zipped) else zipped
    known, taken = {axis.name: axis for axis in axes}, dict[str, list[SweepAxis]]()
    for names in lists:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError("expected names of axes", where=where, hint='["m", "n"] or [["m", "n"], ["p", "height"]]')
        for name in names:
            if name not in known:
                hint = suggestion(name, known)
                raise ConfigError(f"{name!r} has no list of values", where=where, hint=hint, key=name)
            if name in taken:
                raise ConfigError(f"{name!r} is named twice", where=where, key=name)
            taken[name] = group = taken[names[0]] if name != names[0] else []
            group.append(known[name])
        lengths = {name: len(known[name].values) for name in names}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            raise ConfigError(f"lists of different lengths cannot go side by side: {told}", where=where)
    found: list[list[SweepAxis]] = []
    for axis in axes:
        group = taken.get(axis.name, [axis])
        if not any(group is other for other in found):
            found.append(group)
    return found


def _check_axis(name: str, axes: Sequence[SweepAxis], where: str) -> None:
    """Refuse an axis of the figure that there is not."""
    if name and name not in {axis.name for axis in axes}:
        hint = suggestion(name, [axis.name for axis in axes])
        raise ConfigError(f"{name!r} is no axis of this sweep", where=where, hint=hint, key=name)
