"""A large trace is opened and looked at without reading it: bytes are counted, not seconds.

Seconds, for 10^7 events, are those of `python -m tests.bench.traces`.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench import traces, untraced, workloads
from tests.bench.traces import bytes_read, synthetic
from traces.heatmap import plane, write_heatmap
from traces.run_format import CHUNK
from traces.trace import Trace

COUNT = 2 * 10**6
OVERHEAD = 40_000
"""Bytes that HDF5 reads of its own structures."""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "large.h5"
    return path, synthetic(path, COUNT), path.stat().st_size


def test_the_first_heat_map_reads_its_counter_alone(large, tmp_path):
    path, _, size = large

    def look():
        with Trace.open(path) as trace:
            return trace.files[0].counter("busy")

    count, counter = bytes_read(look)
    assert 0 < count < counter.values.nbytes + OVERHEAD < size / 10
    png, table = write_heatmap(tmp_path / "busy.png", plane(counter.values), "busy", counter.unit)
    assert png.stat().st_size > 1000
    assert len(table.read_text().splitlines()) == 102


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
def test_a_range_reads_its_share_of_the_file(large, share):
    path, cycles, size = large
    span = int(cycles * share)
    with Trace.open(path) as trace:
        count, events = bytes_read(lambda: trace.events(cycles=(cycles // 3, cycles // 3 + span)))
    assert len(events) == pytest.approx(share * COUNT, rel=0.02)
    assert share * size * 0.8 < count < (share + 3 * CHUNK / COUNT) * size + OVERHEAD


def test_columns_that_are_not_asked_for_are_not_read(large):
    path, _, size = large
    with Trace.open(path) as trace:
        count, events = bytes_read(lambda: trace.events(kinds=("depart",), columns=("x", "y")))
        everything, _ = bytes_read(trace.events)
    assert 0.4 < len(events) / COUNT < 0.6
    assert count < size / 2 < everything
    assert np.bincount(events["x"]).size == 100


def test_measuring(tmp_path):
    """The code of the benchmarks runs, on small things, and gives plausible numbers."""
    ratio, windows = traces.windowed(workloads.broadcast(4, 2, 100), tmp_path / "w.h5", 20, rounds=1)
    assert ratio > 0
    assert windows == 7
    found = traces.to_disk(lambda: workloads.exchange(5, 4, 12).engine(), tmp_path / "e.h5", rounds=1)
    assert min(found.values()) > 0
    assert set(found) == {"per_second", "own_per_second", "nanoseconds", "bytes"}
    assert untraced.without_tracing("  if TRACE:\n    if unlikely(s.watch != NULL):") == "  if 0:\n    if 0:"
