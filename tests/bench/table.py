"""The table of docs/performance.md: what must be reached, what is reached here and now.

    python -m tests.bench.table [--quick] [--json] [--write docs/performance.md] [PART ...]

Parts are ``small`` (fabrics of up to 128 x 128, idle and resident PEs), ``wafer`` (whole wafers) and ``commands``
(whole commands beside their simulation); default all.  Each has a table of its own, and everything is measured in this
one run; see `tests.bench.measure` and `tests.bench.wafer`.  Seconds that an all-reduce must reach are those of a host
with a yardstick of 0.4 ns, times the yardstick of the same run over that (`YARDSTICK`).  Takes some ten minutes, the
first part three of them; ``--quick`` takes fewer and shorter samples, and wafers of a sixteenth.  ``--write`` puts the
tables between lines like ``<!-- begin measured -->`` and ``<!-- end measured -->`` of a file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench import measure, wafer, workloads
from tests.bench.products import cost_of_product, product_workload

__all__ = ["GOALS", "PARTS", "SHORT", "YARDSTICK", "Goal", "Row", "main", "render", "replace_block", "small_fabrics"]

YARDSTICK = 0.4
"""Of the host for which scaled targets are given [ns]."""
SHORT = 5
"""CPU seconds below which a command runs three times."""


@dataclass(frozen=True)
class Goal:
    """One metric and what it must reach.

    `at_least` says which side is good; `must` None = told, no goal; `scaled`: seconds for a host whose yardstick is
    `YARDSTICK`, so many more on one whose yardstick is longer.
    """

    key: str
    metric: str
    unit: str
    must: float | None
    at_least: bool = True
    part: str = "small"
    scaled: bool = False

    def bound(self, yardstick=None):
        """Return what must be reached where the yardstick takes so many nanoseconds."""
        return self.must * yardstick / YARDSTICK if self.scaled and yardstick else self.must

    def met(self, value, yardstick=None):
        """Whether `value` reaches the goal; None if there is none."""
        if self.must is None:
            return None
        bound = self.bound(yardstick)
        return value >= bound if self.at_least else value <= bound


@dataclass(frozen=True)
class Row:
    """A goal, the value found, a remark (median, size); the yardstick of that run [ns] if the goal depends on it."""

    goal: Goal
    value: float
    remark: str
    yardstick: float | None = None

    @property
    def met(self):
        """Whether the goal is reached; None if there is none."""
        return self.goal.met(self.value, self.yardstick)


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
        Goal("shifts", "the same by MeshGEMM on 32 x 32 PEs, tiles 4 x 4 x 4, against SUMMA", "times", None),
        Goal("task", "one task start (with activation and end)", "ns", 60, False),
        Goal("idle", "one idle PE-cycle, one row of 922 x 922 PEs streaming", "ns", 0.01, False),
        Goal("quiet", "one idle PE-cycle, one PE of 922 x 922 computing", "ns", 0.01, False),
        Goal("bytes_idle", "resident bytes per idle PE, 757 x 996, one row streaming", "bytes", 128, False),
        Goal("bytes_streaming", "resident bytes per active PE without SRAM, streaming", "bytes", 512, False),
        Goal("bytes_exchange", "the same, exchange: 8 colors, 8 queues, 8 microthreads", "bytes", 1300, False),
        Goal("build", "describe, check and build 757 x 996 PEs of equal code", "s", 2, False),
        Goal("trace", "counters of every PE and link to HDF5, every 1,000 cycles, against none", "times", None, False),
        Goal("yardstick", "yardstick: half a dependent multiplication", "ns", None, False),
        *(
            Goal(key, f"{metric}, 757 x 996, against one on 64 x 64", "times", 1.5, False, "wafer")
            for key, metric in (
                ("wafer_broadcast", "a hop of a row broadcast"),
                ("wafer_chain", "a hop of a row chain reduce"),
                ("wafer_exchange", "a hop of a saturated exchange"),
            )
        ),
        Goal("wafer_threads", "two threads against one, exchange on 757 x 996: time", "times", 1.6, True, "wafer"),
        Goal("trains", "hops of chains of 256 words, 757 x 99, moved as trains", "M hops/s", 300, True, "wafer"),
        Goal("allreduce1", "all-reduce of a word per PE, 757 x 996: simulation", "s", 1, False, "wafer", True),
        Goal("allreduce256", "all-reduce of 256 words per PE, 757 x 996: simulation", "s", 12, False, "wafer", True),
        Goal("gemv16k", "GEMV of 16,384 x 16,384 on 720 x 720 PEs: whole command", "s", 15, False, "wafer"),
        Goal("gemv16k_bytes", "GEMV of 16,384: most memory", "GB", 3, False, "wafer"),
        Goal("gemv32k", "GEMV of 32,768 x 32,768 on 720 x 720 PEs: whole command", "s", None, False, "wafer"),
        Goal("gemv32k_bytes", "GEMV of 32,768: most memory", "GB", None, False, "wafer"),
        Goal("meshgemm64", "MeshGEMM of 256 x 256 x 256 on 64 x 64 PEs: simulation", "s", 3, False, "wafer", True),
        Goal("allreduce1_ratio", "all-reduce of a word per PE, 757 x 996", "times", 2, False, "commands"),
        Goal("allreduce256_ratio", "all-reduce of 256 words per PE, 757 x 996", "times", None, False, "commands"),
        Goal("gemv16k_ratio", "GEMV of 16,384 x 16,384 on 720 x 720", "times", 2, False, "commands"),
        Goal("gemv64_ratio", "GEMV of 2,048 x 2,048 on 64 x 64", "times", None, False, "commands"),
        Goal("gemm16_ratio", "SUMMA of 960 x 960 x 960 on 16 x 16", "times", None, False, "commands"),
        Goal("meshgemm_ratio", "MeshGEMM of 480 x 480 x 480 on 16 x 16", "times", None, False, "commands"),
    )
}
"""What is measured; targets in seconds are for a core of some 3 GHz, or scaled by the yardstick of the run."""


def small_fabrics(quick=False, progress=lambda text: None, without=()):
    """Measure the rows of part ``small``; yields a `Row` per goal.

    Parameters
    ----------
    quick : bool
        Fewer, shorter samples.
    progress : callable
        Told what comes next.
    without : iterable of str
        Commands of `wafer.COMMANDS` that are left out; this part has none.
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
    progress("meshgemm against summa")
    ratio, cost = cost_of_product("meshgemm", "summa", 8 if quick else 32, (4, 4, 4), rounds)
    yield Row(GOALS["shifts"], ratio, f"{cost:.0f} ns of CPU per hop")
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


