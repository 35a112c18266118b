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

Sources: docs/trace-format.md; the public description of the TrackEvent format by its makers.
"""

from __future__ import annotations

import numpy as np

from traces.marks import lanes
from traces.paths import identify
from traces.schema import LINKS
from wse_core.events import HOST as HOST_ACCESSES
from wse_core.events import KINDS, WAITS

__all__ = ["write_perfetto"]

STEP = 16
MAIN = 8
(
    INJECT,
    DEPART,
    TAKE,
    ACTIVATE,
    TASK_START,
    TASK_END,
    OP_START,
    OP_END,
    CONFLICT,
    WAIT,
    SWITCH,
    TEARDOWN,
    HOST,
    MARK,
) = (
    KINDS.index(kind)
    for kind in (
        "inject",
        "depart",
        "take",
        "activate",
        "task_start",
        "task_end",
        "op_start",
        "op_end",
        "conflict",
        "wait",
        "switch",
        "teardown",
        "host",
        "mark",
    )
)
ROUTER, TASKS, WAITING, THREADS, LINK = 1, 2, 3, 8, 32  # numbers of tracks within a PE; the last two begin a group


class _Tracks:
    """Write descriptions of tracks when they are first used.

    A process has a number and 255 tracks: the program is 1, the host 2, PEs follow in row-major order.
    """

    def __init__(self, builder, width):
        self.builder, self.width, self.known = builder, width, set()

    def of(self, x, y, number, name, counter=False):
        """Return the uuid of a track of PE (x, y), described if it is new."""
        return self.within(y * self.width + x + 3, f"PE ({x}, {y})", number, name, counter)

    def within(self, process, title, number, name, counter=False):
        """Return the uuid of a track of a process, described if it is new."""
        parent = process << 8
        if parent not in self.known:
            self.known.add(parent)
            packet = self.builder.create_packet()
            packet.track_descriptor.uuid = parent
            packet.track_descriptor.process.pid = process
            packet.track_descriptor.process.process_name = title
            self.builder.write_packet(packet)
        uuid = parent | number
        if uuid not in self.known:
            self.known.add(uuid)
            packet = self.builder.create_packet()
            packet.track_descriptor.uuid, packet.track_descriptor.parent_uuid = uuid, parent
            packet.track_descriptor.name = name
            if counter:
                packet.track_descriptor.counter.SetInParent()
            self.builder.write_packet(packet)
        return uuid


def write_perfetto(trace, events, stream):
    """Write a Perfetto trace of the events."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    builder = StreamingTraceProtoBuilder(stream)
    tracks = _Tracks(builder, int(events["x"].max(initial=0)) + 1)
    opcodes, tasks = trace.names.get("opcodes", {}), trace.names.get("tasks", {})
    numbers = identify(events)
    last = {}  # wavelet -> index of its last event: there its flow ends
    for index in np.flatnonzero(numbers >= 0):
        last[int(numbers[index])] = int(index)
    sent, shown, open_tracks = {}, {}, {}
    lane = lanes(trace.marks)
    rows = list(dict.fromkeys((mark.track, number) for mark, number in zip(trace.marks, lane, strict=True)))

    def put(cycle, track, kind, name=None, wavelet=None, index=None):
        packet = builder.create_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = cycle, 1
        event = packet.track_event
        event.track_uuid, event.type = track, kind
        if name is not None:
            event.name = name
        if wavelet is not None and wavelet >= 0:
            (event.terminating_flow_ids if last[wavelet] == index else event.flow_ids).append(wavelet + 1)
        return packet

    def count(cycle, link):
        x, y, direction = link
        track = tracks.of(x, y, LINK + direction, f"link {LINKS[direction]}", True)
        packet = put(cycle, track, TrackEvent.TYPE_COUNTER)
        packet.track_event.counter_value = sent[link]
        packets.append((cycle, packet))

    begin, end, instant = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_INSTANT
    packets = []  # slices that begin in the past must be sorted in
    columns = [events[name].tolist() for name in ("cycle", "x", "y", "kind", "color", "aux", "data")]
    for index, (cycle, x, y, kind, color, aux, data) in enumerate(zip(*columns, strict=True)):
        wavelet = int(numbers[index])
        if kind in (DEPART, INJECT, TAKE):
            word = {DEPART: "grant", INJECT: "inject", TAKE: "take"}[kind]
            track = tracks.of(x, y, ROUTER, "router")
            packets.append((cycle, put(cycle, track, instant, f"{word} C{color} {data:08x}", wavelet, index)))
            if kind == DEPART:
                for direction in range(5):
                    if aux >> direction & 1:
                        link = x, y, direction
                        sent[link] = sent.get(link, 0) + 1
                        if cycle >= shown.get(link, -STEP) + STEP:
                            shown[link] = cycle
                            count(cycle, link)
        elif kind in (TASK_START, OP_START):
            if kind == TASK_START:
                track, name = tracks.of(x, y, TASKS, "tasks"), tasks.get(str(aux), f"task {aux}")
            else:
                thread = "main" if aux == MAIN else f"ut{aux}"
                track, name = tracks.of(x, y, THREADS + aux, thread), opcodes.get(str(data >> 16), f"op {data >> 16}")
            open_tracks[track] = open_tracks.get(track, 0) + 1
            packets.append((cycle, put(cycle, track, begin, name)))
        elif kind in (TASK_END, OP_END):
            track = tracks.of(
                x,
                y,
                *((TASKS, "tasks") if kind == TASK_END else (THREADS + aux, "main" if aux == MAIN else f"ut{aux}")),
            )
            if open_tracks.get(track, 0) > 0:
                open_tracks[track] -= 1
                packets.append((cycle + 1, put(cycle + 1, track, end)))
        elif kind == WAIT:
            track = tracks.of(x, y, WAITING, "waits")
            packets.append((cycle - data, put(cycle - data, track, begin, f"waits for {WAITS[aux]}")))
            packets.append((cycle, put(cycle, track, end)))
        elif kind == MARK:
            phase = trace.marks[data]
            track = tracks.within(1, "program", rows.index((phase.track, lane[data])) % 255 + 1, phase.track)
            if phase.begin == phase.end:
                packets.append((cycle, put(cycle, track, instant, phase.label)))
            else:
                packets.append((cycle, put(cycle, track, begin, phase.label)))
                packets.append((phase.end, put(phase.end, track, end)))
        elif kind == HOST:
            packets.append(
                (
                    cycle,
                    put(
                        cycle,
                        tracks.within(2, "host", aux + 1, HOST_ACCESSES[aux]),
                        instant,
                        f"{HOST_ACCESSES[aux]} at PE ({x}, {y}): {data:,}",
                    ),
                )
            )
        elif kind in (ACTIVATE, CONFLICT, SWITCH, TEARDOWN):
            text = {
                ACTIVATE: f"activate {tasks.get(str(aux), aux)}",
                CONFLICT: f"bank conflicts: {data} cycles",
                SWITCH: f"switch C{color} to {aux}",
                TEARDOWN: f"teardown C{color} {'begins' if aux else 'ends'}",
            }[kind]
            packets.append((cycle, put(cycle, tracks.of(x, y, TASKS, "tasks"), instant, text)))
    for link in sent:
        count(int(events["cycle"][-1]), link)
    packets.sort(key=lambda item: item[0])
    for _, packet in packets:
        builder.write_packet(packet)
