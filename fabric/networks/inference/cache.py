"""The cache's part of a decoder's program: slots of a PE, what a step changes in them, and the way to the north.

In a PE
    Entries lie in slots 0 .. n-1 without order; a list has the slots from the oldest to the newest.  An entry that
    leaves makes room for the one that comes.  Keys lie by features, values by tokens, as the products want them.  The
    number of slots a product walks over is n rounded up to a multiple of 4; slots behind n count as lowest scores.

What moves
    One entry per layer, token and moving row, one hop to the north, on a microthread while the next one is received.

A row knows what to do by counting tokens: with t = a R + b of them in R rows, row b gets one token more, rows below it
pass one on and get one, rows above do nothing (`fabric.networks.inference.rows` has the rule from which this follows).

Source: WaferLLM, section 4.3 (shift); the closed form of who moves and the slots are derived here.
"""

from __future__ import annotations

from fabric.asm.operands import Dsr, Reg
from fabric.layout.layout import Layout
from fabric.networks.inference.axes import COLOR_SHIFT, QUEUE_SHIFT
from fabric.networks.inference.placement import Placement
from fabric.networks.inference.writer import Writer

__all__ = ["CacheCode", "route_shift"]

NOWHERE, BELOW, OWN = 0, 1, 2
"""Where a row's new entry comes from."""


def route_shift(layout: Layout, place: Placement, x: int = 0) -> None:
    """Paint the routes of the shift, from column `x` on: each row sends north, in a color of its parity."""
    for row in range(1, place.height):
        color = COLOR_SHIFT[row % 2]
        layout.route(color, (x, row, place.width, 1), rx="R", tx="N")
        layout.route(color, (x, row - 1, place.width, 1), rx="S", tx="R")


