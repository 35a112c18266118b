"""A head of attention lies on several columns of PEs: a ring of theirs sums scores and spreads shares.

What moves
    Each column of a head has a part of its features, and owns every c-th key, c columns in turns.  Sums over the
    features of a key go once round the ring: the column behind the key's owner begins, each one adds its own, the owner
    keeps the total and does by itself what has no features: scale, mask, exponential.  A row of shares, or of slopes,
    goes round the ring from its owner to all others, since all have features of the key.  Sums over keys go from the
    first column to the last, and once round to all.

Colors and queues
    8 and 9: from column to column by parity of the place in the head, 10: from the last to the first; input queue 6,
    output queue 0.  Routes never turn and end at the border of a head.

Order of additions (bit exact)
    Over features: from 0 over those of a column, then that of the column behind the owner, then s = own + s column by
    column, the owner last.  Over keys: from 0 over those of a column, then from the first column to the last.

Cycles
    A stage of the ring takes a row of T f32 numbers and gives one, T each and some 20; a row that is spread takes T
    with its 16 bits.  Keys follow one another round the ring.

Source: the ring is that of the partial sums of a product (weight streaming white paper, section 7.3.1); attention on it
is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fabric.asm.operands import Dsr, Reg, Var
from fabric.layout.part import Painted

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.code import ProgramCode

__all__ = ["FIRST_KEY", "KEYS", "QUEUES", "HeadColumnTasks", "HeadPart", "keys_of", "route_heads"]

RING, RETURN = (8, 9), 10
QUEUES = 6, 0
"""The ring has this input queue and this output queue."""
FIRST_KEY, KEYS = "keys to the first own one", "own keys"
"""Parameters of a PE have these names: how many keys its owners' turn comes before it begins, and keys of a block."""


class HeadPart(NamedTuple):
    """A column has a part of a head.

    Attributes
    ----------
    columns, place : int
        Columns of a head, and which one of them this is.
    features : int
        Of each head, in the column.
    """

    columns: int
    place: int
    features: int

    @property
    def kind(self) -> tuple[bool, bool, int, int]:
        """Columns that are alike in this have the same program."""
        return self.place == 0, self.place == self.columns - 1, self.place % 2, self.features


def keys_of(place: int, columns: int, length: int) -> int:
    """Return how many keys of a block of some length a column owns."""
    return len(range(place, length, columns))


