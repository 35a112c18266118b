"""How much tests try: the profile that ``WSE_HYPOTHESIS`` names, and counts of their own that follow it.

A count in a test is what is thorough.  `examples` are drawn, of as many as one likes; `some`, `seeds` and `few` are a
share of what is fixed, `mixed` of what several lists are combined to: all of it in the profile ``soak``.
"""

from __future__ import annotations

import os
from itertools import product

import hypothesis

__all__ = [
    *("FIRST_FAILURE", "PHASES", "PROFILE", "PROFILES", "SLOW_BUILD", "SOAK"),
    *("examples", "few", "mixed", "seeds", "some"),
]

PROFILES = {"smoke": (5, 0.1), "quick": (8, 0.12), "dev": (8, 0.12), "ci": (8, 0.12), "soak": (1000, 20)}
"""Name: examples of a test that names no count, and factor for those that do."""

PROFILE = os.environ.get("WSE_HYPOTHESIS", "dev")
SLOW_BUILD = PROFILE == "smoke"
"""Whether compiled code is tens of times slower than in a release, as in a tracing build."""
SOAK = PROFILE == "soak"
FIRST_FAILURE = "WSE_FIRST_FAILURE" in os.environ
"""Whether all that is wanted is that some test fails: short ones come first then, and nothing is shrunk."""
PHASES = [phase for phase in hypothesis.Phase if not FIRST_FAILURE or phase != hypothesis.Phase.shrink]


def examples(count, shrink=True, least=3):
    """Return a decorator that lets a property test try `count` examples, fewer or more in some profiles.

    A seed of a random program says no more if it is smaller, so that a test of seeds need not look for smaller ones.
    """
    phases = [phase for phase in PHASES if shrink or phase != hypothesis.Phase.shrink]
    return hypothesis.settings(max_examples=max(least, round(count * PROFILES[PROFILE][1])), phases=phases)


def some(count, least=4):
    """Return how many of `count` fixed cases a test tries, at least so many."""
    return min(count, max(least, round(count * PROFILES[PROFILE][1])))


def few(cases, count):
    """Return the first `count` of a list of fixed cases, which begins with those that differ most."""
    return list(cases) if SOAK else list(cases)[:count]


def seeds(count):
    """Return the fixed seeds of a test: the first ones of `count`."""
    return range(some(count))


def mixed(*lists):
    """Return combinations of one case of each list in which every case occurs.

    As many as the longest list has; in a soak every combination.
    """
    if SOAK:
        return list(product(*lists))
    lists = [list(cases) for cases in lists]
    # Each turn of a shorter list begins one further on than the one before, so that others meet it anew.
    return [
        tuple(cases[(k + turn * (k // len(cases))) % len(cases)] for turn, cases in enumerate(lists))
        for k in range(max(map(len, lists)))
    ]
