"""A fabric to work with: a machine built from a layout, its host access, runs and errors.

`Fabric` stands between a person (or a kernel's driver) and one of the two machines of docs/internals.md: the
compiled engine or the plain-Python reference.  It knows symbols and tasks by name, copies arrays to and from
rectangles, launches tasks, feeds and empties streams, and turns what stops a run into typed errors:

===================  ==============================================================================================
the machine says     `Fabric.run` does
===================  ==============================================================================================
``complete``         returns a `RunResult`
``limit``            raises `CycleLimitError`, or returns with ``on_limit="return"``
``stuck``            raises `DeadlockError` with the wait-for chain (`fabric.host.deadlock`)
``fault``            raises `SramFault`, `RouterFault`, `ProgramFault` or `QueueFault` with PE, cycle and place
===================  ==============================================================================================

Ctrl-C: a run goes in pieces of about a tenth of a second, so KeyboardInterrupt comes between two cycles and leaves a
machine that can be looked at, run on, or thrown away.

Timing: host access happens between cycles and costs none.  Sources: docs/internals.md; arch §10, §14.
"""

from __future__ import annotations

import contextlib
import contextvars
import signal
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from fabric.asm import disasm
from fabric.host import deadlock
from fabric.layout.layout import Layout, Rect, Stream, runs
from fabric.program.program import Task, Var, decode_array, encode_array
from wse_core.errors import (
    ConfigError,
    CycleLimitError,
    LayoutError,
    MachineFault,
    MemoryLimitError,
    ProgramFault,
    QueueFault,
    RouterFault,
    SramFault,
)

__all__ = ["Fabric", "Received", "RunResult", "around", "estimate_bytes", "make_machine"]

BACKENDS = ("compiled", "reference")
_PIECE_SECONDS = 0.1  # of a run, between two looks at Ctrl-C and progress
_FOREVER = 1 << 62
_FAULTS = {
    "sram": SramFault,
    "program": ProgramFault,
    "queue": QueueFault,
    "collision": RouterFault,
    "router": RouterFault,
    "memory": MemoryLimitError,
}
_FAULT_TEXT = {
    "sram_range": "access outside the data of the program",
    "sram_align": "32-bit access to an odd address",
    "memory": "the host has no memory for what the machine has to keep",
}
_UNITS = {
    "instructions": "instructions",
    "steps": "steps",
    "elements": "elements",
    "macs": "multiply-adds",
    "tasks": "tasks",
    "sent": "wavelets",
    "received": "wavelets",
}  # of counters; of all others cycles
_LOOK_INSIDE = 4096  # PEs up to which an error looks for the instruction that failed


@dataclass(frozen=True)
class RunResult:
    """What a run did.

    Attributes
    ----------
    status : str
        ``complete`` or ``limit``.
    cycles : int
        1 + the last cycle in which anything happened, counted from the start of the run.
    start, cycle : int
        Cycle of the machine before and after.
    wavelet_hops, macs : int
        Wavelets moved by routers and multiply-adds, in this run.
    counters : dict[str, int]
        The machine's counters summed over all PEs, in this run.
    n_pe : int
        PEs with a program.
    host_seconds : float
        Wall-clock time.
    """

    status: str
    cycles: int
    start: int
    cycle: int
    wavelet_hops: int
    macs: int
    counters: dict = field(repr=False)
    n_pe: int
    host_seconds: float

    @property
    def utilisation(self):
        """Busy cycles per PE with a program and cycle of the run, 0 .. 1."""
        return self.counters["busy"] / max(1, self.n_pe * self.cycles)

    def seconds(self, ghz=0.85):
        """Return the cycles as time of the hardware [s] at a clock [GHz]."""
        return self.cycles / (ghz * 1e9)


@dataclass(frozen=True)
class Received:
    """Wavelets that arrived at an output stream: arrays of the same length."""

    cycles: np.ndarray
    payload: np.ndarray
    control: np.ndarray

    def __len__(self):
        return len(self.payload)

    def values(self, dtype="u32", packed=True):
        """Return the data wavelets as numbers.

        Parameters
        ----------
        dtype : str
            ``u32``, ``i32``, ``f32``, or a 16-bit type (cb16 stays uint16 bit patterns).
        packed : bool
            For 16-bit types: two per wavelet, else the low half of each.
        """
        words = np.ascontiguousarray(self.payload[~np.asarray(self.control, bool)]).astype("<u4").view("<u2")
        if dtype in ("u32", "i32", "f32") or packed:
            return decode_array(words, dtype)
        return decode_array(words[::2], dtype)


