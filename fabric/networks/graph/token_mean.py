"""The mean over the tokens of a sequence: each of its tokens is given that of all of them.

``y_i = r(sum_t x_t / tokens of the sequence)``; sums and the product with one over their number are f32.  Tokens keep
their places, so a network that classifies sequences has the label at the first one.  What goes forward goes back: the
gradient of a token is the mean of those of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from wse_core.errors import ConfigError

__all__ = ["TokenMean"]


class TokenMean(NetworkOperation):
    """This operation takes the mean over a sequence, whose tokens are ``sequence`` of its node."""

    name, meaning = "tokenmean", "y = mean of x over the tokens of a sequence"
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode has no tokens that see each other"}

    def features(self, node: Node, given: int) -> int:
        if node.size("sequence") < 1:
            raise ConfigError(f"{node.name}: a sequence of {node.size('sequence')} tokens", where="graph")
        return given

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        return _mean(a, node, x), None

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        return _mean(a, node, delta), None


def _mean(a: PlainArithmetic, node: Node, rows: Floats) -> Floats:
    """Return the mean over the tokens of each sequence, as often as it has tokens."""
    sequence = node.size("sequence")
    if len(rows) % sequence:
        raise ConfigError(f"{node.name}: {len(rows)} tokens are no whole sequences of {sequence}", where="batch")
    sums = rows.reshape(-1, sequence, rows.shape[1]).sum(1)
    return a.round(sums * a.dtype.type(1 / sequence)).repeat(sequence, axis=0)
