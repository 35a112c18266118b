"""Training by weight streaming: data service, memory service, tree and wafers, iteration after iteration.

An iteration: the data service gives every wafer its shard; the coordinator streams weights and commands
(`swarm.system`); gradients come back added over samples and wafers, are divided by loss scale and batch in
FP32 and update the FP32 weights.  If one of them is not finite, nothing is updated and the loss scale is halved.

State is what memory service and data service hold: weights, optimizer state, sparsity patterns, loss scale, position
and random state of the data, and the clock with what is under way.  The wafers keep nothing from one iteration to the
next, so that is all that a checkpoint needs to go on with the same bits and cycles.

Source: weight streaming white paper, sections 4 to 7; mixed precision: FP32 master weights, 16-bit stream.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fabric.networks.streamed.network import Layer, Network
from harness.train import checkpoint, clock_state, sparsity
from harness.train.config import TrainConfig
from harness.train.data import DataService, load
from harness.train.loss_scale import LossScale
from memx.parameter import Parameter
from memx.pattern import Pattern
from memx.store import FileStore, MemoryStore, row_blocks
from memx.tiers import Tiers
from swarm.system import System
from traces.marks import mark
from wse_core.errors import CheckpointError
from wse_core.formats import Arithmetic

__all__ = ["Step", "Trainer", "initial_parameters"]


@dataclass(frozen=True)
class Step:
    """What an iteration did.

    Attributes
    ----------
    iteration : int
        From 1.
    loss, accuracy : float
        Mean over the batch, and share of it whose largest logit is that of its label, before the update.
    cycles : int
        Of the system, from this iteration to the next one.
    boundary : int
        Part of it that was lost because words were not there, or gradients could not leave.
    waits : dict[str, float]
        The cycles of `boundary` by what was waited for.
    bottleneck : str
        What was waited for most, ``wafers`` if nothing.
    simulated_seconds : float
        Since the start of training, this iteration and tests before it included.
    scale : float
        Loss scale that was used.
    skipped : bool
        Gradients overflowed, nothing was updated.
    density : float
        Share of the weights that are active.
    words, gradient_words : int
        On the link of the memory service.
    hops, macs : int
        Wavelet hops and multiply-add operations of all wafers; gradients multiply and add in two operations, which
        are none.
    host_seconds : float
    """

    iteration: int
    loss: float
    accuracy: float
    cycles: int
    boundary: int
    waits: Mapping[str, float]
    bottleneck: str
    simulated_seconds: float
    scale: float
    skipped: bool
    density: float
    words: int
    gradient_words: int
    hops: int
    macs: int
    host_seconds: float


def with_bias(mask: np.ndarray, layer: Layer) -> Pattern:
    """Return the pattern of a layer's matrix: its mask, and the column of biases if it has one."""
    return Pattern.of_mask(np.concatenate([mask, np.ones((layer.outputs, int(layer.bias)), bool)], axis=1))


def initial_parameters(
    config: TrainConfig,
    network: Network,
    exponent_bias: int,
    slots: Sequence[str] = (),
    stores: Sequence[MemoryStore | FileStore] = (),
) -> tuple[list[Parameter], dict[int, Parameter]]:
    """Return the parameters that training begins with.

    Weights are normal with a variance of 2 / (inputs x density), biases and shifts 0, factors 1.

    Parameters
    ----------
    config : TrainConfig
    network : Network
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
        By number of the layer from 0: factors (row 0) and shifts (row 1).
    """
    rng, matrices, norms = np.random.default_rng(config.seed), [], {}
    for k, (layer, mask) in enumerate(zip(network.layers, sparsity.initial_masks(config), strict=True)):
        name, store = f"layer{k + 1}.weight", stores[k] if stores else MemoryStore()
        weights = store.zeros(name, layer.shape)
        spread = math.sqrt(2 / max(1.0, mask.sum() / layer.outputs))
        for first, end in row_blocks(layer.shape):
            weights[first:end, : layer.inputs] = rng.standard_normal((end - first, layer.inputs)) * spread
        matrices.append(Parameter(name, weights, network.dtype, exponent_bias, with_bias(mask, layer), slots, store))
        if layer.norm:
            both = np.stack([np.ones(layer.outputs), np.zeros(layer.outputs)])
            norms[k] = Parameter(f"layer{k + 1}.norm", both, network.dtype, exponent_bias, slots=slots)
    return matrices, norms


