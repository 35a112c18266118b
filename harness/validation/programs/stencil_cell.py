"""R4: a star stencil with one cell per PE, fp32; cycles per iteration.

*What moves.*  Per iteration a PE sends its value times w1 to its four neighbours with one operation, which the routers
multicast, and adds what comes from them.  The outer ring of PEs only sends constants and swallows what it gets.

*Colors and queues.*  PE (x, y) sends on color (x + 2 y) mod 5, so that the four neighbours of a PE have four colors,
none of them its own.  Output queue 0; input queues 0..3, for west, east, north, south.

*Order of additions.*  out = w1 a; a = w0 a; s = west + east; t = north + south, each of two fabric inputs; s = s + t;
a = a + s.  Six operations of one element with all DSRs loaded before, no tasks, iterations one after the other in the
code.

*Time.*  The difference of runs of four and two iterations, halved, on PE (1, 1), between a reading before the first
and after the last iteration.

Source: Jorineg/cerebras (non-tiled stencil).
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.kit.session import Session, Stamps
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, grid, integer, recipe
from wse_core.errors import ConfigError, LayoutError
from wse_core.params import Machine

__all__ = ["WEIGHTS", "expected", "iterate", "stencil_cell"]

WEIGHTS = (0.5, 0.125)
STEP = {"W": (-1, 0), "E": (1, 0), "N": (0, -1), "S": (0, 1)}
OPPOSITE = dict(zip("WENS", "EWSN", strict=True))


def _color(x: int, y: int) -> int:
    return (x + 2 * y) % 5


def _cell_program(machine: Machine, x: int, y: int, iterations: int) -> Program:
    p = Program(f"cell, color {_color(x, y)}", machine)
    a, s, t = p.array("a", 1, "f32", align=8), p.array("s", 1, "f32"), p.array("t", 1, "f32")
    stamps = Stamps(p)
    own, factor = p.reg32("w0"), p.reg32("w1")
    with p.task("main"):
        p.ldi32(own, WEIGHTS[0])
        p.ldi32(factor, WEIGHTS[1])
        value, s_in, s_out, s_last = (p.dsr(file) for file in ("src0", "src0", "dest", "src1"))
        t_in, t_out, out = (p.dsr(file) for file in ("src1", "dest", "dest"))
        arriving = {}
        for k, d in enumerate("WENS"):
            arriving[d] = p.dsr("src0" if d in "WN" else "src1")
            dx, dy = STEP[d]
            p.load(arriving[d], p.fabin(p.input_queue(k, _color(x + dx, y + dy)), 1))
        p.load(out, p.fabout(p.output_queue(0, _color(x, y)), 1))
        for dsr, var in ((value, a), (s_in, s), (s_out, s), (s_last, s), (t_in, t), (t_out, t)):
            p.load(dsr, var)
        stamps.store(0)
        for _ in range(iterations):
            p.fmuls(out, value, factor)
            p.fmuls(value, value, own)
            p.fadds(s_out, arriving["W"], arriving["E"])
            p.fadds(t_out, arriving["N"], arriving["S"])
            p.fadds(s_in, s_in, t_in)
            p.fadds(value, value, s_last)
        stamps.store(1)
    p.assemble()
    return p


def _ring_program(machine: Machine, here: int, there: int, iterations: int) -> Program:
    """Return the program of a PE of the outer ring; `here` and `there` are its color and that of the inner PE."""
    p = Program(f"ring, colors {here} and {there}", machine)
    constant, sink = p.array("constant", 1, "f32"), p.array("sink", 1, "f32")
    with p.task("main"):
        p.mov32(p.fabout(p.output_queue(0, here), iterations), p.mem1d(constant, iterations, stride=0), async_=True)
        p.mov32(p.mem1d(sink, iterations, stride=0), p.fabin(p.input_queue(1, there), iterations), async_=True)
    p.assemble()
    return p


def iterate(machine: Machine, cells: np.ndarray, boundary: float, iterations: int) -> tuple[int, np.ndarray]:
    """Run iterations of the stencil.

    Parameters
    ----------
    machine : Machine
    cells : ndarray of float32, shape (rows, columns)
        One per inner PE.
    boundary : float
        What each PE of the outer ring sends.
    iterations : int

    Returns
    -------
    (int, ndarray)
        Cycles between the readings on PE (1, 1), and the cells afterwards.
    """
    rows, columns = cells.shape
    layout = Layout(columns + 2, rows + 2, machine)
    programs: dict[int | tuple[int, int], Program] = {}
    ring = []

    def inside(x: int, y: int) -> bool:
        return 1 <= x <= columns and 1 <= y <= rows

    for y in range(rows + 2):
        for x in range(columns + 2):
            near = {d: (x + dx, y + dy) for d, (dx, dy) in STEP.items()}
            if inside(x, y):
                key: int | tuple[int, int] = _color(x, y)
                if key not in programs:
                    programs[key] = _cell_program(machine, x, y, iterations)
                targets = "WENS"
            else:
                targets = "".join(d for d, place in near.items() if inside(*place))
                if not targets:
                    continue  # a corner
                key = here, there = _color(x, y), _color(*near[targets])
                if key not in programs:
                    programs[key] = _ring_program(machine, here, there, iterations)
                ring.append((x, y))
            layout.place(programs[key], x, y)
            layout.route(_color(x, y), (x, y), rx="R", tx=targets)
            for d in targets:
                layout.route(_color(x, y), near[d], rx=OPPOSITE[d], tx="R")
    constant = np.full((1, 1, 1), boundary, np.float32).view(np.uint32)
    session = Session(
        layout, [("a", cells.view(np.uint32)[:, :, np.newaxis], 1, 1), *(("constant", constant, x, y) for x, y in ring)]
    )
    first, last = session.stamps(1, 1)
    return int(last[0, 0] - first[0, 0]), session.read("a", 1, 1, columns, rows)[:, :, 0].view(np.float32)


def expected(cells: np.ndarray, boundary: float, iterations: int) -> np.ndarray:
    """Return the cells after some iterations in the order of the PEs, in the type of `cells`."""
    kind = cells.dtype.type
    for _ in range(iterations):
        sent = np.pad(cells * kind(WEIGHTS[1]), 1, constant_values=kind(boundary))
        total = (sent[1:-1, :-2] + sent[1:-1, 2:]) + (sent[:-2, 1:-1] + sent[2:, 1:-1])
        cells = cells * kind(WEIGHTS[0]) + total
    return cells


@recipe("R4", ("stencil-1cell",), "a star stencil, one cell per PE", ("grid", "radius", "dtype"))
def stencil_cell(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the grid of a point."""
    params = point["params"]
    width, height = grid(params, "grid")
    if integer(params, "radius", 1) != 1:
        raise CannotRun("the program with one cell per PE is for radius 1")
    if params.get("dtype", "f32") != "f32":
        raise CannotRun(f"dtype {params['dtype']!r}: the recipe is for fp32")
    if min(width, height) < 3:
        raise CannotRun(f"{width} x {height} PEs have no inner PE; the outer ring is the boundary")
    cells = np.random.default_rng(width * height).standard_normal((height - 2, width - 2)).astype(np.float32)
    times = []
    try:
        for iterations in (4, 2):
            progress(f"{iterations} iterations")
            times.append(iterate(machine, cells, 0.0, iterations)[0])
    except (ConfigError, LayoutError) as error:
        raise CannotRun(f"{width} x {height} PEs: {error.what}") from None
    return Measurement((times[0] - times[1]) / 2, "difference of 4 and 2 iterations")
