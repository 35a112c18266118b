"""The command ``wse report`` makes one self-contained HTML page per run, or a comparison of several."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from harness.kit.console import print_json
from harness.report import page
from harness.report.csv_files import write_numbers
from harness.report.facts import summary
from harness.report.side_by_side import refuse_same
from traces.atomic import atomic_file
from traces.trace import Trace
from wse_core.errors import ConfigError

__all__ = ["add_parser", "main"]


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "report",
        parents=[common],
        help="write an HTML page about a run, or compare several",
        description="Write one self-contained HTML page about a run, or about how runs differ; "
        "wse compare writes the same comparison as text, Markdown, CSV or JSON.",
    )
    parser.add_argument("file", help="run file")
    parser.add_argument("others", nargs="*", metavar="other", help="further run files to compare with the first")
    parser.add_argument("--static", action="store_true", help="pictures only, nothing to zoom into: a small page")
    parser.add_argument(
        "--csv",
        metavar="DIR",
        type=Path,
        help="of one run: also write the numbers of every table and picture there, a CSV file each",
    )
    parser.add_argument("--out", metavar="FILE.html", help="default: the name of the run file with .html")
    return parser


def main(args: argparse.Namespace) -> None:
    """Write the page of a run."""
    paths = [Path(name) for name in (args.file, *args.others)]
    out = Path(args.out) if args.out else paths[0].with_suffix(".html")
    for path in paths:
        refuse_same(path, out, "is a run, which the page would replace")
    if args.csv and args.others:
        raise ConfigError("only of one run", where="--csv", hint="wse compare ... --out FILE.csv")
    if args.csv and args.csv.exists() and not args.csv.is_dir():
        raise ConfigError("is no directory", where=f"--csv {args.csv}")
    with contextlib.ExitStack() as stack:
        traces = [stack.enter_context(Trace.open(path)) for path in paths]
        text = page.compare(*traces, paths=paths) if args.others else page.page(traces[0], not args.static)
        tables = write_numbers(args.csv, traces[0]) if args.csv else []
        facts = [summary(trace) for trace in traces] if args.json else None
    with atomic_file(out) as stream:
        stream.write(text.encode("utf-8"))
    if args.json:
        print_json({"file": out, "runs": facts} | ({"csv": tables} if args.csv else {}))
    else:
        print(f"written: {out}, {out.stat().st_size / 1e3:.0f} kB")
        if tables:
            print(f"written: {', '.join(map(str, tables))}")
