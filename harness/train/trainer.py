"""Training by weight streaming takes data service, memory service, tree and wafers, iteration after iteration.

The back end of `harness.train.loop.Loop` that streams weights past wafers: the data service gives every wafer its
shard; the coordinator streams weights and commands (`swarm.system`); gradients come back added over samples and wafers.
A batch that is too large for the wafers passes in parts.

State is what memory service and data service hold: weights, optimizer state, sparsity patterns, loss scale, position
and random state of the data, and the clock with what is under way.  The wafers keep nothing from one iteration to the
next, so that is all that a checkpoint needs to go on with the same bits and cycles.

Source: weight streaming white paper, sections 4 to 7; mixed precision: FP32 master weights, 16-bit stream.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fabric.networks.graph.dropout import Draw
from fabric.networks.graph.lookup import looks_up, no_number
from harness.config.machine import numbers_of
from harness.train import clock_state
from harness.train.config import TrainConfig
from harness.train.data import DataService, Dataset
from harness.train.lookup import numbered, numbers_in
from harness.train.masters import BatchResult, MasterLoop
from harness.train.sources import Samples
from harness.train.text import TokenRows
from memx.store import FileStore, MemoryStore
from memx.tiers import Tiers
from swarm.ports import WaferPort
from swarm.replay import bottleneck
from swarm.system import Iteration, System
from traces.marks import mark
from wse_core.formats import Arithmetic

__all__ = ["Trainer"]


class Trainer(MasterLoop):
    """Trains by weight streaming.

    Parameters
    ----------
    config : TrainConfig
    backend : {"compiled", "reference", "numpy"}, optional
        Of the wafers, as `swarm.system.System` takes it.
    data : Dataset or iterable of (inputs, labels), optional
        See `harness.train.loop.Loop`, which has further attributes.

    Attributes
    ----------
    system : System
        After `compile`.
    """

    def __init__(
        self,
        config: TrainConfig,
        backend: Literal["compiled", "reference", "numpy"] | None = None,
        data: Dataset | Iterable[tuple[ArrayLike, ArrayLike]] | None = None,
    ) -> None:
        self.backend, self.network = backend, config.build_network()
        super().__init__(config, data)
        if isinstance(self.data, DataService):
            self.network = numbered(config, self.network, self.dataset.x_train)
            self.data.numbers = looks_up(self.network)
        self.arithmetic = Arithmetic.of(self.machine, self.network.dtype)
        self.system: System | None = None

    def _stores(self) -> list[MemoryStore | FileStore]:
        """Return where each layer's matrix lies: what the service does not keep in DRAM lies in files, if asked."""
        files, shapes = self.config.memx.files, [(one.outputs, one.inputs + one.bias) for one in self.config.matrices]
        if not files:
            return [MemoryStore() for _ in shapes]
        sizes = [float(math.prod(shape) * self.optimizer.bytes_per_parameter) for shape in shapes]
        behind = FileStore(files, scratch=True)
        return [behind if home else MemoryStore() for home in Tiers.of(self.machine).homes(sizes)]

    @property
    def cycles(self) -> int:
        """The system has taken so many cycles so far."""
        return self.compile().clock

    def compile(self) -> System:
        """Place the network on its wafers, refuse what does not fit; return the `System`, the same one every time."""
        if self.system is None:
            mesh = self.config.mesh
            self.system = System(
                self.network,
                self.matrices,
                self.norms,
                self.machine,
                mesh.columns,
                mesh.height,
                self.config.wafers,
                self.config.at_once,
                self.optimizer.bytes_per_parameter,
                backend=self.backend,
                form=self.config.form,
                mark=mark,
                column_groups=mesh.column_groups,
            )
            self.system.coordinator.script("train")
        return self.system

    @property
    def _begun(self) -> bool:
        return self.system is not None

    def encode(self, values: ArrayLike) -> np.ndarray:
        """Return real numbers in the format of the activations, bit patterns."""
        return self.arithmetic.encode(values)

    def _batch(self, scale: float) -> BatchResult:
        """Let the parts of a batch pass one after the other.

        The memory service adds their gradients, and the last pass updates the weights.
        """
        system, parts, right, labelled = self.compile(), [], list[int | None](), 0
        whole = self.config.train.clip is not None
        batches = self.data.parts(self.iteration, self.config.train.accumulate)
        for number, samples in enumerate(batches, 1):
            smoothing = self.config.train.label_smoothing
            shards = [(self._given(x), self._wanted(y, smoothing)) for x, y in samples]
            draw = Draw(self.config.seed, self.iteration, (number - 1) * self.config.at_once)
            parts.append(system.train(shards, scale, number == len(batches), whole, draw))
            labels = np.concatenate([y for _, y in samples])
            labelled += self._labelled(labels)
            right.append(self._told_right(self.arithmetic.decode(system.logits()).T, labels))
        done = Iteration.of_parts(parts)
        counts = [parameter.gradient_pattern.count for parameter in self.parameters]
        return BatchResult(
            done.loss,
            None if self.config.targets else sum(one or 0 for one in right),
            np.split(done.gradients, np.cumsum(counts)[:-1]),
            labelled,
            {
                "cycles": done.total_cycles,
                "boundary": done.boundary,
                "stages": done.stages,
                "traffic": done.traffic,
                "simulated_seconds": self.cycles / system.hertz,
                "words": done.words,
                "gradient_words": done.gradient_words,
                "hops": done.hops,
                "macs": done.macs,
            },
        )

    def _given(self, samples: np.ndarray) -> np.ndarray:
        """Return samples as wafers take them: bit patterns of shape (features, samples), or numbers."""
        if not looks_up(self.network):
            return self.encode(samples.T)
        return (samples if samples.dtype == np.uint16 else numbers_in(self.network, samples)).T

    def _wanted(self, labels: np.ndarray, smoothing: float = 0.0) -> np.ndarray:
        """Return what is wanted of samples as wafers take it: a row per feature, or of numbers of classes."""
        if self.network.numbered:
            return np.where(labels < 0, no_number(self.network), labels).astype(np.uint16)[None]
        return self.encode(self.network.loss.wanted(labels, self.network.classes, smoothing).T)

    def _classify(self, inputs: Samples, labels: np.ndarray) -> tuple[int, float]:
        """Test a batch after the other; wafers count what is right, the host takes losses from their logits."""
        system, right, loss = self.compile(), 0, 0.0
        for start in range(0, len(inputs), self.config.at_once):
            part = slice(start, start + self.config.at_once)
            given = self._given(inputs.numbers(part) if isinstance(inputs, TokenRows) else inputs[part])
            found, cycles = system.test(given, self._wanted(labels[part]))
            logits = self.arithmetic.decode(system.logits()).T[: given.shape[1]]
            right, loss = right + int(found), loss + self._judged(logits, labels[part])[1]
            self.test_cycles += cycles
        return right, loss

    def utilisation(self) -> list[float]:
        """Return, per column of the first wafer, the share of the cycles in which its PEs were at work, on average."""
        port = self.compile().ports[0]
        if not isinstance(port, WaferPort) or not port.wafer.fabric.cycle:
            return []
        rows = port.wafer.resident.mesh.slices  # without those where groups meet
        network = port.wafer.fabric.counters()["busy"][rows]
        return [float(share) for share in network.mean(axis=0) / port.wafer.fabric.cycle]

    def culprit(self) -> int | None:
        """Return the number of the first layer whose activations on any wafer are not finite, else None."""
        for level in range(1, len(self.network.levels)):
            for found in self.compile().activations(level):
                if not np.isfinite(self.arithmetic.decode(found)).all():
                    return level
        return None

    def clock_facts(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what the clock of the system says of the lines of a log."""
        sums = {name: Counter[str]() for name in ("stages", "traffic")}
        for row in rows:
            for name, table in sums.items():
                table.update(row.get(name, {}))
        saved = self.compile().savings()
        hertz, training, shares = self.compile().hertz, max(1, self.cycles - self.test_cycles), self.utilisation()
        return {
            "cycles": self.cycles,
            "test_cycles": self.test_cycles,
            "simulated_seconds": self.cycles / hertz,
            "samples_per_simulated_second": self.config.data.batch * self.iteration / (training / hertz),
            "lost_cycles": sum(row.get("boundary", 0) for row in rows),
            "stages": dict(sums["stages"]),
            "traffic_bytes": dict(sums["traffic"]),
            "column_utilisation": {"least": min(shares), "mean": sum(shares) / len(shares), "most": max(shares)},
            "would_save": saved,
            "bottleneck": bottleneck(saved),
            "numbers": numbers_of(self.machine),
        }

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def _clock_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        tensors, clock = clock_state.split(self.compile().state())
        return tensors, {"clock": clock}

    def _read_clock(
        self, tensors: Mapping[str, np.ndarray], state: Mapping[str, Any], masks: Mapping[str, np.ndarray]
    ) -> Any:
        if state.get("mode") == "pipelined":
            return None  # nothing is under way after a run of the pipelined mode
        return clock_state.joined(tensors, state.get("clock"), {name: int(mask.sum()) for name, mask in masks.items()})

    def _set_clock(self, clock: Any) -> None:
        if clock is not None:
            self.compile().restore(clock)
