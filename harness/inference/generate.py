"""An answer by PE programs: a prompt goes in at once or token by token, then each token that comes out goes in again.

Two programs of the PEs share weights and cache: one reads a prompt at once (*prefill*), the other decodes.  Between
them the last token's hidden features move (the *transition*), and the PEs get the other program, whose code the host
has to load: the cycles which that takes at least are told apart (`Load`), since no program of the PEs does it.

A prompt may also be read by the decoding program itself, one token per step; then nothing moves between prompt and
answer.  Or it is read on another mesh, beside that which decodes: then keys and values move over the wafer (the
transition), no program is loaded, and the last token of the prompt is the first that the decoding mesh takes.

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
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.placement import Placement
from fabric.networks.inference.prefill.fit import admit_prompt, prompt_words
from fabric.networks.inference.prefill.oracle import PrefillOracle
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.prefill.reading import read_prompt
from fabric.networks.inference.resident import Resident, Resumed, Step
from fabric.networks.inference.rows import POLICIES
from harness.kit.console import Progress
from harness.models.bound import bounded_logits
from harness.models.configuration import Configuration
from harness.models.plain import PlainDecoder
from traces.marks import mark
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["PREFILLS", "Answer", "Load", "Model", "Sampling", "admitted", "admitted_meshes", "checked", "generate"]

PREFILLS = ("auto", "mesh", "token")

TRACK = "answer"
"""What phases of an answer belong to, in run files."""

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


@dataclass(frozen=True)
class Load:
    """The loading of a program between two phases.

    Attributes
    ----------
    words : int
        Of 16 bits: the longest code of a PE.
    cycles : int
        If the code of every PE enters at the west edge, one wavelet per row and cycle.
    """

    words: int
    cycles: int


@dataclass
class Answer:
    """What was generated, and what it took.

    Attributes
    ----------
    tokens : list of int
    logits : list of ndarray
        From which each was chosen, f32.
    prompt_cycles, token_cycles : list of int
        Of each step, from the entering of its token to the leaving of the next; of a prompt that was read at once, one
        number.
    transition, first_cycles : int
        Of the move of the last token's hidden features, and of all that follows until the first token has left; 0 if
        the prompt was read token by token, where the last step has them.
    load : Load or None
        Of the decoding program, behind a prompt that was read at once on the same mesh.
    at_once : bool
        Whether a program of its own read the prompt.
    moved_bytes : int
        Of keys and values that went to another mesh.
    hops : int
        Wavelet hops of all steps.
    bit_exact : bool or None
        Whether all steps gave the oracle's bits; None: not compared.
    max_abs_error : float or None
        Largest difference of a logit from plain numpy in float64.
    error_bound, error_share : float or None
        How large it should be at most (`harness.models.bound`), and the largest part of its own bound that a logit
        takes; None for large models or if nothing was compared.
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
    transition: int = 0
    first_cycles: int = 0
    load: Load | None = None
    at_once: bool = False
    moved_bytes: int = 0
    hops: int = 0
    bit_exact: bool | None = None
    max_abs_error: float | None = None
    error_bound: float | None = None
    error_share: float | None = None
    memory: dict[str, int] = field(default_factory=dict)
    expected_cycles: int = 0
    layer_cycles: dict[str, int] = field(default_factory=dict)
    counters: dict[str, tuple[NDArray[Any], str]] = field(default_factory=dict)
    host_seconds: float = 0.0

    def note(self, step: Step, of_prompt: bool) -> None:
        """Add what a step took."""
        self.hops += step.hops
        (self.prompt_cycles if of_prompt else self.token_cycles).append(step.cycles)

    def take(self, token: int, logits: NDArray[np.float32]) -> None:
        """Add a token."""
        self.tokens.append(token)
        self.logits.append(logits)

    def conclude(self, resident: Resident) -> None:
        """Add the closed form of the last step and the counters of the decoding program."""
        if resident.decode.arrived:  # the last token of the prompt was a step like those of the answer
            self.first_cycles = self.token_cycles.pop(0)
        form, last = StepCycles(resident.decode), resident.count - 1
        self.expected_cycles, self.layer_cycles = form.step(last), form.layer(last)
        for name, (values, unit) in resident.fabric.all_counters().items():
            before = self.counters.get(name)
            self.counters[name] = (values if before is None else before[0] + values, unit)


