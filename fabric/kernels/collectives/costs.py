"""Cost models of collectives: published closed forms, lower bounds, and the algorithm that they choose.

All functions return cycles.  P is the number of PEs of a line, B the wavelets of a vector on each PE.  The forms have
two numbers of the machine, held in a `Wire`: the stage cost (published as 2 T_R + 1: down a ramp, one core cycle,
up a ramp) and the cost of a hop (published as 1).  `Wire.of(machine)` takes both from the machine's parameters.

The general form is T = max(C, E / N + L) + (2 T_R + 1) D: contention C (most wavelets that a PE takes in or gives out),
energy E (hops of all wavelets), links N, distance L, depth D.  A form that is published as a special case of it is
written here as one call of `general`.

Lower bound of a reduce: every reduction is a tree of some depth D, and with E*(P, D) the least energy of a tree of that
depth over a line, T >= B E*(P, D) / (P - 1) + P - 1 + (2 T_R + 1) D; the least of that over D cannot be beaten.

Timing: none; these are functions of numbers.
Sources: Luczynski et al., Near-Optimal Wafer-Scale Reduce, HPDC 2024 (arXiv 2404.15888); `summa` is the formula of
csl-experiments, gemm/summa_manual_multicasting_pipelined_doubleColor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fabric.price import timing
from wse_core.params import Machine

__all__ = [
    "ALGORITHMS",
    "Wire",
    "best",
    "broadcast",
    "broadcast_2d",
    "chain",
    "default_group",
    "energy",
    "general",
    "lower_bound",
    "lower_bound_2d",
    "lower_bound_allreduce",
    "lower_bound_move",
    "optimal",
    "optimal_depth",
    "reduce",
    "reduce_broadcast",
    "ring",
    "star",
    "summa",
    "tree",
    "two_phase",
]

ALGORITHMS = ("star", "chain", "tree", "two_phase", "optimal")


@dataclass(frozen=True)
class Wire:
    """The forms of costs use these two numbers of a machine.

    Attributes
    ----------
    stage : int
        2 T_R + 1: off-ramp, core, on-ramp [cycles].
    hop : int
        Router to router [cycles].
    """

    stage: int = 5
    hop: int = 1

    @classmethod
    def of(cls, machine: Machine) -> Wire:
        """Return the wire of `machine`."""
        return cls(timing.ramps(machine), machine["router.hop"])


def general(contention: int, energy: float, links: int, distance: int, depth: int, wire: Wire) -> float:
    """Return FORM-GENERAL: T = max(C, E / N + L) + (2 T_R + 1) D."""
    mean = energy / links if links else 0.0
    return max(contention, mean + wire.hop * distance) + wire.stage * depth


# --- reduce on a line -------------------------------------------------------------------------------------------------


def star(p: int, b: int, wire: Wire) -> float:
    """Return FORM-STAR: T = B (P - 1) + 2 T_R + 1: everybody sends to PE 0, which takes one wavelet per cycle."""
    return b * (p - 1) + wire.stage if p > 1 else 0.0


def chain(p: int, b: int, wire: Wire) -> float:
    """Return FORM-CHAIN: T = B + (2 T_R + 2)(P - 1): every PE adds its own to what passes."""
    return b + (wire.stage + wire.hop) * (p - 1) if p > 1 else 0.0


def tree(p: int, b: int, wire: Wire) -> float:
    """Return FORM-TREE: binary tree, log2 P stages (rounded up), each with half of all links' worth of data."""
    if p == 1:
        return 0.0
    levels = math.ceil(math.log2(p))
    return general(b * levels, b * p * levels / 2, p - 1, p - 1, levels, wire)


