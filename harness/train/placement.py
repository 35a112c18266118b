"""Each layer of a pipelined run gets a rectangle: those of the search, or a row of them if that is as fast.

The search (`harness.place.layers`) measures the programs of the layers with updates, norms and loss; so does what
compares its result with a row of rectangles (`fabric.networks.pipelined.costs`).  What the search finds counts only if
every tile fits its SRAM and every data path finds its way and a color.

Sources: vendor documentation, execution modes; requirement LP-14.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.train.pipeline_config import minibatch_of, rule_of, run_length
from wse_core.errors import ConfigError, LayoutError, ProgramError

if TYPE_CHECKING:
    from fabric.networks.pipelined.pipeline import Pipeline, Placed
    from harness.place.layers import LayerPlan
    from harness.train.config import TrainConfig

__all__ = ["Laid", "check", "laid", "placement"]

SEARCH_SEED = 0


@dataclass(frozen=True)
class Laid:
    """A `Laid` has the layers of a network on their PEs, with their cycles.

    Attributes
    ----------
    pipeline : Pipeline
    cycles : tuple of float
        Of each layer for a minibatch, measured; the largest is that of the network in its steady state.
    how : {"search", "row"}
    """

    pipeline: Pipeline
    cycles: tuple[float, ...]
    how: str


def check(config: TrainConfig) -> None:
    """Raise `ConfigError` if the layers fit the PEs in no way; nothing is mapped if they fit in a row."""
    given = _plan(config), config.mesh.width, config.mesh.height
    try:
        _row(*given)
    except ConfigError:
        if _searched(*given) is None:
            raise


def placement(config: TrainConfig) -> list[Placed]:
    """Return a rectangle for every layer on the PEs that the file gives.

    Raises
    ------
    ConfigError
        They do not fit.
    """
    return list(_placed(_plan(config), config.mesh.width, config.mesh.height))


@lru_cache(maxsize=64)
def _placed(plan: LayerPlan, width: int, height: int) -> tuple[Placed, ...]:
    """Return what `placement` does; kept, because trainers of a process that compare or go on place the same."""
    return tuple(_laid(plan, width, height, None, SEARCH_SEED).pipeline.placed)


def laid(config: TrainConfig, rounds: int | None = None, seed: int = SEARCH_SEED) -> Laid:
    """Return the layers on the PEs that the file gives, the faster of what the search finds and of a row.

    Parameters
    ----------
    config : TrainConfig
    rounds, seed : int, optional
        Of the search.

    Raises
    ------
    ConfigError
        They do not fit.
    """
    return _laid(_plan(config), config.mesh.width, config.mesh.height, rounds, seed)


def _laid(plan: LayerPlan, width: int, height: int, rounds: int | None, seed: int) -> Laid:
    from fabric.networks.pipelined.costs import network_cycles

    found = _searched(plan, width, height, rounds, seed)
    try:
        row = _row(plan, width, height)
    except ConfigError:
        if found is None:
            raise
        return found
    pipeline = plan.pipeline(row, height)
    try:
        cycles = tuple(network_cycles(pipeline, plan.parts).values())
    except ProgramError as error:
        if found is None:
            hint = "more PEs, or smaller minibatches (pipeline.minibatch)"
            raise ConfigError("a layer does not fit its PEs", cause=error.what, where="mesh", hint=hint) from None
        return found
    if found is None or max(found.cycles) >= max(cycles):
        return Laid(pipeline, cycles, "row")
    return found


def _plan(config: TrainConfig) -> LayerPlan:
    from harness.place.layers import LayerPlan

    rule = rule_of(config.train.optimizer.build())
    size = minibatch_of(config)
    parts = config.data.batch // size
    return LayerPlan(config.build_network(), config.build_machine(), size, rule, run_length(config), parts)


def _row(plan: LayerPlan, width: int, height: int) -> list[Placed]:
    from fabric.networks.pipelined.fit import placed_in_a_row

    return placed_in_a_row(plan.network, plan.machine, width, height, plan.batch, plan.rule, plan.updates)


def _searched(
    plan: LayerPlan, width: int, height: int, rounds: int | None = None, seed: int = SEARCH_SEED
) -> Laid | None:
    """Return what the search finds, None if that cannot be built."""
    from harness.place.layers import network_placed
    from harness.place.network import ROUNDS

    try:
        found, pipeline = network_placed(plan, width, height, rounds or ROUNDS, seed)
    except (ConfigError, LayoutError, ProgramError):
        return None
    return Laid(pipeline, found.cycles, "search")