def checked(model: Model, prompt: Sequence[int], count: int) -> int:
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
        self.answer, self.weights = answer, weights
        answer.bit_exact, answer.max_abs_error = True, 0.0

    def follow(self, oracle: Oracle, tokens: Sequence[int]) -> None:
        """Go on behind tokens that another mesh has read, with an oracle of the one that decodes."""
        self.oracle = oracle
        self.plain.forward(tokens)

    def compare(self, token: int, step: Step) -> None:
        """Let both take a token and compare."""
        self._compare(self.oracle.step(token), [token], step)

    def compare_prompt(self, prefill: Prefill, prompt: Sequence[int], resumed: Resumed) -> None:
        """Let both read a prompt and compare what came of it."""
        hidden = PrefillOracle(prefill, self.oracle).read(prompt)
        self._compare(self.oracle.answer(hidden), prompt, resumed)

    def conclude(self, tokens: Sequence[int], place: Placement) -> None:
        """Note how the errors of the answer's logits compare with their bounds; `tokens`: all that were taken."""
        if place.decoder.parameters >= LARGE:
            return
        found = np.array(self.answer.logits)
        plain, bound = bounded_logits(place.decoder, self.weights, tokens, place.dtype, place.width + place.height)
        plain, bound = plain[-len(found) :], bound[-len(found) :]
        self.answer.error_bound = float(bound.max())
        self.answer.error_share = float((np.abs(found - plain) / bound).max())

    def _compare(self, wanted: tuple[int, Bits], tokens: Sequence[int], step: Step | Resumed) -> None:
        """Note how what came agrees with what the oracle and plain numpy give."""
        likeliest, bits = wanted
        same = likeliest == step.token and np.array_equal(bits, step.logits)
        error = np.abs(step.logits.view(np.float32) - self.plain.forward(tokens)[-1]).max()
        self.answer.bit_exact = bool(self.answer.bit_exact and same)
        self.answer.max_abs_error = max(self.answer.max_abs_error or 0.0, float(error))


def admitted(
    machine: Machine,
    model: Model,
    request: tuple[int, int],
    mesh: tuple[int, int],
    policy: str,
    dtype: str,
    answers: int | None,
    prefill: str,
) -> tuple[Decode, dict[str, int]]:
    """Return the decoder with a cache for a request (tokens of the prompt, of prompt and answer), and a PE's words.

    Raises
    ------
    PlanError
        It does not fit; or the prompt cannot be read at once, and `prefill` wants that.
    """
    for name, value, known in (("cache policy", policy, POLICIES), ("prefill", prefill, PREFILLS)):
        if value not in known:
            where = "--cache" if known is POLICIES else "--prefill"
            raise ConfigError(f"unknown {name} {value!r}", where=where, hint=", ".join(known))
    length, tokens = request
    place = Placement(model.configuration.decoder, *mesh, tokens_per_row(tokens, mesh[1], policy), dtype)
    admit(place, machine, tokens, policy)
    if prefill != "token":
        prompt = PromptPlacement(place, length)
        words = max(prompt_words(prompt), needed_words(place, prompt.slots), key=lambda found: sum(found.values()))
        if prefill == "mesh":
            admit_prompt(prompt, machine)
        if sum(words.values()) <= machine["mem.words"]:
            return Decode(machine, place, policy, answers=answers, prompt=prompt), words
    return Decode(machine, place, policy, answers=answers), needed_words(place)


