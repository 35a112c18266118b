"""Attention of all tokens of a prompt has three steps: Q K^T as a product with a transposed right matrix, softmax, P V.

Scores
    Keys go round the column, queries stay.  In every step the columns of a head sum their parts of the scores of a
    block of keys toward the block's home among them: the left matrix rests, the right one moves, and nothing is
    transposed.
Softmax
    Largest score and sum of the exponentials of each query and head: all-reduces along the columns of a head.
Mix
    Values go round, and in every step the home spreads the shares of the block over the columns of the head.

Keys behind a query, and places without a token, have the lowest score (`limits`), hence a share of exactly zero.

Rounding
    As in decoding: f32 scores; exp(score - largest) rounded to 16 bits for the products with the values, summed in f32
    before rounding; mixed values times the reciprocal of the sum, rounded to 16 bits.

Source: WaferLLM, sections 4.1 and 5.4.
"""

from __future__ import annotations

from functools import partial

from fabric.asm.operands import Reg, Var
from fabric.networks.inference.attention import LOWEST
from fabric.networks.inference.elementwise import emit_capped
from fabric.networks.inference.prefill.channels import Channels, Ends
from fabric.networks.inference.prefill.ring import TileRing
from fabric.networks.inference.prefill.writer import PromptWriter

__all__ = ["HIGHEST", "PromptAttention"]

HIGHEST = 3e38
"""The limit of a score that counts is this."""


