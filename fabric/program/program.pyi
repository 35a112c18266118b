"""The face of `Program` for editors and type checkers.

Written by `python -m tools.stubs --write`; do not edit.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, TypedDict, Unpack

from numpy.typing import ArrayLike

from fabric.asm.operands import Address, Async, Dsd, Dsr, Label, Queue, Reg, Task, Var
from fabric.asm.unit import Unit
from fabric.program.blocks import Blocks
from fabric.program.dsrs import Dsrs
from fabric.program.flow import Flow, Kind
from fabric.program.memory import ProgramMemory
from fabric.program.operations import Operations
from fabric.program.ports import Ports
from fabric.program.registers import ByNumber, Registers
from fabric.program.scalar import Scalars
from fabric.program.tasks import ProgramTasks
from wse_core.formats import Half
from wse_core.image import ProgramImage
from wse_core.params import Machine

_Dst = Var | Dsd | Dsr | Reg
_Src = Var | Dsd | Dsr | Reg | Address | float
_Async = Async | bool | None
_Task = Task | str | int

class _Attributes(TypedDict, total=False):
    """Attributes of an asynchronous operation, as `Program.async_` has them, and `again` of a synchronous one."""

    priority: str
    ut: int | None
    activate: _Task | None
    unblock: _Task | None
    again: Reg | None

class Program:
    """A PE program; see `fabric.program.program`."""

    unit: Unit
    registers: Registers
    memory: ProgramMemory
    ports: Ports
    dsrs: Dsrs
    operations: Operations
    scalars: Scalars
    blocks: Blocks
    tasks: ProgramTasks
    flow: Flow

    def __init__(
        self,
        name: str,
        machine: Machine | None = None,
        half: Half = "f16",
        main_priority: Literal["medium_low", "medium", "medium_high", "high"] = "medium_low",
        by_address: bool = False,
    ) -> None: ...
    def __repr__(self) -> str: ...
    @property
    def name(self) -> str:
        """The program has this name in messages and listings."""

    @property
    def machine(self) -> Machine:
        """The program is written for this machine: its modelled numbers."""

    @property
    def half(self) -> str:
        """A 16-bit float is this in the program: ``f16`` or ``cb16``."""

    @property
    def r(self) -> ByNumber:
        """A register is taken by its number here: ``p.r[3]``."""

    def assemble(self) -> ProgramImage:
        """Return the `ProgramImage`; the program cannot be changed any more."""

    def listing(self) -> str:
        """Return the assembled program as readable text (`fabric.asm.disasm.listing`)."""

    def reg16(self, name: str = "") -> Reg:
        """Return a free 16-bit register; inside a task it is free again at the task's end."""

    def reg32(self, name: str = "") -> Reg:
        """Return a free even/odd pair of registers."""

    def regs(self, count: int, name: str = "") -> tuple[Reg, ...]:
        """Return `count` consecutive free 16-bit registers, for example three for `tsc`."""

    def pair(self, even: int) -> Reg:
        """Return the pair of registers `even` and `even` + 1."""

    def free(self, *regs: Reg) -> None:
        """Give registers of the task or function being written back before its end."""

    def array(
        self,
        name: str,
        count: int,
        dtype: str,
        init: ArrayLike | None = None,
        align: int | None = None,
        bank: int | None = None,
    ) -> Var:
        """Declare a variable of `count` elements."""

    def scalar(self, name: str, dtype: str, init: ArrayLike | None = None, bank: int | None = None) -> Var:
        """Declare a variable of one element; see `array`."""

    def param(self, name: str, dtype: str, default: ArrayLike = 0, count: int = 1) -> Var:
        """Declare a parameter: a variable that `Layout.set_param` sets per PE before the run."""

    def mem1d(
        self,
        var: Var,
        extent: int | None = None,
        stride: int = 1,
        offset: int = 0,
        save: bool = False,
        index: bool = False,
        dtype: str | None = None,
        check: bool = True,
    ) -> Dsd:
        """Describe a one-dimensional walk over a variable."""

    def mem4d(
        self,
        var: Var,
        extents: Sequence[int],
        strides: Sequence[int] | None = None,
        offset: int = 0,
        dtype: str | None = None,
        check: bool = True,
    ) -> Dsd:
        """Describe a walk in up to four dimensions, outermost first."""

    def circular(
        self,
        var: Var,
        extent: int | None = None,
        start: int = 0,
        save: bool = False,
        dtype: str | None = None,
        length: int | None = None,
    ) -> Dsd:
        """Describe a circular buffer over the first `length` elements of `var` (default all), from `start` on."""

    def fifo(
        self,
        var: Var,
        extent: int | None = None,
        activate_push: Task | str | int | None = None,
        activate_pop: Task | str | int | None = None,
        terminate: bool = False,
    ) -> Dsd:
        """Allocate a FIFO with `var` as its storage."""

    def input_queue(self, q: int, color: int) -> Queue:
        """Bind input queue `q` to `color` and return the `Queue`; the same pair again gives the same one."""

    def output_queue(self, q: int, color: int) -> Queue:
        """Bind output queue `q` to `color` and return the `Queue`; errors as `input_queue`."""

    def fabin(
        self,
        source: Queue | int,
        extent: int,
        packed: bool | None = None,
        on_control: Mapping[str, Any] | None = None,
        dtype: str | None = None,
        simd: str | None = None,
    ) -> Dsd:
        """Describe wavelets arriving from the fabric."""

    def fabout(
        self,
        target: Queue | int,
        extent: int,
        packed: bool | None = None,
        control: bool = False,
        advance_switch: bool = False,
        zero: bool = False,
        index: int | None = None,
        dtype: str | None = None,
        simd: str | None = None,
        control_transform: bool = False,
    ) -> Dsd:
        """Describe wavelets leaving for the fabric."""

    def dsr(self, file: Literal["dest", "src0", "src1"], id: int | None = None, name: str = "") -> Dsr:
        """Reserve a data structure register."""

    def load(self, dsr: Dsr, dsd: Dsd | Var) -> None:
        """Load descriptor `dsd` into `dsr` (CSL: load_to_dsr); `dsd` may be a variable."""

    def dsr_load(self, dsr: Dsr, dsd: Dsd | Var) -> None:
        """Load descriptor `dsd` into `dsr` (CSL: load_to_dsr); `dsd` may be a variable."""

    def dsr_base(self, dsr: Dsr, base: Var | Address | Reg | int) -> None:
        """Set the base word address of `dsr`: a variable, an element's address, a register or a number."""

    def dsr_off(self, dsr: Dsr, words: Reg | int) -> None:
        """Move the base of `dsr` by signed `words`: a register or a number."""

    def dsr_len(self, dsr: Dsr, extent: Reg | int) -> None:
        """Set the (outermost) extent of `dsr`: a register or a number."""

    def dsr_stride(self, dsr: Dsr, stride: Reg | int) -> None:
        """Set the (outermost) stride of `dsr` in elements: a register or a number."""

    def async_(
        self,
        priority: Literal["low", "medium", "high"] = "medium",
        ut: int | None = None,
        activate: Task | str | int | None = None,
        unblock: Task | str | int | None = None,
    ) -> Async:
        """Return attributes for the ``async_`` argument of an operation."""

    def dfilt(self, source: Dsd | Dsr, async_: Async | bool = True, **attributes: Any) -> None:
        """Discard data wavelets of a fabin until its extent in control wavelets has been seen; asynchronous only."""

    def nop(self) -> None:
        """Do nothing for a cycle."""

    def ldi(self, dst: Reg, value: float | Var | Address) -> None:
        """Load a number, or the address of a variable, into a 16-bit register; a float is encoded in the half type."""

    def ldi32(self, dst: Reg, value: float) -> None:
        """Load a number into a register pair; a float is encoded as f32."""

    def ld16(self, dst: Reg, base: Var | Address | Reg | int, offset: int = 0, index: Reg | None = None) -> None:
        """Load 16 bits into a register."""

    def ld32(self, dst: Reg, base: Var | Address | Reg | int, offset: int = 0, index: Reg | None = None) -> None:
        """Load 32 bits into a register pair from an even address; see `ld16`."""

    def st16(self, src: Reg, base: Var | Address | Reg | int, offset: int = 0, index: Reg | None = None) -> None:
        """Store a 16-bit register; see `ld16`."""

    def st32(self, src: Reg, base: Var | Address | Reg | int, offset: int = 0, index: Reg | None = None) -> None:
        """Store a register pair to an even address; see `ld16`."""

    def tsc(self, dst: Reg | Sequence[Reg]) -> None:
        """Read the 48-bit cycle counter into three consecutive registers, low first; `dst` from `regs` (3) or a Reg."""

    def store_tsc(self, var: Var | Address | Reg) -> None:
        """Read the cycle counter and store it as three 16-bit words at `var` (u16, at least 3 elements)."""

    def rand16(self, dst: Reg) -> None:
        """Draw 16 bits from the active random generator into a register."""

    def prng(self, number: int) -> None:
        """Make random generator `number` (0 .. 3) the active one."""

    def trap(self, code: int = 0) -> None:
        """Stop the machine with a ProgramFault that carries `code`."""

    def sw_pos(self, color: int, position: int) -> None:
        """Set the switch position of `color` at this PE's router."""

    def route(self, color: int, rx: str, tx: str, position: int = 0, mode: str = "set") -> None:
        """Rewrite one switch position of `color` at this PE."""

    def td_exit(self, color: int) -> None:
        """End teardown of `color` at this PE."""

    def in_td(self, dst: Reg, color: int) -> None:
        """Set a register to 1 if `color` is in teardown at this PE, else to 0."""

    def q_state(self, dst: Reg, what: str) -> None:
        """Set a register to the set of queues, bit k for queue k, that are in a state, or to what a FIFO left."""

    def flt_set(self, filter: int, field: Literal["counter", "max", "limit"], value: Reg | int) -> None:
        """Set a field of a counter filter of this PE."""

    def task(
        self,
        name: str,
        kind: Literal["local", "data", "control"] = "local",
        id: int | None = None,
        color: int | None = None,
        priority: Literal["low", "high"] = "low",
    ) -> AbstractContextManager[Task]:
        """Write a task: its body is what is emitted inside the ``with``; it ends by itself."""

    def function(self, name: str) -> AbstractContextManager[Label]:
        """Write a function, called by `call`; it returns at its end."""

    def done(self) -> None:
        """End the task (emitted by itself at the end of a task's body)."""

    def ret(self) -> None:
        """Return from a function (emitted by itself at its end)."""

    def call(self, name: str | Label) -> None:
        """Call a function by name; it may be written later.  At most eight calls deep."""

    def activate(self, task: Task | str | int) -> None:
        """Set the activated bit of a task (name, `Task` or id)."""

    def block(self, task: Task | Queue | str | int) -> None:
        """Set the blocked bit of a task: name, `Task`, id, or the `Queue` whose wavelets start it."""

    def unblock(self, task: Task | Queue | str | int) -> None:
        """Clear the blocked bit of a task: name, `Task`, id, or the `Queue` whose wavelets start it."""

    def start(self, task: Task | str | int) -> None:
        """Begin with `task` activated (CSL: activate at comptime)."""

    def blocked(self, task: Task | Queue | str | int) -> None:
        """Begin with `task` blocked: name, `Task`, id, or the `Queue` whose wavelets start it."""

    def unblocked(self, task: Task | Queue | str | int) -> None:
        """Begin with an input queue, or the id of its tasks, unblocked although it has no data task."""

    def new_label(self, name: str | None = None) -> Label:
        """Return a label to be put somewhere later by `place`."""

    def place(self, label: Label) -> Label:
        """Put a label here."""

    def label(self, name: str | None = None) -> Label:
        """Put a new label here and return it."""

    def jump(self, target: Label | str) -> None:
        """Jump to a label (object or name, which may be placed later)."""

    def jmp(self, target: Label | str) -> None:
        """Jump to a label (object or name, which may be placed later)."""

    def branch(self, cond: str, a: Reg | float, b: Reg | float, target: Label | str, kind: Kind | None = None) -> None:
        """Jump to `target` if ``a cond b``."""

    def br16(self, cond: str, a: Reg | float, b: Reg | float, target: Label | str) -> None:
        """Compare 16-bit integers and `branch`."""

    def br32(self, cond: str, a: Reg | float, b: Reg | float, target: Label | str) -> None:
        """Compare 32-bit integers and `branch`."""

    def brh(self, cond: str, a: Reg | float, b: Reg | float, target: Label | str) -> None:
        """Compare 16-bit floats and `branch`; quiet, false with NaN except ne."""

    def brs(self, cond: str, a: Reg | float, b: Reg | float, target: Label | str) -> None:
        """Compare f32 numbers and `branch`; quiet, false with NaN except ne."""

    def loop(self, count: int | Reg, index: bool = False, counter: Reg | None = None) -> AbstractContextManager[Reg]:
        """Repeat the body `count` times."""

    def while_(
        self, cond: str, a: Reg | float, b: Reg | float, kind: Kind | None = None
    ) -> AbstractContextManager[None]:
        """Repeat the body while ``a cond b`` holds; arguments as `branch`."""

    def if_(self, cond: str, a: Reg | float, b: Reg | float, kind: Kind | None = None) -> AbstractContextManager[None]:
        """Execute the body if ``a cond b`` holds; arguments as `branch`.  `else_` may follow."""

    def else_(self) -> AbstractContextManager[None]:
        """Execute the body if the condition of the `if_` right before did not hold."""

    def add16(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """add16(dst, a, b): dst = a + b modulo 2^16"""

    def sub16(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """sub16(dst, a, b): dst = a - b modulo 2^16"""

    def mul16(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """mul16(dst, a, b): dst = low half of a * b"""

    def and16(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """and16(dst, a, b): dst = a and b"""

    def or16(self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """or16(dst, a, b): dst = a or b"""

    def xor16(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """xor16(dst, a, b): dst = a exclusive or b"""

    def sll16(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """sll16(dst, a, b): dst = a << (b and 15)"""

    def slr16(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """slr16(dst, a, b): dst = a >> (b and 15), zeros in"""

    def sar16(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """sar16(dst, a, b): dst = a >> (b and 15), sign in"""

    def mov16(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """mov16(dst, a): dst = a"""

    def clz(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """clz(dst, a): dst = leading zeros of a; 16 for 0"""

    def ctz(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """ctz(dst, a): dst = trailing zeros of a; 16 for 0"""

    def popcnt(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """popcnt(dst, a): dst = ones in a"""

    def add32(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """add32(dst, a, b): dst = a + b modulo 2^32"""

    def sub32(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """sub32(dst, a, b): dst = a - b modulo 2^32"""

    def mul32(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """mul32(dst, a, b): dst = low half of a * b"""

    def and32(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """and32(dst, a, b): dst = a and b"""

    def or32(self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """or32(dst, a, b): dst = a or b"""

    def xor32(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """xor32(dst, a, b): dst = a exclusive or b"""

    def sll32(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """sll32(dst, a, b): dst = a << (b and 31)"""

    def slr32(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """slr32(dst, a, b): dst = a >> (b and 31), zeros in"""

    def sar32(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """sar32(dst, a, b): dst = a >> (b and 31), sign in"""

    def sx32(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """sx32(dst, a): dst = a with its sign extended to 32 bits"""

    def zx32(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """zx32(dst, a): dst = a with zeros above"""

    def mov32(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """mov32(dst, a): dst = a"""

    def faddh(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """faddh(dst, a, b): dst = a + b"""

    def fsubh(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fsubh(dst, a, b): dst = a - b"""

    def fmulh(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fmulh(dst, a, b): dst = a * b"""

    def fmaxh(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fmaxh(dst, a, b): dst = maximum(a, b), NaN propagates, -0 < +0"""

    def fminh(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fminh(dst, a, b): dst = minimum(a, b)"""

    def fabsh(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fabsh(dst, a): dst = a without its sign"""

    def fnegh(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fnegh(dst, a): dst = a with its sign flipped"""

    def fmovh(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fmovh(dst, a): dst = a"""

    def fscaleh(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fscaleh(dst, a, b): dst = a * 2^b, one rounding; b signed"""

    def fdivh(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fdivh(dst, a, b): dst = a / b"""

    def fsqrth(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fsqrth(dst, a): dst = square root of a"""

    def fmach(
        self, dst: _Dst, a: _Src, b: _Src, scalar: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fmach(dst, a, b, scalar): dst = a + b * scalar, one rounding"""

    def fadds(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fadds(dst, a, b): dst = a + b"""

    def fsubs(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fsubs(dst, a, b): dst = a - b"""

    def fmuls(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fmuls(dst, a, b): dst = a * b"""

    def fmaxs(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fmaxs(dst, a, b): dst = maximum(a, b), NaN propagates, -0 < +0"""

    def fmins(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fmins(dst, a, b): dst = minimum(a, b)"""

    def fabss(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fabss(dst, a): dst = a without its sign"""

    def fnegs(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fnegs(dst, a): dst = a with its sign flipped"""

    def fmovs(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fmovs(dst, a): dst = a"""

    def fscales(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fscales(dst, a, b): dst = a * 2^b, one rounding; b signed"""

    def fdivs(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fdivs(dst, a, b): dst = a / b"""

    def fsqrts(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fsqrts(dst, a): dst = square root of a"""

    def fmacs(
        self, dst: _Dst, a: _Src, b: _Src, scalar: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fmacs(dst, a, b, scalar): dst = a + b * scalar, one rounding"""

    def faddhs(
        self, dst: _Dst, a: _Src, b: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """faddhs(dst, a, b): dst = a + b: a 16-bit, b and dst fp32"""

    def fmachs(
        self, dst: _Dst, a: _Src, b: _Src, scalar: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]
    ) -> None:
        """fmachs(dst, a, b, scalar): dst = a + b * scalar: b and scalar 16-bit, a and dst fp32"""

    def fh2s(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fh2s(dst, a): dst = fp32 of a, exact; a 16-bit"""

    def fs2h(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fs2h(dst, a): dst = 16-bit float of a, nearest even; a fp32"""

    def fh2xp16(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fh2xp16(dst, a): dst = signed 16-bit integer of a, toward zero, saturating"""

    def fs2xp16(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fs2xp16(dst, a): dst = signed 16-bit integer of a, toward zero, saturating"""

    def xp162fh(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """xp162fh(dst, a): dst = 16-bit float of a, signed"""

    def xp162fs(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """xp162fs(dst, a): dst = fp32 of a, signed"""

    def fs2xp32(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """fs2xp32(dst, a): dst = signed 32-bit integer of a, toward zero, saturating"""

    def xp322fs(self, dst: _Dst, a: _Src, /, *, async_: _Async = None, **attributes: Unpack[_Attributes]) -> None:
        """xp322fs(dst, a): dst = fp32 of a, signed"""

    def addc16(self, *args: Any, **kwargs: Any) -> None:
        """Not modelled: how the carry of a vector form chains is not public."""

    def fnormh(self, *args: Any, **kwargs: Any) -> None:
        """Not modelled: normalisation is not defined in public documents (numerics.md)."""

    def fnorms(self, *args: Any, **kwargs: Any) -> None:
        """Not modelled: normalisation is not defined in public documents (numerics.md)."""

    def map(self, *args: Any, **kwargs: Any) -> None:
        """Not modelled: a compiler construct: write the loop, or a multiply-add of DSRs with again=register."""
