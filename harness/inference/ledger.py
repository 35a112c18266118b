"""A `PartCost` is a number of cycles that remembers what is done in them, for the energy of what is composed of it.

Phases of an inference are sums of parts, a part so many times the cycles of something smaller.  `PartCost` is a float,
so they are written as formulas of cycles; what is added or taken several times keeps its terms, and `PartCost.work`
adds up what those are: the work of a PE, on average over the PEs of a mesh (`harness.inference.works`).  Nothing of
that is asked until an energy is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from wse_core.params import Machine
from wse_core.work import CountedWork, Energy

__all__ = ["PartCost", "Terms", "wafer_energy"]

Terms = Mapping[tuple[Hashable, ...], float]
"""`Terms` say how often each thing is done: a function that returns a `CountedWork`, with its arguments."""


def slots(count: float) -> CountedWork:
    """Return the work of so many instructions."""
    return CountedWork(issue=count)


class PartCost(float):
    """A `PartCost` is a number of cycles with the terms of the work of a PE.

    Parameters
    ----------
    cycles : float
    terms : mapping, optional

    Examples
    --------
    >>> cost = 3 * PartCost.of(10, CountedWork, 2.0) + 5
    >>> float(cost), cost.work.hop
    (35.0, 6.0)
    """

    __slots__ = ("terms",)
    terms: Terms

    def __new__(cls, cycles: float, terms: Terms | None = None) -> PartCost:
        found = super().__new__(cls, cycles)
        found.terms = terms or {}
        return found

    @classmethod
    def of(cls, cycles: float, work: Callable[..., CountedWork], *arguments: Hashable) -> PartCost:
        """Return cycles in which is done what a function says of some arguments; it is called when that is asked."""
        return cls(cycles, {(work, *arguments): 1.0})

    @classmethod
    def code(cls, cycles: float) -> PartCost:
        """Return cycles of instructions of the main thread, one in each."""
        return cls.of(cycles, slots, float(cycles))

    @property
    def work(self) -> CountedWork:
        """A PE does so much, on average; cycles of PEs are not among it."""
        total = CountedWork()
        for (make, *arguments), times in self.terms.items():
            total += make(*arguments) * times  # type: ignore[operator]
        return total

    def _with(self, cycles: float, other: Any, sign: float = 1.0) -> PartCost:
        terms = dict(self.terms)
        for what, times in getattr(other, "terms", {}).items():
            terms[what] = terms.get(what, 0.0) + sign * times
        return PartCost(cycles, terms)

    def __add__(self, other: float) -> PartCost:
        return self._with(float(self) + float(other), other)

    __radd__ = __add__

    def __sub__(self, other: float) -> PartCost:
        return self._with(float(self) - float(other), other, -1.0)

    def __mul__(self, times: float) -> PartCost:
        return PartCost(float(self) * times, {what: count * times for what, count in self.terms.items()})

    __rmul__ = __mul__

    def __truediv__(self, parts: float) -> PartCost:
        return self * (1 / parts)


def wafer_energy(machine: Machine, parts: Iterable[tuple[PartCost, int]], cycles: float) -> Energy:
    """Return what a wafer takes for costs on so many PEs each, all in so many cycles in which all its PEs are powered.

    Parameters
    ----------
    machine : Machine
    parts : iterable of (PartCost, int)
        Costs of a PE of a mesh, and the PEs of that mesh.
    cycles : float
    """
    total = CountedWork(cycle=cycles * machine["fabric.width"] * machine["fabric.height"])
    for cost, pes in parts:
        total += cost.work * pes
    return total.energy(machine, cycles)
