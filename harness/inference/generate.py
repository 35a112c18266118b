"""An answer by PE programs: a prompt goes in at once or token by token, then each token that comes out goes in again.

Two programs of the PEs share weights and cache: one reads a prompt at once (*prefill*), the other decodes.  Between
them the last token's hidden features move (the *transition*), and the PEs get the other program, whose code the host
has to load: the cycles which that takes at least are told apart (`ProgramLoad`), since no program of the PEs does it.

A prompt may also be read in pieces (`fabric.networks.inference.chunks`), or by the decoding program itself, one token
per step; then nothing moves between prompt and answer.  Or it is read on another mesh, beside that which decodes: then
keys and values move over the wafer (the transition), no program is loaded, and the last token of the prompt is the
first that the decoding mesh takes.  Or the layers are spread over several meshes (`harness.inference.regions`), or over
time on one of them (`harness.inference.reloads`), or a step takes tokens of several requests
(`harness.inference.serving`).

With `verify` every step, or a sample (`harness.inference.comparing`), is compared bit by bit with the oracle (numpy in
the order of the PEs), and its logits with a plain decoder in float64 on the same rounded weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.chunks import Chunks
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.groups import LayerGroups
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.pipeline import RegionPipeline
from fabric.networks.inference.prefill.cycles import PromptCycles
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.prefill.reading import read_prompt
from fabric.networks.inference.resident import DecodeStep, ResidentDecoder, Resumed, added_counters, with_room
from harness.inference.admission import Drafted, admitted
from harness.inference.asking import AnswerRequest, Hear
from harness.inference.comparing import Compared
from harness.inference.prefix import Prefix
from harness.inference.regions import RegionAnswers, flow_of
from harness.inference.reloads import Reload, answer_in_passes
from harness.inference.resuming import AnswerFile, Kept, check_prefix, restored
from harness.inference.serving import BatchAnswers, service_of
from harness.inference.speculation import Speculation, speculation_of
from harness.inference.yardsticks import Agreement
from harness.kit.console import Progress
from harness.models.rounding import Loss
from traces.marks import mark
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic, Bits

__all__ = ["Answer", "ProgramLoad", "answer"]

Weights = Mapping[str, NDArray[Any]]
"""Tensors by the hub's names, as the PEs have them."""

TRACK = "answer"
"""Phases of an answer belong to this track in run files."""


