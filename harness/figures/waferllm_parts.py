"""The parts behind tables 2 to 8 of WaferLLM are each set against a simulation of every cycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.figures import Result, figure
from harness.inference.parts import COUNT, UNMEASURED, ComparedPart, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = ["waferllm_parts"]


@figure(
    "waferllm-parts",
    "closed forms of the parts of an inference against simulations",
    "this model; the parts are those of He et al., WaferLLM (OSDI 2025)",
)
def waferllm_parts(machine: Machine, max_cycle_level: int | None = None, progress: Progress | None = None) -> Result:
    """Run every part and compare."""
    if progress is not None:
        progress.phase("parts")
    found: list[ComparedPart] = []
    for part in measured(machine):
        found.append(part)
        if progress is not None:
            progress.update(len(found), COUNT, part=part.name)
    worst = {
        f"largest error, {name}": max((part.error for part in found if part.name == name), key=abs)
        for name in dict.fromkeys(part.name for part in found)
    }
    notes = worst | {f"not measured: {name}": where for name, where in UNMEASURED.items()}
    return Result([part.as_dict() for part in found], notes, lambda canvas: _draw(canvas, found))


def _draw(canvas: Figure, found: Sequence[ComparedPart]) -> None:
    """Paint the error of each part."""
    axis = canvas.subplots()
    names = [f"{part.name}: {part.setting}" for part in found]
    errors = [100 * part.error for part in found]
    axis.hlines(names, 0, errors)
    axis.plot(errors, names, "o", markersize=4)  # what is exact is seen too
    axis.axvline(0, color="0.6", linewidth=0.8, zorder=0)
    axis.invert_yaxis()
    axis.tick_params(labelsize=6)
    most = max(5.0, 1.1 * max(map(abs, errors)))
    axis.set(xlabel="closed form over simulation, %", xlim=(-most, most))
