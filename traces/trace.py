"""What happened in a run is read event by event: selections of a run file are arrays.

`Trace.open` takes a run file, or what a run that did not end has left of one.  Selections read the chunks that they
need and no others.  An event of kind ``mark`` stands for the beginning of each phase of the program (`Trace.marks`), at
PE (0, 0) and in every region.  Two kinds are not stored but follow from the grants of routers:

============  ===========================================================================  ==========================
kind          meaning                                                                      aux
============  ===========================================================================  ==========================
land          a wavelet becomes usable in a router, having come over a link                port
deliver       a wavelet becomes usable in an input queue of a CE                           0
============  ===========================================================================  ==========================
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from traces.event_log import segments_of
from traces.naming import names_of_events
from traces.reader import RunFile, as_table
from traces.run_format import SEGMENT
from wse_core.errors import TraceError
from wse_core.events import COLUMNS, EVENT_DTYPE, FOREVER, KINDS, NO_COLOR, TraceFilter, joined, sorted_events

if TYPE_CHECKING:
    from traces.picture import Picture

__all__ = ["DERIVED", "Trace"]

DERIVED = ("land", "deliver")
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))  # W, E, N, S: the neighbour's (x, y) less one's own
RAMP = 4


class Trace:
    """A `Trace` has events, counters and provenance of a run; use it as a context manager.

    Attributes
    ----------
    files : list of RunFile
        The run file, or the segments of a run that did not end.
    meta : RunMeta
    complete : bool
        Whether the run came to its end, whatever that was.
    gaps : list of str
        Of a run that did not end: segments that are missing or damaged, and the events in them.
    committed : int
        Events in the file.
    clock : int
        Cycle before which all recorded events are there.
    filter : TraceFilter
        What was recorded.
    names : dict
        Names of opcodes and tasks by number.
    marks : list of Mark
        Phases of the program.

    Examples
    --------
    >>> with Trace.open("run.h5") as trace:  # doctest: +SKIP
    ...     stalls = trace.events(cycles=(1000, 2000), kinds=("wait",), region=(0, 0, 8, 8))
    """

    def __init__(self, files: list[RunFile], complete: bool, gaps: Sequence[str] = ()) -> None:
        self.files, self.complete, self.gaps = files, complete, list(gaps)
        attributes = [file.event_attributes for file in files if file.has_events]
        self.meta = files[0].meta
        self.marks = files[-1].marks()
        self.committed = sum(item["committed"] for item in attributes)
        self.clock = max((item["clock"] for item in attributes), default=0)
        self.names = attributes[0].get("names", {}) if attributes else {}
        stored = attributes[0]["filter"] if attributes else {"kinds": ()}
        self.filter = TraceFilter(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
        )

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Trace:
        """Open a run file, or the segments of the run that should have written it.

        Raises
        ------
        TraceError
            There is neither; or a file is damaged, foreign or of a newer major version.
        """
        path = Path(path)
        if path.exists() or not segments_of(path):
            return cls([RunFile(path)], True)
        return cls(*_whole_segments(path))

    def __repr__(self) -> str:
        state = "" if self.complete else ", incomplete"
        what = f"{self.committed} events before cycle {self.clock}" if self.has_events else "no events"
        return f"Trace({str(self.files[0].path)!r}, {what}, {len(self.marks)} marks{state})"

    def _repr_html_(self) -> str:
        facts = {"run": self.files[0].path.name, "job": self.meta.job, "status": self.meta.status}
        facts |= {"cycles": f"{self.clock:,}", "events": f"{self.committed:,}"} if self.has_events else {}
        return as_table(facts | {"counters": len(self.files[0].counters), "results": len(self.files[0].results)})

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files of the run."""
        for file in self.files:
            file.close()

    @property
    def has_events(self) -> bool:
        """Whether the run was recorded event by event."""
        return self.files[0].has_events

    @cached_property
    def shape(self) -> tuple[int, int]:
        """The fabric has this height and width, by its counters; without any those of the part that has events."""
        run = self.files[0]
        if run.counters:
            height, width = run.counter(run.counters[0]).values.shape[1:3]
            return height, width
        events = self.events(columns=("x", "y"))
        return int(events["y"].max(initial=0)) + 1, int(events["x"].max(initial=0)) + 1

    def events(
        self,
        cycles: tuple[int, int] = (0, FOREVER),
        kinds: Sequence[str] = KINDS,
        region: tuple[int, int, int, int] | None = None,
        colors: Sequence[int] | None = None,
        columns: Sequence[str] = tuple(COLUMNS),
    ) -> np.ndarray:
        """Return the events of a selection, in the order of the file.

        Parameters
        ----------
        cycles : tuple[int, int]
            First cycle and the one after the last.
        kinds : sequence of str
            Of `wse_core.events.KINDS` or `DERIVED`.
        region : tuple[int, int, int, int], optional
            x, y, width, height.
        colors : sequence of int, optional
            Events that concern a color: these only.
        columns : sequence of str
            Fields of the result.

        Returns
        -------
        numpy.ndarray
            Structured, with the fields `columns`.  Kinds of `DERIVED` are numbered from ``len(KINDS)`` on.
        """
        stored = tuple(kind for kind in kinds if kind not in DERIVED and (kind != "mark" or not self.marks))
        wanted = TraceFilter(stored, None if colors is None else tuple(colors), region, (cycles[0], cycles[1]))
        derived = [kind for kind in kinds if kind in DERIVED]
        marks = self._mark_events(wanted.cycles) if "mark" in kinds else np.empty(0, EVENT_DTYPE)
        if not derived and not len(marks):
            return joined(self._chosen(wanted, columns), _fields(columns))
        found = list(self._chosen(wanted, tuple(COLUMNS))) if stored else []
        found += [self._derive(kind, wanted) for kind in derived]
        return _only(sorted_events(joined([*found, marks])), columns)

    def _mark_events(self, cycles: tuple[int, int]) -> np.ndarray:
        """Return the marks that begin in a range of cycles as events."""
        events = np.zeros(len(self.marks), EVENT_DTYPE)
        events["cycle"] = [mark.begin for mark in self.marks]
        events["kind"], events["color"], events["data"] = KINDS.index("mark"), NO_COLOR, np.arange(len(events))
        first, stop = (np.uint64(cycle) for cycle in cycles)
        return events[(events["cycle"] >= first) & (events["cycle"] < stop)]

    def plot(
        self,
        what: Literal["timeline", "utilisation", "stalls", "windows", "links", "heat"] = "timeline",
        region: tuple[int, int, int, int] | None = None,
        cycles: tuple[int, int] | None = None,
        counter: str = "busy",
    ) -> Picture:
        """Draw the run: what a notebook shows, and `traces.picture.Picture.save` writes.

        Parameters
        ----------
        what : {"timeline", "utilisation", "stalls", "windows", "links", "heat"}
            Tasks, operations and waits over cycles; shares of PEs over cycles; what cycles went to, by column; the same
            window by window; wavelets per link; or a map of a counter.
        region : tuple[int, int, int, int], optional
            x, y, width, height: of the first two; default all PEs.
        cycles : tuple[int, int], optional
            Of a timeline: first cycle and the one after the last; default all.
        counter : str
            Of the map.

        Returns
        -------
        Picture

        Raises
        ------
        TraceError
            There is no such picture, or the file lacks what it shows.

        Examples
        --------
        >>> with Trace.open("run.h5") as trace:  # doctest: +SKIP
        ...     trace.plot("timeline", region=(0, 0, 4, 1)).save("run.svg")
        """
        from traces.plots import plot

        return plot(self, what, region, cycles, counter)

    def pandas(self, **selection: Any) -> Any:
        """Return `events` as a pandas data frame with names of kinds, tasks, operations and lines; needs pandas.

        Beside the columns that are asked for there are ``task`` (of events of tasks, and of what is activated), ``op``
        and ``source`` (of operations), as far as the file knows them; where an event has none, the cell is empty.
        """
        try:
            import pandas
        except ImportError:
            raise TraceError(
                "pandas is not installed", hint="pip install 'wse-sim[tables]', or use Trace.events"
            ) from None
        events = self.events(**selection)
        frame = pandas.DataFrame({name: events[name] for name in events.dtype.names or ()})
        if "kind" in frame:
            frame["kind"] = pandas.Categorical.from_codes(events["kind"], [*KINDS, *DERIVED])
        for name, column in names_of_events(self.names, events).items():
            frame[name] = pandas.Categorical(column)
        return frame

    def xarray(self, **selection: Any) -> Any:
        """Return `events` as an xarray data set along the dimension ``event``, with units; needs xarray."""
        try:
            import xarray
        except ImportError:
            raise TraceError(
                "xarray is not installed", hint="pip install 'wse-sim[tables]', or use Trace.events"
            ) from None
        events = self.events(**selection)
        about = {
            name: {"long_name": COLUMNS[name]} | ({"units": "cycles"} if name == "cycle" else {})
            for name in events.dtype.names or ()
        }
        found = {name: ("event", np.ascontiguousarray(events[name]), about[name]) for name in about}
        return xarray.Dataset(found, attrs={"job": self.meta.job, "kinds": [*KINDS, *DERIVED]})

    def _chosen(self, wanted: TraceFilter, columns: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield the stored events of a filter, file by file."""
        tests = {"kind"}
        if wanted.colors is not None:
            tests.add("color")
        if wanted.region is not None:
            tests |= {"x", "y"}
        if wanted.cycles != (0, FOREVER):
            tests.add("cycle")
        for file in self.files:
            start, stop = file.event_range(*wanted.cycles)
            needed = [name for name in COLUMNS if name in columns or name in tests]
            events = file.read_events(start, stop, needed)
            yield _only(wanted.chosen(events), columns)

    def _derive(self, kind: str, wanted: TraceFilter) -> np.ndarray:
        """Return the events of a derived kind."""
        needed = "router.hop" if kind == "land" else "ramp.in"
        if needed not in self.meta.machine:
            raise TraceError(
                f"does not say how many cycles {needed} takes, and {kind!r} follows from that",
                path=self.files[0].path,
                hint="RunMeta(machine=dict(machine)) when it is written, or without this kind",
                exit_code=2,
            )
        late = self.meta.machine[needed]
        cycles = max(0, wanted.cycles[0] - late), wanted.cycles[1]
        grants = TraceFilter(("depart", "enter"), wanted.colors, None, cycles)
        found = []
        for events in self._chosen(grants, tuple(COLUMNS)):
            departing = events[events["kind"] == KINDS.index("depart")]
            entering = events[events["kind"] == KINDS.index("enter")]
            if kind == "deliver":
                found.append(_moved(departing[departing["aux"] >> RAMP & 1 == 1], (0, 0), 0))
                found.append(_moved(entering[entering["aux"] == RAMP], (0, 0), 0))
                continue
            for direction, step in enumerate(STEPS):
                leaving = departing[departing["aux"] >> direction & 1 == 1]
                found.append(_moved(leaving, step, direction ^ 1))
            found.append(entering[entering["aux"] != RAMP])
        result = np.concatenate(found)
        result["cycle"] += np.uint64(late)
        result["kind"] = len(KINDS) + DERIVED.index(kind)
        result["flags"] &= 1
        places = result["x"] < 0xFFFF
        places &= result["y"] < 0xFFFF
        result = result[places]
        within = TraceFilter(KINDS, None, wanted.region, wanted.cycles)
        as_stored = result.copy()
        as_stored["kind"] = 0
        return result[within.keeps(as_stored)]


def _whole_segments(path: Path) -> tuple[list[RunFile], bool, list[str]]:
    """Return what the segments of a run that did not end still hold: files, False (incomplete), what is lost."""
    files, gaps = [], []
    failure = None
    with contextlib.ExitStack() as stack:
        expected = 0
        for segment in segments_of(path):
            number = int(segment.stem)
            if number > expected:
                missing = f"{expected:05d}.h5" + (f" to {number - 1:05d}.h5" if number > expected + 1 else "")
                gaps.append(f"{missing} missing: {(number - expected) * SEGMENT:,} events or fewer are lost")
            expected = number + 1
            try:
                file = RunFile(segment)
                file.verify()
            except TraceError as error:
                failure = error
                gaps.append(f"{segment.name} is damaged: its events, {SEGMENT:,} or fewer, are lost")
                continue
            files.append(stack.enter_context(file))
        if not files:
            assert failure is not None
            raise failure
        stack.pop_all()
    return files, False, gaps


def _fields(columns: Sequence[str]) -> np.dtype[Any]:
    return np.dtype([(name, EVENT_DTYPE[name]) for name in columns])


def _only(events: np.ndarray, columns: Sequence[str]) -> np.ndarray:
    """Return events with the fields `columns` alone."""
    if tuple(columns) == events.dtype.names:
        return events
    result = np.empty(len(events), _fields(columns))
    for name in columns:
        result[name] = events[name]
    return result


def _moved(events: np.ndarray, step: tuple[int, int], port: int) -> np.ndarray:
    """Return events at the neighbour in the direction of `step`, arriving through `port`."""
    result = events.copy()
    result["x"] += np.uint16(step[0] & 0xFFFF)
    result["y"] += np.uint16(step[1] & 0xFFFF)
    result["aux"] = port
    return result
