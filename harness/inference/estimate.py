"""How long an answer will take, from the prices of programs alone: nothing is run, and no weight is read.

`fabric.networks.inference` prices both programs, the one that reads a prompt at once and the one that decodes, and the
way of keys and values to another mesh.  Tests hold them within `WITHIN` of the engine, on sizes, caches, formats and
machines of all kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fabric.networks.inference.chunks import Chunks, pieces_of
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.groups import LayerGroups
from fabric.networks.inference.move.cycles import MoveCycles
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.prefill.cycles import PromptCycles
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.reloading import reckoned
from harness.inference.admission import Drafted, admitted
from harness.inference.asking import AnswerRequest
from harness.inference.reloads import Reload
from harness.inference.serving import schedule

__all__ = [
    "BY_EXPERTS",
    "MOVED",
    "WITHIN",
    "BatchEstimate",
    "Estimate",
    "SpeculationEstimate",
    "estimate",
    "estimate_service",
    "estimate_speculation",
]

WITHIN = {"prefill": 0.02, "transition": 0.05, "first_token": 0.02, "tokens": 0.01}
"""Each part of an estimate may be off by this share of the engine's cycles before a test fails."""
BY_EXPERTS = 0.1
"""The reading of a prompt at once, by a model with experts, may be off by this: how many tokens choose which is drawn
by lot.
"""
MOVED = 0.1
"""The transition to another mesh may be off by this, from when each PE has read the prompt."""


@dataclass(frozen=True)
class Estimate:
    """An `Estimate` has the cycles that an answer will take.

    Attributes
    ----------
    at_once : bool
        Whether a program of its own reads the prompt.
    pieces : int
        Steps in which it does, a piece in each; 0: all tokens at once.
    reload : Reload or None
        Of layers that a mesh has some at a time, what loading them takes.
    prefill, transition, first_token : int
        Of the prompt, of the move of the last token's hidden features, or of keys and values to another mesh, and of
        what follows until the first token has left; the last two are 0 if the prompt is read token by token, where the
        last step has them.
    tokens : list of int
        Of each further token.
    memory : dict
        Bytes of a PE by what they hold; with two meshes, of the one that needs more.
    """

    at_once: bool
    prefill: int
    transition: int
    first_token: int
    tokens: list[int]
    memory: dict[str, int]
    pieces: int = 0
    reload: Reload | None = None


@dataclass(frozen=True)
class BatchEstimate:
    """A `BatchEstimate` has the cycles that requests of a batch will take.

    Attributes
    ----------
    steps : list of int
        Of each step, if no answer ends early.
    taken : float
        Part of the lanes of all steps that have a request.
    alone : int
        Of the last token of the longest request, by a decoder that takes one token in a step.
    memory : dict
        Bytes of a PE by what they hold.
    """

    steps: list[int]
    taken: float
    alone: int
    memory: dict[str, int]


def estimate_service(request: AnswerRequest) -> BatchEstimate:
    """Return what the requests of a batch will take; errors are those of `harness.inference.generate.answer`."""
    built, (words,) = admitted(request)
    assert isinstance(built, Decode), "a batch has one mesh"
    lengths = [request.length_of(k) for k in range(len(request.prompts))]
    reused = 0 if request.prefix is None else request.prefix.count
    befores = schedule(lengths, built.place.lanes, reused)
    alone = Decode(built.machine, replace(built.place, batch=0), built.policy)
    return BatchEstimate(
        StepCycles(built).steps(befores).tolist(),
        sum(length - reused for length in lengths) / (len(befores) * built.place.lanes),
        StepCycles(alone).step(max(lengths) - 1),
        {name: 2 * each for name, each in words.items()},
    )


