"""R7 is a single vector operation at a time.

*Between two time stamps* (``vector.csl``): ``C = C * B`` (fmuls, fp32), or a sum or difference, with DSRs loaded
before; what the source calls "no bank conflict" is an offset of two 32-bit words between the two streams (half of the
banks), "same bank" is none.

*Issue to issue*: the distance of consecutive fmacs of an inner loop of a matrix product, between which the trace has
15 scalar instructions.  Here they are the load of the next multiplier, which the fmacs needs at once, and 14 others
(``multiply_adds.csl``).

Sources: SPMM (pr0f3ss/SpMM_Cerebras, fmacs_test), lingzhi227/MIMD_dataflow (Systolic_Mul_v3/debug/fmacs.txt).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fabric.kernels.kit.session import Session
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, integer, recipe
from harness.validation.sources import compiled
from wse_core.params import Machine

__all__ = ["OPERATIONS", "distance", "operate"]

CONFLICT_FREE = ("no bank conflict",)


def _conflict(params: Mapping[str, Any]) -> bool:
    """Return whether the operands share a bank class."""
    text = params.get("alignment")
    if text is None:
        raise CannotRun("the point does not say whether the operands share a bank")
    return text not in CONFLICT_FREE


OPERATIONS = {"c*b": "fmuls", "c+b": "fadds", "c-b": "fsubs"}
"""A workload without blanks contains one of these -> operation, in the order of ``vector.csl``."""
SHIFT = 2
"""So many elements stand before B, which put it into the other half of the banks."""


def operate(
    machine: Machine, n: int, conflict: bool, op: str = "fmuls"
) -> tuple[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return (cycles between the stamps, data) of ``C = C op B``; data are C before, B, C after, as float32."""
    shift = 0 if conflict else SHIFT
    specification = compiled(machine, "vector", n=n, op=list(OPERATIONS.values()).index(op), shift=shift)
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal((2, n)).astype(np.float32)
    b = np.zeros(n + SHIFT, np.float32)
    b[shift : shift + n] = y
    session = Session(specification, [("c", x.reshape(1, 1, -1), 0, 0), ("b", b.reshape(1, 1, -1), 0, 0)], task=None)
    first, last = session.stamps()
    return int(last[0, 0] - first[0, 0]), (x, y, session.read("c").view(np.float32).ravel())


def distance(
    machine: Machine, n: int, conflict: bool, scalars: int = 15
) -> tuple[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return (cycles from one fmacs to the next with `scalars` instructions between, data).

    The data are A, b and ``A b1 + A b2`` as float32: both fmacs add A times a multiplier to a C that starts as zeros.
    """

    rng = np.random.default_rng(n)
    a, b = rng.standard_normal(n).astype(np.float32), rng.standard_normal(2).astype(np.float32)
    shift = 0 if conflict else 1
    times = []
    for rounds in (2, 1):
        specification = compiled(machine, "multiply_adds", n=n, scalars=scalars, rounds=rounds, shift=shift)
        data = {"a": np.pad(a, (shift, 1 - shift)), "b": b}
        session = Session(specification, [(k, v.reshape(1, 1, -1), 0, 0) for k, v in data.items()], task=None)
        first, last = session.stamps()
        times.append(last[0, 0] - first[0, 0])
        if rounds == 2:
            result = session.read("c").view(np.float32).ravel()
    return int(times[0] - times[1]), (a, b, result)


@recipe(
    "R7",
    ("vector-op",),
    "one vector operation, between two time stamps or issue to issue",
    ("pe_grid", "elements", "alignment", "dtype"),
)
def vector_operation(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the operation that the point describes."""
    params, workload = point["params"], point.get("workload", "").lower()
    n = integer(params, "elements")
    if "not recorded" in workload:
        raise CannotRun("the source does not say which operation ran, nor with which operands")
    if "issue" in workload or workload.startswith("same with"):
        return Measurement(distance(machine, n, _conflict(params))[0])
    for words, op in OPERATIONS.items():
        if words in workload.replace(" ", ""):
            return Measurement(operate(machine, n, _conflict(params), op)[0])
    raise CannotRun("the point describes no operation that is known here")
