"""What the PEs get for a request, on one mesh, on two or on several regions; or why the request does not fit."""

from __future__ import annotations

from collections.abc import Sequence

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.fit import admit, needed_words, tokens_per_row
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.pipeline import Pipeline
from fabric.networks.inference.placement import Placement
from fabric.networks.inference.prefill.fit import admit_prompt, prompt_words
from fabric.networks.inference.prefill.placement import PromptPlacement
from harness.inference.asking import Model, checked, known_policy
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["PREFILLS", "admitted", "admitted_meshes", "admitted_regions"]

PREFILLS = ("auto", "mesh", "token")


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
    known_policy(policy)
    if prefill not in PREFILLS:
        raise ConfigError(f"unknown prefill {prefill!r}", where="--prefill", hint=", ".join(PREFILLS))
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
    known_policy(policy)
    decoder = model.configuration.decoder
    before = Placement(decoder, *first, max(1, tokens_per_row(length - 1, first[1], "shift")), dtype)
    behind = Placement(decoder, *second, tokens_per_row(tokens, second[1], policy), dtype)
    found = TwoMeshes(machine, before, behind, length - 1, policy, answers)
    found.admit()
    return found, found.most_words()


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
    known_policy(policy)
    if not prompts:
        raise ConfigError("no request", where="--requests", hint="1 or more")
    tokens = max(checked(model, prompt, count) for prompt in prompts)
    room = tokens_per_row(tokens, mesh[1], policy)
    place = Placement(model.configuration.decoder, *mesh, room, dtype, requests=len(prompts))
    built = Pipeline(machine, place, regions, policy, answers)
    for k, stage in enumerate(built.stages):
        admit(stage.place, machine, tokens, policy, f"part of region {k + 1}")
    return built
