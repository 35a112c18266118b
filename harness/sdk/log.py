"""``sim.log`` is what the vendor's simulator leaves behind: lines that programs print and, if asked for, what PEs do.

Scripts ask with the variable ``SIMFABRIC_DEBUG``, a list out of ``inst_trace``, ``landing`` and ``router``; where the
simulator runs in a container, the variable has the container's prefix.  `traces.export.textlog` has the form of the
lines; coordinates are those of the fabric.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fabric.host.recording import record
from traces.export.textlog import write_log
from traces.trace import Trace

__all__ = ["FLAGS", "SimulatorLog", "asked_for", "close_all", "leave_traces", "leaving"]

VARIABLE = "SIMFABRIC_DEBUG"
PREFIXES = ("", "SINGULARITYENV_", "APPTAINERENV_")
FLAGS = {
    "inst_trace": ("task_start", "task_end", "op_start", "op_end", "conflict", "wait"),
    "landing": ("depart",),
    "router": ("inject", "depart"),
}
"""The variable may have these words, each with the kinds of events that its lines need."""
_OPEN: list[SimulatorLog] = []
_ALWAYS: ContextVar[bool] = ContextVar("what a simulator leaves", default=False)


def asked_for(environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return which lines a script asks for; a word that is unknown is said once and has no effect."""
    words = {
        word.strip()
        for prefix in PREFIXES
        for word in environment.get(prefix + VARIABLE, "").split(",")
        if word.strip()
    }
    for word in sorted(words - FLAGS.keys()):
        print(f"{VARIABLE}: '{word}' means nothing here; known are {', '.join(FLAGS)}", file=sys.stderr)
    return frozenset(words & FLAGS.keys())


class SimulatorLog:
    """A `SimulatorLog` writes ``sim.log`` into the working directory.

    Parameters
    ----------
    fabric : Fabric
        Its events are recorded if lines about them are asked for and nobody else records them.
    origin, size : tuple[int, int]
        Where the program's rectangle lies on the fabric, and columns and rows of that.
    wanted : frozenset[str]
        Of `FLAGS`.
    """

    def __init__(self, fabric: Any, origin: tuple[int, int], size: tuple[int, int], wanted: frozenset[str]) -> None:
        self.origin, self.size, self.wanted = origin, size, wanted
        self._stack = ExitStack()
        self._file: Path | None = None
        if wanted and fabric.on_host is not None:
            print(f"{VARIABLE}: events are recorded to another file; sim.log has no lines about them", file=sys.stderr)
        elif wanted:
            directory = self._stack.enter_context(tempfile.TemporaryDirectory())
            self._recording = ExitStack()
            kinds = sorted({kind for word in wanted for kind in FLAGS[word]})
            path = Path(directory) / "run.h5"
            self._recording.enter_context(record(path, "full", fabric=fabric, kinds=kinds))
            self._file = path
        _OPEN.append(self)

    def close(self, printed: list[str]) -> None:
        """Write the file, unless there is nothing to say; further calls do nothing."""
        if self not in _OPEN:
            return
        _OPEN.remove(self)
        with self._stack:
            lines = [*self._events(), *printed]
        if lines or _ALWAYS.get():
            lines.sort(key=_cycle)  # is stable: what PEs do in a cycle stays in order
            Path("sim.log").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def _events(self) -> list[str]:
        if self._file is None:
            return []
        self._recording.close()
        stream = io.BytesIO()
        with Trace.open(self._file) as trace:
            write_log(trace, trace.events(), stream, self.origin, self.size, self.wanted)
        return stream.getvalue().decode().splitlines()


@contextmanager
def leaving() -> Iterator[None]:
    """Let programs that stop in a block leave what the vendor's simulator always leaves, as scripts move it away."""
    before = _ALWAYS.set(True)
    try:
        yield
    finally:
        _ALWAYS.reset(before)


def leave_traces() -> None:
    """Make the directory of the vendor's traces, which stay empty here, if programs leave it."""
    if _ALWAYS.get():
        Path("simfab_traces").mkdir(exist_ok=True)


def close_all() -> None:
    """Write the logs of programs that a script has not stopped."""
    for log in list(_OPEN):
        log.close([])


def _cycle(line: str) -> int:
    return int(line[1:].split(maxsplit=1)[0])
