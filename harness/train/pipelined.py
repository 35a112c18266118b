"""Training layer by layer is done on one wafer: runs of minibatches through the pipeline, weights updated where they
are.

The back end of `harness.train.loop.Loop` whose updates the PEs do themselves.  Between runs the pipeline is empty, and
the weights on the wafer are those of an iteration; `under_way` says that steps of a run have yet to be handed out.

The loss scale does not change: a PE updates its weights with its own gradients and nobody else's, so no update can be
left out because of an overflow elsewhere.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fabric.networks.graph.operations import wanted_of
from fabric.networks.pipelined.fit import loss_rows
from fabric.networks.pipelined.oracle import PipelinedOracle
from fabric.networks.pipelined.pipeline import Pipeline
from fabric.networks.pipelined.wafer import PipelinedWafer, Run
from harness.train import artefact, checkpoint
from harness.train.config import TrainConfig
from harness.train.loop import Loop, Step, judged
from harness.train.pipeline_config import minibatch_of, refuse_gaps, refuse_unsupported, rule_of, run_length
from harness.train.placement import placement
from harness.train.sources import Samples
from wse_core.errors import CheckpointError, ConfigError, ProgramError, TrainingError
from wse_core.formats import Arithmetic

__all__ = ["DEFAULT_SCALE", "CompiledNetwork", "PipelinedTrainer", "config_digest"]

DEFAULT_SCALE = {"f16": 2.0**10, "cb16": 1.0}
"""Loss scale of a file that names none: it must do for the whole run."""


@dataclass(frozen=True)
class CompiledNetwork:
    """A `CompiledNetwork` is a network on its wafer, layer by layer, ready to run.

    Attributes
    ----------
    pipeline : Pipeline
    wafer : PipelinedWafer or PipelinedOracle
        What runs.
    hertz : float
        Of the wafer's clock.
    """

    pipeline: Pipeline
    wafer: PipelinedWafer | PipelinedOracle
    hertz: float


def config_digest(config: TrainConfig) -> str:
    """Return a digest of all that decides what is compiled."""
    mine = json.dumps(dataclasses.asdict(config.pipeline), sort_keys=True) + str(run_length(config))
    return hashlib.sha256((config.fingerprint() + mine).encode()).hexdigest()


class PipelinedTrainer(Loop):
    """Trains with all layers on one wafer.

    Parameters
    ----------
    config : TrainConfig
    backend : {"compiled", "reference", "numpy"}, optional
        Of the wafer; ``numpy`` is the oracle, without cycles.
    compiled : path-like, optional
        Artefact of an earlier compilation, instead of placing and routing again.

    Attributes
    ----------
    cycles : int
        Of the wafer so far; `harness.train.loop.Loop` has further attributes.
    """

    def __init__(
        self,
        config: TrainConfig,
        backend: Literal["compiled", "reference", "numpy"] | None = None,
        compiled: str | PathLike[str] | None = None,
    ) -> None:
        refuse_unsupported(config)
        self.backend, self.network = backend, config.build_network()
        self.artefact = None if compiled is None else artefact.read(compiled, config_digest(config))
        super().__init__(config)
        self.arithmetic = Arithmetic.of(self.machine, self.network.dtype)
        self.rule = rule_of(self.optimizer)
        if config.train.loss_scale.initial is None:
            self.loss_scale.value = DEFAULT_SCALE[self.network.dtype]
        self.minibatch, self.run_length, self.cycles = minibatch_of(config), run_length(config), 0
        self._refuse_gaps()
        self._compiled: CompiledNetwork | None = None
        self._times: list[np.ndarray] = []
        self._busy: dict[str, float] = {}

    def _refuse_gaps(self) -> None:
        if not all(parameter.pattern.mask().all() for parameter in self.parameters):
            refuse_gaps("network.weights")

    def load_weights(self, source: str | PathLike[str] | Mapping[str, np.ndarray]) -> None:
        """Begin with weights of a file, as `harness.train.loop.Loop.load_weights`; masks with gaps are refused."""
        super().load_weights(source)
        self._refuse_gaps()

    @property
    def _begun(self) -> bool:
        return self._compiled is not None

    def compile(self) -> CompiledNetwork:
        """Place the network on its wafer, refuse what does not fit; the same every time."""
        if self._compiled is None:
            mesh = self.config.mesh
            known = self.artefact
            pipeline = Pipeline(
                self.network,
                self.machine,
                known.placed if known else placement(self.config),
                self.minibatch,
                self.rule,
                self.run_length,
                loss_rows=loss_rows(self.minibatch, mesh.height - 1),
                ways=known.ways if known else None,
            )
            if known and artefact.digest_of(pipeline.layout.build()) != known.digest:
                raise ConfigError(
                    "the programs are not those that were compiled", where="--compiled", hint="compile again"
                )
            values = self._values()
            if self.backend == "numpy":
                wafer: PipelinedWafer | PipelinedOracle = PipelinedOracle(pipeline, *values)
            else:
                try:
                    wafer = PipelinedWafer(pipeline, self.backend)
                except ProgramError as error:
                    raise ConfigError(
                        "a tile does not fit its PE",
                        cause=error.what,
                        where="mesh",
                        hint="more PEs, or smaller minibatches (pipeline.minibatch)",
                    ) from None
                wafer.load(*values)
            self._compiled = CompiledNetwork(pipeline, wafer, self.machine["clock.ghz"] * 1e9)
        return self._compiled

    def _values(self) -> tuple[list[np.ndarray], list[dict[str, np.ndarray]]]:
        """Return (weights, optimizer state) as wafers take them: matrices, then factors and shifts."""
        return [p.dense for p in self.parameters], [dict(p.state) for p in self.parameters]

    def encode(self, values: ArrayLike) -> np.ndarray:
        """Return real numbers in the format of the activations, bit patterns."""
        return self.arithmetic.encode(values)

    # --- iterations ---------------------------------------------------------------------------------------------------

    def _run(self) -> list[Step]:
        """Run the minibatches until the pipeline is to be empty; return the step of each iteration among them."""
        clock, compiled, batch = time.perf_counter(), self.compile(), self.config.data.batch
        first = self.iteration
        count = min((first // self.run_length + 1) * self.run_length, self.iterations) - first
        steps, shards = [], [self.data.batch(first + k)[0] for k in range(count)]
        labels = np.concatenate([y for _, y in shards])
        inputs = self.encode(np.concatenate([x for x, _ in shards]))
        wanted = self.encode(wanted_of(labels, self.network.features[-1], self.config.train.label_smoothing))
        scale = self.loss_scale.value
        constants = np.stack(
            [
                self.rule.constants(self.earlier + self.updates + 1 + k, scale, batch, self._rate(first + k))
                for k in range(count)
            ]
        )
        parts = batch // self.minibatch
        before = self._all_busy()
        done = compiled.wafer.run(inputs, wanted, constants, parts, scale)
        self.updates += count
        times = np.zeros(count + 1, np.int64)
        if isinstance(done, Run):
            self._times.append(done.loss_times)
            times[1:] = done.loss_times[parts - 1 :: parts]
            times[-1] = done.cycles
            after = self._all_busy()
            for name, value in after.items():
                self._busy[name] = self._busy.get(name, 0.0) + value - before[name]
        right = (self.arithmetic.decode(done.logits).argmax(1) == labels).reshape(count, batch).mean(1)
        losses = done.losses.reshape(count, parts).sum(1) / np.float32(batch)
        seconds = (time.perf_counter() - clock) / count
        for k in range(count):
            self.cycles += int(times[k + 1] - times[k])
            steps.append(
                Step(
                    iteration=first + k + 1,
                    loss=float(losses[k]),
                    accuracy=float(right[k]),
                    cycles=int(times[k + 1] - times[k]),
                    simulated_seconds=self.cycles / compiled.hertz,
                    scale=scale,
                    density=self.density,
                    host_seconds=seconds,
                )
            )
        self._fetch(first + count)
        return steps

    def _fetch(self, iteration: int) -> None:
        """Take weights and optimizer state from the wafer."""
        wafer = self.compile().wafer
        for parameter, weights, state in zip(self.parameters, wafer.weights(), wafer.state(), strict=True):
            if not np.isfinite(weights).all():
                raise TrainingError(
                    "weights are not finite any more",
                    iteration=iteration,
                    layer=int(parameter.name.removeprefix("layer").split(".")[0]),
                    cause=f"gradients overflow with a loss scale of {self.loss_scale.value:g}, or the learning rate is "
                    "too large",
                    hint="a smaller train.loss_scale.initial or train.optimizer.lr, or dtype cb16",
                )
            parameter.dense[...] = weights
            for slot, values in state.items():
                parameter.state[slot][...] = values

    def _classify(self, inputs: Samples, labels: np.ndarray) -> tuple[int, float]:
        """Let samples stream through the pipeline; the host looks at the logits that come out."""
        padded = np.zeros((-(-len(inputs) // self.minibatch) * self.minibatch, inputs.shape[1]), np.float32)
        padded[: len(inputs)] = inputs[:]
        done = self.compile().wafer.run(self.encode(padded))
        if isinstance(done, Run):
            self.cycles += done.cycles
            self.test_cycles += done.cycles
        return judged(self.arithmetic.decode(done.logits[: len(inputs)]), labels)

    def culprit(self) -> int | None:
        """Return None: which activations were not finite first is not known, since nothing of them leaves."""
        return None

    # --- what the wafer did -------------------------------------------------------------------------------------------

    def _all_busy(self) -> dict[str, float]:
        """Return the busy cycles of the busiest PE of every rectangle so far."""
        wafer = self.compile().wafer
        if not isinstance(wafer, PipelinedWafer):
            return {}
        busy = wafer.fabric.counters()["busy"]
        return {
            name: float(busy[y : y + h, x : x + w].max()) for name, (x, y, w, h) in wafer.pipeline.rectangles().items()
        }

    def pipeline_facts(self) -> dict[str, Any]:
        """Return how the pipeline filled, how fast it was then, and which rectangle was busiest."""
        training = self.cycles - self.test_cycles
        if not self._times or not training:
            return {}
        gaps = np.concatenate([np.diff(times) for times in self._times])
        shares = {name: value / training for name, value in self._busy.items() if name != "gate"}
        slowest = max(shares, key=lambda name: shares[name])
        return {
            "minibatch": self.minibatch,
            "updates": self.config.pipeline.updates,
            "fill_cycles": int(np.median([times[0] for times in self._times])),
            "steady_cycles_per_minibatch": float(np.median(gaps)) if len(gaps) else None,
            "slowest": slowest,
            "utilisation": {name: round(share, 4) for name, share in shares.items()},
        }

    def clock_facts(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what the clock of the wafer says."""
        hertz, training = self.compile().hertz, max(1, self.cycles - self.test_cycles)
        return {
            "cycles": self.cycles,
            "test_cycles": self.test_cycles,
            "simulated_seconds": self.cycles / hertz,
            "samples_per_simulated_second": self.config.data.batch * self.iteration / (training / hertz),
            "pipeline": self.pipeline_facts(),
        }

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def _clock_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {}, {"mode": "pipelined", "cycles": self.cycles}

    def _read_clock(
        self, tensors: Mapping[str, np.ndarray], state: Mapping[str, Any], masks: Mapping[str, np.ndarray]
    ) -> Any:
        if not all(mask.all() for mask in masks.values()):
            raise CheckpointError("weights are missing, and tiles are dense", hint="--mode streaming")
        mine = state.get("mode") == "pipelined"
        return checkpoint.counts(state, ("cycles" if mine else "test_cycles",))[0]

    def _set_clock(self, clock: Any) -> None:
        self.cycles = clock
        if self._compiled is not None:
            wafer = self._compiled.wafer
            if isinstance(wafer, PipelinedWafer):
                wafer.load(*self._values())
            else:
                self._compiled = None
