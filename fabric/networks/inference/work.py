"""What instructions of a PE cost in closed forms of inference: the words in which its parts are counted.

Functions of vectors take what `fabric.program.functions` says: cycles without elements, then operations of the lanes of
multiplication, of addition and of 16-bit integers.
"""

from __future__ import annotations

from fabric.kernels.kit import timing
from wse_core.params import Machine

__all__ = ["Work"]

FUNCTIONS = {"exp": (109, 12, 5, 7), "reciprocal": (69, 6, 4, 2), "rsqrt": (82, 11, 4, 2)}


class Work:
    """Costs on a machine.

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

    def rows(self, op: str, rows: int, n: int, loads: int, dimensions: int) -> int:
        """Return the cycles of an operation whose steps end with rows of n elements."""
        m = self.m
        steps = rows * timing.steps(m, op, n)
        return loads * m["ce.dsr_load"] + dimensions * m["ce.dsr_dimension"] + timing.operation(m, steps)

    def serial(self, n: int, loads: int) -> int:
        """Return the cycles of an operation that does one element per cycle."""
        return loads * self.m["ce.dsr_load"] + timing.operation(self.m, n)

    def loop(self, turns: int, body: int) -> int:
        """Return the cycles of a loop; one turn has no loop."""
        if turns <= 1:
            return turns * body
        return 1 + turns * (body + 1 + self.m["ce.branch_taken"]) - self.m["ce.branch_taken"] + 1

    @property
    def load(self) -> int:
        """Cycles until a loaded register can be used."""
        return int(self.m["ce.load_latency"])

    @property
    def taking(self) -> int:
        """Cycles of using and moving a pointer, without what is done with it."""
        return 2 * self.load + 2

    def function(self, name: str, n: int) -> int:
        """Return the cycles of a function of n numbers."""
        begin, multiplied, added, halves = FUNCTIONS[name]
        steps = (multiplied * timing.steps(self.m, "fmuls", n), added * timing.steps(self.m, "fadds", n))
        return begin + sum(steps) + halves * timing.steps(self.m, "and16", n)
