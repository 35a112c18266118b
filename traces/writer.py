"""Writer of run files: the file appears complete or not at all.

Everything goes to a temporary file beside the target (`traces.atomic`).  Any failure, Ctrl-C included, removes it and
leaves an older file of the target's name as it was.  Only a killed process can leave a ``.NAME.*.part`` behind, which
nothing ever reads.

HDF5 cannot close a file on a full disk: its library keeps the handle and tries again when the interpreter ends.  It
therefore writes through `_GuardedFile`, which remembers the first failure and swallows what comes after it, so that
HDF5 closes in peace and the failure is reported once, as one `TraceError`.

Chunks hold at most about 1 MiB, are shuffled, compressed with gzip level 1 and carry a Fletcher-32 checksum.  HDF5
checksums its own structures from file version 1.10 on, attributes of fixed length among them, so texts in attributes
have one.  What it leaves bare, single numbers, texts and long attributes, gets a CRC-32 from here.
Texts never have variable length: their heap has no checksum, and HDF5 2.0 loops for ever on some damaged ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5ds, h5s, h5t
from numpy.typing import ArrayLike

from traces.atomic import PendingFile
from traces.marks import PhaseMark
from traces.meanings import of_counter, of_result
from traces.run_format import CHUNK, FORMAT, FORMAT_VERSION, RunMeta, check_name
from wse_core.counters import LINKS
from wse_core.errors import TraceError
from wse_core.events import COLUMNS, EVENT_DTYPE, HOST, KINDS, WAITS, TraceFilter

__all__ = ["RunWriter", "crc32"]

CHUNK_BYTES = 1 << 20


class _GuardedFile:
    """A guarded file is seekable and reports failures to HDF5 later, instead of raising them into the library.

    Attributes
    ----------
    failure : BaseException or None
        The first failure.  Every write after it is dropped.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.position = 0
        self.size = 0
        self.failure: BaseException | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence]
        self.position = base + offset
        return self.position

    def tell(self) -> int:
        return self.position

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        try:
            done = 0
            while self.failure is None and done < len(view):
                done += os.pwrite(self.descriptor, view[done:], self.position + done)
        except BaseException as error:
            self.failure = error
        self.position += len(view)
        self.size = max(self.size, self.position)
        return len(view)

    def read(self, count: int = -1) -> bytes:
        """Return bytes from the current position; h5py recognises a file by having this method."""
        data = bytearray(self.size - self.position if count < 0 else count)
        return bytes(data[: self.readinto(data)])

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = os.pread(self.descriptor, len(view), self.position)
        view[: len(data)] = data
        view[len(data) :] = bytes(len(view) - len(data))
        self.position += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        size = self.position if size is None else size
        try:
            if self.failure is None:
                os.ftruncate(self.descriptor, size)
        except BaseException as error:
            self.failure = error
        self.size = size
        return size

    def flush(self) -> None:
        pass


