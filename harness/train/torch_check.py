"""A module of PyTorch and the network that was read from its file have one loss and one gradient.

A file has what a module calculates, and not what it leaves out on the way back: `detach`, `no_grad`, hooks, gradients
that are scaled by how often a token occurs.  So both calculate them once, of the example, in f64.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.networks.graph.plain import PlainGraph
from harness.kit.modules import need
from harness.train import weights
from harness.train.data import Dataset, looked_up
from harness.train.initial import initial_parameters
from harness.train.patches import patched
from harness.train.shared import trained
from harness.train.tables import SparsityConfig
from wse_core import numerics
from wse_core.errors import UnsupportedError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig
    from harness.train.onnx_reader import OnnxNetwork
    from harness.train.torch_example import TorchExample

__all__ = ["check_gradients"]

NEAR, FAR = 2e-3, 1e-5
"""Gradients differ by less than this share of the largest of their parameter, or of all."""


def check_gradients(module: Any, example: TorchExample, config: TrainConfig, read: OnnxNetwork) -> None:
    """Refuse a module whose loss or gradients are not those of the network that was read.

    Parameters
    ----------
    module : torch.nn.Module
    example : TorchExample
    config : TrainConfig
        Of the network that was read.
    read : OnnxNetwork

    Raises
    ------
    UnsupportedError
        A parameter whose gradient differs, by name; or another loss.
    """
    hooked = [name for name, one in module.named_parameters() if getattr(one, "_backward_hooks", None)]
    if hooked:
        what = f"{', '.join(hooked)}: its gradient is another one in PyTorch, where a hook changes it"
        raise UnsupportedError(what, where="module", feature="gradients", hint="no register_hook")
    if config.sparsity.schedule == "sparse-ift":  # a wider network than the module's
        return
    network = dataclasses.replace(config.network, weights="")  # the weights of the module, all of them
    config = dataclasses.replace(config, network=network, sparsity=SparsityConfig())
    found_loss, found, error = math.nan, dict[str, np.ndarray](), None
    for wide in (True, False):  # what casts numbers itself, or has masks of another type, is calculated as it wants
        try:
            loss, wanted, labels = _of_module(module, example, config, read, wide)
        except RuntimeError:
            if not wide:
                raise
            continue
        if not found:
            found_loss, found = _of_network(example.samples.detach().numpy(), labels, config, read)
        error = _difference(loss, wanted, found_loss, found)
        if error is None:
            return
    if error is not None:
        raise error


def _difference(
    loss: float, wanted: dict[str, np.ndarray], found_loss: float, found: dict[str, np.ndarray]
) -> UnsupportedError | None:
    """Return what is said of a loss or a gradient that differs; None if none does."""
    if not math.isclose(loss, found_loss, rel_tol=NEAR, abs_tol=NEAR):
        return UnsupportedError(
            f"the module has a loss of {loss:g} on the example, what was read from its file {found_loss:g}",
            where="module",
            feature="onnx",
            hint="functions of very large numbers, or operations that the file does not say",
        )
    largest = max((float(np.abs(array).max()) for array in wanted.values()), default=0.0)
    for name, array in wanted.items():
        apart = float(np.abs(array - found[name]).max()) if name in found else 0.0
        if apart > NEAR * float(np.abs(array).max()) + FAR * largest:
            return UnsupportedError(
                f"{name}: its gradient is another one in PyTorch than that of the operations of the file",
                where="module",
                feature="gradients",
                hint="no detach, no_grad, hooks, scale_grad_by_freq, nor padding_idx of another table than the tokens'",
            )
    return None


def _of_module(
    module: Any, example: TorchExample, config: TrainConfig, read: OnnxNetwork, wide: bool
) -> tuple[float, dict[str, np.ndarray], np.ndarray]:
    """Return the loss, gradients by name, and the labels that were drawn, as rows of the network have them."""
    torch = need("torch", "a PyTorch module")
    twin = copy.deepcopy(module).train()
    with _nothing_dropped(torch):
        logits = example.called(twin.double() if wide else twin, wide)
    if config.targets:
        return _of_targets(twin, logits, config, read)
    planes = bool(read.planes) and not read.by_token
    shape = (len(logits), *logits.shape[2:]) if planes else tuple(logits.shape[:-1])
    labels = np.random.default_rng(0).integers(0, config.classes, shape)
    padded = np.isin(example.samples.detach().numpy(), read.ending)
    if read.ending and labels.shape == padded.shape:
        labels[padded] = -100
    flat = logits if planes else logits.reshape(-1, logits.shape[-1])
    target = torch.from_numpy(labels if planes else labels.ravel())
    loss = torch.nn.functional.cross_entropy(flat, target, reduction="sum")
    found = _gradients(twin, loss)
    labels[labels < 0] = -1
    if planes:
        labels = labels.reshape(len(labels), -1)
    elif read.alone:
        every = np.full((len(labels), read.sequence), -1)
        every[:, 0 if read.alone == "first" else -1] = labels.reshape(len(labels))  # of (samples, 1) too
        labels = every
    return float(loss.detach()), found, labels if read.planes else labels.ravel()


def _nothing_dropped(torch: Any) -> Any:
    """Return a context in which dropout gives what it takes: what it draws is another thing each time.

    All of PyTorch's forms draw ones among zeros with a probability, and divide them by it.  So do modules that drop
    samples, some by numbers from 0 to 1 to which the probability is added before they are cut off.
    """
    modes: Any = importlib.import_module("torch.utils._python_dispatch")
    aten = torch.ops.aten
    drawn, below, cut = aten.bernoulli_.float, aten.rand.default, (aten.floor.default, aten.floor_.default)

    class NothingDropped(modes.TorchDispatchMode):
        numbers = False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is drawn:
                return args[0].fill_(args[1] if len(args) > 1 else 0.5)
            if func in cut and self.numbers:
                self.numbers = False
                return args[0]
            found = func(*args, **(kwargs or {}))
            if func is below:
                self.numbers = True
                found.zero_()
            return found

    return NothingDropped()


def _of_targets(
    twin: Any, results: Any, config: TrainConfig, read: OnnxNetwork
) -> tuple[float, dict[str, np.ndarray], np.ndarray]:
    """Return the same of targets: mean squares of a sample, or token, added."""
    torch = need("torch", "a PyTorch module")
    count = config.classes
    targets = np.random.default_rng(0).standard_normal((math.prod(results.shape) // count, count))
    loss = (results.reshape(-1, count) - torch.from_numpy(targets).to(results.dtype)).square().mean(1).sum()
    found = _gradients(twin, loss)
    if read.alone:
        every = np.full((len(targets), read.sequence, count), np.nan)
        every[:, 0 if read.alone == "first" else -1] = targets
        targets = every.reshape(-1, count)
    return float(loss.detach()), found, targets


def _gradients(twin: Any, loss: Any) -> dict[str, np.ndarray]:
    """Return the gradients of a module's parameters by name."""
    torch = need("torch", "a PyTorch module")
    if loss.requires_grad:
        loss.backward()
    return {
        name: (torch.zeros_like(one) if one.grad is None else one.grad).double().numpy()
        for name, one in twin.named_parameters(remove_duplicate=False)
    }


def _of_network(
    x: np.ndarray, labels: np.ndarray, config: TrainConfig, read: OnnxNetwork
) -> tuple[float, dict[str, np.ndarray]]:
    """Return the loss and gradients by the names of the file."""
    matrices, norms, _ = initial_parameters(config, numerics.BIAS_DEFAULT)
    parameters = [*matrices, *(norms[k] for k in sorted(norms))]
    flat = patched(x.reshape(len(x), -1), read.patches) if read.patches else x
    rows = flat.reshape(len(x) * read.sequence, -1) if read.sequence else flat.reshape(len(x), -1)
    samples = looked_up(Dataset(rows, labels, rows, labels), config).x_train[:]
    graph = PlainGraph(config.graph, "f64")
    held = {one.name: one.dense.astype(np.float64) for one in parameters}
    loss, gradients = graph.gradients(held, samples.astype(np.float64), labels)
    found = trained(config, matrices, [gradients[one.name].ravel() for one in parameters])
    for one, array in zip(parameters, found, strict=True):
        one.dense[...] = array.reshape(one.dense.shape)
    return float(loss), read.back(weights.taken(parameters, [one.row for one in config.matrices], 0), gradients=True)
