"""The same training by plain numpy: what weight streaming has to equal.

16-bit operands, f32 sums by numpy's ``@``, f32 master weights; no order of additions, no wafers, no streams.  Formulas,
per layer, with a row per sample (r: round to 16 bits; W, b, g, s: weights, biases, factors and shifts, rounded)::

    forward                                     backward, from d: gradient of y, 16 bits
    z = r(a W' + b)                             d = r(d f'(n))
    u = r((z - mean z) / sqrt(var z + eps))     dg = sum of d u,  ds = sum of d      (over samples)
    n = r(g u + s)                              e = g d;  d = r((e - mean e - u mean(e u)) / sqrt(var z + eps))
    y = r(f(n))                                 dW = d' a,  db = sum of d;  next d = r(d W)

Without normalisation n is z.  f is relu, gelu (by tanh) or nothing; its slope f' is rounded to 16 bits as well.  The
loss is the mean of -log softmax(y)[label]; with the sum of a batch as gradient, the first d is
``r((softmax(y) - onehot) x scale)``.  Gradients are divided by scale x batch in f32 before the optimizer.

With the format ``f64`` nothing is rounded and everything is float64: that is how these formulas are compared with
finite differences.

Sources: weight streaming white paper, section 5.3 (mixed precision); J. L. Ba et al., "Layer normalization", 2016;
D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016 (tanh form).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from harness.config.options import place
from harness.train.config import TrainConfig
from harness.train.data import Dataset
from harness.train.loop import judged
from harness.train.masters import BatchResult, MasterLoop
from memx.parameter import Parameter
from wse_core import numerics
from wse_core.errors import ConfigError, MemoryLimitError

if TYPE_CHECKING:
    from wse_core.numerics import Stored

__all__ = ["FORMATS", "PlainNetwork", "PlainTrainer", "check_memory"]

FORMATS = ("f16", "cb16", "bf16", "f64")
EPSILON = 1e-5
"""Added to the variance."""
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

    weights = sum((inputs + 1) * outputs for inputs, outputs in pairwise(config.widths))
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


@dataclass
class _Kept:
    """What a layer's backward pass needs of its forward pass."""

    inputs: np.ndarray
    slopes: np.ndarray | None
    unit: np.ndarray | None
    inverse: np.ndarray | None


