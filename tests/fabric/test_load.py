"""Loading a fabric costs little beside describing it, on large fabrics of many colors too."""

from __future__ import annotations

import time

from fabric.engine.engine import Engine
from fabric.kernels.collectives.allreduce import _Broadcast
from wse_core import _build_info
from wse_core.params import machine

CHECKS = 1 if _build_info.MODE == "release" else 5
"""How much longer compiled code takes in builds that check."""


def cpu(call):
    """Return the CPU seconds of a call, the least of three, and its result."""
    found = []
    for _ in range(3):
        begin = time.process_time()
        result = call()
        found.append(time.process_time() - begin)
    return min(found), result


def test_loading_takes_no_longer_than_describing():
    """Seventeen colors on 90,000 PEs: rows and cells that are like their neighbours cost next to nothing."""

    def describe():
        layout = _Broadcast("tree", 0, machine(), "xy", 300, 300, 1, "f32", "f32").layout()
        layout.build()
        return layout

    describing, layout = cpu(describe)
    spec = layout.build()
    assert len(spec.routes) > 15
    loading, _ = cpu(lambda: Engine(spec))
    assert loading <= 0.8 * CHECKS * describing
