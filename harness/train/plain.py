"""Plain numpy does the same training: weight streaming has to equal it.

16-bit operands, f32 sums by numpy's ``@``, f32 master weights; no order of additions, no wafers, no streams.  Formulas,
per layer, with a row per sample (r: round to 16 bits; W, b, g, s: weights, biases, factors and shifts, rounded)::

    forward                                     backward, from d: gradient of y, 16 bits
    z = r(a W' + b)                             d = r(d f'(n))
    u = r((z - mean z) / sqrt(var z + eps))     dg = sum of d u,  ds = sum of d      (over samples)
    n = r(g u + s)                              e = g d;  d = r((e - mean e - u mean(e u)) / sqrt(var z + eps))
    y = r(f(n))                                 dW = d' a,  db = sum of d;  next d = r(d W)

Without normalisation n is z.  f is relu, gelu (by tanh) or nothing; its slope f' is rounded to 16 bits as well.  The
loss is the mean of -log softmax(y)[label]; with the sum of a batch as gradient, the first d is
``r((softmax(y) - onehot) x scale)``; or it is that of squared differences to targets, and the first d
``r(2 (y - target) x scale / outputs)``.  Gradients are divided by scale x batch in f32 before the optimizer.

With the format ``f64`` nothing is rounded and everything is float64: that is how these formulas are compared with
finite differences.

Sources: weight streaming white paper, section 5.3 (mixed precision); J. L. Ba et al., "Layer normalization", 2016;
D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016 (tanh form).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fabric.networks.graph.dropout import Draw
from fabric.networks.graph.plain import PlainGraph
from harness.config.options import place
from harness.train.config import TrainConfig
from harness.train.data import Dataset
from harness.train.masters import BatchResult, MasterLoop
from harness.train.sources import Samples, blocks
from memx.parameter import Parameter
from wse_core.errors import MemoryLimitError

if TYPE_CHECKING:
    pass

__all__ = ["PlainTrainer", "check_memory"]

WEIGHT_BYTES = 64
"""Bytes of the host that each weight needs besides its optimizer state: measured, most of them in the first draw and in
an update, where masters, masks, gradients and their copies are there at once."""


def check_memory(config: TrainConfig) -> None:
    """Refuse a network that cannot be trained in the memory of this host, before anything is made for it.

    Raises
    ------
    MemoryLimitError
    """
    from fabric.host.engines import available_bytes

    weights = sum((one.inputs + 1) * one.outputs for one in config.matrices)
    state = 4 * len(config.train.optimizer.build().slots)
    needed, limit = weights * (WEIGHT_BYTES + state), available_bytes()
    if limit is not None and needed > limit:
        raise MemoryLimitError(
            f"{weights:,} weights need about {needed / 2**30:.1f} GiB of host memory, there are {limit / 2**30:.1f}",
            where=place(config.source, "network.layers"),
            needed_bytes=needed,
            available_bytes=limit,
            hint="fewer outputs",
        )


class PlainTrainer(MasterLoop):
    """Trains what a configuration describes, on the host.

    Parameters
    ----------
    config : TrainConfig
    data : Dataset or iterable of (inputs, labels), optional
    fmt : str, optional
        Instead of the format of the configuration; see `fabric.networks.graph.plain.PLAIN_FORMATS`.
    parameters : (matrices, norms), optional
        First weights; see `harness.train.loop.Loop`, which has further attributes.
    """

    def __init__(
        self,
        config: TrainConfig,
        data: Dataset | Iterable[tuple[ArrayLike, ArrayLike]] | None = None,
        fmt: str | None = None,
        parameters: tuple[list[Parameter], dict[int, Parameter]] | None = None,
    ) -> None:
        super().__init__(config, data, parameters)
        numbers = self.machine["num.cb16_bias"], self.machine["num.ftz"]
        self.model = PlainGraph(config.graph, fmt or config.dtype, *numbers)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The master weights are given by name, each f32 of shape (outputs, inputs, and one for a bias); of a
        normalisation two rows.
        """
        return {parameter.name: parameter.dense for parameter in self.parameters}

    @property
    def masks(self) -> dict[str, np.ndarray]:
        """Arrays of bool tell which of the `weights` exist, by name."""
        return {parameter.name: parameter.pattern.mask() for parameter in self.parameters}

    @property
    def slots(self) -> dict[str, dict[str, np.ndarray]]:
        """The optimizer has this state: by name of a parameter, arrays by name of the state."""
        return {parameter.name: parameter.state for parameter in self.parameters}

    def compile(self) -> PlainGraph:
        """Return the network; it has no place to take."""
        return self.model

    def _active(self) -> dict[str, np.ndarray]:
        """Return the weights that exist, zero elsewhere, by name."""
        masks = self.masks
        return {name: np.where(masks[name], value, self.model.dtype.type(0)) for name, value in self.weights.items()}

    def _batch(self, scale: float) -> BatchResult:
        """Let the whole batch pass at once."""
        if not self.model.network.over_batches:
            return self._part(self.data.batch(self.iteration), scale)
        batches = enumerate(self.data.parts(self.iteration, self.config.train.accumulate))
        parts = [self._part(part, scale, number * self.config.at_once) for number, part in batches]
        for parameter in self.parameters:
            if parameter.statistics is not None:
                parameter.statistics.end()
        with np.errstate(over="ignore", invalid="ignore"):
            each = zip(*(part.gradients for part in parts), strict=True)
            gradients = [sum(same[1:], start=same[0]) for same in each]
            loss = sum((part.loss for part in parts[1:]), start=parts[0].loss)
        right = None if self.config.targets else sum(part.right or 0 for part in parts)
        return BatchResult(loss, right, gradients, sum(p.labelled for p in parts))

    def _part(self, samples: Sequence[tuple[np.ndarray, np.ndarray]], scale: float, first: int = 0) -> BatchResult:
        """Let samples pass at once, given by wafers; `first` is the number of the first one in the batch."""
        self.model.draw = Draw(self.config.seed, self.iteration, first)
        x, labels = (np.concatenate(parts) for parts in zip(*samples, strict=True))
        with np.errstate(over="ignore", invalid="ignore"):
            loss, found = self.model.gradients(self._active(), x, labels, scale, self.config.train.label_smoothing)
        right = self._told_right(self.model.results[self.model.network.logits.name], labels)
        gradients = [found[p.name].reshape(-1)[p.gradient_pattern.flat] for p in self.parameters]
        network, kept = self.model.network, {p.name: p.statistics for p in self.parameters}
        for node in network.nodes:
            parameter = network.parameter(node)
            statistics = kept[parameter.name] if parameter in network.over_batches else None
            if parameter is not None and statistics is not None:
                mean, variance = self.model.kept[node.name][2]
                statistics.seen(mean, variance, len(x) * network.pixels(parameter.name))
        return BatchResult(loss, right, gradients, self._labelled(labels))

    def _classify(self, inputs: Samples, labels: np.ndarray) -> tuple[int, float]:
        right, loss, start = 0, 0.0, 0
        self.model.draw = None
        running = {p.name: p.statistics.running for p in self.parameters if p.statistics is not None}
        for block in blocks(inputs, self.config.data.sequence):
            logits = self.model.forward(self._active(), block, running)
            found = self._judged(logits, labels[start : start + len(block)])
            right, loss, start = right + found[0], loss + found[1], start + len(block)
        return right, loss

    def culprit(self) -> int | None:
        """Return the number of the first layer whose activations are not finite (0: the inputs), or None."""
        return self.model.first_bad()