def make_machine(spec, backend="compiled"):
    """Return a machine: ``compiled`` is `fabric.engine.engine.Engine`, ``reference`` the plain-Python twin."""
    if backend == "compiled":
        try:
            from fabric.engine.engine import Engine
        except ImportError as error:
            raise ConfigError(
                "the compiled engine cannot be imported", cause=str(error), hint='make build, or backend="reference"'
            ) from None
        return Engine(spec)
    if backend == "reference":
        from wse_core.reference.machine import ReferenceMachine

        return ReferenceMachine(spec)
    raise ConfigError(f"unknown backend {backend!r}", hint=" or ".join(BACKENDS))


def estimate_bytes(spec, backend="compiled"):
    """Return how much host memory a machine can come to need [bytes].

    Tables of the compiled engine are backed when touched, so an idle fabric needs far less; the estimate assumes that
    every PE runs its program and every router on a route holds wavelets.

    Parameters
    ----------
    spec : FabricSpec
    backend : {"compiled", "reference"}
    """
    cells = spec.width * spec.height
    depth = spec.machine["router.depth"]
    ports, total = 5, 1 << 20
    used = np.zeros((spec.height, spec.width), bool)
    for table in spec.routes.values():
        routed = int(np.count_nonzero(table["valid"]))
        total += (16 + 8 + 1) * cells + routed * ports * (8 * depth + 17)
        used |= table["valid"] != 0
    for k, program in enumerate(spec.programs):
        n = int(np.count_nonzero(spec.program_index == k))
        queues = sum(c >= 0 for c in program.inq_color) + sum(c >= 0 for c in program.outq_color)
        data = 2 * (program.footprint - program.code_words)
        total += n * (data + 1024 + 256 * queues + 32 * len(program.descriptors))
    if backend == "reference":
        words = sum(int(np.count_nonzero(spec.program_index == k)) * p.footprint for k, p in enumerate(spec.programs))
        total += 8 * words + 20000 * int(np.count_nonzero(used | (spec.program_index >= 0)))
    if spec.filters is not None:
        total += 2 * spec.filters.nbytes
    return int(total)


def available_bytes():
    """Return the host memory that a new machine may take [bytes]; None where the system does not say."""
    found = []
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo") as lines:
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with (
        contextlib.suppress(OSError, ValueError),
        open("/sys/fs/cgroup/memory.max") as limit,
        open("/sys/fs/cgroup/memory.current") as used,
    ):
        found.append(max(0, int(limit.read()) - int(used.read())))
    return min(found) if found else None


_AROUND = contextvars.ContextVar("around", default=("compiled", None))


@contextlib.contextmanager
def around(backend="compiled", on_build=None):
    """Choose, for every `Fabric` made inside the block, its backend and who hears of it.

    This is how a command records or inspects runs of kernels, which make their fabrics themselves.

    Parameters
    ----------
    backend : {"compiled", "reference"}
        For fabrics that name none.
    on_build : callable, optional
        Called with each new fabric before anything runs on it.
    """
    token = _AROUND.set((backend, on_build))
    try:
        yield
    finally:
        _AROUND.reset(token)


