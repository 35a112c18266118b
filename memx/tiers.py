"""The memory service has two tiers: flash for capacity, DRAM for speed, prefetch between them.

Layers are streamed in an order that is known beforehand, so a layer that does not fit DRAM is read from flash while
earlier ones stream.  The part that is not there in time is the stall.  Numbers: `wse_core.numbers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS, Machine

__all__ = ["Delivery", "Tiers"]


@dataclass(frozen=True)
class Delivery:
    """A `Delivery` says when the layers that leave one after the other went out.

    Attributes
    ----------
    begin, end : tuple[float, ...]
        Of each layer [s].
    stall : float
        Seconds in which the stream waited for flash.
    """

    begin: tuple[float, ...]
    end: tuple[float, ...]
    stall: float


@dataclass(frozen=True)
class Tiers:
    """The two tiers are `Tiers.of` a machine, or by default those of the default machine.

    Attributes
    ----------
    dram_bytes, flash_bytes : float
        Capacities.
    flash_rate : float
        Read rate of flash [bytes/s].
    stream_rate : float
        Rate of the stream out of DRAM [bytes/s].
    """

    dram_bytes: float = PARAMETERS["dram.bytes"].value
    flash_bytes: float = PARAMETERS["capacity.most"].value
    flash_rate: float = PARAMETERS["flash.rate"].value
    stream_rate: float = PARAMETERS["stream.rate"].value

    @classmethod
    def of(cls, machine: Machine) -> Tiers:
        """Return the tiers that a machine's numbers give."""
        return cls(machine["dram.bytes"], machine["capacity.most"], machine["flash.rate"], machine["stream.rate"])

    def check(self, parameters: float, bytes_per_parameter: float) -> None:
        """Raise `ConfigError` if so many parameters do not fit."""
        needed = parameters * bytes_per_parameter
        if needed > self.flash_bytes:
            most = int(self.flash_bytes // bytes_per_parameter)
            raise ConfigError(
                f"{parameters:,} parameters of {bytes_per_parameter} bytes need {needed:,} bytes, "
                f"the memory service has {int(self.flash_bytes):,}",
                where="memx: capacity",
                hint=f"at most {most:,} parameters",
            )

    def pinned(self, sizes: Sequence[float]) -> int:
        """Return how many layers, from the first, stay in DRAM: all if they fit, else what fits into half of it.

        Parameters
        ----------
        sizes : sequence of float
            Bytes of each layer, with the state of its optimizer.
        """
        if sum(sizes) <= self.dram_bytes:
            return len(sizes)
        kept, used = 0, 0.0
        while used + sizes[kept] <= self.dram_bytes / 2:
            used, kept = used + sizes[kept], kept + 1
        return kept

    def deliver(self, layers: Sequence[float]) -> Delivery:
        """Return the `Delivery` of layers, one after the other.

        DRAM is a window over the stream: flash fills it in the order of the stream as fast as it can, at most
        `dram_bytes` ahead of what has been sent; at the start the window is full.

        Parameters
        ----------
        layers : sequence of float
            Bytes of each layer in the order of the stream.
        """
        total = float(sum(layers))
        begin, end, sent, now, stall = [], [], 0.0, 0.0, 0.0
        for size in layers:
            begin.append(now)
            # The last byte of the layer is in DRAM at `there`: flash read it after the window that was full at 0.
            there = max(0.0, sent + size - self.dram_bytes) / self.flash_rate if total > self.dram_bytes else 0.0
            finish = max(now + size / self.stream_rate, there)
            stall += finish - (now + size / self.stream_rate)
            sent, now = sent + size, finish
            end.append(now)
        return Delivery(tuple(begin), tuple(end), stall)
