"""Tiles are broadcast along rows and columns, one color per axis: what the programs of SUMMA and allgather share.

How routers are turned, and why nothing can collide or be cut off, stands in the head of
`fabric.kernels.matmul.summa`.
"""

from __future__ import annotations

from fabric.asm.operands import Dsd, Reg, Var
from fabric.program.program import Program

__all__ = ["AXES", "BroadcastAxis", "slot_elements"]

AXES = {"a": (8, 0, 2, "W", "E"), "b": (9, 1, 3, "N", "S")}
"""An axis has a color, an input queue, an output queue, and the directions of lower and of higher coordinates."""
SENT = {"a": 25, "b": 26}
"""The tasks that run when an own tile has left have these ids: a fixed one each, so that all PEs' traces name them
alike.
"""
SENDING, TOKEN = 0, 1  # switch positions; position 0 is also that of receiving


def slot_elements(elements: int) -> int:
    """Return the room for a tile that is received: whole wavelets of two elements, and one for the token behind it."""
    return elements + elements % 2 + 2


class BroadcastAxis:
    """A `BroadcastAxis` writes what a PE needs for the tiles of one matrix: variables, descriptors, code that asks for
    a tile.

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

    def __init__(
        self, p: Program, key: str, elements: int, dtype: str, end: str, held: int, buffers: int, bank: int | None
    ) -> None:
        self.p, self.key, self.elements, self.held, self.buffers, self.end = p, key, elements, held, buffers, end
        self.color, _, _, self.low, self.high = AXES[key]
        self.move = p.mov32 if dtype == "f32" else p.mov16
        self.offset: Reg | None = None
        self.slot = slot_elements(elements)
        self.declare(elements, dtype, bank)
        self.words = elements * self.own.words_per_element
        self.slot_words = self.slot * self.own.words_per_element
        if end == "alone":
            return
        self.place = p.param(f"p{'x' if key == 'a' else 'y'}", "u16")
        self.links = ("" if end == "first" else self.low) + ("" if end == "last" else self.high)
        self.connect(dtype)

    def connect(self, dtype: str) -> None:
        """Take queues and descriptors for what comes and goes."""
        p, key, (_, q_in, q_out, _, _) = self.p, self.key, AXES[self.key]
        self.token, self.taken = p.scalar(f"{key}_token", dtype), p.scalar(f"{key}_taken", dtype)
        self.into, self.out = p.input_queue(q_in, self.color), p.output_queue(q_out, self.color)
        self.dsrs = {
            name: (p.dsr("dest", name=f"{key} {name} to"), p.dsr("src1", name=f"{key} {name} from"))
            for name in ("receive", "send", "token out", "token in")
        }
        self.offset = p.reg16(f"{key} offset") if self.buffers > 1 else None

    def declare(self, elements: int, dtype: str, bank: int | None) -> None:
        """Declare the tiles: those of the PE, and places for those that arrive."""
        p = self.p
        self.own = p.array(self.key, self.held * elements, dtype, bank=bank)
        self.received = self.own
        if self.end != "alone":
            self.received = p.array(f"{self.key}_received", self.buffers * self.slot, dtype, bank=bank)
        self.at = p.scalar(f"{self.key}_at", "u16") if self.held > 1 else None

    def prepare(self) -> None:
        """Load all descriptors; in the task that begins."""
        p, n = self.p, self.elements
        self.begin()
        if self.end == "alone":
            return
        whole = n + 1 if self.move == p.mov32 else self.slot  # the token that follows goes behind the tile
        pairs: dict[str, tuple[Dsd | Var, Dsd | Var]] = {
            "receive": (p.mem1d(self.received, whole), p.fabin(self.into, whole)),
            "send": (p.fabout(self.out, n, advance_switch=True), p.mem1d(self.own, n)),
            "token out": (p.fabout(self.out, 1), self.token),
            "token in": (self.taken, p.fabin(self.into, 1)),
        }
        for name, pair in pairs.items():
            for dsr, dsd in zip(self.dsrs[name], pair, strict=True):
                p.load(dsr, dsd)
        if self.offset is not None:
            p.ldi(self.offset, 0)

    def begin(self) -> None:
        """Note the first of several own tiles as the next one."""
        p = self.p
        if self.at is not None:
            first = p.reg16("first")
            p.ldi(first, self.own)
            p.st16(first, self.at)
            p.free(first)

    def ask(self, step: Reg, mine: Reg, limit: Reg, activate: str | None = None, unblock: str | None = None) -> None:
        """Turn the router for the step in register `step` and start what the PE does in it, before a task begins.

        The task is activated or unblocked.

        `mine` and `limit` are registers of the function that is being written; a PE with one tile needs no `limit`.
        """
        p, high = self.p, self.high
        if self.end == "alone":
            if activate:
                p.activate(activate)
            elif unblock:
                p.unblock(unblock)
            return
        done = p.async_(activate=activate, unblock=unblock)
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

    def choose_sent(self, since: Reg) -> None:
        """Point the descriptor at the tile to send; `since` is free."""
        if self.at is not None:
            self.p.ld16(since, self.at)
            self.p.dsr_base(self.dsrs["send"][1], since)

    def choose_received(self) -> None:
        """Point the descriptor at the place of the tile to receive."""
        if self.offset is not None:
            self.p.dsr_base(self.dsrs["receive"][0], self.received)
            self.p.dsr_off(self.dsrs["receive"][0], self.offset)

    def sent(self) -> None:
        """Write the task that runs when the own tile has been handed over: the token follows the tile."""
        if self.end != "alone":
            with self.p.task(f"{self.key} sent", id=SENT[self.key]):
                self.move(*self.dsrs["token out"], async_=True)

    def find(self, base: Reg, step: Reg) -> None:
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

    def take_own(self, base: Reg) -> None:
        """Set register `base` to the address of the PE's next own tile."""
        p = self.p
        if self.at is None:
            p.ldi(base, self.own)
        else:
            p.ld16(base, self.at)
            p.add16(base, base, self.words)
            p.st16(base, self.at)
            p.sub16(base, base, self.words)

    def toggle(self) -> None:
        """Let the next tile go into the other buffer."""
        if self.offset is not None:
            self.p.xor16(self.offset, self.offset, self.slot_words)
