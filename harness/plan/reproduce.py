"""Every published cell is set beside the value that the planner derives for it.

Configurations come from the search, counts and bubbles of schedules from the event simulation, which needs SimPy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.plan import approaches, strategies, sweep
from harness.plan.hardware import A100
from harness.plan.models import PRESETS, TransformerSizes, find_model, x_model
from harness.plan.published import CELLS, CONFIGS, SMALL_CLUSTERS, PrintedCell
from harness.plan.search import complete, fastest
from harness.plan.strategies import Degrees
from harness.plan.units import GIB, WEEK

__all__ = ["ReproducedCell", "derive", "outcomes"]


@dataclass(frozen=True)
class ReproducedCell:
    """A `ReproducedCell` is a cell and what was derived for it."""

    cell: PrintedCell
    derived: float

    @property
    def error(self) -> float:
        """The derived value has this relative error."""
        return self.derived / self.cell.value - 1 if self.cell.value else float(self.derived != 0)

    @property
    def agrees(self) -> bool:
        """Whether the derived value lies within half a unit of the last printed digit, or within what a plot allows."""
        if not math.isfinite(self.derived):
            return False
        if self.cell.kind == "plot":
            return abs(self.error) <= self.cell.within
        return abs(self.derived - self.cell.value) <= self.cell.half_unit * (1 + 1e-9)

    @property
    def verdict(self) -> str:
        """The cell is ``ok``, ``off``, or ``misprint`` for a print that does not follow from its own paper."""
        return "misprint" if self.cell.kind == "misprint" else "ok" if self.agrees else "off"

    def as_dict(self) -> dict[str, Any]:
        """Return what the table shows."""
        cell = self.cell
        return {
            "paper": cell.paper,
            "table": cell.table,
            "row": cell.row,
            "column": cell.column,
            "printed": cell.text,
            "value": cell.value,
            "derived": self.derived,
            "error": self.error,
            "verdict": self.verdict,
            "note": cell.note,
        }


def outcomes() -> list[ReproducedCell]:
    """Return the outcome of every published cell, in the order of the tables."""
    return [ReproducedCell(cell, derive(cell)) for cell in CELLS]


def derive(cell: PrintedCell) -> float:
    """Return the value of a cell from formulas, search or simulation.

    Raises
    ------
    UnsupportedError
        If it comes from a simulation and SimPy is not installed.
    """
    return float(_TABLES[cell.paper, cell.table](cell.row, cell.column))


def _streaming(row: str, column: str) -> float:
    model = PRESETS[row]
    return {
        "operations": lambda: approaches.operations(model),
        "petaflops": lambda: approaches.target_rate(model) / 1e15,
        "bytes": lambda: approaches.service_bytes(model),
        "iterations": lambda: model.tokens / model.batch_tokens,
        "bits/s": lambda: 8 * approaches.link_rate(model),
    }[column]()


def _streaming_text(row: str, column: str) -> float:
    if row.startswith("gpt-3"):
        return 4 * PRESETS["gpt-3"].parameters
    return approaches.target_rate(PRESETS["megatron-turing"], WEEK) / 1.1e18


def _model(row: str, column: str) -> float:
    model = find_model(row)
    if column == "p":
        return model.counted
    return {
        "b": model.critical_batch,
        "d_s": model.sequence,
        "d_a": model.heads,
        "d_h": model.width / model.heads,
        "d_m": model.width,
        "d_l": model.layers,
    }[column]


@functools.cache
def _x160() -> TransformerSizes:
    return x_model(160)


@functools.cache
def _found(row: str) -> Degrees:
    if row in CONFIGS:
        return fastest(_x160(), A100, *CONFIGS[row])
    return complete(_x160(), A100, *SMALL_CLUSTERS[row])


def _configuration(row: str, column: str) -> float:
    config = _found(row)
    if column in ("days", "years"):
        return strategies.days(_x160(), config, A100) / (1 if column == "days" else 365.25)
    if column == "efficiency":
        return strategies.efficiency(_x160(), config, A100)
    parts = strategies.memory(_x160(), config)
    return parts[column] / GIB if column in parts else config.as_dict()[column]


def _buffers(row: str, column: str) -> float:
    from harness.plan.schedules import mixed_buffering

    return mixed_buffering()[row][column]


def _text(row: str, column: str) -> float:
    return _TEXT[row]()


def _bubble(kind: str, layers: int, devices: int, count: int) -> float:
    from harness.plan.schedules import Schedule, simulate

    return simulate(Schedule(kind, layers, count, devices)).bubble


def _traffic(kind: str, what: str) -> int:
    from harness.plan.schedules import Schedule, simulate

    return simulate(Schedule(kind, 4, 4, 1, partitioned=True)).count(what)


def _smallest() -> float:
    parts = strategies.memory(_x160(), _found("3d, improved"))
    return parts["offloadable"] + parts["resident"]


def _month() -> float:
    found = sweep.row(sweep.limit_days(A100, "improved", 30), A100, "improved")
    return found["resident_gib"] + found["offloadable_gib"]


def _year() -> float:
    found = sweep.row(sweep.limit_days(A100, "improved", 365), A100, "improved")
    return found["resident_gib"] + found["offloadable_gib"]


def _ethernet() -> float:
    slow = A100.with_network("ethernet")
    here, there = _found("3d, improved"), fastest(_x160(), slow, *CONFIGS["3d, improved"])
    return strategies.days(_x160(), there, slow) / strategies.days(_x160(), here, A100) - 1


def _tensor_from(link: str) -> float:
    """Return the size from which 16-way tensor parallelism over a link stays within the tolerance."""
    width = 3 * 15 * A100.threshold(link) / (strategies.TOLERANCE * 12)
    return 12 * width**2.5


_WIDE = sweep.wide_node(A100)
_TEXT: dict[str, Callable[[], float]] = {
    "addition (2.3)": lambda: 1 / 6,  # one operation; two operands and a result of 16 bit
    "1024 x 1024 product (2.3)": lambda: 2 * 1024**3 / (3 * 1024**2 * 2),
    "X160 operations (6)": lambda: 8 * strategies.STEPS * 2420 * _x160().sequence * _x160().core,
    "X160 exaflop/s days (6)": lambda: strategies.gpu_days(_x160(), A100) * A100.flops / 1e18,
    "X160 device days (6)": lambda: strategies.gpu_days(_x160(), A100),
    "smallest memory, GiB (6)": lambda: _smallest() / GIB,
    "80 GiB over smallest memory (6)": lambda: A100.memory / _smallest(),
    "tensor 16 in a node, parameters (5)": lambda: _tensor_from("node"),
    "tensor 16 over the network, parameters (5)": lambda: _tensor_from("network"),
    "fine-tuning, 1000 steps, device days (9.1)": lambda: strategies.gpu_days(_x160(), A100, 1000),
    "one month, parameters (7)": lambda: sweep.limit_days(A100, "improved", 30),
    "one month, GiB (7)": _month,
    "one year, parameters (7)": lambda: sweep.limit_days(A100, "improved", 365),
    "one year, GiB (7)": _year,
    "80 GiB with offload (7)": lambda: sweep.limit_memory(A100, "improved", True),
    "80 GiB without offload (7)": lambda: sweep.limit_memory(A100, "improved", False),
    "any node, 80 GiB (7)": lambda: sweep.limit_memory(_WIDE, "improved", True),
    "any node, one month (7)": lambda: sweep.limit_days(_WIDE, "improved", 30),
    "any node, one year (7)": lambda: sweep.limit_days(_WIDE, "improved", 365),
    "Ethernet, X160, slower by (8.3)": _ethernet,
    "bubble, standard 16 layers 4 x 4 (4)": lambda: _bubble("standard", 16, 4, 4),
    "bubble, modular 16 layers 4 x 4 (4)": lambda: _bubble("modular", 16, 4, 4),
    "bubble, standard 160 layers 5 x 5 (4)": lambda: _bubble("standard", 160, 5, 5),
    "bubble, modular 160 layers 5 x 5 (4)": lambda: _bubble("modular", 160, 5, 5),
    "restores, standard 4 x 4 (Fig. 2)": lambda: _traffic("standard", "restore"),
    "reductions, standard 4 x 4 (Fig. 2)": lambda: _traffic("standard", "reduce"),
    "restores, layered 4 x 4 (Fig. 2)": lambda: _traffic("layered", "restore"),
    "reductions, layered 4 x 4 (Fig. 2)": lambda: _traffic("layered", "reduce"),
}
_TABLES: dict[tuple[str, str], Callable[[str, str], float]] = {
    ("ws", "3"): _streaming,
    ("ws", "4"): _streaming,
    ("ws", "5"): _streaming,
    ("ws", "text"): _streaming_text,
    ("lga", "A.1"): lambda row, column: A100.threshold(row),
    ("lga", "B.1"): _model,
    ("lga", "6.1"): _configuration,
    ("lga", "6.2"): _configuration,
    ("lga", "6.3"): _configuration,
    ("lga", "C.1"): _buffers,
    ("lga", "text"): _text,
}
