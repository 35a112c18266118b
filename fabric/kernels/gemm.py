"""Matrix product C = A B over p x p PEs: SUMMA with one color per axis, routers turned by the PEs.

What moves
    PE (c, r) holds the tiles A[r, c], B[r, c] and C[r, c].  In step i = 0 .. p-1 the PEs of column i send their tile
    of A along their row, to both sides at once, and the PEs of row i their tile of B along their column.  Every PE adds
    the product of the two tiles of the step to its tile of C; a sender uses its own tile where it lies.

Colors, routers, queues
    One color per axis, 8 for A and 9 for B; input queues 0 and 1, output queues 2 and 3.  Along a row:

        steps before its own    rx = W   tx = E R    takes from the west, copies to its CE, passes on
        its own step            rx = R   tx = W E    sends to both sides; in switch position 1  rx = R  tx = R
        steps after             rx = E   tx = W R    takes from the east, copies to its CE, passes on

    (B: north and south alike.)  A CE turns its router when it asks for the next tile.  No wavelet of the step before
    can still be inside then: a router gives a wavelet to the next router and to its CE in the same cycle or not at
    all, so a CE that has the whole tile knows that its router has passed it on.  A sender has no copy to count.  The
    control wavelet behind its tile (`advance_switch`) puts its own router, and no other since it is popped there, into
    position 1, and a token sent after it comes straight back: when it arrives, the tile has left.  A wavelet of the
    next step that comes early waits at a port that is not open yet.  Each color has one open port per router at any
    time: no collisions possible.

    Why not two colors per axis, one for each direction, turned by control wavelets alone: a switch position of wse2
    changes either rx or tx, so that a sender would get, and have to drain, a copy of what it sends, and every tile
    would be sent twice.  The CE pays a slot per wavelet in either direction, and its slots are what this kernel is
    short of.

Tasks
    ``step`` runs when both tiles of a step are there: A activates it, B unblocks it.  It multiplies and asks for the
    next tiles; with ``buffers=2`` it asks first, so that tiles arrive on microthreads while it multiplies.  That hides
    latency only: an arriving wavelet takes its slot of the CE in either case, and the additional instructions cost
    as much as they save.  One buffer is the default, as it leaves room for larger tiles.

Order (bit exact)
    C starts from +0; for k = 0 .. K-1, padding included: C = fma(A[:, k], B[k, :], C).  f16, cb16: fmachs, exact
    products and one rounding to f32; f32: fmacs.

Sizes that p does not divide are padded with zeros, the rows of a tile to an even number.

Cycles
    From the first to the last time stamp of a PE, the most of all PEs.  With SA and SB wavelets per tile, M cycles for
    the product of two tiles (`fabric.kernels.product`) and I for the instructions around it (76, or 89 with two
    buffers, part of them hidden by arriving wavelets):

        cycles = p (M + SA + SB + I) + start          (p > 1)

    within 2 % of the measurement for steps of 500 cycles and more, 10 % for the smallest tiles.  Exactly:
    wavelet_hops = p^3 (SA + SB + 2) + 2 p^2 with the control wavelets and tokens; multiply-adds = product of the padded
    sizes.

Sources
    SUMMA: van de Geijn and Watts, 1997; on the machine in the vendor's gemm-collectives_2d example and in
    Wang-oss-tech/csl-experiments.
"""
from __future__ import annotations

import functools

import numpy as np

from fabric.kernels import common, tiles
from fabric.kernels.kernel import KernelParam, kernel
from fabric.kernels.product import emit_product, product_cycles
from fabric.layout import Layout
from fabric.program import Program
from wse_core.errors import ConfigError

__all__ = ["Gemm", "expected_cycles", "gemm", "programs"]

# Per axis: color, input queue, output queue, and the directions of lower and of higher coordinates.
AXES = {"a": (8, 0, 2, "W", "E"), "b": (9, 1, 3, "N", "S")}
SENDING, LOOP_BACK = 0, 1  # switch positions; position 0 is also that of receiving


