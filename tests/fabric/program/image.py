"""Images of short programs, as tests look at them."""

from __future__ import annotations

from fabric.program.program import Program
from wse_core import isa


def instructions(image, skip=("dsr_load", "done")):
    """Return [(name, fields, imm)] of an image without what is not asked for."""
    return [(op.name, (a, b, c, d), imm) for _, op, a, b, c, d, imm in isa.decode(image.code) if op.name not in skip]


def one(write, **kwargs):
    """Assemble a program with one task whose body `write(p)` emits."""
    p = Program("one", **kwargs)
    with p.task("main"):
        write(p)
    return p.assemble()


def task(p, name, body=None, **kwargs):
    """Write a task whose body, if there is one, `body()` emits."""
    with p.task(name, **kwargs):
        if body:
            body()
