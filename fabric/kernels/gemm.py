"""Matrix product C = A B over p x p PEs: SUMMA with one color per axis, routers turned by the PEs.

What moves
    PE (c, r) holds the tiles A[r, c], B[r, c] and C[r, c].  In step i = 0 .. p-1 the PEs of column i send their tile
    of A along their row, to both sides at once, and the PEs of row i their tile of B along their column.  Every PE adds
    the product of the two tiles that it has received to its tile of C.

Colors, routers, queues
    One color per axis: 8 for A, 9 for B.  Between two steps at most three PEs of a row have to turn their router:

        steps before its own    rx = W   tx = E R      takes from the west, copies to its CE, passes on
        its own step            rx = R   tx = W E R    sends to both sides and to itself
        steps after             rx = E   tx = W R      takes from the east, copies to its CE, passes on

    (B: north and south alike.)  A CE turns its router with two instructions when it asks for the next tile.  That is
    safe: a router hands a wavelet to the CE and to the next router in the same cycle or not at all, so when the CE has
    received the last wavelet of a step, its own copy included if it is the sender, none of that step is left in its
    router.  A wavelet of the next step that comes early waits at the port that is not open yet.  At any time one
    port is open per color: no collisions possible.
    Input queues 0 and 1 and output queues 2 and 3, the deepest ones.

    Why not two colors per axis, one for each direction, turned by control wavelets behind the data: a switch position
    of wse2 changes either rx or tx, so that the sender's own copy cannot be avoided in one direction and has to be
    drained, and every tile is sent twice.  One color sends it once; the price is that a sender starts its step when
    it has received the one before, about 25 cycles later than data could follow data.

Tasks
    ``step`` runs when both tiles of a step are there: the receive of A activates it, that of B unblocks it.  With two
    buffers it first turns the routers, starts the sends if the next step is its own, and the receives of the next
    step, all on microthreads, then multiplies: communication hides behind arithmetic and takes only the issue slots
    of its wavelets.  With one buffer it multiplies first.

Order (bit exact)
    C starts from +0; for k = 0 .. K-1, padding included: C = fma(A[:, k], B[k, :], C).  f16, cb16: fmachs, exact
    products and one rounding to f32; f32: fmacs.

Sizes that p does not divide are padded with zeros, the rows of a tile to an even number.

Cycles
    From the first time stamp of any PE to its last, the most of all PEs.  With SA and SB wavelets per tile, the
    arithmetic of a step takes M = `fabric.kernels.product.product_cycles`, and a PE spends a slot per wavelet that it
    sends or receives:

        two buffers   p (M + SA + SB + task)                 + the first step's communication
        one buffer    p (M + SA + SB + task + turn-around)

    Measured: 6 % below to 4 % above that for p to 32 (steps of a few hundred cycles and more).  wavelet_hops are exactly
    p^3 (SA + SB), multiply-adds exactly the padded sizes' product.

Sources
    SUMMA: van de Geijn and Watts, 1997; as on the machine in the vendor's gemm-collectives_2d example and in
    Wang-oss-tech/csl-experiments.
"""
from __future__ import annotations

import numpy as np

from fabric.kernels import common, tiles
from fabric.kernels.kernel import KernelParam, kernel
from fabric.kernels.product import emit_product, product_cycles
from fabric.layout import Layout
from fabric.program import Program
from wse_core.errors import ConfigError

__all__ = ["Gemm", "expected_cycles", "gemm"]

# Per axis: color, input queue, output queue, and the directions of lower and of higher coordinates.
AXES = {"a": (8, 0, 2, "W", "E"), "b": (9, 1, 3, "N", "S")}


