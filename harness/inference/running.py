"""The resident decoder is predicted on meshes too large to run it: cycles of a step, and what a PE has room for.

`fabric.networks.inference` has the resident program, its placement, and prices of its steps that tests hold within 1 %
of the engine.  Here it is asked about one layer and about what stands beside the layers, for
any model and mesh: the difference of two layers and one.  Nothing is composed; it is what program B is held against.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.fit import needed_words
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill.fit import prompt_words
from fabric.networks.inference.prefill.placement import PromptPlacement
from harness.inference.costs import cdiv
from wse_core.params import Machine

__all__ = ["Running", "bytes_of", "placed", "prompt_bytes_of", "running"]


@dataclass(frozen=True)
class Running:
    """A `Running` has the predicted cycles of a step of the resident decoder.

    Attributes
    ----------
    layer, beside : int
        Of one layer, the mean where layers differ; of everything else: the token's way in, the last norm, the output
        matrix, the arg max.
    layers : int
    """

    layer: int
    beside: int
    layers: int

    @property
    def cycles(self) -> int:
        """All layers take so many cycles, without what stands beside them, as the published tables count."""
        return self.layer * self.layers


def placed(
    decoder: Decoder, width: int, height: int, layers: int, tokens: int, batch: int = 0, int8: bool = False
) -> DecoderPlacement:
    """Return so many layers of a decoder on a mesh, with room for so many tokens, of each request of a batch.

    With `int8` keys and values have 8 bits.
    """
    room = max(1, cdiv(tokens, height))
    return DecoderPlacement(decoder.part(0, layers), width, height, room, batch=batch, int8=int8)


@cache
def running(
    machine: Machine, decoder: Decoder, width: int, height: int, tokens: int, batch: int = 0, int8: bool = False
) -> Running:
    """Return the cycles of the step that takes the last of so many tokens, of each request of a batch."""

    def step(*layers: LayerKind) -> int:
        place = placed(decoder.of_kinds(layers), width, height, len(layers), tokens, batch, int8)
        return StepCycles(Decode(machine, place)).step([tokens - 1] * batch if batch else tokens - 1)

    decoder = decoder.within(tokens)
    first = decoder.kinds[0]
    one = step(first)
    layers = {kind: step(first, kind) - one for kind in decoder.kinds}
    whole = sum(layers[kind] for kind in decoder.different) or layers[first] * decoder.layers
    return Running(round(whole / decoder.layers), one - layers[first], decoder.layers)


def prompt_bytes_of(
    decoder: Decoder, width: int, height: int, layers: int, tokens: int, int8: bool = False
) -> dict[str, int]:
    """Return the bytes of the fullest PE while it reads so many tokens at once, by what they are, as of `bytes_of`."""
    place = placed(replace(decoder, vocabulary=1), width, height, layers, tokens, int8=int8)
    found = prompt_words(PromptPlacement(place, tokens))
    found.pop("output matrix")
    return {name: 2 * words for name, words in found.items()}


def bytes_of(
    decoder: Decoder, width: int, height: int, layers: int, tokens: int, batch: int = 0, int8: bool = False
) -> dict[str, int]:
    """Return the bytes of the fullest PE by what they are, without the output matrix, which has a region of its own."""
    found = needed_words(placed(replace(decoder, vocabulary=1), width, height, layers, tokens, batch, int8))
    found.pop("output matrix")
    return {name: 2 * words for name, words in found.items()}
