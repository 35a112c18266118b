"""The module `cerebras.sdk.debug.debug_util` gives memory and traces of a program after its run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.sdk.core import NAMES, CoreFile
from harness.sdk.runtime import last_runtime
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from harness.sdk.device import SdkDevice

__all__ = ["debug_util"]


class debug_util:
    """Looks at the program that ran last in this process, or at a core file; coordinates are those of the fabric.

    Parameters
    ----------
    bindir : path
        What ``cslc -o`` wrote.
    core_path : path, optional
        A core file; default: the program of this process, else ``out.core`` or ``corefile.cs1``, in the working
        directory or beside `bindir`.

    Raises
    ------
    ConfigError
        There is neither, or the core is that of another program.
    """

    def __init__(
        self, bindir: str | Path, cmaddr: str | None = None, core_path: str | Path | None = None, **_: Any
    ) -> None:
        self._source: SdkDevice | CoreFile
        found = None if core_path is not None else last_runtime(bindir)
        if found is not None:
            self._source = found.device
            return
        places = [Path(core_path)] if core_path is not None else _places(Path(bindir))
        core = next((path for path in places if path.is_file()), None)
        if core is None:
            names = " or ".join(NAMES)
            hint = f"run it in this script, or keep its core: runner.dump_core('{NAMES[0]}')"
            raise ConfigError(
                f"the program has not run in this script, and there is no {names}", where=str(bindir), hint=hint
            )
        self._source = CoreFile(core, bindir)

    def _at(self, col: int, row: int) -> tuple[int, int]:
        x, y = self._source.bundle.settings["offsets"]
        return col - x, row - y

    def get_symbol(self, col: int, row: int, symbol: str, dtype: Any) -> NDArray[Any]:
        """Return a global of a PE."""
        words = self._source.symbol(*self._at(col, row), symbol)
        return np.ascontiguousarray(words, "<u2").view(np.dtype(dtype))

    def get_symbol_rect(self, rectangle: Any, symbol: str, dtype: Any) -> NDArray[Any]:
        """Return a global of the PEs of ((column, row), (width, height)), by column and row."""
        (col, row), (width, height) = rectangle
        columns = [[self.get_symbol(col + i, row + j, symbol, dtype) for j in range(height)] for i in range(width)]
        return np.array(columns)

    def read_trace(self, col: int, row: int, name: str) -> list[Any]:
        """Return what <debug> recorded under a key."""
        return self._source.records.trace(*self._at(col, row), name)


def _places(bindir: Path) -> list[Path]:
    """Return where a core file may lie."""
    return [directory / name for directory in (Path(), bindir.resolve().parent) for name in NAMES]
