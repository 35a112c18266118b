"""Cycles are found for the phases of an iteration of any network that wafers train, operation by operation.

What `swarm.cluster.layer_costs` does for layers, this does for graphs: the steps that every operation writes
(`fabric.networks.streamed.operations`) are followed on a row of PEs, and each command costs what its task costs in the
program of the network, told in this order (`swarm.cluster.told`).  An operation that has steps has a cost; there is no
other table.

Of phases that are alike, behind phases that are alike, the first one is followed and stands for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.gradient import TURNED
from fabric.networks.graph.attention import biases_of
from fabric.networks.graph.lookup import Lookup, tables_of
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.plan import MemoryPlan
from fabric.networks.graph.reverse import schedule
from fabric.networks.graph.strips import rows_of_node, strips_of_mean
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.filters import FilterEntries, asked_filters_of, filters_of, windows_asked
from fabric.networks.streamed.operations import gaps
from fabric.networks.streamed.operations.blocks import rows_of
from fabric.networks.streamed.operations.kept import GATHER, INTO
from fabric.networks.streamed.operations.lowering import Stage
from fabric.networks.streamed.operations.shapes import ConvolutionShape, LossShape, PlaneShape, shapes_of
from fabric.networks.streamed.operations.strips import MEETINGS
from fabric.networks.streamed.operations.table import STREAMED, after
from fabric.networks.streamed.resident import Resident, resident_of
from memx.pattern import Pattern
from swarm.cluster.columns import Columns
from swarm.cluster.layer_costs import FOLLOWED, Cost, PhaseCost, PhaseFollower, latency_of
from swarm.cluster.shapes import LayerShape, Mask, Mesh
from swarm.cluster.told import ToldPrices, together

__all__ = ["GraphLayer", "GraphShape", "form_of", "groups_of", "phases"]

AGAIN = "{} of the batch"
"""A phase that works with numbers which the memory service has made of its sums is called so."""


@dataclass(frozen=True)
class GraphLayer:
    """A `GraphLayer` is an operation of a graph, as the memory service sees it.

    Attributes
    ----------
    name : str
    inputs : int
        Features that it is given.
    weights, dense_weights : int
        Weights of its matrix that exist, and all, biases among them.
    norms : int
        Its other numbers that are trained: factors and shifts.
    """

    name: str
    inputs: int
    weights: int = 0
    dense_weights: int = 0
    norms: int = 0

    @property
    def comes(self) -> int:
        """So many numbers of a token come to a wafer, if the operation is the first one."""
        return self.inputs


@dataclass(frozen=True, eq=False)
class GraphShape(Sequence[GraphLayer]):
    """A `GraphShape` is a network and says which of its weights exist; as a sequence it has its operations.

    Attributes
    ----------
    network : Network
    masks : mapping of str to ndarray of bool
        Which weights exist of matrices that have gaps, biases left out, by the name of the parameter.
    said : tuple of int
        How many rows of each table that is looked up go out in an iteration; none: all.
    """

    network: Network
    masks: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    said: tuple[int, ...] = ()

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return self.network, self.said, tuple(sorted((name, mask.tobytes()) for name, mask in self.masks.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphShape) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @classmethod
    def of(cls, network: Network, masks: Sequence[NDArray[np.bool_]]) -> GraphShape:
        """Return the shape of a network with the masks of its matrices, in the order of `Network.parameters`."""
        named = zip((one.name for one in network.parameters), masks, strict=False)
        return cls(network, {name: mask for name, mask in named if not mask.all()})

    def pattern(self, parameter: NetworkTensor) -> Pattern:
        """Return which entries of a matrix exist; biases always do."""
        mask = np.ones(parameter.shape, bool)
        if parameter.name in self.masks:
            mine = self.masks[parameter.name]
            mask[:, : mine.shape[1]] = mine
        return Pattern.of_mask(mask)

    def density(self, parameter: NetworkTensor) -> float:
        """Return the share of a matrix, biases left out, that exists."""
        return float(self.masks[parameter.name].mean()) if parameter.name in self.masks else 1.0

    def _layers(self) -> Iterator[GraphLayer]:
        for node in self.network.nodes:
            given = self.network.tensors[node.inputs[0]].rows
            parameter, row = self.network.parameter(node), OPERATIONS[node.op]
            if parameter is None:
                yield GraphLayer(node.name, given)
                continue
            every = parameter.rows * parameter.columns
            if not row.matrix:
                yield GraphLayer(node.name, given, norms=every)
                continue
            mask = self.masks.get(parameter.name)
            yield GraphLayer(node.name, given, every - (0 if mask is None else int((~mask).sum())), every)

    @property
    def layers(self) -> tuple[GraphLayer, ...]:
        """The operations, in the order of the network; the first is number 1."""
        return tuple(self._layers())

    def __len__(self) -> int:
        return len(self.network.nodes)

    @overload
    def __getitem__(self, at: int) -> GraphLayer: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[GraphLayer, ...]: ...

    def __getitem__(self, at: int | slice) -> GraphLayer | tuple[GraphLayer, ...]:
        return self.layers[at]


class GraphFollower(PhaseFollower):
    """Follows the steps of a network on a row of PEs.

    Parameters
    ----------
    shape : GraphShape
    resident : Resident
        The network on a wafer, or one that has its programs.
    mesh : Mesh
    """

    tasks: ToldPrices  # type: ignore[assignment]

    def __init__(self, shape: GraphShape, resident: Resident, mesh: Mesh) -> None:
        self.shape, self.resident, self.mesh, self.form = shape, resident, mesh, resident.form
        parts = resident.inner.head_columns if resident.part(0) is not None else 1
        self.beside = [ToldPrices(resident, column) for column in range(parts)] if parts > 1 else [ToldPrices(resident)]
        self.plan, self.half, self.tasks = resident.plan, resident.half, self.beside[-1]
        rows = [step.reads[1].rows for step in self.plan.steps if step.direction == "ask" and step.op != Lookup.name]
        last = max(rows, default=mesh.width)
        self.columns = Columns(mesh.machine, mesh.width, resident.tokens, min(mesh.width, last) - 1)
        self.words = self.numbers = self.number = 0
        self.planes = {number: one for one, number in shapes_of(resident.inner).items()}
        self.parts: list[Cost] = []
        self._begun = 0.0
        self.first = self.step = self.plan.steps[0]  # of the phase that is followed, and the present one

    @property
    def layer(self) -> LayerShape:
        """This product is followed, as one of a layer."""
        step = self.step
        assert step.parameter is not None
        bias, name = step.node.size("bias"), step.parameter.name
        mask = Mask(self.shape.masks[name]) if name in self.shape.masks else None
        sizes = step.parameter.columns - bias, step.parameter.rows
        return LayerShape(*sizes, self.shape.density(step.parameter), name, bias=bool(bias), mask=mask)

    # --- pieces -------------------------------------------------------------------------------------------------------

    def tell(self, *names: str, columns: Iterable[int] | None = None, **data: str | int) -> None:
        told = [*((name, None) for name in names), *data.items()]
        cycles = sum(self.tasks.tell(*one) for one in told)
        for other in self.beside[:-1]:  # of the same head, whose part of what comes next depends on it too
            for one in told:
                other.tell(*one)
        chosen = range(self.mesh.width) if columns is None else list(columns)
        self.columns.free[chosen] += cycles
        self.words += len(told) * len(chosen)
        if "shape" in data:
            self.columns.tokens = self._elements(int(data["shape"]))

    def _elements(self, number: int) -> int:
        """Return the numbers of a row under a shape, as products and joins see it."""
        shape = self.planes.get(number)
        rows = shape.rows if isinstance(shape, ConvolutionShape | LossShape | PlaneShape) else 1
        return rows * self.resident.tokens

    def _blocks(self, counts: NDArray[np.int64], *blocks: Sequence[tuple[str, int | None]]) -> None:
        """Let every column do so many blocks of commands, each the ones of `blocks` in turn."""
        most, rows = int(counts.max(initial=0)), self._rows_that_meet(blocks[0])
        if rows > 1:
            taken = together(self.mesh.machine, self.beside, rows, blocks, most)
        else:
            taken = self.tasks.each(blocks, most)
        self.columns.spend(taken[counts])
        self.words += int(counts.sum()) * len(blocks[0])

    def _rows_that_meet(self, block: Sequence[tuple[str, int | None]]) -> int:
        """Return how many rows of PEs wait for each other in commands of the present step; 1 if none does."""
        node = self.step.node
        if node.op == "avgpool" and strips_of_mean(node) == 1:
            return 1
        return rows_of_node(node) if any(name in MEETINGS for name, _ in block) else 1

    def each(self, tensor: NetworkTensor, *names: str, unit: int = 1) -> None:
        self._blocks(self.plan.layout(tensor).counts // unit, [(name, None) for name in names])

    def numbered(self, tensor: NetworkTensor, name: str, together: int = 1) -> None:
        self._blocks(self.plan.layout(tensor).counts, [(name, 0)])

    def owned(self, tensor: NetworkTensor, name: str) -> None:
        counts, node = self.plan.layout(tensor).counts, self.step.node
        rows, taken = rows_of(node.size("sequence"), self.resident.tokens), np.zeros(int(counts.max()) + 1)
        for count in np.unique(counts).tolist():
            if rows > 1:
                taken[count] = together(self.mesh.machine, [self.tasks], rows, [[(name, count)]], 1)[1]
            else:
                taken[count] = self.tasks.of_row(name, count, 0, count == counts.max()).alone
        self.columns.spend(taken[counts])
        self.words += len(counts)

    def heads(self, step: NetworkStep, name: str, sequences: bool = True) -> None:
        each = max(1, self.resident.tokens // step.node.size("sequence")) if sequences else 1
        y = self.resident.inner.tensors[step.node.name]
        unit = OPERATIONS[step.op].units(step.node, y.rows)[1]
        counts, several = self.plan.layout(y).counts // unit, len(self.beside) > 1
        if several:  # a part of each head of a unit
            counts = np.where(self.plan.layout(y).counts, y.unit // unit, 0)
        data = [head << 8 | one for head in range(int(counts.max())) for one in range(each)]
        rows = rows_of(step.node.size("sequence"), self.resident.tokens) if step.op == "attention" else 1
        if rows == 1 and not (several and step.op == "attention"):
            self._blocks(counts * each, *([(name, one)] for one in data))
            return
        counts = counts * each
        commands = [[(name, one)] for one in data]
        self.columns.spend(together(self.mesh.machine, self.beside, rows, commands, int(counts.max()))[counts])
        self.words += int(counts.sum())

    def biases(self, step: NetworkStep, name: str) -> None:
        found, parameter = biases_of(step.node), step.parameter
        assert found is not None
        assert parameter is not None
        y = self.resident.inner.tensors[step.node.name]
        counts = self.plan.layout(y).counts // (y.rows // step.node.size("heads"))
        self._blocks(counts, [("score_head", 0), *[(name, None)] * found.numbers])
        self.numbers += parameter.columns * (name == "score_sum")

    def factors(
        self, step: NetworkStep, names: Sequence[str], shift: bool = False, gradient: int | None = None
    ) -> None:
        self.each(step.reads[0], "gamma", *names)
        self.numbers += 0 if gradient is None else step.reads[0].rows

    def channels(
        self, step: NetworkStep, words: Sequence[Stage], answers: Sequence[int] = (), made: bool = False
    ) -> None:
        layout, parameter = self.plan.layout(step.writes[0]), step.parameter
        assert parameter is not None
        groups = dict(step.node.sizes).get("groups", parameter.columns)
        of_group = parameter.columns // groups
        block: list[tuple[str, int | None]] = []
        for stage in words:
            names = [stage] if isinstance(stage, str) else [name for name, _ in stage] * of_group
            block += [(name, None) for name in names]
        self._blocks(layout.counts // (layout.features // groups), block)
        self.numbers += len(answers) * parameter.columns

    def round_trip(self, step: NetworkStep) -> None:
        self._ends()

    def product(self, step: NetworkStep) -> None:
        if step.direction == "back" and self.keeps(step):
            self.each(step.writes[0], *after(step))
            return
        super().product(step)

    def gather(self, step: NetworkStep) -> None:
        layout, width, tasks = self.plan.layout(step.reads[0]), self.mesh.width, self.tasks
        senders = layout.owners(np.arange(layout.features))
        send = tasks.command("send", data=0)
        take = send if width == 1 else tasks.command("from_west", data=0)
        put = tasks.command("kept", data=GATHER).alone

        def follow(row: int, followed: int) -> None:
            self.columns.broadcast(int(senders[row]), send, take)
            self.columns.spend(put)

        self.rows(layout.features, follow)
        self.words += 2 * layout.features * width
        self.tell(kept=INTO + self.resident.arrays[self.plan.array(step.writes[0])])

    # --- look-ups -----------------------------------------------------------------------------------------------------

    def look_up(self, step: NetworkStep, table: int) -> None:
        counts = self.plan.layout(step.writes[0]).counts
        self._said(self._rows(step, table), counts, lambda count: [("look", None)] * count)
        self.words += self._rows(step, table) * int(counts.sum())

    def copy_gradients(self, step: NetworkStep) -> None:
        counts = self.plan.layout(step.reads[1]).counts
        if self.turned(step):
            each = [self.tasks.command("turn", data=int(one)).alone if one else 0.0 for one in counts]
            self.columns.spend(np.array(each))
            self.words += int(np.count_nonzero(counts))

    def ask_looked_up(self, step: NetworkStep, table: int) -> None:
        counts, turned = self.plan.layout(step.reads[1]).counts, self.turned(step)
        rows = self._rows(step, table)
        self._said(rows, counts, lambda count: [("ask_word", count | TURNED * turned)], self.held_up)
        self.words += self._rows(step, table) * int(np.count_nonzero(counts))
        self.numbers += self._rows(step, table) * int(counts.sum())

    def _rows(self, step: NetworkStep, table: int) -> int:
        """Return how many rows of a table go out: those that the shape says, or all; a bias has one."""
        tables = tables_of(step.node)
        if table == len(tables):
            return 1
        return self.shape.said[table] if self.shape.said else tables[table].end - tables[table].first

    def _said(
        self,
        rows: int,
        counts: NDArray[np.int64],
        behind: Callable[[int], list[tuple[str, int | None]]],
        waits: Callable[[int], int] = lambda count: 0,
    ) -> None:
        """Follow numbers that are said, and the commands behind each, given the features of a column."""
        taken = {0: 0.0}
        for count in np.unique(counts[counts > 0]).tolist():
            block = [("word", 0), *behind(count)]
            taken[count] = self.tasks.each([block], rows)[-1] + rows * waits(count)
        self.columns.spend(np.array([taken[count] for count in counts.tolist()]))
        self.words += rows * int(np.count_nonzero(counts))

    # --- where things are ---------------------------------------------------------------------------------------------

    def tile(self, step: NetworkStep) -> NDArray[np.int64]:
        return self.plan.layout(step.reads[0]).counts

    def owners(self, step: NetworkStep) -> NDArray[np.int64]:
        tensor = step.reads[1] if step.direction == "ask" else step.writes[0]
        return self.plan.layout(tensor).owners(np.arange(tensor.rows))

    def asks_rows(self, step: NetworkStep) -> bool:
        return step.parameter is not None and self.resident.asks_rows(step.parameter.name, self.layer.density)

    def sends_whole(self, step: NetworkStep) -> bool:
        return step.parameter is not None and self.resident.sends_whole(step.parameter.name, self.layer.density)

    def turned(self, step: NetworkStep) -> bool:
        return step.parameter is not None and step.parameter.name in self.resident.turned

    def entries(self, step: NetworkStep) -> Callable[[int], NDArray[np.float64]]:
        """Return a function that gives the entries in each column of a row, given how many were followed before."""
        tile, mask = self.tile(step).astype(np.float64), self.layer.mask
        if mask is None:
            return lambda followed: tile
        exists = mask.exists.T if step.direction == "back" else mask.exists
        layout, most = self.plan.layout(step.reads[0]), min(len(exists), FOLLOWED)
        mine = np.zeros((layout.features, self.mesh.width))
        mine[np.arange(layout.features), layout.owners(np.arange(layout.features))] = 1
        found = exists[np.arange(most) * len(exists) // most] @ mine
        return lambda followed: found[followed]

    # --- filters ------------------------------------------------------------------------------------------------------

    def _entries(self, found: FilterEntries, rows: int) -> NDArray[np.float64]:
        """Return the weights of each row in each column, without biases."""
        counted = np.zeros((rows, self.mesh.width))
        np.add.at(counted, (found.rows[~found.bias], found.owner[~found.bias]), 1)
        return counted

    def filters(self, step: NetworkStep) -> None:
        assert step.parameter is not None
        found, landing = filters_of(self.plan, step, self.shape.pattern(step.parameter))
        if self.form == "both":
            self.tell("steps")
        tasks, columns, width = self.tasks, self.columns, self.mesh.width
        entries, constant = self._entries(found, len(landing)), tasks.weight("", "steps", False)
        bias = np.bincount(found.rows[found.bias], minlength=len(landing))
        of_bias = tasks.alone("plane_bias") if found.bias.any() else 0
        land, names = tasks.command("land"), after(step)
        begin, through = (land, land) if width == 1 else (tasks.command("begin"), tasks.command("pass"))
        ending = tasks.alone(*names)

        def follow(row: int, followed: int) -> None:
            owner = int(landing[row])
            columns.spend(entries[row] * constant)
            columns.free[owner] += bias[row] * of_bias
            columns.ring(owner, begin, through, land)
            columns.free[owner] += ending

        self.rows(len(landing), follow)
        self.words += len(found.rows) + len(landing) * (width + len(names))

    def ask_filters(self, step: NetworkStep) -> None:
        assert step.parameter is not None
        pattern = self.shape.pattern(step.parameter)
        found, sender = asked_filters_of(self.plan, step, pattern)
        tasks, columns, width = self.tasks, self.columns, self.mesh.width
        send = tasks.command("send", data=0)
        take = send if width == 1 else tasks.command("from_west", data=0)
        bias = np.bincount(found.rows[found.bias], minlength=len(sender))
        of_bias = tasks.alone("ask_plane") if found.bias.any() else 0
        asked = len(found.rows)
        if self.turned(step) and pattern.density == 1:
            taken, asked = self._windows(step, found, len(sender))
        else:
            taken = self._entries(found, len(sender)) * tasks.alone("ask")

        def follow(row: int, followed: int) -> None:
            owner = int(sender[row])
            columns.broadcast(owner, send, take)
            columns.free[owner] += bias[row] * of_bias
            columns.spend(taken[row])

        self.rows(len(sender), follow)
        self.words += asked + len(sender) * width
        self.numbers += len(found.rows)

    def _windows(self, step: NetworkStep, found: FilterEntries, rows: int) -> tuple[NDArray[np.float64], int]:
        """Return the cycles of the requests for whole windows of each row in each column, and all requests."""
        taken, asked = np.zeros((rows, self.mesh.width)), 0
        for column in range(self.mesh.width):
            mine = found.of(np.flatnonzero(found.owner == column))
            begins, data = windows_asked(self.plan, step, mine)
            asked += len(begins)
            for row, one in zip(mine.rows[begins], data, strict=True):
                if one & 0xFF:  # no bias
                    taken[row, column] += self.tasks.command("ask_windows", data=int(one)).alone
            taken[:, column] += [self.held_up(int(n)) for n in np.bincount(mine.rows, minlength=rows)]
        return taken, asked

    # --- phases -------------------------------------------------------------------------------------------------------

    def _ends(self) -> None:
        """End a part of a phase."""
        latency = latency_of(self.numbers > 0, self.mesh)
        parameter = self.first.parameter
        matrix = parameter is not None and OPERATIONS[self.first.node.op].matrix
        rows = parameter.rows if parameter is not None and matrix else max(1, self.words // self.mesh.width)
        self.parts.append(Cost(rows, self.columns.end - self._begun, self.words, self.numbers, latency))
        self._begun, self.words, self.numbers = self.columns.end, 0, 0

    def costs(self, steps: Sequence[NetworkStep]) -> list[Cost]:
        """Follow the steps of a phase; return its `Cost`, or those between its round trips."""
        self.parts, self._begun, self.words, self.numbers = [], self.columns.end, 0, 0
        self.first = steps[0]
        for step in steps:
            self.step = step
            self.begin(step)
            STREAMED[step.op].write[step.direction](self, step)
        self._ends()
        return self.parts


def _phases(resident: Resident) -> list[tuple[str, int, list[NetworkStep]]]:
    """Return (phase, number of the operation, its steps) of an iteration, in order.

    What gathers strips of images belongs to the operation that gives them, or to the first one.
    """
    numbers = {node.name: number for number, node in enumerate(resident.network.nodes, 1)}
    for node in resident.inner.nodes:
        numbers.setdefault(node.name, numbers.get(node.inputs[0], 1))
    found: list[tuple[str, int, list[NetworkStep]]] = []
    for step in schedule(resident.inner, "train", STREAMED):
        phase = STREAMED[step.op].phases.get(step.direction)
        if phase is not None or not found:
            name = (step.direction if phase is None else phase[1]) + " again" * step.again
            found.append((name, numbers[step.node.name], []))
        found[-1][2].append(step)
    return found


def _alike(phase: str, steps: Sequence[NetworkStep], resident: Resident, shape: GraphShape) -> tuple[object, ...]:
    """Return what a phase's cost depends on, besides what comes before it."""
    layouts = resident.plan

    def of(step: NetworkStep) -> tuple[object, ...]:
        tensors = tuple(layouts.layout(one) for one in (*step.reads, *step.writes))
        masked = step.parameter is not None and step.parameter.name in shape.masks and step.parameter.name
        kept = tuple(one.kind for one in (*step.reads, *step.writes))
        parameter = step.parameter and (step.parameter.shape, resident.inner.keeps(step.node))
        return step.op, step.direction, step.node.op, step.node.sizes, tensors, kept, parameter, masked

    return phase, *((of(step), tuple(of(later) for later in step.then)) for step in steps)


