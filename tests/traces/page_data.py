"""What a page holds is read here as its description says, without the code that wrote it; and pages that are hard."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np

from harness.cli import main as cli
from traces.event_log import recording
from traces.marks import PhaseMark
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.events import EVENT_DTYPE, KINDS, TraceFilter
from wse_core.reference.machine import ReferenceMachine

__all__ = ["data_of", "hostile", "numbers", "recorded", "rows_of", "windowed"]

NAMES = {"opcodes": {"7": "seven"}, "tasks": {"3": "three"}, "lines": {"0": "a.py:1"}}


def data_of(text):
    """Return what a page holds: the JSON between its tags."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def numbers(column):
    """Return a column as a list of int, as docs and `traces.page.packing` describe it."""
    planes = zlib.decompress(base64.b64decode(column["data"]))
    width, count = column["bytes"], len(planes) // column["bytes"]
    found = [sum(planes[k * count + i] << 8 * k for k in range(width)) for i in range(count)]
    if column["delta"]:
        for i in range(1, count):
            found[i] = (found[i] + found[i - 1]) % 2**32
    return found


def rows_of(data, name):
    """Return the rows of a table as dicts, with ``x`` and ``y``."""
    if name not in data["tables"]:
        return []
    table = {key: numbers(column) for key, column in data["tables"][name].items()}
    left, top, width, height = data["facts"]["region"]
    table.setdefault("pe", [k % (width * height) for k in range(data["rows"][name])])  # of windows
    found = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    assert len(found) == data["rows"][name]
    for row in found:
        row["x"], row["y"] = left + row["pe"] % width, top + row["pe"] // width
    return found


def hostile(path):
    """Write the run file of a chain whose names mean something to HTML and to scripts."""
    bad = "</script><script>alert(1)</script><!--\u2028\u2029&lt;\x07'\"`${1}\\u003c@DATA@"
    meta = RunMeta(job=bad, machine={"router.hop": 1, "ramp.in": 2}, preset=bad)
    events = np.zeros(4, EVENT_DTYPE)
    events["cycle"], events["data"] = [0, 0, 4, 5], [7, 9 << 16, 3, 0]
    events["kind"] = [KINDS.index(kind) for kind in ("task_start", "op_start", "op_end", "task_end")]
    names = {"tasks": {"0": bad}, "opcodes": {"9": bad}, "lines": {"0": bad}}
    with RunWriter(path, meta) as writer:
        writer.add_events(events, 6, TraceFilter(), names)
        writer.add_marks([PhaseMark(0, 3, bad, bad)])
    return bad


def recorded(case, path, cycles=150, filter=None):
    """Write the run file of a case; return the machine after its last cycle."""
    machine = ReferenceMachine(case.spec)
    meta = RunMeta(job="case", machine=dict(case.spec.machine))
    case.start(machine)
    with recording(machine, path, meta, filter or TraceFilter(), NAMES) as log:
        machine.run(cycles)
    with RunWriter(path, meta) as writer:
        writer.add_counter("busy", machine.counters()["busy"][np.newaxis], "cycles")
        log.finish(writer)
    log.remove()
    return machine


def windowed(path, level="counters"):
    """Run a matrix product with windows of 50 cycles and return its trace, open."""
    words = ["kernel", "gemm", "algorithm=meshgemm", "p=3", "m=9", "k=9", "n=9", "--trace", level]
    assert cli.main([*words, "--trace-window", "50", "--out", str(path)]) == 0
    return Trace.open(path)
