"""Optimizers: FP32 updates of the active weights of a matrix, element by element.

Every operation rounds to FP32 once, in the order written, so that an update has one result.  Weights and state are
vectors of the active entries only; inactive ones are not touched (white paper, section 7.4).

==========  ====================================================================  =========================
optimizer   update of w with gradient g in step t (from 1)                        state per weight
==========  ====================================================================  =========================
`SGD`       w -= lr g                                                             none
            with momentum m: v = m v + g; w -= lr v                               v
`Adam`      m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g;                       m, v
            w -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
`AdamW`     w -= lr decay w, then as Adam                                         m, v
==========  ====================================================================  =========================

`weight_decay` of SGD and Adam is added to the gradient, as usual; that of AdamW is decoupled.  An update may be told
which weights decay; biases and normalisations are often left alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from wse_core.errors import ConfigError

__all__ = ["OPTIMIZERS", "SGD", "Adam", "AdamW", "make_optimizer"]

F = np.float32


@dataclass(frozen=True)
class Optimizer(ABC):
    """An `Optimizer` is the base of all optimizers, and has what they have in common.

    Attributes
    ----------
    lr : float
        Learning rate; a schedule replaces it between steps.
    weight_decay : float
    """

    lr: float = 0.01
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value <= float(np.finfo(F).max):
                raise ConfigError(f"{value} is impossible", where=f"optimizer: {name}", value=value)
        if self.lr * self.weight_decay >= 1:
            raise ConfigError(
                f"a decay of {self.weight_decay:g} at a rate of {self.lr:g} takes more than the weight in each step",
                where="optimizer: weight_decay",
                value=self.weight_decay,
                hint=f"less than {1 / self.lr:g}",
            )

    @property
    def slots(self) -> tuple[str, ...]:
        """State vectors have these names."""
        return ()

    @property
    def bytes_per_parameter(self) -> int:
        """A dense weight takes so many bytes: weight, gradient, state, 16-bit index and 16-bit copy."""
        return 4 + 4 + 4 * len(self.slots) + 2 + 2

    @abstractmethod
    def update(
        self,
        step: int,
        w: np.ndarray,
        g: np.ndarray,
        state: dict[str, np.ndarray],
        lr: float | None = None,
        decaying: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the new weights; change `state` in place.

        Parameters
        ----------
        step : int
            From 1.
        w, g : numpy.ndarray of float32, shape (n,)
        state : dict[str, numpy.ndarray of float32]
            By the names of `slots`.
        lr : float, optional
            Learning rate of this step.
        decaying : numpy.ndarray of bool, optional
            Which weights decay; default all.
        """

    def _decayed(self, w: np.ndarray, decaying: np.ndarray | None) -> np.ndarray:
        """Return the weights that decay, zero in the place of others."""
        return w if decaying is None else np.where(decaying, w, F(0))


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent; see the head of this module."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum >= 1:
            raise ConfigError(
                f"a momentum of {self.momentum:g} never forgets", where="optimizer: momentum", value=self.momentum
            )

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def update(
        self,
        step: int,
        w: np.ndarray,
        g: np.ndarray,
        state: dict[str, np.ndarray],
        lr: float | None = None,
        decaying: np.ndarray | None = None,
    ) -> np.ndarray:
        rate = F(self.lr if lr is None else lr)
        if self.weight_decay:
            g = g + F(self.weight_decay) * self._decayed(w, decaying)
        if self.momentum:
            state["velocity"][:] = g = F(self.momentum) * state["velocity"] + g
        return w - rate * g


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam; see the head of this module."""

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    slots = ("m", "v")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.beta1 < 1 and self.beta2 < 1):
            raise ConfigError("a beta of 1 or more never forgets", where="optimizer: beta1, beta2")
        if not F(self.eps):
            raise ConfigError(
                f"an eps of {self.eps:g} is zero in f32, and a weight whose gradients are all zero would "
                "be divided by it",
                where="optimizer: eps",
                value=self.eps,
            )

    def update(
        self,
        step: int,
        w: np.ndarray,
        g: np.ndarray,
        state: dict[str, np.ndarray],
        lr: float | None = None,
        decaying: np.ndarray | None = None,
    ) -> np.ndarray:
        rate = F(self.lr if lr is None else lr)
        if self.weight_decay:
            g = g + F(self.weight_decay) * self._decayed(w, decaying)
        return self._moved(step, w, g, state, rate)

    def _moved(
        self, step: int, w: np.ndarray, g: np.ndarray, state: dict[str, np.ndarray], lr: np.float32
    ) -> np.ndarray:
        m, v = state["m"], state["v"]
        m[:] = F(self.beta1) * m + F(1 - self.beta1) * g
        v[:] = F(self.beta2) * v + F(1 - self.beta2) * (g * g)
        m_hat = m / F(1 - self.beta1**step)
        v_hat = v / F(1 - self.beta2**step)
        return w - lr * (m_hat / (np.sqrt(v_hat) + F(self.eps)))


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay; see the head of this module."""

    weight_decay: float = 0.01

    def update(
        self,
        step: int,
        w: np.ndarray,
        g: np.ndarray,
        state: dict[str, np.ndarray],
        lr: float | None = None,
        decaying: np.ndarray | None = None,
    ) -> np.ndarray:
        rate = F(self.lr if lr is None else lr)
        return self._moved(step, w - rate * F(self.weight_decay) * self._decayed(w, decaying), g, state, rate)


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
"""A configuration gives one of these names."""


def make_optimizer(name: str, **options: float) -> Optimizer:
    """Return an optimizer by name; `ConfigError` for a name or an option that does not exist."""
    if name not in OPTIMIZERS:
        raise ConfigError(f"there is no optimizer {name!r}", where="optimizer", hint=", ".join(OPTIMIZERS))
    try:
        return OPTIMIZERS[name](**options)
    except TypeError:
        known = list(OPTIMIZERS[name].__dataclass_fields__)
        wrong = next((key for key in options if key not in known), "?")
        raise ConfigError(f"{name} has no option {wrong!r}", where="optimizer", hint=", ".join(known)) from None
