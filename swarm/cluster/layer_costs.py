"""Cycles of the phases of an iteration on a wafer, layer by layer.

A phase does for each row of a matrix what the coordinator's stream asks for (`memx.coordinator`), and each task costs
what its instructions take (`swarm.cluster.programs`).  One row of PEs is followed through all rows of the matrix, its
columns side by side (`swarm.cluster.columns`); of a matrix with more than `FOLLOWED` rows, as many are followed, and
the others take as long.

A pattern with gaps does not give all columns the same number of entries of a row; the ring waits for the busiest.  If
it is not known which weights exist (`LayerShape.mask`), numbers are drawn, always the same ones: compared with another
pattern of the same density that alone is some percent for small layers.

Rows of PEs further south do the same later: a command comes a hop after another, and a sum of gradients leaves a row
of PEs a stage after the one before.  That shows once, as `Cost.latency` of the last phase.

Not included: attention between tokens, which has no weights and no program here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.gradient import SKIP
from fabric.kernels.streamed.placement import chunks
from fabric.price import timing
from swarm.cluster.columns import Columns
from swarm.cluster.programs import Tasks, form_of, tasks_of
from swarm.cluster.shapes import LayerShape, Mesh

__all__ = ["FOLLOWED", "Cost", "PhaseCost", "backward", "forward", "gradient", "phases"]

FOLLOWED = 1024
"""Most rows of a matrix that are followed one by one."""


@dataclass(frozen=True)
class Cost:
    """Cycles of a phase of a layer.

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
    """A phase of an iteration.

    Attributes
    ----------
    phase : {"forward", "normalise", "loss", "norm", "backward", "gradient"}
        ``norm`` is the backward pass of ``normalise``.
    layer : int
        From 1.
    cost : Cost
    """

    phase: str
    layer: int
    cost: Cost