class _Axis:
    """What a PE needs for the tiles of one matrix: variables, descriptors, and the code that asks for a tile.

    Parameters
    ----------
    p : Program
    key : {"a", "b"}
    elements : int
        Of a tile.
    dtype : str
    end : {"first", "inner", "last"}
        Place of the PE along the axis.
    buffers : {1, 2}
    bank : int or None
        In which a tile has to begin.
    """

    def __init__(self, p, key, elements, dtype, end, buffers, bank):
        self.p, self.key, self.elements, self.buffers, self.end = p, key, elements, buffers, end
        self.color, q_in, q_out, self.low, self.high = AXES[key]
        self.move = p.mov32 if dtype == "f32" else p.mov16
        self.own = p.array(key, elements, dtype, bank=bank)
        self.place = p.param(f"p{'x' if key == 'a' else 'y'}", "u16")
        self.received = p.array(f"{key}_received", buffers * elements, dtype, bank=bank)
        self.token = p.scalar(f"{key}_token", dtype)
        self.into, self.out = p.input_queue(q_in, self.color), p.output_queue(q_out, self.color)
        self.links = ("" if end == "first" else self.low) + ("" if end == "last" else self.high)
        self.dsrs = {name: (p.dsr("dest", name=f"{key} {name} to"), p.dsr("src1", name=f"{key} {name} from"))
                     for name in ("receive", "send", "token out", "token in")}
        self.offset = p.reg16(f"{key} offset") if buffers == 2 else None

    def prepare(self):
        """Load all descriptors; in the task that begins."""
        p, n = self.p, self.elements
        pairs = {"receive": (p.mem1d(self.received, n), p.fabin(self.into, n)),
                 "send": (p.fabout(self.out, n, advance_switch=True), self.own),
                 "token out": (p.fabout(self.out, 1), self.token), "token in": (self.token, p.fabin(self.into, 1))}
        for name, pair in pairs.items():
            for dsr, dsd in zip(self.dsrs[name], pair, strict=True):
                p.load(dsr, dsd)
        if self.offset is not None:
            p.ldi(self.offset, 0)

    def ask(self, step, mine, then):
        """Turn the router for the step in register `step` and start what the PE does in it; `then` when it is done."""
        p, high = self.p, self.high
        p.ld16(mine, self.place)
        with p.if_("eq", step, mine):
            p.route(self.color, "R", self.links, SENDING)
            p.route(self.color, "R", "R", LOOP_BACK)
            self.move(*self.dsrs["send"], activate=f"{self.key} sent", async_=True)
            self.move(*self.dsrs["token in"], async_=then)
        with p.else_():
            if self.end != "last":
                p.add16(mine, mine, 1)
                with p.if_("eq", step, mine):
                    p.route(self.color, high, self.links.replace(high, "") + "R")
                    p.sw_pos(self.color, 0)
            if self.buffers == 2:
                p.dsr_base(self.dsrs["receive"][0], self.received)
                p.dsr_off(self.dsrs["receive"][0], self.offset)
            self.move(*self.dsrs["receive"], async_=then)

    def sent(self):
        """Write the task that runs when the own tile has been handed over: the token follows the tile."""
        with self.p.task(f"{self.key} sent"):
            self.move(*self.dsrs["token out"], async_=True)

    def find(self, base, step):
        """Set register `base` to the word address of the tile of the step in register `step`."""
        p = self.p
        p.ld16(base, self.place)
        with p.if_("eq", step, base):
            p.ldi(base, self.own)
        with p.else_():
            p.ldi(base, self.received)
            if self.buffers == 2:
                p.add16(base, base, self.offset)

    def toggle(self):
        """Let the next tile go into the other buffer."""
        if self.buffers == 2:
            words = self.elements * self.own.words_per_element
            self.p.xor16(self.offset, self.offset, words)


