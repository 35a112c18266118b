"""An answer by PE programs: a prompt goes in token by token, then each token that comes out goes in again.

The prompt is read by the decoding program itself, one token per step; the cycles of those steps are its *prefill*.
Nothing moves between prompt and answer, so the transition takes no cycles.

With `verify` every step is compared bit by bit with the oracle (numpy in the order of the PEs), and its logits with a
plain decoder in float64 on the same rounded weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.fit import admit, needed_words, tokens_per_row
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.placement import Placement
from fabric.networks.inference.resident import Resident, Step
from fabric.networks.inference.rows import POLICIES
from harness.kit.console import Progress
from harness.models.configuration import Configuration
from harness.models.plain import PlainDecoder
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["Answer", "Sampling", "generate"]

LARGE = 50_000_000
"""Parameters from which the plain decoder that answers are compared with is one of float32: float64 takes memory."""

Hear = Callable[[int, int], None]
"""Called with the number of a step and its token, as each token of the answer comes."""


class Model(Protocol):
    """What answers: `harness.models.hub.LanguageModel`, or one of random weights."""

    @property
    def configuration(self) -> Configuration: ...

    def rounded(self, arithmetic: Arithmetic) -> tuple[dict[str, NDArray[Any]], Any]: ...


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes
    ----------
    temperature : float
        0: the likeliest, found on the wafer.  Else the host draws from softmax(logits / temperature).
    top_k : int
        Draw among so many of the likeliest only; 0: all.
    seed : int
    """

    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(f"{self.temperature} is no temperature", where="--temperature", hint="0 or more")
        if self.top_k < 0:
            raise ConfigError(f"{self.top_k} tokens to draw from", where="--top-k", hint="1 or more; 0: all")

    def drawer(self, answers: int | None = None) -> Callable[[NDArray[np.float32], int], int]:
        """Return a function of logits and the likeliest token that gives the next one, below `answers`."""
        rng = np.random.default_rng(self.seed)

        def draw(logits: NDArray[np.float32], likeliest: int) -> int:
            if self.temperature == 0:
                return likeliest
            values = logits[:answers].astype(np.float64) / self.temperature
            order = np.argsort(-values, kind="stable")[: self.top_k or len(values)]
            shares = np.exp(values[order] - values[order[0]])
            return int(rng.choice(order, p=shares / shares.sum()))

        return draw


@dataclass
class Answer:
    """What was generated, and what it took.

    Attributes
    ----------
    tokens : list of int
    logits : list of ndarray
        From which each was chosen, f32.
    prompt_cycles, token_cycles : list of int
        Of each step, from the entering of its token to the leaving of the next.
    hops : int
        Wavelet hops of all steps.
    bit_exact : bool or None
        Whether all steps gave the oracle's bits; None: not compared.
    max_abs_error : float or None
        Largest difference of a logit from plain numpy in float64.
    memory : dict
        Bytes of a PE by what they hold.
    expected_cycles : int
        Of the last step, by the closed form.
    layer_cycles : dict
        Of the parts of its last layer, by the closed form.
    counters : dict
        Counters of all PEs: name -> (array, unit).
    host_seconds : float
    """

    tokens: list[int] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    prompt_cycles: list[int] = field(default_factory=list)
    token_cycles: list[int] = field(default_factory=list)
    hops: int = 0
    bit_exact: bool | None = None
    max_abs_error: float | None = None
    memory: dict[str, int] = field(default_factory=dict)
    expected_cycles: int = 0
    layer_cycles: dict[str, int] = field(default_factory=dict)
    counters: dict[str, tuple[NDArray[Any], str]] = field(default_factory=dict)
    host_seconds: float = 0.0

    def note(self, step: Step, of_prompt: bool) -> None:
        """Add what a step took."""
        self.hops += step.hops
        (self.prompt_cycles if of_prompt else self.token_cycles).append(step.cycles)

    def conclude(self, resident: Resident) -> None:
        """Add the closed form of the last step and the counters of all."""
        form, last = StepCycles(resident.decode), resident.count - 1
        self.expected_cycles, self.layer_cycles = form.step(last), form.layer(last)
        self.counters = resident.fabric.all_counters()


def _checked(model: Model, prompt: Sequence[int], count: int) -> int:
    """Return how many tokens the cache must take, or refuse a prompt that cannot be answered."""
    decoder = model.configuration.decoder
    if not prompt:
        raise ConfigError("an empty prompt", where="prompt", hint="at least one token")
    if count < 1:
        raise ConfigError(f"{count} tokens to generate", where="--tokens", hint="1 or more")
    wrong = next((token for token in prompt if not 0 <= token < decoder.vocabulary), None)
    if wrong is not None:
        raise ConfigError(
            f"token {wrong} is none of the {decoder.vocabulary} of the model", where="prompt", value=int(wrong)
        )
    tokens = len(prompt) + count - 1  # the last one is never read
    if tokens + 1 > decoder.context:
        raise ConfigError(
            f"{len(prompt)} tokens of prompt and {count} of answer; the context of the model holds {decoder.context}",
            where="prompt",
            hint=f"a prompt of {max(1, decoder.context - count)} tokens, or a shorter answer",
        )
    return tokens