class Fabric:
    """A machine with names.

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
    on_host : callable or None
        Told of every access of the host: ``on_host(what, x, y, count)``, with `what` of `wse_core.events.HOST`.

    Raises
    ------
    MemoryLimitError
        The model needs more host memory than there is.

    Examples
    --------
    >>> from fabric.layout.layout import Layout
    >>> from fabric.program.program import Program
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

    def __init__(self, layout, backend=None, memory_limit=None):
        default, on_build = _AROUND.get()
        backend = default if backend is None else backend
        self.layout = layout if isinstance(layout, Layout) else None
        self.spec = layout.build() if isinstance(layout, Layout) else layout
        self.backend = backend
        if backend not in BACKENDS:
            raise ConfigError(f"unknown backend {backend!r}", hint=" or ".join(BACKENDS))
        self._check_memory(memory_limit)
        self.machine = make_machine(self.spec, backend)
        self._index = self.spec.program_index
        self._totals = None
        self._period, self._periodic = 0, None
        self.on_host = None
        if self.layout is not None:
            for address, words, x, y in self.layout.param_writes():
                self.machine.write_rect(address, np.ascontiguousarray(words, np.uint16), x, y)
        if on_build is not None:
            on_build(self)

    def __repr__(self):
        return f"Fabric({self.spec.width} x {self.spec.height}, {self.backend}, cycle {self.cycle})"

    @property
    def cycle(self):
        """Cycles run so far."""
        return int(self.machine.cycle)

    def _check_memory(self, limit):
        needed = estimate_bytes(self.spec, self.backend)
        limit = available_bytes() if limit is None else limit
        if limit is not None and needed > limit:
            data = max((p.footprint for p in self.spec.programs), default=0)
            raise MemoryLimitError(
                f"{self.spec.width} x {self.spec.height} PEs with {len(self.spec.routes)} colors and up to {data} "
                f"words each can need {needed / 2**30:.2f} GiB of host memory, {limit / 2**30:.2f} GiB are available",
                needed_bytes=needed,
                available_bytes=limit,
                hint="a smaller rectangle, smaller variables or fewer colors; memory_limit=... overrides the check",
            )

    # --- rectangles and symbols -----------------------------------------------------------------------------------

    def _rect(self, x, y, w, h):
        if isinstance(x, (tuple, list)):
            rect = Rect(*(int(v) for v in x))
        elif x is None and y is None and w is None and h is None:
            rect = Rect(0, 0, self.spec.width, self.spec.height)
        else:
            rect = Rect(x or 0, y or 0, 1 if w is None else w, 1 if h is None else h)
        if rect.sx != 1 or rect.sy != 1:
            raise LayoutError("host access takes rectangles without steps", x=rect.x, y=rect.y)
        if (
            rect.x < 0
            or rect.y < 0
            or rect.w < 1
            or rect.h < 1
            or rect.x + rect.w > self.spec.width
            or rect.y + rect.h > self.spec.height
        ):
            raise LayoutError(
                f"rectangle {tuple(rect[:4])} is empty or reaches outside the {self.spec.width} x "
                f"{self.spec.height} PEs",
                x=rect.x,
                y=rect.y,
            )
        return rect

    def _symbol(self, name, rect):
        """Return ``[(Symbol, mask or None)]`` of a name over a rectangle; None = everywhere."""
        name = name.name if isinstance(name, Var) else name
        index = self._index[rect.slices]
        numbers = np.unique(index)
        found = []
        for k in numbers:
            symbol = self.spec.programs[k].symbols.get(name) if k >= 0 else None
            if symbol is None:
                row, column = np.argwhere(index == k)[0]
                have = ", ".join(sorted(self.spec.programs[k].symbols)) if k >= 0 else ""
                raise LayoutError(
                    f"program {self.spec.programs[k].name!r} has no symbol {name!r}"
                    if k >= 0
                    else f"no program runs here, so there is no symbol {name!r}",
                    x=int(rect.x + column),
                    y=int(rect.y + row),
                    hint=f"symbols: {have}" if have else None,
                )
            found.append((symbol, k))
        if len({(s.count, s.dtype) for s, _ in found}) > 1:
            raise LayoutError(
                f"symbol {name!r} has different types or lengths in the programs of the rectangle", x=rect.x, y=rect.y
            )
        if len({s.address for s, _ in found}) == 1:
            return [(found[0][0], None)]
        return [(symbol, index == k) for symbol, k in found]

    def write(self, symbol, values, x=None, y=None, w=None, h=None):
        """Copy an array into a symbol of the PEs of a rectangle.

        Parameters
        ----------
        symbol : str or Var
        values : array_like
            Shape (h, w, n), or the same in row-major order, or (n,) or a number for every PE; for types see
            `fabric.program.program.encode_array` (uint16 arrays are bit patterns of 16-bit floats).
        x, y, w, h : int
            Rectangle; default all PEs, and one PE if only `x` and `y` are given.  `x` may be a tuple (x, y, w, h).

        Raises
        ------
        LayoutError, ProgramError
            No such symbol, wrong number of values, value out of range.
        """
        rect = self._rect(x, y, w, h)
        for found, mask in self._symbol(symbol, rect):
            words = encode_array(values, found.dtype, self.spec.machine["num.cb16_bias"], f"write {found.name!r}")
            per = found.words // found.count
            size, n = words.size // per, found.count
            if size == rect.w * rect.h * n:
                words = words.reshape(rect.h, rect.w, found.words)
            elif size == n:
                words = np.broadcast_to(words.reshape(found.words), (rect.h, rect.w, found.words))
            elif size == 1:
                words = np.broadcast_to(np.tile(words.reshape(per), n), (rect.h, rect.w, found.words))
            else:
                raise LayoutError(
                    f"write {found.name!r}: {size} values for {rect.h} x {rect.w} PEs with {n} elements each",
                    x=rect.x,
                    y=rect.y,
                    hint="shape (h, w, n), (n,) or one number",
                )
            for (row, stop), first, last in runs(mask) if mask is not None else [((0, rect.h), 0, rect.w)]:
                self.machine.write_rect(
                    found.address, np.ascontiguousarray(words[row:stop, first:last]), rect.x + first, rect.y + row
                )
        self._tell("write", rect.x, rect.y, rect.w * rect.h * found.words)

    def read(self, symbol, x=None, y=None, w=None, h=None):
        """Return a symbol of the PEs of a rectangle, shape (h, w, n).

        The dtype is that of the variable: float16, float32, int16, uint16, int32, uint32; cb16 comes as bit patterns
        (uint16), see `read_float`.  Rectangle and errors as in `write`.
        """
        rect = self._rect(x, y, w, h)
        parts = self._symbol(symbol, rect)
        found = parts[0][0]
        words = np.empty((rect.h, rect.w, found.words), np.uint16)
        self._tell("read", rect.x, rect.y, words.size)
        for part, mask in parts:
            for (row, stop), first, last in runs(mask) if mask is not None else [((0, rect.h), 0, rect.w)]:
                words[row:stop, first:last] = self.machine.read_rect(
                    part.address, part.words, rect.x + first, rect.y + row, last - first, stop - row
                )
        return decode_array(words, found.dtype)

    def read_float(self, symbol, x=None, y=None, w=None, h=None):
        """Return a symbol as float64 values, exactly, for every type including cb16; arguments as `read`."""
        rect = self._rect(x, y, w, h)
        values = self.read(symbol, tuple(rect[:4]))
        if self._symbol(symbol, rect)[0][0].dtype == "cb16":
            from wse_core import numerics

            return np.asarray(numerics.decode(values, "cb16", self.spec.machine["num.cb16_bias"]))
        return values.astype(np.float64)

    # --- tasks and streams ----------------------------------------------------------------------------------------

    def launch(self, task, rect=None, **params):
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
        rect = self._rect(rect, None, None, None)
        index = self._index[rect.slices]
        ids = {}
        for k in np.unique(index):
            number = task_id(self.spec.programs[k], name) if k >= 0 else None
            if number is not None:
                ids.setdefault(number, []).append(k)
        if not ids:
            known = sorted({n for p in self.spec.programs for n in task_names(p)})
            raise LayoutError(
                f"no program in the rectangle {tuple(rect[:4])} has a task {name!r}",
                hint=f"tasks: {', '.join(known) or 'none'}",
            )
        for number, programs in ids.items():
            for (row, stop), first, last in runs(np.isin(index, programs)):
                x, y, w, h = rect.x + first, rect.y + row, last - first, stop - row
                for key, value in params.items():
                    self.write(key, value, x, y, w, h)
                self.machine.activate(number, x, y, w, h)
                self._tell("launch", x, y, w * h)

    def _tell(self, what, x, y, count):
        """Tell `on_host` of an access of the host."""
        if self.on_host is not None:
            self.on_host(what, x, y, count)

    def _stream(self, stream, kind):
        if isinstance(stream, Stream):
            if stream.kind != kind:
                raise LayoutError(
                    f"an {stream.kind} stream given where an {kind} stream belongs", x=stream.x, y=stream.y
                )
            stream = stream.index
        known = self.spec.inputs if kind == "input" else self.spec.outputs
        if not 0 <= stream < len(known):
            raise LayoutError(f"{kind} stream {stream} does not exist; there are {len(known)}")
        return stream

    def send(self, stream, values, control=None, packed=True):
        """Append wavelets to an input stream.

        Parameters
        ----------
        stream : Stream or int
        values : array_like
            32-bit numbers (float32, int32, uint32, or plain numbers: integers as such, floats as f32) are one wavelet
            each; 16-bit arrays (float16, uint16, int16) two per wavelet, low half first, or one if not `packed`.
        control : bool or array_like, optional
            Whether each wavelet is a control wavelet (payloads: `fabric.asm.control`).
        """
        payload = _payload(values, packed)
        if control is not None:
            control = np.broadcast_to(np.asarray(control, bool), payload.shape)
        number = self._stream(stream, "input")
        self.machine.push_input(number, payload, control)
        self._tell("stream", *self.spec.inputs[number][:2], len(payload))

    def receive(self, stream):
        """Return what arrived at an output stream since the last call, as `Received`."""
        number = self._stream(stream, "output")
        cycles, payload, control = self.machine.pop_output(number)
        self._tell("receive", *self.spec.outputs[number][:2], len(payload))
        return Received(np.asarray(cycles, np.int64), np.asarray(payload, np.uint32), np.asarray(control, bool))

    # --- running --------------------------------------------------------------------------------------------------

    def run(self, max_cycles=None, progress=None, on_limit="raise"):
        """Run until everything is done.

        Parameters
        ----------
        max_cycles : int, optional
            Cycles to run at most, counted from now; default no limit.
        progress : callable or True, optional
            Called between pieces of the run with (cycles since the start, host seconds); True prints a line.
        on_limit : {"raise", "return"}
            What to do when the limit is reached with work going on.

        Returns
        -------
        RunResult

        Raises
        ------
        DeadlockError, CycleLimitError, SramFault, RouterFault, ProgramFault, QueueFault
        """
        if on_limit not in ("raise", "return"):
            raise ConfigError(f"on_limit {on_limit!r} is unknown", hint="raise or return")
        if max_cycles is not None and max_cycles < 0:
            raise ConfigError(f"max_cycles {max_cycles} is negative")
        if progress is True:
            progress = _print_progress
        start = self.cycle
        if self._totals is None:
            self._totals = self._sums()
        before = self._totals
        clock = time.perf_counter()
        status = self._pieces(start, start + (_FOREVER if max_cycles is None else max_cycles), progress)
        seconds = time.perf_counter() - clock
        if status == "fault":
            raise self._fault()
        if status == "stuck":
            raise deadlock.deadlock(self.machine, self.spec)
        if status == "limit" and on_limit == "raise":
            raise CycleLimitError(
                f"still working after {max_cycles} cycles",
                cycle=self.cycle,
                limit=max_cycles,
                hint='a larger max_cycles, or on_limit="return" to go on later',
            )
        after = self._totals = self._sums()
        delta = {key: after[key] - before[key] for key in after}
        hops = delta.pop("wavelet_hops")
        return RunResult(
            status=status,
            cycles=max(0, int(self.machine.last_active) + 1 - start),
            start=start,
            cycle=self.cycle,
            wavelet_hops=hops,
            macs=delta["macs"],
            counters=delta,
            n_pe=int(np.count_nonzero(self._index >= 0)),
            host_seconds=seconds,
        )

    def step(self, cycles=1):
        """Run `cycles` cycles and return the machine's status; faults raise as in `run`."""
        self._totals = None
        status = self.machine.run(self.cycle + cycles)
        if status == "fault":
            raise self._fault()
        return status

    def every(self, cycles, call):
        """Call ``call()`` during runs whenever the clock comes to a multiple of `cycles`."""
        self._period, self._periodic = cycles, call

    def _pieces(self, start, stop, progress):
        """Run to cycle `stop` in pieces of about `_PIECE_SECONDS`; return the machine's status."""
        piece = 1 << 12 if self.backend == "compiled" else 1 << 3
        clock = time.perf_counter()
        with _held_interrupt(self.backend == "reference") as interrupted:
            while True:
                before, tick = self.cycle, time.perf_counter()
                edge = before - before % self._period + self._period if self._period else stop
                status = self.machine.run(min(stop, before + piece, edge))
                if self.cycle == edge and self._periodic is not None:
                    self._periodic()
                now = time.perf_counter()
                if interrupted():
                    raise KeyboardInterrupt
                if status != "limit" or self.cycle >= stop:
                    return status
                if progress is not None:
                    progress(self.cycle - start, now - clock)
                spent = max(now - tick, 1e-6)
                piece = int(min(max(1, piece * min(8.0, _PIECE_SECONDS / spent)), 1 << 40))

    def _sums(self):
        sums = {key: int(values.sum()) for key, values in self.machine.counters().items()}
        hops = getattr(self.machine, "wavelet_hops", None)
        if hops is None:
            hops = sum(int(values.sum()) for values in self.machine.link_counts().values())
        return {**sums, "wavelet_hops": int(hops)}

    def counters(self):
        """Return the machine's counters since it was built: dict name -> uint64 array (height, width)."""
        return self.machine.counters()

    def link_counts(self):
        """Return wavelets moved per color, PE and input port: dict color -> uint64 array (height, width, 5)."""
        return self.machine.link_counts()

    def all_counters(self):
        """Return both as a run file takes them: dict name -> (array, unit); links have shape (1, height, width, 5)."""
        found = {name: (values, _UNITS.get(name, "cycles")) for name, values in self.counters().items()}
        for color, values in self.link_counts().items():
            found[f"moved_color_{color}"] = values[np.newaxis], "wavelets"
        return found

    # --- errors ---------------------------------------------------------------------------------------------------

    def _fault(self):
        record = dict(self.machine.fault)
        kind = str(record.get("kind", "program"))
        name = kind.lower().removesuffix("fault").split("_")[0]
        error = _FAULTS.get(name, MachineFault)
        what = str(record.get("detail") or "")
        if kind in _FAULT_TEXT:
            what = _FAULT_TEXT[kind] + (f" ({what})" if what else "")
        if error is MemoryLimitError:
            return error(what or _FAULT_TEXT["memory"], where=f"PE ({record.get('x')}, {record.get('y')})")
        x, y = record.get("x"), record.get("y")
        address = record.get("address")
        color = record.get("color")
        if error is not SramFault or address is None or address < 0:
            address = None
        parts = {
            "x": x,
            "y": y,
            "cycle": record.get("cycle"),
            "address": address,
            "color": color if color is not None and color >= 0 else None,
        }
        cause, hint = None, None
        if error is RouterFault:
            hint = "one color per input, or sends that cannot overlap"
        elif error is SramFault:
            program = self._program_at(x, y)
            if program is not None:
                hint = (
                    f"data of program {program.name!r} are words {program.code_words} .. {program.footprint - 1}: "
                    "check extents, strides and index registers"
                )
        value = record.get("value")
        if "trap" in what and value is not None:
            what = f"trap {value}"
        return error(
            what or f"{kind} fault",
            **parts,
            cause=cause,
            hint=hint,
            detail=None if error is RouterFault else self._place_of(x, y),
        )

    def _program_at(self, x, y):
        k = self._index[y, x]
        return self.spec.programs[k] if k >= 0 else None

    def _place_of(self, x, y):
        """Return the instruction a PE stands at, as text, if that is cheap to find out."""
        program = self._program_at(x, y)
        if program is None or self._index.size > _LOOK_INSIDE:
            return None
        pe = self.machine.snapshot()["pe"].get((x, y), {})
        return disasm.around(program, pe.get("pc", -1))


