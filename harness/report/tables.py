"""A comparison of runs is written as text for a terminal, as Markdown, or as CSV with one row per key and number."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from harness.kit.console import printable
from harness.report.changes import NOT_THERE
from harness.report.markup import number, percent, share
from harness.report.side_by_side import SHARES, ComparedNumber, SideBySide

__all__ = ["FORMATS", "as_csv", "as_markdown", "as_text", "csv_text"]

SAME = "Nothing: the same configuration, command, modelled numbers and version."
LACKS = "What one lacks and another one has"
WIDTH = 100
"""A list of names is broken into lines of so many characters."""


class ReportTable(NamedTuple):
    """A `ReportTable` is a table under its heading, of which the first columns are texts and the others numbers."""

    heading: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1


def as_text(found: SideBySide) -> str:
    """Return a comparison as text, columns aligned."""
    parts = [*found.notes]
    for part in _parts(found):
        cells = [part.head, *part.rows]
        widths = [max(len(row[k]) for row in cells) for k in range(len(part.head))]
        lines = [
            "  ".join(
                cell.ljust(width) if k < part.texts else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        parts.append("\n".join([part.heading, *(f"  {line}".rstrip() for line in lines if part.rows)]))
        if not part.rows:
            parts[-1] += f"\n  {SAME}"
    parts += [
        "\n".join([f"{_cell(name)} lacks, of the {sort}s of others", *_wrapped(what)])
        for name, sort, what in _lacks(found)
    ]
    return "\n\n".join(parts) + "\n"


def as_markdown(found: SideBySide) -> str:
    """Return a comparison as Markdown: a heading and a table per part."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells) + " |"

    lacks = [(_cell(name), f"{sort}s", ", ".join(what)) for name, sort, what in _lacks(found)]
    parts = [f"# {', '.join(map(_cell, found.names[:-1]))} and {_cell(found.names[-1])}", *found.notes]
    for part in [*_parts(found), *([ReportTable(LACKS, ["run", "", "lacks"], lacks, 3)] if lacks else [])]:
        rule = "|" + "---|" * part.texts + "---:|" * (len(part.head) - part.texts)
        parts += [
            f"## {part.heading}",
            "\n".join([line(part.head), rule, *map(line, part.rows)]) if part.rows else SAME,
        ]
    return "\n\n".join(parts) + "\n"


def as_csv(found: SideBySide) -> str:
    """Return a comparison as CSV: section, key, unit, meaning, a column per run, and changes as shares of the first."""
    names, nothing = found.names, [""] * (len(found.names) - 1)
    lines: list[Sequence[Any]] = [
        ["section", "key", "unit", "meaning", *names, *(f"change of {name}" for name in names[1:])]
    ]
    for section, rows in (("runs", found.about), ("changed", found.changed), ("results in words", found.words)):
        lines += [[section, key, "", "", *values, *nothing] for key, *values in rows]
    for section, numbers in found.sections.items():
        for row in numbers:
            values = ["" if value is None else value for value in (*row.values, *row.changes)]
            lines.append([section, row.key, row.unit, row.meaning, *values])
    for k, what in enumerate(found.lacks):
        has = ["no" if k == j else "" for j in range(len(names))]
        lines += [["lacks", key, "", "", *has, *nothing] for key in what]
    lines += [["note", note, "", "", *[""] * len(names), *nothing] for note in found.notes]
    return csv_text(lines)


def csv_text(lines: Iterable[Sequence[Any]]) -> str:
    """Return lines of cells as CSV: numbers as they are, texts without what steers a terminal."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([printable(cell) if isinstance(cell, str) else cell for cell in line] for line in lines)
    return stream.getvalue()


FORMATS = {"text": as_text, "md": as_markdown, "csv": as_csv}
"""Each form of a comparison has a name."""


def _parts(found: SideBySide) -> Iterator[ReportTable]:
    """Yield the tables of a comparison; that of what was changed also if nothing was."""
    names = [_cell(name) for name in found.names]
    about = {key: values for key, *values in found.about}
    commands = [one["command"] or one["job"] for one in found.facts]
    runs = [found.names, found.paths, about["kind"], about["status"], [name[:12] for name in about["commit"]], commands]
    head = ["run", "file", "kind", "ended", "commit", "command"]
    yield ReportTable("Runs", head, [_cells(row) for row in zip(*runs, strict=True)], len(head))
    yield ReportTable(
        "What was changed", ["key, option or modelled number", *names], [_cells(row) for row in found.changed]
    )
    if found.words:
        yield ReportTable("Results that are no numbers", ["", *names], [_cells(row) for row in found.words])
    for heading, rows in found.sections.items():
        form = share if heading == SHARES else number
        yield ReportTable(heading, ["", *names], [_numbers(row, form) for row in rows])


def _lacks(found: SideBySide) -> Iterator[tuple[str, str, list[str]]]:
    """Yield run, sort of thing and the names of what it does not have and another one has."""
    for name, what in zip(found.names, found.lacks, strict=True):
        sorts: dict[str, list[str]] = {}
        for words in what:
            sort, _, key = words.partition(" ")
            sorts.setdefault(sort, []).append(_cell(key))
        yield from ((name, sort, keys) for sort, keys in sorts.items())


def _numbers(row: ComparedNumber, form: Callable[[Any], str]) -> list[str]:
    """Return the cells of a quantity: name with unit, then each number, those after the first with their change."""
    name = f"{row.key}, {row.meaning}" if row.unit == "times" else row.key
    name += f" [{row.unit}]" if row.unit not in ("", "1", "times") else ""
    first, *others = [NOT_THERE if value is None else form(value) for value in row.values]
    changed = [
        value if change is None else f"{value} ({percent(change)})"
        for value, change in zip(others, row.changes, strict=True)
    ]
    return [_cell(name), first, *changed]


def _wrapped(names: Sequence[str]) -> list[str]:
    return wrap(", ".join(names), WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _cells(row: Sequence[Any]) -> list[str]:
    return [_cell(value) for value in row]


def _cell(value: Any) -> str:
    """Return a value as one line that steers no terminal."""
    return printable(str(value)).replace("\n", "\\n")
