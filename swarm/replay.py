"""What an iteration would take on other ways: links, nodes, updates, tiers or buffers with other numbers.

A wafer's program does the same steps whatever the numbers are.  A pass that finds all its words there (*unhindered*)
says when each word can enter a column, when it is worked on, and when each number leaves.  `ReplayPort` takes the place
of a simulated wafer in `swarm.ways.Ways`: a word that comes later than it is worked on moves all that follows by so
much, and so does a number that may not leave.  So the ways are run again, which takes milliseconds, and no wafer is.

What that leaves out: a column that is late need not hold up one that does not need it yet, so a replay is never faster
than the wafers, and slower where columns have slack.  So `savings` first replays the ways as they are; if that misses
the cycles of the simulated iteration by more than `TRUSTED`, wafers are simulated with every change as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.streamed.script import Script
from memx.tiers import BEHIND
from swarm.ports import KnownTimes, link_times, whole
from swarm.servers import Server
from swarm.ways import Ways
from wse_core.params import PARAMETERS, Machine

__all__ = ["CHANGES", "NOTED", "Change", "ReplayPort", "UnhinderedPass", "bottleneck", "cycles", "savings"]

Times = NDArray[np.float64]

NOTED = 0.01
"""A change has to save this share of an iteration to be worth a name."""
TRUSTED = 0.02
"""A replay may miss what was simulated by this share of an iteration."""
SETTLED = 8
"""Iterations after which a replay is taken as it is, if two in a row never take the same time."""


@dataclass(frozen=True)
class Change:
    """A change of the ways has other numbers of a machine, and is called by what an iteration waits for.

    Attributes
    ----------
    cause : str
        What an iteration waits for if the change saves most.
    text : str
        For people.
    numbers : callable
        Called with a machine; returns those of its numbers that change.
    """

    cause: str
    text: str
    numbers: Callable[[Machine], dict[str, Any]]


def _twice(name: str, other: str = "") -> Callable[[Machine], dict[str, Any]]:
    """Return a change of a number to its double; what is no faster beside it keeps up."""

    def changed(given: Machine) -> dict[str, Any]:
        most = PARAMETERS[name].field.high
        found = {name: 2 * given[name] if most is None else min(2 * given[name], most)}
        if other and given[other] >= given[name]:
            found[other] = max(given[other], found[name])
        return found

    return changed


LEAST = PARAMETERS["answer.latency"].field.low
"""No answer is faster."""

CHANGES = (
    Change("link", "links twice as fast", _twice("link.rate", "node.rate")),
    Change("node", "nodes twice as fast", _twice("node.rate", "link.rate")),
    Change("round trip", "no latency", lambda _: {"node.latency": 0, "update.latency": 0, "answer.latency": LEAST}),
    Change("update", "updates twice as fast", _twice("update.rate")),
    *(Change(name, f"{name} twice as fast", _twice(rate)) for name, (_, rate) in BEHIND.items()),
    Change("stream", "a stream from DRAM twice as fast", _twice("stream.rate")),
    Change("buffer", "buffers twice as large", _twice("link.buffer")),
)
"""These changes are tried, each alone."""


class UnhinderedPass:
    """An `UnhinderedPass` is how a wafer works on a pass if nothing keeps it waiting.

    Parameters
    ----------
    script : Script
    cycles : int
    entered : ndarray
        When each word entered, in the order of sending.
    left : ndarray
        When each number left, in the order of asking.

    Attributes
    ----------
    used : ndarray
        When each word is worked on, or at least makes room for another one: when the word enters that finds the place
        which it leaves in the queues of its column.  How many words these hold is seen at the begin, where they enter
        one after the other until the queues are full.
    needed : ndarray of int
        Per number: words, in the order of sending, that have been sent when it is asked for.
    stuck : ndarray
        Per count of numbers that may leave: when the first of the others would.
    """

    def __init__(self, script: Script, cycles: int, entered: NDArray[Any], left: NDArray[Any]) -> None:
        self.script, self.cycles = script, cycles
        self.entered, self.left = np.asarray(entered, np.float64), np.asarray(left, np.float64)
        self.used = self.entered.copy()
        sender = script.sender[script.sequence]
        for column in range(script.columns):
            mine = np.flatnonzero(sender == column)
            times = self.entered[mine]
            slow = np.diff(times) > FULL
            room = 1 + int(slow.argmax()) if slow.any() else len(times)
            later = np.concatenate([times[room:], np.full(min(room, len(times)), float(cycles))])
            if len(times) > room:  # the last ones: as long before their use as the one before them
                last = times[-room:] + (times[-1] - times[-1 - room])
                later[-room:] = np.minimum(last, cycles)
            self.used[mine] = np.maximum(times, later - 1)
        place = np.empty(script.n_words, np.int64)
        place[script.sequence] = np.arange(script.n_words)
        asking = script.asking[script.back]
        self.needed = np.maximum.accumulate(np.where(asking >= 0, place[np.maximum(asking, 0)] + 1, 0))
        self.stuck = np.minimum.accumulate(np.append(self.left, np.inf)[::-1])[::-1]


FULL = 2
"""More cycles than this between two words of a column tell that its queues were full."""


class _Lateness:
    """A `_Lateness` says how late the latest thing was up to a time, of at most `most` things that happened."""

    def __init__(self, most: int) -> None:
        self._at, self._late, self._count = np.empty(most + 1), np.empty(most + 1), 1
        self._at[0], self._late[0] = -np.inf, 0.0

    def happens(self, at: Times, due: NDArray[Any]) -> None:
        """Take in things that happen at some times and were due at others; those before them stay."""
        late = due - at
        new = np.flatnonzero(late > 0)
        if not len(new):
            return
        first = max(1, int(np.searchsorted(self._at[: self._count], at[new].min(), "left")))
        at = np.concatenate([self._at[first : self._count], at[new]])
        late = np.concatenate([self._late[first : self._count], late[new]])
        order = np.argsort(at, kind="stable")
        at, most = at[order], np.maximum.accumulate(np.concatenate([self._late[first - 1 : first], late[order]]))
        rises = most[1:] > most[:-1]
        self._count = first + int(rises.sum())
        self._at[first : self._count], self._late[first : self._count] = at[rises], most[1:][rises]

    def by(self, times: Times) -> Times:
        """Return how late the latest of all was up to each of some times."""
        return self._late[np.searchsorted(self._at[: self._count], times, "right") - 1]


class ReplayPort:
    """The end of a link whose wafer is known by its `UnhinderedPass`; used as `swarm.ports.WaferPort` is.

    Parameters
    ----------
    course : UnhinderedPass
    gap : float
        Cycles of a word on the link.
    """

    def __init__(self, course: UnhinderedPass, gap: float) -> None:
        self.course, self.link, self.ended = course, Server(gap), 0

    def begin(self, ready: int) -> None:
        """Begin a pass; no word enters before `ready`."""
        words, numbers = len(self.course.entered), len(self.course.left)
        self.ready, self.clock, self.quiet = ready, self.ended, True
        self.link.free = float(ready)
        self.entered, self.left = np.full(words, np.nan), np.full(numbers, np.nan)
        self._known = KnownTimes(self.entered), KnownTimes(self.left)
        self._arrived, self._waiting, self._gone = np.empty(words), np.empty(0, np.int64), 0
        self._late = _Lateness(words + numbers)
        self.offered, self.allowed, self.limited = 0, 0, False

    def offer(self, arrived: Times) -> None:
        """Let the next words of the pass enter when they have arrived."""
        new = slice(self.offered, self.offered + len(arrived))
        self._arrived[new] = whole(link_times(self.link, arrived, self.ready, self.ended))
        self._late.happens(self.course.used[new], self._arrived[new] - self.ready)
        self._waiting = np.concatenate([self._waiting, np.arange(new.start, new.stop)])
        self.offered = new.stop

    def allow(self, taken: Times) -> None:
        """Let the next numbers of the pass leave, each not before its cycle; all of them so far."""
        self._late.happens(self.course.left[self.allowed : self.allowed + len(taken)], whole(taken) - self.ready)
        self.allowed += len(taken)

    def lacks(self) -> tuple[float, float]:
        """Return when a word could be lacking, or leave for a number: any time."""
        return 0.0, 0.0

    def advance(self, horizon: float) -> bool:
        """Go as far as what is known allows; return whether anything happened."""
        course = self.course
        free = course.entered[self._waiting] <= course.stuck[self.allowed]
        if not free.any():
            free[:1] = True  # in the order of sending there is always a way on
        enter, self._waiting = self._waiting[free], self._waiting[~free]
        self.entered[enter] = np.maximum(self._arrived[enter], self._shifted(course.entered[enter]))
        asked = int(np.searchsorted(course.needed, self.offered, "right"))
        gone = slice(self._gone, max(self._gone, min(asked, self.allowed)))
        self.left[gone], self._gone = self._shifted(course.left[gone]), gone.stop
        if self.offered == len(self.entered) and self.allowed == len(self.left):
            self.ended = int(np.ceil(self.ready + course.cycles + self._late.by(np.full(1, np.inf))[0]))
        self.clock = self.ended if np.isinf(horizon) else int(whole(horizon))
        return len(enter) + gone.stop - gone.start > 0

    def _shifted(self, times: Times) -> Times:
        """Return when things happen, moved by all that was late until then."""
        return times + self.ready + self._late.by(times)

    def known(self) -> tuple[Times, Times]:
        """Return when words entered and numbers left, each with all before it, as far as that is known."""
        return self._known[0].now(), self._known[1].now()

    def finish(self) -> None:
        """End a pass, after which nothing is left to do."""


def cycles(course: UnhinderedPass, ways: Ways, wafers: int, samples: int, passes: Sequence[tuple[bool, bool]]) -> float:
    """Return the cycles of an iteration in steady state, the mean of two if they never settle.

    Parameters
    ----------
    course : UnhinderedPass
    ways : Ways
        New ones, without ports.
    wafers : int
    samples : int
        Numbers of the samples of a wafer and pass.
    passes : sequence of (update, whole)
        Of an iteration; see `swarm.system.System.train`.
    """
    ways.ports = [ReplayPort(course, ways.gap) for _ in range(wafers)]
    taken: list[int] = []
    for _ in range(SETTLED):
        before = ways.clock
        for update, together in passes:
            ways.run(course.script, samples, update, together, None, _one_by_one)
            if update:
                ways.service.took(course.script, ways.up, True)
        taken.append(ways.clock - before)
        if len(taken) > 2 and taken[-1] == taken[-2]:
            break
    return sum(taken[-2:]) / 2


def _one_by_one(ports: Sequence[ReplayPort], horizons: Sequence[float], _: object) -> list[bool]:
    return [port.advance(horizon) for port, horizon in zip(ports, horizons, strict=True)]


def savings(
    ways: Ways,
    course: UnhinderedPass,
    actual: float,
    samples: int,
    passes: Sequence[tuple[bool, bool]],
    simulated: Callable[[Machine, Sequence[tuple[bool, bool]]], float],
) -> dict[str, float]:
    """Return, by the text of each of `CHANGES`, the share of an iteration that the change would have saved.

    A change that saves nothing is left out.

    Parameters
    ----------
    ways : Ways
        Those that were simulated.
    course : UnhinderedPass
    actual : float
        Cycles of an iteration on them.
    samples : int
    passes : sequence of (update, whole)
    simulated : callable
        Called with (machine, passes) if a replay is not to be trusted; returns the cycles of an iteration.
    """
    wafers = len(ways.ports)

    def replayed(machine: Machine, passes: Sequence[tuple[bool, bool]]) -> float:
        return cycles(course, ways.on(machine), wafers, samples, passes)

    as_is, found = replayed(ways.machine, passes), dict[str, float]()
    trusted = abs(as_is - actual) <= TRUSTED * actual
    idle = {name for name, lies in zip(BEHIND, ways.service.lies, strict=True) if not lies.any()}
    for change in CHANGES:
        if change.cause in idle:
            continue
        machine = ways.machine.replace(change.numbers(ways.machine))
        saved = 1 - replayed(machine, passes) / as_is
        if saved > NOTED / 10 and not trusted:  # what saves nothing on ways alone saves nothing
            saved = 1 - simulated(machine, passes) / actual
        if saved > 0:
            found[change.text] = saved
    return found


def bottleneck(saved: Mapping[str, float]) -> str:
    """Return the cause of the change that saves most, ``wafers`` if that is less than `NOTED`."""
    text = max(saved, key=lambda name: saved[name], default="")
    causes = {change.text: change.cause for change in CHANGES}
    return causes[text] if text and saved[text] > NOTED else "wafers"
