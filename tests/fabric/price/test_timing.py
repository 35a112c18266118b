"""The words of closed forms, each against a program that does what it says, on machines with other numbers."""

from __future__ import annotations

import pytest

from fabric.price import price_code, timing
from wse_core.params import machine

MACHINES = [{}, {"vec.start": 4}, {"vec.drain": 3}, {"ce.dsr_load": 5}]


@pytest.mark.parametrize("numbers", MACHINES, ids=str)
@pytest.mark.parametrize("preset", ["wse2", "wse3"])
@pytest.mark.parametrize(("op", "dtype", "n"), [("fadds", "f32", 7), ("fmulh", "f16", 20), ("fmovs", "f32", 9)])
def test_an_operation_takes_issue_steps_and_drain(preset, numbers, op, dtype, n):
    """Loads of descriptors, issue, steps and drain are all that it takes if reads do not meet in a bank."""
    m = machine(preset, {"mem.conflict_cycles": 0} | numbers)

    def write(p, arrays):
        getattr(p, op)(*arrays[: 2 if op == "fmovs" else 3])

    found = price_code(write, m, declare=lambda p: [p.array(name, n, dtype) for name in "xyz"])
    loads = timing.load(m, 2 if op == "fmovs" else 3)
    assert found.alone == loads + timing.elementwise(m, op, n)
    assert timing.elementwise(m, op, n) == timing.operation(m, timing.steps(m, op, n))
    assert timing.operation(m, 5) - timing.issue(m) == 5 + m["vec.drain"]
