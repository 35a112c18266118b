"""Checks of memory find races, accesses outside of an array and reads of words without a value, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.host import engines
from fabric.host.checks import FINDING_DTYPE
from fabric.host.fabric import Fabric
from fabric.kernels.registry import KERNELS
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.cli.cmd_kernel import run_kernel
from tests.fabric.kernels.test_registry import SMALL
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import machine

N = 40


def streams(body):
    """Return a `Fabric` of a PE that sends to itself; `body` writes its task with program, arrays and fabric ends."""
    p = Program("one")
    into, out = p.input_queue(2, 4), p.output_queue(3, 4)
    x, y, z = p.array("x", N, "f32", np.arange(N)), p.array("y", N, "f32"), p.array("z", 4, "f32")
    ends = p.fabin(into, N, dtype="f32"), p.fabout(out, N, dtype="f32")
    body(p, x, y, z, *ends)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    layout.route(4, (0, 0, 1, 1), rx="R", tx="R")
    return Fabric(layout)


def found(fabric, **options):
    checks = fabric.check(**options)
    assert fabric.run().status == "complete"
    assert len(checks.report().splitlines()) == len(checks.found)
    return checks.found


def receives(p, x, y, z, into, out, after):
    with p.task("main"):
        p.fmovs(out, x, async_=True, priority="low")
        p.fmovs(y, into, async_=True, priority="low", activate="done")
        after("main")
    with p.task("done"):
        after("done")
    p.start("main")


def by_vector(p, target, source):
    """Move with DSRs that no microthread uses."""
    a, b = p.dsr("dest"), p.dsr("src1")
    p.load(a, target)
    p.load(b, source)
    p.fmovs(a, b)


CASES = {
    "main reads what comes": (lambda p, x, y, z: p.ld32(p.reg32("v"), y[N - 1]), "y", False),
    "main writes what comes": (lambda p, x, y, z: p.st32(p.reg32("v"), y[N - 1]), "y", True),
    "half of a number": (lambda p, x, y, z: p.ld32(p.reg32("v"), y[N // 2]), "y", False),
    "an operation reads what comes": (lambda p, x, y, z: by_vector(p, z, p.mem1d(y, 4, offset=N - 4)), "y", False),
    "an operation writes what comes": (lambda p, x, y, z: by_vector(p, p.mem1d(y, 4, offset=N - 4), z), "y", True),
    "main writes what is sent": (lambda p, x, y, z: p.st32(p.reg32("v"), x[N - 1]), "x", True),
    "main reads what is sent": (lambda p, x, y, z: p.ld32(p.reg32("v"), x[N - 1]), None, False),
    "another array": (lambda p, x, y, z: by_vector(p, z, z), None, False),
}


@pytest.mark.parametrize("place", ["main", "done"])
@pytest.mark.parametrize("case", CASES)
def test_a_race_is_found_where_nothing_orders_two_threads(place, case):
    what, variable, writes = CASES[case]

    def body(p, x, y, z, into, out):
        receives(p, x, y, z, into, out, lambda name: what(p, x, y, z) if name == place else p.nop())

    seen = found(streams(body))
    if place == "done" or variable is None:
        assert seen == []
        return
    assert {(f.kind, f.variable.partition("[")[0]) for f in seen} == {("race", variable)}
    first = seen[0]
    assert {first.thread, first.other_thread} == {"main", "ut2" if variable == "y" else "ut3"}
    assert (first.writes if first.thread == "main" else first.other_writes) == writes
    assert "test_checks.py" in first.where + first.other_where
    assert first.other_cycle <= first.cycle


def test_a_buffer_that_is_overwritten_while_it_is_sent():
    def body(p, x, y, z, into, out):
        with p.task("main"):
            p.fmovs(y, into, async_=True, priority="low")
            p.fmovs(out, x, async_=True, priority="low")
            by_vector(p, p.mem1d(x, 4, offset=N - 4), z)
        p.start("main")

    (race,) = found(streams(body))
    assert race.kind == "race"
    assert race.variable == "x[36]"
    assert "microthread 3" in str(race)
    assert race.count == 4


def test_two_microthreads_of_which_one_writes():
    def body(p, x, y, z, into, out):
        with p.task("main"):
            p.fmovs(out, x, async_=True)
            p.fmovs(x, into, async_=True)
        p.start("main")

    seen = found(streams(body))
    assert seen
    assert {f.thread for f in seen} | {f.other_thread for f in seen} == {"ut2", "ut3"}


@pytest.mark.parametrize(("extent", "offset", "outside"), [(4, 0, False), (5, 0, True), (2, 3, True), (1, 3, False)])
@pytest.mark.parametrize("reads", [True, False])
def test_elements_outside_of_the_array_where_an_operand_begins(extent, offset, outside, reads):
    def body(p, x, y, z, into, out):
        after = p.array("after", 4, "f32")
        with p.task("main"):
            part = p.mem1d(z, extent, offset=offset, check=False)
            p.fmovs(*((y, part) if reads else (part, p.mem1d(y, extent))))
            p.fmovs(after, z)
        p.start("main")

    seen = found(streams(body))
    assert [f.kind for f in seen] == (["outside"] if outside else [])
    if outside:
        assert seen[0].array == "z"
        assert seen[0].writes != reads
        assert not seen[0].variable.startswith("z")
        assert "outside of z" in str(seen[0])


def test_reads_of_words_without_a_value():
    def body(p, x, y, z, into, out):
        with p.task("main"):
            p.fmovs(p.mem1d(y, 8), p.mem1d(x, 8))
            p.fmovs(z, p.mem1d(y, 4, offset=6))
        p.start("main")

    assert found(streams(body)) == []
    (unset,) = found(streams(body), zeros=False)
    assert (unset.kind, unset.variable, unset.count) == ("unset", "y[8]", 2)
    fabric = streams(body)
    checks = fabric.check(zeros=False)
    fabric.write("y", np.zeros(N, np.float32))
    fabric.run()
    assert checks.found == []


def test_checks_change_no_cycle_and_no_bit():
    def body(p, x, y, z, into, out):
        receives(
            p, x, y, z, into, out, lambda name: p.fmuls(x, y, y) if name == "main" else p.fmacs(y, y, x, p.reg32())
        )

    plain, checked = streams(body), streams(body)
    checked.check()
    plain.run()
    checked.run()
    assert plain.cycle == checked.cycle
    assert np.array_equal(plain.read("x").view(np.uint32), checked.read("x").view(np.uint32))
    assert plain.engine.totals() == checked.engine.totals()


def test_checks_begin_before_a_run_and_once():
    def body(p, x, y, z, into, out):
        with p.task("main"):
            p.fmovs(x, y)
        p.start("main")

    fabric = streams(body)
    fabric.check()
    with pytest.raises(ConfigError, match="once"):
        fabric.check()
    fabric = streams(body)
    fabric.run()
    with pytest.raises(ConfigError, match="beginning"):
        fabric.check()
    layout = Layout(1, 1)
    with pytest.raises(UnsupportedError, match="checks no memory"):
        Fabric(layout, backend="reference").check()


def test_a_finding_has_the_size_that_the_engine_writes():
    def body(p, x, y, z, into, out):
        with p.task("main"):
            p.fmovs(p.mem1d(y, 5, offset=N - 4, check=False), p.mem1d(x, 5))
        p.start("main")

    fabric = streams(body)
    fabric.check()
    fabric.run()
    assert len(fabric.engine.findings()) == FINDING_DTYPE.itemsize


@pytest.mark.parametrize("name", SMALL)
def test_kernels_have_no_findings(name):
    made = []
    with engines.around(on_build=lambda fabric: made.append(fabric.check())):
        run_kernel(KERNELS[name], machine(), SMALL[name])
    assert made
    assert [str(finding) for checks in made for finding in checks.found] == []
