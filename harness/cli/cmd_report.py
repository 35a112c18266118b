"""The command ``wse report`` makes one self-contained HTML page per run, or a comparison of several."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from harness.kit.console import print_json
from harness.report import page
from harness.report.facts import summary
from harness.report.side_by_side import refuse_same
from traces.atomic import atomic_file
from traces.trace import Trace

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
    parser.add_argument("--out", metavar="FILE.html", help="default: the name of the run file with .html")
    return parser


def main(args: argparse.Namespace) -> None:
    """Write the page of a run."""
    paths = [Path(name) for name in (args.file, *args.others)]
    out = Path(args.out) if args.out else paths[0].with_suffix(".html")
    for path in paths:
        refuse_same(path, out, "is a run, which the page would replace")
    with contextlib.ExitStack() as stack:
        traces = [stack.enter_context(Trace.open(path)) for path in paths]
        text = page.compare(*traces, paths=paths) if args.others else page.page(traces[0], not args.static)
        facts = [summary(trace) for trace in traces] if args.json else None
    with atomic_file(out) as stream:
        stream.write(text.encode("utf-8"))
    if args.json:
        print_json({"file": out, "runs": facts})
    else:
        print(f"written: {out}, {out.stat().st_size / 1e3:.0f} kB")