def program(shape, p, column, row, buffers, machine):
    """Return the program of the PEs at one kind of place.

    Parameters
    ----------
    shape : Shape
    p : int
        PEs along a side; one PE alone only multiplies.
    column, row : {"first", "inner", "last"}
        Where in its row and in its column the PE stands.
    buffers : {1, 2}
        Tiles of A and of B that can be received besides the own ones.
    machine : Machine
    """
    prog = Program(f"gemm {column} column, {row} row", machine, half="cb16" if shape.dtype == "cb16" else "f16")
    c = prog.array("c", shape.rows * shape.columns, "f32", bank=0)
    stamps = common.Stamps(prog)
    c_dsr, a_dsr = prog.dsr("src0"), prog.dsr("src1")
    sizes = {"a": shape.rows * shape.depth, "b": shape.depth * shape.columns}
    if p == 1:
        a, b = prog.array("a", sizes["a"], shape.dtype, bank=shape.a_bank), prog.array("b", sizes["b"], shape.dtype)
        with prog.task("main"):
            stamps.store(0)
            a_base, b_base = prog.reg16("a base"), prog.reg16("b base")
            prog.ldi(a_base, a)
            prog.ldi(b_base, b)
            emit_product(prog, shape, c, c_dsr, a, a_dsr, a_base, b_base)
            stamps.store(1)
        prog.assemble()
        return prog
    axis_a = _Axis(prog, "a", sizes["a"], shape.dtype, column, buffers, shape.a_bank)
    axis_b = _Axis(prog, "b", sizes["b"], shape.dtype, row, buffers, None)
    step = prog.reg16("step")

    with prog.task("main"):
        stamps.store(0)
        axis_a.prepare()
        axis_b.prepare()
        prog.ldi(step, 0)
        prog.call("ask")

    with prog.function("ask"):
        mine = prog.reg16("mine")
        axis_a.ask(step, mine, prog.async_(activate="step"))
        axis_b.ask(step, mine, prog.async_(unblock="step"))

    axis_a.sent()
    axis_b.sent()

    with prog.task("step"):
        prog.block("step")
        a_base, b_base = prog.reg16("a base"), prog.reg16("b base")
        axis_a.find(a_base, step)
        axis_b.find(b_base, step)
        prog.add16(step, step, 1)
        if buffers == 2:
            axis_a.toggle()
            axis_b.toggle()
            with prog.if_("ne", step, p):
                prog.call("ask")
        emit_product(prog, shape, c, c_dsr, axis_a.own, a_dsr, a_base, b_base)
        if buffers == 2:
            with prog.if_("eq", step, p):
                stamps.store(1)
        else:
            with prog.if_("ne", step, p):
                prog.call("ask")
            with prog.else_():
                stamps.store(1)
    prog.blocked("step")
    prog.assemble()
    return prog


def _ends(p):
    """Return (end, first, count): the places along a side with p PEs that need code of their own."""
    return [place for place in (("first", 0, 1), ("inner", 1, p - 2), ("last", p - 1, 1)) if place[2] > 0][:p]


def programs(machine, p, m, k, n, dtype, buffers=1):
    """Return the programs by (place in the row, place in the column), assembled; arguments as `Gemm`.

    Raises
    ------
    ProgramError
        The tiles do not fit into a PE.
    """
    shape = tiles.shape_of(p, m, k, n, dtype)
    ends = [end for end, _, _ in _ends(p)]
    return {(column, row): program(shape, p, column, row, buffers, machine) for column in ends for row in ends}


