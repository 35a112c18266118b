"""The text log is that of the vendor's simulator, as far as its public viewer wse-viz reads it.

What is written, one line each, cycles in order (architecture reference, section 11.2):

====================  ================================================================================================
line                  from
====================  ================================================================================================
``dimX=, dimY=``      the smallest rectangle at the origin that holds all events
landing               the landing of a wavelet at a router
wavelet ... landing=  a router's grant; with the port when the wavelet has landed in this very cycle, with ``-`` later.
                      The five places after ``departing=/`` are E, N, W, S, R
Writing, Sending      the CE's injection, and the grant out of the ramp
Backpressure          a wait for room in an output queue, at its first cycle
Not enough wavelets   a wait for an input queue, at its first cycle
Pipe ... stall        a wait for a DSR or thread (pipe 2) or a FIFO (pipe 5), conflicts of an operation (pipe 5)
``[EX OP]``           vector operations and tasks: start, again when they go on after a wait, ``IDLE`` when a task
                      ends, a wait begins, or the last microthread of a PE without a task is done
====================  ================================================================================================

A viewer keeps what it read last of a PE, leaves out an operation that it shows already, and ends a stall only when
another operation is shown; so a wait is ``IDLE`` and its stall at its first cycle, and the operation again at its end.

`ident` is 24 bits of the PE of origin, 8 bits of color and a running number, the same on the whole path.

Not written, because the model has no such stage or event: ``[IS OP]`` lines, scalar instructions and register
interlocks.

Sources: arch §11; docs/trace-format.md.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np

from traces.naming import CONTROL, operation_name, task_name
from traces.paths import identify
from traces.state import spans
from traces.trace import DERIVED, Trace
from wse_core.events import KINDS, WAITS, sorted_events

__all__ = ["PARTS", "write_log"]

NAMES = (*KINDS, *DERIVED)
PORTS = "WENSR"
PLACES = (1, 2, 0, 3, 4)  # E, N, W, S, R as numbers of ports
MAIN = 8
LINES = 1 << 14
PARTS = ("landing", "router", "inst_trace")
"""Groups of lines have these names in the vendor's simulator."""
TASK_START, OP_START = (KINDS.index(kind) for kind in ("task_start", "op_start"))
ENDLESS = 1 << 63
IDLE = "[EX OP] IDLE"
AGAIN, ENDED, SHOWN, WAITING, STALLED = 0.1, 0.2, 0.3, 0.4, 0.5  # order of the lines of a cycle

_Place: TypeAlias = tuple[int, int]
_Line: TypeAlias = tuple[float, str]
"""A `_Line` is a cycle, with a part that puts the lines of one cycle into order, and a text."""
_Span: TypeAlias = tuple[int, int, int, int]
"""A span has begin, end, lane and what, as in `traces.state.spans`."""
_Entry = TypeVar("_Entry", bound=tuple[Any, ...])


