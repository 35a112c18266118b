"""A window of attention in a decoder's program: which tokens lie in which slots, and what scores may be at most.

A PE knows the number of the token in each slot.  With a token t, slots of tokens up to t - window have a limit far
below every score, and the others one far above: (number - (t - window + 1/2)) * `STEEP`.  The smaller one of score and
limit is what counts, so a token outside has a share of exactly zero.  Limits are reckoned once per token, for all
layers that have a window; tokens outside stay in the cache and are walked over.

A row's tokens are neighbours where entries move north, so one that comes from below follows the row's newest; others
are the newest of all.
"""

from __future__ import annotations

from fabric.networks.inference.cache import BELOW, NOWHERE, CacheCode
from fabric.networks.inference.writer import Writer

__all__ = ["STEEP", "AttentionWindow"]

STEEP = 2.0**100
"""How much limits change from token to token: half of it is beyond every score."""


class AttentionWindow:
    """The window's part of a program.

    Parameters
    ----------
    w : Writer
    cache : CacheCode
        Which says where the entry of a step comes from.
    """

    def __init__(self, w: Writer, cache: CacheCode) -> None:
        p = w.p
        self.w, self.cache = w, cache
        lanes = w.place.lanes
        self.numbers = p.param("numbers", "f32", count=lanes * w.place.capacity)  # of the tokens in the slots
        self.newest = p.param("newest", "f32", count=lanes)  # number of the row's newest token
        self.now = p.param("now", "f32", count=lanes)  # number of the token that a step takes

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
            p.ld32(now, self.now, index=at)
            if place.batch:
                p.ld16(mode, w.goes_on, index=lane)
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
                    p.mul16(mode, at, place.capacity)
                    p.add16(address, address, mode)
                p.st32(number, address)
            p.fsubs(number, now, first)
            if at is None:
                p.fsubs(w.limits, self.numbers, number)
            else:
                p.mul16(mode, at, place.capacity)
                for register, var in ((w.written, w.limits), (w.second, self.numbers)):
                    p.ldi(address, var)
                    p.add16(address, address, mode)
                    p.load(register, p.mem1d(var, place.capacity))
                    p.dsr_base(register, address)
                p.fsubs(w.written, w.second, number)
            p.fadds(now, now, 1.0)
            p.st32(now, self.now, index=at)
            p.free(mode, address, now, number, *([] if at is None else [at]))
        p.fmuls(w.limits, w.limits, STEEP)
