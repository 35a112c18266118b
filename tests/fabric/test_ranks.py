"""One fabric over ranks: random machines over 1 to 4 ranks, cut at random cycles, against one engine and the reference.

The ranks are threads of this process (`tests.thread_ranks`), so that borders and exchanges are tested where there is
no MPI; `test_ranks_mpi.py` starts processes.
"""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric.engine.engine import Engine
from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.program.program import Program
from fabric.ranks import clock
from fabric.ranks.joined import joined
from fabric.ranks.rows import owner, rows_of
from tests.bench import workloads
from tests.chorus import Chorus
from tests.compare import cases, compare, difference, fault_of, memory, run_alike, seeded
from tests.examples import examples, some
from tests.random_traffic import random_traffic
from tests.random_vectors import random_vectors
from tests.thread_ranks import on_ranks
from wse_core.errors import ConfigError, SramFault, UnsupportedError, WseError


@examples(40)
@given(cases(), st.integers(1, 4))
def test_random_machines_agree_with_the_reference(case, size):
    assert compare(case, make=lambda spec: Chorus(spec, size)) in ("limit", "complete", "stuck", "fault")


@examples(20)
@given(cases(random_traffic), st.integers(2, 4))
def test_working_machines_agree_with_the_reference(case, size):
    assert compare(case, 3000, make=lambda spec: Chorus(spec, size)) in ("complete", "stuck")


@examples(10)
@given(cases(random_vectors), st.integers(2, 4))
def test_computing_in_memory_agrees_with_the_reference(case, size):
    assert compare(case, 20000, make=lambda spec: Chorus(spec, size)) in ("complete", "fault")


@examples(40)
@given(cases(), st.integers(2, 4), st.sampled_from((1, 3, 64)), st.integers(0, 2**32))
@example(seeded(11801111), 2, 1, 83850)  # cut where the only wavelets of a rank's color are not ready yet
def test_ranks_change_nothing(case, size, turn, seed):
    """Also what no reference has: counters, who waits in which order, the cycle in which the end is seen, all moves."""
    rng = random.Random(seed)
    one, many = case.start(Engine(case.spec)), case.start(Chorus(case.spec, size))
    one.arrange(bands=1)
    end, status = 0, ["limit", "limit"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "TURN", turn)
        while status == ["limit", "limit"] and end < 400:
            end += rng.choice((1, 7, 60, 400))
            status = [one.run(end), many.run(end)]
            if "limit" in status and status[0] != status[1]:  # the cut came in the cycle in which one saw the end
                status = [one.run(end + 50), many.run(end + 50)]
            assert status[0] == status[1]
            if status[0] == "fault":
                assert one.fault == many.fault
            else:
                assert difference(one.snapshot(), many.snapshot()) is None
                assert difference(memory(one, case.spec), memory(many, case.spec)) is None
                assert one.waiters() == many.waiters()
                for whole, parts in ((one.counters(), many.counters()), (one.link_counts(), many.link_counts())):
                    assert list(whole) == list(parts)
                    assert all(np.array_equal(whole[key], parts[key]) for key in whole)
                assert {key: values.sum() for key, values in one.counters().items()} == many.totals()
            assert (one.cycle, one.status) == (many.cycle, many.status)
            if status[0] != "fault":  # elsewhere a row may have gone on to the end of its turn
                assert (one.last_active, one.wavelet_hops) == (many.last_active, many.wavelet_hops)


@pytest.mark.parametrize("seed", range(0, 300, 7))
def test_ranks_put_off_what_one_engine_does(seed):
    """A main thread comes to a DSR that a starved microthread keeps: when that is seen depends on what was put off."""
    case = seeded(seed)
    one, many = case.start(Engine(case.spec)), case.start(Chorus(case.spec, 2))
    assert (one.run(3000), one.cycle) == (many.run(3000), many.cycle)
    if one.status == "fault":  # elsewhere a row may have gone on to the end of its turn
        assert one.fault == many.fault
    else:
        assert one.last_active == many.last_active


def test_the_last_cycle_of_a_cut_run_is_that_of_one_engine():
    """Looking inside books what has been put off, and that can be later than what the clock had seen."""
    case = seeded(141)
    one, many = case.start(Engine(case.spec)), case.start(Chorus(case.spec, 2))
    for end in range(1, 60):
        assert one.run(end) == many.run(end)
        for machine in (one, many):
            machine.counters()
        assert one.last_active == many.last_active


@pytest.mark.parametrize("seed", range(some(20, 3)))
def test_saturated_traffic(seed):
    """Much traffic and back-pressure over all borders: the state of each cut is the same."""
    rng = random.Random(seed)
    make, n = rng.choice(((workloads.exchange, 30), (workloads.multicast, 30), (workloads.chain_reduce, 60)))
    workload = make(rng.randint(3, 70), rng.randint(4, 20), n)
    one, many = Engine(workload.spec), Chorus(workload.spec, rng.randint(2, 4))
    run_alike(workload, one, many, rng)


