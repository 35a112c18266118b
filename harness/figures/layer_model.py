"""The layer-level model of a cluster is set against the system at cycle level: networks, meshes, numbers of wafers.

Ten networks were looked at while the model was written.  Ten more were drawn at random when it was finished (`drawn`,
with the seed below, the first ones that fit); nothing was changed afterwards.  Every point is one iteration in steady
state: memory service, tree and wafers, waiting included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.placement import random_mask
from fabric.networks.graph.network import Network
from fabric.networks.streamed.resident import Resident
from harness.figures import Result, figure
from swarm.cluster.check import compare, tasks
from swarm.cluster.cluster import Cluster
from swarm.cluster.shapes import Mesh
from wse_core.errors import ConfigError
from wse_core.params import machine as preset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = ["SEEN", "ClusterCase", "draw", "drawn", "errors_of", "layer_model", "points"]

SEED, UNSEEN = 20261122, 10
"""Networks are drawn with this seed, and there are so many of them."""
MOST = 12e6
"""An iteration of a network that is drawn has at most so many tasks: half a minute on one core."""
SMALL = 8
"""Meshes of so many PEs a side are simulated unless told otherwise."""


@dataclass(frozen=True)
class ClusterCase:
    """A `ClusterCase` is a network on a cluster.

    Attributes
    ----------
    features : tuple of int
    width, height : int
        PEs of a wafer.
    tokens : int
        Samples of a PE.
    systems : int
    density : float
    activation : str
    norm, bias : bool
    """

    features: tuple[int, ...]
    width: int
    height: int
    tokens: int
    systems: int = 1
    density: float = 1.0
    activation: str = "relu"
    norm: bool = False
    bias: bool = True

    @property
    def network(self) -> Network:
        """The case has this network, built from its sizes."""
        return Network.dense(self.features, self.activation, "f16", self.bias, self.norm)

    @property
    def masks(self) -> list[NDArray[np.bool_]]:
        """The masks say which weights exist."""
        rng = np.random.default_rng(0)
        return [random_mask((one.outputs, one.inputs), self.density, rng) for one in self.network.layers]

    @property
    def name(self) -> str:
        """The case has this name in words."""
        extras = [self.activation] * (self.activation != "none") + ["norm"] * self.norm + ["no bias"] * (not self.bias)
        return " ".join(["-".join(map(str, self.features)), *extras])


SEEN = (
    ClusterCase((64, 32, 10), 4, 4, 8, systems=2),
    ClusterCase((64, 256, 10), 4, 4, 8, systems=2, density=0.1),
    ClusterCase((64, 64, 10), 2, 2, 4, systems=8),
    ClusterCase((96, 64, 48, 10), 6, 4, 4, systems=4, activation="gelu", norm=True),
    ClusterCase((64, 48, 10), 4, 128, 2, activation="gelu"),
    ClusterCase((64, 48, 10), 4, 128, 2, activation="none"),
    ClusterCase((512, 256, 10), 160, 1, 16, density=0.2),
    ClusterCase((2720, 96, 10), 160, 1, 16, density=0.1),
    ClusterCase((784, 256, 128, 10), 8, 8, 32),
    ClusterCase((784, 256, 128, 10), 24, 24, 11),
)
"""These networks were looked at while the model was written."""


def drawn(seed: int = SEED, count: int = UNSEEN) -> tuple[ClusterCase, ...]:
    """Return random networks: two to four layers, meshes up to 24 x 24 and 160 x 1, one to eight systems."""
    rng = np.random.default_rng(seed)
    found: list[ClusterCase] = []
    while len(found) < count:
        hidden = [int(2 ** rng.uniform(3, 8.5)) for _ in range(rng.integers(1, 4))]
        wide = rng.random() < 0.3
        case = ClusterCase(
            (int(2 ** rng.uniform(4, 9.5)), *hidden, int(rng.integers(2, 21))),
            int(2 ** rng.uniform(4.5, 7.33)) if wide else int(rng.integers(1, 25)),
            int(rng.integers(1, 3)) if wide else int(rng.integers(1, 25)),
            int(2 ** rng.uniform(0, 5)),
            int(rng.choice([1, 2, 4, 8])),
            float(rng.choice([1.0, 0.5, 0.25, 0.1])),
            str(rng.choice(["none", "relu", "gelu"])),
            bool(rng.random() < 0.4),
            bool(rng.random() < 0.7),
        )
        mesh = Mesh(preset(), case.width, case.height)
        if tasks(case.network, case.masks, mesh, case.systems) > MOST:
            continue
        try:
            resident = Resident(case.network, mesh.machine, *_shape(case))
            resident.program(0, "only" if case.height == 1 else "top")
        except ConfigError:
            continue
        found.append(case)
    return tuple(found)


def _shape(case: ClusterCase) -> tuple[int, int, int]:
    return case.width, case.height, case.height * case.tokens


def points(
    machine: Machine, cases: Iterable[tuple[str, ClusterCase]], progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Return a row per (set, case)."""
    rows, todo = [], list(cases)
    for done, (kind, case) in enumerate(todo):
        if progress is not None:
            progress.update(done, len(todo), network=case.name)
        both = compare(
            case.network, case.masks, Cluster(case.systems, Mesh(machine, case.width, case.height)), case.tokens
        )
        rows.append(
            {
                "set": kind,
                "network": case.name,
                "density": case.density,
                "mesh": f"{case.width} x {case.height}",
                "tokens": case.tokens,
                "systems": case.systems,
                "cycles": both.cycles,
                "model": round(both.model),
                "error": both.error,
            }
        )
    return rows


