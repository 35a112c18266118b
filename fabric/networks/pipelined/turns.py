"""Turns of all layers are followed one behind the other: who waits for whom, where only some turns have an update.

Where every minibatch has its update all turns of a layer are alike, and the slowest part sets the pace.  Where an
update has several, the turns with one are long and the others short, and those of tiles, of norms and of other layers
are long at different times.  Whatever is between two parts holds one minibatch, so that a short turn here does not make
up for a long one there.

`pace` follows minibatches through the layers.  Each time is the latest of what a program waits for in it, plus what it
then works, measured on one PE (`fabric.networks.pipelined.costs`): so nothing is left out that all must wait for, and
nothing is in it that they need not.  The programs, in order:

tile        turn t: inputs of t; sums of t, to the outputs; if t is at least the delay, the gradients of t - delay:
            those of the inputs, to the passing PE; its own products; the update, if it is time
outputs     turn t: gradients of t - delay, to the tiles; sums of t, to the next layer; the update (in the last layer
            sums first, then gradients)
passing     gradients, to the layer before
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

__all__ = ["Turn", "pace"]

UPDATES = 24
"""Updates that are followed: leads of slow layers are used up by then."""
LAST = 8
"""The pace is taken of so many of these turns, the last ones."""
MOST = 64
"""Minibatches of an update that are followed; of more, each update adds as much as one of so many."""


@dataclass(frozen=True)
class Turn:
    """A `Turn` has the cycles of what the programs of a layer do with a minibatch.

    Attributes
    ----------
    delay : int
        Turns from a minibatch's way forward to its way back.
    entering : float
        Of its stream of inputs.
    forward, sums : float
        Of a tile until its sums have left, and of these those of the sums.
    back, rest, update : float
        Of a tile until the gradients of the inputs have left; behind that; of an update.
    activation, slopes, norm : float
        Of the outputs: from sums to what leaves, from gradients to what goes to the tiles, of an update.
    leaving : float
        Of the stream of gradients of the inputs.
    loss : float
        From outputs to their gradients, of the last layer.
    """

    delay: int
    entering: float
    forward: float
    sums: float
    back: float
    rest: float
    update: float
    activation: float
    slopes: float
    norm: float
    leaving: float
    loss: float = 0.0


class _Times:
    """When the programs of each layer k do what, in turn t or with minibatch m; each is found when it is asked for."""

    def __init__(self, turns: Sequence[Turn], parts: int) -> None:
        self.turns, self.parts = turns, parts
        for name in ("begun", "landed", "summed", "took", "ready", "left", "given"):
            setattr(self, name, cache(getattr(self, name)))

    def due(self, minibatch: int) -> bool:
        """Whether a minibatch is the last of an update."""
        return self.parts > 0 <= minibatch and (minibatch + 1) % self.parts == 0

    def begun(self, k: int, t: int) -> float:
        """A tile begins a turn: the one before is done, the inputs are there."""
        if t < 0:
            return 0.0
        at = self.turns[k]
        m, before = t - 1 - at.delay, self.summed(k, t - 1)
        if m >= 0:
            before = self.left(k, m) + at.rest + at.update * self.due(m)
        return max(before, self.landed(k, t))

    def landed(self, k: int, t: int) -> float:
        """Inputs have landed; there is room for them when the tile begins the turn before."""
        ahead = self.summed(k - 1, t) + self.turns[k - 1].activation if k else 0.0
        return max(ahead, self.begun(k, t - 1)) + self.turns[k].entering

    def summed(self, k: int, t: int) -> float:
        """Sums are with the outputs, which take them when they have nothing else to do."""
        if t < 0:
            return 0.0
        at = self.turns[k]
        free = self.ready(k, t - at.delay) if at.delay and t >= at.delay else self.sent(k, t - 1)
        return max(self.begun(k, t) + at.forward, free + at.sums)

    def sent(self, k: int, t: int) -> float:
        """The outputs are through with a turn."""
        if t < 0:
            return 0.0
        at = self.turns[k]
        through = self.landed(k + 1, t) if k + 1 < len(self.turns) else self.ready(k, t)
        return through + at.norm * self.due(t - at.delay)

    def given(self, k: int, m: int) -> float:
        """The outputs have their gradients; there is room for them when they take those of the minibatch before."""
        if k + 1 == len(self.turns):
            return self.summed(k, m) + self.turns[k].activation + self.turns[k].loss
        return max(self.left(k + 1, m), self.took(k, m - 1)) + self.turns[k + 1].leaving

    def took(self, k: int, m: int) -> float:
        """The outputs begin with gradients."""
        if m < 0:
            return 0.0
        at = self.turns[k]
        free = self.sent(k, m + at.delay - 1) if at.delay else 0.0
        return max(free, self.given(k, m))

    def ready(self, k: int, m: int) -> float:
        """Tiles may take gradients, one minibatch at a time."""
        return max(self.took(k, m) + self.turns[k].slopes, self.taken(k, m - 1))

    def taken(self, k: int, m: int) -> float:
        """A tile takes them, behind its sums."""
        return max(self.summed(k, m + self.turns[k].delay), self.ready(k, m)) if m >= 0 else 0.0

    def left(self, k: int, m: int) -> float:
        """The gradients of the inputs have left a tile: those of the minibatch before have been passed on."""
        if m < 0:
            return 0.0
        own = self.taken(k, m) + self.turns[k].back
        return max(own, self.given(k - 1, m - 1)) if k and m else own


def pace(turns: Sequence[Turn], parts: int) -> float:
    """Return the cycles of a minibatch, the mean over those of updates.

    Parameters
    ----------
    turns : sequence of Turn
        Of the layers.
    parts : int
        Minibatches of an update.
    """
    if parts <= MOST:
        return _followed(turns, parts, parts)
    rest = _followed(turns, 0, 1)  # without updates
    return rest + (_followed(turns, MOST, MOST) - rest) * MOST / parts


def _followed(turns: Sequence[Turn], parts: int, together: int) -> float:
    """Return the cycles of a minibatch, the mean over the last of so many together; `parts`: 0, no updates."""
    times, count, last = _Times(turns, parts), UPDATES * together, LAST * together
    ends = [[times.summed(k, t) for k in range(len(turns))] for t in range(count)]
    return max(end - start for end, start in zip(ends[-1], ends[-1 - last], strict=True)) / last
