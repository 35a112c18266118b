"""Masks and learning rates are functions of the iteration, by a schedule.

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
rigl            one; every so many iterations a share of the weights of every layer goes, the smallest, and as many
                come, those with the largest gradients, which are asked for at all places then (WS-24)
set             the same, but those that come are drawn at random
==============  =====================================================================================================

The share of `rigl` and `set` falls from ``fraction`` as a cosine until it is zero at ``until``; weights that come
begin at zero, with their optimizer state, but for those that go and come back at once (`harness.train.masters`).
Masks concern weight matrices; biases and normalisation stay whole.

Sources: weight streaming white paper, section 6.2; A. Renda et al., "Comparing rewinding and fine-tuning in neural
network pruning", 2020 (weights stay, the learning rate is rewound); U. Evci et al., "Rigging the lottery", 2020 (rigl;
here weights are updated in the iteration of an exchange too); D. C. Mocanu et al., "Scalable training of artificial
neural networks with adaptive sparse connectivity", 2018 (set).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig
    from harness.train.tables import ScheduleConfig, SparsityConfig
    from memx.parameter import Parameter

__all__ = [
    "MaskPhase",
    "drawn",
    "exchanged",
    "initial_masks",
    "learning_rate",
    "moved",
    "of_existing",
    "phase_at",
    "phases",
    "swapped",
    "widened",
]


EVERY, FRACTION, UNTIL = 100, 0.3, 0.75
"""``rigl`` and ``set`` have these numbers if nothing else is said: those of the paper on the first."""


@dataclass(frozen=True)
class MaskPhase:
    """A `MaskPhase` is a row of iterations with the same masks.

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


def phases(sparsity: SparsityConfig, iterations: int) -> tuple[MaskPhase, ...]:
    """Return the phases of a run, as tuple of `MaskPhase`.

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
            f"{iterations} iteration{'s' * (iterations != 1)} for {len(densities)} phases of different masks",
            where="train.iterations",
            value=iterations,
        )
    return tuple(MaskPhase(*facts) for facts in zip(begins, ends, densities, strict=True))


def phase_at(found: Iterable[MaskPhase], iteration: int) -> MaskPhase:
    """Return the phase of an iteration counted from 0."""
    return next(phase for phase in found if iteration < phase.end)


START = 1 / 25
"""One cycle begins with this share of the rate; L. Smith and N. Topin, "Super-convergence", 2018, as PyTorch has it."""


def learning_rate(schedule: ScheduleConfig, rate: float, phase: MaskPhase, iteration: int) -> float:
    """Return the learning rate of an iteration counted from 0, as float.

    Parameters
    ----------
    schedule : ScheduleConfig
    rate : float
        The optimizer's own.
    phase : MaskPhase
        In which the iteration lies.
    iteration : int
    """
    done, length = iteration - phase.begin, phase.end - phase.begin
    if done < schedule.warmup:
        return rate * (done + 1) / schedule.warmup
    done, length = done - schedule.warmup, length - schedule.warmup
    if schedule.kind == "one-cycle":
        top = schedule.rise * length
        share = (
            0.5 * (1 - math.cos(math.pi * done / top)) if done < top else _half_cosine((done - top) / (length - top))
        )
        low = START if done < top else schedule.floor
        return rate * (low + (1 - low) * share)
    if schedule.kind == "linear":
        return rate * (schedule.floor + (1 - schedule.floor) * (1 - done / length))
    if schedule.kind == "inverse-root":
        knee = max(1, schedule.warmup)
        return rate * math.sqrt(knee / (knee + done))
    if schedule.kind == "cosine":
        return rate * (schedule.floor + (1 - schedule.floor) * _half_cosine(done / length))
    if schedule.kind == "step":
        return rate * schedule.factor ** (done // schedule.every)
    return rate


def _half_cosine(share: float) -> float:
    """Return a number that falls from 1 to 0 while a share goes from 0 to 1."""
    return 0.5 * (1 + math.cos(math.pi * share))


def exchanged(sparsity: SparsityConfig, iterations: int, done: int) -> float:
    """Return the share of the weights that are exchanged after so many iterations of a run, 0 for none.

    Parameters
    ----------
    sparsity : SparsityConfig
    iterations : int
        Of the whole run.
    done : int
        Iterations done, that of the exchange included.
    """
    every, last = sparsity.every or EVERY, (UNTIL if sparsity.until is None else sparsity.until) * iterations
    if sparsity.schedule not in ("rigl", "set") or done % every or done >= last:
        return 0.0
    fraction = FRACTION if sparsity.fraction is None else sparsity.fraction
    return fraction / 2 * (1 + math.cos(math.pi * done / last))


def drawn(sparsity: SparsityConfig, done: int, layer: int, count: int) -> np.ndarray:
    """Return random scores of the places of a layer for the exchange of ``set`` after so many iterations."""
    return np.random.default_rng([sparsity.seed, done, layer]).random(count, np.float32)


def swapped(weights: np.ndarray, mask: np.ndarray, share: float, scores: np.ndarray) -> np.ndarray:
    """Return a mask in which a share of the weights, the smallest, made room for those with the largest scores.

    Parameters
    ----------
    weights : ndarray of float32
    mask : ndarray of bool
    share : float
        Of the weights that exist; rounded down.
    scores : ndarray of float32
        One per place.  Places that have just been left may be taken again.
    """
    active = np.flatnonzero(mask)
    count = int(share * len(active))
    kept = np.argsort(-np.abs(weights.reshape(-1)[active]), kind="stable")[: len(active) - count]
    found = np.zeros(mask.size, bool)
    found[active[kept]] = True
    free = np.flatnonzero(~found)
    found[free[np.argsort(-np.abs(scores.reshape(-1)[free]), kind="stable")[:count]]] = True
    return found.reshape(mask.shape)


def of_existing(parameter: Parameter, gradients: np.ndarray) -> np.ndarray:
    """Return the gradients of weights that exist, of those that were asked for of a parameter."""
    asked, pattern = parameter.gradient_pattern, parameter.pattern
    if asked is pattern:
        return gradients
    if asked.density == 1:
        return gradients[pattern.flat]
    return gradients[np.isin(asked.flat, pattern.flat, assume_unique=True)]


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
    masks, rng = [], np.random.default_rng(config.sparsity.seed)
    for count, one in zip(config.active, config.matrices, strict=True):
        mask = np.ones(one.inputs * one.outputs, bool)
        if count < mask.size:
            mask[rng.permutation(mask.size)[max(1, count) :]] = False
        masks.append(mask.reshape(one.outputs, one.inputs))
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
