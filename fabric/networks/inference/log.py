"""Column 0 of a region keeps a ring of readings: when the region took a token and when it was through with it.

The host takes the readings out between two tokens (`noted`), so that the ring need not be long and nothing is lost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.host.fabric import Fabric
from fabric.networks.inference.prefill.reading import as_cycles
from fabric.program.program import Program

__all__ = ["PAIRS", "ClockLog", "noted"]

PAIRS = 8
"""The ring has readings of so many tokens."""
WORDS = 3
"""A reading of the clock takes so many words."""


class ClockLog:
    """A `ClockLog` writes into a program that the clock is read and noted.

    Parameters
    ----------
    p : Program
    """

    def __init__(self, p: Program) -> None:
        self.p, self.log, self.at = p, p.array("log", 2 * WORDS * PAIRS, "u16"), p.scalar("log_at", "u16")

    def begin(self) -> None:
        """Write that the first pair comes next."""
        address = self.p.reg16("log")
        self.p.ldi(address, self.log)
        self.p.st16(address, self.at)
        self.p.free(address)

    def note(self) -> None:
        """Write that the clock is read now; readings come in pairs, token by token."""
        p = self.p
        address, end = p.reg16("log"), p.reg16("log end")
        p.ld16(address, self.at)
        p.store_tsc(address)
        p.add16(address, address, WORDS)
        p.ldi(end, self.log)
        p.add16(end, end, 2 * WORDS * PAIRS)
        with p.if_("eq", address, end, "16"):
            p.ldi(address, self.log)
        p.st16(address, self.at)
        p.free(address, end)


def noted(fabric: Fabric, column: int, known: list[tuple[int, int]]) -> None:
    """Add to `known` what the region that begins in a column has noted since: (first PE began, last PE was through)."""
    words = fabric.read("log", column, 0, 1, fabric.spec.height)[:, 0]
    times: NDArray[np.int64] = as_cycles(words.reshape(-1, PAIRS, 2, WORDS))
    for _ in range(PAIRS):
        pair = times[:, len(known) % PAIRS]
        begun, done = int(pair[:, 0].min()), int(pair[:, 1].max())
        whole = (pair[:, 1] > pair[:, 0]).all() and begun > (known[-1][0] if known else 0)
        if not whole:
            return
        known.append((begun, done))
