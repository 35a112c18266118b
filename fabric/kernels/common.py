r"""What all kernels share: data, time stamps, the run, and the two comparisons that decide `verified`.

**Two comparisons.**  *Bit-exact*: the result equals, bit for bit, what `wse_core.numerics` gives when it is called in
the order in which the PEs calculate.  *Within bounds*: it is as close to plain numpy in float64 as the error analysis
below allows.  The first says that nothing was lost, mixed up or calculated in another order; the second, which shares
neither arithmetic nor order with the machine, says that the order and the arithmetic give the right thing at all.

**Bound.**  Let every result be a sum of terms t_k that are inputs or products of two inputs, calculated by roundings
fl(z) = z (1 + d) + e with |d| <= u, half a unit in the last place of 1, and |e| <= h / 2, where h is the spacing of
the subnormal numbers (e is 0 unless the result is subnormal; a machine that flushes has |e| <= the smallest normal
number, and its inputs are flushed before the comparison).  If every term goes through at most r roundings, and q
roundings are done in all, then

    | computed - sum t_k |  <=  g sum |t_k|  +  q (h / 2) (1 + g),     g = r u / (1 - r u),

because a product of at most r factors (1 + d) differs from 1 by at most g (Higham, Accuracy and Stability of Numerical
Algorithms, lemma 3.1).  numpy's own error in float64, the same with u = 2^-53, is added.  The bound holds if nothing
overflows, which is sure if (1 + g) sum |t_k| is a finite number of the format.  Where that is not sure, because the
data hold NaN, infinities or huge numbers, less is asked: NaN in plain numpy is NaN on the machine, and an infinity in
plain numpy is no finite number on the machine.

**Time.**  PEs read their cycle counters.  `cycles` of a result is the interval between two such readings that the page
of the kernel names; `run_cycles` is the whole run, with the start of the tasks and the storing of the time stamps.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fabric.fabric import Fabric
from fabric.kernels.kernel import KernelParam
from wse_core import numerics
from wse_core.errors import ConfigError, ProgramError
from wse_core.image import DIRS

__all__ = ["DATA", "FLOATS", "Arithmetic", "Check", "Session", "Stamps", "check_sum", "data_params", "fit", "integers",
           "report", "sequential_sum"]

FLOATS = {"f16": (5, 10), "cb16": (6, 9), "f32": (8, 23)}
"""Bits of exponent and of mantissa."""
DATA = ("normal", "ones", "special")
_PORTS = "WESNR"  # order of the ports in a run file; the machine's is DIRS
_CYCLE_LIMIT = 1 << 40


def data_params(*, seed=0, data="normal"):
    """Return the declarations of the parameters `seed` and `data`, which every kernel has."""
    return [
        KernelParam("seed", seed, int, "seed of the input data", low=0),
        KernelParam("data", data, str, "input: normally distributed numbers, ones, or the former with NaN, infinities, "
                    "huge and subnormal numbers, and zeros of both signs among them", DATA),
    ]


# --- formats ----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Arithmetic:
    """A float format of a machine: bits to values and back, its limits, and the machine's operations on it.

    Attributes
    ----------
    fmt : str
        ``f16``, ``cb16`` or ``f32``.
    bias : int
        Exponent bias of cb16.
    ftz : bool
        Whether the machine flushes subnormal numbers.
    """

    fmt: str
    bias: int
    ftz: bool

    @classmethod
    def of(cls, machine, fmt):
        """Return the arithmetic of `machine` in the format `fmt`."""
        return cls(fmt, machine["num.cb16_bias"], bool(machine["num.ftz"]))

    @property
    def words(self):
        """SRAM words of a number."""
        return 2 if self.fmt == "f32" else 1

    @property
    def bits_dtype(self):
        """numpy type of the bit patterns."""
        return np.dtype(np.uint32 if self.fmt == "f32" else np.uint16)

    @property
    def unit(self):
        """Unit roundoff u: half the distance from 1 to the next number."""
        return 2.0 ** -(FLOATS[self.fmt][1] + 1)

    @property
    def _exponent_bias(self):
        exponent = FLOATS[self.fmt][0]
        return self.bias if self.fmt == "cb16" else (1 << exponent - 1) - 1

    @property
    def smallest_normal(self):
        """Smallest normal number."""
        return math.ldexp(1.0, 1 - self._exponent_bias)

    @property
    def largest(self):
        """Largest finite number."""
        exponent, mantissa = FLOATS[self.fmt]
        return math.ldexp(2.0 - math.ldexp(1.0, -mantissa), (1 << exponent) - 2 - self._exponent_bias)

    @property
    def underflow(self):
        """Largest absolute error of a rounding to a subnormal number or zero."""
        return self.smallest_normal * (1.0 if self.ftz else self.unit)

    def encode(self, values):
        """Return the bits of `values`, each rounded once."""
        return np.asarray(numerics.encode(np.asarray(values, np.float64), self.fmt, self.bias), self.bits_dtype)

    def decode(self, bits):
        """Return the exact values of `bits` as float64."""
        return np.asarray(numerics.decode(bits, self.fmt, self.bias), np.float64)

    def operand(self, bits):
        """Return the values of `bits` as an operation of the machine sees them: subnormals are 0 if it flushes."""
        values = self.decode(bits)
        return np.where(np.abs(values) < self.smallest_normal, 0.0, values) if self.ftz else values

    def call(self, name, *operands):
        """Return ``numerics.<name>(*operands)`` in this format."""
        return np.asarray(getattr(numerics, name)(*operands, self.fmt, self.bias, self.ftz))

    def growth(self, roundings):
        """Return g of the module's head for terms that go through `roundings` roundings; inf if nothing can be said."""
        product = roundings * self.unit
        return product / (1 - product) if product < 1 else math.inf

    def specials(self):
        """Return bit patterns that deserve a test: NaNs, infinities, the ends of the range, zeros."""
        exponent, mantissa = FLOATS[self.fmt]
        sign, inf = 1 << exponent + mantissa, ((1 << exponent) - 1) << mantissa
        quiet = 1 << mantissa - 1
        found = [inf | quiet, inf, sign | inf, inf - 1, sign | inf - 1, 1, sign | 1, 1 << mantissa, 0, sign,
                 sign | inf | quiet | 5, inf | 1]
        return np.array(found, self.bits_dtype)

    def random(self, rng, shape, data="normal", terms=1):
        """Return input data as bit patterns.

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
        bits = self.encode(rng.standard_normal(shape))
        if data == "special" and bits.size:
            values = self.specials()
            flat = bits.reshape(-1)
            count = min(flat.size, max(len(values), flat.size // (8 * terms)))
            flat[rng.choice(flat.size, count, replace=False)] = np.resize(rng.permutation(values), count)
        return bits


def integers(rng, shape, bits, data="normal"):
    """Return whole numbers of 16 or 32 bits as uint16 or uint32: of the whole range, ones, or with the extremes."""
    dtype = np.dtype(f"u{bits // 8}")
    if data == "ones":
        return np.ones(shape, dtype)
    values = rng.integers(0, 1 << bits, shape, dtype=dtype)
    if data == "special" and values.size:
        flat = values.reshape(-1)
        extremes = np.array([0, 1, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1], dtype)
        count = min(flat.size, max(len(extremes), flat.size // 8))
        flat[rng.choice(flat.size, count, replace=False)] = np.resize(extremes, count)
    return values


# --- time stamps ------------------------------------------------------------------------------------------------------

class Stamps:
    """Two readings of the cycle counter by a program; `Session.stamps` fetches them.

    Parameters
    ----------
    program : Program
        Gets a variable ``stamps``: six words, low ones first.

    Notes
    -----
    `start` and `stop` in one task keep the first reading in registers, so that nothing but what lies between the two
    is measured, and `ce.tsc_read`.  `store` writes a reading at once; its three stores follow the sampling.
    """

    def __init__(self, program):
        self.program = program
        self.var = program.array("stamps", 6, "u16")
        self.first = None

    def start(self):
        """Read the counter."""
        self.first = self.program.regs(3, "start")
        self.program.tsc(self.first)

    def stop(self):
        """Read it again and store both readings."""
        p = self.program
        last = p.regs(3, "stop")
        p.tsc(last)
        for k in range(3):
            p.st16(self.first[k], self.var, offset=k)
            p.st16(last[k], self.var, offset=3 + k)
        p.free(*(reg for reg in p._body.regs if reg.id in (self.first[0].id, last[0].id)))
