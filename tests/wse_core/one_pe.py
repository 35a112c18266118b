"""One PE of the reference machine between two streams, and one operation between two time stamps."""

from __future__ import annotations

import numpy as np

from tests.wse_core.test_reference_kit import (
    Code,
    assert_accounts,
    desc,
    dest,
    fabric,
    reg,
    register,
    route,
    src0,
    src1,
)
from wse_core.image import F_PACKED

COUNT = np.arange(1, 65, dtype=np.float32)


def between_time_stamps(name, rows, b=None, c=None, d=0, data=None, **parameters):
    """Return (machine, cycles between two time stamps around one operation); `rows` goes into dest, src0, src1."""
    code = Code()
    fields = []
    for field, row in zip((dest(0), src0(0), src1(0)), rows, strict=False):
        if row is not None:
            code.load(field, row)
        fields.append(field)
    fields += [b, c][len(fields) - 1 :]
    fields = [field for field in fields if field is not None]
    code("tsc", reg(9))
    code(name, *[*fields, 0, 0][:3], d)
    code("tsc", reg(12))
    code("done")
    machine = fabric(code.image(data=data, size=1024), **parameters)
    assert machine.run(3000) == "complete"
    assert_accounts(machine)
    return machine, register(machine, 12) - register(machine, 9)


def source(n, packed=False):
    """Return a fabric input of `n` elements from input queue 0."""
    return desc("fabin", n, queue=0, flags=F_PACKED if packed else 0)


ROUTES = {1: {(0, 0): route("W", "R")}, 2: {(0, 0): route("R", "E")}}
STREAMS = {"inputs": [(0, 0, "W", 1)], "outputs": [(0, 0, "E", 2)]}


def one_pe(code, **image):
    """Return a PE whose input queue 0 gets color 1 from a stream, and whose output queue 0 feeds one."""
    return fabric(code.image(inq={0: 1}, outq={0: 2}, **image), ROUTES, **STREAMS)
