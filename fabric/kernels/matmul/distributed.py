"""All distributed matrix products have this in common: how the matrices are cut, the references, what a result says.

A mesh of W x H PEs (W along x).  C is cut into H x W tiles, PE (x, y) sums C[y, x] where it stays.  The summed
dimension is cut into L = lcm(W, H) *slices*: A into H x L tiles, L/W of them on each PE of a row, B into L x W tiles,
L/H of them on each PE of a column.  A square mesh has one of each.  In each of L *steps* every PE multiplies one tile
of A and the tile of B of the same slice; algorithms differ in how the tiles come to the PE and in the order of the
slices (`Product.order`), which is what the bits of C depend on.

Sizes that do not divide are padded with zeros, the rows of a tile to an even number (see
`fabric.kernels.matmul.local`). The zeros are sent and multiplied as the rest is; ``macs`` counts them,
``useful_macs`` does not.

Split of the cycles
    ``compute_cycles``  = steps x `product_cycles`, what a PE alone needs for its products, which a run on one PE takes
                          to the cycle;
    ``align_cycles``      until every tile is where the first step wants it (cyclic shifts only);
    ``communication_cycles`` the rest: what is not hidden of the transfers and of the instructions around them.

Lower bound of the cycles for any algorithm that keeps C in place and starts with A and B spread evenly: the
multiply-adds of the PE with most of them at full rate, plus one issue slot for each wavelet that this PE has to take
from elsewhere, but at least the way from the farthest PE.
"""

from __future__ import annotations

import copy
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fabric.host.engines import Backend
from fabric.host.running import Progress
from fabric.kernels.kit import tiles
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import wavelets_of
from fabric.kernels.kit.plmr import Plan, PlmrDevice, routes_used
from fabric.kernels.kit.session import CYCLE_LIMIT, Session
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import joined, places, sampling
from fabric.kernels.matmul.local import Shape, product_cycles
from fabric.kernels.matmul.problem import Problem
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.errors import PlanError
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["Product", "place_all", "strides"]


def place_all(
    layout: Layout, programs: Mapping[Any, Program], columns: Sequence[Hashable], rows: Sequence[Hashable]
) -> None:
    """Place ``programs[columns[x], rows[y]]`` on every PE (x, y), many at a time.

    Parameters
    ----------
    layout : Layout
    programs : dict
    columns, rows : sequence
        Kinds of columns and of rows, hashable.
    """
    for column, x in strides(columns):
        for row, y in strides(rows):
            layout.place(programs[column, row], (x[0], y[0], x[-1] - x[0] + 1, y[-1] - y[0] + 1, x.step, y.step))


def strides(kinds: Sequence[Hashable]) -> list[tuple[Hashable, range]]:
    """Return (kind, range of places) so that every place of a sequence of kinds is in one range."""
    places: dict[Hashable, list[int]] = {}
    found = []
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    for kind, mine in places.items():
        start = 0
        while start < len(mine):
            step = mine[start + 1] - mine[start] if start + 1 < len(mine) else 1
            stop = start + 1
            while stop < len(mine) and mine[stop] - mine[stop - 1] == step:
                stop += 1
            found.append((kind, range(mine[start], mine[stop - 1] + 1, step)))
            start = stop
    return found


