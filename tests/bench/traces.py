"""What recording costs and what reading costs: the figures of docs/trace-format.md.

    python -m tests.bench.traces [--quick] [--json]

Pairs are interleaved, and ratios are of the best times of both; rates are the best of several samples.  The time of the
process itself is what other users of the host do not change.  Bytes read are what this process asked the system for,
whoever asked.  "To disk" means that the run file has its name: events are reported, ordered, compressed, checksummed
and flushed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fabric.host.fabric import Fabric
from fabric.kernels.collectives.chain import chain_layout
from tests.bench import untraced, workloads
from tests.traces.browser import BROWSER, Browser
from traces.event_log import EventLog, recording
from traces.page.write import write_page
from traces.run_format import CHUNK, RunMeta
from traces.trace import Trace
from traces.windows import Windows
from traces.writer import RunWriter
from wse_core.events import EVENT_DTYPE, KINDS, LEVELS, TraceFilter
from wse_core.params import machine

__all__ = ["bytes_read", "first_picture", "off", "recorded", "synthetic", "to_disk", "windowed"]


def off(folder, rounds=7, most=8):
    """Compare the build with one that has no tracing; return {workload: time / time without}.

    Processes differ in where their memory lies, so up to `most` pairs of them are tried, until the best times of both
    are within a hundredth.
    """
    found = {}
    real, bare = untraced.ROOT, untraced.tree(folder)
    for name, *size in (("broadcast", 64, 64, 2000), ("exchange", 32, 32, 150), ("events", 32, 32, 500)):
        seconds = []
        for _ in range(most):
            runs = [untraced.seconds(path, name, *size) for path in (real, bare)]
            seconds += [[run() for run in runs] for _ in range(rounds)]
            for run in runs:
                run(end=True)
            if len(seconds) > rounds and abs(best_ratio(seconds) - 1) < 0.01:
                break
        found[name] = best_ratio(seconds)
    return found


def best_ratio(seconds):
    """Return the ratio of the best times, first / second."""
    first, second = zip(*seconds, strict=True)
    return min(first) / min(second)


def windowed(workload, path, window, rounds=7):
    """Compare a run with the same one whose counters are read and written every `window` cycles.

    Returns
    -------
    float, int
        Ratio of the best times of this process; windows.
    """

    def once(cycles):
        fabric = Fabric(workload.spec, "compiled")
        workload.start(fabric.engine)
        begin = time.process_time()
        if cycles is None:
            fabric.run()
            return time.process_time() - begin
        windows = Windows(fabric, cycles)
        fabric.run()
        with RunWriter(path, RunMeta(job=workload.name)) as writer:
            windows.finish(writer)
        once.windows = len(next(iter(windows.values.values())))
        return time.process_time() - begin

    seconds = [(once(window), once(None)) for _ in range(rounds)]
    return best_ratio(seconds), once.windows


def exchange():
    """Return a machine with much traffic of payloads that are alike."""
    return workloads.exchange(64, 64, 100).engine()


def chain(pes=400, n=2000):
    """Return a machine with a chain of additions of random numbers: payloads that do not compress."""
    fabric = Fabric(chain_layout(pes, n, "f32", "f32", machine("wse2")), "compiled")
    fabric.write("x", np.random.default_rng(0).standard_normal((1, pes, n)).astype(np.float32))
    fabric.launch("main")
    return fabric.engine


def recorded(make, path, level="full"):
    """Run a machine and record it; return seconds, the same of this process alone, events, bytes of the file."""
    engine = make()
    begin, own = time.perf_counter(), time.process_time()
    with recording(engine, path, RunMeta(), TraceFilter(LEVELS[level])) as log:
        engine.run(1 << 40)
    with RunWriter(path, RunMeta()) as writer:
        log.finish(writer)
    log.remove()
    return time.perf_counter() - begin, time.process_time() - own, log.count, Path(path).stat().st_size


def to_disk(make, path, rounds=5, level="full"):
    """Record some times; return what it costs.

    Returns
    -------
    dict
        ``per_second``, the best rate of events to disk; ``own_per_second``, the same by the time of this process, which
        other users of the host and the disk do not change; ``nanoseconds`` of this process per event, simulation taken
        off; ``bytes`` per event.
    """
    samples, alone = [], []
    for _ in range(rounds):
        engine, begin = make(), time.process_time()
        engine.run(1 << 40)
        alone.append(time.process_time() - begin)
        samples.append(recorded(make, path, level))
    count, size = samples[0][2:]
    own = min(sample[1] for sample in samples)
    return {
        "per_second": count / min(sample[0] for sample in samples),
        "own_per_second": count / own,
        "nanoseconds": (own - min(alone)) / count * 1e9,
        "bytes": size / count,
    }


def synthetic(path, count, width=100, height=100, per_cycle=200):
    """Write a run file of `count` made-up events, `per_cycle` in a cycle, as a run would write it; return cycles."""
    rng = np.random.default_rng(1)
    log, cycle, block = EventLog(path, RunMeta(job="synthetic"), TraceFilter()), 0, 1 << 20
    for start in range(0, count, block):
        events = np.zeros(min(block, count - start), EVENT_DTYPE)
        events["cycle"] = cycle + np.arange(len(events)) // per_cycle
        cycle = int(events["cycle"][-1]) + 1
        for name, high in (("x", width), ("y", height), ("color", 24), ("aux", 32), ("data", 1 << 32)):
            events[name] = rng.integers(0, high, len(events))
        events["kind"] = rng.choice([KINDS.index(kind) for kind in ("inject", "depart", "depart", "take")], len(events))
        log.append(events, cycle)
    with RunWriter(path, RunMeta(job="synthetic")) as writer:
        writer.add_counter("busy", rng.integers(0, 1 << 20, (1, height, width)), "cycles")
        log.finish(writer)
    log.remove()
    return cycle


def bytes_read(work):
    """Return how many bytes this process read from files while ``work()`` ran, and what it returned."""

    def so_far():
        return int(Path("/proc/self/io").read_text().split()[1])

    so_far()
    before = so_far()
    own = so_far() - before
    before = so_far()
    result = work()
    return so_far() - before - own, result


def first_picture(path, folder, counter="busy"):
    """Return the seconds that ``wse view`` takes from its start to a heat map on disk."""
    begin = time.perf_counter()
    words = ["view", str(path), "--figure", "heat", "--counter", counter, "--out", str(folder), "--json"]
    subprocess.run([sys.executable, "-m", "harness", *words], check=True, capture_output=True, cwd=untraced.ROOT)
    return time.perf_counter() - begin


def share_read(path, cycles, share):
    """Return the share of a file's bytes that a read of `share` of its cycles takes."""
    span = max(1, int(cycles * share))
    with Trace.open(path) as trace:
        count, events = bytes_read(lambda: trace.events(cycles=(cycles // 2, cycles // 2 + span)))
    assert len(events) > 0
    return count / Path(path).stat().st_size


def opened(path, folder, rounds=3):
    """Return the seconds until a headless browser has opened the page of a run, moved in it and drawn that."""
    with Trace.open(path) as trace:
        write_page(Path(folder) / "page.html", trace)
        last = trace.clock - 1
    seconds = []
    with Browser(Path(folder) / "profile") as browser:
        for _ in range(rounds):
            begin = time.perf_counter()
            browser.open((Path(folder) / "page.html").as_uri())
            browser.ask("Input.dispatchKeyEvent", type="keyDown", key="End")
            browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            assert int(browser.run("document.getElementById('cycle').value")) == last
            seconds.append(time.perf_counter() - begin)
        assert browser.errors == []
    return min(seconds)


def measured(quick=False):
    """Yield (what, value, unit, must) of everything."""
    rounds, count = (2, 10**6) if quick else (7, 10**7)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name, ratio in off(folder / "bare", rounds).items():
            yield f"tracing off against a build without it, {name}", ratio, "times", "<= 1.02"
        for window in (1000, 100):
            ratio, windows = windowed(workloads.broadcast(64, 64, 8000), folder / "w.h5", window, rounds)
            yield (
                f"counters of {windows} windows of {window:,} cycles, broadcast 64 x 64",
                ratio,
                "times",
                "<= 1.15" if window == 1000 else "",
            )
        for make, what in ((exchange, "payloads alike"), (chain, "random payloads")):
            found = to_disk(make, folder / "e.h5", rounds)
            yield f"full events to disk, simulation included, {what}", found["per_second"] / 1e6, "M events/s", ">= 5"
            yield "- by the time of the process alone", found["own_per_second"] / 1e6, "M events/s", ">= 5"
            yield "- simulation taken off", found["nanoseconds"], "ns per event", ""
            yield "- file", found["bytes"], "bytes per event", ""
        cycles = synthetic(folder / "s.h5", count)
        for counter in ("busy", "depart"):
            seconds = min(first_picture(folder / "s.h5", folder, counter) for _ in range(min(3, rounds)))
            what = "of a counter" if counter == "busy" else "counted from the events"
            yield f"{count:,} events: start to first heat map, {what}", seconds, "s", "<= 2"
        for share in (0.01, 0.1):
            yield (
                f"range of {100 * share:.0f} % of the cycles: share of the file that is read",
                100 * share_read(folder / "s.h5", cycles, share),
                "%",
                "",
            )
        if BROWSER:
            events = recorded(lambda: chain(200, 1400), folder / "p.h5")[2]
            yield f"{events:,} events on a page: opened and at its end", opened(folder / "p.h5", folder), "s", "<= 2"
        with Trace.open(folder / "s.h5") as trace:
            size = 4 * CHUNK / trace.committed
        yield "- at most four chunks more", 100 * size, "%", ""


def main(argv=None):
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.traces", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer, shorter samples")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args(argv)
    rows = list(measured(args.quick))
    if args.json:
        print(json.dumps([dict(zip(("what", "value", "unit", "must"), row, strict=True)) for row in rows], indent=1))
        return 0
    print("| figure | measured | must |\n|---|---|---|")
    for what, value, unit, must in rows:
        print(f"| {what} | {value:.3g} {unit} | {must} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
