"""Tables 2 to 8 of WaferLLM: every cell as printed, as composed here by two programs at two clocks, and the error.

What the programs are and what is behind their numbers stands in `harness.inference`.  The picture has the cells in the
order of the table: values on the left, a panel for each unit, errors on the right, between lines at 15 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from harness.figures import Result, figure
from harness.inference.tables import FAR, Cell, cells, ratios

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = ["SUMMARIES", "notes"]

SUMMARIES = {
    "2": "tokens per second of whole requests",
    "3": "tokens per second of prefill, prompts of 4,096 tokens",
    "4": "tokens per second of decode",
    "5": "tokens that a cache holds",
    "6": "MeshGEMV against an A100",
    "7": "MeshGEMM against an A100",
    "8": "whole inference against an A100",
}


def _label(cell: Cell) -> str:
    """Return what a modelled value is called in the legend."""
    return cell.program if cell.gigahertz is None else f"{cell.program}, {cell.gigahertz:g} GHz"


def notes(found: Sequence[Cell]) -> dict[str, Any]:
    """Return, per kind of modelled value, cells within 15 % and the largest error; and whether more PEs help."""
    kinds: dict[str, list[Cell]] = {}
    for cell in found:
        kinds.setdefault(_label(cell), []).append(cell)
    counts: dict[str, Any] = {
        name: f"{sum(abs(cell.error) <= FAR for cell in mine)} of {len(mine)} cells within {FAR:.0%}, worst "
        f"{max((cell.error for cell in mine), key=abs):+.1%}"
        for name, mine in kinds.items()
    }
    if found[0].table not in ("3", "4"):
        return counts
    clock = next(cell.gigahertz for cell in found if cell.gigahertz is not None)
    for model in dict.fromkeys(cell.model for cell in found):
        both = {name: ratios(found, model, name, clock) for name in ("A", "B")}
        counts[f"{model}: largest mesh over smallest"] = f"published {both['A']['published']:.2f}, " + ", ".join(
            f"{name} {ratio['modelled']:.2f}" for name, ratio in both.items()
        )
    return counts


def _place(cell: Cell) -> str:
    """Return where in a table a cell stands."""
    return " ".join(part for part in (cell.model, cell.system, cell.setting) if part)


def _draw(canvas: Figure, found: Sequence[Cell]) -> None:
    """Paint published and modelled values, seconds apart from what has another unit, and errors."""
    groups = [(unit, [cell for cell in found if cell.unit == unit]) for unit in dict.fromkeys(c.unit for c in found)]
    counts = [len(set(map(_place, mine))) for _, mine in groups]
    panels = canvas.subplots(1, len(groups) + 1, squeeze=False, width_ratios=[*counts, sum(counts)])[0]
    colours = {label: f"C{k % 10}" for k, label in enumerate(dict.fromkeys(map(_label, found)))}
    for axis, (unit, mine) in zip(panels, [*groups, ("error, %", found)], strict=True):
        places = {place: k for k, place in enumerate(dict.fromkeys(map(_place, mine)))}
        if axis is not panels[-1]:
            printed = {places[_place(cell)]: cell.published for cell in mine}
            label = "published" if axis is panels[0] else None
            axis.plot(list(printed), list(printed.values()), "k_", markersize=min(14, 240 / len(places)), label=label)
            axis.set(yscale="log")
        for cell in mine:
            height = 100 * cell.error if axis is panels[-1] else cell.modelled
            axis.plot(places[_place(cell)], height, "o", color=colours[_label(cell)], fillstyle="none")
        axis.set(ylabel=unit, xlim=(-0.6, len(places) - 0.4))
        axis.set_xticks(list(places.values()), list(places), rotation=90, fontsize=max(3, min(7, 160 / len(places))))
    for height in (-100 * FAR, 0, 100 * FAR):
        panels[-1].axhline(height, color="0.6", linewidth=0.8)
    for label, colour in colours.items():
        panels[0].plot([], [], "o", color=colour, fillstyle="none", label=label)
    canvas.legend(loc="outside upper center", ncols=7, fontsize="small")


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
