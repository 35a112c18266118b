"""From virtual registers to the sixteen of a PE: liveness, interference, coloring, spills to memory, the stack."""

from __future__ import annotations

from fabric.csl.allocate.coloring import allocate
from fabric.csl.allocate.saving import Stack

__all__ = ["Stack", "allocate"]
