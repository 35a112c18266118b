"""A whole request is prefill, transition, and one step after the other while the cache grows.

tokens/s of a request counts what comes out and holds the prefill against it.  The transition moves weights and cache
from the placement of prefill to that of decode: at least half of the weights cross the middle of the mesh, over its
2 P links, which bounds it from below.  The published tables leave out what a whole model also needs; it is given apart:
the output matrix with the arg max, the hand-over between regions, and a token's way in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fabric.kernels.kit.data import wavelets_of
from fabric.networks.inference.decoder import Decoder
from fabric.price import timing
from harness.inference import authors, correct
from harness.inference.costs import all_reduce, cdiv, elementwise, matrix_vector
from harness.inference.ledger import PartCost, wafer_energy
from harness.inference.phase import LayerCycles
from wse_core.params import Machine
from wse_core.work import Energy

__all__ = ["PROGRAMS", "RequestCycles", "clocks", "extras", "growing", "request", "transition"]

PROGRAMS = {"A": authors, "B": correct}
"""By name: the authors' program as it is, and a correct one."""


def clocks(machine: Machine) -> tuple[float, float]:
    """Return the two clocks [GHz]: of the vendor's host scripts, and of the authors'."""
    return machine["clock.ghz"], machine["infer.script_ghz"]


def transition(machine: Machine, decoder: Decoder, side: int) -> float:
    """Return the fewest cycles in which the weights can change their placement."""
    return decoder.bytes() / 2 / 4 / (2 * side)


@dataclass(frozen=True)
class RequestCycles:
    """A `RequestCycles` has the cycles of a request: prompt, moving to decode, all steps.

    Attributes
    ----------
    prefill, transition, steps : float
        Of the prompt, of moving to decode, of all steps together.
    tokens : int
        That come out.
    pes : (int, int)
        PEs of the meshes that read the prompt and that decode.
    """

    prefill: PartCost
    transition: float
    steps: PartCost
    tokens: int
    pes: tuple[int, int]

    @property
    def cycles(self) -> float:
        """The whole request takes so many cycles."""
        return float(self.prefill) + self.transition + float(self.steps)

    def energy(self, machine: Machine) -> Energy:
        """Return what the wafer takes for the request, PEs beside the meshes included; moving weights is left out."""
        return wafer_energy(machine, zip((self.prefill, self.steps), self.pes, strict=True), self.cycles)

    def rate(self, gigahertz: float) -> float:
        """Return tokens per second."""
        return self.tokens * gigahertz * 1e9 / self.cycles


def growing(
    machine: Machine, program: str, decoder: Decoder, mesh: tuple[int, int], first: int, count: int
) -> PartCost:
    """Return the cycles of `count` steps, the first of them over a cache of `first` tokens.

    A step depends on the tokens of a row, not of the cache: one phase serves as many steps as there are rows.
    """
    total, at = PartCost(0), first
    while at < first + count:
        row = cdiv(at, mesh[1]) * mesh[1]
        same = min(row + 1, first + count) - at
        total += same * PROGRAMS[program].decode(machine, decoder, *mesh, row).cycles
        at += same
    return total


def request(
    machine: Machine,
    program: str,
    decoder: Decoder,
    prefill_mesh: tuple[int, int],
    mesh: tuple[int, int],
    prompt: int,
    tokens: int,
    cached: int | None = None,
) -> RequestCycles:
    """Return a request of `prompt` tokens in and `tokens` out.

    Parameters
    ----------
    prefill_mesh, mesh : (width, height)
        Of prefill and of decode.
    cached : int, optional
        Tokens over which every step goes, as in the published program, whose cache has a fixed length; otherwise the
        cache grows.
    """
    phases = PROGRAMS[program]
    steps = (
        growing(machine, program, decoder, mesh, prompt, tokens)
        if cached is None
        else tokens * phases.decode(machine, decoder, *mesh, cached).cycles
    )
    return RequestCycles(
        phases.prefill(machine, decoder, *prefill_mesh, prompt).cycles,
        transition(machine, decoder, min(prefill_mesh)),
        steps,
        tokens,
        (math.prod(prefill_mesh), math.prod(mesh)),
    )


def extras(machine: Machine, decoder: Decoder, width: int, height: int, regions: int) -> LayerCycles:
    """Return what a step of a whole model takes beside its layers, once per token."""
    m = machine
    along, part = cdiv(decoder.hidden, height), cdiv(decoder.vocabulary, width)
    hand = width + m["infer.handover"] + wavelets_of(along + along % 2, "f16")
    return LayerCycles(
        "B",
        "beside the layers",
        1,
        {
            "last norm": all_reduce(m, height, 1, "f32"),
            "logits": all_reduce(m, height, part, "f32"),
            "arg max": 2 * all_reduce(m, width, 1, "f32"),
            "token in": all_reduce(m, width, along, "f32"),
        },
        {"output matrix": matrix_vector(m, part, along, "f32")},
        {
            "largest of a column": elementwise(m, "fmaxs", part),
            "hand-over": PartCost((regions - 1) * hand),
            "token out": PartCost(timing.way(m, width)),
        },
    )
