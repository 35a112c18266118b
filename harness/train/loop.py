"""The training loop is one for all back ends, which only say what a batch gives.

`harness.train.trainer` streams weights past wafers, `harness.train.pipelined` has all layers on one wafer, and
`harness.train.plain` is numpy.  What they share stands here:
steps, held-out samples, checkpoints, files of weights.  Where the host updates weights, `harness.train.masters` says
how an iteration goes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from harness.train import checkpoint, clock_state, sparsity, weights
from harness.train.config import TrainConfig
from harness.train.data import DataService, Dataset
from harness.train.feed import BatchFeed
from harness.train.initial import initial_parameters
from harness.train.loss_scale import LossScale
from harness.train.shared import begin_alike
from harness.train.sources import Samples
from memx.parameter import Parameter
from memx.pattern import Pattern
from memx.store import FileStore, MemoryStore
from wse_core.errors import CheckpointError, ConfigError, TrainingError

if TYPE_CHECKING:
    from harness.train.onnx_reader import OnnxNetwork

__all__ = ["HeldOut", "Loop", "Step", "by_label", "judged", "missed"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """An iteration, as every back end tells of it; what a back end has no clock for is None.

    Attributes
    ----------
    iteration : int
        From 1.
    loss : float
        Mean over the batch, before the update.
    accuracy : float or None
        Share of the batch whose largest logit is that of its label, before the update; None where labels are targets.
    cycles : int or None
        From this iteration to the next one; in a pipeline from the loss of the iteration before to its own, and the
        last one of a run until the pipeline is empty.
    boundary : int or None
        Part of it that was lost because words were not there, or gradients could not leave.
    stages : dict[str, int] or None
        Cycles by layer and phase.
    traffic : dict[str, int] or None
        Bytes on links by what they are for.
    simulated_seconds : float or None
        Since the start of training, this iteration and tests before it included.
    scale : float
        Loss scale that was used.
    skipped : bool
        Gradients overflowed, nothing was updated.
    norm : float or None
        Of the gradients of all weights that exist together, before they were clipped; None if they are not, or nothing
        was updated.
    gradient_norms : dict[str, float] or None
        Of the gradients of each parameter's weights that exist, before they were clipped, if the configuration asks.
    gradient_histograms : dict[str, dict[str, int]] or None
        Of the same gradients, if the configuration asks: how many have a magnitude from 2^n to below 2^(n + 1), by n in
        rising order, and how many are ``zero``.
    density : float
        Share of the weights that exist, biases and normalisation left out.
    words, gradient_words : int or None
        On the link of the memory service.
    hops, macs : int or None
        Wavelet hops and multiply-add operations of all wafers; gradients multiply and add in two operations, which
        are none.
    host_seconds : float
    """

    iteration: int
    loss: float
    accuracy: float | None
    cycles: int | None = None
    boundary: int | None = None
    stages: Mapping[str, int] | None = None
    traffic: Mapping[str, int] | None = None
    simulated_seconds: float | None = None
    scale: float
    skipped: bool = False
    norm: float | None = None
    gradient_norms: Mapping[str, float] | None = None
    gradient_histograms: Mapping[str, Mapping[str, int]] | None = None
    density: float
    words: int | None = None
    gradient_words: int | None = None
    hops: int | None = None
    macs: int | None = None
    host_seconds: float


class HeldOut(NamedTuple):
    """A `HeldOut` says how a network does on samples that it was not trained on.

    Attributes
    ----------
    accuracy : float or None
        Share of the labels, of samples, tokens or pixels, none of whose logits is larger than their own; None where
        labels are targets.
    loss : float
        Mean over the labels of ``-log softmax(logits)[label]``, which the host takes in float64 from the logits; or,
        over the samples or tokens that have targets, of the mean squared difference to them.
    """

    accuracy: float | None
    loss: float

    def facts(self) -> dict[str, float]:
        """Return what logs and results have of it, by name."""
        known = {"test_accuracy": self.accuracy, "test_loss": self.loss}
        return {name: value for name, value in known.items() if value is not None}


def by_label(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return logits with a row for each label, and the labels in one row: a pixel is as a sample is.

    Parameters
    ----------
    logits : ndarray, shape (samples, features)
        Channel by channel, if pixels have labels.
    labels : ndarray of int, shape (samples,) or (samples, pixels)
    """
    rows, labels = np.asarray(logits), np.asarray(labels)
    if labels.ndim > 1:
        rows = rows.reshape(len(labels), -1, labels.shape[1]).swapaxes(1, 2).reshape(labels.size, -1)
    return rows, labels.ravel()


