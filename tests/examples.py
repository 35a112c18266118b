"""How often property tests try: the profile that ``WSE_HYPOTHESIS`` names, and counts of their own that follow it."""

from __future__ import annotations

import os

import hypothesis

__all__ = ["PROFILE", "PROFILES", "SLOW_BUILD", "examples"]

PROFILES = {"smoke": (5, 0.1), "quick": (15, 0.3), "dev": (20, 0.3), "ci": (20, 0.3), "soak": (5000, 100)}
"""Name: examples of a test that names no count, and factor for those that do."""

PROFILE = os.environ.get("WSE_HYPOTHESIS", "dev")
SLOW_BUILD = PROFILE == "smoke"
"""Whether compiled code is tens of times slower than in a release, as in a tracing build."""


def examples(count):
    """Return a decorator that lets a property test try `count` examples, fewer or more in some profiles."""
    return hypothesis.settings(max_examples=max(3, round(count * PROFILES[PROFILE][1])))
