"""A run has a result: its cycles, counters and wall-clock time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wse_core.counters import USE_TEXT
from wse_core.params import Machine
from wse_core.params import machine as default_machine
from wse_core.work import CountedWork, Energy

__all__ = ["RunResult"]


@dataclass(frozen=True, repr=False)
class RunResult:
    """A `RunResult` says what a run did.

    Attributes
    ----------
    status : str
        ``complete`` or ``limit``.
    cycles : int
        1 + the last cycle in which anything happened, counted from the start of the run.
    start, cycle : int
        Cycle of the engine before and after.
    wavelet_hops, macs : int
        Wavelets moved by routers and multiply-adds, in this run.
    counters : dict[str, int]
        The engine's counters summed over all PEs, in this run.
    n_pe : int
        PEs with a program.
    host_seconds, cpu_seconds : float
        Wall-clock time, and CPU time of all threads.
    bands, threads : int
        Bands of rows with clocks of their own in which the host simulated, and its threads; 1 each on a small fabric.
    machine : Machine
    table : ndarray
        Instructions and elements done in this run, see `wse_core.work`.
    n_powered : int
        PEs of the fabric, with a program or without.
    """

    status: str
    cycles: int
    start: int
    cycle: int
    wavelet_hops: int
    macs: int
    counters: dict[str, int]
    n_pe: int
    host_seconds: float
    cpu_seconds: float = 0.0
    bands: int = 1
    threads: int = 1
    machine: Machine = field(default_factory=default_machine)
    table: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((0, 0, 0), np.uint64))
    n_powered: int = 0

    @cached_property
    def work(self) -> CountedWork:
        """This was done in the run that costs energy: hops, words of memory, operations, cycles of all PEs."""
        cycles = self.n_powered * (self.cycle - self.start)
        return CountedWork.of(self.machine, self.table, self.counters["instructions"], self.wavelet_hops, cycles)

    @property
    def energy(self) -> Energy:
        """The run takes this on the machine: joules by cause, and average watts of all PEs of the fabric."""
        return self.work.energy(self.machine, self.cycle - self.start)

    @property
    def utilisation(self) -> float:
        """The utilisation is the share of busy cycles per PE with a program and cycle of the run, 0 .. 1."""
        return self.counters["busy"] / max(1, self.n_pe * self.cycles)

    def seconds(self, ghz: float = 0.85) -> float:
        """Return the cycles as time of the hardware [s] at a clock [GHz]."""
        return self.cycles / (ghz * 1e9)

    def __repr__(self) -> str:
        return f"RunResult({self.status}, {self.cycles} cycles, {self.n_pe} PEs, {self.utilisation:.1%} busy)"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the headline, and counters of cycles as shares of the cycles of all PEs."""
        from html import escape

        whole = max(1, self.n_pe * self.cycles)
        head = (
            f"<b>{escape(self.status)}</b>: {self.cycles:,} cycles on {self.n_pe:,} PEs, {self.utilisation:.1%} busy, "
            f"{self.wavelet_hops:,} wavelet hops, {self.macs:,} multiply-adds, {self.energy.joules:.3g} J, "
            f"{self.energy.watts:.3g} W, {self.host_seconds:.3g} s of the host"
        )
        rows = []
        for name, value in self.counters.items():
            share = f"{value / whole:.1%}" if name == "busy" or name.startswith("stall_") else ""
            bar = (
                f'<div style="background:#4477aa;height:8px;width:{100 * value / whole:.2f}px"></div>' if share else ""
            )
            rows.append(
                f'<tr><td>{escape(USE_TEXT.get(name, name))}</td><td style="text-align:right">{value:,}</td>'
                f'<td style="text-align:right">{share}</td><td>{bar}</td></tr>'
            )
        return f"<div>{head}<table>{''.join(rows)}</table></div>"
