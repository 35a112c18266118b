"""Matrix-vector product y = A x over p x p PEs: broadcast, local product, chain reduce.

What moves
    PE (c, r) holds the tile A[r, c]; the chunk x[c] starts in row 0.  1. The PEs of row 0 send their chunks south; the
    routers copy them to every PE of the column.  2. Every PE multiplies its tile with its chunk.  3. The partial
    results of a row are added by a chain from east to west and end in column 0.

Colors and queues
    Color 4 for x (input and output queue 3); colors 0 and 1, by column parity, for the chain (input and output
    queue 2), as in `fabric.kernels.chain`.  Each color has one input per router: no collisions possible.  Row 0 sends
    x on a microthread while it multiplies.

Order (bit exact)
    Per tile acc = fma(A[:, k], x[k], acc) for k = 0, 1 ..., from +0; then s = acc of the last column;
    s = acc[c] + s for c = p-2 .. 0.  f16 and cb16 data: the products are exact and everything is summed in f32
    (fmachs); f32 data: fmacs.

Sizes that p does not divide are padded with zeros, the rows of a tile to an even number.

Cycles
    From the first time stamp to the latest last one in column 0, with X wavelets of x and tiles of mt x kt:

        cycles = start + X + (p-1) hop + ramps         the last row has its chunk
               + product(mt, kt)                       fabric.kernels.product
               + descriptors + mt + 6 (p-1)            chain of mt partial sums

    Row 0 multiplies and sends at once and is not the last unless p = 1.

Sources
    Pipeline reduce of WaferLLM's baseline GEMV (section 6); chain: Luczynski et al., HPDC 2024.
"""
from __future__ import annotations

import numpy as np

from fabric.kernels import chain, common, tiles
from fabric.kernels.kernel import KernelParam, kernel
from fabric.kernels.product import emit_product, product_cycles
from fabric.layout import Layout
from fabric.program import Program

__all__ = ["expected_cycles", "gemv"]

COLOR_X, QUEUE_X, QUEUE_SUM = 4, 3, 2


def program(shape, top, role, parity, machine, alone=False):
    """Return the program of the PEs of one kind.

    Parameters
    ----------
    shape : Shape
        With one column.
    top : bool
        Row 0: has x and sends it.
    role : {"first", "middle", "last", "only"}
        Place in the chain of the row.
    parity : int
        Of the column.
    machine : Machine
    alone : bool
        There is no other row.
    """
    p = Program(f"gemv {role}{' top' if top else ''}, {'odd' if parity else 'even'} column", machine,
                half="cb16" if shape.dtype == "cb16" else "f16")
    y = p.array("y", shape.rows, "f32", bank=0)
    a = p.array("a", shape.rows * shape.depth, shape.dtype, bank=shape.a_bank)
    x = p.array("x", shape.depth, shape.dtype)
    stamps = common.Stamps(p)
    total, column = p.dsr("src0"), p.dsr("src1")
    move = p.mov32 if shape.words == 2 else p.mov16
    if role in ("middle", "last"):
        arriving = p.fabin(p.input_queue(QUEUE_SUM, chain.COLORS[1 - parity]), shape.rows)
    if role in ("first", "middle"):
        leaving = p.fabout(p.output_queue(QUEUE_SUM, chain.COLORS[parity]), shape.rows)
    with p.task("main"):
        stamps.store(0)
        if top and not alone:
            move(p.fabout(p.output_queue(QUEUE_X, COLOR_X), shape.depth), x, async_=True)
        elif not top:
            move(x, p.fabin(p.input_queue(QUEUE_X, COLOR_X), shape.depth))
        a_base, x_base = p.reg16("a base"), p.reg16("x base")
        p.ldi(a_base, a)
        p.ldi(x_base, x)
        emit_product(p, shape, y, total, a, column, a_base, x_base)
        if role == "first":
            p.mov32(leaving, y)
        elif role == "middle":
            p.fadds(leaving, y, arriving)
        elif role == "last":
            p.fadds(y, y, arriving)
        stamps.store(1)
    p.assemble()
    return p