@dataclass(frozen=True)
class ProgramLoad:
    """A `ProgramLoad` is the loading of a program between two phases: its words and cycles.

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
class Answer(Agreement):
    """An `Answer` is what was generated, what it took, and how it agrees with numpy.

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
    load : ProgramLoad or None
        Of the decoding program, behind a prompt that was read at once on the same mesh.
    at_once : bool
        Whether a program of its own read the prompt.
    pieces : int
        Steps in which it did, a piece in each; 0: all tokens at once.
    moved_bytes : int
        Of keys and values that went to another mesh.
    hops : int
        Wavelet hops of all steps.
    memory : dict
        Bytes of a PE by what they hold.
    expected_cycles : int
        Of the last step, by the closed form.
    layer_cycles : dict
        Of the parts of its last layer, by the closed form.
    counters : dict
        Counters of all PEs: name -> (array, unit).
    resumed : int
        Tokens of prompt and answer that the decoder had taken when the answer went on from a file.
    reused, reused_cycles : int
        Tokens of the prompt that another answer has read, and the cycles which that took; in no other number.
    reload : Reload or None
        Of layers that a mesh has some at a time, what loading them took.
    host_seconds : float
    step_seconds : list of float
        Of the host for each step of the decoding program since the answer began or went on, without what is compared.
    losses : list of Loss
        Of rounding the weights to 16 bits, by tensors that lost any; of layers at a time, of all that were loaded.
    """

    tokens: list[int] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    prompt_cycles: list[int] = field(default_factory=list)
    token_cycles: list[int] = field(default_factory=list)
    transition: int = 0
    first_cycles: int = 0
    load: ProgramLoad | None = None
    at_once: bool = False
    pieces: int = 0
    moved_bytes: int = 0
    hops: int = 0
    resumed: int = 0
    reused: int = 0
    reused_cycles: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    expected_cycles: int = 0
    layer_cycles: dict[str, int] = field(default_factory=dict)
    counters: dict[str, tuple[NDArray[Any], str]] = field(default_factory=dict)
    reload: Reload | None = None
    host_seconds: float = 0.0
    step_seconds: list[float] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)

    def note(self, step: DecodeStep, of_prompt: bool) -> None:
        """Add what a step took."""
        self.hops += step.hops
        (self.prompt_cycles if of_prompt else self.token_cycles).append(step.cycles)

    def take(self, token: int, logits: NDArray[np.float32]) -> None:
        """Add a token with its logits to the answer."""
        self.tokens.append(token)
        self.logits.append(logits)

    def conclude(self, resident: ResidentDecoder) -> None:
        """Add the closed form of the last step and the counters of the decoding program."""
        if self.at_once and (resident.decode.arrived or resident.decode.begun):
            # the last token of the prompt was a step like those of the answer
            self.first_cycles = self.token_cycles.pop(0)
        form, last = StepCycles(resident.decode), resident.count - 1
        self.expected_cycles, self.layer_cycles = form.step(last), form.layer(last)
        self.counters = added_counters(self.counters, resident.counters())


@dataclass
class _Begun:
    """A `_Begun` is an answer behind its prompt: the decoder, what came of a prompt that was read at once, what to
    compare with.
    """

    resident: ResidentDecoder
    resumed: Resumed | None
    compared: Compared | None


def _compared(
    oracle: Oracle, request: AnswerRequest, weights: Weights, answer: Answer, in_pieces: bool = False
) -> Compared:
    """Return what an answer is compared with; a prompt that another program reads is its first step."""
    read = request.prefix is None and (oracle.decode.prompt is not None or in_pieces)
    return Compared(oracle, weights, answer, request.sample, first=int(read))


def _begun(
    built: Decode | TwoMeshes | Chunks, request: AnswerRequest, weights: Weights, answer: Answer, progress: Progress
) -> _Begun:
    """Let the prompt be read as the programs do it, unless the decoder itself takes its tokens; note what it took."""
    if isinstance(built, TwoMeshes):
        return _on_two_meshes(built, request, weights, answer)
    if isinstance(built, Chunks):
        return _in_chunks(built, request, weights, answer)
    tables = built.tables(weights)
    compared = _compared(Oracle(built, weights, tables), request, weights, answer) if request.verify else None
    if built.prompt is None:
        return _Begun(ResidentDecoder(built, weights, tables=tables), None, compared)
    return _at_once(built, built.prompt, request, weights, tables, answer, compared, progress)


def _reckoned(prefill: Prefill, progress: Progress) -> Callable[[int, float], None] | None:
    """Return what shows how far the reading of a prompt is, of the cycles that are reckoned for it."""
    if type(progress) is Progress:  # nobody sees it
        return None
    total = round(PromptCycles(prefill).prompt_cycles())
    progress.phase("prompt, at once")
    return lambda cycles, _: progress.update(min(cycles, total), total, cycles=cycles)


def _at_once(
    decode: Decode,
    place: PromptPlacement,
    request: AnswerRequest,
    weights: Weights,
    tables: dict[str, NDArray[Any]],
    answer: Answer,
    compared: Compared | None,
    progress: Progress,
) -> _Begun:
    """Let a program of its own read the prompt on the mesh that then decodes."""
    prefill = Prefill(decode.machine, place)
    reading = read_prompt(prefill, weights, tables, request.prompt, progress=_reckoned(prefill, progress))
    mark(reading.begun, "prefill", TRACK, reading.begun + reading.cycles)
    resident = ResidentDecoder(decode, weights, kept=reading.kept)
    resumed = resident.resume()
    words = 2 * max(len(image.code) for image in resident.fabric.spec.programs)
    answer.load, answer.at_once = ProgramLoad(words, decode.place.width * words // 2), True
    loaded = resumed.begun - resumed.transition
    mark(loaded, f"program of {words} words loaded, in no time", TRACK)
    mark(loaded, "transition", TRACK, resumed.begun)
    mark(resumed.begun, "first token", TRACK, resumed.begun + resumed.cycles)
    answer.prompt_cycles, answer.transition, answer.first_cycles = [reading.cycles], resumed.transition, resumed.cycles
    answer.hops += reading.hops + resumed.hops
    answer.counters = reading.counters
    if compared is not None:
        compared.compare_prompt(prefill, request.prompt, resumed)
    return _Begun(resident, resumed, compared)


def _in_chunks(built: Chunks, request: AnswerRequest, weights: Weights, answer: Answer) -> _Begun:
    """Let all but the last token of the prompt be read in pieces on the mesh that then decodes."""
    tables, prefix, lasting = built.decode.tables(weights), request.prefix, None
    read = list(request.prompt[built.begun : -1])
    if prefix is not None:
        check_prefix(prefix, request, weights)
        answer.reused, answer.reused_cycles = prefix.count, prefix.cycles
        lasting = with_room(prefix.lasting, built.decode.place)
    reading = built.read(weights, tables, read, lasting=lasting)
    compared = None
    if request.verify:
        compared = _compared(Oracle(built.decode, weights, tables), request, weights, answer, in_pieces=True)
        if prefix is not None and lasting is not None:
            compared.oracle.take_over(lasting["cache"], prefix.count)
            compared.follow(prefix.tokens)
    taken = iter(read)
    for number, step in enumerate(reading.steps, 1):
        mark(step.begun, f"piece {number} of the prompt", TRACK, step.begun + step.cycles)
        answer.prompt_cycles.append(step.cycles)
        answer.hops += step.hops
        for came in step.came if request.sample is None else ():
            if came is not None and compared is not None:
                compared.compare(next(taken), came)
    if compared is not None and request.sample is not None:
        compared.skip(read)
    resident = built.answering(weights, reading.kept)
    words = 2 * max(len(image.code) for image in resident.fabric.spec.programs)
    answer.load = ProgramLoad(words, built.decode.place.width * words // 2)
    answer.at_once, answer.pieces, answer.counters = True, len(reading.steps), reading.counters
    return _Begun(resident, None, compared)


def _on_two_meshes(meshes: TwoMeshes, request: AnswerRequest, weights: Weights, answer: Answer) -> _Begun:
    """Let the first mesh read all but the last token of the prompt, whose keys and values move to the second."""
    tables, read = meshes.tables(weights), request.prompt[:-1]
    resident, move = meshes.read(weights, read, tables=tables)
    end = move.begun + move.cycles
    mark(move.begun, "prefill", TRACK, end)
    mark(end, "transition", TRACK, end + move.transition)
    answer.prompt_cycles, answer.transition, answer.at_once = [move.cycles], move.transition, True
    answer.moved_bytes = len(read) * request.decoder.layers * request.decoder.token_bytes()
    answer.hops += move.hops
    compared = None
    if request.verify:
        whole = request.sample is None
        oracle = meshes.oracle(weights, read, tables) if whole else Oracle(meshes.decode, weights, dict(tables[1]))
        compared = _compared(oracle, request, weights, answer)
        compared.follow(read)
    return _Begun(resident, None, compared)


def _gone_on(built: Decode | Chunks, request: AnswerRequest, weights: Weights, answer: Answer, kept: Kept) -> _Begun:
    """Let the decoder go on from what a file has of an answer."""
    own = isinstance(built, Chunks) or built.prompt is not None
    if request.prefix is None and kept.answer["at_once"] != own:
        what = "with so many tokens the prompt would be read in another way than it was"
        raise ConfigError(what, where="--tokens", hint="as many as in the file, or another file")
    load = kept.answer.pop("load")
    del kept.answer["reload"]
    restored(answer, kept)
    answer.load, answer.resumed = ProgramLoad(*load) if load else None, kept.position
    decode = built.decode if isinstance(built, Chunks) else built
    read = [*request.prompt, *answer.tokens][: kept.position]
    return _behind(decode, request, weights, answer, kept.lasting, read, isinstance(built, Chunks))


def _behind_prefix(decode: Decode, prefix: Prefix, request: AnswerRequest, weights: Weights, answer: Answer) -> _Begun:
    """Let the decoder go on behind tokens that another answer has read."""
    check_prefix(prefix, request, weights)
    answer.reused, answer.reused_cycles = prefix.count, prefix.cycles
    return _behind(decode, request, weights, answer, prefix.lasting, prefix.tokens)


def _behind(
    decode: Decode,
    request: AnswerRequest,
    weights: Weights,
    answer: Answer,
    lasting: Mapping[str, Bits],
    read: Sequence[int],
    in_pieces: bool = False,
) -> _Begun:
    """Let the decoder go on behind tokens that were read, with what their PEs kept."""
    tables = decode.tables(weights)
    behind = decode.prompt is not None or decode.begun
    resident = (
        ResidentDecoder(decode, weights, kept=tables) if behind else ResidentDecoder(decode, weights, tables=tables)
    )
    resident.go_on(lasting, len(read))
    if not request.verify:
        return _Begun(resident, None, None)
    compared = _compared(Oracle(decode, weights, tables), request, weights, answer, in_pieces)
    compared.goes_on(resident, read)
    return _Begun(resident, None, compared)


def _taken(
    resident: ResidentDecoder, token: int, of_prompt: bool, answer: Answer, compared: Compared | None
) -> DecodeStep:
    """Let the decoder take a token; note what it took, and how it agrees."""
    if compared is not None:
        compared.before(resident)
    started = time.perf_counter()
    step = resident.step(token)
    answer.step_seconds.append(time.perf_counter() - started)
    label = f"prompt token {resident.count}" if of_prompt else f"token {len(answer.tokens) + 1}"
    mark(step.begun, label, TRACK, step.begun + step.cycles)
    answer.note(step, of_prompt)
    if compared is not None:
        compared.compare(token, step, resident)
    return step


def _silent(progress: Progress) -> Progress:
    """End a display of progress and return one that shows nothing: from here on the answer itself is what is seen."""
    progress.close()
    return Progress()


def _answered(
    begun: _Begun,
    request: AnswerRequest,
    answer: Answer,
    hear: Hear | None,
    progress: Progress,
    file: AnswerFile | None = None,
) -> list[int]:
    """Let the decoder take what is left of the prompt, and what it answers; return all tokens that were taken."""
    queue, length, tokens, came = [*request.prompt, *answer.tokens], len(request.prompt), request.tokens, begun.resumed
    draw, stops = request.sampling.drawer(request.answers), request.model.configuration.stops
    for number, (token, logits) in enumerate(zip(answer.tokens, answer.logits, strict=True), 1):
        draw(logits, token)  # drawn before, so that the next one is drawn as it would have been
        if hear is not None:
            progress = _silent(progress)
            hear(number, token)
    ended = bool(answer.tokens) and answer.tokens[-1] in stops
    first = answer.resumed or (length - 1 if answer.at_once else answer.reused)
    for position in () if ended else range(first, tokens):
        of_prompt = position < length - answer.at_once
        step = came or _taken(begun.resident, queue[position], of_prompt, answer, begun.compared)
        came = None
        progress.update(position + 1, tokens, cycles=sum(answer.prompt_cycles[-1:] + answer.token_cycles[-1:]))
        if position >= length - 1:
            logits = step.logits.view(np.float32)
            token = draw(logits, step.token)
            answer.take(token, logits)
            queue.append(token)
        if file is not None:
            resident = begun.resident
            counters = added_counters(answer.counters, resident.counters())
            file.write(position + 1, answer, counters, resident.lasting())
        if position < length - 1:
            continue
        if hear is not None:
            progress = _silent(progress)
            hear(len(answer.tokens), token)
        if token in stops:
            break
    return queue[:-1]


def answer(
    request: AnswerRequest, hear: Hear | None = None, progress: Progress | None = None
) -> Answer | RegionAnswers | BatchAnswers | Speculation:
    """Answer a request: a `RegionAnswers` of several answers if it has regions, a `BatchAnswers` with a batch, a
    `Speculation` with a draft, else an `Answer`.

    Parameters
    ----------
    request : AnswerRequest
    hear : callable, optional
        Hears of every token of the first answer as it comes.
    progress : Progress, optional
        Shows how far prompt and answer are; up to the first token, if somebody hears of them.

    Raises
    ------
    ConfigError
        A weight that the 16-bit format does not have.
    PlanError
        The model does not fit; names tensor, PE and the smallest mesh that carries it.
    """
    started, progress = time.perf_counter(), progress or Progress()
    built, words = admitted(request)
    found: Answer | RegionAnswers | BatchAnswers | Speculation
    if isinstance(built, LayerGroups):
        found = Answer(memory={name: 2 * count for name, count in words[0].items()})
        answer_in_passes(request, built, found, hear, progress)
        found.host_seconds = time.perf_counter() - started
        return found
    beside = "" if request.regions is None else f"{request.regions} regions of "
    progress.phase(f"weights and programs of {beside}{request.mesh[0]} x {request.mesh[1]} PEs")
    weights, losses = request.model.rounded(Arithmetic.of(request.machine, request.dtype))
    if isinstance(built, RegionPipeline):
        found = flow_of(request, built, words, weights, hear, progress)
    elif isinstance(built, Drafted):
        found = speculation_of(request, built, words, weights, hear, progress)
    elif request.batch is not None and isinstance(built, Decode):
        found = service_of(request, built, words[0], weights, hear, progress)
    else:
        found = Answer(memory={name: 2 * count for name, count in words[0].items()})
        file = None if request.file is None else AnswerFile(request.file, request, weights)
        kept = None if file is None else file.read()
        if kept is not None and isinstance(built, Decode | Chunks):
            begun = _gone_on(built, request, weights, found, kept)
        elif request.prefix is not None and isinstance(built, Decode):
            begun = _behind_prefix(built, request.prefix, request, weights, found)
        else:
            begun = _begun(built, request, weights, found, progress)
        progress.phase("prompt and answer")
        taken = _answered(begun, request, found, hear, progress, file)
        found.conclude(begun.resident)
        if begun.compared is not None:
            begun.compared.yardstick.conclude(taken, found.logits)
    found.losses = losses
    found.host_seconds = time.perf_counter() - started
    return found
