"""Rows at clocks of their own: bands of any heights, turns and threads against one clock, and against the reference.

The engine advances a large busy fabric in bands of rows (`fabric.engine.cycles`).  Here small random fabrics are
advanced so, cut at random cycles: whatever can be seen is what one clock gives, cycle by cycle.
"""

from __future__ import annotations

import json
import random
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.engine.engine import Engine
from fabric.host.bands import arranged
from fabric.host.fabric import Fabric
from fabric.kernels.registry import KERNELS
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.cli.main import main
from tests.bench import workloads
from tests.bench.workload import task_id
from tests.compare import cases, compare, difference, fault_of, memory, run_alike, seeded
from tests.examples import examples
from tests.random_traffic import random_traffic
from tests.random_vectors import random_vectors
from wse_core.errors import ConfigError
from wse_core.events import TraceFilter
from wse_core.image import DSD_FABIN
from wse_core.params import machine


def some_bands(height, rng):
    """Return arguments of `arrange`: one band, 2, 7 or a row each, or random heights; random turns; 1 or 2 threads."""
    kind = rng.randrange(3)
    if kind == 0:
        bands = min(height, rng.choice((1, 2, 7, height)))
    else:
        cuts = sorted(rng.sample(range(1, height), rng.randint(0, height - 1))) if height > 1 else []
        bands = [b - a for a, b in zip([0, *cuts], [*cuts, height], strict=True)]
    return {"bands": bands, "threads": rng.choice((1, 1, 2, 3)), "turn": rng.choice((1, 2, 5, 32, 200))}


def banded(seed):
    """Return a function that makes an engine in random bands; those of one height have bands of a row each."""

    def make(spec):
        engine = Engine(spec, pack=False)
        engine.arrange(**some_bands(spec.height, random.Random(seed)))
        return engine

    return make


@examples(60)
@given(cases(), st.integers(0, 2**32))
def test_random_machines_agree_with_the_reference(case, seed):
    assert compare(case, make=banded(seed)) in ("limit", "complete", "stuck", "fault")


@examples(20)
@given(cases(random_traffic), st.integers(0, 2**32))
def test_working_machines_agree_with_the_reference(case, seed):
    assert compare(case, 3000, make=banded(seed)) in ("complete", "stuck")


@examples(20)
@given(cases(random_vectors), st.integers(0, 2**32))
def test_computing_in_memory_agrees_with_the_reference(case, seed):
    assert compare(case, 20000, make=banded(seed)) in ("complete", "fault")


@examples(60)
@given(cases(), st.integers(0, 2**32))
def test_bands_change_nothing(case, seed):
    """Also what no reference has: the cycle in which an engine sees that all is over, and the number of moves."""
    rng = random.Random(seed)
    one, many = case.start(Engine(case.spec)), case.start(Engine(case.spec, pack=False))
    one.arrange(bands=1)
    end, status = 0, ["limit", "limit"]
    while status == ["limit", "limit"] and end < 400:
        end += rng.choice((1, 7, 60, 400))
        many.arrange(**some_bands(case.spec.height, rng))
        status = [one.run(end), many.run(end)]
        if "limit" in status and status[0] != status[1]:  # the cut came in the cycle in which one of them saw the end
            status = [one.run(end + 50), many.run(end + 50)]
        assert status[0] == status[1]
        if status[0] == "fault":
            assert one.fault == many.fault
        else:
            assert difference(one.snapshot(), many.snapshot()) is None
            assert difference(memory(one, case.spec), memory(many, case.spec)) is None
            assert one.waiters() == many.waiters()
        assert (one.cycle, one.status) == (many.cycle, many.status)
        if status[0] != "fault":  # elsewhere a row may have gone on to the end of its turn
            assert (one.last_active, one.wavelet_hops) == (many.last_active, many.wavelet_hops)


@pytest.mark.parametrize("seed", range(6))
def test_saturated_traffic_in_threads(seed):
    """Much traffic over all borders, more threads than the host may have cores: the state of each cut is the same."""
    rng = random.Random(seed)
    make, n = rng.choice(((workloads.exchange, 30), (workloads.multicast, 30), (workloads.chain_reduce, 60)))
    workload = make(rng.randint(3, 9), rng.randint(8, 30), n)
    one, many = Engine(workload.spec), Engine(workload.spec, pack=False)
    one.arrange(bands=1)

    def arrange():
        many.arrange(**some_bands(workload.spec.height, rng) | {"threads": rng.choice((2, 3))})

    run_alike(workload, one, many, rng, arrange)


