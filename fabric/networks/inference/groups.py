"""A decoder lies on a mesh some of its layers at a time: groups of layers, then parts of the output matrix.

Layers are taken in groups, as many as the memory of the PEs holds, the last group having what is left.  A group is a
resident decoder of its own (`fabric.networks.inference.decode`): the residual stream of a token enters at the west edge
and leaves there.  Behind the last group come the rows of the output matrix, in as few parts as fit: a program without
layers, which the residual stream enters, and of whose tokens the likeliest leaves.  Between them the host writes other
weights into the PEs, and what the group has kept of earlier tokens (`fabric.networks.inference.reloading`).

Groups of the same layers are one program, which then stays where it is.  A prompt may pass them in pieces: programs of
their own take several of its tokens in a step (`fabric.networks.inference.chunks`).

Every bit is that of a decoder that lies on the same mesh as a whole: sums are cut alike, and the order of products does
not depend on which rows are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabric.networks.inference.chunks import Chunks
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decoder import EMBEDDING
from fabric.networks.inference.fit import admit, group_parts, head_part, head_parts, layers_that_fit, needed_words
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.tiles import place_weights
from wse_core.errors import ConfigError, PlanError
from wse_core.formats import Bits
from wse_core.params import Machine

__all__ = ["LayerGroup", "LayerGroups", "OutputPart"]

HEAD, HEAD_BIAS = "lm_head.weight", "lm_head.bias"


@dataclass(frozen=True)
class LayerGroup:
    """A `LayerGroup` is some layers of a decoder as a program of a mesh.

    Attributes
    ----------
    decode : Decode
        The same for groups of the same layers.
    first : int
        The first of its layers.
    reader : Decode or None
        The program that takes a prompt in pieces, if it has another one.
    """

    decode: Decode
    first: int
    reader: Decode | None = None

    @property
    def label(self) -> str:
        """The group is called by its layers, of which the first is 1."""
        return f"layers {self.first + 1} to {self.first + self.decode.place.decoder.layers}"

    def tables(self, weights: Mapping[str, ArrayLike]) -> dict[str, Bits]:
        """Return what the host writes of the weights of a model, as `Decode.tables`."""
        return place_weights(replace(self.decode.place, first=self.first), self.decode.machine, weights)


@dataclass(frozen=True)
class OutputPart:
    """A `OutputPart` is some rows of the output matrix, behind the last norm, as a program of a mesh.

    Attributes
    ----------
    decode : Decode
        Of a decoder without layers that has these tokens only.
    first : int
        The first of its tokens.
    tied : bool
        Whether the model's output matrix is its embedding.
    """

    decode: Decode
    first: int
    tied: bool

    @property
    def count(self) -> int:
        """It has the logits of so many tokens."""
        return self.decode.place.decoder.vocabulary

    @property
    def label(self) -> str:
        """The part is called by its tokens."""
        return f"logits {self.first} to {self.first + self.count - 1}"

    def weights(self, weights: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return the tensors of this part, of those of a model."""
        rows = slice(self.first, self.first + self.count)
        found = {name: np.asarray(weights[name]) for name in weights if name.startswith("model.norm.")}
        found[HEAD] = np.asarray(weights[EMBEDDING if self.tied else HEAD][rows])
        if HEAD_BIAS in weights:
            found[HEAD_BIAS] = np.asarray(weights[HEAD_BIAS][rows])
        return found

    def tables(self, weights: Mapping[str, ArrayLike]) -> dict[str, Bits]:
        """Return what the host writes of the weights of a model, as `Decode.tables`."""
        return self.decode.tables(self.weights(weights))


class LayerGroups:
    """A `LayerGroups` has the programs of a decoder of which a mesh has some layers at a time.

    Parameters
    ----------
    machine : Machine
    place : DecoderPlacement
        Of the whole model.
    tokens : int
        Of prompt and answer together.
    each : int, optional
        Layers at a time; default: as many as fit.
    policy, answers
        As of `Decode`.
    pieces : (int, int), optional
        Tokens of a prompt, and how many of them a step takes; default: one.

    Attributes
    ----------
    each, size : int
        Layers at a time, tokens of a prompt in a step.
    groups : list of LayerGroup
    heads : list of OutputPart

    Raises
    ------
    ConfigError
        More layers at a time than there are, or none.
    PlanError
        A group, or a part of the output matrix, does not fit.
    """

    def __init__(
        self,
        machine: Machine,
        place: DecoderPlacement,
        tokens: int,
        each: int | None = None,
        policy: str = "shift",
        answers: int | None = None,
        pieces: tuple[int, int] | None = None,
    ) -> None:
        layers, option = place.decoder.layers, "--layers-at-a-time"
        if each is not None and not 1 <= each <= layers:
            raise ConfigError(f"{each} of {layers} layers at a time", where=option, hint=f"1 to {layers}")
        length, self.size = pieces or (0, 1)
        wide = Chunks.reading(place, self.size) if pieces else place
        self.machine, self.place, self.policy = machine, place, policy
        self.each = each or max(1, layers_that_fit(wide, machine))
        self.groups = []
        for (first, part), (_, reading) in zip(
            group_parts(place, self.each), group_parts(wide, self.each), strict=True
        ):
            where = f"group of {part.decoder.layers} layers" if part.decoder.layers > 1 else "layer"
            admit(reading, machine, tokens, policy, where)
            decode = Decode(machine, part, policy, begun=length, at_a_time=True)
            reader = Decode(machine, reading, policy, at_a_time=True) if pieces else None
            self.groups.append(LayerGroup(decode, first, reader))
        answers = place.decoder.vocabulary if answers is None else answers
        heads = head_parts(place, machine)
        if not heads:
            smallest = head_part(place, min(2 * place.width, place.decoder.vocabulary))
            admit(smallest, machine, tokens, policy, "part of the output matrix")
            raise PlanError("no part of the output matrix fits", where=option)
        self.heads = []
        for first, head in heads:
            may = min(max(0, answers - first), head.decoder.vocabulary)
            self.heads.append(
                OutputPart(Decode(machine, head, policy, answers=may, at_a_time=True), first, place.decoder.tied)
            )

    @property
    def readers(self) -> list[Decode]:
        """A prompt is taken by these programs of all groups: in pieces, or by those that decode."""
        return [group.reader or group.decode for group in self.groups]

    @property
    def parts(self) -> list[LayerGroup | OutputPart]:
        """All of these are loaded in a pass, one after the other."""
        return [*self.groups, *self.heads]

    @cached_property
    def words(self) -> dict[str, int]:
        """A PE needs so many words, by what they are, while it needs most."""
        places = [decode.place for decode in (*self.readers, *(part.decode for part in self.parts))]
        each = [needed_words(place) for place in places]
        return max(each, key=lambda found: sum(found.values()))
