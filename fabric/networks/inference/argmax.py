"""The token with the largest logit is found on the wafer.

Logits lie cut over x, the same on all rows.  A PE takes its largest, an all-reduce along x the largest of all; then the
id of every logit that equals it stands, all others become larger than any id, and a second all-reduce takes the
smallest: of equal logits the lowest token wins.  Ids are f32 numbers, exact up to 2^24.  A logit that is no number, or
infinite, makes the id no number.

Two logits that differ by less than 2^-149 * 2^254 < 2^24 cannot be: the difference of two unequal f32 numbers times
2^254 is at least 2^105, unless the machine flushes subnormal numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from fabric.asm.operands import Var
from fabric.networks.inference.writer import DecoderWriter

__all__ = ["BEYOND", "RAISE", "ArgMax"]

RAISE = 2.0**127
"""Multiplied with this twice, every difference of two logits becomes larger than `BEYOND`."""
BEYOND = 2.0**24
"""No id of a token is larger than this."""
LOWEST = -3.4e38


class ArgMax:
    """An `ArgMax` writes the search for the token with the largest logit into a program.

    Parameters
    ----------
    w : DecoderWriter
    """

    def __init__(self, w: DecoderWriter) -> None:
        p, n, lanes = w.p, w.place.vocabulary, w.place.lanes
        self.w = w
        self.ids = p.array("ids", n, "f32", bank=0)
        self.known = p.param("known", "u16")  # logits of this column that belong to a token
        self.far = p.array("far", lanes * n, "f32", bank=4)
        self.answer = p.array("answer", 2 * lanes, "f32")  # id, its logit
        self.top = p.array("top", lanes, "f32")

    def emit(self, largest: Callable[[], None], smallest: Callable[[], None]) -> None:
        """Write answer = (id, logit); the callables emit the all-reduces along x of ``top``."""
        w, p, n = self.w, self.w.p, self.w.place.vocabulary
        if w.place.lanes > 1:
            self._emit_all(largest, smallest)
            return
        value, known = p.reg32("value"), p.reg16("known")
        p.ld16(known, self.known)
        p.load(w.second, p.mem1d(w.logits, n))
        p.dsr_len(w.second, known)
        p.ldi32(value, LOWEST)
        p.fmaxs(value, value, w.second)
        p.st32(value, self.top)
        largest()
        p.ld32(value, self.top)
        p.st32(value, self.answer[1])
        p.fsubs(self.far, value, w.logits)
        p.fmuls(self.far, self.far, RAISE)
        p.fmuls(self.far, self.far, RAISE)
        p.fmins(self.far, self.far, BEYOND)
        p.fadds(self.far, self.far, self.ids)
        p.load(w.second, p.mem1d(self.far, n))
        p.dsr_len(w.second, known)
        p.ldi32(value, 2 * BEYOND)
        p.fmins(value, value, w.second)
        p.st32(value, self.top)
        smallest()
        p.ld32(value, self.top)
        p.st32(value, self.answer)
        p.free(value, known)

    def _emit_all(self, largest: Callable[[], None], smallest: Callable[[], None]) -> None:
        """Write `emit` of several tokens."""
        w, p, n, lanes = self.w, self.w.p, self.w.place.vocabulary, self.w.place.lanes
        value, top, answer = p.reg32("value"), p.reg16("top"), p.reg16("answer")

        def extreme(vector: Var, first: float, operation: str) -> None:
            """Write top = the largest or the smallest of each token's numbers that belong to a token."""
            known, address = p.reg16("known"), p.reg16("numbers")
            p.ld16(known, self.known)
            p.load(w.second, p.mem1d(vector, n))
            p.dsr_len(w.second, known)
            p.ldi(address, vector)
            p.ldi(top, self.top)
            with p.loop(lanes):
                p.ldi32(value, first)
                p.dsr_base(w.second, address)
                getattr(p, operation)(value, value, w.second)
                p.st32(value, top)
                p.add16(address, address, 2 * n)
                p.add16(top, top, 2)
            p.free(known, address)

        def answered(offset: int, further: Callable[[], None] | None = None) -> None:
            """Write that top goes to a place of each answer."""
            p.ldi(top, self.top)
            p.ldi(answer, self.answer[offset])
            with p.loop(lanes):
                p.ld32(value, top)
                p.st32(value, answer)
                if further is not None:
                    further()
                p.add16(top, top, 2)
                p.add16(answer, answer, 4)

        extreme(w.logits, LOWEST, "fmaxs")
        largest()
        p.load(w.second, p.mem1d(w.logits, n, save=True))
        p.load(w.written, p.mem1d(self.far, n, save=True))
        answered(1, lambda: p.fsubs(w.written, value, w.second))
        p.fmuls(self.far, self.far, RAISE)
        p.fmuls(self.far, self.far, RAISE)
        p.fmins(self.far, self.far, BEYOND)
        p.load(w.second, w.for_lanes(self.ids, n))
        p.fadds(self.far, self.far, w.second)
        extreme(self.far, 2 * BEYOND, "fmins")
        smallest()
        answered(0)
        p.free(value, top, answer)
