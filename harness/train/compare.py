"""Numpy does the same training beside the wafers: bit for bit in their order of additions, and in numpy's own.

*In order* (`swarm.oracle`, `fabric.networks.pipelined.oracle`): everything the wafers and the tree do, in their order;
weights must be equal bit for bit.  *Plain* (`harness.train.plain`): a mixed-precision trainer as one writes it with
``@``; it differs by the order of f32 additions, and from time to time by a 16-bit rounding that this turns over.  It
does one batch after the other, so it also differs by the staleness of continuous updates in a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.train.plain import PlainTrainer

if TYPE_CHECKING:
    from harness.train.loop import Loop, Step
    from harness.train.pipelined import PipelinedTrainer
    from harness.train.trainer import Trainer

__all__ = ["Comparison", "Verdict"]


@dataclass(frozen=True)
class Verdict:
    """A `Verdict` says how training on wafers and training by numpy compare.

    Attributes
    ----------
    iterations : int
        That were compared.
    bit_exact : bool
        All FP32 weights, running statistics and losses equal numpy's in order.
    weight_distance : float
        Norm of the difference to the weights of plain numpy, over the norm of how far they moved in training.
    loss_distance : float
        Largest difference to a loss of plain numpy.
    """

    iterations: int
    bit_exact: bool
    weight_distance: float
    loss_distance: float


class Comparison:
    """A `Comparison` has two trainers by numpy that follow one on wafers.

    Parameters
    ----------
    trainer : Trainer or PipelinedTrainer
        Before its first iteration.
    """

    def __init__(self, trainer: Trainer | PipelinedTrainer) -> None:
        self.trainer = trainer
        self.exact, self.plain = type(trainer)(trainer.config, "numpy"), PlainTrainer(trainer.config)
        self._start = self._weights()
        self._equal, self._apart, self.iterations = True, 0.0, 0

    def _weights(self) -> dict[str, np.ndarray]:
        return {parameter.name: parameter.dense.copy() for parameter in self.trainer.parameters}

    def step(self, step: Step) -> float:
        """Do what the trainer has just done; return the loss of plain numpy."""
        exact, plain = self.exact.step(), self.plain.step()
        self._equal &= np.array_equal(np.float64(exact.loss), np.float64(step.loss), equal_nan=True)
        self._apart = max(self._apart, abs(plain.loss - step.loss))
        self.iterations += 1
        return plain.loss

    def verdict(self) -> Verdict:
        """Return the `Verdict` after the iterations done so far."""
        weights = self._weights()
        mine, exact = ([*_kept(trainer)] for trainer in (self.trainer, self.exact))
        equal = all(np.array_equal(a.view(np.uint32), b.view(np.uint32)) for a, b in zip(mine, exact, strict=True))
        apart, moved = (
            np.sqrt(
                sum(
                    float(np.square(weights[name] - other[name].reshape(weights[name].shape), dtype=np.float64).sum())
                    for name in weights
                )
            )
            for other in (self.plain.weights, self._start)
        )
        return Verdict(
            self.iterations, bool(self._equal and equal), float(apart / moved) if moved else 0.0, float(self._apart)
        )


def _kept(trainer: Loop) -> Iterator[np.ndarray]:
    """Give what training changes: weights, and statistics of batches."""
    for parameter in trainer.parameters:
        yield parameter.dense
        if parameter.statistics is not None:
            yield parameter.statistics.running
