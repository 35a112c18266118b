"""Instructions of a PE have these costs when the cycles of inference are predicted."""

from __future__ import annotations

from fabric.price import timing
from wse_core.params import Machine

__all__ = ["Work"]


class Work:
    """A `Work` gives the cycles of operations on a machine.

    Parameters
    ----------
    machine : Machine
    """

    def __init__(self, machine: Machine) -> None:
        self.m = machine

    def vector(self, op: str, n: int, loads: int, dimensions: int = 0) -> int:
        """Return the cycles of a vector operation with so many descriptors loaded for it, and dimensions beyond one."""
        m = self.m
        return loads * m["ce.dsr_load"] + dimensions * m["ce.dsr_dimension"] + timing.elementwise(m, op, n)

    def serial(self, n: int, loads: int) -> int:
        """Return the cycles of an operation that does one element per cycle."""
        return loads * self.m["ce.dsr_load"] + timing.operation(self.m, n)

    @property
    def load(self) -> int:
        """A loaded register can be used after so many cycles."""
        return int(self.m["ce.load_latency"])
