"""The same problems are solved by a library: constraint programming with OR-tools' CP-SAT, to compare the search with.

Each kernel has one of few shapes, which are the corners of its curves at some time limits (`levels`); rectangles of
chosen shapes do not overlap (``NoOverlap2D``), the time is at least the limit of every chosen shape, and a wire is at
least as long as the distance of its centres along each axis.  The objective is that of the search
(`harness.place.search`).  docs/placement.md has both side by side.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

from harness.kit.modules import need
from harness.place.kgraph import ContestProblem
from harness.place.shapes import NEVER, Shapes
from harness.place.solution import PlacedKernel, scored
from harness.place.solve import PlaceOutcome, Prepared, prepare
from wse_core.errors import InternalError, LayoutError

__all__ = ["options", "solve_cp"]

FINE, COARSE = 16, 16
"""There are shapes of so many time limits: evenly up to `NEAR` times the bound, then by a factor up to `FAR` times."""
NEAR, FAR = 1.25, 16.0
LOOK = 0.05
"""So many seconds lie between looks at the clock."""


class Option(NamedTuple):
    """An `Option` is a shape: width and height on the wafer [PEs], and the time limit that it keeps."""

    width: int
    height: int
    limit: Fraction


def levels(bound: Fraction) -> list[Fraction]:
    """Return the time limits of which there are shapes."""
    near = [bound * (1 + Fraction(k, FINE) * Fraction(NEAR - 1)) for k in range(FINE)]
    far = [float(bound) * NEAR * (FAR / NEAR) ** (k / COARSE) for k in range(COARSE + 1)]
    return near + [Fraction(limit).limit_denominator(1000) for limit in far]


def options(shapes: Shapes, limits: Sequence[Fraction]) -> list[Option]:
    """Return the shapes of a kernel that no other one betters in width, height and time."""
    kept: list[Option] = []
    for limit in sorted(limits):
        curve = shapes.curve(limit)
        for width in range(1, len(curve)):
            height = int(curve[width])
            if height >= NEVER or height == curve[width - 1]:
                continue
            if not any(o.width <= width and o.height <= height for o in kept):
                kept.append(Option(width, height, limit))
    return kept


@dataclass
class _Model:
    """A model has the variables of a problem."""

    model: Any
    x: list[Any]
    y: list[Any]
    sizes: list[tuple[Any, Any]]
    chosen: list[list[Any]]
    slowest: Any
    offered: list[list[Option]]
    wires: list[Any]


def _modelled(cp: Any, prepared: Prepared, offered: Sequence[Sequence[Option]]) -> _Model:
    """Return the problem for the solver."""
    problem, task = prepared.problem, prepared.task
    model = cp.CpModel()
    wide, high = problem.width, problem.height
    limits = sorted({option.limit for kind in offered for option in kind})
    scale = lcm(*(limit.denominator for limit in limits))
    if scale * limits[-1] > 2**50:  # whole units are fine enough for times so long
        scale = 1
    made = _Model(model, [], [], [], [], model.new_int_var(0, int(scale * limits[-1]) + 1, "slowest"), [], [])
    across, along = [], []
    for number, kind in enumerate(task.kinds):
        mine = list(offered[kind])
        literals = [model.new_bool_var(f"shape {number} {k}") for k in range(len(mine))]
        model.add_exactly_one(literals)
        w = model.new_int_var(min(o.width for o in mine), max(o.width for o in mine), f"w{number}")
        h = model.new_int_var(min(o.height for o in mine), max(o.height for o in mine), f"h{number}")
        model.add(w == sum(o.width * literal for o, literal in zip(mine, literals, strict=True)))
        model.add(h == sum(o.height * literal for o, literal in zip(mine, literals, strict=True)))
        times = [-int(-scale * o.limit // 1) for o in mine]
        model.add(made.slowest >= sum(t * literal for t, literal in zip(times, literals, strict=True)))
        x, y = model.new_int_var(0, wide - 1, f"x{number}"), model.new_int_var(0, high - 1, f"y{number}")
        right, top = model.new_int_var(1, wide, f"r{number}"), model.new_int_var(1, high, f"t{number}")
        across.append(model.new_interval_var(x, w, right, f"across {number}"))
        along.append(model.new_interval_var(y, h, top, f"along {number}"))
        made.x.append(x)
        made.y.append(y)
        made.sizes.append((w, h))
        made.chosen.append(literals)
        made.offered.append(mine)
    model.add_no_overlap_2d(across, along)
    model.add_cumulative(across, [h for _, h in made.sizes], high)
    model.add_cumulative(along, [w for w, _ in made.sizes], wide)
    for a, b in problem.wires:
        for at, size, room in ((made.x, 0, wide), (made.y, 1, high)):
            length = model.new_int_var(0, 2 * room, "")
            difference = 2 * at[a] + made.sizes[a][size] - 2 * at[b] - made.sizes[b][size]
            model.add(length >= difference)
            model.add(length >= -difference)
            made.wires.append(length)
    # Weights as whole numbers: those of a contest are, that of the objective `slowest` is a small fraction.
    factor = 1 if float(task.wire_weight).is_integer() else 1e6
    model.minimize(
        round(2 * task.time_weight * factor) * made.slowest + round(task.wire_weight * factor * scale) * sum(made.wires)
    )
    return made


def solve_cp(
    problem: ContestProblem,
    objective: str = "score",
    *,
    seconds: float = 60.0,
    processes: int = 1,
    seed: int = 0,
    report: Callable[[float, int, Any], None] | None = None,
) -> PlaceOutcome:
    """Place the kernels of a problem by the library.

    Parameters
    ----------
    problem : ContestProblem
    objective : str
        As `harness.place.solve.solve` takes it.
    seconds : float
        Of the clock.
    processes : int
        Threads.
    seed : int
    report : callable, optional
        Called with the share of the time and the placements found at every better one.

    Returns
    -------
    Outcome
        Its rounds are the placements found, each better than those before.

    Raises
    ------
    ConfigError
        OR-tools is not installed.
    LayoutError
        No placement was found.
    """
    cp = need("ortools.sat.python.cp_model", "the solver cp-sat")
    prepared = prepare(problem, objective)
    limits = levels(prepared.task.bound)
    began = time.monotonic()
    made = _modelled(cp, prepared, [options(shapes, limits) for shapes in prepared.shapes])
    solver = cp.CpSolver()
    solver.parameters.num_workers = processes
    solver.parameters.random_seed = seed % 2**31
    over, found = threading.Event(), [0]

    def watch() -> None:
        while not over.wait(LOOK):
            if time.monotonic() - began >= seconds:
                solver.stop_search()

    class Told(cp.CpSolverSolutionCallback):  # type: ignore[name-defined]
        def on_solution_callback(self) -> None:
            found[0] += 1
            if report is not None:
                report(min(1.0, (time.monotonic() - began) / seconds), found[0], None)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        status = solver.solve(made.model, Told())
    finally:
        over.set()
        watcher.join()
    spent = time.monotonic() - began
    if status not in (cp.OPTIMAL, cp.FEASIBLE):
        raise LayoutError(
            f"cp-sat found no placement of {len(problem.kernels)} kernels in {spent:.0f} s",
            where=problem.name or "problem",
            hint="more --seconds, or without --solver cp-sat",
        )
    placed = _read(prepared, made, solver)
    return PlaceOutcome(placed, scored(problem, placed), prepared.task.bound, found[0], spent, 0)


def _read(prepared: Prepared, made: _Model, solver: Any) -> list[PlacedKernel]:
    """Return the placement that the solver has found."""
    found = []
    for number, kernel in enumerate(prepared.problem.kernels):
        option = next(o for o, b in zip(made.offered[number], made.chosen[number], strict=True) if solver.value(b))
        shapes = prepared.shapes[prepared.task.kinds[number]]
        chosen = shapes.arguments(option.limit, option.width, option.height)
        if chosen is None:
            raise InternalError(f"{kernel.name} has no arguments for a shape that was offered")
        found.append(
            PlacedKernel(kernel, chosen[0], solver.value(made.x[number]), solver.value(made.y[number]), chosen[1])
        )
    return found
