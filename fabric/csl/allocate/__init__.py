"""From virtual registers to the sixteen of a PE: liveness, interference, coloring, spills to memory."""

from __future__ import annotations

from fabric.csl.allocate.coloring import allocate

__all__ = ["allocate"]
