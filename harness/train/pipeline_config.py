"""The table ``[pipeline]`` of a training file says what only the layer-pipelined mode has, and what it cannot do.

Runs
    Minibatches go through the pipeline in *runs*; at the end of each it is empty, so that weights can be tested and
    kept.  With drained updates a run is an iteration.  With continuous ones it has `PipelineConfig.run` iterations;
    without that key as many as lie between tests and checkpoints, at most `LONGEST`.
"""

from __future__ import annotations

import math
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
    if config.mesh.column_groups > 1:
        raise UnsupportedError(
            f"{config.mesh.column_groups} groups of columns: each layer has a rectangle of its own",
            feature="groups of columns",
            where="mesh.column_groups",
            hint="mesh.column_groups = 1, or --mode streaming",
        )
    if config.wafers > 1:
        raise UnsupportedError(
            f"{config.wafers} wafers: all layers lie on one",
            feature="several wafers",
            where="wafers",
            hint="wafers = 1, or --mode streaming",
        )
    if config.network.nodes or config.data.sequence > 1:
        raise UnsupportedError(
            "operations that are no chain of layers, or tokens that see each other",
            feature="graphs",
            where="network.preset"
            if config.network.preset
            else "network.nodes"
            if config.network.nodes
            else "data.sequence",
            hint="--mode streaming",
        )
    if config.targets:
        raise UnsupportedError(
            "a loss of mean squares: the last rectangle takes softmax",
            feature="mse",
            where="train.loss",
            hint="--mode streaming",
        )
    sparse = {
        "sparsity.density": config.sparsity.density != 1,
        "sparsity.schedule": config.sparsity.schedule != "static",
        "sparsity.masks": bool(config.sparsity.masks),
    }
    layers = enumerate(config.network.layers)
    sparse |= {f"network.layers[{k}].density": layer.density not in (None, 1.0) for k, layer in layers}
    for key, given in sparse.items():
        if given:
            refuse_gaps(key)
    if config.train.loss_scale.dynamic:
        raise UnsupportedError(
            "a loss scale that follows overflows: updates happen where the gradients are",
            feature="dynamic loss scale",
            where="train.loss_scale.dynamic",
            hint="leave the key out: the scale then stays, or --mode streaming",
        )
    if config.network.epsilon != EPSILON:
        raise UnsupportedError(
            f"an epsilon of {config.network.epsilon:g}: normalisations of the pipelined mode add {EPSILON:g}",
            feature="epsilon",
            where="network.epsilon",
            hint="--mode streaming",
        )
    for key, asked in (
        ("gradient_norms", config.train.gradient_norms),
        ("gradient_histograms", config.train.gradient_histograms),
    ):
        if asked:
            raise UnsupportedError(
                "gradients never leave the wafer", feature=key, where=f"train.{key}", hint="--mode streaming"
            )
    if config.train.clip is not None:
        raise UnsupportedError(
            "clipping: no PE knows the norm of all gradients",
            feature="clipping",
            where="train.clip",
            hint="--mode streaming",
        )
    if config.train.optimizer.decays != "all":
        raise UnsupportedError(
            "weight decay of some parameters only: the PEs of a layer have one rule",
            feature="parameter groups",
            where="train.optimizer.decays",
            hint="--mode streaming",
        )
    minibatch_of(config)
    run_length(config)
