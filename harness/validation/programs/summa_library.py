"""R1: SUMMA over P x P PEs with broadcasts of a collectives library, square tiles of T x T fp32, stored by columns.

In step i the PEs of column i broadcast their tile of A along their rows, those of row i their tile of B along their
columns; when both have come, C += A B.  The next step begins after the product.  The time is the largest difference
over all PEs between the stamps at first entry of the main task and after the last product; the PEs are not
synchronised.

*Library.*  Per axis one color, an input and an output queue, and one pair of DSRs (queues 2 and 4 along rows, 3 and 5
along columns; a queue number is a microthread as well).  The root of a broadcast changes from step to step, so every
PE writes the route of the color anew: the root sends both ways, the others take from the root's side, deliver and pass
on.  Every access to a configuration register is a call of a routine that reads, masks and merges before the register
is written.  Nothing may be rewritten under traffic: a color rests in teardown, leaves it when the PE has set its
route, and is put back by a control wavelet that the root sends behind the tile.  A PE is done with an axis when its
transfer is complete and the color is in teardown again, each of which is a task of the library; then it activates the
user's task.  One of those activates, the other unblocks the product.

*Product* (per k, per j): load of B[j T + k], fmacs of T elements C[:, j] += A[:, k] b.  The descriptors are variables,
so three DSRs are loaded for each fmacs, with their offsets; then that of C moves on by a column, and that of A after
the last j.  Where the compiler unrolls the loop over j (`loops`: tiles of up to 12, and of 16), columns of C and
elements of B stand at known places and need no index arithmetic.

*Banks.*  Arrays lie in memory in the order A, B, C, A buffer, B buffer, so with even T the columns of A and C have
even distances: 0 modulo 4 words is a conflict.

*Large P.*  A PE does the same work in every step, and waits only for the PEs of its row and column, so cycles grow
linearly with P once P exceeds the few steps that the ends of a row differ by (`tests` compare the slopes).  Points
with P > `SLOPE[1]` are continued from runs with the two P of `SLOPE`.

Sources: the vendor's gemm-collectives_2d example; lingzhi227/MIMD_dataflow (GEMM_SUMMA), measured on a CS-2.
"""

from __future__ import annotations

import functools

import numpy as np

from fabric.asm.control import encode
from fabric.asm.operands import Dsd, Reg, Var
from fabric.csl.rules import size_of_product, unrolls
from fabric.kernels.kit.session import Session, Stamps
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.validation.programs.compiled import Multiplier, counted, load_at
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, agree, grid, recipe
from wse_core.errors import ProgramError
from wse_core.params import Machine

__all__ = ["SLOPE", "cycles", "emit_product", "loops", "multiply", "run"]

SLOPE = (8, 16)
"""Sizes that larger P are continued from."""

AXES = {"x": (0, 2, 4, "W", "E"), "y": (1, 3, 5, "N", "S")}
"""Axis -> (color, output queue, input queue, side of low and of high coordinates)."""

TEARDOWN = encode("teardown", deliver=False)


