"""Runs are set beside each other as plain data: what was changed, then each number relative to the first run.

What at least two runs have is compared; what a run lacks and another has is listed by name.  `wse report A B` draws a
page of it, `wse compare` writes tables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report.changes import NOT_THERE, asked_for, differences, names_of
from harness.report.facts import HOST, summary
from traces.meanings import of_counter, of_result
from traces.style import USE_TEXT
from wse_core.counters import USES
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from traces.marks import PhaseMark
    from traces.trace import Trace

__all__ = [
    "HOST_SECTION",
    "NUMBERS",
    "SHARES",
    "ComparedNumber",
    "SideBySide",
    "is_number",
    "refuse_same",
    "relative",
    "side_by_side",
]

KINDS = {"kernel": "a kernel", "train": "training", "generate": "inference"}
"""The first word of a job says of which kind a run is."""
PLACES = ("files", "checkpoint", "params")
"""These results say where a run put its files, or are among what was asked for."""
NUMBERS, SHARES, HOST_SECTION = "Numbers", "Of all PE-cycles", "The host that simulated"
"""These sections have places of their own on a page."""
MOST_ALIKE = 8
"""More phases of a track than these that differ in numbers alone, such as iterations, are one row together."""
NUMBER = re.compile(r"\b\d+\b")


@dataclass(frozen=True)
class ComparedNumber:
    """A `ComparedNumber` has the values of one quantity in all runs.

    Attributes
    ----------
    key, meaning, unit : str
    values : tuple
        A number per run, None of a run that has none.
    """

    key: str
    meaning: str
    unit: str
    values: tuple[Any, ...]

    @property
    def changes(self) -> tuple[float | None, ...]:
        """Each run after the first has a share by which it is off the first; None if that cannot be said."""
        return tuple(relative(self.values[0], value) for value in self.values[1:])


@dataclass(frozen=True)
class SideBySide:
    """A `SideBySide` has all that a comparison of runs says, as plain data.

    Attributes
    ----------
    names : tuple of str
        The parts of the paths that tell the runs apart.
    paths : tuple of Path
    about : list of tuple
        Name and the text of each run: job, command, how it ended.
    changed : list of tuple
        Name and the value of each run of all they were asked for that differs.
    sections : dict
        Lists of `ComparedNumber` by heading.
    words : list of tuple
        Name and the text of each run of results that are no numbers and differ.
    lacks : list of list of str
        Of each run what it does not have and another one has.
    notes : list of str
        What a reader must know of the comparison.
    facts : list of dict
        Of each run, as `harness.report.facts.summary` gives them.
    """

    names: tuple[str, ...]
    paths: tuple[Path, ...]
    about: list[tuple[str, ...]]
    changed: list[tuple[str, ...]]
    sections: dict[str, list[ComparedNumber]]
    words: list[tuple[str, ...]]
    lacks: list[list[str]]
    notes: list[str]
    facts: list[dict[str, Any]]

    def as_data(self) -> dict[str, Any]:
        """Return the comparison as data that JSON can carry."""

        def rows(table: Iterable[tuple[str, ...]]) -> list[dict[str, Any]]:
            return [
                {"key": key, "values": [None if value == NOT_THERE else value for value in values]}
                for key, *values in table
            ]

        runs = [
            {"name": name, "path": path, "lacks": lacks} | {key: values[k] for key, *values in self.about}
            for k, (name, path, lacks) in enumerate(zip(self.names, self.paths, self.lacks, strict=True))
        ]
        sections = {
            heading: [vars(row) | {"changes": row.changes} for row in numbers]
            for heading, numbers in self.sections.items()
        }
        same = not self.changed
        return {"runs": runs, "same": same, "changed": rows(self.changed), "notes": self.notes} | {
            "numbers": sections,
            "words": rows(self.words),
        }


def side_by_side(traces: Sequence[Trace], paths: Sequence[Path] = ()) -> SideBySide:
    """Return the comparison of runs.

    Parameters
    ----------
    traces : sequence of Trace
        Two or more.
    paths : sequence of Path
        What they were opened by; default: their files.

    Raises
    ------
    ConfigError
        Fewer than two, or the same file twice.
    """
    paths = tuple(paths or [trace.files[0].path for trace in traces])
    if len(traces) < 2:
        raise ConfigError("one run alone cannot be compared", where=" ".join(map(str, paths)), hint="two run files")
    for first, second in combinations(paths, 2):
        refuse_same(first, second, "is given twice, there is nothing to compare")
    facts = [summary(trace) for trace in traces]
    names = names_of(*paths)
    spans = _spans([trace.marks for trace in traces])
    have = [_names(trace, phases) for trace, phases in zip(traces, spans, strict=True)]
    everything = list(dict.fromkeys(name for one in have for name in one))
    return SideBySide(
        names=names,
        paths=paths,
        about=_about(traces, facts),
        changed=differences(*map(asked_for, traces)),
        sections={heading: rows for heading, rows in _sections(traces, facts, spans).items() if rows},
        words=_words(traces),
        lacks=[[name for name in everything if name not in one] for one in have],
        notes=_notes(names, traces, facts),
        facts=facts,
    )


def refuse_same(first: str | os.PathLike[str], second: str | os.PathLike[str], why: str) -> None:
    """Refuse two paths that lead to one file.

    Raises
    ------
    ConfigError
        They do; names the second and says `why`.
    """
    same = os.path.realpath(first) == os.path.realpath(second)
    if same or (os.path.exists(first) and os.path.exists(second) and os.path.samefile(first, second)):
        other = "" if str(first) == str(second) else f" ({first} is the same file)"
        raise ConfigError(f"{why}{other}", where=str(second))


def relative(first: Any, value: Any) -> float | None:
    """Return by which share of the first number another one is more; None if that cannot be said."""
    if not is_number(first) or not is_number(value) or not isfinite(first) or not isfinite(value):
        return None
    if first == value:
        return 0.0
    return (value - first) / abs(first) if first else None


def is_number(value: object) -> bool:
    """Return whether a value is a number; truth values are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --- parts ------------------------------------------------------------------------------------------------------------


