"""Training by weight streaming: data service, memory service, tree and wafers, iteration after iteration.

An iteration: the data service gives every wafer its shard; the coordinator streams weights and commands
(`swarm.system`); gradients come back added over samples and wafers, are divided by loss scale and batch in FP32,
clipped if that is wanted, and update the FP32 weights.  A batch that is too large for the wafers passes in parts.  If a
gradient is not finite, nothing is updated and the loss scale is halved.

State is what memory service and data service hold: weights, optimizer state, sparsity patterns, loss scale, position
and random state of the data, and the clock with what is under way.  The wafers keep nothing from one iteration to the
next, so that is all that a checkpoint needs to go on with the same bits and cycles.

Source: weight streaming white paper, sections 4 to 7; mixed precision: FP32 master weights, 16-bit stream.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from harness.train import checkpoint, clock_state, sparsity, weights
from harness.train.clipping import factor, global_norm
from harness.train.config import TrainConfig
from harness.train.data import DataService, Dataset, load
from harness.train.feed import BatchFeed
from harness.train.initial import initial_parameters, with_bias
from harness.train.loss_scale import LossScale
from memx.parameter import Parameter
from memx.pattern import Pattern
from memx.store import FileStore, MemoryStore
from memx.tiers import Tiers
from swarm.ports import WaferPort
from swarm.system import Iteration, System
from traces.marks import mark
from wse_core.errors import CheckpointError, ConfigError
from wse_core.formats import Arithmetic

__all__ = ["Step", "Trainer"]


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
    stages : dict[str, int]
        Cycles by layer and phase.
    traffic : dict[str, int]
        Bytes on links by what they are for.
    bottleneck : str
        What was waited for most, ``wafers`` if nothing.
    simulated_seconds : float
        Since the start of training, this iteration and tests before it included.
    scale : float
        Loss scale that was used.
    skipped : bool
        Gradients overflowed, nothing was updated.
    norm : float or None
        Of all gradients together, before they were clipped; None if they are not, or nothing was updated.
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
    stages: Mapping[str, int]
    traffic: Mapping[str, int]
    bottleneck: str
    simulated_seconds: float
    scale: float
    skipped: bool
    norm: float | None
    density: float
    words: int
    gradient_words: int
    hops: int
    macs: int
    host_seconds: float


class Trainer:
    """Trains what a configuration describes.

    Parameters
    ----------
    config : TrainConfig
    backend : {"compiled", "reference", "numpy"}, optional
        Of the wafers, as `swarm.system.System` takes it.
    data : iterable of (inputs, labels), optional
        Batches, instead of the data that the configuration names; see `harness.train.feed.BatchFeed`.

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

    def __init__(
        self, config: TrainConfig, backend: str | None = None, data: Iterable[tuple[ArrayLike, ArrayLike]] | None = None
    ) -> None:
        self.config, self.backend = config, backend
        self.machine, self.network = config.build_machine(), config.build_network()
        self.arithmetic = Arithmetic.of(self.machine, self.network.dtype)
        self.data: DataService | BatchFeed
        if data is None:
            self.data = DataService.of(config, load(config))
        else:
            sizes = config.widths[0], config.widths[-1]
            self.data = BatchFeed(data, config.data.batch, config.wafers, *sizes)
        self.optimizer = config.train.optimizer.build()
        self.loss_scale = LossScale.of(config)
        self.iterations = config.iterations(len(self.dataset.x_train) if data is None else None)
        self.phases = sparsity.phases(config.sparsity, self.iterations)
        self.iteration = self.updates = self.test_cycles = 0
        self.system: System | None = None
        self.matrices, self.norms, self.earlier = initial_parameters(
            config, self.network, self.machine["num.cb16_bias"], self.optimizer.slots, self._stores()
        )

    @property
    def dataset(self) -> Dataset:
        """The samples that the configuration names; `ConfigError` if batches are handed over instead."""
        if isinstance(self.data, BatchFeed):
            raise ConfigError("batches are handed over, there is no data set", where="data")
        return self.data.dataset

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
                self.config.at_once,
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
        train, scale, batch = self.config.train, self.loss_scale.value, self.config.data.batch
        done, right = self._passes(scale)
        self.iteration += 1
        finite, norm = bool(np.isfinite(done.gradients).all()), None
        if not self.loss_scale.update(finite, self.iteration):
            self.updates += 1
            lr = sparsity.learning_rate(train.schedule, self.optimizer.lr, phase, self.iteration - 1)
            gradients = done.gradients / np.float32(scale * batch)
            if train.clip is not None:
                norm = global_norm([gradients])
                gradients *= np.float32(factor(norm, train.clip))
            self._update(gradients, lr, share)
        if share:
            self._ask_everywhere(False)
        loss, accuracy = float(done.loss / np.float32(batch)), right / batch
        return Step(
            self.iteration,
            loss,
            accuracy,
            done.total_cycles,
            done.boundary,
            done.waits,
            done.stages,
            done.traffic,
            done.bottleneck,
            self.cycles / system.hertz,
            scale,
            not finite,
            norm,
            self.density,
            done.words,
            done.gradient_words,
            done.hops,
            done.macs,
            time.perf_counter() - clock,
        )

    def _passes(self, scale: float) -> tuple[Iteration, int]:
        """Let the parts of a batch pass one after the other; return what they gave, and how many were classified right.

        The memory service adds their gradients, and the last pass updates the weights.
        """
        system, parts, right = self.compile(), [], 0
        wanted = np.eye(self.network.features[-1])
        batches = self.data.parts(self.iteration, self.config.train.accumulate)
        for number, samples in enumerate(batches, 1):
            shards = [(self.encode(x.T), self.encode(wanted[y].T)) for x, y in samples]
            whole = self.config.train.clip is not None
            parts.append(system.train(shards, scale, number == len(batches), whole))
            right += self._right(system.logits(), np.concatenate([y for _, y in samples]))
        return Iteration.of_parts(parts), right

    def _update(self, gradients: np.ndarray, lr: float, share: float) -> None:
        """Update all parameters, then exchange a share of the weights of each matrix."""
        start = 0
        for number, parameter in enumerate(self.parameters):
            own = gradients[start : start + parameter.gradient_pattern.count]
            parameter.update(self.optimizer, self.earlier + self.updates, own, lr)
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
        """Return the share of samples no logit of which is larger than that of their label; wafers count them.

        Parameters
        ----------
        inputs : ndarray, shape (samples, features)
        labels : ndarray of int, shape (samples,)
        """
        system, right = self.compile(), 0
        for start in range(0, len(inputs), self.config.at_once):
            stop = start + self.config.at_once
            wanted = np.eye(self.network.features[-1])[labels[start:stop]]
            found, cycles = system.test(self.encode(inputs[start:stop].T), self.encode(wanted.T))
            right += found
            self.test_cycles += cycles
        return right / max(1, len(inputs))

    def _right(self, logits: np.ndarray, labels: np.ndarray) -> int:
        """Return how many samples have their largest logit where their label is."""
        return int((self.arithmetic.decode(logits).argmax(0) == labels).sum())

    def utilisation(self) -> list[float]:
        """Return, per column of the first wafer, the share of the cycles in which its PEs were at work, on average."""
        port = self.compile().ports[0]
        if not isinstance(port, WaferPort) or not port.wafer.fabric.cycle:
            return []
        return [float(share) for share in port.wafer.fabric.counters()["busy"].mean(axis=0) / port.wafer.fabric.cycle]

    def culprit(self) -> int | None:
        """Return the number of the first layer whose activations on any wafer are not finite, else None."""
        for level in range(1, len(self.network.features)):
            for found in self.compile().activations(level):
                if not np.isfinite(self.arithmetic.decode(found)).all():
                    return level
        return None

    def tensors(self) -> dict[str, np.ndarray]:
        """Return weights, masks and optimizer state by the names of `harness.train.weights`, as copies."""
        return weights.taken(self.parameters, self.network.layers, self.earlier + self.updates)

    def save_weights(self, path: str | PathLike[str]) -> None:
        """Write weights, masks and optimizer state to a .safetensors or .npz file."""
        weights.write(Path(path), self.tensors())

    def load_weights(self, source: str | PathLike[str] | Mapping[str, np.ndarray]) -> None:
        """Begin with weights, masks or optimizer state of a file, or of tensors by name, before the first iteration.

        Raises
        ------
        ConfigError
            They do not fit, or training has begun.
        """
        if self.iteration or self.system is not None:
            raise ConfigError("training has begun", where="load_weights", hint="before compile and the first step")
        tensors = source if isinstance(source, Mapping) else weights.read(Path(source))
        self.earlier = weights.put(tensors, self.parameters, self.network.layers) or self.earlier

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
            "earlier": self.earlier,
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
        counts = checkpoint.counts(state, ("iteration", "updates", "earlier", "test_cycles"))
        masks = {
            p.name: np.unpackbits(tensors[f"{p.name}.pattern"], count=p.dense.size).astype(bool).reshape(p.dense.shape)
            for p in self.parameters
        }
        clock = None  # nothing is under way after a run of the pipelined mode
        if state.get("mode") != "pipelined":
            active = {name: int(mask.sum()) for name, mask in masks.items()}
            clock = clock_state.joined(times, state.get("clock"), active)
        self.data.restore(state.get("data"))
        self.loss_scale.restore(state.get("loss_scale"))
        self.iteration, self.updates, self.earlier, self.test_cycles = counts
        for parameter in self.parameters:
            parameter.dense[...] = tensors[parameter.name]
            for slot, values in parameter.state.items():
                values[...] = tensors[f"{parameter.name}.{slot}"]
            parameter.set_pattern(Pattern.of_mask(masks[parameter.name]))
        if clock is not None:
            self.compile().restore(clock)
