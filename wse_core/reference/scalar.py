"""The main thread of a CE executes scalar instructions between vector operations: when one can issue, and what it does.

What      `main_waits_for` says why the next instruction waits, `exec_main` issues it; one function per form.
Ports     `ce` is the record of `wse_core.reference.ce`; `ce.router` for configuration instructions.
Contract  one instruction per call; what comes next and when stands in `ce.pc` and `ce.main_next` afterwards.
Timing    docs/machine.md, "CE"; costs come from wse_core/numbers.py.
Known     latencies and slots are assumptions of that page.
differences
Sources   docs/machine.md; arch §3, §4.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from wse_core import isa
from wse_core.encoding import MAIN, N_TASK_IDS, STATE_CUT
from wse_core.image import DSD_FABIN, DSD_FABOUT, DSD_MEM1D, DSD_MEM4D, DSD_NONE
from wse_core.reference.alu import ALU, CONDITION
from wse_core.reference.operand import (
    LOW16,
    LOW32,
    DsrState,
    ReferenceFault,
    reg_read,
    reg_write,
    sram_read,
    sram_write,
)
from wse_core.reference.vecop import async_ut, issue_vector

if TYPE_CHECKING:
    from wse_core.reference.ce import CE

__all__ = [
    "DecodedInstruction",
    "decoded",
    "effective_address",
    "exec_alu",
    "exec_br",
    "exec_dfilt",
    "exec_dsr",
    "exec_flt",
    "exec_in_td",
    "exec_jmp",
    "exec_ld",
    "exec_ldi",
    "exec_main",
    "exec_none",
    "exec_rand",
    "exec_route",
    "exec_st",
    "exec_task",
    "exec_tsc",
    "main_waits_for",
    "write_result",
]

SLOTS = {
    "pair": "ce.pair",
    "branch32": "ce.branch32",
    "divide": "ce.divide",
    "dsr_edit": "ce.dsr_edit",
    "tsc": "ce.tsc_read",
    "config": "ce.config",
}
"""Number that says how long an instruction of a cost class keeps the pipeline; others keep it a cycle."""


class _Fields(NamedTuple):
    op: isa.Op
    a: int
    b: int
    c: int
    d: int
    imm: int | None
    next: int


class DecodedInstruction(_Fields):
    """A decoded instruction comes with the code word index of the one after it; what follows from it is found once."""

    @property
    def immediate(self) -> int:
        """The instruction has this immediate; only forms with one may be asked."""
        assert self.imm is not None
        return self.imm

    @cached_property
    def operands(self) -> list[tuple[str, int, str]]:
        """An ALU form has these operands, (place, field, type letter), destination first."""
        places = zip("abcd", (self.a, self.b, self.c, self.d), self.op.types, strict=True)
        return [(place, field, letter) for place, field, letter in places if letter != "-"]

    @cached_property
    def dsrs(self) -> list[tuple[int, int]]:
        """An instruction has these DSRs among its operands, (file, id)."""
        if self.op.form == "dsr":
            fields = [self.a]
        elif self.op.form in ("alu", "dfilt"):
            fields = [field for _, field, _ in self.operands] if self.is_vector else []
        else:
            fields = []
        return [divmod(field, 16) for field in fields if field >> 4 != isa.FILE_REG]

    @cached_property
    def is_vector(self) -> bool:
        """Whether it is a vector operation."""
        return isa.is_vector(self.op, self.a, self.b, self.c)

    @cached_property
    def counter(self) -> int | None:
        """This register says how often a synchronous vector operation is done, None for once."""
        return isa.again_register(self.imm) if self.is_vector else None

    @cached_property
    def is_async(self) -> bool:
        """Whether it is an asynchronous vector operation."""
        return self.is_vector and self.imm is not None and bool(self.imm & 1)

    @cached_property
    def sources(self) -> list[int]:
        """An instruction that issues has read registers of these ids."""
        form, types = self.op.form, self.op.types
        fields = []  # (field, words)
        if form in ("alu", "dfilt"):
            if self.counter is not None:
                fields.append((isa.FILE_REG << 4 | self.counter, 1))
            for place, field, letter in self.operands:
                replaced = place == "c" and self.imm is not None and not self.is_vector
                if place != "a" and not replaced:
                    fields.append((field, isa.WORDS[letter]))
        elif form == "ld":
            fields = [(self.b, 1)]
        elif form == "st":
            fields = [(self.a, isa.WORDS[types[0]]), (self.b, 1)]
        elif form == "br":
            fields = [(self.a, isa.WORDS[types[0]]), (self.b, isa.WORDS[types[1]])]
        elif form == "flt" or (form == "dsr" and (self.imm is None or self.op.name == "dsr_load")):
            fields = [(self.b, 1)]
        found = []
        for field, words in fields:
            if field >> 4 == isa.FILE_REG:  # a field of 0 is an absent operand
                found += [(field & 15) + k for k in range(words)]
        return found


@lru_cache(maxsize=64)
def decoded(words: tuple[int, ...]) -> dict[int, DecodedInstruction]:
    """Return the instructions of a program by the indices of their code words, the same ones for all of its PEs."""
    return {
        at: DecodedInstruction(op, a, b, c, d, imm, at + (1 if imm is None else 2))
        for at, op, a, b, c, d, imm in isa.decode(words)
    }


# --- issue ------------------------------------------------------------------------------------------------------------


def main_waits_for(ce: CE, t: int) -> str | None:
    """Return why the main thread's next instruction cannot issue in cycle t, None if it can."""
    if t < ce.main_next:
        return "pipe"
    ins = ce.code.get(ce.pc)
    if ins is None:
        return None  # it can, and faults
    for register in ins.sources:
        if t < ce.reg_ready[register]:
            return "pipe"
    if ins.dsrs:
        for thread in range(MAIN):
            operation = ce.operations[thread]
            if operation is not None and not operation.dsr_names.isdisjoint(ins.dsrs):
                return "resource"
    if ins.is_async:
        microthread = async_ut(ce, ins)
        if microthread is not None and ce.operations[microthread] is not None:
            return "resource"
    return None


