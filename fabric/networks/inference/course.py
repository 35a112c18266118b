"""A program is followed from mark to mark, to find what a PE does between what it does with others.

Programs of inference mark what several PEs do together, and where their parts end (`Idioms.mark` and `Idioms.cut` of
`fabric.networks.inference.writer`).
A `Course` has the cycles of everything between, as `fabric.price` reads them from the instructions; what is cut out is
left to those who know who waits for whom.  A program that changes changes its courses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from fabric.price import timing
from fabric.price.code import Code, NotKnown
from fabric.price.state import KnownArithmetic, State, begin
from fabric.price.walk import Walker
from wse_core.errors import InternalError
from wse_core.image import DSD_FABOUT, ProgramImage
from wse_core.params import Machine

__all__ = ["MOST_WORDS", "Course", "MarkedProgram", "Met"]

MOST_WORDS = 1 << 15
"""Programs are priced for PEs with so many words of memory: whether they fit is another question."""


BEHIND = "behind "


class Met(NamedTuple):
    """A `Met` is an operation that meets the fabric, outside of what is cut out.

    Attributes
    ----------
    event : int
        Number of the event that it lies before.
    first : int
        Cycles from the event before that to its first step.
    steps : int
        Cycles of its steps if nothing has to be waited for.
    wavelets : int
    takes, sends : bool
    away : bool
        Whether a microthread does it.
    """

    event: int
    first: int
    steps: int
    wavelets: int
    takes: bool
    sends: bool
    away: bool


class Course(NamedTuple):
    """A `Course` is a stretch of a program with its cycles from mark to mark.

    Attributes
    ----------
    events : tuple of str
        Marks in the order in which they are met; one that begins a cut stands for all of it.
    cycles : tuple of int
        From the event before, or from the beginning, to each, if nothing has to be waited for.
    meetings : tuple of Met
    pending : int
        Cycles from the end until all registers can be used.
    state : State
        What is known in the end.
    """

    events: tuple[str, ...]
    cycles: tuple[int, ...]
    meetings: tuple[Met, ...]
    pending: int
    state: State

    @property
    def gaps(self) -> tuple[int, ...]:
        """So many cycles lie before the first step of each operation that meets the fabric, and behind the last one."""
        found, now, whole = [], 0, list(accumulate(self.cycles, initial=0))
        for met in self.meetings:
            first = whole[met.event] + met.first
            found.append(first - now)
            now = first + met.steps
        return (*found, whole[-1] - now)

    def behind(self, event: str) -> int:
        """Return the cycles from an event to the end."""
        return sum(self.cycles[self.events.index(event) + 1 :])

    def joined(self, other: Course) -> Course:
        """Return the course with one behind it that begins where it ends."""
        count = len(self.events)
        met = tuple(each._replace(event=each.event + count) for each in other.meetings)
        events, cycles = self.events + other.events, self.cycles + other.cycles
        return Course(events, cycles, self.meetings + met, other.pending, other.state)

    def spliced(self, part: Course, first: str, turn: int = 0) -> Course:
        """Return the course with another one in the place of as many events behind one of its own.

        `turn`: how often that one is passed before.
        """
        begin = [k for k, event in enumerate(self.events) if event == first][turn] + 1 if first else 0
        end = begin + len(part.events)
        assert self.events[begin:end] == part.events
        moved = tuple(met._replace(event=met.event + begin) for met in part.meetings)
        kept = tuple(met for met in self.meetings if not begin <= met.event < end)
        cycles = self.cycles[:begin] + part.cycles + self.cycles[end:]
        return self._replace(cycles=cycles, meetings=kept + moved)

    def met(self, event: str) -> list[Met]:
        """Return what is met on the way to an event."""
        at = self.events.index(event)
        return [each for each in self.meetings if each.event == at]


class MarkedProgram:
    """A `MarkedProgram` is a program that is followed from mark to mark.

    Parameters
    ----------
    image : ProgramImage
    machine : Machine

    Attributes
    ----------
    marks : dict of str to int
        The code word of each mark.
    """

    def __init__(self, image: ProgramImage, machine: Machine) -> None:
        self.image, self.machine = image, machine
        self.marks = {name.lstrip("."): at for name, at in image.labels.items() if not name.lstrip(".").isdigit()}
        self.places: dict[int, list[str]] = {}
        for mark, at in self.marks.items():
            self.places.setdefault(at, []).append(mark)
        self._tasks = {name for name, at in image.labels.items() if at in image.entry and not name.startswith(".")}
        self._tasks -= {name for name in self._tasks if " " in name}
        self._code, self._arithmetic = Code(image, machine), KnownArithmetic(image, machine)

    def address(self, name: str) -> int:
        """Return the word at which a variable begins; 0 if there is none of this name."""
        return self.image.symbols[name].address if name in self.image.symbols else 0

    def follow(
        self,
        first: str,
        last: str | Collection[str],
        given: Mapping[str, object] | None = None,
        state: State | None = None,
    ) -> Course:
        """Return the `Course` from one mark to another.

        Parameters
        ----------
        first : str
            A mark.
        last : str or collection of str
            The mark at which the way ends, or those of which the first one that is met ends it.
        given : mapping, optional
            Contents of variables, as of `fabric.price.price`; of those that the program has.
        state : State, optional
            What was known at the end of another course, instead.
        """
        symbols = self.image.symbols
        known = begin(self.image, {name: value for name, value in (given or {}).items() if name in symbols})
        known = known if state is None else state.copy()
        walker = Walker(self.image, self.machine, self._code, self._arithmetic, known)
        walker.pc, walker.main = self.marks[first], "run"
        names = _after(self.places[walker.pc], first)
        events: list[str] = []
        cycles: list[int] = []
        since, ends = 0, {last} if isinstance(last, str) else set(last)
        meetings: list[Met] = []
        while True:
            while names:
                mark = names.pop(0)
                if mark in self._tasks and ends.intersection(names):
                    continue  # a task begins where a loop does
                number, _, name = mark.partition(" ")
                events.append(name if number.isdigit() else mark)
                cycles.append(int(walker.main_next) - since)
                since = int(walker.main_next)
                if mark in ends:
                    pending = max(0, int(max(walker.ready)) - since)
                    return Course(tuple(events), tuple(cycles), tuple(meetings), pending, walker.state)
                if number.isdigit():
                    behind = f"{number} {BEHIND}{name}"
                    walker.pc = self.marks[behind]
                    names = _after(self.places[walker.pc], behind)
            ins, count = walker.code[walker.pc], len(walker.meetings)
            try:
                walker.issue()
            except NotKnown as fact:
                raise InternalError(f"{self.image.name}: {fact.what}, code word {fact.at}", where="price") from None
            issued = int(walker.since[1])
            if ins.asynchronous:
                held = walker.state.held.get(ins.a)
                sends = held is not None and held.kind == DSD_FABOUT
                wavelets, walker.beside = int(walker.beside), 0
                first_step = issued + timing.issue(self.machine) - since
                meetings.append(Met(len(events), first_step, wavelets, wavelets, not sends, sends, True))
            for met in walker.meetings[count:]:
                what = int(met.first) - since, int(met.length), met.wavelets, bool(met.takes), bool(met.sends)
                meetings.append(Met(len(events), *what, False))
            names = list(self.places.get(walker.pc, ()))


def _after(names: Sequence[str], name: str) -> list[str]:
    """Return the names behind one of them."""
    return list(names[names.index(name) + 1 :])
