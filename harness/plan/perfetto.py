"""Timelines of schedules for the Perfetto viewer: a process per device, a track for compute, network and each link.

One unit of time is written as a millisecond.
"""

from __future__ import annotations

import importlib

from traces.writer import atomic_file
from wse_core.errors import UnsupportedError

__all__ = ["write_timeline"]

UNIT = 1_000_000
TRACKS = {
    "forward": "compute",
    "recompute": "compute",
    "gradient": "compute",
    "restore": "network",
    "reduce": "network",
}


def write_timeline(timeline, path):
    """Write the steps of a timeline; buffers and sends are left out, for they overlap each other.

    Raises
    ------
    UnsupportedError
        The package of the format is not installed.
    """
    try:
        protos = importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
        builders = importlib.import_module("perfetto.trace_builder.proto_builder")
    except ImportError:
        raise UnsupportedError(
            "timelines are written with the package perfetto, which is not installed",
            hint="pip install 'wse-sim[perfetto]'",
        ) from None
    builder, packets = builders.TraceProtoBuilder(), []
    for device in range(timeline.schedule.devices):
        packet = builder.add_packet()
        packet.track_descriptor.uuid = 16 * (device + 1)
        packet.track_descriptor.process.pid = device + 1
        packet.track_descriptor.process.process_name = f"device {device}"
        for number, name in enumerate(("compute", "network"), 1):
            packet = builder.add_packet()
            packet.track_descriptor.uuid = 16 * (device + 1) + number
            packet.track_descriptor.parent_uuid = 16 * (device + 1)
            packet.track_descriptor.name = name
    for span in timeline.of(*TRACKS):
        track = 16 * (span.device + 1) + (1 if TRACKS[span.kind] == "compute" else 2)
        name = f"{span.kind} layer {span.layer}" + (f" micro-batch {span.micro}" if span.micro >= 0 else "")
        packets.append((span.start, 1, protos.TrackEvent.TYPE_SLICE_BEGIN, track, name))
        packets.append((span.end, 0, protos.TrackEvent.TYPE_SLICE_END, track, None))
    for time, _, kind, track, name in sorted(packets, key=lambda entry: entry[:2]):
        packet = builder.add_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = round(time * UNIT), 1
        packet.track_event.type, packet.track_event.track_uuid = kind, track
        if name is not None:
            packet.track_event.name = name
    with atomic_file(path) as stream:
        stream.write(builder.serialize())
