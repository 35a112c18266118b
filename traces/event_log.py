"""Events go to disk in segments while the machine runs, and are joined into the run file at the end.

While a run of ``run.h5`` goes on, its events collect in the directory ``run.h5.part``: ``00000.h5``, ``00001.h5`` and
so on, each a complete run file of `SEGMENT` events that appears at once when it is full.  A killed run therefore loses
what was not yet in a segment and nothing else; `traces.trace.Trace` opens the directory as it opens a finished file,
until the next recording of that name removes it.  A lock on the directory says that its process is alive.
`RunWriter.join_events` copies the compressed chunks of all segments into the run file, after which the directory goes.

In a file, ``/events`` holds a dataset per column of `wse_core.events.EVENT_DTYPE`, all of one length, in the order of
`wse_core.events.sort_key`, and ``/events/chunk_cycle``, the cycle of the first event of every chunk of `CHUNK` events:
a range of cycles is found without reading others.  Attributes of the group: ``committed``, the number of whole events;
``clock``, the cycle before which all events are there; ``filter``, what was asked for, as JSON.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from traces.marks import PhaseMark
from traces.run_format import SEGMENT, RunMeta
from traces.writer import RunWriter
from wse_core.errors import TraceError
from wse_core.events import EVENT_DTYPE, HOST, KINDS, NO_COLOR, TraceFilter, joined, sorted_events

__all__ = ["EventLog", "recording", "segments_of"]


def segments_of(path: str | os.PathLike[str]) -> list[Path]:
    """Return the segments that a run of file `path` has left, in order; none if there is no such directory."""
    directory = Path(f"{path}.part")
    return sorted(directory.glob("[0-9]*.h5")) if directory.is_dir() else []


class EventLog:
    """Take events while a machine runs and write them in segments.

    Parameters
    ----------
    path : path-like
        The run file to be; segments go to ``path.part``.  What a killed process left there is removed.
    meta : RunMeta
        Provenance, in every segment.
    filter : TraceFilter
        What is recorded; noted in the file.
    names : dict, optional
        What numbers in events mean, for people: ``opcodes``, ``tasks``, each a dict from the number, as text, to a
        name.
    marks : sequence of PhaseMark
        May grow: a segment has what was there when it was written.

    Attributes
    ----------
    count : int
        Events taken.

    Raises
    ------
    TraceError
        Another process records to `path`, or it cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        meta: RunMeta,
        filter: TraceFilter,
        names: dict[str, Any] | None = None,
        marks: Sequence[PhaseMark] = (),
    ) -> None:
        self.path, self.directory = Path(path), Path(f"{path}.part")
        self.meta, self.filter, self.names = meta.replace(status="interrupted"), filter, names or {}
        self.count, self.clock, self.marks = 0, 0, marks
        self.segments: list[Path] = []
        self._pending = [np.empty(0, EVENT_DTYPE)]
        self._waiting = 0
        self._lock: int | None = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.directory)
            for left in segments_of(path):
                left.unlink()
        except BlockingIOError:
            raise TraceError(
                "another process is recording to it", path=self.path, hint="another file, or wait for it", exit_code=2
            ) from None
        except OSError as error:
            self.release()
            raise TraceError(f"cannot be written: {error.strerror}", path=self.directory, exit_code=2) from None

    def append(self, events: np.ndarray, clock: int) -> None:
        """Take events that the machine reports.

        Parameters
        ----------
        events : numpy.ndarray of EVENT_DTYPE
            In any order; none before the `clock` of the last call.
        clock : int
            Cycle of the machine: no event before it will come later.
        """
        self.clock = clock
        if len(events):
            self._pending.append(events)
            self._waiting += len(events)
            self.count += len(events)
        if self._waiting >= 2 * SEGMENT:
            self._write(complete_only=True)

    def host(self, cycle: int, what: str, x: int, y: int, count: int) -> None:
        """Take an access of the host in cycle `cycle`; for the arguments see `fabric.host.fabric.Fabric`."""
        event = np.zeros(1, EVENT_DTYPE)
        event["cycle"], event["x"], event["y"], event["data"] = cycle, x, y, min(count, 0xFFFFFFFF)
        event["kind"], event["color"], event["aux"] = KINDS.index("host"), NO_COLOR, HOST.index(what)
        self.append(event[self.filter.keeps(event)], self.clock)

    def know(self, names: dict[str, Any]) -> None:
        """Add what numbers in events of another program mean; a number that means two things has both."""
        known = {space: dict(self.names.get(space, {})) for space in {**self.names, **names}}
        for space, table in names.items():
            for number, name in table.items():
                was = known[space].setdefault(number, name)
                if was != name:
                    known[space][number] = f"{was} or {name}"
        self.names = known

    def flush(self) -> None:
        """Write what is left as a last segment; no events may come after it."""
        self._write(complete_only=False)

    def finish(self, run: RunWriter) -> None:
        """Write what is left and join everything into the run file of `run`, a `RunWriter`."""
        self.flush()
        run.join_events(self.segments, self.clock, self.filter, self.names)

    def abandon(self) -> None:
        """Write what is left as a last segment and leave the segments where they are; a run that failed ends so."""
        try:
            self._write(complete_only=False)
        finally:
            if not self.segments:
                self.remove()
            self.release()

    def remove(self) -> None:
        """Remove the segments; call it when the run file has its name."""
        if self._lock is not None:  # once released, the directory may be that of somebody else
            shutil.rmtree(self.directory, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Let others record to this name; segments that are there stay until they do."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _write(self, complete_only: bool) -> None:
        events = sorted_events(joined(self._pending))
        complete = int(np.searchsorted(events["cycle"], self.clock)) if complete_only else len(events)
        start = 0
        while complete - start >= SEGMENT or (not complete_only and start < complete):
            stop = min(start + SEGMENT, complete)
            self._segment(events[start:stop])
            start = stop
        self._pending, self._waiting = [events[start:]], len(events) - start

    def _segment(self, events: np.ndarray) -> None:
        path = self.directory / f"{len(self.segments):05d}.h5"
        with RunWriter(path, self.meta) as writer:
            writer.add_events(events, self.clock, self.filter, self.names)
            if self.marks:
                writer.add_marks(self.marks)
        self.segments.append(path)


def _locked(directory: Path) -> int:
    """Return a descriptor of a directory, locked as long as it is open."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:  # a file system without locks
        pass
    return descriptor


@contextlib.contextmanager
def recording(
    machine: Any, path: str | os.PathLike[str], meta: RunMeta, filter: TraceFilter, names: dict[str, Any] | None = None
) -> Iterator[EventLog]:
    """Record the events of a machine while the block runs; gives an `EventLog`.

    Afterwards call `EventLog.finish`.
    """
    log = EventLog(path, meta, filter, names)
    machine.trace(log.append, filter)
    try:
        yield log
    finally:
        machine.trace(None)
