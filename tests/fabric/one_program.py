"""A fabric on which one PE runs one program, for tests of the host side."""

from __future__ import annotations

from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.program.program import Program


def single(write, backend="compiled", half="f16", at=(0, 0), size=(1, 1)):
    """Return a Fabric whose PE `at` runs the task ``main`` written by `write(p)`, launched."""
    p = Program("p", half=half)
    write(p)
    layout = Layout(*size)
    layout.place(p, *at)
    fabric = Fabric(layout, backend)
    if p.unit.tasks.get("main"):
        fabric.launch("main")
    return fabric


def body(*lines):
    """Return what writes a task ``main`` of these lines."""

    def write(p):
        with p.task("main"):
            for line in lines:
                line(p)

    return write


def arrays(*rows):
    """Return what writes arrays (name, count, dtype) and a task that does nothing."""

    def write(p):
        for name, count, dtype in rows:
            p.array(name, count, dtype)
        with p.task("main"):
            p.nop()

    return write


def spin(p):
    """Write a task that never ends."""
    with p.task("main"):
        p.jump(p.label())
