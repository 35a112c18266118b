"""Where random machines get their numbers from: a seed, or hypothesis, which can make a failing one small.

Generators such as `tests.random_machines.random_spec` are written once, against what `Seeded` and `Drawn` have in
common: the drawing methods of `random.Random`, `chance` for what may also be left out, `several` for pieces that may be
dropped one by one, `weighted` and `among` for alternatives, and `noise` for numbers that may stay as they are.
From a seed they make the same machine for ever, so a seed is enough to come back to a case; drawn by hypothesis every
choice is one that it can undo: less of everything, features off, first alternatives.
"""

from __future__ import annotations

import functools
import random

from hypothesis import strategies as st

__all__ = ["Drawn", "Seeded", "drawn"]


class Seeded(random.Random):
    """Numbers from a seed."""

    def chance(self, probability):
        """Return whether something happens."""
        return self.random() < probability

    def several(self, low, high, make):
        """Call `make` a number of times in `low` .. `high`."""
        for _ in range(self.randint(low, high)):
            make()

    def weighted(self, *alternatives):
        """Call one of several functions, given as pairs (bound, function) whose bounds grow up to 1."""
        return _below(self.random(), alternatives)

    def among(self, items, make):
        """Return one of several items: whatever `make` returns first that is one of them."""
        while True:
            found = make()
            if found in items:
                return found

    def noise(self):
        """Return a source of numbers whose values are of no interest: this one."""
        return self


_integers = functools.cache(st.integers)  # called thousands of times per machine


class Drawn:
    """Numbers from a `draw` function of hypothesis; the simplest choice is the first, the lowest, or nothing."""

    def __init__(self, draw):
        self._draw = draw

    def randint(self, low, high):
        """Return a whole number in `low` .. `high`."""
        return self._draw(_integers(low, high)) if low < high else low

    def randrange(self, low, high=None):
        """Return a whole number in ``range(low, high)``."""
        return self.randint(0, low - 1) if high is None else self.randint(low, high - 1)

    def getrandbits(self, bits):
        """Return a whole number of so many bits."""
        return self.randint(0, (1 << bits) - 1)

    def uniform(self, low, high):
        """Return a number between two."""
        return self._draw(st.floats(low, high))

    def choice(self, items):
        """Return one of several items."""
        return items[self.randint(0, len(items) - 1)]

    def sample(self, items, count):
        """Return `count` of several items in some order."""
        rest = list(items)
        return [rest.pop(self.randint(0, len(rest) - 1)) for _ in range(count)]

    def shuffle(self, items):
        """Bring a list into some order."""
        items[:] = self.sample(items, len(items))

    def chance(self, probability):
        """Return whether something happens; in what is simple the likelier happens."""
        x = self.randint(0, 99)
        return x < 100 * probability if probability > 0.5 else x >= 100 * (1 - probability)

    def several(self, low, high, make):
        """Call `make` at most `high` times; in what is simple never, whatever `low` is."""
        self._draw(st.lists(st.builds(make), min_size=0, max_size=high))

    def weighted(self, *alternatives):
        """Call one of several functions, given as pairs (bound, function); in what is simple the second."""
        first = round(100 * alternatives[0][0])
        return _below((self.randint(0, 99) + first) % 100 / 100, alternatives)

    def among(self, items, make):
        """Return one of several items."""
        return self.choice(items)

    def noise(self):
        """Return a source of numbers whose values are of no interest: one whose seed is drawn."""
        return Seeded(self.getrandbits(16))


def _below(x, alternatives):
    """Call the first function whose bound exceeds `x`."""
    return next(make for bound, make in alternatives if x < bound)()


@st.composite
def drawn(draw, make):
    """Return what `make` makes from a `Drawn`: a strategy from a generator."""
    return make(Drawn(draw))
