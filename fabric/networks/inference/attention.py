"""Attention of one token goes over the cache: scores, softmax and the mix of values, all heads of a column at once.

What moves
    Partial scores of a head are summed along x inside the head's columns (the lowest level of the tree along x) and
    given back to them; the largest scores and then the mixed values with the sums of their shares are all-reduced
    along y, where the tokens lie.  Norms of heads sum their squares as scores are summed.

Lengths follow the tokens that a row holds: a PE walks over its slots rounded up to a multiple of 4, and slots behind
the last have the lowest score and so a share of exactly zero.  All PEs of a row have the same length.

Rounding
    Scores: products in order of features, from zero, in f32; shares are exp(score - largest), rounded to 16 bits for
    the products with the values and summed in f32 before rounding; mixed values are multiplied by the reciprocal of
    the sum at the end and rounded to 16 bits.

Source: WaferLLM, section 4.2 (attention in decode); softmax over two axes is derived here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from fabric.asm.operands import Address, Dsd, Dsr, Reg, Var
from fabric.kernels.collectives.pieces.line_reduce import Role
from fabric.networks.inference.axes import COLOR_HEAD, QUEUE_HEAD
from fabric.networks.inference.cache import CacheCode
from fabric.networks.inference.elementwise import emit_capped
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.writer import DecoderWriter

__all__ = ["LOWEST", "Attention", "unrolled"]

LOWEST = -3e38
"""A slot without a token has this score."""


def unrolled(place: DecoderPlacement) -> int:
    """Return how many features the inner loop of the scores takes at a time: it divides those of a head."""
    return next(n for n in (6, 4, 3, 2)[place.lanes > 1 :] if place.part % n == 0)


class Attention:
    """An `Attention` writes the attention of one token into a decoder's program.

    Parameters
    ----------
    w : DecoderWriter
    cache : CacheCode
    level : Role or None
        The PE's part in the lowest level of the tree along x; None if heads have one column each.
    queue : int
        Of that level.
    """

    def __init__(self, w: DecoderWriter, cache: CacheCode, level: Role | None, queue: int) -> None:
        self.w, self.cache, self.level, self.queue = w, cache, level, queue

    def _begin_scores(self) -> Reg:
        """Write scores of zero, and the load of what adds to them; return the register with their number."""
        w, p = self.w, self.w.p
        width = p.reg16("width")
        p.ld16(width, self.cache.size)
        p.load(w.written, p.mem1d(w.scores))
        p.dsr_len(w.written, width)
        p.mov32(w.written, 0)
        p.load(w.total, p.mem1d(w.scores, w.place.capacity))
        return width

    def scores(self) -> None:
        """Write scores = keys times queries, of the slots that the cache has."""
        w, p, place = self.w, self.w.p, self.w.place
        width = self._begin_scores()
        p.load(w.column, p.mem1d(w.cache, place.capacity))
        keys, query, score = p.reg16("keys"), p.reg16("query"), p.reg16("score")
        if place.ahead == 1:
            p.ld16(keys, w.pointers["cache"])
        p.ldi(query, w.qkv_half)
        p.ldi(score, w.scores)
        together = unrolled(place)
        factors = [p.reg16("factor") for _ in range(together)]
        with w.lanes() as lane:
            self._walk(width, lane, w.total)
            if place.ahead > 1:
                self.cache.own(keys, lane)
            with w.times(place.kv_heads):
                with w.times(place.decoder.group):
                    p.dsr_base(w.total, score)
                    p.dsr_base(w.column, keys)
                    with w.times(place.part // together):
                        for k in range(together):
                            p.ld16(factors[k], query, offset=k)
                        p.add16(query, query, together)
                        for k in range(together):
                            p.fmachs(w.total, w.total, w.column, factors[k])
                            p.dsr_off(w.column, place.capacity)
                    p.add16(score, score, width)
                p.add16(keys, keys, place.part * place.capacity)
            if lane is not None:
                p.add16(query, query, 2 * place.kv_rows)
                p.add16(keys, keys, place.kv_rows * place.capacity)
        p.free(*factors, keys, query, score, width)

    def _walk(self, width: Reg, lane: Reg | None, *registers: Dsr) -> None:
        """Write that registers walk over a token's slots, and width = words of a head's scores."""
        p = self.w.p
        p.ld16(width, self.cache.width, index=lane)
        for register in registers:
            p.dsr_len(register, width)
        p.add16(width, width, width)

    def sum_scores(self) -> None:
        """Write the sum of the scores over the columns of a head, given to all of them."""
        if self.level is None:
            return
        size = self.w.p.reg16("size")
        self.w.p.ld16(size, self.cache.size)
        self.sum_in_head(self.w.scores, size)
        self.w.p.free(size)

    def sum_in_head(self, numbers: Var, size: Reg | None = None) -> None:
        """Write that numbers, the first `size` of them or all, become their sums over the columns of a head."""
        if self.level is None:
            return
        w, p, role = self.w, self.w.p, self.level
        most = numbers.count

        def load(register: Dsr, what: Var | Dsd) -> None:
            p.load(register, what)
            if size is not None:
                p.dsr_len(register, size)

        into = None if role.into is None else p.fabin(p.input_queue(self.queue, role.into), most)
        if role.out is None:
            for _ in range(role.messages):
                load(w.first, numbers)
                assert into is not None
                p.fadds(w.first, w.first, into)
        else:
            p.load(w.written, role.leaving(p, self.queue, most))
            if into is None:
                load(w.second, numbers)
                p.mov32(w.written, w.second)
            else:
                load(w.first, numbers)
                p.fadds(w.written, w.first, into)
            role.close(p, self.queue)
        if role.out is None and role.messages:  # a group of one column has nobody to give to
            load(w.second, numbers)
            p.mov32(p.fabout(p.output_queue(QUEUE_HEAD, COLOR_HEAD), most), w.second)
        elif role.out is not None:
            load(w.second, p.fabin(p.input_queue(QUEUE_HEAD, COLOR_HEAD), most))
            p.mov32(numbers, w.second)

    def cap(self, most: float) -> None:
        """Write scores = most * tanh(scores / most)."""
        self._in_pieces(partial(emit_capped, self.w.functions, most))

    def limit(self) -> None:
        """Write that scores of tokens outside of the window become lower than any other."""
        w, p, place = self.w, self.w.p, self.w.place
        width, score = p.reg16("width"), p.reg16("score")
        p.load(w.first, p.mem1d(w.scores, place.capacity))
        p.load(w.second, p.mem1d(w.limits, place.capacity))
        p.ldi(score, w.scores)
        with w.lanes() as lane:
            self._walk(width, lane, w.first, w.second)
            with w.times(place.heads):
                p.dsr_base(w.first, score)
                p.fmins(w.first, w.first, w.second)
                p.add16(score, score, width)
            if lane is not None:
                p.dsr_off(w.second, 2 * place.capacity)
        p.free(width, score)

    def peaks(self) -> None:
        """Write the lowest score into slots without a token, and peaks = the largest score of each head."""
        w, p, place = self.w, self.w.p, self.w.place
        width, score, end = p.reg16("width"), p.reg16("score"), p.reg16("end")
        free, peak, value = p.reg16("free"), p.reg16("peak"), p.reg32("value")
        p.load(w.second, p.mem1d(w.scores, place.capacity))
        p.load(w.written, p.mem1d(w.scores, place.capacity))
        p.ldi(score, w.scores)
        p.ldi(peak, w.peaks)
        with w.lanes() as lane:
            p.ld16(width, self.cache.width, index=lane)
            p.ld16(end, self.cache.held, index=lane)
            p.dsr_len(w.second, width)
            p.sub16(free, width, end)
            p.dsr_len(w.written, free)
            p.add16(end, end, end)
            p.add16(end, end, score)  # behind the last token
            p.add16(width, width, width)
            with w.times(place.heads):
                p.dsr_base(w.written, end)
                p.mov32(w.written, LOWEST)
                p.ldi32(value, LOWEST)
                p.dsr_base(w.second, score)
                p.fmaxs(value, value, w.second)
                p.st32(value, peak)
                for register, step in ((end, width), (score, width), (peak, 2)):
                    p.add16(register, register, step)
        p.free(width, score, end, free, peak, value)

    def shares(self) -> None:
        """Write scores = exp(score - peak), their sums behind the mixed values, and shares = scores of 16 bits."""
        w, p, place = self.w, self.w.p, self.w.place
        width, score, peak, value = p.reg16("width"), p.reg16("score"), p.reg16("peak"), p.reg32("value")

        @contextmanager
        def all_heads(vector: Dsr, numbers: Var | Address) -> Iterator[None]:
            p.load(vector, p.mem1d(w.scores, place.capacity))
            p.ldi(score, w.scores)
            p.ldi(peak, numbers)
            with w.lanes() as lane:
                self._walk(width, lane, vector)
                with w.times(place.heads):
                    yield
                    p.add16(score, score, width)
                    p.add16(peak, peak, 2)

        with all_heads(w.first, w.peaks):
            p.ld32(value, peak)
            p.dsr_base(w.first, score)
            p.fsubs(w.first, w.first, value)
        self._exponentials()
        with all_heads(w.second, w.mixed[place.lanes * place.query_rows]):
            p.ldi32(value, 0.0)
            p.dsr_base(w.second, score)
            p.fadds(value, value, w.second)
            p.st32(value, peak)
        p.ld16(width, self.cache.size)
        p.load(w.second, w.scores)
        p.dsr_len(w.second, width)
        p.fs2h(w.shares, w.second)
        p.free(width, score, peak, value)

    def _exponentials(self) -> None:
        """Write scores = exp(scores)."""
        self._in_pieces(lambda score: self.w.functions.exp(score, score))

    def _in_pieces(self, apply: Callable[[Reg], None]) -> None:
        """Write what `apply` does with an address to all scores, as many at a time as the functions have room for."""
        w, p = self.w, self.w.p
        most = w.functions.count
        left, now, score = p.reg16("left"), p.reg16("now"), p.reg16("score")
        p.ld16(left, self.cache.size)
        p.ldi(score, w.scores)
        with p.while_("ne", left, 0, "16"):
            p.mov16(now, left)
            with p.if_("gtu", now, most, "16"):
                p.ldi(now, most)
            with w.functions.first(most, now):
                apply(score)
            p.sub16(left, left, now)
            p.add16(now, now, now)
            p.add16(score, score, now)
        p.free(left, now, score)

    def mix(self) -> None:
        """Write mixed = values times shares, before the division by their sums."""
        w, p, place = self.w, self.w.p, self.w.place
        p.mov32(p.mem1d(w.mixed, place.lanes * place.query_rows), 0)
        p.load(w.total, p.mem1d(w.mixed, place.part))
        p.load(w.column, p.mem1d(w.cache, place.part, save=True))
        values, share, result, fours = p.reg16("values"), p.reg16("share"), p.reg16("result"), p.reg16("fours")
        factors = [p.reg16("factor") for _ in range(4)]
        if place.ahead == 1:
            p.ld16(values, w.pointers["cache"])
            p.add16(values, values, place.kv_rows * place.capacity)
        p.ldi(share, w.shares_at)
        p.ldi(result, w.mixed)
        with w.lanes() as lane:
            p.ld16(fours, self.cache.width, index=lane)
            p.slr16(fours, fours, 2)
            if place.ahead > 1:
                self.cache.own(values, lane)
                p.add16(values, values, place.kv_rows * place.capacity)
            with w.times(place.kv_heads):
                with w.times(place.decoder.group):
                    p.dsr_base(w.total, result)
                    p.dsr_base(w.column, values)
                    with p.loop(fours):
                        for k in range(4):
                            p.ld16(factors[k], share, offset=k)
                        p.add16(share, share, 4)
                        for k in range(4):
                            p.fmachs(w.total, w.total, w.column, factors[k])
                    p.add16(result, result, 2 * place.part)
                p.add16(values, values, place.part * place.capacity)
            if lane is not None:
                p.add16(values, values, place.kv_rows * place.capacity)
        p.free(*factors, values, share, result, fours)

    def divide(self) -> None:
        """Write mixed_half = mixed values by the sums of their shares."""
        w, p, place = self.w, self.w.p, self.w.place
        queries, heads = place.lanes * place.query_rows, place.lanes * place.heads
        sums = w.mixed[queries]
        w.in_pieces(sums, heads, lambda at: w.functions.reciprocal(at, at))
        value, inverse, result = p.reg32("inverse"), p.reg16("sums"), p.reg16("result")
        p.ldi(inverse, sums)
        p.ldi(result, w.mixed)
        p.load(w.first, p.mem1d(w.mixed, place.part))
        with w.times(heads):
            p.ld32(value, inverse)
            p.dsr_base(w.first, result)
            p.fmuls(w.first, w.first, value)
            p.add16(result, result, 2 * place.part)
            p.add16(inverse, inverse, 2)
        p.fs2h(w.mixed_half, p.mem1d(w.mixed, queries))
        p.free(value, inverse, result)

    def emit(self, largest: Callable[[], None], mixed: Callable[[], None]) -> None:
        """Write all of it; the two callables emit the all-reduces of ``peaks`` and of ``mixed`` along y."""
        self.scores()
        self.sum_scores()
        self.peaks()
        largest()
        self.shares()
        self.mix()
        mixed()
        self.divide()
