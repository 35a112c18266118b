"""A prompt read in pieces: a step takes several of its tokens over the cache that those before them have filled.

Two programs of a mesh share weights and cache.  The first one reads the prompt but for its last token, a piece in each
step (`DecoderPlacement.ahead`): every matrix meets all vectors of a piece, and each token sees those before it, in the
cache or in its piece.  The second one takes one token in a step, from the last one of the prompt on.  Between them the
PEs get the other code, as behind a prompt that is read at once.

What a PE needs beside weights and cache is linear in the piece and in the prompt, never a square: the scores of a piece
are as many as its tokens times those of a row, and their shares come to lie where they were.  Every bit is that of a
prompt that is read token by token.

In a cache whose entries move (*shift*) nothing moves while the prompt is read: each row takes the block of neighbouring
tokens that it would hold behind it, as where a prompt is read at once.  So sums over rows have another order than token
by token, and bits are those of an oracle that puts tokens into these blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike, NDArray

from fabric.host.engines import Backend
from fabric.networks.inference.batch import BatchResident, BatchStep, LaneToken
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.fit import needed_words
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill.reading import KEPT
from fabric.networks.inference.resident import ResidentDecoder
from fabric.networks.inference.writer import code_words
from wse_core.formats import Bits
from wse_core.params import Machine

__all__ = ["ChunkReading", "Chunks", "blocks_of", "pieces_of"]


@dataclass(frozen=True)
class ChunkReading:
    """A `ChunkReading` is what the reading of a prompt in pieces gave.

    Attributes
    ----------
    steps : list of BatchStep
        Of each piece; one that is not full has no tokens in its last lanes.
    kept : dict
        Bits that the PEs keep, (height, width, elements).
    counters : dict
        Counters of all PEs: name -> (array, unit).
    """

    steps: list[BatchStep]
    kept: dict[str, Bits]
    counters: dict[str, tuple[NDArray[Any], str]]


def blocks_of(length: int, height: int, policy: str) -> list[int] | None:
    """Return how many tokens each row takes of those that are read in pieces; None if they lie as one by one.

    Of a cache whose entries move, rows take at once what they would hold in the end.
    """
    each, more = divmod(length, height)
    return [each + (row < more) for row in range(height)] if policy == "shift" else None


def pieces_of(length: int, size: int) -> list[list[int]]:
    """Return the tokens before that of each lane in each step that takes so many of a prompt; the last lanes of the
    last step repeat others.
    """
    return [[min(first + k, length - 1) for k in range(size)] for first in range(0, length, size)]


class Chunks:
    """A `Chunks` has the programs of a decoder that reads a prompt in pieces and then answers.

    Parameters
    ----------
    machine : Machine
    place : DecoderPlacement
        Of the decoder that answers.
    length : int
        Tokens to read in pieces: all of the prompt but the last one.
    size : int
        Tokens of a piece.
    policy : {"shift", "concat", "round"}
    answers : int, optional
        As of `Decode`.
    begun : int
        So many of these tokens are in the cache before, one by one; the first program goes on behind them.

    Attributes
    ----------
    reader, decode : Decode
        The two programs.
    """

    def __init__(
        self,
        machine: Machine,
        place: DecoderPlacement,
        length: int,
        size: int,
        policy: str,
        answers: int | None = None,
        begun: int = 0,
    ) -> None:
        self.length, self.size, self.begun = length, size, begun
        wide = self.reading(place, size)
        code = max(code_words(place), code_words(wide))
        blocks = blocks_of(length, place.height, policy)
        self.reader = Decode(machine, wide, policy, answers=answers, code=code, blocks=blocks)
        self.decode = Decode(machine, place, policy, answers=answers, code=code, begun=length, blocks=blocks)

    @staticmethod
    def reading(place: DecoderPlacement, size: int) -> DecoderPlacement:
        """Return the placement of the program that reads."""
        return replace(place, batch=1, ahead=size)

    def words(self) -> dict[str, int]:
        """Return the words of a PE by what they are, while it needs most."""
        return needed_words(self.reader.place)

    def pieces(self) -> list[list[int]]:
        """Return the tokens before that of each lane in each step; the last lanes of the last one repeat others."""
        rest = pieces_of(self.length - self.begun, self.size)
        return [[self.begun + before for before in piece] for piece in rest]

    def read(
        self,
        weights: Mapping[str, ArrayLike],
        tables: Mapping[str, Bits],
        tokens: Sequence[int],
        backend: Backend | None = None,
        lasting: Mapping[str, Bits] | None = None,
    ) -> ChunkReading:
        """Let the first program read so many tokens as this is for.

        Parameters
        ----------
        weights, tables
            As of `ResidentDecoder`.
        tokens : sequence of int
            Those that are not in the cache before.
        backend : {"compiled", "reference"}, optional
        lasting : mapping, optional
            Of those that are, as `ResidentDecoder.lasting`.

        Raises
        ------
        ConfigError
            A token that does not exist, or logits that are no numbers.
        """
        resident, steps = BatchResident(self.reader, weights, backend, tables), []
        before = 0  # the lane of the token before a piece; what was read before lies in the first one
        if lasting is not None:
            resident.enter(0, lasting, self.begun)
        for first in range(0, self.length - self.begun, self.size):
            piece = tokens[first : first + self.size]
            given: list[LaneToken | None] = [
                LaneToken(token, self.begun + first + k == 0, k - 1 if k else before) for k, token in enumerate(piece)
            ]
            before = self.size - 1
            steps.append(resident.step([*given, *[None] * (self.size - len(piece))]))
        fabric = resident.fabric
        kept = {name: fabric.read(name) for name in KEPT if name in tables or name == "cache"}
        kept = {name: bits.view(f"u{bits.itemsize}") for name, bits in kept.items()}
        return ChunkReading(steps, kept, fabric.all_counters())

    def answering(
        self, weights: Mapping[str, ArrayLike], kept: Mapping[str, Bits], backend: Backend | None = None
    ) -> ResidentDecoder:
        """Return the decoder that goes on behind what was read."""
        return ResidentDecoder(self.decode, weights, backend, kept=kept)
