"""Small functions of the intermediate form as text, and what is seen of them."""

from __future__ import annotations

from fabric.csl.ir.printer import listing
from fabric.csl.ir.reader import read

__all__ = ["MOVE", "become", "lines", "text"]

HEAD = """@a = memory(u16, 8)
@b = memory(u32, 4, apart=True)
@c = memory(u16, 2, frame=True, apart=True)
@f = memory(u16, 9)
fifo#1 = storage(memory=@f)
&g = function(fn, result=1, places=(2,), clobbers=(2, 3))
"""
MOVE = "dsr_load [src1#1, mem1d(base=@a, extents=(3,))]"


def text(body, kind="fn"):
    """Return the text of a function of one block, or of several if the body says so."""
    lines = [line.strip() for line in body.strip().splitlines()]
    begin = [] if lines[0].startswith("b1") else ["  b1:"]
    shown = [f"  {line}" if line[0] == "b" and line[1].isdigit() else f"    {line}" for line in lines]
    return HEAD + "\n".join([f"{kind} f():", *begin, *shown])


def lines(function):
    """Return the operations and blocks of a function, without what stands before them."""
    found = listing(function).splitlines()
    begin = next(k for k, line in enumerate(found) if line.startswith(("fn ", "task ")))
    return [line.strip() for line in found[begin + 1 :] if line != "  b1:"]


def become(run, body, kind="fn"):
    """Return what a pass makes of a body."""
    function = read(text(body, kind))
    run(function)
    return lines(function)