class _Yardsticks:
    """What every step of an answer is compared with; notes in the answer how they agree."""

    def __init__(
        self, decode: Decode, weights: Mapping[str, NDArray[Any]], tables: Mapping[str, Bits], answer: Answer
    ) -> None:
        self.oracle = Oracle(decode, weights, tables)
        decoder = decode.place.decoder
        self.plain = PlainDecoder(decoder, weights, np.float64 if decoder.parameters < LARGE else np.float32)
        self.answer = answer
        answer.bit_exact, answer.max_abs_error = True, 0.0

    def compare(self, token: int, step: Step) -> None:
        """Let both take a token and compare."""
        likeliest, bits = self.oracle.step(token)
        same = likeliest == step.token and np.array_equal(bits, step.logits)
        error = np.abs(step.logits.view(np.float32) - self.plain.forward([token])[0]).max()
        self.answer.bit_exact = bool(self.answer.bit_exact and same)
        self.answer.max_abs_error = max(self.answer.max_abs_error or 0.0, float(error))


def _admitted(
    machine: Machine, model: Model, tokens: int, mesh: tuple[int, int], policy: str, dtype: str, answers: int | None
) -> Decode:
    """Return the decoder on its mesh with a cache for so many tokens, or refuse what does not fit."""
    if policy not in POLICIES:
        raise ConfigError(f"unknown cache policy {policy!r}", where="--cache", hint=", ".join(POLICIES))
    place = Placement(model.configuration.decoder, *mesh, tokens_per_row(tokens, mesh[1], policy), dtype)
    admit(place, machine, tokens, policy)
    return Decode(machine, place, policy, answers=answers)


def generate(
    machine: Machine,
    model: Model,
    prompt: Sequence[int],
    count: int,
    mesh: tuple[int, int],
    policy: str = "shift",
    dtype: str = "f16",
    sampling: Sampling | None = None,
    verify: bool = True,
    hear: Hear | None = None,
    progress: Progress | None = None,
    answers: int | None = None,
) -> Answer:
    """Return the answer to a prompt.

    Parameters
    ----------
    machine : Machine
    model : LanguageModel or RandomModel
    prompt : sequence of int
        Tokens.
    count, mesh : int, (int, int)
        Tokens to generate, fewer if the model ends its answer; PEs along x and y.
    policy : {"shift", "concat", "round"}
        Of the cache.
    dtype : {"f16", "cb16"}
    sampling : Sampling, optional
        Default: the likeliest token, found on the wafer.
    verify : bool
        Whether every step is compared with the oracle and with plain numpy.
    hear : callable, optional
        Hears of every token as it comes.
    progress : Progress, optional
        Shows how far prompt and answer are; up to the first token, if somebody hears of them.
    answers : int, optional
        Only the first so many tokens are answered; default all.

    Raises
    ------
    ConfigError
        An empty prompt, a token that does not exist, more tokens than the context.
    PlanError
        The model does not fit; names tensor, PE and the smallest mesh that carries it.
    """
    started = time.perf_counter()
    progress, tokens = progress or Progress(), _checked(model, prompt, count)
    decode = _admitted(machine, model, tokens, mesh, policy, dtype, answers)
    progress.phase(f"weights and programs of {mesh[0]} x {mesh[1]} PEs")
    weights, _ = model.rounded(Arithmetic.of(machine, dtype))
    tables = decode.tables(weights)
    resident = Resident(decode, weights, tables=tables)
    answer = Answer(memory={name: 2 * words for name, words in needed_words(decode.place).items()})
    yardsticks = _Yardsticks(decode, weights, tables, answer) if verify else None
    draw, stops = (sampling or Sampling()).drawer(answers), set(model.configuration.stops)
    queue = list(prompt)
    progress.phase("prompt and answer")
    for position in range(tokens):
        step = resident.step(queue[position])
        logits = step.logits.view(np.float32)
        answer.note(step, position < len(prompt))
        if yardsticks is not None:
            yardsticks.compare(queue[position], step)
        progress.update(position + 1, tokens, cycles=step.cycles)
        if position < len(prompt) - 1:
            continue
        token = draw(logits, step.token)
        answer.tokens.append(token)
        answer.logits.append(logits)
        queue.append(token)
        if hear is not None:
            progress.close()  # from here on the answer itself is what is seen
            progress = Progress()
            hear(len(answer.tokens), token)
        if token in stops:
            break
    answer.conclude(resident)
    answer.host_seconds = time.perf_counter() - started
    return answer
