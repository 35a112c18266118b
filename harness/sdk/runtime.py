"""The class `SdkRuntime` is the host's side of a compiled program, on the model instead of a wafer.

Commands are done in the order of their calls, one after the other, each as soon as it is called: `nonblock` says only
whether the call waits for the end.  A launch activates a hidden task in every PE that offers the function; it ends when
each of them has called ``unblock_cmd_stream``.  A command begins when those before it are over: all words of a stream
have entered, or have come.  Copies happen between two cycles and take none; the wavelets of streams enter and leave at
the edge of the rectangle, at the rate that the modelled numbers say.  Times inside of PE programs are what can be
compared with a machine, not those of the host.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fabric.csl.artefact import Bundle, read_bundle
from fabric.host.fabric import Fabric
from harness.sdk.core import NAMES as CORE_NAMES
from harness.sdk.core import write_core
from harness.sdk.device import SYMBOLS, SdkDevice
from harness.sdk.log import leave_traces
from wse_core.errors import ConfigError, LayoutError
from wse_core.params import Machine

__all__ = [
    "MachineOf",
    "MemcpyDataType",
    "MemcpyOrder",
    "SdkRuntime",
    "SdkTarget",
    "SimfabConfig",
    "Task",
    "get_platform",
    "last_runtime",
    "machine_for",
    "meaningless",
    "running_on",
    "target_of",
]


class MemcpyDataType(enum.Enum):
    """An element of a transfer has one of these widths."""

    MEMCPY_16BIT = 0
    MEMCPY_32BIT = 1


class MemcpyOrder(enum.Enum):
    """The elements of the host's array are in this order: that of A[h][w][n] in C or in Fortran."""

    ROW_MAJOR = 0
    COL_MAJOR = 1


class SdkTarget(enum.Enum):
    """Programs are compiled for one of these machines."""

    WSE2 = 2
    WSE3 = 3


class Task:
    """A command that was given; it is done, unless it waits for words of a stream."""

    def __init__(self, done: bool = True) -> None:
        self.done = done


@dataclass(eq=False)
class Awaited:
    """An `Awaited` says what is to come from a stream: how many words, where they go, the command that asked."""

    stream: str
    count: int
    store: Callable[[], None]
    task: Task


SIMULATOR = {"memcpy_required", "msg_level", "simfab_numthreads", "suppress_simfab_trace"}
"""These options are for the vendor's simulator: its threads, records and messages."""
_LAST: dict[str, SdkRuntime] = {}
Choice = TypeVar("Choice", bound=enum.Enum)
MachineOf: TypeAlias = Callable[[str], Machine]
"""A `MachineOf` is a function that returns the machine for programs of an architecture."""
_CHOSEN: ContextVar[Machine | MachineOf | None] = ContextVar("machine of host scripts", default=None)


@contextmanager
def running_on(machine: Machine | MachineOf | None) -> Iterator[None]:
    """Let runtimes that are made in the block have these modelled numbers; None: those of the program's architecture.

    A function gives the machine for an architecture, which is known when a program is loaded.
    """
    before = _CHOSEN.set(machine)
    try:
        yield
    finally:
        _CHOSEN.reset(before)


def machine_for(arch: str) -> Machine | None:
    """Return the modelled numbers that `running_on` asks for, of an architecture; None: those of the program."""
    chosen = _CHOSEN.get()
    return chosen(arch) if callable(chosen) else chosen


def last_runtime(directory: str | Path) -> SdkRuntime | None:
    """Return the runtime that was last made for a compiled program in this process."""
    return _LAST.get(str(Path(directory).resolve()))


class SimfabConfig:
    """The vendor's simulator is set by this: threads, records, a core file.  Nothing changes what is simulated here.

    Parameters
    ----------
    dump_core : bool
        Whether ``stop`` writes the memory of all PEs into a file.
    core_path : path, optional
        That file; default ``out.core``.
    """

    def __init__(self, *_: Any, dump_core: bool = False, core_path: str | None = None, **options: Any) -> None:
        self.core = str(core_path or CORE_NAMES[0]) if dump_core else None
        self.options = options


