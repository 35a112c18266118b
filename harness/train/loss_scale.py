"""The loss is scaled dynamically, so that small gradients stay above the smallest 16-bit number.

The gradient of the loss is multiplied by a power of two before it is rounded to 16 bits, and the memory service divides
by it in f32.  If a gradient is not finite, the update is left out and the scale halved; after `growth_interval` good
iterations in a row it doubles, up to the largest scale of the format.

The vendor's gradient scaler stops at 2^15 for float16 and 2^31 for cbfloat16 (its public training library); bf16 is not
scaled at all (requirement FMT-09).  No scale exceeds the largest power of two of the format: that of cb16 depends on
its exponent bias, and with the bias of 42 it is 2^20, not 2^31.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from wse_core.errors import CheckpointError, TrainingError
from wse_core.formats import Arithmetic
from wse_core.params import Machine

if TYPE_CHECKING:
    from harness.train.config import TrainConfig

__all__ = ["MOST", "LossScale", "largest_scale"]

MOST = {"f16": 2.0**15, "cb16": 2.0**31, "bf16": 1.0}
"""Largest scale that the vendor's scaler gives a format; `largest_scale` says what the format can hold."""

INITIAL = {"f16": 2.0**15, "cb16": 1.0, "bf16": 1.0}
LEAST = 2.0**-14
"""Smallest scale; below it the gradients themselves are the problem."""


def largest_scale(dtype: str, machine: Machine) -> float:
    """Return the largest scale of a format on a machine: the vendor's, or the largest power of two that is a number.

    Examples
    --------
    >>> from wse_core.params import machine
    >>> largest_scale("cb16", machine()) == 2.0**20, largest_scale("f16", machine()) == 2.0**15
    (True, True)
    """
    if dtype == "bf16":
        return MOST[dtype]
    _, exponent = math.frexp(Arithmetic.of(machine, dtype).largest)
    return min(MOST[dtype], math.ldexp(1.0, exponent - 1))


@dataclass
class LossScale:
    """A `LossScale` has the scale of the loss, and how many good iterations it has seen.

    Attributes
    ----------
    value : float
        A power of two.
    growth_interval : int
    dynamic : bool
    most : float
    good : int
        Iterations since it last changed.
    """

    value: float = 2.0**15
    growth_interval: int = 2000
    dynamic: bool = True
    most: float = 2.0**15
    good: int = 0

    @classmethod
    def of(cls, config: TrainConfig) -> Self:
        """Return the scale that a `TrainConfig` asks for."""
        given, dtype = config.train.loss_scale, config.dtype
        return cls(
            INITIAL[dtype] if given.initial is None else given.initial,
            given.growth_interval,
            dtype != "bf16" if given.dynamic is None else given.dynamic,
            largest_scale(dtype, config.build_machine()),
        )

    def update(self, finite: bool, iteration: int | None = None) -> bool:
        """Take note of an iteration; return whether its update must be left out.

        Parameters
        ----------
        finite : bool
            Whether all gradients are finite.
        iteration : int, optional
            For the message.

        Raises
        ------
        TrainingError
            Gradients are not finite and the scale cannot fall any more.
        """
        if finite:
            self.good += 1
            if self.dynamic and self.good >= self.growth_interval and self.value < self.most:
                self.value, self.good = self.value * 2, 0
            return False
        if not self.dynamic or self.value <= LEAST:
            raise TrainingError(
                f"gradients are not finite with a loss scale of {self.value:g}",
                iteration=iteration,
                cause="a static scale" if not self.dynamic else "gradients grow without limit",
                hint="a smaller learning rate, or train.loss_scale.dynamic = true",
            )
        self.value, self.good = self.value / 2, 0
        return True

    def state(self) -> dict[str, Any]:
        """Return what changes, as data for JSON."""
        return {"value": self.value, "good": self.good}

    def restore(self, state: Any) -> None:
        """Go on from `state`."""
        try:
            value, good = float(state["value"]), int(state["good"])
        except (KeyError, TypeError, ValueError):
            raise CheckpointError("the loss scale is missing or no number") from None
        if not (math.isfinite(value) and value > 0 and math.frexp(value)[0] == 0.5 and good >= 0):
            raise CheckpointError(f"{value} is no loss scale")
        self.value, self.good = value, good
