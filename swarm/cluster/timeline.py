"""Memory service, tree and wafers have one clock: when each layer is streamed, computed, received and updated.

What happens
    The memory service runs three functions side by side (white paper, section 7.4, figure 23).  *Stream*: weights of
    the layers first to last, then, last to first, the transposed weights (not of the first layer) and the places at
    which gradients are asked for.  *Receive*: the gradients of all wafers, added on the way by the tree, so the slowest
    wafer counts.  *Update*: in order of arrival.  A weight of the next iteration leaves as soon as it is updated.  If
    the parameters do not fit into DRAM, the first layers stay there; tiers behind it read the others ahead of the
    stream, as far as half of the DRAM holds, and write what was updated.

Grain
    A layer is cut into parts, groups of rows in the order of the stream; a part moves on when it is complete.  The
    first layer is cut finest, since only there does the round trip show: its parts are rows if they are not more than
    `FINE`.

Planes
    Words go over the planes in chunks in turn, as at cycle level, so a part that is shorter than a round of chunks has
    fewer links than there are.  A wafer takes them in order, at most at the rate of its links together.

Flow
    A part enters the network when a wafer has room for it (`Cluster.buffer`).  A part larger than half of that counts
    as half: it is taken while it arrives.  The way back is the same.  Where the buffer holds less than the links carry
    in a few round trips, parts are finer than it.

Wafers at the same depth of the tree do the same at the same time, so one of each depth is simulated.  The clock is
SimPy's; costs are those of `swarm.cluster.layer_costs`.
"""

from __future__ import annotations

import importlib
import math
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from memx.tiers import Tier
from swarm.cluster import graph_costs, layer_costs, mixing
from swarm.cluster.cluster import Cluster
from swarm.cluster.graph_costs import GraphLayer, GraphShape
from swarm.cluster.shapes import LayerShape
from swarm.service import VALUE_BYTES, WEIGHT_BYTES
from swarm.timing import WORD
from wse_core.errors import ConfigError, InternalError, UnsupportedError

__all__ = ["FINE", "ClusterTimeline", "LayerSpan", "iteration", "round_trip"]

FINE, COARSE, FEW = 256, 16, 4
"""The first matrix has at most so many parts, any other, and what has none in a graph; in layers that is one part."""
TRIPS, PER_BUFFER, MOST_PARTS = 4, 32, 4096
"""A buffer of `TRIPS` round trips or more is no matter; a smaller one holds `PER_BUFFER` parts, of at most
`MOST_PARTS`.
"""
ROUNDING = 1e-12
"""Differences of times may be off by so many seconds."""

Process = Generator[Any, Any, None]
"""A process of SimPy: it yields the events it waits for and is given what they carry."""
Layers = Sequence[LayerShape] | GraphShape
"""`Layers` are those of a network, or the operations of a graph."""
_Work = tuple[int, str, str, int]
"""A `_Work` is the iteration, kind, phase and layer of what was done."""


@dataclass(frozen=True)
class LayerSpan:
    """A `LayerSpan` is what was done to a layer, from its first part to its last [s].

    Attributes
    ----------
    iteration : int
    kind : str
        ``stream``, ``compute``, ``receive`` or ``update``.
    phase : str
        As in `swarm.cluster.layer_costs.PhaseCost`.
    layer : int
        From 1.
    start, end : float
        The clock, 0 at the beginning of the first iteration.
    busy : float
        Seconds of work in it.
    """

    iteration: int
    kind: str
    phase: str
    layer: int
    start: float
    end: float
    busy: float


