"""A small network trained in numpy under any schedule, with every tensor where the schedule says it is.

Each layer is y = x + tanh(x W + b), the loss half the mean squared distance to a target, the optimizer Adam in fp32.
A pipeline stage holds only its own layers, a data-parallel rank only its own samples and, if the state is partitioned,
its own share of each layer.  A step that reaches for something that is not there, or whose parameters are of another
version than in the forward pass, is an `InternalError`: this is how a schedule is shown to obey its dependencies.

Additions: gradients of micro-batches in the order of the schedule, then ranks in ascending order.  Two runs of one
schedule agree bitwise; two schedules differ by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.plan.schedules import Schedule, ScheduleTimeline, owner, simulate
from wse_core.errors import ConfigError, InternalError

__all__ = ["TensorAdam", "TensorTrainer", "plain_gradients", "random_layers"]

F32 = np.float32


@dataclass(frozen=True)
class TensorAdam:
    """Adam with its usual constants; every operation is elementwise, so any share of a layer can be updated alone."""

    rate: float = 1e-2
    first: float = 0.9
    second: float = 0.999
    epsilon: float = 1e-8

    def update(self, state: np.ndarray, gradient: np.ndarray, step: int) -> None:
        """Update ``state`` (rows: weights, mean, variance) in place with the gradient of batch number `step` from 1."""
        weights, mean, variance = state
        mean[:] = F32(self.first) * mean + F32(1 - self.first) * gradient
        variance[:] = F32(self.second) * variance + F32(1 - self.second) * gradient * gradient
        size = np.sqrt(variance / F32(1 - self.second**step)) + F32(self.epsilon)
        weights -= F32(self.rate) * (mean / F32(1 - self.first**step)) / size


def random_layers(layers: int, width: int, seed: int = 0) -> np.ndarray:
    """Return the flat fp32 parameters (matrix, then bias) of a random network, float32 (layers, width^2 + width)."""
    values = np.random.default_rng(seed).normal(0, 0.5, (layers, width + 1, width)) / np.sqrt(width)
    return values.astype(F32).reshape(layers, -1)


def _apply(flat: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return tanh(x W + b)."""
    width = x.shape[1]
    return np.tanh(x @ flat[: width * width].reshape(width, width) + flat[width * width :])


