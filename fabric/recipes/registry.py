"""All recipes.  Importing this module imports every module of recipes; each enters its recipes itself."""
from __future__ import annotations

from importlib import import_module

from fabric.recipes.recipe import RECIPES, CannotRun, Outcome, Recipe

__all__ = ["MODULES", "RECIPES", "CannotRun", "Outcome", "Recipe"]

MODULES = (
    "local_products",
    "matvec",
    "vector_operation",
    "not_runnable",
)
"""Modules of this package that hold recipes, a line each."""

for _name in MODULES:
    import_module(f"fabric.recipes.{_name}")
