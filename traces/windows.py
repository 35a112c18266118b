"""Counters are kept per window of cycles: what every PE and link did in each stretch of a run.

Counters only grow, so a window is the difference of two readings.  The machine is read when its clock passes a multiple
of the window; nothing is added to its hot path.  Windows of a PE add up to its counters at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traces.writer import RunWriter
from wse_core.errors import ConfigError

__all__ = ["MOST_BYTES", "Windows"]

MOST_BYTES = 1 << 31
"""The windows of a run may take at most so many bytes of memory."""


class Windows:
    """A `Windows` reads the counters of a fabric every `cycles` cycles.

    Parameters
    ----------
    fabric : Fabric
        What it has done so far belongs to no window.
    cycles : int
        Length of a window.

    Attributes
    ----------
    values : dict[str, list of ndarray]
        By counter, one array per window.
    """

    def __init__(self, fabric: Any, cycles: int):
        if cycles < 1:
            raise ConfigError(f"{cycles} is no length of a window", where="window", hint="at least one cycle")
        self.fabric, self.cycles = fabric, cycles
        self.values: dict[str, list[np.ndarray]] = {}
        self._units: dict[str, str] = {}
        self._before: dict[str, tuple[np.ndarray, str]] = fabric.all_counters() if fabric.cycle else {}
        self._bytes, self._read_at, self._count = 0, fabric.cycle, 0
        fabric.every(cycles, self.read)

    def read(self) -> None:
        """End a window now."""
        counters = self.fabric.all_counters()
        for name, (values, unit) in counters.items():
            part = values - self._before[name][0] if self._before else values
            part = part.astype(np.uint32 if int(part.max(initial=0)) < 1 << 32 else np.uint64)
            parts, self._units[name] = self.values.setdefault(name, []), unit
            parts += [
                np.zeros_like(part) for _ in range(self._count - len(parts))
            ]  # of a fabric that had no such thing
            parts.append(part)
            self._bytes += part.nbytes
        self._before, self._read_at = counters, self.fabric.cycle
        self._count += 1
        if self._bytes > MOST_BYTES:
            raise ConfigError(
                f"windows of {self.cycles:,} cycles take more than {MOST_BYTES >> 20:,} MiB",
                where="window",
                hint=f"a longer one, such as {16 * self.cycles}",
            )

    def follow(self, fabric: Any) -> None:
        """Go on with a fabric that has not run yet: its clock begins where the next window does."""
        if self.fabric.cycle > self._read_at or not self._count:
            self.read()
        self.stop()
        self.fabric, self._before, self._read_at = fabric, {}, 0
        fabric.every(self.cycles, self.read)

    def stop(self) -> None:
        """Read no further windows."""
        self.fabric.no_longer(self.read)

    def finish(self, writer: RunWriter) -> None:
        """End the last window, which may be shorter, and write all counters to a `RunWriter`."""
        if self.fabric.cycle > self._read_at or not self.values:
            self.read()
        for name, parts in self.values.items():
            parts += [np.zeros_like(parts[0]) for _ in range(self._count - len(parts))]
            windows = np.stack(parts) if parts[0].ndim == 2 else np.concatenate(parts)
            writer.add_counter(name, windows, self._units[name], window_cycles=self.cycles)