def _begun(
    decode: Decode | TwoMeshes, weights: Mapping[str, NDArray[Any]], prompt: Sequence[int], answer: Answer, verify: bool
) -> tuple[Resident, Resumed | None, _Yardsticks | None]:
    """Return the decoder, what came of a prompt that was read at once, and the yardsticks; note what it took."""
    if isinstance(decode, TwoMeshes):
        return _begun_on_two(decode, weights, prompt, answer, verify)
    tables = decode.tables(weights)
    yardsticks = _Yardsticks(decode, weights, tables, answer) if verify else None
    if decode.prompt is None:
        return Resident(decode, weights, tables=tables), None, yardsticks
    prefill = Prefill(decode.machine, decode.prompt)
    reading = read_prompt(prefill, weights, tables, prompt)
    mark(reading.begun, "prefill", TRACK, reading.begun + reading.cycles)
    resident = Resident(decode, weights, kept=reading.kept)
    resumed = resident.resume()
    words = 2 * max(len(image.code) for image in resident.fabric.spec.programs)
    answer.load, answer.at_once = Load(words, decode.place.width * words // 2), True
    moved = resumed.begun + resumed.transition
    mark(resumed.begun, f"program of {words} words loaded, in no time", TRACK)
    mark(resumed.begun, "transition", TRACK, moved)
    mark(moved, "first token", TRACK, moved + resumed.cycles)
    answer.prompt_cycles, answer.transition, answer.first_cycles = [reading.cycles], resumed.transition, resumed.cycles
    answer.hops += reading.hops + resumed.hops
    answer.counters = reading.counters
    if yardsticks is not None:
        yardsticks.compare_prompt(prefill, prompt, resumed)
    return resident, resumed, yardsticks


def admitted_meshes(
    machine: Machine,
    model: Model,
    request: tuple[int, int],
    meshes: tuple[tuple[int, int], tuple[int, int]],
    policy: str,
    dtype: str,
    answers: int | None,
) -> tuple[TwoMeshes, dict[str, int]]:
    """Return a mesh that reads the prompt and another one that decodes, and words, for a request as of `admitted`.

    Raises
    ------
    PlanError
        Something does not fit; names the mesh.
    """
    (length, tokens), (first, second) = request, meshes
    if policy not in POLICIES:
        raise ConfigError(f"unknown cache policy {policy!r}", where="--cache", hint=", ".join(POLICIES))
    decoder = model.configuration.decoder
    before = Placement(decoder, *first, max(1, tokens_per_row(length - 1, first[1], "shift")), dtype)
    behind = Placement(decoder, *second, tokens_per_row(tokens, second[1], policy), dtype)
    found = TwoMeshes(machine, before, behind, length - 1, policy, answers)
    found.admit()
    return found, found.most_words()


def _begun_on_two(
    meshes: TwoMeshes, weights: Mapping[str, NDArray[Any]], prompt: Sequence[int], answer: Answer, verify: bool
) -> tuple[Resident, None, _Yardsticks | None]:
    """Return as `_begun` does, all but the last token of the prompt having been read on the first mesh."""
    tables, read = meshes.tables(weights), prompt[:-1]
    yardsticks = _Yardsticks(meshes.decode, weights, tables[1], answer) if verify else None
    resident, move = meshes.read(weights, read, tables=tables)
    end = move.begun + move.cycles
    mark(move.begun, "prefill", TRACK, end)
    mark(end, "transition", TRACK, end + move.transition)
    answer.prompt_cycles, answer.transition, answer.at_once = [move.cycles], move.transition, True
    decoder = meshes.decode.place.decoder
    answer.moved_bytes = len(read) * decoder.layers * decoder.token_bytes()
    answer.hops += move.hops
    if yardsticks is not None:
        yardsticks.follow(meshes.oracle(weights, read, tables), read)
    return resident, None, yardsticks


def _taken(resident: Resident, token: int, of_prompt: bool, answer: Answer, yardsticks: _Yardsticks | None) -> Step:
    """Let the decoder take a token; note what it took, and how it agrees."""
    step = resident.step(token)
    label = f"prompt token {resident.count}" if of_prompt else f"token {len(answer.tokens) + 1}"
    mark(step.begun, label, TRACK, step.begun + step.cycles)
    answer.note(step, of_prompt)
    if yardsticks is not None:
        yardsticks.compare(token, step)
    return step


def _silent(progress: Progress) -> Progress:
    """End a display of progress and return one that shows nothing: from here on the answer itself is what is seen."""
    progress.close()
    return Progress()


def _answered(
    begun: tuple[Resident, Resumed | None, _Yardsticks | None],
    prompt: Sequence[int],
    tokens: int,
    draw: Callable[[NDArray[np.float32], int], int],
    stops: set[int],
    answer: Answer,
    hear: Hear | None,
    progress: Progress,
) -> list[int]:
    """Let the decoder take what is left of the prompt, and what it answers; return all tokens that were taken."""
    (resident, came, yardsticks), queue = begun, list(prompt)
    for position in range(len(prompt) - 1 if answer.at_once else 0, tokens):
        step = came or _taken(resident, queue[position], position < len(prompt) - answer.at_once, answer, yardsticks)
        came = None
        progress.update(position + 1, tokens, cycles=sum(answer.prompt_cycles[-1:] + answer.token_cycles[-1:]))
        if position < len(prompt) - 1:
            continue
        logits = step.logits.view(np.float32)
        token = draw(logits, step.token)
        answer.take(token, logits)
        queue.append(token)
        if hear is not None:
            progress = _silent(progress)
            hear(len(answer.tokens), token)
        if token in stops:
            break
    return queue[:-1]


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
    prefill: str = "auto",
    decode_mesh: tuple[int, int] | None = None,
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
    prefill : {"auto", "mesh", "token"}
        Whether the prompt is read at once, if that fits; at once; or token by token.
    decode_mesh : (int, int), optional
        Another mesh, east of the first one, that decodes; the first one reads the prompt, at once.

    Raises
    ------
    ConfigError
        An empty prompt, a token that does not exist, more tokens than the context.
    PlanError
        The model does not fit; names tensor, PE and the smallest mesh that carries it.
    """
    started = time.perf_counter()
    progress, tokens = progress or Progress(), checked(model, prompt, count)
    request = len(prompt), tokens
    built: Decode | TwoMeshes
    if decode_mesh is None:
        built, words = admitted(machine, model, request, mesh, policy, dtype, answers, prefill)
    else:
        built, words = admitted_meshes(machine, model, request, (mesh, decode_mesh), policy, dtype, answers)
    progress.phase(f"weights and programs of {mesh[0]} x {mesh[1]} PEs")
    weights, _ = model.rounded(Arithmetic.of(machine, dtype))
    answer = Answer(memory={name: 2 * count for name, count in words.items()})
    draw, stops = (sampling or Sampling()).drawer(answers), set(model.configuration.stops)
    begun = _begun(built, weights, prompt, answer, verify)
    progress.phase("prompt and answer")
    taken = _answered(begun, prompt, tokens, draw, stops, answer, hear, progress)
    resident, _, yardsticks = begun
    answer.conclude(resident)
    if yardsticks is not None:
        yardsticks.conclude(taken, resident.place)
    answer.host_seconds = time.perf_counter() - started
    return answer
