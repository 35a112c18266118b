"""Reader of run files; it opens what `traces.writer` wrote and says clearly what it cannot open.

Every failure is a `TraceError` that names the file: missing, not HDF5, not a run file, of a newer major version,
cut short, or with a checksum that does not fit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from traces.heatmap import heatmap, plane
from traces.marks import PhaseMark
from traces.run_format import CHUNK, FORMAT, FORMAT_VERSION, RunMeta
from traces.writer import crc32
from wse_core.errors import TraceError
from wse_core.events import COLUMNS, EVENT_DTYPE

__all__ = ["Counter", "RunFile", "as_table"]

# What h5py may raise on damaged bytes; which one depends on where the damage is.
DAMAGE = (OSError, RuntimeError, ValueError, KeyError, TypeError, UnicodeError, OverflowError, MemoryError)
SCALES = ("DIMENSION_LIST", "REFERENCE_LIST")


@dataclass(frozen=True, repr=False)
class Counter:
    """A `Counter` has what one counter of a run says per window and PE.

    Attributes
    ----------
    name, unit, doc : str
        What it counts.
    kind : str
        "pe" or "link".
    window_cycles : int
        Length of a window [cycles]; 0 = one window covers the run.
    values : numpy.ndarray
        (n_window, height, width), per link with a last axis in the order of `wse_core.counters.LINKS`.
    """

    name: str
    unit: str
    doc: str
    kind: str
    window_cycles: int
    values: np.ndarray

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.values.shape))
        return f"Counter({self.name!r}, {self.kind}, {shape} {self.unit or 'values'})"

    def _repr_svg_(self) -> str:
        return heatmap(plane(self.values), self.name, self.unit)._repr_svg_()


def as_table(facts: Mapping[str, object]) -> str:
    """Return facts as a table for a notebook."""
    rows = (f"<tr><td>{escape(str(name))}</td><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    return f"<table>{''.join(rows)}</table>"


class RunFile:
    """A `RunFile` is open for reading; use it as a context manager.

    Parameters
    ----------
    path : path-like
        The file.

    Attributes
    ----------
    meta : RunMeta
        Provenance.  Fields that this version does not know are in `extra`.
    extra : dict
        Further attributes of ``/meta``.
    format_version : tuple of int
        Version of the file, (major, minor).

    Raises
    ------
    TraceError
        If the file cannot be opened as a run file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file: Any = None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if not self.path.exists():
            raise self._error("no such file")
        if not self.path.is_file():
            within = self.path / "run.h5"
            raise self._error("is not a regular file", hint=str(within) if within.is_file() else None)
        with self._guarded():
            if not h5py.is_hdf5(self.path):
                raise self._error("is not an HDF5 file", "it was cut short, or is no run file")
            # No lock: where a mount has none, or another process holds one, the file can be read all the same.
            self._file = h5py.File(self.path, "r", locking=False)
            if _attributes(self._file).get("format") != FORMAT:
                raise self._error("is an HDF5 file, but not a run file of this package")
            self.format_version = tuple(int(number) for number in self._file.attrs["format_version"])
        if self.format_version[0] > FORMAT_VERSION[0]:
            raise self._error(
                f"has format version {'.'.join(map(str, self.format_version))}; this version reads up to "
                f"{FORMAT_VERSION[0]}.x",
                hint="a newer version of wse-sim",
            )
        with self._guarded():
            known = {item.name: item for item in dataclasses.fields(RunMeta)}
            values: dict[str, Any] = {}
            self.extra: dict[str, Any] = {}
            for name in known.keys() & set(self._file["meta"].attrs):
                _refuse_heap(self._file["meta"].attrs.get_id(name).dtype)
            for name, value in _attributes(self._file["meta"]).items():
                (values if name in known else self.extra)[name] = value
            values["machine"] = json.loads(values.get("machine", "{}"))
            if self.extra.pop("config_crc32", None) != crc32(values.get("config_toml", "")):
                raise ValueError("checksum of the configuration")
            self.meta = RunMeta(**values)
            self._counters = list(self._file["counters"])
            self._results = list(self._file["results"])
            # By the list of names: a group that cannot be opened is damaged, and not one that is not there.
            self._events = self._file["events"] if "events" in list(self._file) else None

    def __repr__(self) -> str:
        what = f"{len(self._counters)} counters, {len(self._results)} results"
        return f"RunFile({str(self.path)!r}, {self.meta.job!r}, {self.meta.status}, {what})"

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {"job": self.meta.job, "status": self.meta.status}
        facts |= {name: self.result(name) for name in self._results}
        return as_table({name: value for name, value in facts.items() if isinstance(value, (bool, int, float, str))})

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and what belongs to it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def counters(self) -> tuple[str, ...]:
        """The file has counters of these names, in the order in which they were written."""
        return tuple(self._counters)

    @property
    def results(self) -> tuple[str, ...]:
        """The file has results of these names, in the order in which they were written."""
        return tuple(self._results)

    @property
    def windows(self) -> int:
        """The counters have so many windows."""
        dataset = self._dataset("counters", "busy")
        with self._guarded():
            return int(dataset.shape[0])

    def counter(self, name: str, windows: slice = slice(None)) -> Counter:
        """Return one `Counter`, of some windows; a name that is not there raises `TraceError`."""
        dataset = self._dataset("counters", name)
        with self._guarded():
            attributes = _attributes(dataset)
            return Counter(
                name=name,
                unit=attributes["unit"],
                doc=attributes["doc"],
                kind=attributes["kind"],
                window_cycles=attributes["window_cycles"],
                values=dataset[slice(*windows.indices(dataset.shape[0]))],
            )

    def result(self, name: str) -> Any:
        """Return the value of one result; a name that is not there raises `TraceError`."""
        dataset = self._dataset("results", name)
        with self._guarded():
            attributes = _attributes(dataset)
            stored = _text(dataset[()])
            if "crc32" in attributes and attributes["crc32"] != crc32(stored):
                raise ValueError("checksum")
            value = _python(stored)
            return json.loads(value) if attributes.get("json", False) else value

    def marks(self) -> list[PhaseMark]:
        """Return the phases of the program, `PhaseMark`s in order of their beginnings; empty if there are none."""
        if self._file is None:
            raise self._error("is closed already")
        with self._guarded():
            if "marks" not in self._file:
                return []
            dataset = self._file["marks/list"]
            _refuse_heap(dataset.dtype)
            text = _text(dataset[()])
            if _attributes(dataset).get("crc32") != crc32(text):
                raise ValueError("checksum")
            return [PhaseMark(*fields) for fields in json.loads(text)]

    @property
    def has_events(self) -> bool:
        """Whether the run was recorded event by event."""
        return self._events is not None

    @property
    def event_attributes(self) -> dict[str, Any]:
        """The group of events has these attributes: ``committed``, ``clock``, ``filter`` and the names of kinds."""
        with self._guarded():
            found = _attributes(self._event_group())
            return {key: json.loads(value) if isinstance(value, str) else value for key, value in found.items()}

    def chunk_cycles(self) -> np.ndarray:
        """Return the cycle of the first event of each chunk of `CHUNK` events."""
        with self._guarded():
            return self._event_group()["chunk_cycle"][()]

    def event_range(self, first: int, stop: int) -> tuple[int, int]:
        """Return (first event, event after the last) of chunks that may hold cycles `first` to `stop` - 1."""
        with self._guarded():
            starts = self.chunk_cycles()
            begin = max(0, int(np.searchsorted(starts, np.uint64(first), side="left")) - 1)
            end = int(np.searchsorted(starts, np.uint64(stop), side="left"))
            count = self._event_group()["cycle"].size
        return begin * CHUNK, min(end * CHUNK, count)

    def read_events(self, start: int, stop: int, columns: Sequence[str] = tuple(COLUMNS)) -> np.ndarray:
        """Return events `start` to `stop` - 1 as an array with the fields `columns`."""
        with self._guarded():
            group = self._event_group()
            result = np.empty(max(0, stop - start), np.dtype([(name, EVENT_DTYPE[name]) for name in columns]))
            for name in columns:
                result[name] = group[name][start:stop]
            return result

    def _event_group(self) -> Any:
        if self._file is None:
            raise self._error("is closed already")
        if self._events is None:
            raise self._error("holds no events", hint="a run with --trace events or --trace full")
        return self._events

    def verify(self) -> None:
        """Read everything, so that every checksum is compared; raise `TraceError` at the first that does not fit."""
        if self.has_events:
            with self._guarded():
                group = self._event_group()
                if group["cycle"].size != self.event_attributes["committed"]:
                    raise ValueError("number of events")
                for name in group:
                    group[name][()]
        self.marks()
        for name in self.counters:
            self.counter(name)
        for name in self.results:
            self.result(name)

    def _dataset(self, group: str, name: str) -> Any:
        """Return a dataset that must be there."""
        listing = self._counters if group == "counters" else self._results
        if name not in listing:
            raise self._error(f"has no {group}/{name}", hint=f"there is {', '.join(listing) or 'nothing'}")
        if self._file is None:
            raise self._error("is closed already")
        with self._guarded():
            dataset = self._file[group][name]
            _refuse_heap(dataset.dtype)
            return dataset

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn whatever damage makes h5py raise into one `TraceError`."""
        try:
            yield
        except TraceError:
            raise
        except DAMAGE as error:
            if isinstance(error, PermissionError):
                raise self._error("cannot be read: permission denied") from None
            text = " ".join(str(error).split())
            if "already open for" in text or "unable to lock" in text:
                what = "is locked: another process has it open for writing"
                raise self._error(what, hint="again when that has closed it") from None
            raise self._error("is damaged", f"cut short or changed on disk ({text})") from error

    def _error(self, what: str, cause: str | None = None, hint: str | None = None) -> TraceError:
        """Return a `TraceError` about this file."""
        return TraceError(what, path=self.path, cause=cause, hint=hint, exit_code=2)


def _refuse_heap(dtype: np.dtype[Any]) -> None:
    """Raise on texts of variable length: no run file has them, and reading damaged ones may never end."""
    text = h5py.check_string_dtype(dtype)
    if text is not None and text.length is None:
        raise ValueError("a text of variable length")


def _attributes(item: Any) -> dict[str, Any]:
    """Return the attributes of a file, group or dataset as Python objects."""
    found = {}
    for name in item.attrs:
        # Lists of references, and texts of variable length, lie in a heap without a checksum.  No attribute of ours is
        # one: such a text is a note of somebody else.
        text = h5py.check_string_dtype(item.attrs.get_id(name).dtype)
        if name in SCALES or (text is not None and text.length is None):
            continue
        found[name] = _python(item.attrs[name])
    return found


def _text(value: Any) -> Any:
    """Return a value read from HDF5 with a text as str."""
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _python(value: Any) -> Any:
    """Return a value read from HDF5 with texts and scalars as Python objects."""
    value = _text(value)
    return value.item() if isinstance(value, np.generic) else value
