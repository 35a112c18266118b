"""Answers to many requests on one mesh: a step takes a token of each of several, and who is done makes room for others.

A request has a *lane* from its first token to its last one: a cache and a position of its own on the wafer.  Requests
wait in the order in which they were given.  Between two steps the host gives lanes that are free to those that wait; it
says so with the next embedding, and the PEs empty the lane's cache.  A prompt is read token by token in its lane, while
other lanes read or answer.

With `verify` each lane is compared bit by bit with a decoder that has its request alone (`BatchOracle`), in every step
or in a sample of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.batch import BatchOracle, BatchResident, LaneToken
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.edge import Came
from harness.inference.admission import Words
from harness.inference.asking import AnswerRequest, Hear
from harness.inference.comparing import is_drawn
from harness.inference.prefix import Prefix
from harness.inference.resuming import check_prefix
from harness.inference.yardsticks import Agreement, Yardstick
from harness.kit.console import Progress
from harness.models.rounding import Loss
from traces.marks import mark

__all__ = ["BatchAnswers", "Lanes", "Served", "schedule", "service_of"]


@dataclass
class Served:
    """A `Served` is one request of a batch with what came of it.

    Attributes
    ----------
    tokens : list of int
    logits : list of ndarray
        From which each was chosen, f32.
    lane : int
        Where it was answered.
    first_step, steps : int
        The step that took its first token, and how many took one.
    first_token, end : int
        Cycles from the beginning of the first step of all until its first token, and its last one, had left.
    """

    tokens: list[int] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    lane: int = 0
    first_step: int = 0
    steps: int = 0
    first_token: int = 0
    end: int = 0


@dataclass
class BatchAnswers(Agreement):
    """A `BatchAnswers` is what a batch of requests was answered, what it took, and how it agrees with numpy.

    Attributes
    ----------
    requests : list of Served
    reused, reused_cycles : int
        First tokens of all prompts that another answer has read, and the cycles which that took; in no other number.
    step_cycles : list of int
        Of each step, from the entering of its tokens to the leaving of the last of the next ones.
    taken : list of int
        Lanes that had a request, of each step.
    cycles : int
        From the beginning of the first step to the end of the last one.
    expected : int
        Of all steps, by the prices of the program.
    memory : dict
        Bytes of a PE by what they hold.
    hops : int
        Wavelet hops.
    counters : dict
        Of all PEs: name -> (array, unit).
    host_seconds : float
    losses : list of Loss
        Of rounding the weights to 16 bits, by tensors that lost any.
    """

    requests: list[Served]
    memory: dict[str, int]
    reused: int = 0
    reused_cycles: int = 0
    step_cycles: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    cycles: int = 0
    expected: int = 0
    hops: int = 0
    counters: dict[str, tuple[NDArray[Any], str]] = field(default_factory=dict)
    host_seconds: float = 0.0
    losses: list[Loss] = field(default_factory=list)

    @property
    def tokens(self) -> list[list[int]]:
        """The answers have these tokens, one list for each request."""
        return [each.tokens for each in self.requests]

    @property
    def logits(self) -> list[list[NDArray[np.float32]]]:
        """The answers have these logits, one list for each request."""
        return [each.logits for each in self.requests]


class Lanes:
    """`Lanes` say which request has which lane.

    Parameters
    ----------
    count : int
    requests : int
        Which wait, from number 0 on.

    Attributes
    ----------
    holders : list of int or None
        The request of each lane.
    """

    def __init__(self, count: int, requests: int) -> None:
        self.holders: list[int | None] = [None] * count
        self._next, self._requests = 0, requests

    def fill(self) -> list[int]:
        """Give lanes that are free to those that wait; return the requests that begin."""
        begun = []
        for lane, holder in enumerate(self.holders):
            if holder is None and self._next < self._requests:
                self.holders[lane] = self._next
                begun.append(self._next)
                self._next += 1
        return begun

    def leave(self, lane: int) -> None:
        """Take the lane of a request that is done."""
        self.holders[lane] = None

    @property
    def empty(self) -> bool:
        """Whether nobody has a lane, and nobody waits."""
        return self._next == self._requests and not any(holder is not None for holder in self.holders)


def schedule(lengths: Sequence[int], batch: int, reused: int = 0) -> list[list[int]]:
    """Return the tokens before that of each lane in each step, if requests are so many tokens long.

    A lane without a request begins anew in every step: none goes before its token.  `reused`: the first tokens of all
    requests that are there.
    """
    lanes, counts, found = Lanes(batch, len(lengths)), [reused] * len(lengths), []
    lanes.fill()
    while not lanes.empty:
        found.append([0 if holder is None else counts[holder] for holder in lanes.holders])
        for lane, holder in enumerate(lanes.holders):
            if holder is not None:
                counts[holder] += 1
                if counts[holder] == lengths[holder]:
                    lanes.leave(lane)
        lanes.fill()
    return found


class _Serving:
    """A `_Serving` runs requests in the lanes of a batch, each on its way from prompt to answer.

    Parameters
    ----------
    request : AnswerRequest
    built : Decode
    weights : mapping
    found : BatchAnswers
        Takes what comes.
    """

    def __init__(
        self, request: AnswerRequest, built: Decode, weights: Mapping[str, NDArray[Any]], found: BatchAnswers
    ) -> None:
        tables = built.tables(weights)
        self.request, self.found = request, found
        self.resident = BatchResident(built, weights, tables=tables)
        self.prefix = request.prefix
        blocks = None
        if self.prefix is not None:
            check_prefix(self.prefix, request, weights)
            found.reused, found.reused_cycles = self.prefix.count, self.prefix.cycles
            blocks = self.prefix.blocks(built.place.height, request.policy)
        self.oracle = BatchOracle(built, weights, tables, blocks) if request.verify else None
        self.queues = [list(prompt) for prompt in request.prompts]
        self.draws = [request.sampling_of(k).drawer(request.answers) for k in range(len(self.queues))]
        self.passed: list[list[int]] = [[] for _ in self.queues]  # tokens that plain numpy has yet to take
        self.yardsticks = [Yardstick(self.oracle.plain.place, weights, found) if self.oracle else None
                           for _ in self.queues]  # fmt: skip
        self.lanes, self.begun, self.before = Lanes(built.place.lanes, len(self.queues)), 0, list[list[int]]()

    def step(self) -> list[int]:
        """Let each lane that has a request take its next token; return the requests that got a token."""
        found, holders = self.found, self.lanes.holders
        for r in self.lanes.fill():
            found.requests[r].lane, found.requests[r].first_step = holders.index(r), len(found.step_cycles)
            if self.prefix is not None:
                self._enter(r, holders.index(r), self.prefix)
        given = [None if r is None else self._given(r) for r in holders]
        self.before.append([0 if r is None else self._position(r) for r in holders])
        self.looks = self.request.sample is None or is_drawn(len(found.step_cycles), self.request.sample)
        if self.oracle is not None and self.looks and self.request.sample is not None:
            for lane, holder in enumerate(holders):
                if holder is not None:
                    self.oracle.take_over(lane, self.resident.cache(lane), self._position(holder))
        step = self.resident.step(given)
        self.begun = self.begun if found.step_cycles else step.begun
        found.step_cycles.append(step.cycles)
        found.taken.append(sum(each is not None for each in given))
        found.hops += step.hops
        found.cycles = step.begun + step.cycles - self.begun
        answered = []
        for lane, (holder, came) in enumerate(zip(list(holders), step.came, strict=True)):
            if holder is not None and came is not None:
                answered += [holder] * self._take(holder, lane, given[lane], came)
        return answered

    def _enter(self, r: int, lane: int, prefix: Prefix) -> None:
        """Let a request begin in a lane with tokens that another answer has read."""
        self.resident.enter(lane, prefix.lasting, prefix.count)
        yardstick = self.yardsticks[r]
        if self.oracle is not None and yardstick is not None:
            self.oracle.enter(lane, prefix.lasting, prefix.count)
            self.passed[r] += prefix.tokens

    def _position(self, r: int) -> int:
        """Return how many tokens the cache has of a request."""
        return self.found.reused + self.found.requests[r].steps

    def _given(self, r: int) -> LaneToken:
        """Return the next token of a request."""
        position = self._position(r)
        return LaneToken(self.queues[r][position], position == 0)

    def _compare(self, r: int, lane: int, given: LaneToken, came: Came) -> None:
        """Compare what came of a token, if its step is to be."""
        yardstick, found = self.yardsticks[r], self.found
        if self.oracle is None or yardstick is None:
            return
        found.steps += 1
        self.passed[r].append(given.token)
        if not self.looks:
            return
        found.steps_compared += 1
        taken, self.passed[r] = self.passed[r], []
        yardstick.compare(self.oracle.step(lane, given), taken, came)
        if self.request.sample is not None and not self.oracle.alone[lane].holds(self.resident.cache(lane)):
            found.bit_exact = False

    def _take(self, r: int, lane: int, given: LaneToken | None, came: Came) -> bool:
        """Take what came of a token; return whether the answer has one more."""
        served, request, end = self.found.requests[r], self.request, came.begun + came.cycles
        mark(came.begun, f"request {r + 1}, token {self._position(r) + 1}", f"lane {lane + 1}", end)
        if given is not None:
            self._compare(r, lane, given, came)
        served.steps += 1
        if self._position(r) < len(request.prompts[r]):
            return False
        logits = came.logits.view(np.float32)
        token = self.draws[r](logits, came.token)
        served.end = end - self.begun
        served.first_token = served.first_token or served.end
        served.tokens.append(token)
        served.logits.append(logits)
        self.queues[r].append(token)
        if token in request.model.configuration.stops or len(served.tokens) == request.count_of(r):
            self.lanes.leave(lane)
        return True

    def conclude(self) -> None:
        """Note how errors compare with their bounds, the prices of all steps, and the counters."""
        found = self.found
        for queue, yardstick, served in zip(self.queues, self.yardsticks, found.requests, strict=True):
            if yardstick is not None:
                yardstick.conclude(queue[:-1], served.logits)
        found.expected = int(StepCycles(self.resident.decode).steps(self.before).sum())
        found.counters = self.resident.fabric.all_counters()


def service_of(
    request: AnswerRequest,
    built: Decode,
    words: Words,
    weights: Mapping[str, NDArray[Any]],
    hear: Hear | None,
    progress: Progress,
) -> BatchAnswers:
    """Return the answers to the prompts of a request, as many at a time as a step takes tokens.

    Parameters
    ----------
    built, words
        What was admitted for the request.
    weights : mapping
        Tensors by the hub's names, as the PEs have them.
    hear, progress
        As of `harness.inference.generate.answer`; `hear` hears of the first answer.
    """
    found = BatchAnswers([Served() for _ in request.prompts], {name: 2 * count for name, count in words.items()})
    serving = _Serving(request, built, weights, found)
    progress.phase("prompts and answers")
    whole = sum(request.length_of(k) - found.reused for k in range(len(request.prompts)))
    while not serving.lanes.empty:
        answered = serving.step()
        progress.update(sum(each.steps for each in found.requests), whole, cycles=found.step_cycles[-1])
        if 0 in answered and hear is not None:
            progress.close()
            progress = Progress()
            hear(len(found.requests[0].tokens), found.requests[0].tokens[-1])
    serving.conclude()
    return found