def write_log(
    trace: Trace,
    events: np.ndarray,
    stream: BinaryIO,
    origin: tuple[int, int] = (0, 0),
    size: tuple[int, int] | None = None,
    parts: Collection[str] = PARTS,
) -> None:
    """Write the log of the events; landings are derived if they are not among them.

    Parameters
    ----------
    trace : Trace
    events : numpy.ndarray of EVENT_DTYPE
    stream : binary file
    origin : tuple[int, int]
        Added to coordinates: where the rectangle of the program lies.
    size : tuple[int, int], optional
        Columns and rows in the first line; default the smallest rectangle at the origin that holds all events.
    parts : collection of str
        Which lines, of `PARTS`: landings, wavelets at routers and queues, what CEs do.
    """
    if not np.any(events["kind"] == len(KINDS)):
        events = sorted_events(np.concatenate([events, _landings(trace, events)]))
    if any(origin):
        events = events.copy()
        for axis, distance in zip("xy", origin, strict=True):
            events[axis] += np.uint16(distance)
    numbers = identify(events)
    width, height = size or (int(events[name].max(initial=0)) + 1 for name in ("x", "y"))
    stream.write(f"@0 dimX={width}, dimY={height}\n".encode())
    idents: dict[int, str] = {}  # of a wavelet
    issued: dict[int, int] = {}  # origin and color -> wavelets so far
    queue_of: dict[tuple[int, int, int], int] = {}  # output queue of a color
    landings = events[events["kind"] == len(KINDS)]
    landed = set(zip(*(landings[name].tolist() for name in ("cycle", "x", "y", "color", "aux")), strict=True))
    out = []
    for event, number in zip(_rows(events), numbers.tolist(), strict=True):
        cycle, data, x, y, kind, color, aux, flags = event
        name, at = NAMES[kind], f"@{cycle} P{x}.{y}"
        if number >= 0 and number not in idents:
            sender = (y * width + x) << 8 | color
            issued[sender] = issued.get(sender, -1) + 1
            idents[number] = f"{sender << 32 | issued[sender]:016x}"
        if name == "land" and "landing" in parts:
            out.append((cycle - 0.25, f"{at} (hwtile) landing C{color} from link {PORTS[aux]}, "))
        elif name == "depart" and "router" in parts:
            port = flags >> 1 & 7
            now = port == 4 or (cycle, x, y, color ^ (flags >> 4 & 1), port) in landed
            places = "".join("ENWSR"[k] if aux >> direction & 1 else " " for k, direction in enumerate(PLACES))
            to_ce = " to_ce_from_router" if aux >> 4 & 1 else ""
            out.append(
                (
                    cycle,
                    f"{at} (hwtile) wavelet C{color} ctrl={flags & 1}, idx={data >> 16:04x}, "
                    f"data={data & 0xFFFF:04x} {_decoded(data)}, half=0, ident={idents[number]} "
                    f"landing={PORTS[port] if now else '-'} departing=/{places}/{to_ce}",
                )
            )
            if port == 4:
                out.append(
                    (
                        cycle,
                        f"{at}: (hwtile) Sending wavelet C{color} {data:08x} ident:{idents[number]} "
                        f"on OUT_Q[{queue_of.get((x, y, color), 0)}]",
                    )
                )
        elif name == "inject" and "router" in parts:
            queue_of[x, y, color] = aux
            out.append((cycle, f"{at}: (hwtile) Writing wavelet C{color} {data:08x} to OUT_Q[{aux}]"))
    if "inst_trace" in parts:
        out += _work(trace, events)
    out.sort(key=lambda item: item[0])  # landings come before the grants of their cycle
    for start in range(0, len(out), LINES):
        stream.write("".join(f"{line}\n" for _, line in out[start : start + LINES]).encode())


def _work(trace: Trace, events: np.ndarray) -> list[_Line]:
    """Return (cycle, line) of what CEs do: a part of a cycle puts the lines of one cycle into order."""
    tasks, operations = _places(spans(events, "task")), _places(spans(events, "op"))
    waits: dict[_Place, list[tuple[int, int, str]]] = {}
    for event in events[events["kind"] == KINDS.index("wait")]:
        stall = _stall(WAITS[event["aux"]], int(event["color"]), int(event["flags"]) >> 1 & 7)
        begin, end = int(event["cycle"]) - int(event["data"]), int(event["cycle"])
        waits.setdefault((int(event["x"]), int(event["y"])), []).append((begin, end, stall))
    for event in events[events["kind"] == KINDS.index("conflict")]:
        stall = f"Pipe: 5, Msg: stall: read conflict, {event['data']} cycles of this operation"
        cycle = int(event["cycle"])
        waits.setdefault((int(event["x"]), int(event["y"])), []).append((cycle, cycle + 1, stall))
    codes = {}  # code words of tasks and operations by place, kind and cycle
    for cycle, data, x, y, kind, _, aux, _ in _rows(events):
        if kind in (TASK_START, OP_START):
            codes[x, y, kind, cycle, aux if kind == OP_START else 0] = data & 0xFFFF
    found = []
    for place in {*tasks, *operations, *waits}:
        found += _of_pe(trace, place, tasks.get(place, []), operations.get(place, []), waits.get(place, []), codes)
    return found


def _during(entries: Sequence[_Entry], cycle: int) -> _Entry | None:
    """Return which of some entries (begin, end, ...) one after the other lasts in a cycle, or None."""
    at = bisect_right(entries, cycle, key=itemgetter(0)) - 1
    return entries[at] if at >= 0 and cycle < entries[at][1] else None


def _places(found: np.ndarray) -> dict[_Place, list[_Span]]:
    """Return spans by place: (x, y) -> [(begin, end, lane, what)]."""
    result: dict[_Place, list[_Span]] = {}
    for span in found.tolist():
        begin, end, x, y, lane, what, *_ = span
        result.setdefault((x, y), []).append((begin, end, lane, what))
    return result


