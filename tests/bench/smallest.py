"""The smallest fabrics with an older engine against this one, in turn: ``python -m tests.bench.smallest COMMIT``.

What pays on a wafer, such as clocks of rows and sets of cells, must cost a PE or two nothing.  Each turn runs every
case in a process of each tree; the CPU time of the run alone counts, the least of several runs of a process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

from tests.bench.against import tree_of
from tests.bench.measure import ROOT, run_child
from tests.bench.table import replace_block

__all__ = ["CASES", "compare", "main", "nanoseconds", "render"]

CASES = {
    "events 1 x 1": "events(1, 1, 60_000)",
    "fmach of 256, 1 x 1": "vector_tiles(1, 1, 256, 24, repeat=28)",
    "fmach of 8, 1 x 1": "vector_tiles(1, 1, 8, 24, repeat=28)",
    "broadcast 2 x 1": "broadcast(2, 1, 6_000)",
    "broadcast 4 x 4": "broadcast(4, 4, 6_000)",
    "chain reduce 2 x 1": "chain_reduce(2, 1, 6_000)",
    "chain reduce 4 x 4": "chain_reduce(4, 4, 3_000)",
    "exchange 2 x 2": "exchange(2, 2, 1_500)",
    "exchange 4 x 4": "exchange(4, 4, 800)",
    "multicast 3 x 3": "multicast(3, 3, 800)",
}
"""Name -> what every version of `tests.bench.workloads` makes of it."""

CHILD = """
import json, sys, time
from tests.bench import workloads
found = {}
for name, made in json.loads(sys.argv[1]).items():
    workload, best = eval(made, vars(workloads)), float("inf")
    for _ in range(9):
        engine = workload.engine()
        begin = time.process_time()
        status = engine.run(workload.limit)
        best = min(best, time.process_time() - begin)
        workload.finish(engine, status)
    found[name] = 1e9 * best / next(iter(workload.work.values()))
print(json.dumps(found))
"""


def nanoseconds(tree, cases):
    """Return the CPU time of a unit of work of each case with the modules of a tree, name -> ns.

    Raises
    ------
    RuntimeError
        A case does not run there, or its results are wrong.
    """
    done, _ = run_child([sys.executable, "-c", CHILD, json.dumps(cases)], tree, tree)
    if done.returncode:
        raise RuntimeError(f"the smallest fabrics do not run in {tree}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def compare(old, cases, turns):
    """Return name -> (median ns with the old tree, with this one, median of the ratios new / old)."""
    found = [(nanoseconds(old, cases), nanoseconds(ROOT, cases)) for _ in range(turns)]
    return {
        name: (
            statistics.median(was[name] for was, _ in found),
            statistics.median(now[name] for _, now in found),
            statistics.median(now[name] / was[name] for was, now in found),
        )
        for name in cases
    }


def main(argv=None):
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.smallest", description=__doc__.partition("\n")[0])
    parser.add_argument("commit", help="the older tree: a commit, tag or branch")
    parser.add_argument("--turns", type=int, default=5, help="of old and new (default 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--write", metavar="FILE", help="put the table into this page")
    given = parser.parse_args(argv)
    if given.turns < 1:
        parser.error("--turns: one at least")
    try:
        found = compare(tree_of(given.commit), CASES, given.turns)
    except RuntimeError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    text = render(found)
    if given.write:
        replace_block(given.write, "smallest", text)
    print(json.dumps(found, indent=2) if given.json else text)


def render(found):
    """Return what `compare` found as a Markdown table."""
    lines = [f"| {name} | {was:.1f} | {now:.1f} | {ratio:.2f} |" for name, (was, now, ratio) in found.items()]
    return "\n".join(["| case | then [ns] | now [ns] | now / then |", "|---|---|---|---|", *lines])


if __name__ == "__main__":
    main()
