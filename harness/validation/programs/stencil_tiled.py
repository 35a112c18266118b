"""R5: a star stencil over a plane of cells, a tile of w x h cells per PE, fp32; cycles per iteration.

*What moves.*  A PE holds its tile with a halo of r cells in array A, and partial sums in array B, both of
(h + 2 r) x (w + 2 r + 1) words.  Per iteration the outermost r rows and columns of the tile go to the four
neighbours, and theirs come into the halo: four asynchronous sends and four receives.

*Colors and queues.*  One color per direction and parity of the sender's column (W, E) or row (N, S): 8.  Output queues
0..3, input queues 4..7, each operation on the microthread of its queue.

*Tasks.*  ``loop`` loads the eight DSRs of the tile's edges and the halo, each right before its operation; each
completion runs a task that counts; the last one starts ``compute``.  Transfers have low priority, so that what the main
thread leaves free while it loads descriptors is theirs: in small tiles the exchange takes hardly any time of its own.
A rectangle of one row or column has a descriptor of one dimension.

*Order of additions.*  r = 1: b = w0 a, then b += a of the west, east, north, south, then a = w1 b, all with DSRs loaded
once.  r >= 2: for k = 1..r, west, east, north, south at distance k: b += w_k a (the first one: b = w_1 a), then
a = b + w_0 a; the shifted descriptor is loaded for each.

*Time.*  The difference of runs of four and two iterations, halved, between a reading before the first and after the
last iteration, on the inner PE of 3 x 3 with a ring of PEs around that sends constants and swallows what it gets.  The
published figures hardly depend on the grid (127 cycles on 5 x 5 to 25 x 25 PEs).

Source: Jorineg/cerebras (tiled-stencil).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fabric.asm.operands import Dsd, Dsr, Reg, Var
from fabric.kernels.kit.session import Session, Stamps
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.validation.programs.compiled import PRIORITY
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, grid, integer, recipe
from wse_core.errors import ProgramError
from wse_core.params import Machine

__all__ = ["WEIGHTS", "expected", "iterate", "stencil_tiled"]

WEIGHTS = (0.5, 0.125, 0.0625, 0.03125, 0.25, 0.1875)
"""Weights by distance, repeated for larger radii; chosen so that values stay bounded."""
DIRECTIONS = "WENS"
OPPOSITE = dict(zip("WENS", "EWSN", strict=True))
STEP = {"W": (-1, 0), "E": (1, 0), "N": (0, -1), "S": (0, 1)}


def _weight(distance: int) -> float:
    return WEIGHTS[distance % len(WEIGHTS)]


def _color(direction: str, parity: int) -> int:
    return 2 * DIRECTIONS.index(direction) + parity


def _parity(direction: str, x: int, y: int) -> int:
    return (x if direction in "WE" else y) % 2


class _Tile:
    """Sizes of a tile and descriptors of its parts."""

    def __init__(self, w: int, h: int, r: int) -> None:
        self.w, self.h, self.r = w, h, r
        self.row, self.rows = w + 2 * r + 1, h + 2 * r

    def edge(self, direction: str) -> tuple[int, int, int, int]:
        """Return (x, y, width, height) of what is sent to `direction`."""
        w, h, r = self.w, self.h, self.r
        return {"W": (r, r, r, h), "E": (w, r, r, h), "N": (r, r, w, r), "S": (r, h, w, r)}[direction]

    def halo(self, direction: str) -> tuple[int, int, int, int]:
        """Return (x, y, width, height) of what is received from the PE in `direction`."""
        w, h, r = self.w, self.h, self.r
        return {"W": (0, r, r, h), "E": (r + w, r, r, h), "N": (r, 0, w, r), "S": (r, r + h, w, r)}[direction]

    def words(self, direction: str) -> int:
        """Return the wavelets sent to `direction` in an iteration."""
        return self.r * (self.h if direction in "WE" else self.w)

    def part(self, p: Program, array: Var, x: int, y: int, width: int, height: int) -> Dsd:
        """Return the descriptor of a rectangle of an array; of one dimension if it is a row or a column."""
        if min(width, height) == 1:
            return p.mem1d(array, max(width, height), 1 if height == 1 else self.row, offset=y * self.row + x)
        return p.mem4d(array, (height, width), (self.row, 1), offset=y * self.row + x)

    def shifted(self, p: Program, array: Var, dx: int = 0, dy: int = 0) -> Dsd:
        """Return the descriptor of the tile moved by (dx, dy)."""
        return self.part(p, array, self.r + dx, self.r + dy, self.w, self.h)


def _program(machine: Machine, tile: _Tile, parities: tuple[int, int], iterations: int) -> Program:
    """Return the program of a PE with a tile; `parities` are those of its column and row."""
    p = Program(f"tile {parities}", machine)
    r = tile.r
    a, b = p.array("a", tile.row * tile.rows, "f32", align=8), p.array("b", tile.row * tile.rows, "f32")
    stamps = Stamps(p)
    send, receive = {}, {}
    for k, d in enumerate(DIRECTIONS):
        own = _parity(d, *parities)
        send[d] = p.dsr("dest"), p.dsr("src1"), p.fabout(p.output_queue(k, _color(d, own)), tile.words(d))
        came = p.input_queue(4 + k, _color(OPPOSITE[d], 1 - own))
        receive[d] = p.dsr("dest"), p.dsr("src1"), p.fabin(came, tile.words(d))
    total, result = p.dsr("src0"), p.dsr("dest")
    kept = [p.dsr("src1") for _ in range(5 if r == 1 else 1)]
    pending, left = p.reg16("pending"), p.reg16("left")
    factors = [p.reg32("factor") for _ in range(2)]
    with p.task("main"):
        p.ldi(left, iterations)
        p.ldi(pending, 8)
        for factor, k in zip(factors, range(2), strict=True):
            p.ldi32(factor, _weight(k))
        for d in DIRECTIONS:
            p.load(send[d][0], send[d][2])
            p.load(receive[d][1], receive[d][2])
        p.load(total, tile.shifted(p, b))
        p.load(result, tile.shifted(p, a))
        if r == 1:
            for dsr, (dx, dy) in zip(kept, [(0, 0), *STEP.values()], strict=True):
                p.load(dsr, tile.shifted(p, a, dx, dy))
        stamps.store(0)
        p.activate("loop")
    with p.task("loop"):
        for d in DIRECTIONS:
            p.load(send[d][1], tile.part(p, a, *tile.edge(d)))
            p.mov32(*send[d][:2], async_=p.async_(PRIORITY, activate=f"sent {d}"))
            p.load(receive[d][0], tile.part(p, a, *tile.halo(d)))
            p.mov32(*receive[d][:2], async_=p.async_(PRIORITY, activate=f"received {d}"))
    for name in [f"{what} {d}" for d in DIRECTIONS for what in ("sent", "received")]:
        with p.task(name):
            p.sub16(pending, pending, 1)
            last = p.new_label()  # x == 0 is the unlikely case, whose block a compiler moves out of the way
            p.branch("eq", pending, 0, last, "16")
            p.done()
            p.place(last)
            p.activate("compute")
    with p.task("compute"):
        p.ldi(pending, 8)
        (_one_ring if r == 1 else _rings)(p, tile, a, total, result, kept, factors)
        p.sub16(left, left, 1)
        end = p.new_label()  # the unlikely case again
        p.branch("eq", left, 0, end, "16")
        p.activate("loop")
        p.done()
        p.place(end)
        stamps.store(1)
    p.assemble()
    return p


def _one_ring(
    p: Program, tile: _Tile, a: Var, total: Dsr, result: Dsr, kept: Sequence[Dsr], factors: Sequence[Reg]
) -> None:
    center, *neighbours = kept
    p.fmuls(total, center, factors[0])
    for dsr in neighbours:
        p.fadds(total, total, dsr)
    p.fmuls(result, total, factors[1])


def _rings(
    p: Program, tile: _Tile, a: Var, total: Dsr, result: Dsr, kept: Sequence[Dsr], factors: Sequence[Reg]
) -> None:
    own, factor = factors
    for k in range(1, tile.r + 1):
        p.ldi32(factor, _weight(k))
        for d in DIRECTIONS:
            dx, dy = STEP[d]
            p.load(kept[0], tile.shifted(p, a, k * dx, k * dy))
            if k == 1 and d == DIRECTIONS[0]:
                p.fmuls(total, kept[0], factor)
            else:
                p.fmacs(total, total, kept[0], factor)
    p.load(kept[0], tile.shifted(p, a))
    p.fmacs(result, total, kept[0], own)


def _ring_program(machine: Machine, tile: _Tile, direction: str, parity: int, iterations: int) -> Program:
    """Return the program of a boundary PE whose tile PE lies in `direction`; `parity` is its own."""
    p = Program(f"boundary, {direction}, {parity}", machine)
    constant, sink = p.array("constant", 1, "f32"), p.array("sink", 1, "f32")
    count = tile.words(direction) * iterations
    out, into = p.output_queue(0, _color(direction, parity)), p.input_queue(4, _color(OPPOSITE[direction], 1 - parity))
    with p.task("main"):
        for done in range(0, count, 32766):
            n = min(32766, count - done)
            p.mov32(p.fabout(out, n), p.mem1d(constant, n, stride=0), async_=True)
            p.mov32(p.mem1d(sink, n, stride=0), p.fabin(into, n), async_=True)
    p.assemble()
    return p


def iterate(
    machine: Machine, cells: np.ndarray, boundary: float, pes: tuple[int, int], radius: int, iterations: int
) -> tuple[int, np.ndarray]:
    """Run iterations of the stencil.

    Parameters
    ----------
    machine : Machine
    cells : ndarray of float32, shape (rows, columns)
        Cells of all PEs; both are multiples of the number of PEs.
    boundary : float
        Value of the cells around.
    pes : tuple[int, int]
        Columns and rows of PEs that hold tiles.
    radius, iterations : int

    Returns
    -------
    (int, ndarray)
        Cycles between the readings on the PE in the middle, and the cells afterwards.

    Raises
    ------
    CannotRun
        A tile does not fit into a PE.
    """
    across, down = pes
    tile = _Tile(cells.shape[1] // across, cells.shape[0] // down, radius)
    layout = Layout(across + 2, down + 2, machine)
    programs: dict[tuple[int | str, int], Program] = {}
    border = []
    try:
        for y in range(down + 2):
            for x in range(across + 2):
                inner = 1 <= x <= across, 1 <= y <= down
                if all(inner):
                    key: tuple[int | str, int] = x % 2, y % 2
                    if key not in programs:
                        programs[key] = _program(machine, tile, (x % 2, y % 2), iterations)
                elif any(inner):
                    d = ("E" if x == 0 else "W") if inner[1] else "S" if y == 0 else "N"
                    key = d, _parity(d, x, y)
                    if key not in programs:
                        programs[key] = _ring_program(machine, tile, d, _parity(d, x, y), iterations)
                    border.append((x, y))
                else:
                    continue
                layout.place(programs[key], x, y)
                for d in DIRECTIONS:
                    dx, dy = STEP[d]
                    tx, ty = x + dx, y + dy
                    if all(inner) or (1 <= tx <= across and 1 <= ty <= down):
                        color = _color(d, _parity(d, x, y))
                        layout.route(color, (x, y), rx="R", tx=d)
                        layout.route(color, (tx, ty), rx=OPPOSITE[d], tx="R")
    except ProgramError as error:
        raise CannotRun(f"a tile of {tile.w} x {tile.h} cells does not fit into a PE: {error.what}") from None
    padded = np.zeros((down, across, tile.rows, tile.row), np.float32)
    padded[:, :, radius : radius + tile.h, radius : radius + tile.w] = cells.reshape(
        down, tile.h, across, tile.w
    ).transpose(0, 2, 1, 3)
    constant = np.full((1, 1, 1), boundary, np.float32).view(np.uint32)
    session = Session(
        layout,
        [
            ("a", padded.reshape(down, across, -1).view(np.uint32), 1, 1),
            *(("constant", constant, x, y) for x, y in border),
        ],
    )
    first, last = session.stamps(1 + across // 2, 1 + down // 2)
    found = session.read("a", 1, 1, across, down).view(np.float32).reshape(padded.shape)
    values = found[:, :, radius : radius + tile.h, radius : radius + tile.w].transpose(0, 2, 1, 3)
    return int(last[0, 0] - first[0, 0]), values.reshape(cells.shape)


def expected(
    cells: np.ndarray, boundary: float, radius: int, iterations: int, fma: Callable[..., np.ndarray]
) -> np.ndarray:
    """Return the cells after some iterations, in the order of additions of the PEs.

    Parameters
    ----------
    cells : ndarray
        float32 for the bit-exact result, float64 for a plain one.
    boundary, radius, iterations
        As in `iterate`.
    fma : callable
        ``fma(b, c, a)`` returns ``b c + a``.
    """
    kind = cells.dtype.type
    for _ in range(iterations):
        padded = np.pad(cells, radius, constant_values=kind(boundary))

        def moved(dx: int, dy: int, padded: np.ndarray = padded, shape: tuple[int, ...] = cells.shape) -> np.ndarray:
            return padded[radius + dy : radius + dy + shape[0], radius + dx : radius + dx + shape[1]]

        if radius == 1:
            total = cells * kind(_weight(0))
            for d in DIRECTIONS:
                total = total + moved(*STEP[d])
            cells = total * kind(_weight(1))
            continue
        total = None
        for k in range(1, radius + 1):
            factor = kind(_weight(k))
            for d in DIRECTIONS:
                shifted = moved(k * STEP[d][0], k * STEP[d][1])
                total = shifted * factor if total is None else fma(shifted, factor, total)
        cells = fma(cells, kind(_weight(0)), total)
    return cells


@recipe(
    "R5",
    ("stencil-tiled",),
    "a star stencil over a tile of cells per PE, halo exchange with four neighbours",
    ("tile", "radius", "grids", "dtype"),
)
def stencil_tiled(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the tile and the radius of a point on 3 x 3 PEs."""
    params = point["params"]
    w, h = grid(params, "tile")
    radius = integer(params, "radius")
    if params.get("dtype", "f32") != "f32":
        raise CannotRun(f"dtype {params['dtype']!r}: the recipe is for fp32")
    if radius > min(w, h):
        raise CannotRun(f"a radius of {radius} reaches beyond the neighbours' tiles of {w} x {h} cells")
    cells = np.random.default_rng(w * h + radius).standard_normal((3 * h, 3 * w)).astype(np.float32)
    times = []
    for iterations in (4, 2):
        progress(f"{iterations} iterations")
        times.append(iterate(machine, cells, 0.0, (3, 3), radius, iterations)[0])
    return Measurement((times[0] - times[1]) / 2, "difference of 4 and 2 iterations on 3 x 3 PEs")
