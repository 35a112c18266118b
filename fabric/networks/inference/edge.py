"""A decoder seen from the host: tokens go in as rows of the embedding, the next ones come out with their logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fabric.host.fabric import Fabric
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.tiles import embedding_rows
from wse_core.errors import ConfigError
from wse_core.formats import Bits

__all__ = ["Came", "Edge", "checked", "refuse_token"]


@dataclass(frozen=True)
class Came:
    """A `Came` is what one token gave: the next token, the logits, the cycles.

    Attributes
    ----------
    token : int
        The next token, the one with the largest logit.
    logits : ndarray of uint32, shape (vocabulary,)
        Bits of f32 numbers.
    begun, cycles : int
        The cycle in which the token begins to enter, and how many there are from then to that in which the next has
        left, hand-over to hand-over.
    """

    token: int
    logits: Bits
    begun: int
    cycles: int


def refuse_token(place: DecoderPlacement, token: int) -> None:
    """Refuse a token that does not exist."""
    vocabulary = place.decoder.vocabulary
    if not 0 <= token < vocabulary:
        raise ConfigError(f"token {token} does not exist", where="decoder", hint=f"0 .. {vocabulary - 1}", value=token)


def checked(found: float, logits: Bits, position: int) -> None:
    """Refuse an answer to the token at a position, a number and logits, that is no number."""
    if not np.isfinite(found) or not np.isfinite(logits.view(np.float32)).all():
        raise ConfigError(
            f"logits of token {position} are no finite numbers",
            where="decoder",
            hint="weights that overflow 16-bit numbers; cb16 has a larger range",
        )


class Edge:
    """An `Edge` is the host's side of a decoder: it sends tokens and receives the next ones.

    Parameters
    ----------
    fabric : Fabric
    first, last : Decode
        What tokens enter and what the next ones leave: the same, or the first and the last region of several.
    weights : mapping
        Tensors by the hub's names.
    most : int
        Tokens that the caches have room for, of all requests.

    Attributes
    ----------
    sent, received : int
        Tokens so far.
    """

    def __init__(
        self, fabric: Fabric, first: Decode, last: Decode, weights: Mapping[str, ArrayLike], most: int, sent: int = 0
    ) -> None:
        self.fabric, self.first, self.last, self.weights, self.most = fabric, first, last, weights, most
        self.sent = self.received = sent
        self._entered: list[int] = []
        self._left: list[tuple[int, float]] = []

    def send(self, token: int) -> None:
        """Let a token enter.

        Raises
        ------
        ConfigError
            No such token, or the cache is full.
        """
        place = self.first.place
        refuse_token(place, token)
        if self.sent >= self.most:
            each = self.most // place.requests
            raise ConfigError(f"the cache is full: it has room for {each} tokens of a request", where="decoder")
        rows = embedding_rows(place, self.first.machine, self.weights, token, self.sent // place.requests)
        for stream, chunk in zip(self.first.inputs, rows, strict=True):
            self.fabric.send(stream, chunk)
        self.sent += 1

    def go_on(self, count: int) -> None:
        """Forget what has left, and go on as if `count` tokens had entered and left."""
        self.has_left()
        self._left.clear()
        self.sent = self.received = count

    def has_left(self) -> bool:
        """Return whether a next token has left that is not taken yet."""
        left = self.fabric.receive(self.last.output)
        self._left += zip(left.cycles.tolist(), left.values("f32").tolist(), strict=True)
        return len(self._left) >= 2

    def begun(self) -> int:
        """Return the cycle in which the token that is taken next began to enter."""
        each = self.first.place.hidden // 2
        self._entered += [int(cycle) for cycle in self.fabric.entered(self.first.inputs[0])]
        first = self._entered[0]
        del self._entered[:each]
        return first

    def take(self, begun: int | None = None) -> Came:
        """Return what has left; `begun`: when it began, if no token entered for it.

        Raises
        ------
        ConfigError
            The logits are no numbers.
        """
        (_, found), (cycle, _) = self._left[:2]
        del self._left[:2]
        logits = self.logits()
        checked(found, logits, self.received if begun is None else self.received - 1)
        if begun is None:
            begun = self.begun()
            self.received += 1
        return Came(int(found), logits, begun, cycle + 1 - begun)

    def logits(self) -> Bits:
        """Return the bits of the logits of the token that left, as the PEs of row 0 hold them."""
        place = self.last.place
        found = self.fabric.read("logits", self.last.column, 0, place.width, 1)[0].view(np.uint32)
        return found[place.ids >= 0]
