"""Points are run side by side in processes of this host, each of which keeps what it has imported.

A process that dies, out of memory or by a signal, takes one point with it: that point is told as failed, and a new
process takes the next.  Libraries get one thread per process, and so do simulations if there are several processes; how
many there are changes no result.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from harness.sweep.point import Measured, Point, measure

__all__ = ["side_by_side"]

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Libraries take the number of their threads from these variables."""


def side_by_side(points: Sequence[Point], processes: int) -> Iterator[tuple[int, Measured]]:
    """Yield the number of each point and what it gave, as they end.

    Parameters
    ----------
    points : sequence of Point
    processes : int
        At most.
    """
    workers: dict[Any, _Worker] = {}  # by their pipes
    waiting = iter(enumerate(points))
    try:
        for number, point in waiting:
            worker = _Worker(processes)
            workers[worker.pipe] = worker
            worker.take(number, point)
            if len(workers) >= processes:
                break
        while workers:
            for pipe in wait(list(workers)):
                worker = workers.pop(pipe)
                number, alive = worker.number, True
                try:
                    found = worker.pipe.recv()
                except (EOFError, ConnectionResetError):
                    found, alive = worker.ended(), False
                following = next(waiting, None)
                if following is not None:
                    worker = worker if alive else _Worker(processes)
                    workers[worker.pipe] = worker
                    worker.take(*following)
                elif alive:
                    worker.end()
                yield number, found
    finally:
        for worker in workers.values():
            worker.end(now=True)


class _Worker:
    """A worker is a process, one of so many, and the pipe to it."""

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.number = -1
        self.process: Any = context.Process(target=_work, args=(theirs, processes), daemon=True)
        with _alone():
            self.process.start()
        theirs.close()

    def take(self, number: int, point: Point) -> None:
        """Give it a point."""
        self.number = number
        with contextlib.suppress(BrokenPipeError):  # it is dead, which is found when its answer is read
            self.pipe.send(point)

    def ended(self) -> Measured:
        """Return what is said of the point with which it died."""
        self.process.join()
        code = self.process.exitcode
        how = f"ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with status {code}"
        why = ", probably for want of memory: fewer --processes leave more to each" if code == -signal.SIGKILL else ""
        return Measured({"error": f"the process that measured this point was {how}{why}"}, final=False)

    def end(self, now: bool = False) -> None:
        """End it; `now`: in the middle of a point."""
        if now:
            self.process.kill()  # it writes nothing
        self.pipe.close()
        self.process.join()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Start a process in the block: its libraries take one thread each, and Ctrl-C reaches only this process."""
    before = {name: os.environ.get(name) for name in THREADS}
    quiet = threading.current_thread() is threading.main_thread()
    old = signal.signal(signal.SIGINT, signal.SIG_IGN) if quiet else None
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if quiet:
            signal.signal(signal.SIGINT, old)


def _work(pipe: Connection, processes: int) -> None:
    """Measure the points that come, until none comes any more."""
    from fabric.host.bands import arranged

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, daemon=True).start()
    with arranged(threads=1 if processes > 1 else None):
        while True:
            try:
                point = pipe.recv()
            except EOFError:
                return
            pipe.send(measure(point))


def _follow() -> None:
    """End this process with the one that started it, however that ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
