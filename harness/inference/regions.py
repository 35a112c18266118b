"""A decoder on several regions of the wafer gives one answer, or several whose tokens come in turns.

The host sends a token as soon as it knows it: those of a prompt at once, one of an answer when the one before has left.
What regions do not work, they wait: *bubbles*, told apart for the time in which prompts are read, which fills the
regions, and for that of the answers, where one answer alone leaves all regions but one idle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.edge import Came
from fabric.networks.inference.passing import Passing, PipelineOracle
from fabric.networks.inference.pipeline import RegionPipeline
from fabric.networks.inference.pipeline_cycles import Bubbles, PipelineCycles
from harness.inference.admission import Words
from harness.inference.asking import AnswerRequest, Hear
from harness.inference.yardsticks import Agreement, Yardstick
from harness.kit.console import Progress
from harness.models.rounding import Loss
from traces.marks import mark

__all__ = ["Region", "RegionAnswers", "flow_of"]


@dataclass(frozen=True)
class Region:
    """A `Region` says what a region of a decoder did.

    Attributes
    ----------
    first, layers : int
        The layers that it has.
    memory : dict
        Bytes of a PE by what they hold.
    prompt, answer : int
        Cycles in which it worked, while prompts were read and while answers came.
    """

    first: int
    layers: int
    memory: dict[str, int]
    prompt: int
    answer: int


@dataclass
class RegionAnswers(Agreement):
    """A `RegionAnswers` is what regions generated, what it took, and how it agrees with numpy.

    Attributes
    ----------
    tokens : list of list of int
        Of each answer.
    logits : list of list of ndarray
        From which each was chosen, f32.
    token_cycles : list of list of int
        Of each token but an answer's first: from the entering of the one before to its leaving.
    prompt_cycles, answer_cycles : int
        From the first token that enters to the first one of the last answer, and from then to the last of all.
    regions : list of Region
    expected : Bubbles
        A round of the last position, by closed form.
    hops : int
        Wavelet hops.
    counters : dict
        Of all PEs: name -> (array, unit).
    host_seconds : float
    losses : list of Loss
        Of rounding the weights to 16 bits, by tensors that lost any.
    """

    tokens: list[list[int]]
    logits: list[list[NDArray[np.float32]]]
    token_cycles: list[list[int]]
    expected: Bubbles
    prompt_cycles: int = 0
    answer_cycles: int = 0
    regions: list[Region] = field(default_factory=list)
    hops: int = 0
    counters: dict[str, tuple[NDArray[Any], str]] = field(default_factory=dict)
    host_seconds: float = 0.0
    losses: list[Loss] = field(default_factory=list)

    def bubbles(self, phase: str) -> float:
        """Return the part of all regions' cycles of a phase (``prompt`` or ``answer``) in which they waited."""
        cycles = self.prompt_cycles if phase == "prompt" else self.answer_cycles
        worked = sum(getattr(region, phase) for region in self.regions)
        return 1 - worked / (len(self.regions) * cycles) if cycles else 0.0


def _worked(busy: list[tuple[int, int]], first: int, last: int) -> int:
    """Return the cycles from `first` to `last` that lie in intervals."""
    return sum(max(0, min(end, last) - max(begin, first)) for begin, end in busy)


class _Going:
    """A `_Going` is one of several answers: the tokens that are known, and what came of those that went through."""

    def __init__(
        self,
        prompt: Sequence[int],
        request: AnswerRequest,
        draw: Callable[[NDArray[np.float32], int], int],
        flow: RegionAnswers,
        number: int,
        yardstick: Yardstick,
    ) -> None:
        self.length, self.count, self.stops = len(prompt), request.count_of(number), request.model.configuration.stops
        self.queue, self.done, self.number, self.yardstick, self.draw = list(prompt), False, number, yardstick, draw
        self.tokens, self.logits, self.cycles = flow.tokens[number], flow.logits[number], flow.token_cycles[number]
        self.track = f"request {number + 1}"
        self.read = 0  # the cycle in which its first token left

    def take(self, position: int, came: Came, oracle: PipelineOracle | None) -> bool:
        """Take what came of a token and compare it with the oracle's; return whether the answer has one more."""
        end = came.begun + came.cycles
        mark(came.begun, f"{self.track}, token {position + 1}", self.track, end)
        if oracle is not None:
            taken = self.queue[position]
            self.yardstick.compare(oracle.step(taken, self.number), [taken], came)
        if position < self.length - 1:
            return False
        if self.tokens:
            self.cycles.append(came.cycles)
        else:
            self.read = end
        logits = came.logits.view(np.float32)
        token = self.draw(logits, came.token)
        self.tokens.append(token)
        self.logits.append(logits)
        self.queue.append(token)
        self.done = token in self.stops or len(self.tokens) == self.count
        return True