@dataclass(frozen=True)
class SdkPlatform:
    """A platform says for which machine a layout of the host's script is made; here all of them are modelled ones.

    Attributes
    ----------
    cmaddr : str or None
    target : SdkTarget
    core : str or None
        The core file that ``stop`` writes.
    """

    cmaddr: str | None
    target: SdkTarget
    core: str | None = None

    def is_simulation(self) -> bool:
        """Return whether it is a simulation, which it always is."""
        return True

    def is_system(self) -> bool:
        """Return whether it is a machine, which it never is."""
        return False


def get_platform(
    cmaddr: str | None = None, config: Any = None, target: SdkTarget = SdkTarget.WSE3, **others: Any
) -> SdkPlatform:
    """Return a platform; of `config`, which is the vendor's simulator's, the core file counts.

    Raises
    ------
    ConfigError
        An address is given: there is no machine behind it.
    """
    if cmaddr:
        raise ConfigError("there is no machine at this address", where=cmaddr, hint="leave --cmaddr out")
    return get_simulator(config, target, **others)


def get_simulator(config: Any = None, target: SdkTarget = SdkTarget.WSE3, **others: Any) -> SdkPlatform:
    """Return the platform of the modelled machine."""
    meaningless("get_simulator", others)
    return SdkPlatform(None, target, getattr(config, "core", None))


def target_of(platform: Any) -> str:
    """Return the architecture of a platform, or of an `SdkTarget`, as the compiler calls it.

    Raises
    ------
    ConfigError
        It is neither of them.
    """
    target = getattr(platform, "target", platform)
    if not isinstance(target, SdkTarget):
        raise ConfigError(
            f"{platform!r} is no platform", hint="get_platform(None, None, SdkTarget.WSE3), or SdkTarget.WSE2"
        )
    return target.name.lower()


def meaningless(call: str, options: Mapping[str, Any]) -> None:
    """Say which options of a call mean nothing here; those that set the vendor's simulator need no word."""
    for name in sorted(options.keys() - SIMULATOR):
        print(f"{call}: warning: the option {name} means nothing here", file=sys.stderr)


