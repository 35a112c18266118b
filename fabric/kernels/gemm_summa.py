"""SUMMA: C = A B by broadcasts along rows and columns, one color per axis, routers turned by the PEs.

What moves
    A PE holds L/W tiles of A, L/H of B (one each on a square mesh) and its tile of C.  In step i = 0 .. L-1 the PEs of
    the column that has slice i of A send that tile along their row, to both sides at once, and the PEs of the row that
    has slice i of B theirs along their column.  Every PE adds the product of the two tiles of the step to its tile of
    C; a sender uses its own tile where it lies.

Colors, routers, queues
    One color per axis, 8 for A and 9 for B; input queues 0 and 1, output queues 2 and 3.  Along a row:

        steps before its own    rx = W   tx = E R    takes from the west, copies to its CE, passes on
        its own step            rx = R   tx = W E    sends to both sides; in switch position 1  tx = W E R
        steps after             rx = E   tx = W R    takes from the east, copies to its CE, passes on

    (B: north and south alike.)  A CE turns its router when it asks for the next tile, and must know that nothing of the
    step before is still to come through.  The control wavelet behind a tile (`advance_switch`) puts the sender's router,
    and no other since it is popped there, into position 1; the *token* sent after it goes to the others and to the
    sender's own CE.  It is the last wavelet of a step, and a router gives a wavelet to the next router and to its CE in
    the same cycle or not at all: who has the token can turn.  A wavelet of the next step that comes early waits at a
    port that is not open yet.  Each color has one open port per router at any time: no collisions possible.

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

Cycles
    From the first to the last time stamp of a PE, the most of all PEs.  With SA and SB wavelets per tile, M cycles for
    the product of two tiles (`fabric.kernels.product`) and I for the instructions of a step, from the tokens of a step
    to those of the next:

        cycles = L (M + SA + SB + I) + start          (more than one PE)

    I is about 90 on wse2, of which 2 `ce.config` are the sender's; within 2 % of the measurement for steps of 500 cycles
    and more, 10 % for the smallest tiles.
    Broadcasts follow one another without waiting: the way of n-1 hops is paid once, not per step.

    Exactly: wavelet_hops = L W H ((SA + 2) [W > 1] + (SB + 2) [H > 1]) with the control wavelets and tokens.

Sources
    SUMMA: van de Geijn and Watts, 1997; on the machine in the vendor's gemm-collectives_2d example and in
    Wang-oss-tech/csl-experiments.
"""
from __future__ import annotations

import functools

import numpy as np

from fabric.kernels import common
from fabric.kernels.gemm_base import Product
from fabric.kernels.product import emit_product, product_cycles
from fabric.layout import Layout
from fabric.program import Program

__all__ = ["AXES", "BroadcastAxis", "Summa", "slot_elements"]

AXES = {"a": (8, 0, 2, "W", "E"), "b": (9, 1, 3, "N", "S")}
"""Per axis: color, input queue, output queue, and the directions of lower and of higher coordinates."""
SENDING, TOKEN = 0, 1  # switch positions; position 0 is also that of receiving


def slot_elements(elements):
    """Return the room for a tile that is received: whole wavelets of two elements, and one for the token behind it."""
    return elements + elements % 2 + 2


