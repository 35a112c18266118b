"""The loss and the gate have programs of their own.

`loss_program`: softmax cross-entropy of some samples of a minibatch.  Logits and labels arrive sample by sample and are
kept class by class; the gradients of the logits leave as they came; the loss is added from PE to PE, north to south,
and the last one sends it to the host.

`gate_program`: lets a minibatch in whenever the first layer asks for one.

Queues
    Loss, in: 1 logits, 2 labels, 3 the loss so far.  Out: 2 gradients, 3 losses.  Gate, in: 1 asking, 2 samples.  Out:
    2 samples.
"""

from __future__ import annotations

from functools import lru_cache

from fabric.asm.operands import Var
from fabric.networks.pipelined.colors import ENTRY, LOSS
from fabric.networks.pipelined.outputs import Leaving
from fabric.networks.pipelined.tile import WRITTEN, Tile
from fabric.program import functions
from fabric.program.program import Program
from wse_core.formats import Half
from wse_core.params import Machine

__all__ = ["gate_program", "loss_program"]


@lru_cache(maxsize=WRITTEN)
def gate_program(tile: Tile, asking: int, leaving: int, machine: Machine) -> Program:
    """Return the program of the gate: per wavelet of color `asking` a minibatch goes on, on color `leaving`."""
    p = Program("gate", machine)
    p.input_queue(1, asking)
    samples, out = p.input_queue(2, ENTRY), p.output_queue(2, leaving)
    words = tile.all_inputs // 2
    with p.task("ask", kind="data", color=asking), p.loop(tile.batch):
        p.mov32(p.fabout(out, words, dtype="u32"), p.fabin(samples, words, dtype="u32"))
    p.assemble()
    return p


