"""Gradients as they train weights: what several places share is added up, what nothing trains is zero.

Numbers of a ``scale`` may be repeated over its channels (`harness.train.tables.NodeConfig.shared`): a factor of all
channels, or those of the features of a head in every head.  The memory service has each of them as often as there are
channels, equal in every bit: the gradients of all copies are added in f32, in their order, and every copy is updated
with the sum.  `harness.train.lookup` has the table of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.train.lookup import first_product, without_padding
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig
    from memx.parameter import Parameter

__all__ = ["check_shared", "counted_once", "fixed", "kept", "trained"]


def check_shared(config: TrainConfig) -> None:
    """Refuse numbers that do not divide the channels over which they are repeated."""
    for _, (shared, channels, where) in _repeated(config):
        if channels % shared:
            raise ConfigError(f"{shared} numbers are not repeated over {channels} channels", where=where, value=shared)


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
        whole = found[number].reshape(config.graph.parameters[number].shape).copy()
        whole[where] = 0
        found[number] = whole.reshape(-1)
    if config.tie is not None:
        found = config.tie.added(matrices, found)
    for number, (shared, channels, _) in _repeated(config):
        copies = found[number].reshape(-1, shared)
        total = np.zeros(shared, copies.dtype)
        for own in copies:
            total = total + own
        found[number] = np.tile(total, channels // shared)
    return found


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
    for number, (shared, _, _) in _repeated(config):
        found[number] = np.where(np.arange(found[number].size) < shared, found[number], np.float32(0))
    return found


def _repeated(config: TrainConfig) -> Iterator[tuple[int, tuple[int, int, str]]]:
    """Give the number of each parameter that is repeated, and (numbers that it has, channels, key of it)."""
    names = {tensor.name: (number, tensor) for number, tensor in enumerate(config.graph.parameters)}
    for at, node in enumerate(config.network.nodes):
        if node.shared is not None:
            number, tensor = names[f"{node.name}.{'scale' if node.op == 'scale' else 'norm'}"]
            yield number, (node.shared, tensor.columns, f"network.nodes[{at}].shared")
