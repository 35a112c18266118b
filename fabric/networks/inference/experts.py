"""Every PE decides for itself which experts of a layer a token is given to.

The router's matrix lies whole in every column, cut over y as those products that read hidden features: behind its
all-reduce all PEs have the logits of all experts, and find the same ones.  They are few numbers, so that telling each
other would take longer than doing it again.

Of equal logits the lower expert wins.  The search is that of `fabric.networks.inference.argmax`, once for each expert
that is chosen: its operations do not depend on what is found, so that a step takes equally long whatever is chosen.

Rounding
    shares: exp(logit - largest), their sum in order of choice, or of all experts in their order, and its reciprocal;
    a product each.
"""

from __future__ import annotations

from collections.abc import Callable

from fabric.networks.inference.argmax import BEYOND, LOWEST, RAISE
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.writer import Idioms

__all__ = ["AWAY", "ExpertChoice"]

AWAY = 2.0**100
"""Half of it is larger than any logit."""


class ExpertChoice:
    """An `ExpertChoice` writes the choice of experts into a program.

    Parameters
    ----------
    w : Idioms
        Of a decoder with experts.
    tokens : int
        Tokens that choose, one behind the other.
    """

    def __init__(self, w: Idioms, tokens: int = 1) -> None:
        p, experts, chosen = w.p, w.place.decoder.experts, w.place.decoder.chosen
        self.w, self.tokens = w, tokens
        self.routes = p.array("routes", tokens * experts, "f32", bank=0)  # logits of experts, of each token
        self.own = p.array("routes_of_token", experts, "f32", bank=0) if tokens > 1 else self.routes
        self.numbers = p.array("expert_numbers", experts, "f32", bank=0)
        self.distant = p.array("distant", experts, "f32", bank=4)
        self.shares = p.array("expert_shares", tokens * chosen, "f32")
        self.own_shares = p.array("shares_of_token", chosen, "f32") if tokens > 1 else self.shares
        self.found = p.array("expert", chosen, "f32")  # numbers of the chosen ones, and the same as integers
        self.picked = p.array("picked", tokens * chosen, "u16")
        self.sum = p.array("sum_of_shares", 1, "f32")

    @staticmethod
    def words(place: DecoderPlacement, tokens: int) -> int:
        """Return the words of its variables."""
        experts, chosen = place.decoder.experts, place.decoder.chosen
        return (
            2 * (experts + chosen) * (1 + (tokens > 1))
            + 2 * experts
            + 5 * chosen
            + 2
            + (tokens - 1) * (2 * experts + 3 * chosen)
        )

    def emit(self, product: Callable[[], None]) -> None:
        """Write picked = the chosen experts, and their shares; `product` emits the logits, summed along y."""
        w, p, decoder = self.w, self.w.p, self.w.place.decoder
        product()
        if self.tokens == 1:
            self._choose()
            p.fs2xp16(self.picked, self.found)
            return
        routes = w.register("src1", "logits of experts")
        shares, picked = w.register("dest", "shares of experts"), w.register("dest", "chosen experts")
        p.load(routes, p.mem1d(self.routes, decoder.experts, save=True))
        p.load(shares, p.mem1d(self.shares, decoder.chosen, save=True))
        p.load(picked, p.mem1d(self.picked, decoder.chosen, save=True))
        with p.loop(self.tokens):
            p.mov32(self.own, routes)
            self._choose()
            p.mov32(shares, self.own_shares)
            p.fs2xp16(picked, self.found)

    def _choose(self) -> None:
        """Write found = the experts of a token, and their shares."""
        w, p, decoder = self.w, self.w.p, self.w.place.decoder
        if not decoder.renormalised:
            self._sum_all()
        value, share, number = p.reg32("value"), p.reg16("share"), p.reg16("number")
        p.ldi(share, self.own_shares)
        p.ldi(number, self.found)
        with w.times(decoder.chosen):
            p.ldi32(value, LOWEST)
            p.fmaxs(value, value, self.own)
            p.st32(value, share)
            p.fsubs(self.distant, value, self.own)
            p.fmuls(self.distant, self.distant, RAISE)
            p.fmuls(self.distant, self.distant, RAISE)
            p.fmins(self.distant, self.distant, BEYOND)
            p.fadds(self.distant, self.distant, self.numbers)
            p.ldi32(value, 2 * BEYOND)
            p.fmins(value, value, self.distant)
            p.st32(value, number)
            # What is not this expert lies one farther at least: its logit becomes the lowest, others stay.
            p.fadds(value, value, 0.5)
            p.fsubs(self.distant, self.distant, value)
            p.fmuls(self.distant, self.distant, AWAY)
            p.fmins(self.own, self.own, self.distant)
            p.add16(share, share, 2)
            p.add16(number, number, 2)
        p.ld32(value, self.own_shares)
        p.fsubs(self.own_shares, self.own_shares, value)
        with w.functions.first(decoder.chosen):
            w.functions.exp(self.own_shares, self.own_shares)
        if decoder.renormalised:
            p.ldi32(value, 0.0)
            p.fadds(value, value, self.own_shares)
            p.st32(value, self.sum)
        with w.functions.first(1):
            w.functions.reciprocal(self.sum, self.sum)
        p.ld32(value, self.sum)
        p.fmuls(self.own_shares, self.own_shares, value)
        p.free(value, share, number)

    def _sum_all(self) -> None:
        """Write sum_of_shares = the sum of exp(logit - largest) of all experts."""
        w, p, experts = self.w, self.w.p, self.w.place.decoder.experts
        value = p.reg32("value")
        p.ldi32(value, LOWEST)
        p.fmaxs(value, value, self.own)
        p.fsubs(self.distant, self.own, value)
        w.in_pieces(self.distant, experts, lambda at: w.functions.exp(at, at))
        p.ldi32(value, 0.0)
        p.fadds(value, value, self.distant)
        p.st32(value, self.sum)
        p.free(value)