class _Axis:
    """One instance of the library in one program."""

    def __init__(self, p: Program, axis: str, t: int, end: str, registers: tuple[Reg, Reg, Reg]) -> None:
        self.p, self.axis, self.end = p, axis, end
        self.step, self.at, self.count_in = registers
        self.color, q_out, q_in, self.low, self.high = AXES[axis]
        self.words = t * t
        self.place, self.phase = p.param(f"p{axis}", "u16"), p.scalar(f"{axis} phase", "u16")
        self.control = p.array(f"{axis} control", 1, "u32", [TEARDOWN])
        self.pointer = p.scalar(f"{axis} pointer", "u16")
        self.out, self.into = p.output_queue(q_out, self.color), p.input_queue(q_in, self.color)
        self.to, self.source = p.dsr("dest", name=f"{axis} to"), p.dsr("src1", name=f"{axis} from")
        self.links = ("" if end == "first" else self.low) + ("" if end == "last" else self.high)

    def transfer(self, to: Dsd, source: Dsd) -> None:
        """Load both descriptors with what the caller has passed, leave teardown, and begin."""
        p = self.p
        p.load(self.to, to)
        p.load(self.source, source)
        for dsr, dsd in ((self.to, to), (self.source, source)):
            p.dsr_len(dsr, self.words)
            if dsd.is_memory:
                p.ld16(self.count_in, self.pointer)
                p.dsr_base(dsr, self.count_in)
        p.call("register")
        p.td_exit(self.color)
        p.mov32(self.to, self.source, async_=True, activate=f"{self.axis} moved")

    def choose(self, step_var: Var, own: Var, buffer: Var) -> None:
        """Note which tile the user passes to the library: the own one at the root, else the buffer."""
        p = self.p
        p.ld16(self.step, step_var)
        p.ld16(self.at, self.place)
        p.ldi(self.count_in, buffer)
        with p.if_("eq", self.step, self.at):
            p.ldi(self.count_in, own)
        p.st16(self.count_in, self.pointer)

    def broadcast(self, step_var: Var, own: Var, buffer: Var) -> None:
        """Write the function ``broadcast``: set the route and begin the transfer of this step."""
        p, words = self.p, self.words
        with p.function(f"broadcast {self.axis}"):
            step, place = self.step, self.at
            p.ldi(self.count_in, 2)
            p.st16(self.count_in, self.phase)  # two things are left to wait for
            p.ld16(step, step_var)
            p.ld16(place, self.place)
            with p.if_("eq", step, place):
                p.call("register")
                p.route(self.color, "R", self.links)
                self.transfer(p.fabout(self.out, words), p.mem1d(own))
                p.ret()
            if self.end != "first":
                with p.if_("ltu", step, place):
                    p.call("register")
                    p.route(self.color, self.low, self.links.replace(self.low, "") + "R")
            if self.end != "last":
                with p.if_("gtu", step, place):
                    p.call("register")
                    p.route(self.color, self.high, self.links.replace(self.high, "") + "R")
            self.transfer(p.mem1d(buffer), p.fabin(self.into, words))

    def moved(self, step_var: Var) -> None:
        """Write the library's two tasks: for a complete transfer, where the root ends the broadcast, and for rest."""
        p = self.p
        with p.task(f"{self.axis} moved"):
            step, place = self.step, self.at
            p.ld16(step, step_var)
            p.ld16(place, self.place)
            with p.if_("eq", step, place):
                p.load(self.to, p.fabout(self.out, 1, control=True))
                p.load(self.source, self.control)
                p.mov32(self.to, self.source)
            self.count()
        with p.task(f"{self.axis} resting"):
            self.count()

    def count(self) -> None:
        """One of the two things has happened; after both the user's task is activated."""
        p, phase = self.p, self.count_in
        p.ld16(phase, self.phase)
        p.sub16(phase, phase, 1)
        p.st16(phase, self.phase)
        with p.if_("eq", phase, 0):
            p.activate(f"{self.axis} done")

    def in_teardown(self, active: Var) -> None:
        """In the teardown task: note it if the color has come to rest since its broadcast began."""
        p = self.p
        resting, waiting = self.step, self.at
        p.call("register")
        p.in_td(resting, self.color)
        p.ld16(waiting, active)
        p.and16(resting, resting, waiting)
        with p.if_("ne", resting, 0):
            p.ldi(waiting, 0)
            p.st16(waiting, active)
            p.activate(f"{self.axis} resting")


