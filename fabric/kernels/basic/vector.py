"""A kernel does one vector operation on one PE, between two time stamps.

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

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Dsd, Dsr, Reg, Var
from fabric.kernels.basic.vector_checks import check, reference
from fabric.kernels.kit.check import Check
from fabric.kernels.kit.data import data_params, integers
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core import isa
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic, Bits, Half
from wse_core.isa import Op
from wse_core.params import Machine

__all__ = ["VECTOR_OPS", "expected_cycles", "vector"]

VECTOR_OPS = tuple(op.name for op in isa.OPS if op.form == "alu" and any(op.lanes))
_TYPES = {"i": "u16", "l": "u32", "s": "f32"}
_WHERE = "kernel vector"


# --- what it costs ----------------------------------------------------------------------------------------------------


def lanes_of(op: Op, stride: int, machine: Machine) -> int:
    """Return the elements that a step does when all memory operands have this stride."""
    lanes = machine.lanes(op)
    rest = abs(stride) % 8
    if stride in (0, 1) or rest in (2, 3, 5, 6):
        return lanes
    return min(lanes, {1: 2, 7: 2, 0: 1, 4: machine["vec.stride4_lanes"]}[rest])


def expected_cycles(
    op: Op, n: int, stride: int, machine: Machine, written: tuple[int, int], read: Sequence[tuple[int, int]]
) -> int:
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

    def clashes(one: tuple[int, int], other: tuple[int, int], i: int = 0, j: int = 0) -> NDArray[np.bool_]:
        at = [address + (first + k) * stride * words for (address, words), k in ((one, i), (other, j))]
        met = (at[0] - at[1]) % modulus == 0 if modulus else np.zeros(len(first), bool)
        return met & (first + max(i, j) < n)

    lost = np.zeros(steps, int)
    if len(read) == 2:
        group = range(lanes if read[0][1] == read[1][1] == 2 else 1)
        both = np.any([clashes(read[0], read[1], i, j) for i in group for j in group], axis=0) | (
            machine["mem.read_ports"] == 1
        )
        lost = np.where(both, machine["mem.conflict_cycles"], 0)
    if n > 1 and stride * written[1] % count == 0:
        same = np.any([clashes(written, source) for source in read], axis=0)
        lost = np.maximum(lost, np.where(same, machine["mem.write_cycles"], 0))
    return machine["ce.tsc_read"] + timing.operation(machine, steps + int(lost.sum()))


def vector_program(op: Op, n: int, stride: int, half: Half, banks: tuple[int, int], machine: Machine) -> Program:
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
    sources: list[Dsr | Reg] = [first]

    def walk(var: Var) -> Dsd:
        return p.mem1d(var, n, stride, offset)

    with p.task("main"):
        p.load(first, walk(b))
        if dest is not first:
            p.load(dest, walk(a))
        if c is not None and second is not None:
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


def _half(op: Op, dtype: str) -> Half:
    """Return the 16-bit format of the program, or raise if `dtype` is none that the operation works on."""
    letters = set(op.types) - {"-"}
    legal: tuple[str, ...]
    if "h" in letters:
        legal = ("f16", "cb16")
    else:
        legal = ("f32",) if "s" in letters else ("i32", "u32") if "l" in letters else ("i16", "u16")
    if dtype == "auto":
        return "f16"
    if dtype not in legal:
        raise ConfigError(
            f"{op.name} does not work on {dtype}", where=f"{_WHERE}: dtype", hint=" or ".join(legal), value=dtype
        )
    return "cb16" if dtype == "cb16" else "f16"


def _banks(op: Op, conflict: bool, machine: Machine) -> tuple[int, int]:
    """Return the banks in which the two memory sources begin, or refuse a conflict that cannot be."""
    if op.types[2] == "-":
        if conflict:
            raise ConfigError(f"{op.name} has one memory source, nothing to conflict with", where=f"{_WHERE}: conflict")
        return 0, 0
    if conflict:
        return 0, 0
    words = [isa.WORDS[letter] for letter in op.types[1:3]]
    apart = machine["mem.banks"] // (4 if machine["mem.conflict_rule"] == "mod4" else 2)
    return (0, apart & ~1) if words[0] == words[1] else (int(words[0] == 1), int(words[1] == 1))


def _inputs(op: Op, n: int, stride: int, arithmetic: dict[str, Arithmetic], seed: int, data: str) -> dict[str, Bits]:
    """Return the bit patterns of the sources that an operation has, shape (1, 1, elements), by their symbols."""
    rng, fields = np.random.default_rng(seed), {}
    length = (n - 1) * abs(stride) + 1
    for key, letter, size in zip("bcd", op.types[1:], (length, length, 1), strict=True):
        if letter in arithmetic:
            fields[key] = arithmetic[letter].random(rng, (1, 1, size), data if size > 1 or n == 1 else "normal")
        elif letter != "-":
            fields[key] = integers(rng, (1, 1, size), 16 if letter == "i" else 32, data)
    return fields


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
def vector(
    machine: Machine, op: str, dtype: str, n: int, stride: int, conflict: bool, seed: int, data: str
) -> dict[str, Any]:
    """Run the kernel `vector`; see the head of this module."""
    operation = isa.BY_NAME[op]
    if not machine.lanes(operation):
        raise ConfigError(f"{op} has no vector form on {machine.preset}", where=f"{_WHERE}: op", value=op)
    if not stride:
        raise ConfigError("stride 0 would take one element n times", where=f"{_WHERE}: stride", hint="1", value=0)
    half = _half(operation, dtype)
    banks = _banks(operation, conflict, machine)
    p = fit(
        "kernel vector",
        machine,
        lambda n, stride: vector_program(operation, n, stride, half, banks, machine),
        {"n": n, "stride": stride},
        {"n": (1, n)},
    )
    layout = Layout(1, 1, machine)
    layout.place(p, 0, 0)

    arithmetic = {"h": Arithmetic.of(machine, half), "s": Arithmetic.of(machine, "f32")}
    fields = _inputs(operation, n, stride, arithmetic, seed, data)
    session = Session(layout, [(key, bits, 0, 0) for key, bits in fields.items()])

    def walked(array: Bits) -> Bits:
        """Return the elements that the operation walks over, in its order."""
        return array[:: abs(stride)][:: -1 if stride < 0 else 1]

    b, c, d = (fields[key][0, 0] if key in fields else None for key in "bcd")
    b, c = walked(fields["b"][0, 0]), None if c is None else walked(c)
    result = "b" if operation.types[0] == operation.types[1] else "a"
    got = walked(session.read(result)[0, 0])

    def compare() -> Check:
        half, single = arithmetic["h"], arithmetic["s"]
        return check(op, half, single, got, reference(op, half, single, b, c, d), b, c, d)

    found = compared(compare)
    before = max(0, -stride) * (n - 1)  # elements between the start of an array and the first one walked over
    symbols = p.assemble().symbols
    written, *read = [
        (symbols[key].address + before * isa.WORDS[letter], isa.WORDS[letter])
        for key, letter in zip((result, "b", "c"), operation.types[:3], strict=True)
        if letter != "-"
    ]
    first, last = session.stamps()
    lanes = lanes_of(operation, stride, machine)
    return report(
        session,
        found,
        (last - first)[0, 0],
        expected_cycles=expected_cycles(operation, n, stride, machine, written, read),
        expected_hops=0,
        expected_macs=n if operation.is_mac else 0,
        lanes=lanes if operation.is_mac else 0,
        lanes_per_step=lanes,
        conflict_cycles=session.run.counters["stall_conflict"],
        arrays={"result": got},
    )