class PromptAttention:
    """A `PromptAttention` writes the attention of all tokens of a prompt into a program.

    Parameters
    ----------
    w : PromptWriter
    ring : TileRing
    channels : Channels
    ends : Ends
        Of the columns of the head.
    """

    def __init__(self, w: PromptWriter, ring: TileRing, channels: Channels, ends: Ends) -> None:
        p, prompt = w.p, w.prompt
        self.w, self.ring, self.channels, self.ends = w, ring, channels, ends
        self.goes = p.param("goes_in_head", "u16", count=w.place.height)
        self.allowed = p.param("allowed", "u16", count=prompt.key_slots * prompt.tokens)
        self.windowed = w.place.decoder.window is not None
        if self.windowed:
            self.outside = p.param("outside", "u16", count=prompt.key_slots * prompt.tokens)

    def prepare(self) -> None:
        """Write the limits of all scores: `HIGHEST` where a query may see the key, else `LOWEST`."""
        w, p = self.w, self.w.p
        p.mov32(w.limits, HIGHEST)
        self._hide(w.limits, self.allowed, behind=True)
        if self.windowed:
            p.mov32(w.window_limits, w.limits)
            self._hide(w.window_limits, self.outside, behind=False)

    def _hide(self, limits: Var, counts: Var, behind: bool) -> None:
        """Write that limits are `LOWEST` for the first so many keys of each block, or for those behind them."""
        w, p, prompt = self.w, self.w.p, self.w.prompt
        keys, wide = prompt.keys, prompt.width_of_keys
        seen, hidden, at = p.reg16("seen"), p.reg16("hidden"), p.reg16("at")
        p.load(w.written, p.mem1d(limits, keys))
        with w.rows(prompt.key_slots, block=(limits, 2 * keys), seen=(counts, prompt.tokens)) as block:
            p.mov16(at, block["block"])
            address = p.reg16("address")
            p.mov16(address, block["seen"])
            with w.times(prompt.tokens):
                p.ld16(seen, address)
                if behind:
                    p.ldi(hidden, keys)
                    p.sub16(hidden, hidden, seen)
                    p.dsr_len(w.written, hidden)
                    p.add16(seen, seen, seen)
                    p.add16(seen, seen, at)
                    p.dsr_base(w.written, seen)
                else:
                    p.dsr_len(w.written, seen)
                    p.dsr_base(w.written, at)
                p.mov32(w.written, LOWEST)
                p.add16(at, at, 2 * wide)
                p.add16(address, address, 1)
            p.free(address)
        p.free(seen, hidden, at)

    # --- scores -------------------------------------------------------------------------------------------------------

    def scores(self) -> None:
        """Write scores = keys times queries, summed over the columns of a head, each block at its home."""
        w, p, prompt = self.w, self.w.p, self.w.prompt
        with self.ring.steps("scores", w.key_tile, prompt.tile_elements["scores"]) as (tile, left):
            p.mov32(p.mem1d(w.partial, prompt.block), 0)
            self._heads("scores", tile)
            goes = p.reg16("goes")
            p.ld16(goes, self.goes, index=left)
            with w.cut("sum scores"):
                self.channels.sum_home(self.ends, goes, w.partial, prompt.block, self._keep)

    def _keep(self, slot: Reg) -> None:
        """Write that a block of scores comes to its slot."""
        w, p, prompt = self.w, self.w.p, self.w.prompt
        rows = w.place.heads * prompt.tokens
        p.mul16(slot, slot, 2 * prompt.keys)
        p.load(w.written, p.mem4d(w.scores, (rows, prompt.keys), (prompt.width_of_keys, 1)))
        p.dsr_off(w.written, slot)
        p.mov32(w.written, p.mem1d(w.partial, prompt.block))

    def _heads(self, name: str, tile: Reg) -> None:
        """Write the product of a step for each head of keys and values: queries by keys, or shares by values."""
        w, p, place, prompt = self.w, self.w.p, self.w.place, self.w.prompt
        shape = prompt.shapes[name]
        result, factors = (w.partial, w.queries) if name == "scores" else (w.mixed, w.block)
        a_base, b_base, c_base = p.reg16("entries"), p.reg16("factors"), p.reg16("result")
        p.mov16(a_base, tile)
        p.ldi(b_base, factors)
        p.ldi(c_base, result)
        with w.times(place.kv_heads):
            w.product(shape, result, a_base, b_base, c_base)
            if place.kv_heads > 1:
                p.add16(a_base, a_base, prompt.keys * place.part)
                p.add16(c_base, c_base, 2 * shape.rows * shape.columns)
        p.free(a_base, b_base, c_base)

    # --- softmax ------------------------------------------------------------------------------------------------------

    def softmax(self) -> None:
        """Write shares = exp(scores - largest), of 16 bits, and totals = their sums in f32."""
        w, p, place, prompt = self.w, self.w.p, self.w.place, self.w.prompt
        s, wide = prompt.tokens, prompt.width_of_keys
        rows = place.heads * s
        if place.decoder.score_cap is not None:
            w.in_pieces(w.scores, rows * wide, partial(emit_capped, w.functions, place.decoder.score_cap))
        for windowed in {kind.window is not None for kind in place.decoder.kinds}:
            with w.where("window", windowed):
                p.load(w.first, p.mem1d(w.scores, s * wide, save=True))
                with w.times(place.heads):
                    p.fmins(w.first, w.first, w.window_limits if windowed else w.limits)
        value = p.reg32("value")
        p.load(w.second, p.mem1d(w.scores, wide, save=True))
        with w.rows(rows, peaks=(w.peaks, 2)) as at:
            p.ldi32(value, LOWEST)
            p.fmaxs(value, value, w.second)
            p.st32(value, at["peaks"])
        with w.cut("all peaks"):
            self.channels.all_reduce(self.ends, w.peaks, p.fmaxs)
        p.load(w.first, p.mem1d(w.scores, wide, save=True))
        with w.rows(rows, peaks=(w.peaks, 2)) as at:
            p.ld32(value, at["peaks"])
            p.fsubs(w.first, w.first, value)
        w.in_pieces(w.scores, rows * wide, lambda at: w.functions.exp(at, at))
        p.load(w.second, p.mem1d(w.scores, wide, save=True))
        with w.rows(rows, totals=(w.totals, 2)) as at:
            p.ldi32(value, 0.0)
            p.fadds(value, value, w.second)
            p.st32(value, at["totals"])
        p.free(value)
        with w.cut("all totals"):
            self.channels.all_reduce(self.ends, w.totals, p.fadds)
        p.fs2h(w.shares, w.scores)

    # --- mix ----------------------------------------------------------------------------------------------------------

    def mix(self) -> None:
        """Write mixed = shares times values, before the division by their sums."""
        w, p, prompt = self.w, self.w.p, self.w.prompt
        p.mov32(w.mixed, 0)
        with self.ring.steps("mix", w.value_tile, prompt.tile_elements["mix"]) as (tile, left):
            goes, base = p.reg16("goes"), p.reg16("block")
            p.ld16(goes, self.goes, index=left)
            with w.cut("spread mix"):
                self.channels.spread(self.ends, goes, w.block, base, self._find)
            p.free(base)
            self._heads("mix", tile)

    def _find(self, slot: Reg, base: Reg) -> None:
        """Write that the block of a slot comes together."""
        w, p, prompt = self.w, self.w.p, self.w.prompt
        rows = w.place.heads * prompt.tokens
        p.mul16(slot, slot, prompt.keys)
        p.load(w.second_half, p.mem4d(w.shares, (rows, prompt.keys), (prompt.width_of_keys, 1)))
        p.dsr_off(w.second_half, slot)
        p.mov16(w.block, w.second_half)
        p.ldi(base, w.block)

    def divide(self) -> None:
        """Write mixed_half = mixed values by the sums of their shares, token by token."""
        w, p, place, prompt = self.w, self.w.p, self.w.place, self.w.prompt
        s, part = prompt.tokens, place.part
        rows = place.heads * s
        w.in_pieces(w.totals, rows, lambda at: w.functions.reciprocal(at, at))
        value = p.reg32("inverse")
        p.load(w.first, p.mem1d(w.mixed, part, save=True))
        with w.rows(rows, totals=(w.totals, 2)) as at:
            p.ld32(value, at["totals"])
            p.fmuls(w.first, w.first, value)
        p.free(value)
        p.fs2h(w.mixed_half, p.mem4d(w.mixed, (s, place.heads, part), (part, s * part, 1)))
