"""This is the program of a PE with a tile of a layer's matrix.

A *turn* is a minibatch's way forward and, `Tile.delay` turns after its own, its way back: the inputs of the
minibatches between are kept in a ring.  Turns follow one another by task activation; nothing but what arrives decides
when they run.

What moves
    Inputs come from north and west, 16 bits, two a wavelet; the router lets only the features of this column down to
    the CE (a counter filter), so that a whole rectangle is fed at one wavelet per cycle.  They land beside the running
    turn.  Sums of a row go east, f32, from PE to PE; gradients of a row's outputs come from the east to all its PEs;
    sums of a column's input gradients go north.

Order (bit exact)
    Sums over input features: in a PE from the bias (column 0) or 0, feature by feature, then west to east.  Sums over
    output features: in a PE feature by feature, then south to north.  Gradients of weights: sample by sample, from one
    minibatch of a batch to the next.

Queues
    In: 0 inputs, 1 sums from the west, 2 gradients of outputs, 3 sums from the south.  Out: 2 east, 3 north, 4 asks for
    the next minibatch (one PE of layer 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from fabric.asm.operands import Reg
from fabric.networks.pipelined.colors import DELTA, EAST, NORTH
from fabric.networks.pipelined.products import VectorArray, accumulate
from fabric.networks.pipelined.tile import WRITTEN, Tile
from fabric.networks.pipelined.updates import CONSTANTS, Rule, UpdateCode
from fabric.program.program import Program
from wse_core.formats import Half
from wse_core.params import Machine

__all__ = ["MatrixPlace", "matrix_program"]


@dataclass(frozen=True)
class MatrixPlace:
    """A `MatrixPlace` tells the programs of a rectangle's tiles apart.

    Attributes
    ----------
    west, south : bool
        First of its row; first of its column (sums go north).
    column_parity, row_parity : int
    arriving : int
        Input features of a sample that there are for this column.
    asks : bool
        Asks for minibatches.
    """

    west: bool
    south: bool
    column_parity: int
    row_parity: int
    arriving: int
    asks: bool


@lru_cache(maxsize=WRITTEN)
def matrix_program(
    tile: Tile,
    place: MatrixPlace,
    inputs_color: int,
    asking: int | None,
    rule: Rule,
    updates: int,
    machine: Machine,
    half: Half,
) -> Program:
    """Return the program of a tile.

    Parameters
    ----------
    tile : Tile
    place : MatrixPlace
    inputs_color, asking : int
        Of what arrives; of the wavelets that ask for minibatches.
    rule : Rule
    updates : int
        Of a run, at most.
    machine : Machine
    half : {"f16", "cb16"}
    """
    return _Matrix(tile, place, inputs_color, asking, rule, updates, machine, half).p


class _Matrix:
    """The program of a tile has these variables and tasks."""

    def __init__(
        self,
        tile: Tile,
        place: MatrixPlace,
        inputs_color: int,
        asking: int | None,
        rule: Rule,
        updates: int,
        machine: Machine,
        half: Half,
    ) -> None:
        self.tile, self.place = tile, place
        self.p = p = Program(f"tile {tile.outputs} x {tile.inputs}, {place}", machine, half=half)
        n, batch = tile.outputs, tile.batch
        self.count = {name: p.param(name, "u16") for name in ("minibatches", "training", "per_update")}
        self.forwards, self.backwards, self.since = (
            p.scalar(name, "u16") for name in ("forwards", "backwards", "since_update")
        )
        self.held, self.most_held = p.scalar("held", "u16"), p.scalar("most_held", "u16")
        self.landing, self.oldest = p.scalar("landing", "u16"), p.scalar("oldest", "u16")
        self.rate_at = p.scalar("rate_at", "u16")
        self.table = p.array("rates", len(CONSTANTS) * updates, "f32")
        self.w, self.g = p.array("w", tile.matrix, "f32", bank=0), p.array("g", tile.matrix, "f32", bank=0)
        self.a = p.array("a", tile.matrix, "half", bank=1)
        self.slot = tile.inputs * batch
        self.x = p.array("x", tile.slots * self.slot, "half")
        self.z = p.array("z", n * batch, "f32", bank=0)
        self.delta = p.array("delta", n * batch, "half", bank=1)
        self.dx = None if tile.first else p.array("dx", self.slot, "f32", bank=0)
        self.sums, self.factors = p.dsr("src0"), p.dsr("src1")
        self.lands, self.starts = p.dsr("dest"), p.dsr("dest")
        self.update = UpdateCode(p, rule, n, self.w, self.g, self.a, self.table, self.rate_at)
        if place.arriving:
            self.arriving = p.input_queue(0, inputs_color)
        if not place.west:
            self.from_west = p.input_queue(1, EAST[1 - place.column_parity])
        self.east = p.output_queue(2, EAST[place.column_parity])
        self.from_east = p.input_queue(2, DELTA)
        if not tile.first:
            if not place.south:
                self.from_south = p.input_queue(3, NORTH[1 - place.row_parity])
            self.north = p.output_queue(3, NORTH[place.row_parity])
        if asking is not None:
            self.ask = p.output_queue(4, asking)
        self.tasks()
        p.assemble()

    def tasks(self) -> None:
        p, c = self.p, self.count
        with p.task("begin"):
            at = p.reg16("at")
            p.ldi(at, 0)
            for var in (self.forwards, self.backwards, self.since, self.held, self.most_held):
                p.st16(at, var)
            for var, place in ((self.landing, self.x), (self.oldest, self.x), (self.rate_at, self.table)):
                p.ldi(at, place)
                p.st16(at, var)
            tile = self.tile
            if self.place.arriving == tile.inputs:
                p.load(self.lands, p.mem1d(self.x, self.slot))
            elif self.place.arriving:
                p.load(self.lands, p.mem4d(self.x, (tile.batch, self.place.arriving), (tile.inputs, 1)))
            self.update.prepare()
            self.receive()
            p.activate("turn")
        with p.task("turn"):
            done, count = p.reg16("done"), p.reg16("count")
            p.ld16(done, self.forwards)
            p.ld16(count, c["minibatches"])
            with p.if_("eq", done, count):
                p.activate("back")
            with p.else_():
                p.activate("forward")
        with p.task("forward"):
            self.forward()
        with p.task("back"):
            self.back()

    # --- forward ------------------------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Emit the receipt of a minibatch into the landing place, beside what the main thread does."""
        p = self.p
        if self.place.asks:
            p.mov32(p.fabout(self.ask, 1, dtype="u32"), 0)
        if self.place.arriving:
            extent = self.tile.batch * self.place.arriving
            p.fmovh(self.lands, p.fabin(self.arriving, extent), async_=True)

    def advance(self, register: Reg) -> None:
        """Emit the step of an address to the next place of the ring."""
        p = self.p
        end = p.reg16("end")
        p.add16(register, register, self.slot)
        p.ldi(end, self.x)
        p.add16(end, end, self.x.count)
        with p.if_("geu", register, end):
            p.ldi(register, self.x)
        p.free(end)

    def forward(self) -> None:
        """Emit a minibatch's way forward."""
        p, tile, n = self.p, self.tile, self.tile.outputs
        at, following, done, count = (p.reg16(name) for name in ("inputs", "next", "done", "count"))
        p.ld16(at, self.landing)
        p.mov16(following, at)
        self.advance(following)
        p.st16(following, self.landing)
        if self.place.arriving:
            p.dsr_base(self.lands, following)  # waits until the minibatch before has landed
        p.ld16(done, self.forwards)
        p.ld16(count, self.count["minibatches"])
        p.add16(done, done, 1)
        p.st16(done, self.forwards)
        with p.if_("ltu", done, count):
            self.receive()
        self.hold()
        p.free(following, done, count)
        if tile.layer.bias and self.place.west:
            p.load(self.starts, p.mem1d(self.z, n, save=True))
            with p.loop(tile.batch):
                p.fh2s(self.starts, p.mem1d(self.a, n, offset=n * tile.inputs))
        else:
            p.mov32(self.z, 0)
        accumulate(
            p,
            (self.sums, self.factors),
            n,
            VectorArray(self.z, n),
            VectorArray(self.a, n),
            (tile.batch, tile.inputs),
            at,
            (tile.inputs, 1),
        )
        p.free(at)
        out = p.fabout(self.east, self.z.count, dtype="f32")
        if self.place.west:
            p.mov32(out, self.z)
        else:
            p.fadds(out, self.z, p.fabin(self.from_west, self.z.count, dtype="f32"))
        self.next()

    def hold(self) -> None:
        """Emit the count of one more minibatch whose inputs are kept."""
        p = self.p
        held, most = p.reg16("held"), p.reg16("most")
        p.ld16(held, self.held)
        p.ld16(most, self.most_held)
        p.add16(held, held, 1)
        p.st16(held, self.held)
        with p.if_("gtu", held, most):
            p.st16(held, self.most_held)
        p.free(held, most)

    def next(self) -> None:
        """Emit what decides between a way back, the next turn and the end."""
        p, c = self.p, self.count
        training, done, back = p.reg16("training"), p.reg16("done"), p.reg16("back")
        p.ld16(training, c["training"])
        p.ld16(done, self.forwards)
        with p.if_("eq", training, 0):
            p.st16(training, self.held)
            count = p.reg16("count")
            p.ld16(count, c["minibatches"])
            with p.if_("ltu", done, count):
                p.activate("turn")
            p.free(count)
        with p.else_():
            p.ld16(back, self.backwards)
            p.sub16(done, done, back)
            with p.if_("gtu", done, self.tile.delay):
                p.activate("back")
            with p.else_():
                p.activate("turn")
        p.free(training, done, back)

    # --- back ---------------------------------------------------------------------------------------------------------

    def back(self) -> None:
        """Emit a minibatch's way back."""
        p, tile, n, batch = self.p, self.tile, self.tile.outputs, self.tile.batch
        p.fmovh(self.delta, p.fabin(self.from_east, n * batch))
        at = p.reg16("scalars")
        if self.dx is not None:
            p.mov32(self.dx, 0)
            p.ldi(at, self.delta)
            accumulate(
                p,
                (self.sums, self.factors),
                tile.inputs,
                VectorArray(self.dx, tile.inputs),
                VectorArray(self.a, 1, n),
                (batch, n),
                at,
                (n, 1),
            )
            out = p.fabout(self.north, self.dx.count, dtype="f32")
            if self.place.south:
                p.mov32(out, self.dx)
            else:
                p.fadds(out, self.dx, p.fabin(self.from_south, self.dx.count, dtype="f32"))
        p.ld16(at, self.oldest)
        following = p.reg16("next")
        p.mov16(following, at)
        self.advance(following)
        p.st16(following, self.oldest)
        p.free(following)
        self.gradients(at)
        p.free(at)
        done, count = p.reg16("done"), p.reg16("count")
        p.ld16(done, self.held)
        p.sub16(done, done, 1)
        p.st16(done, self.held)
        p.ld16(done, self.backwards)
        p.add16(done, done, 1)
        p.st16(done, self.backwards)
        p.ld16(count, self.count["minibatches"])
        with p.if_("ltu", done, count):
            p.activate("turn")
        p.ld16(done, self.since)
        p.add16(done, done, 1)
        p.ld16(count, self.count["per_update"])
        with p.if_("geu", done, count):
            self.update.emit(tile.inputs + (tile.layer.bias and self.place.west))
            p.ldi(done, 0)
        p.st16(done, self.since)
        p.free(done, count)

    def gradients(self, at: Reg) -> None:
        """Emit the products of gradients and inputs: a rank-one term per sample."""
        p, tile, n = self.p, self.tile, self.tile.outputs
        accumulate(
            p,
            (self.sums, self.factors),
            n,
            VectorArray(self.g, n),
            VectorArray(self.delta, n),
            (tile.inputs, tile.batch),
            at,
            (1, tile.inputs),
        )
        if tile.layer.bias and self.place.west:
            one = p.reg16("one")
            p.ldi(one, 0x3C00 if p.half == "f16" else p.machine["num.cb16_bias"] << 9)
            p.load(self.sums, p.mem1d(self.g, n, offset=n * tile.inputs))
            p.load(self.factors, p.mem1d(self.delta, n, save=True))
            with p.loop(tile.batch):
                p.fmachs(self.sums, self.sums, self.factors, one)
            p.free(one)