class BroadcastAxis:
    """What a PE needs for the tiles of one matrix: variables, descriptors, and the code that asks for a tile.

    Parameters
    ----------
    p : Program
    key : {"a", "b"}
    elements : int
        Of a tile.
    dtype : str
    end : {"first", "inner", "last", "alone"}
        Place of the PE along the axis.
    held : int
        Tiles that the PE holds; it sends them in consecutive steps.
    buffers : int
        Tiles that can be received.
    bank : int or None
        In which a tile has to begin.
    """

    def __init__(self, p, key, elements, dtype, end, held, buffers, bank):
        self.p, self.key, self.elements, self.held, self.buffers, self.end = p, key, elements, held, buffers, end
        self.color, q_in, q_out, self.low, self.high = AXES[key]
        self.move = p.mov32 if dtype == "f32" else p.mov16
        self.offset = None
        self.slot = slot_elements(elements)
        self.declare(elements, dtype, bank)
        self.words = elements * self.own.words_per_element
        if end == "alone":
            return
        self.place = p.param(f"p{'x' if key == 'a' else 'y'}", "u16")
        self.token = p.scalar(f"{key}_token", dtype)
        self.into, self.out = p.input_queue(q_in, self.color), p.output_queue(q_out, self.color)
        self.links = ("" if end == "first" else self.low) + ("" if end == "last" else self.high)
        self.dsrs = {name: (p.dsr("dest", name=f"{key} {name} to"), p.dsr("src1", name=f"{key} {name} from"))
                     for name in ("receive", "send", "token out", "token in")}
        self.offset = p.reg16(f"{key} offset") if buffers > 1 else None

    def declare(self, elements, dtype, bank):
        """Declare the tiles: those of the PE, and places for those that arrive."""
        p = self.p
        self.own = p.array(self.key, self.held * elements, dtype, bank=bank)
        self.received = None
        if self.end != "alone":
            self.received = p.array(f"{self.key}_received", self.buffers * self.slot, dtype, bank=bank)
        self.at = p.scalar(f"{self.key}_at", "u16") if self.held > 1 else None

    def prepare(self):
        """Load all descriptors; in the task that begins."""
        p, n = self.p, self.elements
        if self.at is not None:
            first = p.reg16("first")
            p.ldi(first, self.own)
            p.st16(first, self.at)
            p.free(first)
        if self.end == "alone":
            return
        whole = n + 1 if self.move == p.mov32 else self.slot  # the token that follows goes behind the tile
        pairs = {"receive": (p.mem1d(self.received, whole), p.fabin(self.into, whole)),
                 "send": (p.fabout(self.out, n, advance_switch=True), p.mem1d(self.own, n)),
                 "token out": (p.fabout(self.out, 1), self.token), "token in": (self.token, p.fabin(self.into, 1))}
        for name, pair in pairs.items():
            for dsr, dsd in zip(self.dsrs[name], pair, strict=True):
                p.load(dsr, dsd)
        if self.offset is not None:
            p.ldi(self.offset, 0)

    def ask(self, step, mine, limit, **then):
        """Turn the router for the step in register `step` and start what the PE does in it; `then` when it is done.

        `mine` and `limit` are registers of the function that is being written.
        """
        p, high = self.p, self.high
        if self.end == "alone":
            p.activate(then["activate"]) if "activate" in then else p.unblock(then["unblock"])
            return
        done = p.async_(**then)
        p.ld16(mine, self.place)
        if self.held > 1:
            p.sub16(mine, step, mine)  # steps since the PE's first one
            p.ldi(limit, self.held)
        with p.if_("eq", step, mine) if self.held == 1 else p.if_("ltu", mine, limit):
            p.route(self.color, "R", self.links, SENDING)
            p.route(self.color, "R", self.links + "R", TOKEN)
            if self.held > 1:
                p.sw_pos(self.color, SENDING)
            self.choose_sent(mine)
            self.move(*self.dsrs["send"], activate=f"{self.key} sent", async_=True)
            self.move(*self.dsrs["token in"], async_=done)
        with p.else_():
            if self.end != "last":
                if self.held == 1:
                    p.add16(mine, mine, 1)
                with p.if_("eq", step, mine) if self.held == 1 else p.if_("eq", mine, limit):
                    p.route(self.color, high, self.links.replace(high, "") + "R")
                    p.sw_pos(self.color, 0)
            self.choose_received()
            self.move(*self.dsrs["receive"], async_=done)

    def choose_sent(self, since):
        """Point the descriptor at the tile to send; `since` is free."""
        if self.held > 1:
            self.p.ld16(since, self.at)
            self.p.dsr_base(self.dsrs["send"][1], since)

    def choose_received(self):
        """Point the descriptor at the place of the tile to receive."""
        if self.offset is not None:
            self.p.dsr_base(self.dsrs["receive"][0], self.received)
            self.p.dsr_off(self.dsrs["receive"][0], self.offset)

    def sent(self):
        """Write the task that runs when the own tile has been handed over: the token follows the tile."""
        if self.end != "alone":
            with self.p.task(f"{self.key} sent"):
                self.move(*self.dsrs["token out"], async_=True)

    def find(self, base, step):
        """Set register `base` to the word address of the tile of the step in register `step`."""
        p = self.p
        if self.end == "alone":
            self.take_own(base)
            return
        p.ld16(base, self.place)
        if self.held > 1:
            p.sub16(base, step, base)
        with p.if_("eq", step, base) if self.held == 1 else p.if_("ltu", base, self.held):
            self.take_own(base)
        with p.else_():
            p.ldi(base, self.received)
            if self.offset is not None:
                p.add16(base, base, self.offset)

    def take_own(self, base):
        """Set register `base` to the address of the PE's next own tile."""
        p = self.p
        if self.at is None:
            p.ldi(base, self.own)
        else:
            p.ld16(base, self.at)
            p.add16(base, base, self.words)
            p.st16(base, self.at)
            p.sub16(base, base, self.words)

    def toggle(self):
        """Let the next tile go into the other buffer."""
        if self.offset is not None:
            self.p.xor16(self.offset, self.offset, self.slot * self.own.words_per_element)


