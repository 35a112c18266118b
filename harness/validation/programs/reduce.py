"""R3: reduce of one vector per PE along a row to PE 0, in two phases; with one group it is the plain chain.

512 PEs by default, all starting together.  Two alternating colors.  The far end of each group sends its vector toward
PE 0, inner PEs add theirs to what passes (one fused addition from fabric to fabric), leaders first add what their group
sends into memory, then the partial sum of the next leader, fused with sending on; the last leader fuses its first
phase with sending.  Routers between leaders are switched to pass-through by a control wavelet behind the data.  This is
the algorithm ``two_phase`` of the kernel `reduce`, which also compares the sum bit for bit.

Value: from the first to the second time stamp of PE 0.  The published value is the second time stamp less a constant
(48) for what comes before the first; the two may differ by a constant number of cycles.

Source: pr0f3ss/SpMM_Cerebras, src/mpi_collectives/reduce_0_pe/reduce_2colors_2phase.
"""

from __future__ import annotations

from fabric.kernels import registry
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, grid, integer, recipe
from wse_core.errors import InternalError, WseError
from wse_core.params import Machine

__all__ = ["reduce_1d"]


@recipe(
    "R3",
    ("reduce-1d",),
    "two-phase reduce along a row to PE 0",
    ("pe_grid", "words_per_pe", "group_size", "dtype"),
    ("f32", "f16", "cb16"),
)
def reduce_1d(machine: Machine, point: Point, progress: Tell | None) -> Measurement:
    """Run a point: pe_grid ("512x1"), words_per_pe, group_size (missing: one group, the chain), dtype (f32)."""
    params = point["params"]
    width, height = grid(params, "pe_grid")
    words, group = integer(params, "words_per_pe"), integer(params, "group_size", width * height)
    dtype = params.get("dtype", "f32")
    if min(width, height) != 1:
        raise CannotRun(f"{width} x {height} PEs are no line")
    if progress is not None:
        progress(f"reduce of {words} words over {width} x {height} PEs in groups of {group}")
    try:
        result = registry.KERNELS["reduce"].run(
            machine,
            algorithm="two_phase",
            form="row" if height == 1 else "column",
            width=width,
            height=height,
            n=words if dtype == "f32" else 2 * words,
            group=min(group, width * height),
            dtype=dtype,
        )
    except WseError as error:
        raise CannotRun(str(error).splitlines()[0]) from None
    if not result["verified"]:
        raise InternalError("the sum is wrong", where="recipe R3", **{key: params[key] for key in params})
    return Measurement(result["cycles"])
