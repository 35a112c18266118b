"""Words of an iteration are laid out once, filled with values when they are sent: a stream per column, one order of
all.

`fabric.networks.streamed.writer` writes a script and knows what the words mean; links and tree need to know only in
which order they go out, which of them carry a value that has to be updated before, and in which order numbers come
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["RoundTrip", "Script"]


class RoundTrip(NamedTuple):
    """Words carry what was made of numbers that come back in the same pass.

    Attributes
    ----------
    table : int
        Number of the table of made values whose words wait.
    direction : {"forward", "back"}
    first : int
        The first of those words, in the order of sending; all behind it go out later still.
    needed : int
        Numbers, in the order of coming back, that have to be there before.
    places : ndarray of int
        Where those of them belong, among all that comes back, of which values are made.
    """

    table: int
    direction: str
    first: int
    needed: int
    places: np.ndarray


class Script:
    """Streams of all columns, laid out; values are filled in per use.

    Parameters
    ----------
    columns : int
    sizes : list of int
        Values of each parameter, in order of their numbers; then one, the loss scale, and those of each table of values
        that are made of what comes back.
    asked : list of int
        Gradients of each parameter.
    drawn : int, optional
        So many values more, behind all others, are drawn for each pass.

    Attributes
    ----------
    phases : list of (str, list of int)
        What each stretch of the streams is for, and how many words of each column come before it.
    answers : list of int or None
        Per stretch: the parameter whose gradients it asks for.
    sequence : ndarray of int
        Order of sending: numbers of words, counted through column 0, then column 1 and so on.
    sources, seconds : ndarray of int
        Per word, counted so: the value among those of all parameters that it carries in its low half, and in its high
        half, -1 for none.
    places : list of ndarray of int
        Per column, in order of arrival: where each number belongs in the vector of all gradients, followed by one
        loss per column, and by sums of which values are made.
    back : ndarray of int
        Order of coming back: numbers of what returns, counted through the columns.
    asking : ndarray of int
        Per number that returns, counted through the columns: the word at whose place a gradient is asked for; -1 for
        losses, and sums of a normalisation.
    """

    def __init__(self, columns: int, sizes: Sequence[int], asked: Sequence[int], drawn: int = 0) -> None:
        self.columns = columns
        self.offsets = np.concatenate([[0], np.cumsum(asked)]).astype(np.int64)
        self._values, self._drawn = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), drawn
        self._words: list[Any] = [[] for _ in range(columns)]
        self._control: list[Any] = [[] for _ in range(columns)]
        self._slots: list[Any] = [[] for _ in range(columns)]
        self._sources: list[Any] = [[] for _ in range(columns)]
        self._upper: list[Any] = [[] for _ in range(columns)]
        self._uppers: list[Any] = [[] for _ in range(columns)]
        self._length = [0] * columns
        self._turn = 0
        self._turns: list[Any] = [[] for _ in range(columns)]
        self._asked: list[Any] = [[] for _ in range(columns)]
        self._asks: list[Any] = [[] for _ in range(columns)]
        self.phases: list[tuple[str, list[int]]] = []
        self.answers: list[int | None] = []
        self._places: list[Any] = [[] for _ in range(columns)]
        self.trips: list[RoundTrip] = []

    def words(
        self,
        column: int,
        payload: np.ndarray,
        is_control: np.ndarray,
        slots: np.ndarray | None = None,
        parameter: int = 0,
        entries: np.ndarray | None = None,
        places: np.ndarray | None = None,
        rows: np.ndarray | int = 0,
        asked: np.ndarray | int = 0,
        asks: np.ndarray | None = None,
        upper: np.ndarray | None = None,
        uppers: np.ndarray | None = None,
    ) -> None:
        """Append words of a column; `slots` are those whose low half is an entry's value, `upper` those whose high half
        is the value of one of the entries `uppers`.

        `rows` says which words of all columns belong together, from the present turn on; `asked` the same of what
        comes back, in the order of `places`, and `asks` which words ask for it.
        """
        self._words[column].append(payload)
        self._control[column].append(is_control)
        if slots is not None:
            self._slots[column].append(slots + self._length[column])
            self._sources[column].append(entries + self._values[parameter])
        if upper is not None and uppers is not None:
            self._upper[column].append(upper + self._length[column])
            self._uppers[column].append(uppers + self._values[parameter])
        if places is not None:
            self._places[column].append(places + self.offsets[min(parameter, len(self.offsets) - 1)])
            self._asked[column].append(np.broadcast_to(asked, len(places)) + self._turn)
            self._asks[column].append(np.full(len(places), -1) if asks is None else asks + self._length[column])
        self._turns[column].append(np.broadcast_to(rows, len(payload)) + self._turn)
        self._length[column] += len(payload)

    def first(self, parameter: int) -> int:
        """Return the place of a parameter's first value among those of all."""
        return int(self._values[parameter])

    def wait(self, table: int, direction: str, places: np.ndarray) -> None:
        """Say that what is appended from here on carries what is made of numbers that were asked for so far."""
        self.trips.append(RoundTrip(table, direction, self._turn, self._turn, places))  # turns, until all is there

    def turn(self, count: int = 1) -> None:
        """Say that what is appended from here on follows so many rows of all columns."""
        self._turn += count

    def phase(self, label: str, answers: int | None = None) -> None:
        """Begin a stretch: what is appended from here on is for `label`; `answers`: the parameter that it asks for."""
        self.phases.append((label, list(self._length)))
        self.answers.append(answers)

    @cached_property
    def returned(self) -> np.ndarray:
        """What comes back belongs at these places, in the order of coming."""
        return np.concatenate(self.places)[self.back]

    @cached_property
    def n_places(self) -> int:
        """There are places for so many numbers that come back, whatever the kind of the pass."""
        return max(int(self.offsets[-1]) + self.columns, 1 + int(self.returned.max(initial=-1)))

    @property
    def lengths(self) -> list[int]:
        """Each column has so many wavelets."""
        return list(self._length)

    def close(self) -> Script:
        """Join what was appended; return the script."""

        def joined(parts: Iterable[list[np.ndarray]], dtype: DTypeLike) -> list[np.ndarray]:
            return [np.concatenate([*part, np.empty(0, dtype)]).astype(dtype) for part in parts]

        self._words, self._control = joined(self._words, np.uint32), joined(self._control, bool)
        self._slots, self._sources = joined(self._slots, np.int64), joined(self._sources, np.int64)
        self._upper, self._uppers = joined(self._upper, np.int64), joined(self._uppers, np.int64)
        self.places = joined(self._places, np.int64)
        turns, asked = (np.concatenate(joined(part, np.int64)) for part in (self._turns, self._asked))
        self.sequence, self.back = np.argsort(turns, kind="stable"), np.argsort(asked, kind="stable")
        self.trips = [
            trip._replace(first=int((turns < trip.first).sum()), needed=int((asked < trip.needed).sum()))
            for trip in self.trips
        ]
        self.sources, self.seconds = np.full((2, self.n_words), -1)
        for begin, slots, sources in zip(self.starts, self._slots, self._sources, strict=False):
            self.sources[begin + slots] = sources
        for begin, slots, sources in zip(self.starts, self._upper, self._uppers, strict=False):
            self.seconds[begin + slots] = sources
        asks = joined(self._asks, np.int64)
        self.asking = np.concatenate(
            [np.where(at < 0, -1, at + begin) for begin, at in zip(self.starts, asks, strict=False)]
        )
        return self

    @property
    def starts(self) -> np.ndarray:
        """Each column begins with the word of this number; the last number counts all words."""
        return np.concatenate([[0], np.cumsum(self._length)])

    @property
    def sender(self) -> np.ndarray:
        """Each word goes to this column, counted through the columns."""
        return np.repeat(np.arange(self.columns), self._length)

    @cached_property
    def stretch(self) -> np.ndarray:
        """Each word belongs to the phase of this number, in the order of sending."""
        ends = np.array([*(begin for _, begin in self.phases), self._length])  # a phase ends where the next begins
        return np.repeat(np.tile(np.arange(len(self.phases)), self.columns), np.diff(ends, axis=0).T.ravel())[
            self.sequence
        ]

    def traffic(self) -> dict[str, int]:
        """Return the bytes of a pass on the link of the memory service by what they are for.

        Weights carry values of parameters; requests ask for gradients, those of a whole row with the command that
        moves it; commands are all other words.  Losses come back with the gradients.  Statistics, if there are any,
        are sums that come back, and words that carry what was made of them.
        """
        values = int(self._values[len(self.offsets) - 1])
        carries = [(of >= 0) & (of < values) for of in (self.sources, self.seconds)]
        weights = int((carries[0] | carries[1]).sum())
        made = int(((self.sources > values) & (self.sources < self._values[-1])).sum())
        asked = int(
            np.count_nonzero(np.bincount(self.asking[self.asking >= 0]))
        )  # np.unique loads a package of its own
        places, losses = np.concatenate(self.places), int(self.offsets[-1])
        gradients, sums = int((places < losses).sum()), int((places >= losses + self.columns).sum())
        counts = {"weights": weights, "requests": asked, "commands": self.n_words - weights - asked - made}
        counts |= {"gradients": gradients, "losses": len(self.back) - gradients - sums}
        counts |= {"statistics": made + sums} if self._values[-1] > values + 1 else {}
        return {name: 4 * count for name, count in counts.items()}

    @property
    def n_words(self) -> int:
        """All columns together have so many wavelets."""
        return sum(self._length)

    @property
    def longest(self) -> int:
        """The longest column has so many wavelets."""
        return max(self._length)

    def fill(self, values: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return [(payload, is control)] per column with the values of all parameters, one after the other."""
        found = []
        for words, is_control, slots, sources, upper, uppers in zip(
            self._words, self._control, self._slots, self._sources, self._upper, self._uppers, strict=True
        ):
            payload = words.copy()
            payload[slots] |= values[sources]
            payload[upper] |= values[uppers] << np.uint32(16)
            found.append((payload, is_control))
        return found