@dataclass(frozen=True)
class SpeculationEstimate:
    """A `SpeculationEstimate` has the cycles of a full round of an answer that is guessed ahead, behind the longest
    text.

    Attributes
    ----------
    check, guess : int
        Of a step of the larger model with all its lanes, and of the last step of the draft.
    round : int
        Of all guesses and their check.
    alone : int
        Of a token without a draft.
    memory : dict
        Bytes of a PE, by model.
    """

    check: int
    guess: int
    round: int
    alone: int
    memory: dict[str, int]


def estimate_speculation(request: AnswerRequest) -> SpeculationEstimate:
    """Return what a full round takes; errors are those of `harness.inference.generate.answer`."""
    built, words = admitted(request)
    assert isinstance(built, Drafted), "a draft has a mesh beside"
    lanes = request.ahead
    first = max(0, request.tokens - lanes)
    check = StepCycles(built.target).step(range(first, first + lanes))
    had = [[-1 - first - k for k in range(count)] for count in range(lanes - 1)]
    rest = [[first + len(each)] * (lanes - len(each)) for each in had]
    guesses = StepCycles(built.draft).steps([one + other for one, other in zip(had, rest, strict=True)]).tolist()
    return SpeculationEstimate(
        check,
        guesses[-1],
        check + sum(guesses),
        StepCycles(built.alone).step(request.tokens - 1),
        {name: 2 * sum(each.values()) for name, each in zip(("model", "draft"), words, strict=True)},
    )


def estimate(request: AnswerRequest) -> Estimate:
    """Return what `harness.inference.generate.answer` would take for a request without regions; errors are its own."""
    built, (words, *_) = admitted(request)
    length, tokens = len(request.prompt), request.tokens
    memory = {name: 2 * each for name, each in words.items()}
    if isinstance(built, TwoMeshes):
        reading, moving = MoveCycles(built).cycles()
        first, *further = StepCycles(built.decode).steps(range(length - 1, tokens)).tolist()
        return Estimate(True, reading, moving, first, further, memory)
    if isinstance(built, LayerGroups):
        return _in_passes(built, length, tokens, memory, 0 if request.prefix is None else request.prefix.count)
    if isinstance(built, Chunks):
        steps = StepCycles(built.reader).steps(built.pieces()).tolist()
        first, *further = StepCycles(built.decode).steps(range(length - 1, tokens)).tolist()
        return Estimate(True, sum(steps), 0, first, further, memory, len(steps))
    assert isinstance(built, Decode), "regions have an estimate of their own"
    form = StepCycles(built)
    if request.prefix is not None:
        read = request.prefix.count
        steps = form.steps(range(read, tokens)).tolist()
        return Estimate(False, sum(steps[: length - read]), 0, 0, steps[length - read :], memory)
    if built.prompt is None:
        steps = form.steps(range(tokens)).tolist()
        return Estimate(False, sum(steps[:length]), 0, 0, steps[length:], memory)
    further = form.steps(range(length, tokens)).tolist()
    reading = round(PromptCycles(Prefill(request.machine, built.prompt)).prompt_cycles())
    return Estimate(True, reading, form.transition(), form.answer(length - 1), further, memory)


def _in_passes(built: LayerGroups, length: int, tokens: int, memory: dict[str, int], reused: int) -> Estimate:
    """Return what a mesh takes that has some layers at a time; so many first tokens are there."""
    heads = sum(StepCycles(head.decode).step(0) for head in built.heads)
    pieces = pieces_of(length, built.size) if built.size > 1 else range(reused, length)
    read = heads + sum(int(StepCycles(reader).steps(pieces).sum()) for reader in built.readers)
    further = [StepCycles(group.decode).steps(range(length, tokens)).tolist() for group in built.groups]
    steps = [sum(cycles) + heads for cycles in zip(*further, strict=True)]
    found = Reload(built.each, len(built.groups), len(built.heads))
    for words in reckoned(built, tokens - length + 1, bool(reused)):
        found.add(words)
    return Estimate(built.size > 1, read, 0, 0, steps, memory, len(pieces) * (built.size > 1), found)