def _feed(passing: Passing, going: Sequence[_Going], longest: int) -> None:
    """Send all tokens that are known, in turns; an answer that has ended keeps its place, for what nobody reads."""
    while passing.edge.sent < len(going) * longest:
        position, r = divmod(passing.edge.sent, len(going))
        if position >= len(going[r].queue) and not going[r].done:
            return
        passing.send(0 if going[r].done else going[r].queue[position])


def flow_of(
    request: AnswerRequest,
    built: RegionPipeline,
    words: Sequence[Words],
    weights: Mapping[str, NDArray[Any]],
    hear: Hear | None,
    progress: Progress,
) -> RegionAnswers:
    """Return the answers to the prompts of a request, which may be of different lengths.

    Parameters
    ----------
    built, words
        What was admitted for the request.
    weights : mapping
        Tensors by the hub's names, as the PEs have them.
    hear, progress
        As of `harness.inference.generate.answer`; `hear` hears of the first answer.
    """
    tables, turns = built.tables(weights), len(request.prompts)
    flow = RegionAnswers(
        [[] for _ in range(turns)], [[] for _ in range(turns)], [[] for _ in range(turns)], Bubbles(0, [], 1)
    )
    going = [
        _Going(
            prompt,
            request,
            request.sampling_of(k).drawer(request.answers),
            flow,
            k,
            Yardstick(built.place, weights, flow),
        )
        for k, prompt in enumerate(request.prompts)
    ]
    passing = Passing(built, weights, tables)
    oracle = PipelineOracle(built, weights, tables) if request.verify else None
    progress.phase("prompts and answers")
    first, end, number = 0, 0, 0  # cycles in which the first token enters and the last one leaves; tokens so far
    while not all(each.done for each in going):
        _feed(passing, going, request.tokens)
        passed = passing.receive()
        position, r = divmod(number, turns)
        number += 1
        first = passed.begun if number == 1 else first
        if going[r].done:
            continue
        end = passed.begun + passed.cycles
        progress.update(number, turns * request.tokens, cycles=passed.cycles)
        if going[r].take(position, passed, oracle) and hear is not None and r == 0:
            progress.close()
            progress = Progress()
            hear(len(flow.tokens[r]), flow.tokens[r][-1])
    passing.finish()
    for each in going if request.verify else ():
        each.yardstick.conclude(each.queue[:-1], each.logits)
    cycles = first, max(each.read for each in going), end
    _conclude(flow, built, words, passing, cycles, (number - 1) // turns)
    return flow


def _conclude(
    flow: RegionAnswers,
    built: RegionPipeline,
    words: Sequence[Words],
    passing: Passing,
    cycles: tuple[int, int, int],
    position: int,
) -> None:
    """Note what the regions did and what the closed form says of the last round."""
    first, read, end = cycles
    flow.prompt_cycles, flow.answer_cycles = read - first, end - read
    for k, (stage, busy) in enumerate(zip(built.stages, passing.busy, strict=True)):
        for begin, through in busy:
            mark(begin, f"layers {stage.place.first + 1} to {stage.place.first + stage.place.decoder.layers}",
                 f"region {k + 1}", through)  # fmt: skip
        flow.regions.append(
            Region(
                stage.place.first,
                stage.place.decoder.layers,
                {name: 2 * each for name, each in words[k].items()},
                _worked(busy, first, read),
                _worked(busy, read, end),
            )
        )
    flow.expected = PipelineCycles(built).round(position)
    counters = passing.fabric.all_counters()
    flow.hops = sum(int(values.sum()) for name, (values, _) in counters.items() if "moved_color" in name)
    flow.counters = counters
