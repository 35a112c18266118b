"""The table that the first product looks tokens up in: its padding is not trained, and another product may share it.

Where weights are streamed, samples that are numbers of tokens go to the wafers as such (`by_number`): a number of the
token and one of each of its places, two bytes each, and one of its class.

A product that shares it multiplies with it, turned.  The memory service has both, equal in every bit: both gradients
are added in f32, that of the last product first, and both weights are updated with the sum, so that they stay equal
with any optimizer, which works number by number.  Norms count the sum once.

Source: O. Press and L. Wolf, "Using the output embedding to improve language models", 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fabric.networks.graph.lookup import Lookup, by_number, no_number, tables_of
from fabric.networks.graph.tensors import INPUT
from harness.train.text import TokenRows
from memx.lookup import chosen_numbers
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic

if TYPE_CHECKING:
    from fabric.networks.graph.network import Network
    from harness.train.config import TrainConfig
    from harness.train.sources import Samples
    from memx.parameter import Parameter

__all__ = ["Tie", "first_product", "numbered", "numbers_in", "rows_of_batch", "without_padding"]


def first_product(config: TrainConfig) -> int | None:
    """Return the number of the matrix that alone multiplies the samples, besides fixed ones; None if there is none."""
    stays = {node.name for node in config.network.nodes if node.fixed}
    takes = [node.name.rpartition(".")[0] for node in config.graph.nodes if INPUT in node.inputs]
    takes = [name for name in takes if name not in stays]
    found = [k for k, matrix in enumerate(config.matrices) if [matrix.name] == [f"{name}.weight" for name in takes]]
    return found[0] if found else None


def without_padding(
    config: TrainConfig, matrices: Sequence[Parameter], gradients: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return gradients, zeros where the first product would train the row of the token that fills sequences."""
    found, number = list(gradients), first_product(config) if config.network.padding is not None else None
    if number is not None:
        whole = found[number].reshape(matrices[number].dense.shape).copy()
        whole[:, config.network.padding] = 0
        found[number] = whole.reshape(-1)
    return found


def numbered(config: TrainConfig, network: Network, samples: Samples) -> Network:
    """Return the network that takes numbers of tokens where samples are such, or the same one.

    Smoothed labels are no numbers of classes.
    """
    if not isinstance(samples, TokenRows) or not samples.vocabulary:
        return network
    half = Arithmetic.of(config.build_machine(), network.dtype)
    marks = [0 if mark == 1 else int(half.encode(mark)) for mark in samples.marks]
    return by_number(network, samples.rows, marks, not config.train.label_smoothing) or network


def rows_of_batch(config: TrainConfig, network: Network, batch: int) -> tuple[int, ...]:
    """Return how many rows of each table go out for a batch of so many of the first samples; none are looked up: ()."""
    node = next((node for node in network.nodes if node.op == Lookup.name), None)
    rows = config.dataset.x_train if node is not None else None
    if node is None or not isinstance(rows, TokenRows):
        return ()
    return tuple(map(len, chosen_numbers(tables_of(node), rows.numbers(slice(0, batch)).T)))


def numbers_in(network: Network, rows: np.ndarray) -> np.ndarray:
    """Return the numbers of samples that are ones among zeros, or zeros: ndarray of uint16, shape (samples, tables).

    Raises
    ------
    ConfigError
        A sample has more than one number of a table.
    """
    node, found = next(node for node in network.nodes if node.op == Lookup.name), []
    for first, end, _ in tables_of(node):
        there = rows[:, first:end] != 0
        if (there.sum(1) > 1).any():
            raise ConfigError("samples are no numbers of tokens", where="data", hint="a one among zeros for each table")
        found.append(np.where(there.any(1), first + there.argmax(1), no_number(network)))
    return np.stack(found, axis=1).astype(np.uint16)


class Tie(NamedTuple):
    """A `Tie` says which two matrices of a network share weights.

    Attributes
    ----------
    last, first : int
        Numbers of the matrices, in the order of `TrainConfig.matrices`.
    tokens, features : int
        Rows of the table, and of what is shared of the last matrix; its columns.
    """

    last: int
    first: int
    tokens: int
    features: int

    @classmethod
    def of(cls, config: TrainConfig) -> Tie | None:
        """Return what `network.tied` says; None if it says nothing.

        Raises
        ------
        ConfigError
            No such product, sizes that do not fit, matrices with gaps.
        """
        name, where = config.network.tied, "network.tied"
        if not name:
            return None
        tokens = config.network.inputs - sum(config.network.places[::3])
        names, first_one = [matrix.name.removesuffix(".weight") for matrix in config.matrices], first_product(config)
        if name not in names or first_one is None or names[first_one] == name:
            hint = f"one of {', '.join(names[1:])}" if len(names) > 1 else "a product behind the first one"
            raise ConfigError(f"{name!r} shares no table with a first product", where=where, hint=hint)
        found = cls(names.index(name), first_one, tokens, config.matrices[names.index(name)].inputs)
        last, first = config.matrices[found.last], config.matrices[found.first]
        if first.outputs != last.inputs or last.outputs > first.inputs or len(last.row) != 1 or len(first.row) != 1:
            what = f"{last.name} of {last.outputs} x {last.inputs} is no part of {first.name}, turned"
            raise ConfigError(f"{what}: {first.outputs} x {first.inputs}", where=where, value=name)
        if config.sparsity.masks or {last.density, first.density} != {1.0} or config.sparsity.schedule != "static":
            raise ConfigError("weights that are shared have no gaps", where=where, hint="sparsity.density = 1")
        return found._replace(tokens=last.outputs)

    def begin(self, matrices: Sequence[Parameter], given: str = "") -> None:
        """Let the last product begin with the table of the first one.

        Raises
        ------
        ConfigError
            What was `given` has others for the two, or another state of their optimizer.
        """
        last, first = matrices[self.last], matrices[self.first]
        both = [(last.dense, first.dense), *((last.state[slot], first.state[slot]) for slot in last.state)]
        for ours, table in both if given else ():
            if not np.array_equal(ours[:, : self.features], table[: self.features, : self.tokens].T):
                what = f"{last.name} and {first.name} share weights, and differ there"
                raise ConfigError(what, where=given, hint="network.tied = '', or equal ones")
        last.dense[:, : self.features] = first.dense[: self.features, : self.tokens].T
        last.refresh()

    def added(self, matrices: Sequence[Parameter], gradients: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the gradients of all parameters, those of shared weights added, in both.

        Parameters
        ----------
        matrices : sequence of Parameter
        gradients : sequence of ndarray of float32
            Per parameter, a number per weight.
        """
        found = list(gradients)
        last, first = (found[k].reshape(matrices[k].dense.shape).copy() for k in (self.last, self.first))
        whole = last[:, : self.features] + first[: self.features, : self.tokens].T
        last[:, : self.features], first[: self.features, : self.tokens] = whole, whole.T
        found[self.last], found[self.first] = last.reshape(-1), first.reshape(-1)
        return found

    def once(self, matrices: Sequence[Parameter], gradients: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return gradients for a norm: what is shared counts once."""
        found = list(gradients)
        last = found[self.last].reshape(matrices[self.last].dense.shape).copy()
        last[:, : self.features] = 0
        found[self.last] = last.reshape(-1)
        return found
