"""The coordinator of the memory service: what is streamed in an iteration, filled in with the present values.

It keeps the parameters; the words of an iteration are those of the network's operations
(`fabric.networks.streamed.writer`), laid out once per sparsity pattern.

Source: weight streaming white paper, sections 4.3 (order of an iteration), 7.4 (one value array).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.script import Script
from fabric.networks.streamed.writer import script_of
from memx.parameter import Parameter

__all__ = ["Coordinator"]


class Coordinator:
    """Keeps the parameters of a network and makes its scripts.

    Parameters
    ----------
    resident : Resident
        The network on its wafers.
    matrices : list of Parameter
        Weights of each product; a bias is the last column.
    norms : dict[int, Parameter]
        Factors (row 0) and shifts (row 1) of the normalised layers, by number of the layer from 0.

    Attributes
    ----------
    parameters : list of Parameter
        All of them, in the order of `fabric.networks.graph.network.Network.parameters`: their numbers in scripts.
    """

    def __init__(self, resident: Resident, matrices: Sequence[Parameter], norms: dict[int, Parameter]) -> None:
        self.resident, self.matrices, self.norms = resident, list(matrices), dict(norms)
        self.parameters = [*self.matrices, *(self.norms[k] for k in sorted(self.norms))]
        self._made: dict[str, Any] = {}

    def script(self, kind: str) -> Script:
        """Return the `Script` of an iteration: ``train``, or ``test`` (forward, then how many samples are right).

        Raises
        ------
        ConfigError
            A matrix with gaps, for wafers whose programs take pairs of weights only.
        """
        kept = [(p.pattern, p.gradient_pattern) for p in self.parameters]  # so that their ids stay theirs
        patterns = [(id(pattern), id(asked)) for pattern, asked in kept]
        if kind not in self._made or self._made[kind][0] != patterns:
            self._made[kind] = patterns, script_of(self.resident, kind, self.parameters), kept
        return self._made[kind][1]

    def streams(self, kind: str, loss_scale: float = 1.0) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return [(payload, is control)] per column for the present values.

        Parameters
        ----------
        kind : {"train", "test"}
        loss_scale : float
            A power of two.
        """
        scale = np.array([loss_scale], np.float32).view(np.uint32) >> np.uint32(16)
        values = np.concatenate([*(p.values for p in self.parameters), scale.astype(np.uint16)]).astype(np.uint32)
        return self.script(kind).fill(values)