def judged(logits: np.ndarray, labels: np.ndarray) -> tuple[int, float]:
    """Return how many labels are told right, and the sum of their losses.

    Parameters
    ----------
    logits : ndarray, shape (samples, features)
    labels : ndarray of int, shape (samples,) or (samples, pixels)
        Below zero: there is none, and it does not count.

    Examples
    --------
    >>> right, loss = judged(np.array([[0.0, 0.0], [3.0, -3.0]]), np.array([1, 1]))
    >>> right, round(loss, 3)
    (1, 6.696)
    """
    rows, labels = by_label(logits, labels)
    labelled = labels >= 0
    if not labelled.any():
        return 0, 0.0
    values, labels = np.asarray(rows, np.float64)[labelled], labels[labelled]
    with np.errstate(invalid="ignore", over="ignore"):
        below = values - values.max(1, keepdims=True)
        own = below[np.arange(len(labels)), labels]
        return int((own == 0).sum()), float((np.log(np.exp(below).sum(1)) - own).sum())


def missed(results: np.ndarray, targets: np.ndarray) -> float:
    """Return the sum over samples of the mean squared difference to their targets.

    Parameters
    ----------
    results, targets : ndarray, shape (samples, features)
        A sample whose targets are not all numbers (NaN) does not count.

    Examples
    --------
    >>> missed(np.array([[1.0, 2.0], [3.0, 3.0]]), np.array([[1.0, 4.0], [np.nan, np.nan]]))
    2.0
    """
    there = ~np.isnan(targets).any(1)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.asarray(results, np.float64)[there] - np.asarray(targets, np.float64)[there]
        return float(np.square(apart).mean(1).sum())


