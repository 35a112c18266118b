"""How long an answer will take, from closed forms alone: nothing is run, and no weight is read.

`fabric.networks.inference` has closed forms of both programs, the one that reads a prompt at once and the one that
decodes, and of the way of keys and values to another mesh.  Tests hold them within `WITHIN` of the engine, whole and
part by part, on sizes they were not written from.
"""

from __future__ import annotations

from dataclasses import dataclass

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.move.cycles import MoveCycles
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.prefill.cycles import PromptCycles
from fabric.networks.inference.prefill.program import Prefill
from harness.inference.admission import admitted
from harness.inference.asking import AnswerRequest

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


def estimate(request: AnswerRequest) -> Estimate:
    """Return what `harness.inference.generate.answer` would take for a request without regions; errors are its own."""
    built, (words,) = admitted(request)
    length, tokens = len(request.prompt), request.tokens
    memory = {name: 2 * each for name, each in words.items()}
    if isinstance(built, TwoMeshes):
        reading, moving = MoveCycles(built).cycles()
        first, *further = StepCycles(built.decode).steps(range(length - 1, tokens)).tolist()
        return Estimate(True, reading, moving, first, further, memory)
    assert isinstance(built, Decode), "regions have an estimate of their own"
    form = StepCycles(built)
    if built.prompt is None:
        steps = form.steps(range(tokens)).tolist()
        return Estimate(False, sum(steps[:length]), 0, 0, steps[length:], memory)
    further = form.steps(range(length, tokens)).tolist()
    reading = round(PromptCycles(Prefill(request.machine, built.prompt)).prompt_cycles())
    return Estimate(True, reading, form.transition(), form.answer(length - 1), further, memory)