class Summa(Product):
    """A product by SUMMA; see `gemm_base.Product` and the head of this module.

    Parameters
    ----------
    buffers : {1, 2}
        Tiles of A and of B that can be received besides the own ones.
    """

    algorithm = "summa"

    def __init__(self, machine, width, height, m, k, n, dtype, sums="f32", buffers=1, where="kernel gemm"):
        self.buffers = buffers
        super().__init__(machine, width, height, m, k, n, dtype, sums, where)

    def ends(self, key):
        """Return (end, first, count): the places along an axis that need code of their own."""
        n = self.width if key == "a" else self.height
        if n == 1:
            return [("alone", 0, 1)]
        return [place for place in (("first", 0, 1), ("inner", 1, n - 2), ("last", n - 1, 1)) if place[2] > 0]

    @property
    def held(self):
        """Tiles of A and of B that a PE holds."""
        return self.slices // self.width, self.slices // self.height

    def build(self):
        """Return the programs by (place in the row, place in the column), assembled."""
        return {(column[0], row[0]): self.program(column[0], row[0])
                for column in self.ends("a") for row in self.ends("b")}

    def program(self, column, row):
        """Return the program of the PEs at one kind of place in their row and in their column."""
        shape, two = self.shape, self.buffers == 2
        p = Program(f"{self.algorithm} {column} column, {row} row", self.machine,
                    half="cb16" if self.dtype == "cb16" else "f16")
        c = p.array("c", shape.rows * shape.columns, shape.c_dtype, bank=0)
        stamps = common.Stamps(p)
        c_dsr, a_dsr = p.dsr("src0"), p.dsr("src1")
        a = BroadcastAxis(p, "a", self.elements[0], self.dtype, column, self.held[0], self.buffers, shape.a_bank)
        b = BroadcastAxis(p, "b", self.elements[1], self.dtype, row, self.held[1], self.buffers, None)
        if self.slices == 1:
            with p.task("main"):
                stamps.store(0)
                a_base, b_base = p.reg16("a base"), p.reg16("b base")
                a.find(a_base, None)
                b.find(b_base, None)
                emit_product(p, shape, c, c_dsr, a.own, a_dsr, a_base, b_base)
                stamps.store(1)
            p.assemble()
            return p
        step = p.reg16("step")

        with p.task("main"):
            stamps.store(0)
            a.prepare()
            b.prepare()
            p.ldi(step, 0)
            p.call("ask")

        self.write_ask(p, step, a, b)

        with p.task("step"):
            p.block("step")
            a_base, b_base = p.reg16("a base"), p.reg16("b base")
            a.find(a_base, step)
            b.find(b_base, step)
            p.add16(step, step, 1)
            if two:
                a.toggle()
                b.toggle()
                with p.if_("ne", step, self.slices):
                    p.call("ask")
            emit_product(p, shape, c, c_dsr, a.own, a_dsr, a_base, b_base)
            if two:
                with p.if_("eq", step, self.slices):
                    stamps.store(1)
            else:
                with p.if_("ne", step, self.slices):
                    p.call("ask")
                with p.else_():
                    stamps.store(1)
        p.blocked("step")
        p.assemble()
        return p

    def write_ask(self, p, step, a, b):
        """Write the function ``ask`` for the step in register `step`, and the tasks that belong to it."""
        with p.function("ask"):
            mine = p.reg16("mine")
            limit = p.reg16("limit") if max(self.held) > 1 else None
            a.ask(step, mine, limit, activate="step")
            b.ask(step, mine, limit, unblock="step")
        a.sent()
        b.sent()

    @functools.cached_property
    def layout(self):
        """`Layout` with programs, routes and parameters; the same for every run."""
        w, h = self.width, self.height
        layout = Layout(w, h, self.machine)
        for row, y, count_y in self.ends("b"):
            for column, x, count_x in self.ends("a"):
                layout.place(self.programs[column, row], x, y, count_x, count_y)
        for key, size, held in (("a", w, self.held[0]), ("b", h, self.held[1])):
            if size == 1:
                continue
            color, _, _, low, high = AXES[key]
            for end, at, count in self.ends(key):
                rect = (at, 0, count, h) if key == "a" else (0, at, w, count)
                layout.route(color, rect, rx="R" if end == "first" else low,
                             tx=high if end == "first" else "R" if end == "last" else high + "R",
                             switches=[{"rx": "R"} if end == "last" else {"tx": "R"}], pop="always_pop")
            place = held * np.arange(size)
            layout.set_param(f"p{'x' if key == 'a' else 'y'}",
                             np.broadcast_to(place if key == "a" else place[:, np.newaxis], (h, w)).copy())
        return layout

    def inputs(self, a, b):
        """Return what the host writes; see `common.Session`."""
        a, b = self.cut(a, b)
        (w, h), (held_a, held_b) = (self.width, self.height), self.held
        return [("a", a.reshape(h, w, held_a * a.shape[-1]), 0, 0),
                ("b", b.reshape(h, held_b, w, -1).swapaxes(1, 2).reshape(h, w, -1), 0, 0)]

    @property
    def hops(self):
        """Wavelet hops of a product."""
        w, h, steps = self.width, self.height, self.slices
        return sum(steps * w * h * (wavelets + 2) for wavelets, size in zip(self.wavelets, (w, h), strict=True)
                   if size > 1)

    def ask_cycles(self):
        """Return the cycles from the call of ``ask`` until both tiles and their tokens are there.

        Two ways through a step.  A PE that takes both tiles goes through ``ask`` and takes the wavelets, one slot each.
        A PE that sends one of them turns its router, sends, and starts a task for the token; the way to the others
        follows.  (One PE sends both, but those that wait for it wait for no other such PE in the next step.)
        """
        m = self.machine
        axes = [(wavelets, held > 1) for wavelets, held, size in
                zip(self.wavelets, self.held, (self.width, self.height), strict=True) if size > 1]
        edits = 2 * m["ce.dsr_edit"] if self.points else 0
        ends = m["ce.ret"] + m["ce.branch_taken"] + 1 + 2 - len(axes) + sum(count for count, _ in axes)
        taken = sum(m["ce.load_latency"] + 2 * m["ce.branch_taken"] + 2 + 2 * several + edits + 1 for _, several in axes)
        sent = sum(m["ce.load_latency"] + m["ce.branch_not_taken"] + 2 + 4 * several
                   + edits + m["ce.branch_taken"] + m["task.start"] + 2 for _, several in axes)
        sent += max((2 + several) * m["ce.config"] for _, several in axes)
        way = m["ramp.execute"] + m["ramp.out"] + m["router.hop"] + m["ramp.in"]
        return ends + max(taken, sent + way)

    points = property(lambda self: self.buffers > 1, doc="Whether the descriptors of tiles are edited in every step.")

    def expected(self):
        """Return the cycles of the formula in the module's head."""
        m = self.machine
        begin = m["ce.tsc_read"] + 3  # the reading and its three stores
        local = product_cycles(self.shape, m)
        if self.slices == 1:
            return begin + 2 + local
        two = self.buffers == 2
        own = m["ce.load_latency"] + 2 + 3 + m["ce.branch_not_taken"]  # a sender of several tiles finds its next one
        find = sum(m["ce.load_latency"] + m["ce.branch_taken"] + 1 + two + own * (held > 1) if size > 1 else 5
                   for held, size in zip(self.held, (self.width, self.height), strict=True))
        around = (m["task.start"] + 1 + find + 1 + 2 * two  # block, find, count, toggle
                  + 1 + m["ce.branch_not_taken"] + m["ce.call"] + self.ask_cycles() + two)
        start = begin + 8 * ((self.width > 1) + (self.height > 1)) * m["ce.dsr_load"] + 2 * m["ce.config"] * (min(self.width, self.height) > 1)
        return self.slices * (local + around) + start
