"""Kernels of the contest have a rectangle, a time and a memory that follow from execution arguments.

A kernel is one convolution (`conv`) or a block of some that share h and w (`dblock`, `cblock`).  Execution arguments
say into how many pieces each dimension is cut: h and w the image, c the inputs, k the outputs of each convolution.  All
numbers are exact here; `harness.place.shapes` finds the best arguments with floating point and many at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Self

from wse_core.errors import ConfigError

__all__ = ["FORMAL", "Arguments", "ContestKernel", "Convolution"]

FORMAL = {"conv": ("H", "W", "C", "K", "R", "S", "T", "U"), "dblock": ("H", "W", "F"), "cblock": ("H", "W", "F")}
"""Each kind has these formal arguments, in the order of a solution."""

BESIDE = 3
"""Columns of PEs for a piece of the outputs: forward, backward and weight update stand side by side."""


class Convolution(NamedTuple):
    """A `Convolution` is one convolution: image, filter, inputs, outputs, stride."""

    height: int
    width: int
    filter_height: int
    filter_width: int
    inputs: int
    outputs: int
    stride: int


class Arguments(NamedTuple):
    """Execution arguments are pieces of the image, and of inputs and outputs of each part."""

    h: int
    w: int
    c: tuple[int, ...]
    k: tuple[int, ...]


@dataclass(frozen=True)
class ContestKernel:
    """A kernel of the contest has a name, a kind, and formal arguments in the order of `FORMAL`."""

    name: str
    kind: str
    formal: tuple[int, ...]

    def checked(self, where: str) -> Self:
        """Return it; `ConfigError` if its parts are not whole."""
        if self.kind == "conv":
            return self
        height, width, features = self.formal
        if features % 4:
            raise ConfigError(f"F={features} is no multiple of 4", where=where, hint="F of the contest: 16 to 2048")
        if self.kind == "cblock" and (height % 2 or width % 2):
            raise ConfigError("H and W of a cblock are even", where=where, hint="its third part has half of each")
        return self

    @property
    def parts(self) -> tuple[Convolution, ...]:
        """The kernel consists of these convolutions."""
        if self.kind == "conv":
            height, width, inputs, outputs, filter_height, filter_width, stride, _ = self.formal
            return (Convolution(height, width, filter_height, filter_width, inputs, outputs, stride),)
        height, width, features = self.formal
        quarter = features // 4
        if self.kind == "dblock":
            return (
                Convolution(height, width, 1, 1, features, quarter, 1),
                Convolution(height, width, 3, 3, quarter, quarter, 1),
                Convolution(height, width, 1, 1, quarter, features, 1),
            )
        return (
            Convolution(height, width, 1, 1, features // 2, quarter, 1),
            Convolution(height, width, 3, 3, quarter, quarter, 2),
            Convolution(height // 2, width // 2, 1, 1, quarter, features, 1),
            Convolution(height, width, 1, 1, features // 2, features, 2),
        )

    def refused(self, given: Arguments) -> str:
        """Return why these execution arguments are none of this kernel, or an empty text."""
        parts, (high, wide) = self.parts, self.formal[:2]
        if len(given.c) != len(parts) or len(given.k) != len(parts):
            return f"{self.kind} has {len(parts)} of c and k each"
        limits = [("h", given.h, high), ("w", given.w, wide)]
        limits += [("c", c, part.inputs) for c, part in zip(given.c, parts, strict=True)]
        limits += [("k", k, part.outputs) for k, part in zip(given.k, parts, strict=True)]
        for name, value, most in limits:
            if not 1 <= value <= most:
                return f"{name} = {value} is not 1 to {most}"
        return ""

    def size(self, given: Arguments) -> tuple[int, int]:
        """Return (width, height) of the rectangle [PEs]."""
        return BESIDE * sum(given.k), max(given.h * given.w * (c + 1) for c in given.c)

    def time(self, given: Arguments) -> Fraction:
        """Return the time of the slowest part, in units of the contest."""
        return max(
            Fraction(
                -(-part.height // given.h)
                * -(-part.width // given.w)
                * -(-part.inputs // c)
                * -(-part.outputs // k)
                * part.filter_height
                * part.filter_width,
                part.stride**2,
            )
            for part, c, k in zip(self.parts, given.c, given.k, strict=True)
        )

    def memory(self, given: Arguments) -> Fraction:
        """Return the memory of a PE of the part that needs most [words]."""
        return max(
            Fraction(part.inputs, c) * Fraction(part.outputs, k) * part.filter_height * part.filter_width
            + Fraction(part.width + part.filter_width - 1, given.w)
            * Fraction(part.height + part.filter_height - 1, given.h)
            * Fraction(part.outputs, k)
            for part, c, k in zip(self.parts, given.c, given.k, strict=True)
        )