@dataclass
class ClusterTimeline:
    """A run of some iterations; its numbers are those of the last one.

    Attributes
    ----------
    spans : list of LayerSpan
        Of the memory service and of the first wafer.
    seconds : float
        Of an iteration, boundary included.
    idle : float
        In which a wafer waited between its last gradient and the first weight of the next iteration:
        max(0, round trip - time of the first layer's gradients), to one row.
    edges : float
        In which samples come in, the first words find their way to the PEs and the last sums theirs to the edge.
    waits : dict[tuple[str, int], float]
        Seconds of waiting after that, by phase and layer.  In the first layer's forward phase weights may have to be
        waited for that come no faster than their gradients were computed.
    late : float
        Of those, seconds in the first phase.
    bytes_out, bytes_back : float
        On the link of the memory service, per iteration.
    busy : dict[str, float]
        Seconds of work per iteration of ``stream``, ``compute``, ``receive``, ``update``, and of each tier behind
        DRAM, as ``flash read`` and ``flash write``.
    """

    spans: list[LayerSpan] = field(default_factory=list)
    seconds: float = 0.0
    idle: float = 0.0
    edges: float = 0.0
    waits: dict[tuple[str, int], float] = field(default_factory=dict)
    late: float = 0.0
    bytes_out: float = 0.0
    bytes_back: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)

    def of(self, kind: str, phase: str | None = None) -> list[LayerSpan]:
        """Return the spans of the last iteration of a kind, by start."""
        last = max((span.iteration for span in self.spans), default=0)
        return sorted(
            (
                span
                for span in self.spans
                if span.iteration == last and span.kind == kind and phase in (None, span.phase)
            ),
            key=lambda span: (span.start, span.end),
        )

    @property
    def lost(self) -> float:
        """Seconds are lost at the boundary between iterations: max(0, round trip - shorter pass of the first layer)."""
        return self.idle + self.late

    @property
    def bottleneck(self) -> str:
        """The bottleneck is what works longest."""
        return max(self.busy, key=self.busy.__getitem__)


@dataclass(frozen=True)
class _Job:
    """A `_Job` is a phase of a layer."""

    phase: str
    layer: int
    parts: int
    size: float  # bytes of the stream
    back: float  # bytes that come back
    updates: float  # parameters
    busy: float  # seconds on a wafer
    latency: float  # seconds to or from the edge of the wafer
    home: int  # of its layer, as of `memx.tiers.Tiers.homes`
    read: float  # bytes from there if it is behind DRAM
    write: float  # bytes to there
    waits: bool = False  # for what the memory service makes of the numbers of the job before

    @property
    def enters(self) -> bool:
        """Whether `latency` is that of words on their way in, and not of numbers on their way out."""
        return not self.back


def round_trip(layer: LayerShape, tokens: int, cluster: Cluster) -> float:
    """Return the time from a gradient of the first row to that row's new weights at the wafers' PEs [s].

    Twice the way through the tree, the edges of the wafer, and what a row takes on the links and in the update.
    """
    forward, gradient = (
        cost(layer, tokens, cluster.mesh, cluster.form) for cost in (layer_costs.forward, layer_costs.gradient)
    )
    part = WORD / layer.outputs
    return (
        2 * max(cluster.latencies)
        + (forward.latency + gradient.latency) / cluster.mesh.hertz
        + _Lanes(cluster).through(gradient.numbers * part, 0.0)
        + cluster.updates.after(layer.weights / layer.outputs)
        + max(forward.words * part / cluster.tiers.stream_rate, _Lanes(cluster).through(forward.words * part, 0.0))
    )


def _costs(layers: Layers, tokens: int, cluster: Cluster) -> tuple[layer_costs.PhaseCost, ...]:
    """Return the phases of an iteration."""
    if isinstance(layers, GraphShape):
        return graph_costs.phases(layers, tokens, cluster.mesh, cluster.form)
    return mixing.phases(layers, tokens, cluster.mesh, cluster.form)