def exec_main(ce: CE, t: int) -> None:
    """Issue the main thread's next instruction in cycle t."""
    ins = ce.code.get(ce.pc)
    if ins is None:
        raise ReferenceFault("program", f"no instruction at code word {ce.pc}")
    if ins.is_vector:
        issue_vector(ce, ins, t)
        ce.counters["instructions"] += 1
        return
    cost = ins.op.cost
    slow = SLOTS.get(cost)
    slots = 1 if slow is None else ce.machine[slow]
    if ins.op.name == "dsr_load" and ce.image.descriptors[ins.immediate]["kind"] in (DSD_FABIN, DSD_FABOUT):
        slots += ce.machine["ce.fabric_load"]
    latency = {
        "int": ce.machine["ce.int_latency"],
        "fp": ce.machine["ce.fp_latency"],
        "load": ce.machine["ce.load_latency"],
    }.get(cost, slots)
    ce.result_ready = t + max(slots, latency)
    ce.go_to, ce.next_in = ins.next, slots
    EXECUTE[ins.op.form](ce, ins, t)
    ce.counters["instructions"] += 1
    if ins.op.is_counted:
        ce.work[ins.op.code, 0] += 1
    ce.book(t, slots)
    ce.main_next = t + ce.next_in
    ce.pc = ce.go_to


def write_result(ce: CE, field: int, words: int, value: int) -> None:
    """Write the result of a scalar instruction."""
    reg_write(ce, field, words, value, ce.result_ready)


# --- one function per form --------------------------------------------------------------------------------------------


