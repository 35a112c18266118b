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

from fabric.host.fabric import Fabric
from fabric.kernels.kit.kernel import KernelParam
from wse_core import numerics
from wse_core.errors import ConfigError, PlanError, ProgramError

__all__ = [
    "CYCLE_LIMIT",
    "DATA",
    "FLOATS",
    "Arithmetic",
    "Check",
    "Session",
    "Stamps",
    "check_sum",
    "data_params",
    "fit",
    "integers",
    "nearest",
    "report",
    "sequential_sum",
]

FLOATS = {"f16": (5, 10), "cb16": (6, 9), "f32": (8, 23)}
"""Bits of exponent and of mantissa."""
DATA = ("normal", "ones", "special")
CYCLE_LIMIT = 1 << 40
"""Cycles after which a kernel is taken to run for ever."""


def data_params(*, seed=0, data="normal"):
    """Return the declarations of the parameters `seed` and `data`, which every kernel has."""
    return [
        KernelParam("seed", seed, int, "seed of the input data", low=0),
        KernelParam(
            "data",
            data,
            str,
            "input: normally distributed numbers, ones, or the former with NaN, infinities, "
            "huge and subnormal numbers, and zeros of both signs among them",
            DATA,
        ),
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
            count = min(flat.size, max(len(values) if terms == 1 else 1, flat.size // (8 * terms)))
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
    """Readings of the cycle counter by a program; `Session.stamps` fetches them.

    Parameters
    ----------
    program : Program
        Gets a variable ``stamps``: three words per reading, low ones first.
    count : int
        Readings.

    Notes
    -----
    `start` and `stop` in one task keep the first reading in registers, so that nothing but what lies between the two
    is measured, and `ce.tsc_read`.  `store` writes a reading at once; its three stores follow the sampling.
    """

    def __init__(self, program, count=2):
        self.program = program
        self.var = program.array("stamps", 3 * count, "u16")
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

    def store(self, which):
        """Read the counter now and store it as reading number `which`: 0 (start), 1 (stop) or another."""
        self.program.store_tsc(self.var[3 * which])


# --- runs -------------------------------------------------------------------------------------------------------------


class Session:
    """A fabric with its data, run once.

    Parameters
    ----------
    layout : Layout
    inputs : iterable of (str, ndarray, int, int)
        Symbol, bit patterns of shape (h, w, elements), and the PE of the first.
    task : str or None
        Task to activate in all PEs that have it, in the same cycle; None if streams or the programs start everything.
    backend : {"compiled", "reference"}, optional
        Default as `fabric.host.fabric.Fabric`.
    progress : callable, optional
        As `fabric.host.fabric.Fabric.run` takes it.
    cycle_limit : int
        Most cycles that the run may take.
    streams : iterable of (Stream, ndarray of uint32, ndarray of bool)
        What the host sends into input streams from the first cycle on: payloads, and which are control wavelets.

    Attributes
    ----------
    fabric : Fabric
    run : RunResult
    """

    def __init__(self, layout, inputs, task="main", backend=None, progress=None, cycle_limit=CYCLE_LIMIT, streams=()):
        self.fabric = Fabric(layout, backend)
        for symbol, bits, x, y in inputs:
            self.fabric.write(symbol, bits, x, y, bits.shape[1], bits.shape[0])
        for stream, payload, is_control in streams:
            self.fabric.send(stream, payload, control=is_control)
        if task is not None:
            self.fabric.launch(task)
        self.run = self.fabric.run(cycle_limit, progress)

    def read(self, symbol, x=0, y=0, w=1, h=1):
        """Return a symbol of the PEs of a rectangle as bit patterns or integers, shape (h, w, elements)."""
        values = self.fabric.read(symbol, x, y, w, h)
        return values.view(f"u{values.itemsize}") if values.dtype.kind == "f" else values

    def stamps(self, x=0, y=0, w=1, h=1):
        """Return the readings of the cycle counters in a rectangle, each int64 (h, w); mostly there are two."""
        words = self.read("stamps", x, y, w, h).astype(np.int64)
        readings = words.reshape(h, w, -1, 3) @ (1 << 16 * np.arange(3, dtype=np.int64))
        return tuple(np.moveaxis(readings, -1, 0))

    def counters(self):
        """Return all counters as a run file takes them, see `Fabric.all_counters`."""
        return self.fabric.all_counters()


# --- comparisons ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """Outcome of the two comparisons.

    Attributes
    ----------
    bit_exact : bool
        Equal to the reference in the order of the PEs, bit for bit.
    within_bound : bool
        As close to plain numpy as the derived bound allows, everywhere.
    max_abs_error : float
        Largest distance to plain numpy among the results that a bound applies to (if none: where both are finite).
    max_bound : float
        Largest bound that applied; NaN if none did.
    n_results, n_bounded : int
        Results compared, and those of them that a bound applied to.
    """

    bit_exact: bool
    within_bound: bool
    max_abs_error: float
    max_bound: float
    n_results: int
    n_bounded: int

    @property
    def verified(self):
        """Whether both comparisons succeeded."""
        return self.bit_exact and self.within_bound

    def fields(self):
        """Return what a result says about it."""
        return {
            "verified": self.verified,
            "bit_exact": self.bit_exact,
            "max_abs_error": self.max_abs_error,
            "max_bound": self.max_bound,
            "n_results": self.n_results,
            "n_bounded": self.n_bounded,
        }


def check_sum(arithmetic, got, expected, plain, magnitude, roundings, operations=None):
    """Compare results that are sums of terms; see the head of this module.

    Parameters
    ----------
    arithmetic : Arithmetic
        Of the results.
    got, expected : ndarray
        Bit patterns from the machine and from the reference.
    plain, magnitude : ndarray of float64
        Sum of the terms and of their absolute values by numpy.
    roundings : int
        Roundings that a term goes through at most; 0 for copies.
    operations : int, optional
        Roundings done in all for one result; default the same.

    Returns
    -------
    Check
    """
    operations = roundings if operations is None else operations
    values = arithmetic.decode(got)
    plain, magnitude = np.asarray(plain, np.float64), np.asarray(magnitude, np.float64)
    growth = arithmetic.growth(roundings)
    host = roundings * 2.0**-52  # g for u = 2^-53, with room
    with np.errstate(over="ignore", invalid="ignore"):
        bound = (growth + host) * magnitude + operations * arithmetic.underflow * (1 + growth)
        applies = np.isfinite(bound) & ((1 + growth) * magnitude <= arithmetic.largest) & np.isfinite(plain)
        error = np.abs(values - plain)
    compared = applies if applies.any() else np.isfinite(values) & np.isfinite(plain)
    sound = np.where(
        applies,
        error <= np.where(applies, bound, 0.0),
        np.where(np.isnan(plain), np.isnan(values), np.isfinite(plain) | ~np.isfinite(values)),
    )
    return Check(
        bit_exact=bool(np.array_equal(got, expected)),
        within_bound=bool(sound.all()),
        max_abs_error=float(error[compared].max()) if compared.any() else 0.0,
        max_bound=float(bound[applies].max()) if applies.any() else math.nan,
        n_results=int(values.size),
        n_bounded=int(np.count_nonzero(applies)),
    )


def sequential_sum(arithmetic, parts):
    """Return ``parts[-1]``, then ``parts[k] + sum`` for k = -2, -3 ... 0, each addition rounded: a chain of PEs."""
    total = parts[-1]
    for part in parts[-2::-1]:
        total = arithmetic.call("add", part, total)
    return total


# --- sizes that fit ---------------------------------------------------------------------------------------------------


def fit(where, machine, build, sizes, smaller):
    """Return ``build(**sizes)``, or say which sizes would fit into a PE.

    Parameters
    ----------
    where : str
        Who asks, for the message.
    machine : Machine
    build : callable
        Returns an assembled program; raises `ProgramError` if it is too large.
    sizes : dict[str, int]
    smaller : dict[str, tuple[int, int]]
        Per size that may change the range to search for the value, nearest to the present one, that fits: (low, high).

    Raises
    ------
    PlanError
        The program does not fit; names the limit and, per size, the value that would fit with the others unchanged.
    ProgramError
        What is wrong is not a question of size: the smallest sizes fail as well.
    """
    try:
        return build(**sizes)
    except ProgramError as error:
        found = []
        for key, (low, high) in smaller.items():
            value = nearest(build, sizes, key, low, high)
            if value is not None:
                found.append(f"{key}={value}")
        if not found:
            try:
                build(**{**sizes, **{key: low for key, (low, high) in smaller.items()}})
            except ProgramError:
                raise error from None  # no question of size
            found = ["smaller values of several of " + ", ".join(smaller)]
        kind, limit = ConfigError, {}
        if error.fields.get("limit"):
            kind, limit = PlanError, {key: error.fields[key] for key in ("limit", "needed", "available")}
        raise kind(
            f"does not fit into the {machine['mem.words']} words of a PE",
            cause=error.what,
            where=where,
            hint=" or ".join(found),
            **limit,
            **sizes,
        ) from None


def nearest(build, sizes, key, low, high):
    """Return the value in low .. high, nearest to the present one, for which a program can be built; None if none."""

    def fits(value):
        try:
            build(**{**sizes, key: value})
        except ProgramError:
            return False
        return True

    good, bad = (low, high) if high <= sizes[key] else (high, low)
    if not fits(good):
        return None
    if fits(bad):
        return bad
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


# --- results ----------------------------------------------------------------------------------------------------------


def report(session, check, cycles, *, expected_cycles, expected_hops, expected_macs, lanes=0, arrays=None, **extra):
    """Return the result of a kernel.

    Parameters
    ----------
    session : Session
    check : Check
    cycles : int
        Measured interval.
    expected_cycles, expected_hops, expected_macs : number
        What the formulas of the kernel's page say; ``cycle_error`` is the relative difference.
    lanes : int
        Multiply-adds that a PE can do per cycle; 0 if the kernel does none.
    arrays : dict, optional
        Arrays for the run file.
    **extra
        Further facts.
    """
    run, cycles = session.run, int(cycles)
    seconds = max(run.host_seconds, 1e-9)
    pe_cycles = run.n_pe * run.cycles
    error = cycles / expected_cycles - 1 if expected_cycles else 0.0
    result = {
        "cycles": cycles,
        "wavelet_hops": run.wavelet_hops,
        "macs": run.macs,
        **check.fields(),
        "expected_cycles": expected_cycles,
        "cycle_error": error,
        "expected_hops": expected_hops,
        "expected_macs": expected_macs,
        "run_cycles": run.cycles,
        "pes_used": run.n_pe,
        "utilisation": run.counters["busy"] / max(1, pe_cycles),
    }
    if lanes:
        result["mac_utilisation"] = run.macs / max(1, lanes * pe_cycles)
    result |= extra
    result |= {
        "run_seconds": run.host_seconds,
        "hops_per_second": run.wavelet_hops / seconds,
        "pe_cycles_per_second": pe_cycles / seconds,
    }
    return result | {"counters": session.counters(), "arrays": arrays or {}}
