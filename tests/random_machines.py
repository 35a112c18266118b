"""Random machines for the comparison of the compiled engine with the plain-Python reference.

`random_spec(rng)` draws a whole `FabricSpec`: a small rectangle, one to three programs of random instructions that
touch everything the op table has, random routes with switches, filters, swap, injection and teardown, random machine
parameters.  The programs make no sense on purpose: they starve, block, collide and fault, and both machines must do so
in the same cycle.  `random_inputs` draws what the host sends.  `tests.draw` has the two kinds of `rng`.

Thousands of them, and of `tests.random_traffic`, `tests.random_vectors` and `tests.random_fifos`, are compared by
``python -m tests.random_machines --seeds 0:5000``; a difference is one line with the seed it belongs to.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from wse_core import image as im
from wse_core import isa
from wse_core.encoding import N_BINDINGS, N_QUEUES, N_TASK_IDS
from wse_core.isa import FILE_DEST, FILE_REG, FILE_SRC0, FILE_SRC1, encode
from wse_core.params import machine

N_COLORS = 6
REG = FILE_REG << 4


def random_machine(rng):
    """Return a machine with some numbers changed: most bugs hide behind a default."""
    changes = {}
    if rng.chance(0.5):
        for name, values in {
            "router.hop": (1, 2),
            "router.depth": (1, 2, 3),
            "ramp.in": (1, 2, 3),
            "ramp.out": (1, 2),
            "ramp.execute": (1, 2),
            "ramp.in_buffer": (0, 1, 2),
            "task.start": (0, 1, 3),
            "vec.start": (0, 1, 2),
            "vec.drain": (0, 1, 2),
            "mem.conflict_rule": ("mod4", "bank", "none"),
            "mem.conflict_cycles": (1, 2),
            "mem.write_cycles": (0, 1, 3),
            "mem.read_ports": (1, 2),
            "ce.fp_latency": (1, 2, 4),
            "ce.load_latency": (1, 3),
            "ce.int_latency": (1, 2),
            "ce.branch_taken": (1, 6),
            "ce.dsr_load": (1, 6),
            "ce.dsr_dimension": (0, 3, 8),
            "task.priority_rule": ("lowest", "round_robin"),
            "num.cb16_bias": (31, 42),
            "num.ftz": (0, 1),
        }.items():
            if rng.chance(0.4):
                changes[name] = rng.choice(values)
    return machine(rng.choice(("wse2", "wse2", "wse3")), changes)


FLAGS = ((im.F_INDEX, 0.2), (im.F_CONTROL, 0.1), (im.F_ADVANCE, 0.2), (im.F_ZERO, 0.1), (im.F_FLUSH, 0.2))
"""Flags of an output descriptor, and how often each is drawn."""


class _Writer:
    """A random program under construction."""

    def __init__(self, rng, name, colors, m):
        self.rng, self.name, self.m = rng, name, m
        self.code, self.descriptors = [], []
        self.bases = []  # code words with the base of a descriptor
        self.entry = np.full(32, -1, np.int32)
        self.control_entry = np.full(64, -1, np.int32)
        in_depth, out_depth = m["queue.in_depth"], m["queue.out_depth"]
        inq = [k for k in range(N_BINDINGS) if in_depth[k % N_QUEUES]]
        outq = [k for k in range(N_BINDINGS) if out_depth[k % N_QUEUES]]
        self.inq = dict(zip(rng.sample(inq, min(len(inq), len(colors))), rng.sample(colors, len(colors)), strict=False))
        self.outq = dict(
            zip(rng.sample(outq, min(len(outq), len(colors))), rng.sample(colors, len(colors)), strict=False)
        )
        self.n_data = 160
        self.fifos = rng.randint(0, 2)

    def emit(self, name, a=0, b=0, c=0, d=0, imm=None):
        self.code += encode(isa.BY_NAME[name], a, b, c, d, imm)

    def reg(self, words):
        return REG | (self.rng.randrange(0, 12 if words == 1 else 6) * words)

    def data_address(self, words=1):
        # Symbolic until the code size is known: data start at BASE, fixed up in `finish`.
        a = self.rng.randrange(0, self.n_data - 40)
        return 4096 + (a - a % words if self.rng.chance(0.97) else a)

    def descriptor(self, kind, words):
        rng = self.rng
        d = np.zeros((), im.DESC_DTYPE)
        d["push_task"] = d["pop_task"] = d["control_task"] = im.NO_TASK
        d["kind"] = kind
        n = rng.choice((0, 1, 2, 3, 5, 8, 13, 20))
        d["extent"] = (n, 1, 1, 1)
        d["stride"] = (1, 1, 1, 1)
        d["ndim"] = 1
        d["base"] = self.data_address(words)
        if kind == im.DSD_MEM1D:
            d["stride"][0] = rng.choice((1, 1, 1, 0, 2, 3, -1, 4, 8))
            if d["stride"][0] < 0:
                d["base"] += 24
            d["flags"] = im.F_SAVE if rng.chance(0.2) else 0
            if rng.chance(0.1):
                d["flags"] |= im.F_INDEX
        elif kind == im.DSD_MEM4D:
            d["ndim"] = rng.randint(1, 3)
            d["extent"] = [rng.randint(1, 4) for _ in range(4)]
            d["stride"] = [rng.randint(0, 4) for _ in range(4)]
        elif kind == im.DSD_CIRCULAR:
            d["length"] = rng.randint(1, 9)
            d["index"] = rng.randrange(0, int(d["length"]))
            d["flags"] = im.F_SAVE if rng.chance(0.3) else 0
        elif kind == im.DSD_FIFO:
            d["xdsr"] = rng.randrange(0, max(1, self.fifos))
            d["length"] = 4 + int(d["xdsr"])
            d["base"] = 4096 + self.n_data - 40 + 20 * int(d["xdsr"])
            d["flags"] = im.F_TERMINATE if rng.chance(0.3) else 0
            if rng.chance(0.3):
                d["push_task"] = rng.choice(self.tasks)
            if rng.chance(0.3):
                d["pop_task"] = rng.choice(self.tasks)
        elif kind == im.DSD_FABIN:
            d["queue"] = rng.choice(list(self.inq))
            d["flags"] = im.F_PACKED if self.packed else 0
            d["on_control"] = rng.choice((0, 0, 1, 2, 3, 4, 7))
            d["control_task"] = rng.choice(self.tasks)
            if rng.chance(0.05):
                d["extent"][0] = im.ENDLESS
        elif kind == im.DSD_FABOUT:
            d["queue"] = rng.choice(list(self.outq))
            d["flags"] = im.F_PACKED if self.packed else 0
            d["index"] = rng.randrange(0, 1 << 16)
            for flag, chance in FLAGS:
                if rng.chance(chance) and not (self.plain and flag in (im.F_CONTROL, im.F_ADVANCE)):
                    d["flags"] |= flag
        self.descriptors.append(d)
        return len(self.descriptors) - 1

    def load(self, file, number, kind, words):
        base, descriptor = 0, self.descriptor(kind, words)
        if kind == im.DSD_MEM1D and self.m["ce.dsr_load"] == 4 and self.rng.chance(0.3):
            base = self.reg(1)
            self.emit("ldi", base, imm=int(self.descriptors[-1]["base"]))
            self.bases.append(len(self.code) - 1)
        self.emit("dsr_load", file << 4 | number, base, imm=descriptor)
        return file << 4 | number

    def vector(self):
        rng = self.rng
        op = rng.choice([o for o in isa.OPS if o.form == "alu" and o.lanes[0]])
        wa, wb, wc, wd = (isa.WORDS[t] for t in op.types)
        self.packed = rng.chance(0.6)
        memory = (im.DSD_MEM1D,) * 6 + (im.DSD_MEM4D, im.DSD_CIRCULAR)
        sources = memory + ((im.DSD_FABIN,) * 6 if self.inq else ()) + ((im.DSD_FIFO,) * 2 if self.fifos else ())
        targets = memory + ((im.DSD_FABOUT,) * 8 if self.outq else ()) + ((im.DSD_FIFO,) * 2 if self.fifos else ())
        number = rng.randrange(0, 4)
        fields, kinds = [], []
        for place, (words, file) in enumerate(((wa, FILE_DEST), (wb, FILE_SRC0), (wc, FILE_SRC1))):
            if not words:
                fields.append(0)
            elif rng.chance(0.15 if place else 0.08):
                fields.append(self.reg(words))
            elif place == 0 and wb == wa and rng.chance(0.2):
                fields.append(None)
            else:
                kind = rng.choice(sources if place else targets)
                kinds.append(kind)
                fields.append(self.load(file, number, kind, words))
        if fields[0] is None:
            fields[0] = fields[1]
            if kinds and kinds[0] == im.DSD_FABIN and fields[0] >> 4 != FILE_REG:
                return
        if all(f >> 4 == FILE_REG for f, w in zip(fields, (wa, wb, wc), strict=False) if w):
            return
        imm = None
        if any(k in (im.DSD_FABIN, im.DSD_FABOUT, im.DSD_FIFO) for k in kinds) and rng.chance(0.6):
            imm = isa.async_word(
                rng.choice(isa.PRIORITIES),
                rng.choice((None, None, 0, 1, 5)),
                rng.choice((None, rng.choice(self.tasks))),
                rng.choice((None, rng.choice(self.tasks))),
            )
        self.emit(op.name, *fields, self.reg(wd) if wd else 0, imm)

    def dfilt(self):
        if self.inq:
            self.packed = False
            field = self.load(FILE_SRC0, 3, im.DSD_FABIN, 2)
            self.emit("dfilt", 0, field, 0, 0, isa.async_word("high"))

    def scalar(self):
        rng = self.rng
        kind = rng.randrange(0, 12)
        if kind < 5:
            op = rng.choice([o for o in isa.OPS if o.form == "alu"])
            wa, wb, wc, wd = (isa.WORDS[t] for t in op.types)
            imm = rng.randrange(0, 1 << (16 * wc)) if wc and rng.chance(0.3) else None
            self.emit(
                op.name,
                self.reg(wa),
                self.reg(wb),
                0 if imm is not None or not wc else self.reg(wc),
                self.reg(wd) if wd else 0,
                imm,
            )
        elif kind == 5:
            words = rng.choice((1, 2))
            self.emit("ldi" if words == 1 else "ldi32", self.reg(words), imm=rng.getrandbits(16 * words))
        elif kind == 6:
            words = rng.choice((1, 2))
            name = rng.choice(("ld", "st")) + ("16" if words == 1 else "32")
            self.emit(name, self.reg(words), imm=self.data_address(words))
        elif kind == 7:
            self.emit(rng.choice(("activate", "block", "unblock")), rng.choice(self.tasks))
            if rng.chance(0.3):  # a microthread
                self.emit(rng.choice(("block", "unblock", "unblock")), N_TASK_IDS + rng.randrange(8))
        elif kind == 8:
            self.emit("tsc", REG | rng.randrange(0, 8))
        elif kind == 9:
            self.emit("rand16", self.reg(1)) if rng.chance(0.7) else self.emit("prng", rng.randrange(0, 4))
        elif kind == 10:
            color = rng.choice(self.colors)
            what = rng.randrange(0, 6)
            if what == 5 and not self.plain and rng.chance(0.5):
                self.emit("route", color, imm=rng.getrandbits(12) | rng.choice((0, rng.getrandbits(3))) << 12)
            elif what == 0:
                self.emit("sw_pos", color, imm=rng.choice((0, 0, 1, 2, 3)))
            elif what == 1:
                self.emit("td_exit", color)
            elif what == 2 and rng.chance(0.5):
                self.emit("q_state", self.reg(1), imm=rng.randrange(0, 5))
            elif what == 2:
                self.emit("in_td", self.reg(1), imm=color)
            elif what == 3 and self.filters:
                self.emit("flt_set", rng.randrange(0, 2), self.reg(1), imm=rng.randrange(0, 3))
            else:
                self.emit("nop")
        else:
            # a forward branch over one instruction
            op = rng.choice(("br16", "br32", "brh", "brs"))
            words = isa.WORDS[isa.BY_NAME[op].types[0]]
            at = len(self.code)
            condition = rng.randrange(0, 6 if op in ("br16", "br32") else 4)
            self.emit(op, self.reg(words), self.reg(words) if rng.chance(0.7) else 0, 0, condition, imm=0)
            self.emit("nop")
            self.code[at + 1] = len(self.code)

    def loop(self):
        # count down from a small number; one instruction inside
        self.emit("ldi", REG | 15, imm=self.rng.randint(1, 4))
        top = len(self.code)
        (self.vector if self.rng.chance(0.5) else self.scalar)()
        self.emit("sub16", REG | 15, REG | 15, 0, 0, imm=1)
        self.emit("br16", REG | 15, 0, 0, isa.CONDITIONS.index("ne"), imm=top)

    def call(self):
        at = len(self.code)
        self.emit("call", imm=0)
        self.emit("jmp", imm=0)
        self.code[at + 1] = len(self.code)
        self.scalar()
        self.emit("ret")
        self.code[at + 3] = len(self.code)

    def piece(self):
        self.rng.weighted(
            (0.45, self.vector), (0.9, self.scalar), (0.96, self.loop), (0.98, self.dfilt), (1, self.call)
        )

    def body(self, most):
        self.rng.several(1, most, self.piece)
        self.emit("done")

    def finish(self):
        code_words = (2 * len(self.code) + 3) // 4 * 4
        shift = code_words - 4096
        words = list(self.code)
        for at, op, *_, imm in isa.decode(words):
            if op.form in ("ld", "st"):
                words[at + 1] = imm + shift
        for at in self.bases:
            words[at] += shift
        descriptors = np.array(self.descriptors, im.DESC_DTYPE)
        memory = np.isin(descriptors["kind"], (im.DSD_MEM1D, im.DSD_MEM4D, im.DSD_CIRCULAR, im.DSD_FIFO))
        descriptors["base"][memory] = (descriptors["base"][memory].astype(int) + shift).astype(np.uint16)
        return code_words, np.array(words, np.uint32), descriptors


def random_program(rng, name, colors, m, filters, plain=False):
    """Return a random `ProgramImage` that uses some of `colors`."""
    w = _Writer(rng, name, colors, m)
    w.colors, w.filters, w.plain = colors, filters, plain
    tasks = [24, 25, 26, *rng.sample(range(N_COLORS, 20), 1)]
    data = [c for c in w.inq.values() if rng.chance(0.4)]
    w.tasks = tasks + data
    w.packed = False
    for task in tasks + data + ([29] if rng.chance(0.5) else []):
        w.entry[task] = len(w.code)
        w.body(6)
    for task in rng.sample(range(64), 3) + [31] * (rng.chance(0.1)):
        w.control_entry[task] = len(w.code)
        w.body(2)
    code_words, code, descriptors = w.finish()
    noise = rng.noise()
    values = np.array(
        [
            noise.getrandbits(16) if noise.random() < 0.7 else noise.choice((0, 0x3C00, 0x7C00, 0x7E00, 0x8000, 1))
            for _ in range(w.n_data)
        ],
        np.uint16,
    )
    bound = sum(1 << t for t in tasks + data)
    colors_mask = (1 << 24) - 1
    blocked = colors_mask & ~bound
    for color in w.inq.values():
        if rng.chance(0.5):
            blocked &= ~(1 << color)
    return im.ProgramImage(
        name=name,
        code=code,
        code_words=code_words,
        footprint=code_words + w.n_data,
        descriptors=descriptors,
        entry=w.entry,
        control_entry=w.control_entry,
        data_tasks=sum(1 << c for c in data),
        active=sum(1 << t for t in rng.sample(tasks, rng.randint(1, len(tasks)))),
        blocked=blocked,
        high=sum(1 << t for t in w.tasks if rng.chance(0.3)),
        inq_color=tuple(w.inq.get(k, -1) for k in range(N_BINDINGS)),
        outq_color=tuple(w.outq.get(k, -1) for k in range(N_BINDINGS)),
        half=rng.choice(("f16", "f16", "cb16")),
        main_priority=rng.choice((1, 1, 2, 3, 4)),
        data=((code_words, values),),
    )


def random_routes(rng, width, height, colors, program_index, programs, n_filters, plain=False):
    """Return route tables that stay in the rectangle; most carry traffic towards somebody who takes it."""
    routes, first, rest = {}, rng, rng.noise()  # what follows the first switch position is of less interest
    for color in colors:
        table = np.zeros((height, width), im.ROUTE_DTYPE)
        for y in range(height):
            for x in range(width):
                entry = table[y, x]
                g = program_index[y, x]
                links = [d for d in range(4) if 0 <= x + im.STEP[d][0] < width and 0 <= y + im.STEP[d][1] < height]
                takes = g >= 0 and color in programs[g].inq_color
                gives = g >= 0 and color in programs[g].outq_color
                for p in range(4):
                    rng = first if p == 0 else rest
                    ins = links + [im.DIR_R] * (3 if gives else 0)
                    outs = links + [im.DIR_R] * (3 if takes else 0)
                    if not ins or not outs:
                        continue
                    rx = {rng.choice(ins)}
                    if rng.chance(0.1):
                        rx.add(rng.choice(ins))
                    tx = {rng.choice(outs)}
                    while rng.chance(0.3):
                        tx.add(rng.choice(outs))
                    entry["rx"][p] = sum(1 << d for d in rx)
                    entry["tx"][p] = sum(1 << d for d in tx)
                rng = first
                entry["valid"] = 1
                if plain:
                    continue
                entry["valid"] = rng.choice((1, 1, 1, 3, 7, 15, 5))
                entry["ring"] = rest.random() < 0.5
                entry["pop"] = rest.randrange(0, 4)
                entry["teardown"] = rng.chance(0.03)
                if n_filters and rng.chance(0.3):
                    entry["filter"] = rng.randint(1, n_filters)
                if rng.chance(0.1):
                    entry["swap"] = rng.randrange(0, 4)
                if rng.chance(0.1):
                    entry["inject"] = rng.randrange(1, 3)
        routes[color] = table
    return routes


def random_spec(rng, plain=False):
    """Return a random `FabricSpec`.

    A plain one has one switch position per color, no special router feature and no instruction that changes a route,
    and no control wavelet is sent on it: its routes are those of the spec for ever.
    """
    m = random_machine(rng)
    width, height = rng.randint(1, 4), rng.randint(1, 3)
    colors = sorted(rng.sample(range(N_COLORS), rng.randint(1, 4)))
    filters = None
    if not plain and rng.chance(0.4):
        filters = np.zeros((height, width, 2), im.FILTER_DTYPE)
        for f in filters.reshape(-1):
            f["kind"] = rng.randrange(0, 3)
            f["count_data"], f["count_control"], f["filter_control"] = (rng.randrange(0, 2) for _ in range(3))
            f["counter"], f["max"], f["limit"] = rng.randrange(0, 4), rng.randrange(0, 3), rng.randrange(1, 4)
            f["min_idx"], f["max_idx"] = rng.choice(((0, 0xFFFF), (0, 100), (0x3C00, 0xC000)))
    programs = tuple(
        random_program(rng, f"p{k}", colors, m, filters is not None, plain) for k in range(rng.randint(1, 3))
    )
    index = np.array(
        [[rng.randrange(-1 if rng.chance(0.1) else 0, len(programs)) for _ in range(width)] for _ in range(height)],
        np.int16,
    )
    routes = random_routes(rng, width, height, colors, index, programs, 2 if filters is not None else 0, plain)
    sides = [
        (x, y, d)
        for x in range(width)
        for y in range(height)
        for d in range(4)
        if not (0 <= x + im.STEP[d][0] < width and 0 <= y + im.STEP[d][1] < height)
    ]
    inputs, outputs = [], []
    for x, y, d in rng.sample(sides, min(2, len(sides))):
        color = rng.choice(colors)
        if rng.chance(0.5):
            routes[color]["rx"][y, x, 0] = 1 << d
            inputs.append((x, y, d, color))
        else:
            routes[color]["tx"][y, x, 0] |= 1 << d
            outputs.append((x, y, d, color))
    random_ramps(rng.noise(), programs, index, routes, inputs, outputs)
    return im.FabricSpec(
        machine=m,
        width=width,
        height=height,
        programs=programs,
        program_index=index,
        routes={color: im.RouteTable.of(table) for color, table in routes.items()},
        filters=filters,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


def random_ramps(rng, programs, index, routes, inputs, outputs):
    """Attach the host to ramps of PEs: into queues that routes may feed too, and to what positions drop."""
    for y, x in np.argwhere(index >= 0).tolist():
        program = programs[index[y, x]]
        for color in sorted({c for c in program.inq_color if c >= 0}):
            if rng.chance(0.2):
                inputs.append((x, y, im.DIR_R, color))
        for color in sorted({c for c in program.outq_color if c >= 0}):
            if rng.chance(0.25):
                k = rng.choice((0, 0, 0, 1))
                routes[color]["rx"][y, x, k] = 1 << im.DIR_R
                routes[color]["tx"][y, x, k] = 0
                outputs.append((x, y, im.DIR_R, color))


def random_inputs(rng, spec, plain=False):
    """Yield (stream, payload, control) bursts for the input streams of `spec`."""
    for index in range(len(spec.inputs)):
        n = rng.randint(0, 12)
        payload = [
            rng.choice((rng.getrandbits(32), 0x095F9249, 0x09DF9249 if rng.chance(0.1) else rng.getrandbits(32)))
            for _ in range(n)
        ]
        yield index, payload, [rng.chance(0.25) and not plain for _ in range(n)]


def main(argv=None):
    """Compare both machines on a range of seeds; return 1 if any differs."""
    from tests import compare
    from tests.random_fifos import random_fifos
    from tests.random_traffic import random_traffic
    from tests.random_vectors import random_vectors

    kinds = {
        "nonsense": (random_spec, 400),
        "traffic": (random_traffic, 3000),
        "vectors": (random_vectors, 20000),
        "fifos": (random_fifos, 3000),
    }
    parser = argparse.ArgumentParser(prog="python -m tests.random_machines", description=main.__doc__)
    parser.add_argument("--seeds", default="0:100", metavar="FIRST:END", help="default 0:100")
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=list(kinds), help="default: all")
    args = parser.parse_args(argv)
    first, end = (int(word) for word in args.seeds.split(":"))
    wrong = 0
    for seed in range(first, end):
        for kind in args.kinds:
            make, limit = kinds[kind]
            try:
                compare.compare(compare.seeded(seed, make), limit)
            except AssertionError as error:
                wrong += 1
                print(f"{kind}, {str(error).splitlines()[0]}")
    print(f"{(end - first) * len(args.kinds)} machines, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
