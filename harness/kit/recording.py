"""Recording a run: events, windows of counters and phases of the first fabric that somebody builds."""

from __future__ import annotations

from traces.event_log import EventLog
from traces.windows import Windows
from wse_core.errors import ConfigError

__all__ = ["Recorder", "names_of"]


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
    """Return names of opcodes, tasks and control tasks for people; an id that means different tasks has all names."""
    from fabric.host.copies import control_id, control_names, task_id, task_names
    from wse_core import isa

    found = {"tasks": {}, "control_tasks": {}}
    for program in spec.programs:
        for space, names, number in (("tasks", task_names, task_id), ("control_tasks", control_names, control_id)):
            for name in names(program):
                known = found[space].setdefault(str(number(program, name)), name)
                if name not in known.split("/"):
                    found[space][str(number(program, name))] = f"{known}/{name}"
    return {"opcodes": {str(op.code): op.name for op in isa.BY_NAME.values()}, **found}