class _Loss:
    """The loss has variables and tasks for `samples` samples with `classes` classes, `padded` in the stream."""

    def __init__(
        self, tile: Tile, samples: int, row: int, rows: int, colors: dict[str, int], machine: Machine, half: Half
    ) -> None:
        self.samples, self.classes, self.padded = samples, tile.layer.outputs, tile.all_outputs
        self.p = p = Program(f"loss of {samples} samples, row {row} of {rows}", machine, half=half)
        self.minibatches, self.training = p.param("minibatches", "u16"), p.param("training", "u16")
        self.scale = p.param("scale", "f32")
        all_, used = self.padded * samples, self.classes * samples
        self.logits, self.labels = p.array("logits", all_, "half"), p.array("labels", all_, "half")
        self.delta = p.array("delta", all_, "half")
        self.wide, self.wanted = p.array("wide", used, "f32", bank=0), p.array("wanted", used, "f32", bank=2)
        self.other = p.array("other", used, "f32", bank=4)
        self.peak, self.sums = p.array("peak", samples, "f32", bank=2), p.array("sums", samples, "f32", bank=2)
        self.hits, self.one = p.array("hits", samples, "f32", bank=4), p.array("one", samples, "f32", bank=6)
        self.functions = functions.Emit(p, used)
        self.row, self.row_out, self.sends = p.dsr("src1"), p.dsr("src0"), p.dsr("src1")
        self.arriving, self.known = p.input_queue(1, colors["logits"]), p.input_queue(2, colors["labels"])
        if row:
            self.before = p.input_queue(3, LOSS[(row - 1) % 2])
        self.leaving = Leaving(p, colors["gradients"], row == 0, row == rows - 1)
        self.losses = p.output_queue(3, LOSS[row % 2] if row < rows - 1 else colors["losses"])
        self.first, self.alone = row == 0, rows == 1
        with p.task("begin"):
            count = p.reg16("count")
            p.ld16(count, self.minibatches)
            p.free(count)
            p.activate("minibatch")
        left = p.scalar("left", "u16")
        with p.task("minibatch"):
            self.take()
            count = p.reg16("count")
            p.ld16(count, self.training)
            with p.if_("ne", count, 0):
                p.activate("compute")
            with p.else_():
                p.activate("next")
        with p.task("compute"):
            self.compute()
            p.activate("next")
        with p.task("next"):
            done, count = p.reg16("done"), p.reg16("count")
            p.ld16(done, left)
            p.add16(done, done, 1)
            p.st16(done, left)
            p.ld16(count, self.minibatches)
            with p.if_("ltu", done, count):
                p.activate("minibatch")
            with p.else_():
                p.ldi(done, 0)
                p.st16(done, left)
        p.assemble()

    def take(self) -> None:
        """Emit the receipt of logits and labels, sample by sample, into rows of classes."""
        p, shape, strides = self.p, (self.samples, self.padded), (1, self.samples)
        for queue, var in ((self.arriving, self.logits), (self.known, self.labels)):
            p.fmovh(p.mem4d(var, shape, strides), p.fabin(queue, var.count))

    def each(self, name: str, total: Var, rows: Var) -> None:
        """Emit ``total = total op row`` for the rows of an f32 array."""
        p = self.p
        p.load(self.row_out, total)
        p.load(self.row, p.mem1d(rows, self.samples, save=True))
        with p.loop(self.classes):
            getattr(p, name)(self.row_out, self.row_out, self.row)

    def all_rows(self, name: str, rows: Var, vector: Var) -> None:
        """Emit ``row = row op vector`` for the rows of an f32 array."""
        p = self.p
        p.load(self.row_out, p.mem1d(rows, self.samples, save=True))
        p.load(self.row, vector)
        with p.loop(self.classes):
            getattr(p, name)(self.row_out, self.row_out, self.row)

    def compute(self) -> None:
        """Emit loss and gradients."""
        p, used = self.p, self.wide.count
        p.fh2s(self.wide, p.mem1d(self.logits, used))
        p.fh2s(self.wanted, p.mem1d(self.labels, used))
        p.mov32(self.peak, 0xFF800000)
        self.each("fmaxs", self.peak, self.wide)
        self.all_rows("fsubs", self.wide, self.peak)
        p.fmuls(self.other, self.wanted, self.wide)
        p.mov32(self.hits, 0)
        self.each("fsubs", self.hits, self.other)
        self.functions.exp(self.wide, self.wide)
        p.mov32(self.sums, 0)
        self.each("fadds", self.sums, self.wide)
        with self.functions.first(self.samples):
            self.functions.reciprocal(self.peak, self.sums)
            self.functions.log(self.one, self.sums)
        p.fadds(self.hits, self.hits, self.one)
        self.all_rows("fmuls", self.wide, self.peak)
        p.fsubs(self.wide, self.wide, self.wanted)
        scale, total = p.reg32("scale"), p.reg32("total")
        p.ld32(scale, self.scale)
        p.fmuls(self.wide, self.wide, scale)
        p.fs2h(p.mem1d(self.delta, used), self.wide)
        p.mov32(total, 0)
        p.fadds(total, self.hits, total)
        out = p.fabout(self.losses, 1, dtype="f32")
        if self.first:
            p.mov32(out, total)
        else:
            p.fadds(out, p.fabin(self.before, 1, dtype="f32"), total)
        for sample in range(self.samples):
            p.load(self.sends, p.mem1d(self.delta, self.padded, stride=self.samples, offset=sample))
            if sample < self.samples - 1:
                p.fmovh(p.fabout(self.leaving.queue, self.padded), self.sends)
            else:
                self.leaving.emit(self.sends, self.padded)


def loss_program(
    tile: Tile, samples: int, row: int, rows: int, colors: dict[str, int], machine: Machine, half: Half
) -> Program:
    """Return the program of a PE of the loss.

    Parameters
    ----------
    tile : Tile
        Of the last layer.
    samples : int
        Of a minibatch, that are this PE's.
    row, rows : int
        Place in the column of PEs of the loss, and how many there are.
    colors : dict[str, int]
        ``logits``, ``labels``, ``gradients``, ``losses``.
    machine : Machine
    half : {"f16", "cb16"}
    """
    return _Loss(tile, samples, row, rows, colors, machine, half).p
