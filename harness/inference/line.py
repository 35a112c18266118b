"""All-reduces of the authors' programs over a line of PEs, as their code executes them: a tree of two levels.

Groups of equal size sum up toward the PE in their middle, from both ends, and these roots toward that of the middle
group, which sends the sum to both sides, one after the other.  What a PE executes around its transfers is compiled and
run (`harness.inference.compiled`); transfers are followed from PE to PE.  PEs begin when the sum before has come to
them, so that those far away begin last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.price import timing
from harness.inference.compiled import line_parts
from harness.inference.costs import cdiv
from wse_core.params import Machine

__all__ = ["groups_of", "line_cycles"]

ROUNDS = 3
"""After so many sums each takes as long as the one before."""


ABOVE, BELOW = ("opening", "meeting"), ("closing", "meeting below")
ROOTS_ABOVE, ROOTS_BELOW = ("passing", "relaying"), ("passing below", "relaying below")
TOP = ("again", "joining", "spreading", "returning")
"""On each side the first one executes this before it sends, and the others that before they hand on."""


@cache
def groups_of(places: int) -> int:
    """Return the groups of a line: the largest divisor that is not beyond its root, if that is more than half of it.

    So are the groups of ten of the eleven meshes for which the authors hand out files; on 512 rows they take 32, not
    16.  A line without such a divisor has as many groups as fit, the last of them counted as a full one.
    """
    most = math.isqrt(places)
    return next((n for n in range(most, most // 2, -1) if places % n == 0), most)


def _joined(ready: Any, first: Any, second: Any, words: int, again: int) -> Any:
    """Return when a root has added what two sides send, the shorter one first."""
    return np.maximum(np.maximum(ready, first) + words + again, second) + words


def _ends(machine: Machine, words: int, code: Mapping[str, int], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when each PE of a line can go on, if they begin when `starts` says: an array of groups x size."""
    m, stage, again = machine, timing.stage(machine), code["again"]
    groups, size = starts.shape
    never = np.full(groups, -(1 << 40))

    def chained(members: range, side: tuple[str, str]) -> NDArray[np.int64]:
        """Return when the root of each group can use the first word of a side."""
        if not members:
            return never
        now = starts[:, members[0]] + code[side[0]]
        for k in members[1:]:
            now = np.maximum(now + stage, starts[:, k] + code[side[1]])
        return now + stage

    middle, top = size // 2, groups // 2
    below, above = chained(range(size - 1, middle, -1), BELOW), chained(range(middle), ABOVE)
    ready = starts[:, middle] + code["meeting"]
    root = _joined(ready, below, above, words, again) if size - 1 > middle else np.maximum(ready, above) + words

    def passed(roots: range, side: tuple[str, str]) -> np.int64:
        """Return when the top can use the first word of a side of roots."""
        now = root[roots[0]] + code[side[0]]
        for k in roots[1:]:
            now = max(now + timing.way(m, size), root[k] + code[side[1]])
        return now + timing.way(m, size)

    ready, above_all = root[top] + code["joining"], passed(range(top), ROOTS_ABOVE)
    if groups - 1 > top:
        all_of_it = _joined(ready, passed(range(groups - 1, top, -1), ROOTS_BELOW), above_all, words, again)
    else:
        all_of_it = max(ready, above_all) + words
    place = np.arange(groups * size) - (top * size + middle)
    up = all_of_it + code["spreading"]
    down = up + words + code["returning"]
    ends = np.where(place < 0, up, down) + timing.way(m, abs(place)) + words
    ends[place == 0] = down + words
    ends[place < 0] += code["leaving"]
    return ends.reshape(groups, size)


@cache
def line_cycles(
    machine: Machine, places: int, words: int, called: bool = False, described: bool = False, groups: int = 0
) -> int:
    """Return the cycles of a sum over a line of PEs, each of which has the sum in the end.

    Parameters
    ----------
    machine : Machine
    places, words : int
        PEs of the line, and wavelets of a vector.
    called : bool
        Whether the sum is a function that several places call.
    described : bool
        Whether vectors are read by descriptors in memory, not in registers.
    groups : int
        Of the tree; 0: those of `groups_of`.
    """
    parts = line_parts(machine)
    more = (parts["described"] - parts["held"]) * described
    code = {name: parts[name] - 1 for name in (*ABOVE, *BELOW)}  # without the step that is the transfer's first
    code |= {name: parts[name] - 1 + more for name in (*ROOTS_ABOVE, *ROOTS_BELOW, *TOP)}
    groups = groups or groups_of(places)
    starts = np.zeros((groups, cdiv(places, groups)), np.int64)
    took = 0
    for _ in range(ROUNDS):
        ends = _ends(machine, words, code | {"leaving": parts["leaving"]}, starts)
        took, starts = int((ends - starts).max()), ends
    return took + (parts["called"] - parts["inlined"]) * called
