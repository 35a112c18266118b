"""Measuring on a machine that is never quiet: yardsticks, interleaved pairs, memory in a fresh process.

Times depend on the host and on its other users.  Three habits make them comparable: a *yardstick* (a chain of
dependent multiplications in a register) is timed around every sample, so that a test can assert a ratio; two workloads
are compared in interleaved pairs, and the median of the ratios counts; a rate is the best of several samples, beside
which the median is told.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from fabric.host.resident import resident_bytes

__all__ = ["Rate", "build_seconds", "idle_cost", "pairs", "rate", "resident", "run_child", "traced", "yardstick"]

ROOT = Path(__file__).resolve().parent.parent.parent
FACTORS = np.ones(1 << 12)


def yardstick(repeats=40):
    """Return the best time of half a dependent float64 multiplication [ns]: one and a half or two cycles of the host.

    A product of floats may not be reordered, so no compiler breaks the chain, and it stays in a register: processors
    differ in whether a sum that goes through memory waits for the store.
    """
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        np.multiply.reduce(FACTORS)
        best = min(best, time.perf_counter() - begin)
    return best / len(FACTORS) * 1e9 / 2


def run_child(command, directory, tree, **variables):
    """Run a command in a directory with the modules of a tree; return how it ended and its CPU time [s]."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"PYTHONPATH": str(tree)} | variables
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Rate:
    """Samples of one workload with the yardstick of each.

    Attributes
    ----------
    samples : list of Sample
    yardsticks : list of float
        [ns], the mean of before and after each sample.
    """

    def __init__(self):
        self.samples, self.yardsticks = [], []

    def add(self, workload, warm=0):
        """Run once more."""
        before = yardstick()
        self.samples.append(workload.run(warm))
        self.yardsticks.append((before + yardstick()) / 2)
        return self.samples[-1]

    def best(self, unit):
        """Return the best rate [1/s]."""
        return max(sample.per_second(unit) for sample in self.samples)

    def median(self, unit):
        """Return the median rate [1/s]."""
        return statistics.median(sample.per_second(unit) for sample in self.samples)

    def ratio(self, unit):
        """Return the smallest cost of one unit of work in yardsticks."""
        return min(sample.nanoseconds(unit) / yard for sample, yard in zip(self.samples, self.yardsticks, strict=True))


def rate(workload, rounds=5, warm=0):
    """Return the `Rate` of a workload over some rounds."""
    result = Rate()
    for _ in range(rounds):
        result.add(workload, warm)
    return result


def pairs(first, second, rounds=5):
    """Call two functions that return seconds in turn; return the median of second / first and all of both."""
    seconds = [(first(), second()) for _ in range(rounds)]
    return statistics.median(b / a for a, b in seconds), seconds


def idle_cost(many, alone, n_idle, rounds=3, warm=0):
    """Return the host time of one idle PE in one cycle [ns], and the ratio many / alone.

    `many` holds the PEs of `alone`, busy in the same way, and `n_idle` more.
    """
    cycles = 1

    def timed(workload):
        nonlocal cycles
        sample = workload.run(warm)
        cycles = sample.cycles
        return sample.seconds

    ratio, seconds = pairs(lambda: timed(alone), lambda: timed(many), rounds)
    extra = statistics.median(b - a for a, b in seconds)
    return max(0.0, extra) / n_idle / cycles * 1e9, ratio


def traced(workload, path, window, rounds=3):
    """Compare a run in windows with the same run that writes all counters of each window to a run file.

    Returns
    -------
    float, int, int
        Median of traced / untraced, windows, bytes of the file.
    """
    from traces.run_format import RunMeta
    from traces.writer import RunWriter

    windows = 0

    def run(writer):
        nonlocal windows
        engine = workload.engine()
        begin = time.perf_counter()
        status, captured, before = "limit", {}, {}
        while status == "limit" and engine.cycle < workload.limit:
            status = engine.run(min(engine.cycle + window, workload.limit))
            if writer:
                grants = {f"grants_color{c}": v for c, v in engine.link_counts().items()}
                counters = engine.counters() | grants
                for name, value in counters.items():
                    captured.setdefault(name, []).append(value - before.get(name, 0))
                before = counters
        for name, values in captured.items():
            writer.add_counter(name, np.stack(values).astype(np.uint32), "count", window_cycles=window)
            windows = len(values)
        seconds = time.perf_counter() - begin
        workload.finish(engine, status)
        return seconds

    def writing():
        with RunWriter(path, RunMeta(job=workload.name)) as writer:
            return run(writer)

    ratio, _ = pairs(lambda: run(None), writing, rounds)
    return ratio, windows, os.path.getsize(path)


def build_seconds(width, height):
    """Return host seconds to describe, check and build a fabric of equal code: (layout, engine)."""
    from fabric.engine.engine import Engine
    from tests.bench import workloads

    begin = time.perf_counter()
    spec = workloads.broadcast(width, height, 1).spec
    middle = time.perf_counter()
    engine = Engine(spec)
    end = time.perf_counter()
    assert engine.cycle == 0
    return middle - begin, end - middle


def _child(kind, width, height):
    """Measure in this process; the result is printed as JSON."""
    from tests.bench import workloads

    n = 32
    workloads.exchange(4, 4, 4).run()
    workloads.broadcast(4, 4, 4).run()
    start = resident_bytes()
    if kind == "idle":
        workload = workloads.broadcast(width, height, n, rows=1)
    elif kind == "streaming":
        workload = workloads.broadcast(width, height, n)
    else:
        workload = workloads.exchange(width, height, n)
    described = resident_bytes()
    engine = workload.engine()
    status = engine.run(workload.limit)
    end = resident_bytes()
    assert status == "complete"
    sram = (
        2
        * sum(
            int((workload.spec.program_index == k).sum()) * (p.footprint - p.code_words)
            for k, p in enumerate(workload.spec.programs)
        )
        if kind != "idle"
        else 0
    )
    n_pe = width * height
    return {"engine": (end - described - sram) / n_pe, "description": (described - start) / n_pe, "sram": sram / n_pe}


def resident(kind, width, height):
    """Return resident bytes per PE in a fresh process.

    Parameters
    ----------
    kind : {"idle", "streaming", "exchange"}
        One row of many at work, all rows streaming, all links at work.

    Returns
    -------
    dict
        ``engine`` (tables of the running machine without SRAM), ``description`` (layout and spec, which the host may
        drop), ``sram`` (subtracted from engine).
    """
    code = (
        f"import json; from tests.bench import measure; print(json.dumps(measure._child({kind!r}, {width}, {height})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"measuring memory failed:\n{done.stderr}")
    return json.loads(done.stdout)
