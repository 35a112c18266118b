"""Streams between fabric and rows in memory, of the main thread, against plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import control
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.compare import Case, compare
from tests.examples import examples
from wse_core.params import machine

KINDS = ("sum", "fabric first", "row", "pass", "send", "zero", "half", "in one")
WAITS = st.lists(st.sampled_from([0, 0, 0, 1, 2, 9, 30]), min_size=1, max_size=4)
"""Cycles between words of a stream, or between places for words that leave, over and over."""
ROWS = st.tuples(st.integers(1, 4), st.integers(1, 5), st.sampled_from([0, 1, 2, 5, 7, -6]), st.sampled_from([1, 1, 2]))
"""Rows, elements of each, elements from row to row and from element to element."""


def emit(p, kind, k, rows):
    """Write an operation of a kind: sums or copies of color 0, or words for color 1."""
    count, n, apart, step = rows
    dtype = "u16" if kind == "half" else "f32"
    offset = max(0, -apart) * count
    size = offset + max(apart, 0) * count + 2 * n
    place = p.array(f"place{k}", size, dtype, np.arange(size) % 13)
    walk = p.mem4d(place, (count, n), (apart, step), offset=offset)
    line = p.array(f"line{k}", count * n, dtype, np.arange(count * n))
    taken = p.fabin(0, count * n, packed=False, dtype=dtype)
    if kind == "sum":
        p.fadds(walk, walk, taken)
    elif kind == "fabric first":
        p.fsubs(walk, taken, walk)
    elif kind == "row":
        p.fmovs(walk, taken)
    elif kind == "pass":
        p.fadds(p.fabout(1, count * n), walk, taken)
    elif kind in ("send", "zero"):
        p.fmovs(p.fabout(1, count * n, zero=kind == "zero"), walk)
    elif kind == "half":
        p.mov16(walk, taken)
    else:
        p.fadds(line, walk, taken)


def one_pe(operations):
    """Return the `FabricSpec` of a PE with operations (kind, rows) one after the other, and how many words it takes."""
    m = machine("wse2")
    p = Program("rows", m)
    p.input_queue(0, 0)
    p.output_queue(1, 1)
    with p.task("main"):
        for k, (kind, rows) in enumerate(operations):
            emit(p, kind, k, rows)
    p.start("main")
    layout = Layout(1, 1, m)
    layout.place(p, 0, 0)
    layout.route(0, (0, 0), rx="W", tx="R")
    layout.route(1, (0, 0), rx="R", tx="E")
    layout.input_stream(0, 0, "W", 0)
    layout.output_stream(0, 0, "E", 1)
    return layout.build(), sum(rows[0] * rows[1] for kind, rows in operations if kind not in ("send", "zero"))


@examples(120)
@given(
    operations=st.lists(st.tuples(st.sampled_from(KINDS), ROWS), min_size=1, max_size=4),
    waits=WAITS,
    places=WAITS,
    command=st.integers(-40, 30),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
)
def test_streams_of_rows_are_those_of_the_reference(operations, waits, places, command, sizes):
    """Rows lie on each other, apart or backwards; a command may be among the words, and the run is cut anywhere."""
    spec, n = one_pe(operations)
    sent = []
    if n:
        words, commands = np.arange(n, dtype=np.uint32) * 0x01010101, np.zeros(n, bool)
        if 0 <= command < n:
            words[command], commands[command] = control.single("nop", 9), True
        sent = [(0, words, commands, np.cumsum(np.resize(waits, n)).tolist())]
    leaves = ((0, np.cumsum(np.resize(places, 200)).tolist()),)

    def cuts():
        while True:
            yield from sizes

    status = compare(Case(spec, sent, cuts(), places=leaves), limit=4000)
    if not 0 <= command < n:
        assert status == "complete"