class SdkRuntime:
    """An `SdkRuntime` runs a compiled program.

    Parameters
    ----------
    bindir : path
        What ``cslc -o`` wrote.
    platform : SdkPlatform or SdkTarget, optional
        It must be the architecture that the program was compiled for.
    cmaddr : str, optional
        Address of a machine; must be empty.
    machine : Machine, optional
        Modelled numbers; default: those of `running_on`.
    """

    def __init__(
        self,
        bindir: str | Path,
        platform: Any = None,
        cmaddr: str | None = None,
        machine: Machine | None = None,
        **others: Any,
    ) -> None:
        if cmaddr:
            raise ConfigError("there is no machine at this address", where=cmaddr, hint="leave --cmaddr out")
        meaningless("SdkRuntime", others)
        self._traces = not others.get("suppress_simfab_trace", False)
        self.directory = Path(str(bindir))
        self.bundle: Bundle = read_bundle(self.directory)
        arch = self.bundle.arch
        if platform is not None and (target := target_of(platform)) != arch:
            raise ConfigError(f"the program was compiled for {arch}, and the platform is one of {target}")
        self._machine = machine or machine_for(arch)
        self._core: str | None = getattr(platform, "core", None)
        self._names = {entry.name: entry for entry in self.bundle.names}
        self._device: SdkDevice | None = None
        self._stopped = False
        self._awaited: list[Awaited] = []
        _LAST[str(self.directory.resolve())] = self

    def __enter__(self) -> SdkRuntime:
        self.load()
        self.run()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- life

    def load(self) -> None:
        """Load the program onto the fabric."""
        self._device = SdkDevice(self.bundle, self.directory, self._machine)
        self._device.preset(self.directory / SYMBOLS)
        for place in self.bundle.streams["outputs"] if "ports" in self.bundle.settings else ():
            self._device.open(place[2], place[0], place[1])
        self._stopped = False

    def run(self) -> None:
        """Start; what comptime blocks activated begins to run."""
        self.device.settle()

    def stop(self) -> None:
        """Let everything that is under way come to an end; what is to be received must come by then."""
        self._finish(self._awaited)
        self.device.settle()
        self.device.write_log()
        if self._traces and not self._stopped:
            leave_traces()
        if self._core is not None and not self._stopped:
            self.dump_core(self._core)
        self._stopped = True

    @property
    def device(self) -> SdkDevice:
        """The device is the machine with the program on it."""
        if self._device is None:
            raise ConfigError("the program is not loaded", hint="runner.load(), runner.run()")
        return self._device

    @property
    def fabric(self) -> Fabric:
        """The fabric that runs is this, for traces and debugging."""
        return self.device.fabric

    # ---- symbols and launches

    def get_id(self, name: str) -> int:
        """Return the id of an exported symbol.

        Raises
        ------
        ConfigError
            If the layout exports no such name.
        """
        entry = self._names.get(name)
        if entry is None:
            known = ", ".join(self._names) or "none"
            raise ConfigError(f"the layout exports no symbol '{name}'", hint=f"symbols: {known}")
        return entry.ident

    def _begin(self, streams: bool = False) -> None:
        """Begin a command, which may ask for words of a stream, unless the program was stopped."""
        if self._stopped:
            raise ConfigError("the program was stopped; no command comes after that", hint="runner.stop() at the end")
        self.device.begin(streams)

    def launch(self, name: str, *args: Any, nonblock: bool = False) -> Task:
        """Call a function on every PE that has it."""
        entry = self._names.get(name)
        if entry is None or entry.kind != "function":
            known = ", ".join(n for n, e in self._names.items() if e.kind == "function")
            raise ConfigError(f"the program exports no function '{name}'", hint=f"functions: {known or 'none'}")
        if len(args) != len(entry.types):
            raise ConfigError(f"'{name}' takes {len(entry.types)} arguments, not {len(args)}")
        words: list[int] = []
        for value, kind in zip(args, entry.types, strict=True):
            bits = _bits(value, kind, name)
            words += [bits & 0xFFFF, bits >> 16]
        self._begin()
        self.device.launch(entry.name, entry.ident, words)
        return Task()

    def call(self, name: str, words: Sequence[int] = (), nonblock: bool = False) -> Task:
        """Call a function with raw 32-bit words."""
        entry = self._names.get(name)
        if entry is None or entry.kind != "function":
            raise ConfigError(f"the program exports no function '{name}'")
        flat = [part for word in words for part in (int(word) & 0xFFFF, int(word) >> 16 & 0xFFFF)]
        self._begin()
        self.device.launch(entry.name, entry.ident, flat)
        return Task()

    def memcpy_launch(self, color: int, words: Any, nonblock: bool = False) -> Task:
        """Send every PE the words of a launch on a color, as in SDK 0.6: the program itself reads what they mean."""
        flat = np.ascontiguousarray(words).reshape(-1)
        self._begin()
        self.device.launch_by_words(int(color), _words(flat, flat.size))
        return Task()

    # ---- copies and streams

    def memcpy_h2d(
        self, dest: int, src: Any, px: int, py: int, w: int, h: int, n: int, *older: Any, streaming: bool = False,
        data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT, order: MemcpyOrder = MemcpyOrder.ROW_MAJOR,
        nonblock: bool = False, **others: Any,
    ) -> Task:  # fmt: skip
        """Copy or stream an array of the host to a rectangle of PEs, `n` elements each."""
        meaningless("memcpy_h2d", others)
        if older:
            streaming, px, py, w, h, n, nonblock = _by_position("memcpy_h2d", px, py, w, h, n, *older)
        values = _ordered(_words(src, w * h * n), w, h, n, order)
        self._begin()
        self._to_device(dest, values, px, py, streaming, data_type, nonblock)
        return Task()

    def memcpy_h2d_rowbcast(
        self, dest: int, src: Any, px: int, py: int, w: int, h: int, n: int, *, streaming: bool = False,
        data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT, order: MemcpyOrder = MemcpyOrder.ROW_MAJOR,
        nonblock: bool = False, **others: Any,
    ) -> Task:  # fmt: skip
        """Copy A[h][n] to the PEs of each row alike."""
        meaningless("memcpy_h2d_rowbcast", others)
        values = np.repeat(_ordered(_words(src, h * n), 1, h, n, order), w, axis=1)
        self._begin()
        self._to_device(dest, values, px, py, streaming, data_type, nonblock)
        return Task()

    def memcpy_h2d_colbcast(
        self, dest: int, src: Any, px: int, py: int, w: int, h: int, n: int, *, streaming: bool = False,
        data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT, order: MemcpyOrder = MemcpyOrder.ROW_MAJOR,
        nonblock: bool = False, **others: Any,
    ) -> Task:  # fmt: skip
        """Copy A[w][n] to the PEs of each column alike."""
        meaningless("memcpy_h2d_colbcast", others)
        values = np.repeat(_ordered(_words(src, w * n), w, 1, n, order), h, axis=0)
        self._begin()
        self._to_device(dest, values, px, py, streaming, data_type, nonblock)
        return Task()

    def memcpy_h2d_stride(
        self, dest: int, src: Any, px: int, py: int, w: int, h: int, n: int, row_stride: int, col_stride: int, *,
        streaming: bool = False, data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT,
        order: MemcpyOrder = MemcpyOrder.ROW_MAJOR, nonblock: bool = False, **others: Any,
    ) -> Task:  # fmt: skip
        """Copy or stream to every PE of a rectangle that lies `row_stride` columns and `col_stride` rows from the next.

        The array has `n` elements for each of these PEs: 1 + (w - 1) // row_stride columns, and rows alike.
        """
        meaningless("memcpy_h2d_stride", others)
        if min(row_stride, col_stride) < 1:
            raise ConfigError(f"the strides {row_stride} and {col_stride} lead nowhere", hint="strides of at least 1")
        self._check(px, py, w, h)
        columns, rows = 1 + (w - 1) // row_stride, 1 + (h - 1) // col_stride
        values = _ordered(_words(src, columns * rows * n), columns, rows, n, order)
        self._begin()
        for i in range(rows):
            for j in range(columns):
                part = np.ascontiguousarray(values[i : i + 1, j : j + 1])
                x, y = px + j * row_stride, py + i * col_stride
                self._to_device(dest, part, x, y, streaming, data_type, nonblock or (i, j) != (rows - 1, columns - 1))
        return Task()

    def _to_device(
        self, dest: int, values: NDArray[np.uint32], px: int, py: int, streaming: bool, data_type: Any, nonblock: bool
    ) -> None:
        self._check(px, py, values.shape[1], values.shape[0])
        half = _is_16(data_type)
        if streaming:
            self.device.send(int(dest), values, px, py)
            if not nonblock:
                self.device.entered()
            return
        self.device.at_rest()
        self.device.copy_in(self._symbol(dest), values, px, py, half)

    def memcpy_d2h(
        self, dest: Any, src: int, px: int, py: int, w: int, h: int, n: int, *older: Any, streaming: bool = False,
        data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT, order: MemcpyOrder = MemcpyOrder.ROW_MAJOR,
        nonblock: bool = False, **others: Any,
    ) -> Task:  # fmt: skip
        """Copy or stream `n` elements of each PE of a rectangle into an array of the host."""
        meaningless("memcpy_d2h", others)
        if older:
            streaming, px, py, w, h, n, _ = _by_position("memcpy_d2h", px, py, w, h, n, *older)
        self._check(px, py, w, h)
        goal, half = _goal(dest, w * h * n), _is_16(data_type)
        turned = _member(MemcpyOrder, order, "order") is MemcpyOrder.COL_MAJOR
        self._begin(streaming)
        if streaming:
            values = self.device.receive(int(src), px, py, w, h, n)
        else:
            self.device.at_rest()
            values = self.device.copy_out(self._symbol(src), px, py, w, h, n, half)
        if turned:
            values = values.transpose(2, 1, 0)
        goal[: w * h * n] = values.reshape(-1)
        return Task()

    def _symbol(self, ident: int) -> Any:
        found = next((entry for entry in self.bundle.names if entry.ident == ident), None)
        if found is None or found.kind == "function":
            raise ConfigError(f"{ident!r} is not the id of exported data", hint="runner.get_id(name)")
        return found

    def _check(self, px: int, py: int, w: int, h: int) -> None:
        width, height = self.bundle.width, self.bundle.height
        if min(px, py) < 0 or min(w, h) < 1 or px + w > width or py + h > height:
            raise LayoutError(
                f"the region ({px}, {py}) of {w} x {h} PEs is not inside of the program's {width} x {height}"
            )

    # ---- streams of a layout that the script made

    def get_port_id(self, stream: str) -> int:
        """Return the number of a stream, which `send` and `receive` take for its name."""
        self._port(stream)
        return list(self.bundle.settings["ports"]).index(stream)

    def report_port_infos(self) -> None:
        """Print every stream: its number, its name, its color and the PE at which it enters or leaves."""
        for number, (stream, (color, x, y)) in enumerate(self.bundle.settings.get("ports", {}).items()):
            print(f"port {number}: {stream}, color {color} at PE ({x}, {y})")

    def _port(self, stream: str | int) -> tuple[int, int, int]:
        """Return color and PE of a stream."""
        ports = self.bundle.settings.get("ports", {})
        if isinstance(stream, int) and 0 <= stream < len(ports):
            return self._port(list(ports)[stream])
        if stream not in ports:
            raise ConfigError(f"there is no stream '{stream}'", hint=f"streams: {', '.join(ports) or 'none'}")
        color, x, y = ports[stream]
        return int(color), int(x), int(y)

    def send(self, stream: str | int, array: Any, nonblock: bool = False) -> Task:
        """Send the 32-bit words of an array to a port."""
        color, x, y = self._port(stream)
        values = np.ascontiguousarray(array).reshape(-1)
        if values.dtype.itemsize != 4:
            raise ConfigError(f"a stream has words of 32 bits, not values of type {values.dtype}")
        self.device.send(color, values.view(np.uint32).reshape(1, 1, -1), x, y)
        if not nonblock:
            self.device.entered()
        return Task()

    def receive(self, stream: str | int, array: NDArray[Any], count: int, nonblock: bool = False) -> Task:
        """Receive words of 32 bits; without blocking they are in the array after `task_wait` or `stop`."""
        place, goal = self._port(stream), _goal(array, count)

        def store() -> None:
            goal[:count] = self.device.collect(*place, count)

        return self._await(stream, count, store, nonblock)

    def receive_tofile(self, stream: str | int, path: str | Path, count: int, nonblock: bool = False) -> Task:
        """Receive 32-bit words from a port into a file; if they need not come yet, `stop` writes it."""
        place = self._port(stream)

        def store() -> None:
            np.asarray(self.device.collect(*place, count), np.uint32).tofile(path)

        return self._await(stream, count, store, nonblock)

    def _await(self, stream: str | int, count: int, store: Callable[[], None], nonblock: bool) -> Task:
        """Store what comes from a stream: now, after what is awaited from it already, or when that is waited for."""
        stream = list(self.bundle.settings["ports"])[stream] if isinstance(stream, int) else stream
        entry = Awaited(stream, count, store, Task(done=False))
        self._awaited.append(entry)
        if not nonblock:
            self._finish(self._before(entry.task))
        return entry.task

    def _before(self, task: Task) -> list[Awaited]:
        """Return what is awaited from the stream of a command, up to that command."""
        place = next(k for k, entry in enumerate(self._awaited) if entry.task is task)
        return [entry for entry in self._awaited[: place + 1] if entry.stream == self._awaited[place].stream]

    def _finish(self, entries: Sequence[Awaited]) -> None:
        """Store what is awaited, in the order of the calls."""
        for entry in list(entries):
            entry.store()
            entry.task.done = True
            self._awaited.remove(entry)

    # ---- looking at memory

    def read_symbol(self, x: int, y: int, name: str, dtype: Any = "uint8") -> NDArray[Any]:
        """Return a global of a PE, exported or not, as an array of a type."""
        words = self.device.symbol(x, y, name)
        return np.ascontiguousarray(words, "<u2").view(np.dtype(dtype))

    def coord_logical_to_physical(self, at: tuple[int, int]) -> tuple[int, int]:
        """Return where a PE of the program lies on the fabric."""
        x, y = self.bundle.settings["offsets"]
        return at[0] + x, at[1] + y

    def task_wait(self, task: Task) -> None:
        """Wait for a command: all are done but those that receive from a stream without blocking."""
        if not task.done:
            self._finish(self._before(task))

    def is_task_done(self, task: Task) -> bool:
        """Whether a command is done, when everything that can move has moved."""
        if not task.done:
            self.device.settle()
            entries = self._before(task)
            if self.device.came(*self._port(entries[0].stream)) >= sum(entry.count for entry in entries):
                self._finish(entries)
        return task.done

    def dump_core(self, path: str) -> None:
        """Write the memory of all PEs into a file, which `debug_util` of another process reads."""
        write_core(self.device, path)


