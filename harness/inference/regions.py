"""Answers by a decoder on several regions of the wafer: one answer, or several whose tokens come in turns.

The host sends a token as soon as it knows it: those of a prompt at once, one of an answer when the one before has left.
What regions do not work, they wait: *bubbles*, told apart for the time in which prompts are read, which fills the
regions, and for that of the answers, where one answer alone leaves all regions but one idle.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.fit import admit, needed_words, tokens_per_row
from fabric.networks.inference.log import PAIRS
from fabric.networks.inference.passing import Passed, Passing, PipelineOracle
from fabric.networks.inference.pipeline import Pipeline
from fabric.networks.inference.pipeline_cycles import Bubbles, PipelineCycles
from fabric.networks.inference.placement import Placement
from fabric.networks.inference.rows import POLICIES
from harness.inference.generate import LARGE, Hear, Model, Sampling, checked
from harness.kit.console import Progress
from harness.models.plain import PlainDecoder
from traces.marks import mark
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic
from wse_core.params import Machine

__all__ = ["Flow", "Region", "admitted_regions", "generate_regions"]

LOG_WORDS = 8 * PAIRS
"""Words of a PE's notes of when tokens came, at most."""


@dataclass(frozen=True)
class Region:
    """What a region did.

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
class Flow:
    """What was generated, and what it took.

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
    bit_exact, max_abs_error
        As of `harness.inference.generate.Answer`.
    counters : dict
        Of all PEs: name -> (array, unit).
    host_seconds : float
    """

    tokens: list[list[int]]
    logits: list[list[NDArray[np.float32]]]
    token_cycles: list[list[int]]
    expected: Bubbles
    prompt_cycles: int = 0
    answer_cycles: int = 0
    regions: list[Region] = field(default_factory=list)
    hops: int = 0
    bit_exact: bool | None = None
    max_abs_error: float | None = None
    counters: dict[str, tuple[NDArray[Any], str]] = field(default_factory=dict)
    host_seconds: float = 0.0

    def bubbles(self, phase: str) -> float:
        """Return the part of all regions' cycles of a phase (``prompt`` or ``answer``) in which they waited."""
        cycles = self.prompt_cycles if phase == "prompt" else self.answer_cycles
        worked = sum(getattr(region, phase) for region in self.regions)
        return 1 - worked / (len(self.regions) * cycles) if cycles else 0.0


def admitted_regions(
    machine: Machine,
    model: Model,
    prompts: Sequence[Sequence[int]],
    count: int,
    mesh: tuple[int, int],
    regions: int,
    policy: str,
    dtype: str,
    answers: int | None,
) -> Pipeline:
    """Return the decoder on its regions, with caches for all answers.

    Raises
    ------
    PlanError
        A region's part does not fit; names it and the largest tensor.
    """
    if policy not in POLICIES:
        raise ConfigError(f"unknown cache policy {policy!r}", where="--cache", hint=", ".join(POLICIES))
    if not prompts:
        raise ConfigError("no request", where="--requests", hint="1 or more")
    tokens = max(checked(model, prompt, count) for prompt in prompts)
    room = tokens_per_row(tokens, mesh[1], policy)
    place = Placement(model.configuration.decoder, *mesh, room, dtype, requests=len(prompts))
    built = Pipeline(machine, place, regions, policy, answers)
    for k, stage in enumerate(built.stages):
        admit(stage.place, machine, tokens, policy, f"part of region {k + 1}")
    return built


class _Yardsticks:
    """What every token of every answer is compared with."""

    def __init__(self, built: Pipeline, weights: dict[str, NDArray[Any]], tables: Any, flow: Flow) -> None:
        decoder = built.place.decoder
        precision = np.float64 if decoder.parameters < LARGE else np.float32
        self.oracle, self.flow = PipelineOracle(built, weights, tables), flow
        self.plain = [PlainDecoder(decoder, weights, precision) for _ in range(built.place.requests)]
        flow.bit_exact, flow.max_abs_error = True, 0.0

    def compare(self, request: int, token: int, passed: Passed) -> None:
        """Let both take a token of a request and compare."""
        likeliest, bits = self.oracle.step(token, request)
        same = likeliest == passed.token and np.array_equal(bits, passed.logits)
        error = np.abs(passed.logits.view(np.float32) - self.plain[request].forward([token])[-1]).max()
        self.flow.bit_exact = bool(self.flow.bit_exact and same)
        self.flow.max_abs_error = max(self.flow.max_abs_error or 0.0, float(error))


def _worked(busy: list[tuple[int, int]], first: int, last: int) -> int:
    """Return the cycles from `first` to `last` that lie in intervals."""
    return sum(max(0, min(end, last) - max(begin, first)) for begin, end in busy)