class Product(ABC):
    """A matrix product laid out over PEs: fits the tiles, runs products, holds the reference.

    Subclasses are algorithms.  They give `build`, `layout`, `inputs`, `order`, `colors`, `way`, `hops`, `expected`.

    Parameters
    ----------
    machine : Machine
    problem : Problem
    where : str
        Who asks, for messages.

    Attributes
    ----------
    shape : Shape
        Sizes of the tiles.
    slices : int
        Slices of the summed dimension, and steps.
    programs : dict
        Programs by place.

    Raises
    ------
    PlanError
        A limit of the device (`fabric.kernels.kit.plmr`): the tiles do not fit into a PE, the PEs not onto the machine,
        or a router has too few colors.
    """

    algorithm = ""

    def __init__(self, machine: Machine, problem: Problem, where: str = "kernel gemm") -> None:
        self.machine, self.width, self.height, self.where = machine, problem.width, problem.height, where
        self.m, self.k, self.n, self.dtype, self.sums = problem.m, problem.k, problem.n, problem.dtype, problem.sums
        self.given = Arithmetic.of(machine, self.dtype)
        self.result = Arithmetic.of(machine, self.dtype if self.sums == "same" else "f32")
        width, height = self.width, self.height
        limits = machine["fabric.width"], machine["fabric.height"]
        if width > limits[0] or height > limits[1]:
            square = width == height
            limit = min(limits) if square else limits[0] if width > limits[0] else limits[1]
            key = "p" if square else "width" if width > limits[0] else "height"
            raise PlanError(
                f"{width} x {height} PEs exceed the {limits[0]} x {limits[1]} of {machine.preset}",
                where=f"{where}: {key}",
                hint=f"at most {limit}",
                available=limit,
                needed=height if key == "height" else width,
                limit="width" if width > limits[0] else "height",
            )
        self.slices = math.lcm(width, height)
        self.shape = self.shape_of(self.m, self.k, self.n)
        PlmrDevice.of(machine).admit(self.plan, where)
        sizes = {"m": self.m, "k": self.k, "n": self.n}
        ranges = {name: (1, size) for name, size in sizes.items()}
        if width == height:
            sizes["p"], ranges["p"] = width, (width, min(limits))
        self.programs = fit(
            where,
            machine,
            lambda **found: self.sized(**found).build(),
            sizes,
            ranges,
            lambda **found: self.sized(**found).try_build(),
        )

    @property
    @abstractmethod
    def colors(self) -> range:
        """The routers of the product can tell these colors apart, from the first to the last; empty for a PE alone."""

    @property
    @abstractmethod
    def way(self) -> int:
        """The longest path of a step has so many links."""

    @property
    def plan(self) -> Plan:
        """The product asks this of the device besides memory, which its programs say when they are built (`fit`)."""
        name, colors = f"{self.algorithm} on {self.width} x {self.height} PEs", self.colors
        if colors:
            name += f", whose colors begin at {colors[0]},"
        return Plan(name, self.width, self.height, 0, max(colors, default=-1) + 1, self.way, steps=self.slices)

    @property
    @abstractmethod
    def hops(self) -> int:
        """The product takes so many wavelet hops."""

    @functools.cached_property
    @abstractmethod
    def layout(self) -> Layout:
        """The `Layout` has the programs on their PEs, and the routes."""

    @abstractmethod
    def build(self) -> dict[Any, Program]:
        """Return the programs by place, assembled."""

    def try_build(self) -> None:
        """Build as much as it takes to know whether a PE has room.

        Raises
        ------
        ProgramError
            It has none.
        """
        self.build()

    @abstractmethod
    def inputs(self, a: Bits, b: Bits) -> list[tuple[str, Bits, int, int]]:
        """Return what the host writes; see `Session`."""

    @abstractmethod
    def expected(self) -> float:
        """Return the closed form of the cycles."""

    def sized(self, m: int, k: int, n: int, p: int | None = None) -> Self:
        """Return a product of other sizes, or on a square of p x p PEs, without programs: `build` may fail."""
        other = copy.copy(self)
        other.__dict__.pop("layout", None)
        other.__dict__.pop("words", None)
        other.__dict__.pop("programs", None)
        if p is not None:
            other.width = other.height = other.slices = p
        other.m, other.k, other.n = m, k, n
        other.shape = other.shape_of(m, k, n)
        return other

    def shape_of(self, m: int, k: int, n: int) -> Shape:
        """Return the `Shape` of the tiles."""
        return Shape(2 * -(-m // (2 * self.height)), -(-k // self.slices), -(-n // self.width), self.dtype, self.sums)

    # --- data ---------------------------------------------------------------------------------------------------------

    def padded(self, a: Bits, b: Bits) -> tuple[Bits, Bits]:
        """Return A and B as bit patterns with the zeros that complete the tiles."""
        s, (w, h, steps) = self.shape, (self.width, self.height, self.slices)
        return tiles.pad(a, h * s.rows, steps * s.depth), tiles.pad(b, steps * s.depth, w * s.columns)

    def padded_for_one(self, a: Bits, b: Bits) -> tuple[Bits, Bits]:
        """Return the rows of A and columns of B of one PE, padded as `padded` does it."""
        s = self.shape
        return tiles.pad(a, s.rows, self.slices * s.depth), tiles.pad(b, self.slices * s.depth, s.columns)

    def b_elements(self, found: Bits) -> Bits:
        """Return tiles of B in the order in which `fabric.kernels.matmul.local` reads them."""
        return (tiles.columns_first if self.shape.inner_k else tiles.rows_first)(found)

    def cut(self, a: Bits, b: Bits) -> tuple[Bits, Bits]:
        """Return the tiles of A (H, L, elements) and of B (L, W, elements) as they lie in SRAM."""
        a, b = self.padded(a, b)
        return (
            tiles.columns_first(tiles.tiles(a, self.height, self.slices)),
            self.b_elements(tiles.tiles(b, self.slices, self.width)),
        )

    def run(
        self,
        a: Bits,
        b: Bits,
        progress: Progress | bool | None = None,
        cycle_limit: int = CYCLE_LIMIT,
        backend: Backend | None = None,
    ) -> tuple[Session, Bits]:
        """Multiply on the fabric.

        Parameters
        ----------
        a, b : ndarray
            Bit patterns, shapes (m, k), (k, n).
        progress : callable, optional
            As `fabric.host.fabric.Fabric.run` takes it.
        cycle_limit : int
            Most cycles that the run may take.
        backend : {"compiled", "reference"}, optional

        Returns
        -------
        session : Session
        c : ndarray[uint32 or uint16]
            Bits, shape (m, n).
        """
        session = Session(
            self.layout,
            self.inputs(a, b),
            backend=backend,
            progress=progress,
            cycle_limit=cycle_limit,
            expected=self.expected,
        )
        s, (w, h) = self.shape, (self.width, self.height)
        c = session.read("c", 0, 0, w, h).reshape(h, w, self.c_tiles, -1, s.rows)
        return session, c.transpose(0, 4, 1, 2, 3).reshape(h * s.rows, -1)[: self.m, : self.n]

    @property
    def c_tiles(self) -> int:
        """A PE has so many tiles of C, side by side."""
        return 1

    # --- references ---------------------------------------------------------------------------------------------------

    in_order = True
    """Whether all PEs take the slices one after another, from the first."""

    def order(self, y: int, x: int) -> NDArray[np.int64]:
        """Return the slices in the order in which PE (x, y) takes them."""
        return np.arange(self.slices)

    def reference(self, a: Bits, b: Bits) -> Bits:
        """Return C, m x n, calculated in the order of the PEs."""
        s, (w, h) = self.shape, (self.width, self.height)
        a, b = self.padded(a, b)
        c = np.zeros((h * s.rows, w * s.columns), self.result.bits_dtype)
        if self.in_order:
            return self.given.product(a, b, c)[: self.m, : self.n]
        for y, x in np.ndindex(h, w):
            rows, columns = self.held_by(y, x)
            c[rows, columns] = self.tile(a[rows], b[:, columns], y, x)
        return c[: self.m, : self.n]

    def held_by(self, y: int, x: int) -> tuple[slice, slice]:
        """Return the rows and the columns of C, padding included, that PE (x, y) holds."""
        s = self.shape
        return slice(y * s.rows, (y + 1) * s.rows), slice(x * s.columns, (x + 1) * s.columns)

    def tile(self, a: Bits, b: Bits, y: int, x: int) -> Bits:
        """Return the part of C on PE (x, y) in its order; `a` and `b` are the padded rows and columns it stands on."""
        depth = self.shape.depth
        at = (self.order(y, x)[:, np.newaxis] * depth + np.arange(depth)).reshape(-1)
        return self.given.product(a[:, at], b[at], np.zeros((a.shape[0], b.shape[1]), self.result.bits_dtype))

    def columns_of(self, b: Bits, columns: slice) -> Bits:
        """Return what of B some columns of C stand on."""
        return b[:, columns]

    def plain(self, a: Bits, b: Bits) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return C and the sums of absolute products by numpy, in float64."""
        x, y = self.given.operand(a), self.given.operand(b)
        with np.errstate(invalid="ignore", over="ignore"):
            return x @ y, np.abs(x) @ np.abs(y)

    @property
    def roundings(self) -> int:
        """A term of C goes through so many roundings."""
        return self.slices * self.shape.depth

    def check(self, a: Bits, b: Bits, c: Bits) -> Check:
        """Compare a result with the reference in the order of the PEs and with plain numpy; return a `Check`."""
        if not sampling(a.size + b.size, self.m * self.k * self.n):
            plain, magnitude = self.plain(a, b)
            return check_sum(self.result, c, self.reference(a, b), plain, magnitude, self.roundings)
        parts = []
        for y, x in places(self.height, self.width):
            rows, columns = self.held_by(y, x)
            got, above, left = c[rows, columns], self.columns_of(b, columns), a[rows]
            if got.size:
                expected = self.tile(*self.padded_for_one(left, above), y, x)[: got.shape[0], : got.shape[1]]
                plain, magnitude = self.plain(left, above)
                parts.append(check_sum(self.result, got, expected, plain, magnitude, self.roundings))
        return joined(parts, c.size)

    # --- counts -------------------------------------------------------------------------------------------------------

    @property
    def elements(self) -> tuple[int, int]:
        """A tile of A and a tile of B have so many elements."""
        return self.shape.rows * self.shape.depth, self.shape.depth * self.shape.columns

    @property
    def wavelets(self) -> tuple[int, int]:
        """A tile of A and a tile of B have so many wavelets."""
        return wavelets_of(self.elements[0], self.dtype), wavelets_of(self.elements[1], self.dtype)

    @property
    def macs(self) -> int:
        """The product takes so many multiply-adds, those with zeros of the padding included."""
        s = self.shape
        return self.width * self.height * self.slices * s.rows * s.depth * s.columns

    @functools.cached_property
    def words(self) -> int:
        """The PE that needs most takes so much SRAM, code included [16-bit words]."""
        return max(program.assemble().footprint for program in self.programs.values())

    @property
    def compute_cycles(self) -> int:
        """The products of a PE that has all tiles take so many cycles."""
        return self.slices * product_cycles(self.shape, self.machine)

    @property
    def lower_bound(self) -> int:
        """Cycles that no algorithm with C in place goes below; see the head of this module."""
        m, (w, h) = self.machine, (self.width, self.height)
        rows, columns = -(-self.m // h), -(-self.n // w)
        foreign = sum(
            wavelets_of(lines * self.k * (size - 1) // size, self.dtype) for lines, size in ((rows, w), (columns, h))
        )
        way = max(w, h) - 1
        work = -(-rows // self.shape.lanes(m)) * columns * self.k + foreign
        return max(work, timing.way(m, way) if way else 0)

    def facts(self, session: Session, cycles: int) -> dict[str, Any]:
        """Return what a result says besides `report`."""
        s = self.shape
        compute = self.compute_cycles
        return {
            "lanes": s.lanes(self.machine),
            "useful_macs": self.m * self.k * self.n,
            "steps": self.slices,
            "tile": f"{s.rows} x {s.depth} x {s.columns}",
            "product_cycles": product_cycles(s, self.machine),
            "compute_cycles": compute,
            "align_cycles": self.align_cycles(session),
            "communication_cycles": int(cycles) - compute - self.align_cycles(session),
            "words_per_pe": self.words,
            "colors_per_pe": routes_used(self.layout),
            "lower_bound": self.lower_bound,
        }

    def expected_align(self) -> float:
        """Return what a closed form says about `align_cycles`."""
        return 0

    def align_cycles(self, session: Session) -> int:
        """Return the cycles until all tiles are where the first step wants them."""
        return 0