def jobs(layers: Layers, tokens: int, cluster: Cluster) -> list[_Job]:
    """Return what is done in an iteration, in order."""
    each = cluster.optimizer.bytes_per_parameter
    homes = cluster.tiers.homes([each * n.dense_weights for n in layers])
    phases = _costs(layers, tokens, cluster)
    parts = _parts(phases, cluster, FEW if isinstance(layers, GraphShape) else 1)
    found, every = [], list[LayerShape | GraphLayer](layers)
    for one in phases:
        phase, number, cost = one.phase, one.layer, one.cost
        layer = every[number - 1]
        home = homes[number - 1] if phase in ("forward", "backward", "gradient") else 0
        weights = layer.weights * (home > 0)
        state = (each - 8) * layer.dense_weights * (home > 0)  # without gradient, index, copy
        read = VALUE_BYTES * (2 - (layer.weights == layer.dense_weights)) * weights  # a dense matrix has no index
        found.append(
            _Job(
                phase,
                number,
                parts[phase, number],
                WORD * cost.words,
                WORD * cost.numbers,
                _updates(layer, phase),
                cost.busy / cluster.mesh.hertz,
                cost.latency / cluster.mesh.hertz,
                home,
                state if phase == "gradient" else read,
                state + WEIGHT_BYTES * weights if phase == "gradient" else 0.0,
                one.waits,
            )
        )
    return found


def _updates(layer: LayerShape | GraphLayer, phase: str) -> int:
    """Return the parameters that are updated with what a phase gives."""
    if phase == "gradient":
        return layer.weights
    return layer.norms if phase in ("norm", "shift back", "scale back") else 0


def _parts(phases: Sequence[layer_costs.PhaseCost], cluster: Cluster, few: int) -> dict[tuple[str, int], int]:
    """Return in how many parts each phase of each layer moves: the streams of a layer in equally many.

    What has no matrix moves in a `few` at most.
    """
    trip = 2 * max(cluster.latencies) + cluster.links.turn
    small = cluster.buffer < TRIPS * trip * cluster.stream_rate
    found: dict[tuple[str, int], int] = {}
    first = min((one.layer for one in phases if one.phase == "forward"), default=1)
    for one in phases:
        streamed = one.phase in ("forward", "backward", "gradient")
        most = (FINE if one.layer == first else COARSE) if streamed else few
        count = min(one.cost.rows, most)
        if small:
            size = WORD * max(one.cost.words, one.cost.numbers)
            count = max(count, min(MOST_PARTS, math.ceil(PER_BUFFER * size / cluster.buffer)))
        found[one.phase, one.layer] = count
    for layer in {layer for _, layer in found}:
        streams = [key for key in found if key[1] == layer and key[0] in ("forward", "backward", "gradient")]
        most = max((found[key] for key in streams), default=1)
        found |= dict.fromkeys(streams, most) if small else {}
    return found


