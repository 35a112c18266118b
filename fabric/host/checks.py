"""Checks of memory while a program runs: races, accesses outside of an array, reads of words without a value.

`Fabric.check` begins them, before the first run; they change no cycle and no bit, and cost time only where they are on
(most where streams would move as trains).

* A *race*: a word that a microthread and another thread of the PE use, at least one of them writing, while the
  operation of the microthread is under way.  Nothing orders the two, so other timing gives other results.
* *Outside*: an element that lies in another variable than the one where its operand begins, or in none.  Of a load or
  store nothing says where its address was made from: it is found where it lies in no variable.
* *Unset*: a read of a word that has no value: of a variable of CSL without an initial value, or of an array without
  one if `zeros` is False.

FIFOs are how threads take turns, and are left out.  So are words that order themselves through the fabric: a race is
told where operations overlap, whatever the words that they send say to each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wse_core.encoding import FINDINGS, MAIN, MOST_FINDINGS, THREADS
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.image import FabricSpec, ProgramImage

__all__ = ["FINDING_DTYPE", "Finding", "MemoryChecks"]

FINDING_DTYPE = np.dtype(
    [
        ("cycle", "<u8"), ("before", "<u8"), ("count", "<u8"), ("cell", "<u4"), ("at", "<u4"), ("other_at", "<u4"),
        ("address", "<u4"), ("base", "<u4"), ("kind", "u1"), ("thread", "u1"), ("other", "u1"), ("writes", "u1"),
    ],
    align=True,
)  # fmt: skip
"""A finding of the engine is a record of 48 bytes."""


@dataclass(frozen=True)
class Finding:
    """A finding is one fault of memory, as often as it was met between the same two places of a program.

    Attributes
    ----------
    kind : {"race", "outside", "unset"}
    x, y : int
        The PE that met it first.
    cycle : int
    variable : str
        What was accessed, with the number of the element: ``y[3]``; a word address if no variable lies there.
    thread : str
        ``main``, or ``ut0`` to ``ut7``.
    where : str
        File and line, or the place in the program.
    writes : bool
    array : str
        Of an access outside: the variable in which the operand begins.
    other_thread, other_where, other_cycle, other_writes
        The other access of a race, which came before in this run.
    count : int
        Accesses of the kind between these places.
    """

    kind: str
    x: int
    y: int
    cycle: int
    variable: str
    thread: str
    where: str
    writes: bool
    array: str
    other_thread: str
    other_where: str
    other_cycle: int
    other_writes: bool
    count: int

    def __str__(self) -> str:
        done = "writes" if self.writes else "reads"
        text = f"{self.where}: {self.kind}: PE ({self.x}, {self.y}), cycle {self.cycle}: {_thread(self.thread)} {done}"
        text += f" {self.variable}"
        if self.kind == "race":
            before = "wrote" if self.other_writes else "read"
            text += f", which {_thread(self.other_thread)} {before} in cycle {self.other_cycle} ({self.other_where});"
            text += " nothing orders the two"
        elif self.kind == "outside":
            text += f", outside of {self.array}"
        else:
            text += ", which has no value"
        return text + (f" ({self.count} times)" if self.count > 1 else "")


def _thread(name: str) -> str:
    return "the main thread" if name == "main" else f"microthread {name[2:]}"


class MemoryChecks:
    """The checks of one fabric; made by `Fabric.check`.

    Parameters
    ----------
    engine : Engine
    spec : FabricSpec
    zeros : bool
        Whether arrays without initial values count as zeros.
    places : sequence of mapping, optional
        Per program and code word file and line.
    """

    def __init__(
        self, engine: Any, spec: FabricSpec, zeros: bool = True, places: Sequence[Mapping[int, str]] | None = None
    ) -> None:
        if not hasattr(engine, "findings"):
            raise UnsupportedError(
                "this machine checks no memory", feature="checks of memory", hint='backend="compiled", without ranks'
            )
        self.engine, self.spec = engine, spec
        self.places = [dict(entry) for entry in places or ()] or [image.lines for image in spec.programs]
        if len(self.places) != len(spec.programs):
            raise ConfigError(f"{len(self.places)} tables of places for {len(spec.programs)} programs")
        self._symbols = [sorted(image.symbols.values(), key=lambda s: s.address) for image in spec.programs]
        owners, unset = [], []
        for image, symbols in zip(spec.programs, self._symbols, strict=True):
            owner = np.zeros(image.footprint - image.code_words, np.uint16)
            none = np.zeros(len(owner), np.uint8)
            for number, symbol in enumerate(symbols, 1):
                first = symbol.address - image.code_words
                owner[first : first + symbol.words] = number
                if not zeros or symbol.name in image.undefined:
                    none[first : first + symbol.words] = 1
            for address, words in image.data:
                none[address - image.code_words : address - image.code_words + len(words)] = 0
            owners.append(owner)
            unset.append(none)
        engine.check(owners, unset)

    @property
    def found(self) -> list[Finding]:
        """What was found so far, in the order of finding; at most 1,024 different findings are kept."""
        records = np.frombuffer(self.engine.findings(), FINDING_DTYPE)
        return [self._finding(record) for record in records]

    def report(self) -> str:
        """Return all findings as text, a line each."""
        found = self.found
        lines = [str(finding) for finding in found]
        if len(found) == MOST_FINDINGS:
            lines.append(f"more than {MOST_FINDINGS} findings; the others were dropped")
        return "\n".join(lines)

    def _finding(self, record: np.void) -> Finding:
        stride = self.spec.width + 2
        y, x = divmod(int(record["cell"]), stride)
        x, y = x - 1, y - 1
        number = int(self.spec.program_index[y, x])
        race = FINDINGS[record["kind"]] == "race"
        return Finding(
            kind=FINDINGS[record["kind"]],
            x=x,
            y=y,
            cycle=int(record["cycle"]),
            variable=self._variable(number, int(record["address"])),
            thread=THREADS[record["thread"]],
            where=self._where(number, int(record["at"])),
            writes=bool(record["writes"] & 1),
            array=self._variable(number, int(record["base"])).partition("[")[0],
            other_thread=THREADS[record["other"]] if race else "",
            other_where=self._where(number, int(record["other_at"])) if race else "",
            other_cycle=int(record["before"]) if race else -1,
            other_writes=bool(record["writes"] & 2) and race,
            count=int(record["count"]),
        )

    def _variable(self, number: int, address: int) -> str:
        for symbol in self._symbols[number]:
            if symbol.address <= address < symbol.address + symbol.words:
                at = (address - symbol.address) * symbol.count // max(1, symbol.words)
                return symbol.name if symbol.count == 1 else f"{symbol.name}[{at}]"
        return f"word {address:#06x}"

    def _where(self, number: int, at: int) -> str:
        image: ProgramImage = self.spec.programs[number]
        found = self.places[number].get(at)
        if found is not None:
            return found
        labels = [(word, name) for name, word in image.labels.items() if word <= at and not name.startswith(".")]
        word, name = max(labels, default=(0, image.name))
        return f"program {image.name!r}, {name} + {at - word}"


assert len(THREADS) - 1 == MAIN
