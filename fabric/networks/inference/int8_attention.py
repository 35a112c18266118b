"""Attention over a cache of 8 bits opens keys and values some at a time, and then is that over a cache of 16 bits.

Scores open a row of keys, one feature of all slots, which the queries of all heads that share it then meet: products
come feature by feature, one of the first half of a column's features and one of the second in turn.  The mix opens the
values of four slots.

Source: derived here.
"""

from __future__ import annotations

from fabric.asm.operands import Dsr, Reg
from fabric.networks.inference.attention import Attention
from fabric.networks.inference.int8 import BYTE, TOP, opener

__all__ = ["Int8Attention"]

SLOTS = 4
"""Values of so many slots are opened together."""


class Int8Attention(Attention):
    """An `Int8Attention` writes attention over a cache of 8 bits; parameters are those of `Attention`."""

    def _registers(self, count: int) -> tuple[Dsr, Dsr, Dsr, Dsr]:
        """Load and return registers that walk over words of the cache, and over `count` opened numbers.

        The last three: where they are written, their bits, and the same as floats.
        """
        w, p = self.w, self.w.p
        packed, into = w.register("src1", "packed"), w.register("dest", "opened")
        bits, halves = w.register("src0", "opened bits"), w.register("src0", "opened floats")
        p.load(packed, p.mem1d(w.cache, check=False))
        p.load(into, p.mem1d(w.opened, count, dtype="u16"))
        p.load(bits, p.mem1d(w.opened, count, dtype="u16"))
        p.load(halves, p.mem1d(w.opened, count))
        return packed, into, bits, halves

    def _powers(self, packed: Dsr, values: bool, address: Reg) -> None:
        """Write the powers of two of a head's slots, of keys or values, as many as registers walk over."""
        w, p = self.w, self.w.p
        into, powers = w.register("dest", "powers to write"), w.register("src1", "powers")
        p.dsr_base(packed, address)
        if values:
            p.slr16(into, packed, 8)
        else:
            p.and16(into, packed, BYTE)
        p.sub16(into, powers, TOP)

    def _load_powers(self) -> Dsr:
        """Load and return the register that walks over the powers of two of slots."""
        w, p, place = self.w, self.w.p, self.w.place
        powers = w.register("src1", "powers")
        p.load(w.register("dest", "powers to write"), p.mem1d(w.powers, place.capacity))
        p.load(powers, p.mem1d(w.powers, place.capacity))
        return powers

    def _open(self, bits: Dsr, halves: Dsr, powers: Dsr) -> None:
        """Write that bytes in words become numbers of 16 bits."""
        p, place = self.w.p, self.w.place
        mask, middle = opener(place.dtype, p.machine["num.cb16_bias"])
        p.or16(bits, bits, mask)
        p.fsubh(halves, halves, middle)
        p.fscaleh(halves, halves, powers)

    def scores(self) -> None:
        """Write scores = keys times queries, of the slots that the cache has."""
        w, p, place = self.w, self.w.p, self.w.place
        half, group = place.kept_part, place.decoder.group
        width = self._begin_scores()
        packed, into, bits, halves = self._registers(place.capacity)
        powers = self._load_powers()
        p.load(w.column, p.mem1d(w.opened, place.capacity))
        keys, exponents = p.reg16("keys"), p.reg16("exponents")
        query, first, score, factor = p.reg16("query"), p.reg16("first"), p.reg16("score"), p.reg16("factor")
        p.ldi(query, w.qkv_half)
        p.ldi(score, w.scores)
        with w.lanes() as lane:
            self._walk(width, lane, w.total, packed, bits, halves, powers)
            self.cache.own(keys, lane)
            p.add16(exponents, keys, 2 * place.kept_rows * place.capacity)
            with w.times(place.kv_heads):
                self._powers(packed, False, exponents)
                p.dsr_base(packed, keys)
                p.mov16(first, score)
                with w.times(half):
                    for offset in (0, half):
                        if offset:
                            p.slr16(into, packed, 8)
                        else:
                            p.and16(into, packed, BYTE)
                        self._open(bits, halves, powers)
                        p.mov16(score, first)
                        with w.times(group):
                            p.ld16(factor, query, offset=offset)
                            p.dsr_base(w.total, score)
                            p.fmachs(w.total, w.total, w.column, factor)
                            p.add16(query, query, place.part)
                            p.add16(score, score, width)
                        p.sub16(query, query, group * place.part)
                    p.dsr_off(packed, place.capacity)
                    p.add16(query, query, 1)
                p.add16(query, query, group * place.part - half)
                p.add16(keys, keys, half * place.capacity)
                p.add16(exponents, exponents, place.capacity)
            p.add16(query, query, 2 * place.kv_rows)
        p.free(keys, exponents, query, first, score, factor, width)

    def mix(self) -> None:
        """Write mixed = values times shares, before the division by their sums."""
        w, p, place = self.w, self.w.p, self.w.place
        half, group = place.kept_part, place.decoder.group
        some = SLOTS * half  # words of values
        p.mov32(p.mem1d(w.mixed, place.lanes * place.query_rows), 0)
        p.load(w.total, p.mem1d(w.mixed, place.part))
        packed, into, bits, halves = self._registers(2 * some)
        powers = self._load_powers()
        by_slot = w.register("src1", "powers by slot")
        p.load(by_slot, p.mem4d(w.powers, (2, SLOTS, half), (0, 1, 0)))
        p.load(w.column, p.mem4d(w.opened, (2, half), (some, 1)))
        values, exponents, share, result = (p.reg16(name) for name in ("values", "exponents", "share", "result"))
        fours = p.reg16("fours")
        p.ldi(share, w.shares_at)
        p.ldi(result, w.mixed)
        with w.lanes() as lane:
            self.cache.own(values, lane)
            p.add16(exponents, values, 2 * place.kept_rows * place.capacity)
            p.add16(values, values, place.kept_rows * place.capacity)
            with w.times(place.kv_heads):
                p.ld16(fours, self.cache.width, index=lane)
                p.dsr_len(packed, fours)
                p.dsr_len(powers, fours)
                self._powers(packed, True, exponents)
                p.slr16(fours, fours, 2)
                p.dsr_base(packed, values)
                p.dsr_len(packed, some)
                p.dsr_base(by_slot, w.powers)
                with p.loop(fours):
                    p.and16(into, packed, BYTE)
                    p.dsr_off(into, some)
                    p.slr16(into, packed, 8)
                    p.dsr_off(into, -some)
                    p.dsr_off(packed, some)
                    self._open(bits, halves, by_slot)
                    p.dsr_off(by_slot, SLOTS)
                    self._add(lane, share, result)
                    p.add16(share, share, SLOTS)
                if group > 1:
                    p.ld16(fours, self.cache.width, index=lane)
                    p.mul16(fours, fours, group - 1)
                    p.add16(share, share, fours)
                p.add16(result, result, 2 * group * place.part)
                p.add16(values, values, half * place.capacity)
                p.add16(exponents, exponents, place.capacity)
        p.free(values, exponents, share, result, fours)

    def _add(self, lane: Reg | None, share: Reg, result: Reg) -> None:
        """Write that opened values of some slots, by the shares of each head, are added to what is mixed."""
        w, p, place = self.w, self.w.p, self.w.place
        group, width, factor = place.decoder.group, p.reg16("width"), p.reg16("factor")
        if group > 1:
            p.ld16(width, self.cache.width, index=lane)
        with w.times(group):
            p.dsr_base(w.total, result)
            p.dsr_base(w.column, w.opened)
            for slot in range(SLOTS):
                p.ld16(factor, share, offset=slot)
                p.fmachs(w.total, w.total, w.column, factor)
                p.dsr_off(w.column, place.kept_part)
            if group > 1:
                p.add16(share, share, width)
                p.add16(result, result, 2 * place.part)
        if group > 1:
            p.sub16(result, result, 2 * group * place.part)
            p.mul16(width, width, group)
            p.sub16(share, share, width)
        p.free(width, factor)
