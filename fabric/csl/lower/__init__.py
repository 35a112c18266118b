"""From the typed tree to the intermediate form: expressions, statements, descriptors, library routines."""

from __future__ import annotations

from fabric.csl.lower.program import lower

__all__ = ["lower"]