def _kind(trace: Trace) -> str:
    other = "a job" if trace.meta.config_toml else "a program"
    return KINDS.get(trace.meta.job.partition(" ")[0], other)


def _about(traces: Sequence[Trace], facts: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [
        ("kind", *map(_kind, traces)),
        *((key, *(str(one[key]) for one in facts)) for key in ("job", "command", "status", "commit")),
    ]


def _notes(names: Sequence[str], traces: Sequence[Trace], facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what keeps runs from being alike, as sentences."""
    found = []
    kinds = [_kind(trace) for trace in traces]
    if len(set(kinds)) > 1:
        which = ", ".join(f"{name} is {kind}" for name, kind in zip(names, kinds, strict=True))
        found.append(f"Runs of different kinds: {which}. What two have is compared, what one lacks is listed.")
    for name, trace, one in zip(names, traces, facts, strict=True):
        if not trace.complete:
            found.append(f"{name} did not end: compared is what it left.")
        elif one["status"] != "completed":
            found.append(f"{name} ended otherwise: {one['status']}.")
    return found


def _names(trace: Trace, phases: Iterable[str]) -> list[str]:
    """Return what a run has: results, counters, phases."""
    run = trace.files[0]
    return [
        *(f"result {name}" for name in run.results),
        *(f"counter {name}" for name in run.counters),
        *(f"phase {name}" for name in phases),
    ]


def _sections(
    traces: Sequence[Trace],
    facts: Sequence[Mapping[str, Any]],
    spans: Sequence[Mapping[str, Sequence[tuple[int, int]]]],
) -> dict[str, list[ComparedNumber]]:
    """Return the numbers that at least two runs have."""
    results = [one["results"] for one in facts]
    keys = sorted({key for one in results for key, value in one.items() if is_number(value)})
    energy = [key for key in keys if "energy" in key or of_result(key)[0] in ("J", "pJ", "W")]
    others = [key for key in keys if key not in (*HOST, *energy, "cycles")]

    def of_results(names: Iterable[str]) -> list[ComparedNumber]:
        return _shared(names, of_result, lambda key: [_if_number(one.get(key)) for one in results])

    def of_uses(unit: str, of: Callable[[Mapping[str, Any], str], float]) -> list[ComparedNumber]:
        return _shared(
            USES,
            lambda use: (unit, USE_TEXT[use]),
            lambda use: [of(one, use) if use in one["uses"] else None for one in facts],
        )

    return {
        NUMBERS: of_results(["cycles", *others]),
        "Energy": of_results(energy),
        "Phases": _phases(spans),
        "Cycles of a PE, on average": of_uses("cycles", lambda one, use: one["uses"][use] * one["accounted"]),
        SHARES: of_uses("1", lambda one, use: one["uses"][use]),
        "Counters, all PEs together": _counters(traces),
        HOST_SECTION: of_results(key for key in HOST if key in keys),
    }


def _if_number(value: Any) -> Any:
    return value if is_number(value) else None


def _shared(
    keys: Iterable[str], about: Callable[[str], tuple[str, str]], of: Callable[[str], Sequence[Any]]
) -> list[ComparedNumber]:
    """Return the rows of keys of which at least two runs have a number."""
    found = []
    for key in keys:
        unit, meaning = about(key)
        values = tuple(of(key))
        if sum(value is not None for value in values) > 1:
            found.append(ComparedNumber(key, meaning, unit, values))
    return found


def _counters(traces: Sequence[Trace]) -> list[ComparedNumber]:
    """Return the sums of the counters that say no use of cycles."""
    sums = [
        {name: int(run.counter(name).values.sum(dtype=np.int64)) for name in run.counters if name not in USES}
        for run in (trace.files[0] for trace in traces)
    ]
    keys = dict.fromkeys(name for one in sums for name in one)
    return _shared(keys, of_counter, lambda key: [one.get(key) for one in sums])


def _spans(marks: Sequence[Sequence[PhaseMark]]) -> list[dict[str, list[tuple[int, int]]]]:
    """Return begins and ends of the phases of each run by track and label; those of many numbers are one."""
    alike: dict[tuple[str, str], set[str]] = {}
    for mark in (mark for one in marks for mark in one):
        alike.setdefault((mark.track, NUMBER.sub("N", mark.label)), set()).add(mark.label)
    spans: list[dict[str, list[tuple[int, int]]]] = []
    for one in marks:
        found: dict[str, list[tuple[int, int]]] = {}
        for mark in one:
            pattern = NUMBER.sub("N", mark.label)
            label = pattern if len(alike[mark.track, pattern]) > MOST_ALIKE else mark.label
            found.setdefault(f"{mark.track}: {label}", []).append((mark.begin, mark.end))
        spans.append(found)
    return spans


def _phases(spans: Sequence[Mapping[str, Sequence[tuple[int, int]]]]) -> list[ComparedNumber]:
    """Return the cycles that phases of the program lasted, and how often they were if that differs."""
    keys = dict.fromkeys(key for found in spans for key in found)
    lasted = {key: [_elapsed(found[key]) if key in found else None for found in spans] for key in keys}
    often = {key: [len(found[key]) if key in found else None for found in spans] for key in keys}
    rows = []
    for key in keys:
        rows += _shared([key], lambda _: ("cycles", ""), lasted.__getitem__)
        if len(set(often[key]) - {None}) > 1:
            rows += _shared([key], lambda _: ("times", "how often"), often.__getitem__)
    return rows


def _elapsed(spans: Iterable[tuple[int, int]]) -> int:
    """Return how many cycles are in at least one span."""
    total = last = 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, last))
        last = max(last, end)
    return total


def _words(traces: Sequence[Trace]) -> list[tuple[str, ...]]:
    """Return the results that are no numbers, of which two runs have different ones."""
    runs = [trace.files[0] for trace in traces]
    names = dict.fromkeys(name for run in runs for name in run.results if name not in PLACES)
    rows: list[tuple[str, ...]] = []
    for name in names:
        values = [run.result(name) if name in run.results else None for run in runs]
        there = [value for value in values if value is not None]
        if len(there) < 2 or all(map(is_number, there)):
            continue
        texts = [NOT_THERE if value is None else _in_words(value, there[0]) for value in values]
        if len({repr(_listed(value)) for value in there}) > 1:
            rows.append((name, *texts))
    return rows


def _listed(value: Any) -> Any:
    """Return arrays as their bytes, so that those which compare equal are the same bit by bit."""
    if not isinstance(value, np.ndarray):
        return value
    return value.shape, value.dtype.str, value.tolist() if value.dtype.hasobject else value.tobytes()


def _in_words(value: Any, first: Any) -> str:
    """Return a text for a result; of an array how much of it has other bits than in the first run that has it."""
    if not isinstance(value, np.ndarray):
        return str(value)
    text = f"{' x '.join(map(str, value.shape)) or 'one'} {value.dtype}"
    if value is first or not isinstance(first, np.ndarray) or value.dtype.hasobject:
        return text
    if value.shape != first.shape or value.dtype != first.dtype:
        return text
    bits = [np.frombuffer(one.tobytes(), np.uint8).reshape(value.size, -1) for one in (value, first)]
    other = int(np.any(bits[0] != bits[1], axis=1).sum())
    return f"{other:,} of {value.size:,} differ" if other else "the same"
