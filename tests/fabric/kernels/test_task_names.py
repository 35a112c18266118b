"""Tasks in traces: a task has one id on all PEs of a kernel, and an id one task, so that timelines name PEs alike."""

from __future__ import annotations

import pytest

from fabric.host.recording import names_of
from fabric.kernels.registry import KERNELS
from fabric.layout.layout import Layout
from wse_core.params import machine

CASES = [
    *(
        ("gemm", {"algorithm": name, "width": 4, "height": 3, "m": 24, "k": 24, "n": 24})
        for name in ("summa-relay", "summa")
    ),
    ("gemm", {"algorithm": "summa-relay", "width": 5, "height": 1, "m": 5, "k": 10, "n": 5}),
    ("gemm", {"algorithm": "summa", "width": 1, "height": 3, "m": 6, "k": 6, "n": 6}),
    ("gemm", {"algorithm": "meshgemm", "width": 3, "height": 2, "m": 6, "k": 6, "n": 6}),
    ("gemm_t", {"width": 3, "height": 2, "m": 6, "k": 6, "n": 6}),
    ("stencil", {"width": 4, "height": 3, "nz": 5, "steps": 2}),
    ("stencil", {"width": 3, "height": 1, "nz": 5, "steps": 2}),
    ("stencil25", {"width": 3, "height": 3, "nz": 12, "steps": 1}),
    ("allreduce", {"width": 5, "height": 3, "n": 8, "algorithm": "ring"}),
    ("allgather", {"width": 4, "height": 3, "n": 4}),
    ("ws_forward", {"inputs": 8, "outputs": 8, "tokens": 8, "width": 4, "height": 2}),
    ("ws_gradient", {"inputs": 8, "outputs": 8, "tokens": 8, "width": 4, "height": 2}),
]


@pytest.mark.parametrize(("name", "values"), CASES, ids=str)
def test_all_pes_name_their_tasks_alike(name, values, monkeypatch):
    built, build = [], Layout.build
    monkeypatch.setattr(Layout, "build", lambda self: built.append(build(self)) or built[-1])
    assert KERNELS[name].run(machine(), **values)["verified"]
    assert built
    for spec in built:
        tasks = names_of(spec)["tasks"]
        assert not [text for text in tasks.values() if "/" in text]
        assert len(set(tasks.values())) == len(tasks)
