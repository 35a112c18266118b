"""Gradients as they train weights: what several places share is added up, what nothing trains is zero.

Numbers of a ``scale`` may be repeated over its channels (`harness.train.tables.NodeConfig.shared`): a factor of all
channels, or those of the features of a head in every head; so may factors and shifts of a ``groupnorm``, and biases of
scores of attention (`harness.train.tables.NodeConfig.biases`). Several nodes may have the numbers of one
(`harness.train.tables.NodeConfig.shares`), as modules have that are called several times. The memory service has each
number as often as it is used, equal in every bit: the gradients of all copies are added in f32, in their order, and
every copy is updated with the sum. `harness.train.lookup` has the table of tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.train.lookup import first_product, without_padding
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.schema import suggestion

if TYPE_CHECKING:
    from fabric.networks.graph.tensors import NetworkTensor
    from harness.train.config import TrainConfig
    from harness.train.tables import NodeConfig
    from memx.parameter import Parameter

__all__ = ["begin_alike", "check_shared", "counted_once", "fixed", "kept", "trained"]

KINDS = ("weight", "norm", "shift", "scale")
"""A parameter is called after its node and one of these."""


def check_shared(config: TrainConfig) -> None:
    """Refuse numbers that do not divide the channels over which they are repeated."""
    for _, (shared, channels, where) in _repeated(config):
        if channels % shared:
            raise ConfigError(f"{shared} numbers are not repeated over {channels} channels", where=where, value=shared)
    held = {tensor.name: tensor for tensor in config.graph.parameters}
    seen: dict[str, NodeConfig] = {}
    for at, node in enumerate(config.network.nodes):
        first, where = seen.get(node.shares), f"network.nodes[{at}].shares"
        seen[node.name] = node
        if not node.shares:
            continue
        if first is None:
            what = f"there is no {node.shares!r} before {node.name!r}"
            raise ConfigError(what, where=where, hint=suggestion(node.shares, seen))
        one, other = (_numbers(held, name) for name in (node.name, node.shares))
        alike = node.op == first.op and node.fixed == first.fixed and node.fixed_outputs == first.fixed_outputs
        if not one or not alike or [*one.values()] != [*other.values()] or node.bias != first.bias:
            raise ConfigError(f"{node.name!r} has no numbers like those of {node.shares!r}", where=where)
        if node.op == "batchnorm" or first.shares or node.shared is not None:
            what = "statistics of two batches" if node.op == "batchnorm" else "numbers that are others' already"
            raise UnsupportedError(f"{node.name!r} shares {what}", where=where, feature="shared parameters")
        if config.sparsity.masks or config.sparsity.schedule != "static" or config.densities != {1.0}:
            raise ConfigError("weights that are shared have no gaps", where=where, hint="sparsity.density = 1")


def _numbers(held: Mapping[str, NetworkTensor], name: str) -> dict[str, tuple[int, int]]:
    """Return the sizes of the parameters of a node, by kind."""
    found = {kind: held.get(f"{name}.{kind}") for kind in KINDS}
    return {kind: (one.rows, one.columns) for kind, one in found.items() if one is not None}


def _alike(config: TrainConfig) -> list[list[int]]:
    """Return numbers of parameters that are one, in the order of their nodes."""
    numbers = {tensor.name: number for number, tensor in enumerate(config.graph.parameters)}
    found = defaultdict[str, list[int]](list)
    for node in config.network.nodes if any(node.shares for node in config.network.nodes) else ():
        for kind in KINDS:
            if f"{node.name}.{kind}" in numbers:
                found[f"{node.shares or node.name}.{kind}"].append(numbers[f"{node.name}.{kind}"])
    return [group for group in found.values() if len(group) > 1]


def begin_alike(config: TrainConfig, parameters: Sequence[Parameter], given: str = "") -> None:
    """Let parameters that are one begin with the same numbers, and the same state of their optimizer.

    Raises
    ------
    ConfigError
        What was `given` has others for them.
    """
    for group in _alike(config):
        first = parameters[group[0]]
        for number in group[1:]:
            other = parameters[number]
            both = [(first.dense, other.dense), *((first.state[slot], other.state[slot]) for slot in first.state)]
            if given and not all(np.array_equal(one, array) for one, array in both):
                what = f"{first.name} and {other.name} share numbers, and differ there"
                raise ConfigError(what, where=given, hint="equal ones")
            other.dense[...] = first.dense
            other.refresh()


def trained(config: TrainConfig, matrices: Sequence[Parameter], gradients: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the gradients that weights are updated with.

    Parameters
    ----------
    config : TrainConfig
    matrices : sequence of Parameter
    gradients : sequence of ndarray of float32
        Per parameter, a number per weight.
    """
    found = without_padding(config, matrices, gradients)
    for number, where in fixed(config):
        trains = np.ones(config.graph.parameters[number].shape, bool)
        trains[where] = False
        exist = trains.reshape(-1)
        if exist.size != found[number].size:  # a matrix with gaps
            exist = exist[matrices[number].pattern.flat]
        found[number] = np.where(exist, found[number], np.float32(0))
    if config.tie is not None:
        found = config.tie.added(matrices, found)
    for group in _alike(config):
        total = found[group[0]]
        for number in group[1:]:
            total = total + found[number]
        for number in group:
            found[number] = total
    for number, first in _indexed(config):
        total = np.zeros_like(found[number])
        np.add.at(total, first, found[number])
        found[number] = total[first]
    for number, (shared, channels, _) in _repeated(config):
        copies = found[number].reshape(-1, channels // shared, shared)  # of factors, and perhaps of shifts
        total = np.zeros((len(copies), shared), copies.dtype)
        for copy in range(copies.shape[1]):
            total = total + copies[:, copy]
        found[number] = np.tile(total, channels // shared).reshape(-1)
    return found


def _indexed(config: TrainConfig) -> Iterator[tuple[int, np.ndarray]]:
    """Give the number of each parameter that biases of scores are, and of each of its numbers the first that is one."""
    numbers = {tensor.name: (number, tensor.columns) for number, tensor in enumerate(config.graph.parameters)}
    for node in config.network.nodes:
        if node.biases:
            number, columns = numbers[f"{node.name}.shift"]
            _, first, which = np.unique(node.biases, return_index=True, return_inverse=True)
            of_head = np.arange(0, columns, len(node.biases))
            yield number, (of_head[:, None] + first[which]).ravel()


def fixed(config: TrainConfig) -> Iterator[tuple[int, tuple[Any, Any]]]:
    """Give the number of each parameter that is not trained, and which rows and columns of it are not."""
    numbers = {tensor.name: number for number, tensor in enumerate(config.graph.parameters)}
    for node in config.network.nodes:
        for name in (f"{node.name}.{kind}" for kind in ("weight", "norm", "shift", "scale") if node.fixed):
            if name in numbers:
                yield numbers[name], (slice(None), slice(None))
        if node.fixed_outputs:
            yield numbers[f"{node.name}.weight"], (list(node.fixed_outputs), slice(None))
    places, first = config.network.places, first_product(config)
    counts = places[::3]
    for table in config.network.fixed_places:
        assert first is not None
        begin = config.network.inputs - sum(counts[table:])
        yield first, (slice(None), slice(begin, begin + counts[table]))


@contextmanager
def kept(config: TrainConfig, parameters: Sequence[Parameter]) -> Iterator[None]:
    """Let weights that are not trained stay what they are meanwhile, also where an optimizer lets weights decay."""
    held = [(number, where, np.array(parameters[number].dense[where])) for number, where in fixed(config)]
    yield
    for number, where, values in held:
        parameters[number].dense[where] = values
        parameters[number].refresh()


def counted_once(
    config: TrainConfig, matrices: Sequence[Parameter], gradients: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return gradients for a norm: what is shared counts once."""
    found = list(gradients) if config.tie is None else config.tie.once(matrices, gradients)
    for number, (shared, channels, _) in _repeated(config):
        first = np.arange(found[number].size) % channels < shared
        found[number] = np.where(first, found[number], np.float32(0))
    for number, which in _indexed(config):
        found[number] = np.where(np.arange(which.size) == which, found[number], np.float32(0))
    for group in _alike(config):
        for number in group[1:]:
            found[number] = np.zeros_like(found[number])
    return found


def _repeated(config: TrainConfig) -> Iterator[tuple[int, tuple[int, int, str]]]:
    """Give the number of each parameter that is repeated, and (numbers that it has, channels, key of it)."""
    names = {tensor.name: (number, tensor) for number, tensor in enumerate(config.graph.parameters)}
    for at, node in enumerate(config.network.nodes):
        if node.shared is not None:
            number, tensor = names[f"{node.name}.{'scale' if node.op == 'scale' else 'norm'}"]
            yield number, (node.shared, tensor.columns, f"network.nodes[{at}].shared")