def test_a_fault_stops_at_its_cycle():
    """Rows that were ahead of it do not change what is told about the first fault."""
    found = []
    for seed in range(80):
        case = seeded(seed)
        one, many = case.start(Engine(case.spec)), case.start(Engine(case.spec, pack=False))
        one.arrange(bands=1)
        many.arrange(bands=case.spec.height, threads=1, turn=100)
        if one.run(400) == "fault":
            assert many.run(400) == "fault"
            assert (fault_of(one), one.cycle, one.fault) == (fault_of(many), many.cycle, many.fault)
            found.append(case.spec.height)
    assert len(found) > 3
    assert max(found) > 1


def test_events_are_those_of_one_clock():
    """While events are recorded, all rows stand at one clock."""
    events = []
    for bands in (1, 5):
        workload = workloads.exchange(4, 5, 10)
        engine = Engine(workload.spec, pack=False)
        engine.arrange(bands=bands, threads=1)
        parts = []
        engine.trace(lambda found, clock, parts=parts: parts.extend(map(tuple, found.tolist())), TraceFilter())
        workload.start(engine)
        assert engine.run(workload.limit) == "complete"
        engine.trace(None)
        assert engine.bands == 1
        events.append(parts)
    assert events[0] == events[1]


def test_much_traffic_is_run_in_bands_by_itself():
    """Nobody has asked for bands: a large fabric that moves much is run so, a small one is not."""
    large, small = workloads.broadcast(100, 100, 200), workloads.broadcast(20, 100, 200)
    engines = []
    for workload in (large, small):
        engine = Engine(workload.spec, trains=False)
        engine.arrange(threads=1)
        workload.start(engine)
        assert engine.run(workload.limit) == "complete"
        workload.check(engine)
        engines.append(engine)
    assert engines[0].bands > 1
    assert engines[1].bands == 1