def exec_none(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Execute nop, ret or done."""
    if ins.op.name == "ret":
        if not ce.return_to:
            raise ReferenceFault("program", "ret without call")
        ce.go_to, ce.next_in = ce.return_to.pop(), ce.machine["ce.ret"]
    elif ins.op.name == "done":
        ce.main, ce.go_to, ce.return_to = "idle", -1, []
        ce.emit(ce.x, ce.y, t, "task_end", None, ce.running, 0, int(ce.running_control))


def exec_alu(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Execute arithmetic on registers."""
    values = {"b": 0, "c": 0, "d": 0}
    for place, field, letter in ins.operands:
        if place == "a":
            continue
        if place == "c" and ins.imm is not None:
            values[place] = ins.imm & (LOW16 if isa.WORDS[letter] == 1 else LOW32)
        else:
            values[place] = reg_read(ce, field, isa.WORDS[letter])
    write_result(ce, ins.a, isa.WORDS[ins.op.types[0]], ALU[ins.op.name](ce.num, **values))
    if ins.op.is_mac:
        ce.counters["macs"] += 1


def exec_dfilt(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Only the vector form exists."""
    raise ReferenceFault("program", "dfilt of a register")


def exec_ldi(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Load an immediate into a register."""
    words = isa.WORDS[ins.op.types[0]]
    write_result(ce, ins.a, words, ins.immediate & (LOW16 if words == 1 else LOW32))


def effective_address(ce: CE, ins: DecodedInstruction) -> int:
    """Return immediate + register b, modulo 2^16; b is absent if its field is 0."""
    register = reg_read(ce, ins.b, 1) if ins.b >> 4 == isa.FILE_REG else 0
    return register + ins.immediate & LOW16


def exec_ld(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Load a register from memory."""
    words, address = isa.WORDS[ins.op.types[0]], effective_address(ce, ins)
    if words == 1 and ce.registers is not None and ce.registers.has(address):
        write_result(ce, ins.a, words, ce.registers.read(address, t))
        return
    write_result(ce, ins.a, words, sram_read(ce, address, words))


def exec_st(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Store a register to memory."""
    words, address = isa.WORDS[ins.op.types[0]], effective_address(ce, ins)
    if words == 1 and ce.registers is not None and ce.registers.has(address):
        ce.registers.write(address, reg_read(ce, ins.a, 1), t)
        return
    sram_write(ce, address, words, reg_read(ce, ins.a, words))


def exec_br(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Execute a conditional branch."""
    words = isa.WORDS[ins.op.types[0]]
    a = reg_read(ce, ins.a, words)
    b = reg_read(ce, ins.b, words) if ins.b >> 4 == isa.FILE_REG else 0
    condition = isa.CONDITIONS[ins.d] if ins.d < len(isa.CONDITIONS) else None
    if condition not in CONDITION[ins.op.name]:
        raise ReferenceFault("program", f"{ins.op.name} with condition {ins.d}")
    compared = ce.next_in - 1
    ce.next_in = compared + ce.machine["ce.branch_not_taken"]
    if CONDITION[ins.op.name][condition](ce.num, a, b):
        ends = ce.machine["ce.branch_end"] if _stands(ce, "done", ins.immediate) else 0
        ce.go_to, ce.next_in = ins.immediate, compared + (ends or ce.machine["ce.branch_taken"])


def _stands(ce: CE, name: str, at: int) -> bool:
    """Return whether a scalar instruction of this name stands at a code word."""
    ins = ce.code.get(at)
    return ins is not None and not ins.is_vector and ins.op.name == name


def exec_jmp(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Execute jmp, call or trap."""
    if ins.op.name == "trap":
        raise ReferenceFault("program", f"trap {ins.imm}", value=ins.imm)
    if ins.op.name == "call":
        if len(ce.return_to) >= isa.RETURN_DEPTH:
            raise ReferenceFault("program", f"call deeper than {isa.RETURN_DEPTH}")
        ce.return_to.append(ins.next)
    ce.go_to = ins.immediate
    ce.next_in = ce.machine["ce.call" if ins.op.name == "call" else "ce.branch_taken"]


def exec_task(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Execute activate, block, unblock or prng."""
    if ins.op.name == "activate":
        ce.activate(ins.a)
    elif ins.op.name != "prng" and ins.a >= N_TASK_IDS:
        bit = 1 << ins.a - N_TASK_IDS
        ce.held = ce.held | bit if ins.op.name == "block" else ce.held & ~bit
    elif ins.op.name == "block":
        ce.blocked |= 1 << ins.a
    elif ins.op.name == "unblock":
        ce.unblock(ins.a)
    else:
        ce.active_prng = ins.a


def exec_dsr(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Load a DSR, or change one of its fields."""
    name = divmod(ins.a, 16)
    if ins.op.name == "dsr_load":
        ce.dsrs[name] = loaded = DsrState(ce.image.descriptors[ins.immediate])
        if ins.b >> 4 == isa.FILE_REG:
            loaded.base = reg_read(ce, ins.b, 1)
        further = loaded.ndim - 1 if loaded.kind == DSD_MEM4D else 0
        ce.next_in = ce.machine["ce.dsr_load"] + further * ce.machine["ce.dsr_dimension"]
        if loaded.kind in (DSD_FABIN, DSD_FABOUT):
            ce.next_in += ce.machine["ce.fabric_load"]
        elif loaded.kind == DSD_MEM1D and ins.b >> 4 != isa.FILE_REG and _stands(ce, "dsr_load", ins.next):
            ce.next_in = ce.machine["ce.dsr_row"] or ce.next_in
        return
    dsr = ce.dsrs.get(name)
    if dsr is None or dsr.kind == DSD_NONE:
        raise ReferenceFault("program", f"{ins.op.name} of an empty DSR")
    value = (reg_read(ce, ins.b, 1) if ins.imm is None else ins.imm) & LOW16
    signed = value - 0x10000 if value & 0x8000 else value
    if ins.op.name == "dsr_base":
        dsr.base = value
    elif ins.op.name == "dsr_off":
        dsr.base = dsr.base + signed & LOW16
    elif ins.op.name == "dsr_len":
        dsr.extent[0] = value
    else:
        dsr.stride[0] = signed


def exec_tsc(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Cycle counter to three registers."""
    stamp = t % (1 << ce.machine["tsc.bits"]) if ce.registers is None else ce.registers.stamp(t)
    for k in range(3):
        write_result(ce, ins.a + k, 1, stamp >> 16 * k & LOW16)


def exec_rand(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Draw 16 bits from the active generator."""
    s = ce.prng[ce.active_prng]
    for _ in range(ce.machine["prng.steps"]):
        bit = (s >> 22 ^ s >> 17) & 1
        s = (s << 1 | bit) & LOW32
    ce.prng[ce.active_prng] = s
    write_result(ce, ins.a, 1, s & LOW16)


def exec_route(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Execute sw_pos, route or td_exit; routers see it from cycle t + 1 on."""
    if ins.op.name == "sw_pos":
        ce.router.set_position(ins.a, ins.immediate, t)
    elif ins.op.name == "route":
        imm = ins.immediate
        ce.router.set_route(ins.a, imm >> 10 & 3, imm & 31, imm >> 5 & 31, imm >> 12 & 7, t)
    else:
        ce.router.exit_teardown(ins.a, t)


def exec_in_td(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Ask whether a color is in teardown, or which queues are empty or full."""
    if ins.op.name == "q_state":
        write_result(ce, ins.a, 1, ce.cut if ins.immediate == STATE_CUT else ce.queues_that_are(ins.immediate, t))
        return
    write_result(ce, ins.a, 1, int(ce.router.in_teardown(ins.immediate)))


def exec_flt(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Set a field of a filter."""
    ce.router.set_filter(ins.a, ins.immediate, reg_read(ce, ins.b, 1))


EXECUTE = {
    "none": exec_none,
    "alu": exec_alu,
    "dfilt": exec_dfilt,
    "ldi": exec_ldi,
    "ld": exec_ld,
    "st": exec_st,
    "br": exec_br,
    "jmp": exec_jmp,
    "task": exec_task,
    "dsr": exec_dsr,
    "tsc": exec_tsc,
    "rand": exec_rand,
    "route": exec_route,
    "in_td": exec_in_td,
    "flt": exec_flt,
}
