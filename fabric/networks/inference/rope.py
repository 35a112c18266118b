"""How fast the pairs of a head turn with their position, and how models scale that for texts longer than their first.

Pair i of a head of n features turns by base ** (-2 i / n) a position.  *linear* divides all of them by a factor.
*llama3* looks at the wavelength of a pair (positions of a whole turn) in the context that the model was first trained
for: pairs that turn at least `high` times in it stay as they are, those that turn at most `low` times are divided by
the factor, and between the two both are mixed in proportion.

Sources: Chen et al. (2023), position interpolation; the reference code of LLaMA 3.1, whose keys the hub's files have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wse_core.errors import ConfigError
from wse_core.errors.values import shown

__all__ = ["Scaling"]


@dataclass(frozen=True)
class Scaling:
    """A scaling of positions.

    Attributes
    ----------
    kind : {"linear", "llama3"}
    factor : float
        By how much the slow pairs, or all, turn slower; 1 or more.
    low, high : float
        Turns within `original` of the slowest pair that is not divided fully, and of the fastest one that is divided
        at all; of llama3 only.
    original : int
        Tokens of the context that the model was first trained for; of llama3 only.
    """

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def __post_init__(self) -> None:
        if self.kind not in ("linear", "llama3"):
            raise ConfigError(f"scaling of type {shown(self.kind)}", where="rope", hint="linear or llama3")
        for name in ("factor", "low", "high", "original"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} is {shown(value)}; it is a positive number", where="rope")
        if self.factor < 1:
            raise ConfigError(f"factor is {self.factor}; it is 1 or more", where="rope")
        if self.low >= self.high:
            raise ConfigError(f"low is {self.low} and high {self.high}; high is the larger one", where="rope")

    def scaled(self, turns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the radians a position of each pair, given those without a scaling."""
        if self.kind == "linear":
            return turns / self.factor
        times = self.original * turns / (2 * np.pi)  # whole turns within the first context
        share = np.clip((times - self.low) / (self.high - self.low), 0.0, 1.0)
        return (1 - share) * turns / self.factor + share * turns
