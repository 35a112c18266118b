"""A run has breaks of about every tenth of a second, so that Ctrl-C and progress come between two cycles.

The compiled engine takes breaks without cutting the run: that a host is slow must not show in the state of a machine.
The plain-Python one does cycle after cycle, so pieces of a run change nothing.
"""

from __future__ import annotations

import contextlib
import math
import numbers
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wse_core.errors import ConfigError

__all__ = ["Progress", "check_cycles", "print_progress", "run_pieces"]

PIECE_SECONDS = 0.1  # of a run, between two looks at Ctrl-C and progress
Progress = Callable[[int, float], object]


def run_pieces(
    engine: Any, stop: int, plain: bool, ticks: Sequence[tuple[int, Callable[[], object]]], progress: Progress | None
) -> str:
    """Run an engine to cycle `stop` with breaks of about every `PIECE_SECONDS`; return its status.

    Parameters
    ----------
    engine : Engine or ReferenceMachine
    stop : int
    plain : bool
        It is plain Python: slow, and Ctrl-C may come inside of a cycle.
    ticks : sequence of (period, call)
        Call ``call()`` whenever the clock comes to a multiple of its period.
    progress : callable or None
        Called in breaks with (cycles since the start, host seconds).
    """
    start = engine.cycle
    clock = tick = time.perf_counter()
    before, piece = start, 1 << (3 if plain else 4)  # a cycle of a whole wafer takes milliseconds, more at first

    def heard() -> int:
        """Say how far the run is; return how many cycles the next piece has."""
        nonlocal before, tick, piece
        now = time.perf_counter()
        if now - tick < PIECE_SECONDS / 2:  # the engine has breaks of its own besides
            piece = min(8 * piece, 1 << 40)
            return piece
        if progress is not None:
            progress(engine.cycle - start, now - clock)
        reached = max(1, engine.cycle - before)
        spent = max(now - tick, 1e-6)
        piece = int(min(max(1, reached * min(8.0, PIECE_SECONDS / spent)), 1 << 40))
        before, tick = engine.cycle, now
        return piece

    with _held_interrupt(plain) as interrupted:
        while True:
            edges = [engine.cycle - engine.cycle % period + period for period, _ in ticks]
            limit = min(stop, *edges) if edges else stop
            if plain:
                limit = min(limit, engine.cycle + piece)
                status = engine.run(limit)
            else:
                status = engine.run(limit, heard, piece)
            for edge, (_, call) in zip(edges, tuple(ticks), strict=True):
                if engine.cycle == edge:
                    call()
            if interrupted():
                raise KeyboardInterrupt
            if status != "limit" or engine.cycle >= stop:
                return status
            if plain:
                heard()


def check_cycles(what: str, cycles: object) -> None:
    """Refuse what is no number of cycles."""
    if isinstance(cycles, bool) or not isinstance(cycles, numbers.Real) or not math.isfinite(cycles):
        raise ConfigError(f"{what} {cycles!r} is no number of cycles")
    if cycles < 0:
        raise ConfigError(f"{what} {cycles} is negative")


@contextlib.contextmanager
def _held_interrupt(active: bool) -> Iterator[Callable[[], bool]]:
    """Hold back Ctrl-C while a plain-Python machine is inside a cycle; yield a function that tells whether it came."""
    came: list[bool] = []
    old = signal.getsignal(signal.SIGINT)
    if not active or threading.current_thread() is not threading.main_thread() or not callable(old):
        yield lambda: False
        return
    signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, old)


def print_progress(cycles: int, seconds: float) -> None:
    """Print a line that overwrites itself."""
    print(f"\r{cycles} cycles, {seconds:.1f} s", end="", flush=True)
