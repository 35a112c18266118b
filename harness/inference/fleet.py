"""A model decodes over several wafers: regions in a row, a token's hidden state from wafer to wafer, the rate of one
user.

A wafer holds as many regions as lie side by side; a model larger than that goes on on the next wafer.  The hidden state
leaves over the links of a system, passes one node of the tree, and comes in as it left; what that takes follows from
the numbers of links and nodes (`link.*`, `node.*`), not from a measurement: no public source says how wafers that
answer are joined.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fabric.networks.inference.decoder import Decoder
from harness.inference.capacity import DecoderMemory, places_of
from harness.inference.costs import cdiv
from harness.inference.published import SERVED
from harness.inference.requests import PROGRAMS, clocks, extras
from wse_core.errors import PlanError, ProgramError, UnsupportedError
from wse_core.params import Machine

__all__ = ["Fleet", "fastest_mesh", "fleet", "user_rates"]

MOST_PARTS = 8
"""`fastest_mesh` divides width and height of a wafer into at most so many parts."""


@dataclass(frozen=True)
class Fleet:
    """A `Fleet` is a number of wafers that answer together.

    Attributes
    ----------
    wafers : int
        That there are.
    needed : int
        That the regions take.
    crossing_s : float
        Seconds of a hidden state from one wafer to the next.
    """

    wafers: int
    needed: int
    crossing_s: float

    @property
    def fits(self) -> bool:
        """Whether all regions have a place."""
        return self.needed <= self.wafers

    @property
    def crossings_s(self) -> float:
        """Seconds that a token spends between wafers; it comes back to the first one."""
        return (self.needed if self.needed > 1 else 0) * self.crossing_s

    def as_dict(self) -> dict[str, Any]:
        """Return the facts as plain data."""
        return {
            "wafers": self.wafers,
            "needed": self.needed,
            "fit": self.fits,
            "crossing_s": self.crossing_s,
            "crossings_per_token_s": self.crossings_s,
        }


def crossing(machine: Machine, decoder: Decoder) -> float:
    """Return the seconds of a hidden state, 16 bits a feature, from a wafer over a node to the next one."""
    bits = 16 * decoder.hidden
    return 2 * bits / (machine["link.rate"] * machine["link.planes"]) + machine["node.latency"] * 1e-9


def fleet(machine: Machine, decoder: Decoder, mesh: tuple[int, int], tokens: int, wafers: int) -> Fleet:
    """Return what so many wafers mean to a model on regions of a mesh, with room for so many tokens."""
    regions = DecoderMemory(machine, decoder, *mesh).regions(tokens)
    return Fleet(wafers, cdiv(regions, max(1, places_of(machine, *mesh))), crossing(machine, decoder))


def fastest_mesh(machine: Machine, decoder: Decoder, tokens: int, wafers: int) -> tuple[int, int]:
    """Return the mesh on which one user gets most tokens per second, of those that the wafers hold.

    Meshes are those that cut width and height of the wafer into equal parts and are at most three times as long as
    wide.

    Raises
    ------
    PlanError
        No such mesh holds the model; names the wafers that it takes.
    """
    found, fewest = [], 0
    for mesh in _cuts(machine):
        if not DecoderMemory(machine, decoder, *mesh).layers_that_fit(tokens):
            continue
        needed = fleet(machine, decoder, mesh, tokens, wafers).needed
        fewest = min(fewest or needed, needed)
        if needed <= wafers:
            with contextlib.suppress(ProgramError, UnsupportedError):
                found.append((PROGRAMS["B"].decode(machine, decoder, *mesh, tokens).cycles, mesh))
    if not found:
        what = f"takes {fewest} wafers at least" if fewest else "has layers that no part of this wafer carries"
        raise PlanError(
            f"the model {what}; there are {wafers}" if fewest else f"the model {what}",
            where="--wafers",
            hint=f"--wafers {fewest}" if fewest else "fewer tokens or a smaller model",
            limit="wafers",
            needed=fewest,
            available=wafers,
        )
    return min(found)[1]


def _cuts(machine: Machine) -> Iterator[tuple[int, int]]:
    """Yield the meshes that `fastest_mesh` compares."""
    width, height = machine["fabric.width"], machine["fabric.height"]
    for across in range(1, MOST_PARTS + 1):
        for down in range(1, MOST_PARTS + 1):
            mesh = width // across, height // down
            if min(mesh) >= 2 and max(mesh) <= 3 * min(mesh):
                yield mesh


def user_rates(
    machine: Machine, name: str, decoder: Decoder, mesh: tuple[int, int], tokens: int, wafers: int
) -> dict[str, Any]:
    """Return the rate at which one user gets tokens, over a cache of so many, and what is public of it.

    A token takes the layers, what stands beside them, and the way between wafers.
    """
    regions = DecoderMemory(machine, decoder, *mesh).regions(tokens)
    found = fleet(machine, decoder, mesh, tokens, wafers)
    beside = extras(machine, decoder, *mesh, regions).cycles
    layers = PROGRAMS["B"].decode(machine, decoder, *mesh, tokens).cycles
    rates = {f"{clock:g} GHz": 1 / ((layers + beside) / (clock * 1e9) + found.crossings_s) for clock in clocks(machine)}
    facts: dict[str, Any] = found.as_dict() | {"user_tokens_per_s": rates}
    if name in SERVED:
        served = SERVED[name]
        facts["public"] = {
            "user_tokens_per_s": served,
            "error": {clock: rate / served - 1 for clock, rate in rates.items()},
        }
    return facts
