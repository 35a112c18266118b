"""Checking makes a layout and the typed code of each class of PEs from a file."""

from __future__ import annotations

from fabric.csl.check.program import CheckedProgram, Compilation, check_file

__all__ = ["CheckedProgram", "Compilation", "check_file"]
