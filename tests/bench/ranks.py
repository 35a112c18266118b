"""Two ranks against two threads against one, in one run: ``mpiexec -n 2 python -m tests.bench.ranks [WIDTH HEIGHT N]``.

The first rank times one thread and two threads while the others sleep; then all run together.  Rounds are interleaved;
of each kind the fastest is told, as a multiple of one thread's, with the CPU time of all threads and ranks together and
the load of the host.  One thread is what `Engine` chooses by itself, bands where they pay.
"""

from __future__ import annotations

import os
import sys
import time

from fabric.engine.engine import Engine
from fabric.ranks.engine import RankedEngine
from fabric.ranks.mpi import MpiWorld
from tests.bench import workloads

ROUNDS = 3
SIZES = ((64, 64, 200), (128, 128, 200), (256, 256, 60))


def timed(engine, workload):
    """Return (wall seconds, CPU seconds, exchanges) of a run whose result is checked."""
    workload.start(engine)
    clock, cpu = time.perf_counter(), time.process_time()
    status = engine.run(workload.limit)
    spent = time.perf_counter() - clock, time.process_time() - cpu
    assert status == "complete"
    workload.check(engine)
    return *spent, getattr(engine, "exchanges", 0)


def arranged(spec, threads):
    """Return an engine that may use some threads."""
    engine = Engine(spec, pack=False)
    engine.arrange(threads=threads) if threads == 1 else engine.arrange(bands=-(-spec.height // 8), threads=threads)
    return engine


def measure(world, make, width, height, n):
    """Return {kind: (wall, CPU) of the fastest round}, the cycles and the exchanges."""
    workload = make(width, height, n)
    found = {"one thread": [], "two threads": [], f"{world.size} ranks": []}
    cycles = exchanges = 0
    for _ in range(ROUNDS):
        for kind, runs in found.items():
            if "thread" in kind:
                mine = (
                    timed(arranged(workload.spec, 1 if kind == "one thread" else 2), workload) if not world.rank else ()
                )
                runs.append(world.share(mine)[0])
                continue
            engine = RankedEngine(workload.spec, world)
            world.share(None)
            spent = world.share(timed(engine, workload))
            runs.append((max(wall for wall, _, _ in spent), sum(cpu for _, cpu, _ in spent)))
            cycles, exchanges = engine.cycle, engine.exchanges
    return {kind: min(run[:2] for run in runs) for kind, runs in found.items()}, cycles, exchanges


def main(words):
    """Measure the sizes that are given, three numbers each, or `SIZES`; the first rank prints."""
    world = MpiWorld()
    sizes = [tuple(map(int, words[k : k + 3])) for k in range(0, len(words), 3)] or SIZES
    for width, height, n in sizes:
        for make in (workloads.exchange, workloads.chain_reduce):
            found, cycles, exchanges = measure(world, make, width, height, n)
            if world.rank:
                continue
            base = found["one thread"][0]
            texts = [
                f"{kind} {wall:.2f} s ({base / wall:.2f} x, CPU {cpu:.2f} s)" for kind, (wall, cpu) in found.items()
            ]
            print(
                f"{make.__name__} {width} x {height}, {n} words, {cycles} cycles, {exchanges} exchanges: "
                f"{'; '.join(texts)}; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
