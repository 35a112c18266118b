"""A fabric to work with is an engine built from a layout, with its host access, runs and errors.

`Fabric` stands between a person (or a kernel's driver) and one of the two engines of docs/internals.md: the
compiled one or the plain-Python reference.  It knows symbols and tasks by name, copies arrays to and from
rectangles, launches tasks, feeds and empties streams, and turns what stops a run into typed errors:

===================  ==============================================================================================
the engine says      `Fabric.run` does
===================  ==============================================================================================
``complete``         returns a `RunResult`
``limit``            raises `CycleLimitError`, or returns with ``on_limit="return"``
``stuck``            raises `DeadlockError` with the wait-for chain (`fabric.host.deadlock`)
``fault``            raises `SramFault`, `RouterFault`, `ProgramFault` or `QueueFault` with PE, cycle and place
===================  ==============================================================================================

Ctrl-C: a run has a break about every tenth of a second, so KeyboardInterrupt comes between two cycles and leaves an
engine that can be looked at, run on, or thrown away.

Timing: host access happens between cycles and costs none.  Sources: docs/internals.md; arch §10, §14.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabric.asm.operands import Task, Var
from fabric.host import bands as rows
from fabric.host import deadlock, engines
from fabric.host.checks import MemoryChecks
from fabric.host.copies import Copies, task_names
from fabric.host.engines import Backend
from fabric.host.faults import fault_error
from fabric.host.result import RunResult
from fabric.host.running import Progress, check_cycles, print_progress, run_pieces
from fabric.host.streams import Received, cycles_at_edge, payload, stream_number
from fabric.layout.layout import Layout
from fabric.layout.rectangles import runs
from fabric.layout.streams import Stream
from fabric.ranks import joined
from wse_core.counters import MOVED, Limit, limits
from wse_core.errors import ConfigError, CycleLimitError, UnsupportedError
from wse_core.image import FabricSpec
from wse_core.params import Machine
from wse_core.work import CountedWork, Energy

__all__ = ["Fabric"]

RectLike = tuple[int, ...] | list[int]

MOST_NAMES = 8
"""So many tasks are named by a warning."""
_FOREVER = 1 << 62
_UNITS = {
    "instructions": "instructions",
    "steps": "steps",
    "elements": "elements",
    "macs": "multiply-adds",
    "tasks": "tasks",
    "sent": "wavelets",
    "received": "wavelets",
}  # of counters; of all others cycles


class Fabric:
    """A `Fabric` is a layout on an engine, with names.

    Parameters
    ----------
    layout : Layout or FabricSpec
        What to build; parameters set with `Layout.set_param` are written.
    backend : {"compiled", "reference"}, optional
        Default the compiled one, or what `around` says.
    memory_limit : int, optional
        Host memory that may be used [bytes]; default what the host has available.

    Attributes
    ----------
    spec : FabricSpec
        What was built.
    layout : Layout or None
        What it was built from, unless from a specification.
    engine : Engine or ReferenceMachine
        What runs; its methods are those of docs/internals.md.
    on_host : callable or None
        Told of every access of the host: ``on_host(what, x, y, count)``, with `what` of `wse_core.events.HOST`.

    Raises
    ------
    MemoryLimitError
        The model needs more host memory than there is.

    Examples
    --------
    >>> from fabric import Fabric, Layout, Program
    >>> p = Program("scale")
    >>> a = p.array("a", 4, "f32")
    >>> with p.task("main"):
    ...     p.fmuls(a, a, 3.0)
    >>> layout = Layout(2, 1)
    >>> layout.place(p, 0, 0, 2, 1)
    >>> fabric = Fabric(layout, backend="reference")      # doctest: +SKIP
    >>> fabric.write("a", [1, 2, 3, 4])                   # doctest: +SKIP
    >>> fabric.launch("main")                             # doctest: +SKIP
    >>> fabric.run().status                               # doctest: +SKIP
    'complete'
    """

    def __init__(
        self, layout: Layout | FabricSpec, backend: Backend | None = None, memory_limit: int | None = None
    ) -> None:
        default, on_build = engines.chosen()
        backend = default if backend is None else backend
        self.layout: Layout | None = layout if isinstance(layout, Layout) else None
        self.spec: FabricSpec = layout.build() if isinstance(layout, Layout) else layout
        self.backend = backend
        engines.check_backend(backend)
        engines.check_memory(self.spec, backend, memory_limit)
        self.engine: Any = engines.make_engine(self.spec, backend)
        self._arrangement = rows.asked()
        if self._arrangement is not None:
            how, most = self._arrangement, self._arrangement.bands
            rows.arrange(self.engine, most and min(most, self.spec.height), how.threads, how.trains)
        self._copies = Copies(self.engine, self.spec)
        self._totals: tuple[dict[str, int], NDArray[np.uint64]] | None = None
        self._ticks: list[tuple[int, Callable[[], object]]] = []
        self.on_host: Callable[[str, int, int, int], object] | None = None
        if self.layout is not None:
            for address, words, x, y in self.layout.param_writes():
                self.engine.write_rect(address, np.ascontiguousarray(words, np.uint16), x, y)
        if on_build is not None:
            on_build(self)

    def __repr__(self) -> str:
        return f"Fabric({self.spec.width} x {self.spec.height}, {self.backend}, cycle {self.cycle})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise UnsupportedError(
            "a Fabric cannot be copied or pickled: its state lies in the engine's own memory",
            feature="copies of a Fabric",
            hint="another Fabric of the same Layout; fabric.debug goes back in one run",
        )

    @property
    def machine(self) -> Machine:
        """The fabric has these modelled numbers."""
        return self.spec.machine

    @property
    def cycle(self) -> int:
        """The fabric has done so many cycles so far."""
        return int(self.engine.cycle)

    # --- rectangles and symbols -----------------------------------------------------------------------------------

    def write(
        self,
        symbol: str | Var,
        values: ArrayLike,
        x: RectLike | int | None = None,
        y: int | None = None,
        w: int | None = None,
        h: int | None = None,
    ) -> None:
        """Copy an array into a symbol of the PEs of a rectangle.

        Parameters
        ----------
        symbol : str or Var
        values : array_like
            Shape (h, w, n), or the same in row-major order, or (n,) or a number for every PE; for types see
            `fabric.asm.values.encode_array` (uint16 arrays are bit patterns of 16-bit floats).
        x, y, w, h : int
            Rectangle; default all PEs, and one PE if only `x` and `y` are given.  `x` may be a tuple (x, y, w, h).

        Raises
        ------
        LayoutError, ProgramError
            No such symbol, wrong number of values, value out of range.
        """
        rect = self._copies.rect(x, y, w, h)
        self._tell("write", rect.x, rect.y, self._copies.write(symbol, values, rect))

    def read(
        self,
        symbol: str | Var,
        x: RectLike | int | None = None,
        y: int | None = None,
        w: int | None = None,
        h: int | None = None,
    ) -> np.ndarray:
        """Return a symbol of the PEs of a rectangle, shape (h, w, n).

        The dtype is that of the variable: float16, float32, int16, uint16, int32, uint32; cb16 comes as bit patterns
        (uint16), see `read_float`.  Rectangle and errors as in `write`.
        """
        rect = self._copies.rect(x, y, w, h)
        values = self._copies.read(symbol, rect)
        self._tell("read", rect.x, rect.y, values.size * values.itemsize // 2)
        return values

    def read_float(
        self,
        symbol: str | Var,
        x: RectLike | int | None = None,
        y: int | None = None,
        w: int | None = None,
        h: int | None = None,
    ) -> np.ndarray:
        """Return a symbol as float64 values, exactly, for every type including cb16; arguments as `read`."""
        rect = self._copies.rect(x, y, w, h)
        values = self.read(symbol, tuple(rect[:4]))
        if self._copies.find(symbol, rect)[0][0].dtype == "cb16":
            from wse_core import numerics

            return np.asarray(numerics.decode(values, "cb16", self.spec.machine["num.cb16_bias"]))
        return values.astype(np.float64)

    # --- tasks and streams ----------------------------------------------------------------------------------------

    def launch(self, task: str | Task, rect: RectLike | None = None, **params: ArrayLike) -> None:
        """Activate a task by name in the PEs of a rectangle whose programs have it.

        Parameters
        ----------
        task : str or Task
        rect : tuple, optional
            (x, y) or (x, y, w, h); default all PEs.
        **params
            Parameters to write first, as in `write`, in the PEs where the task is activated.

        Raises
        ------
        LayoutError
            No program in the rectangle has a local or data task of that name, or one lacks a parameter.
        """
        name = task.name if isinstance(task, Task) else task
        if rect is not None and len(rect) == 2:
            rect = (*rect, 1, 1)
        where = self._copies.rect(rect)
        index = self.spec.program_index[where.slices]
        for number, programs in self._copies.tasks(name, where):
            for (row, stop), first, last in runs(np.isin(index, programs)):
                x, y, w, h = where.x + first, where.y + row, last - first, stop - row
                for key, value in params.items():
                    self.write(key, value, x, y, w, h)
                self.engine.activate(number, x, y, w, h)
                self._tell("launch", x, y, w * h)

    def _tell(self, what: str, x: int, y: int, count: int) -> None:
        """Tell `on_host` of an access of the host."""
        if self.on_host is not None:
            self.on_host(what, x, y, count)

    def send(
        self,
        stream: Stream | int,
        values: ArrayLike,
        control: ArrayLike | None = None,
        packed: bool = True,
        at: ArrayLike | None = None,
    ) -> None:
        """Append wavelets to an input stream.

        Parameters
        ----------
        stream : Stream or int
        values : array_like
            32-bit numbers (float32, int32, uint32, or plain numbers: integers as such, floats as f32) are one wavelet
            each; 16-bit arrays (float16, uint16, int16) two per wavelet, low half first, or one if not `packed`.
        control : bool or array_like, optional
            Whether each wavelet is a control wavelet (payloads: `fabric.asm.control`).
        at : int or array_like of int, optional
            First cycle in which each wavelet may enter (one for all, or one each), in order; default as soon as there
            is room.  Waiting for such a cycle is no deadlock.  When they did enter: `entered`.
        """
        words = payload(values, packed)
        cycles = None if at is None else cycles_at_edge(at, len(words), "send")
        if control is not None:
            control = np.asarray(control, bool)
            if control.shape != words.shape:
                control = np.broadcast_to(control, words.shape)
        number = stream_number(stream, "input", self.spec)
        self.engine.push_input(number, words, control, cycles)
        x, y, *_ = self.spec.inputs[number]
        self._tell("stream", x, y, len(words))

    def entered(self, stream: Stream | int) -> np.ndarray:
        """Return the cycles (int64) in which wavelets of an input stream entered since the last call.

        The edge pushes back: a wavelet enters when its cycle has come (`send`, `at`) and the router has room.  What was
        sent without `at` is kept in mind from the first call on.
        """
        return self.engine.entered(stream_number(stream, "input", self.spec))

    def accept(self, stream: Stream | int, at: ArrayLike | None) -> None:
        """Say when the host takes what leaves at an output stream; at first it takes all that comes.

        Parameters
        ----------
        stream : Stream or int
        at : int or array_like of int, or None
            One more wavelet is taken per entry, in order, none before that cycle and none beyond the last entry: the
            wafer waits with it.  None: again all that comes.
        """
        number = stream_number(stream, "output", self.spec)
        self.engine.limit_output(number, None if at is None else cycles_at_edge(at, None, "accept"))

    def receive(self, stream: Stream | int) -> Received:
        """Return what arrived at an output stream since the last call, as `Received`."""
        number = stream_number(stream, "output", self.spec)
        cycles, words, control = self.engine.pop_output(number)
        x, y, *_ = self.spec.outputs[number]
        self._tell("receive", x, y, len(words))
        return Received(np.asarray(cycles, np.int64), np.asarray(words, np.uint32), np.asarray(control, bool))

    def check(self, zeros: bool = True, places: Sequence[Mapping[int, str]] | None = None) -> MemoryChecks:
        """Check accesses to memory from here on: races, accesses outside of an array, reads of words without a value.

        To be called before the first run.  No cycle and no bit changes; a run takes several times as long.

        Parameters
        ----------
        zeros : bool
            Whether arrays without initial values count as zeros, as memory begins; False: as words without a value.
        places : sequence of mapping, optional
            Per program and code word file and line, for messages.

        Returns
        -------
        MemoryChecks
            ``found`` has what was found so far, `report` says it.

        Raises
        ------
        ConfigError
            The fabric has run already.
        UnsupportedError
            The plain-Python machine, and fabrics of several ranks, have no checks.
        """
        return MemoryChecks(self.engine, self.spec, zeros, places)

    def record(
        self,
        path: str | os.PathLike[str],
        trace: Literal["counters", "events", "full", "off"] = "counters",
        **options: Any,
    ) -> AbstractContextManager:
        """Record what this fabric does while a block runs: ``with fabric.record("run.h5", trace="full"):``.

        Parameters
        ----------
        path : path-like
            The run file.
        trace : {"counters", "events", "full", "off"}
        **options
            ``windows`` and all others of `fabric.host.recording.record`.
        """
        from fabric.host.recording import record

        joined.refuse_ranks("recording")
        return record(path, trace, fabric=self, **options)

    # --- running --------------------------------------------------------------------------------------------------

    def run(
        self,
        max_cycles: int | None = None,
        progress: Progress | bool | None = None,
        on_limit: Literal["raise", "return"] = "raise",
        on_wait: Literal["raise", "return"] = "raise",
        bands: int | Sequence[int] | None = None,
        threads: int | None = None,
        trains: bool | None = None,
    ) -> RunResult:
        """Run until everything is done.

        Parameters
        ----------
        max_cycles : int, optional
            Cycles to run at most, counted from now; default no limit.
        progress : callable or True, optional
            Called in breaks of the run with (cycles since the start, host seconds); True prints a line.
        on_limit : {"raise", "return"}
            What to do when the limit is reached with work going on.
        on_wait : {"raise", "return"}
            What to do when work is left and nothing can move: raise `DeadlockError`, or return with status ``waiting``
            because the host will send more, or take more, before the next run.
        bands : int or sequence of int, optional
            From now on, bands of rows with clocks of their own, or their heights; 1: one clock. No result changes.
        threads : int, optional
            From now on, threads that run the bands.  Default of both: as before, at first where they pay.
        trains : bool, optional
            From now on, whether streams may be moved as trains.  Default as before, at first they may.

        Returns
        -------
        RunResult

        Warns
        -----
        UserWarning
            Nothing has ever happened, as where `launch` was forgotten; it names the tasks.

        Raises
        ------
        DeadlockError, CycleLimitError, SramFault, RouterFault, ProgramFault, QueueFault
        """
        for name, choice in (("on_limit", on_limit), ("on_wait", on_wait)):
            if choice not in ("raise", "return"):
                raise ConfigError(f"{name} {choice!r} is unknown", hint="raise or return")
        if max_cycles is not None:
            check_cycles("max_cycles", max_cycles)
        rows.arrange(self.engine, bands, threads, trains)
        hear = print_progress if progress is True else progress or None
        start = self.cycle
        if self._totals is None and start:
            self._totals = self._sums()
        before, clock, cpu = self._totals, time.perf_counter(), time.process_time()
        stop = start + (_FOREVER if max_cycles is None else max_cycles)
        status = run_pieces(self.engine, stop, self.backend == "reference", self._ticks, hear)
        seconds, cpu = time.perf_counter() - clock, time.process_time() - cpu
        ran = rows.ran(self.engine, self._arrangement)
        if status == "fault":
            raise fault_error(self.engine, self.spec)
        if status == "stuck" and on_wait == "raise":
            raise deadlock.deadlock(self.engine, self.spec)
        if status == "limit" and on_limit == "raise":
            raise CycleLimitError(
                f"still working after {max_cycles} cycles",
                cycle=self.cycle,
                limit=max_cycles,
                hint='a larger max_cycles, or on_limit="return" to go on later',
            )
        after, table = self._totals = self._sums()
        if status == "complete" and on_wait == "raise":
            self._warn_of_nothing(after)
        if before is not None:  # before the first cycle all are 0
            after, table = {key: after[key] - before[0][key] for key in after}, table - before[1]
        return self._result(status, start, dict(after), table, (seconds, cpu), ran)

    def _result(
        self,
        status: str,
        start: int,
        delta: dict[str, int],
        table: NDArray[np.uint64],
        took: tuple[float, float],
        ran: tuple[int, int],
    ) -> RunResult:
        """Return what a run from a cycle on has come to; it took so many seconds, and CPU seconds."""
        return RunResult(
            status="waiting" if status == "stuck" else status,
            cycles=max(0, int(self.engine.last_active) + 1 - start),
            start=start,
            cycle=self.cycle,
            wavelet_hops=delta.pop("wavelet_hops"),
            macs=delta["macs"],
            counters=delta,
            n_pe=int(np.count_nonzero(self.spec.program_index >= 0)),
            host_seconds=took[0],
            cpu_seconds=took[1],
            bands=ran[0],
            threads=ran[1],
            machine=self.machine,
            table=table,
            n_powered=self.spec.width * self.spec.height,
        )

    def _warn_of_nothing(self, sums: dict[str, int]) -> None:
        """Say that nothing was ever done: a forgotten `launch` looks like a success."""
        names = sorted({name for program in self.spec.programs for name in task_names(program)})
        if names and not sums["instructions"] and not sums["wavelet_hops"]:
            known = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
            what = "nothing has happened on this fabric: no task was launched or activated, and no wavelet was sent"
            warnings.warn(f"{what}. Tasks that can be launched: {known}", stacklevel=3)

    def forget_totals(self) -> None:
        """Let the next run count from what the engine has then; its state was changed by other ways than a run."""
        self._totals = None

    def step(self, cycles: int = 1) -> str:
        """Run `cycles` cycles and return the engine's status; faults raise as in `run`."""
        check_cycles("step", cycles)
        self.forget_totals()
        status = self.engine.run(self.cycle + cycles)
        if status == "fault":
            raise fault_error(self.engine, self.spec)
        return status

    def every(self, cycles: int, call: Callable[[], object]) -> None:
        """Call ``call()`` during runs at every multiple of `cycles`, besides what else is called so."""
        if cycles < 1:
            raise ConfigError(f"{cycles} cycles are no period", where="every", hint="at least one cycle")
        self._ticks.append((cycles, call))

    def no_longer(self, call: Callable[[], object]) -> None:
        """Do not call what `every` was given any more."""
        self._ticks = [tick for tick in self._ticks if tick[1] != call]

    def _sums(self) -> tuple[dict[str, int], NDArray[np.uint64]]:
        """Return the sums of all counters so far, and the table of work."""
        totals = getattr(self.engine, "totals", None)  # sums are less to make and to send than arrays
        if totals is not None:
            sums = {**totals(), "wavelet_hops": int(self.engine.wavelet_hops)}
        else:
            sums = {key: int(values.sum()) for key, values in self.engine.counters().items()}
            sums["wavelet_hops"] = sum(int(values.sum()) for values in self.engine.link_counts().values())
        return sums, self.engine.work()

    def work(self) -> CountedWork:
        """Return what was done since the fabric was built that costs energy, see `wse_core.work`."""
        sums, table = self._sums()
        cycles = self.spec.width * self.spec.height * self.cycle
        return CountedWork.of(self.machine, table, sums["instructions"], sums["wavelet_hops"], cycles)

    def energy(self) -> Energy:
        """Return what the fabric has taken since it was built: joules by cause, and average watts of all PEs.

        Examples
        --------
        >>> from fabric import Fabric, Layout
        >>> energy = Fabric(Layout(2, 1)).energy()
        >>> energy.joules, sorted(energy.causes)
        (0.0, ['arithmetic', 'communication', 'instructions', 'memory', 'standing'])
        """
        return self.work().energy(self.machine, self.cycle)

    def counters(self) -> dict[str, np.ndarray]:
        """Return the engine's counters since it was built: dict name -> uint64 array (height, width)."""
        return self.engine.counters()

    def link_counts(self) -> dict[int, np.ndarray]:
        """Return wavelets moved per color, PE and input port: dict color -> uint64 array (height, width, 5)."""
        return self.engine.link_counts()

    def all_counters(self) -> dict[str, tuple[np.ndarray, str]]:
        """Return both as a run file takes them: dict name -> (array, unit); links have shape (1, height, width, 5)."""
        found = {name: (values, _UNITS.get(name, "cycles")) for name, values in self.counters().items()}
        for color, values in self.link_counts().items():
            found[f"{MOVED}{color}"] = values[np.newaxis], "wavelets"
        return found

    def limits(self) -> list[Limit]:
        """Return what kept the fabric from being done sooner, the bottleneck first, see `wse_core.counters`.

        The classes are arithmetic and bank conflicts of the busiest PE, the wavelets of the busiest link, and the
        latency that neither explains, each with its cycles since the fabric was built and their share.
        """
        return limits({name: values for name, (values, _) in self.all_counters().items()})
