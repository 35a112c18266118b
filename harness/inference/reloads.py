"""An answer is given by a mesh that has some layers of a decoder at a time: tokens pass group after group.

In a *pass* all layers are loaded once, and the tokens that are known go through each group before the next one is
loaded: all tokens of a prompt in the first pass, the last token of the answer in each further one.  Behind the last
group the output matrix is loaded, whole or in parts, and the host keeps the largest logit over its parts.  Caches of
groups that are not there are with the host, in the 16 bits of the PEs.

Weights are read, or drawn, when a group is loaded, so that the host's memory has those of one group.  What loading
takes is told apart from the cycles of the PEs (`Reload`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.edge import Came
from fabric.networks.inference.groups import LayerGroups
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.reloading import ReloadedMesh, ReloadLink
from fabric.networks.inference.resident import Counters, added_counters, with_room
from fabric.networks.inference.tiles import embedding_rows
from harness.inference.asking import AnswerRequest, Hear
from harness.inference.comparing import is_drawn
from harness.inference.prefix import Prefix
from harness.inference.resuming import AnswerFile, Kept, check_prefix, restored
from harness.inference.yardsticks import Yardstick
from harness.kit.console import Progress
from harness.models.lazy import RoundedTensors
from traces.marks import mark
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic, Bits

if TYPE_CHECKING:
    from harness.inference.generate import Answer

__all__ = ["Reload", "answer_in_passes"]

TRACK = "answer"


@dataclass
class Reload:
    """A `Reload` is what was loaded in the course of an answer.

    Attributes
    ----------
    each, groups, parts : int
        Layers at a time, groups of them, parts of the output matrix.
    words : dict
        Words of 16 bits that were written into the PEs or read from them, by what they are.
    passes : list of int
        Words of each pass: of the prompt, of each further token.
    """

    each: int
    groups: int
    parts: int
    words: dict[str, int] = field(default_factory=dict)
    passes: list[int] = field(default_factory=list)

    def add(self, words: Mapping[str, int]) -> None:
        """Add what a pass has loaded."""
        self.passes.append(sum(words.values()))
        for name, count in words.items():
            if count:  # what an answer does not move has no row, whether it is run or estimated
                self.words[name] = self.words.get(name, 0) + count

    def cycles(self, link: ReloadLink) -> list[int]:
        """Return the cycles that the loading of each pass takes."""
        return [link.cycles(words) for words in self.passes]


@dataclass
class _PassStep:
    """A `_PassStep` has the tokens that a mesh takes together, on their way through all groups.

    Attributes
    ----------
    first : int
        Position of the first of them.
    tokens : list of int
    states : list of ndarray
        Bits of the residual stream of each, (height, hidden).
    cycles : int
        Of all groups so far.
    compared : bool
        Whether it is compared with the oracle.
    """

    first: int
    tokens: list[int]
    states: list[Bits] = field(default_factory=list)
    cycles: int = 0
    compared: bool = False

    @property
    def label(self) -> str:
        """The step is called by its tokens, of which the first one of a prompt is 1."""
        count, first = len(self.tokens), self.first + 1
        return f"token {first}" if count == 1 else f"tokens {first} to {first + count - 1}"


class _Passes:
    """A `_Passes` lets tokens through all layers, group after group.

    Parameters
    ----------
    request : AnswerRequest
    built : LayerGroups
    weights : RoundedTensors
    answer : Answer
        Where it is noted what passes take.
    progress : Progress
    """

    def __init__(
        self, request: AnswerRequest, built: LayerGroups, weights: RoundedTensors, answer: Answer, progress: Progress
    ) -> None:
        self.request, self.built, self.weights, self.answer, self.progress = request, built, weights, answer, progress
        self.half = Arithmetic.of(request.machine, request.dtype)
        self.mesh = ReloadedMesh()
        self.kept: list[Mapping[str, Bits] | None] = [None] * len(built.groups)
        self.yardstick = Yardstick(built.place, cast(Mapping[str, Any], weights), answer)
        self._passed: list[int] = []  # tokens that plain numpy has yet to take
        self._steps = 0
        self._counters: Counters = {}  # of the part of the answer that is in a file

    def go_on(self, kept: Kept, grows: bool) -> None:
        """Go on behind what a file has of the answer, to more tokens if it `grows`.

        Raises
        ------
        ConfigError
            With more tokens other layers are there at a time, or the file has no more than a prompt in pieces.
        """
        answer, built = self.answer, self.built
        there = Reload(**kept.answer.pop("reload"))
        restored(answer, kept)
        answer.load, answer.reload, answer.resumed = None, there, kept.position
        if there.each != built.each or (grows and "0 order" not in kept.lasting):
            what = f"the file has what {there.each} layers at a time keep of fewer tokens"
            raise ConfigError(what, where="--tokens", hint="as many as in the file, or another file")
        self._take_over(kept.lasting)
        self._counters = answer.counters
        self._steps = len(answer.prompt_cycles) + len(answer.token_cycles)
        self._passed = [*self.request.prompt, *answer.tokens][: kept.position]

    def behind(self, prefix: Prefix) -> None:
        """Go on behind tokens that another answer has read, with as many layers at a time.

        Raises
        ------
        ConfigError
            Of another model, mesh, cache or so; or the file has no more than a prompt in pieces.
        """
        check_prefix(prefix, self.request, self.weights)
        if "0 order" not in prefix.lasting:
            what = f"{prefix.path} has keys and values of a prompt in pieces, and nothing of what goes on behind them"
            raise ConfigError(what, where="--prefix", hint="a file of an answer of two tokens or more")
        self._take_over(prefix.lasting)
        self.answer.reused, self.answer.reused_cycles = prefix.count, prefix.cycles
        self._passed = list(prefix.tokens)

    def _take_over(self, kept: Mapping[str, Bits]) -> None:
        """Take what all groups have kept (`lasting`), perhaps with room for fewer tokens."""
        groups = self.built.groups
        lasting: list[dict[str, Bits]] = [{} for _ in groups]
        for name, bits in kept.items():
            number, symbol = name.split(maxsplit=1)
            lasting[int(number)][symbol] = bits
        self.kept = [with_room(own, group.decode.place) for own, group in zip(lasting, groups, strict=True)]

    def lasting(self) -> dict[str, Bits]:
        """Return what is kept of all groups, by their numbers and the names of `leave`."""
        return {f"{k} {name}": bits for k, kept in enumerate(self.kept) for name, bits in (kept or {}).items()}

    def counters(self) -> Counters:
        """Return the counters of all PEs since the answer began."""
        return added_counters(self._counters, self.mesh.counters())

    def silent(self) -> None:
        """End the display of progress: from here on the answer itself is what is seen."""
        self.progress.close()
        self.progress = Progress()

    def is_compared(self, step: int) -> bool:
        """Whether a step, the first one is 0, is compared with the oracle."""
        request = self.request
        return request.verify and (request.sample is None or is_drawn(step, request.sample))

    def through(self, tokens: Sequence[int], position: int, last: bool) -> Came:
        """Let tokens through, the first of them at a position; return what comes of the last one.

        `last`: no further pass comes, so that no cache has to be kept.
        """
        before, size = Counter(self.mesh.words), 1 if position else self.built.size
        steps = [_PassStep(k, list(tokens[k : k + size])) for k in range(0, len(tokens), size)]
        for number, step in enumerate(steps):
            step.first += position
            step.states = [self._embedding(token, step.first + k) for k, token in enumerate(step.tokens)]
            step.compared = self.is_compared(self._steps + number)
        for number in range(len(self.built.groups)):
            self._through_group(number, steps)
            if not last or self.request.file is not None:
                self.kept[number] = self.mesh.leave(not last)
        came = self._answered(steps)
        self._steps += len(steps)
        if size > 1:
            self.answer.at_once, self.answer.pieces = True, len(steps)
        self.answer.steps += sum(len(step.tokens) for step in steps) * self.request.verify
        self.answer.steps_compared += sum(len(step.tokens) for step in steps if step.compared)
        cycles = [step.cycles for step in steps]
        of_prompt = position < len(self.request.prompt)
        (self.answer.prompt_cycles if of_prompt else self.answer.token_cycles).extend(cycles)
        assert self.answer.reload is not None
        self.answer.reload.add(self.mesh.words - before)
        return came

    def _embedding(self, token: int, position: int) -> Bits:
        """Return the residual stream that a token begins with, f32 bits (height, hidden)."""
        rows = embedding_rows(self.built.place, self.request.machine, self.weights, token, position)
        return self.half.decode(rows).astype(np.float32).view(np.uint32)

    def _load(self, decode: Decode, label: str, tables: Mapping[str, Bits], kept: Mapping[str, Bits] | None) -> None:
        """Give the PEs a group or a part, and mark it."""
        before = self.mesh.words.total()
        self.mesh.load(decode, tables, kept)
        words = self.mesh.words.total() - before
        mark(self.mesh.fabric.cycle, f"{label} loaded, {words} words, in no time", TRACK)

    def _through_group(self, number: int, steps: Sequence[_PassStep]) -> None:
        """Load a group and let all steps through it."""
        group, mesh, first = self.built.groups[number], self.mesh, steps[0].first
        tables = group.tables(self.weights)
        reads = group.reader is not None and not first
        self._load(self.built.readers[number] if reads else group.decode, group.label, tables, self.kept[number])
        oracle = Oracle(group.decode, {}, tables) if any(step.compared for step in steps) else None
        sampled = self.request.sample is not None
        if oracle is not None and not sampled:
            oracle.take_over(mesh.cache(), first)
        for k, step in enumerate(steps):
            if oracle is not None and sampled and step.compared:
                oracle.take_over(mesh.cache(), step.first)
            passed = mesh.take(step.states, not step.first)
            mark(passed.begun, f"{group.label}, {step.label}", TRACK, passed.begun + passed.cycles)
            if oracle is not None and step.compared:
                wanted = [oracle.through(oracle.handed(x)) for x in step.states]
                self._agree(all(map(np.array_equal, wanted, passed.states)))
                if sampled:
                    self._agree(oracle.has(mesh.cache()))
            step.states = passed.states
            step.cycles += passed.cycles
            self.answer.hops += passed.hops
            self._show(number * len(steps) + k + 1, len(steps), passed.cycles)
        if oracle is not None and not sampled:
            self._agree(oracle.has(mesh.cache()))

    def _show(self, done: int, steps: int, cycles: int) -> None:
        """Show how far a pass of so many steps is."""
        self.progress.update(done, len(self.built.parts) * steps, cycles=cycles)

    def _agree(self, same: bool) -> None:
        """Note whether something is as the oracle has it."""
        self.answer.bit_exact = bool(self.answer.bit_exact is not False and same)

    def _answered(self, steps: Sequence[_PassStep]) -> Came:
        """Return the likeliest token, and the logits of all, behind the residual stream of the last token."""
        best, logits, wanted = (-np.inf, 0), [], []
        step, mesh = steps[-1], self.mesh
        x, position = step.states[-1], step.first + len(step.tokens) - 1
        for number, head in enumerate(self.built.heads, len(self.built.groups) + 1):
            tables = head.tables(self.weights)
            self._load(head.decode, head.label, tables, None)
            came, hops = mesh.answer(x, position)
            mark(came.begun, f"{head.label}, token {position + 1}", TRACK, came.begun + came.cycles)
            step.cycles += came.cycles
            self.answer.hops += hops
            self._show(number * len(steps), len(steps), came.cycles)
            logits.append(came.logits)
            if head.decode.answers:
                value = float(came.logits.view(np.float32)[came.token])
                best = max(best, (value, -head.first - came.token))
            if step.compared:
                oracle = Oracle(head.decode, {}, tables)
                token, bits = oracle.answer(oracle.handed(x))
                wanted.append(bits)
                self._agree(token == came.token)
        found = Came(-best[1], np.concatenate(logits), came.begun, step.cycles)
        self._passed += [token for step in steps for token in step.tokens]
        if step.compared:
            taken, self._passed = self._passed, []
            self.yardstick.compare((found.token, np.concatenate(wanted)), taken, found)
        return found


def answer_in_passes(
    request: AnswerRequest, built: LayerGroups, answer: Answer, hear: Hear | None, progress: Progress
) -> None:
    """Answer a request by a mesh that has some layers at a time; what comes is noted in `answer`.

    Parameters
    ----------
    request : AnswerRequest
    built : LayerGroups
        What was admitted for it.
    answer : Answer
        Empty but for the memory of a PE.
    hear, progress
        As of `harness.inference.generate.answer`.
    """
    weights = request.model.mapped(Arithmetic.of(request.machine, request.dtype))
    answer.reload = Reload(built.each, len(built.groups), len(built.heads))
    passes = _Passes(request, built, weights, answer, progress)
    file = None if request.file is None else AnswerFile(request.file, request, weights)
    if file is not None and (kept := file.read()) is not None:
        passes.go_on(kept, file.grows)
    elif request.prefix is not None:
        passes.behind(request.prefix)
    draw, stops = request.sampling.drawer(request.answers), request.model.configuration.stops
    for number, (token, logits) in enumerate(zip(answer.tokens, answer.logits, strict=True), 1):
        draw(logits, token)  # drawn before, so that the next one is drawn as it would have been
        if hear is not None:
            passes.silent()
            hear(number, token)
    taken, position = [*request.prompt, *answer.tokens], answer.resumed or answer.reused
    while len(answer.tokens) < request.count and not (answer.tokens and answer.tokens[-1] in stops):
        passes.progress.phase(f"token {len(answer.tokens) + 1}" if answer.tokens else "prompt")
        came = passes.through(taken[position:], position, len(answer.tokens) + 1 == request.count)
        position = len(taken)
        logits = came.logits.view(np.float32)
        answer.take(draw(logits, came.token), logits)
        taken.append(answer.tokens[-1])
        if file is not None:
            file.write(position, answer, passes.counters(), passes.lasting())
        if hear is not None:
            passes.silent()
            hear(len(answer.tokens), taken[-1])
    if request.verify and answer.steps_compared:
        passes.yardstick.conclude(taken[:-1], answer.logits)
    answer.losses = weights.losses
    answer.counters = passes.counters()
    forms = [StepCycles(part.decode) for part in built.parts]
    answer.expected_cycles = sum(form.step(position - 1) for form in forms)
    answer.layer_cycles = forms[0].layer(position - 1)