@pytest.mark.parametrize("cores", [1, 3])
def test_much_work_is_run_in_threads_by_itself(monkeypatch, cores):
    """Fewer wavelets than are worth bands, with cores to spare, are run in threads; all that can be seen is equal."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    workload = workloads.broadcast(20, 100, 200)
    alone, many = Engine(workload.spec, trains=False), Engine(workload.spec, trains=False)
    alone.arrange(bands=1)
    for engine in (alone, many):
        workload.start(engine)
        assert engine.run(workload.limit) == "complete"
    assert (many.bands, many.threads) == ((1, 1) if cores == 1 else (12, cores))
    assert difference(alone.snapshot(), many.snapshot()) is None
    assert alone.cycle == many.cycle


@pytest.mark.parametrize("cores", [0.5, 1.9])
def test_one_thread_goes_on_where_others_have_the_cores(monkeypatch, cores):
    """Two threads that get half a core, by clocks that are made up, are given up for a while; with two they are not."""
    seconds = count()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("time.monotonic", lambda: next(seconds) * 0.1)
    monkeypatch.setattr("time.process_time", lambda: next(seconds) * 0.1 * cores)
    workload, threads, status = workloads.broadcast(20, 100, 400), [], "limit"
    engine = Engine(workload.spec, trains=False)
    workload.start(engine)
    while status == "limit":
        status = engine.run(engine.cycle + 200)
        threads.append(engine.threads)
    workload.check(engine)
    assert 2 in threads
    assert (1 in threads[threads.index(2) :]) == (cores < 1)


def bursts(lull, height=100, n=400):
    """Four bursts of words along all rows, `lull` cycles and more apart, while row 0 goes on; an engine that begins."""
    m = machine("wse2", fabric_width=20, fabric_height=height)
    layout, pieces = Layout(20, height, m), lull // 400
    for name, top, rows, times in (("steady", 0, 1, 1), ("burst", 1, height - 1, 4)):
        each = n if times > 1 else 4 * (n + lull)
        source, sink = Program(f"{name} source", m), Program(f"{name} sink", m)
        one, rest = source.array("one", 1, "f32", [1.5]), source.array("rest", 800, "f32")
        source.output_queue(0, 0)
        with source.task("main"):
            for _ in range(times):
                source.fmovs(source.fabout(0, each), source.mem1d(one, stride=0))
                for _ in range(pieces if times > 1 else 0):
                    source.fmovs(source.mem1d(rest, 400), source.mem1d(rest, 400))
        total = sink.array("total", 1, "f32")
        sink.input_queue(0, 0)
        with sink.task("main"):
            t = sink.mem1d(total, times * each, stride=0)
            sink.fadds(t, t, sink.fabin(0, times * each))
        layout.place(source, 0, top, 1, rows)
        layout.place(sink, 1, top, 19, rows)
    layout.route(0, (0, 0, 1, height), rx="R", tx="E")
    layout.route(0, (1, 0, 18, height), rx="W", tx="ER")
    layout.route(0, (19, 0, 1, height), rx="W", tx="R")
    spec = layout.build()
    engine = Engine(spec, trains=False)
    for program in spec.programs:
        top, rows = (0, 1) if "steady" in program.name else (1, height - 1)
        x, width = (0, 1) if "source" in program.name else (1, 19)
        engine.activate(task_id(program), x, top, width, rows)
    return engine


@pytest.mark.parametrize(("lull", "leaves"), [(800, False), (6000, True)])
def test_bursts_that_follow_each_other_stay_in_bands(monkeypatch, lull, leaves):
    """Threads go on with their turns where little moves for a while; where that lasts, one clock takes over."""
    seconds, ends = count(), []
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("time.monotonic", lambda: next(seconds) * 0.1)
    monkeypatch.setattr("time.process_time", lambda: next(seconds) * 0.19)
    many, alone = bursts(lull), bursts(lull)
    alone.arrange(bands=1)

    def broken():
        if many.bands > 1:
            ends.append(many.cycle)
        return 1 << 40

    assert (many.run(1 << 40, broken), alone.run(1 << 40)) == ("complete", "complete")
    assert difference(alone.snapshot(), many.snapshot()) is None
    assert (many.bands, many.threads) == (12, 2)
    assert (np.diff(ends).max() > 600) == leaves  # a turn has 512 cycles at most


def test_much_traffic_may_be_cut_in_any_cycle():
    """A run that ends in the very cycle in which bands begin to pay; each cycle of one that goes on in steps."""
    workload = workloads.broadcast(100, 100, 200)
    engine = Engine(workload.spec, trains=False)
    workload.start(engine)
    bands, status = set(), "limit"
    while status == "limit":
        status = engine.run(engine.cycle + 1)
        bands.add(engine.bands)
    assert status == "complete"
    assert len(bands) == 2
    workload.check(engine)


@pytest.mark.parametrize(
    "wrong", [{"bands": 0}, {"bands": 6}, {"bands": [2, 2]}, {"bands": [5, 0]}, {"threads": 0}, {"turn": 0}]
)
def test_bands_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ConfigError):
        Engine(workloads.exchange(4, 5, 10).spec).arrange(**wrong)


def test_a_user_chooses_and_is_told():
    """`Fabric.run` takes bands and threads, also by heights, keeps to them, and says what ran; so does a command."""
    workload = workloads.exchange(62, 6, 4)
    results = []
    for chosen, ran in (({}, (1, 1)), ({"bands": 3, "threads": 2}, (3, 2)), ({"bands": [1, 5], "threads": 1}, (2, 1))):
        fabric = Fabric(workload.spec)
        workload.start(fabric.engine)
        part = fabric.run(20, on_limit="return", **chosen)
        rest = fabric.run()
        assert (part.bands, part.threads) == (rest.bands, rest.threads) == ran
        workload.check(fabric.engine)
        results.append((part.counters, rest.counters, part.cycles + rest.cycles))
    assert results[0] == results[1] == results[2]
    with arranged(bands=100, threads=2) as found:
        fabric = Fabric(workload.spec)
        workload.start(fabric.engine)
        fabric.run()
    assert (found.most_bands, found.most_threads) == (6, 2)
    assert Fabric(workload.spec).engine.bands == 1
    with pytest.raises(ConfigError), arranged(threads=0):
        pass


def test_breaks_do_not_show_in_the_state(monkeypatch):
    """Where the host is slow, and breaks are many, a machine stops at the same clock with the same idle cycles."""
    found = set()
    for seconds in (0.0, 1e-5, 1e-4, 10.0):
        monkeypatch.setattr("fabric.host.running.PIECE_SECONDS", seconds)
        for bands in (None, 3):
            workload = workloads.exchange(33, 40, 40)
            fabric = Fabric(workload.spec)
            workload.start(fabric.engine)
            run = fabric.run(bands=bands)
            found.add((fabric.cycle, run.cycles, *run.counters.items()))
    assert len(found) == 1


def test_the_command_takes_bands_and_threads(capsys):
    words = ["kernel", "allreduce", "width=62", "height=12", "--json"]
    printed = []
    for options in ([], ["--bands", "4", "--threads", "2"]):
        assert main([*words, *options]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert [found["host_bands"] for found in printed] == [1, 4]
    assert [found["host_threads"] for found in printed] == [1, 2]
    assert printed[0]["cycles"] == printed[1]["cycles"]
    assert main([*words, "--threads", "0"]) != 0
    assert "--threads" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("width", "height", "most"), [(5, 150, 19), (5, 40, 1), (48, 30, 4), (64, 30, 30), (70, 30, 30), (70, 240, 31)]
)
def test_rows_that_share_words_stay_together(width, height, most):
    """Rows that share words of 64 cells are in one band, those of a small fabric all, rows of more than a word only
    where memory counts; the results are those of rows that do not share."""
    workload = workloads.exchange(width, height, 10 if height < 200 else 3)
    states = []
    for pack, bands, ran in ((True, height, most), (False, height, height), (True, 1, 1)):
        engine = Engine(workload.spec, pack=pack)
        engine.arrange(bands=bands, threads=2, turn=9)
        workload.start(engine)
        assert engine.run(workload.limit) == "complete"
        assert engine.bands == ran
        states.append(engine.snapshot() if height < 200 else engine.counters() | engine.link_counts())
    if height < 200:
        assert difference(states[0], states[1]) is difference(states[0], states[2]) is None
    else:  # a state PE by PE is large
        np.testing.assert_equal(states[1:], [states[0]] * 2)


def test_large_fabrics_take_bands_while_fewer_wavelets_move():
    """A chain over 600 rows moves some 1,600 wavelets per cycle, each of which would wait for memory at one clock."""
    workload = workloads.chain_reduce(64, 600, 8)
    engine = workload.engine()
    status = engine.run(workload.limit)
    workload.finish(engine, status)
    assert engine.bands > 1
    small = workloads.chain_reduce(64, 64, 8)
    engine = small.engine()
    small.finish(engine, engine.run(small.limit))
    assert engine.bands == 1


def test_many_that_begin_together_begin_in_bands():
    """Each CE of a large fabric is looked at in the first cycle: that pays, though little moves later."""
    counts = []
    for bands in (None, 1):
        workload = workloads.broadcast(64, 600, 1)
        engine = workload.engine()
        engine.arrange(bands, 1)
        workload.finish(engine, engine.run(workload.limit))
        assert (engine.bands > 1) == (bands is None)
        counts.append(engine.counters())
    assert all((counts[0][name] == counts[1][name]).all() for name in counts[0])


def test_who_takes_many_words_of_others_begins_in_bands_too(monkeypatch):
    """A sum of one word of each PE: some PEs take more words than are worth a train, but each sends one."""
    taken, breaks = [], []

    def run(engine, stop, *_):
        programs = engine.spec.programs
        taken.extend(p.descriptors["extent"][p.descriptors["kind"] == DSD_FABIN].max() for p in programs)
        return engine.run(stop, lambda: breaks.append((engine.cycle, engine.bands)) or 1 << 40)

    monkeypatch.setattr("fabric.host.fabric.run_pieces", run)
    KERNELS["allreduce"].run(machine("wse2"), form="xy", width=64, height=600, n=1)
    assert max(taken) > 8
    assert breaks[0] == (32, 75)  # the first turn, in 75 bands


def run_in_turns(**arranged):
    """Sums along 600 short rows, so few wavelets that turns may be long: cycles of each break in bands, counters."""
    workload = workloads.chain_reduce(64, 600, 16)
    engine = workload.engine()
    engine.arrange(threads=1, **arranged)
    breaks, begin = [], 0

    def broken():
        nonlocal begin
        if engine.bands > 1:
            breaks.append(engine.cycle - begin)
        begin = engine.cycle
        return 1 << 40

    workload.finish(engine, engine.run(workload.limit, broken))
    return breaks, engine.counters(), engine.cycle


def test_turns_are_longer_where_little_moves():
    """A first turn is short, since nobody knows what moves in it; no result depends on it."""
    (turns, counters, end), (fixed, *given), (none, *one) = (
        run_in_turns(),
        run_in_turns(bands=75, turn=5),
        run_in_turns(bands=1),
    )
    assert turns[0] == 32
    assert turns[1] == 128 == max(turns)
    assert max(fixed[1:]) == 5  # (behind the first one time jumps)
    assert not none
    for others, cycle in (given, one):
        assert cycle == end
        assert all((counters[name] == others[name]).all() for name in counters)


def test_long_streams_begin_at_one_clock():
    """Streams down the columns of a large fabric: all begin together, but as trains, which cross rows at one clock."""
    width, height, n = 64, 600, 200
    send = Program("send")
    x = send.array("x", n, "f32", range(n))
    send.output_queue(0, 5)
    with send.task("main"):
        send.fmovs(send.fabout(5, n), x)
    take = Program("take")
    y = take.array("y", n, "f32")
    take.input_queue(0, 5)
    with take.task("main"):
        take.fmovs(y, take.fabin(5, n))
    layout = Layout(width, height)
    layout.place(send, 0, 0, width, 1)
    layout.place(take, 0, 1, width, height - 1)
    layout.route(5, (0, 0, width, 1), rx="R", tx="S")
    layout.route(5, (0, 1, width, height - 2), rx="N", tx="SR")
    layout.route(5, (0, height - 1, width, 1), rx="N", tx="R")
    fabric = Fabric(layout)
    fabric.launch("main")
    run = fabric.run()
    assert run.bands == 1
    assert run.wavelet_hops == width * height * n
    assert fabric.engine.events < run.wavelet_hops / 2
    assert (fabric.read("y", 0, height - 1, width, 1) == range(n)).all()
