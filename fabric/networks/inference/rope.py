"""Pairs of a head are turned by their position, and models scale how fast for texts longer than their first.

Pair i of a head of n features turns by base ** (-2 i / n) a position.  *linear* divides all of them by a factor.  The
other two look at how often a pair turns in the context that the model was first trained for: pairs that do so at least
`high` times stay as they are, those that do at most `low` times are divided by the factor, and between the two both are
mixed: *llama3* in proportion to the turns, *yarn* in proportion to i, from and to whole pairs.  *yarn* also multiplies
cosines and sines, so that scores of attention grow with its square.  *longrope* divides each pair by a factor of its
own, which were searched for, and multiplies too; in texts longer than the first context it has other factors, so such
texts are not modelled.

Sources: Chen et al., position interpolation (arXiv 2306.15595); Peng et al., YaRN (arXiv 2309.00071); Ding et al.,
LongRoPE (arXiv 2402.13753); LLaMA 3.1's
positions, and all keys and defaults, as the hub's library transformers has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wse_core.errors import ConfigError
from wse_core.errors.values import shown

__all__ = ["KINDS", "Scaling"]

KINDS = ("linear", "llama3", "yarn", "longrope")
"""These scalings of positions are modelled."""


@dataclass(frozen=True)
class Scaling:
    """A `Scaling` says how much slower the pairs of a head turn in models of longer texts.

    Attributes
    ----------
    kind : {"linear", "llama3", "yarn", "longrope"}
    factor : float
        By how much the slow pairs, or all, turn slower; 1 or more.
    low, high : float
        Turns within `original` of the slowest pair that is not divided fully, and of the fastest one that is divided
        at all; not of linear.
    original : int
        Tokens of the context that the model was first trained for; not of linear.
    amplitude : float
        Factor of cosines and sines; of yarn and longrope.
    whole : bool
        Whether mixed pairs begin and end at whole numbers; of yarn only.
    pairs : tuple of float
        By how much each pair turns slower; of longrope only.
    """

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192
    amplitude: float = 1.0
    whole: bool = True
    pairs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"scaling of type {shown(self.kind)}", where="rope", hint=", ".join(KINDS))
        for name in ("factor", "low", "high", "original", "amplitude"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} is {shown(value)}; it is a positive number", where="rope")
        for value in self.pairs:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not (math.isfinite(value) and value > 0):
                raise ConfigError(f"a factor of a pair is {shown(value)}; it is a positive number", where="rope")
        if bool(self.pairs) != (self.kind == "longrope"):
            raise ConfigError("factors of pairs belong to longrope, and to nothing else", where="rope")
        if self.factor < 1:
            raise ConfigError(f"factor is {self.factor}; it is 1 or more", where="rope")
        if self.low >= self.high:
            raise ConfigError(f"low is {self.low} and high {self.high}; high is the larger one", where="rope")

    def scaled(self, turns: NDArray[np.float64], base: float) -> NDArray[np.float64]:
        """Return the radians a position of each pair, given those without a scaling and the base that they are of."""
        if self.kind == "linear":
            return turns / self.factor
        if self.kind == "longrope":
            return turns / np.array(self.pairs)
        if self.kind == "llama3":
            times = self.original * turns / (2 * np.pi)  # whole turns within the first context
            share = np.clip((times - self.low) / (self.high - self.low), 0.0, 1.0)
        else:
            first, last = self._mixed(2 * len(turns), base)
            share = 1 - np.clip((np.arange(len(turns)) - first) / (last - first), 0.0, 1.0)
        return (1 - share) * turns / self.factor + share * turns

    def _mixed(self, features: int, base: float) -> tuple[float, float]:
        """Return from which pair on pairs are mixed, and from which on they are divided by the whole factor."""
        first, last = (
            features * math.log(self.original / (times * 2 * math.pi)) / (2 * math.log(base))
            for times in (self.high, self.low)
        )
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, features - 1)
        return first, last + 0.001 if first == last else last
