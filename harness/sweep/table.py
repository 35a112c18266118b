"""Rows of a sweep are written as one table: CSV always, Parquet where pyarrow is installed.

A row has the value of each axis, then what was measured in the order in which it first occurs, then ``error``; a column
that a point does not have is empty.  Lists stand as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.kit.files import write_table

__all__ = ["columns_of", "rows_of", "write_tables"]

ERROR = "error"
NOT_FINITE = ("nan", "inf", "-inf")
"""In JSON these words stand for numbers (`harness.kit.console.plain`)."""


def rows_of(points: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return rows of equal keys, from the axes and the facts of every point."""
    facts = list(dict.fromkeys(name for _, found in points for name in found if name != ERROR))
    axes = list(points[0][0])
    names = [*axes, *(name for name in facts if name not in axes)]
    rows = []
    for at, found in points:
        row = {name: _cell(at[name] if name in at else found.get(name)) for name in names}
        rows.append(row | {ERROR: found.get(ERROR)})
    return rows


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return columns: numbers that are not finite become numbers where all others of the column are."""
    found = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if any(isinstance(value, float) or value in NOT_FINITE for value in values) and all(
            value is None or value in NOT_FINITE or (isinstance(value, (int, float)) and not isinstance(value, bool))
            for value in values
        ):
            values = [None if value is None else float(value) for value in values]
        elif len({type(value) for value in values if value is not None}) > 1:
            values = [None if value is None else str(value) for value in values]
        found[name] = values
    return found


def write_tables(directory: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write ``table.csv`` and, where pyarrow is installed, ``table.parquet``."""
    write_table(directory / "table.csv", rows)
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return
    pyarrow.parquet.write_table(pyarrow.table(columns_of(rows)), directory / "table.parquet")


def _cell(value: Any) -> Any:
    """Return a value as a cell takes it."""
    return json.dumps(value) if isinstance(value, (list, dict)) else value
