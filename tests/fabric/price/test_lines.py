"""Runs of kernels, priced from their programs and routes alone, against the engine and the kernels' closed forms."""

from __future__ import annotations

import pytest

from fabric.host.fabric import Fabric
from fabric.kernels.registry import KERNELS
from fabric.layout.layout import Layout
from fabric.price.code import Meeting
from fabric.price.lines import Bond, follow, price_lines
from fabric.price.prices import TaskPrice
from fabric.program.program import Program
from tests.examples import few
from wse_core.errors import ProgramError, UnsupportedError
from wse_core.params import machine

MACHINES = [
    {},
    {"ramp.in": 4, "router.hop": 2},
    {"preset": "wse3"},
    {"vec.start": 4},
    {"vec.drain": 3},
    {"ce.dsr_load": 5},
    {"ce.fp_latency": 6, "ce.load_latency": 5},
]
GRID = {"width": 9, "height": 3, "n": 40}
EXACT = [
    ("vector", {"n": 500}),
    ("broadcast", {"width": 20, "height": 9, "n": 200}),
    ("chain_reduce", {"pes": 20, "n": 256}),
    ("chain_reduce", {"pes": 60, "n": 20}),
    ("gather", {"width": 9, "n": 40}),
    *(("reduce", {"algorithm": one, "form": "xy", **GRID}) for one in ("chain", "star", "optimal")),
    ("reduce", {"algorithm": "optimal", "form": "snake", **GRID}),
    *(("allreduce", {"algorithm": one, "form": "row", **GRID}) for one in ("chain", "star", "optimal")),
]
"""Priced to the cycle on machines whose routers take a cycle."""
CLOSE = [
    ("gather", {"width": 5, "height": 7, "form": "column", "n": 40}),
    *(("reduce", {"algorithm": "tree", "form": form, **GRID}) for form in ("row", "xy")),
    ("allreduce", {"algorithm": "tree", "form": "xy", **GRID}),
]


def run(kernel, params, numbers):
    """Return the cycles of a kernel's run, those that its layout is priced at, and how wrong its closed form is."""
    numbers = dict(numbers)
    m = machine(numbers.pop("preset", "wse2"), numbers)
    built, build = [], Layout.build

    def noted(layout):
        built.append(layout)
        return build(layout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Layout, "build", noted)
        found = KERNELS[kernel].run(m, **params)
    off = abs(found["expected_cycles"] - found["cycles"]) if "expected_cycles" in found else None
    return found["run_cycles"], max(price_lines(built[-1]).values()), off


@pytest.mark.parametrize("numbers", few(MACHINES, 3), ids=str)
@pytest.mark.parametrize(("kernel", "params"), EXACT, ids=str)
def test_a_run_is_priced_to_the_cycle(kernel, params, numbers):
    cycles, price, _ = run(kernel, params, numbers)
    if "router.hop" in numbers:  # slow routers let the next message close the gap in which a switch moves
        assert price == pytest.approx(cycles, rel=0.02)
    else:
        assert price == cycles


@pytest.mark.parametrize("numbers", few(MACHINES, 3), ids=str)
@pytest.mark.parametrize(("kernel", "params"), CLOSE, ids=str)
def test_other_runs_are_priced_as_well_as_by_closed_forms(kernel, params, numbers):
    cycles, price, off = run(kernel, params, numbers)
    slow = "router.hop" in numbers
    assert price == pytest.approx(cycles, rel=0.02 if slow else 0.0075)
    assert slow or abs(price - cycles) <= max(off, 1)


def test_a_program_that_changes_changes_the_price_of_its_run():
    """Of a line of PEs that pass a vector on, one does something beforehand."""

    def cycles(busy):
        layout = Layout(3, 1)
        for x in range(3):
            p = Program(f"place {x}")
            a = p.array("a", 50, "f32")
            into = p.input_queue(2, x % 2) if x else None
            out = p.output_queue(3, (x + 1) % 2) if x < 2 else None
            with p.task("main"):
                for _ in range(busy if x == 1 else 0):
                    p.nop()
                if x == 0:
                    p.fmovs(p.fabout(out, 50), a)
                elif x == 1:
                    p.fadds(p.fabout(out, 50), p.fabin(into, 50), a)
                else:
                    p.fmovs(a, p.fabin(into, 50))
            layout.place(p, x, 0)
        for x, color in ((0, 1), (1, 0)):
            layout.route(color, (x, 0), rx="R", tx="E")
            layout.route(color, (x + 1, 0), rx="W", tx="R")
        fabric = Fabric(layout)
        fabric.launch("main")
        return fabric.run().cycles, price_lines(layout)

    for busy in (0, 5, 60):
        measured, ends = cycles(busy)
        assert max(ends.values()) == measured
    assert cycles(60)[1][0, 0] > cycles(0)[1][0, 0]  # the sender has no room before its neighbour takes


def task(*meetings, end=10):
    """Return the price of a task with meetings one behind the other, each a cycle after the last."""
    first, found = 5, []
    for takes, sends, wavelets in meetings:
        found.append(Meeting(0, first, wavelets, takes, sends, wavelets))
        first += wavelets + 1
    first_one = found[0]
    return TaskPrice(first_one.first, first_one.length, first + end - first_one.end, tuple(found))


def test_a_ring_that_somebody_begins_comes_round_and_one_that_nobody_begins_is_refused():
    m = machine()
    begins, passes = task(((), (2,), 8), ((2,), (), 8)), task(((2,), (2,), 8))
    count, way = 5, m["ramp.execute"] + m["ramp.out"] + m["ramp.in"] + m["router.hop"]
    links = [Bond((k, 0), (k + 1, 0), 1, 2, 2) for k in range(count - 1)]
    back = Bond((count - 1, 0), (0, 1), 1, 2, 2)
    ends = follow(m, [begins, *[passes] * (count - 1)], [*links, back])
    assert ends[0] == 5 + count * way + 8 + begins.alone - begins.meetings[-1].end
    assert ends[1:] == [5 + k * way + 8 + passes.alone - passes.meetings[0].end for k in range(1, count)]
    closed = [*links, Bond((count - 1, 0), (0, 0), 1, 2, 2)]
    with pytest.raises(ProgramError, match="wait for each other"):
        follow(m, [passes] * count, closed)
    with pytest.raises(ProgramError, match="nobody sends"):
        follow(m, [begins, passes], [])


@pytest.mark.parametrize(
    ("kernel", "params", "piece"),
    [
        ("scatter", {"width": 4, "n": 3}, "a filter"),
        ("allgather", {"width": 3, "n": 3}, "microthreads"),
        ("gemv_chain", {"p": 6, "m": 64, "n": 80}, "control wavelets"),
        ("gemm_t", {"p": 2, "m": 5, "k": 3, "n": 4}, "has tasks besides"),
    ],
)
def test_what_is_not_composed_is_refused_by_name(kernel, params, piece):
    with pytest.raises(UnsupportedError, match=piece):
        run(kernel, params, {})
