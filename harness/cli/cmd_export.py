"""The command ``wse export`` gives a trace in the format of another viewer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.cli import selection
from harness.kit.console import print_json
from traces.export.formats import FORMATS, announced_bytes, export
from traces.trace import Trace

__all__ = ["add_parser", "main"]


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    listing = "; ".join(f"{entry.name}: {entry.doc}" for entry in FORMATS.values())
    parser = sub.add_parser(
        "export",
        parents=[common],
        help="write a trace in the format of another viewer",
        description=f"Write the events of a run file in another format. Formats: {listing}.",
    )
    parser.add_argument("file", help="run file with events, or that of a run that did not end")
    parser.add_argument("--format", choices=list(FORMATS), default="perfetto", help="default perfetto")
    parser.add_argument("--out", metavar="FILE", help="default: the run file with the suffix of the format")
    parser.add_argument("--force", action="store_true", help="write even a very large file")
    selection.add_options(parser)
    return parser


def main(args: argparse.Namespace) -> None:
    """Export, after saying how much it will be."""
    entry = FORMATS[args.format]
    with Trace.open(args.file) as trace:
        events = trace.events(**selection.of_args(args))
        path = Path(args.out) if args.out else Path(args.file).with_suffix(entry.suffix)
        size = announced_bytes(args.format, len(events))
        if not args.json:
            held = trace.committed + len(trace.marks)
            print(f"{len(events):,} of {held:,} events as {args.format}, about {size / 1e6:.1f} MB", flush=True)
        export(trace, args.format, path, events, args.force)
    written = path.stat().st_size
    if args.json:
        print_json({"file": path, "format": args.format, "events": len(events), "bytes": written})
    else:
        print(f"written: {path}, {written / 1e6:.1f} MB")
