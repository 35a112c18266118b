"""Perfetto TrackEvent: a process per PE, a track for tasks and one per thread, waits, flows of wavelets, counters.

One cycle is written as one nanosecond, so what the viewer calls 5 us are 5,000 cycles.

===================  ===================================================================================================
track                content
===================  ===================================================================================================
PE (x, y)            parent of all others of that PE
tasks                a slice from the picker's choice to `done`, named by the task
main, ut0 ... ut7    a slice per vector operation, from issue to last step, named by the opcode
waits                a slice per wait, named by its reason
router               an instant per grant; flows link the grants of one wavelet from its injection to where it is taken
link W, E, N, S, R   counters: wavelets that the router sent there so far, in steps of at least `STEP` cycles
program              process of the program's phases (`traces.marks`): a track each for memory service, tree, wafers and
                     so on, and another one of the same name for phases that overlap
host                 process of the host: an instant per launch, copy and use of a stream
===================  ===================================================================================================

Names are stored once (interned), so that a viewer adds up all events of a name; what differs from event to event,
payload, color, elements, source line and so on, are arguments (debug annotations).

Sources: docs/trace-format.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from traces.export.trackevent import Facts, TrackEventWriter
from traces.marks import lanes
from traces.naming import operation_name, task_name, task_number
from traces.paths import identify
from wse_core.counters import LINKS
from wse_core.events import HOST as HOST_ACCESSES
from wse_core.events import KINDS, NO_COLOR, WAITS

if TYPE_CHECKING:
    from traces.trace import Trace

__all__ = ["write_perfetto"]

STEP = 16
MAIN = 8
ROUTER, TASKS, WAITING, THREADS, LINK = 1, 2, 3, 8, 32  # numbers of tracks within a PE; the last two begin a group
PROGRAM, HOST, FIRST_PE = 1, 2, 3  # numbers of processes; PEs follow in row-major order
MOST_PHASES = 255  # tracks of the program


class _Event(NamedTuple):
    """An `_Event` is an event as plain numbers; the fields of `wse_core.events.EVENT_DTYPE` that are shown."""

    cycle: int
    x: int
    y: int
    kind: int
    color: int
    aux: int
    data: int
    flags: int


class _Picture:
    """Tell a writer what each event means; a method per kind of event, found by its name."""

    def __init__(self, trace: Trace, events: np.ndarray, writer: TrackEventWriter) -> None:
        self.trace, self.events, self.writer = trace, events, writer
        self.width = int(events["x"].max(initial=0)) + 1
        self.numbers = identify(events)
        self.elements = _elements(events)
        self.last: dict[int, int] = {}  # wavelet -> index of its last event: there its flow ends
        for index in np.flatnonzero(self.numbers >= 0):
            self.last[int(self.numbers[index])] = int(index)
        self.sent: dict[tuple[int, int, int], int] = {}
        self.shown: dict[tuple[int, int, int], int] = {}
        self.open: dict[int, int] = {}
        self.lane = lanes(trace.marks)
        self.rows = list(
            dict.fromkeys((mark.track, number) for mark, number in zip(trace.marks, self.lane, strict=True))
        )

    def draw(self) -> None:
        """Tell everything, in order."""
        tell = [getattr(self, kind, None) for kind in KINDS]
        columns = [self.events[name].tolist() for name in _Event._fields]
        for index, values in enumerate(zip(*columns, strict=True)):
            event = _Event(*values)
            method = tell[event.kind]
            if method is not None:
                method(event, index)
        for link in self.sent:
            self._count(int(self.events["cycle"][-1]), link)
        self.writer.finish()

    # --- wavelets -----------------------------------------------------------------------------------------------------

    def inject(self, event: _Event, index: int) -> None:
        self._moved("inject", event, index)

    def take(self, event: _Event, index: int) -> None:
        self._moved("take", event, index)

    def depart(self, event: _Event, index: int) -> None:
        self._moved("grant", event, index)
        for direction in range(len(LINKS)):
            if event.aux >> direction & 1:
                link = event.x, event.y, direction
                self.sent[link] = self.sent.get(link, 0) + 1
                if event.cycle >= self.shown.get(link, -STEP) + STEP:
                    self.shown[link] = event.cycle
                    self._count(event.cycle, link)

    def _moved(self, word: str, event: _Event, index: int) -> None:
        track, wavelet = self._track(event, ROUTER, "router"), int(self.numbers[index])
        flow, last = (wavelet + 1, self.last[wavelet] == index) if wavelet >= 0 else (None, False)
        facts: Facts = {"color": event.color, "payload": f"{event.data:08x}", "control": event.flags & 1}
        self.writer.instant(event.cycle, track, f"{word} C{event.color}", flow, last, facts)

    def _count(self, cycle: int, link: tuple[int, int, int]) -> None:
        x, y, direction = link
        track = self._pe_track(x, y, LINK + direction, f"link {LINKS[direction]}", counter=True)
        self.writer.count(cycle, track, self.sent[link])

    # --- tasks and operations -----------------------------------------------------------------------------------------

    def task_start(self, event: _Event, index: int) -> None:
        name = task_name(self.trace.names, task_number(event.aux, event.flags))
        facts = {"id": event.aux, "kind": "control task" if event.flags & 1 else "task", "code word": event.data}
        self._begin(event.cycle, self._track(event, TASKS, "tasks"), name, facts)

    def task_end(self, event: _Event, index: int) -> None:
        self._end(event.cycle, self._track(event, TASKS, "tasks"))

    def op_start(self, event: _Event, index: int) -> None:
        facts = {"code word": event.data & 0xFFFF}
        line = self.trace.names.get("lines", {}).get(str(event.data & 0xFFFF))
        if line:
            facts["source"] = line
        if index in self.elements:
            facts["elements"] = self.elements[index]
        self._begin(event.cycle, self._thread(event), operation_name(self.trace.names, event.data >> 16), facts)

    def op_end(self, event: _Event, index: int) -> None:
        self._end(event.cycle, self._thread(event))

    def _thread(self, event: _Event) -> int:
        return self._track(event, THREADS + event.aux, "main" if event.aux == MAIN else f"ut{event.aux}")

    def _begin(self, cycle: int, track: int, name: str, facts: Facts) -> None:
        self.open[track] = self.open.get(track, 0) + 1
        self.writer.begin(cycle, track, name, facts)

    def _end(self, cycle: int, track: int) -> None:
        if self.open.get(track, 0) > 0:  # what began before the first event is not shown
            self.open[track] -= 1
            self.writer.end(cycle + 1, track)

    def wait(self, event: _Event, index: int) -> None:
        track = self._track(event, WAITING, "waits")
        facts = {"cycles": event.data}
        if event.color != NO_COLOR:
            facts |= {"color": event.color, "queue": event.flags >> 1 & 7}
        self.writer.begin(event.cycle - event.data, track, f"waits for {WAITS[event.aux]}", facts)
        self.writer.end(event.cycle, track)

    # --- instants of a PE ---------------------------------------------------------------------------------------------

    def activate(self, event: _Event, index: int) -> None:
        self._note(event, f"activate {task_name(self.trace.names, event.aux)}")

    def conflict(self, event: _Event, index: int) -> None:
        self._note(event, "bank conflicts", {"cycles": event.data})

    def switch(self, event: _Event, index: int) -> None:
        self._note(event, f"switch C{event.color} to {event.aux}")

    def teardown(self, event: _Event, index: int) -> None:
        self._note(event, f"teardown C{event.color} {'begins' if event.aux else 'ends'}")

    def _note(self, event: _Event, text: str, facts: Facts | None = None) -> None:
        self.writer.instant(event.cycle, self._track(event, TASKS, "tasks"), text, facts=facts)

    # --- program and host ---------------------------------------------------------------------------------------------

    def mark(self, event: _Event, index: int) -> None:
        phase = self.trace.marks[event.data]
        number = self.rows.index((phase.track, self.lane[event.data])) % MOST_PHASES + 1
        track = self.writer.track(PROGRAM, "program", number, phase.track)
        if phase.begin == phase.end:
            self.writer.instant(event.cycle, track, phase.label)
        else:
            self.writer.begin(event.cycle, track, phase.label)
            self.writer.end(phase.end, track)

    def host(self, event: _Event, index: int) -> None:
        what = HOST_ACCESSES[event.aux]
        track = self.writer.track(HOST, "host", event.aux + 1, what)
        self.writer.instant(event.cycle, track, what, facts={"x": event.x, "y": event.y, "count": event.data})

    # --- tracks -------------------------------------------------------------------------------------------------------

    def _track(self, event: _Event, number: int, name: str) -> int:
        return self._pe_track(event.x, event.y, number, name)

    def _pe_track(self, x: int, y: int, number: int, name: str, counter: bool = False) -> int:
        return self.writer.track(y * self.width + x + FIRST_PE, f"PE ({x}, {y})", number, name, counter)


def _elements(events: np.ndarray) -> dict[int, int]:
    """Return how many elements each operation did: index of its `op_start` -> elements; what did not end is missing."""
    running = {}  # (x, y, thread) -> index of the start
    found = {}
    start, end = KINDS.index("op_start"), KINDS.index("op_end")
    chosen = np.flatnonzero((events["kind"] == start) | (events["kind"] == end))
    columns = [events[name][chosen].tolist() for name in ("x", "y", "aux", "kind", "data")]
    for index, x, y, thread, kind, data in zip(chosen.tolist(), *columns, strict=True):
        if kind == start:
            running[x, y, thread] = index
        elif (x, y, thread) in running:
            found[running.pop((x, y, thread))] = data
    return found


def write_perfetto(trace: Trace, events: np.ndarray, stream: BinaryIO) -> None:
    """Write a Perfetto trace of the events."""
    _Picture(trace, events, TrackEventWriter(stream)).draw()
