"""What the PEs get for a request, on one mesh, on two or on several regions; or why the request does not fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fabric.networks.inference.chunks import Chunks, blocks_of
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.fit import admit, needed_words, tokens_per_row
from fabric.networks.inference.groups import LayerGroups
from fabric.networks.inference.log import PAIRS
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.pipeline import RegionPipeline
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill.cycles import PromptCycles
from fabric.networks.inference.prefill.fit import admit_prompt, prompt_words
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.program import Prefill
from harness.inference.asking import AnswerRequest, Model
from harness.inference.prefix import Prefix
from wse_core.errors import PlanError
from wse_core.params import Machine

__all__ = ["Built", "Drafted", "Words", "admitted"]


@dataclass(frozen=True)
class Drafted:
    """A `Drafted` has the programs of an answer that is guessed ahead.

    Attributes
    ----------
    target, draft : Decode
        Of both models, each of which takes several tokens in a step.
    alone : Decode
        The program without guesses, to be compared with.
    """

    target: Decode
    draft: Decode
    alone: Decode


Built = Decode | TwoMeshes | RegionPipeline | LayerGroups | Chunks | Drafted
"""A `Built` is the programs for a request: of one mesh, of two, of regions, of layers at a time, of a prompt in pieces,
or of two models.
"""

Words = dict[str, int]
"""`Words` are the words of a PE by what they hold."""

LOG_WORDS = 8 * PAIRS
"""A PE's notes of when tokens came take at most so many words."""


def admitted(request: AnswerRequest) -> tuple[Built, list[Words]]:
    """Return the programs of a request, and the words of the fullest PE of each region, or of all.

    Raises
    ------
    PlanError
        Something does not fit; names tensor, PE and the smallest mesh that carries it.
    """
    if request.regions is not None:
        return _in_regions(request, request.regions)
    if request.at_a_time is not None:
        return _at_a_time(request, request.at_a_time)
    if request.batch is not None:
        return _in_a_batch(request, request.batch)
    if request.draft is not None:
        return _with_a_draft(request, request.draft)
    if request.chunk is not None and len(request.prompt) > 1 + _before(request):
        return _in_chunks(request, request.chunk)
    if request.decode_mesh is not None:
        return _on_two_meshes(request, request.decode_mesh)
    return _on_one_mesh(request)


def _on_one_mesh(request: AnswerRequest) -> tuple[Decode, list[Words]]:
    """Return a decoder, with a program for the prompt unless it is read token by token, or does not fit."""
    machine, policy, mesh = request.machine, request.policy, request.mesh
    room = tokens_per_row(request.tokens, mesh[1], policy)
    place = DecoderPlacement(request.decoder, *mesh, room, request.dtype, int8=request.int8)
    admit(place, machine, request.tokens, policy)
    if request.prefix is not None:
        return _behind(request.prefix, request, place)
    if request.prefill != "token":
        prompt = PromptPlacement(place, len(request.prompt))
        words = max(prompt_words(prompt), needed_words(place, prompt.slots), key=lambda found: sum(found.values()))
        if request.prefill == "mesh":
            admit_prompt(prompt, machine)
        fits = sum(words.values()) <= machine["mem.words"]
        if fits and (request.prefill == "mesh" or _is_faster(machine, prompt)):
            return Decode(machine, place, policy, answers=request.answers, prompt=prompt), [words]
    return Decode(machine, place, policy, answers=request.answers), [needed_words(place)]


def _behind(prefix: Prefix, request: AnswerRequest, place: DecoderPlacement) -> tuple[Decode, list[Words]]:
    """Return a decoder that goes on behind tokens of another answer, which lie as they were read."""
    machine, policy = request.machine, request.policy
    at_once, pieces, length = prefix.read
    if pieces:
        blocks = blocks_of(length - 1, place.height, policy)
        decode = Decode(machine, place, policy, answers=request.answers, begun=length - 1, blocks=blocks)
        return decode, [needed_words(place)]
    prompt = PromptPlacement(place, length) if at_once else None
    words = needed_words(place) if prompt is None else needed_words(place, prompt.slots)
    if sum(words.values()) > machine["mem.words"]:
        raise PlanError(
            f"a PE needs {2 * sum(words.values()):,} bytes behind a prompt that was read at once",
            where="--prefix",
            hint="a file whose prompt was read with --prefill token",
            limit="memory",
            needed=2 * sum(words.values()),
            available=2 * machine["mem.words"],
        )
    return Decode(machine, place, policy, answers=request.answers, prompt=prompt), [words]


