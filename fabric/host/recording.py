"""Recording keeps events, windows of counters, phases and results of one fabric as a run file.

```python
with fabric.record("run.h5", trace="full", windows=1000):
    ...                                    # build a Fabric, write, launch, run
```

`record` is for programs of users; commands that write run files of their own use `Recorder`.  This is the only module
of `fabric` that imports `traces`: a run file is what a run leaves behind, so somebody here must know its writer.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fabric.host.copies import control_id, control_names, task_id, task_names
from fabric.host.engines import around, chosen
from traces.event_log import EventLog
from traces.marks import Marks, PhaseMark, collecting
from traces.provenance import provenance
from traces.run_format import RunMeta
from traces.windows import Windows
from traces.writer import RunWriter
from wse_core import isa
from wse_core.errors import ConfigError, CycleLimitError, DeadlockError, MachineFault
from wse_core.events import FOREVER, LEVELS, TraceFilter
from wse_core.image import FabricSpec
from wse_core.work import CountedWork

__all__ = ["Recorder", "names_of", "record", "status_of", "write"]

TRACES = ("off", "counters", *LEVELS)
ENDINGS = ((DeadlockError, "deadlock"), (MachineFault, "fault"), (CycleLimitError, "cycle limit"))
"""What a run that ends by an error is said to have ended by; any other: interrupted."""


class Recorder:
    """A `Recorder` records one fabric: the first that is built, or one that is there; or all that are built, one after
    the other.

    Parameters
    ----------
    path : path-like
        The run file to be.
    meta : RunMeta
    filter : TraceFilter or None
        None: no events.
    window : int or None
        Cycles of a window of the counters; None: no windows.
    marks : list of PhaseMark
        Phases, as they are collected.
    option : str
        What the names of options begin with where this is used, for messages.
    successive : bool
        Whether later fabrics are recorded too, on one clock: that of each begins where the one before has stopped, with
        windows where the next window begins.  They have equally many PEs, and no two of them run at a time.

    Attributes
    ----------
    fabric : Fabric or None
        What is recorded; None until it is built.
    offset : int
        What the clock of the fabric is behind that of the recording.
    log : EventLog or None
        None until a fabric was built, or if no events are wanted.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        meta: RunMeta,
        filter: TraceFilter | None,
        window: int | None,
        marks: list[PhaseMark],
        option: str = "record: ",
        successive: bool = False,
    ) -> None:
        self.option, self.successive, self.offset = option, successive, 0
        self._finished: dict[str, tuple[np.ndarray, str]] = {}
        self._worked = CountedWork()
        self.path, self.meta, self.filter, self.window, self.marks = path, meta, filter, window, marks
        self.fabric: Any = None
        self.log: EventLog | None = None
        self.windows: Windows | None = None
        self.before: dict[str, np.ndarray] = {}
        self._added: list[tuple[str, Any, str, str]] = []

    @property
    def lacks(self) -> str:
        """This is said of a selection in which nothing happened; nothing if events were recorded, or none wanted."""
        if self.log is None or self.log.count or self.filter is None:
            return ""
        first, last = self.filter.cycles[0], self.log.clock
        when = "" if first < last else f": its first cycle is {first:,}, and the run ended before cycle {last:,}"
        return f"no event was recorded{when or ': nothing of what was selected happened'}"

    def watch(self, fabric: Any) -> None:
        """Begin to record a fabric, if none is recorded yet, or go on with it if those that follow are wanted."""
        if self.fabric is not None:
            if self.successive:
                self._follow(fabric)
            return
        self._check(fabric.spec)
        if self.filter is not None and fabric.on_host is not None:
            raise ConfigError(
                "its events are being recorded to another file",
                where=self.option + "trace",
                hint='trace="counters" here, or one recording after the other',
            )
        self.fabric = fabric
        if fabric.cycle:
            self.meta = self.meta.replace(first_cycle=fabric.cycle)
            self.before = {name: values.copy() for name, (values, _) in fabric.all_counters().items()}
            self._worked = fabric.work() * -1
        if self.window is not None:
            self.windows = Windows(fabric, self.window)
        if self.filter is not None:
            self.log = EventLog(self.path, self.meta, self.filter, names_of(fabric.spec), self.marks)
            self._listen()

    def _follow(self, fabric: Any) -> None:
        """Go on with another fabric, behind the one that was recorded so far."""
        self.stop()
        self._finished, self._worked = self.counters(), self.work()
        self.offset += int(self.fabric.cycle)
        if self.windows is not None:
            self.offset = self.windows.cycles * -(-self.offset // self.windows.cycles)
            self.windows.follow(fabric)
        if isinstance(self.marks, Marks):
            self.marks.offset = self.offset
        self.fabric, self.before = fabric, {}
        if self.log is not None:
            self.log.know(names_of(fabric.spec))
            self._listen()

    def _listen(self) -> None:
        """Take the events of the fabric."""
        fabric, log, offset = self.fabric, self.log, self.offset
        assert log is not None

        def take(events: np.ndarray, clock: int) -> None:
            if offset:
                events = events.copy()
                events["cycle"] += offset
            log.append(events, clock + offset)

        fabric.on_host = lambda what, x, y, count: log.host(fabric.cycle + offset, what, x, y, count)
        fabric.engine.trace(take, self._shifted())

    def _shifted(self) -> TraceFilter:
        """Return the filter in cycles of the fabric's own clock."""
        assert self.filter is not None
        first, last = self.filter.cycles
        return replace(self.filter, cycles=(max(0, first - self.offset), max(0, last - self.offset)))

    def _check(self, spec: FabricSpec) -> None:
        """Refuse a region or colors of which the fabric has nothing."""
        height, width = spec.program_index.shape
        region, colors = (self.filter.region, self.filter.colors) if self.filter else (None, None)
        if region and (region[0] >= width or region[1] >= height):
            raise ConfigError(
                f"the rectangle at ({region[0]}, {region[1]}) lies outside the {width} x {height} PEs",
                where=self.option + "region",
            )
        for color in colors or ():
            if not 0 <= color < spec.machine["router.colors"]:
                raise ConfigError(
                    f"there is no color {color}",
                    where=self.option + "colors",
                    hint=f"0 .. {spec.machine['router.colors'] - 1}",
                )

    def add_result(self, name: str, value: Any, unit: str = "", doc: str = "") -> None:
        """Add a result of one's own to the run file: a number, a text, an array, or what JSON can say."""
        self._added.append((name, value, unit, doc))

    def counters(self) -> dict[str, tuple[np.ndarray, str]]:
        """Return what counters have grown by since the recording began, as `Fabric.all_counters`."""
        found = {
            name: (values - self.before.get(name, 0), unit)
            for name, (values, unit) in self.fabric.all_counters().items()
        }
        for name, (values, unit) in self._finished.items():
            found[name] = (values + found[name][0] if name in found else values, unit)
        return found

    def work(self) -> CountedWork:
        """Return what was done since the recording began that costs energy, see `wse_core.work`."""
        return self._worked + self.fabric.work()

    def stop(self) -> None:
        """End recording; the log has everything then."""
        if self.fabric is None:
            return
        if self.windows is not None:
            self.windows.stop()
        if self.log is not None and self.fabric.on_host is not None:
            self.fabric.engine.trace(None)
            self.fabric.on_host = None

    def release(self) -> None:
        """Let others record to the same name."""
        if self.log is not None:
            self.log.release()

    def finish(self, writer: RunWriter) -> None:
        """Put what was recorded into the run file."""
        self.stop()
        if self.log is not None:
            self.log.finish(writer)
        if self.windows is not None:
            self.windows.finish(writer)
        if self.marks:
            writer.add_marks(self.marks)
        for name, value, unit, doc in self._added:
            writer.add_result(name, value, unit, doc)


@contextlib.contextmanager
def record(
    path: str | os.PathLike[str],
    trace: Literal["counters", "events", "full", "off"] = "counters",
    windows: int | None = None,
    *,
    fabric: Any = None,
    job: str | None = None,
    seed: int = 0,
    kinds: Sequence[str] | None = None,
    colors: Sequence[int] | None = None,
    region: tuple[int, int, int, int] | None = None,
    cycles: tuple[int, int] = (0, FOREVER),
) -> Iterator[Recorder]:
    """Record what a fabric does while the block runs, and write a run file when it ends.

    The file holds counters, results, every modelled number, names of tasks and operations, phases (`traces.marks.mark`)
    and, if asked for, events; `wse view`, `wse export` and `wse report` read it.  If the block fails, by a deadlock for
    example, the file is written all the same and says how the run ended; the error goes on.

    Parameters
    ----------
    path : path-like
        The run file.
    trace : {"counters", "events", "full", "off"}
        What is recorded: counters alone; tasks, operations and waits too; every wavelet as well; or results alone.
    windows : int, optional
        Cycles of a window of the counters; default one window for the whole run.
    fabric : Fabric, optional
        What is recorded; default the first that the block builds.
    job : str, optional
        What ran, for titles; default the name of the script, elsewhere that of the file.
    seed : int
        Noted in the file.
    kinds, colors, region, cycles
        Narrow the events, as `wse_core.events.TraceFilter`.

    Yields
    ------
    Recorder
        `Recorder.add_result` adds results.

    Raises
    ------
    ConfigError
        An unknown level, an impossible selection, or no fabric was built.
    TraceError
        The file cannot be written.
    """
    recorder, before = _prepared(path, trace, windows, seed, kinds, colors, region, cycles), time.perf_counter()
    default, outer = chosen()

    def watch(built: Any) -> None:
        if outer is not None:
            outer(built)
        if recorder.fabric is None:
            recorder.meta = _meta_of(recorder.meta, built.spec, job, path)
        recorder.watch(built)

    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(RunWriter(path, recorder.meta))  # what cannot be written is said before the run
        stack.callback(recorder.release)
        recorder.marks = stack.enter_context(collecting())
        if fabric is not None:
            watch(fabric)
        try:
            with around(default, watch):
                yield recorder
        except BaseException as error:
            if recorder.fabric is not None:
                write(recorder, writer, trace, status_of(error), time.perf_counter() - before)
            raise
        if recorder.fabric is None:
            raise ConfigError("no fabric was built while it was recorded", where="record", hint="Fabric in the block")
        write(recorder, writer, trace, "completed", time.perf_counter() - before)
        if recorder.lacks:
            warnings.warn(recorder.lacks, stacklevel=3)


def status_of(error: BaseException) -> str:
    """Return how a run ended that ended by an error, one of `traces.run_format.STATUSES`."""
    return next((word for kind, word in ENDINGS if isinstance(error, kind)), "interrupted")


def _prepared(
    path: str | os.PathLike[str],
    trace: str,
    windows: int | None,
    seed: int,
    kinds: Sequence[str] | None,
    colors: Sequence[int] | None,
    region: tuple[int, int, int, int] | None,
    cycles: tuple[int, int],
) -> Recorder:
    """Return a `Recorder` for the arguments of `record`, or refuse them."""
    if trace not in TRACES:
        raise ConfigError(f"there is no level {trace!r}", where="record: trace", hint=", ".join(TRACES))
    if windows is not None and (windows < 1 or trace == "off"):
        raise ConfigError(
            f"{windows} is no length of a window" if windows < 1 else "no counters are recorded",
            where="record: windows",
            hint='at least one cycle, and not trace="off"',
        )
    chosen_kinds = tuple(kinds) if kinds is not None else LEVELS.get(trace, ())
    wanted = TraceFilter(
        chosen_kinds,
        None if colors is None else tuple(colors),
        None if region is None else (region[0], region[1], region[2], region[3]),
        (cycles[0], cycles[1]),
    )
    facts: dict[str, Any] = provenance()
    meta = RunMeta(seed=seed, **facts)
    return Recorder(path, meta, wanted if trace in LEVELS else None, windows, [])


def _script() -> str:
    """Return the name of the script that runs, or nothing: in a notebook, or in a module such as a test's."""
    main = sys.modules.get("__main__")
    path = Path(getattr(main, "__file__", None) or "")
    return path.stem if path.suffix == ".py" and getattr(main, "__spec__", None) is None else ""


def _meta_of(meta: RunMeta, spec: FabricSpec, job: str | None, path: str | os.PathLike[str]) -> RunMeta:
    """Return the provenance of a run, with what its fabric says and, if nobody calls it, the name of its script."""
    return meta.replace(job=job or _script() or Path(path).stem, machine=dict(spec.machine), preset=spec.machine.preset)


def write(recorder: Recorder, writer: RunWriter, trace: str, status: str, seconds: float) -> None:
    """Write the run file with all that a recording has, and let go of the fabric.

    Parameters
    ----------
    recorder : Recorder
        Its fabric was built.
    writer : RunWriter
        Closed afterwards.
    trace : str
        What is recorded, as for `record`.
    status : str
        How the run ended.
    seconds : float
        Seconds of the host.
    """
    start = recorder.meta.first_cycle
    writer.meta = recorder.meta.replace(status=status)
    recorder.stop()
    counters = recorder.counters()
    if trace != "off" and recorder.windows is None:
        for name, (values, unit) in counters.items():
            writer.add_counter(name, values, unit)
    cycles = max(0, recorder.offset + int(recorder.fabric.engine.last_active) + 1 - start)
    pes = int(np.count_nonzero(recorder.fabric.spec.program_index >= 0))
    writer.add_result("cycles", cycles)
    writer.add_result("wavelet_hops", sum(int(v.sum()) for name, (v, _) in counters.items() if "moved_color" in name))
    writer.add_result("macs", int(counters["macs"][0].sum()))
    writer.add_result("pes_used", pes)
    clock = recorder.offset + int(recorder.fabric.cycle) - start
    for name, value in recorder.work().energy(recorder.fabric.machine, clock).as_dict().items():
        writer.add_result(name, value)
    writer.add_result("utilisation", int(counters["busy"][0].sum()) / max(1, pes * cycles))
    writer.add_result("host_seconds", seconds)
    recorder.finish(writer)
    writer.close()
    if recorder.log is not None:
        recorder.log.remove()


def names_of(spec: FabricSpec) -> dict[str, dict[str, str]]:
    """Return what numbers in events mean to people: opcodes, tasks, control tasks, and source lines of code words.

    What means different things in different programs has all of them.
    """
    found: dict[str, dict[str, str]] = {"tasks": {}, "control_tasks": {}, "lines": {}}
    for program in spec.programs:
        for word, line in program.lines.items():
            known = found["lines"].setdefault(str(word), line)
            if line not in known.split(" or "):
                found["lines"][str(word)] = f"{known} or {line}"
        for space, names, number in (("tasks", task_names, task_id), ("control_tasks", control_names, control_id)):
            for name in names(program):
                known = found[space].setdefault(str(number(program, name)), name)
                if name not in known.split("/"):
                    found[space][str(number(program, name))] = f"{known}/{name}"
    return {"opcodes": {str(op.code): op.name for op in isa.BY_NAME.values()}, **found}
