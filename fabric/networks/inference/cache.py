"""The cache is a part of a decoder's program: slots of a PE, what a step changes in them, and the way to the north.

In a PE
    Entries lie in slots 0 .. n-1 without order; a list has the slots from the oldest to the newest.  An entry that
    leaves makes room for the one that comes.  Keys lie by features, values by tokens, as the products want them; of
    numbers of 8 bits (`fabric.networks.inference.int8`) two share a word, and exponents lie behind, by heads.  The
    number of slots a product walks over is n rounded up to a multiple of 4; slots behind n count as lowest scores.

What moves
    One entry per layer, token and moving row, one hop to the north, on a microthread while the next one is received.

A row knows what to do by counting tokens: with t = a R + b of them in R rows, row b gets one token more, rows below it
pass one on and get one, rows above do nothing (`fabric.networks.inference.rows` has the rule from which this follows).

Source: WaferLLM, section 4.3 (shift); the closed form of who moves and the slots are derived here.
"""

from __future__ import annotations

from collections.abc import Iterator

from fabric.asm.operands import Dsd, Dsr, Reg, Var
from fabric.layout.layout import Layout
from fabric.networks.inference.axes import COLOR_SHIFT, QUEUE_SHIFT
from fabric.networks.inference.int8 import emit_entries
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.writer import DecoderWriter

__all__ = ["BLOCKS", "CacheCode", "route_shift"]

BLOCKS = "blocks"
"""Policy of a program that reads a prompt in pieces for one whose entries move: each row takes its block of tokens."""

NOWHERE, BELOW, OWN = 0, 1, 2
"""A row's new entry comes from one of these: from nowhere, from the row below, from the row itself."""


def route_shift(layout: Layout, place: DecoderPlacement, x: int = 0) -> None:
    """Paint the routes of the shift, from column `x` on: each row sends north, in a color of its parity."""
    for row in range(1, place.height):
        color = COLOR_SHIFT[row % 2]
        layout.route(color, (x, row, place.width, 1), rx="R", tx="N")
        layout.route(color, (x, row - 1, place.width, 1), rx="S", tx="R")


