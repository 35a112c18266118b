"""Prices of the tasks of a program: what each finds when it begins follows from the tasks that may have run before it.

The task that runs first begins with empty DSRs.  Every other one may follow any task, so it begins with what is the
same whichever ran: a DSR whose content is one at each of their ends is known, of others what they have in common.  That
is a fixed point: prices are taken until no task leaves anything new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from fabric.price.code import Choice, Code, NotKnown
from fabric.price.effects import left_behind
from fabric.price.prices import TaskPrice, Unknown
from fabric.price.state import Given, KnownArithmetic, State, begin, joined_states
from fabric.price.walk import Walker
from wse_core import isa
from wse_core.errors import InternalError
from wse_core.image import N_CONTROL_IDS, N_TASK_IDS, NO_TASK, ProgramImage
from wse_core.params import Machine

__all__ = ["Odds", "Pricer", "mean_price"]

Odds = Mapping[str, float] | float | None
"""`Odds` say how often branches are taken that depend on data: by source line, or for all; None: that is not known."""
WAYS = 64
"""At most so many ways through a task are followed one by one."""
UNLIKELY = 1e-9
BRANCHES = 5000
"""Branches that depend on data and are followed in a task."""
ROUNDS = 20
FIRST_REGISTER = isa.FILE_REG << 4
"""A task finds the data of its wavelet in this register."""


@dataclass
class _Ends:
    """How walks through a task ended: weight and walker of each, what was not known, whether there may be more ways."""

    ways: list[tuple[float, Walker]]
    unknown: list[NotKnown]
    open: bool


class Pricer:
    """A `Pricer` gives the prices of the tasks of one image.

    Parameters
    ----------
    image : ProgramImage
    machine : Machine
    given : mapping of (str or int) to array_like, optional
        Contents of variables that are known.
    initial : bool
        Whether the others hold what the program begins with.
    odds : float or mapping of str to float, optional
        How often a branch is taken whose data are not known: by source line, or for all.
    where : callable, optional
        Returns the source line of a code word.
    """

    def __init__(
        self,
        image: ProgramImage,
        machine: Machine,
        given: Given | None = None,
        initial: bool = False,
        odds: Odds = None,
        where: Callable[[int], str] | None = None,
    ) -> None:
        self.image, self.machine, self.odds = image, machine, odds
        self.where = cache(where or (lambda at: image.lines.get(at, f"code word {at}")))
        self.code, self.arithmetic = Code(image, machine), KnownArithmetic(image, machine)
        self._begin = begin(image, given, initial)
        self._first = self._runs_first()
        self._pool: State | None = None
        self._known: dict[tuple[object, ...], TaskPrice] = {}

    # --- which tasks there are ----------------------------------------------------------------------------------------

    def names(self) -> dict[str, tuple[str, int]]:
        """Return kind (``task`` or ``control``) and number of each task by its name, in the order of the code."""
        return {name: known for known, name in self._named.items()}

    @cached_property
    def _named(self) -> dict[tuple[str, int], str]:
        labels = {at: name for name, at in self.image.labels.items() if not name.startswith(".")}
        tables = (("task", N_TASK_IDS, self.image.entry), ("control", N_CONTROL_IDS, self.image.control_entry))
        tasks = [(int(table[k]), kind, k) for kind, count, table in tables for k in range(count) if table[k] >= 0]
        found: dict[str, tuple[str, int]] = {}
        for entry, kind, number in sorted(tasks):
            name = labels.get(entry, f"{kind} {number}")
            found[name if name not in found else f"{name} ({kind} {number})"] = kind, number
        return {known: name for name, known in found.items()}

    def _entry(self, kind: str, number: int) -> int:
        entry = int((self.image.control_entry if kind == "control" else self.image.entry)[number])
        if entry < 0:
            raise InternalError(f"the program has no {kind} {number}", where="price: task")
        return entry

    def _runs_first(self) -> tuple[str, int] | None:
        """Return the task that runs before all others, None if that is not known."""
        image = self.image
        active = [k for k in range(N_TASK_IDS) if image.active >> k & 1 and image.entry[k] >= 0]
        high = [k for k in active if image.high >> k & 1]
        if active:
            return "task", min(high or active)
        local = {k for k in range(N_TASK_IDS) if image.entry[k] >= 0 and not image.data_tasks >> k & 1}
        roots = local - self._activated()
        return ("task", roots.pop()) if len(roots) == 1 else None

    def _activated(self) -> set[int]:
        """Return the tasks that the program may activate itself."""
        found = set()
        for ins in self.code.values():
            if ins.op.name == "activate":
                found.add(ins.a)
            if ins.asynchronous:
                found.add(isa.async_fields(int(ins.imm or 0))["activate"])
        for name in ("control_task", "push_task", "pop_task"):
            found |= {int(one[name]) for one in self.image.descriptors}
        return found - {None, NO_TASK}

    # --- what they find -----------------------------------------------------------------------------------------------

    @property
    def pool(self) -> State:
        """This is known when a task begins that may follow any other."""
        if self._pool is None:
            self._pool = self._fixed_point()
        return self._pool

    def _fixed_point(self) -> State:
        tasks = list(self._named)
        pool = self._begin if self._first is None else self._after(self._entry(*self._first), self._begin)
        for _ in range(ROUNDS):
            before = pool
            for kind, number in tasks:
                again = (kind, number) != self._first or number in self._activated()
                if again:
                    pool = joined_states(pool, self._after(self._entry(kind, number), self._wavelet(pool)))
            if pool == before:
                return pool
        raise InternalError("what tasks leave behind does not come to rest", where="price: tasks")

    def _after(self, entry: int, state: State) -> State:
        """Return what a task leaves that begins in a state."""
        ends = self._follow(self._walker(entry, state))
        if ends.open or any(not isinstance(one, Choice) for one in ends.unknown):
            return left_behind(self.code, entry, state)
        found = ends.ways[0][1].state
        for _, walker in ends.ways[1:]:
            found = joined_states(found, walker.state)
        return found

    @staticmethod
    def _wavelet(state: State, data: int | None = None) -> State:
        """Return a state with what a wavelet brings in the first two registers."""
        state = state.copy()
        state.write(FIRST_REGISTER, 1, data)
        state.write(FIRST_REGISTER + 1, 1, None)
        return state

    # --- walks --------------------------------------------------------------------------------------------------------

    def _walker(self, entry: int, state: State, row: int = 0, array: int | None = None) -> Walker:
        walker = Walker(self.image, self.machine, self.code, self.arithmetic, state.copy(), row, array)
        walker.start(entry)
        return walker

    def _odds(self, at: int) -> float | None:
        """Return how often the branch at a code word is taken, None if nobody said."""
        if self.odds is None or isinstance(self.odds, (int, float)):
            return self.odds
        return self.odds.get(self.where(at))

    def _follow(self, walker: Walker) -> _Ends:
        """Go all ways through a task.

        Those that come to the same branch in the same situation are one from there on, with the mean of their times; so
        a loop that goes on with some odds is followed until what is left is `UNLIKELY`.
        """
        waiting: dict[object, tuple[float, Walker, Choice]] = {}
        ends = _Ends([], [], False)
        self._go(1.0, walker, waiting, ends)
        for _ in range(BRANCHES):
            if not waiting:
                return ends
            key = min(waiting, key=lambda key: (waiting[key][1].turns, waiting[key][2].at))
            weight, one, choice = waiting.pop(key)
            odds, back = self._odds(choice.at), int(self.code[choice.at].imm or 0) <= choice.at
            if odds is None and all(choice.at != other.at for other in ends.unknown):
                ends.unknown.append(choice)
            shares = (odds, 1 - odds) if odds is not None else (0.5, 0.5)
            if odds is None and (back or len(ends.ways) + len(waiting) >= WAYS):
                shares = (0, 1)
                ends.open = True
            for taken, share in zip((True, False), shares, strict=True):
                if weight * share > UNLIKELY:
                    other = one.copy()
                    other.choice = taken
                    self._go(weight * share, other, waiting, ends)
        ends.unknown.append(NotKnown(f"which of more than {BRANCHES:,} branches are taken", walker.pc))
        ends.ways += [(weight, one) for weight, one, _ in waiting.values()]
        ends.open = True
        return ends

    def _go(
        self, weight: float, walker: Walker, waiting: dict[object, tuple[float, Walker, Choice]], ends: _Ends
    ) -> None:
        """Let a walker go on to its end, or to the next branch that depends on what is not known.

        What is kept of an exception has no traceback, which would keep all callers and what they have open.
        """
        try:
            walker.finish()
        except Choice as choice:
            key: object = object()
            if self._odds(choice.at) is not None and not walker.flights:
                key = walker.situation()
            if key in waiting:
                before, other, _ = waiting[key]
                other.join(walker, weight / (before + weight))
                waiting[key] = before + weight, other, choice
            else:
                waiting[key] = weight, walker, choice.with_traceback(None)
            return
        except NotKnown as fact:
            ends.unknown.append(fact.with_traceback(None))
            ends.open = True
        ends.ways.append((weight, walker))

    def _price(self, entry: int, state: State, array: int | None, name: str) -> TaskPrice:
        """Return the price of a task that begins in a state: the mean over rows, if its operands move."""
        return self._mean_of(self._follow(self._walker(entry, state, 0, array)), entry, state, array, name)

    def _mean_of(self, ends: _Ends, entry: int, state: State, array: int | None, name: str) -> TaskPrice:
        """Return the mean price over rows, of which the ways of row 0 are known, of a task whose operands move; rows
        from the same banks on are alike.
        """
        found = [self._of_ways(ends, name)]
        if any(walker.moved for _, walker in ends.ways):
            alike = self.code.modulus
            for row in range(1, self.machine["mem.banks"]):
                if row >= alike:
                    found.append(found[row - alike])
                else:
                    found.append(self._of_ways(self._follow(self._walker(entry, state, row, array)), name))
        return mean_price([1.0] * len(found), found)

    def _of_ways(self, ends: _Ends, name: str) -> TaskPrice:
        """Return the price of the ways through a task."""
        unknown = tuple(Unknown(one.what, self.where(one.at), name) for one in ends.unknown)
        prices = [self._of_way(walker) for _, walker in ends.ways]
        cycles = [one.alone for one in prices]
        one = prices[int(np.argmin(cycles))] if unknown else mean_price([weight for weight, _ in ends.ways], prices)
        return replace(one, unknown=unknown, least=min(cycles), most=float("inf") if ends.open else max(cycles))

    def _of_way(self, walker: Walker) -> TaskPrice:
        """Return the price of one way."""
        lines: dict[str, float] = {}
        for at, cycles in walker.lines.items():
            where = self.where(at)
            lines[where] = lines.get(where, 0) + cycles
        end, meetings = walker.now + 1, tuple(walker.meetings)
        if not meetings:
            return TaskPrice(end, beside=walker.beside, lines=lines)
        first = meetings[0]
        return TaskPrice(first.first, first.length, end - first.end, meetings, walker.beside, lines)

    # --- one task after the other -------------------------------------------------------------------------------------

    def begun(self) -> State:
        """Return what is known of the PE when the task that runs first has ended."""
        return self._begin.copy() if self._first is None else self._after(self._entry(*self._first), self._begin)

    def told(self, state: State, kind: str, number: int, data: int | None = None) -> tuple[TaskPrice, State]:
        """Return the price of a task that begins in a state, and what is known behind it.

        Parameters
        ----------
        state : State
            What `begun` returned, or this.
        kind, number, data
            As of `task`.
        """
        entry, state = self._entry(kind, number), self._wavelet(state, data)
        ends = self._follow(self._walker(entry, state))
        mean = self._mean_of(ends, entry, state, None, self._named[kind, number])
        behind = left_behind(self.code, entry, state) if ends.open else ends.ways[0][1].state
        for _, walker in () if ends.open else ends.ways[1:]:
            behind = joined_states(behind, walker.state)
        return mean, behind

    # --- prices -------------------------------------------------------------------------------------------------------

    def task(
        self,
        kind: str,
        number: int,
        array: int | None = None,
        data: int | None = None,
        after: tuple[str, int] | None = None,
    ) -> TaskPrice:
        """Return the price of a task.

        Parameters
        ----------
        kind : {"task", "control"}
        number : int
            Its id.
        array : int, optional
            Address of the array over which operands move whose base is not known; default where they once pointed.
        data : int, optional
            Lower half of the wavelet, if what the task does depends on it.
        after : (kind, number), optional
            Task that ran before and left registers that this one reads.

        Raises
        ------
        InternalError
            There is no such task.
        """
        key = kind, number, array, data, after
        if key not in self._known:
            entry = self._entry(kind, number)
            first = (kind, number) == self._first and number not in self._activated()
            state = (self._begin if first else self.pool).copy()
            if after is not None:
                walker = self._walker(self._entry(*after), self._wavelet(state))
                walker.finish()
                state.registers = list(walker.state.registers)
            if not first:
                state = self._wavelet(state, data)
            if array is not None:
                state.held = {
                    name: one.at(array, True) if one is not None and one.moves else one
                    for name, one in state.held.items()
                }
            self._known[key] = self._price(entry, state, array, self._named[kind, number])
        return self._known[key]


def mean_price(weights: list[float], prices: list[TaskPrice]) -> TaskPrice:
    """Return the mean of prices; meetings and the length of the first are those of the first price."""
    if len(prices) == 1:
        return prices[0]
    share = np.array(weights) / sum(weights)

    def mean(values: list[float]) -> float:
        return float(np.dot(share, values))

    lines = {line: mean([one.lines.get(line, 0) for one in prices]) for one in prices for line in one.lines}
    return replace(
        prices[0],
        before=mean([one.before for one in prices]),
        after=mean([one.after for one in prices]),
        length=mean([one.length for one in prices]),
        beside=mean([one.beside for one in prices]),
        lines=lines,
        least=min(one.least for one in prices),
        most=max(one.most for one in prices),
    )
