"""Cosines and sines of positions are reckoned by PEs as turns of constant angles, in f32.

A position t = FINE a + b has the angle of a leaps of FINE positions, turned by b steps of one position.  Steps and
leaps are rounded to f32 once, by the host, from f64.  A program begins at any position with the state that it would
have reached by itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.elementwise import FINE
from fabric.networks.inference.placement import NOTHING, DecoderPlacement
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["Angles"]


class Angles:
    """An `Angles` has the cosines and sines of positions in all columns, as the PEs reckon them; bits of shape (width,
    2 pairs): cosines, then sines.

    Parameters
    ----------
    place : DecoderPlacement
    machine : Machine
    local : bool
        Whether they are those of layers whose positions are local.
    """

    def __init__(self, place: DecoderPlacement, machine: Machine, local: bool = False) -> None:
        self.place, self.single = place, Arithmetic.of(machine, "f32")
        pairs = np.array([place.pairs_of(column) for column in range(place.width)])
        theta = np.where(pairs == NOTHING, 0.0, place.decoder.turns(local)[np.maximum(pairs, 0)])
        self.step, self.leap = self._constant(theta), self._constant(FINE * theta)
        self._fine = [self._constant(0 * theta)]
        lengths = np.where(pairs == NOTHING, 1.0, place.decoder.amplitudes(local)[np.maximum(pairs, 0)])
        self._coarse = [self._constant(0 * theta, lengths)]  # no leap or step changes its length

    def _constant(self, theta: NDArray[np.float64], lengths: NDArray[np.float64] | float = 1.0) -> Bits:
        return self.single.encode(np.concatenate([lengths * np.cos(theta), lengths * np.sin(theta)], axis=1))

    def turned(self, a: Bits, b: Bits) -> Bits:
        """Return a turned by b: (cos cos - sin sin, sin cos + cos sin), every operation rounded."""
        n, call = self.place.pairs, self.single.call
        a_cos, a_sin, b_cos, b_sin = a[..., :n], a[..., n:], b[..., :n], b[..., n:]
        cos = call("sub", call("mul", a_cos, b_cos), call("mul", a_sin, b_sin))
        sin = call("add", call("mul", a_sin, b_cos), call("mul", a_cos, b_sin))
        return np.concatenate([cos, sin], axis=-1)

    @staticmethod
    def passed(position: int) -> int:
        """Return the steps since the last leap."""
        return position % FINE

    def _chain(self, found: list[Bits], by: Bits, count: int) -> Bits:
        while len(found) <= count:
            found.append(self.turned(found[-1], by))
        return found[count]

    def state(self, position: int) -> dict[str, Bits]:
        """Return what a program needs to begin at a position: symbol -> bits of shape (width, 2 pairs)."""
        return {
            "step": self.step,
            "leap": self.leap,
            "fine": self._chain(self._fine, self.step, self.passed(position)),
            "coarse": self._chain(self._coarse, self.leap, position // FINE),
        }

    def at(self, position: int) -> Bits:
        """Return the angles of a position."""
        state = self.state(position)
        return self.turned(state["coarse"], state["fine"])
