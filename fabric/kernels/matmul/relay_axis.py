"""A PE of ``summa-relay`` needs this for one matrix: tiles are handed on from core to core along rows and columns.

Which wavelets come when, and why nobody waits in a circle, stands in the head of `fabric.kernels.matmul.relay`.
"""

from __future__ import annotations

from fabric.asm.operands import Reg
from fabric.kernels.matmul.broadcast_axis import BroadcastAxis
from fabric.program.program import Program

__all__ = ["COLORS", "QUEUES", "RelayAxis"]

COLORS = {"a": {"high": 8, "low": 10}, "b": {"high": 12, "low": 14}}
"""Per axis and direction of travel: the color that PEs at even places send; those at odd places send the next one."""
QUEUES = {"a": {"low": (4, 0), "high": (6, 2)}, "b": {"low": (5, 1), "high": (7, 3)}}
"""Per axis and side: input and output queue; eight numbers, since each transfer has the microthread of its queue."""
TASKS = {"a": {"low": 25, "high": 26}, "b": {"low": 27, "high": 28}}
"""Per axis and side: the task that runs when a tile has come from there; in traces it has that name on every PE."""
OTHER = {"low": "high", "high": "low"}


class RelayAxis(BroadcastAxis):
    """A `RelayAxis` writes what a PE needs for the tiles of one matrix: variables, descriptors, code that asks for a
    tile.

    Parameters
    ----------
    p : Program
    key : {"a", "b"}
    elements : int
        Of a tile.
    dtype : str
    kind : tuple[str, int]
        Place of the PE along the axis, as `BroadcastAxis` names it, and its parity.
    held : int
        Tiles that the PE holds.
    bank : int or None
        In which a tile has to begin.
    """

    def __init__(
        self, p: Program, key: str, elements: int, dtype: str, kind: tuple[str, int], held: int, bank: int | None
    ) -> None:
        end, self.parity = kind
        super().__init__(p, key, elements, dtype, end, held, 1, bank)

    def declare(self, elements: int, dtype: str, bank: int | None) -> None:
        """Declare the tiles: those of the PE, and a place for the one that is passing through."""
        p = self.p
        self.own = p.array(self.key, self.held * elements, dtype, bank=bank)
        self.received = self.own
        if self.end != "alone":
            self.received = p.array(f"{self.key}_received", elements, dtype, bank=bank)
        self.at = p.scalar(f"{self.key}_at", "u16") if self.held > 1 else None

    @property
    def sides(self) -> list[str]:
        """The PE has a neighbour on these sides."""
        return [side for side, end in (("low", "first"), ("high", "last")) if self.end not in (end, "alone")]

    def connect(self, dtype: str) -> None:
        """Take queues and descriptors for what comes and goes on each side."""
        p, key = self.p, self.key
        self.landing = p.dsr("dest", name=f"{key} received")
        self.to, self.leaving, self.arriving = {}, {}, {}
        for side in self.sides:
            q_in, q_out = QUEUES[key][side]
            sends, comes = COLORS[key][side] + self.parity, COLORS[key][OTHER[side]] + 1 - self.parity
            out_queue, in_queue = p.output_queue(q_out, sends), p.input_queue(q_in, comes)
            self.to[side] = p.dsr("dest", name=f"{key} to {side}"), p.fabout(out_queue, self.elements)
            self.leaving[side] = p.dsr("src1", name=f"{key} for {side}")
            self.arriving[side] = p.dsr("src1", name=f"{key} from {side}"), p.fabin(in_queue, self.elements)

    def prepare(self) -> None:
        """Load all descriptors; in the task that begins."""
        p, n = self.p, self.elements
        self.begin()
        if self.end == "alone":
            return
        p.load(self.landing, p.mem1d(self.received, n))
        for side in self.sides:
            p.load(*self.to[side])
            p.load(self.leaving[side], p.mem1d(self.received, n))
            p.load(*self.arriving[side])

    def ask(self, step: Reg, mine: Reg, limit: Reg, activate: str | None = None, unblock: str | None = None) -> None:
        """Start what the PE does for the tile of the step in register `step`; then a task is activated or unblocked.

        `mine` and `limit` are registers of the function that is being written; a PE with one tile needs no `limit`.
        """
        p = self.p
        self.signals = activate, unblock
        if self.end == "alone":
            self.signal()
            return
        p.ld16(mine, self.place)
        if self.held > 1:
            p.sub16(limit, step, mine)  # steps since the PE's first one
        with p.if_("eq", step, mine) if self.held == 1 else p.if_("ltu", limit, self.held):
            self.send(limit)
            self.signal()
        with p.else_():
            if len(self.sides) == 1:
                self.receive(self.sides[0])
            else:
                with p.if_("ltu", step, mine):
                    self.receive("low")
                with p.else_():
                    self.receive("high")

    def signal(self) -> None:
        """Tell the task of the product that the tile is there."""
        activate, unblock = self.signals
        if activate:
            self.p.activate(activate)
        if unblock:
            self.p.unblock(unblock)

    def send(self, free: Reg) -> None:
        """Send the own tile to all sides; `free` is a register."""
        p = self.p
        if self.at is not None:
            p.ld16(free, self.at)
        for side in self.sides:
            p.dsr_base(self.leaving[side], self.own if self.at is None else free)
            self.move(self.to[side][0], self.leaving[side], async_=True)

    def receive(self, side: str) -> None:
        """Receive a tile, once the one before has been handed on: an edit waits for who still uses the register."""
        p, other = self.p, OTHER[side]
        if other in self.sides:
            p.dsr_base(self.leaving[other], self.received)
            done = p.async_(activate=f"{self.key} from {side}")
        else:
            activate, unblock = self.signals
            done = p.async_(activate=activate, unblock=unblock)
        self.move(self.landing, self.arriving[side][0], async_=done)

    def sent(self) -> None:
        """Write the tasks that hand a tile on to the next PE and tell the product of it."""
        p = self.p
        if len(self.sides) < 2:
            return
        for side in self.sides:
            with p.task(f"{self.key} from {side}", id=TASKS[self.key][side]):
                self.move(self.to[OTHER[side]][0], self.leaving[OTHER[side]], async_=True)
                self.signal()
