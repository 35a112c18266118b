"""Small traced runs for the tests of viewers and exports: a chain of additions over a row of PEs."""

from __future__ import annotations

import numpy as np

from fabric.host.fabric import Fabric
from fabric.kernels.collectives.chain import chain_layout
from traces.event_log import recording
from traces.run_format import RunMeta
from traces.writer import RunWriter
from wse_core import isa
from wse_core.events import TraceFilter
from wse_core.params import machine

__all__ = ["chain"]


def chain(path, pes=4, n=6, filter=None, dtype="f32"):
    """Write the trace of a chain reduce on the reference machine; return its `Fabric`."""
    wse2 = machine("wse2")
    fabric = Fabric(chain_layout(pes, n, dtype, dtype, wse2), backend="reference")
    fabric.write("x", np.arange(pes * n, dtype=np.float32).reshape(1, pes, n))
    meta = RunMeta(job="chain", machine=dict(wse2), preset="wse2")
    names = {"opcodes": {str(op.code): op.name for op in isa.BY_NAME.values()}, "tasks": {"24": "main"}}
    with recording(fabric.engine, path, meta, filter or TraceFilter(), names) as log:
        fabric.launch("main")
        fabric.run()
    with RunWriter(path, meta) as writer:
        for name, values in fabric.counters().items():
            writer.add_counter(name, values, "cycles")
        for color, values in fabric.link_counts().items():
            writer.add_counter(f"moved_color_{color}", values[np.newaxis], "wavelets")
        log.finish(writer)
    log.remove()
    return fabric
