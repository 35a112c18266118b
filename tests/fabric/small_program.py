"""A program that only binds queues to colors, for tests of layouts."""

from __future__ import annotations

from fabric.program.program import Program


def program(name="p", inputs=(), outputs=(), write=None, on=None):
    """Return a program that binds queues to colors and does nothing else, unless `write(p)` does."""
    p = Program(name, on)
    for q, color in enumerate(inputs):
        p.input_queue(q, color)
    for q, color in enumerate(outputs):
        p.output_queue(q, color)
    with p.task("main"):
        (write or Program.nop)(p)
    return p
