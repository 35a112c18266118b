"""Memory service, tree and wafers are joined here: iterations of the whole system on one clock.

What moves
    The coordinator's words go once to the top of the tree and are copied on the way down; every wafer runs them on its
    shard of the batch, cycle by cycle; gradients and losses come up in one order and are added in the tree's order.

Clock
    Cycles of the wafers, one clock for all parts; `swarm.passage` keeps them together.  A word enters a wafer when its
    value is up to date and has come down (`swarm.service`, `swarm.down`); a number that left is added, comes up and is
    used up (`swarm.up`).  A wafer works on one batch at a time: samples come in over its link when it has ended the one
    before, words that are there already wait in its buffer.  So the weights of an iteration leave while gradients of
    the one before still come, and nothing is added to the wafers' cycles afterwards.

Lost cycles
    A pass of the same words that finds them all there is run once per script, on a wafer of its own; what a pass takes
    longer is `Iteration.boundary`.  What would have saved how much of it says `swarm.replay`.

Source: weight streaming white paper, sections 4.3, 6 and 7.4 (one copy of weights, one of gradients; the round trip at
the boundary of iterations).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from fabric.host.engines import Backend, around, chosen
from fabric.networks.graph.dropout import Draw
from fabric.networks.graph.lookup import looks_up, no_number
from fabric.networks.graph.network import Network
from fabric.networks.streamed.resident import resident_of
from fabric.networks.streamed.script import RoundTrip, Script
from fabric.networks.streamed.wafer import Wafer
from memx.coordinator import Coordinator
from memx.parameter import Parameter
from swarm.crew import current, wafers_here
from swarm.oracle import OraclePort
from swarm.passage import side_by_side, together
from swarm.planes import Planes
from swarm.ports import WaferPort
from swarm.replay import UnhinderedPass, bottleneck, savings
from swarm.tree import gather
from swarm.ways import Ways
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic
from wse_core.params import Machine

__all__ = ["Iteration", "System"]

KEPT_PASSES = 16
"""So many passes that find all words there are kept, of different scripts."""
STEADY = 4
"""Iterations of a system whose time is asked for; the first one has no updates to wait for."""


@dataclass(frozen=True)
class Iteration:
    """An `Iteration` is what a pass over all wafers gave.

    Attributes
    ----------
    loss : numpy.float32
        Sum over all samples.
    gradients : ndarray of float32
        Of all parameters, one after the other, as asked for; sums over all samples, times the loss scale.
    total_cycles : int
        From the end of the pass before to the end of this one, on the slowest wafer.
    load : int
        Part of it in which the samples come in.
    boundary : int
        Part of it that was lost because words were not there, or because gradients could not leave.
    stages : dict[str, int]
        Cycles by phase, on the slowest wafer: to its last gradient, or until the first word of the next one enters.
    traffic : dict[str, int]
        Bytes on the link of the memory service by what they are for (`Script.traffic`), and the samples on the links of
        all wafers.
    words, gradient_words : int
        32-bit words on the link of the memory service, each way.
    hops, macs : int
        Of all wafers.
    host_seconds : float
        Sum over the wafers.
    """

    loss: np.float32
    gradients: np.ndarray
    total_cycles: int = 0
    load: int = 0
    boundary: int = 0
    stages: Mapping[str, int] = field(default_factory=dict)
    traffic: Mapping[str, int] = field(default_factory=dict)
    words: int = 0
    gradient_words: int = 0
    hops: int = 0
    macs: int = 0
    host_seconds: float = 0.0

    @staticmethod
    def of_parts(parts: Sequence[Iteration]) -> Iteration:
        """Return the iteration that passes one after the other make, of which the last one updates the weights."""
        if len(parts) == 1:
            return parts[0]
        loss, tables = np.float32(0), {name: Counter[str]() for name in ("stages", "traffic")}
        for part in parts:
            loss += part.loss
            for name, table in tables.items():
                table.update(getattr(part, name))
        names = ("total_cycles", "load", "boundary", "words", "gradient_words", "hops", "macs", "host_seconds")
        sums: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in names}
        sums |= {name: dict(table) for name, table in tables.items()}
        return Iteration(loss, parts[-1].gradients, **sums)

    @property
    def cycles(self) -> int:
        """A wafer needs so many cycles if nothing keeps it waiting."""
        return self.total_cycles - self.load - self.boundary


class Sent(NamedTuple):
    """A `Sent` is what was sent to the wafers once.

    Attributes
    ----------
    kind : {"train", "infer"}
    script : Script
    cycle : int
        Of the engine of the first wafer, when its samples had come.
    """

    kind: str
    script: Script
    cycle: int


class SystemPass(NamedTuple):
    """A pass of training was sent to all wafers once and took so long.

    Attributes
    ----------
    course : UnhinderedPass
    cycles : int
    update, whole : bool
        As `System.train` takes them.
    samples : int
        Numbers of the samples of a wafer.
    """

    course: UnhinderedPass
    cycles: int
    update: bool
    whole: bool
    samples: int


class System:
    """A `System` is a cluster with a network on it.

    Parameters
    ----------
    network : Network
    matrices : list of Parameter
    norms : dict[int, Parameter]
    machine : Machine
        Its numbers say how fast links, nodes, updates, DRAM and flash are.
    width, height : int
        PEs of a group of columns of each wafer.
    wafers : int
    batch : int
        Samples over all wafers.
    bytes_per_parameter : int
        In the memory service; see `memx.optimizer.Optimizer.bytes_per_parameter`.
    backend : {"compiled", "reference", "numpy"}, optional
        Machine of the wafers; numpy takes their place with `swarm.oracle`, and has no clock.
    form : {"steps", "pairs", "both"}, optional
        How weights go out; see `fabric.networks.streamed.resident.Resident`.
    mark : callable, optional
        Called with (begin, label, track, end), in cycles, for each phase of an iteration when its times are known.
    workers : int, optional
        Wafers that run side by side on the host; default one per core.  No result depends on it.
    column_groups : int, optional
        Groups of columns of each wafer, which share its samples.

    Attributes
    ----------
    ways : Ways
        Memory service and tree on the clock of the system.
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
        bytes_per_parameter: int = 20,
        backend: Literal["compiled", "reference", "numpy"] | None = None,
        form: str = "steps",
        mark: Callable | None = None,
        workers: int | None = None,
        column_groups: int = 1,
    ) -> None:
        if wafers < 1:
            raise ConfigError(f"{wafers} wafers", where="system", hint="at least 1")
        unit = wafers * max(1, height // network.image_rows) * column_groups
        if batch < 1 or batch % unit:
            raise ConfigError(
                f"a batch of {batch} does not divide over {wafers} wafer{'s' * (wafers > 1)} of {height} rows of PEs"
                + f" in {column_groups} groups of columns" * (column_groups > 1),
                where="batch",
                hint=f"{max(1, batch // unit) * unit} or {(batch // unit + 1) * unit}",
            )
        if any(batch * network.pixels(tensor.name) < 2 for tensor in network.over_batches):
            raise ConfigError("a batch of one number per channel has no variance", where="batch", hint="2 or more")
        self.network, self.batch, self.machine, self.mark = network, batch, machine, mark
        simulated = None if backend == "numpy" else backend
        self.backend: Backend = simulated or chosen()[0]
        self.bytes_per_parameter = bytes_per_parameter
        self.crew = current() if backend != "numpy" else None
        self.parts = network, machine, width, height, batch // wafers, form, column_groups
        self.resident = resident_of(*self.parts)
        self.coordinator = Coordinator(self.resident, matrices, norms)
        self.ways = Ways(machine, self.coordinator, bytes_per_parameter, wafers)
        self.links, self.service = self.ways.links, self.ways.service
        self.down, self.up = self.ways.down, self.ways.up
        self.timed = backend != "numpy"
        self.ports = self.ways.ports
        if not self.timed:
            self.ports += [OraclePort(self.resident, self.coordinator) for _ in range(wafers)]
        else:
            made = self.crew.wafers if self.crew else wafers_here
            self.ports += [
                WaferPort(wafer, self.ways.gap) for wafer in made(wafers, self.resident, self.parts, simulated)
            ]
        self.tree = Planes(self.ports, self.links.planes, self.links.ways, self.links.chunk)
        self.done = 0
        self.sent: list[Sent] = []
        self._numbers, self._came = np.empty(0, np.float32), 0  # of the pass under way
        self._kept: np.ndarray | None = None  # sums of gradients that no update has used up
        self._unhindered: dict[Script, UnhinderedPass] = {}
        self._given: list[np.ndarray] = []  # numbers of the samples of the last pass, where they are looked up
        self._passes: list[SystemPass] = []  # of the iteration under way
        self._before: list[SystemPass] = []  # of the iteration before it, if nothing was in between
        self._alike: list[SystemPass] = []  # of the last iteration that one with the same words came before
        self._pool = ThreadPoolExecutor(max_workers=workers or max(1, min(wafers, os.cpu_count() or 1)))

    @property
    def clock(self) -> int:
        """This is the cycle in which the last pass ended on the slowest wafer."""
        return self.ways.clock

    @property
    def hertz(self) -> float:
        """A second has so many cycles."""
        return self.ways.hertz

    # --- passes -------------------------------------------------------------------------------------------------------

    def _pass(
        self,
        kind: str,
        loss_scale: float,
        shards: Sequence[tuple[np.ndarray, np.ndarray]],
        update: bool = False,
        whole: bool = False,
    ) -> tuple[Script, int, int]:
        """Send the words of a pass and let the wafers work on them; return script, first cycle and cycles to load."""
        if looks_up(self.network):
            self._given = [inputs for inputs, _ in shards]
            self.coordinator.choose(np.concatenate(self._given, axis=1))
        self.coordinator.begin(kind)
        streams, script = self.coordinator.streams(kind, loss_scale), self.coordinator.script(kind)
        for number, (port, (inputs, labels)) in enumerate(zip(self.ports, shards, strict=True)):
            port.wafer.load(inputs, labels, self.coordinator.draw.first + number * inputs.shape[1])
            port.expect(script, streams)
        self._numbers, self._came = np.zeros(script.n_places, np.float32), 0
        cuts = pairwise([0, *(trip.first for trip in script.trips), script.n_words])

        def send() -> None:
            """Send the words up to the next round trip."""
            first, stop = next(cuts)
            streams = self.coordinator.streams(kind, loss_scale)
            self.tree.weights(np.concatenate([payload for payload, _ in streams])[script.sequence[first:stop]])

        def answer(trip: RoundTrip) -> None:
            """Take the sums of all wafers, and send what is made of them."""
            self._gather(script, trip.needed)
            self.coordinator.answer(trip, self._numbers[trip.places], self.batch)
            send()

        send()
        if not self.timed:
            for port in self.ports:
                port.begin(kind, loss_scale)
            for trip in (*script.trips, None):
                together(self._pool, [(port.work,) for port in self.ports])
                if trip is not None:
                    answer(trip)
            return script, 0, 0
        begun, load = self.clock, self.ways.load(shards[0][0].size)
        self.sent.append(Sent(kind, script, self.ports[0].ended + load + self.ports[0].origin))
        advance = self.crew.advance if self.crew else side_by_side
        self.ways.run(script, shards[0][0].size, update, whole, self._pool, advance, answer)
        return script, begun, load

    def _gather(self, script: Script, count: int) -> None:
        """Take numbers from the tree, so that the first `count` of them are there, each at its place."""
        with np.errstate(invalid="ignore", over="ignore"):  # an overflow is for the loss scale to see
            found = gather(self.tree, count - self._came)
        self._numbers[script.returned[self._came : count]] = found
        self._came = count

    def _facts(self, script: Script, begun: int, load: int, shards: Sequence[tuple[np.ndarray, ...]]) -> dict[str, Any]:
        """Return what a pass of training took."""
        free = self.unhindered("train")
        slowest = max(self.ports, key=lambda port: port.ended)
        lost = max(0, self.clock - begun - load - free.cycles)
        return {
            "total_cycles": self.clock - begun,
            "load": load,
            "boundary": lost,
            "stages": _stages(script, slowest),
            "traffic": script.traffic() | {"samples": 2 * sum(inputs.size for inputs, _ in shards)},
            "words": script.n_words,
            "hops": sum(port.hops for port in self.ports),
            "macs": sum(port.macs for port in self.ports),
            "host_seconds": sum(port.host_seconds for port in self.ports),
        }

    def unhindered(self, kind: str) -> UnhinderedPass:
        """Return what a pass takes that finds all its words there: measured, once per script, on a wafer of its own."""
        script = self.coordinator.script(kind)
        known = self._unhindered.get(script)
        if known is None:
            with around(self.backend):  # nobody records it
                wafer = Wafer(self.resident, self.backend)
            port = WaferPort(wafer)
            port.expect(script, self.coordinator.streams(kind))
            port.weights(np.concatenate([words for words, _ in self.coordinator.streams(kind)])[script.sequence])
            port.begin(0)
            port.offer(np.zeros(script.n_words))
            port.advance(np.inf)
            if len(self._unhindered) == KEPT_PASSES:
                del self._unhindered[next(iter(self._unhindered))]
            known = self._unhindered[script] = UnhinderedPass(script, port.ended, port.entered, port.left)
        return known

    def train(
        self, shards: list, loss_scale: float = 1.0, update: bool = True, whole: bool = False, draw: Draw | None = None
    ) -> Iteration:
        """Run an iteration, or a part of one.

        Parameters
        ----------
        shards : list of (inputs, labels)
            Per wafer, bit patterns of shape (features, samples) and (classes, samples).
        loss_scale : float
            A power of two.
        update : bool, optional
            False: the memory service keeps the gradients and adds those of the next pass to them; the weights stay.
        whole : bool, optional
            No weight is updated before all gradients are there: their norm decides.
        draw : Draw, optional
            What dropout goes by; its first token is that of the first wafer.

        Returns
        -------
        Iteration
            Its gradients are the sums of all passes since the last update.
        """
        self.coordinator.draw = draw or Draw()
        script, begun, load = self._pass("train", loss_scale, shards, update, whole)
        facts = self._facts(script, begun, load, shards) if self.timed else {}
        asked, count = int(script.offsets[-1]), len(script.back)
        self._gather(script, count)
        numbers, loss = self._numbers, np.float32(0)
        with np.errstate(invalid="ignore", over="ignore"):
            for part in numbers[asked : asked + script.columns]:
                loss += part
        parts = np.split(numbers[:asked], script.offsets[1:-1])
        gradients = np.concatenate([self.coordinator.of_all(k, part) for k, part in enumerate(parts)])
        if self._kept is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                gradients = self._kept + gradients
        self._kept = None if update else gradients
        if self.timed:
            self._note(facts["total_cycles"], update, whole, shards[0][0].size)
        if self.timed and update:
            self.service.took(script, self.up, bool(np.isfinite(gradients).all()))
        if update:
            self.coordinator.end()
        found = Iteration(loss, gradients, gradient_words=count, **facts)
        self.done += 1
        if self.mark is not None and self.timed:
            self._mark(self.mark, script, begun, found.load)
        return found

    def _note(self, cycles: int, update: bool, whole: bool, samples: int) -> None:
        """Keep what an iteration took, for `savings`."""
        self._passes.append(SystemPass(self.unhindered("train"), cycles, update, whole, samples))
        if update:
            known = {id(one.course) for one in (*self._before, *self._passes)}
            if self._before and len(known) == 1:
                self._alike = self._passes
            self._before, self._passes = self._passes, []

    def savings(self) -> dict[str, float]:
        """Return which changes of the ways would have saved which share of an iteration (`swarm.replay.savings`).

        Nothing, if no two iterations with the present masks followed each other: only then is one like all others.
        """
        alike = self._alike
        if not alike or alike[0].course.script is not self.coordinator.script("train"):
            return {}
        passes, samples = [(one.update, one.whole) for one in alike], alike[0].samples
        taken = sum(one.cycles for one in alike)
        return savings(self.ways, alike[0].course, taken, samples, passes, self.simulated)

    @property
    def bottleneck(self) -> str:
        """This is what an iteration waits for most, a cause of `swarm.replay.CHANGES`, or ``wafers``."""
        return bottleneck(self.savings())

    def simulated(self, machine: Machine, passes: Sequence[tuple[bool, bool]]) -> float:
        """Return the cycles of an iteration on another machine, simulated with samples of zeros, in steady state."""
        network, _, width, height, samples, form, column_groups = self.parts
        place = width, height, len(self.ports), self.batch, self.bytes_per_parameter, self.backend, form
        coordinator = self.coordinator
        running = [kept.running.copy() for _, kept in coordinator.over_batches]
        other = System(network, coordinator.matrices, coordinator.norms, machine, *place, column_groups=column_groups)
        nothing = [np.zeros((features, samples), np.uint16) for features in (network.inputs, network.label_rows)]
        shards, taken = [tuple(nothing) for _ in self.ports], [0.0]
        if self._given:  # as many rows go out
            shards = [(given, labels) for given, (_, labels) in zip(self._given, shards, strict=True)]
        try:
            while len(taken) < STEADY:
                done = [other.train(shards, 1.0, *how) for how in passes]
                taken.append(sum(part.total_cycles for part in done))
        finally:
            other.close()
            for (_, kept), values in zip(coordinator.over_batches, running, strict=True):
                kept.restore(values)
        return sum(taken[-2:]) / 2

    def _mark(self, mark: Callable, script: Script, begun: int, load: int) -> None:
        """Mark the phases of an iteration on the clock of the system."""
        mark(begun, "samples", track="links", end=begun + load)
        sent = self.down.sent  # a word on one plane may pass an earlier one on another
        first, last = int(sent.min()), int(np.ceil(sent.max() + self.down.away.max()))
        mark(first, "weights and commands", track="memory service", end=last)
        for number, port in enumerate(self.ports):
            mark(port.ready, f"iteration {self.done}", track=f"wafer {number}", end=port.ended)
        places = np.concatenate(script.places)[script.back]
        for parameter, low, high in zip(
            self.coordinator.parameters, script.offsets[:-1], script.offsets[1:], strict=True
        ):
            mine = (places >= low) & (places < high)
            if mine.any():
                left = min(port.left[mine].min() for port in self.ports)
                came, new = self.up.came[mine], self.up.new[mine]
                mark(int(left), f"gradients of {parameter.name}", track="tree", end=int(came.max()) + 1)
                name = f"update of {parameter.name}"
                mark(int(came.min()), name, track="updates", end=int(np.ceil(new.max())))

    def test(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, int]:
        """Classify up to a batch of samples: forward passes, and the wafers count those that are right.

        Of a network whose loss does not tell right from wrong they add the losses instead.

        Parameters
        ----------
        inputs : ndarray of uint16, shape (features, samples)
            Bit patterns.
        labels : ndarray of uint16, shape (classes, samples)
            Bit patterns: one at the wanted class, else zero; or targets; or numbers of classes.

        Returns
        -------
        right : float
            Samples of which no logit is larger than that of the wanted class, or losses; added by wafers and tree.
        cycles : int
            From the end of the pass before.
        """
        given = inputs.shape[1]
        if given > self.batch:
            raise ConfigError(f"{given} samples in a batch of {self.batch}", where="test")
        none = int(Arithmetic.of(self.machine, self.network.dtype).encode(self.network.loss.none))
        none = no_number(self.network) if self.network.numbered else none
        padded = [  # no class: never right, and no targets
            np.pad(part, ((0, 0), (0, self.batch - given)), constant_values=value)
            for part, value in ((inputs, 0), (labels, none))
        ]
        shards = list(zip(*(np.split(part, len(self.ports), axis=1) for part in padded), strict=True))
        said, before = self.coordinator.said, self._given
        script, begun, _ = self._pass("test", 1.0, shards)
        self.coordinator.said, self._given, self._before = said, before, []
        self._gather(script, len(script.back))
        found = float(self._numbers.sum())
        return int(found) if self.network.loss.judges else found, self.clock - begun

    def logits(self) -> np.ndarray:
        """Return the logits that the wafers hold, bit patterns of shape (classes, samples)."""
        return np.concatenate(self.activations(len(self.network.levels) - 1), axis=1)

    def activations(self, level: int) -> list[np.ndarray]:
        """Return the activations of a level on each wafer, bit patterns of shape (features, samples)."""
        if self.crew:
            return self.crew.activations([port.wafer for port in self.ports], level)
        return [port.wafer.activations(level) for port in self.ports]

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what the next pass depends on, besides the parameters: clocks, and what is under way."""
        ended = [port.ended for port in self.ports] if self.timed else []
        return {"clock": self.clock, "done": self.done, "ended": ended, **self.ways.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned; the parameters have their values and patterns already."""
        self.done, self._before, self._passes, self._alike = state["done"], [], [], []
        self.ways.restore(state, state["ended"])

    def close(self) -> None:
        """End the host's threads, and let other ranks forget the wafers."""
        if self.crew:
            self.crew.release([port.wafer for port in self.ports])
        self._pool.shutdown()


def _stages(script: Script, port: WaferPort) -> dict[str, int]:
    """Return how long each phase of a pass took a wafer: to the last of its gradients, or to the next one's first word.

    Words wait in the queues of a PE, a dozen of them, before they are worked on; so a phase without gradients seems to
    begin and to end that much earlier than it does.
    """
    begins = np.full(len(script.phases), np.inf)
    np.minimum.at(begins, script.stretch, port.entered)
    begins = np.minimum.accumulate(np.append(begins, port.ended)[::-1])[::-1]  # one without words takes no time
    places = np.concatenate(script.places)[script.back]
    for number, parameter in enumerate(script.answers):
        if parameter is not None:
            mine = (places >= script.offsets[parameter]) & (places < script.offsets[parameter + 1])
            begins[number + 1] = max(begins[number + 1], port.left[mine].max(initial=0))
    begins = np.maximum.accumulate(begins)
    return {label: int(end - begin) for (label, _), begin, end in zip(script.phases, begins, begins[1:], strict=False)}
