"""What a workload of the benchmarks is: a fabric with something to do, what it must give, what a run of it took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fabric.engine.engine import Engine
from wse_core.params import machine

__all__ = ["FOREVER", "Sample", "Workload", "floats", "large_machine", "task_id", "write"]

FOREVER = 1 << 40  # cycles; more than any run here


@dataclass
class Workload:
    """A fabric with something to do.

    Attributes
    ----------
    name : str
        For reports.
    spec : FabricSpec
        What to build an engine from.
    start : callable
        Called with a fresh engine: writes data, activates tasks.
    check : callable
        Called with the engine after the run; raises AssertionError if a result is wrong.
    work : dict[str, int]
        How much the run is, exactly, by unit: ``hops`` (grants of queues), ``steps`` (of vector operations, each one
        PE-cycle at work), ``macs``, ``tasks``.
    cycles : int or tuple
        Cycles of the run, exact or (lowest, highest).
    limit : int
        Where to stop; a run that goes on for ever ends there.
    active : int
        PEs that work.
    trains : bool
        Move streams as trains where the engine can; else every hop is an event, which is what a hop is measured by.
    """

    name: str
    spec: object
    start: Callable
    check: Callable
    work: dict
    cycles: int | tuple
    limit: int = FOREVER
    active: int = 0
    params: dict = field(default_factory=dict)
    trains: bool = False

    def engine(self):
        """Return a new engine, ready to run."""
        engine = Engine(self.spec, trains=self.trains)
        self.start(engine)
        return engine

    def finish(self, engine, status):
        """Check everything after a run that ended with `status`."""
        wanted = "complete" if self.limit == FOREVER else "limit"
        assert status == wanted, f"{self.name}: {status}, not {wanted}; fault {engine.fault}"
        low, high = self.cycles if isinstance(self.cycles, tuple) else (self.cycles, self.cycles)
        assert low <= engine.last_active + 1 <= high, f"{self.name}: {engine.last_active + 1} cycles, not {self.cycles}"
        done = self.done(engine)
        assert done == self.work, f"{self.name}: {done}, not {self.work}"
        self.check(engine)

    def done(self, engine):
        """Return the work that an engine has done, with the keys of `work`."""
        counters = engine.counters()
        return {
            key: sum(int(count.sum()) for count in engine.link_counts().values())
            if key == "hops"
            else int(counters[key].sum())
            for key in self.work
        }

    def run(self, warm=0):
        """Run once in one thread, check, and return a `Sample`; the first `warm` cycles count for nothing."""
        engine = self.engine()
        engine.arrange(threads=1)
        if warm:
            engine.run(warm)
        before, at = self.done(engine), engine.cycle
        begin = time.perf_counter()
        status = engine.run(self.limit)
        seconds = time.perf_counter() - begin
        self.finish(engine, status)
        return Sample(seconds, engine.last_active + 1 - at, {key: self.work[key] - before[key] for key in self.work})


@dataclass(frozen=True)
class Sample:
    """What one run took: host seconds, cycles, work by unit."""

    seconds: float
    cycles: int
    work: dict

    def per_second(self, unit):
        """Return work per host second."""
        return self.work[unit] / self.seconds

    def nanoseconds(self, unit):
        """Return host nanoseconds per unit of work."""
        return self.seconds / self.work[unit] * 1e9


def large_machine(width, height):
    """Return wse2 on a mesh that is large enough."""
    return machine("wse2", {"fabric.width": max(757, width), "fabric.height": max(996, height)})


def floats(engine, symbol, x, y, w, h):
    """Return an f32 symbol over a rectangle, shape (h, w, count)."""
    words = engine.read_rect(symbol.address, symbol.words, x, y, w, h)
    return np.ascontiguousarray(words).view("<f4")


def write(engine, symbol, values, x, y):
    """Write an f32 symbol over a rectangle; values shaped (h, w, count)."""
    words = np.ascontiguousarray(values, "<f4").view("<u2")
    assert words.shape[2] == symbol.words
    engine.write_rect(symbol.address, words, x, y)


def task_id(program, name="main"):
    """Return the id of a program's task, found by its label."""
    at = program.labels.get(name)
    ids = [i for i, entry in enumerate(program.entry) if entry >= 0 and (at is None or entry == at)]
    assert len(ids) == 1, (program.name, program.labels)
    return ids[0]
