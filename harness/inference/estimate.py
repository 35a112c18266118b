"""How long an answer will take, from closed forms alone: nothing is run, and no weight is read.

`fabric.networks.inference` has closed forms of both programs, the one that reads a prompt at once and the one that
decodes, and of the way of keys and values to another mesh.  Tests hold them within `WITHIN` of the engine, whole and
part by part, on sizes they were not written from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.move.cycles import MoveCycles
from fabric.networks.inference.prefill.cycles import PromptCycles
from fabric.networks.inference.prefill.program import Prefill
from harness.inference.admission import admitted, admitted_meshes
from harness.inference.asking import Model, checked
from wse_core.params import Machine

__all__ = ["WITHIN", "Estimate", "estimate"]

WITHIN = 0.05
"""Largest relative error of the closed forms against the engine that tests allow."""


@dataclass(frozen=True)
class Estimate:
    """Cycles that an answer will take.

    Attributes
    ----------
    at_once : bool
        Whether a program of its own reads the prompt.
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


def estimate(
    machine: Machine,
    model: Model,
    prompt: Sequence[int],
    count: int,
    mesh: tuple[int, int],
    policy: str = "shift",
    dtype: str = "f16",
    answers: int | None = None,
    prefill: str = "auto",
    decode_mesh: tuple[int, int] | None = None,
) -> Estimate:
    """Return what `harness.inference.generate.generate` would take; parameters and errors are its own."""
    length, tokens = len(prompt), checked(model, prompt, count)
    if decode_mesh is not None:
        meshes, words = admitted_meshes(machine, model, (length, tokens), (mesh, decode_mesh), policy, dtype, answers)
        reading, moving = MoveCycles(meshes).cycles()
        first, *further = map(StepCycles(meshes.decode).step, range(length - 1, tokens))
        return Estimate(True, reading, moving, first, further, {name: 2 * each for name, each in words.items()})
    decode, words = admitted(machine, model, (length, tokens), mesh, policy, dtype, answers, prefill)
    form = StepCycles(decode)
    memory = {name: 2 * each for name, each in words.items()}
    further = [form.step(position) for position in range(length, tokens)]
    if decode.prompt is None:
        return Estimate(False, sum(form.step(position) for position in range(length)), 0, 0, further, memory)
    reading = round(PromptCycles(Prefill(machine, decode.prompt)).prompt_cycles())
    return Estimate(True, reading, form.transition(), form.answer(length - 1), further, memory)
