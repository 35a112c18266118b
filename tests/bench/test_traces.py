"""Benchmarks of recording and reading: rates go to the JSON file, ratios within the run are asserted.

Figures and what they must be: `python -m tests.bench.traces`, docs/trace-format.md.
"""

from __future__ import annotations

import pytest

from tests.bench import measure, traces, workloads
from traces.run_format import CHUNK
from wse_core import _build_info


@pytest.mark.skipif(_build_info.MODE != "release", reason="only the release build is to be fast")
def test_tracing_off_costs_nothing(benchmark, tmp_path):
    """Within 2 % of a build that has no tracing; pairs are repeated until noise allows that, or it is not so."""
    found = benchmark.pedantic(traces.off, (tmp_path,), rounds=1, iterations=1)
    benchmark.extra_info |= found
    assert max(found.values()) < 1.02


def test_counters_of_windows(benchmark, tmp_path):
    """Counters of every PE and link, read and written every 1,000 cycles: within 15 % of the run without."""
    ratio, windows = benchmark.pedantic(
        traces.windowed, (workloads.broadcast(64, 64, 8000), tmp_path / "w.h5", 1000), rounds=1, iterations=1
    )
    benchmark.extra_info |= {"ratio": ratio, "windows": windows}
    assert windows == 9
    assert ratio < 1.15


@pytest.mark.parametrize("make", [traces.exchange, traces.chain])
def test_full_events_to_disk(benchmark, make, tmp_path):
    """An event costs less than 600 dependent additions, simulation excluded: 5 M/s leave 700 on a quiet host."""
    before = measure.yardstick()
    found = benchmark.pedantic(traces.to_disk, (make, tmp_path / "e.h5"), rounds=1, iterations=1)
    yard = (before + measure.yardstick()) / 2
    benchmark.extra_info |= found | {"yardstick_ns": yard}
    assert found["nanoseconds"] / yard < 600


@pytest.fixture(scope="module")
def ten_million(tmp_path_factory):
    """A file of 10^7 events, and its cycles."""
    path = tmp_path_factory.mktemp("large") / "large.h5"
    return path, traces.synthetic(path, 10**7)


@pytest.mark.parametrize("counter", ["busy", "depart"])
def test_first_heat_map_of_a_large_trace(benchmark, ten_million, tmp_path, counter):
    """From the start of `wse view` to the picture; the bound is twice the two seconds asked for, for noise."""
    seconds = benchmark.pedantic(traces.first_picture, (ten_million[0], tmp_path, counter), rounds=3, iterations=1)
    benchmark.extra_info["seconds"] = seconds
    assert benchmark.stats.stats.min < 4


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_a_range_reads_its_share(benchmark, ten_million, share):
    """No more bytes than the range has, but for the chunks at its ends and what HDF5 knows of the file."""
    found = benchmark.pedantic(traces.share_read, (*ten_million, share), rounds=1, iterations=1)
    benchmark.extra_info["share"] = found
    assert found < share + 4 * CHUNK / 10**7 + 0.005
