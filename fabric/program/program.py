"""Programs of one PE: a Python API that assembles to a `wse_core.image.ProgramImage`.

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

from fabric.asm.assembler import Assembler
from fabric.asm.operands import Async, Dsd, Dsr, Label, Queue, Reg, Registers, Task, Var
from fabric.asm.values import decode_array, encode_array
from fabric.program.dsrs import DsrUse
from fabric.program.emission import Emission
from fabric.program.flow import Flow
from fabric.program.memory import Memory
from fabric.program.operations import Operations
from fabric.program.ports import Ports
from fabric.program.registers import RegisterUse
from fabric.program.scalar import Scalar
from fabric.program.tasks import Tasks
from wse_core import image as im
from wse_core.errors import ProgramError
from wse_core.image import ENDLESS
from wse_core.params import machine as _machine

__all__ = [
    "ENDLESS",
    "Async",
    "Dsd",
    "Dsr",
    "Label",
    "Program",
    "Queue",
    "Reg",
    "Task",
    "Var",
    "decode_array",
    "encode_array",
]


class Program(Memory, Ports, RegisterUse, DsrUse, Operations, Scalar, Tasks, Flow, Emission):
    """A PE program.

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

    def __init__(self, name, machine=None, half="f16", main_priority="medium_low"):
        self.name = str(name)
        self.machine = _machine() if machine is None else machine
        if half not in ("f16", "cb16"):
            raise ProgramError(f"half {half!r} is not a 16-bit float", program=name, hint='"f16" or "cb16"')
        if main_priority not in im.MAIN_PRIORITY:
            raise ProgramError(
                f"main_priority {main_priority!r} is unknown", program=name, hint=", ".join(im.MAIN_PRIORITY)
            )
        self.half, self.main_priority = half, main_priority
        self.r = Registers()
        self._ins, self._vars, self._labels = [], {}, {}
        self._tasks, self._functions = {}, {}
        self._queues = {"input": {}, "output": {}}
        self._dsrs, self._fifos = [], 0
        self._body = None
        self._global_regs, self._function_regs, self._task_regs = set(), set(), set()
        self._starts, self._blocks, self._unblocks, self._high = [], [], [], []
        self._last_if = None
        self._n_labels = 0
        self._image = None

    def __repr__(self):
        return f"Program({self.name!r}, {len(self._ins)} instructions)"

    def assemble(self):
        """Return the `ProgramImage`; the program cannot be changed any more.

        Raises
        ------
        ProgramError
            Unknown names, ids or DSRs that run out or clash, code and data that exceed the SRAM.
        """
        if self._image is None:
            if self._body is not None:
                raise self._error(f"assemble() inside {self._body.kind} {self._body.name!r}")
            self._image = Assembler(self).image()
        return self._image

    def listing(self):
        """Return the assembled program as readable text (`fabric.asm.disasm.listing`)."""
        from fabric.asm import disasm

        return disasm.listing(self.assemble())
