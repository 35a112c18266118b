"""The workloads of streamed training: weights go down columns of PEs, gradients are added up on their way down."""

from __future__ import annotations

import numpy as np

from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.bench.workload import Workload, floats, large_machine

__all__ = ["gradients", "weights"]


def weights(width, height, n, tokens=16):
    """The host streams n words into each column; each starts a task in every PE: a multiply-add and a sum."""
    m = large_machine(width, height)
    p = Program("weights", m)
    x, sums = p.array("x", tokens, "f16", np.ones(tokens), bank=1), p.array("sums", tokens, "f32", bank=0)
    wide = p.array("wide", tokens, "f32", bank=2)
    p.input_queue(0, 4)
    total, row = p.dsr("src0"), p.dsr("src1")
    with p.task("prepare"):
        p.load(total, sums)
        p.load(row, x)
    p.start("prepare")
    with p.task("weight", kind="data", color=4) as t:
        p.dsr_off(row, 0)
        p.fmachs(total, total, row, t.data)
        number = p.reg32("sum over the tokens")
        p.mov32(number, 0)
        p.fh2s(wide, row)
        p.fadds(number, wide, number)
    layout = Layout(width, height, m)
    layout.place(p, 0, 0, width, height)
    layout.route(4, (0, 0, width, height), rx="N", tx="SR")
    layout.route(4, (0, height - 1, width, 1), rx="N", tx="R")
    for column in range(width):
        layout.input_stream(column, 0, "N", 4)
    spec = layout.build()
    symbol = spec.programs[0].symbols["sums"]

    def start(engine):
        for column in range(width):
            engine.push_input(column, np.full(n, 0x4000, np.uint32))  # two

    def check(engine):
        assert (floats(engine, symbol, 0, 0, width, height) == 2 * n).all()

    # A word waits for the one before. Its sum takes a cycle per token, the rest up to one each, and what is around.
    word, most = m["task.start"] + tokens, n * (m["task.start"] + 3 * tokens + 20) + 3 * height + 50
    return Workload(
        f"weights {width}x{height}",
        spec,
        start,
        check,
        {"tasks": width * height * (n + 1), "hops": width * height * n},
        (n * word, most),
        active=width * height,
        params={"width": width, "height": height, "n": n, "tokens": tokens},
    )


def gradients(width, height, n, tokens=32):
    """One word asks each PE of a column for n gradients: dot products in SRAM, added to what comes from the north."""
    m = large_machine(width, height)
    programs = []
    for row in ("top", *range(1, height)):
        p = Program(f"gradients, row {row}", m)
        x, ones = p.array("x", tokens, "f16", np.ones(tokens), bank=1), p.array("ones", tokens, "f32", np.ones(tokens))
        wide = p.array("wide", tokens, "f32", bank=2)
        p.input_queue(0, 4)
        out = p.output_queue(4, 5 + (row % 2 if row != "top" else 0))
        own, other, factor, to, on = p.dsr("src1"), p.dsr("src1"), p.dsr("src0"), p.dsr("dest"), p.dsr("dest")
        north = None if row == "top" else p.dsr("src0")
        with p.task("prepare"):
            p.load(own, x)
            p.load(other, ones)
            p.load(factor, wide)
            p.load(to, wide)
            p.load(on, p.fabout(out, 1, dtype="f32"))
            if north is not None:
                p.load(north, p.fabin(p.input_queue(3, 6 - row % 2), 1, dtype="f32"))
        p.start("prepare")
        with p.task("row", kind="data", color=4) as t:
            left, total = p.reg16("left"), p.reg32("sum")
            p.mov16(left, t.data)
            turn = p.label()
            p.mov32(total, 0)
            p.fh2s(to, own)
            p.fmuls(factor, factor, other)
            p.fadds(total, factor, total)
            if north is None:
                p.mov32(on, total)
            else:
                p.fadds(on, north, total)
            p.sub16(left, left, 1)
            p.br16("ne", left, 0, turn)
        programs.append(p)
    layout = Layout(width, height, m)
    for y in range(height):
        layout.place(programs[y], 0, y, width, 1)
        layout.route(5 + y % 2, (0, y, width, 1), rx="R", tx="S")
        if y:
            layout.route(6 - y % 2, (0, y, width, 1), rx="N", tx="R")
    layout.route(4, (0, 0, width, height), rx="N", tx="SR")
    layout.route(4, (0, height - 1, width, 1), rx="N", tx="R")
    for column in range(width):
        layout.input_stream(column, 0, "N", 4)
        layout.output_stream(column, height - 1, "S", 5 + (height - 1) % 2)
    spec = layout.build()

    def start(engine):
        for column in range(width):
            engine.push_input(column, np.full(1, n, np.uint32))

    def check(engine):
        for column in range(width):
            _, came, _ = engine.pop_output(column)
            assert (np.asarray(came, np.uint32).view(np.float32) == tokens * height).all()
            assert len(came) == n

    each = 2 * tokens, 4 * tokens + 40  # cycles of an answer
    return Workload(
        f"gradients {width}x{height}",
        spec,
        start,
        check,
        {"sent": width * height * n, "hops": width * (height * n + (height - 1) * n + height)},
        (n * each[0], n * each[1] + 30 * height),
        active=width * height,
        params={"width": width, "height": height, "n": n, "tokens": tokens},
    )
