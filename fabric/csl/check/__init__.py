"""Checking makes a layout and the typed code of each class of PEs from a file."""

from __future__ import annotations

from fabric.csl.check.program import Compilation, Program, check_file

__all__ = ["Compilation", "Program", "check_file"]
