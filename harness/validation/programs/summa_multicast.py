"""R8 has spans of tasks in a SUMMA with hand-written multicast, read from a trace of one PE.

*Compute task.*  The last local product of the PE: as many fmacs as the point says (four products of 14 x 14 tiles, all
in one task; ``products.csl``, with the product of `harness.validation.programs.summa_library`).  Span: from the first
instruction to the end, between two stamps.

*Send.*  One tile sent by a microthread, from the issue of the operation to the first instruction of the task that it
activates on completion; nothing else runs (``send.csl``).

Source: Wang-oss-tech/csl-experiments (gemm/summa_manual_multicasting_pipelined_doubleColor), the vendor's simulator.
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.kit.session import Session
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, grid, integer, recipe
from harness.validation.sources import fitting
from wse_core.params import Machine

__all__ = ["products", "send"]


def products(machine: Machine, t: int, count: int, a: np.ndarray, b: np.ndarray) -> tuple[int, np.ndarray]:
    """Return (cycles, C) of `count` products of the same tiles, summed up; tiles as float32 of shape (t, t)."""
    specification = fitting(f"tiles of {t} x {t}", machine, "products", t=t)
    inputs = [(k, v.T.reshape(1, 1, -1).copy(), 0, 0) for k, v in (("a", a), ("b", b))]
    session = Session(specification, [*inputs, ("count", np.full((1, 1, 1), count, np.uint16), 0, 0)], task=None)
    first, last = session.stamps()
    return int(last[0, 0] - first[0, 0]), session.read("c").view(np.float32).reshape(t, t).T


def send(machine: Machine, words: int) -> tuple[int, np.ndarray]:
    """Return (cycles, received words) of one asynchronous send to the neighbour."""
    specification = fitting(f"{words} words", machine, "send", words=words)
    data = np.arange(words, dtype=np.uint32).reshape(1, 1, -1)
    session = Session(specification, [("data", data, 0, 0)], task=None)
    first, last = session.stamps()
    reading = machine["ce.tsc_read"] + 3  # the stamp before the issue, with its three stores
    return int(last[0, 0] - first[0, 0]) - reading, session.read("result", 1).ravel()


@recipe(
    "R8",
    ("gemm-summa-sim",),
    "spans of tasks of a SUMMA with hand-written multicast",
    ("pe_grid", "tile", "fmacs", "words", "dtype"),
)
def summa_multicast(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the task that the point describes."""
    params = point["params"]
    if "words" in params:
        return Measurement(send(machine, integer(params, "words"))[0], "fabric, two PEs")
    tile = grid(params, "tile", 3)
    if len(set(tile)) != 1:
        raise CannotRun("only square tiles")
    if "fmacs" not in params:
        raise CannotRun("a whole SUMMA with two colors: only spans of its tasks are rebuilt, and no fmacs are stated")
    t, fmacs = tile[0], integer(params, "fmacs")
    if fmacs % t**2:
        raise CannotRun(f"{fmacs} multiply-adds are no whole number of products of {t} x {t} tiles")
    rng = np.random.default_rng(t)
    a, b = rng.standard_normal((2, t, t)).astype(np.float32)
    return Measurement(products(machine, t, fmacs // t**2, a, b)[0], "fabric, one PE")