class _Follower:
    """A network on a row of PEs.

    Parameters
    ----------
    layers : sequence of LayerShape
    active : sequence of bool
        Whether the layer below each has an activation.
    tokens : int
        Of a PE.
    mesh : Mesh
    form : str
        How weights go out (`fabric.networks.streamed.resident.Resident`).
    """

    def __init__(
        self, layers: Sequence[LayerShape], active: Sequence[bool], tokens: int, mesh: Mesh, form: str
    ) -> None:
        self.layers, self.active, self.mesh, self.form = layers, active, mesh, form
        self.tasks: Tasks = tasks_of(layers, tokens, mesh, form)
        self.columns = Columns(mesh.machine, mesh.width, tokens, min(mesh.width, layers[0].outputs) - 1)
        self.words = self.numbers = 0

    # --- pieces -------------------------------------------------------------------------------------------------------

    def tell(self, *names: str) -> None:
        """Send commands to all columns."""
        self.columns.spend(self.tasks.alone(*names))
        self.words += len(names) * self.mesh.width

    def each(self, features: int, *names: str) -> None:
        """Send commands to every column, for each feature that it owns."""
        self.columns.spend(np.diff(chunks(features, self.mesh.width)) * self.tasks.alone(*names))
        self.words += len(names) * features

    def join(self, name: str) -> None:
        """Join the sums of all columns."""
        if self.mesh.width > 1:
            command = self.tasks.command
            self.columns.join(command(name), command("onward"), command("take"))
            self.words += 4 * self.mesh.width - 4

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

    def entries(self, number: int, transposed: bool = False) -> Callable[[int], NDArray[np.float64]]:
        """Return a function that gives the entries in each column of a row, given how many were followed before."""
        layer = self.layers[number - 1]
        rows, inputs = (layer.inputs, layer.outputs) if transposed else (layer.outputs, layer.inputs)
        starts = chunks(inputs, self.mesh.width)
        tile, most = np.diff(starts).astype(np.float64), min(rows, FOLLOWED)
        if layer.density == 1:
            return lambda followed: tile
        if layer.mask is None:
            rng = np.random.default_rng((number, rows, inputs))
            found = rng.binomial(np.diff(starts), layer.density, (most, self.mesh.width))
        else:
            exists = layer.mask.exists.T if transposed else layer.mask.exists
            before = np.cumsum(exists[np.arange(most) * rows // most], axis=1, dtype=np.int64)
            found = np.diff(np.pad(before, ((0, 0), (1, 0)))[:, starts], axis=1)
        return lambda followed: found[followed].astype(np.float64)

    def product(self, number: int, transposed: bool, array: str, after: float) -> None:
        """Follow a product: weights of a row, partial sums round the ring, what follows where the row lands."""
        tasks, columns, layer = self.tasks, self.columns, self.layers[number - 1]
        bias, mixed = layer.bias and not transposed, self.form == "both"
        outputs, inputs = (layer.inputs, layer.outputs) if transposed else (layer.outputs, layer.inputs)
        if mixed:
            self.tell("pairs" if layer.density == 1 else "steps")
        if layer.density == 1 and self.form != "steps":
            tile = np.diff(chunks(inputs, self.mesh.width))
            pair, last = tasks.weight(array, "pairs", mixed), tasks.alone("last")
            constant, works = tasks.alone("bias"), tile // 2 * pair + tile % 2 * last
            self.words += outputs * int((-(-tile // 2)).sum())
        else:
            constant, works = tasks.weight(array, "steps", mixed), None
            self.words += layer.weights - layer.bias * layer.outputs
        entries = self.entries(number, transposed)
        owners = np.searchsorted(chunks(outputs, self.mesh.width), np.arange(outputs), side="right") - 1
        land = self.tasks.command("land")
        alone = self.mesh.width == 1
        begin, through = (land, land) if alone else (self.tasks.command("begin"), self.tasks.command("pass"))

        def step(row: int, followed: int) -> None:
            owner = int(owners[row])
            columns.spend(entries(followed) * constant if works is None else works)
            if bias:
                columns.free[owner] += constant
            columns.ring(owner, begin, through, land)
            columns.free[owner] += after

        self.rows(outputs, step)
        self.words += outputs * (bias + self.mesh.width + (after > 0))

    # --- phases -------------------------------------------------------------------------------------------------------

    def forward(self, number: int) -> None:
        """Follow a layer's activations."""
        layer = self.layers[number - 1]
        active = layer.activation != "none"
        self.tell("source", "result", "row", *(["aux"] if active else []))
        after = self.tasks.alone(layer.activation) if active and not layer.norm else 0.0
        self.product(number, False, f"a{number - 1}", after)

    def normalise(self, number: int) -> None:
        """Follow a normalisation, and the activation behind it."""
        layer = self.layers[number - 1]
        self.tell("k_low", "k_high", "row")
        self.each(layer.outputs, "sum_row")
        self.join("join_add")
        self.tell("mean", "row")
        self.each(layer.outputs, "var_row")
        self.join("join_add")
        self.tell("wide", "deviation", "row", "aux")
        self.each(layer.outputs, "norm_row")
        self.tell("row", "aux")
        self.each(layer.outputs, "gamma", "affine")
        if layer.activation != "none":
            self.tell("row", "aux")
            self.each(layer.outputs, layer.activation)

    def loss(self, number: int) -> None:
        """Follow the loss."""
        classes = self.layers[number - 1].outputs
        self.tell("floor", "row")
        self.each(classes, "max_row")
        self.join("join_max")
        self.tell("peak", "row", "label", "wide")
        self.each(classes, "exp_row")
        self.join("join_add")
        self.tell("share")
        self.columns.free[0] += self.tasks.alone("log")
        self.words += 1
        self.tell("scale", "label", "wide", "delta")
        self.each(classes, "delta_row")
        self.tell("loss")
        self.numbers += self.mesh.width

    def norm(self, number: int) -> None:
        """Follow the backward pass of a normalisation."""
        features = self.layers[number - 1].outputs
        self.tell("k_low", "k_high", "delta", "wide", "recall")
        self.each(features, "gamma", "grad_beta")
        self.tell("delta", "aux")
        self.each(features, "gamma", "grad_gamma")
        self.tell("delta")
        self.each(features, "gamma", "back_sum")
        self.join("join_add")
        self.tell("mean", "delta", "aux")
        self.each(features, "gamma", "back_dot")
        self.join("join_add")
        self.tell("dot", "delta", "aux")
        self.each(features, "gamma", "back_row")
        self.numbers += 2 * features

    def backward(self, number: int) -> None:
        """Follow the gradients of a layer's inputs: the product with the transposed stream, without biases."""
        active = self.active[number - 1]
        delta = f"d{(number - 1) % 2}"
        self.tell("source", "result", *(["delta", "aux"] if active else []))
        after = self.tasks.command("slope", delta).alone if active else 0.0
        self.product(number, True, delta, after)

    def gradient(self, number: int) -> None:
        """Follow the gradients of a layer's weights."""
        layer, columns, width = self.layers[number - 1], self.columns, self.mesh.width
        self.tell("source", "mine")
        owners = np.searchsorted(chunks(layer.outputs, width), np.arange(layer.outputs), side="right") - 1
        send = self.tasks.command("send", data=0)
        take = send if width == 1 else self.tasks.command("from_west", data=0)
        if layer.density == 1 and self.form != "steps":
            tile = np.diff(chunks(layer.inputs, width))
            kinds = {int(n): self.tasks.row("send", int(n) + SKIP if n else 0) for n in np.unique(tile)}
            works = np.array([kinds[int(n)] for n in tile])
            constant = {int(n): self.tasks.row("send", int(n) + 1) - kinds[int(n)] for n in np.unique(tile)}
        else:
            entries, tile, works = self.entries(number), np.zeros(width, int), None
            constant = {0: self.tasks.alone("ask")}
            self.words += layer.weights

        def step(row: int, followed: int) -> None:
            owner = int(owners[row])
            columns.broadcast(owner, send, take)
            columns.spend(entries(followed) * constant[0] if works is None else works)
            if layer.bias:
                columns.free[owner] += constant[int(tile[owner])]

        self.rows(layer.outputs, step)
        self.words += layer.outputs * width
        self.numbers += layer.weights


def _order(layers: Sequence[LayerShape]) -> Iterator[tuple[str, int, int]]:
    """Yield (phase, layer, rows) of an iteration, in order."""
    for number, layer in enumerate(layers, 1):
        yield "forward", number, layer.outputs
        if layer.norm:
            yield "normalise", number, layer.outputs
    yield "loss", len(layers), 1
    for number in range(len(layers), 0, -1):
        layer = layers[number - 1]
        if layer.norm:
            yield "norm", number, layer.outputs
        if number > 1:
            yield "backward", number, layer.inputs
        yield "gradient", number, layer.outputs


def _latency(phase: str, mesh: Mesh) -> float:
    """Return the cycles between the edges of the wafer and the PEs of a phase."""
    m = mesh.machine
    if phase in ("gradient", "norm", "loss"):
        return timing.stage(m) * (mesh.height - 1) + m["ramp.execute"] + m["ramp.out"] + m["router.hop"]
    return m["ramp.in"] + m["router.hop"] * mesh.height


def _tokens(tokens: int, mesh: Mesh) -> int:
    """Return the tokens of the fullest PE, given those of a wafer."""
    return -(-tokens // mesh.height)


def _cost(follower: _Follower, phase: str, number: int, rows: int) -> Cost:
    """Follow a phase; return its `Cost`."""
    before, follower.words, follower.numbers = follower.columns.end, 0, 0
    getattr(follower, phase)(number)
    busy = follower.columns.end - before
    return Cost(rows, busy, follower.words, follower.numbers, _latency(phase, follower.mesh))


@lru_cache(maxsize=64)
def _followed(
    layers: tuple[LayerShape, ...], active: tuple[bool, ...], tokens: int, mesh: Mesh, form: str
) -> dict[tuple[str, int], Cost]:
    """Return the cost of each phase of an iteration, one after the other."""
    follower = _Follower(layers, active, tokens, mesh, form)
    return {(phase, number): _cost(follower, phase, number, rows) for phase, number, rows in _order(layers)}


def phases(layers: Sequence[LayerShape], tokens: int, mesh: Mesh, form: str | None = None) -> tuple[PhaseCost, ...]:
    """Return the phases of an iteration for so many tokens of a wafer, in order.

    `form` is how weights go out: ``steps``, ``pairs`` or ``both``; default what suits the densities.

    Of layers that are alike, with alike layers below, the first one is followed and stands for the others; the first
    and the last layer stand for themselves.
    """
    bare = [replace(layer, name="") for layer in layers]
    kinds = [(k in (0, len(bare) - 1), k and bare[k - 1].activation != "none", layer) for k, layer in enumerate(bare)]
    short = list(dict.fromkeys(kinds[:-1])) + kinds[-1:]
    first = {kind: number for number, kind in enumerate(short, 1)}
    chosen = tuple(layer for _, _, layer in short), tuple(bool(active) for _, active, _ in short)
    found = _followed(*chosen, _tokens(tokens, mesh), mesh, form or form_of(layers))
    return tuple(PhaseCost(phase, n, found[phase, first[kinds[n - 1]]]) for phase, n, _ in _order(layers))


def _alone(phase: str, layer: LayerShape, tokens: int, mesh: Mesh, form: str | None) -> Cost:
    """Return the `Cost` of a phase of a layer by itself."""
    rows = layer.inputs if phase == "backward" else layer.outputs
    follower = _Follower((layer,), (False,), _tokens(tokens, mesh), mesh, form or form_of((layer,)))
    return _cost(follower, phase, 1, rows)


def forward(layer: LayerShape, tokens: int, mesh: Mesh, form: str | None = None) -> Cost:
    """Return the `Cost` of the activations of a layer for so many tokens of a wafer; `form` as of `phases`."""
    return _alone("forward", layer, tokens, mesh, form)


def backward(layer: LayerShape, tokens: int, mesh: Mesh, form: str | None = None) -> Cost:
    """Return the `Cost` of the gradients of a layer's inputs: the product with the transposed stream."""
    return _alone("backward", layer, tokens, mesh, form)


def gradient(layer: LayerShape, tokens: int, mesh: Mesh, form: str | None = None) -> Cost:
    """Return the `Cost` of the gradients of a layer's weights; `latency` is that of the sums to the southern edge."""
    return _alone("gradient", layer, tokens, mesh, form)
