"""Random machines whose streams wait for each other: sums along lines, of which some follow a switch.

Rows, then perhaps the first column, add up vectors by a tree in which messages pass routers that have first to be
switched by the control wavelet behind another message (`fabric.kernels.collectives.pieces.trees`); perhaps the sum is
then sent to all.  Columns of PEs begin late, so that words are held up in all sorts of places.
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.collectives.pieces import trees
from fabric.kernels.collectives.pieces.flood import flood_rectangle
from fabric.kernels.collectives.pieces.line_reduce import Reduce
from fabric.kernels.collectives.pieces.lines import Areas, Line, compose
from fabric.kernels.collectives.pieces.sums import color_pool
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.random_machines import random_machine
from wse_core.params import machine

__all__ = ["random_reduces"]


def _tree(rng, p):
    if rng.chance(0.75):
        return trees.two_phase(p, rng.randint(1, p))
    return trees.binary(p) if p <= 16 and rng.chance(0.7) else trees.chain(p)


def _pieces(rng, numbers, width, height, n):
    lines = [Line.rows(width, height)]
    if height > 1 and rng.chance(0.5):
        lines.append(Line.columns(1, height))
    pieces, pool = [], list(color_pool(numbers))
    for k, line in enumerate(lines):
        tree = _tree(rng, len(line))
        colors = tuple(pool[: tree.colors])
        del pool[: tree.colors]
        pieces.append(Reduce(line, tree, colors, n, "f32", "f32", rng.choice((2, 3)) if k == 0 else 4))
    return pieces, pool[0]


def random_reduces(rng, width=14, height=4):
    """Return the `FabricSpec` of a random machine that adds up vectors along lines, `width` x `height` PEs at most."""
    numbers = random_machine(rng) if rng.chance(0.4) else machine("wse2")
    width, height, n = rng.randint(3, width), rng.randint(1, height), rng.choice((2, 20, 40, 64, 90))
    if not numbers["queue.out_depth"][4] or not numbers["queue.out_depth"][3]:
        numbers = machine("wse2")
    pieces, color = _pieces(rng, numbers, width, height, n)
    flooded = rng.chance(0.6)
    late = [rng.choice((0, 0, 0, 1, 7, 40)) if rng.chance(0.3) else 0 for _ in range(width)]

    def build(roles):
        p = Program(f"reduce {roles}", numbers)
        x = p.array("x", n, "f32", np.array([rng.choice((0.5, 1.0, -2.5, 0.125)) for _ in range(n)]))
        *own, wait, part = roles
        with p.task("main"):
            if wait:
                count = p.reg16()
                p.ldi(count, 0)
                for _ in range(wait):
                    p.add16(count, count, 1)
            for piece, role in zip(pieces, own, strict=True):
                if role is not None:
                    piece.emit(p, role, x, x)
            if part == "sends":
                p.mov32(p.fabout(p.output_queue(5, color), n), x)
            elif part == "takes":
                p.mov32(x, p.fabin(p.input_queue(5, color), n))
        p.start("main")
        return p

    layout = Layout(width, height, numbers)
    parts = [(piece.line, piece.roles()) for piece in pieces]
    parts.append((Areas([(x, 0, 1, height) for x in range(width)]), late))
    everybody = Areas([(0, 0, width, height), (0, 0, 1, 1)])
    parts.append((everybody, ["takes", "sends"] if flooded else ["none", "none"]))
    compose(layout, parts, build)
    for piece in pieces:
        piece.routes(layout)
    if flooded:
        flood_rectangle(layout, color, width, height)
    return layout.build()
