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

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from harness.config.options import place
from harness.train import checkpoint, sparsity
from harness.train.clipping import factor, global_norm
from harness.train.config import TrainConfig
from harness.train.data import DataService, Dataset, load
from harness.train.loss_scale import LossScale
from memx.parameter import Parameter
from wse_core import numerics
from wse_core.errors import CheckpointError, ConfigError, MemoryLimitError, TrainingError

if TYPE_CHECKING:
    from wse_core.numerics import Stored

__all__ = ["FORMATS", "PlainNetwork", "PlainStep", "PlainTrainer", "check_memory"]

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


@dataclass(frozen=True)
class PlainStep:
    """What an iteration did.

    Attributes
    ----------
    iteration : int
        From 1.
    loss : float
        Mean over the batch, before the update.
    accuracy : float
        Share of the batch that was classified rightly, before the update.
    scale : float
        Loss scale that was used.
    skipped : bool
        Gradients overflowed, nothing was updated.
    host_seconds : float
    """

    iteration: int
    loss: float
    accuracy: float
    scale: float
    skipped: bool
    host_seconds: float


class PlainTrainer:
    """Trains what a configuration describes, on the host.

    Parameters
    ----------
    config : TrainConfig
    matrices : list of Parameter
        First weights and patterns of each layer; copied.
    norms : dict[int, Parameter]
        Factors and shifts by number of the layer from 0; copied.
    dataset : Dataset, optional
        Instead of the one that the configuration names.
    fmt : str, optional
        Instead of the format of the configuration; see `FORMATS`.
    earlier : int, optional
        Updates that made the first weights, for optimizers that count.

    Attributes
    ----------
    weights : dict[str, ndarray of float32]
        Master weights: ``layerK.weight`` with the bias as last column, ``layerK.norm``.
    masks : dict[str, ndarray of bool]
        Which of them exist.
    slots : dict[str, dict[str, ndarray]]
        Optimizer state.
    iteration, updates : int
        Iterations done, and those that changed the weights.
    """

    def __init__(
        self,
        config: TrainConfig,
        matrices: Sequence[Parameter],
        norms: Mapping[int, Parameter],
        dataset: Dataset | None = None,
        fmt: str | None = None,
        earlier: int = 0,
    ) -> None:
        machine = config.build_machine()
        self.config, self.dataset = config, dataset or load(config)
        self.data = DataService.of(config, self.dataset)
        self.model = PlainNetwork(
            config.network.layers, fmt or config.dtype, machine["num.cb16_bias"], machine["num.ftz"]
        )
        self.optimizer, self.loss_scale = config.train.optimizer.build(), LossScale.of(config)
        self.iterations = config.iterations(len(self.dataset.x_train))
        self.phases = sparsity.phases(config.sparsity, self.iterations)
        self.weights, self.masks = {}, {}
        named = {f"layer{k}.weight": parameter for k, parameter in enumerate(matrices, 1)}
        for name, parameter in (named | {f"layer{k + 1}.norm": norm for k, norm in norms.items()}).items():
            self.weights[name] = parameter.dense.astype(self.model.dtype)
            self.masks[name] = parameter.pattern.mask()
        self.slots = {
            name: {slot: np.zeros_like(value) for slot in self.optimizer.slots} for name, value in self.weights.items()
        }
        for name, parameter in (named | {f"layer{k + 1}.norm": norm for k, norm in norms.items()}).items():
            self.slots[name] |= {slot: state.astype(self.model.dtype) for slot, state in parameter.state.items()}
        self.iteration = self.updates = 0
        self.earlier = earlier

    @classmethod
    def of(cls, config: TrainConfig) -> Self:
        """Return the plain counterpart of `harness.train.trainer.Trainer`: the same first weights and masks."""
        from fabric.networks.streamed.network import Layer, Network
        from harness.train.initial import initial_parameters

        layers = (
            Layer(inputs, layer.outputs, layer.activation, layer.bias, layer.norm)
            for inputs, layer in zip(config.widths, config.network.layers, strict=False)
        )
        bias, slots = config.build_machine()["num.cb16_bias"], config.train.optimizer.build().slots
        matrices, norms, earlier = initial_parameters(config, Network(tuple(layers)), bias, slots)
        return cls(config, matrices, norms, earlier=earlier)

    def _active(self) -> dict[str, np.ndarray]:
        """Return the weights that exist, zero elsewhere, by name."""
        return {name: np.where(self.masks[name], value, 0) for name, value in self.weights.items()}

    def step(self) -> PlainStep:
        """Run one iteration; return its `PlainStep`.

        Raises
        ------
        TrainingError
            The loss is not finite; the message names iteration and layer.
        """
        clock = time.perf_counter()
        phase = sparsity.phase_at(self.phases, min(self.iteration, self.iterations - 1))
        if self.iteration and self.iteration == phase.begin:
            self._change_masks(phase.density)
        x, labels = (np.concatenate(parts) for parts in zip(*self.data.batch(self.iteration), strict=True))
        scale, batch = self.loss_scale.value, self.config.data.batch
        with np.errstate(over="ignore", invalid="ignore"):
            loss, gradients = self.model.gradients(self._active(), x, labels, scale)
        self.iteration += 1
        if not np.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss}",
                iteration=self.iteration,
                layer=self.model.first_bad(),
                hint="a smaller learning rate",
            )
        finite = all(np.isfinite(value[self.masks[name]]).all() for name, value in gradients.items())
        skipped = self.loss_scale.update(finite, self.iteration)
        if not skipped:
            self.updates += 1
            self._update(gradients, scale * batch, phase)
            self._exchange(gradients)
        right = (self.model.activations[-1].argmax(1) == labels).mean()
        return PlainStep(
            self.iteration,
            float(loss / self.model.dtype.type(batch)),
            float(right),
            scale,
            skipped,
            time.perf_counter() - clock,
        )

    def _update(self, gradients: Mapping[str, np.ndarray], divisor: float, phase: sparsity.Phase) -> None:
        lr = sparsity.learning_rate(self.config.train.schedule, self.optimizer.lr, phase, self.iteration - 1)
        share = self.model.dtype.type(divisor)
        clip = self.config.train.clip
        if clip is not None:
            length = global_norm([gradients[name][mask] / share for name, mask in self.masks.items()])
            share /= self.model.dtype.type(factor(length, clip))
        for name, mask in self.masks.items():
            state = {slot: value[mask] for slot, value in self.slots[name].items()}
            self.weights[name][mask] = self.optimizer.update(
                self.earlier + self.updates, self.weights[name][mask], gradients[name][mask] / share, state, lr
            )
            for slot, value in state.items():
                self.slots[name][slot][mask] = value

    def _exchange(self, gradients: Mapping[str, np.ndarray]) -> None:
        """Let the smallest weights of each matrix go and as many come, if it is time."""
        schedule = self.config.sparsity
        share = sparsity.exchanged(schedule, self.iterations, self.iteration)
        for k, inputs in enumerate(self.config.widths[:-1] if share else ()):
            name = f"layer{k + 1}.weight"
            weights, mask = self.weights[name][:, :inputs], self.masks[name][:, :inputs]
            if mask.all():
                continue
            scores = gradients[name][:, :inputs]
            if schedule.schedule == "set":
                scores = sparsity.drawn(schedule, self.iteration, k, mask.size)
            self._set_mask(name, sparsity.swapped(weights, mask, share, scores))

    def _change_masks(self, density: float) -> None:
        for k, inputs in enumerate(self.config.widths[:-1], 1):
            name = f"layer{k}.weight"
            weights, mask = self.weights[name], self.masks[name]
            self._set_mask(name, sparsity.moved(weights[:, :inputs], mask[:, :inputs], density))

    def _set_mask(self, name: str, chosen: np.ndarray) -> None:
        """Change which weights of a matrix exist, biases apart; those that come begin at zero, as does their state."""
        found = self.masks[name].copy()
        found[:, : chosen.shape[1]] = chosen
        for values in (self.weights[name], *self.slots[name].values()):
            values[found & ~self.masks[name]] = 0
        self.masks[name] = found

    def evaluate(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the share of samples whose largest logit is that of their label."""
        return float((self.model.forward(self._active(), inputs).argmax(1) == labels).mean())

    # --- checkpoints, as those of the wafers --------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return (tensors, everything else as JSON values)."""
        tensors = {}
        for name, weights in self.weights.items():
            tensors[name], tensors[f"{name}.pattern"] = weights, np.packbits(self.masks[name])
            tensors |= {f"{name}.{slot}": value for slot, value in self.slots[name].items()}
        return tensors, {
            "iteration": self.iteration,
            "updates": self.updates,
            "earlier": self.earlier,
            "loss_scale": self.loss_scale.state(),
            "data": self.data.state(),
        }

    def restore(self, tensors: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; `CheckpointError`, and no change, if it does not fit."""
        expected, _ = self.state()
        for name in sorted({*expected, *tensors}):
            here, there = expected.get(name), tensors.get(name)
            if here is None or there is None or (here.shape, here.dtype) != (there.shape, there.dtype):
                raise CheckpointError(f"tensor {name!r} does not fit the configuration")
        counts = checkpoint.counts(state, ("iteration", "updates", "earlier"))
        self.data.restore(state.get("data"))
        self.loss_scale.restore(state.get("loss_scale"))
        self.iteration, self.updates, self.earlier = counts
        for name, weights in self.weights.items():
            weights[...] = tensors[name]
            bits = np.unpackbits(tensors[f"{name}.pattern"], count=weights.size)
            self.masks[name] = bits.astype(bool).reshape(weights.shape)
            for slot, value in self.slots[name].items():
                value[...] = tensors[f"{name}.{slot}"]
