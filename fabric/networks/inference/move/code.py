"""Programs that move a cache to another mesh have parts for PEs that send, that only pass on, and that receive.

Senders and those between work layer by layer: tokens along the column first (`fabric.networks.inference.move.plan`),
then each row's tokens to the east, entry by entry, own ones first and then those of the columns to the west.  On the
other mesh the root of each row's tree receives and floods them over its row, as it does with sums, so that this takes
no queue that decoding does not have: the root is the one PE that nobody floods.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fabric.asm.operands import Dsd, Dsr, Queue, Reg, Var
from fabric.kernels.matvec.line_sum import LineSum
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill.channels import COLOR_EAST, FROM_WEST, TO_EAST, Ends
from fabric.networks.inference.writer import DecoderWriter
from fabric.program.program import Program

__all__ = ["COLOR_ACROSS", "COLOR_ALONG", "COLOR_PASS", "MovingRow", "Sender", "receive_cache"]

COLOR_ACROSS, COLOR_ALONG, COLOR_PASS = 17, (18, 19), 20
"""Entries go from mesh to mesh in the first color, along columns in the next two, by the parity of the sender's row;
tokens of the host pass the first mesh in the last.
"""
QUEUE_ALONG = 4, 1
"""Entries along columns are received by this input queue and sent by this output queue."""


@contextmanager
def counted(p: Program, var: Var) -> Iterator[None]:
    """Repeat the block as often as a variable says, perhaps never."""
    left = p.reg16("left")
    p.ld16(left, var)
    with p.while_("ne", left, 0, "16"):
        p.sub16(left, left, 1)
        yield
    p.free(left)


class MovingRow(NamedTuple):
    """A `MovingRow` is what a program of a sender depends on along y.

    Attributes
    ----------
    parity : int
    down : bool
        Whether tokens move down the columns; else up.
    source, target : bool
        Whether tokens come from a neighbour in the column, and whether they go to one.
    crosses : bool
        Whether the other mesh has such a row.
    most : int
        Tokens that a row comes to have, at most.
    """

    parity: int
    down: bool
    source: bool
    target: bool
    crosses: bool
    most: int


class Sender:
    """A `Sender` writes what a PE needs that sends entries to the other mesh, its own or only those of others.

    Parameters
    ----------
    p : Program
    place : DecoderPlacement
        Of the mesh that read the prompt.
    parity : int
        Of the PE's column.
    ends : Ends
        Of its row on this mesh.
    row : MovingRow
    cache : Var or None
        Its cache; None: it has none and passes on only.
    walks : pair of Dsr, optional
        Registers of descriptors that may be used, for a source and for a destination.
    """

    def __init__(
        self,
        p: Program,
        place: DecoderPlacement,
        parity: int,
        ends: Ends,
        row: MovingRow,
        cache: Var | None,
        walks: tuple[Dsr, Dsr] | None = None,
    ) -> None:
        self.p, self.place, self.cache, self.down = p, place, cache, row.down
        self.size = 2 * place.kv_rows
        self.counts = {name: p.param(f"moved_{name}", "u16") for name in ("kept", "sent", "received", "passed", "has")}
        self.entry = p.array("moved_entry", self.size, place.dtype)
        self.held = p.array("moved_tokens", row.most * self.size, place.dtype)
        self.from_west: Queue | None = None
        self.to_east: Queue | None = None
        if row.crosses:
            self.to_east = p.output_queue(TO_EAST, COLOR_EAST[parity] if ends.east else COLOR_ACROSS)
            if ends.west:
                self.before = p.param("columns_before", "u16")
                self.from_west = p.input_queue(FROM_WEST, COLOR_EAST[1 - parity])
        self.into = p.input_queue(QUEUE_ALONG[0], COLOR_ALONG[1 - row.parity]) if row.source else None
        self.out = p.output_queue(QUEUE_ALONG[1], COLOR_ALONG[row.parity]) if row.target else None
        self.walks = walks or (p.dsr("src1", name="moved walk"), p.dsr("dest", name="moved kept"))

    def emit(self) -> None:
        """Write the moving of all layers."""
        p, place = self.p, self.place
        keys, values, at = p.reg16("keys"), p.reg16("values"), p.reg16("at")
        if self.cache is not None:
            p.ldi(keys, self.cache)
        with p.loop(place.decoder.layers):
            if self.cache is not None:
                p.add16(values, keys, place.kv_rows * place.capacity)
            p.ldi(at, self.held)
            if self.down is not False:
                self._received(at)
                self._passed()
                self._own("kept", keys, values, at)
                self._own("sent", keys, values, None)
            else:
                self._own("sent", keys, values, None)
                self._passed()
                self._own("kept", keys, values, at)
                self._received(at)
            self._across(at)
            if self.cache is not None:  # values went on to behind the last token: the next layer is at a known distance
                p.ld16(at, self.counts["kept"])
                p.sub16(keys, keys, at)
                p.ld16(at, self.counts["sent"])
                p.sub16(keys, keys, at)
                p.add16(keys, keys, place.cache_words)
        p.free(keys, values, at)

    def _put(self, source: Var | Dsd, at: Reg) -> None:
        """Write that an entry is kept at an address, which moves on."""
        p, kept = self.p, self.walks[1]
        p.load(kept, p.mem1d(self.held, self.size))
        p.dsr_base(kept, at)
        p.mov16(kept, source)
        p.add16(at, at, self.size)

    def _received(self, at: Reg) -> None:
        if self.into is not None:
            with counted(self.p, self.counts["received"]):
                self._put(self.p.fabin(self.into, self.size), at)

    def _passed(self) -> None:
        if self.into is not None and self.out is not None:
            with counted(self.p, self.counts["passed"]):
                self.p.mov16(self.p.fabout(self.out, self.size), self.p.fabin(self.into, self.size))

    def _own(self, name: str, keys: Reg, values: Reg, at: Reg | None) -> None:
        """Write that the next entries of the cache are kept at an address, or sent along the column."""
        p, place, cache = self.p, self.place, self.cache
        out = self.out if at is None else None
        if cache is None or (at is None and out is None):
            return
        by_feature = p.mem4d(cache, (place.kv_rows, 1), (place.capacity, 1))
        by_head = p.mem4d(cache, (place.kv_heads, place.part), (place.capacity * place.part, 1))
        walk: Dsr = self.walks[0]
        with counted(p, self.counts[name]):
            for offset, shape, address, step in (
                (0, by_feature, keys, 1),
                (place.kv_rows, by_head, values, place.part),
            ):
                p.load(walk, shape)
                p.dsr_base(walk, address)
                p.mov16(p.mem1d(self.entry, place.kv_rows, offset=offset), walk)
                p.add16(address, address, step)
            if out is not None:
                p.mov16(p.fabout(out, self.size), self.entry)
            elif at is not None:
                self._put(self.entry, at)

    def _across(self, at: Reg) -> None:
        """Write that the tokens of the row go to the east, own entry first and then those from the west."""
        p, held = self.p, self.walks[0]
        if self.to_east is None:
            return
        p.ldi(at, self.held)
        with counted(p, self.counts["has"]):
            p.load(held, p.mem1d(self.held, self.size))
            p.dsr_base(held, at)
            p.mov16(p.fabout(self.to_east, self.size), held)
            p.add16(at, at, self.size)
            if self.from_west is not None:
                with counted(p, self.before):
                    p.mov16(p.fabout(self.to_east, self.size), p.fabin(self.from_west, self.size))


def receive_cache(w: DecoderWriter, flood: LineSum, is_root: bool, coming: int, write: Dsr) -> None:
    """Write that all entries of the row's tokens come, and that the PE puts its features into its cache.

    Parameters
    ----------
    w : DecoderWriter
    flood : LineSum
        An all-reduce along the row, whose flood is taken.
    is_root : bool
        Whether the PE is its root.
    coming : int
        Numbers of a token in a layer that come.
    write : Dsr
        Register of descriptors that may be used, for a destination.
    """
    p, place = w.p, w.place
    size, queues = 2 * place.kv_rows, flood.queues
    take = p.param("take", "u16", count=size)
    known = p.param("moved_has", "u16")
    buffer, own = p.array("moved_coming", coming + 2, place.dtype), p.array("moved_own", size, place.dtype)
    p.mov16(p.mem1d(buffer, 2, offset=coming), 0)
    keys, values, left, at = p.reg16("keys"), p.reg16("values"), p.reg16("left"), p.reg16("at")
    number, address, slots = p.reg16("number"), p.reg16("address"), p.reg16("slots")
    by_feature = p.mem4d(w.cache, (place.kv_rows, 1), (place.capacity, 1))
    by_head = p.mem4d(w.cache, (place.kv_heads, place.part), (place.capacity * place.part, 1))
    p.ldi(keys, w.cache)
    with p.loop(place.decoder.layers):
        p.add16(values, keys, place.kv_rows * place.capacity)
        p.ld16(left, known)
        with p.while_("ne", left, 0, "16"):
            p.sub16(left, left, 1)
            color = COLOR_ACROSS if is_root else flood.colors[-1]
            p.mov16(p.mem1d(buffer, coming), p.fabin(p.input_queue(queues.flood_in, color), coming))
            if is_root and flood.floods:
                out = p.output_queue(queues.flood_out, flood.colors[-1])
                p.mov16(p.fabout(out, coming), p.mem1d(buffer, coming))
            p.ldi(at, size)
            with p.while_("ne", at, 0, "16"):
                p.sub16(at, at, 1)
                p.ld16(number, take, index=at)
                p.ldi(address, buffer)
                p.add16(address, address, number)
                p.ld16(number, address)
                p.ldi(address, own)
                p.add16(address, address, at)
                p.st16(number, address)
            for offset, walk, base, step in ((0, by_feature, keys, 1), (place.kv_rows, by_head, values, place.part)):
                p.load(write, walk)
                p.dsr_base(write, base)
                p.mov16(write, p.mem1d(own, place.kv_rows, offset=offset))
                p.add16(base, base, step)
        p.ld16(slots, known)
        p.sub16(keys, keys, slots)
        p.add16(keys, keys, place.cache_words)
    p.free(keys, values, left, at, number, address, slots)