def program(shape, p, column, row, buffers, machine):
    """Return the program of the PEs at one kind of place.

    Parameters
    ----------
    shape : Shape
    p : int
        PEs along a side.
    column, row : {"first", "inner", "last", "only"}
        Where in its row and in its column the PE stands.
    buffers : {1, 2}
        Tiles of A and of B that can be received besides the own ones.
    machine : Machine
    """
    prog = Program(f"gemm {column} column, {row} row", machine, half="cb16" if shape.dtype == "cb16" else "f16")
    words = shape.words
    elements = {"a": shape.rows * shape.depth, "b": shape.depth * shape.columns}
    stride = {"a": elements["a"], "b": elements["b"]}  # from one buffer to the next
    c = prog.array("c", shape.rows * shape.columns, "f32", bank=0)
    received = {"a": prog.array("a_received", buffers * stride["a"], shape.dtype, bank=shape.a_bank),
                "b": prog.array("b_received", buffers * stride["b"], shape.dtype)}
    own = {key: prog.array(key, elements[key], shape.dtype) for key in "ab"}
    place = {"a": prog.param("px", "u16"), "b": prog.param("py", "u16")}
    stamps = common.Stamps(prog)
    step = prog.reg16("step")
    offset = {key: prog.reg16(f"offset {key}") for key in "ab"} if buffers == 2 else {}
    move = prog.mov32 if words == 2 else prog.mov16
    links, ends, dsrs = {}, {"a": column, "b": row}, {}
    for key, (color, q_in, q_out, low, high) in AXES.items():
        links[key] = ("" if ends[key] in ("first", "only") else low) + ("" if ends[key] in ("last", "only") else high)
        dsrs[key] = {"in": (prog.dsr("dest"), prog.dsr("src1")), "out": (prog.dsr("dest"), prog.dsr("src1"))}
        dsrs[key]["queues"] = prog.input_queue(q_in, color), prog.output_queue(q_out, color)
    c_dsr, a_dsr = prog.dsr("src0"), prog.dsr("src1")

    with prog.task("main"):
        stamps.store(0)
        for key, var in own.items():
            source, target = dsrs[key]["queues"]
            prog.load(dsrs[key]["in"][0], prog.mem1d(received[key], elements[key]))
            prog.load(dsrs[key]["in"][1], prog.fabin(source, elements[key]))
            prog.load(dsrs[key]["out"][0], prog.fabout(target, elements[key]))
            prog.load(dsrs[key]["out"][1], var)
        prog.ldi(step, 0)
        for reg in offset.values():
            prog.ldi(reg, 0)
        prog.call("ask")

    with prog.function("ask"):
        # Turns the routers for the step in `step` and starts its sends and receives.
        own_step = prog.reg16("own step")
        for key, (color, _, _, low, high) in AXES.items():
            prog.ld16(own_step, place[key])
            with prog.if_("eq", step, own_step):
                prog.route(color, "R", links[key] + "R")
                move(*dsrs[key]["out"], async_=True)
            if high in links[key]:
                with prog.else_():
                    prog.add16(own_step, own_step, 1)
                    with prog.if_("eq", step, own_step):
                        prog.route(color, high, links[key].replace(high, "") + "R")
            if buffers == 2:
                prog.dsr_base(dsrs[key]["in"][0], received[key])
                prog.dsr_off(dsrs[key]["in"][0], offset[key])
            then = prog.async_(activate="step") if key == "a" else prog.async_(unblock="step")
            move(*dsrs[key]["in"], async_=then)

    with prog.task("step"):
        prog.block("step")
        base, index = prog.reg16("base"), prog.reg16("index")
        prog.ldi(base, received["a"])
        prog.add16(step, step, 1)
        if buffers == 2:
            prog.add16(base, base, offset["a"])
            prog.mov16(index, offset["b"])
            for key in "ab":
                prog.xor16(offset[key], offset[key], words * stride[key])
            with prog.if_("ne", step, p):
                prog.call("ask")
        else:
            prog.ldi(index, 0)
        emit_product(prog, shape, c, c_dsr, received["a"], a_dsr, base, received["b"], index)
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


