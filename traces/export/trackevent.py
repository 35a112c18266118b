"""Writer of Perfetto's TrackEvent format: processes and their tracks, slices, instants, counters and flows.

What a process, a track and a unit of time stand for is said by those who use it: `traces.export.perfetto` for events of
a machine, `harness.plan.perfetto` for schedules of many devices.  Tracks are described when they are first asked for;
everything else is kept until `TrackEventWriter.finish`, for slices may be told after what happened during them.

Source: the public description of TrackEvent by its makers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

__all__ = ["TrackEventWriter"]

Facts = Mapping[str, int | str]
"""`Facts` are what a viewer shows beside an event: arguments by name."""
SEQUENCE = 1
CLEARED, NEEDS = 1, 2
"""Flags of packets: tables of names begin anew; what refers to them."""


class TrackEventWriter:
    """A `TrackEventWriter` writes one trace to a binary stream.

    Parameters
    ----------
    stream : binary file
    tracks : int
        Most tracks of a process, one more than the largest number of one.

    Raises
    ------
    ImportError
        The package perfetto is not installed.
    """

    def __init__(self, stream: BinaryIO, tracks: int = 256):
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

        self.kinds, self.tracks = TrackEvent, tracks
        self._builder = StreamingTraceProtoBuilder(stream)
        self._known: set[int] = set()
        self._packets: list[tuple[int, Any]] = []
        self._names: dict[str, int] = {}  # of events -> number under which the file has it once
        self._fact_names: dict[str, int] = {}

    def process(self, number: int, title: str) -> int:
        """Return the identity of a process, described if it is new."""
        identity = number * self.tracks
        if identity not in self._known:
            self._known.add(identity)
            packet = self._builder.create_packet()
            packet.track_descriptor.uuid = identity
            packet.track_descriptor.process.pid = number
            packet.track_descriptor.process.process_name = title
            self._builder.write_packet(packet)
        return identity

    def track(self, process: int, title: str, number: int, name: str, counter: bool = False) -> int:
        """Return the identity of a track of a process, both described if they are new."""
        parent = self.process(process, title)
        identity = parent + number
        if identity not in self._known:
            self._known.add(identity)
            packet = self._builder.create_packet()
            packet.track_descriptor.uuid, packet.track_descriptor.parent_uuid = identity, parent
            packet.track_descriptor.name = name
            if counter:
                packet.track_descriptor.counter.SetInParent()
            self._builder.write_packet(packet)
        return identity

    def begin(self, time: int, track: int, name: str, facts: Facts | None = None) -> None:
        """Begin a slice; the next `end` of the track ends the one that began last."""
        self._put(time, track, self.kinds.TYPE_SLICE_BEGIN, name, facts)

    def end(self, time: int, track: int) -> None:
        """End the slice that began last on a track."""
        self._put(time, track, self.kinds.TYPE_SLICE_END)

    def instant(
        self, time: int, track: int, name: str, flow: int | None = None, last: bool = False, facts: Facts | None = None
    ) -> None:
        """Mark an instant; those of one `flow` are joined by arrows, up to its `last`."""
        event = self._put(time, track, self.kinds.TYPE_INSTANT, name, facts)
        if flow is not None:
            (event.terminating_flow_ids if last else event.flow_ids).append(flow)

    def count(self, time: int, track: int, value: int) -> None:
        """Say what a counter stands at; `track` was described as one."""
        self._put(time, track, self.kinds.TYPE_COUNTER).counter_value = value

    def finish(self) -> None:
        """Write what was told, in the order of time and, within an instant, of telling."""
        self._packets.sort(key=lambda entry: entry[0])
        tables = self._builder.create_packet()
        tables.trusted_packet_sequence_id, tables.sequence_flags = SEQUENCE, CLEARED
        for interned, numbers in (
            (tables.interned_data.event_names, self._names),
            (tables.interned_data.debug_annotation_names, self._fact_names),
        ):
            for name, number in numbers.items():
                entry = interned.add()
                entry.iid, entry.name = number, name
        for packet in (tables, *(packet for _, packet in self._packets)):
            self._builder.write_packet(packet)
        self._packets.clear()

    def _put(self, time: int, track: int, kind: int, name: str | None = None, facts: Facts | None = None) -> Any:
        """Add an event; return it for its details."""
        packet = self._builder.create_packet()
        packet.timestamp, packet.trusted_packet_sequence_id, packet.sequence_flags = time, SEQUENCE, NEEDS
        event = packet.track_event
        event.track_uuid, event.type = track, kind
        if name is not None:
            event.name_iid = self._names.setdefault(name, len(self._names) + 1)
        for key, value in (facts or {}).items():
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._fact_names.setdefault(key, len(self._fact_names) + 1)
            if isinstance(value, str):
                annotation.string_value = value
            else:
                annotation.int_value = value
        self._packets.append((time, packet))
        return event
