"""Recorded events stay what they were, on both machines, again and again, and in threads of the host."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from fabric.engine.engine import Engine
from tests.draw import Seeded
from tests.random_machines import random_inputs, random_spec
from tests.random_traffic import random_traffic
from tests.traces import golden
from traces.event_log import recording
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.events import TraceFilter


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("case", golden.CASES)
def test_columns_are_those_of_before(case, backend, tmp_path):
    """If a change is meant: python -m tests.traces.golden --renew."""
    golden.record(case, tmp_path / "run.h5", backend)
    assert golden.decoded(tmp_path / "run.h5") == json.loads(golden.FILE.read_text())[case]


def recorded(draw, seed, path, ready=None):
    """Record a random machine; return its events as bytes and its final cycle."""
    rng = Seeded(seed)
    spec = draw(rng)
    engine = Engine(spec)
    for burst in random_inputs(rng, spec):
        engine.push_input(*burst)
    if ready is not None:
        ready.wait()
    with recording(engine, path, RunMeta(), TraceFilter()) as log:
        engine.run(400)
    with RunWriter(path, RunMeta()) as writer:
        log.finish(writer)
    log.remove()
    with Trace.open(path) as trace:
        return trace.events().tobytes(), trace.clock


@pytest.mark.parametrize("draw", [random_spec, random_traffic])
def test_threads_of_the_host_do_not_change_a_run(draw, tmp_path):
    """The engine has one thread and shares nothing: runs one after the other and at the same time are identical."""
    seeds = [3, 17, 29, 17]  # one of them twice
    alone = [recorded(draw, seed, tmp_path / f"alone{k}.h5") for k, seed in enumerate(seeds)]
    assert alone[1] == alone[3]
    assert len({events for events, _ in alone}) == 3
    for again in range(3):
        found, ready = [None] * len(seeds), threading.Barrier(len(seeds))

        def work(k, found=found, ready=ready, again=again):
            found[k] = recorded(draw, seeds[k], tmp_path / f"together{again}{k}.h5", ready)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(len(seeds))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == alone


def test_long_runs_in_two_threads_are_identical():
    """Long enough that both are inside the engine, which runs without the interpreter's lock, at the same time."""
    from tests.bench import workloads

    def run(into):
        engine, parts = workloads.exchange(12, 12, 60).engine(), []
        engine.trace(lambda events, clock: parts.append(events.tobytes()), TraceFilter())
        engine.run(100_000)
        engine.trace(None)
        into.append((b"".join(parts), engine.cycle))

    alone, together = [], []
    run(alone)
    threads = [threading.Thread(target=run, args=(together,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(alone[0][0]) > 20 * 100_000
    assert together == [alone[0]] * 2
    assert np.uint64(alone[0][1]) > 0
