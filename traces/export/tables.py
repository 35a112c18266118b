"""Events become a table: CSV for anything, Parquet for pandas and polars.  Kinds are written by name."""

from __future__ import annotations

import io
from typing import BinaryIO

import numpy as np

from traces.trace import DERIVED, Trace
from wse_core.events import COLUMNS, KINDS

__all__ = ["write_csv", "write_parquet"]

NAMES = np.array([*KINDS, *DERIVED])
LINES = 1 << 16


def write_csv(trace: Trace, events: np.ndarray, stream: BinaryIO) -> None:
    """Write one line per event under a line of names; payloads are hexadecimal."""
    stream.write((",".join(COLUMNS) + "\n").encode())
    for start in range(0, len(events), LINES):
        part = events[start : start + LINES]
        columns = [NAMES[part[name]] if name == "kind" else part[name].tolist() for name in COLUMNS]
        text = io.StringIO()
        for cycle, data, *rest in zip(*columns, strict=True):
            text.write(f"{cycle},0x{data:08x},{','.join(map(str, rest))}\n")
        stream.write(text.getvalue().encode())


def write_parquet(trace: Trace, events: np.ndarray, stream: BinaryIO) -> None:
    """Write a Parquet file with a dictionary column of kinds."""
    import pyarrow
    import pyarrow.parquet

    columns = {name: pyarrow.array(np.ascontiguousarray(events[name])) for name in COLUMNS}
    kinds = pyarrow.array(NAMES.tolist())
    columns["kind"] = pyarrow.DictionaryArray.from_arrays(np.ascontiguousarray(events["kind"]).astype(np.int8), kinds)
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table.replace_schema_metadata({"job": trace.meta.job}), stream, compression="zstd")
