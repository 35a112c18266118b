"""Training that follows a varying number of devices: between batches the state is divided anew, none of it is lost.

Batch and cluster may also follow the critical batch, which grows during training (section 8.1): `growth` returns the
data-parallel degrees for a sequence of critical batches.

Source: "Layered gradient accumulation and modular pipeline parallelism", section 8.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from harness.plan.schedules import Schedule, ScheduleTimeline
from harness.plan.tensors import TensorTrainer
from wse_core.errors import ConfigError

__all__ = ["growth", "train_elastic"]


def train_elastic(
    trainer: TensorTrainer, schedule: Schedule, batches: Iterable[tuple[np.ndarray, np.ndarray]], ranks: Iterable[int]
) -> list[ScheduleTimeline]:
    """Train on batches with a number of data-parallel ranks for each; return the timelines.

    Parameters
    ----------
    trainer : Trainer
    schedule : Schedule
        Of one instance; micro-batches become smaller as ranks are added.
    batches : iterable of (inputs, targets)
    ranks : iterable of int
        As many as there are batches.
    """
    timelines = []
    for (inputs, targets), degree in zip(batches, ranks, strict=True):
        if degree != trainer.ranks:
            trainer.resize(degree)
        timelines.append(trainer.train(schedule, inputs, targets))
    return timelines


def growth(critical: Sequence[float], micro: float, count: float) -> list[int]:
    """Return the largest data-parallel degree within each critical batch.

    Raises
    ------
    ConfigError
        If a critical batch is smaller than what one instance takes.
    """
    degrees = [math.floor(batch / (micro * count)) for batch in critical]
    for batch, degree in zip(critical, degrees, strict=True):
        if degree < 1:
            raise ConfigError(f"a critical batch of {batch:g} is below the {micro * count:g} sequences of one instance")
    return degrees