def gemv_layout(p, m, n, dtype, machine):
    """Return the `Layout` and the `Shape` of the tiles."""
    layout = Layout(p, p, machine)
    shape = tiles.shape_of(p, m, n, 1, dtype)

    def build(p, m, n):
        found = tiles.shape_of(p, m, n, 1, dtype)
        return [(program(found, top, role, parity, machine, p == 1), (x, 0 if top else 1, w, 1 if top else p - 1, 2, 1))
                for role, parity, x, w in chain.chain_places(p) for top in (True, False)[:p]]

    limit = min(machine["fabric.width"], machine["fabric.height"])
    for placed, rect in common.fit("kernel gemv", machine, build, {"p": p, "m": m, "n": n},
                                   {"m": (1, m), "n": (1, n), "p": (p, limit)}):
        layout.place(placed, rect)
    for x in (1, 2):
        if x < p:
            layout.route(chain.COLORS[x % 2], (x, 0, p - x, p, 2, 1), rx="R", tx="W")
    for x in (0, 1):
        if x < p - 1:
            layout.route(chain.COLORS[1 - x % 2], (x, 0, p - 1 - x, p, 2, 1), rx="E", tx="R")
    if p > 1:
        layout.route(COLOR_X, (0, 0, p, 1), rx="R", tx="S")
        layout.route(COLOR_X, (0, 1, p, p - 1), rx="N", tx="SR")
        layout.route(COLOR_X, (0, p - 1, p, 1), rx="N", tx="R")
    return layout, shape


def expected_cycles(p, shape, machine):
    """Return the cycles of the formula in the module's head."""
    m = machine
    begin = m["ce.tsc_read"] + 3  # the reading and its three stores
    local = 2 + product_cycles(shape, m)
    if p == 1:
        return begin + local
    issue = 1 + m["vec.start"]
    ready = begin + 2 * m["ce.dsr_load"] + issue
    wavelets = -(-shape.depth // 2) if shape.words == 1 else shape.depth
    ramps = m["ramp.execute"] + m["ramp.out"] + m["ramp.in"]
    has_x = ready + (p - 1) * m["router.hop"] + ramps + wavelets + m["vec.drain"]
    first = has_x + local + 2 * m["ce.dsr_load"] + issue
    for k in range(p - 1):
        own = has_x + local + (2 if k == p - 2 else 3) * m["ce.dsr_load"] + issue
        first = max(first + chain.stage_cycles(m), own)
    return first + shape.rows + m["vec.drain"]


@kernel("gemv", "matrix-vector product over p x p PEs: broadcast, local product, chain reduce",
        "pipeline GEMV as in WaferLLM, section 6; chain reduce: Luczynski et al., HPDC 2024", [
            KernelParam("p", 8, int, "PEs along each side", low=1),
            KernelParam("m", 512, int, "rows of A", low=1),
            KernelParam("n", 512, int, "columns of A", low=1),
            KernelParam("dtype", "f16", str, "format of A and x; sums are f32", ("f16", "cb16", "f32")),
            *common.data_params(),
        ])
def gemv(machine, p, m, n, dtype, seed, data):
    """Run the kernel `gemv`; see the head of this module."""
    layout, shape = gemv_layout(p, m, n, dtype, machine)
    given, single = common.Arithmetic.of(machine, dtype), common.Arithmetic.of(machine, "f32")
    rng = np.random.default_rng(seed)
    a = given.random(rng, (m, n), data, terms=n)
    x = given.random(rng, (n, 1), "ones" if data == "ones" else "normal")  # one NaN here would be in every result
    rows, depth = p * shape.rows, p * shape.depth
    a_full, x_full = tiles.pad(a, rows, depth), tiles.pad(x, depth, 1)
    session = common.Session(layout, [
        ("a", tiles.columns_first(tiles.tiles(a_full, p)), 0, 0), ("x", x_full.reshape(1, p, shape.depth), 0, 0)])
    y = session.read("y", 0, 0, 1, p).reshape(-1)[:m]

    parts = []
    for c in range(p):
        at = slice(c * shape.depth, (c + 1) * shape.depth)
        zero = np.zeros((rows, 1), np.uint32)
        parts.append(tiles.multiply(given, single, a_full[:, at], x_full[at], zero)[:m, 0])
    expected = common.sequential_sum(single, parts)
    a_values, x_values = given.operand(a), given.operand(x)[:, 0]
    with np.errstate(invalid="ignore", over="ignore"):
        plain, magnitude = a_values @ x_values, np.abs(a_values) @ np.abs(x_values)
    roundings = shape.depth + p - 1
    check = common.check_sum(single, y, expected, plain, magnitude, roundings, depth + p - 1)
    wavelets = -(-shape.depth // 2) if shape.words == 1 else shape.depth
    starts, stops = session.stamps(0, 0, p, p)
    return common.report(
        session, check, stops[:, 0].max() - starts.min(), expected_cycles=expected_cycles(p, shape, machine),
        expected_hops=(p * p * wavelets + 2 * (p - 1) * p * shape.rows) if p > 1 else 0,
        expected_macs=p * p * shape.rows * shape.depth, lanes=shape.lanes(machine), useful_macs=m * n,
        tile=f"{shape.rows} x {shape.depth}", product_cycles=product_cycles(shape, machine), arrays={"y": y})
