"""A program of one PE is written by a Python API that assembles to a `wse_core.image.ProgramImage`.

The concepts are those of CSL, one to one: variables in SRAM, tasks (data, local, control), colors, input and output
queues, DSDs, DSRs, microthreads.  A `Program` collects symbolic instructions; `Program.assemble` picks ids, lays out
code and data and encodes.  One method per row of the op table (`wse_core.isa.OPS`) exists; its docstring is made from
the table.

What the assembler decides, and how:

* *DSRs.*  A descriptor given straight to an operation is loaded right before it, one ``dsr_load`` each.  First sources
  of two-source operations go to file src0, every other source to src1, destinations to dest; an operation whose
  destination is its first source uses one src0 DSR for both.  On WSE-2 a dest DSR and a src0 DSR of one operation carry
  the same id.  Synchronous operations share one id; each microthread has its own, so that a running operation is never
  waited for by another one unless that needs the same microthread anyway.
* *Task ids.*  Local tasks take the lowest free of 24, 25, 26, 27, 28, 30, then colors without an input queue from 23
  down.  29 is the teardown task, 31 is no task.
* *Registers.*  Those of a task are free again at its end, those of a function never overlap with anything.  A data or
  control task finds the data half of its wavelet in R0 and the index half in R1.
* *Scalars.*  An immediate that an instruction cannot hold goes through a register that is free again after it.
* *SRAM.*  Code from word 0, then variables in the order of their declaration, each at the first address that its
  alignment and bank allow.

Timing: none here; costs of what is emitted stand in docs/machine.md.
Sources: arch §4 to §7 (vendor documentation of CSL); the encoding is `wse_core.isa`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, NoReturn

from fabric.asm import disasm
from fabric.asm.unit import Unit
from fabric.program.blocks import Blocks
from fabric.program.dsrs import Dsrs
from fabric.program.flow import Flow
from fabric.program.hints import HINTS
from fabric.program.memory import ProgramMemory
from fabric.program.methods import OperationMethods
from fabric.program.operations import Operations
from fabric.program.ports import Ports
from fabric.program.registers import ByNumber, Registers
from fabric.program.scalar import Scalars
from fabric.program.source import here
from fabric.program.tasks import ProgramTasks
from wse_core.formats import Half
from wse_core.image import ProgramImage
from wse_core.params import Machine
from wse_core.schema import close_match

__all__ = ["Program"]


def _from(part: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of `Program` that is one of a part of it, with signature and docstring."""

    @wraps(method)
    def forward(self: Program, *args: Any, **kwargs: Any) -> Any:
        return method(getattr(self, part), *args, **kwargs)

    return forward


