"""Memory service, tree and wafers joined: one iteration of the whole system, and its time on one clock.

What moves
    The coordinator's words go once to the top of the tree and are copied on the way down; every wafer runs them on its
    shard of the batch, cycle by cycle; gradients and losses come up in one order and are added in the tree's order.

Clock
    Cycles of the wafers.  An iteration takes what the slowest wafer takes (or the links, if they are slower), after the
    samples have come in over the same links.  The next one begins when the wafers are free and the updated weights of
    its first rows can be there: a row's gradient leaves, passes the tree, is added to the weight after the latency of
    the memory service, and the weight comes back.  What the wafers wait for that is `Iteration.boundary`.

Wafers run in threads of the host; they share nothing, so the result does not depend on that.

Source: weight streaming white paper, sections 4.3 and 6 (one copy of weights, one of gradients; the round trip at the
boundary of iterations).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fabric.networks.streamed.network import Network
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.wafer import Pass, Wafer
from memx.coordinator import Coordinator, Script
from memx.parameter import Parameter
from swarm.oracle import OraclePort
from swarm.timing import Links, Updates
from swarm.tree import CHUNK, Endpoint, build, gather
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["Iteration", "System", "WaferPort"]


@dataclass(frozen=True)
class Iteration:
    """What an iteration gave.

    Attributes
    ----------
    loss : numpy.float32
        Sum over all samples.
    gradients : ndarray of float32
        Of all parameters, one after the other, as asked for; sums over all samples, times the loss scale.
    cycles : int
        Of the slowest wafer.
    load : int
        Cycles before, in which the samples come in.
    boundary : int
        Cycles that the wafers wait for the first updated weights of the next iteration.
    words, gradient_words : int
        32-bit words on the link of the memory service, each way.
    hops, macs : int
        Of all wafers.
    host_seconds : float
        Sum over the wafers.
    """

    loss: np.float32
    gradients: np.ndarray
    cycles: int
    load: int
    boundary: int
    words: int
    gradient_words: int
    hops: int
    macs: int
    host_seconds: float

    @property
    def total_cycles(self) -> int:
        """Cycles from one iteration to the next."""
        return self.load + self.cycles + self.boundary


class WaferPort(Endpoint):
    """A wafer at the end of a link.

    Parameters
    ----------
    wafer : Wafer
    """

    def __init__(self, wafer: Wafer) -> None:
        self.wafer = wafer

    def expect(self, script: Script, streams: list) -> None:
        """Say how the words that come are cut into columns, and which are commands."""
        self.script, self._flags = script, [flags for _, flags in streams]
        self._lengths = np.cumsum([len(flags) for flags in self._flags])
        self._came: list[np.ndarray] = []

    def weights(self, words: np.ndarray) -> None:
        self._came.append(words)

    def work(self, loss_scale: float = 1.0) -> Pass:
        """Run what came; return the `Pass`.  The loss scale is among the words already."""
        columns = np.split(np.concatenate(self._came), self._lengths[:-1])
        self.passed = self.wafer.run(list(zip(columns, self._flags, strict=True)))
        return self.passed

    def gradients(self, count: int) -> Iterator[np.ndarray]:
        found = np.zeros(count, np.float32)
        for places, numbers in zip(self.script.places, self.passed.numbers, strict=True):
            found[places] = numbers
        for start in range(0, count, CHUNK):
            yield found[start : start + CHUNK]

    def times(self, count: int) -> np.ndarray:
        """Return when each number left, in cycles."""
        found = np.zeros(count, np.int64)
        for places, times in zip(self.script.places, self.passed.times, strict=True):
            found[places] = times
        return found


class Sent(NamedTuple):
    """What was sent to the wafers once.

    Attributes
    ----------
    kind : {"train", "infer"}
    script : Script
    cycle : int
        Of the first wafer, when it was sent; between passes the clock of a wafer stands still.
    """

    kind: str
    script: Script
    cycle: int


class System:
    """A cluster with a network on it.

    Parameters
    ----------
    network : Network
    matrices : list of Parameter
    norms : dict[int, Parameter]
    machine : Machine
    width, height : int
        PEs of each wafer that are used.
    wafers : int
    batch : int
        Samples over all wafers.
    links : Links, optional
    backend : {"compiled", "reference", "numpy"}, optional
        Machine of the wafers; numpy takes their place with `swarm.oracle`.
    mark : callable, optional
        Called with (begin, label, track, end), in cycles, for each phase of an iteration when its times are known.

    Attributes
    ----------
    sent : list of Sent
        Every pass of the wafers so far.

    Raises
    ------
    ConfigError
        A batch that does not divide over wafers and rows of PEs; a network that does not fit.
    """

    def __init__(
        self,
        network: Network,
        matrices: list[Parameter],
        norms: dict[int, Parameter],
        machine: Machine,
        width: int,
        height: int,
        wafers: int,
        batch: int,
        links: Links | None = None,
        backend: str | None = None,
        mark: Callable | None = None,
    ) -> None:
        if wafers < 1:
            raise ConfigError(f"{wafers} wafers", where="system", hint="at least 1")
        if batch < 1 or batch % (wafers * height):
            unit = wafers * height
            raise ConfigError(
                f"a batch of {batch} does not divide over {wafers} wafers of {height} rows of PEs",
                where="batch",
                hint=f"{max(1, batch // unit) * unit} or {(batch // unit + 1) * unit}",
            )
        self.network, self.batch, self.links = network, batch, links or Links.of(machine)
        self.updates, self.mark = Updates.of(machine), mark
        self.machine, self.resident = machine, Resident(network, machine, width, height, batch // wafers)
        self.coordinator = Coordinator(self.resident, matrices, norms)
        self.ports = [
            OraclePort(self.resident, self.coordinator)
            if backend == "numpy"
            else WaferPort(Wafer(self.resident, backend))
            for _ in range(wafers)
        ]
        self.tree = build(self.ports, self.links.ways)
        self.clock = self.done = 0
        self.sent: list[Sent] = []
        self._pool = ThreadPoolExecutor(max_workers=max(1, min(wafers, os.cpu_count() or 1)))

    @property
    def hertz(self) -> float:
        """Cycles per second."""
        return self.machine["clock.ghz"] * 1e9

    def _send(
        self, kind: str, loss_scale: float, shards: Sequence[tuple[np.ndarray, np.ndarray | None]]
    ) -> tuple[Script, list[Any]]:
        streams = self.coordinator.streams(kind, loss_scale)
        script = self.coordinator.script(kind)
        first = self.ports[0]
        if isinstance(first, WaferPort):
            self.sent.append(Sent(kind, script, first.wafer.fabric.cycle))
        for port, (inputs, labels) in zip(self.ports, shards, strict=True):
            port.wafer.load(inputs, labels)
            port.expect(script, streams)
        for payload, _ in streams:
            self.tree.weights(payload)
        working = [self._pool.submit(port.work, loss_scale) for port in self.ports]
        try:
            return script, [future.result() for future in working]
        finally:  # after an interruption nobody may touch a wafer that still runs
            for future in working:
                future.cancel()
            wait(working)

    def train(self, shards: list, loss_scale: float = 1.0) -> Iteration:
        """Run an iteration.

        Parameters
        ----------
        shards : list of (inputs, labels)
            Per wafer, bit patterns of shape (features, samples) and (classes, samples).
        loss_scale : float
            A power of two.

        Returns
        -------
        Iteration
        """
        script, passes = self._send("train", loss_scale, shards)
        asked = int(script.offsets[-1])
        count = asked + self.resident.width
        loss = np.float32(0)
        with np.errstate(invalid="ignore", over="ignore"):  # an overflow is for the loss scale to see
            numbers = gather(self.tree, count)
            for part in numbers[asked:]:
                loss += part
        cycles = max(done.cycles for done in passes)
        per_cycle = self.links.bytes_per_second / self.hertz
        left = np.max([port.times(count) for port in self.ports], axis=0)[:asked]
        updated = self.updates.done(left + self.away, self.hertz)
        found = Iteration(
            loss=loss,
            gradients=numbers[:asked],
            cycles=max(cycles, int(-(-4 * script.n_words // per_cycle))),
            load=int(-(-2 * shards[0][0].size // per_cycle)),
            boundary=self._boundary(script, cycles, updated),
            words=script.n_words,
            gradient_words=count,
            hops=sum(done.run.wavelet_hops for done in passes),
            macs=sum(done.run.macs for done in passes),
            host_seconds=sum(done.run.host_seconds for done in passes),
        )
        if self.mark is not None:
            self._mark(self.mark, script, found, passes, left, updated)
        self.done += 1
        self.clock += found.total_cycles
        return found

    @property
    def away(self) -> float:
        """Cycles from a wafer to the memory service, or back."""
        return self.links.one_way(len(self.ports)) * self.hertz

    def _boundary(self, script: Script, cycles: int, updated: np.ndarray) -> int:
        """Return the cycles from the end of the wafers' work to the begin of the next iteration on them."""
        needed = self.coordinator.first_use(script)
        late = (updated + self.away - needed)[needed >= 0]
        return max(0, int(np.ceil(late.max(initial=0))) - cycles)

    def _mark(
        self,
        mark: Callable,
        script: Script,
        found: Iteration,
        passes: Sequence[Any],
        left: np.ndarray,
        updated: np.ndarray,
    ) -> None:
        """Mark the phases of an iteration on the clock of the run."""
        start = self.clock + found.load
        mark(self.clock, "samples", track="links", end=start)
        mark(start, "weights and commands", track="memory service", end=start + int(self.away) + script.longest)
        for number, done in enumerate(passes):
            mark(start, f"iteration {self.done + 1}", track=f"wafer {number}", end=start + done.cycles)
        for parameter, first, last in zip(
            self.coordinator.parameters, script.offsets[:-1], script.offsets[1:], strict=True
        ):
            if last > first:
                mark(
                    start + int(left[first:last].min()),
                    f"gradients of {parameter.name}",
                    track="tree",
                    end=start + int(left[first:last].max() + self.away) + 1,
                )
                mark(
                    start + int(left[first:last].min() + self.away),
                    f"update of {parameter.name}",
                    track="updates",
                    end=start + int(np.ceil(updated[first:last].max())),
                )

    def infer(self, inputs: np.ndarray) -> np.ndarray:
        """Return the logits of up to a batch of samples, bit patterns of shape (classes, samples).

        Parameters
        ----------
        inputs : ndarray of uint16, shape (features, samples)
        """
        given = inputs.shape[1]
        if given > self.batch:
            raise ConfigError(f"{given} samples in a batch of {self.batch}", where="inference")
        whole = np.zeros((len(inputs), self.batch), np.uint16)
        whole[:, :given] = inputs
        shards = [(np.ascontiguousarray(part), None) for part in np.split(whole, len(self.ports), axis=1)]
        self._send("infer", 1.0, shards)
        return self.logits()[:, :given]

    def logits(self) -> np.ndarray:
        """Return the logits that the wafers hold, bit patterns of shape (classes, samples)."""
        levels = len(self.network.layers)
        return np.concatenate([port.wafer.activations(levels) for port in self.ports], axis=1)

    def close(self) -> None:
        """End the host's threads."""
        self._pool.shutdown()