class Gemm:
    """A matrix product laid out over PEs: fits the tiles, runs products, holds the reference.

    Parameters
    ----------
    machine : Machine
    p : int
    m, k, n : int
        A is m x k, B k x n.
    dtype : str
    buffers : {1, 2}
        Tiles of A and of B that can be received besides the own ones.
    where : str
        Who asks, for messages.

    Attributes
    ----------
    shape : Shape
    programs : dict[(str, str), Program]
        By place in the row and in the column.

    Raises
    ------
    ConfigError
        The tiles do not fit into a PE, or the PEs not onto the machine.
    """

    def __init__(self, machine, p, m, k, n, dtype, buffers=1, where="kernel gemm"):
        self.machine, self.p, self.m, self.k, self.n, self.dtype = machine, p, m, k, n, dtype
        self.given, self.single = common.Arithmetic.of(machine, dtype), common.Arithmetic.of(machine, "f32")
        self.shape = tiles.shape_of(p, m, k, n, dtype)
        limit = min(machine["fabric.width"], machine["fabric.height"])
        if p > limit:
            raise ConfigError(f"{p} x {p} PEs exceed the {machine['fabric.width']} x {machine['fabric.height']} of "
                              f"{machine.preset}", where=f"{where}: p", hint=f"at most {limit}", value=p)
        self.buffers = buffers

        def build(p, m, k, n):
            return programs(machine, p, m, k, n, dtype, buffers)

        ranges = {"m": (1, m), "k": (1, k), "n": (1, n), "p": (p, limit)}
        self.programs = common.fit(where, machine, build, {"p": p, "m": m, "k": k, "n": n}, ranges)

    @functools.cached_property
    def layout(self):
        """`Layout` with programs, routes and parameters; the same for every run."""
        p, layout = self.p, Layout(self.p, self.p, self.machine)
        ends = _ends(p)
        for row, y, h in ends:
            for column, x, w in ends:
                layout.place(self.programs[column, row], x, y, w, h)
        if p == 1:
            return layout
        for key, (color, _, _, low, high) in AXES.items():
            for end, at, count in ends:
                rect = (at, 0, count, p) if key == "a" else (0, at, p, count)
                layout.route(color, rect, rx="R" if end == "first" else low,
                             tx=high if end == "first" else "R" if end == "last" else high + "R",
                             switches={"rx": "R"} if end == "last" else {"tx": "R"}, pop="always_pop")
        place = np.arange(p)
        layout.set_param("px", np.broadcast_to(place, (p, p)).copy())
        layout.set_param("py", np.broadcast_to(place[:, np.newaxis], (p, p)).copy())
        return layout

    def padded(self, a, b):
        """Return A and B as bit patterns with the zeros that complete the tiles."""
        p, shape = self.p, self.shape
        return (tiles.pad(a, p * shape.rows, p * shape.depth), tiles.pad(b, p * shape.depth, p * shape.columns))

    def run(self, a, b, progress=None, cycle_limit=common.CYCLE_LIMIT):
        """Multiply on the fabric.

        Parameters
        ----------
        a, b : ndarray
            Bit patterns, shapes (m, k), (k, n).
        progress : callable, optional
            As `fabric.fabric.Fabric.run` takes it.
        cycle_limit : int
            Most cycles that the run may take.

        Returns
        -------
        session : Session
        c : ndarray[uint32]
            f32 bits, shape (m, n).
        """
        p, shape = self.p, self.shape
        a, b = self.padded(a, b)
        order = tiles.columns_first if shape.inner_k else tiles.rows_first
        session = common.Session(self.layout, [
            ("a", tiles.columns_first(tiles.tiles(a, p)), 0, 0), ("b", order(tiles.tiles(b, p)), 0, 0)],
            progress=progress, cycle_limit=cycle_limit)
        c = session.read("c", 0, 0, p, p).reshape(p, p, shape.columns, shape.rows)
        return session, c.transpose(0, 3, 1, 2).reshape(p * shape.rows, p * shape.columns)[:self.m, :self.n]

    def check(self, a, b, c):
        """Compare a result with the reference in the order of the PEs and with plain numpy; return a `Check`."""
        a_full, b_full = self.padded(a, b)
        zero = np.zeros((self.m, self.n), np.uint32)
        expected = tiles.multiply(self.given, self.single, a_full[:self.m], b_full[:, :self.n], zero)
        x, y = self.given.operand(a), self.given.operand(b)
        with np.errstate(invalid="ignore", over="ignore"):
            plain, magnitude = x @ y, np.abs(x) @ np.abs(y)
        return common.check_sum(self.single, c, expected, plain, magnitude, a_full.shape[1])

    @property
    def wavelets(self):
        """Wavelets of a tile of A and of a tile of B."""
        counts = self.shape.rows * self.shape.depth, self.shape.depth * self.shape.columns
        return tuple(-(-count // 2) if self.shape.words == 1 else count for count in counts)

    @property
    def hops(self):
        """Wavelet hops of a product."""
        p = self.p
        return p**3 * (sum(self.wavelets) + 2) + 2 * p**2 if p > 1 else 0

    @property
    def macs(self):
        """Multiply-adds of a product, those with zeros of the padding included."""
        return self.p**3 * self.shape.rows * self.shape.depth * self.shape.columns


def expected_cycles(product, machine):
    """Return the cycles of the formula in the module's head for a `Gemm`."""
    m = machine
    begin = m["ce.tsc_read"] + 3  # the reading and its three stores
    local = product_cycles(product.shape, m)
    if product.p == 1:
        return begin + 2 + local
    two = product.buffers == 2
    test = m["ce.load_latency"] + m["ce.branch_taken"]  # of a place that is not the PE's own
    find = test + 1 + two
    ask = test + 1 + m["ce.branch_taken"] + 1 + (2 * m["ce.dsr_edit"] if two else 0)
    around = (m["task.start"] + 1 + 2 * find + 1 + 2 * two  # block, find, count, toggle
              + 1 + m["ce.branch_not_taken"] + m["ce.call"] + 2 * ask + m["ce.ret"]
              + two + m["ce.branch_taken"] + 1)  # test for the end, or jump over it; done
    start = begin + 16 * m["ce.dsr_load"] + 1 + m["ramp.execute"] + m["ramp.out"] + m["router.hop"] + m["ramp.in"]
    return product.p * (local + sum(product.wavelets) + around) + start


@kernel("gemm", "matrix product over p x p PEs: SUMMA, one color per axis, routers turned by the PEs",
        "SUMMA: van de Geijn and Watts, 1997; the vendor's gemm-collectives_2d example", [
            KernelParam("p", 8, int, "PEs along each side", low=1),
            KernelParam("m", 128, int, "rows of A and C", low=1),
            KernelParam("k", 128, int, "columns of A, rows of B", low=1),
            KernelParam("n", 128, int, "columns of B and C", low=1),
            KernelParam("dtype", "f16", str, "format of A and B; sums are f32", ("f16", "cb16", "f32")),
            KernelParam("buffers", 1, int, "buffers for arriving tiles; 2: tiles arrive during the product", (1, 2)),
            *common.data_params(),
        ])
def gemm(machine, p, m, k, n, dtype, buffers, seed, data):
    """Run the kernel `gemm`; see the head of this module."""
    product = Gemm(machine, p, m, k, n, dtype, buffers)
    rng = np.random.default_rng(seed)
    a = product.given.random(rng, (m, k), data, terms=k)
    b = product.given.random(rng, (k, n), data, terms=4 * k)
    session, c = product.run(a, b)
    starts, stops = session.stamps(0, 0, p, p)
    shape = product.shape
    return common.report(
        session, product.check(a, b, c), (stops - starts).max(), expected_cycles=expected_cycles(product, machine),
        expected_hops=product.hops, expected_macs=product.macs, lanes=shape.lanes(machine), useful_macs=m * k * n,
        tile=f"{shape.rows} x {shape.depth} x {shape.columns}",
        product_cycles=product_cycles(shape, machine), arrays={"c": c})
