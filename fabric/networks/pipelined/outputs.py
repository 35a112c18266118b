"""The programs east and north of a layer's tiles end the sums and pass them on; these have them in common.

`outputs_program`: a row's outputs.  On the way forward sums arrive from the west, are rounded to 16 bits, go through
the activation, whose slopes are kept until the way back, and leave for the next layer.  On the way back their gradients
arrive, beside what else is done, are multiplied by the slopes, and go to all tiles of the row.

`passing_program`: a column's gradients of the inputs, rounded and passed back.

Leaving is one stream per rectangle, sample by sample, in the order of the features: routers send what is nearest to the
exit first and pass on the others afterwards (a switch that a control wavelet behind each part advances, and one behind
the last part resets).

Queues
    In: 1 sums, 2 gradients, 3 and 4 sums over features.  Out: 2 activations or gradients that leave, 3 gradients to the
    tiles, 4 and 5 sums over features.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from fabric.asm import control
from fabric.asm.operands import Dsr, Queue, Reg, Var
from fabric.networks.graph.activations import ActivationOperands
from fabric.networks.graph.table import activation
from fabric.networks.pipelined.colors import DELTA, EAST, NORTH
from fabric.networks.pipelined.norm import NormCode
from fabric.networks.pipelined.tile import WRITTEN, Tile
from fabric.networks.pipelined.updates import Rule
from fabric.program import functions
from fabric.program.program import Program
from wse_core.formats import Half
from wse_core.params import Machine

__all__ = ["Leaving", "OutputsPlace", "outputs_program", "passing_program"]

RESET = control.single("rst", deliver=False)
"""Behind the last part of a sample: all switches on the way begin anew."""


class Leaving:
    """Sends the parts of samples into a stream that several PEs share.

    Parameters
    ----------
    p : Program
    color : int
    first, last : bool
        Nearest to, farthest from the exit.
    """

    def __init__(self, p: Program, color: int, first: bool, last: bool) -> None:
        self.p, self.alone, self.last = p, first and last, last
        self.queue: Queue = p.output_queue(2, color)

    def emit(self, source: Dsr, count: int) -> None:
        """Emit the departure of a part of so many elements."""
        p = self.p
        p.fmovh(p.fabout(self.queue, count, advance_switch=not self.last), source)
        if self.last and not self.alone:
            p.mov32(p.fabout(self.queue, 1, dtype="u32", control=True), RESET)


@dataclass(frozen=True)
class OutputsPlace:
    """An `OutputsPlace` tells the programs of a rectangle's outputs apart.

    Attributes
    ----------
    row : int
        From north; of a normalised layer only, else 0.
    exit, end : bool
        Nearest to the exit of the activations, farthest from it.
    arriving : int
        Gradients of a sample that there are for this row.
    """

    row: int
    exit: bool
    end: bool
    arriving: int


@lru_cache(maxsize=WRITTEN)
def outputs_program(
    tile: Tile,
    place: OutputsPlace,
    leaving: int,
    gradients: int,
    rule: Rule,
    updates: int,
    machine: Machine,
    half: Half,
) -> Program:
    """Return the program of a row's outputs.

    Parameters
    ----------
    tile : Tile
    place : OutputsPlace
    leaving, gradients : int
        Colors of what leaves and of what comes back.
    rule : Rule
    updates : int
        Of a run, at most; for the parameters of a normalisation.
    machine : Machine
    half : {"f16", "cb16"}
    """
    return _Outputs(tile, place, leaving, gradients, rule, updates, machine, half).p


class _Outputs:
    """The program of a row's outputs has these variables and tasks."""

    def __init__(
        self,
        tile: Tile,
        place: OutputsPlace,
        leaving: int,
        gradients: int,
        rule: Rule,
        updates: int,
        machine: Machine,
        half: Half,
    ) -> None:
        self.tile, self.place = tile, place
        self.p = p = Program(f"outputs {tile.outputs} of {tile.layer}, {place}", machine, half=half)
        self.size = size = tile.outputs * tile.batch
        self.count = {name: p.param(name, "u16") for name in ("minibatches", "training")}
        self.forwards, self.backwards = p.scalar("forwards", "u16"), p.scalar("backwards", "u16")
        self.y, self.dy = p.array("y", size, "half", bank=0), p.array("dy", size, "half", bank=0)
        self.slopes: Var | None = None
        self.activation = activation(tile.layer.activation)
        smooth = self.activation is not None and self.activation.smooth
        if self.activation is not None:
            self.slopes = p.array("slopes", tile.kept * size, "half", bank=1)
            self.newest, self.oldest = p.scalar("newest", "u16"), p.scalar("oldest", "u16")
            self.keeps, self.kept = p.dsr("dest"), p.dsr("src1")
        self.wide: tuple[Var, ...] = ()
        if smooth:
            wide = p.array("wide", size, "f32", bank=0)
            self.wide = wide, wide, p.array("slope", size, "f32", bank=4)
        layer, lengths = tile.layer, [size * smooth]
        lengths += [tile.batch, tile.outputs * rule.adam] if layer.norm else []
        self.functions = functions.Emit(p, max(lengths)) if max(lengths) else None
        self.norm: NormCode | None = None
        if layer.norm:
            assert self.functions is not None
            real = max(0, min(tile.outputs, layer.outputs - place.row * tile.outputs))
            self.norm = NormCode(p, tile, place.row, real, self.y, self.dy, rule, updates, self.functions)
        self.landed = p.array("landed", size, "half", bank=4)
        self.lands = p.dsr("dest")
        self.departing, self.departs = p.array("departing", size, "half"), p.dsr("src1")
        self.sends = p.dsr("src1")
        self.sums = p.input_queue(1, EAST[(tile.columns - 1) % 2])
        if place.arriving:
            self.gradients = p.input_queue(2, gradients)
        self.leaving = Leaving(p, leaving, place.exit, place.end)
        self.tiles = p.output_queue(3, DELTA)
        self.tasks()
        p.assemble()

    def tasks(self) -> None:
        p = self.p
        with p.task("begin"):
            at = p.reg16("at")
            p.ldi(at, 0)
            p.st16(at, self.forwards)
            p.st16(at, self.backwards)
            if self.slopes:
                p.ldi(at, self.slopes)
                p.st16(at, self.newest)
                p.st16(at, self.oldest)
                p.load(self.keeps, p.mem1d(self.slopes, self.size))
                p.load(self.kept, p.mem1d(self.slopes, self.size))
            if self.place.arriving:
                n, batch = self.tile.outputs, self.tile.batch
                p.load(self.lands, p.mem4d(self.landed, (batch, self.place.arriving), (n, 1)))
                p.ld16(at, self.count["training"])
                with p.if_("ne", at, 0):
                    self.receive()
            p.load(self.departs, self.departing)
            if self.norm:
                self.norm.begin()
            p.activate("turn")
        with p.task("turn"):
            done, count = p.reg16("done"), p.reg16("count")
            p.ld16(done, self.forwards)
            p.ld16(count, self.count["minibatches"])
            with p.if_("eq", done, count):
                p.activate("back")
            with p.else_():
                self.begin_turn(done, count)
        with p.task("forward"):
            self.forward()
        with p.task("back"):
            self.back()

    def begin_turn(self, done: Reg, count: Reg) -> None:
        """Emit the choice of what a turn begins with.

        Except in the last layer, the gradients of a turn do not wait for its sums: they go first, so that tiles find
        them when they have sent their sums.
        """
        p, delay = self.p, self.tile.delay
        if not delay:
            p.activate("forward")
            return
        p.ld16(count, self.backwards)
        p.sub16(done, done, count)
        p.ld16(count, self.count["training"])
        with p.if_("eq", count, 0):
            p.ldi(done, 0)
        with p.if_("geu", done, delay):
            p.activate("back")
        with p.else_():
            p.activate("forward")

    def ring(self, var: Var, dsr: Dsr) -> None:
        """Emit the move of a descriptor to a place in the ring of slopes, and the step of the place."""
        p, slopes = self.p, self.slopes
        assert slopes is not None
        at, end = p.reg16("at"), p.reg16("end")
        p.ld16(at, var)
        p.dsr_base(dsr, at)
        p.add16(at, at, self.size)
        p.ldi(end, slopes)
        p.add16(end, end, slopes.count)
        with p.if_("geu", at, end):
            p.ldi(at, slopes)
        p.st16(at, var)
        p.free(at, end)

    def forward(self) -> None:
        """Emit a minibatch's way forward."""
        p, n = self.p, self.tile.outputs
        p.fs2h(self.y, p.fabin(self.sums, self.size, dtype="f32"))
        if self.norm:
            self.norm.forward()
        self.activate()
        p.load(self.sends, p.mem1d(self.y, n, save=True))
        with p.loop(self.tile.batch):
            self.leaving.emit(self.sends, n)
        done, count = p.reg16("done"), p.reg16("count")
        p.ld16(done, self.forwards)
        p.add16(done, done, 1)
        p.st16(done, self.forwards)
        p.ld16(count, self.count["training"])
        with p.if_("eq", count, 0):
            p.ld16(count, self.count["minibatches"])
            with p.if_("ltu", done, count):
                p.activate("turn")
        with p.else_():
            if not self.tile.delay:
                p.activate("back")
            else:
                p.activate("turn")
                p.ld16(count, self.backwards)
                if self.norm:
                    with p.if_("ne", count, 0):
                        self.norm.updated()

    def activate(self) -> None:
        """Emit the activation, and its slopes into their ring."""
        if self.activation is not None:
            self.ring(self.newest, self.keeps)
            # ``dy`` is not in use on the way forward.
            rows = self.y, self.y, None, self.dy, self.keeps
            self.activation.emit(ActivationOperands(self.p, *rows, self.wide, self.functions))

    def receive(self) -> None:
        """Emit the receipt of a minibatch's gradients, beside what the main thread does."""
        arriving = self.p.fabin(self.gradients, self.tile.batch * self.place.arriving)
        self.p.fmovh(self.lands, arriving, async_=True)

    def back(self) -> None:
        """Emit a minibatch's way back."""
        p, place = self.p, self.place
        if place.arriving:
            p.dsr_base(self.lands, self.landed)  # waits until they have landed
        p.fmovh(self.dy, self.landed)
        done, count = p.reg16("done"), p.reg16("count")
        if place.arriving:
            p.ld16(done, self.backwards)
            p.add16(done, done, 1)
            p.ld16(count, self.count["minibatches"])
            with p.if_("ltu", done, count):
                self.receive()
        p.free(done, count)
        if self.slopes is not None:
            self.ring(self.oldest, self.kept)
            p.fmulh(self.dy, self.dy, self.kept)
        if self.norm:
            self.norm.back()
        p.dsr_base(self.departs, self.departing)  # waits until those before have left
        p.fmovh(self.departing, self.dy)
        p.fmovh(p.fabout(self.tiles, self.size), self.departs, async_=True)
        done, count = p.reg16("done"), p.reg16("count")
        p.ld16(done, self.backwards)
        p.add16(done, done, 1)
        p.st16(done, self.backwards)
        p.ld16(count, self.count["minibatches"])
        with p.if_("ltu", done, count):
            if self.tile.delay:
                self.after_back(done, count)
            else:
                p.activate("turn")
        if not self.tile.delay:
            if self.norm:
                self.norm.updated()
        else:
            p.ld16(done, self.forwards)
            p.ld16(count, self.count["minibatches"])
            if self.norm:
                with p.if_("eq", done, count):
                    self.norm.updated()

    def after_back(self, done: Reg, count: Reg) -> None:
        """Emit what follows gradients in a turn that began with them: its sums, if there are any more."""
        p = self.p
        p.ld16(done, self.forwards)
        with p.if_("eq", done, count):
            p.activate("turn")
        with p.else_():
            p.activate("forward")


