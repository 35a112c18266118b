"""One decoder layer of LLaMA3-8B has its true sizes here: the products of a step of decode, every cycle simulated.

Queries, keys and values are one product, gate and up another, as in program B of `harness.inference`.  Each runs on a
square of `DEFAULT_SIDE` PEs a side, the mesh on which the paper decodes this model, or on that of `--max-cycle-level`,
with random weights, f32 sums and the result given back to every PE of its line; results are compared with numpy in the
order of the PEs.  What they are not: one program with the cache between them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fabric.host.resident import peak_bytes
from fabric.kernels.registry import KERNELS
from fabric.networks.inference.decoder import Decoder
from harness.figures import Result, figure
from harness.inference.costs import cdiv, even
from harness.models.presets import PRESETS
from traces.style import grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = ["DEFAULT_SIDE", "layer", "products"]

MODEL = "LLaMA3-8B"
DEFAULT_SIDE = 360


def products(decoder: Decoder) -> dict[str, tuple[int, int]]:
    """Return (outputs, inputs) of the products of a layer, those of one input taken together."""
    shapes = decoder.shapes()

    def fused(*names: str) -> tuple[int, int]:
        return sum(shapes[name][0] for name in names), shapes[names[0]][1]

    return {
        "q, k, v": fused("q_proj", "k_proj", "v_proj"),
        "O": shapes["o_proj"],
        "gate, up": fused("gate_proj", "up_proj"),
        "down": shapes["down_proj"],
    }


def layer(machine: Machine, decoder: Decoder, side: int, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Run the products of a layer on a square; return a row for each."""
    rows, found = [], products(decoder)
    for done, (name, (outputs, inputs)) in enumerate(found.items()):
        begun = time.process_time()
        result = KERNELS["gemv"].run(machine, p=side, height=side, m=outputs, n=inputs, broadcast=True, replicated=True)
        tile = even(cdiv(outputs, side)), cdiv(inputs, side)
        rows.append(
            {
                "product": name,
                "outputs": outputs,
                "inputs": inputs,
                "side": side,
                "tile": f"{tile[0]}x{tile[1]}",
                "cycles": int(result["cycles"]),
                "closed_form": int(result["expected_cycles"]),
                "error": result["expected_cycles"] / result["cycles"] - 1,
                "verified": bool(result["verified"]),
                "host_seconds": time.process_time() - begun,
                "host_gigabytes": peak_bytes() / 1e9,
            }
        )
        if progress is not None:
            progress.update(done + 1, len(found), product=name)
    return rows


@figure(
    "waferllm-layer",
    "products of one decoder layer of LLaMA3-8B at their true sizes, cycle by cycle",
    "He et al., WaferLLM (OSDI 2025), section 4.2",
)
def waferllm_layer(machine: Machine, max_cycle_level: int | None = None, progress: Progress | None = None) -> Result:
    """Run the layer; see the head of this module."""
    side = DEFAULT_SIDE if max_cycle_level is None else max_cycle_level
    if progress is not None:
        progress.phase(f"{MODEL} on {side} x {side} PEs")
    rows = layer(machine, PRESETS[MODEL], side, progress)
    total = sum(row["cycles"] for row in rows)
    notes = {
        "cycles of all products": total,
        "verified": "yes" if all(row["verified"] for row in rows) else "no",
        "largest error of the closed form": max((row["error"] for row in rows), key=abs),
        "processor seconds of the host": sum(row["host_seconds"] for row in rows),
        "most memory of the host, GB": rows[-1]["host_gigabytes"],
    }
    return Result(rows, notes, lambda canvas: _draw(canvas, rows))


def _draw(canvas: Figure, rows: Sequence[dict[str, Any]]) -> None:
    """Paint cycles, simulated and by the closed form."""
    axis = canvas.subplots()
    places = range(len(rows))
    axis.bar([k - 0.2 for k in places], [row["cycles"] for row in rows], 0.4, label="simulated")
    axis.bar([k + 0.2 for k in places], [row["closed_form"] for row in rows], 0.4, label="closed form")
    axis.set_xticks(list(places), [f"{row['product']}\n{row['outputs']:,} x {row['inputs']:,}" for row in rows])
    axis.set(ylabel="cycles", title=f"{rows[0]['side']} x {rows[0]['side']} PEs")
    for row, place in zip(rows, places, strict=True):
        axis.annotate(f"{row['error']:+.2%}", (place, row["cycles"]), ha="center", va="bottom")
    grouped(axis.yaxis)
    axis.legend()