class Loop(ABC):
    """Trains what a configuration describes; the base of the back ends.

    Parameters
    ----------
    config : TrainConfig
    data : Dataset or iterable of (inputs, labels), optional
        Samples, or batches one after the other (`harness.train.feed.BatchFeed`), instead of what the configuration
        names.
    parameters : (matrices, norms), optional
        First weights, instead of what the configuration asks for; they are changed in place.

    Attributes
    ----------
    matrices : list of Parameter
        Weights of each layer; a bias is the last column.
    norms : dict[int, Parameter]
        Factors and shifts by number of the layer from 0.
    iteration, iterations : int
        Iterations done (in a pipeline: handed out), and of the whole run.
    updates, earlier : int
        Updates of this run, and those that made the first weights.
    test_cycles : int
        Part of the cycles in which tests ran.
    phases : tuple of Phase
        Stretches with the same masks.
    """

    def __init__(
        self,
        config: TrainConfig,
        data: Dataset | Iterable[tuple[ArrayLike, ArrayLike]] | None = None,
        parameters: tuple[list[Parameter], dict[int, Parameter]] | None = None,
    ) -> None:
        self.config, self.machine = config, config.build_machine()
        self.data: DataService | BatchFeed
        if data is None or isinstance(data, Dataset):
            self.data = DataService.of(config, data)
        else:
            if config.data.labels in ("first", "last"):
                hint = 'labels = "token", and a row per token'
                raise ConfigError(
                    "batches that are handed over are not cut into tokens", where="data.labels", hint=hint
                )
            some, sizes = config.data.labels != "class", (config.data.batch, config.wafers, config.widths[0])
            targets = config.classes if config.targets else 0
            self.data = BatchFeed(data, *sizes, config.classes, some, config.graph.label_image, targets)
        self.optimizer, self.loss_scale = config.train.optimizer.build(), LossScale.of(config)
        samples = len(self.dataset.x_train) if isinstance(self.data, DataService) else None
        self.iterations = config.iterations(samples)
        self.phases = sparsity.phases(config.sparsity, self.iterations)
        self.iteration = self.updates = self.test_cycles = self.earlier = 0
        if parameters is None:
            bias, slots = self.machine["num.cb16_bias"], self.optimizer.slots
            self.matrices, self.norms, self.earlier = initial_parameters(config, bias, slots, self._stores())
        else:
            self.matrices, self.norms = parameters
        if config.train.optimizer.decays == "weights":
            for matrix, one in zip(self.matrices, config.matrices, strict=True):
                matrix.decaying = one.inputs
            for norm in self.norms.values():
                norm.decaying = 0
        self._waiting: list[Step] = []

    # --- what a back end says -----------------------------------------------------------------------------------------

    @abstractmethod
    def compile(self) -> Any:
        """Place the network, refuse what does not fit; return what runs, the same every time."""

    @abstractmethod
    def _run(self) -> list[Step]:
        """Run the next iteration, or as many as have to be run together; return their steps."""

    @abstractmethod
    def _classify(self, inputs: Samples, labels: np.ndarray) -> tuple[int, float]:
        """Return (labels that are told right, sum of their losses), as `_judged` does; their time belongs to tests."""

    @abstractmethod
    def culprit(self) -> int | None:
        """Return the number of the first layer whose activations are not finite, None if that is not known."""

    def _clock_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return (tensors, JSON values) of the clock for a checkpoint; the tensors' names begin as those of clocks."""
        return {}, {}

    def _read_clock(
        self, tensors: Mapping[str, np.ndarray], state: Mapping[str, Any], masks: Mapping[str, np.ndarray]
    ) -> Any:
        """Return what `_set_clock` takes, from a checkpoint of any back end; `CheckpointError` if it does not fit."""
        return None

    def _set_clock(self, clock: Any) -> None:
        """Go on from a clock; parameters have been restored."""
        del clock

    def clock_facts(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what the clock says of the lines of a log."""
        return {}

    def _stores(self) -> list[MemoryStore | FileStore]:
        """Return where each layer's matrix lies; none: in memory."""
        return []

    # --- parameters and data ------------------------------------------------------------------------------------------

    def _judged(self, logits: np.ndarray, labels: np.ndarray) -> tuple[int, float]:
        """Return (labels that are told right, sum of their losses); 0 where labels are targets."""
        return (0, missed(logits, labels)) if self.config.targets else judged(logits, labels)

    def _told_right(self, logits: np.ndarray, labels: np.ndarray) -> int | None:
        """Return the labels that have the largest logit; None where they are targets."""
        if self.config.targets:
            return None
        rows, flat = by_label(logits, labels)
        return int((rows.argmax(1) == flat).sum())

    def _labelled(self, labels: np.ndarray) -> int:
        """Return how many labels, or samples with targets, there are."""
        return int(self.config.graph.loss.labelled(labels).sum())

    @property
    def dataset(self) -> Dataset:
        """The configuration names these samples; `ConfigError` is raised if batches are handed over instead."""
        if isinstance(self.data, BatchFeed):
            raise ConfigError("batches are handed over, there is no data set", where="data")
        return self.data.dataset

    @property
    def parameters(self) -> list[Parameter]:
        """All parameters stand here in the order of the gradients: matrices, then normalisations."""
        return [*self.matrices, *(self.norms[k] for k in sorted(self.norms))]

    @property
    def _rows(self) -> list[tuple[int, ...]]:
        """A row of each matrix has this shape in files."""
        return [one.row for one in self.config.matrices]

    @property
    def density(self) -> float:
        """Share of the weights that exist; biases and normalisation, which always do, are not counted."""
        inputs = [one.inputs for one in self.config.matrices]
        active = sum(int((p.pattern.indices < n).sum()) for p, n in zip(self.matrices, inputs, strict=True))
        return active / sum(len(p.dense) * n for p, n in zip(self.matrices, inputs, strict=True))

    @property
    def under_way(self) -> bool:
        """Whether steps have yet to be handed out; the weights are those after the last of them."""
        return bool(self._waiting)

    # --- iterations ---------------------------------------------------------------------------------------------------

    def step(self) -> Step:
        """Run one iteration; return its `Step`.

        Raises
        ------
        TrainingError
            The loss is not finite; the message names iteration and layer.
        """
        if not self._waiting:
            self._waiting = self._run()
        self.iteration += 1
        found = self._waiting.pop(0)
        if not np.isfinite(found.loss):
            raise TrainingError(
                f"the loss is {found.loss}",
                iteration=found.iteration,
                layer=self.culprit(),
                cause="numbers too large for 16 bits",
                hint="a smaller learning rate, or dtype cb16",
            )
        return found

    def _phase(self, iteration: int) -> sparsity.MaskPhase:
        """Return the phase of an iteration counted from 0; the last one goes on."""
        return sparsity.phase_at(self.phases, min(iteration, self.iterations - 1))

    def _rate(self, iteration: int) -> float:
        """Return the learning rate of an iteration counted from 0."""
        return sparsity.learning_rate(self.config.train.schedule, self.optimizer.lr, self._phase(iteration), iteration)

    # --- held-out samples ---------------------------------------------------------------------------------------------

    def test(self, inputs: Samples, labels: np.ndarray) -> HeldOut:
        """Return how the network does on samples.

        Parameters
        ----------
        inputs : ndarray, shape (samples, features)
        labels : ndarray, shape (samples,), or (samples, rows, columns) if pixels have labels, (samples, ...) of targets
        """
        labels = np.asarray(labels)
        labels = labels.reshape(len(labels), -1) if labels.ndim > 1 or self.config.targets else labels
        right, loss = self._classify(inputs, labels) if len(inputs) else (0, 0.0)
        count = max(1, self._labelled(labels))
        return HeldOut(None if self.config.targets else right / count, loss / count)

    def evaluate(self, inputs: Samples, labels: np.ndarray) -> float:
        """Return the share of labels that are told right; see `test`.

        Raises
        ------
        ConfigError
            Labels are targets, which are not told right or wrong.
        """
        found = self.test(inputs, labels).accuracy
        if found is None:
            raise ConfigError("targets are not told right or wrong", where="evaluate", hint="test(...).loss")
        return found

    # --- files of weights ---------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, np.ndarray]:
        """Return weights, masks and optimizer state by the names of `harness.train.weights`, as copies."""
        return weights.taken(self.parameters, self._rows, self.earlier + self.updates)

    def save_weights(self, path: str | PathLike[str]) -> None:
        """Write weights, masks and optimizer state to a .safetensors or .npz file."""
        weights.write(Path(path), self.tensors())

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the weights under the names, and with the axes, of the file that the network came from.

        Raises
        ------
        ConfigError
            The network came from no file (`network.file`).
        """
        return self._origin().back(self.tensors())

    def save_onnx(self, path: str | PathLike[str]) -> None:
        """Write the network with the weights of now: the file that it came from again, or a new one."""
        from harness.train.onnx_file import export_onnx, save_onnx

        if self.config.network.file:
            given = self.config.network.masked, self.config.network.dropout
            save_onnx(self._network_file, Path(path), self.tensors(), *given)
        else:
            export_onnx(Path(path), self.config, self.tensors())

    @property
    def _network_file(self) -> Path:
        return Path(self.config.source).parent / self.config.network.file

    def _origin(self) -> OnnxNetwork:
        from harness.train.onnx_file import read_onnx

        if not self.config.network.file:
            hint = 'network.file = "m.onnx"'
            raise ConfigError("the network came from no ONNX file", where="network.file", hint=hint)
        return read_onnx(self._network_file, self.config.network.masked, self.config.network.dropout)

    def load_weights(self, source: str | PathLike[str] | Mapping[str, np.ndarray]) -> None:
        """Begin with weights, masks or optimizer state of a file, or of tensors by name, before the first iteration.

        Raises
        ------
        ConfigError
            They do not fit, or training has begun.
        """
        if self.iteration or self._begun:
            raise ConfigError("training has begun", where="load_weights", hint="before compile and the first step")
        tensors = source if isinstance(source, Mapping) else weights.read(Path(source))
        self.earlier = weights.put(tensors, self.parameters, self._rows) or self.earlier
        if self.config.tie is not None:
            self.config.tie.begin(self.matrices, "load_weights")
        begin_alike(self.config, self.parameters, "load_weights")

    @property
    def _begun(self) -> bool:
        """Whether the network has been placed with the weights of now."""
        return False

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return (tensors, everything else as JSON values), when no step is under way."""
        assert not self._waiting
        tensors, clock = self._clock_state()
        return self._tensors() | tensors, {
            "iteration": self.iteration,
            "updates": self.updates,
            "earlier": self.earlier,
            "test_cycles": self.test_cycles,
            "loss_scale": self.loss_scale.state(),
            "data": self.data.state(),
            **clock,
        }

    def _tensors(self) -> dict[str, np.ndarray]:
        """Return the tensors of a checkpoint but those of the clock."""
        tensors = {}
        for parameter in self.parameters:
            tensors[parameter.name] = parameter.dense
            tensors[f"{parameter.name}.pattern"] = np.packbits(parameter.pattern.mask())
            for slot, values in parameter.state.items():
                tensors[f"{parameter.name}.{slot}"] = values
            if parameter.statistics is not None:
                tensors[f"{parameter.name}.running"] = parameter.statistics.running
        return tensors

    def restore(self, tensors: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Go on from what `state` of any back end returned; nothing changes if it does not fit.

        Raises
        ------
        CheckpointError
            Tensors that are missing, unknown or of another shape.
        """
        times = {name: values for name, values in tensors.items() if name.startswith(clock_state.PREFIX)}
        tensors = {name: values for name, values in tensors.items() if name not in times}
        hint, expected = "the configuration that the checkpoint was made with", self._tensors()
        for name in sorted(set(tensors) ^ set(expected)):
            raise CheckpointError(f"tensor {name!r} is {'unknown' if name in tensors else 'missing'}", hint=hint)
        for name, values in expected.items():
            found = tensors[name]
            if (found.shape, found.dtype) != (values.shape, values.dtype):
                kinds = [f"{one.shape} and {one.dtype}" for one in (found, values)]
                raise CheckpointError(f"tensor {name!r} has shape and type {kinds[0]}, not {kinds[1]}", hint=hint)
        known = {"test_cycles": 0} | dict(state)  # a run by numpy has no cycles
        counts = checkpoint.counts(known, ("iteration", "updates", "earlier", "test_cycles"))
        masks = {
            p.name: np.unpackbits(tensors[f"{p.name}.pattern"], count=p.dense.size).astype(bool).reshape(p.dense.shape)
            for p in self.parameters
        }
        clock = self._read_clock(times, known, masks)
        self.data.restore(state.get("data"))
        self.loss_scale.restore(state.get("loss_scale"))
        self.iteration, self.updates, self.earlier, self.test_cycles = counts
        for parameter in self.parameters:
            parameter.dense[...] = tensors[parameter.name]
            for slot, values in parameter.state.items():
                values[...] = tensors[f"{parameter.name}.{slot}"]
            if parameter.statistics is not None:
                parameter.statistics.restore(tensors[f"{parameter.name}.running"])
            parameter.set_pattern(Pattern.of_mask(masks[parameter.name]))
        self._waiting = []
        self._set_clock(clock)
