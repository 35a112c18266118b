"""A machine has float formats: their bits become values and back, they have limits, and operations on whole arrays.

`wse_core.numerics` has the functions; an `Arithmetic` binds them to a format, its bias and the treatment of subnormal
numbers, so that oracles and checks say which number they mean once and not in every call.

Timing: none; nothing here runs on the fabric.
Sources: binary16 and binary32 of IEEE 754; cb16 as `num.cb16_bias` of `wse_core.params` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wse_core import numerics, vector
from wse_core.params import Machine

__all__ = ["FLOATS", "Arithmetic", "Bits", "Format", "Half"]

Half = Literal["f16", "cb16"]
"""A 16-bit float is one of these."""
Format = Literal["f16", "cb16", "f32"]
Bits: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""An array of numbers is held as bit patterns: uint16 for the 16-bit formats, uint32 for f32."""

BLOCK = 1 << 16
"""Numbers that are drawn at a time, few enough for a cache; the sequence does not depend on it."""
MANY = 1 << 25
"""So many 16-bit numbers or more are drawn out of `QUANTILES` of them: seven times as fast, and as good there."""
QUANTILES = 1 << 16
FLOATS = {"f16": (5, 10), "cb16": (6, 9), "f32": (8, 23)}
"""A float format has so many bits of exponent and of mantissa."""


