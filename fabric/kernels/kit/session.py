"""The run of a kernel has these steps: data in, launch, time stamps, data out.

**Time.**  PEs read their cycle counters.  `cycles` of a result is the interval between two such readings that the page
of the kernel names; `run_cycles` is the whole run, with the start of the tasks and the storing of the time stamps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Reg
from fabric.host.engines import Backend
from fabric.host.fabric import Fabric
from fabric.host.running import Progress
from fabric.kernels.kit.watch import Watch, listener
from fabric.layout.layout import Layout
from fabric.layout.streams import Stream
from fabric.program.program import Program
from wse_core.image import FabricSpec

__all__ = ["CYCLE_LIMIT", "Session", "Stamps"]

CYCLE_LIMIT = 1 << 40
"""A kernel is taken to run for ever after so many cycles."""


class Stamps:
    """A program takes readings of the cycle counter; `Session.stamps` fetches them.

    Parameters
    ----------
    program : Program
        Gets a variable ``stamps``: three words per reading, low ones first.
    count : int
        Readings.

    Notes
    -----
    `start` and `stop` in one task keep the first reading in registers, so that nothing but what lies between the two
    is measured, and `ce.tsc_read`.  `store` writes a reading at once; its three stores follow the sampling.
    """

    def __init__(self, program: Program, count: int = 2) -> None:
        self.program = program
        self.var = program.array("stamps", 3 * count, "u16")
        self.first: tuple[Reg, ...] = ()

    def start(self) -> None:
        """Read the counter at the beginning."""
        self.first = self.program.regs(3, "start")
        self.program.tsc(self.first)

    def stop(self) -> None:
        """Read it again and store both readings."""
        p = self.program
        last = p.regs(3, "stop")
        p.tsc(last)
        for k in range(3):
            p.st16(self.first[k], self.var, offset=k)
            p.st16(last[k], self.var, offset=3 + k)

    def store(self, which: int) -> None:
        """Read the counter now and store it as reading number `which`: 0 (start), 1 (stop) or another."""
        self.program.store_tsc(self.var[3 * which])


class Session:
    """A `Session` is a fabric with its data, run once.

    Parameters
    ----------
    layout : Layout or FabricSpec
    inputs : iterable of (str, ndarray, int, int)
        Symbol, bit patterns of shape (h, w, elements), and the PE of the first.
    task : str or None
        Task to activate in all PEs that have it, in the same cycle; None if streams or the programs start everything.
    backend : {"compiled", "reference"}, optional
        Default as `fabric.host.fabric.Fabric`.
    progress : callable, optional
        As `fabric.host.fabric.Fabric.run` takes it.
    cycle_limit : int
        Most cycles that the run may take.
    streams : iterable of (Stream, ndarray of uint32, ndarray of bool)
        What the host sends into input streams from the first cycle on: payloads, and which are control wavelets.
    expected : callable, optional
        Returns the cycles of the closed form; asked only if the run lasts and somebody watches (`kit.watch`).

    Attributes
    ----------
    fabric : Fabric
    run : RunResult
    """

    def __init__(
        self,
        layout: Layout | FabricSpec,
        inputs: Iterable[tuple[str, NDArray[Any], int, int]],
        task: str | None = "main",
        backend: Backend | None = None,
        progress: Progress | bool | None = None,
        cycle_limit: int = CYCLE_LIMIT,
        streams: Iterable[tuple[Stream, NDArray[np.uint32], NDArray[np.bool_]]] = (),
        expected: Callable[[], float] | None = None,
    ) -> None:
        self.fabric = Fabric(layout, backend)
        for symbol, bits, x, y in inputs:
            self.fabric.write(symbol, bits, x, y, bits.shape[1], bits.shape[0])
        for stream, payload, is_control in streams:
            self.fabric.send(stream, payload, control=is_control)
        if task is not None:
            self.fabric.launch(task)
        hear = listener()
        if progress is None and hear is not None:
            progress = Watch(hear, expected)
        self.run = self.fabric.run(cycle_limit, progress)

    def read(self, symbol: str, x: int = 0, y: int = 0, w: int = 1, h: int = 1) -> np.ndarray:
        """Return a symbol of the PEs of a rectangle as bit patterns or integers, shape (h, w, elements)."""
        values = self.fabric.read(symbol, x, y, w, h)
        return values.view(f"u{values.itemsize}") if values.dtype.kind == "f" else values

    def stamps(self, x: int = 0, y: int = 0, w: int = 1, h: int = 1) -> tuple[np.ndarray, ...]:
        """Return the readings of the cycle counters in a rectangle, each int64 (h, w); mostly there are two."""
        words = self.read("stamps", x, y, w, h).astype(np.int64)
        readings = words.reshape(h, w, -1, 3) @ (1 << 16 * np.arange(3, dtype=np.int64))
        return tuple(np.moveaxis(readings, -1, 0))

    def counters(self) -> dict[str, tuple[NDArray[np.uint64], str]]:
        """Return all counters as a run file takes them, see `Fabric.all_counters`."""
        return self.fabric.all_counters()
