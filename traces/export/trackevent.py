"""Writer of Perfetto's TrackEvent format: processes and their tracks, slices, instants, counters and flows.

What a process, a track and a unit of time stand for is said by those who use it: `traces.export.perfetto` for events of
a machine, `harness.plan.perfetto` for schedules of many devices.  Tracks are described when they are first asked for;
everything else is kept until `TrackEventWriter.finish`, for slices may be told after what happened during them.

Source: the public description of TrackEvent by its makers.
"""

from __future__ import annotations

from typing import Any, BinaryIO

__all__ = ["TrackEventWriter"]


class TrackEventWriter:
    """Write one trace to a binary stream.

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

    def begin(self, time: int, track: int, name: str) -> None:
        """Begin a slice; the next `end` of the track ends the one that began last."""
        self._put(time, track, self.kinds.TYPE_SLICE_BEGIN).name = name

    def end(self, time: int, track: int) -> None:
        """End a slice."""
        self._put(time, track, self.kinds.TYPE_SLICE_END)

    def instant(self, time: int, track: int, name: str, flow: int | None = None, last: bool = False) -> None:
        """Mark an instant; those of one `flow` are joined by arrows, up to its `last`."""
        event = self._put(time, track, self.kinds.TYPE_INSTANT)
        event.name = name
        if flow is not None:
            (event.terminating_flow_ids if last else event.flow_ids).append(flow)

    def count(self, time: int, track: int, value: int) -> None:
        """Say what a counter stands at; `track` was described as one."""
        self._put(time, track, self.kinds.TYPE_COUNTER).counter_value = value

    def finish(self) -> None:
        """Write what was told, in the order of time and, within an instant, of telling."""
        self._packets.sort(key=lambda entry: entry[0])
        for _, packet in self._packets:
            self._builder.write_packet(packet)
        self._packets.clear()

    def _put(self, time: int, track: int, kind: int) -> Any:
        """Add an event; return it for its details."""
        packet = self._builder.create_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = time, 1
        packet.track_event.track_uuid, packet.track_event.type = track, kind
        self._packets.append((time, packet))
        return packet.track_event
