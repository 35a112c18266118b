"""The benchmarks of `make bench`: each run is checked, rates go to the JSON file, ratios within the run are asserted.

A bound in yardsticks is about three times what a quiet host shows: it catches an engine that became much slower, not
noise.  The targets themselves are compared in docs/performance.md (`python -m tests.bench.table`).
"""

from __future__ import annotations

import shutil
import statistics

import pytest

from tests.bench import instructions, measure, table, workloads

# name -> workload, warm-up cycles, unit of work, most yardsticks per unit
SPEED = {
    "broadcast 64x64": (lambda: workloads.broadcast(64, 64, 1000), 100, "hops", 170),
    "broadcast 128x128": (lambda: workloads.broadcast(128, 128, 600), 150, "hops", 170),
    "chain reduce 64x64": (lambda: workloads.chain_reduce(64, 64, 1000), 400, "hops", 200),
    "chain reduce 128x128": (lambda: workloads.chain_reduce(128, 128, 1000), 800, "hops", 200),
    "exchange 64x64": (lambda: workloads.exchange(64, 64, 100), 100, "hops", 2000),
    "multicast 64x64": (lambda: workloads.multicast(64, 64, 100), 100, "hops", 2500),
    "fmach 32x32": (lambda: workloads.vector_tiles(32, 32, 256, 24, repeat=4), 0, "steps", 25),
    "fmachs 32x32": (lambda: workloads.vector_tiles(32, 32, 256, 24, "fmachs", repeat=4), 0, "steps", 200),
    "fmacs 32x32": (lambda: workloads.vector_tiles(32, 32, 256, 24, "fmacs", repeat=4), 0, "steps", 12),
    "events 32x32": (lambda: workloads.events(32, 32, 2000), 0, "tasks", 400),
}


def bench(benchmark, workload, warm=0, rounds=3):
    """Run a workload under pytest-benchmark, which times run and checks; return the `Rate` of the runs alone."""
    rate = measure.Rate()
    benchmark.pedantic(rate.add, args=(workload, warm), rounds=rounds, iterations=1)
    benchmark.extra_info["yardstick_ns"] = statistics.median(rate.yardsticks)
    for unit in workload.work:
        benchmark.extra_info[f"{unit}_per_second"] = rate.best(unit)
        benchmark.extra_info[f"ns_per_{unit.rstrip('s')}"] = 1e9 / rate.best(unit)
        benchmark.extra_info[f"yardsticks_per_{unit.rstrip('s')}"] = rate.ratio(unit)
    return rate


@pytest.mark.parametrize("name", SPEED)
def test_speed(benchmark, name):
    """Cost of one unit of work, in yardsticks."""
    make, warm, unit, most = SPEED[name]
    assert bench(benchmark, make(), warm).ratio(unit) < most


def ratio_of_hops(benchmark, first, second):
    """Return the median ratio of the times per hop of two (workload, warm-up cycles), run in turn: second / first."""
    ratios = []

    def pair():
        a, b = (workload.run(warm) for workload, warm in (first, second))
        ratios.append(b.nanoseconds("hops") / a.nanoseconds("hops"))

    benchmark.pedantic(pair, rounds=5, iterations=1)
    benchmark.extra_info["ratio"] = statistics.median(ratios)
    return statistics.median(ratios)


def test_size_does_not_matter(benchmark):
    """A hop on 128 x 128 PEs costs less than twice one on 64 x 64: the tables leave the first caches, no more."""
    small, large = workloads.broadcast(64, 64, 1000), workloads.broadcast(128, 128, 600)
    assert ratio_of_hops(benchmark, (small, 100), (large, 150)) < 2


def test_idle_rows_cost_little(benchmark):
    """A row among 921 idle ones takes less than four times the row alone: 849,162 idle PEs against 922 busy ones."""
    many, alone = workloads.broadcast(922, 922, 3000, rows=1), workloads.broadcast(922, 1, 3000)
    cost, ratio = benchmark.pedantic(measure.idle_cost, (many, alone, 922 * 921, 3, 1000), rounds=1, iterations=1)
    benchmark.extra_info |= {"ns_per_idle_pe_cycle": cost, "ratio": ratio}
    assert ratio < 4


def test_idle_fabric_is_skipped(benchmark):
    """With one PE of 128 x 128 or 922 x 922 inside vector operations, an idle PE-cycle costs next to nothing."""
    few, many, alone = workloads.quiet(128, 128, 100), workloads.quiet(922, 922, 100), workloads.quiet(1, 1, 100)

    def both():
        return [measure.idle_cost(w, alone, w.spec.width * w.spec.height - 1, 3, 1000)[0] for w in (few, many)]

    costs = benchmark.pedantic(both, rounds=1, iterations=1)
    benchmark.extra_info |= {"ns_per_idle_pe_cycle_128": costs[0], "ns_per_idle_pe_cycle_922": costs[1]}
    assert max(costs) < 0.01


def test_active_row(benchmark):
    """One row of 128, and the same row 128 times: the whole costs less than twice its share per hop."""
    row, all_rows = workloads.broadcast(128, 1, 2000), workloads.broadcast(128, 128, 400)
    assert ratio_of_hops(benchmark, (row, 150), (all_rows, 150)) < 2


def test_traces(benchmark, tmp_path):
    """Counters of every PE and link written every 1,000 cycles cost less than the run itself."""
    workload = workloads.broadcast(64, 64, 6000)
    ratio, windows, size = benchmark.pedantic(
        measure.traced, (workload, tmp_path / "t.h5", 1000, 3), rounds=1, iterations=1
    )
    benchmark.extra_info |= {"ratio": ratio, "windows": windows, "bytes": size}
    assert windows == -(-workload.cycles // 1000)
    assert ratio < 2


def test_memory_of_idle_pes(benchmark):
    """An idle PE of a full wafer takes less than the 128 bytes of the target, code and routes included."""
    found = benchmark.pedantic(measure.resident, ("idle", 757, 996), rounds=1, iterations=1)
    benchmark.extra_info |= found
    assert found["engine"] < table.GOALS["bytes_idle"].must


@pytest.mark.parametrize("kind", ["streaming", "exchange"])
def test_memory_of_active_pes(benchmark, kind):
    """Resident bytes per working PE stay within the target, and a tenth for what the allocator does."""
    found = benchmark.pedantic(measure.resident, (kind, 128, 128), rounds=1, iterations=1)
    benchmark.extra_info |= found
    assert found["engine"] < 1.1 * table.GOALS[f"bytes_{kind}"].must


def test_building(benchmark):
    """A full wafer of equal code is described, checked and built within the target, doubled for noise."""
    seconds = benchmark.pedantic(lambda: sum(measure.build_seconds(757, 996)), rounds=3, iterations=1)
    benchmark.extra_info["seconds"] = seconds
    assert seconds < 2 * table.GOALS["build"].must


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
@pytest.mark.parametrize("name", ["broadcast", "exchange", "events", "weights", "gradients"])
def test_instructions(benchmark, name):
    """Instructions per hop, task start, streamed weight and streamed gradient of a PE, counted by valgrind."""
    found = benchmark.pedantic(instructions.count, (name,), rounds=1, iterations=1)
    benchmark.extra_info["instructions"] = found
    limits = {"broadcast": 250, "exchange": 490, "events": 550, "weights": 2400, "gradients": 2900}
    assert found < limits[name]