@lru_cache(maxsize=WRITTEN)
def passing_program(tile: Tile, first: bool, last: bool, leaving: int, machine: Machine, half: Half) -> Program:
    """Return the program of a column's gradients of the inputs.

    Parameters
    ----------
    tile : Tile
    first, last : bool
        Nearest to the exit, farthest from it.
    leaving : int
        Color of what leaves.
    machine : Machine
    half : {"f16", "cb16"}
    """
    p = Program(f"gradients of {tile.inputs} inputs, first {first}, last {last}", machine, half=half)
    minibatches, training = p.param("minibatches", "u16"), p.param("training", "u16")
    d = p.array("d", tile.inputs * tile.batch, "half")
    sums, sends = p.input_queue(1, NORTH[0]), p.dsr("src1")
    out = Leaving(p, leaving, first, last)
    with p.task("begin"):
        count: Reg = p.reg16("count")
        p.ld16(count, training)
        with p.if_("ne", count, 0):
            p.ld16(count, minibatches)
            with p.loop(count):
                p.fs2h(d, p.fabin(sums, d.count, dtype="f32"))
                p.load(sends, p.mem1d(d, tile.inputs, save=True))
                with p.loop(tile.batch):
                    out.emit(sends, tile.inputs)
    p.assemble()
    return p
