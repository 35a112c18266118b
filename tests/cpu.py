"""CPU time of processes, to be compared with that of others in the same run; never with a clock."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tests.conftest import ROOT

__all__ = ["cpu_of", "least"]


def cpu_of(words: Sequence[str], folder: os.PathLike[str] | str) -> float:
    """Return the CPU seconds of ``python words`` in a new process, which must succeed.

    The bytecode cache is in `folder`, so a second call finds it whatever the environment of the tests says.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(folder), "PYTHONPATH": str(ROOT)}
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


def least(
    first: Sequence[str], second: Sequence[str], folder: os.PathLike[str] | str, ratio: float, rounds: int = 8
) -> tuple[float, float]:
    """Return the least CPU seconds of two commands that take turns; end once the second is within `ratio` of the first.

    Other processes can only add to a measurement, so the least of several is nearest to the truth.
    """
    for words in (first, second):
        cpu_of(words, folder)  # fills the caches
    best = [float("inf")] * 2
    for _ in range(rounds):
        for k, words in enumerate((first, second)):
            best[k] = min(best[k], cpu_of(words, folder))
        if best[1] <= ratio * best[0]:
            break
    return best[0], best[1]
