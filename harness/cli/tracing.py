"""Recording a run from the command line: the options ``--trace`` and what belongs to them."""

from __future__ import annotations

import contextlib

from harness.cli import selection
from traces.events import EventLog
from traces.marks import collecting
from traces.windows import Windows
from wse_core.errors import ConfigError
from wse_core.events import FOREVER, KINDS, LEVELS, TraceFilter

__all__ = ["Recorder", "add_options", "recorder"]


def add_options(parser):
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


class Recorder:
    """Records the first fabric that a job builds.

    Parameters
    ----------
    path : path-like
        The run file to be.
    meta : RunMeta
    filter : TraceFilter or None
        None: no events.
    window : int or None
        Cycles of a window of the counters; None: no windows.
    marks : list of Mark
        Phases, as they are collected.

    Attributes
    ----------
    log : EventLog or None
        None until a fabric was built, or if no events are wanted.
    """

    def __init__(self, path, meta, filter, window, marks):
        self.path, self.meta, self.filter, self.window, self.marks = path, meta, filter, window, marks
        self.fabric, self.log, self.windows = None, None, None

    def watch(self, fabric):
        """Begin to record a new fabric, if it is the first."""
        if self.fabric is not None:
            return
        self.fabric = fabric
        self._check(fabric.spec)
        if self.window is not None:
            self.windows = Windows(fabric, self.window)
        if self.filter is not None:
            self.log = EventLog(self.path, self.meta, self.filter, names_of(fabric.spec), self.marks)
            fabric.on_host = lambda what, x, y, count: self.log.host(fabric.cycle, what, x, y, count)
            fabric.engine.trace(self.log.append, self.filter)

    def _check(self, spec):
        """Refuse a region or colors of which the fabric has nothing."""
        height, width = spec.program_index.shape
        region, colors = (self.filter.region, self.filter.colors) if self.filter else (None, None)
        if region and (region[0] >= width or region[1] >= height):
            raise ConfigError(
                f"the rectangle at ({region[0]}, {region[1]}) lies outside the {width} x {height} PEs",
                where="--trace-region",
            )
        for color in colors or ():
            if not 0 <= color < spec.machine["router.colors"]:
                raise ConfigError(
                    f"there is no color {color}",
                    where="--trace-colors",
                    hint=f"0 .. {spec.machine['router.colors'] - 1}",
                )

    def stop(self):
        """End recording; the log has everything then."""
        if self.log is not None and self.fabric.on_host is not None:
            self.fabric.engine.trace(None)
            self.fabric.on_host = None

    def finish(self, writer):
        """Put what was recorded into the run file."""
        self.stop()
        if self.log is not None:
            self.log.finish(writer)
        if self.windows is not None:
            self.windows.finish(writer)
        if self.marks:
            writer.add_marks(self.marks)


def names_of(spec):
    """Return names of opcodes and tasks for people; a task id that means different tasks has both names."""
    from fabric.host.copies import task_id, task_names
    from wse_core import isa

    tasks = {}
    for program in spec.programs:
        for name in task_names(program):
            number = task_id(program, name)
            known = tasks.setdefault(str(number), name)
            if name not in known.split("/"):
                tasks[str(number)] = f"{known}/{name}"
    return {"opcodes": {str(op.code): op.name for op in isa.BY_NAME.values()}, "tasks": tasks}


@contextlib.contextmanager
def recorder(args, path, meta):
    """Record the run of the block as the options say; gives a `Recorder`, or None if there is no file to record to.

    If the block fails, what was recorded stays in segments beside the run file that did not come to be.
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
    if path is None:
        if args.trace in LEVELS or args.trace_window is not None:
            raise ConfigError("needs a file to record to", where="--trace", hint="--out FILE.h5")
        with around(args.backend):
            yield None
        return
    with collecting() as marks:
        found = Recorder(path, meta, _filter_of(args), args.trace_window, marks)
        try:
            with around(args.backend, found.watch):
                yield found
        except BaseException:
            found.stop()
            if found.log is not None:
                found.log.abandon()
            raise
    if found.log is not None:
        found.log.remove()


def _filter_of(args):
    """Return the `TraceFilter` of the options, None if no events are wanted."""
    if args.trace not in LEVELS:
        return None
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