@dataclass(frozen=True)
class Arithmetic:
    """An `Arithmetic` is a float format of a machine: bits to values and back, its limits, and the machine's operations
    on it.

    Attributes
    ----------
    fmt : str
        ``f16``, ``cb16`` or ``f32``.
    bias : int
        Exponent bias of cb16.
    ftz : bool
        Whether the machine flushes subnormal numbers.
    fused : bool
        Whether its multiply-adds round once.
    """

    fmt: Format
    bias: int
    ftz: bool
    fused: bool = True

    @classmethod
    def of(cls, machine: Machine, fmt: str) -> Arithmetic:
        """Return the arithmetic of `machine` in the format `fmt`."""
        return cls(
            cast(Format, fmt), machine["num.cb16_bias"], bool(machine["num.ftz"]), machine["num.fmac"] == "fused"
        )

    @property
    def words(self) -> int:
        """A number takes so many words of SRAM."""
        return 2 if self.fmt == "f32" else 1

    @property
    def bits_dtype(self) -> np.dtype[Any]:
        """Bit patterns of the format have this numpy type."""
        return np.dtype(np.uint32 if self.fmt == "f32" else np.uint16)

    @property
    def unit(self) -> float:
        """The unit roundoff u is half the distance from 1 to the next number."""
        return 2.0 ** -(FLOATS[self.fmt][1] + 1)

    @property
    def _exponent_bias(self) -> int:
        exponent = FLOATS[self.fmt][0]
        return self.bias if self.fmt == "cb16" else (1 << exponent - 1) - 1

    @property
    def smallest_normal(self) -> float:
        """The smallest normal number of the format is this."""
        return math.ldexp(1.0, 1 - self._exponent_bias)

    @property
    def largest(self) -> float:
        """The largest finite number of the format is this."""
        exponent, mantissa = FLOATS[self.fmt]
        return math.ldexp(2.0 - math.ldexp(1.0, -mantissa), (1 << exponent) - 2 - self._exponent_bias)

    @property
    def underflow(self) -> float:
        """A rounding to a subnormal number or zero has at most this absolute error."""
        return self.smallest_normal * (1.0 if self.ftz else self.unit)

    def encode(self, values: ArrayLike) -> Bits:
        """Return the bits of `values`, each rounded once."""
        if self.fmt == "f16" and isinstance(values, np.ndarray) and values.dtype == np.float32:
            with np.errstate(over="ignore", invalid="ignore"):  # numpy rounds alike, many at a time
                bits = values.astype(np.float16).view(np.uint16)
            numbers = values == values
            return bits if numbers.all() else np.where(numbers, bits, numerics.encode(np.nan, self.fmt, self.bias))
        return np.asarray(numerics.encode(np.asarray(values, np.float64), self.fmt, self.bias), self.bits_dtype)

    def decode(self, bits: ArrayLike) -> NDArray[np.float64]:
        """Return the exact values of `bits` as float64."""
        return np.asarray(numerics.decode(bits, self.fmt, self.bias), np.float64)

    def operand(self, bits: ArrayLike) -> NDArray[np.float64]:
        """Return the values of `bits` as an operation of the machine sees them: subnormals are 0 if it flushes."""
        values = self.decode(bits)
        return np.where(np.abs(values) < self.smallest_normal, 0.0, values) if self.ftz else values

    def call(self, name: str, *operands: ArrayLike) -> NDArray[Any]:
        """Return ``numerics.<name>(*operands)`` in this format."""
        more = (self.fused,) if name == "fma" else ()
        return np.asarray(getattr(numerics, name)(*operands, self.fmt, self.bias, self.ftz, *more))

    def product(self, a: np.typing.ArrayLike, b: np.typing.ArrayLike, c: np.typing.ArrayLike) -> np.ndarray:
        """Return C + A B in this format, in the order of the PEs; C may be f32 (`wse_core.vector.product`)."""
        return np.asarray(vector.product(a, b, c, self.fmt, self.bias, self.ftz, self.fused))

    def growth(self, roundings: int) -> float:
        """Return g of the module's head for terms that go through `roundings` roundings; inf if nothing can be said."""
        product = roundings * self.unit
        return product / (1 - product) if product < 1 else math.inf

    def specials(self) -> Bits:
        """Return bit patterns that deserve a test: NaNs, infinities, the ends of the range, zeros."""
        exponent, mantissa = FLOATS[self.fmt]
        sign, inf = 1 << exponent + mantissa, ((1 << exponent) - 1) << mantissa
        quiet = 1 << mantissa - 1
        found = [
            inf | quiet,
            inf,
            sign | inf,
            inf - 1,
            sign | inf - 1,
            1,
            sign | 1,
            1 << mantissa,
            0,
            sign,
            sign | inf | quiet | 5,
            inf | 1,
        ]
        return np.array(found, self.bits_dtype)

    def quantiles(self) -> Bits:
        """Return the middles of `QUANTILES` equally likely parts of the normal distribution, as bit patterns."""
        from statistics import NormalDist  # here: it takes as long to import as all of this module

        normal = NormalDist()
        return self.encode([normal.inv_cdf((k + 0.5) / QUANTILES) for k in range(QUANTILES)])

    def random(self, rng: np.random.Generator, shape: tuple[int, ...], data: str = "normal", terms: int = 1) -> Bits:
        """Return input data as bit patterns; what is drawn depends on the seed, the shape and the format only.

        Parameters
        ----------
        rng : numpy.random.Generator
        shape : tuple of int
        data : {"normal", "ones", "special"}
        terms : int
            Numbers that go into one result: the more, the fewer specials are mixed in, so that some results stay
            finite.
        """
        if data == "ones":
            return np.full(shape, self.encode(1.0))
        bits = np.empty(shape, self.bits_dtype)
        flat = bits.reshape(-1)
        first = 0
        for part in self._normal(rng, flat.size):
            flat[first : first + part.size] = part
            first += part.size
        if data == "special" and bits.size:
            values = self.specials()
            count = min(flat.size, max(len(values) if terms == 1 else 1, flat.size // (8 * terms)))
            flat[rng.choice(flat.size, count, replace=False)] = np.resize(rng.permutation(values), count)
        return bits

    def random_rows(
        self, rng: np.random.Generator, shape: tuple[int, int], rows: int, data: str = "normal", terms: int = 1
    ) -> Iterator[Bits]:
        """Yield what `random` returns for a matrix, so many rows at a time.

        Normal data are drawn as they are asked for, into one array: a band is there until the next one is.

        Parameters
        ----------
        rng, shape, data, terms
            As `random` takes them.
        rows : int
            Of a band; the last one may have fewer.
        """
        height, width = shape
        if data != "normal":
            whole = self.random(rng, shape, data, terms)
            yield from (whole[first : first + rows] for first in range(0, height, rows))
            return
        band = np.empty((rows, width), self.bits_dtype)
        flat, filled = band.reshape(-1), 0
        for part in self._normal(rng, height * width):
            while part.size >= flat.size - filled:
                flat[filled:] = part[: flat.size - filled]
                part, filled = part[flat.size - filled :], 0
                yield band
            flat[filled : filled + part.size] = part
            filled += part.size
        if filled:
            yield band[: filled // width]

    def _normal(self, rng: np.random.Generator, size: int) -> Iterator[Bits]:
        """Yield so many normally distributed numbers, a block at a time."""
        table = self.quantiles() if self.fmt != "f32" and size >= MANY else None
        drawn = np.empty(min(BLOCK, size))  # float64 takes two to four times the room of the bits
        for first in range(0, size, BLOCK):
            count = min(BLOCK, size - first)
            if table is not None:
                yield np.take(table, rng.integers(0, QUANTILES, count, dtype=np.uint16), mode="clip")
            else:
                yield self.encode(rng.standard_normal(out=drawn[:count]))