def _is_faster(machine: Machine, prompt: PromptPlacement) -> bool:
    """Whether a prompt that is read at once takes fewer cycles than token by token, by the prices of both.

    It may take more: weights go round all rows, also for a prompt of a few tokens, and so do all experts, whoever chose
    them.  Where every row has a token, and there are no experts, nobody has to ask.
    """
    if prompt.length >= prompt.place.height and not prompt.place.decoder.experts:
        return True
    steps = StepCycles(Decode(machine, prompt.place)).step(prompt.length // 2) * prompt.length
    return PromptCycles(Prefill(machine, prompt)).prompt_cycles() < steps


def _in_a_batch(request: AnswerRequest, batch: int) -> tuple[Decode, list[Words]]:
    """Return a decoder of a batch, with caches for so many requests."""
    machine, policy, mesh = request.machine, request.policy, request.mesh
    room = tokens_per_row(request.tokens, mesh[1], policy)
    place = DecoderPlacement(request.decoder, *mesh, room, request.dtype, batch=batch, int8=request.int8)
    admit(place, machine, request.tokens, policy)
    return Decode(machine, place, policy, answers=request.answers), [needed_words(place)]


def _with_a_draft(request: AnswerRequest, draft: Model) -> tuple[Drafted, list[Words]]:
    """Return programs of both models, the draft's mesh below the other one."""
    machine, policy, mesh = request.machine, request.policy, request.mesh
    second = request.draft_mesh or mesh
    if mesh[1] + second[1] > machine["fabric.height"]:
        raise PlanError(
            f"{mesh[1]} rows and {second[1]} of the draft below them; the wafer has {machine['fabric.height']}",
            where="--draft-mesh",
            limit="height",
            needed=mesh[1] + second[1],
            available=machine["fabric.height"],
        )
    found, words = [], []
    for decoder, size, where in (
        (request.decoder, mesh, "decoder"), (draft.configuration.decoder.within(request.tokens), second, "draft")
    ):  # fmt: skip
        room = tokens_per_row(request.tokens, size[1], policy)
        place = DecoderPlacement(decoder, *size, room, request.dtype, batch=1, ahead=request.ahead, int8=request.int8)
        built = Decode(machine, place, policy, answers=request.answers)
        admit(place, machine, request.tokens, policy, where, "--ahead")
        found.append(built)
        words.append(needed_words(place))
    alone = Decode(machine, replace(found[0].place, batch=0, ahead=1), policy)
    return Drafted(found[0], found[1], alone), words


def _before(request: AnswerRequest) -> int:
    """Return how many tokens of the prompt another answer has read."""
    return 0 if request.prefix is None else request.prefix.count


def _in_chunks(request: AnswerRequest, size: int) -> tuple[Chunks, list[Words]]:
    """Return a program that reads all but the last token of the prompt in pieces, and one that answers."""
    machine, policy, mesh = request.machine, request.policy, request.mesh
    room = tokens_per_row(request.tokens, mesh[1], policy)
    place = DecoderPlacement(request.decoder, *mesh, room, request.dtype, int8=request.int8)
    length = len(request.prompt) - 1
    begun = _before(request)
    size = min(size, length - begun) if length - begun > 1 else 2
    built = Chunks(machine, place, length, size, policy, request.answers, begun)
    admit(built.reader.place, machine, request.tokens, policy)
    return built, [built.words()]


def _on_two_meshes(request: AnswerRequest, second: tuple[int, int]) -> tuple[TwoMeshes, list[Words]]:
    """Return a mesh that reads all but the last token of the prompt, and another one that decodes."""
    length, first, policy = len(request.prompt), request.mesh, request.policy
    room = max(1, tokens_per_row(length - 1, first[1], "shift"))
    before = DecoderPlacement(request.decoder, *first, room, request.dtype)
    behind = DecoderPlacement(
        request.decoder, *second, tokens_per_row(request.tokens, second[1], policy), request.dtype
    )
    built = TwoMeshes(request.machine, before, behind, length - 1, policy, request.answers)
    built.admit()
    return built, [built.most_words()]


def _at_a_time(request: AnswerRequest, layers: int) -> tuple[LayerGroups, list[Words]]:
    """Return the programs of groups of layers, which the mesh has one after the other."""
    mesh, policy = request.mesh, request.policy
    room = tokens_per_row(request.tokens, mesh[1], policy)
    place = DecoderPlacement(request.decoder, *mesh, room, request.dtype, int8=request.int8)
    length, pieces = len(request.prompt), None
    if request.chunk is not None and length > 1:
        pieces = length, min(request.chunk, length)
    built = LayerGroups(request.machine, place, request.tokens, layers or None, policy, request.answers, pieces)
    return built, [built.words]


def _in_regions(request: AnswerRequest, regions: int) -> tuple[RegionPipeline, list[Words]]:
    """Return the decoder on its regions, with caches for all answers."""
    machine, policy, mesh = request.machine, request.policy, request.mesh
    room = tokens_per_row(request.tokens, mesh[1], policy)
    place = DecoderPlacement(
        request.decoder, *mesh, room, request.dtype, requests=len(request.prompts), int8=request.int8
    )
    built = RegionPipeline(machine, place, regions, policy, request.answers)
    words = []
    for k, stage in enumerate(built.stages):
        admit(stage.place, machine, request.tokens, policy, f"part of region {k + 1}")
        needed = needed_words(stage.place)
        needed["vectors"] += LOG_WORDS
        words.append(needed)
    return built, words
