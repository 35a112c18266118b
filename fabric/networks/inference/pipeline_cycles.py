"""How long a token takes through several regions, and how much of that each region waits: closed forms.

Each region is a decoder of its own, so its cycles are those of `decode_cycles`, from having a token's state to being
ready for another one.  A hand-over goes from column 0 over the width of a region, row by row as rows are ready.

`Bubbles` of a round, in which each request gets one token: with one request regions work one after the other.  With
more, a round takes as long as one token's way through all regions or as long as the slowest region needs for all
requests, whichever is longer; what a region does not work in it, it waits.

Measured against the engine: tests/fabric/networks/inference/test_pipeline.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from fabric.kernels.kit import timing
from fabric.networks.inference.axes import QUEUE_HEAD, QUEUE_IN
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.front import Front
from fabric.networks.inference.pipeline import Pipeline

__all__ = ["Bubbles", "PipelineCycles"]


@dataclass(frozen=True)
class Bubbles:
    """A round: each request gets one token.

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
        """Part of all regions' cycles in which they wait."""
        return 1 - sum(self.busy) / (len(self.busy) * self.cycles)


class PipelineCycles:
    """Closed forms of a decoder on several regions.

    Parameters
    ----------
    pipeline : Pipeline
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.place, self.m = pipeline, pipeline.place, pipeline.machine
        self.forms = [StepCycles(stage) for stage in pipeline.stages]

    @property
    def note(self) -> int:
        """Cycles in which a region notes the time."""
        return self.forms[0].load + timing.stamp(self.m) + 5 + self.m["ce.branch_taken"]

    def token(self, before: int, opens: bool = True, closes: bool = True) -> tuple[int, list[int]]:
        """Return the cycles of a token through empty regions, and those that each region works.

        Parameters
        ----------
        before : int
            Tokens of its request that went before.
        opens, closes : bool
            Whether it is that of the first and of the last request of a round.
        """
        m, place, note = self.m, self.place, self.note
        rows, busy, left = [0] * place.height, [], 0
        for k, form in enumerate(self.forms):
            front = Front(place.width, place.height)
            front.rows = rows
            handed = timing.transfer(m, place.hidden, place.width, QUEUE_IN, QUEUE_HEAD)
            entering = form.entering() if k == 0 else handed
            form.through(front, before, entering + note, lambda part: None, opens)
            if form.place.last:
                left = form.answered(front, lambda part: None)
            ends = [front.columns[0] + row for row in front.rows]
            sent = 0 if form.place.last else 2 * m["ce.dsr_load"] + timing.operation(m, place.hidden)
            through = max(ends) + sent + note - min(rows) - entering
            again = form.angles() + form.load + 5 if closes else 0
            requests = 4 + form.load + m["ce.branch_taken"] if place.requests > 1 else 0
            busy.append(int(through + again + requests))
            rows = ends
        return int(left), busy

    def round(self, before: int) -> Bubbles:
        """Return a round of all requests, each of which has taken so many tokens."""
        requests = self.place.requests
        turns = [self.token(before, r == 0, r == requests - 1) for r in range(requests)]
        busy = [sum(turn[1][k] for turn in turns) for k in range(len(self.forms))]
        latency = max(turn[0] for turn in turns)
        taking = requests * (self.forms[0].entering() + self.m["ce.branch_taken"])
        return Bubbles(latency, busy, max(latency, taking + max(busy)))

    def prompt(self, length: int) -> int:
        """Return the cycles in which prompts of so many tokens are read, until the first token of the last answer left.

        Tokens follow one another, so that all but the last take as long as the slowest region works on them.
        """
        requests = self.place.requests
        before = sum(max(self.round(position).busy) for position in range(length - 1))
        last = self.round(length - 1)
        return before + max(last.busy) * (requests - 1) // requests + last.latency
