"""Lowering makes the intermediate form of the typed tree: expressions, statements, descriptors, library routines."""

from __future__ import annotations

from fabric.csl.lower.program import lower

__all__ = ["lower"]
