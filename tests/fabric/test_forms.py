"""Forms of vector operations are kept once for all PEs; what they have in common and what they have not."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.bench import measure
from tests.fabric.one_program import single
from wse_core.errors import MemoryLimitError


def strided(first, second, length=1):
    """Return a program that adds under all pairs of strides below these numbers."""

    def write(p):
        a = p.array("a", 64, "f32", np.arange(64))
        out = p.array("out", 64, "f32")
        with p.task("main"):
            to, left, right = (p.dsr(file) for file in ("dest", "src0", "src1"))
            p.load(to, p.mem1d(out, length))
            p.load(left, p.mem1d(a, length))
            p.load(right, p.mem1d(a, length))
            with p.loop(first, index=True) as i:
                p.dsr_stride(left, i)
                with p.loop(second, index=True) as j:
                    p.dsr_stride(right, j)
                    p.fadds(to, left, right)

    return write


def test_an_operation_may_have_many_forms():
    fabric = single(strided(7, 9, length=5))
    fabric.run(1_000_000)
    assert fabric.read("out", 0, 0).ravel()[:5].tolist() == [(6 + 8) * k for k in range(5)]


def test_more_forms_than_are_kept_are_refused():
    fabric = single(strided(520, 520))
    with pytest.raises(MemoryLimitError, match="more combinations of strides"):
        fabric.run(100_000_000)


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_operations_of_one_form_have_places_and_values_of_their_own(backend):
    """The same instruction on PEs with other bases, multipliers and lengths, all under way at once."""
    layout = Layout(4, 1)
    p = Program("p")
    where = p.array("where", 1, "u16")
    data = p.array("data", 32, "f32")
    with p.task("main"):
        at, d = p.reg16("at"), p.dsr("src0")
        p.ld16(at, where)
        p.load(d, p.mem1d(data, 8))
        p.dsr_off(d, at)
        p.dsr_len(d, at)
        p.fadds(d, d, 1.0)
    layout.place(p, 0, 0, 4, 1)
    fabric = Fabric(layout, backend)
    for x in range(4):
        fabric.write("where", [2 * x + 2], x, 0)
    fabric.launch("main")
    fabric.run(10_000)
    for x in range(4):
        want = np.zeros(32)
        want[x + 1 : 3 * x + 3] = 1
        assert fabric.read("data", x, 0).ravel().tolist() == want.tolist()


def walks(layout, op):
    """Place a program that does an operation on walks in three dimensions, from where each PE is told to begin."""
    p = Program("p")
    data = p.array("data", 96, "f32", np.linspace(-3, 5, 96))
    other = p.array("other", 96, "f32", np.linspace(2, 1, 96))
    where, long = p.array("where", 1, "u16"), p.array("long", 1, "u16")
    with p.task("main"):
        begin, rows = p.reg16("begin"), p.reg16("rows")
        p.ld16(begin, where)
        p.ld16(rows, long)
        to, left, right = (p.dsr(file) for file in ("dest", "src0", "src1"))
        with p.loop(2):
            p.load(to, p.mem4d(data, (2, 2, 3), (24, 7, 2)))
            p.load(left, p.mem4d(data, (2, 3, 2), (9, 3, 1)))
            p.load(right, p.mem1d(other, 12))
            p.dsr_off(to, begin)
            p.dsr_off(left, begin)
            p.dsr_len(to, rows)
            p.dsr_len(left, rows)
            getattr(p, op)(to, left, right)
            getattr(p, op)(to, left, 1.5)
    layout.place(p, 0, 0, 4, 1)


@pytest.mark.parametrize("op", ["fadds", "fmaxs", "fmins", "fmuls", "fsubs"])
def test_walks_in_several_dimensions_begin_where_each_pe_has_them(op):
    """Both machines: values, cycles and counters."""
    seen = []
    for backend in ("compiled", "reference"):
        layout = Layout(4, 1)
        walks(layout, op)
        fabric = Fabric(layout, backend)
        for x, told in enumerate([(0, 1), (2, 2), (40, 2), (12, 1)]):
            for name, value in zip(("where", "long"), told, strict=True):
                fabric.write(name, [value], x, 0)
        fabric.launch("main")
        fabric.run(10_000)
        counters = fabric.all_counters()
        counts = {name: values.tolist() for name, (values, _) in counters.items()}
        seen.append((fabric.cycle, fabric.read("data", 0, 0, 4, 1).tobytes(), counts))
    assert seen[0] == seen[1]


@pytest.mark.slow
def test_eight_microthreads_take_little_memory():
    """A microthread takes 48 bytes of its PE; 128 when each had a form of its own, and then this was 2,611 bytes."""
    assert measure.resident("exchange", 128, 128)["engine"] < 2_400
