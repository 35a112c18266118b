"""R2: matrix-vector product on one PE, ``y += A x`` by columns, as `@map` of a multiply-add over x.

Per repetition three DSRs are loaded (y, A and x of the original; x has a DSR here too, though its elements are read by
scalar loads), then per element of x one fmacs of the padded column length, whose A DSR keeps its address.

Compiled stream: the machine has a loop without overhead for `@map`, which this model has not.  The body is unrolled
instead: per element a load of x_j and the fmacs, with the loads of three elements together.  The repetitions are a
counted loop.  Banks: y and A start at a multiple of 16 bytes, A is used from its second word on, so the streams never
share a bank.

Sources: lingzhi227/MIMD_dataflow (2benchmarks/14-single-tile-matvec), the vendor's single-tile-matvec example.
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.kit.session import Session, Stamps
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.validation.recipe import Measurement, Point, Tell, integer, recipe
from wse_core.params import Machine

__all__ = ["multiply"]


def program(machine: Machine, n: int, rows: int, repetitions: int) -> Program:
    """Return the program: n columns of `rows` elements each."""
    p = Program("matvec", machine)
    y = p.array("y", rows, "f32", align=8)
    a = p.array("a", n * rows, "f32", bank=2)
    x = p.array("x", n, "f32")
    stamps = Stamps(p)

    def repetition() -> None:
        p.load(total, y)
        p.load(column, p.mem1d(a, rows, save=True))
        p.load(elements, p.mem1d(x, n))
        for j in range(n):
            if j % len(factors) == 0:
                for k, factor in enumerate(factors[: n - j]):
                    p.ld32(factor, x, offset=2 * (j + k))
            p.fmacs(total, total, column, factors[j % len(factors)])

    with p.task("main"):
        total, column, elements = p.dsr("src0"), p.dsr("src1"), p.dsr("src1")
        factors = [p.reg32(f"x{k}") for k in range(3)]
        stamps.start()
        if repetitions == 1:
            repetition()
        else:
            with p.loop(repetitions):
                repetition()
        stamps.stop()
    return p


def multiply(
    machine: Machine, n: int, rows: int, repetitions: int, a: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[int, np.ndarray]:
    """Return (cycles between the stamps, result); `a` has shape (n, rows): column after column."""
    layout = Layout(1, 1, machine)
    layout.place(program(machine, n, rows, repetitions), 0, 0)
    data = {"a": a, "x": x, "y": y}
    session = Session(layout, [(k, np.asarray(v, np.float32).reshape(1, 1, -1), 0, 0) for k, v in data.items()])
    first, last = session.stamps()
    return int(last[0, 0] - first[0, 0]), session.read("y").view(np.float32).ravel()


@recipe(
    "R2",
    ("matvec-1pe",),
    "matrix-vector product of one PE with @map",
    ("pe_grid", "N", "padded_rows", "iterations", "dtype"),
)
def matvec(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the product of the point."""
    n = integer(point["params"], "N")
    rows = integer(point["params"], "padded_rows", -(-n // 4) * 4)
    repetitions = integer(point["params"], "iterations", 1)
    rng = np.random.default_rng(n)
    a, x = rng.standard_normal((n, rows)), rng.standard_normal(n)
    return Measurement(multiply(machine, n, rows, repetitions, a, x, np.zeros(rows))[0])