def whole_wafers(quick=False, progress=lambda text: None, without=()):
    """Measure the rows of part ``wafer``, but for commands that are named in `without`."""
    size = tuple(side // 4 for side in wafer.WAFER) if quick else wafer.WAFER
    shown = f"{size[0]} x {size[1]}"
    for key, (make, words) in wafer.HOPS.items():
        progress(f"{make.__name__} {shown}")
        ratio, cost = wafer.cost_of_hops(make, size, wafer.SMALL, words, 1 if quick else 2)
        yield Row(GOALS[key], ratio, f"{shown}, {words} words: {cost:.0f} ns of CPU")
    progress(f"exchange {shown}, two threads and one")
    ratio, seconds = wafer.gain_of_threads(workloads.exchange, size, 16, 1 if quick else 3)
    yield Row(GOALS["wafer_threads"], ratio, f"16 words: {seconds:.2f} s with two")
    chains = size[0], size[1] // 10
    progress(f"chain_reduce {chains[0]} x {chains[1]} as trains")
    ratio, cost = wafer.cost_of_trains(workloads.chain_reduce, chains, 256, 1 if quick else 3)
    yield Row(GOALS["trains"], 1e3 / cost, f"{ratio:.1f} times as fast as hop by hop; {cost:.2f} ns of CPU each")
    for name in ("allreduce1",) if quick else ("allreduce1", "gemv16k", "gemv32k", "allreduce256", "meshgemm64"):
        if name in without:
            continue
        words = _shrunk(wafer.COMMANDS[name], quick)
        progress(f"wse kernel {' '.join(words)}")
        found = _ran(words)
        whole = f"{name}_bytes" in GOALS
        seconds = found.cpu if whole else found.simulation
        remark = f"{found.result['cycles']:,} cycles; yardstick {found.yardstick:.2f} ns"
        yield Row(GOALS[name], seconds, remark, found.yardstick)
        if whole:
            yield Row(GOALS[f"{name}_bytes"], found.bytes / 1e9, f"compared: {found.result['compared_fraction']:.1%}")


def whole_commands(quick=False, progress=lambda text: None, without=()):
    """Measure the rows of part ``commands``: CPU of a command over CPU of its simulation."""
    for name in (key.removesuffix("_ratio") for key, goal in GOALS.items() if goal.part == "commands"):
        if name in without or (quick and name in ("gemv16k", "allreduce256")):
            continue
        words = _shrunk(wafer.COMMANDS[name], quick)
        progress(f"wse kernel {' '.join(words)}")
        found = _ran(words)
        remark = f"{found.cpu:.1f} s of CPU, simulation {found.simulation:.2f}; {found.bytes / 1e9:.2f} GB"
        yield Row(GOALS[f"{name}_ratio"], found.ratio, remark)


_RAN = {}


def _ran(words):
    """Run a command, once for all parts that tell of it; return the fastest of three of one that takes some seconds.

    A first run may have to wait for memory that the host has not given yet.
    """
    key = tuple(words)
    if key not in _RAN:
        found = [wafer.run_command(words)]
        while found[0].cpu < SHORT and len(found) < 3:
            found.append(wafer.run_command(words))
        _RAN[key] = min(found, key=lambda run: run.simulation)
    return _RAN[key]


def _shrunk(words, quick):
    """Return the words of a command, on a wafer of a sixteenth if it is to be quick."""
    if not quick:
        return words
    pairs = (word.split("=") for word in words[1:])
    return [words[0], *(f"{key}={int(value) // 4 if key in ('width', 'height') else value}" for key, value in pairs)]


PARTS = {
    "small": ("measured", small_fabrics),
    "wafer": ("measured on wafers", whole_wafers),
    "commands": ("measured commands", whole_commands),
}
"""Name -> block of the page, and what measures it."""


def _number(value):
    """Return a value with three digits, without an exponent."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def render(rows, part=None):
    """Return rows as a Markdown table; with a part: all goals of it, also those that were not measured."""
    rows = {row.goal.key: row for row in rows}
    lines = ["| metric | unit | must | measured | remark |", "|---|---|---|---|---|"]
    for goal in GOALS.values():
        row = rows.get(goal.key)
        if row is None and goal.part != part:
            continue
        bound = goal.bound(row.yardstick if row else None)
        must = "-" if bound is None else f"{'>=' if goal.at_least else '<='} {_number(bound)}"
        if row is None:
            lines.append(f"| {goal.metric} | {goal.unit} | {must} | - | not measured in this run |")
            continue
        mark = {None: "", True: "", False: " (falls short)"}[row.met]
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
    parser.add_argument(
        "--without", metavar="COMMAND", action="append", default=[], choices=list(wafer.COMMANDS), help="leave this out"
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default all")
    args = parser.parse_args(argv)
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]!r}; parts: {', '.join(PARTS)}")
    parts = [name for name in PARTS if name in (args.parts or PARTS)]

    def tell(text):
        print(f"... {text}", file=sys.stderr, flush=True)

    rows = []
    for name in parts:
        found = list(PARTS[name][1](args.quick, tell, args.without))
        rows += found
        if args.write:  # what is measured is not lost with what comes behind it
            replace_block(args.write, PARTS[name][0], render(found, name))
    if args.json:
        print(
            json.dumps(
                {
                    row.goal.key: {
                        "value": row.value,
                        "must": row.goal.bound(row.yardstick),
                        "unit": row.goal.unit,
                        "met": row.met,
                    }
                    for row in rows
                }
            )
        )
    else:
        print("\n\n".join(render([row for row in rows if row.goal.part == name], name) for name in parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
