"""The PLMR device model: what an algorithm asks of a mesh of cores, and whether the mesh has it.

A `PlmrDevice` has four properties: cores (P, width x height), latency that grows with distance (L, cycles per hop),
memory per core (M, 16-bit words) and routes per core (R, colors that a router can tell apart).
`PlmrDevice.of(machine)` takes them from the machine's parameters; other meshes are other numbers.

A `Plan` says what an algorithm asks for: cores, words and routes per core, the hops of its longest path in a step, the
additions that follow one another, its steps.  `gemm_plan` and `gemv_plan` are the analysis tables of WaferLLM;
a kernel may as well make its own `Plan` of what it really uses (`routes_used` counts the colors of a layout).

`PlmrDevice.admit` compares the two.  A plan that asks for more cores, memory or routes than there are is refused with a
`PlanError` that names the limit.  What routers cannot do cores can: ``routing="software"`` is the same algorithm with
tiles that are handed on from core to core, which needs `RELAYED` routes per axis on any mesh, and a whole dependent
stage (down the ramp, one operation, up the ramp, one link) for every hop of the critical path instead of `router.hop`;
`PlmrDevice.latency` says so, and the kernel `gemm` with ``algorithm=summa-relay`` is such a program.
`PlmrDevice.choose` takes the plan of least latency of those that are admitted.  What a kernel has not planned for and
only the building of its programs and routes finds out is refused in the same way by `refuse`, for all kernels in one
place (`Kernel.run`).

Tables (n cores per axis; tiles are those of one input matrix)

=================  ================  ===============  ===============
GEMM               hops per step     routes per core  tiles per core
=================  ================  ===============  ===============
allgather          n - 1             2 n              2 n + 1
summa              n - 1             2 n              5
cannon             n - 1             6                3
mesh               2                 6                3
=================  ================  ===============  ===============

=================  =====================================  ===========================  ==========================
GEMV all-reduce    additions in a row                     hops in all                  routes per core
=================  =====================================  ===========================  ==========================
pipeline           n - 1                                  n - 1                        2 (in, out)
ring               n - 1                                  2 (n - 1) steps              3 (send, receive, pass)
ktree, K levels    sum of ceil(g / 2) over group sizes g  distance to the middle root  2 per level (two inputs)
=================  =====================================  ===========================  ==========================

A line of 1 core needs nothing: 0 hops, 0 routes.  Routes of a route-back broadcast are not counted.

Timing: `PlmrDevice.latency` only; nothing here runs on the fabric.
Sources: He et al., WaferLLM (OSDI 2025), sections 3.1 (PLMR), 5.1 (GEMM), 6.1 (GEMV).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabric.layout.layout import Layout
from fabric.price import timing
from wse_core.errors import ConfigError, PlanError, WseError
from wse_core.params import Machine

__all__ = [
    "GEMM",
    "GEMV",
    "RELAYED",
    "Plan",
    "PlmrDevice",
    "critical_additions",
    "gemm_plan",
    "gemv_plan",
    "ktree_groups",
    "refuse",
    "routes_used",
]

GEMM = ("allgather", "summa", "cannon", "mesh")
GEMV = ("pipeline", "ring", "ktree")
RELAYED = 4
"""Routes per axis of tiles that cores hand on: two directions; it takes one color and sends another in each."""


@dataclass(frozen=True)
class Plan:
    """A `Plan` is what an algorithm asks of the cores of a device.

    Attributes
    ----------
    name : str
        For messages.
    width, height : int
        Cores along x and y.
    words : int
        SRAM of a core [16-bit words].
    routes : int
        Routes (colors) of the core that has most.
    hops : int
        Links of the longest path of a step.
    additions : int
        Additions that follow one another on the longest path; 0 if the algorithm does not reduce.
    steps : int
        Steps that follow one another.
    routing : {"hardware", "software"}
        Whether routers copy and pass on what moves, or cores hand it on.
    """

    name: str
    width: int
    height: int
    words: int
    routes: int
    hops: int
    additions: int = 0
    steps: int = 1
    routing: str = "hardware"

    def __post_init__(self) -> None:
        if self.routing not in ("hardware", "software"):
            raise ConfigError(f"routing {self.routing!r} is unknown", where=self.name, hint="hardware or software")


@dataclass(frozen=True)
class PlmrDevice:
    """A `PlmrDevice` is a mesh of cores with the limits that the PLMR model names.

    Attributes
    ----------
    width, height : int
        Cores along x and y.
    hop : int
        Cycles from router to router.
    stage : int
        Cycles of a hop that goes through a core: off-ramp, one step, on-ramp, link.
    words : int
        SRAM of a core [16-bit words].
    routes : int
        Routes (colors) of a core.
    torus : bool
        Whether each row and each column closes to a ring.

    Examples
    --------
    >>> from wse_core.params import machine
    >>> Device.of(machine()).routes
    24
    """

    width: int
    height: int
    hop: int
    stage: int
    words: int
    routes: int
    torus: bool = False

    @classmethod
    def of(cls, machine: Machine) -> PlmrDevice:
        """Return the device that `machine` describes."""
        m = machine
        return cls(
            m["fabric.width"], m["fabric.height"], m["router.hop"], timing.stage(m), m["mem.words"], m["router.colors"]
        )

    @property
    def cores(self) -> int:
        """The device has so many cores."""
        return self.width * self.height

    def distance(self, a: tuple[int, int], b: tuple[int, int]) -> int:
        """Return the links of the shortest path between the cores at ``a = (x, y)`` and `b`."""
        total = 0
        for p, q, size in zip(a, b, (self.width, self.height), strict=True):
            straight = abs(p - q)
            total += min(straight, size - straight) if self.torus else straight
        return total

    @property
    def diameter(self) -> int:
        """The longest shortest path has so many links."""
        return self.width // 2 + self.height // 2 if self.torus else self.width + self.height - 2

    def admit(self, plan: Plan, where: str | None = None) -> Plan:
        """Return `plan`, or refuse it.

        Raises
        ------
        PlanError
            Names the limit in its attribute `limit`, with `needed` and `available`.
        """
        asked = [
            ("width", plan.width, self.width, "PEs along x", "a smaller width"),
            ("height", plan.height, self.height, "PEs along y", "a smaller height"),
            ("memory", plan.words, self.words, "16-bit words per PE", "less data per PE"),
            (
                "routes",
                plan.routes,
                self.routes,
                "colors per PE",
                "fewer PEs, an algorithm with fewer routes, or software routing where there is one",
            ),
        ]
        for limit, needed, available, unit, hint in asked:
            if needed > available:
                raise PlanError(
                    f"{plan.name} needs {needed} {unit}, the device has {available}",
                    where=where,
                    hint=hint,
                    limit=limit,
                    needed=int(needed),
                    available=int(available),
                )
        return plan

    def latency(self, plan: Plan) -> int:
        """Return the cycles that the distances of all steps cost, without data volume and arithmetic."""
        return plan.steps * plan.hops * (self.stage if plan.routing == "software" else self.hop)

    def choose(self, plans: Sequence[Plan], where: str | None = None) -> Plan:
        """Return the plan of least latency of those that the device admits, the first one of several.

        Parameters
        ----------
        plans : sequence of Plan
            At least one; the one that one would rather have comes first.
        where : str, optional
            Who asks.

        Raises
        ------
        PlanError
            None is admitted; what the first one is refused for.
        """
        admitted, refused = [], []
        for plan in plans:
            try:
                admitted.append(self.admit(plan, where))
            except PlanError as error:
                refused.append(error)
        if not admitted:
            raise refused[0]
        return min(admitted, key=self.latency)


def refuse(error: WseError, where: str) -> None:
    """Raise the `PlanError` of an error that says what the machine has too little of; do nothing if it is none.

    Parameters
    ----------
    error : WseError
        Of a layout or program that was built for the machine; its fields `limit`, `needed` and `available` count.
    where : str
        Who asked.
    """
    if error.fields.get("limit"):
        parts = {key: error.fields[key] for key in ("limit", "needed", "available")}
        place = ", ".join(filter(None, (where, error.place())))
        raise PlanError(error.what, where=place, cause=error.cause, hint=error.hint, **parts) from None


# --- tables -----------------------------------------------------------------------------------------------------------


def gemm_plan(
    algorithm: str, n: int, tile_words: int, result_words: int | None = None, routing: str = "hardware"
) -> Plan:
    """Return the `Plan` of a product of matrices on n x n cores.

    Parameters
    ----------
    algorithm : {"allgather", "summa", "cannon", "mesh"}
    n : int
        Cores per axis.
    tile_words : int
        SRAM words of a tile of one input matrix.
    result_words : int, optional
        Words of a tile of the result; default `tile_words`.
    routing : {"hardware", "software"}

    Raises
    ------
    ConfigError
        Unknown algorithm.
    """
    _one_of(algorithm, GEMM, "GEMM")
    far, many = {
        "allgather": (n - 1, 2 * n),
        "summa": (n - 1, 2 * n),
        "cannon": (n - 1, 6),
        "mesh": (min(2, n - 1), 6),
    }[algorithm]
    inputs = {"allgather": 2 * n, "summa": 4, "cannon": 2, "mesh": 2}[algorithm]
    if routing == "software":
        many = min(many, 2 * RELAYED)
    if n == 1:
        far, many, inputs = 0, 0, 2
    words = inputs * tile_words + (tile_words if result_words is None else result_words)
    steps = 1 if algorithm == "allgather" else n
    return Plan(f"{algorithm} GEMM on {n} x {n} PEs", n, n, words, many, far, steps=steps, routing=routing)


def gemv_plan(algorithm: str, n: int, words: int, levels: int = 2, width: int = 1, routing: str = "hardware") -> Plan:
    """Return the `Plan` of the all-reduce of a matrix-vector product along lines of n cores.

    Parameters
    ----------
    algorithm : {"pipeline", "ring", "ktree"}
    n : int
        Cores of a line (along y).
    words : int
        SRAM words of a core.
    levels : int
        K of the K-tree.
    width : int
        Lines beside one another.
    routing : {"hardware", "software"}

    Raises
    ------
    ConfigError
        Unknown algorithm, or less than one level.
    """
    _one_of(algorithm, GEMV, "GEMV")
    routes = {"pipeline": 2, "ring": 3, "ktree": 2 * levels}[algorithm]
    if routing == "software":
        routes = min(routes, RELAYED)
    hops = n - 1
    steps = 2 * (n - 1) if algorithm == "ring" else 1
    if algorithm == "ring":
        hops = min(2, n - 1)
    if algorithm == "ktree":
        hops = -(-n // 2)
    if n == 1:
        routes = hops = steps = 0
    return Plan(
        f"{algorithm} GEMV on lines of {n} PEs",
        width,
        n,
        words,
        routes,
        hops,
        critical_additions(algorithm, n, levels),
        steps,
        routing,
    )


def ktree_groups(n: int, levels: int, group: int = 0) -> list[int]:
    """Return the group sizes of a balanced tree over n cores, bottom level first, as few levels as the sizes need.

    Parameters
    ----------
    n : int
        Cores of the line.
    levels : int
        K.
    group : int
        Size on all levels but the last, which takes what is left; 0: the smallest g with g^K >= n.

    Examples
    --------
    >>> ktree_groups(256, 2), ktree_groups(720, 3), ktree_groups(720, 4)
    ([16, 16], [9, 9, 9], [6, 6, 6, 4])
    """
    if levels < 1:
        raise ConfigError(f"a tree of {levels} levels", hint="at least 1", value=levels)
    group = group or _root_up(n, levels)
    sizes, left = [], n
    for level in range(levels, 0, -1):
        size = left if level == 1 else min(group, left)
        if left > 1:
            sizes.append(size)
        left = -(-left // size)
    return sizes


def critical_additions(algorithm: str, n: int, levels: int = 2) -> int:
    """Return the additions that follow one another in an all-reduce over a line of n cores.

    A two-way group of g cores has its root in the middle: both sides come together there, and of the two partial sums
    of equal length the root adds the second after the first, ceil(g / 2) additions in all.
    """
    _one_of(algorithm, GEMV, "GEMV")
    if algorithm == "ktree":
        return sum(-(-size // 2) for size in ktree_groups(n, levels))
    return n - 1


def routes_used(layout: Layout) -> int:
    """Return the colors of the PE of a `Layout` that has most of them configured."""
    spec = layout.build()
    used = np.zeros((spec.height, spec.width), np.int32)
    for table in spec.routes.values():
        used += table["valid"] != 0
    return int(used.max(initial=0))


def _root_up(n: int, k: int) -> int:
    """Return the smallest integer whose k-th power is at least n."""
    root = max(1, math.floor(n ** (1 / k)))
    while root**k < n:
        root += 1
    while root > 1 and (root - 1) ** k >= n:
        root -= 1
    return root


def _one_of(value: str, known: Sequence[str], what: str) -> None:
    if value not in known:
        raise ConfigError(f"{what} algorithm {value!r} is unknown", hint=", ".join(known), value=value)
