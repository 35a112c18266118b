"""CPU time of processes, to be compared with that of others in the same run; never with a clock."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tests.conftest import ROOT

__all__ = ["cpu_of", "least"]


def cpu_of(words: Sequence[str]) -> float:
    """Return the CPU seconds of ``python words`` in a new process, which must succeed; a second call finds bytecode."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        pid = os.posix_spawn(
            sys.executable, [sys.executable, *words], environment, file_actions=[(os.POSIX_SPAWN_DUP2, nowhere, 1)]
        )
    finally:
        os.close(nowhere)
    _, status, used = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, words
    return used.ru_utime + used.ru_stime


def least(first: Sequence[str], second: Sequence[str], ratio: float, rounds: int = 20) -> tuple[float, float]:
    """Return the CPU seconds of two commands, of the round in which the second was nearest to the first.

    What else runs on the host makes both slower, but not at all times alike: the first command runs before and after
    the second, and rounds are compared as a whole.  They end once the second is within `ratio` of the first.
    """
    for words in (first, second):
        cpu_of(words)  # fills the caches
    best = float("inf"), 1.0
    for _ in range(rounds):
        before = cpu_of(first)
        found = cpu_of(second)
        around = (before + cpu_of(first)) / 2
        best = min(best, (found, around), key=lambda pair: pair[0] / pair[1])
        if best[0] <= ratio * best[1]:
            break
    return best[1], best[0]