class Trainer:
    """Trains what a configuration describes.

    Parameters
    ----------
    config : TrainConfig
    backend : {"compiled", "reference", "numpy"}, optional
        Of the wafers, as `swarm.system.System` takes it.

    Attributes
    ----------
    iteration, iterations : int
        Iterations done, and of the whole run.
    test_cycles : int
        Part of `cycles` in which tests ran.
    phases : tuple of Phase
        Stretches with the same masks.
    system : System
        After `compile`.
    """

    def __init__(self, config: TrainConfig, backend: str | None = None) -> None:
        self.config, self.backend = config, backend
        self.machine, self.network = config.build_machine(), config.build_network()
        self.arithmetic = Arithmetic.of(self.machine, self.network.dtype)
        self.dataset = load(config)
        self.data = DataService.of(config, self.dataset)
        self.optimizer = config.train.optimizer.build()
        self.loss_scale = LossScale.of(config)
        self.iterations = config.iterations(len(self.dataset.x_train))
        self.phases = sparsity.phases(config.sparsity, self.iterations)
        self.iteration = self.updates = self.test_cycles = 0
        self.system: System | None = None
        self.matrices, self.norms = initial_parameters(
            config, self.network, self.machine["num.cb16_bias"], self.optimizer.slots, self._stores()
        )

    def _stores(self) -> list[MemoryStore | FileStore]:
        """Return where each layer's matrix lies: what the modelled service keeps in flash lies in files, if asked."""
        files, layers = self.config.memx.files, self.network.layers
        if not files:
            return [MemoryStore() for _ in layers]
        sizes = [float(math.prod(layer.shape) * self.optimizer.bytes_per_parameter) for layer in layers]
        pinned, flash = Tiers.of(self.machine).pinned(sizes), FileStore(files, scratch=True)
        return [MemoryStore() if k < pinned else flash for k in range(len(layers))]

    @property
    def parameters(self) -> list[Parameter]:
        """All parameters, in the order of the gradients."""
        return [*self.matrices, *(self.norms[k] for k in sorted(self.norms))]

    @property
    def cycles(self) -> int:
        """Cycles of the system so far."""
        return self.compile().clock

    @property
    def density(self) -> float:
        """Share of all matrix elements that are active."""
        return sum(p.pattern.count for p in self.matrices) / sum(p.dense.size for p in self.matrices)

    def compile(self) -> System:
        """Place the network on its wafers, refuse what does not fit; return the `System`, the same one every time."""
        if self.system is None:
            mesh = self.config.mesh
            self.system = System(
                self.network,
                self.matrices,
                self.norms,
                self.machine,
                mesh.width,
                mesh.height,
                self.config.wafers,
                self.config.data.batch,
                self.optimizer.bytes_per_parameter,
                backend=self.backend,
                form=self.config.form,
                mark=mark,
            )
            self.system.coordinator.script("train")
        return self.system

    def encode(self, values: ArrayLike) -> np.ndarray:
        """Return real numbers in the format of the activations, bit patterns."""
        return self.arithmetic.encode(values)

    def step(self) -> Step:
        """Run one iteration; return its `Step`."""
        system = self.compile()
        clock = time.perf_counter()
        phase = sparsity.phase_at(self.phases, min(self.iteration, self.iterations - 1))
        if self.iteration and self.iteration == phase.begin:
            self._change_masks(phase.density)
        share = sparsity.exchanged(self.config.sparsity, self.iterations, self.iteration + 1)
        if share and self.config.sparsity.schedule == "rigl":
            self._ask_everywhere(True)
        classes = self.network.features[-1]
        samples = self.data.batch(self.iteration)
        shards = [(self.encode(x.T), self.encode(np.eye(classes)[y].T)) for x, y in samples]
        scale, batch = self.loss_scale.value, self.config.data.batch
        done = system.train(shards, scale)
        self.iteration += 1
        finite = bool(np.isfinite(done.gradients).all())
        if not self.loss_scale.update(finite, self.iteration):
            self.updates += 1
            lr = sparsity.learning_rate(self.config.train.schedule, self.optimizer.lr, phase, self.iteration - 1)
            self._update(done.gradients / np.float32(scale * batch), lr, share)
        if share:
            self._ask_everywhere(False)
        loss = float(done.loss / np.float32(batch))
        accuracy = self._right(system.logits(), np.concatenate([y for _, y in samples])) / batch
        return Step(
            self.iteration,
            loss,
            accuracy,
            done.total_cycles,
            done.boundary,
            done.waits,
            done.bottleneck,
            self.cycles / system.hertz,
            scale,
            not finite,
            self.density,
            done.words,
            done.gradient_words,
            done.hops,
            done.macs,
            time.perf_counter() - clock,
        )

    def _update(self, gradients: np.ndarray, lr: float, share: float) -> None:
        """Update all parameters, then exchange a share of the weights of each matrix."""
        start = 0
        for number, parameter in enumerate(self.parameters):
            own = gradients[start : start + parameter.gradient_pattern.count]
            parameter.update(self.optimizer, self.updates, own, lr)
            start += len(own)
            if share and number < len(self.matrices):
                self._exchange(number, share, own)

    def _ask_everywhere(self, everywhere: bool) -> None:
        """Ask for gradients at all places of the matrices, or only of the weights that exist."""
        for matrix in self.matrices:
            whole = everywhere and matrix.pattern.density < 1
            matrix.gradient_pattern = Pattern.dense(matrix.dense.shape) if whole else None

    def _exchange(self, number: int, share: float, gradients: np.ndarray) -> None:
        """Let the smallest weights of a matrix go and as many come; biases stay."""
        matrix, inputs = self.matrices[number], self.network.layers[number].inputs
        count = int(share * np.count_nonzero(matrix.pattern.indices < inputs))
        if self.config.sparsity.schedule == "set":
            matrix.gradient_pattern = Pattern.dense(matrix.dense.shape)
            scores = np.zeros(matrix.dense.shape, np.float32)  # those of biases, which are there, do not matter
            scores[:, :inputs] = sparsity.drawn(
                self.config.sparsity, self.iteration, number, len(scores) * inputs
            ).reshape(-1, inputs)
            gradients = scores.reshape(-1)
        if matrix.pattern.density < 1:
            matrix.regrow(gradients, most=matrix.drop(count, inputs))

    def _change_masks(self, density: float) -> None:
        """Begin a phase: weights go, or come back as zeros with their optimizer state."""
        for matrix, layer in zip(self.matrices, self.network.layers, strict=True):
            old = matrix.pattern.mask()[:, : layer.inputs]
            matrix.become(with_bias(sparsity.moved(matrix.dense[:, : layer.inputs], old, density), layer))

    def evaluate(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the share of samples whose largest logit is that of their label; the forward passes take their time.

        Parameters
        ----------
        inputs : ndarray, shape (samples, features)
        labels : ndarray of int, shape (samples,)
        """
        system, right = self.compile(), 0
        for start in range(0, len(inputs), self.config.data.batch):
            stop = start + self.config.data.batch
            logits, cycles = system.infer(self.encode(inputs[start:stop].T))
            right += self._right(logits, labels[start:stop])
            self.test_cycles += cycles
        return right / max(1, len(inputs))

    def _right(self, logits: np.ndarray, labels: np.ndarray) -> int:
        """Return how many samples have their largest logit where their label is."""
        return int((self.arithmetic.decode(logits).argmax(0) == labels).sum())

    def culprit(self) -> int | None:
        """Return the number of the first layer whose activations on any wafer are not finite, else None."""
        for level in range(1, len(self.network.features)):
            for port in self.compile().ports:
                if not np.isfinite(self.arithmetic.decode(port.wafer.activations(level))).all():
                    return level
        return None

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return (tensors, everything else as JSON values)."""
        tensors = {}
        for parameter in self.parameters:
            tensors[parameter.name] = parameter.dense
            tensors[f"{parameter.name}.pattern"] = np.packbits(parameter.pattern.mask())
            for slot, values in parameter.state.items():
                tensors[f"{parameter.name}.{slot}"] = values
        clock_tensors, clock = clock_state.split(self.compile().state())
        return tensors | clock_tensors, {
            "iteration": self.iteration,
            "updates": self.updates,
            "test_cycles": self.test_cycles,
            "clock": clock,
            "loss_scale": self.loss_scale.state(),
            "data": self.data.state(),
        }

    def restore(self, tensors: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; nothing is changed if it does not fit.

        Raises
        ------
        CheckpointError
            Tensors that are missing, unknown or of another shape.
        """
        times = {name: values for name, values in tensors.items() if name.startswith(clock_state.PREFIX)}
        tensors = {name: values for name, values in tensors.items() if name not in times}
        expected = {n: v for n, v in self.state()[0].items() if not n.startswith(clock_state.PREFIX)}
        if set(tensors) != set(expected):
            odd = sorted(set(tensors) ^ set(expected))[0]
            raise CheckpointError(
                f"tensor {odd!r} is {'unknown' if odd in tensors else 'missing'}",
                hint="the configuration that the checkpoint was made with",
            )
        for name, values in expected.items():
            if tensors[name].shape != values.shape or tensors[name].dtype != values.dtype:
                found = tensors[name]
                raise CheckpointError(
                    f"tensor {name!r} has shape {found.shape} and type {found.dtype}, not "
                    f"{values.shape} and {values.dtype}",
                    hint="the configuration that the checkpoint was made with",
                )
        counts = checkpoint.counts(state, ("iteration", "updates", "test_cycles"))
        masks = {
            p.name: np.unpackbits(tensors[f"{p.name}.pattern"], count=p.dense.size).astype(bool).reshape(p.dense.shape)
            for p in self.parameters
        }
        clock = clock_state.joined(times, state.get("clock"), {name: int(mask.sum()) for name, mask in masks.items()})
        self.data.restore(state.get("data"))
        self.loss_scale.restore(state.get("loss_scale"))
        self.iteration, self.updates, self.test_cycles = counts
        for parameter in self.parameters:
            parameter.dense[...] = tensors[parameter.name]
            for slot, values in parameter.state.items():
                values[...] = tensors[f"{parameter.name}.{slot}"]
            parameter.set_pattern(Pattern.of_mask(masks[parameter.name]))
        self.compile().restore(clock)
