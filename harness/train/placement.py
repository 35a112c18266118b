"""Rectangles for the layers of a pipelined run: those of the search, or a row of them if that is as fast.

The search (`harness.place.layers`) knows closed forms of the products and streams; what the two placements take is
measured, program by program (`fabric.networks.pipelined.costs`), with updates, norms and loss.  What the search finds
counts only if every tile fits its SRAM and every data path finds its way and a color.

Sources: vendor documentation, execution modes; requirement LP-14.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.train.pipeline_config import minibatch_of, rule_of, run_length
from wse_core.errors import ConfigError, LayoutError

if TYPE_CHECKING:
    from fabric.networks.pipelined.pipeline import Pipeline, Placed
    from harness.train.config import TrainConfig

__all__ = ["check", "placement"]


def check(config: TrainConfig) -> None:
    """Raise `ConfigError` if the layers fit the PEs in no way; nothing is mapped if they fit in a row."""
    try:
        _row(config)
    except ConfigError:
        if _searched(config) is None:
            raise


def placement(config: TrainConfig) -> list[Placed]:
    """Return a rectangle for every layer on the PEs that the file gives.

    Raises
    ------
    ConfigError
        They do not fit.
    """
    from fabric.networks.pipelined.costs import network_cycles

    found = _searched(config)
    try:
        row = _pipeline(config, _row(config))
    except ConfigError:
        if found is None:
            raise
        return found.placed
    if found is None or max(network_cycles(found).values()) >= max(network_cycles(row).values()):
        return row.placed
    return found.placed


def _pipeline(config: TrainConfig, placed: Sequence[Placed]) -> Pipeline:
    from fabric.networks.pipelined.fit import loss_rows
    from fabric.networks.pipelined.pipeline import Pipeline

    batch, rule = minibatch_of(config), rule_of(config.train.optimizer.build())
    given = config.build_network(), config.build_machine(), placed, batch, rule, run_length(config)
    return Pipeline(*given, loss_rows=loss_rows(batch, config.mesh.height - 1))


def _row(config: TrainConfig) -> list[Placed]:
    from fabric.networks.pipelined.fit import placed_in_a_row

    batch, rule = minibatch_of(config), rule_of(config.train.optimizer.build())
    room = config.mesh.width, config.mesh.height
    return placed_in_a_row(config.build_network(), config.build_machine(), *room, batch, rule, run_length(config))


def _searched(config: TrainConfig) -> Pipeline | None:
    """Return what the search finds, None if that cannot be built."""
    from fabric.networks.pipelined.fit import words
    from fabric.networks.pipelined.pipeline import Placed
    from harness.place.layers import network_placed
    from harness.place.network import ROUNDS

    mesh, rule, memory = config.mesh, rule_of(config.train.optimizer.build()), config.build_machine()["mem.words"]
    given = config.build_network(), mesh.width, mesh.height, minibatch_of(config), len(rule.slots), memory
    try:
        found = network_placed(*given, ROUNDS, seed=0)
        placed = [
            Placed(at.x, at.y, at.width - 1, at.height - (number > 0)) for number, at in enumerate(found.rectangles)
        ]
        pipeline = _pipeline(config, placed)
        fits = all(words(tile, rule, run_length(config)) <= memory for tile in pipeline.tiles)
        return pipeline if fits and pipeline.paths else None
    except (ConfigError, LayoutError):
        return None
