"""The workload of streamed training: words go down columns of PEs, and each starts a task that computes in SRAM."""

from __future__ import annotations

import numpy as np

from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.bench.workload import Workload, floats, large_machine

__all__ = ["weights"]


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
