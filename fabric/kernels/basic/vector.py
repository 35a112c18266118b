"""One vector operation on one PE, between two time stamps.

What runs
    One PE loads its DSRs, reads the cycle counter, issues one vector operation of n elements, and reads the counter
    again.  No fabric.  Every operation of the table `wse_core.isa.OPS` that has a vector form can be chosen.  The
    destination is the first source where the two have one type, else an array of its own; a multiply-add takes its
    multiplier from a register.

Banks
    ``conflict`` chooses where the two memory sources begin: in one bank class (word addresses equal modulo half the
    number of banks), so that each step reads twice from a class, or in different ones.  Sources of different width
    meet in every other step if they begin in one class, and never if the narrow one begins at an odd address.  Two
    32-bit elements a step come from half of the banks, so apart means half of the banks apart.

Cycles
    Between the two readings:

        cycles = ce.tsc_read + 1 + vec.start + sum over steps of (1 + conflict) + vec.drain

    A step does as many elements as the operation has lanes (`wse_core.isa`), reduced by the stride: 2, 3, 5, 6 modulo
    8: no change; 1, 7: two; 0: one; 4: `vec.stride4_lanes`.  For fmuls (one lane) that is n + 6, and 2 n + 6 with
    conflicts; for fadds (two lanes) n / 2 + 6.  Published: 5,130 and 10,254 cycles for 5,124 elements.

Sources
    SIMD widths and the stride rule: arch §4.2.  Calibration: pr0f3ss/SpMM_Cerebras cycle tables (WSE-2).
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.kit import timing
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import data_params, integers
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.layout.layout import Layout
from fabric.program.program import Program
from wse_core import isa, numerics
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic

__all__ = ["VECTOR_OPS", "expected_cycles", "vector"]

VECTOR_OPS = tuple(op.name for op in isa.OPS if op.form == "alu" and any(op.lanes))
_TYPES = {"i": "u16", "l": "u32", "s": "f32"}
_WHERE = "kernel vector"


# --- what an operation gives ------------------------------------------------------------------------------------------


def _i16(bits):
    return np.asarray(bits, np.uint16).astype(np.int16)


def _count_bits(values, what):
    """Return leading zeros, trailing zeros or ones of 16-bit numbers, by their binary text."""

    def one(text):
        if what == "popcnt":
            return text.count("1")
        return 16 if "1" not in text else text.index("1") if what == "clz" else 15 - text.rindex("1")

    return np.array([one(format(int(v), "016b")) for v in np.ravel(values)], np.uint16).reshape(np.shape(values))


def reference(name, half, single, b, c, d):
    """Return the destination of an operation as bit patterns, calculated by `wse_core.numerics`.

    Parameters
    ----------
    name : str
        Operation.
    half, single : Arithmetic
        The 16-bit format of the program, and f32.
    b, c, d : ndarray or None
        Sources in the order of the table.
    """
    own = single if name.endswith("s") else half
    convert = numerics.convert
    with np.errstate(over="ignore"):
        table = {
            "add16": lambda: b + c,
            "sub16": lambda: b - c,
            "and16": lambda: b & c,
            "or16": lambda: b | c,
            "xor16": lambda: b ^ c,
            "sll16": lambda: b << (c & np.uint16(15)),
            "slr16": lambda: b >> (c & np.uint16(15)),
            "sar16": lambda: (_i16(b) >> (_i16(c) & 15)).view(np.uint16),
            "mov16": lambda: b,
            "mov32": lambda: b,
            "clz": lambda: _count_bits(b, name),
            "ctz": lambda: _count_bits(b, name),
            "popcnt": lambda: _count_bits(b, name),
            "fadd": lambda: own.call("add", b, c),
            "fsub": lambda: own.call("sub", b, c),
            "fmul": lambda: own.call("mul", b, c),
            "fmax": lambda: own.call("maximum", b, c),
            "fmin": lambda: own.call("minimum", b, c),
            "fabs": lambda: own.call("absolute", b),
            "fneg": lambda: own.call("neg", b),
            "fmov": lambda: b,
            "fscale": lambda: own.call("scale", b, _i16(c)),
            "fmac": lambda: own.call("fma", c, d, b),
            "faddhs": lambda: half.call("add_mixed", b, c),
            "fmachs": lambda: half.call("fma_mixed", c, d, b),
            "fh2s": lambda: convert(b, half.fmt, "f32", half.bias, half.ftz),
            "fs2h": lambda: convert(b, "f32", half.fmt, half.bias, half.ftz),
            "fh2xp16": lambda: numerics.to_int(b, half.fmt, "int16", "truncate", half.bias),
            "fs2xp16": lambda: numerics.to_int(b, "f32", "int16", "truncate", half.bias),
            "xp162fh": lambda: numerics.from_int(_i16(b), half.fmt, half.bias),
            "xp162fs": lambda: numerics.from_int(_i16(b), "f32", half.bias),
        }
        result = np.asarray((table.get(name) or table[name[:-1]])())
    return result.view(f"u{result.itemsize}")


def check(name, half, single, got, expected, b, c, d):
    """Compare the result of an operation with `reference` and, in float64, with plain numpy.

    Results that are whole numbers or copies must be equal.  The others are sums of at most two terms with one rounding:
    the bound is that of `fabric.kernels.kit.check` with one rounding.
    """
    op = isa.BY_NAME[name]
    arithmetic = {"h": half, "s": single}
    if op.types[0] not in arithmetic:
        exact = np.array_equal(got, expected)
        error = np.abs(got.astype(np.int64) - expected.astype(np.int64)).max(initial=0)
        if op.types[1] not in arithmetic:
            return Check(exact, exact, float(error), 0.0, got.size, got.size)
        with np.errstate(invalid="ignore"):  # whole numbers of floats, toward zero, saturating
            plain = np.trunc(np.clip(np.nan_to_num(arithmetic[op.types[1]].decode(b), nan=0.0), -32768, 32767))
        error = np.abs(_i16(got) - plain)
        return Check(exact, not error.any(), float(error.max(initial=0)), 0.0, got.size, got.size)
    values = [
        None
        if bits is None
        else arithmetic[letter].operand(bits)
        if letter in arithmetic
        else _i16(bits).astype(np.float64)
        for bits, letter in zip((b, c, d), op.types[1:], strict=True)
    ]
    x, y, z = values
    plain = ("fadd", "fsub", "fmul", "fmax", "fmin", "fabs", "fneg", "fmov", "fscale")
    base = name[:-1] if name[:-1] in plain else name
    copies = base in ("fmax", "fmin", "fabs", "fneg", "fmov", "fh2s")
    if base in ("fabs", "fneg", "fmov"):
        x = arithmetic[op.types[1]].decode(b)  # these never flush
    with np.errstate(all="ignore"):
        terms = {
            "fadd": lambda: (x, y),
            "fsub": lambda: (x, -y),
            "fmul": lambda: (x * y,),
            "faddhs": lambda: (x, y),
            "fmax": lambda: (np.maximum(x, y),),
            "fmin": lambda: (np.minimum(x, y),),
            "fabs": lambda: (np.abs(x),),
            "fneg": lambda: (-x,),
            "fscale": lambda: (np.ldexp(x, y.astype(np.int64)),),
        }
        parts = (terms.get(base) or (lambda: (x,) if y is None else (x, y * z)))()
        return check_sum(
            arithmetic[op.types[0]], got, expected, sum(parts), sum(map(np.abs, parts)), 0 if copies else 1
        )


# --- what it costs ----------------------------------------------------------------------------------------------------


def lanes_of(op, stride, machine):
    """Return the elements that a step does when all memory operands have this stride."""
    lanes = machine.lanes(op)
    rest = abs(stride) % 8
    if stride in (0, 1) or rest in (2, 3, 5, 6):
        return lanes
    return min(lanes, {1: 2, 7: 2, 0: 1, 4: machine["vec.stride4_lanes"]}[rest])


def expected_cycles(op, n, stride, machine, written, read):
    """Return the cycles between the time stamps: the formula of the module's head.

    Parameters
    ----------
    op : isa.Op
    n, stride : int
    machine : Machine
    written : tuple[int, int]
        Of the destination: word address of its first element, and SRAM words of an element.
    read : list of tuple[int, int]
        The same of the memory sources.
    """
    lanes = lanes_of(op, stride, machine)
    first = np.arange(0, n, lanes)
    steps = len(first)
    count = machine["mem.banks"]
    modulus = {"mod4": max(1, count // 2), "bank": count}.get(machine["mem.conflict_rule"], 0)

    def clashes(one, other, i=0, j=0):
        at = [address + (first + k) * stride * words for (address, words), k in ((one, i), (other, j))]
        met = (at[0] - at[1]) % modulus == 0 if modulus else np.zeros(len(first), bool)
        return met & (first + max(i, j) < n)

    if len(read) == 2:
        group = range(lanes if read[0][1] == read[1][1] == 2 else 1)
        both = np.any([clashes(*read, i, j) for i in group for j in group], axis=0) | (machine["mem.read_ports"] == 1)
        steps += int(np.count_nonzero(both)) * machine["mem.conflict_cycles"]
    if n > 1 and stride * written[1] % count == 0:
        same = np.any([clashes(written, source) for source in read], axis=0)
        steps += int(np.count_nonzero(same)) * machine["mem.write_cycles"]
    return machine["ce.tsc_read"] + timing.operation(machine, steps)


def vector_program(op, n, stride, half, banks, machine):
    """Return the program: arrays ``b``, ``c`` and, if needed, ``a`` and ``d``; task ``main``."""
    p = Program(f"vector {op.name}", machine, half=half)
    kinds = {"h": half} | _TYPES
    types = op.types
    count = (n - 1) * abs(stride) + 1
    offset = count - 1 if stride < 0 else 0
    b = p.array("b", count, kinds[types[1]], bank=banks[0])
    c = p.array("c", count, kinds[types[2]], bank=banks[1]) if types[2] != "-" else None
    d = p.scalar("d", kinds[types[3]]) if types[3] != "-" else None
    in_place = types[0] == types[1]
    a = b if in_place else p.array("a", count, kinds[types[0]])
    stamps = Stamps(p)
    first = p.dsr("src0") if in_place or c is not None else p.dsr("src1")
    dest = first if in_place else p.dsr("dest")
    second = p.dsr("src1") if c is not None else None

    def walk(var):
        return p.mem1d(var, n, stride, offset)

    with p.task("main"):
        p.load(first, walk(b))
        if dest is not first:
            p.load(dest, walk(a))
        sources = [first]
        if c is not None:
            p.load(second, walk(c))
            sources.append(second)
        if d is not None:
            factor = p.reg32("factor") if types[3] == "s" else p.reg16("factor")
            (p.ld32 if types[3] == "s" else p.ld16)(factor, d)
            sources.append(factor)
            p.nop()  # the load's latency lies before the first reading
        stamps.start()
        getattr(p, op.name)(dest, *sources)
        stamps.stop()
    p.assemble()
    return p


def _half(op, dtype):
    """Return the 16-bit format of the program, or raise if `dtype` is none that the operation works on."""
    letters = set(op.types) - {"-"}
    if "h" in letters:
        legal = ("f16", "cb16")
    else:
        legal = ("f32",) if "s" in letters else ("i32", "u32") if "l" in letters else ("i16", "u16")
    if dtype == "auto":
        return legal[0] if "h" in letters else "f16"
    if dtype not in legal:
        raise ConfigError(
            f"{op.name} does not work on {dtype}", where=f"{_WHERE}: dtype", hint=" or ".join(legal), value=dtype
        )
    return dtype if "h" in letters else "f16"


@kernel(
    "vector",
    "one vector operation on one PE, between two time stamps",
    "SIMD widths: arch §4.2; pr0f3ss/SpMM_Cerebras: fp32 products of 5,124 elements take 5,130 cycles, 10,254 with "
    "bank conflicts",
    [
        KernelParam("op", "fmuls", str, "operation of the op table with a vector form", VECTOR_OPS),
        KernelParam(
            "dtype",
            "auto",
            str,
            "element type, checked against the operation: of the 16-bit floats if it has any, else of all operands",
            ("auto", "f16", "cb16", "f32", "i16", "u16", "i32", "u32"),
        ),
        KernelParam("n", 5124, int, "elements", low=1, high=32766),
        KernelParam("stride", 1, int, "elements from one to the next, in all operands", low=-128, high=127),
        KernelParam("conflict", False, bool, "whether the two memory sources begin in one bank class"),
        *data_params(),
    ],
)
def vector(machine, op, dtype, n, stride, conflict, seed, data):
    """Run the kernel `vector`; see the head of this module."""
    name, op = op, isa.BY_NAME[op]
    if not machine.lanes(op):
        raise ConfigError(f"{name} has no vector form on {machine.preset}", where=f"{_WHERE}: op", value=name)
    if not stride:
        raise ConfigError("stride 0 would take one element n times", where=f"{_WHERE}: stride", hint="1", value=0)
    half = _half(op, dtype)
    two = op.types[2] != "-"
    if conflict and not two:
        raise ConfigError(f"{name} has one memory source, nothing to conflict with", where=f"{_WHERE}: conflict")
    count = machine["mem.banks"]
    banks = (0, 0)
    if two and not conflict:
        words = [isa.WORDS[letter] for letter in op.types[1:3]]
        apart = count // (4 if machine["mem.conflict_rule"] == "mod4" else 2)
        banks = (0, apart & ~1) if words[0] == words[1] else tuple(int(size == 1) for size in words)
    p = fit(
        "kernel vector",
        machine,
        lambda n, stride: vector_program(op, n, stride, half, banks, machine),
        {"n": n, "stride": stride},
        {"n": (1, n)},
    )
    layout = Layout(1, 1, machine)
    layout.place(p, 0, 0)

    rng = np.random.default_rng(seed)
    arithmetic = {"h": Arithmetic.of(machine, half), "s": Arithmetic.of(machine, "f32")}
    length = (n - 1) * abs(stride) + 1
    fields = {}
    for key, letter, size in zip("bcd", op.types[1:], (length, length, 1), strict=True):
        if letter in arithmetic:
            fields[key] = arithmetic[letter].random(rng, (1, 1, size), data if size > 1 or n == 1 else "normal")
        elif letter != "-":
            fields[key] = integers(rng, (1, 1, size), 16 if letter == "i" else 32, data)
    session = Session(layout, [(key, bits, 0, 0) for key, bits in fields.items()])

    picked = slice(None, None, abs(stride))
    b, c, d = (fields[key][0, 0] if key in fields else None for key in "bcd")
    order = slice(None, None, -1 if stride < 0 else 1)
    b, c = b[picked][order], c[picked][order] if two else None
    got = session.read("b" if op.types[0] == op.types[1] else "a")[0, 0][picked][order]
    expected = reference(name, arithmetic["h"], arithmetic["s"], b, c, d)
    found = check(name, arithmetic["h"], arithmetic["s"], got, expected, b, c, d)
    image = p.assemble()
    words = [isa.WORDS[letter] for letter in op.types[1:3]]
    before = length - 1 if stride < 0 else 0  # elements between the start of an array and the first one walked over
    read = [(image.symbols[key].address + before * size, size) for key, size in zip("bc", words, strict=True) if size]
    result, size = "b" if op.types[0] == op.types[1] else "a", isa.WORDS[op.types[0]]
    written = image.symbols[result].address + before * size, size
    first, last = session.stamps()
    return report(
        session,
        found,
        (last - first)[0, 0],
        expected_cycles=expected_cycles(op, n, stride, machine, written, read),
        expected_hops=0,
        expected_macs=n if op.is_mac else 0,
        lanes=lanes_of(op, stride, machine) if op.is_mac else 0,
        lanes_per_step=lanes_of(op, stride, machine),
        conflict_cycles=session.run.counters["stall_conflict"],
        arrays={"result": got},
    )
