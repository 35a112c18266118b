"""Training has phases on the clock of the wafer that is recorded: layers, loss, gradients, and what happens around it.

The system tells its phases on its own clock; that of a wafer's engine began some cycles earlier, when the programs
loaded their registers, and `align` moves the phases by that.  `layers` says when the wafer was at which stretch of the
stream: every word starts one task in the northernmost PE of its column, so the k-th such task is that of the k-th word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fabric.host.recording import Recorder
from fabric.kernels.streamed.forward import COLOR_W
from swarm.system import Sent
from traces.marks import PhaseMark
from traces.reader import RunFile
from traces.trace import Trace
from wse_core.events import FOREVER, KINDS

__all__ = ["TRACK", "align", "layers", "place"]

TRACK = "phases of wafer 0"


def align(marks: Sequence[PhaseMark], origin: int) -> list[PhaseMark]:
    """Return the marks of the system on the clock of a wafer that stood at `origin` when that of the system began."""
    return [replace(mark, begin=max(0, mark.begin + origin), end=max(0, mark.end + origin)) for mark in marks]


def layers(events: np.ndarray, sent: Sequence[Sent]) -> list[PhaseMark]:
    """Return the stretches of all passes as marks; none if the events do not have a task for every word.

    Parameters
    ----------
    events : numpy.ndarray of EVENT_DTYPE
        Of kind `task_start`, of the row of PEs where the streams enter.
    sent : sequence of Sent
        The passes.
    """
    by_word = events[(events["flags"] & 1 == 1) | (events["aux"] == COLOR_W)]
    by_word = by_word[by_word["kind"] == KINDS.index("task_start")]
    columns = range(sent[0].script.columns if sent else 0)
    times = [by_word["cycle"][by_word["x"] == column].astype(np.int64) for column in columns]
    lengths = np.array([entry.script.lengths for entry in sent]).reshape(len(sent), len(columns))
    if [len(found) for found in times] != lengths.sum(axis=0).tolist():
        return []
    starts = np.cumsum(lengths, axis=0) - lengths
    found = []
    for entry, first, length in zip(sent, starts, lengths, strict=True):
        stretches = [(label, _least(times, first + begin, first + length)) for label, begin in entry.script.phases]
        last = max((int(times[c][first[c] + length[c] - 1]) + 1 for c in columns if length[c]), default=entry.cycle)
        ends = [begin for _, begin in stretches[1:]] + [last]
        found += [
            PhaseMark(begin, end, TRACK, label)
            for (label, begin), end in zip(stretches, ends, strict=True)
            if begin is not None and end is not None and begin <= end
        ]
    return found


def _least(times: Sequence[np.ndarray], at: np.ndarray, stop: np.ndarray) -> int | None:
    """Return the first cycle in which a column comes to word ``at[column]``, None if none has such a word."""
    return min((int(found[k]) for found, k, end in zip(times, at, stop, strict=True) if k < end), default=None)


def place(recorder: Recorder, sent: Sequence[Sent], origin: int) -> None:
    """Put the phases of a training run on the clock of the recorded wafer, and add its own if its tasks are known."""
    recorder.marks[:] = align(recorder.marks, origin)
    wanted = recorder.filter
    if recorder.log is None or wanted is None or wanted.region is not None or wanted.cycles != (0, FOREVER):
        return
    recorder.stop()
    recorder.log.flush()
    if "task_start" not in wanted.kinds or not recorder.log.segments:
        return
    with Trace([RunFile(path) for path in recorder.log.segments], False) as trace:
        width = sent[0].script.columns if sent else 1
        recorder.marks += layers(trace.events(kinds=("task_start",), region=(0, 0, width, 1)), sent)