def groups_of(network: Network, mesh: Mesh) -> int:
    """Return how many rows of PEs, or groups of them that an image lies on, share the samples of a wafer."""
    return max(1, mesh.height // network.image_rows) * mesh.column_groups


def _resident(network: Network, mesh: Mesh, tokens: int, form: str) -> Resident:
    place = mesh.width, mesh.height, tokens * groups_of(network, mesh), form, mesh.column_groups
    return resident_of(network, mesh.machine, *place)


@lru_cache(maxsize=16)
def _followed(shape: GraphShape, tokens: int, mesh: Mesh, form: str) -> tuple[PhaseCost, ...]:
    resident = _resident(shape.network, mesh, tokens, form)
    follower = GraphFollower(shape, resident, mesh)
    known: dict[object, list[Cost]] = {}
    found: list[PhaseCost] = []
    before: object = None
    for phase, number, steps in _phases(resident):
        alike = _alike(phase, steps, resident, shape)
        key = before, alike
        if key not in known:
            known[key] = follower.costs(steps)
        before = alike
        for part, cost in enumerate(known[key]):
            found.append(PhaseCost(AGAIN.format(phase) if part else phase, number, cost, waits=part > 0))
    return tuple(found)


def form_of(shape: GraphShape, tokens: int, mesh: Mesh) -> str:
    """Return the form of words in which a training of this network sends its weights, given the tokens of a wafer.

    It is the choice of `fabric.networks.streamed.operations.gaps.form_of`, which every training makes.
    """
    network = shape.network
    every = [network.parameter(node) for node in network.nodes if OPERATIONS[node.op].matrix]
    densities = {one.name: (shape.density(one),) for one in every if one is not None}
    return gaps.form_of(MemoryPlan(network, mesh.width), mesh.machine, _of_a_pe(shape, tokens, mesh), densities)


def _of_a_pe(shape: GraphShape, tokens: int, mesh: Mesh) -> int:
    """Return the tokens of the fullest PE, given those of a wafer."""
    return -(-tokens // groups_of(shape.network, mesh))


def phases(shape: GraphShape, tokens: int, mesh: Mesh, form: str | None = None) -> tuple[PhaseCost, ...]:
    """Return the phases of an iteration for so many tokens of a wafer, in order; `form` as of `layer_costs.phases`."""
    return _followed(shape, _of_a_pe(shape, tokens, mesh), mesh.apart, form or form_of(shape, tokens, mesh))