def emit_product(p: Program, t: int, a_at: Reg, b_at: Reg, c: Var, a: Var, multiplier: Multiplier, at: Reg) -> None:
    """Write C += A B for tiles of T x T stored by columns.

    Parameters
    ----------
    p : Program
    t : int
    a_at, b_at : Reg
        Word offset of the tile of A from the variable `a`, and word address of that of B.
    c, a : Var
    multiplier : Multiplier
        Of `p`; knows t.
    at : Reg
        Free for index arithmetic.
    """
    dc, sc, da = p.dsr("dest", name="c"), p.dsr("src0", name="c"), p.dsr("src1", name="a")
    factor = p.reg32("factor")
    inner, outer = loops(t)
    k, j = (None if unrolled else p.reg16(name) for name, unrolled in (("k", outer), ("j", inner)))
    c_at = None if inner else p.reg16("c at")

    def turn(c_offset: Reg | int) -> None:
        load_at(p, (dc, sc), p.mem1d(c, t), c_offset)
        load_at(p, [da], p.mem1d(a, t), a_at)
        p.fmacs(dc, sc, da, factor)

    def columns(row: int) -> None:
        if inner:
            for column in range(t):
                p.ld32(factor, b_at, offset=2 * (column * t + row))
                turn(2 * t * column)
            return
        assert j is not None
        assert c_at is not None
        p.ldi(c_at, 0)
        with counted(p, j, t):
            multiplier.emit(at, j, 2 * t)
            p.add16(at, at, b_at)
            p.ld32(factor, at)
            turn(c_at)
            p.add16(c_at, c_at, 2 * t)

    if outer:
        for row in range(t):
            columns(row)
            p.add16(a_at, a_at, 2 * t)
    else:
        assert k is not None
        with counted(p, k, t):
            columns(0)
            p.add16(a_at, a_at, 2 * t)
            p.add16(b_at, b_at, 2)
    p.free(factor, *(register for register in (k, j, c_at) if register is not None))


def loops(t: int) -> tuple[bool, bool]:
    """Return whether the compiler unrolls the loop over columns, and the one over k around it."""
    turn = 3 * 2 + 1  # three descriptors into DSRs, each with its offset, and the multiply-add
    body = size_of_product(2 * t) + 2 + turn + 1 + 2  # the element of B, the next column of C, counting
    inner = unrolls(t, body, folds=True)
    return inner, inner and unrolls(t, t * (1 + turn) + 1 + 1 + 2, folds=True)


def program(machine: Machine, size: int, t: int, column: str, row: str) -> Program:
    """Return the program of the PEs at one kind of place; `column`, `row`: first, inner or last."""
    p = Program(f"summa {column} column, {row} row", machine)
    tile = t * t
    a, b, c = (p.array(name, tile, "f32") for name in "abc")
    a_buffer, b_buffer = p.array("a buffer", tile, "f32"), p.array("b buffer", tile, "f32")
    step_var = p.scalar("step", "u16")
    registers = step, place, one = p.reg16("step"), p.reg16("place"), p.reg16("one")
    axes = {"x": _Axis(p, "x", t, column, registers), "y": _Axis(p, "y", t, row, registers)}
    active = {axis: p.scalar(f"{axis} active", "u16") for axis in axes}
    stamps = Stamps(p)
    multiplier = Multiplier(p, [] if loops(t)[0] else [2 * t], (step, place))

    with p.task("main"):
        multiplier.begin()
        stamps.store(0)
        p.call("step")

    with p.function("step"):
        p.ldi(one, 1)
        for axis in axes:
            p.st16(one, active[axis])
        axes["x"].choose(step_var, a, a_buffer)
        axes["y"].choose(step_var, b, b_buffer)
        for axis in axes:
            p.call(f"broadcast {axis}")

    with p.function("register"):  # of the library: reads, masks and merges a configuration register
        p.in_td(one, 0)
        p.and16(one, one, 1)
        p.or16(one, one, 1)

    axes["x"].broadcast(step_var, a, a_buffer)
    axes["y"].broadcast(step_var, b, b_buffer)
    for library in axes.values():
        library.moved(step_var)

    with p.task("teardown", id=29):
        for axis, library in axes.items():
            library.in_teardown(active[axis])

    with p.task("x done"):
        p.activate("compute")
    with p.task("y done"):
        p.unblock("compute")

    with p.task("compute"):
        p.block("compute")
        a_at, b_at = p.reg16("a at"), p.reg16("b at")
        p.ld16(step, step_var)
        p.ld16(place, axes["x"].place)
        p.ldi(a_at, 6 * tile)  # from A to its buffer: B and C lie between
        with p.if_("eq", step, place):
            p.ldi(a_at, 0)
        p.ld16(place, axes["y"].place)
        p.ldi(b_at, b_buffer)
        with p.if_("eq", step, place):
            p.ldi(b_at, b)
        emit_product(p, t, a_at, b_at, c, a, multiplier, one)
        p.free(a_at, b_at)
        p.ld16(step, step_var)
        p.add16(step, step, 1)
        p.st16(step, step_var)
        with p.if_("ltu", step, size):
            p.call("step")
        with p.else_():
            stamps.store(1)
    p.blocked("compute")
    multiplier.routine()
    p.assemble()
    return p


