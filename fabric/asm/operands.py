"""The things a program names: registers, labels, variables, queues, descriptors, DSRs, tasks."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from fabric.asm.values import WORDS
from wse_core import isa
from wse_core.errors import ProgramError
from wse_core.image import ENDLESS

__all__ = [
    "Address",
    "Async",
    "Dsd",
    "Dsr",
    "Label",
    "Queue",
    "Reg",
    "Registers",
    "Task",
    "Var",
    "extent_of",
    "is_number",
]


@dataclass(frozen=True)
class Reg:
    """A register: `id` 0 .. 15, `size` 1 (16 bits), 2 (an even/odd pair) or 0 (named by number, either)."""

    id: int
    size: int = 0
    name: str = ""

    @property
    def low(self):
        """Low half of a pair."""
        return Reg(self.id, 1, f"{self.name}.low")

    @property
    def high(self):
        """High half of a pair."""
        return Reg(self.id + 1, 1, f"{self.name}.high")

    def __str__(self):
        text = f"r{self.id}" if self.size < 2 else f"r{self.id}:r{self.id + 1}"
        return f"{text} ({self.name})" if self.name else text


class Registers:
    """``p.r[3]``: a register by number."""

    def __getitem__(self, number):
        if not isinstance(number, int) or not 0 <= number < isa.N_REGS:
            raise ProgramError(f"register {number!r} does not exist", hint=f"p.r[0] .. p.r[{isa.N_REGS - 1}]")
        return Reg(number)


class Label:
    """A place in the code; made by `Program.label` (here) or `Program.new_label` (to be placed later)."""

    def __init__(self, name):
        self.name = name
        self.at = None  # index into the instruction list

    def __repr__(self):
        return f"Label({self.name!r})"


@dataclass(frozen=True)
class Address:
    """SRAM address of a variable plus `offset` words; becomes a number when the program is assembled."""

    var: Var
    offset: int = 0

    @property
    def words(self):
        """Words per element of the variable."""
        return self.var.words_per_element

    def __add__(self, words):
        return Address(self.var, self.offset + words)


class Var:
    """A variable in SRAM: `name`, `count` elements of `dtype`.

    ``var[3]`` is the address of an element, ``var[2:10:2]`` a one-dimensional descriptor.  `address` (in words) is
    known once the program is assembled.
    """

    def __init__(self, program, name, count, dtype, align, bank, words):
        self._program = program
        self.name, self.count, self.dtype = name, count, dtype
        self.align, self.bank, self.init = align, bank, words
        self._address = None

    @property
    def words_per_element(self):
        """SRAM words of one element, 1 or 2."""
        return WORDS[self.dtype]

    @property
    def words(self):
        """SRAM words taken."""
        return self.count * self.words_per_element

    @property
    def address(self):
        """Word address; assembles the program if that has not happened."""
        if self._address is None:
            self._program.assemble()
        return self._address

    def __len__(self):
        return self.count

    def __getitem__(self, key):
        if isinstance(key, slice):
            indices = range(self.count)[key]
            return self._program.mem1d(self, len(indices), stride=indices.step, offset=indices.start)
        index = key + self.count if key < 0 else key
        if not 0 <= index < self.count:
            raise ProgramError(
                f"element {key} is outside 0 .. {self.count - 1}", program=self._program.name, symbol=self.name
            )
        return Address(self, index * self.words_per_element)

    def __iter__(self):
        raise TypeError("a variable of a PE program cannot be iterated; its values exist only on the PE")

    def __repr__(self):
        return f"Var({self.name!r}, {self.count} x {self.dtype})"


@dataclass(frozen=True)
class Queue:
    """An input or output queue bound to a color."""

    kind: str  # "input" or "output"
    id: int
    color: int


@dataclass(frozen=True)
class Dsd:
    """A descriptor: an immutable value that operations take or that `Program.load` puts into a DSR.

    Made by the methods of `Program` (`mem1d`, `mem4d`, `circular`, `fifo`, `fabin`, `fabout`).
    """

    kind: str
    dtype: str | None = None
    extent: tuple | None = None  # None: as long as the other operands
    stride: tuple = (0,)
    base: Address | None = None
    queue: Queue | None = None
    packed: bool | None = None
    flags: int = 0
    index: int | None = None  # fabout: index half; circular: first element
    length: int = 0
    fifo: int = 0
    on_control: tuple = ()
    control_task: object = None
    push_task: object = None
    pop_task: object = None

    def with_extent(self, extent):
        """Return the same descriptor with another (outermost) extent."""
        return dataclasses.replace(self, extent=(extent_of(extent, "extent"), *(self.extent or (0,))[1:]))

    def at(self, offset):
        """Return a memory descriptor moved by `offset` elements."""
        if self.base is None:
            raise ProgramError(f"a {self.kind} descriptor has no base address to move")
        return dataclasses.replace(self, base=self.base + offset * self.base.words)

    @property
    def is_fabric(self):
        """Whether it is a fabin or a fabout."""
        return self.queue is not None

    @property
    def is_memory(self):
        """Whether it walks over a variable (mem1d, mem4d, circular)."""
        return self.kind in ("mem1d", "mem4d", "circular")

    @property
    def elements(self):
        """Number of elements: the product of the extents, None if not said."""
        return None if self.extent is None else math.prod(self.extent)

    def __str__(self):
        what = f" of {self.base.var.name!r}" if self.base is not None else ""
        if self.queue is not None:
            what = f" on {self.queue.kind} queue {self.queue.id}, color {self.queue.color}"
        return f"{self.kind}{what}"


class Dsr:
    """A data structure register: `file` (dest, src0, src1) and `id` (known after assembling if not chosen)."""

    def __init__(self, program, file, id, name, where):
        self._program = program
        self.file, self._id, self.name, self.where = file, id, name, where
        self.chosen = id is not None
        self.loads = []  # descriptors ever loaded
        self.group = self  # union-find: DSRs that must carry one id
        self.thread = None  # for those made by the assembler: class of id

    @property
    def id(self):
        """Number in its file; assembles the program if that has not happened."""
        if self._id is None:
            self._program.assemble()
        return self._id

    def __str__(self):
        return f"{self.file} DSR {self.name or ('?' if self._id is None else self._id)}"


@dataclass(frozen=True)
class Async:
    """Attributes of an asynchronous operation; see `Program.async_`."""

    priority: str = "medium"
    ut: int | None = None
    activate: object = None
    unblock: object = None


class Task:
    """A task: its body is emitted inside ``with p.task(...) as t``.

    Attributes
    ----------
    data, index : Reg
        R0 and R1: halves of the wavelet that started a data or control task.
    word : Reg
        R0 and R1 as a pair: all 32 bits.
    id : int
        Task id; known after assembling if not chosen.
    """

    data, index, word = Reg(0, 1, "data"), Reg(1, 1, "index"), Reg(0, 2, "word")

    def __init__(self, program, name, kind, id, high, where):
        self._program = program
        self.name, self.kind, self._id, self.high, self.where = name, kind, id, high, where
        self.label = None

    @property
    def id(self):
        """Task id; assembles the program if that has not happened."""
        if self._id is None:
            self._program.assemble()
        return self._id

    def __repr__(self):
        return f"Task({self.name!r}, {self.kind})"


def extent_of(value, what):
    """Return `value` as an extent, or refuse it; `what` names it in the message."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 0 <= value <= 0xFFFF:
        raise ProgramError(
            f"{what} {value!r} is not a number of elements in 0 .. {0xFFFF}",
            hint=f"ENDLESS ({ENDLESS}) for an operation that never ends",
        )
    return int(value)


def is_number(value):
    """Whether `value` is a number of Python or numpy; truth values are none."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
