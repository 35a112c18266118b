"""Instructions per unit of work, counted by valgrind: a yardstick without noise.

    python -m tests.bench.instructions [NAME ...] [--json] [--write docs/performance.md]

Each workload runs in two lengths, each in a process of its own under callgrind; the difference of the two counts,
divided by the difference of the work, leaves start and end out.  Counting is about fifty times slower than running, so
sizes are small; a count does not depend on other users of the machine.  valgrind knows AVX2 and no AVX-512, so the
kernels for long vectors are those of AVX2.  ``--write`` puts the table between the lines
``<!-- begin instructions -->`` and ``<!-- end instructions -->`` of a file.
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

__all__ = ["CASES", "count", "main", "render", "total"]

ROOT = Path(__file__).resolve().parent.parent.parent

CASES = {
    "broadcast": (lambda n: workloads.broadcast(32, 16, n), "hops", (100, 400)),
    "chain_reduce": (lambda n: workloads.chain_reduce(32, 16, n), "hops", (100, 400)),
    "exchange": (lambda n: workloads.exchange(16, 16, n), "hops", (50, 200)),
    "multicast": (lambda n: workloads.multicast(16, 16, n), "hops", (50, 200)),
    "fmach": (lambda n: workloads.vector_tiles(16, 16, 256, n), "steps", (8, 40)),
    "fmachs": (lambda n: workloads.vector_tiles(8, 8, 256, n, "fmachs"), "steps", (8, 40)),
    "events": (lambda n: workloads.events(32, 32, n), "tasks", (100, 400)),
}
"""Name -> function of a length, unit of work, the two lengths."""


def total(text):
    """Return the number of instructions that callgrind reports."""
    found = re.search(r"Collected : (\d+)", text)
    if found is None:
        raise RuntimeError(f"valgrind did not say how many instructions ran:\n{text[-2000:]}")
    return int(found[1])


def run_case(name, n):
    """Run a case of length `n`, results checked; called in a process that callgrind watches.  Return the work done."""
    make, unit, _ = CASES[name]
    workload = make(n)
    engine = workload.engine()
    workload.finish(engine, engine.run(workload.limit))
    return workload.done(engine)[unit]


def count(name):
    """Return instructions per unit of work of a case.

    Raises
    ------
    RuntimeError
        valgrind is not there, or failed.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise RuntimeError("valgrind is not installed; it comes as the package `valgrind` of Linux distributions")
    make, unit, lengths = CASES[name]
    run_case(name, lengths[0])  # leaves compiled Python files behind, so that both counts find them
    counts = []
    for n in lengths:
        code = f"from tests.bench import instructions; instructions.run_case({name!r}, {n})"
        done = subprocess.run(
            [valgrind, "--tool=callgrind", f"--callgrind-out-file={os.devnull}", sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"valgrind failed on {name}:\n{done.stderr[-2000:]}")
        counts.append(total(done.stderr))
    work = [make(n).work[unit] for n in lengths]
    return (counts[1] - counts[0]) / (work[1] - work[0])


def render(results):
    """Return counts by case as a Markdown table."""
    rows = [f"| {name} | {CASES[name][1].rstrip('s')} | {number:,.0f} |" for name, number in results.items()]
    return "\n".join(["| case | instructions per | count |", "|---|---|---|", *rows])


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
    results = {}
    try:
        for name in args.names or CASES:
            results[name] = count(name)
            if not args.json:
                print(f"{name:<14} {results[name]:8.1f} instructions per {CASES[name][1].rstrip('s')}", flush=True)
    except RuntimeError as error:
        print(f"instructions: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(results))
    if args.write:
        replace_block(args.write, "instructions", render(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
