"""The coordinator of the memory service fills in what is streamed in an iteration with the present values.

It keeps the parameters; the words of an iteration are those of the network's operations
(`fabric.networks.streamed.writer`), laid out once per sparsity pattern.

Source: weight streaming white paper, sections 4.3 (order of an iteration), 7.4 (one value array).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.dropout import KEYS, Draw, drops_of
from fabric.networks.streamed.parameters import StreamedParameter
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.script import RoundTrip, Script
from fabric.networks.streamed.writer import script_of
from memx.parameter import Parameter
from memx.statistics import BatchStatistics

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
    draw : Draw
        What dropout goes by in the pass that is under way.
    over_batches : list of (Parameter, BatchStatistics)
        What normalises over batches, in the order of the network: its tables of values in scripts.
    """

    def __init__(self, resident: Resident, matrices: Sequence[Parameter], norms: dict[int, Parameter]) -> None:
        self.resident, self.matrices, self.norms = resident, list(matrices), dict(norms)
        self.parameters = [*self.matrices, *(self.norms[k] for k in sorted(self.norms))]
        named = dict(zip((tensor.name for tensor in resident.network.parameters), self.parameters, strict=True))
        self.over_batches = []
        for tensor in resident.network.over_batches:
            parameter = named[tensor.name]
            epsilon = resident.network.batch_epsilon(tensor.name)
            parameter.statistics = parameter.statistics or BatchStatistics(tensor.columns, epsilon=epsilon)
            self.over_batches.append((parameter, parameter.statistics))
        self._drops = drops_of(resident.network.nodes)
        self.draw = Draw()
        self._made: dict[str, Any] = {}

    @property
    def streamed(self) -> list[StreamedParameter]:
        """The wafers are sent this of each parameter."""
        return [parameter.streamed for parameter in self.parameters]

    @property
    def keys(self) -> dict[str, NDArray[np.uint16]]:
        """Each dropout goes by these numbers, by its name."""
        return {node.name: self.draw.keys(node) for node in self._drops}

    @property
    def made(self) -> int:
        """So many values of a script belong to no parameter, besides the loss scale."""
        return sum(kept.values().size for _, kept in self.over_batches) + KEYS * len(self._drops)

    def script(self, kind: str) -> Script:
        """Return the `Script` of an iteration: ``train``, or ``test`` (forward, then how many samples are right).

        Raises
        ------
        ConfigError
            A matrix with gaps, for wafers whose programs take pairs of weights only.
        """
        for tensor, matrix in zip(self.resident.network.parameters, self.matrices, strict=False):
            matrix.by_rows = self.resident.asks_rows(tensor.name, matrix.pattern.density)
            matrix.whole = self.resident.sends_whole(tensor.name, matrix.pattern.density)
        sent = self.streamed
        kept = [(p.pattern, p.gradient_pattern) for p in sent]  # so that their ids stay theirs
        patterns = [(id(pattern), id(asked)) for pattern, asked in kept]
        if kind not in self._made or self._made[kind][0] != patterns:
            self._made[kind] = patterns, script_of(self.resident, kind, sent), kept
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
        made = [statistics.values() for _, statistics in self.over_batches]
        script = self.script(kind)
        drawn = self.keys.values()
        values = np.concatenate([*(p.values for p in self.streamed), scale.astype(np.uint16), *made, *drawn])
        return script.fill(values.astype(np.uint32))

    # --- batches ------------------------------------------------------------------------------------------------------

    def begin(self, kind: str) -> None:
        """Begin a pass; `kind` as of `streams`."""
        for _, statistics in self.over_batches:
            statistics.begin(kind)

    def answer(self, trip: RoundTrip, sums: NDArray[np.float32], samples: int) -> None:
        """Take sums over a batch, that of all wafers; what `streams` returns has from now on what is made of them."""
        parameter, statistics = self.over_batches[trip.table]
        parts = sums.reshape(2, statistics.channels)
        count = samples * self.resident.network.pixels(parameter.name)
        if trip.direction == "forward":
            statistics.forward(parts, count)
        else:
            statistics.back(parts, count, parameter.rounded()[0])

    def end(self) -> None:
        """End an iteration: running statistics take its batches."""
        for _, statistics in self.over_batches:
            statistics.end()