class _Lanes:
    """The planes of a system: when what goes over them in chunks, in turn, is through.

    Parameters
    ----------
    cluster : Cluster
    """

    def __init__(self, cluster: Cluster) -> None:
        planes = cluster.links.planes
        self.gap, self.chunk = planes / cluster.receive_rate, WORD * cluster.links.chunk
        self.free, self.sent = [0.0] * planes, 0.0

    def through(self, size: float, now: float) -> float:
        """Return when the next bytes are through that are there now; whole rounds of chunks take all planes alike."""
        planes, done = len(self.free), now
        rounds = int(size // (self.chunk * planes))
        if rounds:
            self.free = [max(free, now) + rounds * self.chunk * self.gap for free in self.free]
            done, size = max(self.free), size - rounds * self.chunk * planes
            self.sent += rounds * self.chunk * planes
        while size > ROUNDING:
            number, used = divmod(self.sent, self.chunk)
            part, plane = min(size, self.chunk - used), int(number) % planes
            self.free[plane] = max(self.free[plane], now) + part * self.gap
            done, size, self.sent = max(done, self.free[plane]), size - part, self.sent + part
        return done


class _Simulation:
    """A `_Simulation` is one run of the cluster."""

    def __init__(self, layers: Layers, tokens: int, cluster: Cluster, iterations: int) -> None:
        try:
            simpy = importlib.import_module("simpy")
        except ImportError:
            raise UnsupportedError(
                "clusters are simulated with SimPy, which is not installed", hint="pip install 'wse-sim[plan]'"
            ) from None
        self.cluster, self.iterations, self.jobs = cluster, iterations, jobs(layers, tokens, cluster)
        self.load = cluster.load(layers[0].comes, tokens)
        self.following = {job: behind for job, behind in pairwise(self.jobs) if behind.waits}
        self.env = env = simpy.Environment()
        self.wafers = range(len(cluster.latencies))
        self.down, self.up = ([simpy.Store(env) for _ in self.wafers] for _ in range(2))
        room, dram = int(cluster.buffer), max(1, int(cluster.tiers.window))  # whole: as much comes back as was taken
        self.room, self.room_back = ([simpy.Container(env, room, room) for _ in self.wafers] for _ in range(2))
        self.out, self.back = _Lanes(cluster), _Lanes(cluster)
        self.dram, self.received = simpy.Container(env, dram, dram), simpy.Store(env)
        homes = range(1 + len(cluster.tiers.behind))
        self.wanted, self.fetched, self.updated = ([simpy.Store(env) for _ in homes] for _ in range(3))
        self.made: dict[tuple[int, _Job], Any] = {}  # (iteration, job) -> event: its words can be made
        self.ready: dict[tuple[int, ...], Any] = {}  # (iteration, layer, part) -> event: its weights are up to date
        self.first: dict[_Work, float] = {}
        self.last: dict[_Work, float] = {}
        self.work: dict[_Work, float] = defaultdict(float)
        self.waits: dict[tuple[int, str, int], float] = defaultdict(float)
        self.ends: dict[int | tuple[int, str], float] = {}
        self.bytes: dict[tuple[int, str], float] = defaultdict(float)

    # --- bookkeeping --------------------------------------------------------------------------------------------------

    def event(self, *key: int) -> Any:
        """Return the event that the weights of (iteration, layer, part) are there."""
        if key not in self.ready:
            self.ready[key] = self.env.event()
            if key[0] == 0:
                self.ready[key].succeed()
        return self.ready[key]

    def answer(self, turn: int, job: _Job) -> Any:
        """Return the event that what a job's words carry has been made."""
        return self.made.setdefault((turn, job), self.env.event())

    def note(self, kind: str, turn: int, job: _Job, start: float, end: float = 0.0, busy: float | None = None) -> None:
        """Record work on a part that ends now, or later than that; by default it was at work all the time."""
        key, end = (turn, kind, job.phase, job.layer), max(end, self.env.now)
        self.first.setdefault(key, start)
        self.last[key] = max(end, self.last.get(key, 0.0))
        self.work[key] += end - start if busy is None else busy

    def at(self, time: float) -> Any:
        """Return an event at a time, or now if it has passed."""
        return self.env.timeout(max(0.0, time - self.env.now))

    def counts(self, size: float) -> int:
        """Return what a part takes of a wafer's buffer, in whole bytes."""
        return max(1, min(round(size), int(self.cluster.buffer) // 2))

    def kept(self, job: _Job) -> int:
        """Return what a part takes of the DRAM in front of the tiers, in whole bytes."""
        return max(1, min(round(job.read / job.parts), int(self.cluster.tiers.window) // 2))

    def plan(self) -> Iterator[tuple[int, _Job, int]]:
        """Yield (iteration, job, part) in the order of the stream."""
        for turn in range(self.iterations):
            for job in self.jobs:
                for part in range(job.parts):
                    yield turn, job, part

    # --- memory service -----------------------------------------------------------------------------------------------

    def stream(self) -> Process:
        """Send parts as they are up to date and as there is room."""
        there = 0.0
        for turn, job, part in self.plan():
            if job.phase == "forward":
                yield self.event(turn, job.layer, part)
            if job.waits and not part:
                yield self.answer(turn, job)
            if job.read:
                yield self.fetched[job.home].get()
            size = job.size / job.parts
            for wafer in self.wafers:
                yield self.room[wafer].get(self.counts(size))
            if job is self.jobs[0] and part == 0:
                self.out.sent = 0.0  # every pass begins on the first plane
            start = self.env.now
            yield self.env.timeout(size / self.cluster.tiers.stream_rate)
            through = self.out.through(size, start)
            there = max(there + size / self.cluster.links.bytes_per_second, self.env.now, through)
            self.note("stream", turn, job, start, there, size / self.cluster.stream_rate)
            self.bytes[turn, "out"] += size
            if job.read:
                yield self.dram.put(self.kept(job))
            for wafer in self.wafers:
                yield self.down[wafer].put((there + self.cluster.latencies[wafer], turn, job, part))

    def ahead(self) -> Process:
        """Let tiers read what is not kept in DRAM, in the order of the stream, as far ahead as DRAM has room."""
        for turn, job, part in self.plan():
            if job.read:
                yield self.dram.get(self.kept(job))
                yield self.wanted[job.home].put((turn, job, part))

    def read(self, home: int, tier: Tier) -> Process:
        """Read what is wanted of a tier, in order, and not before it is up to date."""
        while True:
            turn, job, part = yield self.wanted[home].get()
            if job.phase == "forward":
                yield self.event(turn, job.layer, part)
            start = self.env.now
            yield self.env.timeout(job.read / job.parts / tier.rate)
            self.note(f"{tier.name} read", turn, job, start)
            yield self.fetched[home].put(part)

    def receive(self) -> Process:
        """Take gradients when the last wafer's have come."""
        done, last = 0.0, -1
        for turn, job, part in self.plan():
            if not job.back:
                continue
            size, there = job.back / job.parts, 0.0
            for wafer in self.wafers:
                left = yield self.up[wafer].get()
                there = max(there, left + self.cluster.latencies[wafer])
            yield self.at(there)
            if turn != last:
                last, self.back.sent = turn, 0.0
            start = self.env.now
            done = max(done, self.back.through(size, start))
            self.note("receive", turn, job, start, done, size / self.cluster.receive_rate)
            self.bytes[turn, "back"] += size
            for wafer in self.wafers:
                self.env.process(self.told(self.room_back[wafer], wafer, size, done))
            if job.updates:
                yield self.received.put((done, turn, job, part))
            following = self.following.get(job)
            if following is not None and part == job.parts - 1:
                self.env.process(self.makes(turn, job, following, done))

    def makes(self, turn: int, job: _Job, following: _Job, done: float) -> Process:
        """Make what the words of a job carry from the numbers of the one before."""
        updates = self.cluster.updates
        yield self.at(done)
        yield self.env.timeout(updates.seconds(job.back / WORD) + updates.answer)
        self.answer(turn, following).succeed()

    def update(self) -> Process:
        """Update what was received; another process counts the latency, so that updates follow at their rate."""
        while True:
            there, turn, job, part = yield self.received.get()
            yield self.at(there)
            start = self.env.now
            yield self.env.timeout(self.cluster.updates.seconds(job.updates / job.parts))
            self.note("update", turn, job, start)
            yield self.updated[job.home].put((self.env.now + self.cluster.updates.latency, turn, job, part))

    def write(self, home: int, tier: Tier | None = None) -> Process:
        """Give updated parts free for the next iteration, those behind DRAM once they are in their tier."""
        while True:
            there, turn, job, part = yield self.updated[home].get()
            yield self.at(there)
            if tier:
                start = self.env.now
                yield self.env.timeout(job.write / job.parts / tier.rate)
                self.note(f"{tier.name} write", turn, job, start)
            if self.cluster.reversed_gradients:
                part = job.parts - 1 - part
            if job.phase == "gradient":
                self.event(turn + 1, job.layer, part).succeed()

    def told(self, room: Any, wafer: int, size: float, since: float = 0.0) -> Process:
        """Let the other end of the way hear that there is room again, now or from a later time on."""
        yield self.at(max(since, self.env.now) + self.cluster.latencies[wafer] + self.cluster.links.turn)
        yield room.put(self.counts(size))

    # --- wafer --------------------------------------------------------------------------------------------------------

    def wafer(self, wafer: int) -> Process:
        """Work on what comes, in order; the samples of an iteration come first, and its last sums have to leave."""
        for turn, job, part in self.plan():
            begins, ends = job is self.jobs[0] and part == 0, job is self.jobs[-1] and part == job.parts - 1
            if begins:
                yield self.env.timeout(self.load)
            free = self.env.now
            there, *_ = yield self.down[wafer].get()
            edge = job.latency if job.enters else 0.0
            yield self.at((max(free, there) if begins else there) + edge)
            back = job.back / job.parts
            if back:
                yield self.room_back[wafer].get(self.counts(back))
            start = self.env.now
            if wafer == 0:
                late = start - free - (edge if begins else 0.0)
                late = late if late > ROUNDING else 0.0
                self.waits[turn, job.phase, job.layer] += late
                if begins:
                    self.ends[turn, "idle"] = late
            yield self.env.timeout(job.busy / job.parts)
            self.env.process(self.told(self.room[wafer], wafer, job.size / job.parts))
            if wafer == 0:
                self.note("compute", turn, job, start)
            if back:
                yield self.up[wafer].put(self.env.now + job.latency)
            if ends:
                yield self.env.timeout(job.latency)
                if wafer == 0:
                    self.ends[turn] = self.env.now

    def run(self) -> ClusterTimeline:
        """Run until nothing is left."""
        for wafer in self.wafers:
            self.env.process(self.wafer(wafer))
        for process in (self.stream(), self.ahead(), self.receive(), self.update(), self.write(0)):
            self.env.process(process)
        for home, tier in enumerate(self.cluster.tiers.behind, 1):
            self.env.process(self.read(home, tier))
            self.env.process(self.write(home, tier))
        self.env.run()
        done = sum(key[0] == self.iterations and event.triggered for key, event in self.ready.items())
        if done != sum(job.parts for job in self.jobs if job.phase == "gradient"):
            raise InternalError("the iteration stopped before all weights were updated", where="cluster")
        return self.timeline()

    def timeline(self) -> ClusterTimeline:
        """Return what happened, as a timeline."""
        last = self.iterations - 1
        spans = [
            LayerSpan(
                turn,
                kind,
                phase,
                layer,
                start,
                self.last[turn, kind, phase, layer],
                self.work[turn, kind, phase, layer],
            )
            for (turn, kind, phase, layer), start in self.first.items()
        ]
        tiers = [f"{tier.name} {way}" for tier in self.cluster.tiers.behind for way in ("read", "write")]
        busy = dict.fromkeys(("compute", "stream", "receive", "update", *tiers), 0.0)
        for span in spans:
            if span.iteration == last:
                busy[span.kind] += span.busy
        waits = {(phase, layer): seconds for (turn, phase, layer), seconds in self.waits.items() if turn == last}
        first = self.jobs[0].phase, self.jobs[0].layer
        waits[first] = waits.get(first, 0.0) - self.ends[last, "idle"]
        return ClusterTimeline(
            spans,
            self.ends[last] - self.ends[last - 1],
            self.ends[last, "idle"],
            self.load + self.jobs[0].latency + self.jobs[-1].latency,
            waits,
            waits[first],
            self.bytes[last, "out"],
            self.bytes[last, "back"],
            busy,
        )


def iteration(layers: Layers, batch: int, cluster: Cluster, iterations: int = 2) -> ClusterTimeline:
    """Simulate iterations of training.

    Parameters
    ----------
    layers : sequence of LayerShape, or GraphShape
        First to last; or a network of any form.
    batch : int
        Tokens of all systems together; each takes an equal part.
    cluster : Cluster
    iterations : int
        At least 2; the first one fills the pipeline and is not counted.

    Returns
    -------
    ClusterTimeline

    Raises
    ------
    ConfigError
        Nothing to train, a batch that does not divide, or parameters that do not fit the memory service.
    UnsupportedError
        SimPy is not installed.
    """
    if not layers:
        raise ConfigError("a network without layers", where="cluster")
    if batch < 1 or batch % cluster.systems:
        raise ConfigError(
            f"{batch} tokens do not divide over {cluster.systems} systems",
            where="cluster: batch",
            hint=f"{max(1, batch // cluster.systems) * cluster.systems} tokens",
        )
    if iterations < 2:
        raise ConfigError("a single iteration has no boundary", where="cluster: iterations", hint="at least 2")
    cluster.check(layers)
    return _Simulation(layers, batch // cluster.systems, cluster, iterations).run()
