"""Phases of an iteration on a wafer take these cycles, layer by layer.

A phase does what the steps of its operations write (`fabric.networks.streamed.operations`): here the same steps are
followed instead of being written as words, and each task costs what its instructions take
(`swarm.cluster.programs`).  So an operation that can be streamed has a cost.  One row of PEs is followed through all
rows of the matrix, its columns side by side (`swarm.cluster.columns`); of a matrix with more than `FOLLOWED` rows, as
many are followed, and the others take as long.

A pattern with gaps does not give all columns the same number of entries of a row; the ring waits for the busiest.  If
it is not known which weights exist (`LayerShape.mask`), numbers are drawn, always the same ones: compared with another
pattern of the same density that alone is some percent for small layers.

Rows of PEs further south do the same later: a command comes a hop after another, and a sum of gradients leaves a row
of PEs a stage after the one before.  That shows once, as `Cost.latency` of the last phase.

Networks of any other form are followed by `swarm.cluster.graph_costs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.gradient import SKIP, TURNED
from fabric.kernels.streamed.placement import chunks
from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.graph.dropout import KEYS
from fabric.networks.graph.network import Layer, Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.plan import MemoryPlan
from fabric.networks.graph.reverse import schedule
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.across import INTERVAL, QUEUES, joining_rows
from fabric.networks.streamed.operations import gaps
from fabric.networks.streamed.operations.gradients import rows_pay
from fabric.networks.streamed.operations.lowering import PASSING, Stage, StepWriter
from fabric.networks.streamed.operations.table import STREAMED, after
from fabric.price import timing
from swarm.cluster.columns import Columns
from swarm.cluster.programs import TaskCosts, tasks_of
from swarm.cluster.shapes import LayerShape, Mesh
from wse_core.errors import UnsupportedError
from wse_core.formats import Arithmetic

__all__ = [
    "FOLLOWED",
    "Cost",
    "PhaseCost",
    "PhaseFollower",
    "backward",
    "form_of",
    "forward",
    "gradient",
    "latency_of",
    "phases",
    "tokens_of",
]

FOLLOWED = 1024
"""At most so many rows of a matrix are followed one by one."""


@dataclass(frozen=True)
class Cost:
    """A `Cost` has the cycles of a phase of a layer.

    Attributes
    ----------
    rows : int
        Rows of the matrix that is streamed.
    busy : float
        Cycles in which the wafer can do no other phase.
    words, numbers : int
        Words of 32 bits that come to the wafer, and that leave it.
    latency : float
        Cycles from the edge of the wafer to the first PEs' work, or from the last work to the edge; phases that follow
        one another hide it.
    """

    rows: int
    busy: float
    words: int
    numbers: int
    latency: float


@dataclass(frozen=True)
class PhaseCost:
    """A `PhaseCost` is a phase of an iteration.

    Attributes
    ----------
    phase : str
        ``forward``, ``normalise``, ``loss``, ``norm``, ``backward``, ``gradient``; of graphs also those that their
        operations have (`fabric.networks.streamed.operations.lowering.Lowering.phases`).  ``norm`` is the backward pass
        of ``normalise``.
    layer : int
        From 1.
    cost : Cost
    waits : bool
        Its words carry what the memory service makes of the numbers of the phase before.
    """

    phase: str
    layer: int
    cost: Cost
    waits: bool = False


class PhaseFollower(StepWriter):
    """Follows steps on a row of PEs.

    Parameters
    ----------
    layers : sequence of LayerShape
        Their features need not fit from one to the next.
    below : sequence of bool or None
        Whether the layer below each has an activation; None: there is none below.
    tokens : int
        Of a PE.
    mesh : Mesh
    form : str
        How weights go out (`fabric.networks.streamed.resident.Resident`).

    Attributes
    ----------
    phases : list of (str, int, list of NetworkStep)
        Of an iteration: name, number of the layer, steps.
    number : int
        Of the layer that is followed.
    """

    def __init__(
        self, layers: Sequence[LayerShape], below: Sequence[bool | None], tokens: int, mesh: Mesh, form: str
    ) -> None:
        self.layers, self.mesh, self.form = layers, mesh, form
        network, numbers = _network(layers, below)
        self.plan, self.phases = MemoryPlan(network, mesh.width), _phases(network, numbers)
        self.half = Arithmetic.of(mesh.machine, network.dtype)
        self.tasks: TaskCosts = tasks_of(layers, tokens, mesh, form)
        self.columns = Columns(mesh.machine, mesh.width, tokens, min(mesh.width, layers[0].outputs) - 1)
        self.words = self.numbers = self.number = 0

    @property
    def layer(self) -> LayerShape:
        """This layer is followed at the moment."""
        return self.layers[self.number - 1]

    # --- pieces -------------------------------------------------------------------------------------------------------

    def tell(self, *names: str, columns: Iterable[int] | None = None, **data: str | int) -> None:
        cycles = self.tasks.alone(*names, *data)
        if columns is None:
            self.columns.spend(cycles)
            self.words += (len(names) + len(data)) * self.mesh.width
            return
        for column in columns:
            self.columns.free[column] += cycles
            self.words += len(names) + len(data)

    def each(self, tensor: NetworkTensor, *names: str, unit: int = 1) -> None:
        self.columns.spend(np.diff(chunks(tensor.rows // unit, self.mesh.width)) * self.tasks.alone(*names))
        self.words += len(names) * tensor.rows // unit

    def numbered(self, tensor: NetworkTensor, name: str, together: int = 1) -> None:
        raise UnsupportedError(f"{tensor.name}: the layer-level model does not follow {name}", feature=name)

    def drawn(self, place: int) -> None:
        for _ in range(KEYS):
            self.tell(drop_key=0)

    def heads(self, step: NetworkStep, name: str, sequences: bool = True) -> None:
        self._refuse(step)

    def biases(self, step: NetworkStep, name: str) -> None:
        self._refuse(step)

    def gather(self, step: NetworkStep) -> None:
        self._refuse(step)

    def look_up(self, step: NetworkStep, table: int) -> None:
        self._refuse(step)

    def copy_gradients(self, step: NetworkStep) -> None:
        self._refuse(step)

    def ask_looked_up(self, step: NetworkStep, table: int) -> None:
        self._refuse(step)

    def filters(self, step: NetworkStep) -> None:
        self._refuse(step)

    def ask_filters(self, step: NetworkStep) -> None:
        self._refuse(step)

    def owned(self, tensor: NetworkTensor, name: str) -> None:
        raise UnsupportedError(f"{tensor.name}: the layer-level model does not follow {name}", feature=name)

    def channels(
        self, step: NetworkStep, words: Sequence[Stage], answers: Sequence[int] = (), made: bool = False
    ) -> None:
        self._refuse(step)

    def round_trip(self, step: NetworkStep) -> None:
        self._refuse(step)

    def _refuse(self, step: NetworkStep) -> NoReturn:
        raise UnsupportedError(f"{step.node.name}: the layer-level model does not follow {step.op}", feature=step.op)

    def factors(
        self, step: NetworkStep, names: Sequence[str], shift: bool = False, gradient: int | None = None
    ) -> None:
        self.each(step.reads[0], "gamma", *names)
        self.numbers += 0 if gradient is None else step.reads[0].rows

    def scale(self) -> None:
        self.tell("scale")

    def answer(self) -> None:
        self.tell("loss")
        self.numbers += self.mesh.width

    def join(self, name: str) -> None:
        if self.mesh.width > 1:
            command = self.tasks.command
            self.columns.join(command("begin"), command(PASSING[name]), command(name), command("take"))
            self.words += 2 * self.mesh.width - 1

    def rows(self, count: int, step: Callable[[int, int], None]) -> None:
        """Follow rows of a matrix: `step` is given the number of a row, and how many were followed before it.

        Those that are followed are spread evenly, so that every column owns some; the first quarter fills the queues
        and does not say how long the rows take that are not followed.
        """
        columns, most = self.columns, min(count, FOLLOWED)
        for k in range(most):
            if k == most // 4:
                filled = columns.free
            step(k * count // most, k)
        if count > most:
            pace = float((columns.free - filled).mean()) / (most - most // 4)
            columns.spend((count - most) * pace)

    def entries(self, step: NetworkStep) -> Callable[[int], NDArray[np.float64]]:
        """Return a function that gives the entries in each column of a row, given how many were followed before."""
        layer, transposed = self.layer, step.direction == "back"
        rows, inputs = (layer.inputs, layer.outputs) if transposed else (layer.outputs, layer.inputs)
        starts = chunks(inputs, self.mesh.width)
        tile, most = np.diff(starts).astype(np.float64), min(rows, FOLLOWED)
        if layer.density == 1:
            return lambda followed: tile
        if layer.mask is None:
            rng = np.random.default_rng((self.number, rows, inputs))
            found = rng.binomial(np.diff(starts), layer.density, (most, self.mesh.width))
        else:
            exists = layer.mask.exists.T if transposed else layer.mask.exists
            before = np.cumsum(exists[np.arange(most) * rows // most], axis=1, dtype=np.int64)
            found = np.diff(np.pad(before, ((0, 0), (1, 0)))[:, starts], axis=1)
        return lambda followed: found[followed].astype(np.float64)

    # --- where things are ---------------------------------------------------------------------------------------------

    def tile(self, step: NetworkStep) -> NDArray[np.int64]:
        """Return how many features each column has of what a product or a request multiplies."""
        features = self.layer.outputs if step.direction == "back" else self.layer.inputs
        return np.diff(chunks(features, self.mesh.width))

    def owners(self, step: NetworkStep) -> NDArray[np.int64]:
        """Return the column where each row of a product lands, or that sends each row of gradients."""
        rows = self.layer.inputs if step.direction == "back" else self.layer.outputs
        return np.searchsorted(chunks(rows, self.mesh.width), np.arange(rows), side="right") - 1

    def turned(self, step: NetworkStep) -> bool:
        """Whether gradients of a matrix without gaps are made from a turned copy."""
        return self.tasks.turned[self.number - 1]

    # --- matrices -----------------------------------------------------------------------------------------------------

    def in_pairs(self, step: NetworkStep) -> bool:
        if self.form == "both":
            return self.layer.density == 1 or self.sends_whole(step)
        return self.form == "pairs"

    def sends_whole(self, step: NetworkStep) -> bool:
        """Whether rows of a matrix with gaps go out whole where there are both forms, as `Resident.sends_whole`."""
        layer, width = self.layer, self.mesh.width
        products = [(layer.outputs, -(-layer.inputs // width))]
        if any(one.direction == "back" and one.parameter == step.parameter for one in self.plan.steps):
            products.append((layer.inputs, -(-layer.outputs // width)))
        return gaps.zeros_pay(self.mesh.machine, "f16", self.tasks.tokens, products, layer.density)

    def product(self, step: NetworkStep) -> None:
        tasks, columns, layer = self.tasks, self.columns, self.layer
        transposed, mixed = step.direction == "back", self.form == "both"
        array = f"d{(self.number - 1) % 2}" if transposed else f"a{self.number - 1}"
        bias = layer.bias and not transposed
        outputs = layer.inputs if transposed else layer.outputs
        names = after(step)
        ending = sum(tasks.command(name, array if transposed else None).alone for name in names)
        if mixed and not self.keeps(step):
            self.tell("pairs" if self.in_pairs(step) else "steps")
        if self.in_pairs(step):
            tile = self.tile(step)
            pair, last = tasks.weight(array, "pairs", mixed), tasks.alone("last")
            constant, works = tasks.alone("bias"), tile // 2 * pair + tile % 2 * last
            self.words += outputs * int((-(-tile // 2)).sum())
        else:
            constant, works = tasks.weight(array, "steps", mixed), None
            self.words += layer.weights - layer.bias * layer.outputs
        entries = self.entries(step)
        owners = self.owners(step)
        land = self.tasks.command("land")
        alone = self.mesh.width == 1
        begin, through = (land, land) if alone else (self.tasks.command("begin"), self.tasks.command("pass"))

        def follow(row: int, followed: int) -> None:
            owner = int(owners[row])
            columns.spend(entries(followed) * constant if works is None else works)
            if bias:
                columns.free[owner] += constant
            columns.ring(owner, begin, through, land)
            columns.free[owner] += ending

        self.rows(outputs, follow)
        self.words += outputs * (bias + self.mesh.width + len(names))

    def ask(self, step: NetworkStep) -> None:
        layer, columns, width = self.layer, self.columns, self.mesh.width
        by_rows = self.asks_rows(step)
        whole = (self.form != "steps" and layer.density == 1) or by_rows
        owners, turned = self.owners(step), whole and self.turned(step)
        copied = TURNED * turned
        send = self.tasks.command("send", data=copied)
        take = send if width == 1 else self.tasks.command("from_west", data=copied)
        if whole:
            tile = self.tile(step)
            if turned:
                self._turn(tile, layer.bias)
            kinds = {int(n): self._row(int(n), layer.bias, turned) for n in np.unique(tile)}
            works = np.array([kinds[int(n)][0] for n in tile])
            constant = {n: of_bias for n, (_, of_bias) in kinds.items()}
        else:
            entries, tile, works = self.entries(step), np.zeros(width, int), None
            constant = {0: self.tasks.alone("ask")}
            self.words += layer.weights

        def follow(row: int, followed: int) -> None:
            owner = int(owners[row])
            columns.broadcast(owner, send, take)
            columns.spend(entries(followed) * constant[0] if works is None else works)
            if layer.bias:
                columns.free[owner] += constant[int(tile[owner])]

        self.rows(layer.outputs, follow)
        self.words += layer.outputs * width
        self.numbers += layer.outputs * (layer.inputs + layer.bias) if whole else layer.weights

    def asks_rows(self, step: NetworkStep) -> bool:
        """Whether gradients of a matrix with gaps are asked for by whole rows, as `Resident.asks_rows` says."""
        layer = self.layer
        owned, features = (-(-size // self.mesh.width) for size in (layer.outputs, layer.inputs))
        if layer.density == 1 or not self.turned(step):
            return False
        machine, tokens = self.mesh.machine, self.tasks.tokens
        return rows_pay(machine, "f16", tokens, layer.outputs, owned, features, layer.bias, layer.density)

    def _turn(self, tile: NDArray[np.int64], bias: bool) -> None:
        """Follow the copy of the features token by token."""
        data = tile + 1 if bias else tile | SKIP
        self.columns.spend(np.array([self.tasks.command("turn", data=int(one)).alone for one in data]))
        self.words += self.mesh.width

    def _row(self, count: int, bias: bool, turned: bool) -> tuple[float, float]:
        """Return the cycles of a row of so many gradients of a column, and of one more for a bias."""
        if not turned:
            found = self.tasks.row("send", count + SKIP if count else 0)
            return found, self.tasks.row("send", count + 1) - found
        found = self.tasks.row("send", (count + SKIP * bias + TURNED) if count else 0, TURNED)
        return found + self.held_up(count), self.tasks.row("send", count + 1 + TURNED, TURNED) - found

    def held_up(self, numbers: int) -> int:
        """Return the cycles that numbers which leave one per cycle wait for those of other groups of columns.

        Every other one of them stays in the queues on the way; nobody waits before those are full.
        """
        if self.mesh.column_groups == 1:
            return 0
        m, (own, _, sent) = self.mesh.machine, QUEUES
        room = m["queue.out_depth"][sent] + 2 * m["router.depth"] + m["queue.in_depth"][own] + m["ramp.in_buffer"]
        return max(0, numbers - 2 * room) * (INTERVAL - 1)

    def cost(self, phase: str, number: int, steps: Sequence[NetworkStep]) -> Cost:
        """Follow the steps of a phase; return its `Cost`."""
        before, self.number, self.words, self.numbers = self.columns.end, number, 0, 0
        for step in steps:
            STREAMED[step.op].write[step.direction](self, step)
        rows = 1 if phase == "loss" else self.layer.inputs if phase == "backward" else self.layer.outputs
        latency = latency_of(phase in ("gradient", "norm", "loss"), self.mesh)
        return Cost(rows, self.columns.end - before, self.words, self.numbers, latency)


def _network(layers: Sequence[LayerShape], below: Sequence[bool | None]) -> tuple[Network, dict[str, int]]:
    """Return a network with such layers, and their numbers by the groups of their nodes.

    Where the layer before is not as `below` says, one that has no number stands between, as it does for the logits of
    layers that are not the last.
    """
    shapes: list[Layer] = []
    numbers: dict[str, int] = {}
    active = next(iter(ACTIVATIONS))
    for number, (one, wanted) in enumerate(zip(layers, below, strict=True), 1):
        if wanted is not None and (not shapes or (shapes[-1].activation != "none") != wanted):
            shapes.append(Layer(1, 1, active if wanted else "none"))
        shapes.append(Layer(one.inputs, one.outputs, one.activation, one.bias, one.norm))
        numbers[f"layer{len(shapes)}"] = number
    if shapes[-1].activation != "none" or shapes[-1].norm:
        shapes.append(Layer(1, 1))
    numbers["loss"] = len(layers)
    return Network.of(shapes, joined=False), numbers


def _phases(network: Network, numbers: Mapping[str, int]) -> list[tuple[str, int, list[NetworkStep]]]:
    """Return (phase, number of the layer, its steps) of an iteration, in order, of what has a number."""
    found: list[tuple[str, int, list[NetworkStep]]] = []
    for step in schedule(network, "train"):
        phase = STREAMED[step.op].phases.get(step.direction)
        if phase is not None:
            found.append((phase[1], numbers.get(step.node.group, 0), []))
        found[-1][2].append(step)
    return [one for one in found if one[1]]


def latency_of(answers: bool, mesh: Mesh) -> float:
    """Return the cycles between the edges of the wafer and the PEs: of numbers on their way out, or words in."""
    m = mesh.machine
    if answers:
        south = timing.stage(m) * (mesh.height - 1) + m["ramp.execute"] + m["ramp.out"] + m["router.hop"]
        across = (mesh.column_groups - 1) * timing.way(m, mesh.width)
        return south + across + m["router.hop"] * joining_rows(mesh.width, mesh.column_groups)
    return m["ramp.in"] + m["router.hop"] * mesh.height


def tokens_of(tokens: int, mesh: Mesh) -> int:
    """Return the tokens of the fullest PE, given those of a wafer."""
    return -(-tokens // mesh.rows)


@lru_cache(maxsize=64)
def _followed(
    layers: tuple[LayerShape, ...], below: tuple[bool | None, ...], tokens: int, mesh: Mesh, form: str
) -> dict[tuple[str, int], Cost]:
    """Return the cost of each phase of an iteration, one after the other."""
    follower = PhaseFollower(layers, below, tokens, mesh, form)
    return {(phase, number): follower.cost(phase, number, steps) for phase, number, steps in follower.phases}


def form_of(layers: Sequence[LayerShape], tokens: int, mesh: Mesh) -> str:
    """Return the form of words in which a training of these layers sends its weights, given the tokens of a wafer.

    It is the choice of `fabric.networks.streamed.operations.gaps.form_of`, which every training makes.
    """
    bare = [replace(layer, name="") for layer in layers]
    network, numbers = _network(bare, [None, *(layer.activation != "none" for layer in bare[:-1])])
    densities: dict[str, tuple[float, ...]] = {}
    for node in network.nodes:
        parameter = network.parameter(node)
        if node.op == "linear" and parameter is not None:  # one that only ends the network has no weights that count
            number = numbers.get(node.group)
            densities[parameter.name] = (layers[number - 1].density,) if number else ()
    return gaps.form_of(MemoryPlan(network, mesh.width), mesh.machine, tokens_of(tokens, mesh), densities)


def phases(layers: Sequence[LayerShape], tokens: int, mesh: Mesh, form: str | None = None) -> tuple[PhaseCost, ...]:
    """Return the phases of an iteration for so many tokens of a wafer, in order.

    `form` is how weights go out: ``steps``, ``pairs`` or ``both``; default as `form_of` finds it.

    Of layers that are alike, with alike layers below, the first one is followed and stands for the others; the first
    and the last layer stand for themselves.
    """
    bare = [replace(layer, name="") for layer in layers]
    below = [None, *(layer.activation != "none" for layer in bare[:-1])]
    kinds = [(k in (0, len(bare) - 1), *of) for k, of in enumerate(zip(below, bare, strict=True))]
    short = list(dict.fromkeys(kinds[:-1])) + kinds[-1:]
    first = {kind: number for number, kind in enumerate(short, 1)}
    chosen = tuple(layer for _, _, layer in short), tuple(active for _, active, _ in short)
    form = form or form_of(layers, tokens, mesh)
    found = _followed(*chosen, tokens_of(tokens, mesh), mesh.apart, form)
    every = _phases(*_network(bare, below))
    return tuple(PhaseCost(phase, n, found[phase, first[kinds[n - 1]]]) for phase, n, _ in every)


def _alone(phase: str, layer: LayerShape, tokens: int, mesh: Mesh, form: str | None) -> Cost:
    """Return the `Cost` of a phase of a layer by itself."""
    form = form or form_of((layer,), tokens, mesh)
    follower = PhaseFollower((layer,), (False,), tokens_of(tokens, mesh), mesh, form)
    return follower.cost(phase, 1, next(steps for name, _, steps in follower.phases if name == phase))


def forward(layer: LayerShape, tokens: int, mesh: Mesh, form: str | None = None) -> Cost:
    """Return the `Cost` of the activations of a layer for so many tokens of a wafer; `form` as of `phases`."""
    return _alone("forward", layer, tokens, mesh, form)


def backward(layer: LayerShape, tokens: int, mesh: Mesh, form: str | None = None) -> Cost:
    """Return the `Cost` of the gradients of a layer's inputs: the product with the transposed stream."""
    return _alone("backward", layer, tokens, mesh, form)


def gradient(layer: LayerShape, tokens: int, mesh: Mesh, form: str | None = None) -> Cost:
    """Return the `Cost` of the gradients of a layer's weights; `latency` is that of the sums to the southern edge."""
    return _alone("gradient", layer, tokens, mesh, form)
