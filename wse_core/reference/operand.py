"""Operands of a CE are registers, SRAM, descriptors, queues and FIFOs; here is also what two accesses in one cycle
cost.

What      reading and writing one element of each kind of operand; addresses; bank conflicts; what is forbidden there.
Ports     `ce` is the record of `wse_core.reference.ce`; memory, registers, queues and FIFOs of the own PE only.
Contract  an access that the hardware forbids raises `ReferenceFault`; nothing is written in that case.
Timing    docs/machine.md, "CE": banks, ports, ramp.
Known     pipeline latencies and FIFO details are assumptions of that page.
differences
Sources   docs/machine.md; arch §3, §5.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from wse_core import isa
from wse_core.encoding import N_QUEUES
from wse_core.image import (
    DESC_DTYPE,
    DSD_CIRCULAR,
    DSD_FABIN,
    DSD_FABOUT,
    DSD_FIFO,
    DSD_MEM1D,
    DSD_MEM4D,
    DSD_NONE,
    ENDLESS,
    F_INDEX,
    F_PACKED,
)
from wse_core.reference.queue import Wavelet, WaveletQueue

if TYPE_CHECKING:
    from wse_core.reference.ce import CE
    from wse_core.reference.vecop import VectorOperation

__all__ = [
    "DsrState",
    "FifoState",
    "Operand",
    "ReferenceFault",
    "banks_of",
    "check_address",
    "collide",
    "conflict_of",
    "dsr_of",
    "fifo_of",
    "move_fifo",
    "queue_of",
    "read_element",
    "reg_read",
    "reg_write",
    "send",
    "sram_read",
    "sram_write",
    "write_element",
]

MEMORY_KINDS = (DSD_MEM1D, DSD_MEM4D, DSD_CIRCULAR)
FABRIC_KINDS = (DSD_FABIN, DSD_FABOUT)
LOW16, LOW32 = 0xFFFF, 0xFFFFFFFF


class ReferenceFault(Exception):
    """Something that the hardware forbids; `kind` is sram_range, sram_align, program or queue."""

    def __init__(self, kind: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.record = {"kind": kind, "address": None, "color": None, "detail": detail, **more}


@lru_cache(maxsize=1024)
def _numbers(row: bytes) -> Mapping[str, Any]:
    """Return the numbers of a record of `DESC_DTYPE` by their names: programs load the same ones again and again."""
    record = np.frombuffer(row, DESC_DTYPE)[0]
    return {name: record[name].tolist() for name in DESC_DTYPE.names or ()}


class DsrState:
    """A data structure register: the descriptor that was loaded into it; `row` is a record of `DESC_DTYPE`."""

    def __init__(self, row: np.void | np.ndarray) -> None:
        numbers = _numbers(row.tobytes())
        self.kind: int = numbers["kind"]
        self.flags: int = numbers["flags"]
        self.queue, self.fifo = numbers["queue"], numbers["xdsr"]
        self.on_control, self.control_task = numbers["on_control"], numbers["control_task"]
        self.push_task, self.pop_task = numbers["push_task"], numbers["pop_task"]
        self.base, self.index, self.length = numbers["base"], numbers["index"], numbers["length"]
        self.ndim = numbers["ndim"]
        self.extent, self.stride = list(numbers["extent"]), list(numbers["stride"])

    def elements(self) -> int | None:
        """Return the number of elements, None if endless."""
        if self.extent[0] == ENDLESS:
            return None
        return prod(self.extent[: self.ndim]) if self.kind == DSD_MEM4D else self.extent[0]

    def innermost_stride(self) -> int:
        """Return the stride from one element to the next of a mem1d or mem4d."""
        return self.stride[self.ndim - 1] if self.kind == DSD_MEM4D else self.stride[0]

    def address(self, k: int, words: int) -> int:
        """Return the word address of element k of a mem1d, mem4d or circular descriptor."""
        if self.kind == DSD_MEM1D:
            return self.base + k * self.stride[0] * words
        if self.kind == DSD_CIRCULAR:
            return self.base + (self.index + k) % self.length * words
        offset = 0
        for dimension in reversed(range(self.ndim)):
            if dimension > 0:
                k, i = divmod(k, self.extent[dimension])
            else:
                i = k
            offset += i * self.stride[dimension]
        return self.base + offset * words


class FifoState:
    """State of one FIFO number: where the oldest element stands, how many there are, words of one; data are in SRAM.

    `ended` has the elements of each step that has ended an operation for lack of them (False) or of room for them
    (True), as long as they still lack.
    """

    def __init__(self) -> None:
        self.head, self.count, self.words, self.base, self.length = 0, 0, 1, 0, 1
        self.ended: dict[bool, set[int]] = {False: set(), True: set()}


class Operand:
    """An `Operand` belongs to a vector operation in flight.

    Attributes
    ----------
    field : int
        Operand field of the instruction.
    words : int
        SRAM words of an element, 1 or 2.
    loaded : Dsr or None
        What its DSR held when the operation began; None for a register.
    kind, flags : int
        Of its descriptor; DSD_NONE and 0 for a register.
    scalar : int or None
        Value captured from a register; None for one that is read anew for each element.
    """

    def __init__(self, field: int, letter: str, dsr: DsrState | None) -> None:
        self.field, self.words, self.loaded = field, isa.WORDS[letter], dsr
        self.scalar: int | None = None
        self.kind, self.flags = (DSD_NONE, 0) if dsr is None else (dsr.kind, dsr.flags)

    @property
    def is_register(self) -> bool:
        """Whether it is a register and not a descriptor."""
        return self.loaded is None

    @property
    def dsr(self) -> DsrState:
        """The operand has this DSR; only operands with one may be asked."""
        assert self.loaded is not None
        return self.loaded

    def has(self, flag: int) -> bool:
        """Whether its descriptor has a flag."""
        return bool(self.flags & flag)

    @property
    def is_packed(self) -> bool:
        """Whether it is a fabric operand with two elements per wavelet."""
        return self.kind in FABRIC_KINDS and self.has(F_PACKED) and self.words == 1


# --- registers and memory ---------------------------------------------------------------------------------------------


def reg_read(ce: CE, field: int, words: int) -> int:
    """Return the value of a register (1 word) or of a pair (2)."""
    number = field & 15
    if words == 1:
        return ce.regs[number]
    return ce.regs[number] | ce.regs[number + 1] << 16


def reg_write(ce: CE, field: int, words: int, value: int, ready: int | None = None) -> None:
    """Set a register or a pair; `ready` is the first cycle in which an instruction can use it."""
    for k in range(words):
        ce.regs[(field & 15) + k] = value >> 16 * k & LOW16
        if ready is not None:
            ce.reg_ready[(field & 15) + k] = ready


def check_address(ce: CE, address: int, words: int) -> None:
    """Raise a `ReferenceFault` unless `words` words at `address` are data and aligned."""
    if not (ce.image.code_words <= address and address + words <= ce.image.footprint):
        raise ReferenceFault("sram_range", "", address=address)
    if words == 2 and address % 2:
        raise ReferenceFault("sram_align", "", address=address)


def sram_read(ce: CE, address: int, words: int) -> int:
    """Return the value of 16 or 32 bits at a word address."""
    check_address(ce, address, words)
    ce.words_read += words
    if words == 1:
        return ce.memory[address]
    return ce.memory[address] | ce.memory[address + 1] << 16


def sram_write(ce: CE, address: int, words: int, value: int) -> None:
    """Set the value of 16 or 32 bits at a word address."""
    check_address(ce, address, words)
    ce.words_written += words
    for k in range(words):
        ce.memory[address + k] = value >> 16 * k & LOW16


# --- descriptors and queues -------------------------------------------------------------------------------------------


def dsr_of(ce: CE, op: isa.Op, place: str, field: int) -> DsrState | None:
    """Return the DSR of an operand field (None for a register), or raise `ReferenceFault` if it does not fit."""
    file, number = divmod(field, 16)
    if file == isa.FILE_REG:
        return None
    dsr = ce.dsrs.get((file, number))
    if dsr is None or dsr.kind == DSD_NONE:
        raise ReferenceFault("program", f"{op.name}: {isa.FILES[file]} DSR {number} is empty")
    if place == "d" and dsr.kind != DSD_MEM1D:
        what = f"{op.name}: {isa.FILES[file]} DSR {number} is of the wrong kind for its place"
        raise ReferenceFault("program", what)
    if dsr.kind == (DSD_FABIN if place == "a" else DSD_FABOUT):
        raise ReferenceFault("program", f"{op.name}: {isa.FILES[file]} DSR {number} is of the wrong kind for its place")
    return dsr


def queue_of(ce: CE, operand: Operand) -> WaveletQueue:
    """Return the queue of a fabric operand, or raise a `ReferenceFault`."""
    queues = ce.in_queues if operand.kind == DSD_FABIN else ce.out_queues
    if operand.dsr.queue not in queues:
        direction = "input" if operand.kind == DSD_FABIN else "output"
        raise ReferenceFault("queue", f"{direction} queue {operand.dsr.queue} is not bound to a color")
    return queues[operand.dsr.queue]


def fifo_of(ce: CE, operand: Operand) -> FifoState:
    """Return the state of the FIFO of an operand."""
    return ce.fifos.setdefault(operand.dsr.fifo, FifoState())


def send(ce: CE, operand: Operand, payload: int, control: bool, t: int, cost: int, own: bool = False) -> None:
    """Push a wavelet to the ramp in the step of cycle t that costs `cost`; `own`: for the router of this PE alone."""
    ready = t + (cost - 1) + ce.machine["ramp.execute"] + ce.machine["ramp.out"]
    queue = queue_of(ce, operand)
    queue.push(payload, control, ready, own)
    ce.counters["sent"] += 1
    number = next(number for number, one in ce.out_queues.items() if one is queue)
    ce.emit(ce.x, ce.y, t, "inject", queue.color, number % N_QUEUES, payload, control)


# --- elements ---------------------------------------------------------------------------------------------------------


def read_element(ce: CE, operation: VectorOperation, operand: Operand, wavelet: Wavelet | None, j: int) -> int:
    """Return element k + j of a source; `wavelet` is the one at the head of a fabin."""
    if operand.kind == DSD_NONE:
        return reg_read(ce, operand.field, operand.words) if operand.scalar is None else operand.scalar
    if operand.kind == DSD_FABIN:
        assert wavelet is not None
        if operand.words == 2:
            return wavelet.payload
        return wavelet.index if operand.is_packed and j == 1 else wavelet.data
    if operand.kind == DSD_FIFO:
        place = (fifo_of(ce, operand).head + j) % operand.dsr.length
        return sram_read(ce, operand.dsr.base + place * operand.words, operand.words)
    return sram_read(ce, operand.dsr.address(operation.k + j, operand.words), operand.words)


def write_element(ce: CE, operation: VectorOperation, heads: Mapping[str, Wavelet], j: int, value: int) -> None:
    """Write element k + j to a destination in memory, a register or a FIFO."""
    dest = operation.destination
    if dest.kind == DSD_NONE:
        reg_write(ce, dest.field, dest.words, value)
    elif dest.kind == DSD_FIFO:
        fifo = fifo_of(ce, dest)
        place = (fifo.head + fifo.count + j) % dest.dsr.length
        sram_write(ce, dest.dsr.base + place * dest.words, dest.words, value)
    else:
        address = dest.dsr.address(operation.k + j, dest.words)
        if dest.kind == DSD_MEM1D and dest.has(F_INDEX) and heads:
            address += heads["b" if "b" in heads else "c"].index
        sram_write(ce, address, dest.words, value)


def move_fifo(ce: CE, operand: Operand, pushed: bool, group: int) -> None:
    """Move head or tail of a FIFO by `group` elements."""
    fifo, dsr = fifo_of(ce, operand), operand.dsr
    fifo.words, fifo.base, fifo.length = operand.words, dsr.base, dsr.length
    if pushed:
        fifo.count += group
    else:
        fifo.head = (fifo.head + group) % dsr.length
        fifo.count -= group


# --- bank conflicts ---------------------------------------------------------------------------------------------------


def conflict_of(ce: CE, operation: VectorOperation, group: int) -> int:
    """Return the cycles that the next step, of `group` elements, loses in memory.

    Two sources in one bank are read one after the other; what counts are the first elements of the step, and all of
    them if both sources are 32 bits wide.  A destination whose elements all lie in one bank is
    written there while the next elements are read: a source in this bank waits for it.  Of two reasons the longer
    one counts.
    """
    sources = [
        operand
        for operand in (operation.sources.get(place) for place in "bc")
        if operand is not None and operand.kind in MEMORY_KINDS
    ]
    reads = [banks_of(ce, operation, operand, 1) for operand in sources]
    both = group if all(operand.words == 2 for operand in sources) else 1
    lost = 0
    if len(sources) == 2 and (
        ce.machine["mem.read_ports"] == 1
        or collide(ce, *(banks_of(ce, operation, operand, both) for operand in sources))
    ):
        lost = ce.machine["mem.conflict_cycles"]
    dest, n = operation.destination, operation.n
    if (
        dest.kind == DSD_MEM1D
        and (n is None or n > 1)
        and dest.dsr.stride[0]
        and dest.dsr.stride[0] * dest.words % ce.machine["mem.banks"] == 0
    ):
        written = banks_of(ce, operation, dest, 1)
        if any(collide(ce, written, banks) for banks in reads):
            lost = max(lost, ce.machine["mem.write_cycles"])
    return lost


def banks_of(ce: CE, operation: VectorOperation, operand: Operand, group: int) -> set[int]:
    """Return the banks, as far as conflicts distinguish them, of the first `group` elements of the next step."""
    count = ce.machine["mem.banks"]
    if ce.machine["mem.conflict_rule"] == "mod4":
        count = max(1, count // 2)
    return {operand.dsr.address(operation.k + i, operand.words) % count for i in range(group)}


def collide(ce: CE, first: set[int], second: set[int]) -> bool:
    """Whether accesses to two sets of banks cannot happen in one cycle."""
    return ce.machine["mem.conflict_rule"] != "none" and not first.isdisjoint(second)
