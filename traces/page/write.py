"""The page of a run is one HTML file: template, style and scripts of this directory with the columns inside.

The page loads nothing.  Names come from programs and files, so they stand in it as JSON in which no character means
anything to HTML or to a script.
"""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path
from typing import Any

from traces.atomic import atomic_file
from traces.page.columns import PageColumns, columns
from traces.page.counted import counted
from traces.page.packing import packed
from traces.trace import Trace

__all__ = ["page_text", "write_page"]

HERE = Path(__file__).parent
PARTS = {"STYLE": "style.css", "MODEL": "model.js", "VIEW": "view.js"}
UNSAFE = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&"}
"""Characters of JSON that could end a script or begin a comment in HTML; the others are ASCII already."""


def page_text(found: PageColumns) -> str:
    """Return the page of a `PageColumns` as text; the same columns give the same text."""
    tables = {name: {key: packed(column) for key, column in table.items()} for name, table in found.tables.items()}
    data = json.dumps({"facts": found.facts, "rows": found.rows, "tables": tables}, ensure_ascii=True, sort_keys=True)
    parts = {name: (HERE / file).read_text(encoding="utf-8") for name, file in PARTS.items()}
    title = html.escape(found.facts["job"]).encode("ascii", "xmlcharrefreplace").decode("ascii")
    parts |= {"DATA": data.translate(UNSAFE), "TITLE": title}
    template = (HERE / "page.tmpl").read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template)


def write_page(path: str | os.PathLike[str], trace: Trace, **selection: Any) -> dict[str, Any]:
    """Write the page of a trace, all of it or nothing: of its events, or else of its counters per window.

    Parameters
    ----------
    path : path-like
    trace : Trace
    **selection
        For `traces.page.columns.columns`, and of counters for `traces.page.counted.counted`.

    Returns
    -------
    dict
        Rows by table, and ``bytes`` of the page.

    Raises
    ------
    TraceError
        The trace has nothing for a page, or the file cannot be written.
    """
    found = (columns if trace.has_events else counted)(trace, **selection)
    data = page_text(found).encode("utf-8")
    with atomic_file(path) as stream:
        stream.write(data)
    return {"rows": found.rows, "bytes": len(data)}
