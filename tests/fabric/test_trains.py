"""Trains: many words of a stream moved at once are what hop by hop gives, in every bit, counter and cycle."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric.engine.engine import Engine
from fabric.host import engines
from fabric.host.bands import arranged
from fabric.host.engines import around
from fabric.host.fabric import Fabric
from fabric.kernels.registry import KERNELS
from harness.cli.main import main
from tests.bench import workloads
from tests.compare import Case, compare, difference, memory, state_of
from tests.draw import Seeded
from tests.examples import examples, seeds
from tests.fabric.test_bands import some_bands
from tests.random_reduces import random_reduces
from tests.random_trains import random_trains
from wse_core.events import TraceFilter
from wse_core.params import machine

SEEDS = st.integers(0, 2**32 - 1)


def sizes(rng):
    """Yield cycles to run at a time: long enough for trains, cut anywhere."""
    while True:
        yield rng.choice((1, 30, 60, 100, 1000, rng.randint(1, 300)))


def some_engine(rng, spec, trains):
    """Return an engine with a random order of visits, in random bands or at one clock."""
    engine = Engine(spec, order=rng.choice((0, rng.randint(1, 2**31))), pack=rng.chance(0.5), trains=trains)
    if rng.chance(0.4):
        engine.arrange(**some_bands(spec.height, rng))
    else:
        engine.arrange(bands=1)
    return engine


def what_shows(engine, spec, status):
    """Return all that can be seen of an engine."""
    links = {color: table.tolist() for color, table in engine.link_counts().items()}
    counters = {name: table.tolist() for name, table in engine.counters().items()}
    return [
        state_of(engine, status), memory(engine, spec), links, counters, engine.waiters(), engine.cycle,
        engine.last_active, engine.wavelet_hops,
    ]  # fmt: skip


@examples(60)
@given(SEEDS)
def test_trains_agree_with_the_reference(seed):
    rng = Seeded(seed)
    spec = rng.choice((random_trains, random_reduces))(rng, 6, 3)
    case = Case(spec, [], sizes(rng), f"seed {seed}: ")
    assert compare(case, 2500, make=lambda spec: some_engine(rng, spec, True)) in ("complete", "stuck")


def at_one_cycle(engines):
    """Run those that stand at an earlier cycle, though nothing is left to do, until all stand at the same one.

    Each such run takes a cycle in which nothing happens.
    """
    last = max(engine.cycle for engine in engines)
    for engine in engines:
        assert last - engine.cycle <= 1
        if engine.cycle < last:
            engine.run(20000)


@examples(300)
@example(1900)  # what a CE waited for was what its last look had found, long ago
@example(14821)  # with trains all is over a cycle later, since a CE has been looked at in another cycle
@given(SEEDS)
def test_trains_change_nothing(seed):
    """Larger machines, and also what no reference has: link counts, moves, the cycle in which all is over."""
    rng = Seeded(seed)
    spec = rng.choice((random_trains, random_reduces))(rng, 14, 5)
    engines = [some_engine(rng, spec, True), Engine(spec, trains=False)]
    engines[1].arrange(bands=1)
    steps, end, status = sizes(rng), 0, ["limit", "limit"]
    while "limit" in status and end < 20000:
        end += next(steps)
        status = [engine.run(end) for engine in engines]
        if "limit" in status and status[0] != status[1]:  # the cut came in the cycle in which one of them saw the end
            status = [engine.run(end + 50) for engine in engines]
        assert status[0] == status[1]
        if status[0] != "limit":
            at_one_cycle(engines)
        found = difference(*(what_shows(engine, spec, status[0]) for engine in engines))
        assert found is None, f"seed {seed}, cycle {end}: {found}"
    assert status[0] != "limit"


def work(spec, trains):
    """Return the work of a whole run, in events."""
    engine = Engine(spec, trains=trains)
    assert engine.run(20000) in ("complete", "stuck")
    return engine.events


@pytest.mark.parametrize(("make", "least"), [(random_trains, 6), (random_reduces, 12)])
def test_random_streams_leave_as_trains(make, least):
    """Some of the random machines above have trains (10 and 23 of 40 when this was written), else they show nothing."""
    specs = [make(Seeded(seed), 14, 5) for seed in range(40)]
    fewer = sum(work(spec, True) < work(spec, False) for spec in specs)
    assert fewer >= least


@pytest.mark.parametrize("make", [workloads.chain_reduce, workloads.broadcast])
def test_a_stream_takes_less_than_a_fifth_of_the_work(make):
    workload = make(40, 5, 250)
    events = []
    for trains in (True, False):
        engine = Engine(workload.spec, trains=trains)
        workload.start(engine)
        assert engine.run(workload.limit) == "complete"
        workload.check(engine)
        events.append(engine.events)
    assert events[0] < events[1] / 5


def test_no_trains_while_events_are_recorded():
    """Events are those of every hop, and the same with and without trains."""
    workload = workloads.chain_reduce(12, 2, 60)
    found = []
    for trains in (True, False):
        engine = Engine(workload.spec, trains=trains)
        parts = []
        engine.trace(lambda events, clock, parts=parts: parts.extend(map(tuple, events.tolist())), TraceFilter())
        workload.start(engine)
        assert engine.run(workload.limit) == "complete"
        engine.trace(None)
        found.append(sorted(parts))
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", seeds(10))
def test_a_run_may_be_cut_in_any_cycle(seed):
    """A train that would pass the end of a run is shorter, or none."""
    workload = workloads.chain_reduce(9, 2, 70)
    whole = Engine(workload.spec, trains=False)
    workload.start(whole)
    rng = random.Random(seed)
    cut = Engine(workload.spec)
    workload.start(cut)
    end, status = 0, "limit"
    while status == "limit":
        end += rng.randint(1, 60)
        status = cut.run(end)
        assert whole.run(end) == status
        assert difference(state_of(cut, status), state_of(whole, status)) is None
        assert cut.wavelet_hops == whole.wavelet_hops
    workload.check(cut)


XY = {"form": "xy", "width": 24, "height": 10, "n": 80}
COLLECTIVES = {
    "chains": ("allreduce", XY | {"algorithm": "chain"}, 4),
    "chains, f16": ("allreduce", XY | {"algorithm": "chain", "dtype": "f16", "sums": "f32"}, 4),
    "two phases": ("allreduce", XY | {"algorithm": "two_phase"}, 1.5),
    "two phases, held up": ("allreduce", XY | {"width": 57, "n": 120, "algorithm": "two_phase"}, 4),
    "trees": ("allreduce", XY | {"algorithm": "tree"}, 1),
    "broadcast": ("broadcast", {"width": 24, "height": 10, "n": 80}, 3),
    "broadcast into many columns": ("broadcast", {"width": 80, "height": 3, "n": 80}, 3),
    "chain": ("chain_reduce", {"pes": 40, "n": 200}, 4),
}
"""A kernel, its parameters, and how many times the work of trains it is to move each word hop by hop, at least."""


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name):
    """Kernels with switches and phases that share routers: the same state of the fabric at the end, with less work."""
    kernel, values, times = COLLECTIVES[name]
    shown, events = [], []
    for trains in (True, False):
        fabrics = []
        with arranged(trains=trains), around(on_build=fabrics.append):
            result = KERNELS[kernel].run(machine("wse2"), **values)
        ran = [fabric.engine for fabric in fabrics]
        shown.append([what_shows(engine, engine.spec, engine.status) for engine in ran])
        shown[-1].append([result[key] for key in ("cycles", "wavelet_hops", "bit_exact")])
        events.append(sum(engine.events for engine in ran))
    assert difference(*shown) is None
    assert events[0] * times <= events[1]


def test_a_user_says_no_trains(capsys, monkeypatch):
    """`Fabric.run` and the command move every word hop by hop, if asked to, and say the same cycles."""
    workload, events = workloads.chain_reduce(12, 2, 60), []
    for trains in (True, False):
        fabric = Fabric(workload.spec)
        workload.start(fabric.engine)
        fabric.run(trains=trains)
        assert fabric.engine.trains == trains
        events.append(fabric.engine.events)
    assert events[0] < events[1]
    cycles, made, make = [], [], engines.make_engine
    monkeypatch.setattr(engines, "make_engine", lambda *given: made.append(make(*given)) or made[-1])
    for options in ([], ["--no-trains"]):
        assert main(["kernel", "chain_reduce", "pes=12", "n=60", "--json", *options]) == 0
        assert made[-1].trains == (not options)
        cycles.append(json.loads(capsys.readouterr().out)["cycles"])
    assert cycles[0] == cycles[1]
