"""Tables 2 to 8 of WaferLLM: every cell as printed, as composed here by two programs at two clocks, and the error.

What the programs are and what is behind their numbers stands in `harness.inference`.  The picture has the cells in the
order of the table: values on the left, errors on the right, between lines at 15 %.
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


def _draw(canvas: Figure, found: Sequence[Cell]) -> None:
    """Paint published and modelled values, and errors."""
    places = {place: k for k, place in enumerate(dict.fromkeys((c.model, c.system, c.setting) for c in found))}
    values, errors = canvas.subplots(1, 2)
    printed = {places[cell.model, cell.system, cell.setting]: cell.published for cell in found}
    values.plot(list(printed), list(printed.values()), "k_", markersize=14, label="published")
    for k, label in enumerate(dict.fromkeys(map(_label, found))):
        mine = [cell for cell in found if _label(cell) == label]
        at = [places[cell.model, cell.system, cell.setting] for cell in mine]
        values.plot(at, [cell.modelled for cell in mine], "o", color=f"C{k % 10}", fillstyle="none", label=label)
        errors.plot(at, [100 * cell.error for cell in mine], "o", color=f"C{k % 10}", fillstyle="none")
    values.set(yscale="log", ylabel=found[0].unit)
    errors.set(ylabel="error, %")
    for height in (-100 * FAR, 0, 100 * FAR):
        errors.axhline(height, color="0.6", linewidth=0.8)
    names = [" ".join(part for part in place if part) for place in places]
    for axis in (values, errors):
        axis.set_xticks(list(places.values()), names, rotation=90, fontsize=max(3, min(7, 160 / len(names))))
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
