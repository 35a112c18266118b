"""Runs of the authors' own programs are recorded here, and carried on to the meshes of their tables.

``recorded.json`` beside this module has the cycles of a layer that WaferLLM's Decode and Prefill took on the simulator,
as they are, from a tree of their sources that the reader brings: ``python -m tools.docs.waferllm_layers TREE --record``
measures what is missing.  Nothing of it is calculated here, and a machine whose numbers are changed has no runs.

Prefill of given tiles is a line in the PEs of a side: two runs give it. Decode also depends on the groups of its
trees. Its three slopes, for one more PE in a group, one more group and one more PE of a side, are those of trees, not
of tiles: all runs give them whose groups are even and of even size, or that are large, by least squares, and the runs
of a tile where its own line begins.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.decoder import Decoder
from harness.inference.costs import cdiv
from harness.inference.line import groups_of
from wse_core.params import Machine, machine

__all__ = ["LARGE", "AsRun", "RecordedRun", "as_run", "has_runs", "held_out", "layer", "recorded", "source", "tile_of"]

FILE = "recorded.json"
LARGE = 200
"""A mesh has so many rows if odd groups, or an odd number of them, make no difference that counts."""
LEAST_GROUPS = 4
"""Trees of fewer groups, or of smaller ones, lack a side, and have slopes of their own."""

Tile = tuple[int, int, int]


@dataclass(frozen=True)
class RecordedRun:
    """A `RecordedRun` is a layer that was run.

    Attributes
    ----------
    phase : {"decode", "prefill"}
    tile : tuple of int
        Features, tokens and features of the feed-forward of a PE.
    side, groups : int
        PEs of a side, and groups of the trees of Decode; 1 for Prefill.
    cycles : float
        Of the layer, by the program's own stamps, on average over the PEs.
    """

    phase: str
    tile: Tile
    side: int
    groups: int
    cycles: float


@dataclass(frozen=True)
class AsRun:
    """An `AsRun` is the layer of a cell.

    Attributes
    ----------
    cycles : float
    sides : tuple of int
        The side itself if it was run there, else those of the runs of these tiles that it was carried on from.
    full : bool
        Whether it was run on the mesh of the cell.
    """

    cycles: float
    sides: tuple[int, ...]
    full: bool


@cache
def _file() -> dict[str, object]:
    text = (resources.files("harness.inference") / FILE).read_text(encoding="utf-8")
    return dict(json.loads(text))


def source() -> str:
    """Return what was run, as one line."""
    return str(_file()["source"])


@cache
def recorded() -> tuple[RecordedRun, ...]:
    """Return all runs that are recorded here."""
    return tuple(
        RecordedRun(each["phase"], tuple(each["tile"]), each["side"], each["groups"], each["cycles"])
        for each in _file()["runs"]  # type: ignore[attr-defined]
    )


def has_runs(m: Machine) -> bool:
    """Return whether the runs are those of this machine: they are of one preset as it stands."""
    return m == machine("wse2")


def tile_of(decoder: Decoder, side: int, tokens: int) -> Tile:
    """Return what a PE has of a decoder and so many tokens, every size rounded up: that is what programs are given."""
    return cdiv(decoder.hidden, side), cdiv(tokens, side), cdiv(decoder.ffn, side)


def _row(run: RecordedRun) -> tuple[int, int, int]:
    """Return what a layer of Decode is linear in: PEs of a group, groups, PEs of a side."""
    return run.side // run.groups, run.groups, run.side


def _regular(run: RecordedRun) -> bool:
    size, groups, side = _row(run)
    return min(size, groups) >= LEAST_GROUPS and (side >= LARGE or size % 2 == groups % 2 == 0)


@cache
def _slopes(runs: tuple[RecordedRun, ...]) -> NDArray[np.float64]:
    """Return the cycles that a PE of a group, a group and a PE of a side add to a layer of Decode."""
    tiles = list(dict.fromkeys(run.tile for run in runs))
    given = [[*_row(run), *(float(run.tile == tile) for tile in tiles)] for run in runs]
    found, *_ = np.linalg.lstsq(np.array(given, np.float64), np.array([run.cycles for run in runs]), rcond=None)
    return np.asarray(found[:3])


def _carried(runs: Sequence[RecordedRun], phase: str, tile: Tile, side: int, groups: int) -> AsRun | None:
    """Return a layer carried on from runs, or None if there are too few."""
    mine = sorted((run for run in runs if (run.phase, run.tile) == (phase, tile)), key=lambda run: run.side)
    if phase == "prefill":
        if len(mine) < 2:
            return None
        before, last = mine[-2:]
        slope = (last.cycles - before.cycles) / (last.side - before.side)
        return AsRun(last.cycles + slope * (side - last.side), (before.side, last.side), False)
    mine = [run for run in mine if _regular(run)]
    if not mine:
        return None
    slopes = _slopes(tuple(run for run in runs if run.phase == "decode" and _regular(run)))
    begins = np.mean([run.cycles - slopes @ _row(run) for run in mine])
    cycles = begins + slopes @ (side // groups, groups, side)
    return AsRun(float(cycles), tuple(dict.fromkeys(run.side for run in mine)), False)


def layer(phase: str, tile: Tile, side: int) -> AsRun | None:
    """Return a layer with such tiles, as it was run on a mesh of this side, or as runs on smaller ones carry on.

    None: there are too few runs of such tiles.
    """
    groups = groups_of(side) if phase == "decode" else 1
    for run in recorded():
        if (run.phase, run.tile, run.side, run.groups) == (phase, tile, side, groups):
            return AsRun(run.cycles, (side,), True)
    return _carried(recorded(), phase, tile, side, groups)


def as_run(phase: str, decoder: Decoder, side: int, tokens: int) -> AsRun | None:
    """Return a layer of a decoder on a square mesh; None: there are too few runs."""
    return layer(phase, tile_of(decoder, side, tokens), side)


def held_out() -> list[tuple[RecordedRun, float]]:
    """Return runs that are larger than others that carry on to them, with what those say."""
    found = []
    for run in recorded():
        if run.phase == "decode" and run.side < LARGE:
            continue
        smaller = tuple(other for other in recorded() if other.side < run.side)
        carried = _carried(smaller, run.phase, run.tile, run.side, run.groups)
        if carried is not None:
            found.append((run, carried.cycles))
    return found
