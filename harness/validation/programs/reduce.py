"""R3: reduce of one vector per PE along a line to PE 0, in two phases; with one group it is the plain chain.

512 PEs by default, all starting together (``reduce.csl``).  Two alternating colors.  The far end of each group sends
its vector toward PE 0, inner PEs add theirs to what passes (one fused addition from fabric to fabric), leaders first
add what their group sends into memory, then the partial sum of the next leader, fused with sending on; the last leader
fuses its first phase with sending.  Routers between leaders are switched to pass on by a control wavelet behind the
data.  The kernel `reduce` has the same algorithm as ``two_phase``.

Value: from the first to the second time stamp of PE 0.  The published value is the second time stamp less a constant
(48) for what comes before the first; the two may differ by a constant number of cycles.

Source: pr0f3ss/SpMM_Cerebras, src/mpi_collectives/reduce_0_pe/reduce_2colors_2phase.
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.kit.session import Session
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, grid, integer, recipe
from harness.validation.sources import fitting
from wse_core.errors import InternalError
from wse_core.params import Machine

__all__ = ["expected", "reduce_1d", "total"]


def total(machine: Machine, x: np.ndarray, group: int, is_row: bool = True) -> tuple[int, np.ndarray]:
    """Return (cycles of PE 0 between its stamps, the sum).

    Parameters
    ----------
    x : ndarray of float32, shape (PEs, words)
    group : int
        PEs of a group.
    is_row : bool
        Whether the PEs are a row; else they are a column.
    """
    pes, words = x.shape
    what = f"{words} words on each of {pes} PEs"
    shape = (1, pes, words) if is_row else (pes, 1, words)
    limit = machine["fabric.width" if is_row else "fabric.height"]
    if pes > limit:
        raise CannotRun(f"{pes} PEs in a line: the fabric has {limit}")
    specification = fitting(what, machine, "reduce", pes=pes, words=words, group=group, is_row=int(is_row))
    inputs = [("x", x.reshape(shape), 0, 0)] if pes > 1 else []  # one PE alone looks at nothing
    session = Session(specification, inputs, task=None)
    first, last = session.stamps()
    found = session.read("x").view(np.float32).ravel() if pes > 1 else x[0]
    return int(last[0, 0] - first[0, 0]), found


def expected(x: np.ndarray, group: int) -> np.ndarray:
    """Return the sum in the order of the PEs: each adds what arrives to its own."""
    found: np.ndarray | None = None
    for first in range((len(x) - 1) // group * group, -1, -group):
        *others, part = x[first : first + group]
        for own in others[::-1]:
            part = own + part
        found = part if found is None else part + found
    assert found is not None
    return found


@recipe(
    "R3", ("reduce-1d",), "two-phase reduce along a row to PE 0", ("pe_grid", "words_per_pe", "group_size", "dtype")
)
def reduce_1d(machine: Machine, point: Point, progress: Tell | None) -> Measurement:
    """Run a point: pe_grid ("512x1"), words_per_pe, group_size (missing: one group, the chain)."""
    params = point["params"]
    width, height = grid(params, "pe_grid")
    words, group = integer(params, "words_per_pe"), integer(params, "group_size", width * height)
    if params.get("dtype", "f32") != "f32":
        raise CannotRun(f"dtype {params['dtype']!r}: the recipe is for fp32")
    if min(width, height) != 1:
        raise CannotRun(f"{width} x {height} PEs are no line")
    pes = width * height
    group = min(group, pes)
    if progress is not None:
        progress(f"reduce of {words} words over {width} x {height} PEs in groups of {group}")
    x = np.random.default_rng(pes).standard_normal((pes, words)).astype(np.float32)
    cycles, found = total(machine, x, group, height == 1)
    if not np.array_equal(found, expected(x, group)):
        raise InternalError("the sum is wrong", where="recipe R3", **{key: params[key] for key in params})
    return Measurement(cycles)