def route_heads(layout: Painted, columns: int) -> None:
    """Route the rings of all heads that there is room for."""
    for x in range(layout.width // columns * columns if columns > 1 else 0):
        place = x % columns
        if place < columns - 1:
            layout.route(RING[place % 2], (x, 0, 1, layout.height), rx="R", tx="E")
            layout.route(RING[place % 2], (x + 1, 0, 1, layout.height), rx="W", tx="R")
        rx, tx = "R" if place == columns - 1 else "E", "R" if place == 0 else "W"
        layout.route(RETURN, (x, 0, 1, layout.height), rx=rx, tx=tx)


class HeadColumnTasks:
    """A program has this to work with the other columns of a head.

    Parameters
    ----------
    code : ProgramCode
    part : HeadPart
    length : int
        Tokens of a row.
    halves : (Dsr, Dsr)
        Write and read rows of 16-bit numbers; they are lent.

    Attributes
    ----------
    keys : Var
        So many keys of a block are the column's own.
    """

    def __init__(self, code: ProgramCode, part: HeadPart, length: int, halves: tuple[Dsr, Dsr]) -> None:
        self.p, self.part, self.length = code.p, part, length
        self.into_memory, self.from_memory = halves
        p, columns, place = code.p, part.columns, part.place
        self.first, self.keys = p.param(FIRST_KEY, "u16"), p.param(KEYS, "u16")
        self.turn = p.scalar("columns behind the owner", "u16")
        arriving = p.input_queue(QUEUES[0], RING[(place - 1) % 2] if place else RETURN)
        leaving = p.output_queue(QUEUES[1], RING[place % 2] if place < columns - 1 else RETURN)
        self.came = {kind: p.fabin(arriving, length, dtype=kind) for kind in ("f32", "half")}
        self.goes = {kind: p.fabout(leaving, length, dtype=kind) for kind in ("f32", "half")}

    def start(self) -> None:
        """Emit the beginning of a block: its first key is that of the first column."""
        p, turn = self.p, self.p.reg16("turn")
        p.ld16(turn, self.first)
        p.st16(turn, self.turn)
        p.free(turn)

    def next(self) -> None:
        """Emit the way to the next key, which the next column owns."""
        p, turn, end = self.p, self.p.reg16("turn"), self.p.new_label()
        p.ld16(turn, self.turn)
        p.add16(turn, turn, 1)
        p.br16("ne", turn, self.part.columns, end)
        p.ldi(turn, 0)
        p.place(end)
        p.st16(turn, self.turn)
        p.free(turn)

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Do what is inside only if the present key is an own one."""
        p, turn, end = self.p, self.p.reg16("turn"), self.p.new_label()
        p.ld16(turn, self.turn)
        p.br16("ne", turn, 0, end)
        p.free(turn)
        yield
        p.place(end)

    def sum(self, vector: Var) -> None:
        """Emit a row of f32 numbers: plus those of all other columns, at the owner of the present key."""
        p, turn = self.p, self.p.reg16("turn")
        mine, begin, end = (p.new_label() for _ in range(3))
        row, came, goes = p.mem1d(vector, self.length), self.came["f32"], self.goes["f32"]
        p.ld16(turn, self.turn)
        p.br16("eq", turn, 0, mine)
        if self.part.columns > 2:
            p.br16("eq", turn, self.part.columns - 1, begin)
            p.fadds(goes, row, came)
            p.jump(end)
            p.place(begin)
        p.mov32(goes, row)
        p.jump(end)
        p.place(mine)
        p.fadds(row, row, came)
        p.place(end)
        p.free(turn)

    def everywhere(self, vector: Var, operation: Callable[..., None]) -> None:
        """Emit a row of f32 numbers: joined with those of all columns, the first one first, in every column."""
        p, part, row = self.p, self.part, self.p.mem1d(vector, self.length)
        came, goes = self.came["f32"], self.goes["f32"]
        if part.place == part.columns - 1:
            operation(row, row, came)
            p.mov32(goes, row)
            return
        if part.place:
            operation(goes, row, came)
        else:
            p.mov32(goes, row)
        p.mov32(row, came)
        if part.columns > 2:
            first, end = p.reg16("keys to the first own one"), p.new_label()
            p.ld16(first, self.first)
            p.br16("eq", first, 2, end)  # the last one has had it before all others
            p.mov32(goes, row)
            p.place(end)
            p.free(first)

    def spread(self, rows: Var, offset: int, own: Reg | None = None) -> None:
        """Emit the rows of all keys of a block, 16-bit numbers one behind the other, in every column.

        Parameters
        ----------
        rows : Var
        offset : int
            Numbers before the rows.
        own : Reg, optional
            Address of the own rows, which lie one behind the other and are copied; it is moved on.  Default: they lie
            among the others.
        """
        p, mine, end = self.p, self.p.new_label(), self.p.new_label()
        into, source, came, goes = self.into_memory, self.from_memory, self.came["half"], self.goes["half"]
        row, step = p.reg16("row"), p.reg16("offset")
        p.ldi(row, rows)
        p.ldi(step, offset)
        p.add16(row, row, step)
        p.free(step)
        p.load(into, p.mem1d(rows, self.length))
        p.load(source, p.mem1d(rows, self.length))
        self.start()
        with p.loop(self.length):
            turn = p.reg16("turn")
            p.ld16(turn, self.turn)
            p.dsr_base(into, row)
            p.dsr_base(source, row)
            p.br16("eq", turn, 0, mine)
            p.fmovh(into, came)
            if self.part.columns > 2:
                p.br16("eq", turn, 1, end)  # the next one has it
                p.fmovh(goes, source)
            p.jump(end)
            p.place(mine)
            if own is not None:
                p.dsr_base(source, own)
                p.fmovh(into, source)
                p.add16(own, own, self.length)
            p.fmovh(goes, source)
            p.place(end)
            p.free(turn)
            p.add16(row, row, self.length)
            self.next()
        p.free(row)
