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
from fabric.networks.graph.lookup import Lookup, tables_of
from fabric.networks.streamed.parameters import StreamedParameter
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.script import RoundTrip, Script
from fabric.networks.streamed.writer import script_of
from memx.lookup import ChosenRows, chosen_numbers
from memx.parameter import Parameter
from memx.pattern import Pattern
from memx.statistics import BatchStatistics

__all__ = ["Coordinator"]

KEPT_SCRIPTS = 16
"""So many scripts are kept of a kind, of different numbers of rows that are looked up."""


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
    said : tuple of ndarray of int
        Numbers of each table of the network's look-ups whose rows go out.
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
        self._patterns: dict[tuple[int, int], Pattern] = {}
        nodes = [node for node in resident.network.nodes if node.op == Lookup.name]
        self._tables = tables_of(nodes[0]) if nodes else []
        self._columns = nodes[0].size("inputs") if nodes else 0
        names = {found.name for node in nodes if (found := resident.network.parameter(node)) is not None}
        self._looked_up = {number for number, name in enumerate(named) if name in names}
        self.said = tuple(np.arange(table.first, table.end) for table in self._tables)

    def choose(self, ids: NDArray[np.uint16]) -> None:
        """Let the rows of tables go out that samples ask for, whose numbers are given, shape (tables, samples)."""
        if self._tables:
            self.said = chosen_numbers(self._tables, ids)

    @property
    def streamed(self) -> list[StreamedParameter]:
        """The wafers are sent this of each parameter."""
        found = [parameter.streamed for parameter in self.parameters]
        for number in self._looked_up:
            columns = self._chosen(number)
            if len(columns) < found[number].pattern.shape[1]:
                found[number] = ChosenRows(found[number], columns, self._dense(number, len(columns)))
        return found

    def _chosen(self, number: int) -> NDArray[np.int64]:
        """Return the columns of a matrix, the rows of a table, that go out; a bias always does."""
        bias = np.arange(self._columns, self.parameters[number].dense.shape[1])
        return np.concatenate([*self.said, bias])

    def _dense(self, number: int, columns: int) -> Pattern:
        """Return the pattern of the columns that go out, the same for as many of them."""
        key = number, columns
        if key not in self._patterns:
            self._patterns[key] = Pattern.dense((len(self.parameters[number].dense), columns))
        return self._patterns[key]

    def of_chosen(self, number: int, values: NDArray[Any]) -> NDArray[Any]:
        """Return those of values, one for each that a parameter would stream whole, which belong to what goes out."""
        shape = self.parameters[number].dense.shape
        return values.reshape(shape)[:, self._chosen(number)].ravel() if number in self._looked_up else values

    def of_all(self, number: int, values: NDArray[Any], other: float = 0.0) -> NDArray[Any]:
        """Return values of what is asked for of a parameter, and another one of rows that no sample asks for."""
        if number not in self._looked_up:
            return values
        found = np.full(self.parameters[number].dense.shape, other, values.dtype)
        found[:, self._chosen(number)] = values.reshape(len(found), -1)
        return found.ravel()

    @property
    def unasked(self) -> int:
        """So many weights are updated for which no gradient comes: no sample has their number."""
        whole = {number: self.parameters[number].dense for number in self._looked_up}
        return sum(dense.size - len(dense) * len(self._chosen(number)) for number, dense in whole.items())

    @property
    def keys(self) -> dict[str, NDArray[np.uint16]]:
        """Each dropout goes by these numbers, by its name."""
        return {node.name: self.draw.keys(node) for node in self._drops}

    @property
    def made(self) -> int:
        """So many values of a script belong to no parameter, besides the loss scale."""
        said = len(self._words)
        return sum(kept.values().size for _, kept in self.over_batches) + KEYS * len(self._drops) + said

    @property
    def _words(self) -> NDArray[np.int64]:
        """These numbers are said, the last one for biases."""
        return np.concatenate([*self.said, [self._columns]]) if self._tables else np.empty(0, np.int64)

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
        sent = [parameter.streamed for parameter in self.parameters]
        kept = [(p.pattern, p.gradient_pattern) for p in sent]  # so that their ids stay theirs
        patterns = [(id(pattern), id(asked)) for pattern, asked in kept]
        if kind not in self._made or self._made[kind][0] != patterns:
            self._made[kind] = patterns, {}, kept
        scripts, counts = self._made[kind][1], tuple(map(len, self.said))
        if counts not in scripts:
            if len(scripts) == KEPT_SCRIPTS:
                del scripts[next(iter(scripts))]
            scripts[counts] = script_of(self.resident, kind, self.streamed, counts)
        found: Script = scripts[counts]
        return found

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
        sent = [p.values for p in self.streamed]
        values = np.concatenate([*sent, scale.astype(np.uint16), *made, *drawn, self._words])
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
