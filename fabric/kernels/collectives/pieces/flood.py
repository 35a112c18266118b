"""A flood takes a vector of one PE to all others of a line or of a rectangle, copied by the routers on its way.

What moves
    One color, static routes: each router passes a wavelet on and, in the same cycle, gives its own CE a copy.  Sending
    and receiving are single vector operations that the kernel writes itself (`fabric.kernels.collectives.broadcast`).

Timing: the distance to the farthest PE, one hop each; no stages.
Source: Luczynski et al., HPDC 2024 (arXiv 2404.15888), flood broadcast.
"""

from __future__ import annotations

from fabric.kernels.collectives.pieces.lines import Line
from fabric.layout.layout import Layout

__all__ = ["flood_line", "flood_rectangle"]


def flood_line(line: Line, layout: Layout, color: int, root: int = 0) -> None:
    """Paint the routes that carry what one place of a `Line` of two or more places sends to all others."""
    last = len(line) - 1
    line.route(layout, color, root, "R", "T" * (root > 0) + "A" * (root < last))
    for k in range(root):
        line.route(layout, color, k, "A", "TR" if k else "R")
    for k in range(root + 1, last + 1):
        line.route(layout, color, k, "T", "AR" if k < last else "R")


def flood_rectangle(layout: Layout, color: int, width: int, height: int) -> None:
    """Paint the routes that carry what PE (0, 0) sends to all others of a rectangle: along row 0, then south."""
    south = "S" if height > 1 else ""
    layout.route(color, (0, 0, width, height), rx="N", tx="SR")
    layout.route(color, (0, height - 1, width, 1), rx="N", tx="R")
    layout.route(color, (0, 0, width, 1), rx="W", tx=f"E{south}R")
    layout.route(color, (width - 1, 0), rx="W", tx=f"{south}R")
    layout.route(color, (0, 0), rx="R", tx=("E" if width > 1 else "") + south)
