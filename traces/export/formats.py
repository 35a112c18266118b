"""The formats of exports are listed here with what they cost.

The module of a format has ``write_<format>(trace, events, stream)`` for a selection and a binary stream.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from traces.atomic import atomic_file
from traces.trace import Trace
from wse_core.errors import TraceError

__all__ = ["FORMATS", "LIMIT_BYTES", "ExportFormat", "announced_bytes", "export"]

LIMIT_BYTES = 1 << 30
"""An export above this estimated size must be forced."""


@dataclass(frozen=True)
class ExportFormat:
    """An `ExportFormat` says what a format of another viewer is called and costs.

    Attributes
    ----------
    name, module, suffix, doc : str
    bytes_per_event : int
        For the estimate of a size; measured on a chain reduce.
    needs, package, extra : str
        Import name of the library that it takes, name of its distribution, and extra of this project that installs
        it; empty if none.
    """

    name: str
    module: str
    suffix: str
    doc: str
    bytes_per_event: int
    needs: str = ""
    package: str = ""
    extra: str = ""


FORMATS = {
    entry.name: entry
    for entry in (
        ExportFormat(
            "perfetto",
            "perfetto",
            ".pftrace",
            "TrackEvent for ui.perfetto.dev: tracks per PE and thread, flows",
            60,
            "perfetto",
            "perfetto",
            "perfetto",
        ),
        ExportFormat("log", "textlog", ".log", "text log in the form of the vendor's simulator, for wse-viz", 130),
        ExportFormat(
            "vcd",
            "vcd",
            ".vcd",
            "value change dump of a small region, for GTKWave or Surfer",
            12,
            "vcd",
            "pyvcd",
            "vcd",
        ),
        ExportFormat("csv", "tables", ".csv", "one line per event, for anything", 45),
        ExportFormat(
            "parquet", "tables", ".parquet", "columns, for pandas and polars", 6, "pyarrow", "pyarrow", "tables"
        ),
    )
}
"""Each format is found here by its name."""


def announced_bytes(name: str, count: int) -> int:
    """Return about how many bytes `count` events take in a format."""
    return FORMATS[name].bytes_per_event * count


def export(trace: Trace, name: str, path: str | os.PathLike[str], events: np.ndarray, force: bool = False) -> None:
    """Write events in a format to a file, which appears complete or not at all.

    Parameters
    ----------
    trace : Trace
        Where the events come from: names and provenance.
    name : str
        Of `FORMATS`.
    path : path-like
    events : numpy.ndarray of EVENT_DTYPE
    force : bool
        Write even if the file will be larger than `LIMIT_BYTES`.

    Raises
    ------
    TraceError
        Too large, a package missing, or the file cannot be written.
    """
    entry = FORMATS[name]
    size = announced_bytes(name, len(events))
    if size > LIMIT_BYTES and not force:
        raise TraceError(
            f"{len(events):,} events would take about {size / 2**30:.1f} GiB as {name}",
            path=path,
            hint="select fewer cycles, PEs, colors or kinds; or --force",
            exit_code=2,
        )
    module = import_module(f"traces.export.{entry.module}")
    try:
        with atomic_file(path) as stream:
            getattr(module, f"write_{name}")(trace, events, stream)
    except ImportError as error:
        raise TraceError(
            f"the format {name} needs {entry.package or error.name}, which is not installed",
            path=path,
            hint=f"pip install 'wse-sim[{entry.extra}]'",
            exit_code=2,
        ) from None
