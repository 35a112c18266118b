"""R8: spans of tasks in a SUMMA with hand-written multicast, read from a trace of one PE.

*Compute task.*  The last local product of the PE: as many fmacs as the point says (four products of 14 x 14 tiles, all
in one task), with the compiled stream of `harness.validation.programs.summa_library` and its order of arrays.  Span:
from the first instruction to the end, between two stamps.

*Send.*  One tile sent by a microthread, from the issue of the operation to the first instruction of the task that it
activates on completion; nothing else runs.

Source: Wang-oss-tech/csl-experiments (gemm/summa_manual_multicasting_pipelined_doubleColor), the vendor's simulator.
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.kit.session import Session, Stamps
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.validation.programs.compiled import Multiplier
from harness.validation.programs.summa_library import emit_product, loops
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, grid, integer, recipe
from wse_core.params import Machine

__all__ = ["products", "send"]


def products(machine: Machine, t: int, count: int, a: np.ndarray, b: np.ndarray) -> tuple[int, np.ndarray]:
    """Return (cycles, C) of `count` products of the same tiles, summed up; tiles as float32 of shape (t, t)."""
    p = Program("products", machine)
    c_var, a_var, b_var = (p.array(name, t * t, "f32") for name in "cab")
    stamps = Stamps(p)
    multiplier = Multiplier(p, [] if loops(t)[0] else [2 * t])
    with p.task("main"):
        multiplier.begin()
        stamps.store(0)
        a_at, b_at, scratch, rounds = (p.reg16(name) for name in ("a at", "b at", "scratch", "rounds"))
        p.ldi(rounds, count)
        again = p.label()
        p.ldi(a_at, 0)
        p.ldi(b_at, b_var)
        emit_product(p, t, a_at, b_at, c_var, a_var, multiplier, scratch)
        p.sub16(rounds, rounds, 1)
        p.branch("ne", rounds, 0, again, "16")
        p.free(a_at, b_at, scratch, rounds)
        stamps.store(1)
    multiplier.routine()
    layout = Layout(1, 1, machine)
    layout.place(p, 0, 0)
    session = Session(layout, [(k, v.T.reshape(1, 1, -1).copy(), 0, 0) for k, v in (("a", a), ("b", b))])
    first, last = session.stamps()
    return int(last[0, 0] - first[0, 0]), session.read("c").view(np.float32).reshape(t, t).T


def send(machine: Machine, words: int) -> tuple[int, np.ndarray]:
    """Return (cycles, received words) of one asynchronous send to the neighbour."""
    p, q = Program("send", machine), Program("receive", machine)
    data = p.array("data", words, "u32", np.arange(words))
    stamps = Stamps(p)
    leaving = p.fabout(p.output_queue(2, 3), words)
    with p.task("main"):
        to, source = p.dsr("dest"), p.dsr("src1")
        p.load(to, leaving)
        p.load(source, data)
        stamps.store(0)
        p.mov32(to, source, async_=True, activate="sent")
    with p.task("sent"):
        stamps.store(1)
    result = q.array("result", words, "u32")
    with q.task("main"):
        q.mov32(result, q.fabin(q.input_queue(2, 3), words))
    layout = Layout(2, 1, machine)
    layout.place(p, 0, 0)
    layout.place(q, 1, 0)
    layout.route(3, (0, 0), rx="R", tx="E")
    layout.route(3, (1, 0), rx="W", tx="R")
    session = Session(layout, [])
    first, last = session.stamps()
    reading = machine["ce.tsc_read"] + 3  # the stamp before the issue, with its three stores
    return int(last[0, 0] - first[0, 0]) - reading, session.read("result", 1).ravel()


@recipe(
    "R8",
    ("gemm-summa-sim",),
    "spans of tasks of a SUMMA with hand-written multicast",
    ("pe_grid", "tile", "fmacs", "words", "dtype"),
)
def summa_multicast(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the task that the point describes."""
    params = point["params"]
    if "words" in params:
        return Measurement(send(machine, integer(params, "words"))[0], "fabric, two PEs")
    tile = grid(params, "tile", 3)
    if len(set(tile)) != 1:
        raise CannotRun("only square tiles")
    if "fmacs" not in params:
        raise CannotRun("a whole SUMMA with two colors: only spans of its tasks are rebuilt, and no fmacs are stated")
    t, fmacs = tile[0], integer(params, "fmacs")
    if fmacs % t**2:
        raise CannotRun(f"{fmacs} multiply-adds are no whole number of products of {t} x {t} tiles")
    rng = np.random.default_rng(t)
    a, b = rng.standard_normal((2, t, t)).astype(np.float32)
    return Measurement(products(machine, t, fmacs // t**2, a, b)[0], "fabric, one PE")