def task_id(image, name):
    """Return the id of a local or data task of a program by name, None if there is none."""
    at = image.labels.get(name)
    if at is None:
        return None
    ids = np.flatnonzero(image.entry == at)
    return int(ids[0]) if len(ids) else None


def task_names(image):
    """Return the names of a program's local and data tasks."""
    return [name for name in image.labels if task_id(image, name) is not None]


def _payload(values, packed):
    array = np.asarray(values)
    if array.dtype in (np.float16, np.uint16, np.int16):
        half = np.ascontiguousarray(array).ravel().view(np.uint16)
        if not packed:
            return half.astype(np.uint32)
        half = np.concatenate((half, np.zeros(len(half) % 2, np.uint16)))
        return half[::2].astype(np.uint32) | half[1::2].astype(np.uint32) << np.uint32(16)
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(array.astype(np.float32)).ravel().view(np.uint32)
    if array.dtype.kind not in "iub":
        raise LayoutError(f"send: {array.dtype} is not a kind of number that a wavelet can hold")
    if array.size and not -(1 << 31) <= int(array.min()) <= int(array.max()) < 1 << 32:
        raise LayoutError("send: a value does not fit 32 bits")
    return (array.astype(np.int64).ravel() & 0xFFFFFFFF).astype(np.uint32)


@contextlib.contextmanager
def _held_interrupt(active):
    """Hold back Ctrl-C while a plain-Python machine is inside a cycle; yield a function that tells whether it came."""
    came = []
    old = signal.getsignal(signal.SIGINT)
    if not active or threading.current_thread() is not threading.main_thread() or not callable(old):
        yield lambda: False
        return
    signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, old)


def _print_progress(cycles, seconds):
    print(f"\r{cycles} cycles, {seconds:.1f} s", end="", flush=True)