@figure(
    "layer-model",
    "cycles of an iteration: the layer-level model of a cluster against the system at cycle level",
    "this model, both of its levels of time",
)
def layer_model(
    machine: Machine,
    max_cycle_level: int | None = None,
    progress: Progress | None = None,
    seen: Sequence[ClusterCase] = SEEN,
    unseen: Sequence[ClusterCase] | None = None,
) -> Result:
    """Return the `Result`; see the head of this module."""
    side = SMALL if max_cycle_level is None else max_cycle_level
    chosen = [("seen", case) for case in seen] + [("unseen", case) for case in (drawn() if unseen is None else unseen)]
    if progress is not None:
        progress.phase("iterations at both levels")
    rows = points(machine, [(kind, one) for kind, one in chosen if max(one.width, one.height) <= side], progress)
    if not rows:
        raise ConfigError(
            f"no network has a mesh of at most {side} PEs a side", where="--max-cycle-level", hint=f"{SMALL} or more"
        )
    return Result(rows, errors_of(rows), lambda picture: draw(picture, rows))


def errors_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and largest error of each half."""
    notes: dict[str, Any] = {}
    for kind in ("seen", "unseen"):
        errors = [abs(row["error"]) for row in rows if row["set"] == kind]
        if errors:
            notes[f"mean absolute error, {kind}"] = sum(errors) / len(errors)
            notes[f"largest error, {kind}"] = max(errors)
    return notes


def draw(picture: Figure, rows: Sequence[dict[str, Any]]) -> None:
    """Paint the ratio of model to cycles over the cycles."""
    axes = picture.subplots()
    for kind, marker in (("seen", "o"), ("unseen", "s")):
        mine = [row for row in rows if row["set"] == kind]
        axes.semilogx([row["cycles"] for row in mine], [100 * row["error"] for row in mine], marker, label=kind)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.axhspan(-7, 7, alpha=0.08)
    most = max(15, *(110 * abs(row["error"]) for row in rows if row["error"] is not None))
    axes.set_ylim(-most, most)
    axes.set_xlabel("cycles of an iteration, cycle by cycle")
    axes.set_ylabel("error of the layer-level model [%]")
    axes.set_title("layer-level model against cycle level (shaded: 7 %)", fontsize=10)
    axes.legend()
