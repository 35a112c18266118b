"""Layouts are priced here: each program with the parameters that the layout sets for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabric.layout.layout import Layout
from fabric.price.prices import ProgramPrice
from fabric.price.program import price
from fabric.price.state import Given
from fabric.price.tasks import Odds
from fabric.program.program import Program
from wse_core.params import Machine

__all__ = ["PlacedPrice", "price_layout", "programs_of"]


@dataclass(frozen=True)
class PlacedPrice:
    """A `PlacedPrice` is the price of the PEs of a layout that have one program and the same parameters.

    Attributes
    ----------
    x, y : int
        The first of them, row by row.
    count : int
        How many there are.
    price : ProgramPrice
    """

    x: int
    y: int
    count: int
    price: ProgramPrice


def programs_of(layout: Layout, each: bool = False) -> list[tuple[int, int, int, int, dict[int, int]]]:
    """Return ``(program, x, y, count, words)`` for PEs with one program and the same parameters.

    `program` is a number in the specification that the layout builds, (x, y) the first of `count` PEs, and `words` what
    `Layout.set_param` puts into their SRAM, by address.  With `each` every PE stands for itself.
    """
    spec = layout.build()
    writes = list(layout.param_writes())
    kind = spec.program_index.astype(np.int64)
    for _, words, x, y in writes:
        rows, columns, _ = words.shape
        part = kind[y : y + rows, x : x + columns]
        pairs = np.concatenate([part.reshape(-1, 1), words.reshape(rows * columns, -1)], axis=1)
        which = np.unique(pairs, axis=0, return_inverse=True)[1]
        part[...] = kind.max() + 1 + which.reshape(part.shape)
    found = []
    alike = np.arange(kind.size) if each else kind
    for first, count in zip(*np.unique(alike, return_index=True, return_counts=True)[1:], strict=True):
        y, x = divmod(int(first), spec.width)
        program = int(spec.program_index[y, x])
        if program < 0:
            continue
        memory: dict[int, int] = {}
        for address, words, left, top in writes:
            if 0 <= y - top < words.shape[0] and 0 <= x - left < words.shape[1]:
                memory |= dict(enumerate(map(int, words[y - top, x - left]), address))
        found.append((program, x, y, int(count), memory))
    return sorted(found, key=lambda one: (one[2], one[1]))


def price_layout(
    layout: Layout,
    machine: Machine | None = None,
    *,
    given: Given | None = None,
    initial: bool = False,
    odds: Odds = None,
) -> list[PlacedPrice]:
    """Return what the programs of a layout cost, one price for all PEs with one program and the same parameters.

    Parameters
    ----------
    layout : Layout
    machine : Machine, optional
        Default that of the layout.
    given, initial, odds
        As of `fabric.price.price`; variables of `given` need not be in all programs.
    """
    machine = layout.machine if machine is None else machine
    found = []
    for number, x, y, count, words in programs_of(layout):
        program = layout.programs[number]
        image = program.assemble() if isinstance(program, Program) else program
        known: dict[str | int, object] = dict(words.items())
        known |= {name: value for name, value in (given or {}).items() if name in image.symbols}
        cost = price(program, machine, given=known, initial=initial, odds=odds)
        found.append(PlacedPrice(x, y, count, cost))
    return found
