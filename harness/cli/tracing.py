"""Runs are recorded from the command line by the option ``--trace`` and those that belong to it.

What reads and writes run files is imported only if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wse_core.errors import ConfigError
from wse_core.events import FOREVER, KINDS, LEVELS, TraceFilter

if TYPE_CHECKING:
    from fabric.host.recording import Recorder
    from traces.run_format import RunMeta

__all__ = ["add_options", "recorder"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of recording."""
    group = parser.add_argument_group("recording (needs --out)")
    group.add_argument(
        "--trace",
        choices=("off", "counters", *LEVELS),
        default="counters",
        help="what the run file holds besides results: nothing; counters (default); events of tasks, "
        "operations and waits too; or full, every wavelet's way as well",
    )
    group.add_argument(
        "--trace-window",
        metavar="CYCLES",
        type=int,
        help="counters of each window of so many cycles (default: one window for the whole run)",
    )
    group.add_argument("--trace-cycles", metavar="A:B", help="record cycles A to B - 1 only")
    group.add_argument("--trace-region", metavar="X,Y,W,H", help="record these PEs only")
    group.add_argument("--trace-colors", metavar="C,C", help="record wavelets of these colors only")
    group.add_argument("--trace-kinds", metavar="K,K", help=f"record these kinds of the level only: {', '.join(KINDS)}")
    group.add_argument(
        "--backend",
        choices=("compiled", "reference"),
        default="compiled",
        help="the engine, or the slow plain-Python twin",
    )


@contextlib.contextmanager
def recorder(
    args: argparse.Namespace, path: str | Path | None, meta: RunMeta | None, successive: bool = False
) -> Iterator[Any]:
    """Record the run of the block as the options say; gives a `Recorder`, or None if there is no file to record to.

    With `successive` all fabrics that the block builds are recorded, on one clock; else the first.  If the block fails,
    the events up to there become a run file that says how the run ended; without events nothing is left.
    """
    from fabric.host.engines import around

    if args.trace not in LEVELS and (args.trace_cycles or args.trace_region or args.trace_colors or args.trace_kinds):
        raise ConfigError("nothing is recorded", where="--trace", hint="--trace events or --trace full")
    if args.trace == "off" and args.trace_window is not None:
        raise ConfigError("no counters are recorded", where="--trace-window", hint="without --trace off")
    if args.trace_window is not None and args.trace_window < 1:
        raise ConfigError(
            f"{args.trace_window} is no length of a window", where="--trace-window", hint="at least one cycle"
        )
    if path is None or meta is None:
        if args.trace in LEVELS or args.trace_window is not None:
            raise ConfigError("needs a file to record to", where="--trace", hint="--out FILE.h5")
        with around(args.backend):
            yield None
        return
    from fabric.host.recording import Recorder
    from traces.marks import collecting

    before = time.perf_counter()
    with collecting() as marks:
        found = Recorder(path, meta, _filter_of(args), args.trace_window, marks, "--trace-", successive)
        try:
            with around(args.backend, found.watch):
                yield found
        except BaseException as error:
            found.stop()
            if found.log is not None:
                _keep(found, args.trace, error, time.perf_counter() - before)
            raise
    if found.lacks:
        print(f"wse: {found.lacks}", file=sys.stderr)
    if found.log is not None:
        found.log.remove()


def _keep(found: Recorder, trace: str, error: BaseException, seconds: float) -> None:
    """Make a run file of what was recorded of a run that failed; as segments, if even that fails."""
    from fabric.host.recording import status_of, write
    from traces.writer import RunWriter

    log = found.log
    assert log is not None
    try:
        if log.count:
            with RunWriter(found.path, found.meta) as writer:
                write(found, writer, trace, status_of(error), seconds)
            print(f"wse: {found.path} has what was recorded until then", file=sys.stderr)
    except BaseException:
        log.abandon()
        raise
    log.remove()


def _filter_of(args: argparse.Namespace) -> TraceFilter | None:
    """Return the `TraceFilter` of the options, None if no events are wanted."""
    if args.trace not in LEVELS:
        return None
    from harness.cli import selection

    try:
        colors = tuple(int(word) for word in args.trace_colors.split(",")) if args.trace_colors else None
    except ValueError:
        raise ConfigError(f"{args.trace_colors!r} are no colors", where="--trace-colors", hint="such as 0,1") from None
    kinds = tuple(args.trace_kinds.split(",")) if args.trace_kinds else LEVELS[args.trace]
    for kind in kinds:
        if kind not in LEVELS[args.trace]:
            raise ConfigError(
                f"level {args.trace} has no events of kind {kind!r}",
                where="--trace-kinds",
                hint=", ".join(LEVELS[args.trace]),
            )
    return TraceFilter(
        kinds,
        colors,
        selection.rectangle(args.trace_region, "--trace-region") if args.trace_region else None,
        (selection.cycle_range(args.trace_cycles, "--trace-cycles") if args.trace_cycles else (0, FOREVER)),
    )
