"""R2 is a matrix-vector product on one PE, ``y += A x`` by columns, as `@map` of a multiply-add over x
(``matvec.csl``).

Per repetition three DSRs are loaded (y, A and x), then per element of x there is one fmacs of the padded column length,
whose A DSR keeps its address.

A `@map` of a multiply-add is a loop without overhead: one instruction that takes its element of x from memory itself
and is done as often as x has elements.  Banks: y and A start at a multiple of
16 bytes, A is used from its second word on, so the streams never share a bank.

Sources: lingzhi227/MIMD_dataflow (2benchmarks/14-single-tile-matvec), the vendor's single-tile-matvec example.
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.kit.session import Session
from harness.validation.recipe import Measurement, Point, Tell, integer, recipe
from harness.validation.sources import fitting
from wse_core.params import Machine

__all__ = ["multiply", "sizes"]


def multiply(
    machine: Machine, n: int, rows: int, repetitions: int, a: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[int, np.ndarray]:
    """Return (cycles between the stamps, result); `a` has shape (n, rows): column after column."""
    specification = fitting(
        f"{n} columns of {rows} elements", machine, "matvec", n=n, rows=rows, repetitions=repetitions
    )
    data = {"a": np.concatenate([[0], np.ravel(a)]), "x": x, "y": y}
    inputs = [(k, np.asarray(v, np.float32).reshape(1, 1, -1), 0, 0) for k, v in data.items()]
    session = Session(specification, inputs, task=None)
    first, last = session.stamps()
    return int(last[0, 0] - first[0, 0]), session.read("y").view(np.float32).ravel()


def sizes(point: Point) -> tuple[int, int, int]:
    """Return elements of x, elements of y and repetitions of a point."""
    n = integer(point["params"], "N")
    rows = integer(point["params"], "padded_rows", -(-n // 4) * 4)
    return n, rows, integer(point["params"], "iterations", 1)


@recipe(
    "R2",
    ("matvec-1pe",),
    "matrix-vector product of one PE with @map",
    ("pe_grid", "N", "padded_rows", "iterations", "dtype"),
)
def matvec(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the product of the point."""
    n, rows, repetitions = sizes(point)
    rng = np.random.default_rng(n)
    a, x = rng.standard_normal((n, rows)), rng.standard_normal(n)
    return Measurement(multiply(machine, n, rows, repetitions, a, x, np.zeros(rows))[0])
