"""The table of docs/performance.md: what must be reached, what is reached here and now.

    python -m tests.bench.table [--quick] [--json] [--write docs/performance.md]

Everything is measured in this one run; rates are the best of five samples, with the median in brackets; see
`tests.bench.measure`.  Takes two or three minutes; ``--quick`` takes fewer and shorter samples.  ``--write`` puts the
table between the lines ``<!-- begin measured -->`` and ``<!-- end measured -->`` of a file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench import measure, workloads
from tests.bench.products import product_workload

__all__ = ["GOALS", "Goal", "Row", "main", "measured", "render", "replace_block"]


@dataclass(frozen=True)
class Goal:
    """One metric and what it must reach; `at_least` says which side is good; `must` None = told, no goal."""

    key: str
    metric: str
    unit: str
    must: float | None
    at_least: bool = True

    def met(self, value):
        """Whether `value` reaches the goal; None if there is none."""
        if self.must is None:
            return None
        return value >= self.must if self.at_least else value <= self.must


@dataclass(frozen=True)
class Row:
    """A goal, the value found, and a remark (median, size)."""

    goal: Goal
    value: float
    remark: str


GOALS = {
    goal.key: goal
    for goal in (
        Goal("broadcast64", "row broadcast 64 x 64, streaming", "M hops/s", 50),
        Goal("broadcast128", "row broadcast 128 x 128, streaming", "M hops/s", 50),
        Goal("chain64", "row chain reduce 64 x 64, streaming", "M hops/s", 50),
        Goal("chain128", "row chain reduce 128 x 128, streaming", "M hops/s", 50),
        Goal("exchange64", "saturated exchange 64 x 64, a link per direction and color", "M hops/s", 25),
        Goal("multicast64", "the same with one multicast to all neighbours", "M hops/s", None),
        Goal("active64", "active PE-cycles, streaming (broadcast 64 x 64)", "M PE-cycles/s", 30),
        Goal("saturated64", "active PE-cycles, saturated (exchange 64 x 64)", "M PE-cycles/s", 15),
        Goal("fmach", "PE-cycles inside vector operations, f16 multiply-add of 256", "M PE-cycles/s", 300),
        Goal("fmachs", "the same, f16 with fp32 accumulation", "M PE-cycles/s", 300),
        Goal("fmacs", "the same, fp32", "M PE-cycles/s", 300),
        Goal("gmacs", "multiply-adds in such loops, f16, exact rounding", "GMAC/s", None),
        Goal("gmacs_s", "multiply-adds in such loops, f16 with fp32 accumulation", "GMAC/s", None),
        Goal("gemm", "matrix product by SUMMA on 16 x 16 PEs, f16, exact rounding, tiles 192 x 8 x 96", "GMAC/s", 1),
        Goal("gemm_cube", "the same, sums in fp32, tiles 60 x 60 x 60", "GMAC/s", None),
        Goal("task", "one task start (with activation and end)", "ns", 60, False),
        Goal("idle", "one idle PE-cycle, one row of 922 x 922 PEs streaming", "ns", 0.01, False),
        Goal("quiet", "one idle PE-cycle, one PE of 922 x 922 computing", "ns", 0.01, False),
        Goal("bytes_idle", "resident bytes per idle PE, 757 x 996, one row streaming", "bytes", 128, False),
        Goal("bytes_streaming", "resident bytes per active PE without SRAM, streaming", "bytes", 512, False),
        Goal("bytes_exchange", "the same, exchange: 8 colors, 8 queues, 8 microthreads", "bytes", 512, False),
        Goal("build", "describe, check and build 757 x 996 PEs of equal code", "s", 2, False),
        Goal("trace", "counters of every PE and link to HDF5, every 1,000 cycles, against none", "times", None, False),
        Goal("yardstick", "yardstick: one dependent addition in cache", "ns", None, False),
    )
}


def measured(quick=False, progress=lambda text: None):
    """Measure everything; yields a `Row` per goal.

    Parameters
    ----------
    quick : bool
        Fewer, shorter samples.
    progress : callable
        Told what comes next.
    """
    rounds, scale = (2, 4) if quick else (5, 1)
    cases = (
        (workloads.broadcast(64, 64, 2000 // scale), 100, (("broadcast64", "hops", 1e6), ("active64", "steps", 1e6))),
        (workloads.broadcast(128, 128, 1000 // scale), 150, (("broadcast128", "hops", 1e6),)),
        (workloads.chain_reduce(64, 64, 2000 // scale), 400, (("chain64", "hops", 1e6),)),
        (workloads.chain_reduce(128, 128, 1500 // scale), 800 // scale, (("chain128", "hops", 1e6),)),
        (workloads.exchange(64, 64, 200 // scale), 100, (("exchange64", "hops", 1e6), ("saturated64", "steps", 1e6))),
        (workloads.multicast(64, 64, 200 // scale), 100, (("multicast64", "hops", 1e6),)),
        (
            workloads.vector_tiles(32, 32, 256, 24, repeat=8 // scale),
            0,
            (("fmach", "steps", 1e6), ("gmacs", "macs", 1e9)),
        ),
        (
            workloads.vector_tiles(32, 32, 256, 24, "fmachs", repeat=8 // scale),
            0,
            (("fmachs", "steps", 1e6), ("gmacs_s", "macs", 1e9)),
        ),
        (workloads.vector_tiles(32, 32, 256, 24, "fmacs", repeat=8 // scale), 0, (("fmacs", "steps", 1e6),)),
        (product_workload("summa", 16, (192, 8, 96), "same"), 0, (("gemm", "macs", 1e9),)),
        (product_workload("summa", 16, (60, 60, 60)), 0, (("gemm_cube", "macs", 1e9),)),
        (workloads.events(32, 32, 4000 // scale), 0, (("task", "tasks", None),)),
    )
    for workload, warm, metrics in cases:
        progress(workload.name)
        rate = measure.rate(workload, rounds, warm)
        for key, unit, by in metrics:
            best, median = rate.best(unit), rate.median(unit)
            value, other = (best / by, median / by) if by else (1e9 / best, 1e9 / median)
            yield Row(GOALS[key], value, f"median {_number(other)}; {_number(rate.ratio(unit))} yardsticks each")
    progress("idle PEs")
    size, n = 922, 8000 // scale
    cost, ratio = measure.idle_cost(
        workloads.broadcast(size, size, n, rows=1), workloads.broadcast(size, 1, n), size * (size - 1), rounds, 1000
    )
    yield Row(GOALS["idle"], cost, f"{ratio:.2f} times the row alone")
    cost, ratio = measure.idle_cost(
        workloads.quiet(size, size, 200), workloads.quiet(1, 1, 200), size * size - 1, rounds, 1000
    )
    yield Row(GOALS["quiet"], cost, "time jumps from event to event")
    progress("memory")
    for key, kind, shape in (
        ("bytes_idle", "idle", (757, 996)),
        ("bytes_streaming", "streaming", (256, 256)),
        ("bytes_exchange", "exchange", (64, 64) if quick else (128, 128)),
    ):
        found = measure.resident(kind, *shape)
        yield Row(
            GOALS[key], found["engine"], f"{shape[0]} x {shape[1]}; layout and spec {found['description']:.0f} more"
        )
    progress("building")
    describing, building = min((measure.build_seconds(757, 996) for _ in range(rounds)), key=sum)
    yield Row(GOALS["build"], describing + building, f"layout {describing:.3f}, engine {building:.3f}")
    progress("traces")
    with tempfile.TemporaryDirectory() as directory:
        ratio, windows, size = measure.traced(
            workloads.broadcast(64, 64, 8000 // scale), Path(directory, "t.h5"), 1000, rounds
        )
    yield Row(GOALS["trace"], ratio, f"broadcast 64 x 64, {windows} windows, {size / 1e3:.0f} kB")
    yield Row(GOALS["yardstick"], measure.yardstick(), "of this host, now")


def _number(value):
    """Return a value with three digits, without an exponent."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def render(rows):
    """Return rows as a Markdown table."""
    lines = ["| metric | unit | must | measured | remark |", "|---|---|---|---|---|"]
    for row in rows:
        goal = row.goal
        must = "-" if goal.must is None else f"{'>=' if goal.at_least else '<='} {_number(goal.must)}"
        mark = {None: "", True: "", False: " (falls short)"}[goal.met(row.value)]
        lines.append(f"| {goal.metric} | {goal.unit} | {must} | {_number(row.value)}{mark} | {row.remark} |")
    return "\n".join(lines)


def replace_block(path, name, text):
    """Put `text` between the markers of the block `name` of a file; ValueError if the file has no such block."""
    path = Path(path)
    page = path.read_text(encoding="utf-8")
    block = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not block.search(page):
        raise ValueError(f"{path} has no block {name!r}")
    path.write_text(block.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page), encoding="utf-8")


def main(argv=None):
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.table", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer, shorter samples")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--write", metavar="FILE", help="put the table into this page")
    args = parser.parse_args(argv)
    rows = list(measured(args.quick, lambda text: print(f"... {text}", file=sys.stderr, flush=True)))
    order = list(GOALS)
    rows.sort(key=lambda row: order.index(row.goal.key))
    if args.json:
        print(
            json.dumps(
                {
                    row.goal.key: {
                        "value": row.value,
                        "must": row.goal.must,
                        "unit": row.goal.unit,
                        "met": row.goal.met(row.value),
                    }
                    for row in rows
                }
            )
        )
    else:
        print(render(rows))
    if args.write:
        replace_block(args.write, "measured", render(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