def _by_position(call: str, *given: Any) -> tuple[bool, int, int, int, int, int, bool]:
    """Return streaming, region, elements and nonblock of a transfer of SDK 0.6, which has no names and a 0 before the
    last.
    """
    if len(given) != 8 or not isinstance(given[0], bool) or given[6] != 0 or isinstance(given[6], enum.Enum):
        hint = "streaming=..., data_type=..., order=..., nonblock=..."
        raise ConfigError(f"{call} takes seven values by position, or the ten of SDK 0.6", hint=hint)
    streaming, px, py, w, h, n, _, nonblock = given
    return streaming, px, py, w, h, n, bool(nonblock)


def _is_16(data_type: Any) -> bool:
    return _member(MemcpyDataType, data_type, "data_type") is MemcpyDataType.MEMCPY_16BIT


def _member(kind: type[Choice], value: Any, what: str) -> Choice:
    """Return a choice of an enumeration; anything else would mean the other one without a word."""
    if not isinstance(value, kind):
        names = " or ".join(f"{kind.__name__}.{entry.name}" for entry in kind)
        raise ConfigError(f"{what} is {value!r}", hint=names)
    return value


def _words(src: Any, count: int) -> NDArray[np.uint32]:
    """Return an array of the host as 32-bit words."""
    array = np.ascontiguousarray(src)
    if array.dtype.itemsize == 2:
        flat = array.ravel().view(np.uint16).astype(np.uint32)
    elif array.dtype.itemsize == 4:
        flat = array.ravel().view(np.uint32)
    else:
        raise ConfigError(f"an array of {array.dtype} cannot be sent", hint="elements of 32 bits")
    if flat.size < count:
        raise ConfigError(f"the array has {flat.size} elements, {count} are needed")
    return flat[:count]


