"""Localized broadcast: every place of a line sends a vector to the next r places, in r + 1 turns on one color.

What moves
    In turn t the places k with k mod (r + 1) = t send, each to the r places after it, which make up a group with it; so
    the groups of a turn share no link.  After r + 1 turns every place has sent once and has received from the r places
    before it.  The sender ends its vector with a control wavelet that gives each router of its group its part in the
    next turn; nothing else keeps the turns apart, a vector that comes early waits in the routers.

Switches
    A router is *passing* (position 0: from the line to the CE and on), *sending* (position 1: from the ramp) or *last*
    (position 2: to the CE only), and goes round: sending, last, passing, sending.  The control wavelet advances the
    sender, the place after it (passing to sending) and the end of the group (last to passing); the others keep their
    part, and every router takes its command off (``always_pop``).  The first r places never are the end of a group and
    have two positions, place 0 always sends, the last place of the line never does.

    A switch position changes one of rx and tx, so a router that sends still delivers to its own CE.  Either the CE
    takes its own vector as well (``own``), at all places, or a counter filter keeps it out: it lets the vectors of
    others pass and rejects every (r + 1)-th.

Hops
    Per vector of w wavelets, and for the control wavelet after it, one from the ramp and one per place of the group.

Sources
    Jacquelin et al., SC22, arXiv 2204.03775 (localized broadcast by switches); arch §7, §8.2, §8.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from fabric.asm import control
from fabric.kernels.collectives.pieces.lines import Line
from fabric.layout.layout import Layout

__all__ = ["Nearby"]


SidePlan: TypeAlias = tuple[int | None, ...]
"""What a place does in each turn: 0 it sends, d > 0 it receives from the place d before it, None nothing."""


@dataclass(frozen=True)
class Nearby:
    """A `Nearby` is a localized broadcast along a line, from place 0 on.

    Attributes
    ----------
    line : Line
    reach : int
        Places that receive a vector, r: 2 to 7.
    color : int
    wavelets : int
        Of a vector.
    own : bool
        Whether a place receives its own vector as well, in the turn in which it sends.
    """

    line: Line
    reach: int
    color: int
    wavelets: int
    own: bool = False

    @property
    def turns(self) -> int:
        """All places have sent once after so many turns."""
        return self.reach + 1

    @property
    def command(self) -> int:
        """The control wavelet after a vector has this payload."""
        return control.encode(["adv", "adv", *["nop"] * (self.reach - 2), "adv"], deliver=False)

    def _sends(self, k: int) -> bool:
        return self.own or k < len(self.line) - 1

    def plan(self, k: int) -> SidePlan:
        """Return what place k does in each turn: 0 it sends, d > 0 it receives from place k - d, None nothing."""
        found: list[int | None] = [(k - turn) % self.turns for turn in range(self.turns)]
        if not self._sends(k):
            found[k % self.turns] = None
        return tuple(None if distance is None or distance > k else distance for distance in found)

    def receivers(self, k: int) -> int:
        """Return how many places receive what place k sends."""
        return min(self.reach, len(self.line) - 1 - k)

    def routes(self, layout: Layout) -> None:
        """Paint the routes of the line into a layout."""
        for k, rect in enumerate(self.line.rects):
            missing = "T" * (k == 0) + "A" * (k == len(self.line) - 1)

            def side(letters: str, k: int = k, missing: str = missing) -> str:
                return self.line.directions(k, [letter for letter in letters if letter not in missing])

            turn, before = k % self.turns, min(k, self.reach)
            route: dict[str, Any] = {"rx": side("T"), "tx": side("RA"), "pop": "always_pop"}
            if not self._sends(k):
                route = {"rx": side("T"), "tx": "R"} if k else {}
            elif k == 0:
                route |= {"rx": "R"} if self.own else {"rx": "R", "tx": side("A")}
            else:
                route |= {
                    "ring": True,
                    "pos": {0: 1, self.reach: 2}.get(turn, 0),
                    "switches": [{"rx": "R"}, {"tx": "R"}][: 2 if k >= self.reach else 1],
                }
                if not self.own:
                    route["filter"] = {
                        "kind": "counter",
                        "max_counter": before * self.wavelets - 1,
                        "limit1": (before + 1) * self.wavelets - 1,
                        "init_counter": (before - turn) * self.wavelets,
                    }
            if route:
                layout.route(self.color, rect, **route)

    @property
    def hops(self) -> int:
        """Wavelets of all copies of the line take so many hops while every place sends once, control included."""
        far = sum(1 + self.receivers(k) for k in range(len(self.line)) if self._sends(k))
        return self.line.copies * (self.wavelets + 1) * far

    @property
    def pairs(self) -> int:
        """All copies together have so many pairs of a sender and a receiver."""
        return self.line.copies * sum(map(self.receivers, range(len(self.line))))
