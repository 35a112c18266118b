"""What the PEs get for a request, on one mesh, on two or on several regions; or why the request does not fit."""

from __future__ import annotations

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.fit import admit, needed_words, tokens_per_row
from fabric.networks.inference.log import PAIRS
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.pipeline import Pipeline
from fabric.networks.inference.placement import Placement
from fabric.networks.inference.prefill.fit import admit_prompt, prompt_words
from fabric.networks.inference.prefill.placement import PromptPlacement
from harness.inference.asking import AnswerRequest

__all__ = ["Built", "Words", "admitted"]

Built = Decode | TwoMeshes | Pipeline
"""Programs for a request: of one mesh, which read a prompt at once if `Decode.prompt` says so; of two; of regions."""

Words = dict[str, int]
"""Words of a PE by what they hold."""

LOG_WORDS = 8 * PAIRS
"""Words of a PE's notes of when tokens came, at most."""


def admitted(request: AnswerRequest) -> tuple[Built, list[Words]]:
    """Return the programs of a request, and the words of the fullest PE of each region, or of all.

    Raises
    ------
    PlanError
        Something does not fit; names tensor, PE and the smallest mesh that carries it.
    """
    if request.regions is not None:
        return _in_regions(request, request.regions)
    if request.batch is not None:
        return _in_a_batch(request, request.batch)
    if request.decode_mesh is not None:
        return _on_two_meshes(request, request.decode_mesh)
    return _on_one_mesh(request)


def _on_one_mesh(request: AnswerRequest) -> tuple[Decode, list[Words]]:
    """Return a decoder, with a program for the prompt unless it is read token by token, or does not fit."""
    machine, policy, mesh = request.machine, request.policy, request.mesh
    room = tokens_per_row(request.tokens, mesh[1], policy)
    place = Placement(request.decoder, *mesh, room, request.dtype)
    admit(place, machine, request.tokens, policy)
    if request.prefill != "token":
        prompt = PromptPlacement(place, len(request.prompt))
        words = max(prompt_words(prompt), needed_words(place, prompt.slots), key=lambda found: sum(found.values()))
        if request.prefill == "mesh":
            admit_prompt(prompt, machine)
        if sum(words.values()) <= machine["mem.words"]:
            return Decode(machine, place, policy, answers=request.answers, prompt=prompt), [words]
    return Decode(machine, place, policy, answers=request.answers), [needed_words(place)]


def _in_a_batch(request: AnswerRequest, batch: int) -> tuple[Decode, list[Words]]:
    """Return a decoder of a batch, with caches for so many requests."""
    machine, policy, mesh = request.machine, request.policy, request.mesh
    room = tokens_per_row(request.tokens, mesh[1], policy)
    place = Placement(request.decoder, *mesh, room, request.dtype, batch=batch)
    admit(place, machine, request.tokens, policy)
    return Decode(machine, place, policy, answers=request.answers), [needed_words(place)]


def _on_two_meshes(request: AnswerRequest, second: tuple[int, int]) -> tuple[TwoMeshes, list[Words]]:
    """Return a mesh that reads all but the last token of the prompt, and another one that decodes."""
    length, first, policy = len(request.prompt), request.mesh, request.policy
    room = max(1, tokens_per_row(length - 1, first[1], "shift"))
    before = Placement(request.decoder, *first, room, request.dtype)
    behind = Placement(request.decoder, *second, tokens_per_row(request.tokens, second[1], policy), request.dtype)
    built = TwoMeshes(request.machine, before, behind, length - 1, policy, request.answers)
    built.admit()
    return built, [built.most_words()]


def _in_regions(request: AnswerRequest, regions: int) -> tuple[Pipeline, list[Words]]:
    """Return the decoder on its regions, with caches for all answers."""
    machine, policy, mesh = request.machine, request.policy, request.mesh
    room = tokens_per_row(request.tokens, mesh[1], policy)
    place = Placement(request.decoder, *mesh, room, request.dtype, requests=len(request.prompts))
    built = Pipeline(machine, place, regions, policy, request.answers)
    words = []
    for k, stage in enumerate(built.stages):
        admit(stage.place, machine, request.tokens, policy, f"part of region {k + 1}")
        needed = needed_words(stage.place)
        needed["vectors"] += LOG_WORDS
        words.append(needed)
    return built, words
