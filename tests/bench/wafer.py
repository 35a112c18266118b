"""Rows of wafer size, and of whole commands: what a hop costs there against one on 64 x 64, and what is simulation.

Everything but the gain of threads is CPU time: a host is never quiet, and what else runs on it takes the clock, not the
CPU time.  A hop on a large fabric is compared with one on 64 x 64 in the same process and thread, which runs before and
after it.  A command runs in a process of its own, as a user's does, and is compared with its own simulation
(``run_cpu_seconds`` of its result).  Seconds of commands are those of this host, with the yardstick beside them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass, replace

from tests.bench import measure, workloads

__all__ = ["COMMANDS", "HOPS", "WAFER", "Command", "cost_of_hops", "cost_of_trains", "gain_of_threads", "run_command"]

WAFER = (757, 996)
SMALL = (64, 64)

HOPS = {
    "wafer_broadcast": (workloads.broadcast, 40),
    "wafer_chain": (workloads.chain_reduce, 16),
    "wafer_exchange": (workloads.exchange, 8),
}
"""Row -> workload, words of each stream: as many on both fabrics, since short streams have more of starts and ends."""

WHOLE = ["form=xy", f"width={WAFER[0]}", f"height={WAFER[1]}"]
COMMANDS = {
    "allreduce1": ["allreduce", *WHOLE, "n=1"],
    "allreduce256": ["allreduce", *WHOLE, "n=256"],
    "gemv16k": ["gemv", "p=720", "m=16384", "n=16384"],
    "gemv32k": ["gemv", "p=720", "m=32768", "n=32768"],
    "meshgemm64": ["gemm", "p=64", "m=256", "k=256", "n=256", "algorithm=meshgemm"],
    "gemv64": ["gemv", "p=64", "m=2048", "n=2048"],
    "gemm16": ["gemm", "p=16", "m=960", "k=960", "n=960"],
    "meshgemm": ["gemm", "p=16", "m=480", "k=480", "n=480", "algorithm=meshgemm"],
}
"""Name -> words behind ``wse kernel``."""


@dataclass(frozen=True)
class Command:
    """What a command took: CPU seconds of its process and of its simulation, most memory, the yardstick, its result."""

    cpu: float
    simulation: float
    bytes: int
    yardstick: float
    result: dict

    @property
    def ratio(self):
        """CPU of the command to CPU of its simulation."""
        return self.cpu / max(self.simulation, 1e-3)


def run_command(words):
    """Run ``wse kernel WORDS`` in a process of its own; return what it took.

    Raises
    ------
    RuntimeError
        It failed, or its result is wrong.
    """
    yard = measure.yardstick()
    command = [sys.executable, "-m", "harness", "kernel", *words, "--json"]
    done, cpu = measure.run_child(command, measure.ROOT, measure.ROOT)
    if done.returncode:
        raise RuntimeError(f"wse kernel {' '.join(words)} failed:\n{done.stderr[-2000:]}")
    result = json.loads(done.stdout)
    yard = (yard + measure.yardstick()) / 2
    return Command(cpu, result["run_cpu_seconds"], result["peak_rss_bytes"], yard, result)


def cpu_per_hop(workload):
    """Return the CPU time of one hop of a workload in one thread [ns], everything of its run checked."""
    engine = workload.engine()
    engine.arrange(None, 1)
    begin = time.process_time()
    status = engine.run(workload.limit)
    seconds = time.process_time() - begin
    workload.finish(engine, status)
    return seconds / workload.work["hops"] * 1e9


def gain_of_threads(make, size, words, rounds=3):
    """Compare the time of a run in one thread with that in two.

    Parameters
    ----------
    make, size, words, rounds
        As `cost_of_trains`.

    Returns
    -------
    ratio, seconds : float
        The fastest run in one thread over that in two, and its time.  Needs two cores with nothing else to do.
    """
    workload = make(*size, words)

    def timed(threads):
        engine = workload.engine()
        engine.arrange(None if threads == 1 else -(-size[1] // 8), threads)
        begin = time.perf_counter()
        status = engine.run(workload.limit)
        seconds = time.perf_counter() - begin
        workload.finish(engine, status)
        return seconds

    timed(2)  # the first run pays for memory that the host has not given yet
    one, two = (min(times) for times in zip(*((timed(1), timed(2)) for _ in range(rounds)), strict=True))
    return one / two, two


def cost_of_trains(make, size, words, rounds=3):
    """Compare hops of words that are moved as trains with the same hop by hop.

    Parameters
    ----------
    make : callable
        ``make(width, height, words)`` returns a `Workload`.
    size : (int, int)
    words : int
    rounds : int
        Each runs so many times, one after the other.

    Returns
    -------
    ratio, nanoseconds : float
        Medians: hop by hop over trains, and of a hop of trains.
    """
    hops = make(*size, words)
    trains = replace(hops, trains=True)
    costs = [(cpu_per_hop(trains), cpu_per_hop(hops)) for _ in range(rounds)]
    return statistics.median(hop / train for train, hop in costs), statistics.median(train for train, _ in costs)


def cost_of_hops(make, large, small, words, rounds=3, times=10):
    """Compare a hop on a large fabric with one on a small one.

    Parameters
    ----------
    make : callable
        ``make(width, height, words)`` returns a `Workload`.
    large, small : (int, int)
        Sizes.
    words : int
    rounds : int
        The large one runs so many times, the small one before and after each.
    times : int
        The small one each time so often, as it is short; the mean counts.

    Returns
    -------
    ratio, nanoseconds : float
        Medians: large over small, and of the large one.
    """
    big, little = make(*large, words), make(*small, words)
    cpu_per_hop(little)
    ratios, costs = [], []
    for _ in range(rounds):
        before = [cpu_per_hop(little) for _ in range(times)]
        cost = cpu_per_hop(big)
        after = [cpu_per_hop(little) for _ in range(times)]
        ratios.append(cost / statistics.mean(before + after))
        costs.append(cost)
    return statistics.median(ratios), statistics.median(costs)
