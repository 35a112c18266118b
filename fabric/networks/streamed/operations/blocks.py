"""A sequence on several rows of PEs: each hands its block of tokens on to the next, south or north.

What moves
    A PE that has all it needs of a block sends it to the next one of its sequence, which takes it, sends it on and
    works on it, then the next; behind the last that passes it goes the own.  So blocks come in the order of the
    sequence from the north, and, on the way north, from the south too.  Nothing turns a router: what comes is in the
    order of sending, whoever is how far, and a sequence's last row has no way over its border.

Colors and queues
    12 and 13: south, by parity of the row that sends; input queue 4, output queue 5.  14 and 15: north; input queue 5,
    output queue 1.  A wavelet has two numbers of 16 bits, or one of 32.

Cycles
    A block of n numbers of 16 bits takes n / 2 to come in and as many to go on.  All rows work at the same time, each
    one block behind the row from which it has them.

Source: the blocks are those of H. Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context",
2023, on a line in place of a ring.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fabric.asm.operands import Dsd, Dsr, Reg, Var
from fabric.layout.part import Painted

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.code import ProgramCode

__all__ = [
    "NORTH",
    "PLACE",
    "QUEUES_NORTH",
    "QUEUES_SOUTH",
    "SOUTH",
    "BlockTasks",
    "Travelling",
    "blocks_of",
    "route_blocks",
    "rows_of",
]

SOUTH, NORTH = (12, 13), (14, 15)
"""Wavelets to the next row south, and north, have these colors, by parity of the row that sends."""
QUEUES_SOUTH, QUEUES_NORTH = (4, 5), (5, 1)
"""Each way has an input queue and an output queue."""
PLACE = "row of the sequence"
"""A parameter of a PE has this name."""


def rows_of(sequence: int, tokens: int) -> int:
    """Return on how many rows of PEs a sequence lies, given the tokens of a PE; one divides the other."""
    return max(1, sequence // tokens)


def route_blocks(layout: Painted, rows: int) -> None:
    """Route blocks from row to row of each sequence."""
    for y in range(layout.height):
        if rows > 1 and (y + 1) % rows:
            for colors, first, second, way in ((SOUTH, y, y + 1, "SN"), (NORTH, y + 1, y, "NS")):
                layout.route(colors[first % 2], (0, first, layout.width, 1), rx="R", tx=way[0])
                layout.route(colors[first % 2], (0, second, layout.width, 1), rx=way[1], tx="R")


class Travelling(NamedTuple):
    """Numbers of a block travel.

    Attributes
    ----------
    words : int
        So many numbers.
    f32 : bool
        They are f32, not of 16 bits.
    taken : Var
        They lie here if they come from another row.
    own : Var
        The own ones lie here; if they have a `place`, at the address that is kept here.
    place : (Var, int), optional
        What is worked on lies at the address that is stored so far behind this; None: where what comes is taken to.
    """

    words: int
    f32: bool
    taken: Var
    own: Var
    place: tuple[Var, int] | None = None


class BlockTasks:
    """A program has this to work on one block of a sequence after the other.

    Parameters
    ----------
    code : ProgramCode
    rows : int
        Of PEs, of a sequence.
    halves, wide : Dsr
        Read 16-bit numbers and f32 numbers; they are lent.

    Attributes
    ----------
    here : Var
        Row of its sequence that the PE is.
    block : Var
        Number of the block that is worked on.
    is_own : Var
        1 if that is the own one, else 0.
    """

    def __init__(self, code: ProgramCode, rows: int, halves: Dsr, wide: Dsr) -> None:
        self.code, self.rows, self.halves, self.wide, p = code, rows, halves, wide, code.p
        self.here = p.param(PLACE, "u16")
        self.block, self.is_own = p.scalar("block", "u16"), p.scalar("block is the own one", "u16")
        parity, self.into, self.out = code.gradient.parity, {}, {}
        for way, colors, (taking, sending) in (("S", SOUTH, QUEUES_SOUTH), ("N", NORTH, QUEUES_NORTH)):
            self.into[way] = p.input_queue(taking, colors[1 - parity])
            self.out[way] = p.output_queue(sending, colors[parity])

    @contextmanager
    def each(self, parts: Sequence[Travelling], ways: str, own: bool = True) -> Iterator[None]:
        """Repeat what is inside for each block that comes, and for the own one where it belongs in the sequence.

        Parameters
        ----------
        parts : sequence of Travelling
            What a block is.
        ways : {"S", "N", "SN"}
            Blocks go south, north or both.
        own : bool
            Work on the own one too, not only send it.
        """
        p = self.code.p
        mine, from_south, work, behind = (p.new_label() for _ in range(4))
        self._begin(parts, ways)
        begin = p.label()
        block, here = p.reg16("block"), p.reg16("row of the sequence")
        p.ld16(block, self.block)
        p.ld16(here, self.here)
        p.br16("eq", block, here, mine)
        if ways == "SN":
            p.br16("gt", block, here, from_south)
        for way in ways:
            if way == "N":
                p.place(from_south)
            self._take(parts, way, here)
            p.jump(work)
        p.place(mine)
        self._own(parts, ways, here)
        if not own:
            p.jump(behind)
        p.place(work)
        p.free(block, here)
        yield
        p.place(behind)
        block, last = p.reg16("block"), p.reg16("last block")
        p.ld16(block, self.block)
        if "N" in ways:
            p.ldi(last, self.rows - 1)
        else:
            p.ld16(last, self.here)
        end = p.new_label()
        p.br16("eq", block, last, end)
        p.add16(block, block, 1)
        p.st16(block, self.block)
        p.jump(begin)
        p.place(end)
        p.free(block, last)
        self._restore(parts)

    def seen(self, ways: str) -> Reg:
        """Emit how many blocks `each` works on; return the register with it."""
        p = self.code.p
        count = p.reg16("blocks")
        if ways == "SN":
            p.ldi(count, self.rows)
        else:
            p.ld16(count, self.here)
            p.add16(count, count, 1)
        return count

    def _begin(self, parts: Sequence[Travelling], ways: str) -> None:
        """Emit the number of the first block, and what keeps the addresses of the own one."""
        p = self.code.p
        number = p.reg16("number")
        for part in parts:
            if part.place is not None:
                p.ld16(number, part.place[0], offset=part.place[1])
                p.st16(number, part.own)
        if "S" in ways:
            p.ldi(number, 0)
        else:
            p.ld16(number, self.here)
        p.st16(number, self.block)
        p.free(number)

    def _take(self, parts: Sequence[Travelling], way: str, here: Reg) -> None:
        """Emit the taking of a block, which then is what is worked on; all but the last row send it on."""
        p, end = self.code.p, self.code.p.new_label()
        for part in parts:
            came = p.fabin(self.into[way], part.words, dtype="f32" if part.f32 else "half")
            self._move(part, p.mem1d(part.taken, part.words), came)
        p.br16("eq", here, self.rows - 1 if way == "S" else 0, end)
        for part in parts:
            self._send(part, way, p.mem1d(part.taken, part.words))
        p.place(end)
        place = p.reg16("place")
        for part in parts:
            if part.place is not None:
                p.ldi(place, part.taken)
                p.st16(place, part.place[0], offset=part.place[1])
        p.ldi(place, 0)
        p.st16(place, self.is_own)
        p.free(place)

    def _own(self, parts: Sequence[Travelling], ways: str, here: Reg) -> None:
        """Emit the sending of the own block to the rows beside; it is what is worked on."""
        p = self.code.p
        for way in ways:
            end = p.new_label()
            p.br16("eq", here, self.rows - 1 if way == "S" else 0, end)
            for part in parts:
                self._send(part, way, self._source(part))
            p.place(end)
        self._restore(parts)
        for part in parts:
            if part.place is None:
                self._move(part, p.mem1d(part.taken, part.words), p.mem1d(part.own, part.words))
        one = p.reg16("one")
        p.ldi(one, 1)
        p.st16(one, self.is_own)
        p.free(one)

    def _source(self, part: Travelling) -> Dsd | Dsr:
        """Emit the load of what reads the own numbers; return it."""
        p = self.code.p
        if part.place is None:
            return p.mem1d(part.own, part.words)
        source, place = self.wide if part.f32 else self.halves, p.reg16("place")
        p.load(source, p.mem1d(self.code.held["expo" if part.f32 else "a0"], part.words, check=False))
        p.ld16(place, part.own)
        p.dsr_base(source, place)
        p.free(place)
        return source

    def _send(self, part: Travelling, way: str, source: Dsd | Dsr) -> None:
        self._move(part, self.code.p.fabout(self.out[way], part.words, dtype="f32" if part.f32 else "half"), source)

    def _move(self, part: Travelling, dest: Dsd, source: Dsd | Dsr) -> None:
        move = self.code.p.mov32 if part.f32 else self.code.p.fmovh
        move(dest, source)

    def _restore(self, parts: Sequence[Travelling]) -> None:
        """Emit the addresses of the own block as those that are worked on."""
        p = self.code.p
        place = p.reg16("place")
        for part in parts:
            if part.place is not None:
                p.ld16(place, part.own)
                p.st16(place, part.place[0], offset=part.place[1])
        p.free(place)


def blocks_of(code: ProgramCode, rows: int) -> BlockTasks:
    """Return what works on blocks of a sequence in a program, the same one for all of its operations."""
    if code.blocks is None:
        code.blocks = BlockTasks(code, rows, code.reads["label"], code.reads["wide"])
    return code.blocks
