"""Schedules of one batch as an event simulation: what computes, restores, reduces, sends and idles, and when.

A schedule orders the layers and micro-batches of one pipeline:

standard
    Micro-batch outside, layer inside.  One device does both passes of a micro-batch before the next; a pipeline of
    contiguous chunks of layers does all forward passes, then all backward passes, micro-batches in order 0, 1, 2 ...
layered
    Layer outside, micro-batch inside, in both passes; over several devices with the same contiguous chunks.
modular
    The same order with layer l on device l mod n, and micro-batches backwards in the backward pass.

Each device has three resources: compute, which takes its operations in order; network, which takes restores and
reductions as they come; and a link per direction to its neighbours.  A layer is the interval between two activation
checkpoints, so a backward step is a recomputation and a gradient step.  With partitioned state a layer is restored into
one of two parameter buffers before use, as early as a buffer is free; a gradient buffer is held from the first
gradient step of a layer to the end of its reduction (appendix C.2).  The standard method takes each micro-batch for
itself and restores and reduces again in each; the layered ones do so once per pass.

The clock is SimPy's.  `work` may carry real tensors through the same events, see `harness.plan.tensors`.

Source: "Layered gradient accumulation and modular pipeline parallelism", sections 2 to 4, Figures 1 to 3, Table C.1.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from wse_core.errors import ConfigError, InternalError, UnsupportedError
from wse_core.schema import suggestion

__all__ = ["KINDS", "Schedule", "ScheduleTimeline", "StepSpan", "mixed_buffering", "order", "owner", "simulate"]

KINDS = ("standard", "layered", "modular")
NETWORK = ("restore", "reduce")
MOST_STEPS = 100_000
"""At most so many pairs of layer and micro-batch are simulated: about half a minute."""

Step: TypeAlias = tuple[str, int, int]
"""A step is ``forward`` or ``backward``, a layer and a micro-batch."""

COMPUTE = ("forward", "recompute", "gradient")


@dataclass(frozen=True)
class Schedule:
    """A `Schedule` has the durations of its steps, in any unit of time.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    layers, count, devices : int
        d_l, n_mu and n_l.
    partitioned : bool
        Whether the training state is divided over the data-parallel instances, or offloaded.
    forward, recompute, gradient : float
        Durations per layer and micro-batch.
    restore, reduce : float
        Durations per layer.
    transfer : float
        Duration of sending one micro-batch to a neighbour.
    gradient_buffers : int
        Buffers for gradients with partitioned state; without, every layer has its own.
    """

    kind: str
    layers: int
    count: int
    devices: int = 1
    partitioned: bool = False
    forward: float = 1.0
    recompute: float = 1.0
    gradient: float = 2.0
    restore: float = 0.0
    reduce: float = 0.0
    transfer: float = 0.0
    gradient_buffers: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"no schedule {self.kind!r}", hint=suggestion(self.kind, KINDS))
        for name in ("layers", "count", "devices", "gradient_buffers"):
            value = getattr(self, name)
            if value != int(value) or value < 1:
                raise ConfigError(f"{name} = {value} must be a whole number from 1", where="schedule")
        if self.devices > self.layers:
            raise ConfigError(f"{self.devices} devices exceed the {self.layers} layers", where="schedule")
        if self.layers * self.count > MOST_STEPS:
            raise ConfigError(
                f"{self.layers} layers x {self.count} micro-batches are {self.layers * self.count:,} steps",
                where="schedule",
                hint=f"at most {MOST_STEPS:,}",
            )
        for name in (*COMPUTE, *NETWORK, "transfer"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} = {getattr(self, name)} is no duration", where="schedule")


@dataclass(frozen=True)
class StepSpan:
    """Something that took time: ``kind`` is a step, ``send``, or something alive.

    Alive are ``parameters`` and ``gradients`` (buffers), ``checkpoint``, and ``activations`` inside a layer.
    """

    device: int
    kind: str
    layer: int
    micro: int
    start: float
    end: float


@dataclass
class ScheduleTimeline:
    """A timeline says what happened in a simulated batch."""

    schedule: Schedule
    spans: list[StepSpan] = field(default_factory=list)

    def of(self, *kinds: str, device: int | None = None) -> list[StepSpan]:
        """Return the spans of some kinds, by start."""
        found = [s for s in self.spans if s.kind in kinds and device in (None, s.device)]
        return sorted(found, key=lambda span: (span.start, span.end))

    def count(self, kind: str) -> int:
        """Return how often something happened."""
        return sum(span.kind == kind for span in self.spans)

    @property
    def compute_end(self) -> float:
        """At this time the last device is done with computing."""
        return max(span.end for span in self.of(*COMPUTE))

    @property
    def end(self) -> float:
        """All is done at this time."""
        return max(span.end for span in self.of(*COMPUTE, *NETWORK))

    @property
    def busy(self) -> float:
        """All devices together have computed for so long."""
        return sum(span.end - span.start for span in self.of(*COMPUTE))

    @property
    def bubble(self) -> float:
        """Devices are idle for this share of compute time, while anything computes."""
        return self.compute_end * self.schedule.devices / self.busy - 1

    @property
    def exposed(self) -> float:
        """The last reduction is done so long after the last computation."""
        return self.end - self.compute_end

    @property
    def overlap(self) -> float:
        """Share of restores and reductions during which their device computes; 1 if there are none."""
        total = hidden = 0.0
        for device in range(self.schedule.devices):
            compute = self.of(*COMPUTE, device=device)
            for span in self.of(*NETWORK, device=device):
                total += span.end - span.start
                hidden += sum(max(0.0, min(span.end, c.end) - max(span.start, c.start)) for c in compute)
        return hidden / total if total else 1.0

    def peak(self, kind: str, device: int | None = None) -> int:
        """Return the most buffers alive at once on one device; a buffer freed at a moment is gone by then."""
        devices = range(self.schedule.devices) if device is None else [device]
        most = 0
        for place in devices:
            edges = sorted(
                (t, step)
                for s in self.of(kind, device=place)
                for t, step in ((s.start, 1), (s.end, -1))
                if s.end > s.start
            )
            alive = 0
            for _, step in edges:
                alive += step
                most = max(most, alive)
        return most

    def summary(self) -> dict[str, float]:
        """Return what a table shows."""
        return {
            "time": self.end,
            "bubble": self.bubble,
            "exposed": self.exposed,
            "overlap": self.overlap,
            "restores": self.count("restore"),
            "reductions": self.count("reduce"),
            "sends": self.count("send"),
            "parameter buffers": self.peak("parameters"),
            "gradient buffers": self.peak("gradients"),
            "checkpoints": self.peak("checkpoint"),
            "inner activations": self.peak("activations"),
        }


def owner(schedule: Schedule, layer: int) -> int:
    """Return the device of a layer."""
    if schedule.kind == "modular":
        return layer % schedule.devices
    return layer * schedule.devices // schedule.layers


def order(schedule: Schedule, device: int) -> list[Step]:
    """Return the operations of a device in order: (``forward`` or ``backward``, layer, micro-batch)."""
    own = [layer for layer in range(schedule.layers) if owner(schedule, layer) == device]
    micros = list(range(schedule.count))
    if schedule.kind == "standard":
        ahead = [[("forward", layer, micro) for layer in own] for micro in micros]
        back = [[("backward", layer, micro) for layer in reversed(own)] for micro in micros]
        groups = (
            [part for pair in zip(ahead, back, strict=True) for part in pair] if schedule.devices == 1 else ahead + back
        )
    else:
        turned = micros[::-1] if schedule.kind == "modular" else micros
        groups = [[("forward", layer, micro) for micro in micros] for layer in own]
        groups += [[("backward", layer, micro) for micro in turned] for layer in reversed(own)]
    return [step for group in groups for step in group]


def runs(schedule: Schedule, device: int) -> list[tuple[int, list[Step]]]:
    """Return the operations of a device in runs that use the parameters of one restore: [(layer, [operations])]."""
    found: list[tuple[tuple[int, int | None], list[Step]]] = []
    for step in order(schedule, device):
        key = (step[1], step[2] if schedule.kind == "standard" else None)
        if not found or found[-1][0] != key:
            found.append((key, []))
        found[-1][1].append(step)
    return [(key[0], steps) for key, steps in found]


def simulate(schedule: Schedule, work: object | None = None) -> ScheduleTimeline:
    """Simulate one batch of a schedule.

    Parameters
    ----------
    schedule : Schedule
    work : object, optional
        Called at the end of each step with real tensors: ``forward``, ``recompute``, ``gradient`` (device, layer,
        micro), ``restore``, ``drop``, ``collect``, ``reduce`` (device, layer) and ``send`` (source, target, name,
        layer, micro).

    Returns
    -------
    ScheduleTimeline

    Raises
    ------
    UnsupportedError
        SimPy is not installed.
    """
    simulation = _BatchSimulation(schedule, work)
    simulation.run()
    return simulation.timeline


class _BatchSimulation:
    """A simulation is one run of the event simulation."""

    def __init__(self, schedule: Schedule, work: object | None) -> None:
        try:
            self.simpy = importlib.import_module("simpy")
        except ImportError:
            raise UnsupportedError(
                "schedules are simulated with SimPy, which is not installed", hint="pip install 'wse-sim[plan]'"
            ) from None
        self.schedule, self.work, self.timeline = schedule, work, ScheduleTimeline(schedule)
        self.env = self.simpy.Environment()
        self.arrived: dict[
            tuple[str, int, int], Any
        ] = {}  # (name, layer, micro) -> event: the input of a step is on the device that needs it
        devices = range(schedule.devices)
        self.network = [self.simpy.Resource(self.env) for _ in devices]
        self.links = {(device, way): self.simpy.Resource(self.env) for device in devices for way in (1, -1)}
        self.parameters = [self.simpy.Resource(self.env, 2) for _ in devices]
        self.gradients = [self.simpy.Resource(self.env, schedule.gradient_buffers) for _ in devices]
        self.kept: dict[tuple[int, int], float] = {}  # (layer, micro) -> start of its checkpoint

    def run(self) -> None:
        """Run until nothing is left, and make sure that everything was done."""
        for device in range(self.schedule.devices):
            self.env.process(self.device(device))
        self.env.run()
        wanted = 2 * self.schedule.layers * self.schedule.count
        if self.timeline.count("forward") + self.timeline.count("gradient") != wanted:
            raise InternalError("the schedule stopped before all steps were done", where=self.schedule)

    def event(self, name: str, layer: int, micro: int) -> Any:
        """Return the event of an input's arrival."""
        return self.arrived.setdefault((name, layer, micro), self.env.event())

    def note(self, device: int, kind: str, layer: int, micro: int, start: float) -> None:
        """Record what ends now."""
        self.timeline.spans.append(StepSpan(device, kind, layer, micro, start, self.env.now))

    def call(self, name: str, *words: object) -> None:
        """Let real tensors follow."""
        if self.work is not None:
            getattr(self.work, name)(*words)

    def device(self, device: int) -> Generator[Any, Any, None]:
        """Compute the operations of one device in order."""
        schedule = self.schedule
        plan = runs(schedule, device)
        restored = [self.env.event() for _ in plan]
        if schedule.partitioned:
            self.env.process(self.restores(device, plan, restored))
        left: defaultdict[int, int] = defaultdict(int)
        for _, steps in plan:
            for name, layer, _ in steps:
                left[layer] += name == "backward"
        held: dict[int, tuple[Any, float]] = {}  # layer -> (request, start) of its gradient buffer
        for index, (layer, steps) in enumerate(plan):
            if schedule.partitioned:
                request, begun = yield restored[index]
            for name, _, micro in steps:
                if name == "forward":
                    yield from self.forward(device, layer, micro)
                    continue
                yield from self.backward(device, layer, micro, held)
                left[layer] -= 1
                if left[layer] == 0 or (schedule.partitioned and schedule.kind == "standard"):
                    self.call("collect", device, layer)
                    self.env.process(
                        self.reduction(device, layer, micro, self.network[device].request(), *held.pop(layer))
                    )
            if schedule.partitioned:
                self.call("drop", device, layer)
                self.note(device, "parameters", layer, -1, begun)
                self.parameters[device].release(request)

    def step(self, device: int, kind: str, layer: int, micro: int) -> Generator[Any, Any, None]:
        """Compute for the duration of a step."""
        start = self.env.now
        yield self.env.timeout(getattr(self.schedule, kind))
        self.call(kind, device, layer, micro)
        self.note(device, kind, layer, micro, start)

    def forward(self, device: int, layer: int, micro: int) -> Generator[Any, Any, None]:
        """One forward step: wait for the input, keep it as checkpoint, compute, pass the output on."""
        if layer:
            yield self.event("output", layer - 1, micro)
        self.kept[layer, micro] = self.env.now
        yield from self.step(device, "forward", layer, micro)
        self.pass_on(device, layer + 1, "output", layer, micro)

    def backward(
        self, device: int, layer: int, micro: int, held: dict[int, tuple[Any, float]]
    ) -> Generator[Any, Any, None]:
        """Do one backward step: recompute, wait for the output's gradient and a buffer, compute gradients."""
        name, source = ("input gradient", layer + 1) if layer + 1 < self.schedule.layers else ("output", layer)
        yield self.event(name, source, micro)
        entered = self.env.now
        yield from self.step(device, "recompute", layer, micro)
        if layer not in held:
            request = None
            if self.schedule.partitioned:
                request = self.gradients[device].request()
                yield request
            held[layer] = (request, self.env.now)
        yield from self.step(device, "gradient", layer, micro)
        self.note(device, "activations", layer, micro, entered)
        self.note(device, "checkpoint", layer, micro, self.kept.pop((layer, micro)))
        self.pass_on(device, layer - 1, "input gradient", layer, micro)

    def pass_on(self, device: int, target: int, name: str, layer: int, micro: int) -> None:
        """Hand a result to the device of the target layer: at once if it is the same, else over a link."""
        event = self.event(name, layer, micro)
        place = owner(self.schedule, target) if 0 <= target < self.schedule.layers else device
        if place == device:
            event.succeed()
        else:
            self.env.process(self.send(device, place, name, layer, micro, event))

    def send(self, device: int, place: int, name: str, layer: int, micro: int, event: Any) -> Generator[Any, Any, None]:
        """Occupy a link, then announce the arrival."""
        with self.links[device, 1 if name == "output" else -1].request() as turn:
            yield turn
            start = self.env.now
            yield self.env.timeout(self.schedule.transfer)
            self.call("send", device, place, name, layer, micro)
            self.note(device, "send", layer, micro, start)
        event.succeed()

    def restores(
        self, device: int, plan: Sequence[tuple[int, list[Step]]], restored: Sequence[Any]
    ) -> Generator[Any, Any, None]:
        """Restore the parameters of each run as soon as a buffer and the network are free."""
        for event, (layer, steps) in zip(restored, plan, strict=True):
            request = self.parameters[device].request()
            yield request
            with self.network[device].request() as turn:
                yield turn
                start = self.env.now
                yield self.env.timeout(self.schedule.restore)
                self.call("restore", device, layer)
                self.note(device, "restore", layer, steps[0][2], start)
            event.succeed((request, start))

    def reduction(
        self, device: int, layer: int, micro: int, turn: Any, request: Any, begun: float
    ) -> Generator[Any, Any, None]:
        """Reduce the gradient of a layer, then free its buffer; the place in the network's queue is already taken."""
        yield turn
        start = self.env.now
        yield self.env.timeout(self.schedule.reduce)
        self.call("reduce", device, layer)
        self.note(device, "reduce", layer, micro, start)
        self.note(device, "gradients", layer, micro, begun)
        self.network[device].release(turn)
        if request is not None:
            self.gradients[device].release(request)


def mixed_buffering() -> dict[str, dict[str, float]]:
    """Return the rows of Table C.1 as measured in the middle of a simulated batch.

    One micro-batch, and a network that takes as long for a layer as the forward pass does.  Each row counts what is
    alive and busy during one step: buffers of parameters and of gradients, computation and network traffic in units of
    a forward step, and their quotient.
    """
    timeline = simulate(Schedule("layered", 6, 1, partitioned=True, restore=1.0, reduce=1.0))
    names = {
        "forward": "forward",
        "gradient": "backward, gradients and restore",
        "recompute": "backward, activations and reduce",
    }
    rows = {}
    for kind, name in names.items():
        step = next(span for span in timeline.of(kind) if span.layer == 2)
        during = [s for s in timeline.spans if s.start < step.end and s.end > step.start]
        network = sum(min(s.end, step.end) - max(s.start, step.start) for s in during if s.kind in NETWORK)
        compute = step.end - step.start
        rows[name] = {
            "parameter buffers": sum(s.kind == "parameters" for s in during),
            "gradient buffers": sum(s.kind == "gradients" for s in during),
            "computation": compute,
            "network": network,
            "intensity": compute / network,
        }
    return rows
