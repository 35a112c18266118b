"""Reads a Perfetto file as a viewer does: names that are stored once are put where events refer to them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["arguments", "read"]


def read(path):
    """Return the message of a file; every event and argument bears its name."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    message = Trace()
    message.ParseFromString(Path(path).read_bytes())
    events, arguments = {}, {}
    for packet in message.packet:
        for entry in packet.interned_data.event_names:
            assert entry.iid not in events
            events[entry.iid] = entry.name
        for entry in packet.interned_data.debug_annotation_names:
            arguments[entry.iid] = entry.name
        if packet.track_event.name_iid:
            packet.track_event.name = events[packet.track_event.name_iid]  # after the table that has it
        for note in packet.track_event.debug_annotations:
            note.name = arguments[note.name_iid]
    return message


def arguments(event):
    """Return the arguments of an event, name -> value."""
    return {
        note.name: note.string_value if note.HasField("string_value") else note.int_value
        for note in event.debug_annotations
    }
