"""All recipes are known once this module is imported.  Importing this module imports every module of recipes; each
enters its recipes itself.
"""

from __future__ import annotations

from importlib import import_module

from harness.validation.recipe import RECIPES, CannotRun, Measurement, Recipe

__all__ = ["MODULES", "RECIPES", "CannotRun", "Measurement", "Recipe"]

MODULES = (
    "formulas",
    "local_products",
    "matvec",
    "mesh_products",
    "vector_operation",
    "reduce",
    "not_runnable",
    "stencil_cell",
    "stencil_columns",
    "stencil_tiled",
    "summa_library",
    "summa_multicast",
)
"""These modules of this package hold recipes, a line each."""

for _name in MODULES:
    import_module(f"harness.validation.programs.{_name}")
