"""Random programs of one PE that compute in memory: every three-operand operation, any place, stride and overlap.

What the engine does in bulk depends on formats, lengths, distances modulo banks, descriptors that keep their address,
and on what the main thread does next.  Banks are drawn too, powers of two and others.  Data hold every kind of number.
"""

import numpy as np

from fabric.layout.layout import Layout
from fabric.program.program import Program
from wse_core.params import machine

__all__ = ["random_vectors"]

OPS = {
    "fadds": ("f32", "f32", "f32"),
    "fsubs": ("f32", "f32", "f32"),
    "fmuls": ("f32", "f32", "f32"),
    "fmacs": ("f32", "f32", "f32"),
    "faddh": ("f16", "f16", "f16"),
    "fsubh": ("f16", "f16", "f16"),
    "fmulh": ("f16", "f16", "f16"),
    "fmach": ("f16", "f16", "f16"),
    "faddhs": ("f32", "f16", "f32"),
    "fmachs": ("f32", "f32", "f16"),
    "fmaxs": ("f32", "f32", "f32"),
}
"""Name: formats of the destination and of the two sources."""
SIZE = 96  # elements of each of the two arrays


def _machine(rng):
    changes = {
        name: rng.choice(values)
        for name, values in {
            "mem.banks": (1, 2, 3, 4, 6, 8, 16, 64),
            "mem.conflict_rule": ("mod4", "bank", "none"),
            "mem.conflict_cycles": (1, 2),
            "mem.write_cycles": (0, 1, 3),
            "mem.read_ports": (1, 2),
            "vec.start": (0, 1, 2),
            "vec.drain": (0, 2),
            "ce.load_latency": (1, 3),
            "ce.fp_latency": (1, 4),
            "num.ftz": (0, 1),
        }.items()
        if rng.chance(0.3)
    }
    return machine(rng.choice(("wse2", "wse3")), changes)


def random_vectors(rng):
    """Return the `FabricSpec` of a PE with a loop of vector operations and scalar code."""
    m = _machine(rng)
    p = Program("vectors", m, half=rng.choice(("f16", "cb16")))
    noise = rng.noise()
    values = np.array(
        [noise.choice((0.0, -0.0, 1.0, -2.5, 1e-7, 6e4, np.inf, np.nan, noise.uniform(-9, 9))) for _ in range(SIZE)]
    )
    p.array("before", rng.randint(1, 9), "u16")
    arrays = {"f32": p.array("s", SIZE, "f32", values)}
    p.array("between", rng.randint(1, 9), "u16")
    arrays["f16"] = p.array("h", SIZE, p.half, np.clip(values, -9, 9))

    def walk(kind, n, save):
        stride = rng.choice((1, 1, 1, 1, 0, 2, 3, 4, 8, -1))
        while (n - 1) * abs(stride) >= SIZE:
            stride = rng.choice((0, 1))
        reach = (n - 1) * stride
        offset = rng.randint(max(0, -reach), SIZE - 1 - max(0, reach))
        return p.mem1d(arrays[kind], n, stride=stride, offset=offset, save=save, check=False)

    with p.task("main"):
        scalar = {"f32": p.reg32("k"), "f16": p.reg16("k16")}
        p.ldi32(scalar["f32"], 0x3FC00000)
        p.ldi(scalar["f16"], 0x3E00)
        counter, turns = p.reg16("counter"), p.reg16("turns")
        p.ldi(counter, 0)
        done = []

        def multiplier(kind):
            if rng.chance(0.6):
                return scalar[kind]
            dsr = p.dsr(rng.choice(("src0", "src1")))  # an element of memory for each operation
            p.load(dsr, walk(kind, rng.choice((6, 30)), rng.chance(0.5)))
            return dsr

        def operation():
            op, n, saves = rng.choice(list(OPS)), rng.choice((1, 2, 3, 4, 5, 8, 17, 31, 60)), rng.chance(0.3)
            dsrs = []
            for file, kind in zip(("dest", "src0", "src1"), OPS[op], strict=True):
                dsr = p.dsr(file)
                p.load(dsr, walk(kind, n, saves and rng.chance(0.5)))
                dsrs.append(dsr)
            if rng.chance(0.3):
                dsrs[0] = dsrs[1] if OPS[op][0] == OPS[op][1] else dsrs[0]
            times = rng.randint(1, 5) if rng.chance(0.3) else None
            done.append((op, dsrs, multiplier(OPS[op][2]) if op.startswith("fmac") else None, times))

        rng.several(1, 5, operation)
        with p.loop(rng.randint(1, 6)):
            for op, dsrs, k, times in done:
                if rng.chance(0.5):
                    p.ld16(scalar["f16"], arrays["f16"], offset=rng.randrange(SIZE))
                if times is not None:
                    p.ldi(turns, times)
                getattr(p, op)(*dsrs, *([k] if k is not None else []), again=None if times is None else turns)
                if rng.chance(0.3):
                    p.add16(counter, counter, 1)
    p.start("main")
    layout = Layout(1, 1, m)
    layout.place(p, 0, 0)
    return layout.build()