class CacheCode:
    """A `CacheCode` writes the cache's part of a decoder's program.

    Parameters
    ----------
    w : DecoderWriter
    policy : str
        One of `fabric.networks.inference.rows.POLICIES`, or `BLOCKS`.
    parity : int
        Of the PE's row.
    top, bottom : bool
        Whether its row is the first, the last.
    write : Dsr, optional
        Register of descriptors for what enters the cache, if there is one already.
    """

    def __init__(
        self, w: DecoderWriter, policy: str, parity: int, top: bool, bottom: bool, write: Dsr | None = None
    ) -> None:
        p, place = w.p, w.place
        self.w, self.policy, self.parity, self.top, self.bottom, self.write = w, policy, parity, top, bottom, write
        self.moving = policy == "shift" and place.height > 1
        lanes = place.lanes
        self.row = p.param("row", "u16")
        if policy == BLOCKS:
            self.first, self.share = p.param("first_of_row", "u16"), p.param("tokens_of_row", "u16")
        self.phase = p.param("phase", "u16", count=lanes)  # tokens there, modulo rows
        self.held = p.param("held", "u16", count=lanes)  # tokens in this row
        if place.ahead == 1:
            self.order = p.param("order", "u16", count=lanes * place.capacity)
        else:
            self.cache_at = p.array("caches_at", lanes, "u16")  # words from the first cache to that of each token
        self.slot, self.comes, self.goes = (p.array(name, lanes, "u16") for name in ("slot", "comes", "goes"))
        self.width = p.array("width", lanes, "u16")  # slots a product walks over
        self.size = p.scalar("size", "u16")  # of all heads' scores, of all tokens
        entry = lanes * place.entry_words
        if self.moving:
            self.leaving, self.arrived = p.array("leaving", entry, place.dtype), p.array("arrived", entry, place.dtype)
            if lanes > 1 and place.ahead == 1:
                self.leavers, self.comers = p.scalar("leavers", "u16"), p.scalar("comers", "u16")

    def begin(self) -> None:
        """Write what a step begins with: which slot changes, where the entry comes from, how many slots there are."""
        p = self.w.p
        if self.w.place.lanes > 1:
            zero = p.reg16("zero")
            p.ldi(zero, 0)
            p.st16(zero, self.size)
            if self.moving:
                p.st16(zero, self.leavers)
                p.st16(zero, self.comers)
            p.free(zero)
        with self.w.lanes() as lane:
            if lane is not None and self.w.place.ahead > 1:
                self._begin_ahead(lane)
            else:
                self._begin(lane)

    def _begin(self, lane: Reg | None) -> None:
        """Write what a step begins with, for one of its tokens."""
        p, place = self.w.p, self.w.place
        phase, row, held = p.reg16("phase"), p.reg16("row"), p.reg16("held")
        value = p.reg16("value")
        p.ld16(phase, self.phase, index=lane)
        p.ld16(row, self.row)
        p.ld16(held, self.held, index=lane)
        if place.batch:
            p.ld16(value, self.w.goes_on, index=lane)
            with p.if_("eq", value, 0, "16"):
                p.ldi(phase, 0)
                p.ldi(held, 0)
                p.st16(held, self.held, index=lane)
        p.ldi(value, NOWHERE)
        p.st16(value, self.comes, index=lane)
        p.st16(value, self.goes, index=lane)
        if self.policy == "concat":
            if self.bottom:
                self._grow(held, value, OWN, lane)
        else:
            with p.if_("eq", phase, row):
                if self.moving and not self.bottom:
                    self._grow(held, value, None, lane)
                else:
                    self._grow(held, value, OWN, lane)
            if self.moving and not self.top:
                skip = p.new_label()
                p.branch("geu", phase, row, skip, "16")
                p.branch("eq", held, 0, skip, "16")
                self._replace(held, value, lane)
                p.place(skip)
        p.ld16(held, self.held, index=lane)
        p.add16(held, held, 3)
        p.and16(held, held, 0xFFFC)
        p.st16(held, self.width, index=lane)
        p.mul16(held, held, place.heads)
        if lane is not None:
            p.ld16(value, self.size)
            p.add16(held, held, value)
        p.st16(held, self.size)
        p.add16(phase, phase, 1)
        with p.if_("eq", phase, place.height, "16"):
            p.ldi(phase, 0)
        p.st16(phase, self.phase, index=lane)
        p.free(phase, row, held, value)

    def _begin_ahead(self, lane: Reg) -> None:
        """Write what a step begins with, for one of its tokens, where several belong to a request.

        Entries never leave their slots, so that a row's tokens are its first slots: a token behind others sees these.
        """
        w, p, place = self.w, self.w.p, self.w.place
        before, phase, held, value = p.reg16("before"), p.reg16("phase"), p.reg16("held"), p.reg16("value")
        again, own, done = p.new_label(), p.new_label(), p.new_label()
        p.ld16(before, w.goes_on, index=lane)
        p.ldi(phase, 0)
        p.ldi(held, 0)
        p.branch("eq", before, 0, own, "16")
        p.branch("gtu", before, place.lanes, again, "16")
        p.ld16(phase, self.phase[0] + -1, index=before)
        p.ld16(held, self.held[0] + -1, index=before)
        p.place(own)
        p.ldi(value, NOWHERE)
        if self.policy == BLOCKS:  # of which phase counts all tokens
            share, skip = p.reg16("share"), p.new_label()
            p.ld16(before, self.first)
            p.ld16(share, self.share)
            p.sub16(before, phase, before)
            p.branch("geu", before, share, skip, "16")
            self._take(held, value, lane)
            p.place(skip)
            p.free(share)
        elif self.policy != "concat":
            p.ld16(before, self.row)
            with p.if_("eq", phase, before):
                self._take(held, value, lane)
        elif self.bottom:
            self._take(held, value, lane)
        p.st16(value, self.comes, index=lane)
        p.add16(phase, phase, 1)
        if self.policy != BLOCKS:
            with p.if_("eq", phase, place.height, "16"):
                p.ldi(phase, 0)
        p.jump(done)
        p.place(again)  # the same token in the same place
        p.sub16(before, before, place.lanes)
        for var, register in ((self.phase, phase), (self.held, held)):
            p.ld16(register, var[0] + -1, index=before)
        for var in (self.slot, self.comes):
            p.ld16(value, var[0] + -1, index=before)
            p.st16(value, var, index=lane)
        p.place(done)
        p.st16(phase, self.phase, index=lane)
        p.st16(held, self.held, index=lane)
        p.add16(held, held, 3)
        p.and16(held, held, 0xFFFC)
        p.st16(held, self.width, index=lane)
        p.mul16(held, held, place.heads)
        p.ld16(value, self.size)
        p.add16(held, held, value)
        p.st16(held, self.size)
        p.free(before, phase, held, value)

    def _take(self, held: Reg, value: Reg, lane: Reg) -> None:
        """Write that a token's entry comes into a new slot."""
        p = self.w.p
        p.st16(held, self.slot, index=lane)
        p.add16(held, held, 1)
        p.ldi(value, OWN)

    def places(self) -> None:
        """Write where the caches of all tokens are, once."""
        p, place = self.w.p, self.w.place
        address, at = p.reg16("cache"), p.reg16("at")
        p.ldi(address, 0)
        p.ldi(at, self.cache_at)
        with self.w.times(place.batch):
            with p.loop(place.ahead):
                p.st16(address, at)
                p.add16(at, at, 1)
            p.add16(address, address, place.cache_words)
        p.free(address, at)

    def own(self, address: Reg, lane: Reg | None) -> None:
        """Write address = where the cache of a token's request is, in the layer that comes."""
        p, place = self.w.p, self.w.place
        p.ld16(address, self.w.pointers["cache"])
        if lane is not None:
            words = p.reg16("words")
            if place.ahead == 1:
                p.mul16(words, lane, place.cache_words)
            else:
                p.ld16(words, self.cache_at, index=lane)
            p.add16(address, address, words)
            p.free(words)

    def _first(self, lane: Reg | None, address: Reg) -> None:
        """Write address = where a token's list of slots begins."""
        p = self.w.p
        p.ldi(address, self.order)
        if lane is not None:
            words = p.reg16("words")
            p.mul16(words, lane, self.w.place.capacity)
            p.add16(address, address, words)
            p.free(words)

    def _count(self, number: Var, lane: Reg | None) -> None:
        """Write that there is one entry more that comes from below, or leaves; of several tokens at a time."""
        if lane is not None:
            p = self.w.p
            count = p.reg16("count")
            p.ld16(count, number)
            p.add16(count, count, 1)
            p.st16(count, number)
            p.free(count)

    def _grow(self, held: Reg, value: Reg, source: int | None, lane: Reg | None) -> None:
        """Write that a new slot takes an entry; `source` None: from below unless this is the row's first."""
        p = self.w.p
        p.st16(held, self.slot, index=lane)
        address = p.reg16("order")
        self._first(lane, address)
        p.add16(address, address, held)
        p.st16(held, address)
        if source is None:
            p.ldi(value, BELOW)
            with p.if_("eq", held, 0, "16"):
                p.ldi(value, OWN)
            if lane is not None:
                with p.if_("ne", held, 0, "16"):
                    self._count(self.comers, lane)
        else:
            p.ldi(value, source)
        p.st16(value, self.comes, index=lane)
        p.add16(held, held, 1)
        p.st16(held, self.held, index=lane)
        p.free(address)

    def _replace(self, held: Reg, value: Reg, lane: Reg | None) -> None:
        """Write that the oldest entry leaves and its slot takes the new one."""
        w, p = self.w, self.w.p
        last, slot = p.reg16("last"), p.reg16("slot")
        if lane is None:
            p.ld16(slot, self.order)
        else:
            self._first(lane, value)
            p.ld16(slot, value)
        p.st16(slot, self.slot, index=lane)
        p.sub16(last, held, 1)
        if w.place.capacity > 1:
            source = p.dsr("src1", name="later")
            p.load(source, p.mem1d(self.order, w.place.capacity - 1, offset=1))
            p.dsr_len(source, last)
            if lane is None:
                p.mov16(p.mem1d(self.order, w.place.capacity - 1), source)
            else:
                into = w.register("dest", "entry to write")
                p.load(into, p.mem1d(self.order, w.place.capacity - 1))
                p.dsr_base(into, value)
                p.add16(value, value, 1)
                p.dsr_base(source, value)
                p.mov16(into, source)
                p.sub16(value, value, 1)
        if lane is None:
            p.ldi(value, self.order)
        p.add16(last, last, value)
        p.st16(slot, last)
        p.ldi(value, OWN if self.bottom else BELOW)
        p.st16(value, self.comes, index=lane)
        p.ldi(value, 1)
        p.st16(value, self.goes, index=lane)
        p.free(last, slot)
        if lane is not None:
            self._count(self.leavers, lane)
            if not self.bottom:
                self._count(self.comers, lane)

    # --- a layer ------------------------------------------------------------------------------------------------------

    def _own(self) -> tuple[Var, int, int]:
        """Return where the entries of a step's tokens are, the first word of the first, and the words between them."""
        w, place = self.w, self.w.place
        return (
            (w.entries, 0, place.entry_words)
            if place.int8
            else (w.qkv_half, place.query_rows, place.shapes["qkv"].rows)
        )

    def _walks(self) -> list[tuple[int, Dsd]]:
        """Return the words of each section of an entry, and how it is walked over where it lies in the cache."""
        p, place, cache = self.w.p, self.w.place, self.w.cache
        rows, heads, part, slots = place.kept_rows, place.kv_heads, place.kept_part, place.capacity
        found = [
            (rows, p.mem4d(cache, (rows, 1), (slots, 1))),
            (rows, p.mem4d(cache, (heads, part), (slots * part, 1))),
        ]
        return found + [(heads, p.mem4d(cache, (heads, 1), (slots, 1)))] * place.int8

    def update(self) -> None:
        """Write what a layer does with its cache before attention: an entry leaves, one comes."""
        w, p, place = self.w, self.w.p, self.w.place
        if place.int8:
            emit_entries(w)
        if place.lanes > 1:
            self._update_all()
            return
        mode, keys, values = p.reg16("mode"), p.reg16("keys"), p.reg16("values")
        p.ld16(keys, w.pointers["cache"])
        p.ld16(mode, self.slot)
        p.add16(keys, keys, mode)
        p.mul16(mode, mode, place.kept_part)
        p.ld16(values, w.pointers["cache"])
        p.add16(values, values, mode)
        p.add16(values, values, place.kept_rows * place.capacity)
        places = [keys, values]
        if place.int8:
            places.append(p.reg16("exponents"))
            p.add16(places[2], keys, 2 * place.kept_rows * place.capacity)
        walks, entry = self._walks(), place.entry_words
        read, write = p.dsr("src1", name="leaving entry"), self.write or p.dsr("dest", name="coming entry")
        if self.moving and not self.top:
            p.ld16(mode, self.goes)
            with p.if_("ne", mode, 0, "16"):
                offset = 0
                for (count, walk), address in zip(walks, places, strict=True):
                    p.load(read, walk)
                    p.dsr_base(read, address)
                    p.mov16(p.mem1d(self.leaving, count, offset=offset), read)
                    offset += count
                out = p.output_queue(QUEUE_SHIFT, COLOR_SHIFT[self.parity])
                p.mov16(p.fabout(out, entry), self.leaving, async_=True)
        end = p.new_label()
        p.ld16(mode, self.comes)
        p.branch("eq", mode, NOWHERE, end, "16")

        def store(source: Var, offset: int) -> None:
            for (count, walk), address in zip(walks, places, strict=True):
                p.load(write, walk)
                p.dsr_base(write, address)
                p.mov16(write, p.mem1d(source, count, offset=offset))
                offset += count

        if self.moving and not self.bottom:
            with p.if_("eq", mode, BELOW, "16"):
                into = p.input_queue(QUEUE_SHIFT, COLOR_SHIFT[1 - self.parity])
                p.mov16(self.arrived, p.fabin(into, entry))
                store(self.arrived, 0)
                p.jump(end)
        own, first, _ = self._own()
        store(own, first)
        p.place(end)
        p.free(mode, *places)

    def _update_all(self) -> None:
        """Write `update` of several tokens: entries that leave, and those that come, are one message."""
        w, p, place = self.w, self.w.p, self.w.place
        if self.moving and not self.top:
            self._send()
        entries, own = p.reg16("entries"), p.reg16("own entry")
        if self.moving and not self.bottom:
            p.ld16(entries, self.comers)
            with p.if_("ne", entries, 0, "16"):
                p.mul16(entries, entries, place.entry_words)
                into, queue = (
                    w.register("dest", "entry to write"),
                    p.input_queue(QUEUE_SHIFT, COLOR_SHIFT[1 - self.parity]),
                )
                source = w.register("src1", "entry to read")
                p.load(into, p.mem1d(self.arrived))
                p.load(source, p.fabin(queue, place.lanes * place.entry_words))
                p.dsr_len(into, entries)
                p.dsr_len(source, entries)
                p.mov16(into, source)
            p.ldi(entries, self.arrived)
        read, write = w.register("src1", "entry to read"), w.register("dest", "entry to write")
        entry, first, each = self._own()
        p.load(read, p.mem1d(entry, place.kept_rows, save=True))
        p.ldi(own, entry[first])
        with w.lanes() as lane:
            mode = p.reg16("mode")
            end, stored = p.new_label(), p.new_label()
            p.ld16(mode, self.comes, index=lane)
            p.branch("eq", mode, NOWHERE, end, "16")
            if self.moving and not self.bottom:
                p.dsr_base(read, entries)
                with p.if_("eq", mode, BELOW, "16"):
                    p.add16(entries, entries, place.entry_words)
                    p.jump(stored)
            p.dsr_base(read, own)
            p.place(stored)
            for address, (count, walk) in zip(self._entry(lane, mode), self._walks(), strict=True):
                p.load(write, walk)
                p.dsr_base(write, address)
                if place.int8:  # fewer exponents than keys
                    p.dsr_len(read, count)
                p.mov16(write, read)
            p.place(end)
            p.add16(own, own, each)
            p.free(mode)
        p.free(entries, own)

    def _send(self) -> None:
        """Write that the entries of all tokens that leave go to the north."""
        w, p, place = self.w, self.w.p, self.w.place
        count = p.reg16("count")
        p.ld16(count, self.leavers)
        with p.if_("ne", count, 0, "16"):
            read, write = w.register("src1", "entry to read"), w.register("dest", "entry to write")
            p.load(write, p.mem1d(self.leaving, place.kept_rows, save=True))
            with w.lanes() as lane:
                mode = p.reg16("mode")
                p.ld16(mode, self.goes, index=lane)
                with p.if_("ne", mode, 0, "16"):
                    for address, (_, walk) in zip(self._entry(lane, mode), self._walks(), strict=True):
                        p.load(read, walk)
                        p.dsr_base(read, address)
                        p.mov16(write, read)
                p.free(mode)
            p.mul16(count, count, place.entry_words)
            out, source = w.register("dest", "to above"), w.register("src1", "leaving entries")
            p.load(
                out, p.fabout(p.output_queue(QUEUE_SHIFT, COLOR_SHIFT[self.parity]), place.lanes * place.entry_words)
            )
            p.load(source, p.mem1d(self.leaving))
            p.dsr_len(out, count)
            p.dsr_len(source, count)
            p.mov16(out, source, async_=True)
        p.free(count)

    def _entry(self, lane: Reg | None, slot: Reg) -> Iterator[Reg]:
        """Give where each section of a token's slot begins: the keys, then the values, and exponents if there are."""
        p, place = self.w.p, self.w.place
        address, words = p.reg16("address"), p.reg16("words")
        self.own(address, lane)
        p.ld16(slot, self.slot, index=lane)
        p.add16(address, address, slot)
        yield address
        p.mul16(words, slot, place.kept_part - 1)
        p.add16(address, address, words)
        p.add16(address, address, place.kept_rows * place.capacity)
        yield address
        if place.int8:
            p.sub16(address, address, words)
            p.add16(address, address, place.kept_rows * place.capacity)
            yield address
        p.free(address, words)
