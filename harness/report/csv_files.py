"""The numbers of a report are written as CSV: a file for each of its tables, and one for each of its pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.report.facts import summary
from harness.report.page import drawn
from harness.report.tables import csv_text
from traces.atomic import atomic_file
from traces.line_cycles import NEEDED, line_cycles, line_table
from traces.meanings import of_result
from traces.style import USE_TEXT
from wse_core.params import PARAMETERS

if TYPE_CHECKING:
    from traces.trace import Trace

__all__ = ["write_numbers"]


def write_numbers(folder: Path, trace: Trace) -> list[Path]:
    """Write the numbers of the report of a run into a directory; return the files.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    trace : Trace
    """
    written = []
    for name, lines in _tables(trace):
        if len(lines) > 1:
            written.append(folder / f"{name}.csv")
            with atomic_file(written[-1]) as stream:
                stream.write(csv_text(lines).encode("utf-8"))
    for name, picture, _ in drawn(trace):
        written.append(folder / f"{name}.csv")
        with atomic_file(written[-1]) as stream:
            picture.write_table(stream)
    return written


def _tables(trace: Trace) -> Iterator[tuple[str, list[Sequence[Any]]]]:
    """Yield the name of each table and its lines, the first of which has the names of columns."""
    facts, run = summary(trace), trace.files[0]
    found = [(key, value, *of_result(key)) for key, value in facts["results"].items() if not isinstance(value, dict)]
    yield "results", [("key", "value", "unit", "meaning"), *found]
    curves = [name for name in run.results if name.startswith("curve_")]
    columns = [run.result(name).tolist() for name in curves]
    if len({len(column) for column in columns}) == 1:
        yield "curves", [[name.removeprefix("curve_") for name in curves], *zip(*columns, strict=True)]
    else:
        for name, column in zip(curves, columns, strict=True):
            yield name, [[name.removeprefix("curve_")], *([value] for value in column)]
    uses = [(use, share, USE_TEXT[use]) for use, share in facts["uses"].items()]
    yield "uses", [("use", "share_of_pe_cycles", "meaning"), *uses]
    for name in ("busiest_pes", "busiest_links"):
        yield name, [list(row) for row in facts[name][:1]] + [list(row.values()) for row in facts[name]]
    phases = [(mark.track, mark.label, mark.begin, mark.end) for mark in trace.marks]
    yield "phases", [("track", "phase", "begin", "end"), *phases]
    if trace.has_events and set(NEEDED) <= set(trace.filter.kinds):
        yield "lines", list(line_table(line_cycles(trace)))
    numbers = [
        (name, value, PARAMETERS[name].unit, PARAMETERS[name].confidence, PARAMETERS[name].source)
        for name, value in trace.meta.machine.items()
        if name in PARAMETERS
    ]
    yield "modelled_numbers", [("name", "value", "unit", "confidence", "source"), *numbers]
