"""Warnings are given for routes that carry nothing: a color that no PE routes from or to its ramp, a way that ends at a
PE.

Both are warnings, and of operations only those that a program surely comes to count: public programs keep code for PEs
and rectangles that they are not compiled for (residual on one row of PEs).  A way inside of the rectangle that no
switch position of the next PE takes does no harm as long as nothing is sent that way, as on the unused half of a color
that is swapped.  Of such ways only those are named where what some ramp sends may come.  A program that changes routes
while it runs, and the colors of the host's streams, are left alone; so is a way that leaves the rectangle, where the
host's frame takes what comes.
"""

from __future__ import annotations

import numpy as np

from fabric.csl.compile import Compiled
from fabric.csl.diagnostics import Span
from wse_core import image as im

__all__ = ["check_reach"]

RAMP = 1 << im.DIR_R
NAMES = {"W": "WEST", "E": "EAST", "N": "NORTH", "S": "SOUTH"}
KINDS = {"fabout": ("sent", "rx", "from"), "fabin": ("received", "tx", "to")}


def check_reach(made: Compiled, routes: dict[int, np.ndarray], streams: set[int]) -> None:
    """Report operations and routes that cannot work.

    Parameters
    ----------
    made : Compiled
    routes : dict
        Per color what every PE does with it, the ways of the host's streams included.
    streams : set of int
        Colors of the host's streams.
    """
    layout = made.checked.layout
    if layout is None or _changes_routes(made):
        return
    report = made.checked.report
    sides = {color: {name: _sides(table, name) for name in ("rx", "tx")} for color, table in routes.items()}
    for (kind, color), span in _used(made).items():
        verb, side, word = KINDS[kind]
        if color in streams or (color in sides and (sides[color][side] & RAMP).any()):
            continue
        what = f"color {color} is {verb} here, but no PE has a route {word} its ramp"
        report.warn(what, span, f"@set_color_config, with RAMP in {side}")
    for color, grid in layout.routes.items():
        if color in streams:
            continue
        found = _dead_end(sides[color]["rx"], sides[color]["tx"], grid >= 0)
        if found is not None:
            x, y, direction = found
            place = layout.places.get((color, int(grid[y, x])), layout.span)
            assert place is not None
            dx, dy = im.STEP[direction]
            toward, back = (NAMES[im.DIRS[d]] for d in (direction, direction ^ 1))
            what = (
                f"color {color} leaves PE ({x}, {y}) to {toward}, but PE ({x + dx}, {y + dy}) takes it not from {back}"
            )
            hint = "what is sent that way stands still; is the route of that PE missing?"
            report.warn(what, place, hint)


def _changes_routes(made: Compiled) -> bool:
    """Whether a program writes routes while it runs."""
    return any(program.lowering.by_address for program in made.programs) or any(
        instr.op == "route"
        for program in made.programs
        for function in program.lowering.made.functions
        for instr in function.instructions()
    )


def _used(made: Compiled) -> dict[tuple[str, int], Span]:
    """Return where each color is first surely sent or received, by kind of descriptor and color."""
    found: dict[tuple[str, int], Span] = {}
    for program in made.programs:
        sure = program.lowering.certain
        for function in program.lowering.made.functions:
            for instr in function.instructions():
                if instr.op == "dsr_load" and instr.data[1].kind in KINDS and instr.data[1].color is not None:
                    span = instr.span or function.span
                    if (span.source.name, span.start) in sure:
                        found.setdefault((instr.data[1].kind, instr.data[1].color), span)
    return found


def _sides(table: np.ndarray, name: str) -> np.ndarray:
    """Return per PE the union of the directions of all positions that are configured."""
    positions = table["valid"][..., None] >> np.arange(table[name].shape[-1]) & 1
    return np.bitwise_or.reduce(np.where(positions > 0, table[name], 0), axis=-1)


def _dead_end(rx: np.ndarray, tx: np.ndarray, own: np.ndarray) -> tuple[int, int, int] | None:
    """Return x, y and the side of a PE that sends a color to a neighbour that never takes it from there.

    Only ends where something comes count: from PEs whose ramp is an input, over all positions of their switches.
    """
    ends: list[tuple[int, int, int]] = []
    for side, (dx, dy) in enumerate(im.STEP):
        sends = ((tx >> side & 1) > 0) & own
        takes = (rx >> (side ^ 1) & 1) > 0
        height, width = sends.shape
        ys = slice(max(0, -dy), height - max(0, dy))
        xs = slice(max(0, -dx), width - max(0, dx))
        there = takes[max(0, dy) : height + min(0, dy), max(0, dx) : width + min(0, dx)]
        ends += [(int(x) + xs.start, int(y) + ys.start, side) for y, x in np.argwhere(sends[ys, xs] & ~there)]
    if not ends:
        return None
    reached = _reached(rx, tx)
    return next((end for end in ends if reached[end[1], end[0]]), None)


def _reached(rx: np.ndarray, tx: np.ndarray) -> np.ndarray:
    """Return the PEs that something comes to which a ramp sent."""
    reached = (rx & RAMP) > 0
    height, width = reached.shape
    ys, xs = np.nonzero(reached)
    while len(ys):
        rows, columns = [], []
        for side, (dx, dy) in enumerate(im.STEP):
            goes = (tx[ys, xs] >> side & 1) > 0
            to_y, to_x = ys[goes] + dy, xs[goes] + dx
            inside = (to_y >= 0) & (to_y < height) & (to_x >= 0) & (to_x < width)
            to_y, to_x = to_y[inside], to_x[inside]
            new = ((rx[to_y, to_x] >> (side ^ 1) & 1) > 0) & ~reached[to_y, to_x]
            rows.append(to_y[new])
            columns.append(to_x[new])
            reached[to_y[new], to_x[new]] = True
        ys, xs = np.concatenate(rows), np.concatenate(columns)
    return reached
