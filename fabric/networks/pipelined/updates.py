"""Updates in place: what a PE does with the gradients of its part of a matrix, column by column.

Every operation rounds to f32 once, in the order written here, which is that of `memx.optimizer`: SGD, with and without
momentum and weight decay, changes the same bits as the memory service does (where the division of the gradients by
loss scale and batch is exact, that is, where both are powers of two).  Adam and AdamW cannot: PEs have no division and
no root, so they use `fabric.program.functions` and differ from the memory service in the last places:

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g g;  s = v / (1 - b2^t);  r = s * rsqrt(s + `TINY`) + eps
    w = w - lr (m / (1 - b1^t)) * reciprocal(r)

Numbers that change from update to update (`CONSTANTS`) lie in a table of the PE, which the host fills before a run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabric.asm.operands import Dsr, Reg, Var
from fabric.program import functions
from fabric.program.program import Program

__all__ = ["CONSTANTS", "TINY", "Rule", "UpdateCode"]

CONSTANTS = ("inverse", "rate", "shrink", "first", "second")
"""An update takes these: 1 / (loss scale times samples), learning rate, learning rate times decoupled decay,
1 / (1 - b1^t), 1 / (1 - b2^t)."""
TINY = 2.0**-100
"""This is added where a root of zero is asked for; far below what any gradient squared is worth."""


@dataclass(frozen=True)
class Rule:
    """An optimizer, as PEs know it.

    Attributes
    ----------
    name : {"sgd", "adam", "adamw"}
    momentum, weight_decay, beta1, beta2, eps : float
    """

    name: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    @property
    def adam(self) -> bool:
        """Whether it is one of the two with moments."""
        return self.name in ("adam", "adamw")

    @property
    def slots(self) -> tuple[str, ...]:
        """State arrays have these names."""
        return ("m", "v") if self.adam else ("velocity",) if self.momentum else ()

    def constants(self, step: int, scale: float, samples: int, rate: float) -> np.ndarray:
        """Return the `CONSTANTS` of an update as f32.

        Parameters
        ----------
        step : int
            From 1.
        scale : float
            Loss scale.
        samples : int
            Of the batch.
        rate : float
            Learning rate.
        """
        inverse = np.float32(1) / np.float32(scale * samples)
        shrink = np.float32(rate) * np.float32(self.weight_decay)
        moments = (1 / (1 - self.beta1**step), 1 / (1 - self.beta2**step)) if self.adam else (1.0, 1.0)
        return np.array([inverse, rate, shrink, *moments], np.float32)


class UpdateCode:
    """A program contains this code of an update.

    Parameters
    ----------
    p : Program
    rule : Rule
    rows : int
        Elements of a column.
    weights, gradients, copy : Var
        f32 weights, f32 gradients (zero afterwards), 16-bit copy that products use.
    table, at : Var
        Constants of all updates of a run, and the address of those of the next one.
    emit : Emit, optional
        Functions of the program, if it has them already.
    """

    def __init__(
        self,
        p: Program,
        rule: Rule,
        rows: int,
        weights: Var,
        gradients: Var,
        copy: Var,
        table: Var,
        at: Var,
        emit: functions.Emit | None = None,
    ) -> None:
        self.p, self.rule, self.rows, self.table, self.at = p, rule, rows, table, at
        self.w, self.g, self.copy = weights, gradients, copy
        self.state = {name: p.array(f"{weights.name}.{name}", weights.count, "f32") for name in rule.slots}
        self.dest, self.first, self.second = p.dsr("dest"), p.dsr("src0"), p.dsr("src1")
        self.short = p.dsr("dest")
        self.room = p.array("room", rows, "f32")
        self.functions = emit or (functions.Emit(p, rows) if rule.adam else None)

    def prepare(self) -> None:
        """Emit the loads of the DSRs."""
        for dsr in (self.dest, self.first, self.second):
            self.p.load(dsr, self.p.mem1d(self.w, self.rows))
        self.p.load(self.short, self.p.mem1d(self.copy, self.rows))

    def emit(self, columns: int) -> None:
        """Emit an update of so many columns, and the advance to the constants of the next one."""
        p = self.p
        self.offset, self.spare = p.reg16("offset"), p.reg16("address")
        self.constant, constants = p.reg32("constant"), p.reg16("constants")
        p.ld16(constants, self.at)
        p.ldi(self.offset, 0)
        self.constants = constants
        with p.loop(columns):
            self.column()
            p.add16(self.offset, self.offset, 2 * self.rows)
        p.add16(constants, constants, 2 * len(CONSTANTS))
        p.st16(constants, self.at)
        p.free(self.offset, self.spare, self.constant, constants)

    def column(self) -> None:
        """Emit the update of a column."""
        rule, w, g, room = self.rule, self.w, self.g, self.room
        self.do("fmuls", g, g, "inverse")
        if rule.weight_decay and rule.name != "adamw":
            self.do("fmuls", room, w, rule.weight_decay)
            self.do("fadds", g, g, room)
        if rule.adam:
            if rule.name == "adamw":
                self.do("fmuls", room, w, "shrink")
                self.do("fsubs", w, w, room)
            self.moments()
        elif rule.momentum:
            velocity = self.state["velocity"]
            self.do("fmuls", velocity, velocity, rule.momentum)
            self.do("fadds", velocity, velocity, g)
            self.do("fmuls", g, velocity, "rate")
        else:
            self.do("fmuls", g, g, "rate")
        self.do("fsubs", w, w, g)
        self.move(self.second, w)
        self.halve()
        self.p.fs2h(self.short, self.second)
        self.move(self.dest, g)
        self.p.mov32(self.dest, 0)

    def moments(self) -> None:
        """Emit what Adam does to make ``g`` the step of the weights."""
        rule, g, m, v, room = self.rule, self.g, self.state["m"], self.state["v"], self.room
        assert self.functions is not None
        self.do("fmuls", m, m, rule.beta1)
        self.do("fmuls", room, g, 1 - rule.beta1)
        self.do("fadds", m, m, room)
        self.do("fmuls", v, v, rule.beta2)
        self.do("fmuls", room, g, g)
        self.do("fmuls", room, room, 1 - rule.beta2)
        self.do("fadds", v, v, room)
        self.do("fmuls", room, v, "second")  # s
        self.do("fadds", g, room, TINY)
        self.address(self.spare, g)
        with self.functions.first(self.rows):
            self.functions.rsqrt(self.spare, self.spare)
        self.do("fmuls", g, room, g)
        self.do("fadds", g, g, rule.eps)  # r
        self.address(self.spare, g)
        with self.functions.first(self.rows):
            self.functions.reciprocal(room, self.spare)
        self.do("fmuls", g, m, "first")
        self.do("fmuls", g, g, room)
        self.do("fmuls", g, g, "rate")

    # --- one operation ------------------------------------------------------------------------------------------------

    def address(self, register: Reg, var: Var) -> None:
        """Emit the address of the current column of an array."""
        self.p.add16(register, self.offset, var[0])

    def move(self, dsr: Dsr, var: Var) -> None:
        """Emit the move of a descriptor to the current column of an array, or to the room beside."""
        if var is self.room:
            self.p.dsr_base(dsr, var)
            return
        self.address(self.spare, var)
        self.p.dsr_base(dsr, self.spare)

    def halve(self) -> None:
        """Emit the move of the 16-bit descriptor to the current column."""
        self.p.slr16(self.spare, self.offset, 1)
        self.p.add16(self.spare, self.spare, self.copy[0])
        self.p.dsr_base(self.short, self.spare)

    def do(self, name: str, dest: Var, a: Var, b: Var | str | float) -> None:
        """Emit an f32 operation on a column: of two arrays, or of an array and a number or a constant by its name."""
        p = self.p
        self.move(self.first, a)
        self.move(self.dest, dest)
        scalar: Dsr | Reg | float
        if isinstance(b, str):
            p.ld32(self.constant, self.constants, offset=2 * CONSTANTS.index(b))
            scalar = self.constant
        elif isinstance(b, Var):
            self.move(self.second, b)
            scalar = self.second
        else:
            scalar = b
        getattr(p, name)(self.dest, self.first, scalar)