def _ends(size: int) -> list[tuple[str, int, int]]:
    """Return (place, first, count) of the PEs along a side that need code of their own."""
    return [place for place in (("first", 0, 1), ("inner", 1, size - 2), ("last", size - 1, 1)) if place[2] > 0]


def run(
    machine: Machine, size: int, t: int, a: np.ndarray, b: np.ndarray, progress: Tell | None = None
) -> tuple[Session, np.ndarray]:
    """Multiply on the fabric.

    Parameters
    ----------
    size, t : int
        P (at least 2) and T.
    a, b : ndarray of float32
        Shape (P T, P T).

    Returns
    -------
    session : Session
        The finished run, with the stamps of all PEs.
    c : ndarray of float32
    """
    layout = Layout(size, size, machine)
    try:
        for column, x, w in _ends(size):
            for row, y, h in _ends(size):
                layout.place(program(machine, size, t, column, row), x, y, w, h)
    except ProgramError as error:
        raise CannotRun(f"tiles of {t} x {t} do not fit into a PE: {error.what}") from None
    for axis, (color, _, _, low, high) in AXES.items():
        for end, at, count in _ends(size):
            rect = (at, 0, count, size) if axis == "x" else (0, at, size, count)
            layout.route(
                color,
                rect,
                rx="R" if end == "first" else low,
                teardown=True,
                tx=high if end == "first" else "R" if end == "last" else high + "R",
            )
    place = np.arange(size)
    layout.set_param("px", np.broadcast_to(place, (size, size)).copy())
    layout.set_param("py", np.broadcast_to(place[:, np.newaxis], (size, size)).copy())

    def tiles(matrix: np.ndarray) -> np.ndarray:
        return matrix.reshape(size, t, size, t).transpose(0, 2, 3, 1).reshape(size, size, t * t)

    told = None if progress is None else (lambda cycle, *rest: progress(f"{size} x {size} PEs, cycle {cycle}"))
    session = Session(layout, [("a", tiles(a), 0, 0), ("b", tiles(b), 0, 0)], progress=told)
    c = session.read("c", 0, 0, size, size).view(np.float32).reshape(size, size, t, t)
    return session, c.transpose(0, 3, 1, 2).reshape(size * t, size * t)


def multiply(
    machine: Machine, size: int, t: int, a: np.ndarray, b: np.ndarray, progress: Tell | None = None
) -> tuple[int, np.ndarray]:
    """Return (cycles, C) of a run."""
    session, c = run(machine, size, t, a, b, progress)
    first, last = session.stamps(0, 0, size, size)
    return int((last - first).max()), c


@functools.lru_cache(maxsize=64)
def cycles(machine: Machine, size: int, t: int) -> int:
    """Return the cycles of a run; the same run serves all points of one process that are continued from it."""
    rng = np.random.default_rng(size * 1000 + t)
    a, b = rng.standard_normal((2, size * t, size * t)).astype(np.float32)
    return multiply(machine, size, t, a, b)[0]


@recipe(
    "R1",
    ("gemm-summa-hw",),
    "SUMMA with broadcasts of a collectives library",
    ("pe_grid", "tile", "M", "K", "N", "dtype"),
)
def summa(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the product, or continue the line through two smaller ones."""
    params = point["params"]
    width, height = grid(params, "pe_grid")
    tile = grid(params, "tile", 3)
    if width != height or len(set(tile)) != 1 or width < 2:
        raise CannotRun("only square tiles on a square of at least 2 x 2 PEs")
    t = tile[0]
    agree(params, dict.fromkeys("MKN", width * t))
    if width <= SLOPE[1]:
        return Measurement(cycles(machine, width, t))
    low, high = (cycles(machine, size, t) for size in SLOPE)
    slope = (high - low) / (SLOPE[1] - SLOPE[0])
    return Measurement(high + (width - SLOPE[1]) * slope, f"line through {SLOPE[0]} and {SLOPE[1]} PEs a side")
