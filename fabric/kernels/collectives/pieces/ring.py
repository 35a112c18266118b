"""A ring along a line of PEs says which PE comes after which, and has the routes that carry a cyclic shift.

Two rings through places 0 .. n-1 of a line:

``folded``  INTERLEAVE of WaferLLM: even places send two to the east, odd places two to the west, single steps at the
            two ends.  The cycle is 0, 2, 4 ... 5, 3, 1, and no step is longer than two hops, which is the least for
            n > 2: a step of one hop each way would have to come back over the places it has used.
``plain``   Every place sends to its neighbour in the west, place 0 to place n-1: n-1 hops, the ring of Cannon.

Colors
    Three per axis, all routes static.  A router knows at most three of them: what its CE sends, what it receives, and
    what passes through.  Folded: even place 2j sends in color j mod 3, odd place 2j+1 in color (j+1) mod 3; then the
    three are different everywhere, and the end of a line sends in the color that would pass there.  Plain: the parity
    of the sender, and the third color for the way back.

    Each direction of each link belongs to one sender, so that shifts never wait for one another.

Nothing here knows cycles; `Ring.hops` is the longest step, `Ring.grants` the wavelet hops of one wavelet per place.

Sources
    He et al., WaferLLM (OSDI 2025), section 5.2, algorithm 1; Cannon, 1969.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from fabric.layout.layout import Layout
from wse_core.errors import ConfigError

__all__ = ["KINDS", "Ring", "interleave"]

KINDS = ("folded", "plain")


def interleave(index: int, n: int) -> tuple[int, int]:
    """Return (send, receive): the places that place `index` of a folded ring of `n` sends to and receives from.

    Raises
    ------
    ConfigError
        There is no such place.

    Examples
    --------
    >>> interleave(2, 5)
    (4, 0)
    """
    if not 0 <= index < n:
        raise ConfigError(f"a ring of {n} has no place {index}", hint=f"0 .. {n - 1}", value=index)
    east, west = min(index + 2, n - 1), max(index - 2, 0)
    if index % 2 == 0:
        return east if east != index else max(index - 1, 0), west if index else min(1, n - 1)
    return west if index > 1 else 0, east if east != index else index - 1


class Ring:
    """A `Ring` goes through the places of a line.

    Parameters
    ----------
    n : int
        Places.
    kind : {"folded", "plain"}

    Attributes
    ----------
    sends, receives : tuple[int, ...]
        Per place, where it sends to and receives from.
    """

    def __init__(self, n: int, kind: str = "folded") -> None:
        self.n, self.kind = n, kind
        if kind == "folded":
            pairs = [interleave(k, n) for k in range(n)]
            self.sends, self.receives = tuple(s for s, _ in pairs), tuple(r for _, r in pairs)
        else:
            self.sends = tuple((k - 1) % n for k in range(n))
            self.receives = tuple((k + 1) % n for k in range(n))

    @functools.cached_property
    def rank(self) -> tuple[int, ...]:
        """Position of each place on the ring: a tile reaches rank r from rank r + 1; place 0 has rank 0."""
        found, place = [0] * self.n, 0
        for rank in range(self.n):
            found[place] = rank
            place = self.receives[place]
        return tuple(found)

    @functools.cached_property
    def order(self) -> tuple[int, ...]:
        """The places are in this order by rank: the inverse of `rank`."""
        found = [0] * self.n
        for place, rank in enumerate(self.rank):
            found[rank] = place
        return tuple(found)

    @property
    def hops(self) -> int:
        """The longest step takes so many links."""
        return max(abs(k - to) for k, to in enumerate(self.sends))

    @property
    def grants(self) -> int:
        """Wavelets take so many hops when every place sends one: one for the way up the ramp, one per link."""
        return sum(1 + abs(k - to) for k, to in enumerate(self.sends)) if self.n > 1 else 0

    def color(self, place: int) -> int:
        """Return the color of a place, 0 .. 2, in which a place sends."""
        if self.kind == "plain":
            return 2 if place == 0 else place % 2
        j = place // 2
        last = place == self.n - 1 and place % 2 == 0
        return (j + (place % 2 or last)) % 3

    def colors(self, place: int) -> tuple[int, int]:
        """Return (color sent, color received) of a place."""
        return self.color(place), self.color(self.receives[place])

    def kinds(self) -> list[tuple[int, int] | None]:
        """Return the different `colors` of its places, in order; None stands for a place that is alone."""
        return [*sorted({self.colors(place) for place in range(self.n)})] if self.n > 1 else [None]

    def paint(
        self,
        layout: Layout,
        first: int,
        away: str,
        toward: str,
        rect: Callable[[int], tuple[int, ...]],
        back: bool = False,
    ) -> None:
        """Paint the routes of all places.

        `back`: from each place to the one that sends to it, the other way round the ring.  A way has the color of the
        way there, so that a place sends what it received in, and no router knows more colors.

        Parameters
        ----------
        layout : Layout
        first : int
            Number of color 0.
        away, toward : str
            Directions of higher and of lower places.
        rect : callable
            ``rect(k)`` returns the PEs of place k: a rectangle as `Layout.rect` takes it.
        """
        if self.n == 1:
            return
        for sender, receiver in enumerate(self.sends):
            color = first + self.color(sender)
            place, to = (receiver, sender) if back else (sender, receiver)
            step = 1 if to > place else -1
            ahead, behind = (away, toward) if step > 0 else (toward, away)
            layout.route(color, rect(place), rx="R", tx=ahead)
            for k in range(place + step, to, step):
                layout.route(color, rect(k), rx=behind, tx=ahead)
            layout.route(color, rect(to), rx=behind, tx="R")
