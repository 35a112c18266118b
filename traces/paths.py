"""Wavelets get identities along a path, found from events alone.

Queues are first in, first out, so the k-th wavelet to leave a queue is the k-th that came into it.  `identify` plays
the queues through and gives every event of a wavelet the number of that wavelet; copies of a multicast keep the number.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from wse_core.events import KINDS

__all__ = ["follow", "identify"]

INJECT, DEPART, ENTER, TAKE = (KINDS.index(kind) for kind in ("inject", "depart", "enter", "take"))
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))  # W, E, N, S, R
RAMP = 4
CE = 5  # the queue behind the ramp


def identify(events: np.ndarray) -> np.ndarray:
    """Return the number of the wavelet of each event, -1 where none is concerned.

    Parameters
    ----------
    events : numpy.ndarray of EVENT_DTYPE
        All events of kinds inject, depart, enter and take of a run, in order; others may be among them.  Wavelets that
        were under way before the first event get numbers when they first move.

    Returns
    -------
    numpy.ndarray of int64
    """
    numbers = np.full(len(events), -1, np.int64)
    queues: dict[tuple[int, int, int, int], deque[int]] = {}
    issued = 0
    chosen = np.flatnonzero(np.isin(events["kind"], (INJECT, DEPART, ENTER, TAKE)))
    columns = [events[name][chosen].tolist() for name in ("x", "y", "kind", "color", "aux", "flags")]
    found = []
    for x, y, kind, color, aux, flags in zip(*columns, strict=True):
        if kind in (INJECT, ENTER):
            number, issued = issued, issued + 1
            port = RAMP if kind == INJECT else CE if aux == RAMP else aux  # the host may push down the ramp
            queues.setdefault((x, y, color, port), deque()).append(number)
        else:
            queue = (x, y, color, CE) if kind == TAKE else (x, y, color ^ (flags >> 4 & 1), flags >> 1 & 7)
            waiting = queues.get(queue)
            if waiting:
                number = waiting.popleft()
            else:
                number, issued = issued, issued + 1
        if kind == DEPART:
            for direction in range(5):
                if aux >> direction & 1:
                    dx, dy = STEPS[direction]
                    port = CE if direction == RAMP else direction ^ 1
                    queues.setdefault((x + dx, y + dy, color, port), deque()).append(number)
        found.append(number)
    numbers[chosen] = found
    return numbers


def follow(events: np.ndarray, numbers: np.ndarray, wavelet: int) -> np.ndarray:
    """Return the events of one wavelet, in order."""
    return events[numbers == wavelet]
