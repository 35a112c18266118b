"""The command ``wse serve`` shows a run of any size in a browser, part by part."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from harness.cli import selection
from harness.kit.console import make_progress, print_json
from traces.page.parts import PART, RunParts
from traces.page.server import HOST, RunServer
from traces.trace import Trace
from wse_core.errors import ConfigError

__all__ = ["add_parser", "main"]

MOST_PORT = 65535


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "serve",
        parents=[common],
        help="look at a run that is too large for one page, in a browser",
        description="Show the page of wse view --page part by part, each read from the file when it is asked for. The "
        "server listens on this machine alone and ends with Ctrl-C.",
    )
    parser.add_argument("file", help="run file, or that of a run that did not end")
    parser.add_argument("--port", type=int, default=0, help="default: one that is free")
    parser.add_argument(
        "--part", type=int, default=PART, metavar="N", help=f"events, or numbers of counters, of a part ({PART:,})"
    )
    parser.add_argument(
        "--open", action=argparse.BooleanOptionalAction, default=False, help="open the address in the browser"
    )
    selection.add_options(parser, cycles=False)
    return parser


def main(args: argparse.Namespace) -> None:
    """Show the run at an address until the user ends it."""
    if not 0 <= args.port <= MOST_PORT:
        raise ConfigError(f"{args.port} is no port", where="--port", hint=f"0 (any) to {MOST_PORT}")
    if args.part < 1:
        raise ConfigError("a part has at least one event", where="--part", value=args.part)
    chosen = selection.of_args(args)
    del chosen["cycles"]  # all of them are shown, part by part
    with Trace.open(args.file) as trace:
        if chosen["region"] is not None:
            selection.inside(trace, chosen["region"])
        with make_progress(args.progress) as progress:
            progress.phase(f"reading {args.file}")
            parts = RunParts(trace, args.part, **chosen, progress=progress.update)
        try:
            server = RunServer(parts, args.port)
        except OSError as error:
            raise ConfigError(
                f"nothing can listen on port {args.port} of {HOST}: {error.strerror}", where="--port", hint="another"
            ) from error
        with server:
            if args.json:
                print_json({"address": server.address, "parts": len(parts), "edges": parts.edges})
            else:
                count = "1 part" if len(parts) == 1 else f"{len(parts):,} parts"
                print(f"{server.address}\n{count}; Ctrl-C ends it")
            sys.stdout.flush()
            if args.open:
                import webbrowser

                webbrowser.open(server.address)
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
