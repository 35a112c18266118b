"""Tables 2 to 8 of WaferLLM have every cell as printed, as composed here by two programs at two clocks, and the error.

What the programs are and what is behind their numbers stands in `harness.inference`.  The picture has a line for each
cell, in the order of the table: values on the left, a panel for each unit, and errors on the right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from harness.figures import Result, figure
from harness.inference import recorded
from harness.inference.tables import FAR, PublishedCell, cells, ratios

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = ["SUMMARIES", "notes"]

MARKS = "osD^vP"
"""The programs have these signs in the picture."""
SUMMARIES = {
    "2": "tokens per second of whole requests",
    "3": "tokens per second of prefill, prompts of 4,096 tokens",
    "4": "tokens per second of decode",
    "5": "tokens that a cache holds",
    "6": "MeshGEMV against an A100",
    "7": "MeshGEMM against an A100",
    "8": "whole inference against an A100",
}


def _label(cell: PublishedCell) -> str:
    """Return what a modelled value is called in the legend."""
    name = f"{cell.program}, {cell.system}" if cell.system in ("energy", "power") else cell.program
    return name if cell.gigahertz is None else f"{name}, {cell.gigahertz:g} GHz"


def notes(found: Sequence[PublishedCell]) -> dict[str, Any]:
    """Return, per kind of modelled value, cells within 15 % and the largest error; and whether more PEs help."""
    kinds: dict[str, list[PublishedCell]] = {}
    for cell in found:
        kinds.setdefault(_label(cell), []).append(cell)
    counts: dict[str, Any] = {
        name: f"{sum(abs(cell.error) <= FAR for cell in mine)} of {len(mine)} cells within {FAR:.0%}, worst "
        f"{max((cell.error for cell in mine), key=abs):+.1%}"
        for name, mine in kinds.items()
    }
    if any(cell.program == "as run" for cell in found):
        counts["as run"] = f"recorded, not calculated: {recorded.source()}; carried on by slopes where not run in full"
    if found[0].table not in ("3", "4"):
        return counts
    clock = next(cell.gigahertz for cell in found if cell.gigahertz is not None)
    for model in dict.fromkeys(cell.model for cell in found):
        both = {name: ratios(found, model, name, clock) for name in ("A", "B")}
        counts[f"{model}: largest mesh over smallest"] = f"published {both['A']['published']:.2f}, " + ", ".join(
            f"{name} {ratio['modelled']:.2f}" for name, ratio in both.items()
        )
    return counts


def _place(cell: PublishedCell) -> str:
    """Return where in a table a cell stands."""
    return " ".join(part for part in (cell.model, cell.system, cell.setting) if part)


def _values(axis: Any, unit: str, mine: Sequence[PublishedCell]) -> None:
    """Set the axis of values of one unit: logarithmic if they span more than a factor of 20."""
    seen = [abs(value) for cell in mine for value in (cell.published, cell.modelled)]
    if max(seen) > 20 * min(seen):
        axis.set_xscale("symlog" if min(seen) == 0 else "log")  # a cache that does not fit holds no token
    axis.set(xlabel=unit)
    axis.margins(x=0.08)


def _draw(canvas: Figure, found: Sequence[PublishedCell]) -> None:
    """Paint a line per cell of the table: published and modelled values, a panel for each unit, and errors."""
    units = list(dict.fromkeys(cell.unit for cell in found))
    rows = {place: k for k, place in enumerate(dict.fromkeys(map(_place, found)))}
    kinds = list(dict.fromkeys(cell.program for cell in found))
    marks: dict[str, str] = {}
    for cell in found:
        marks.setdefault(_label(cell), f"C{len(marks) % 10}{MARKS[kinds.index(cell.program) % len(MARKS)]}")
    columns = max(1, min(7, 100 // (max(map(len, marks)) + 6)))
    canvas.set_size_inches(9.5, 1.3 + 0.17 * len(rows) + 0.17 * math.ceil((len(marks) + 1) / columns))
    panels = canvas.subplots(1, len(units) + 1, squeeze=False, sharey=True)[0]
    for axis, unit in zip(panels, units, strict=False):
        mine = [cell for cell in found if cell.unit == unit]
        printed = {rows[_place(cell)]: cell.published for cell in mine}
        axis.plot(list(printed.values()), list(printed), "k|", markersize=9, markeredgewidth=1.4)
        for cell in mine:
            axis.plot(cell.modelled, rows[_place(cell)], marks[_label(cell)], fillstyle="none", markersize=5)
        _values(axis, unit, mine)
    errors = panels[-1]
    errors.axvspan(-100 * FAR, 100 * FAR, color="0.5", alpha=0.12, linewidth=0)
    errors.axvline(0, color="0.6", linewidth=0.8)
    for cell in found:
        errors.plot(100 * cell.error, rows[_place(cell)], marks[_label(cell)], fillstyle="none", markersize=5)
    errors.set(xlabel=f"error, % (shaded: within {FAR:.0%})")
    panels[0].set(ylim=(len(rows) - 0.4, -0.6))
    panels[0].set_yticks(list(rows.values()), list(rows))
    models = [(cell.model, cell.system) for cell in {_place(cell): cell for cell in found}.values()]
    for axis in panels:
        axis.tick_params(axis="y", length=0)
        for row in range(1, len(rows)):
            if models[row] != models[row - 1]:
                axis.axhline(row - 0.5, color="0.85", linewidth=0.6, zorder=0)
    panels[0].plot([], [], "k|", markersize=9, markeredgewidth=1.4, label="published")
    for label, mark in marks.items():
        panels[0].plot([], [], mark, fillstyle="none", label=label)
    canvas.legend(loc="outside upper center", ncols=columns, fontsize="small")


def _enter(number: str) -> Callable[..., Result]:
    """Enter one table into the registry."""

    @figure(f"waferllm-table-{number}", SUMMARIES[number], f"He et al., WaferLLM (OSDI 2025), table {number}")
    def table(machine: Machine, max_cycle_level: int | None = None, progress: Progress | None = None) -> Result:
        """Calculate a table; nothing of it is simulated."""
        if progress is not None:
            progress.phase(f"table {number}")
        found = cells(machine, number)
        return Result([cell.as_dict() for cell in found], notes(found), lambda canvas: _draw(canvas, found))

    return table


for _number in SUMMARIES:
    _enter(_number)
