"""A plain network is calculated by numpy, from the numpy forms of its operations.

Operands are rounded to 16 bits, sums are those of numpy's ``@`` in f32, in no order that a machine has.  With the
format ``f64`` nothing is rounded and everything is float64: so the forms are compared with finite differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from fabric.networks.graph.tensors import INPUT
from wse_core import numerics
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from fabric.networks.graph.dropout import Draw
    from fabric.networks.graph.network import Network
    from wse_core.numerics import Stored

__all__ = ["EPSILON", "PLAIN_FORMATS", "PlainArithmetic", "PlainGraph"]

EPSILON = 1e-5
"""Normalisation adds this to the variance before the root, unless a network says otherwise."""
PLAIN_FORMATS = ("f16", "cb16", "bf16", "f64")


class PlainArithmetic:
    """Plain arithmetic rounds arrays of float32 to a format, or none of float64.

    Parameters
    ----------
    fmt : {"f16", "cb16", "bf16", "f64"}
    bias : int
        Exponent bias of cb16.
    ftz : bool
        Flush subnormals.

    Attributes
    ----------
    draw : Draw or None
        What dropout goes by; None: it does nothing.
    """

    draw: Draw | None = None

    def __init__(self, fmt: str = "f16", bias: int = numerics.BIAS_DEFAULT, ftz: bool = False) -> None:
        if fmt not in PLAIN_FORMATS:
            raise ConfigError(f"no format {fmt!r} for a network", where="plain numpy", hint=", ".join(PLAIN_FORMATS))
        self.fmt, self._bias, self._ftz = fmt, bias, ftz
        self.epsilon = EPSILON
        self.dtype = np.dtype(np.float64 if fmt == "f64" else np.float32)

    def round(self, values: ArrayLike) -> np.ndarray:
        """Return values rounded to 16 bits, as f32."""
        if self.fmt == "f64":
            return np.asarray(values, np.float64)
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        fmt = cast("Stored", self.fmt)  # f64 has been dealt with
        half = numerics.convert(bits, "f32", fmt, self._bias, self._ftz)
        return np.asarray(numerics.convert(half, fmt, "f32", self._bias, self._ftz), np.uint32).view(np.float32)


class PlainGraph(PlainArithmetic):
    """Forward and backward passes of a network; parameters as of `PlainArithmetic`.

    Attributes
    ----------
    results : dict[str, ndarray], shape (samples, features)
        Of each node in the last forward pass; ``input`` is the samples.
    kept : dict[str, Any]
        What each node keeps for the way back.
    """

    def __init__(
        self, network: Network, fmt: str = "f16", bias: int = numerics.BIAS_DEFAULT, ftz: bool = False
    ) -> None:
        super().__init__(fmt, bias, ftz)
        self.network, self.epsilon = network, network.epsilon
        self.results: dict[str, np.ndarray] = {}

    def forward(
        self, parameters: Mapping[str, np.ndarray], x: np.ndarray, statistics: Mapping[str, np.ndarray] | None = None
    ) -> np.ndarray:
        """Return the logits of samples.

        Parameters
        ----------
        parameters : dict[str, ndarray]
            By the names of `Network.parameters`.
        x : ndarray, shape (samples, features)
        statistics : dict[str, ndarray], optional
            Mean and variance of each channel for what normalises over batches, by the same names; default: of `x`.
        """
        self.results, self.kept = {INPUT: self.round(x)}, dict[str, Any]()
        for node, operation, parameter in self.network.operations():
            values = None if parameter is None else self.round(parameters[parameter.name])
            if values is not None and parameter is not None and statistics and operation.over_batch:
                values = np.concatenate([values, statistics[parameter.name]])
            given = tuple(self.results[name] for name in node.inputs)
            found = operation.plain(self, node, given if operation.operands > 1 else given[0], values)
            self.results[node.name], self.kept[node.name] = found
        return self.results[self.network.logits.name]

    def gradients(
        self,
        parameters: Mapping[str, np.ndarray],
        x: np.ndarray,
        labels: np.ndarray,
        scale: float = 1.0,
        smoothing: float = 0.0,
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Return (sum of the losses, gradients of that sum times `scale`, by name).

        Parameters
        ----------
        parameters : dict[str, ndarray]
        x : ndarray, shape (samples, features)
        labels : ndarray of int, shape (samples,) or (samples, pixels)
        scale : float
        smoothing : float
            Of the labels, `fabric.networks.graph.operations.wanted_of`.
        """
        loss, delta = self.loss(self.forward(parameters, x), labels, smoothing)
        delta = self.round(delta * self.dtype.type(scale))
        found: dict[str, np.ndarray] = {}
        deltas = {self.network.logits.name: delta}
        for node, operation, parameter in reversed(self.network.operations()):
            values = None if parameter is None else self.round(parameters[parameter.name])
            below, gradient = operation.plain_back(self, node, deltas.pop(node.name), self.kept[node.name], values)
            for name, part in zip(node.inputs, below if operation.operands > 1 else (below,), strict=True):
                if name == INPUT:  # nobody needs it
                    continue
                deltas[name] = self.round(deltas[name] + part) if name in deltas else part
            if parameter is not None and gradient is not None:
                found[parameter.name] = gradient
        return loss, found

    def loss(self, logits: np.ndarray, labels: np.ndarray, smoothing: float = 0.0) -> tuple[Any, np.ndarray]:
        """Return (sum of the losses, gradients of the logits), not rounded."""
        return self.network.loss.plain_loss(self, logits, labels, smoothing)

    @property
    def activations(self) -> list[np.ndarray]:
        """These are the samples, then what each layer gave: the result of a product when all is done that follows
        it.
        """
        return [self.results[name] for name in self.network.levels]

    def first_bad(self) -> int | None:
        """Return the number of the first layer whose activations are not finite (0: the inputs), or None."""
        return next((k for k, rows in enumerate(self.activations) if not np.isfinite(rows).all()), None)
