"""The table ``[pipeline]`` of a training file says what only the layer-pipelined mode has, and what it cannot do.

Runs
    Minibatches go through the pipeline in *runs*; at the end of each it is empty, so that weights can be tested and
    kept.  With drained updates a run is an iteration.  With continuous ones it has `PipelineConfig.run` iterations;
    without that key as many as lie between tests and checkpoints, at most `LONGEST`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from fabric.networks.graph.plain import EPSILON
from harness.config.options import option
from memx.optimizer import SGD, Adam, AdamW, Optimizer
from wse_core.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from fabric.networks.pipelined.updates import Rule
    from harness.train.config import TrainConfig

__all__ = [
    "LONGEST",
    "MODES",
    "PipelineConfig",
    "check_stop",
    "minibatch_of",
    "refuse_gaps",
    "refuse_unsupported",
    "rule_of",
    "run_length",
]

MODES = ("auto", "pipelined", "streaming")
LONGEST = 32
"""Iterations of a run without the key; each takes room for its constants in every PE."""


@dataclass(frozen=True)
class PipelineConfig:
    """The table ``[pipeline]`` says how a network runs layer by layer on one wafer."""

    updates: str = option(
        "continuous",
        doc="when weights change: as gradients come, or when the pipeline is empty",
        choices=("continuous", "drained"),
    )
    minibatch: int = option(0, doc="samples that go through together; 0: the whole batch", low=0, high=2**15)
    run: int = option(
        0, doc="of continuous updates: iterations until the pipeline is empty; 0: by itself", low=0, high=256
    )


def minibatch_of(config: TrainConfig) -> int:
    """Return the samples of a minibatch: those of the file, or a part of a batch that is accumulated.

    Raises
    ------
    ConfigError
        The batch is not a whole number of them, or the two keys differ.
    """
    batch, parts = config.data.batch, config.train.accumulate
    if batch % parts:
        raise ConfigError(
            f"a batch of {batch} has no {parts} equal parts", where="train.accumulate", value=parts, hint="a divisor"
        )
    size = config.pipeline.minibatch or batch // parts
    if parts > 1 and size * parts != batch:
        raise ConfigError(
            f"{parts} parts of a batch of {batch} have {batch // parts} samples, minibatches {size}",
            where="train.accumulate",
            value=parts,
            hint="one of the two keys",
        )
    if batch % size:
        raise ConfigError(
            f"a batch of {batch} is no whole number of minibatches of {size}",
            where="pipeline.minibatch",
            value=size,
            hint=f"{math.gcd(batch, size)}",
        )
    return size


def run_length(config: TrainConfig) -> int:
    """Return the iterations of a run.

    Raises
    ------
    ConfigError
        Tests or checkpoints would come while minibatches are under way.
    """
    if config.pipeline.updates == "drained":
        return 1
    stops = {"train.evaluate": config.train.evaluate, "checkpoint.interval": config.checkpoint.interval}
    asked = config.pipeline.run
    if not asked:
        common = math.gcd(*stops.values())
        return next(k for k in range(min(common or LONGEST, LONGEST), 0, -1) if common % k == 0)
    for key, every in stops.items():
        if every % asked:
            raise ConfigError(
                f"after {every} iterations the pipeline is not empty: its runs have {asked}",
                where=key,
                value=every,
                hint=f"a multiple of {asked}, or another pipeline.run",
            )
    return asked


def check_stop(config: TrainConfig, stop: int, total: int) -> None:
    """Refuse to stop training of `total` iterations while minibatches are under way.

    Raises
    ------
    ConfigError
    """
    every = run_length(config)
    if stop % every and stop != total:
        raise ConfigError(
            f"after {stop} iterations the pipeline is not empty: its runs have {every}",
            where="--iterations",
            value=stop,
            hint=f"a multiple of {every}, or another pipeline.run",
        )


def rule_of(optimizer: Optimizer) -> Rule:
    """Return an optimizer of the memory service as PEs know it."""
    from fabric.networks.pipelined.updates import Rule

    if isinstance(optimizer, SGD):
        return Rule("sgd", optimizer.momentum, optimizer.weight_decay)
    if isinstance(optimizer, Adam):
        name = "adamw" if isinstance(optimizer, AdamW) else "adam"
        return Rule(name, 0.0, optimizer.weight_decay, optimizer.beta1, optimizer.beta2, optimizer.eps)
    raise UnsupportedError(
        "no PE program for this optimizer", feature=type(optimizer).__name__, where="train.optimizer"
    )


def refuse_gaps(where: str) -> NoReturn:
    """Refuse weights that do not exist."""
    raise UnsupportedError(
        "weights that do not exist: tiles are dense", feature="sparsity", where=where, hint="--mode streaming"
    )


def refuse_unsupported(config: TrainConfig) -> None:
    """Refuse what the layer-pipelined mode cannot do, with the reason.

    Raises
    ------
    UnsupportedError, ConfigError
    """
    for what, feature, where, hint in _refused(config):
        raise UnsupportedError(what, feature=feature, where=where, hint=f"{hint}--mode streaming")
    minibatch_of(config)
    run_length(config)


def _refused(config: TrainConfig) -> Iterator[tuple[str, str, str, str]]:
    """Yield (what, feature, key, hint besides the other mode) of what is asked for and cannot be."""
    network, train, sparsity = config.network, config.train, config.sparsity
    if config.mesh.column_groups > 1:
        what = f"{config.mesh.column_groups} groups of columns: each layer has a rectangle of its own"
        yield what, "groups of columns", "mesh.column_groups", "mesh.column_groups = 1, or "
    if config.wafers > 1:
        yield f"{config.wafers} wafers: all layers lie on one", "several wafers", "wafers", "wafers = 1, or "
    if network.nodes or config.data.sequence > 1:
        where = "network.preset" if network.preset else "network.nodes" if network.nodes else "data.sequence"
        yield "operations that are no chain of layers, or tokens that see each other", "graphs", where, ""
    if config.targets:
        yield "a loss of mean squares: the last rectangle takes softmax", "mse", "train.loss", ""
    sparse = {
        "sparsity.density": sparsity.density != 1,
        "sparsity.schedule": sparsity.schedule != "static",
        "sparsity.masks": bool(sparsity.masks),
    }
    sparse |= {f"network.layers[{k}].density": one.density not in (None, 1.0) for k, one in enumerate(network.layers)}
    for key in (key for key, given in sparse.items() if given):
        refuse_gaps(key)
    if train.loss_scale.dynamic:
        what = "a loss scale that follows overflows: updates happen where the gradients are"
        hint = "leave the key out: the scale then stays, or "
        yield what, "dynamic loss scale", "train.loss_scale.dynamic", hint
    if network.epsilon != EPSILON:
        what = f"an epsilon of {network.epsilon:g}: normalisations of the pipelined mode add {EPSILON:g}"
        yield what, "epsilon", "network.epsilon", ""
    for key in ("gradient_norms", "gradient_histograms"):
        if getattr(train, key):
            yield "gradients never leave the wafer", key, f"train.{key}", ""
    if train.clip is not None:
        yield "clipping: no PE knows the norm of all gradients", "clipping", "train.clip", ""
    if train.optimizer.decays != "all":
        what = "weight decay of some parameters only: the PEs of a layer have one rule"
        yield what, "parameter groups", "train.optimizer.decays", ""
