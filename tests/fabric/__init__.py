"""Tests of everything between processing elements: programs, layouts, host access, errors.

`BACKENDS` names the machines that can be imported; a test that takes one runs on each of them.
"""

from __future__ import annotations

import importlib.util

MODULES = {"compiled": "fabric.engine.engine", "reference": "wse_core.reference.machine"}
BACKENDS = [name for name, module in MODULES.items() if importlib.util.find_spec(module) is not None]