class CacheCode:
    """The cache's part of a program.

    Parameters
    ----------
    w : Writer
    policy : str
    parity : int
        Of the PE's row.
    top, bottom : bool
        Whether its row is the first, the last.
    write : Dsr, optional
        Register of descriptors for what enters the cache, if there is one already.
    """

    def __init__(self, w: Writer, policy: str, parity: int, top: bool, bottom: bool, write: Dsr | None = None) -> None:
        p, place = w.p, w.place
        self.w, self.policy, self.parity, self.top, self.bottom, self.write = w, policy, parity, top, bottom, write
        self.moving = policy == "shift" and place.height > 1
        self.row = p.param("row", "u16")
        self.phase = p.param("phase", "u16")  # tokens there, modulo rows
        self.held = p.param("held", "u16")  # tokens in this row
        self.order = p.param("order", "u16", count=place.capacity)
        self.slot, self.comes, self.goes = (p.scalar(name, "u16") for name in ("slot", "comes", "goes"))
        self.width = p.scalar("width", "u16")  # slots a product walks over
        self.size = p.scalar("size", "u16")  # of all heads' scores
        entry = 2 * place.kv_rows
        if self.moving:
            self.leaving, self.arrived = p.array("leaving", entry, place.dtype), p.array("arrived", entry, place.dtype)

    def begin(self) -> None:
        """Write what a step begins with: which slot changes, where the entry comes from, how many slots there are."""
        p, place = self.w.p, self.w.place
        phase, row, held = p.reg16("phase"), p.reg16("row"), p.reg16("held")
        value = p.reg16("value")
        p.ld16(phase, self.phase)
        p.ld16(row, self.row)
        p.ld16(held, self.held)
        p.ldi(value, NOWHERE)
        p.st16(value, self.comes)
        p.st16(value, self.goes)
        if self.policy == "concat":
            if self.bottom:
                self._grow(held, value, OWN)
        else:
            with p.if_("eq", phase, row):
                if self.moving and not self.bottom:
                    self._grow(held, value, None)
                else:
                    self._grow(held, value, OWN)
            if self.moving and not self.top:
                skip = p.new_label()
                p.branch("geu", phase, row, skip, "16")
                p.branch("eq", held, 0, skip, "16")
                self._replace(held, value)
                p.place(skip)
        p.ld16(held, self.held)
        p.add16(held, held, 3)
        p.and16(held, held, 0xFFFC)
        p.st16(held, self.width)
        p.mul16(held, held, place.heads)
        p.st16(held, self.size)
        p.add16(phase, phase, 1)
        with p.if_("eq", phase, place.height, "16"):
            p.ldi(phase, 0)
        p.st16(phase, self.phase)
        p.free(phase, row, held, value)

    def _grow(self, held: Reg, value: Reg, source: int | None) -> None:
        """Write that a new slot takes an entry; `source` None: from below unless this is the row's first."""
        p = self.w.p
        p.st16(held, self.slot)
        address = p.reg16("order")
        p.ldi(address, self.order)
        p.add16(address, address, held)
        p.st16(held, address)
        if source is None:
            p.ldi(value, BELOW)
            with p.if_("eq", held, 0, "16"):
                p.ldi(value, OWN)
        else:
            p.ldi(value, source)
        p.st16(value, self.comes)
        p.add16(held, held, 1)
        p.st16(held, self.held)
        p.free(address)

    def _replace(self, held: Reg, value: Reg) -> None:
        """Write that the oldest entry leaves and its slot takes the new one."""
        w, p = self.w, self.w.p
        last, slot = p.reg16("last"), p.reg16("slot")
        p.ld16(slot, self.order)
        p.st16(slot, self.slot)
        p.sub16(last, held, 1)
        if w.place.capacity > 1:
            source = p.dsr("src1", name="later")
            p.load(source, p.mem1d(self.order, w.place.capacity - 1, offset=1))
            p.dsr_len(source, last)
            p.mov16(p.mem1d(self.order, w.place.capacity - 1), source)
        p.ldi(value, self.order)
        p.add16(last, last, value)
        p.st16(slot, last)
        p.ldi(value, OWN if self.bottom else BELOW)
        p.st16(value, self.comes)
        p.ldi(value, 1)
        p.st16(value, self.goes)
        p.free(last, slot)

    # --- a layer ------------------------------------------------------------------------------------------------------

    def update(self) -> None:
        """Write what a layer does with its cache before attention: an entry leaves, one comes."""
        w, p, place = self.w, self.w.p, self.w.place
        mode, keys, values = p.reg16("mode"), p.reg16("keys"), p.reg16("values")
        p.ld16(keys, w.pointers["cache"])
        p.ld16(mode, self.slot)
        p.add16(keys, keys, mode)
        p.mul16(mode, mode, place.part)
        p.ld16(values, w.pointers["cache"])
        p.add16(values, values, mode)
        p.add16(values, values, place.kv_rows * place.capacity)
        by_feature = p.mem4d(w.cache, (place.kv_rows, 1), (place.capacity, 1))
        by_head = p.mem4d(w.cache, (place.kv_heads, place.part), (place.capacity * place.part, 1))
        read, write = p.dsr("src1", name="leaving entry"), self.write or p.dsr("dest", name="coming entry")
        if self.moving and not self.top:
            p.ld16(mode, self.goes)
            with p.if_("ne", mode, 0, "16"):
                for offset, walk, address in ((0, by_feature, keys), (place.kv_rows, by_head, values)):
                    p.load(read, walk)
                    p.dsr_base(read, address)
                    p.mov16(p.mem1d(self.leaving, place.kv_rows, offset=offset), read)
                out = p.output_queue(QUEUE_SHIFT, COLOR_SHIFT[self.parity])
                p.mov16(p.fabout(out, 2 * place.kv_rows), self.leaving, async_=True)
        end = p.new_label()
        p.ld16(mode, self.comes)
        p.branch("eq", mode, NOWHERE, end, "16")

        def store(entry: list) -> None:
            for source, walk, address in zip(entry, (by_feature, by_head), (keys, values), strict=True):
                p.load(write, walk)
                p.dsr_base(write, address)
                p.mov16(write, source)

        own = place.query_rows
        if self.moving and not self.bottom:
            with p.if_("eq", mode, BELOW, "16"):
                into = p.input_queue(QUEUE_SHIFT, COLOR_SHIFT[1 - self.parity])
                p.mov16(self.arrived, p.fabin(into, 2 * place.kv_rows))
                store([p.mem1d(self.arrived, place.kv_rows, offset=k * place.kv_rows) for k in range(2)])
                p.jump(end)
        store([p.mem1d(w.qkv_half, place.kv_rows, offset=own + k * place.kv_rows) for k in range(2)])
        p.place(end)
        p.free(mode, keys, values)
