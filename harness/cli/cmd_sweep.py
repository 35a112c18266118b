"""The command ``wse sweep FILE.toml`` does kernels or plans over lists and ranges of parameters and modelled numbers,
as one table.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.cli.shared import add_format
from harness.kit.console import make_progress, print_json, printable
from wse_core.errors import ConfigError
from wse_core.errors.base import EXIT_RUN
from wse_core.schema import Field

__all__ = ["add_parser", "main"]

EXAMPLE = """\
example, sizes.toml:

    kernel = "gemv"

    [params]
    p = {from = 4, to = 16, times = 2}    # 4, 8, 16
    m = 256
    n = 256
    algorithm = ["ktree", "pipeline"]

    [machine]
    ramp.in = [2, 3]

    [figure]
    y = "cycles"

    wse sweep sizes.toml --processes 2    # 12 points, table and figure in sweeps/sizes

Ended in any way, the same command goes on behind the last point that was done.
docs/sweeps.md has all keys.
"""
SHOWN = 10
"""At most so many failures are told in full."""


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "sweep",
        parents=[common],
        help="run kernels or plans over lists and ranges of parameters, into one table and one figure",
        description="Run every point of a sweep. The exit status is 1 if a point failed or a result is wrong; such "
        "points are rows of the table like the others.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE.toml", help="what runs, and over what")
    parser.add_argument("--out", metavar="DIR", help="directory of table and figure (default: sweeps/NAME_OF_FILE)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--processes", metavar="N", help="points side by side (default: one per core)")
    where.add_argument(
        "--scheduler", metavar="ADDRESS", help="scheduler of a Dask cluster that takes the points (extra: cluster)"
    )
    parser.add_argument("--x", metavar="AXIS", default="", help="axis of the figure, instead of the file's")
    parser.add_argument("--y", metavar="COLUMN", default="", help="column that is drawn, instead of the file's")
    add_format(parser, "the figure")
    parser.add_argument("--overwrite", action="store_true", help="forget points that an earlier sweep left there")
    parser.add_argument("--dry-run", action="store_true", help="say which points there are, and run none")
    return parser


def main(args: argparse.Namespace) -> int | None:
    """Run what is left of the sweep, print where its table lies; return 1 if a point failed or is wrong."""
    from harness.sweep.description import load
    from harness.sweep.picture import axis_of_x
    from harness.sweep.run import run

    cores = len(os.sched_getaffinity(0))
    processes = (
        cores
        if args.processes is None
        else Field("processes", int, low=1, high=4096).parse(args.processes, "--processes")
    )
    sweep = load(args.file)
    known = [axis.name for axis in sweep.axes]
    if args.x and args.x not in known:
        raise ConfigError(f"{args.x!r} is no axis of this sweep", where="--x", hint=", ".join(known) or None)
    if args.dry_run:
        return _tell(args, sweep)
    figure = replace(sweep.figure, x=args.x or sweep.figure.x, y=args.y or sweep.figure.y)
    out = args.out or Path("sweeps", Path(args.file).stem)
    with make_progress(args.progress) as progress:
        outcome = run(sweep, out, processes, args.scheduler, args.overwrite, figure, progress, args.format)
    facts = {
        "file": args.file,
        "axes": known,
        "points": len(outcome.rows),
        "earlier": outcome.earlier,
        "failed": len(outcome.failed),
        "wrong": len(outcome.wrong),
        "x": axis_of_x(sweep.axes, figure.x),
    }
    if args.json:
        print_json(facts | {"rows": outcome.rows, "files": outcome.files})
    else:
        earlier = f", {outcome.earlier:,} of them there already" if outcome.earlier else ""
        print(f"{len(outcome.rows):,} points{earlier}; {len(outcome.failed):,} failed, {len(outcome.wrong):,} wrong")
        for row in outcome.failed[:SHOWN]:
            print(printable(f"    {_place(known, row)}: {row['error']}"))
        if len(outcome.failed) > SHOWN:
            print(f"    and {len(outcome.failed) - SHOWN:,} more: column 'error' of the table")
        print("".join(f"written: {file}\n" for file in outcome.files), end="")
    return EXIT_RUN if outcome.failed or outcome.wrong else 0


def _tell(args: argparse.Namespace, sweep: Any) -> int:
    """Print the points of a sweep."""
    rows = [at for at, _ in sweep.points]
    if args.json:
        print_json({"file": args.file, "points": len(rows), "rows": rows})
    else:
        names = [axis.name for axis in sweep.axes]
        print(f"{len(rows):,} points")
        print("".join(f"    {_place(names, row)}\n" for row in rows), end="")
    return 0


def _place(names: list[str], row: dict[str, Any]) -> str:
    """Return a point by the values of its axes."""
    return " ".join(f"{name}={row[name]}" for name in names) or "the only point"
