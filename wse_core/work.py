"""What a run did is counted by what it costs, and modelled numbers say what that takes: `CountedWork` and `Energy`.

Engines keep a table of instructions and elements: by op code, by 16-bit format (f16, cb16), and by column.  Column 0
has the scalar instructions that do more than be issued (`wse_core.isa.Op.is_counted`); the others have elements of
vector operations, by the words of SRAM that each reads (0 to 4) and writes (0 to 2), see `column_of` of
`wse_core.encoding`.  `CountedWork` is made of that table, of how many instructions were issued, of the wavelets that
routers moved and of the cycles of all PEs.

Each count of a `CountedWork` has the name of the number that says what one costs: ``hop`` is counted, ``energy.hop`` is
its energy.  So an energy is a sum of products, and a number that is doubled doubles its own part and nothing else.

What counts
    hop           a wavelet of 32 bits leaves the queue of a router; by several outputs it counts once
    read, write   16-bit words of SRAM: operands of vector operations, loads and stores
    issue         issue slots of the main thread: the code that is fetched
    *_add         additions, subtractions, comparisons, scalings and conversions of a format; half of a multiply-add
    *_multiply    products of a format; the other half
    cycle         cycles of PEs that are powered, at work or not

A division or a square root is a routine of `ce.divide` instructions and counts as these.  Copies, changes of sign and
what only routes count as the words that they move.

Known differences
    A word that comes from or goes to a queue costs what its hops cost.  Leaving a router by several links costs one
    hop.  Data do not matter: a product with zero costs as much as any other.  What only the busy parts of a PE take
    beside this is in `energy.cycle`, which is charged always: so idle PEs take too much, not too little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wse_core.encoding import WORK_ELEMENTS, WORK_WORDS
from wse_core.isa import OPS, SLOTS, WORDS, Op
from wse_core.params import Machine

__all__ = ["CAUSES", "CountedWork", "Energy", "arithmetic_of", "found_in"]

HALVES = ("f16", "cb16")
ADDS = ("fadd", "fsub", "fmax", "fmin", "fscale")
MOVES = ("fabs", "fneg", "fmov")
PICO = 1e-12

CAUSES = {
    "communication": ("hop",),
    "memory": ("read", "write"),
    "arithmetic": (
        *(f"{kind}_{what}" for kind in (*HALVES, "f32") for what in ("add", "multiply")),
        *("int_add", "int_multiply"),
    ),
    "instructions": ("issue",),
    "standing": ("cycle",),
}
"""Energy has these causes, each with the counts that it is made of; together they are all counts of a `CountedWork`."""


@dataclass(frozen=True)
class CountedWork:
    """A `CountedWork` says how often was done what costs energy; works add up, and can be taken so many times.

    Attributes
    ----------
    hop, read, write, issue, f16_add, f16_multiply, cb16_add, cb16_multiply, f32_add, f32_multiply, int_add : float
        As at the head of `wse_core.work`.
    int_multiply, cycle : float
    """

    hop: float = 0
    read: float = 0
    write: float = 0
    issue: float = 0
    f16_add: float = 0
    f16_multiply: float = 0
    cb16_add: float = 0
    cb16_multiply: float = 0
    f32_add: float = 0
    f32_multiply: float = 0
    int_add: float = 0
    int_multiply: float = 0
    cycle: float = 0

    @classmethod
    def of(
        cls, machine: Machine, table: NDArray[np.uint64], instructions: int = 0, hops: int = 0, cycles: int = 0
    ) -> CountedWork:
        """Return the work of a table, of all instructions together, of wavelet hops and of cycles of PEs.

        Parameters
        ----------
        machine : Machine
        table : ndarray, shape (op codes, 2, 16)
            What `work` of an engine returns, or the difference of two of them.
        instructions, hops, cycles : int
        """
        counts = dict.fromkeys(NAMES, 0) | {"hop": hops, "cycle": cycles, "issue": instructions}
        for code, half, column in np.argwhere(table).tolist():
            count, op = int(table[code, half, column]), OPS[code]
            for name, each in _costs(machine, op, half, column).items():
                counts[name] += count * each
        return cls(**counts)

    def __add__(self, other: CountedWork) -> CountedWork:
        return CountedWork(*(getattr(self, name) + getattr(other, name) for name in NAMES))

    def __sub__(self, other: CountedWork) -> CountedWork:
        return self + other * -1

    def __mul__(self, times: float) -> CountedWork:
        return CountedWork(*(getattr(self, name) * times for name in NAMES))

    __rmul__ = __mul__

    def as_dict(self) -> dict[str, float]:
        """Return the counts that are not zero, by name."""
        return {name: getattr(self, name) for name in NAMES if getattr(self, name)}

    def energy(self, machine: Machine, cycles: float = 0) -> Energy:
        """Return what the work takes on a machine, done in so many cycles."""
        each = {name: getattr(self, name) * machine[f"energy.{name}"] * PICO for name in NAMES}
        causes = {cause: sum(each[name] for name in names) for cause, names in CAUSES.items()}
        return Energy(causes, cycles / (machine["clock.ghz"] * 1e9))


NAMES = tuple(field.name for field in fields(CountedWork))


@dataclass(frozen=True)
class Energy:
    """An `Energy` is what a run takes, by cause.

    Attributes
    ----------
    causes : dict[str, float]
        Joules by cause, see `CAUSES`.
    seconds : float
        Time of the machine in which that was done.
    """

    causes: Mapping[str, float]
    seconds: float = 0.0

    @property
    def joules(self) -> float:
        """The run takes so many joules."""
        return sum(self.causes.values())

    @property
    def watts(self) -> float:
        """It takes so many watts on average; 0 if it takes no time."""
        return self.joules / self.seconds if self.seconds else 0.0

    def __add__(self, other: Energy) -> Energy:
        return Energy(
            {cause: self.causes[cause] + other.causes[cause] for cause in CAUSES}, self.seconds + other.seconds
        )

    def as_dict(self) -> dict[str, float]:
        """Return results as files and reports have them: joules, joules by cause, average watts."""
        parts = {f"energy_{cause}": joules for cause, joules in self.causes.items()}
        return {"energy": self.joules, **parts, "average_power": self.watts}


def found_in(table: NDArray[np.uint64]) -> dict[tuple[str, str, int], int]:
    """Return what a table of work has, by name of the op, 16-bit format and column."""
    return {
        (OPS[code].name, HALVES[half], column): int(table[code, half, column])
        for code, half, column in np.argwhere(table).tolist()
    }


def arithmetic_of(op: Op) -> tuple[str, ...]:
    """Return what an element or a scalar instruction computes: kinds of a format, with h for the 16-bit one.

    Examples
    --------
    >>> from wse_core.isa import BY_NAME
    >>> arithmetic_of(BY_NAME["fmachs"])
    ('h_multiply', 's_add')
    """
    name, types = op.name, op.types
    if op.cost == "divide" or op.form not in ("alu", "br") or name.startswith((*MOVES, "mov")):
        return ()
    if op.is_mac:
        return f"{types[3]}_multiply", f"{types[1]}_add"
    if name.startswith("fmul"):
        return (f"{types[0]}_multiply",)
    if name.startswith("mul"):
        return ("int_multiply",)
    if name.startswith(ADDS) or op.form == "br":
        return (f"{types[0]}_add" if types[0] in "hs" else "int_add",)
    if op.cost == "fp":  # from one format to another
        return ("s_add" if "s" in types else "h_add",)
    return ("int_add",)


@lru_cache(maxsize=4096)
def _costs(machine: Machine, op: Op, half: int, column: int) -> dict[str, int]:
    """Return what one entry of a column counts as."""
    found: dict[str, int] = {}
    read = written = 0
    computes = arithmetic_of(op)
    if column >= WORK_ELEMENTS:
        read, written = divmod(column - WORK_ELEMENTS, WORK_WORDS)
    else:
        read = WORDS[op.types[0]] * (op.form == "ld")
        written = WORDS[op.types[0]] * (op.form == "st")
        found["issue"] = machine[SLOTS[op.cost]] - 1 if op.cost in SLOTS else 0  # the first one is an instruction's
    for name, count in (("read", read), ("write", written)):
        if count:
            found[name] = count
    for what in computes:
        kind, _, does = what.partition("_")
        found[f"{ {'h': HALVES[half], 's': 'f32'}.get(kind, kind) }_{does}"] = 1
    return found
