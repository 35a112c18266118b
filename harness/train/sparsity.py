"""Masks and learning rates over the iterations.

A run is a row of phases.  Within a phase masks stay, and the schedule of the learning rate runs once from its begin to
its end; so every change of masks rewinds the learning rate.

==============  =====================================================================================================
schedule        phases
==============  =====================================================================================================
static          one
pruning         iterative pruning with learning-rate rewinding: equally long phases; at the begin of each but the
                first the smallest weights of every layer go (WS-50)
dense-finetune  sparse pre-training, then a phase in which all weights exist; new ones start from zero (WS-49)
sparse-ift      one; hidden layers are wider by 1 / sqrt(density) with as many weights as the plain network (WS-51)
==============  =====================================================================================================

Masks concern weight matrices; biases and normalisation stay whole.

Sources: weight streaming white paper, section 6.2; A. Renda et al., "Comparing rewinding and fine-tuning in neural
network pruning", 2020 (weights stay, the learning rate is rewound).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from harness.train.config import ScheduleConfig, SparsityConfig, TrainConfig

__all__ = ["Phase", "initial_masks", "learning_rate", "moved", "phase_at", "phases", "widened"]


@dataclass(frozen=True)
class Phase:
    """Iterations with the same masks.

    Attributes
    ----------
    begin, end : int
        Iterations, counted from 0; `end` is the first one after the phase.
    density : float
        Share of the weights of each matrix that exist.
    """

    begin: int
    end: int
    density: float


def phases(sparsity: SparsityConfig, iterations: int) -> tuple[Phase, ...]:
    """Return the phases of a run, as tuple of `Phase`.

    Parameters
    ----------
    sparsity : SparsityConfig
    iterations : int
        Of the whole run.

    Raises
    ------
    ConfigError
        Fewer iterations than phases.
    """
    if sparsity.schedule == "pruning":
        rounds, fraction = sparsity.rounds or 0, sparsity.fraction or 0.0
        densities = sparsity.densities or tuple(sparsity.density * (1 - fraction) ** k for k in range(1, rounds + 1))
        densities = (sparsity.density, *densities)
        ends = [iterations * (k + 1) // len(densities) for k in range(len(densities))]
    elif sparsity.schedule == "dense-finetune":
        share = 0.5 if sparsity.switch is None else sparsity.switch
        densities, ends = (sparsity.density, 1.0), [round(share * iterations), iterations]
    else:
        densities, ends = (sparsity.density,), [iterations]
    begins = [0, *ends[:-1]]
    if any(begin >= end for begin, end in zip(begins, ends, strict=True)):
        raise ConfigError(
            f"{iterations} iterations for {len(densities)} phases of different masks",
            where="train.iterations",
            value=iterations,
        )
    return tuple(Phase(*facts) for facts in zip(begins, ends, densities, strict=True))


def phase_at(found: Iterable[Phase], iteration: int) -> Phase:
    """Return the phase of an iteration counted from 0."""
    return next(phase for phase in found if iteration < phase.end)


def learning_rate(schedule: ScheduleConfig, rate: float, phase: Phase, iteration: int) -> float:
    """Return the learning rate of an iteration counted from 0, as float.

    Parameters
    ----------
    schedule : ScheduleConfig
    rate : float
        The optimizer's own.
    phase : Phase
        In which the iteration lies.
    iteration : int
    """
    done, length = iteration - phase.begin, phase.end - phase.begin
    if done < schedule.warmup:
        return rate * (done + 1) / schedule.warmup
    done, length = done - schedule.warmup, length - schedule.warmup
    if schedule.kind == "cosine":
        return rate * (schedule.floor + (1 - schedule.floor) * 0.5 * (1 + math.cos(math.pi * done / length)))
    if schedule.kind == "step":
        return rate * schedule.factor ** (done // schedule.every)
    return rate


def widened(widths: Sequence[int], density: float) -> tuple[int, ...]:
    """Return the widths of a network whose hidden layers are wider by 1 / sqrt(density)."""
    factor = 1 / math.sqrt(density)
    return (widths[0], *(round(width * factor) for width in widths[1:-1]), widths[-1])


def initial_masks(config: TrainConfig) -> list[np.ndarray]:
    """Return the first mask of each weight matrix, as list of bool arrays of shape (outputs, inputs).

    Parameters
    ----------
    config : TrainConfig
    """
    sparsity, masks, rng = config.sparsity, [], np.random.default_rng(config.sparsity.seed)
    for (inputs, outputs), (n, m) in zip(pairwise(config.widths), pairwise(config.plain_widths), strict=True):
        mask = np.ones(inputs * outputs, bool)
        count = n * m if sparsity.schedule == "sparse-ift" else round(sparsity.density * mask.size)
        if count < mask.size:
            mask[rng.permutation(mask.size)[max(1, count) :]] = False
        masks.append(mask.reshape(outputs, inputs))
    return masks


def moved(weights: np.ndarray, mask: np.ndarray, density: float) -> np.ndarray:
    """Return the mask of a new phase: the largest weights are kept, or all weights exist.

    Parameters
    ----------
    weights : ndarray of float32
    mask : ndarray of bool
        Of the phase before.
    density : float
        Of the new phase.  Weights that it adds have to be set to zero, with their optimizer state.
    """
    keep = max(1, round(density * mask.size))
    if density == 1:
        return np.ones_like(mask)
    active = np.flatnonzero(mask)
    order = np.argsort(-np.abs(weights.reshape(-1)[active]), kind="stable")[:keep]
    found = np.zeros(mask.size, bool)
    found[active[order]] = True
    return found.reshape(mask.shape)