class Program(OperationMethods):
    """A `Program` is what the PEs on which it is placed run.

    Parameters
    ----------
    name : str
        For messages and listings.
    machine : Machine, optional
        `wse_core.params.machine()`; default wse2.
    half : {"f16", "cb16"}
        What a 16-bit float is in this program.
    main_priority : {"medium_low", "medium", "medium_high", "high"}
        Issue level of the main thread relative to microthreads.
    by_address : bool
        Whether loads and stores of 16 bits reach the registers of router, queues and clock by their addresses
        (docs/machine.md); else an address beyond the data is a fault.

    Attributes
    ----------
    unit : Unit
        What it writes into and what assembles (`fabric.asm.unit`).
    r : ByNumber
        ``p.r[3]`` is register 3.

    Examples
    --------
    >>> p = Program("double")
    >>> a = p.array("a", 8, "f32")
    >>> with p.task("main"):
    ...     p.fadds(a, a, a)
    >>> image = p.assemble()
    >>> image.symbols["a"].count
    8
    """

    def __init__(
        self,
        name: str,
        machine: Machine | None = None,
        half: Half = "f16",
        main_priority: Literal["medium_low", "medium", "medium_high", "high"] = "medium_low",
        by_address: bool = False,
    ) -> None:
        self.unit = Unit(name, machine, half, main_priority, by_address, here, HINTS)
        self.registers = Registers(self.unit)
        self.memory = ProgramMemory(self.unit)
        self.ports = Ports(self.unit)
        self.dsrs = Dsrs(self.unit)
        self.operations = Operations(self.unit, self.registers, self.dsrs)
        self.scalars = Scalars(self.unit, self.registers)
        self.blocks = Blocks(self.unit, self.registers)
        self.tasks = ProgramTasks(self.unit, self.registers, self.blocks)
        self.flow = Flow(self.unit, self.registers, self.blocks, self.operations, self.scalars)

    def __getattr__(self, name: str) -> NoReturn:
        near = close_match(name, dir(type(self)))
        hint = f"; did you mean {near}?" if near else ""
        raise AttributeError(f"a program has no {name!r}{hint}", name=name, obj=self)

    def __repr__(self) -> str:
        unit = self.unit
        return f"Program({unit.name!r}, {len(unit.instructions)} instructions)"

    @property
    def name(self) -> str:
        """The program has this name in messages and listings."""
        return self.unit.name

    @property
    def machine(self) -> Machine:
        """The program is written for this machine: its modelled numbers."""
        return self.unit.machine

    @property
    def half(self) -> str:
        """A 16-bit float is this in the program: ``f16`` or ``cb16``."""
        return self.unit.half

    @property
    def r(self) -> ByNumber:
        """A register is taken by its number here: ``p.r[3]``."""
        return self.registers.by_number

    def assemble(self) -> ProgramImage:
        """Return the `ProgramImage`; the program cannot be changed any more.

        Raises
        ------
        ProgramError
            Unknown names, ids or DSRs that run out or clash, code and data that exceed the SRAM.
        """
        return self.unit.assemble()

    def listing(self) -> str:
        """Return the assembled program as readable text (`fabric.asm.disasm.listing`)."""
        return disasm.listing(self.assemble())

    # --- what the parts give ------------------------------------------------------------------------------------------

    reg16 = _from("registers", Registers.reg16)
    reg32 = _from("registers", Registers.reg32)
    regs = _from("registers", Registers.regs)
    pair = _from("registers", Registers.pair)
    free = _from("registers", Registers.free)

    array = _from("memory", ProgramMemory.array)
    scalar = _from("memory", ProgramMemory.scalar)
    param = _from("memory", ProgramMemory.param)
    mem1d = _from("memory", ProgramMemory.mem1d)
    mem4d = _from("memory", ProgramMemory.mem4d)
    circular = _from("memory", ProgramMemory.circular)
    fifo = _from("memory", ProgramMemory.fifo)

    input_queue = _from("ports", Ports.input_queue)
    output_queue = _from("ports", Ports.output_queue)
    fabin = _from("ports", Ports.fabin)
    fabout = _from("ports", Ports.fabout)

    dsr = _from("dsrs", Dsrs.dsr)
    load = _from("dsrs", Dsrs.load)
    dsr_load = load
    dsr_base = _from("dsrs", Dsrs.dsr_base)
    dsr_off = _from("dsrs", Dsrs.dsr_off)
    dsr_len = _from("dsrs", Dsrs.dsr_len)
    dsr_stride = _from("dsrs", Dsrs.dsr_stride)

    async_ = _from("operations", Operations.async_)
    dfilt = _from("operations", Operations.dfilt)

    nop = _from("scalars", Scalars.nop)
    ldi = _from("scalars", Scalars.ldi)
    ldi32 = _from("scalars", Scalars.ldi32)
    ld16 = _from("scalars", Scalars.ld16)
    ld32 = _from("scalars", Scalars.ld32)
    st16 = _from("scalars", Scalars.st16)
    st32 = _from("scalars", Scalars.st32)
    tsc = _from("scalars", Scalars.tsc)
    store_tsc = _from("scalars", Scalars.store_tsc)
    rand16 = _from("scalars", Scalars.rand16)
    prng = _from("scalars", Scalars.prng)
    trap = _from("scalars", Scalars.trap)
    sw_pos = _from("scalars", Scalars.sw_pos)
    route = _from("scalars", Scalars.route)
    td_exit = _from("scalars", Scalars.td_exit)
    in_td = _from("scalars", Scalars.in_td)
    q_state = _from("scalars", Scalars.q_state)
    flt_set = _from("scalars", Scalars.flt_set)

    task = _from("tasks", ProgramTasks.task)
    function = _from("tasks", ProgramTasks.function)
    done = _from("tasks", ProgramTasks.done)
    ret = _from("tasks", ProgramTasks.ret)
    call = _from("tasks", ProgramTasks.call)
    activate = _from("tasks", ProgramTasks.activate)
    block = _from("tasks", ProgramTasks.block)
    unblock = _from("tasks", ProgramTasks.unblock)
    start = _from("tasks", ProgramTasks.start)
    blocked = _from("tasks", ProgramTasks.blocked)
    unblocked = _from("tasks", ProgramTasks.unblocked)

    new_label = _from("flow", Flow.new_label)
    place = _from("flow", Flow.place)
    label = _from("flow", Flow.label)
    jump = _from("flow", Flow.jump)
    jmp = jump
    branch = _from("flow", Flow.branch)
    br16 = _from("flow", Flow.br16)
    br32 = _from("flow", Flow.br32)
    brh = _from("flow", Flow.brh)
    brs = _from("flow", Flow.brs)
    loop = _from("flow", Flow.loop)
    while_ = _from("flow", Flow.while_)
    if_ = _from("flow", Flow.if_)
    else_ = _from("flow", Flow.else_)
