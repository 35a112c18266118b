"""Dropout sets some numbers to zero, others in each iteration, and makes the rest larger by as much; tests go without.

Whether a number stays is told by 16 bits, which follow from the seed of a training, the iteration, the dropout's number
in the network, the feature and the number of the token in the batch, and from nothing else: not from the mesh, nor from
how many wafers there are or how often a run was interrupted.  The memory service makes `KEYS` numbers of 16 bits from
the first three (`Draw.keys`).  A PE makes the bits from these, the feature and the token, by rounds of the cipher Speck
with words of 16 bits: additions, turns and exclusive sums alone.

    x = token turned left by 7, y = feature; per key: x = ((x turned right by 7) + y) xor key, y = (y turned left by 2)
    xor x; a number stays if the upper 15 bits of x are not below 2^15 times the ratio

Its factor is 1 / (1 - ratio), rounded to 16 bits as weights are.  Of channels that are dropped whole all pixels have
the number of the channel as feature.

Sources: N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014; R. Beaulieu et
al., "The Simon and Speck families of lightweight block ciphers", 2013 (Speck32, whose rounds with 22 keys are a cipher;
here they only scatter).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.nodes import Node, of_size
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from wse_core.errors import ConfigError, UnsupportedError

__all__ = ["KEYS", "MOST_DRAWN", "Draw", "Dropout", "drops_of", "level_of", "ratio_of"]

KEYS = 6
"""So many numbers of 16 bits are drawn for each dropout in each iteration."""
MOST_DRAWN = 2**16
"""Features, and tokens of a batch, have numbers of 16 bits."""


class Draw(NamedTuple):
    """A `Draw` says by which numbers the dropout of an iteration goes.

    Attributes
    ----------
    seed : int
    iteration : int
    first : int
        Number in the batch of the first token that is worked on.
    """

    seed: int = 0
    iteration: int = 0
    first: int = 0

    def keys(self, node: Node) -> NDArray[np.uint16]:
        """Return the keys of a dropout, the first one first."""
        words = np.random.SeedSequence((self.seed, self.iteration, node.size("number"))).generate_state(KEYS)
        return (words >> np.uint32(16)).astype(np.uint16)


def ratio_of(node: Node) -> float:
    """Return the share of the numbers that a dropout drops."""
    return of_size(node.size("ratio"))


def level_of(node: Node) -> int:
    """Return the number of 15 bits from which on a number stays."""
    return max(1, min(2**15 - 1, round(ratio_of(node) * 2**15)))


def drops_of(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes of a network that drop numbers."""
    return [node for node in nodes if node.op == Dropout.name]


def kept(node: Node, features: int, tokens: int, draw: Draw) -> NDArray[np.bool_]:
    """Return which numbers stay, shape (tokens, features)."""

    def turned(bits: NDArray[np.uint16], left: int) -> NDArray[np.uint16]:
        return (bits << np.uint16(left)) | (bits >> np.uint16(16 - left))

    x = turned((draw.first + np.arange(tokens)).astype(np.uint16)[:, None], 7)
    y = (np.arange(features) // node.size("together")).astype(np.uint16)[None]
    for key in draw.keys(node):
        x = (turned(x, 9) + y) ^ key
        y = turned(y, 2) ^ x
    return np.asarray(x >> np.uint16(1) >= level_of(node))


class Dropout(NetworkOperation):
    """This operation drops some numbers: in training they are zero.

    Its node has the bits of the ratio in f32 as ``ratio``, its ``number`` among those of the network, and how many
    neighbouring features are dropped ``together``.
    """

    name, meaning = "dropout", "y = x / (1 - ratio) or 0, in training"
    featurewise, training = True, True
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode draws nothing"}

    def features(self, node: Node, given: int) -> int:
        if not 0 < ratio_of(node) < 1:
            raise ConfigError(f"{node.name}: dropout of a share of {ratio_of(node):g}", where="network", hint="0.1")
        together = node.size("together")
        if given % together:
            raise ConfigError(f"{node.name}: {given} features in planes of {together}", where="network")
        if given // together > MOST_DRAWN:
            what = f"{node.name}: dropout of {given // together} features, which have numbers of 16 bits"
            raise UnsupportedError(what, feature="dropout", where="network", hint="whole channels, or none")
        return given

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        if a.draw is None:
            return x, None
        factor = a.round(np.array(1 / (1 - ratio_of(node)), a.dtype))
        factors = np.where(kept(node, x.shape[1], len(x), a.draw), factor, a.dtype.type(0))
        return self.plain_back(a, node, x, factors, None)[0], factors

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        return (delta if kept is None else a.round(np.where(kept != 0, delta * kept, 0))), None
