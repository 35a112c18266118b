"""The command ``wse compare`` sets runs beside each other in tables: what was changed, then cycles and all else."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from harness.kit.console import print_json
from harness.report.side_by_side import refuse_same, side_by_side
from harness.report.tables import FORMATS
from traces.atomic import atomic_file
from traces.trace import Trace
from wse_core.errors import ConfigError

__all__ = ["add_parser", "main"]

DESCRIPTION = """\
Set two or more runs beside each other, a column per run, named by what differs
in their paths:

  what was changed   every key of the files, word of the commands and modelled
                     number that is not the same in all runs; and the version
  numbers            cycles first, then every other result, energy if a run
                     has it, all with their change from the first run
  phases             cycles in which each phase of the program was on
  cycles of a PE     at work, waiting and for what, with nothing to do
  counters, host     sums over all PEs; what the simulation took
  what one lacks     results, counters and phases that another run has

Runs may be of different kinds: what two have is compared.
"""
EXAMPLES = """\
examples:
  wse compare a/run.h5 b/run.h5 c/run.h5
  wse compare runs/*/run.h5 --out runs.csv
  wse compare a.h5 b.h5 --json
wse report a.h5 b.h5 draws the same as a page.
"""


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "compare",
        parents=[common],
        help="set runs beside each other: what was changed, and what that did",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="RUN", help="run file that all others are relative to")
    parser.add_argument("others", metavar="RUN", nargs="+", help="run files to compare with the first")
    parser.add_argument(
        "--format",
        choices=tuple(FORMATS),
        help="text, Markdown, or CSV with numbers as they are (default: by the suffix of --out, or text)",
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the tables there (default: print them)")
    return parser


def main(args: argparse.Namespace) -> None:
    """Print or write the comparison."""
    paths = [Path(name) for name in (args.file, *args.others)]
    if args.json and args.format and not args.out:
        raise ConfigError("not together with --json", where="--format", hint="with --out, for the file")
    if args.out:
        for path in paths:
            refuse_same(path, args.out, "is a run, which the tables would replace")
    with contextlib.ExitStack() as stack:
        found = side_by_side([stack.enter_context(Trace.open(path)) for path in paths], paths)
    form = args.format or (args.out.suffix.removeprefix(".") if args.out else "")
    if args.out:
        with atomic_file(args.out) as stream:
            stream.write(FORMATS.get(form, FORMATS["text"])(found).encode("utf-8"))
    if args.json:
        print_json(found.as_data() | ({"file": args.out} if args.out else {}))
    elif args.out:
        print(f"written: {args.out}, {args.out.stat().st_size / 1e3:.0f} kB")
    else:
        print(FORMATS[form or "text"](found), end="")