class PlainNetwork:
    """Forward and backward passes of a network.

    Parameters
    ----------
    layers : sequence
        Objects with `activation`, `bias` and `norm`, such as `fabric.networks.streamed.network.Layer`.
    fmt : {"f16", "cb16", "bf16", "f64"}
        Format of weights and activations.
    bias : int
        Exponent bias of cb16.
    ftz : bool
        Flush subnormals.

    Attributes
    ----------
    activations : list of ndarray, shape (samples, features)
        Of the last forward pass, inputs first.
    """

    def __init__(
        self, layers: Sequence[Any], fmt: str = "f16", bias: int = numerics.BIAS_DEFAULT, ftz: bool = False
    ) -> None:
        if fmt not in FORMATS:
            raise ConfigError(f"no format {fmt!r} for a network", where="plain numpy", hint=", ".join(FORMATS))
        self.layers, self.fmt, self._bias, self._ftz = tuple(layers), fmt, bias, ftz
        self.dtype = np.dtype(np.float64 if fmt == "f64" else np.float32)

    def round(self, values: ArrayLike) -> np.ndarray:
        """Return values rounded to 16 bits, as f32."""
        if self.fmt == "f64":
            return np.asarray(values, np.float64)
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        fmt = cast("Stored", self.fmt)  # f64 has been dealt with
        half = numerics.convert(bits, "f32", fmt, self._bias, self._ftz)
        return np.asarray(numerics.convert(half, fmt, "f32", self._bias, self._ftz), np.uint32).view(np.float32)

    def activate(self, activation: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return (activations, slopes)."""
        if activation == "relu":
            return np.maximum(values, 0), (values > 0).astype(self.dtype)
        if activation == "gelu":
            c, k = self.dtype.type(np.sqrt(2 / np.pi)), self.dtype.type(0.044715)
            square = values * values
            t = np.tanh(c * values * (1 + k * square))
            slope = (1 + t) / 2 + values * (1 - t * t) * c * (1 + 3 * k * square) / 2
            return self.round(values * (1 + t) / 2), self.round(slope)
        return values, None

    def forward(self, parameters: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
        """Return the logits.

        Parameters
        ----------
        parameters : dict[str, ndarray]
            ``layerK.weight`` of shape (outputs, inputs, and one for a bias), ``layerK.norm`` of shape (2, outputs):
            factors and shifts; K from 1.
        x : ndarray, shape (samples, features)
        """
        rows, self._kept = self.round(x), []
        self.activations = [rows]
        for k, layer in enumerate(self.layers, 1):
            weights, inputs, unit, inverse = self.round(parameters[f"layer{k}.weight"]), rows, None, None
            rows = inputs @ weights[:, : inputs.shape[1]].T
            if layer.bias:
                rows = rows + weights[:, -1]
            rows = self.round(rows)
            if layer.norm:
                factors, shifts = self.round(parameters[f"layer{k}.norm"])
                centred = rows - rows.mean(1, keepdims=True)
                inverse = 1 / np.sqrt((centred * centred).mean(1, keepdims=True) + self.dtype.type(EPSILON))
                unit = self.round(centred * inverse)
                rows = self.round(unit * factors + shifts)
            rows, slopes = self.activate(layer.activation, rows)
            self._kept.append(_Kept(inputs, slopes, unit, inverse))
            self.activations.append(rows)
        return rows

    def loss(self, logits: np.ndarray, labels: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return (sum of the losses, softmax minus one-hot labels)."""
        below = logits - logits.max(1, keepdims=True)
        powers = np.exp(below)
        sums = powers.sum(1, keepdims=True)
        wanted = np.eye(logits.shape[1], dtype=self.dtype)[labels]
        loss = (np.log(sums[:, 0]) - (wanted * below).sum(1)).sum(dtype=self.dtype)
        return loss, powers / sums - wanted

    def gradients(
        self, parameters: Mapping[str, np.ndarray], x: np.ndarray, labels: np.ndarray, scale: float = 1.0
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Return (sum of the losses, gradients of that sum times `scale`, by name).

        Parameters
        ----------
        parameters : dict[str, ndarray]
        x : ndarray, shape (samples, features)
        labels : ndarray of int, shape (samples,)
        scale : float
        """
        loss, delta = self.loss(self.forward(parameters, x), labels)
        delta, found = self.round(delta * self.dtype.type(scale)), {}
        for k in range(len(self.layers), 0, -1):
            layer, kept = self.layers[k - 1], self._kept[k - 1]
            if kept.slopes is not None:
                delta = self.round(kept.slopes * delta)
            if layer.norm:
                factors = self.round(parameters[f"layer{k}.norm"])[0]
                found[f"layer{k}.norm"] = np.stack([(delta * kept.unit).sum(0), delta.sum(0)])
                scaled = delta * factors
                mean, dot = scaled.mean(1, keepdims=True), (scaled * kept.unit).mean(1, keepdims=True)
                delta = self.round((scaled - mean - kept.unit * dot) * kept.inverse)
            whole = [delta.T @ kept.inputs]
            if layer.bias:
                whole.append(delta.sum(0)[:, None])
            found[f"layer{k}.weight"] = np.concatenate(whole, axis=1)
            if k > 1:
                weights = self.round(parameters[f"layer{k}.weight"])
                delta = self.round(delta @ weights[:, : kept.inputs.shape[1]])
        return loss, found

    def first_bad(self) -> int | None:
        """Return the number of the first layer whose activations are not finite (0: the inputs), or None."""
        return next((k for k, rows in enumerate(self.activations) if not np.isfinite(rows).all()), None)


class PlainTrainer(MasterLoop):
    """Trains what a configuration describes, on the host.

    Parameters
    ----------
    config : TrainConfig
    data : Dataset or iterable of (inputs, labels), optional
    fmt : str, optional
        Instead of the format of the configuration; see `FORMATS`.
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
        self.model = PlainNetwork(config.network.layers, fmt or config.dtype, *numbers)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Master weights by name, of shape (outputs, inputs, and one for a bias); of a normalisation two rows."""
        return {parameter.name: parameter.dense for parameter in self.parameters}

    @property
    def masks(self) -> dict[str, np.ndarray]:
        """Which of the `weights` exist, as arrays of bool."""
        return {parameter.name: parameter.pattern.mask() for parameter in self.parameters}

    @property
    def slots(self) -> dict[str, dict[str, np.ndarray]]:
        """Optimizer state of the `weights`."""
        return {parameter.name: parameter.state for parameter in self.parameters}

    def compile(self) -> PlainNetwork:
        """Return the network; it has no place to take."""
        return self.model

    def _active(self) -> dict[str, np.ndarray]:
        """Return the weights that exist, zero elsewhere, by name."""
        masks = self.masks
        return {name: np.where(masks[name], value, self.model.dtype.type(0)) for name, value in self.weights.items()}

    def _batch(self, scale: float) -> BatchResult:
        """Let the whole batch pass at once."""
        x, labels = (np.concatenate(parts) for parts in zip(*self.data.batch(self.iteration), strict=True))
        with np.errstate(over="ignore", invalid="ignore"):
            loss, found = self.model.gradients(self._active(), x, labels, scale)
        right = int((self.model.activations[-1].argmax(1) == labels).sum())
        gradients = [found[p.name].reshape(-1)[p.gradient_pattern.flat] for p in self.parameters]
        return BatchResult(loss, right, gradients)

    def _classify(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[int, float]:
        return judged(self.model.forward(self._active(), inputs), labels)

    def culprit(self) -> int | None:
        """Return the number of the first layer whose activations are not finite (0: the inputs), or None."""
        return self.model.first_bad()
