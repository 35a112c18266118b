"""Instructions and cache lines per unit of work, counted by valgrind: a yardstick without noise.

    python -m tests.bench.instructions [NAME ...] [--json] [--write docs/performance.md]

Each workload runs in two lengths, each in a process of its own under callgrind; the difference of the two counts,
divided by the difference of the work, leaves start and end out.  Counting is about fifty times slower than running, so
sizes are small; a count does not depend on other users of the machine.  valgrind knows AVX2 and no AVX-512, so the
kernels for long vectors are those of AVX2.  ``--write`` puts the table between the lines
``<!-- begin instructions -->`` and ``<!-- end instructions -->`` of a file.

For `LINES` the cache simulation of callgrind counts too what a hop touches: misses of a first-level cache of `CACHE`
bytes, on a fabric whose tables are a hundred times as large.  Such a cache holds what the visit to one PE needs, and
nothing of the last visit to it, which is as long ago as all other PEs take: each miss is a line that a visit touches.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench import workloads
from tests.bench.table import replace_block
from tests.bench.weights import gradients, weights

__all__ = ["CASES", "LINES", "count", "main", "misses", "render", "total"]

ROOT = Path(__file__).resolve().parent.parent.parent

CASES = {
    "broadcast": (lambda n: workloads.broadcast(32, 16, n), "hops", (100, 400)),
    "chain_reduce": (lambda n: workloads.chain_reduce(32, 16, n), "hops", (100, 400)),
    "exchange": (lambda n: workloads.exchange(16, 16, n), "hops", (50, 200)),
    "multicast": (lambda n: workloads.multicast(16, 16, n), "hops", (50, 200)),
    "fmach": (lambda n: workloads.vector_tiles(16, 16, 256, n), "steps", (8, 40)),
    "fmachs": (lambda n: workloads.vector_tiles(8, 8, 256, n, "fmachs"), "steps", (8, 40)),
    "events": (lambda n: workloads.events(32, 32, n), "tasks", (100, 400)),
    "weights": (lambda n: weights(8, 8, n), "tasks", (100, 400)),
    "gradients": (lambda n: gradients(8, 8, n), "sent", (100, 400)),
}
"""Name -> function of a length, unit of work, the two lengths."""


LINES = {
    "broadcast": (lambda n: workloads.broadcast(32, 32, n), "hops", (60, 160)),
    "chain_reduce": (lambda n: workloads.chain_reduce(32, 32, n), "hops", (250, 350)),
    "exchange": (lambda n: workloads.exchange(32, 32, n), "hops", (10, 40)),
}
"""The same for cases whose cache lines are counted; all PEs are at work in what the longer one does more."""

CACHE = 8192
"""Bytes of the first-level cache that is simulated, in lines of 64 bytes, 8 of a set."""


def misses(text):
    """Return the number of first-level data misses that callgrind reports."""
    found = re.search(r"D1\s+misses:\s+([\d,]+)", text)
    if found is None:
        raise RuntimeError(f"valgrind did not say how many data misses there were:\n{text[-2000:]}")
    return int(found[1].replace(",", ""))


def total(text):
    """Return the number of instructions that callgrind reports."""
    found = re.search(r"Collected : (\d+)", text)
    if found is None:
        raise RuntimeError(f"valgrind did not say how many instructions ran:\n{text[-2000:]}")
    return int(found[1])


def run_case(name, n, lines=False):
    """Run a case of length `n`, results checked; called in a process that callgrind watches.  Return the work done."""
    make, unit, _ = (LINES if lines else CASES)[name]
    workload = make(n)
    engine = workload.engine()
    engine.arrange(threads=1)  # valgrind runs one thread at a time, and one that waits for another counts as work
    workload.finish(engine, engine.run(workload.limit))
    return workload.done(engine)[unit]


def count(name, lines=False):
    """Return instructions per unit of work of a case, or cache lines.

    Raises
    ------
    RuntimeError
        valgrind is not there, or failed.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise RuntimeError("valgrind is not installed; it comes as the package `valgrind` of Linux distributions")
    make, unit, lengths = (LINES if lines else CASES)[name]
    run_case(name, lengths[0], lines)  # leaves compiled Python files behind, so that both counts find them
    caches = ["--cache-sim=yes", f"--D1={CACHE},8,64"] if lines else []
    counts = []
    for n in lengths:
        code = f"from tests.bench import instructions; instructions.run_case({name!r}, {n}, {lines})"
        done = subprocess.run(
            [valgrind, "--tool=callgrind", *caches, f"--callgrind-out-file={os.devnull}", sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"valgrind failed on {name}:\n{done.stderr[-2000:]}")
        counts.append(misses(done.stderr) if lines else total(done.stderr))
    work = [make(n).work[unit] for n in lengths]
    return (counts[1] - counts[0]) / (work[1] - work[0])


def render(results, lines=()):
    """Return counts by case as a Markdown table; `lines`: cache lines by case."""
    found = {name: f"{value:.1f}" for name, value in dict(lines).items()}
    rows = [
        f"| {name} | {CASES[name][1].rstrip('s')} | {number:,.0f} | {found.get(name, '-')} |"
        for name, number in results.items()
    ]
    return "\n".join(["| case | per | instructions | cache lines |", "|---|---|---|---|", *rows])


def main(argv=None):
    """Count the cases named (default: all) and print one line each."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.instructions", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"cases: {', '.join(CASES)}; default all")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", metavar="FILE", help="put the table into this page")
    args = parser.parse_args(argv)
    unknown = set(args.names) - set(CASES)
    if unknown:
        parser.error(f"unknown case {sorted(unknown)[0]!r}; cases: {', '.join(CASES)}")
    results, lines = {}, {}
    try:
        for name in args.names or CASES:
            results[name] = count(name)
            if name in LINES:
                lines[name] = count(name, lines=True)
            if not args.json:
                beside = f", {lines[name]:.1f} cache lines" if name in lines else ""
                print(
                    f"{name:<14} {results[name]:8.1f} instructions{beside} per {CASES[name][1].rstrip('s')}", flush=True
                )
    except RuntimeError as error:
        print(f"instructions: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps({"instructions": results, "cache_lines": lines}))
    if args.write:
        replace_block(args.write, "instructions", render(results, lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
