"""An answer that a smaller model guesses ahead: the larger one takes several guesses in a step and keeps right ones.

Two models lie on one wafer, the mesh of the smaller one, the *draft*, below that of the larger one, both at the west
edge, where tokens enter and leave.  A round: the draft guesses tokens one after the other, each step over its cache.
The larger model takes the last known token and all guesses in one step, a lane each.  From the first lane comes the
next token as without guesses; if it is the first guess, the second lane has what comes behind it, and so on.  A guess
that is not what was chosen, and all behind it, are taken back in both caches.  So tokens and their bits are those
without a draft, however they are chosen, and a round gives one token at least.

While a step of the draft runs, lanes of tokens that it has taken in this round take them again: so any of them can be
what the next round goes on behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.batch import BatchOracle, BatchResident, BatchStep, LaneToken
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.edge import Came
from harness.inference.admission import Drafted, Words
from harness.inference.asking import AnswerRequest, Hear
from harness.inference.comparing import is_drawn
from harness.inference.prefix import Prefix
from harness.inference.resuming import check_prefix
from harness.inference.yardsticks import Agreement, Yardstick
from harness.kit.console import Progress
from harness.models.rounding import Loss
from traces.marks import mark
from wse_core.formats import Arithmetic

__all__ = ["Speculation", "speculation_of"]

Weights = Mapping[str, NDArray[Any]]


@dataclass
class Speculation(Agreement):
    """A `Speculation` is an answer that was guessed ahead, what it took, and how it agrees with numpy.

    Attributes
    ----------
    tokens : list of int
    logits : list of ndarray
        From which each was chosen, f32.
    prompt_cycles : dict
        Of the prompt, by model: each reads it in pieces, at the same time.
    checks, guesses : list of int
        Cycles of each step of the larger model, and of the draft, while the answer came.
    reused, reused_cycles : int
        First tokens of the prompt that another answer of the larger model has read, and the cycles which that took; in
        no other number.  The draft reads them.
    guessed, accepted : int
        Tokens that the draft guessed, and that were what the larger model chose.
    expected : dict
        Of the steps of the answer, by the prices of the programs, by model.
    alone : int
        Of the last token by a program of the larger model that takes one in a step.
    memory : dict of dict
        Bytes of a PE by what they hold, by model.
    hops : int
        Wavelet hops.
    counters : dict
        Of all PEs of the larger model: name -> (array, unit).
    host_seconds : float
    losses : list of Loss
        Of rounding the weights of the larger model to 16 bits, by tensors that lost any.
    """

    memory: dict[str, dict[str, int]]
    tokens: list[int] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    prompt_cycles: dict[str, int] = field(default_factory=dict)
    checks: list[int] = field(default_factory=list)
    guesses: list[int] = field(default_factory=list)
    reused: int = 0
    reused_cycles: int = 0
    guessed: int = 0
    accepted: int = 0
    expected: dict[str, int] = field(default_factory=dict)
    alone: int = 0
    hops: int = 0
    counters: dict[str, tuple[NDArray[Any], str]] = field(default_factory=dict)
    host_seconds: float = 0.0
    losses: list[Loss] = field(default_factory=list)

    @property
    def acceptance(self) -> float:
        """This part of the guesses was accepted."""
        return self.accepted / self.guessed if self.guessed else 0.0


class _Side:
    """A `_Side` is one of the two models: a program of one request that takes several tokens in a step.

    Parameters
    ----------
    name : str
    decode : Decode
    weights : mapping
    """

    def __init__(self, name: str, decode: Decode, weights: Weights, tables: dict[str, NDArray[Any]]) -> None:
        self.name, self.lanes, self.form = name, decode.place.lanes, StepCycles(decode)
        self.resident = BatchResident(decode, weights, tables=tables)
        self.held: list[int] = []  # tokens of the lanes of this round
        self.base = 0  # tokens before them
        self.behind: int | None = None  # the lane of the last step behind which the round goes on; None: it begins
        self.before: list[list[int]] = []

    def take(self, tokens: Sequence[int]) -> BatchStep:
        """Take tokens behind those of this round, whose lanes take theirs again."""
        had, count = len(self.held), len(self.held) + len(tokens)
        given: list[LaneToken | None] = [LaneToken(token, again=True) for token in self.held]
        for k, token in enumerate(tokens, had):
            behind = k - 1 if k else self.behind
            given.append(LaneToken(token, behind is None, behind))
        before = [-1 - (self.base + k) for k in range(had)] + [self.base + k for k in range(had, count)]
        before += [self.base + count - 1] * (self.lanes - count)
        self.before.append(before)
        self.held += tokens
        return self.resident.step([*given, *[None] * (self.lanes - count)])

    def keep(self, count: int) -> None:
        """End the round: so many of its tokens stay."""
        self.base, self.behind, self.held = self.base + count, count - 1, []

    def enter(self, prefix: Prefix) -> None:
        """Begin behind tokens that another answer has read."""
        self.resident.enter(0, prefix.lasting, prefix.count)
        self.base, self.behind = prefix.count, 0

    def read(self, prompt: Sequence[int]) -> list[tuple[int, BatchStep]]:
        """Take a prompt in pieces; return the tokens of each and what came."""
        found = []
        for first in range(0, len(prompt), self.lanes):
            piece = prompt[first : first + self.lanes]
            found.append((len(piece), self.take(piece)))
            self.keep(len(piece))
        return found


class _Round:
    """Rounds of an answer.

    Parameters
    ----------
    request : AnswerRequest
    built : Drafted
    found : Speculation
        Takes what comes.
    """

    def __init__(self, request: AnswerRequest, built: Drafted, weights: Weights, found: Speculation) -> None:
        assert request.draft is not None
        own, _ = request.draft.rounded(Arithmetic.of(request.machine, request.dtype))
        tables = built.target.tables(weights)
        self.request, self.found = request, found
        self.target = _Side("model", built.target, weights, tables)
        self.draft = _Side("draft", built.draft, own, built.draft.tables(own))
        prefix, blocks = request.prefix, None
        if prefix is not None:
            check_prefix(prefix, request, weights)
            blocks = prefix.blocks(built.target.place.height, request.policy)
        self.oracle = BatchOracle(built.target, weights, tables, blocks) if request.verify else None
        self.yardstick = Yardstick(self.oracle.plain.place, weights, found) if self.oracle else None
        self.draw = request.sampling.drawer(request.answers)
        self.text, self.position = list(request.prompt), 0
        self.passed: list[int] = []  # tokens that plain numpy has yet to take
        self.looks = request.sample is None  # a prompt in pieces is in no sample
        if prefix is not None:
            self._begin(prefix)

    def _begin(self, prefix: Prefix) -> None:
        """Let the larger model begin behind tokens that it has read for another answer."""
        self.target.enter(prefix)
        if self.oracle is not None:
            self.oracle.enter(0, prefix.lasting, prefix.count)
        self.passed += prefix.tokens
        self.position = self.found.reused = prefix.count
        self.found.reused_cycles = prefix.cycles

    def look(self, number: int) -> None:
        """Let the oracle go on with what the cache has, if the check of a number is one of a sample."""
        sample = self.request.sample
        self.looks = sample is None or is_drawn(number, sample)
        if self.oracle is not None and sample is not None and self.looks:
            self.oracle.take_over(0, self.target.resident.cache(0), self.position)

    def compare(self, token: int, came: Came | None) -> None:
        """Compare what came of the next token of the text with what a decoder gives that has no draft."""
        if self.oracle is not None and self.yardstick is not None and came is not None:
            self.found.steps += 1
            self.passed.append(token)
            if self.looks:
                taken, self.passed = self.passed, []
                wanted = self.oracle.step(0, LaneToken(token, self.position == 0))
                self.yardstick.compare(wanted, taken, came)
                self.found.steps_compared += 1
        self.position += 1

    def read(self) -> None:
        """Let both models read all but the last token of the prompt, but for those that are there."""
        for side in (self.target, self.draft):
            prompt = self.text[side.base : -1]
            steps = side.read(prompt)
            self.found.prompt_cycles[side.name] = sum(step.cycles for _, step in steps)
            self.found.hops += sum(step.hops for _, step in steps)
            if side is self.target:
                came = [each for count, step in steps for each in step.came[:count]]
                for token, each in zip(prompt, came, strict=True):
                    self.compare(token, each)
            side.before.clear()

    def guess(self, most: int) -> list[int]:
        """Return guesses of the draft, which takes first what of the text it has not."""
        pending, guesses = self.text[self.draft.base :], list[int]()
        while len(guesses) < most:
            taken = [guesses[-1]] if guesses else pending
            step = self.draft.take(taken)
            self.found.guesses.append(step.cycles)
            self.found.hops += step.hops
            last = step.came[len(self.draft.held) - 1]
            assert last is not None
            guesses.append(last.token)
            mark(step.begun, f"guess {len(guesses)}", "draft", step.begun + step.cycles)
        return guesses

    def check(self, guesses: list[int]) -> list[int]:
        """Let the larger model take the last token and the guesses; return the tokens that are chosen."""
        found, last = self.found, self.text[-1]
        self.look(len(found.checks))
        step = self.target.take([last, *guesses])
        mark(step.begun, f"check of {len(guesses)}", "model", step.begun + step.cycles)
        found.checks.append(step.cycles)
        found.hops += step.hops
        chosen: list[int] = []
        for lane, token in enumerate([last, *guesses]):
            came = step.came[lane]
            assert came is not None
            self.compare(token, came)
            logits = came.logits.view(np.float32)
            chosen.append(self.draw(logits, came.token))
            found.logits.append(logits)
            ends = chosen[-1] in self.request.model.configuration.stops
            if ends or lane == len(guesses) or chosen[-1] != guesses[lane]:
                break
        if self.looks and self.oracle is not None and self.request.sample is not None:
            same = self.oracle.alone[0].holds(self.target.resident.cache(0))
            found.bit_exact = bool(found.bit_exact is not False and same)
        right = len(chosen) - 1
        found.guessed, found.accepted = found.guessed + len(guesses), found.accepted + right
        before = self.draft.base
        self.text += chosen
        self.target.keep(1 + right)
        # The draft has taken the text before this round's guesses, and all of these but the last.
        if self.draft.held:
            self.draft.keep(min(len(self.text) - 1 - before, len(self.draft.held)))
        return chosen

    def conclude(self) -> None:
        """Note how errors compare with their bounds, the prices of all steps, and the counters."""
        found = self.found
        if self.yardstick is not None:
            self.yardstick.conclude(self.text[:-1], found.logits)
        for side in (self.target, self.draft):
            found.expected[side.name] = int(side.form.steps(side.before).sum()) if side.before else 0
        found.counters = self.target.resident.fabric.all_counters()


def speculation_of(
    request: AnswerRequest,
    built: Drafted,
    words: Sequence[Words],
    weights: Weights,
    hear: Hear | None,
    progress: Progress,
) -> Speculation:
    """Return the answer to a prompt, guessed ahead by the draft of the request.

    Parameters
    ----------
    built, words
        What was admitted for the request.
    weights : mapping
        Tensors of the larger model by the hub's names, as the PEs have them.
    hear, progress
        As of `harness.inference.generate.answer`.
    """
    memory = [{name: 2 * count for name, count in each.items()} for each in words]
    found = Speculation(memory=dict(zip(("model", "draft"), memory, strict=True)))
    rounds, stops = _Round(request, built, weights, found), set(request.model.configuration.stops)
    progress.phase("prompt and answer")
    rounds.read()
    while len(found.tokens) < request.count and not stops.intersection(found.tokens[-1:]):
        left = request.count - len(found.tokens)
        guesses = rounds.guess(min(rounds.target.lanes, left) - 1)
        chosen = rounds.check(guesses)
        for token in chosen:
            found.tokens.append(token)
            if hear is not None:
                progress.close()
                progress = Progress()
                hear(len(found.tokens), token)
        progress.update(len(rounds.text), len(request.prompt) + request.count, cycles=found.checks[-1])
    rounds.conclude()
    found.alone = StepCycles(built.alone).step(len(rounds.text) - 2)
    return found