def _goal(dest: Any, count: int) -> NDArray[np.uint32]:
    """Return an array of the host as 32-bit words that can be written."""
    if not isinstance(dest, np.ndarray) or dest.dtype.itemsize != 4 or not dest.flags.c_contiguous:
        raise ConfigError("the array for the result must be contiguous, with elements of 32 bits")
    if not dest.flags.writeable:
        raise ConfigError("the array for the result cannot be written", hint="np.array(...) makes a copy that can")
    flat = dest.reshape(-1).view(np.uint32)
    if flat.size < count:
        raise ConfigError(f"the array has {flat.size} elements, {count} are needed")
    return flat


def _ordered(flat: NDArray[np.uint32], w: int, h: int, n: int, order: MemcpyOrder) -> NDArray[np.uint32]:
    """Return the words per PE, shape (h, w, n)."""
    if _member(MemcpyOrder, order, "order") is MemcpyOrder.COL_MAJOR:
        return flat.reshape(n, w, h).transpose(2, 1, 0)
    return flat.reshape(h, w, n)


NUMPY = {"f32": np.float32, "f16": np.float16, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32}


def _bits(value: Any, kind: str, name: str) -> int:
    """Return an argument of a launch as the bits of its type."""
    if kind == "bool":
        return int(bool(value))
    wanted = np.dtype(NUMPY[kind])
    given = np.asarray(value)
    is_float = wanted.kind == "f"
    if given.dtype.kind not in ("f" if is_float else "iu") and not (is_float and given.dtype.kind in "iu"):
        raise ConfigError(f"an argument of '{name}' is a {given.dtype}, {kind} is needed")
    if isinstance(value, np.generic) and value.dtype != wanted:
        raise ConfigError(f"an argument of '{name}' is a {value.dtype}, {kind} is needed", hint=f"np.{wanted}(...)")
    if not is_float:
        info = np.iinfo(str(wanted))
        if not info.min <= int(value) <= info.max:
            raise ConfigError(f"{value} is no {kind}, an argument of '{name}'")
    return int(np.asarray(value).astype(wanted).view(f"u{wanted.itemsize}"))