def test_a_fault_stops_at_its_cycle():
    """Ranks that were ahead of it do not change what is told about the first fault, and all are told."""
    found = []
    for seed in range(80):
        case = seeded(seed)
        one = case.start(Engine(case.spec))
        if one.run(400) == "fault":
            many = case.start(Chorus(case.spec, 3))
            assert many.run(400) == "fault"
            assert (fault_of(one), one.cycle, one.fault) == (fault_of(many), many.cycle, many.fault)
            assert many.run(800) == "fault"
            found.append(case.spec.height)
    assert len(found) > 3
    assert max(found) > 2


def busy_row(width=70, height=41, row=2):
    """Return a layout in which a row computes for some thousand cycles and the others do nothing."""
    p = Program("busy")
    a = p.array("a", 200, "f32")
    with p.task("main"):
        for _ in range(20):
            p.fmuls(a, a, 1.5)
    layout = Layout(width, height)
    layout.place(p, 0, row, width, 1)
    end = Program("end")
    end.input_queue(0, 3)
    p.output_queue(0, 3)
    layout.place(end, 0, height - 1)
    layout.route(3, (0, row), "R", "S")
    layout.route(3, (0, row + 1, 1, height - row - 2), "N", "S")  # nothing is ever sent, but it might be
    layout.route(3, (0, height - 1), "N", "R")
    return layout


def test_quiet_borders_are_not_asked():
    """Work far from a border needs no exchange in each cycle: nothing can come there soon."""

    def run(world):
        with joined(world):
            fabric = Fabric(busy_row())
            fabric.launch("main")
            return fabric.run(), fabric.engine.exchanges

    alone = Fabric(busy_row())
    alone.launch("main")
    expected = alone.run()
    assert expected.cycles > 1000
    for found, exchanges in on_ranks(2, run):
        assert (found.cycles, found.cycle, found.counters) == (expected.cycles, expected.cycle, expected.counters)
        assert 0 < exchanges < expected.cycles / 10


def test_a_border_that_no_route_crosses_is_never_asked():
    workload = workloads.chain_reduce(64, 12, 20)
    one = workload.engine()
    one.run(workload.limit)
    many = Chorus(workload.spec, 3)
    workload.start(many)
    assert many.run(workload.limit) == "complete"
    workload.check(many)
    assert (many.cycle, many.wavelet_hops) == (one.cycle, one.wavelet_hops)
    assert [engine.exchanges for engine in many.engines] == [0, 0, 0]


def test_everybody_gets_the_same_error():
    """What one rank finds, all raise, with the text of one engine."""
    seed = next(seed for seed in range(80) if fault_in_row(seed))
    case = seeded(seed)

    def run(world):
        with joined(world):
            fabric = Fabric(case.spec)
            case.start(fabric.engine)
            with pytest.raises(WseError) as caught:
                fabric.run(400)
        return type(caught.value), str(caught.value)

    alone = Fabric(case.spec)
    case.start(alone.engine)
    with pytest.raises(WseError) as caught:
        alone.run(400)
    assert on_ranks(3, run) == [(type(caught.value), str(caught.value))] * 3


def fault_in_row(seed):
    case = seeded(seed)
    one = case.start(Engine(case.spec))
    return one.run(400) == "fault" and one.fault["y"] > 0


def test_an_error_of_one_rank_ends_all(capsys):
    def run(world):
        with joined(world):
            fabric = Fabric(busy_row())
            fabric.launch("main")
            if world.rank == 1:
                raise OSError("disk full")
            fabric.run()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fabric.ranks.joined.PATIENCE", 0.05)
        with pytest.raises(OSError, match="disk full"):
            on_ranks(3, run)
    assert "rank 1 of 3 ends all: OSError: disk full" in capsys.readouterr().err


def test_an_error_of_all_is_raised_once():
    """On the first rank; the others end without a word, with its exit status."""

    def run(world):
        try:
            with joined(world):
                raise ConfigError("no such thing")
        except ConfigError:
            return "raised"
        except SystemExit as end:
            return end.code

    assert on_ranks(3, run) == ["raised", ConfigError.exit_code, ConfigError.exit_code]


def test_what_runs_in_one_process_only_is_refused():
    def run(world):
        with joined(world):
            fabric = Fabric(busy_row())
            for refused in (
                lambda: fabric.run(bands=2),
                lambda: fabric.record("never.h5"),
                lambda: fabric.engine.save_state(),
                lambda: fabric.engine.trace(print),
                lambda: Fabric(busy_row(), backend="reference"),
            ):
                with pytest.raises(UnsupportedError, match="over ranks"):
                    refused()
            with pytest.raises(SramFault):
                fabric.engine.read_words(0, 2, 20000, 40)
            with pytest.raises(SramFault):
                fabric.engine.read_rect(20000, 40, 0, 2, 1, 1)

    on_ranks(2, run)


def test_without_mpi_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ConfigError, match=r"pip install 'wse-sim\[mpi\]'"), joined():
        pass


@pytest.mark.parametrize(("height", "size"), [(1, 1), (1, 3), (2, 2), (7, 3), (996, 4)])
def test_each_row_has_one_rank(height, size):
    rows = [rows_of(height, rank, size) for rank in range(size)]
    assert [y for low, high in rows for y in range(low, high)] == list(range(height))
    for y in range(height):
        low, high = rows[owner(y, height, size)]
        assert low <= y < high
