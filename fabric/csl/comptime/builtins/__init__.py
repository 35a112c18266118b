"""Builtins, in groups; `BUILTINS` is the table of all."""

from __future__ import annotations

from fabric.csl.comptime.builtins import dsds, machine, modules, operations, reflection, refused, values
from fabric.csl.comptime.builtins.table import TABLE as BUILTINS
from fabric.csl.comptime.builtins.table import BuiltinSpec

__all__ = ["BUILTINS", "BuiltinSpec", "dsds", "machine", "modules", "operations", "reflection", "refused", "values"]
