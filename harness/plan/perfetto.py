"""Timelines of schedules are written for the Perfetto viewer: a process per device, a track for compute and one for
network.

One unit of time is written as a millisecond.
"""

from __future__ import annotations

import os

from harness.plan.schedules import ScheduleTimeline
from traces.atomic import atomic_file
from traces.export.trackevent import TrackEventWriter
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


def write_timeline(timeline: ScheduleTimeline, path: str | os.PathLike[str]) -> None:
    """Write the steps of a timeline; buffers and sends are left out, for they overlap each other.

    Raises
    ------
    UnsupportedError
        The package of the format is not installed.
    """
    device_tracks = {}
    events: list[tuple[float, int, int, str]] = []
    with atomic_file(path) as stream:
        try:
            writer = TrackEventWriter(stream, tracks=16)
        except ImportError:
            raise UnsupportedError(
                "timelines are written with the package perfetto, which is not installed",
                hint="pip install 'wse-sim[perfetto]'",
            ) from None
        for device in range(timeline.schedule.devices):
            for number, name in enumerate(("compute", "network"), 1):
                device_tracks[device, name] = writer.track(device + 1, f"device {device}", number, name)
        for span in timeline.of(*TRACKS):
            track = device_tracks[span.device, TRACKS[span.kind]]
            name = f"{span.kind} layer {span.layer}" + (f" micro-batch {span.micro}" if span.micro >= 0 else "")
            events += [(span.start, 1, track, name), (span.end, 0, track, "")]
        for time, begins, track, name in sorted(events, key=lambda event: event[:2]):  # ends before beginnings
            if begins:
                writer.begin(round(time * UNIT), track, name)
            else:
                writer.end(round(time * UNIT), track)
        writer.finish()
