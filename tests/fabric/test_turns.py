"""Microthreads in turn: many kinds of steps side by side, queues that run empty and full, against plain Python."""

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

ONLY_TAKES = ("sum", "sum of fabric and memory", "row", "half", "two halves", "pair")
TAKES = (*ONLY_TAKES, "pass")
SENDS = ("send", "send half", "send two halves")
THREADS = st.tuples(
    st.lists(st.sampled_from(TAKES + SENDS), min_size=1, max_size=6), st.lists(st.sampled_from(ONLY_TAKES), max_size=2)
).map(lambda parts: parts[0] + parts[1])
"""Kinds of microthreads 0, 1, ...; those beyond the output queues only take."""
WAITS = st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 3, 9, 30]), min_size=1, max_size=5)
"""Cycles between words of a stream, over and over."""


def begin(p, kind, k, n, level, odd, stride):
    """Begin microthread `k`: it takes color k, and the next one as well if it is a pair, or sends color k + 8.

    Of two halves in a word the last one may be alone (`odd`), and they lie `stride` apart.
    """
    ways = {"async_": True, "priority": level, "ut": k}
    row = p.array(f"row{k}", n, "f32", np.arange(n) / 4 + k)
    packed = kind.endswith("two halves")
    if kind == "sum":
        one = p.mem1d(p.array(f"one{k}", 1, "f32", [k]), n, stride=0)
        p.fadds(one, one, p.fabin(k, n), **ways)
    elif kind == "sum of fabric and memory":
        p.fadds(row, p.fabin(k, n), row, **ways)
    elif kind == "row":
        p.fmovs(row, p.fabin(k, n), **ways)
    elif kind == "pass":
        p.fadds(p.fabout(k + 8, n), row, p.fabin(k, n), **ways)
    elif kind == "pair":
        p.fadds(row, p.fabin(k, n), p.fabin((k + 1) % 8, n), **ways)
    elif kind == "send":
        p.fmovs(p.fabout(k + 8, n), row, **ways)
    else:
        n = 2 * n - odd if packed else n
        places = p.array(f"halves{k}", 2 * n, "u16", np.arange(2 * n) + k)
        halves = p.mem1d(places, n, stride=stride, offset=n - 1 if stride < 0 else 0)
        port = (p.fabin if kind in TAKES else p.fabout)(k if kind in TAKES else k + 8, n, packed, dtype="u16")
        p.mov16(*((halves, port) if kind in TAKES else (port, halves)), **ways)


def one_pe(kinds, n, levels, main, work, odd, stride):
    """Return the `FabricSpec` of a PE with a microthread per kind and `work` operations of the main thread beside them.

    The second input of a pair may be the queue of another microthread: they take turns at it.
    """
    m = machine("wse2")
    p = Program("turns", m, main_priority=main)
    mine = p.array("mine", 16, "f32", np.arange(16))
    taken = sorted(
        {k for k, kind in enumerate(kinds) if kind in TAKES}
        | {(k + 1) % 8 for k, kind in enumerate(kinds) if kind == "pair"}
    )
    sent = [k + 8 for k, kind in enumerate(kinds) if kind in (*SENDS, "pass")]
    layout = Layout(1, 1, m)
    for color in taken:
        p.input_queue(color, color)
    for color in sent:
        p.output_queue(color - 8, color)
    with p.task("main"):
        for k, kind in enumerate(kinds):
            begin(p, kind, k, n, levels[k % len(levels)], odd, stride)
        for _ in range(work):
            p.fadds(mine, mine, mine)
    p.start("main")
    layout.place(p, 0, 0)
    for color in taken:
        side = "WNES"[color % 4]
        layout.route(color, (0, 0), rx=side, tx="R")
        layout.input_stream(0, 0, side, color)
    for color in sent:
        side = "SWNE"[color % 3]  # colors that share a link
        layout.route(color, (0, 0), rx="R", tx=side)
        layout.output_stream(0, 0, side, color)
    return layout.build()


@examples(150)
@given(
    kinds=THREADS,
    n=st.sampled_from([3, 7, 20]),
    levels=st.lists(st.sampled_from(["low", "medium", "high"]), min_size=1, max_size=2),
    main=st.sampled_from(["medium_low", "medium", "high"]),
    work=st.integers(0, 6),
    waits=st.lists(WAITS, min_size=8, max_size=8),
    taken=st.lists(WAITS, min_size=8, max_size=8),
    command=st.integers(-40, 19),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    odd=st.booleans(),
    stride=st.sampled_from([1, 1, 2, -1]),
)
def test_any_microthreads_in_turn_are_those_of_the_reference(
    kinds, n, levels, main, work, waits, taken, command, sizes, odd, stride
):
    """Words come in any cycles and leave in any, a command among them perhaps, and the run is cut anywhere."""
    spec = one_pe(kinds, n, levels, main, work, odd, stride)

    def cycles(wait, count):
        return np.cumsum(np.resize(wait, count)).tolist()

    sent = []
    for index in range(len(spec.inputs)):
        words, commands = np.arange(n, dtype=np.uint32) * 0x01010101 + index, np.zeros(n, bool)
        if index == 0 and 0 <= command < n:
            words[command], commands[command] = control.single("nop", 9), True
        sent.append((index, words, commands, cycles(waits[index], n)))
    places = tuple((index, cycles(taken[index], n)) for index in range(len(spec.outputs)))

    def cuts():
        while True:
            yield from sizes

    status = compare(Case(spec, sent, cuts(), places=places), limit=2000)
    if "pair" not in kinds and not 0 <= command < n:  # nothing is short of words
        assert status == "complete"
