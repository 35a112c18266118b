"""Batch normalisation in the memory service: sums of all wafers come, what wafers normalise with goes back.

Forward, sums of (x - r) and of its square come per channel, r the running mean, which keeps them small; mean and
1 / sqrt(variance + eps) go back, as f32.  Back, sums of the gradients and of their products with the unit rows come;
a factor and two means go back.  The service works in f64 and rounds what it sends to f32.

Running statistics are those of PyTorch: a share of each batch's (``momentum``), of the variance with N - 1 in the
divisor.  Batches whose sums are not finite leave them as they are.

Source: S. Ioffe and C. Szegedy, "Batch normalization", 2015; momentum and divisor as ``torch.nn.BatchNorm2d``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.batch_norm import NUMBERS
from fabric.networks.graph.operations import EPSILON

__all__ = ["MOMENTUM", "BatchStatistics"]

MOMENTUM = 0.1
"""A batch has this share in the running statistics, if nothing else is said."""

Numbers = NDArray[np.float32]


class BatchStatistics:
    """A `BatchStatistics` has what one normalisation knows of batches.

    Parameters
    ----------
    channels : int
    momentum : float
        Share of a batch in the running statistics.
    epsilon : float
        This is added to variances.

    Attributes
    ----------
    running : ndarray of float32, shape (2, channels)
        Running means, then variances.
    sent : dict[str, ndarray of float32]
        What wafers work with in the present pass, by `fabric.networks.graph.batch_norm.NUMBERS`.
    """

    def __init__(self, channels: int, momentum: float = MOMENTUM, epsilon: float = EPSILON) -> None:
        self.momentum, self.epsilon = momentum, epsilon
        self.running = np.stack([np.zeros(channels), np.ones(channels)]).astype(np.float32)
        self.sent: dict[str, Numbers] = {name: np.zeros(channels, np.float32) for name in NUMBERS}
        self._waiting: list[NDArray[np.float64]] = []

    @property
    def channels(self) -> int:
        """The statistics are of so many channels."""
        return self.running.shape[1]

    def begin(self, kind: str) -> None:
        """Begin a pass: a ``test`` works with running statistics, ``train`` takes their mean from what it sums up."""
        self.sent = {name: np.zeros(self.channels, np.float32) for name in NUMBERS}
        if kind == "train":
            self.sent["shift"] = self.running[0].copy()
        else:
            self.sent |= {"mean": self.running[0].copy(), "inverse": self._inverse(self.running[1])}

    def forward(self, sums: Numbers, count: int) -> None:
        """Take the sums of a batch, shape (2, channels), of so many numbers each; mean and inverse are sent then."""
        with np.errstate(over="ignore", invalid="ignore"):
            first, second = sums.astype(np.float64) / count
            mean, variance = self.sent["shift"] + first, np.maximum(second - first * first, 0.0)
            self.sent |= {"mean": mean.astype(np.float32), "inverse": self._inverse(variance)}
            self.seen(mean, variance, count)

    def seen(self, mean: NDArray[Any], variance: NDArray[Any], count: int) -> None:
        """Keep mean and variance of a batch of so many numbers until the iteration has ended."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.stack([mean, variance * (count / max(1, count - 1))]).astype(np.float64)
            if np.isfinite(found.astype(np.float32)).all():
                self._waiting.append(found)

    def back(self, sums: Numbers, count: int, factors: Numbers) -> None:
        """Take the gradients of factors and shifts, shape (2, channels); what gradients go back with is sent then."""
        with np.errstate(over="ignore", invalid="ignore"):
            dot, mean = (sums.astype(np.float64) / count).astype(np.float32)
            scale = (factors.astype(np.float64) * self.sent["inverse"]).astype(np.float32)
        self.sent |= {"scale": scale, "back_mean": mean, "back_dot": dot}

    def end(self) -> None:
        """End an iteration: its batches become part of the running statistics, one after the other."""
        for found in self._waiting:
            share = self.momentum * (found - self.running)
            self.running[...] = (self.running + share).astype(np.float32)
        self._waiting = []

    def restore(self, running: NDArray[np.float32]) -> None:
        """Go on with other running statistics, at the begin of an iteration."""
        self.running[...], self._waiting = running, []

    def values(self) -> NDArray[np.uint16]:
        """Return what is sent as 16-bit values: per number the lower halves of all channels, then the upper ones."""
        bits = np.stack([self.sent[name] for name in NUMBERS]).astype(np.float32).view(np.uint32)
        return np.stack([bits & np.uint32(0xFFFF), bits >> np.uint32(16)], axis=1).astype(np.uint16).reshape(-1)

    def _inverse(self, variance: NDArray[Any]) -> Numbers:
        return (1 / np.sqrt(variance.astype(np.float64) + self.epsilon)).astype(np.float32)
