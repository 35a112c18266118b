"""The cycles of a token through several regions, and how much of that each region waits, are predicted.

Each region is a decoder of its own, so its cycles are those of `decode_cycles`, from having a token's state to being
ready for another one.  A hand-over goes from column 0 over the width of a region, row by row as rows are ready.

`Bubbles` of a round, in which each request gets one token: with one request regions work one after the other.  With
more, a round takes as long as one token's way through all regions or as long as the slowest region needs for all
requests, whichever is longer; what a region does not work in it, it waits.

Measured against the engine: tests/fabric/networks/inference/test_pipeline.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabric.networks.inference.decode_cycles import Cycles, StepCycles, TokenWay
from fabric.networks.inference.pipeline import RegionPipeline
from fabric.price import timing

__all__ = ["Bubbles", "PipelineCycles"]


@dataclass(frozen=True)
class Bubbles:
    """A `Bubbles` is a round in which each request gets one token, with the cycles that regions wait.

    Attributes
    ----------
    latency : int
        Cycles of one token, from entering to leaving, if nothing holds it up.
    busy : list of int
        Cycles that each region works.
    cycles : int
        Of the round.
    """

    latency: int
    busy: list[int]
    cycles: int

    @property
    def share(self) -> float:
        """This part of all regions' cycles is spent waiting."""
        return 1 - sum(self.busy) / (len(self.busy) * self.cycles)


class PipelineCycles:
    """A `PipelineCycles` predicts the cycles of a decoder on several regions, without running it.

    Parameters
    ----------
    pipeline : RegionPipeline
    """

    def __init__(self, pipeline: RegionPipeline) -> None:
        self.pipeline, self.place, self.m = pipeline, pipeline.place, pipeline.machine
        self.forms = [StepCycles(stage) for stage in pipeline.stages]

    def tokens(self, before: Sequence[int], request: int = 0) -> tuple[Cycles, list[Cycles]]:
        """Return the cycles of tokens through empty regions, each by itself, and those that each region works.

        Parameters
        ----------
        before : sequence of int
            Tokens of its request that went before each.
        request : int
            Of a round: the first one opens a position, the last one closes it.
        """
        m, place = self.m, self.place
        rows, arrival = np.zeros((len(before), place.height), np.int64), self.forms[0].arrival
        busy: list[Cycles] = []
        for form in self.forms:
            token = TokenWay(form, np.array(before), request)
            token.front.rows = rows
            begun = token.through(arrival)
            if form.place.last:
                left = token.answered()
            ends = token.front.columns[:, :1] + token.front.rows
            rest, sends = token.at_edge()
            # Readings of the clock lie as far behind the beginning as behind the end, but for the jump between.
            busy.append((ends + rest).max(axis=1) - begun.min(axis=1) - m["ce.branch_taken"])
            rows, arrival = ends + sends, timing.way(m, place.width)
        return left, busy

    def round(self, before: int) -> Bubbles:
        """Return a round of all requests, each of which has taken so many tokens."""
        return self.rounds([before])[0]

    def rounds(self, before: Sequence[int]) -> list[Bubbles]:
        """Return the rounds of several positions, as of `round`."""
        requests = range(self.place.requests)
        turns = [self.tokens(before, r) for r in sorted({0, min(1, len(requests) - 1), len(requests) - 1})]
        middle = max(0, len(requests) - 2)
        weights = [1, *[middle] * (len(turns) > 2), *[1] * (len(turns) > 1)]
        found = []
        for k in range(len(before)):
            parts = [
                sum(count * int(turn[1][region][k]) for count, turn in zip(weights, turns, strict=True))
                for region in range(len(self.forms))
            ]
            latency = max(int(turn[0][k]) for turn in turns)
            taking = len(requests) * (self.forms[0].taking + self.m["ce.branch_taken"])
            found.append(Bubbles(latency, parts, max(latency, taking + max(parts))))
        return found

    def prompt(self, length: int) -> int:
        """Return the cycles in which prompts of so many tokens are read, until the first token of the last answer left.

        Tokens follow one another, so that all but the last take as long as the slowest region works on them.
        """
        requests = self.place.requests
        *others, last = self.rounds(range(length))
        before = sum(max(each.busy) for each in others)
        return before + max(last.busy) * (requests - 1) // requests + last.latency
