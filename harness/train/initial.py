"""Training begins with parameters that are drawn at random, or that files give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.train import sparsity, weights
from harness.train.config import TrainConfig
from harness.train.shared import begin_alike
from memx.parameter import Parameter
from memx.pattern import Pattern
from memx.statistics import MOMENTUM, BatchStatistics
from memx.store import FileStore, MemoryStore, row_blocks
from wse_core.errors import ConfigError

__all__ = ["initial_parameters", "with_bias"]


def with_bias(mask: np.ndarray, bias: bool) -> Pattern:
    """Return the pattern of a layer's matrix: its mask, and the column of biases if it has one."""
    return Pattern.of_mask(np.concatenate([mask, np.ones((len(mask), int(bias)), bool)], axis=1))


def initial_parameters(
    config: TrainConfig, exponent_bias: int, slots: Sequence[str] = (), stores: Sequence[MemoryStore | FileStore] = ()
) -> tuple[list[Parameter], dict[int, Parameter], int]:
    """Return the parameters that training begins with.

    Weights are normal with a variance of 2 / (inputs x density), or as the configuration says; biases and shifts are 0,
    factors 1, unless files say otherwise: ``network.file``, ``network.weights``, and ``sparsity.masks``.

    Parameters
    ----------
    config : TrainConfig
    exponent_bias : int
        Of cb16.
    slots : sequence of str
        Optimizer state.
    stores : sequence of MemoryStore or FileStore, optional
        Where each layer's matrix lies; default in memory.

    Returns
    -------
    matrices : list of Parameter
    norms : dict[int, Parameter]
        By number of the layer from 0, or of the normalisation: factors (row 0) and shifts (row 1).
    updates : int
        That were made before, by what a file says.
    """
    rng, matrices = np.random.default_rng(config.seed), []
    norms: dict[int, Parameter] = {}
    for k, (one, mask) in enumerate(zip(config.matrices, sparsity.initial_masks(config), strict=True)):
        store, shape = stores[k] if stores else MemoryStore(), (one.outputs, one.inputs + one.bias)
        dense, spread = store.zeros(one.name, shape), one.deviation
        if spread is None:
            spread = math.sqrt(2 / max(1.0, mask.sum() / one.outputs))
        for first, end in row_blocks(shape):
            dense[first:end, : one.inputs] = rng.standard_normal((end - first, one.inputs)) * spread
        pattern = with_bias(mask, one.bias)
        matrices.append(Parameter(one.name, dense, config.dtype, exponent_bias, pattern, slots, store))
    for tensor in config.graph.parameters[len(matrices) :]:
        both = np.stack([np.ones(tensor.columns), np.zeros(tensor.columns)])[: tensor.rows]
        if tensor.name.endswith(".shift"):
            both = np.zeros((1, tensor.columns))  # of all others the first row begins with ones
        group = tensor.name.removesuffix(".norm")
        number = len(norms) if config.network.nodes else int(group.removeprefix("layer")) - 1
        norms[number] = Parameter(tensor.name, both, config.dtype, exponent_bias, slots=slots)
        if tensor in config.graph.over_batches:
            momentum = next(node.momentum for node in config.network.nodes if node.name == group)
            share = MOMENTUM if momentum is None else momentum
            epsilon = config.graph.batch_epsilon(tensor.name)
            norms[number].statistics = BatchStatistics(tensor.columns, share, epsilon)
    every = [*matrices, *(norms[k] for k in sorted(norms))]
    updates = _from_files(config, every)
    given = f"network.weights: {config.network.weights}" if config.network.weights else ""
    if config.tie is not None:
        config.tie.begin(matrices, given)
    begin_alike(config, every, given)
    return matrices, norms, updates


def _from_files(config: TrainConfig, parameters: Sequence[Parameter]) -> int:
    """Put what files say into parameters; return the updates that were made before."""
    folder, updates, rows = Path(config.source).parent, 0, [one.row for one in config.matrices]
    if config.network.file:
        from harness.train.onnx_file import read_onnx

        model = read_onnx(folder / config.network.file, config.network.masked, config.network.dropout)
        weights.put(model.tensors, parameters, rows, f"network.file: {config.network.file}")
        _without_zeros(config, parameters)
    for key, name, kinds in (
        ("sparsity.masks", config.sparsity.masks, (".mask",)),
        ("network.weights", config.network.weights, ()),
    ):
        if not name:
            continue
        tensors = weights.read(folder / name)
        if kinds:
            tensors = {tensor: values for tensor, values in tensors.items() if tensor.endswith(kinds)}
            if not tensors:
                raise ConfigError("has no masks", where=folder / name, hint="layer1.mask, layer2.mask, ...")
        elif config.sparsity.masks:
            tensors = {tensor: values for tensor, values in tensors.items() if not tensor.endswith(".mask")}
        slots = {slot for parameter in parameters for slot in parameter.state}
        if not slots:  # another optimizer, or none that remembers: its state is of no use
            tensors = {tensor: values for tensor, values in tensors.items() if _is_value(tensor)}
        updates = weights.put(tensors, parameters, rows, f"{key}: {folder / name}") or updates
    return updates


def _without_zeros(config: TrainConfig, parameters: Sequence[Parameter]) -> None:
    """Let zeros of constants not exist that put channels and pixels in other places: filters, products that turn."""
    stay = {
        f"{one.name}.weight"
        for one in config.network.nodes
        if one.fixed and (one.op in ("convolution", "transposed") or (one.op == "linear" and one.image))
    }
    for parameter in parameters:
        if parameter.name in stay and not parameter.dense.all():
            parameter.set_pattern(Pattern.of_mask(parameter.dense != 0))


def _is_value(name: str) -> bool:
    """Return whether a tensor is a value, a statistic or a mask, and no state of an optimizer."""
    return name.endswith((".weight", ".bias", ".mask", ".running_mean", ".running_var"))
