"""A normalisation over the features of a sample lies on the PEs of a layer's outputs, both ways, with its parameters.

Numbers are worked on as rows of samples, one per feature, in f32; sums over a sample's features go feature by feature
in a PE, then south to north over the PEs, and from there to all of them.  Normalised rows and deviations are kept until
the minibatch's way back.  Factors and shifts are f32 with a 16-bit copy, and are updated where they are.

Padding is left out: its rows stay zero.
"""

from __future__ import annotations

from fabric.asm.operands import Dsd, Dsr, Var
from fabric.networks.graph.operations import EPSILON
from fabric.networks.pipelined.colors import NORM
from fabric.networks.pipelined.tile import Tile
from fabric.networks.pipelined.updates import CONSTANTS, Rule, UpdateCode
from fabric.program import functions
from fabric.program.program import Program

__all__ = ["NormCode"]


class NormCode:
    """The program of a row's outputs contains this code of a normalisation.

    Parameters
    ----------
    p : Program
    tile : Tile
    row : int
        Of the rectangle's rows, 0 the northern one.
    real : int
        Features of the row that are no padding.
    y, dy : Var
        Outputs and their gradients, sample by sample; they are read and written.
    rule : Rule
    updates : int
        Of a run, at most.
    emit : Emit
        The functions of the program.
    """

    def __init__(
        self,
        p: Program,
        tile: Tile,
        row: int,
        real: int,
        y: Var,
        dy: Var,
        rule: Rule,
        updates: int,
        emit: functions.Emit,
    ) -> None:
        self.p, self.tile, self.row, self.real, self.y, self.dy = p, tile, row, real, y, dy
        n, batch = tile.outputs, tile.batch
        size = n * batch
        self.wide, self.other = p.array("normal", size, "f32", bank=0), p.array("other", size, "f32", bank=4)
        self.product = p.array("product", size, "f32", bank=2)
        self.sums = p.array("norm_sums", batch, "f32", bank=2)
        self.mean = p.array("mean", batch, "f32", bank=6)
        self.units = p.array("units", tile.kept * size, "half")
        self.deviations = p.array("deviations", tile.kept * batch, "f32")
        self.norm, self.gradients = p.array("norm", 2 * n, "f32"), p.array("norm_g", 2 * n, "f32")
        self.copy = p.array("norm_copy", 2 * n, "half")
        self.table = p.array("rates", len(CONSTANTS) * updates, "f32")
        self.rate_at, self.since = p.scalar("rate_at", "u16"), p.scalar("since_update", "u16")
        self.per_update = p.param("per_update", "u16")
        self.newest, self.oldest = p.scalar("newest_unit", "u16"), p.scalar("oldest_unit", "u16")
        self.functions = emit
        self.update = UpdateCode(p, rule, n, self.norm, self.gradients, self.copy, self.table, self.rate_at, emit)
        self.rows, self.vector, self.starts = p.dsr("src0"), p.dsr("src1"), p.dsr("dest")
        self.factors = p.dsr("src1")  # of 16 bits
        self.keeps, self.kept = p.dsr("dest"), p.dsr("src1")
        self.sigma_to, self.sigma = p.dsr("dest"), p.dsr("src1")
        last = tile.rows - 1
        if row < last:
            self.south = p.input_queue(3, NORM[(row + 1) % 2])
            if row == 0:
                self.to_all = p.output_queue(5, NORM[2])
        if row > 0:
            self.north, self.whole = p.output_queue(4, NORM[row % 2]), p.input_queue(4, NORM[2])

    def begin(self) -> None:
        """Emit what a run begins with."""
        p = self.p
        at = p.reg16("at")
        for var, start in ((self.newest, 0), (self.oldest, 0), (self.since, 0), (self.rate_at, self.table)):
            p.ldi(at, start)
            p.st16(at, var)
        p.free(at)
        size, batch = self.wide.count, self.tile.batch
        p.load(self.keeps, p.mem1d(self.units, size))
        p.load(self.kept, p.mem1d(self.units, size))
        p.load(self.sigma_to, p.mem1d(self.deviations, batch))
        p.load(self.sigma, p.mem1d(self.deviations, batch))
        self.update.prepare()

    # --- small pieces -------------------------------------------------------------------------------------------------

    def ring(self, var: Var, unit: Dsr, deviation: Dsr) -> None:
        """Emit the move of two descriptors to a place of the rings, and the step of the place's number."""
        p = self.p
        number, at = p.reg16("place"), p.reg16("at")
        p.ld16(number, var)
        p.mul16(at, number, self.wide.count)
        p.add16(at, at, self.units[0])
        p.dsr_base(unit, at)
        p.mul16(at, number, 2 * self.tile.batch)
        p.add16(at, at, self.deviations[0])
        p.dsr_base(deviation, at)
        p.add16(number, number, 1)
        with p.if_("geu", number, self.tile.kept):
            p.ldi(number, 0)
        p.st16(number, var)
        p.free(number, at)

    def turned(self, array: Var) -> Dsd:
        """Return a walk over rows of samples that goes sample by sample."""
        return self.p.mem4d(array, (self.tile.batch, self.tile.outputs), (1, self.tile.batch))

    def each(self, name: str, rows: Var, vector: Var) -> None:
        """Emit ``row = row op vector`` for all real rows."""
        p = self.p
        if not self.real:
            return
        p.load(self.rows, p.mem1d(rows, self.tile.batch, save=True))
        p.load(self.vector, vector)
        with p.loop(self.real):
            getattr(p, name)(self.rows, self.rows, self.vector)

    def summed(self, rows: Var) -> None:
        """Emit the sums of each sample over the features of all PEs, in `sums`, times one over the features."""
        p, batch, last = self.p, self.tile.batch, self.tile.rows - 1
        p.mov32(self.sums, 0)
        if self.real:
            p.load(self.rows, self.sums)
            p.load(self.vector, p.mem1d(rows, batch, save=True))
            with p.loop(self.real):
                p.fadds(self.rows, self.rows, self.vector)
        if self.row == last and last:
            p.mov32(p.fabout(self.north, batch, dtype="u32"), self.sums)
        elif self.row:
            south = p.fabin(self.south, batch, dtype="f32")
            p.fadds(p.fabout(self.north, batch, dtype="f32"), self.sums, south)
        elif last:
            p.fadds(self.sums, self.sums, p.fabin(self.south, batch, dtype="f32"))
            p.mov32(p.fabout(self.to_all, batch, dtype="u32"), self.sums)
        if self.row:
            p.mov32(self.sums, p.fabin(self.whole, batch, dtype="u32"))
        p.fmuls(self.sums, self.sums, 1 / self.tile.layer.outputs)

    def scaled(self, stride: int, step: int, shifted: bool) -> None:
        """Emit ``row = shift + row of dy times factor`` for all real rows, without a shift if not wanted."""
        p, batch = self.p, self.tile.batch
        if not self.real:
            return
        p.load(self.rows, p.mem1d(self.wide, batch))
        p.load(self.starts, p.mem1d(self.wide, batch))
        p.load(self.factors, p.mem1d(self.dy, batch, stride=stride))
        at, factor, shift, start = p.reg16("at"), p.reg16("factor"), p.reg16("shift"), p.reg32("start")
        p.ldi(at, self.copy)
        with p.loop(self.real):
            p.ld16(factor, at)
            if shifted:
                p.ld16(shift, at, offset=self.tile.outputs)
                p.fh2s(start, shift)
                p.mov32(self.starts, start)
            else:
                p.mov32(self.starts, 0)
            p.fmachs(self.rows, self.rows, self.factors, factor)
            p.add16(at, at, 1)
            p.dsr_off(self.rows, 2 * batch)
            p.dsr_off(self.starts, 2 * batch)
            p.dsr_off(self.factors, step)
        p.free(at, factor, shift, start)

    # --- the two ways -------------------------------------------------------------------------------------------------

    def forward(self) -> None:
        """Emit the normalisation of ``y``."""
        p, batch = self.p, self.tile.batch
        p.fh2s(self.turned(self.wide), p.mem1d(self.y))
        self.summed(self.wide)
        self.each("fsubs", self.wide, self.sums)
        p.fmuls(self.other, self.wide, self.wide)
        self.summed(self.other)
        p.fadds(self.sums, self.sums, EPSILON)
        with self.functions.first(batch):
            self.functions.rsqrt(self.mean, self.sums)
        self.each("fmuls", self.wide, self.mean)
        p.fs2h(self.dy, self.wide)
        self.ring(self.newest, self.keeps, self.sigma_to)
        p.fmovh(self.keeps, self.dy)
        p.mov32(self.sigma_to, self.mean)
        self.scaled(1, batch, True)
        p.fs2h(self.y, self.turned(self.wide))

    def back(self) -> None:
        """Emit what makes gradients before the normalisation of those in ``dy``, and those of factors and shifts."""
        p, n, _batch = self.p, self.tile.outputs, self.tile.batch
        self.ring(self.oldest, self.kept, self.sigma)
        p.fh2s(self.turned(self.wide), p.mem1d(self.dy))
        self.added(self.wide, n)
        p.fh2s(self.other, self.kept)
        p.fmuls(self.wide, self.wide, self.other)
        self.added(self.wide, 0)
        self.scaled(n, 1, False)
        self.summed(self.wide)
        p.mov32(self.mean, self.sums)
        p.fmuls(self.product, self.wide, self.other)
        self.summed(self.product)
        self.each("fsubs", self.wide, self.mean)
        self.each("fmuls", self.other, self.sums)
        p.fsubs(self.wide, self.wide, self.other)
        p.mov32(self.mean, self.sigma)
        self.each("fmuls", self.wide, self.mean)
        p.fs2h(self.dy, self.turned(self.wide))

    def added(self, rows: Var, first: int) -> None:
        """Emit the addition of each real row's numbers to a gradient, sample by sample."""
        p = self.p
        if not self.real:
            return
        p.load(self.vector, p.mem1d(rows, self.tile.batch, save=True))
        at, total = p.reg16("at"), p.reg32("total")
        p.ldi(at, self.gradients[first])
        with p.loop(self.real):
            p.ld32(total, at)
            p.fadds(total, self.vector, total)
            p.st32(total, at)
            p.add16(at, at, 2)
        p.free(at, total)

    def updated(self) -> None:
        """Emit the update of factors and shifts, if it is time."""
        p = self.p
        done, count = p.reg16("done"), p.reg16("count")
        p.ld16(done, self.since)
        p.add16(done, done, 1)
        p.ld16(count, self.per_update)
        with p.if_("geu", done, count):
            self.update.emit(2)
            p.ldi(done, 0)
        p.st16(done, self.since)
        p.free(done, count)
