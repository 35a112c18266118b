"""Which experts of a layer a token is given to, decided by every PE for itself.

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
from fabric.networks.inference.writer import Writer

__all__ = ["AWAY", "ExpertChoice"]

AWAY = 2.0**100
"""Half of it is larger than any logit."""


class ExpertChoice:
    """The choice of experts in a program.

    Parameters
    ----------
    w : Writer
        Of a decoder with experts.
    """

    def __init__(self, w: Writer) -> None:
        p, experts, chosen = w.p, w.place.decoder.experts, w.place.decoder.chosen
        self.w = w
        self.routes = p.array("routes", experts, "f32", bank=0)  # logits of experts
        self.numbers = p.array("expert_numbers", experts, "f32", bank=0)
        self.distant = p.array("distant", experts, "f32", bank=4)
        self.shares = p.array("expert_shares", chosen, "f32")
        self.found = p.array("expert", chosen, "f32")  # numbers of the chosen ones, and the same as integers
        self.picked = p.array("picked", chosen, "u16")
        self.sum = p.array("sum_of_shares", 1, "f32")

    def emit(self, product: Callable[[], None]) -> None:
        """Write picked = the chosen experts, and their shares; `product` emits the logits, summed along y."""
        w, p, decoder = self.w, self.w.p, self.w.place.decoder
        product()
        if not decoder.renormalised:
            self._sum_all()
        value = p.reg32("value")
        for k in range(decoder.chosen):
            p.ldi32(value, LOWEST)
            p.fmaxs(value, value, self.routes)
            p.st32(value, self.shares[k])
            p.fsubs(self.distant, value, self.routes)
            p.fmuls(self.distant, self.distant, RAISE)
            p.fmuls(self.distant, self.distant, RAISE)
            p.fmins(self.distant, self.distant, BEYOND)
            p.fadds(self.distant, self.distant, self.numbers)
            p.ldi32(value, 2 * BEYOND)
            p.fmins(value, value, self.distant)
            p.st32(value, self.found[k])
            # Numbers that are not equal lie one apart: the logit of this expert becomes the lowest, others stay.
            p.fsubs(self.distant, self.numbers, value)
            p.fabss(self.distant, self.distant)
            p.fsubs(self.distant, self.distant, 0.5)
            p.fmuls(self.distant, self.distant, AWAY)
            p.fmins(self.routes, self.routes, self.distant)
        p.fs2xp16(self.picked, self.found)
        p.ld32(value, self.shares)
        p.fsubs(self.shares, self.shares, value)
        with w.functions.first(decoder.chosen):
            w.functions.exp(self.shares, self.shares)
        if decoder.renormalised:
            p.ldi32(value, 0.0)
            p.fadds(value, value, self.shares)
            p.st32(value, self.sum)
        with w.functions.first(1):
            w.functions.reciprocal(self.sum, self.sum)
        p.ld32(value, self.sum)
        p.fmuls(self.shares, self.shares, value)
        p.free(value)

    def _sum_all(self) -> None:
        """Write sum_of_shares = the sum of exp(logit - largest) of all experts."""
        w, p, experts = self.w, self.w.p, self.w.place.decoder.experts
        value = p.reg32("value")
        p.ldi32(value, LOWEST)
        p.fmaxs(value, value, self.routes)
        p.fsubs(self.distant, self.routes, value)
        w.in_pieces(self.distant, experts, lambda at: w.functions.exp(at, at))
        p.ldi32(value, 0.0)
        p.fadds(value, value, self.distant)
        p.st32(value, self.sum)
        p.free(value)
