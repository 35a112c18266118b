"""The command ``wse view`` shows a run, in the terminal or as pictures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.cli import selection
from harness.cli.completion import complete_list
from harness.cli.shared import add_format
from harness.kit.console import make_progress, print_json, printable, table
from traces import movie, pictures, terminal
from traces.heatmap import write_heatmap
from traces.line_cycles import line_cycles, line_table
from traces.page.write import write_page
from traces.paths import follow, identify
from traces.plots import PLOTS, plot
from traces.state import RegionStates
from traces.trace import DERIVED, Trace
from wse_core.counters import MOVED, USES, limits, said
from wse_core.errors import ConfigError, TraceError
from wse_core.events import KINDS

__all__ = ["FIGURES", "add_parser", "main"]

FIGURES = (*PLOTS, "animation")
VIEWS = ("page", "figure", "follow", "profile", "tasks", "step")
"""Each of these options asks for a view of its own."""
MOST_PHASES = 24
"""At most so many phases are listed on a terminal."""
MOST_CELLS = 16 * 16


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "view",
        parents=[common],
        help="look at a run: a region at a cycle, a wavelet's way, pictures",
        description="Without an option: what the file holds. --cycle shows a region at a cycle, --step goes through "
        "cycles with the keys n (next), p (previous), a number, q (quit).",
    )
    parser.add_argument("file", help="run file, or that of a run that did not end")
    parser.add_argument("--cycle", type=int, help="show the region at this cycle")
    parser.add_argument("--step", action="store_true", help="step through cycles, beginning with --cycle")
    parser.add_argument("--follow", metavar="CYCLE,X,Y,COLOR", help="the way of the wavelet that moved there then")
    parser.add_argument("--tasks", metavar="X,Y", help="table of the tasks of one PE")
    parser.add_argument(
        "--profile", action="store_true", help="measured cycles by source line, of all PEs or those of --region"
    )
    figure = parser.add_argument(
        "--figure",
        metavar="F,F",
        help=f"pictures, each with its CSV: {', '.join(FIGURES)}, or all that the file has numbers for",
    )
    complete_list(figure, (*FIGURES, "all"))
    parser.add_argument(
        "--counter",
        metavar="NAME",
        help="with --figure heat: a counter (default busy), or a kind of event to be counted",
    )
    parser.add_argument(
        "--window",
        metavar="K",
        type=int,
        help="with --figure heat, links, stalls: this window of the counters alone, from 0",
    )
    parser.add_argument("--out", metavar="DIR", help="with --figure: where pictures go (default: here)")
    parser.add_argument(
        "--page",
        metavar="FILE.html",
        type=Path,
        help="write a page that plays the run back in a browser: its events, or windows of its counters",
    )
    add_format(parser, "pictures; an animation is a GIF")
    selection.add_options(parser)
    return parser


def main(args: argparse.Namespace) -> None:
    """Show what was asked for."""
    _refuse_mixed(args)
    with Trace.open(args.file) as trace:
        if args.page:
            page(trace, args)
        elif args.figure:
            written = list(draw(trace, args))
            if args.json:
                print_json({"written": written})
            else:
                print("\n".join(f"written: {path}" for path in written))
        elif args.follow:
            _print_lines(args, terminal.describe_wavelet(way_of(trace, args.follow)))
        elif args.profile:
            profile(trace, args)
        elif args.tasks:
            x, y = _numbers(args.tasks, 2, "--tasks")
            selection.inside(trace, (x, y, 1, 1), "--tasks")
            _print_lines(args, terminal.task_table(RegionStates(trace, (x, y, 1, 1)), x, y, trace.names))
        elif args.step:
            cycle = _cycle_of(trace, args.cycle or trace.meta.first_cycle)
            step(RegionStates(trace, region_of(trace, args)), cycle, trace)
        elif args.cycle is not None:
            cycle, states = _cycle_of(trace, args.cycle), RegionStates(trace, region_of(trace, args))
            if args.json:
                print_json(terminal.as_data(states, cycle, trace.names))
            else:
                _print_lines(args, [*terminal.grid(states, cycle, trace.names), *_others(trace, args)])
        else:
            describe(trace, args)


def _refuse_mixed(args: argparse.Namespace) -> None:
    """Refuse options that ask for two things at once, and those of a thing that is not asked for."""
    asked = [name for name in VIEWS if getattr(args, name) not in (None, False)]
    if len(asked) > 1:
        raise ConfigError(f"not together with --{asked[0]}", where=f"--{asked[1]}", hint="one after the other")
    if args.cycle is not None and asked not in ([], ["step"]):
        raise ConfigError(f"not together with --{asked[0]}", where="--cycle", hint="one after the other")
    for name in ("counter", "window", "out"):
        if getattr(args, name) is not None and asked != ["figure"]:
            raise ConfigError("only with --figure", where=f"--{name}", value=getattr(args, name))


def page(trace: Trace, args: argparse.Namespace) -> None:
    """Write the page that plays a run back, and say how large it is."""
    chosen = selection.of_args(args)
    if args.cycles is None:
        chosen["cycles"] = None
    if chosen["region"] is not None:
        selection.inside(trace, chosen["region"], "--region")
    written = write_page(args.page, trace, **chosen)
    if args.json:
        print_json({"written": args.page, **written})
    else:
        rows = ", ".join(f"{count:,} {name}" for name, count in written["rows"].items())
        print(f"written: {args.page}, {written['bytes'] / 1e3:,.0f} kB ({rows})")


def profile(trace: Trace, args: argparse.Namespace) -> None:
    """Print the measured cycles of each source line."""
    region = None if args.region is None else selection.rectangle(args.region)
    if region is not None:
        selection.inside(trace, region, "--region")
    cycles = None if args.cycles is None else selection.cycle_range(args.cycles)
    found = line_cycles(trace, region, cycles)
    if args.json:
        print_json({"lines": [vars(one) for one in found]})
        return
    rows = line_table(found)
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for line, *numbers in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
        print(printable("  ".join([f"{line:<{widths[0]}}", *cells])))


def _others(trace: Trace, args: argparse.Namespace) -> list[str]:
    """Return a line that says how to see the PEs that are not shown, if there are any."""
    height, width = trace.shape
    if args.region or (width <= 8 and height <= 8):
        return []
    return [f"These are {min(8, width)} x {min(8, height)} of {width} x {height} PEs; --region X,Y,W,H shows others."]


def _cycle_of(trace: Trace, cycle: int) -> int:
    """Return a cycle of the run, or refuse one before or after it."""
    if not trace.meta.first_cycle <= cycle <= trace.clock:
        raise ConfigError(
            f"the file holds cycles {trace.meta.first_cycle} to {trace.clock}, not {cycle}", where="--cycle"
        )
    return cycle


def describe(trace: Trace, args: argparse.Namespace) -> None:
    """Print what the file holds."""
    run = trace.files[0]
    facts = {
        "job": trace.meta.job,
        "status": trace.meta.status,
        "preset": trace.meta.preset,
        "complete": trace.complete,
        **({"gaps": trace.gaps} if trace.gaps else {}),
        "counters": len(run.counters),
        "results": len(run.results),
        "events": trace.committed,
        "marks": len(trace.marks),
    }
    if trace.committed or "cycles" in run.results:
        facts["cycles"] = int(trace.clock if trace.committed else run.result("cycles"))
    if trace.committed and "cycles" in run.results:
        facts["measured_cycles"] = int(run.result("cycles"))  # what the run calls its cycles: an interval of the clock
    if run.counters:
        first = run.counter(run.counters[0])
        facts["windows"] = len(first.values)
        facts["window_cycles"] = first.window_cycles
        found = limits({name: run.counter(name).values for name in run.counters})
        facts |= {"limits": [limit._asdict() for limit in found] if args.json else said(found)} if found else {}
    phases = [mark for mark in trace.marks if mark.begin < mark.end]
    if args.json:
        names = ("track", "label", "begin", "end")
        print_json({**facts, "phases": [{name: getattr(mark, name) for name in names} for mark in phases]})
        return
    print(table(facts.items()))
    if phases:
        rows = [(printable(mark.label), f"cycles {mark.begin:,} to {mark.end:,}") for mark in phases[:MOST_PHASES]]
        print("\nphases\n" + table(rows, "  "))
    if len(phases) > MOST_PHASES:
        print(f"  and {len(phases) - MOST_PHASES:,} more: --json, or --figure timeline")
    if not trace.complete:
        print("The run did not end; these are the events that were on disk.")
    for gap in trace.gaps:
        print(f"A gap: {printable(gap)}.")


def region_of(trace: Trace, args: argparse.Namespace) -> tuple[int, int, int, int]:
    """Return the region of the arguments; without one the corner of the fabric, as much as a terminal holds."""
    if args.region:
        region = selection.rectangle(args.region)
    else:
        height, width = trace.shape
        region = 0, 0, min(8, width), min(8, height)
    if region[2] * region[3] > MOST_CELLS:
        raise ConfigError(
            f"{region[2]} x {region[3]} PEs do not fit a terminal",
            where="--region",
            hint=f"at most {MOST_CELLS}; --figure for more",
        )
    selection.inside(trace, region, "--region")
    return region


def way_of(trace: Trace, text: str) -> Any:
    """Return the events of the wavelet that a text ``CYCLE,X,Y,COLOR`` names."""
    cycle, x, y, color = _numbers(text, 4, "--follow")
    events = trace.events(kinds=("inject", "depart", "enter", "take"), colors=(color,))
    numbers = identify(events)
    there = np.flatnonzero(
        (events["x"] == x) & (events["y"] == y) & (events["color"] == color) & (events["cycle"] >= cycle)
    )
    if not len(there):
        here = trace.events(cycles=(cycle, trace.clock + 1), kinds=("inject", "depart"), region=(x, y, 1, 1))
        colors = ", ".join(map(str, np.unique(here["color"]).tolist()))
        raise TraceError(
            f"no wavelet of color {color} moves at PE ({x}, {y}) in cycle {cycle} or later",
            path=trace.files[0].path,
            hint=f"colors that do: {colors}" if colors else "another PE or an earlier cycle",
            exit_code=2,
        )
    return follow(events, numbers, numbers[there[0]])


def step(states: RegionStates, cycle: int, trace: Trace) -> None:
    """Show a region cycle by cycle, as the keys say."""
    while True:
        print(printable("\n".join(terminal.grid(states, cycle, trace.names))), flush=True)
        if sys.stdin.isatty():
            print("n next, p previous, a number, q quit: ", end="", flush=True)
        word = sys.stdin.readline().strip()
        if word == "q" or not word:
            return
        if word.lstrip("+-").isdigit():
            cycle = cycle + int(word) if word[0] in "+-" else int(word)
        elif word in ("n", "p"):
            cycle += 1 if word == "n" else -1
        else:
            print(f"{word!r}: n, p, q, a cycle, or +k and -k", file=sys.stderr)
        cycle = min(max(0, cycle), max(0, int(trace.clock)))


def draw(trace: Trace, args: argparse.Namespace) -> Iterator[Path]:
    """Draw the figures that were asked for and yield the paths of the files."""
    names = possible(trace) if args.figure == "all" else args.figure.split(",")
    for name in names:
        if name not in FIGURES:
            raise ConfigError(f"there is no figure {name!r}", where="--figure", hint=", ".join((*FIGURES, "all")))
    out, stem = Path(args.out or "."), Path(args.file).stem
    if out.exists() and not out.is_dir():
        raise ConfigError("is not a directory", where=out, hint="another one with --out")
    for name in names:
        try:
            yield from _drawn(trace, args, name, out / stem)
        except pictures.NothingToDraw:
            if args.figure != "all":
                raise


def _drawn(trace: Trace, args: argparse.Namespace, name: str, stem: Path) -> Any:
    """Draw one figure; return the paths of the files."""
    chosen = selection.of_args(args)
    cycles = None if args.cycles is None else chosen["cycles"]
    if name == "heat":
        return heat(trace, args, stem, chosen)
    if name != "animation":
        drawn = plot(trace, name, chosen["region"], cycles, window=args.window)
        return drawn.save(Path(f"{stem}-{name}.{args.format}"))
    if cycles is None:
        cycles = trace.meta.first_cycle, min(int(trace.clock), trace.meta.first_cycle + 200)
    with make_progress(args.progress) as progress:
        progress.phase(f"animation of {trace.meta.job}")
        return [movie.animate(Path(f"{stem}-{name}.gif"), trace, cycles, chosen["region"], progress=progress.update)]


def possible(trace: Trace) -> list[str]:
    """Return the names of the figures for which the file has the numbers."""
    run = trace.files[0]
    counters, kinds = set(run.counters), set(trace.filter.kinds) if trace.has_events else set()
    found = {
        "heat": "busy" in counters,
        "stalls": set(USES) <= counters,
        "links": any(name.startswith(MOVED) for name in counters),
        "timeline": {"task_start", "wait"} <= kinds,
        "utilisation": {"task_start", "wait"} <= kinds,
        "animation": "depart" in kinds,
    }
    found["windows"] = found["stalls"] and run.counter("busy").window_cycles > 0
    return [name for name in FIGURES if found[name]]


def heat(trace: Trace, args: argparse.Namespace, stem: Path, chosen: dict[str, Any]) -> Sequence[Path]:
    """Draw the heat map of a counter, or of how many events of a kind each PE has; return the files."""
    run, name = trace.files[0], args.counter or "busy"
    path = Path(f"{stem}-{name}.{args.format}")
    if name in run.counters or name not in (*KINDS, *DERIVED):
        return plot(trace, "heat", counter=name, window=args.window).save(path)
    events = trace.events(**chosen | {"kinds": (name,), "columns": ("x", "y")})
    values = np.zeros(trace.shape, np.int64)
    if len(events):
        size = max(len(values), int(events["y"].max()) + 1), max(len(values[0]), int(events["x"].max()) + 1)
        values = np.bincount(events["y"].astype(np.int64) * size[1] + events["x"], minlength=size[0] * size[1])
        values = values.reshape(size)
    part = "" if args.window is None else f", window {args.window}"
    return write_heatmap(path, values, f"{trace.meta.job}: {name}{part}", "events")


def _numbers(text: str, count: int, where: str) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if len(found) != count:
        raise ConfigError(f"{text!r} is not {count} numbers with commas", where=where)
    return found


def _print_lines(args: argparse.Namespace, lines: Iterable[str]) -> None:
    if args.json:
        print_json({"lines": lines})
    else:
        print(printable("\n".join(lines)))