class RunWriter:
    """A `RunWriter` writes one run file; use it as a context manager.

    Leaving the block normally publishes the file, leaving it by an exception discards it.

    Parameters
    ----------
    path : path-like
        Target; an older file of that name is replaced at the end.
    meta : RunMeta
        Provenance of the run.

    Raises
    ------
    TraceError
        Here and in every method, when the disk is full or the target cannot be written.

    Examples
    --------
    >>> with RunWriter("run.h5", RunMeta(job="example")) as writer:  # doctest: +SKIP
    ...     writer.add_counter("busy_cycles", np.zeros((1, 4, 4), np.uint64), "cycles")
    ...     writer.add_result("cycles", 128, unit="cycles")
    """

    def __init__(self, path: str | os.PathLike[str], meta: RunMeta) -> None:
        self.path = Path(path)
        self.meta = meta
        self._pending: PendingFile | None = PendingFile(self.path)
        self._guard = _GuardedFile(self._pending.descriptor)
        self._file: Any = None
        try:
            self._file = h5py.File(self._guard, "w", libver="v110", track_order=True)
            _set(self._file, "format", FORMAT)
            self._file.attrs["format_version"] = np.array(FORMAT_VERSION, np.uint32)
            names = ("meta", "counters", "results")
            self._groups: dict[str, Any] = {name: self._file.create_group(name, track_order=True) for name in names}
            self._scales: dict[str, Any] = {}
            self._check()
        except BaseException:
            self.discard()
            raise

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def add_counter(self, name: str, values: ArrayLike, unit: str, doc: str = "", window_cycles: int = 0) -> None:
        """Add an array of counts.

        Parameters
        ----------
        name : str
            Name of the counter.
        values : array_like
            Integers or floats shaped (n_window, height, width) or, per link, (n_window, height, width, 5).  An array
            (height, width) counts as one window.
        unit : str
            Unit, such as "cycles".
        doc : str, optional
            Meaning.
        window_cycles : int, optional
            Length of a window [cycles]; 0 means that one window covers the run.
        """
        values = np.asarray(values)
        if values.ndim == 2:
            values = values[np.newaxis]
        if values.ndim not in (3, 4) or (values.ndim == 4 and values.shape[3] != len(LINKS)):
            raise TraceError(
                f"counter {name} has shape {values.shape}",
                path=self.path,
                hint=f"(windows, height, width), or with a last axis of {len(LINKS)} links",
            )
        if values.dtype.kind not in "iuf":
            raise TraceError(f"counter {name} holds {values.dtype}, not numbers", path=self.path)
        kind = "link" if values.ndim == 4 else "pe"
        known = of_counter(name)
        attributes = {
            "unit": unit or known[0],
            "doc": doc or known[1],
            "kind": kind,
            "window_cycles": np.int64(window_cycles),
        }
        self._label(self._add("counters", name, values, attributes), window_cycles)
        self._flush()

    def add_result(self, name: str, value: Any, unit: str = "", doc: str = "") -> None:
        """Add a result with its unit.

        Parameters
        ----------
        name : str
            Name of the result.
        value : number, str, array_like of numbers, dict or list
            The value; what is neither a number, a text nor an array of numbers is stored as JSON text.
        unit, doc : str, optional
            Unit and meaning; default those of `traces.meanings`.
        """
        known = of_result(name)
        attributes: dict[str, Any] = {"unit": unit or known[0], "doc": doc or known[1]}
        if not isinstance(value, (str, bool, int, float, np.generic, np.ndarray)):
            value = json.dumps(value, default=_listed)
            attributes["json"] = True
        if isinstance(value, str) and "\0" in value:
            raise TraceError(f"results/{name} is a text with a zero byte in it", path=self.path)
        self._add("results", name, value, attributes)
        self._flush()

    def _label(self, dataset: Any, window_cycles: int) -> None:
        """Name the axes of a counter: HDF5 dimension scales, which lie beside the groups and are shared."""
        about: dict[str, tuple[Callable[[int], np.ndarray], str]] = {
            "window": (np.arange, f"number of the window, each of {window_cycles} cycles; 0 = one covers the run"),
            "y": (np.arange, "row of the PE, north is 0"),
            "x": (np.arange, "column of the PE, west is 0"),
            "port": (lambda n: np.array(list(LINKS[:n]), "S1"), "port of the router"),
        }
        with self._translated():
            for axis, (name, (values, doc)) in enumerate(zip(about, about.values(), strict=True)):
                if axis == dataset.ndim:
                    break
                size = dataset.shape[axis]
                if name in self._scales and len(self._scales[name]) != size:
                    name = f"{name}_{size}"
                if name not in self._scales:
                    self._scales[name] = scale = self._file.create_dataset(name, data=values(size))
                    scale.make_scale(name)
                    _set(scale, "doc", doc)
                h5ds.attach_scale(dataset.id, self._scales[name].id, axis)

    def add_events(
        self, events: np.ndarray, clock: int, filter: TraceFilter, names: dict[str, Any] | None = None
    ) -> None:
        """Add the events of a run.

        Parameters
        ----------
        events : numpy.ndarray of EVENT_DTYPE
            In the order of `wse_core.events.sort_key`.
        clock : int
            Cycle before which all events are there.
        filter : TraceFilter
            What was recorded.
        names : dict, optional
            See `traces.event_log.EventLog`.
        """
        group = self._events_group(clock, len(events), filter, names)
        with self._translated():
            for name in COLUMNS:
                values = np.ascontiguousarray(events[name])
                _column(group, name, values, compress=_compresses(values))
            _column(group, "chunk_cycle", np.ascontiguousarray(events["cycle"][::CHUNK]))
            self._file.flush()

    def join_events(
        self,
        paths: Iterable[str | os.PathLike[str]],
        clock: int,
        filter: TraceFilter,
        names: dict[str, Any] | None = None,
    ) -> None:
        """Add the events of other run files, one after the other, by copying their compressed chunks.

        Parameters
        ----------
        paths : sequence of path
            Files whose events follow each other; all but the last hold a multiple of `CHUNK` events.
        clock, filter, names
            As for `add_events`.
        """
        with contextlib.ExitStack() as stack:
            parts = [stack.enter_context(h5py.File(path, "r", locking=False))["events"] for path in paths]
            total = sum(len(part["cycle"]) for part in parts)
            group = self._events_group(clock, total, filter, names)
            with self._translated():
                for name in COLUMNS:
                    target, start = _column(group, name, np.empty(0, EVENT_DTYPE[name]), total), 0
                    for part in parts:
                        source = part[name].id
                        skipped = 0 if part[name].compression else 1 << part[name].shuffle  # bit of gzip in the target
                        for k in range(-(-part[name].size // CHUNK)):
                            mask, data = source.read_direct_chunk((k * CHUNK,))
                            target.id.write_direct_chunk((start + k * CHUNK,), data, mask | skipped)
                        start += part[name].size
                cycles = [part["chunk_cycle"][()] for part in parts] or [np.empty(0, np.uint64)]
                _column(group, "chunk_cycle", np.concatenate(cycles))
                self._file.flush()

    def add_marks(self, marks: Iterable[PhaseMark]) -> None:
        """Add phases of the program.

        Parameters
        ----------
        marks : iterable of traces.marks.Mark
            In any order.
        """
        ordered = sorted(marks, key=lambda mark: (mark.begin, -mark.end, mark.track, mark.label))  # the outer one first
        text = json.dumps([dataclasses.astuple(mark) for mark in ordered])
        if self._pending is None:
            raise TraceError("the file is closed already", path=self.path)
        if "marks" in self._file:
            raise TraceError("marks are there already", path=self.path)
        with self._translated():
            group = self._file.create_group("marks", track_order=True)
            data, dtype = _fixed(text)
            dataset = group.create_dataset("list", data=data, dtype=dtype)
            _set(dataset, "crc32", crc32(text))
            self._file.flush()

    def _events_group(self, clock: int, count: int, filter: TraceFilter, names: dict[str, Any] | None) -> Any:
        """Create the group of the events with its attributes."""
        if self._pending is None:
            raise TraceError("the file is closed already", path=self.path)
        if "events" in self._file:
            raise TraceError("events are there already", path=self.path)
        with self._translated():
            group = self._file.create_group("events", track_order=True)
            _set(group, "filter", json.dumps(dataclasses.asdict(filter)))
            for name, text in (("kinds", KINDS), ("waits", WAITS), ("host", HOST), ("names", names or {})):
                _set(group, name, json.dumps(text))
            group.attrs["clock"], group.attrs["committed"] = np.uint64(clock), np.uint64(count)
        return group

    def close(self) -> None:
        """Complete the file and give it its name; calling it again does nothing."""
        if self._pending is None:
            return
        try:
            with self._translated():
                group = self._groups["meta"]
                for item in dataclasses.fields(RunMeta):
                    value = getattr(self.meta, item.name)
                    _set(group, item.name, json.dumps(value) if isinstance(value, dict) else value)
                _set(group, "config_crc32", crc32(self.meta.config_toml))
            with self._translated():
                self._file.close()
            self._pending.publish()
        except OSError as error:
            raise self._error(error) from None
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the temporary file; an older file of the target's name stays.  Harmless after `close`."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        # From here on nothing is worth writing, and HDF5 has to close all the same.
        self._guard.failure = self._guard.failure or InterruptedError()
        with contextlib.suppress(Exception):
            if self._file is not None:
                self._file.close()
        pending.discard()

    def _add(self, group: str, name: str, value: Any, attributes: dict[str, Any]) -> Any:
        """Create one dataset with its attributes and return it."""
        check_name(name)
        if self._pending is None:
            raise TraceError("the file is closed already", path=self.path)
        if name in self._groups[group]:
            raise TraceError(f"{group}/{name} is there already", path=self.path)
        options = {}
        if isinstance(value, np.ndarray) and value.ndim and value.size:
            if value.dtype.kind not in "biuf":
                raise TraceError(f"{group}/{name} holds {value.dtype}, not numbers", path=self.path)
            options = {
                "chunks": _chunks(value.shape, value.dtype.itemsize),
                "compression": "gzip",
                "compression_opts": 1,
                "shuffle": True,
                "fletcher32": True,
            }
        else:
            attributes = attributes | {"crc32": crc32(value)}
        with self._translated():
            if isinstance(value, str):
                value, options["dtype"] = _fixed(value)
            dataset = self._groups[group].create_dataset(name, data=value, **options)
            for key, item in attributes.items():
                _set(dataset, key, item)
        return dataset

    def _flush(self) -> None:
        """Bring what was added to the disk, so that a full one is noticed at the call that fills it."""
        with self._translated():
            self._file.flush()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Report a failure of the disk that the block met, in place of what HDF5 made of it."""
        try:
            yield
        except (OSError, RuntimeError, ValueError, KeyError):
            self._check()
            raise
        self._check()

    def _check(self) -> None:
        """Raise if a write has failed."""
        failure = self._guard.failure
        if isinstance(failure, OSError):
            raise self._error(failure) from None
        if failure is not None:
            raise failure

    def _error(self, error: OSError) -> TraceError:
        """Return the `TraceError` for a failed write."""
        return TraceError(
            f"cannot be written: {error.strerror or error}; nothing was left behind",
            path=self.path,
            hint="free space on the disk, or write elsewhere",
        )


def _compresses(values: np.ndarray) -> bool:
    """Return whether compression saves a quarter of a column, going by its first chunk; payloads often do not."""
    sample = np.ascontiguousarray(values[:CHUNK].view(np.uint8).reshape(-1, values.itemsize).T)  # bytes as shuffled
    return len(zlib.compress(sample.data, 1)) < 0.75 * sample.size


def _column(group: Any, name: str, values: np.ndarray, length: int | None = None, compress: bool = True) -> Any:
    """Create one column of events, of `length` values if not all are there yet."""
    length = len(values) if length is None else length
    options = {"compression": "gzip", "compression_opts": 1} if compress else {}
    dataset = group.create_dataset(
        name,
        shape=(length,),
        maxshape=(None,),
        dtype=values.dtype,
        chunks=(CHUNK,),
        shuffle=values.dtype.itemsize > 1,
        fletcher32=True,
        **options,
    )
    if len(values):
        dataset[: len(values)] = values
    _set(dataset, "doc", COLUMNS.get(name, "cycle of the first event of each chunk"))
    if "cycle" in name:
        _set(dataset, "unit", "cycles")
    return dataset


def crc32(value: Any) -> np.uint32:
    """Return the CRC-32 of a text, a number or an array, as the files carry it for what HDF5 does not checksum."""
    data = value.encode("utf-8") if isinstance(value, str) else np.asarray(value).tobytes()
    return np.uint32(zlib.crc32(data))


def _fixed(text: str) -> tuple[bytes, np.dtype[Any]]:
    """Return a text as bytes and the HDF5 type of that length."""
    data = text.encode("utf-8")
    return data, h5py.string_dtype("utf-8", max(1, len(data)))


@lru_cache(maxsize=1024)
def _types(dtype: np.dtype[Any], text: bool) -> tuple[Any, Any]:
    """Return the types of HDF5 in a file and in memory of a dtype; of texts and of bytes it is the same dtype."""
    wanted = h5py.string_dtype("utf-8", dtype.itemsize) if text else dtype
    return h5t.py_create(wanted, logical=True), h5t.py_create(wanted)


def _set(owner: Any, name: str, value: Any) -> None:
    """Give a group or a dataset an attribute that it has not yet.

    A text gets a fixed length, so that it lies in a header that HDF5 checksums.  `owner.attrs` does the same and looks
    each time what it is given, which takes longer than all else of a small file.
    """
    text = isinstance(value, str)
    data = np.array(*_fixed(value)) if text else np.asarray(value)
    kept, given = _types(data.dtype, text)
    h5a.create(owner.id, name.encode(), kept, h5s.create_simple(data.shape)).write(data, mtype=given)


def _listed(value: object) -> Any:
    """Return NumPy data inside a structured value as lists and numbers."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored as a result")


def _chunks(shape: tuple[int, ...], item_bytes: int) -> tuple[int, ...]:
    """Return a chunk shape of at most about 1 MiB that cuts leading axes first."""
    chunk = list(shape)
    for axis in range(len(chunk)):
        rest = item_bytes * int(np.prod(chunk[axis + 1 :], dtype=np.int64))
        chunk[axis] = max(1, min(chunk[axis], CHUNK_BYTES // max(1, rest)))
        if chunk[axis] > 1:
            break
    return tuple(chunk)