def _of_pe(
    trace: Trace,
    place: _Place,
    tasks: Sequence[_Span],
    operations: Sequence[_Span],
    waits: Sequence[tuple[int, int, str]],
    codes: Mapping[tuple[int, int, int, int, int], int],
) -> list[_Line]:
    """Return the lines of one PE."""
    x, y = place
    found = []

    def say(cycle: int, order: float, text: str) -> None:
        found.append((cycle + order, f"@{cycle} P{x}.{y}: (hwtile) {text}"))

    lanes: dict[int, list[_Span]] = {}
    for entry in operations:
        lanes.setdefault(entry[2], []).append(entry)
    order = sorted(lanes, key=lambda lane: (lane != MAIN, lane))  # whose operation is shown, of several

    def task_at(cycle: int) -> _Span | None:
        return _during(tasks, cycle)

    def operation(entry: _Span, cycle: int) -> str:
        begin, _, lane, what = entry
        task = task_at(cycle)
        thread = f"T{task[3] % CONTROL if task else 0}" + ("" if lane == MAIN else f".UT{lane}")
        name = operation_name(trace.names, what).upper().replace(" ", "_")
        return f"[EX OP] ^ 0x{codes[x, y, OP_START, begin, lane]:04x}: {thread} {name} "

    def going_on(cycle: int) -> str | None:
        """Return what runs in a cycle: the main thread's operation, a microthread's, the task; None if nothing."""
        for lane in order:
            running = _during(lanes[lane], cycle)
            if running:
                return operation(running, cycle)
        task = task_at(cycle)
        return None if task is None else named(task, "CONTINUE")

    def named(task: _Span, word: str) -> str:
        label = task_name(trace.names, task[3]).upper().replace(" ", "_")
        return f"[EX OP] ^ 0x{codes[x, y, TASK_START, task[0], 0]:04x}: T{task[3] % CONTROL} {word}_{label} "

    for task in tasks:
        say(task[0], SHOWN, named(task, "START"))
        if task[1] < ENDLESS:
            say(task[1] - 1, SHOWN, IDLE)
            running = going_on(task[1])
            if running and task_at(task[1]) is None:
                say(task[1], AGAIN, running)
    for entry in operations:
        say(entry[0], SHOWN, operation(entry, entry[0]))
        if entry[1] < ENDLESS and going_on(entry[1]) is None and task_at(entry[1] - 1) is None:
            say(entry[1], ENDED, IDLE)
    for begin, end, stall in waits:
        say(begin, WAITING, IDLE)
        say(begin, STALLED, stall)
        running = going_on(end)
        say(end, AGAIN, running or "[EX OP] ^ 0xffff: T0 CONTINUE ")
        if running is None:
            say(end, ENDED, IDLE)
    return found


def _rows(events: np.ndarray) -> Iterator[tuple[int, ...]]:
    return zip(
        *(events[name].tolist() for name in ("cycle", "data", "x", "y", "kind", "color", "aux", "flags")), strict=True
    )


def _landings(trace: Trace, events: np.ndarray) -> np.ndarray:
    """Return the landings within the cycles of the events; none if the file does not say what a hop takes."""
    if not len(events) or "depart" not in trace.filter.kinds or "router.hop" not in trace.meta.machine:
        return events[:0]
    cycles = int(events["cycle"].min()), int(events["cycle"].max()) + 1
    x, y = (int(events[name].min()) for name in ("x", "y"))
    region = (x, y, int(events["x"].max()) + 1 - x, int(events["y"].max()) + 1 - y)
    colors = sorted(set(np.unique(events["color"]).tolist()) - {255})
    return trace.events(cycles=cycles, kinds=("land",), region=region, colors=colors)


def _decoded(data: int) -> str:
    """Return the lower half as the viewer shows it: value of an f16 and its exponent."""
    value = float(np.uint16(data & 0xFFFF).view(np.float16))
    exponent = math.frexp(value)[1] - 1 if value and math.isfinite(value) else -15
    return f"({value:+.3f}({exponent}))"


def _stall(reason: str, color: int, queue: int) -> str:
    """Return the text of a wait."""
    return {
        "input": f"Not enough wavelets (0/1) for SRC0 with C{color}, IN_Q[{queue}], SIMD-1",
        "output": f"Backpressure on C{color} for OUT_Q[{queue}]",
        "fifo": "Pipe: 5, Msg: stall: fifo",
        "resource": "Pipe: 2, Msg: stall: dependent DDS0",
    }[reason]