def two_phase(p: int, b: int, group: int, wire: Wire) -> float:
    """Return FORM-TWOPHASE: chains inside groups of S PEs, then a chain over the groups' first PEs."""
    if p == 1:
        return 0.0
    groups = -(-p // group)
    if groups == 1:
        return chain(p, b, wire)
    if group == 1:
        return chain(p, b, wire)
    return general(2 * b, b * (2 * p - group - p / group), p - 1, p - 1, group + groups - 2, wire)


def optimal(p: int, b: int, wire: Wire) -> float:
    """Return the cost of the tree that minimises energy and depth together (Auto-Gen): the bound, or contention if that
    is more.

    The contention of the tree that is found is not bounded by its energy;
    `fabric.kernels.collectives.pieces.trees.optimal` counts it.
    """
    return lower_bound(p, b, wire)


def default_group(p: int) -> int:
    """Return the group size nearest above sqrt(P)."""
    return max(1, math.isqrt(p - 1) + 1) if p > 1 else 1


def reduce(algorithm: str, p: int, b: int, wire: Wire, group: int | None = None) -> float:
    """Return the cost of a reduce by the name of its algorithm."""
    if algorithm == "two_phase":
        return two_phase(p, b, group or default_group(p), wire)
    return {"star": star, "chain": chain, "tree": tree, "optimal": optimal}[algorithm](p, b, wire)


def best(p: int, b: int, wire: Wire, among: Sequence[str] = ("star", "chain", "tree", "two_phase")) -> str:
    """Return the algorithm of the least cost; ties go to the one named first."""
    return min(among, key=lambda name: reduce(name, p, b, wire))


# --- lower bounds -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def energy(p: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return E*(q, D), the least hops of a reduction tree of depth <= D for one word on a line of q PEs to its end.

    Returns
    -------
    (energy, split) : ndarrays of shape (p + 1, p)
        ``energy[q, D]``, inf where no such tree exists, and the place i from which the last message to PE 0 comes.

    Notes
    -----
    In an optimal tree PE 0 gets its last message from some PE i, which has reduced i .. q - 1, after 0 .. i - 1 have
    been reduced to PE 0: E*(q, D) = min over i of E*(i, D) + E*(q - i, D - 1) + i.
    """
    values = np.full((p + 1, p), np.inf, np.float32)
    split = np.ones((p + 1, p), np.int32)
    values[1] = 0.0
    for q in range(2, p + 1):
        found = values[1:q, 1:q] + values[q - 1 : 0 : -1, : q - 1] + np.arange(1, q, dtype=np.float32)[:, None]
        best_place = found.argmin(axis=0)
        split[q, 1:q] = best_place + 1
        values[q, 1:q] = found[best_place, np.arange(q - 1)]
        values[q, q:] = q - 1  # deeper than a chain there is nothing
    return values, split


@lru_cache(maxsize=256)
def optimal_depth(p: int, b: int, wire: Wire, most: int | None = None) -> tuple[int, float]:
    """Return (depth, cycles) that minimise B E*(P, D) / (P - 1) + P - 1 + (2 T_R + 1) D, with D <= `most`."""
    if p == 1:
        return 0, 0.0
    depth = np.arange(1, min(p - 1, most or p) + 1)
    cost = b * energy(p)[0][p, depth] / (p - 1) + wire.hop * (p - 1) + wire.stage * depth
    k = int(cost.argmin())
    return int(depth[k]), float(cost[k])


def lower_bound(p: int, b: int, wire: Wire) -> float:
    """Return cycles that no reduce on a line can beat: min over depths, and B for what PE 0 must take in."""
    return max(float(b), optimal_depth(p, b, wire)[1]) if p > 1 else 0.0


def lower_bound_2d(width: int, height: int, b: int, wire: Wire) -> float:
    """Return cycles that no reduce of a rectangle to its corner can beat: max(B, M + N - 1 + 2 T_R + 1)."""
    if width * height == 1:
        return 0.0
    return max(float(b), wire.hop * (width + height - 2) + wire.stage + 1)


def lower_bound_allreduce(width: int, height: int, b: int, wire: Wire) -> float:
    """Return cycles that no all-reduce can beat: every PE takes in B wavelets and hears of the farthest one."""
    return lower_bound_2d(width, height, b, wire)


def lower_bound_move(p: int, span: int, b: int, wire: Wire) -> float:
    """Return cycles that no scatter, gather or all-gather of P blocks can beat.

    A PE gives out or takes in P - 1 blocks of B wavelets, and the first one does not come from nowhere; `span` is the
    number of PEs on the way to the farthest one, whose first wavelet has that far to go.
    """
    if p == 1:
        return 0.0
    return float(max((p - 1) * b + wire.stage, wire.hop * (span - 1) + wire.stage + b))


# --- broadcast, all-reduce, two dimensions ----------------------------------------------------------------------------


def broadcast(p: int, b: int, wire: Wire) -> float:
    """Return FORM-BCAST: T = B + P + 2 T_R: routers copy, no stages."""
    return b + wire.hop * (p - 1) + wire.stage if p > 1 else 0.0


def broadcast_2d(width: int, height: int, b: int, wire: Wire) -> float:
    """Return FORM-BCAST2D: T = B + M + N - 2 + 2 T_R + 1."""
    return b + wire.hop * (width + height - 2) + wire.stage if width * height > 1 else 0.0


def ring(p: int, b: int, wire: Wire) -> float:
    """Return FORM-RING: T = 2 (P - 1) B / P + 4 P - 6 + 2 (P - 1)(2 T_R + 1): the last PE sends back all the way."""
    return 2 * (p - 1) * b / p + wire.hop * (4 * p - 6) + 2 * (p - 1) * wire.stage if p > 1 else 0.0


def reduce_broadcast(algorithm: str, p: int, b: int, wire: Wire, group: int | None = None) -> float:
    """Return FORM-RB: T = T_reduce + T_broadcast."""
    return reduce(algorithm, p, b, wire, group) + broadcast(p, b, wire)


def summa(p: int, mt: int, kt: int, nt: int) -> float:
    """Return FORM-SUMMA14: T = P (120 + Kt Nt (1 + Mt) + 43 Kt Nt), instruction-level SUMMA with hand-written
    multicast.
    """
    return p * (120 + kt * nt * (1 + mt) + 43 * kt * nt)
