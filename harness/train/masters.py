"""The host updates FP32 master weights in an iteration: the memory service beside wafers, and the plain trainer.

Masks change if a phase begins.  The back end gives loss and gradients of a batch, summed over its samples and
multiplied by the loss scale; gradients are divided by scale and batch in FP32 and clipped; weights are updated, and a
share of them exchanged if it is time.  If a number that was asked for is not finite, nothing is updated and the loss
scale is halved.

Rules of an exchange, which are those of the RigL authors' code (google-research/rigl, ``sparse_optimizers_base.py``):
the optimizer, and so the norm by which gradients are clipped, sees gradients of weights that exist; the other ones only
say what grows.  A weight that goes and comes back at once keeps its value and its optimizer state
(``reinit_when_same=False``, the default there); one that comes anew begins at zero.

Sources: weight streaming white paper, sections 6.2 and 7; U. Evci et al., "Rigging the lottery", 2020.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from harness.train import sparsity
from harness.train.clipping import factor, global_norm
from harness.train.initial import with_bias
from harness.train.loop import Loop, Step
from harness.train.shared import counted_once, fixed, kept, trained
from memx.pattern import Pattern

__all__ = ["BatchResult", "MasterLoop"]


@dataclass(frozen=True)
class BatchResult:
    """A `BatchResult` is what the batch of an iteration gave: loss, hits, gradients.

    Attributes
    ----------
    loss : numpy.floating
        Sum over the labels, in FP32.
    right : int or None
        Labels that have the largest logit; None where they are targets.
    gradients : list of ndarray of float32
        Per parameter, one per entry of its gradient pattern: sums over the samples, times the loss scale.
    labelled : int
        So many samples, tokens or pixels have a label; 0: all of the batch.
    clock : dict
        Further fields of `Step`.
    """

    loss: np.floating[Any]
    right: int | None
    gradients: Sequence[np.ndarray]
    labelled: int = 0
    clock: Mapping[str, Any] = field(default_factory=dict)


Measure = TypeVar("Measure")


def histogram(gradients: np.ndarray) -> dict[str, int]:
    """Return how many numbers lie in each binade, by its exponent in rising order, and how many are ``zero``."""
    exponents, counts = np.unique(np.frexp(gradients[gradients != 0])[1] - 1, return_counts=True)
    binades = {str(exponent): count for exponent, count in zip(exponents.tolist(), counts.tolist(), strict=True)}
    return {"zero": int(gradients.size - counts.sum()), **binades}


class MasterLoop(Loop):
    """A `MasterLoop` is a training loop whose back end hands gradients over; the base of wafers that stream and of the
    plain trainer.
    """

    @abstractmethod
    def _batch(self, scale: float) -> BatchResult:
        """Let the batch of the next iteration pass with a loss scale; return what it gave."""

    def _run(self) -> list[Step]:
        """Run one iteration: forward, backward, and the update if the gradients are finite."""
        self.compile()
        clock, number = time.perf_counter(), self.iteration + 1
        phase = self._phase(self.iteration)
        if self.iteration and self.iteration == phase.begin:
            self._change_masks(phase.density)
        scale, share = self.loss_scale.value, self._exchanged(number)
        norm, norms, binades = None, None, None
        everywhere = bool(share) and self.config.sparsity.schedule == "rigl"
        with self._asked_everywhere(everywhere):
            done = self._batch(scale)
            batch = done.labelled or self.config.data.batch
            wanted: Iterable[np.ndarray] = done.gradients
            if not everywhere:  # what there is no weight for may have come along, and must not decide
                wanted = map(sparsity.of_existing, self.parameters, done.gradients)
            finite = all(bool(np.isfinite(part).all()) for part in wanted)
            usable = bool(np.isfinite(done.loss))  # if it is not, `step` says so
            if usable and not self.loss_scale.update(finite, number):
                self.updates += 1
                mean = [part / np.float32(scale * batch) for part in done.gradients]
                mean = trained(self.config, self.matrices, mean)
                norms = self._of_each(mean, lambda own: global_norm([own]), self.config.train.gradient_norms)
                binades = self._of_each(mean, histogram, self.config.train.gradient_histograms)
                norm = self._update(mean, share)
        return [
            Step(
                iteration=number,
                loss=float(done.loss / np.float32(batch)),
                accuracy=None if done.right is None else done.right / batch,
                scale=scale,
                skipped=not finite,
                norm=norm,
                gradient_norms=norms,
                gradient_histograms=binades,
                density=self.density,
                host_seconds=time.perf_counter() - clock,
                **done.clock,
            )
        ]

    def _of_each(
        self, gradients: list[np.ndarray], found: Callable[[np.ndarray], Measure], asked: bool
    ) -> dict[str, Measure] | None:
        """Return what is found of the gradients of each parameter, those of weights that exist; None if not asked."""
        both = zip(self.parameters, gradients, strict=True)
        return {one.name: found(sparsity.of_existing(one, own)) for one, own in both} if asked else None

    def _exchanged(self, number: int) -> float:
        """Return the share of the weights that is exchanged in an iteration counted from 1."""
        return sparsity.exchanged(self.config.sparsity, self.iterations, number)

    @contextmanager
    def _asked_everywhere(self, everywhere: bool) -> Iterator[None]:
        """Ask for gradients at all places of the matrices meanwhile, if `everywhere`."""
        sparse = [matrix for matrix in self.matrices if everywhere and matrix.pattern.density < 1]
        for matrix in sparse:
            matrix.gradient_pattern = Pattern.dense(matrix.dense.shape)
        try:
            yield
        finally:
            for matrix in sparse:
                matrix.gradient_pattern = None

    def _update(self, gradients: list[np.ndarray], share: float) -> float | None:
        """Clip gradients, update all parameters, exchange a share of the weights; return the norm, None if not taken.

        Parameters
        ----------
        gradients : list of ndarray of float32
            Per parameter, at all places that were asked for.
        share : float
            Of the weights that are exchanged.
        """
        lr, most, norm = self._rate(self.iteration), self.config.train.clip, None
        if most is not None:
            counted = counted_once(self.config, self.matrices, gradients)
            both = zip(self.parameters, counted, strict=True)
            norm = global_norm([sparsity.of_existing(parameter, own) for parameter, own in both])
            gradients = [own * np.float32(factor(norm, most)) for own in gradients]
        with kept(self.config, self.parameters):
            for number, (parameter, own) in enumerate(zip(self.parameters, gradients, strict=True)):
                parameter.update(self.optimizer, self.earlier + self.updates, own, lr)
                changes = number < len(self.matrices) and parameter.pattern.density < 1 and not self._stays(number)
                if share and changes:
                    self._exchange(number, share, own)
        return norm

    def _exchange(self, number: int, share: float, gradients: np.ndarray) -> None:
        """Let the smallest weights of a matrix go and as many come; biases stay."""
        matrix, one = self.matrices[number], self.config.matrices[number]
        inputs, schedule = one.inputs, self.config.sparsity
        shape = matrix.dense.shape[0], inputs
        if schedule.schedule == "set":
            scores = sparsity.drawn(schedule, self.iteration + 1, number, shape[0] * inputs)
        else:
            scores = gradients.reshape(matrix.dense.shape)[:, :inputs]
        mask = matrix.pattern.mask()[:, :inputs]
        matrix.become(with_bias(sparsity.swapped(matrix.dense[:, :inputs], mask, share, scores), one.bias))

    def _stays(self, number: int) -> bool:
        """Return whether no weight of a matrix is trained: it has no other ones either."""
        whole = slice(None), slice(None)
        return any(found == number and where == whole for found, where in fixed(self.config))

    def _change_masks(self, density: float) -> None:
        """Begin a phase: weights go, or come back as zeros with their optimizer state."""
        for number, (matrix, one) in enumerate(zip(self.matrices, self.config.matrices, strict=True)):
            if self._stays(number):
                continue
            old = matrix.pattern.mask()[:, : one.inputs]
            matrix.become(with_bias(sparsity.moved(matrix.dense[:, : one.inputs], old, density), one.bias))
