"""The commands of a network are priced in the order in which a PE is told them.

What a command takes depends on what was told before it: planes and windows, pointers, lists of operands.  So one PE is
followed: each command is walked through (`fabric.price`) with what is known of the PE behind the one before.  The
program is that of a PE in the middle of the mesh; those of other columns do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fabric.kernels.streamed.forward import WEIGHT
from fabric.kernels.streamed.gradient import row_kind
from fabric.networks.streamed.commands import SHARED, data_of
from fabric.networks.streamed.operations.attention import the_form
from fabric.networks.streamed.operations.blocks import PLACE, QUEUES_NORTH, QUEUES_SOUTH, rows_of
from fabric.networks.streamed.operations.head_columns import FIRST_KEY, KEYS, QUEUES, keys_of
from fabric.networks.streamed.operations.kept import order_of
from fabric.networks.streamed.operations.resample import CONSTANTS, constants_of
from fabric.networks.streamed.operations.strips import STRIP
from fabric.networks.streamed.resident import Resident
from fabric.price.code import Meeting
from fabric.price.lines import Bond, follow
from fabric.price.prices import TaskPrice
from fabric.price.tasks import Pricer, mean_price
from wse_core.params import Machine

__all__ = ["ToldPrices", "together"]

TOGETHER = 4
"""Most commands that are followed on several rows of PEs at once; more take as long as the last of them each."""


class ToldPrices:
    """`ToldPrices` are those of the commands of a PE, as told.

    Parameters
    ----------
    resident : Resident
        What it says of its arrays is what the PE's table of addresses has.
    column : int, optional
        Of the PE; default one in the middle.
    """

    def __init__(self, resident: Resident, column: int | None = None) -> None:
        width, height = resident.width, resident.height
        column = min(1, width - 1) if column is None else column
        image = resident.program(column, row_kind(min(1, height - 1), height)).assemble()
        given: dict[str | int, Any] = {
            name: _first_of(image.data, symbol.address)
            for name, symbol in image.symbols.items()
            if symbol.count == 1 and symbol.words == 1
        }
        given["table"] = resident.addresses(image)
        part = resident.part(column)
        if part is not None and KEYS in image.symbols:
            node = the_form(resident.network)
            length = node.size("sequence") // rows_of(node.size("sequence"), resident.tokens)
            given[FIRST_KEY] = -part.place % part.columns
            given[KEYS] = keys_of(part.place, part.columns, length)
        if STRIP in image.symbols:
            given[STRIP] = 1  # with neighbours on both sides, if there are so many
        if CONSTANTS in image.symbols:
            given[CONSTANTS] = constants_of(resident.inner, resident.tokens, resident.half)[0]
        if resident.network.keep_output:
            given |= order_of(resident.plan, column)
        self._pricer = Pricer(image, resident.machine, given)
        self._weight = self._pricer.names()[WEIGHT]
        self._ids, self._arrays = resident.ids, resident.arrays
        self._alike = resident.machine["mem.banks"]  # so many rows behind one another have all addresses there are
        place = PLACE if PLACE in image.symbols else STRIP
        self._place = image.symbols[place].address if place in image.symbols else None
        self._state = self._pricer.begun()
        self._known: dict[tuple[object, ...], TaskPrice] = {}

    def tell(self, name: str, data: int | str | None = None) -> float:
        """Return the cycles of a command; the next ones come behind it."""
        number = self._arrays[data] if isinstance(data, str) else self._data(name, data)
        price, self._state = self._pricer.told(self._state, "control", self._ids[name], number)
        self._known = {}
        return price.alone

    def each(self, blocks: Sequence[Sequence[tuple[str, int | None]]], most: int) -> np.ndarray:
        """Return the cycles of none to `most` blocks of commands, one behind the other.

        Parameters
        ----------
        blocks : sequence of sequence of (str, int or None)
            Commands and their data; behind the last block the first one comes again.
        """
        taken: list[float] = []
        while len(taken) < min(most, max(len(blocks), self._alike)):
            taken.append(sum(self.tell(*one) for one in blocks[len(taken) % len(blocks)]))
        rest = [float(np.mean(taken))] * (most - len(taken)) if taken else []
        return np.concatenate([[0.0], np.cumsum(taken + rest)])

    def of_row(self, name: str, data: int | None, row: int, last: bool) -> TaskPrice:
        """Return the price of a command in some row of a sequence, or of an image; the next ones come behind the `last`
        row's.
        """
        state = self._state.copy()
        if self._place is not None:
            state.memory[self._place] = row
        price, behind = self._pricer.told(state, "control", self._ids[name], self._data(name, data))
        if last:
            if self._place is not None and self._place in self._state.memory:
                behind.memory[self._place] = self._state.memory[self._place]
            self._state, self._known = behind, {}
        return price

    def command(self, name: str, array: str | None = None, data: int | None = None) -> TaskPrice:
        """Return the mean cost of a command that comes again and again from here on."""
        return self._mean("control", self._ids[name], self._data(name, data))

    def _data(self, name: str, data: int | None) -> int | None:
        """Return the data of a command, also of one that they only tell apart; None: they do not matter."""
        return data_of(self._ids, name) if data is None and name in SHARED else data

    def alone(self, *names: str) -> float:
        """Return the cycles of commands one after the other, if none has to wait."""
        return sum(self.command(name).alone for name in names)

    def row(self, name: str, places: int, none: int = 0) -> float:
        """Return what a command that begins a row takes longer if its data ask for gradients, not for `none`."""
        return self.command(name, data=places).alone - self.command(name, data=none).alone

    def weight(self, array: str, form: str, mixed: bool) -> float:
        """Return the cycles of a wavelet with a weight and a step, or with a pair of weights, as was told."""
        return self._mean(*self._weight).alone

    def _mean(self, kind: str, number: int, data: int | None = None) -> TaskPrice:
        key = kind, number, data
        if key not in self._known:
            state, found = self._state, list[TaskPrice]()
            for _ in range(self._alike):
                before = state
                price, state = self._pricer.told(state, kind, number, data)
                found.append(price)
                if state.held == before.held:
                    break
            self._known[key] = mean_price([1.0] * len(found), found)
        return self._known[key]


def together(
    machine: Machine,
    columns: Sequence[ToldPrices],
    rows: int,
    blocks: Sequence[Sequence[tuple[str, int | None]]],
    most: int,
) -> np.ndarray:
    """Return the cycles of none to `most` blocks of commands that several PEs do together, each with its own part.

    Parameters
    ----------
    machine : Machine
    columns : sequence of ToldPrices
        Of the columns of a head, which are a ring (`fabric.networks.streamed.operations.head_columns`).
    rows : int
        Of PEs that hand blocks of a sequence on to each other (`fabric.networks.streamed.operations.blocks`), or strips
        of images and sums over them (`fabric.networks.streamed.operations.strips`).
    blocks : sequence of sequence of (str, int or None)
        Commands and their data; behind the last block the first one comes again.
    most : int
    """
    done: list[list[TaskPrice]] = [[] for _ in range(rows * len(columns))]
    taken = [0.0]
    for k in range(min(most, TOGETHER)):
        for name, data in blocks[k % len(blocks)]:
            for place, column in enumerate(columns):
                for row in range(rows):
                    done[place * rows + row].append(column.of_row(name, data, row, row == rows - 1))
        tasks = [_joined(every) for every in done]
        taken.append(max(follow(machine, tasks, _bonds(tasks, rows))))
    last = taken[-1] - taken[-2] if len(taken) > 1 else 0.0
    return np.array(taken + [taken[-1] + last * (k + 1) for k in range(most + 1 - len(taken))])


def _joined(tasks: Sequence[TaskPrice]) -> TaskPrice:
    """Return tasks one behind the other as one."""
    meetings: list[Meeting] = []
    start = 0.0
    for one in tasks:
        meetings += [meeting._replace(first=meeting.first + start) for meeting in one.meetings]
        start += one.alone
    if not meetings:
        return TaskPrice(start)
    first, length = meetings[0].first, meetings[0].length
    return TaskPrice(first, length, start - first - length, tuple(meetings))


def _bonds(tasks: Sequence[TaskPrice], rows: int) -> list[Bond]:
    """Return what the PEs of a head and a sequence send each other: what is sent first is taken first.

    Each has two queues to the row behind and two to the row before, and two of the ring of its head.
    """
    columns = len(tasks) // rows
    pairs = [
        (place * rows + row, place * rows + row + step, 1, queues)
        for queues, step in ((QUEUES_SOUTH, 1), (QUEUES_NORTH, -1))
        for place in range(columns)
        for row in range(max(0, -step), rows - max(0, step))
    ]
    for place in range(columns if columns > 1 else 0):
        onward = (place + 1) % columns
        hops = 1 if onward else columns - 1
        pairs += [(place * rows + row, onward * rows + row, hops, QUEUES) for row in range(rows)]
    found = []
    for one, other, hops, (into, out) in pairs:
        sent = [k for k, meeting in enumerate(tasks[one].meetings) if out in meeting.sends]
        came = [k for k, meeting in enumerate(tasks[other].meetings) if into in meeting.takes]
        found += [Bond((one, a), (other, b), hops, out, into) for a, b in zip(sent, came, strict=True)]
    return found


def _first_of(data: Sequence[tuple[int, Any]], address: int) -> int:
    """Return the word at an address before a program runs."""
    return next((int(words[address - at]) for at, words in data if at <= address < at + len(words)), 0)
