"""A window of attention needs in a decoder's program which tokens lie in which slots, and what scores may be at most.

A PE knows the number of the token in each slot.  With a token t, slots of tokens up to t - window have a limit far
below every score, and the others one far above: (number - (t - window + 1/2)) * `STEEP`.  The smaller one of score and
limit is what counts, so a token outside has a share of exactly zero.  Limits are reckoned once per token, for all
layers that have a window; tokens outside stay in the cache and are walked over.

A row's tokens are neighbours where entries move north, so one that comes from below follows the row's newest; others
are the newest of all.
"""

from __future__ import annotations

from fabric.asm.operands import Reg
from fabric.networks.inference.cache import BELOW, NOWHERE, CacheCode
from fabric.networks.inference.writer import DecoderWriter

__all__ = ["STEEP", "AttentionWindow"]

STEEP = 2.0**100
"""How much limits change from token to token: half of it is beyond every score."""


class AttentionWindow:
    """An `AttentionWindow` writes a window of attention into a decoder's program.

    Parameters
    ----------
    w : DecoderWriter
    cache : CacheCode
        Which says where the entry of a step comes from.
    """

    def __init__(self, w: DecoderWriter, cache: CacheCode) -> None:
        p = w.p
        self.w, self.cache = w, cache
        lanes = w.place.lanes
        caches = lanes // w.place.ahead
        self.numbers = p.param("numbers", "f32", count=caches * w.place.capacity)  # of the tokens in the slots
        self.newest = p.param("newest", "f32", count=lanes)  # number of the row's newest token
        self.now = p.param("now", "f32", count=lanes)  # number of the token that a step takes
        if w.place.ahead > 1:
            self.first = p.array("first", lanes, "u16")  # words from the first number to those of each token's cache

    def begin(self) -> None:
        """Write what a step begins with, behind what the cache begins with: numbers and limits."""
        w, p, cache, place = self.w, self.w.p, self.cache, self.w.place
        assert place.decoder.window is not None
        first = place.decoder.window - 0.5
        with w.lanes() as lane:
            mode, address = p.reg16("mode"), p.reg16("address")
            now, number = p.reg32("now"), p.reg32("number")
            at = None
            if lane is not None:
                at = p.reg16("words of a token")
                p.add16(at, lane, lane)
            if place.ahead == 1:
                p.ld32(now, self.now, index=at)
            if place.batch:
                p.ld16(mode, w.goes_on, index=lane)
                if place.ahead > 1:
                    self._follow(mode, now)
                else:
                    with p.if_("eq", mode, 0, "16"):
                        p.ldi32(now, 0.0)
            p.ld16(mode, cache.comes, index=lane)
            with p.if_("ne", mode, NOWHERE, "16"):
                p.mov32(number, now)
                if cache.moving and not cache.bottom:
                    with p.if_("eq", mode, BELOW, "16"):
                        p.ld32(number, self.newest, index=at)
                        p.fadds(number, number, 1.0)
                p.st32(number, self.newest, index=at)
                p.ld16(mode, cache.slot, index=lane)
                p.ldi(address, self.numbers)
                p.add16(address, address, mode)
                p.add16(address, address, mode)
                if at is not None:
                    self._slots(mode, at, lane)
                    p.add16(address, address, mode)
                p.st32(number, address)
            p.fsubs(number, now, first)
            if at is None:
                p.fsubs(w.limits, self.numbers, number)
            else:
                for register, var in ((w.written, w.limits), (w.second, self.numbers)):
                    if var is w.limits:
                        p.mul16(mode, at, place.capacity)
                    else:
                        self._slots(mode, at, lane)
                    p.ldi(address, var)
                    p.add16(address, address, mode)
                    p.load(register, p.mem1d(var, place.capacity))
                    p.dsr_base(register, address)
                p.fsubs(w.written, w.second, number)
            p.fadds(now, now, 1.0)
            p.st32(now, self.now, index=at)
            p.free(mode, address, now, number, *([] if at is None else [at]))
        p.fmuls(w.limits, w.limits, STEEP)

    def _slots(self, words: Reg, at: Reg, lane: Reg | None) -> None:
        """Write words = from the numbers of the first cache to those of a token's; `at`: twice its number."""
        p, place = self.w.p, self.w.place
        if place.ahead == 1:
            p.mul16(words, at, place.capacity)
        else:
            p.ld16(words, self.first, index=lane)

    def places(self) -> None:
        """Write where the numbers of the caches of all tokens are, once."""
        w, p, place = self.w, self.w.p, self.w.place
        words, at = p.reg16("words"), p.reg16("at")
        p.ldi(words, 0)
        p.ldi(at, self.first)
        with w.times(place.batch):
            with p.loop(place.ahead):
                p.st16(words, at)
                p.add16(at, at, 1)
            p.add16(words, words, 2 * place.capacity)
        p.free(words, at)

    def _follow(self, before: Reg, now: Reg) -> None:
        """Write now = the number of a token, by the one that comes before it, whose number is one less."""
        p, place = self.w.p, self.w.place
        end = p.new_label()
        p.ldi32(now, 0.0)
        p.branch("eq", before, 0, end, "16")
        with p.if_("gtu", before, place.lanes, "16"):
            p.sub16(before, before, place.lanes)
            p.sub16(before, before, 1)
            p.add16(before, before, before)
            p.ld32(now, self.now, index=before)
            p.fsubs(now, now, 1.0)
            p.jump(end)
        p.sub16(before, before, 1)
        p.add16(before, before, before)
        p.ld32(now, self.now, index=before)
        p.place(end)
