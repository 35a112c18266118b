"""The command ``wse report`` makes one self-contained HTML page per run, or a comparison of two."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from harness.kit.console import print_json
from harness.report import page
from harness.report.facts import summary
from traces.atomic import atomic_file
from traces.trace import Trace

__all__ = ["add_parser", "main"]


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "report",
        parents=[common],
        help="write an HTML page about a run, or compare two",
        description="Write one self-contained HTML page about a run, or about how two differ.",
    )
    parser.add_argument("file", help="run file")
    parser.add_argument("other", nargs="?", help="a second run file to compare with")
    parser.add_argument("--static", action="store_true", help="pictures only, nothing to zoom into: a small page")
    parser.add_argument("--out", metavar="FILE.html", help="default: the name of the run file with .html")
    return parser


def main(args: argparse.Namespace) -> None:
    """Write the page of a run."""
    with contextlib.ExitStack() as stack:
        traces = [stack.enter_context(Trace.open(path)) for path in (args.file, args.other) if path]
        text = page.page(traces[0], interactive=not args.static) if len(traces) == 1 else page.compare(*traces)
        facts = [summary(trace) for trace in traces] if args.json else None
    path = Path(args.out) if args.out else Path(args.file).with_suffix(".html")
    with atomic_file(path) as stream:
        stream.write(text.encode("utf-8"))
    if args.json:
        print_json({"file": path, "runs": facts})
    else:
        print(f"written: {path}, {path.stat().st_size / 1e3:.0f} kB")
