"""Register allocation gives virtual registers the sixteen of a PE: liveness, interference, coloring, spills, stack."""

from __future__ import annotations

from fabric.csl.allocate.coloring import allocate
from fabric.csl.allocate.saving import Stack

__all__ = ["Stack", "allocate"]
