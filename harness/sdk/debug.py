"""The module `cerebras.sdk.debug.debug_util` gives memory and traces of a program after its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.sdk.runtime import last_runtime
from wse_core.errors import ConfigError

__all__ = ["debug_util"]


class debug_util:
    """Looks at the program that ran last in this process; coordinates are those of the fabric.

    Parameters
    ----------
    bindir : path
    """

    def __init__(self, bindir: str | Path, cmaddr: str | None = None, **_: Any) -> None:
        found = last_runtime(bindir)
        if found is None:
            raise ConfigError("the program has not run in this script", where=str(bindir))
        self._runtime = found

    def _at(self, col: int, row: int) -> tuple[int, int]:
        x, y = self._runtime.bundle.settings["offsets"]
        return col - x, row - y

    def get_symbol(self, col: int, row: int, symbol: str, dtype: Any) -> NDArray[Any]:
        """Return a global of a PE."""
        return self._runtime.read_symbol(*self._at(col, row), symbol, dtype)

    def get_symbol_rect(self, rectangle: Any, symbol: str, dtype: Any) -> NDArray[Any]:
        """Return a global of the PEs of ((column, row), (width, height)), by column and row."""
        (col, row), (width, height) = rectangle
        columns = [[self.get_symbol(col + i, row + j, symbol, dtype) for j in range(height)] for i in range(width)]
        return np.array(columns)

    def read_trace(self, col: int, row: int, name: str) -> list[Any]:
        """Return what <debug> recorded under a key."""
        return self._runtime.device.records.trace(*self._at(col, row), name)