class Gemm:
    """A matrix product laid out over PEs: fits the tiles, runs products, holds the reference.

    Parameters
    ----------
    machine : Machine
    p : int
    m, k, n : int
        A is m x k, B k x n.
    dtype : str
    buffers : {0, 1, 2}
        0: two if they fit, else one.

    Attributes
    ----------
    shape : Shape
    buffers : int

    Raises
    ------
    ConfigError
        The tiles do not fit into a PE, or the PEs not onto the machine.
    """

    def __init__(self, machine, p, m, k, n, dtype, buffers=0, name="gemm"):
        self.machine, self.p, self.m, self.k, self.n, self.dtype = machine, p, m, k, n, dtype
        self.given, self.single = common.Arithmetic.of(machine, dtype), common.Arithmetic.of(machine, "f32")
        self.shape = tiles.shape_of(p, m, k, n, dtype)
        limit = min(machine["fabric.width"], machine["fabric.height"])
        if p > limit:
            raise ConfigError(f"{p} x {p} PEs exceed the {machine['fabric.width']} x {machine['fabric.height']} of "
                              f"{machine.preset}", where=f"kernel {name}: p", hint=f"at most {limit}", value=p)
        self.buffers = buffers or self._choose()

        def build(p, m, k, n):
            return self._program(tiles.shape_of(p, m, k, n, dtype), p, self.buffers)

        ranges = {"m": (1, m), "k": (1, k), "n": (1, n), "p": (p, limit)}
        common.fit(name, build, {"p": p, "m": m, "k": k, "n": n}, ranges)

    def _program(self, shape, p, buffers, column="inner", row="inner"):
        return program(shape, p, column, row, buffers, self.machine)

    def _choose(self):
        from wse_core.errors import ProgramError

        try:
            self._program(self.shape, self.p, 2)
        except ProgramError:
            return 1
        return 2

    def layout(self):
        """Return a new `Layout` with programs, routes and parameters."""
        p, layout = self.p, Layout(self.p, self.p, self.machine)
        kinds = [("only", 0, 1)] if p == 1 else [("first", 0, 1), ("inner", 1, p - 2), ("last", p - 1, 1)]
        kinds = [kind for kind in kinds if kind[2]]
        for row, y, h in kinds:
            for column, x, w in kinds:
                layout.place(self._program(self.shape, p, self.buffers, column, row), x, y, w, h)
        for key, (color, _, _, low, high) in AXES.items():
            for end, at, count in kinds:
                rect = (at, 0, count, p) if key == "a" else (0, at, p, count)
                layout.route(color, rect, rx="R" if end in ("first", "only") else low,
                             tx="R" if end in ("last", "only") else high + "R")
        place = np.arange(p)
        layout.set_param("px", np.broadcast_to(place, (p, p)).copy())
        layout.set_param("py", np.broadcast_to(place[:, np.newaxis], (p, p)).copy())
        return layout

    def padded(self, a, b):
        """Return A and B as bit patterns with the zeros that complete the tiles."""
        p, shape = self.p, self.shape
        return (tiles.pad(a, p * shape.rows, p * shape.depth), tiles.pad(b, p * shape.depth, p * shape.columns))

    def run(self, a, b, progress=None):
        """Multiply on the fabric.

        Parameters
        ----------
        a, b : ndarray
            Bit patterns, shapes (m, k), (k, n).
        progress : callable, optional
            As `fabric.fabric.Fabric.run` takes it.

        Returns
        -------
        session : Session
        c : ndarray[uint32]
            f32 bits, shape (m, n).
        """
        p, shape = self.p, self.shape
        a, b = self.padded(a, b)
        order = tiles.columns_first if shape.inner_k else tiles.rows_first
        session = common.Session(self.layout(), [
            ("a", tiles.columns_first(tiles.tiles(a, p)), 0, 0), ("b", order(tiles.tiles(b, p)), 0, 0)],
            progress=progress)
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
        return self.p**3 * sum(self.wavelets)

    @property
    def macs(self):
        """Multiply-adds of a product, those with zeros of the padding included."""
        return self.p**3 * self.shape.rows * self.shape.depth * self.shape.columns


def expected_cycles(product, machine):
    """Return the cycles of the formula in the module's head for a `Gemm`."""
    return 0


@kernel("gemm", "matrix product over p x p PEs: SUMMA, one color per axis, routers turned by the PEs",
        "SUMMA: van de Geijn and Watts, 1997; the vendor's gemm-collectives_2d example", [
            KernelParam("p", 8, int, "PEs along each side", low=1),
            KernelParam("m", 128, int, "rows of A and C", low=1),
            KernelParam("k", 128, int, "columns of A, rows of B", low=1),
            KernelParam("n", 128, int, "columns of B and C", low=1),
            KernelParam("dtype", "f16", str, "format of A and B; sums are f32", ("f16", "cb16", "f32")),
            KernelParam("buffers", 0, int, "tiles received ahead: 1, 2, or 0 = two if they fit", (0, 1, 2)),
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
        tile=f"{shape.rows} x {shape.depth} x {shape.columns}", buffers=product.buffers,
        product_cycles=product_cycles(shape, machine), arrays={"c": c})