def _feed(passing: Passing, queues: list[list[int]], done: list[bool], longest: int) -> None:
    """Send all tokens that are known, in turns; an answer that has ended keeps its place, for what nobody reads."""
    while passing.sent < len(queues) * longest:
        position, r = divmod(passing.sent, len(queues))
        if position >= len(queues[r]) and not done[r]:
            return
        passing.send(0 if done[r] else queues[r][position])


def generate_regions(
    machine: Machine,
    model: Model,
    prompts: Sequence[Sequence[int]],
    count: int,
    mesh: tuple[int, int],
    regions: int,
    policy: str = "shift",
    dtype: str = "f16",
    sampling: Sampling | None = None,
    verify: bool = True,
    hear: Hear | None = None,
    progress: Progress | None = None,
    answers: int | None = None,
) -> Flow:
    """Return the answers to prompts, which may be of different lengths.

    Parameters
    ----------
    prompts : sequence of sequence of int
        One per request; their tokens enter in turns.
    mesh : (int, int)
        PEs along x and y of one region.
    regions : int
    machine, model, count, policy, dtype, sampling, verify, hear, progress, answers
        As of `harness.inference.generate.generate`; request k draws with the k-th seed, and `hear` hears the first.

    Raises
    ------
    ConfigError, PlanError
        As of `harness.inference.generate.generate`; or more regions than layers or than the wafer is wide.
    """
    started, progress = time.perf_counter(), progress or Progress()
    built = admitted_regions(machine, model, prompts, count, mesh, regions, policy, dtype, answers)
    progress.phase(f"weights and programs of {regions} regions of {mesh[0]} x {mesh[1]} PEs")
    weights, _ = model.rounded(Arithmetic.of(machine, dtype))
    tables, sampling = built.tables(weights), sampling or Sampling()
    turns, stops = len(prompts), set(model.configuration.stops)
    draws = [Sampling(sampling.temperature, sampling.top_k, sampling.seed + k).drawer(answers) for k in range(turns)]
    queues, done = [list(prompt) for prompt in prompts], [False] * turns
    longest = max(len(prompt) for prompt in prompts) + count - 1
    flow = Flow([[] for _ in prompts], [[] for _ in prompts], [[] for _ in prompts], Bubbles(0, [], 1))
    passing = Passing(built, weights, tables)
    yardsticks = _Yardsticks(built, weights, tables, flow) if verify else None
    progress.phase("prompts and answers")
    first, read, end = 0, 0, 0  # cycles: the first token enters, the last prompt is read, the last token leaves
    number = 0
    while not all(done):
        _feed(passing, queues, done, longest)
        passed = passing.receive()
        position, r = divmod(number, turns)
        number += 1
        first = passed.begun if number == 1 else first
        if done[r]:
            continue
        end = passed.begun + passed.cycles
        mark(passed.begun, f"request {r + 1}, token {position + 1}", f"request {r + 1}", end)
        if yardsticks is not None:
            yardsticks.compare(r, queues[r][position], passed)
        progress.update(number, turns * longest, cycles=passed.cycles)
        if position < len(prompts[r]) - 1:
            continue
        if flow.tokens[r]:
            flow.token_cycles[r].append(passed.cycles)
        else:
            read = max(read, end)
        logits = passed.logits.view(np.float32)
        token = draws[r](logits, passed.token)
        flow.tokens[r].append(token)
        flow.logits[r].append(logits)
        queues[r].append(token)
        done[r] = token in stops or len(flow.tokens[r]) == count
        if hear is not None and r == 0:
            progress.close()
            progress = Progress()
            hear(len(flow.tokens[r]), token)
    passing.finish()
    _conclude(flow, built, passing, (first, read, end), (number - 1) // turns)
    flow.host_seconds = time.perf_counter() - started
    return flow


def _conclude(flow: Flow, built: Pipeline, passing: Passing, cycles: tuple[int, int, int], position: int) -> None:
    """Note what the regions did and what the closed form says of the last round."""
    first, read, end = cycles
    flow.prompt_cycles, flow.answer_cycles = read - first, end - read
    for k, (stage, busy) in enumerate(zip(built.stages, passing.busy, strict=True)):
        for begin, through in busy:
            mark(begin, f"layers {stage.place.first + 1} to {stage.place.first + stage.place.decoder.layers}",
                 f"region {k + 1}", through)  # fmt: skip
        words = needed_words(stage.place)
        words["vectors"] += LOG_WORDS
        flow.regions.append(
            Region(
                stage.place.first,
                stage.place.decoder.layers,
                {name: 2 * each for name, each in words.items()},
                _worked(busy, first, read),
                _worked(busy, read, end),
            )
        )
    flow.expected = PipelineCycles(built).round(position)
    counters = passing.fabric.all_counters()
    flow.hops = sum(int(values.sum()) for name, (values, _) in counters.items() if "moved_color" in name)
    flow.counters = counters