def _gradient(
    flat: np.ndarray, x: np.ndarray, activation: np.ndarray, out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (flat gradient of the parameters, gradient of the input) from the gradient of the output."""
    width = x.shape[1]
    inner = out * (F32(1) - activation * activation)
    weights = np.concatenate([(x.T @ inner).ravel(), inner.sum(axis=0)])
    return weights, out + inner @ flat[: width * width].reshape(width, width).T


def plain_gradients(parameters: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the gradients of a whole batch at once, without any schedule."""
    kept, x = [], inputs
    for flat in parameters:
        activation = _apply(flat, x)
        kept.append((flat, x, activation))
        x = x + activation
    out, found = (x - targets) / F32(len(inputs)), []
    for flat, source, activation in reversed(kept):
        weights, out = _gradient(flat, source, activation, out)
        found.append(weights)
    return np.stack(found[::-1])


class TensorTrainer:
    """A `TensorTrainer` has the training state and the batches run on it.

    Parameters
    ----------
    parameters : ndarray
        From `random_layers`.
    ranks : int
        n_b, data-parallel instances.
    partitioned : bool
        Whether each rank keeps only its share of the state.
    optimizer : TensorAdam, optional
    on_update : callable, optional
        Called as (trainer, layer) right after the state of a layer is updated.

    Attributes
    ----------
    state : list of list of ndarray
        State of [rank][layer], float32 (3, elements of the share): weights, mean, variance.
    step : int
        Batches done.
    versions : list of int
        Batches done, layer by layer.
    gradients : list of ndarray
        Reduced gradient of each layer in the last batch.
    """

    def __init__(
        self,
        parameters: np.ndarray,
        ranks: int = 1,
        partitioned: bool = False,
        optimizer: TensorAdam | None = None,
        on_update: Callable[[TensorTrainer, int], object] | None = None,
    ) -> None:
        self.layers, self.elements = parameters.shape
        self.partitioned, self.optimizer, self.on_update = partitioned, optimizer or TensorAdam(), on_update
        self.step, self.versions = 0, [0] * self.layers
        self.gradients: list[np.ndarray | None] = [None] * self.layers
        whole = np.zeros((self.layers, 3, self.elements), F32)
        whole[:, 0] = parameters
        self.place(whole, ranks)

    def place(self, whole: np.ndarray, ranks: int) -> None:
        """Divide the state of all layers, float32 (layers, 3, elements), over a number of ranks."""
        if ranks < 1:
            raise ConfigError(f"{ranks} data-parallel ranks: at least one is needed")
        self.ranks = ranks
        bounds = [self.elements * rank // ranks for rank in range(ranks + 1)]
        self.shares = [slice(*bounds[r : r + 2]) if self.partitioned else slice(0, self.elements) for r in range(ranks)]
        self.state = [[whole[layer][:, share].copy() for layer in range(self.layers)] for share in self.shares]

    def whole(self, layer: int) -> np.ndarray:
        """Return the state of a layer put together from its shares, float32 (3, elements)."""
        if self.partitioned:
            return np.concatenate([self.state[rank][layer] for rank in range(self.ranks)], axis=1)
        return self.state[0][layer].copy()

    @property
    def parameters(self) -> np.ndarray:
        """All layers have these weights, float32 (layers, elements)."""
        return np.stack([self.whole(layer)[0] for layer in range(self.layers)])

    def resize(self, ranks: int) -> None:
        """Change the number of data-parallel ranks between two batches; every element moves, none changes."""
        self.place(np.stack([self.whole(layer) for layer in range(self.layers)]), ranks)

    def train(self, schedule: Schedule, inputs: np.ndarray, targets: np.ndarray) -> ScheduleTimeline:
        """Train on one batch, float32 (samples, width), and return the timeline.

        Raises
        ------
        ConfigError
            If the samples do not divide over ranks and micro-batches, or the schedule does not fit the network.
        """
        if schedule.layers != self.layers or schedule.partitioned != self.partitioned:
            raise ConfigError("the schedule is for another network or another division of its state", where=schedule)
        parts, left = divmod(len(inputs), self.ranks * schedule.count)
        if left or not parts:
            raise ConfigError(
                f"{len(inputs)} samples do not divide over {self.ranks} ranks with {schedule.count} micro-batches each"
            )
        timeline = simulate(schedule, _Batch(self, schedule, inputs, targets, parts))
        self.step += 1
        if self.versions != [self.step] * self.layers:
            raise InternalError(f"layers were updated {self.versions} times in {self.step} batches")
        return timeline


class _Batch:
    """A `_Batch` has the tensors of one batch: called by the simulation, everything keyed by the device that holds
    it.
    """

    def __init__(
        self, trainer: TensorTrainer, schedule: Schedule, inputs: np.ndarray, targets: np.ndarray, samples: int
    ) -> None:
        self.trainer, self.schedule, self.total = trainer, schedule, F32(len(inputs))
        self.held: list[dict[tuple[Any, ...], Any]] = [
            {} for _ in range(schedule.devices)
        ]  # on each device: name -> tensor
        self.buffers: list[list[tuple[int, list[np.ndarray]]]] = [
            [] for _ in range(schedule.devices)
        ]  # restored parameters, oldest first
        self.queued: dict[
            int, list[list[np.ndarray]]
        ] = {}  # layer -> gradient buffers that wait for their reduction, oldest first
        last = owner(schedule, schedule.layers - 1)
        first = owner(schedule, 0)
        for rank in range(trainer.ranks):
            for micro in range(schedule.count):
                begin = (rank * schedule.count + micro) * samples
                self.held[first]["output", -1, micro, rank] = inputs[begin : begin + samples]
                self.held[last]["target", micro, rank] = targets[begin : begin + samples]
        self.left = [schedule.count] * schedule.layers

    def get(self, device: int, *name: str | int) -> Any:
        """Return a tensor that must be on the device."""
        if name not in self.held[device]:
            raise InternalError(f"{name} is not on device {device}", where=self.schedule)
        return self.held[device][name]

    def weights(self, device: int, layer: int, rank: int) -> np.ndarray:
        """Return the parameters of a layer as a rank sees them: its own copy, or what was restored."""
        if self.trainer.partitioned:
            found, buffers = self.buffers[device][0] if self.buffers[device] else (None, ())
            if found != layer:
                raise InternalError(f"parameters of layer {layer} are not on device {device}", where=self.schedule)
            return buffers[rank]
        return self.trainer.state[rank][layer][0]

    def restore(self, device: int, layer: int) -> None:
        """Gather the shares of a layer on every rank."""
        gathered = [self.trainer.whole(layer)[0] for _ in range(self.trainer.ranks)]
        self.buffers[device].append((layer, gathered))

    def drop(self, device: int, layer: int) -> None:
        """Free the oldest buffer, which must be that of the layer."""
        found, _ = self.buffers[device].pop(0)
        if found != layer:
            raise InternalError(f"the oldest buffer holds layer {found}, not {layer}", where=self.schedule)

    def forward(self, device: int, layer: int, micro: int) -> None:
        """Compute the output; keep the input as checkpoint and drop what lies inside the layer."""
        for rank in range(self.trainer.ranks):
            x = self.get(device, "output", layer - 1, micro, rank)
            del self.held[device]["output", layer - 1, micro, rank]
            self.held[device]["checkpoint", layer, micro, rank] = x, self.trainer.versions[layer]
            y = x + _apply(self.weights(device, layer, rank), x)
            self.held[device]["output", layer, micro, rank] = y
            if layer == self.schedule.layers - 1:
                gap = (y - self.get(device, "target", micro, rank)) / self.total
                self.held[device]["input gradient", layer + 1, micro, rank] = gap

    def recompute(self, device: int, layer: int, micro: int) -> None:
        """Compute the activations inside a layer again, from its checkpoint and the same version of its weights."""
        for rank in range(self.trainer.ranks):
            x, version = self.get(device, "checkpoint", layer, micro, rank)
            if version != self.trainer.versions[layer]:
                raise InternalError(f"layer {layer} changed between the passes of micro-batch {micro}")
            self.held[device]["inner", layer, micro, rank] = _apply(self.weights(device, layer, rank), x)

    def gradient(self, device: int, layer: int, micro: int) -> None:
        """Compute both gradients; add that of the parameters to the layer's buffer."""
        held = self.held[device]
        for rank in range(self.trainer.ranks):
            out = self.get(device, "input gradient", layer + 1, micro, rank)
            x, _ = self.get(device, "checkpoint", layer, micro, rank)
            activation = self.get(device, "inner", layer, micro, rank)
            weights, into = _gradient(self.weights(device, layer, rank), x, activation, out)
            sum_so_far = held.get(("gradient", layer, rank))
            held["gradient", layer, rank] = weights if sum_so_far is None else sum_so_far + weights
            held["input gradient", layer, micro, rank] = into
            for name in (("input gradient", layer + 1), ("checkpoint", layer), ("inner", layer)):
                del held[*name, micro, rank]
        self.left[layer] -= 1

    def send(self, source: int, target: int, name: str, layer: int, micro: int) -> None:
        """Move an output, or the gradient of an input, to the neighbour that needs it."""
        for rank in range(self.trainer.ranks):
            self.held[target][name, layer, micro, rank] = self.get(source, name, layer, micro, rank)
            del self.held[source][name, layer, micro, rank]

    def collect(self, device: int, layer: int) -> None:
        """Close the gradient buffers of a layer: their reduction is due."""
        closed = [self.held[device].pop(("gradient", layer, rank)) for rank in range(self.trainer.ranks)]
        self.queued.setdefault(layer, []).append(closed)

    def reduce(self, device: int, layer: int) -> None:
        """Sum the oldest closed buffers over the ranks; update each rank's state when nothing is missing."""
        trainer, held = self.trainer, self.held[device]
        total = held.pop(("reduced", layer), None)
        closed = self.queued[layer].pop(0)
        part = closed[0]
        for other in closed[1:]:
            part = part + other
        total = part if total is None else total + part
        held["reduced", layer] = total
        if self.left[layer] == 0 and not self.queued[layer]:
            trainer.gradients[layer] = total
            trainer.versions[layer] += 1
            for rank, share in enumerate(trainer.shares):
                trainer.optimizer.update(trainer.state[rank][layer], total[share], trainer.versions[layer])
            if trainer.on_update is not None:
                trainer.on_update(trainer, layer)
