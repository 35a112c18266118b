"""A program has names for these things: registers, labels, variables, queues, descriptors, DSRs, tasks."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeGuard, overload

import numpy as np

from fabric.asm.instruction import SourcePlace
from fabric.asm.values import WORDS
from wse_core.encoding import N_QUEUES
from wse_core.errors import ProgramError
from wse_core.image import ENDLESS

if TYPE_CHECKING:
    from fabric.asm.unit import Unit

__all__ = [
    "Address",
    "Async",
    "Dsd",
    "Dsr",
    "Label",
    "Queue",
    "Reg",
    "Task",
    "Var",
    "check_stride",
    "extent_of",
    "is_number",
]


@dataclass(frozen=True)
class Reg:
    """A `Reg` is a register: `id` 0 .. 15, `size` 1 (16 bits), 2 (an even/odd pair) or 0 (named by number, either)."""

    id: int
    size: int = 0
    name: str = ""

    @property
    def low(self) -> Reg:
        """The low half of a pair is this register."""
        return Reg(self.id, 1, f"{self.name}.low")

    @property
    def high(self) -> Reg:
        """The high half of a pair is this register."""
        return Reg(self.id + 1, 1, f"{self.name}.high")

    def __str__(self) -> str:
        text = f"r{self.id}" if self.size < 2 else f"r{self.id}:r{self.id + 1}"
        return f"{text} ({self.name})" if self.name else text


class Label:
    """A `Label` is a place in the code; made by `Program.label` (here) or `Program.new_label` (to be placed later)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.at: int | None = None  # index into the list of instructions

    def __repr__(self) -> str:
        return f"Label({self.name!r})"


@dataclass(frozen=True)
class Address:
    """SRAM address of a variable plus `offset` words; becomes a number when the program is assembled."""

    var: Var
    offset: int = 0

    @property
    def words(self) -> int:
        """An element of the variable takes so many words."""
        return self.var.words_per_element

    def __add__(self, words: int) -> Address:
        return Address(self.var, self.offset + words)


class Var:
    """A `Var` is a variable in SRAM: `name`, `count` elements of `dtype`.

    ``var[3]`` is the address of an element, ``var[2:10:2]`` a one-dimensional descriptor.  `address` (in words) is
    known once the program is assembled.
    """

    def __init__(
        self,
        unit: Unit,
        name: str,
        count: int,
        dtype: str,
        align: int,
        bank: int | None = None,
        init: np.ndarray | None = None,
    ) -> None:
        self.unit = unit
        self.name, self.count, self.dtype = name, count, dtype
        self.align, self.bank, self.init = align, bank, init
        self.placed: int | None = None  # word address, once the assembler has chosen it

    @property
    def words_per_element(self) -> int:
        """One element takes so many words of SRAM, 1 or 2."""
        return WORDS[self.dtype]

    @property
    def words(self) -> int:
        """The variable takes so many words of SRAM."""
        return self.count * self.words_per_element

    @property
    def address(self) -> int:
        """Word address; assembles the program if that has not happened."""
        return _assembled(self, "placed") if self.placed is None else self.placed

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, key: slice) -> Dsd: ...
    @overload
    def __getitem__(self, key: int) -> Address: ...
    def __getitem__(self, key: int | slice) -> Address | Dsd:
        if isinstance(key, slice):
            indices = range(self.count)[key]
            check_stride(self, indices.step)
            extent = extent_of(len(indices), f"extent of {self.name!r}")
            base = Address(self, indices.start * self.words_per_element)
            return Dsd("mem1d", self.dtype, (extent,), (indices.step,), base)
        index = key + self.count if key < 0 else key
        if not 0 <= index < self.count:
            raise ProgramError(
                f"element {key} is outside 0 .. {self.count - 1}", program=self.unit.name, symbol=self.name
            )
        return Address(self, index * self.words_per_element)

    def __iter__(self) -> Any:
        raise TypeError("a variable of a PE program cannot be iterated; its values exist only on the PE")

    def __repr__(self) -> str:
        return f"Var({self.name!r}, {self.count} x {self.dtype})"


@dataclass(frozen=True)
class Queue:
    """An input or output queue bound to a color; the binding `id` is one of queue ``id % N_QUEUES``."""

    kind: str  # "input" or "output"
    id: int
    color: int

    @property
    def number(self) -> int:
        """The machine knows the queue by this number."""
        return self.id % N_QUEUES


@dataclass(frozen=True, repr=False)
class Dsd:
    """A `Dsd` is a descriptor: an immutable value that operations take or that `Program.load` puts into a DSR.

    Made by the methods of `Program` (`mem1d`, `mem4d`, `circular`, `fifo`, `fabin`, `fabout`).
    """

    kind: str
    dtype: str | None = None
    extent: tuple[int, ...] | None = None  # None: as long as the other operands
    stride: tuple[int, ...] = (0,)
    base: Address | None = None
    queue: Queue | None = None
    packed: bool | None = None
    flags: int = 0
    index: int | None = None  # fabout: index half; circular: first element
    length: int = 0
    fifo: int = 0
    on_control: tuple[int, ...] = ()
    control_task: object = None
    push_task: object = None
    pop_task: object = None

    def with_extent(self, extent: int) -> Dsd:
        """Return the same descriptor with another (outermost) extent."""
        return dataclasses.replace(self, extent=(extent_of(extent, "extent"), *(self.extent or (0,))[1:]))

    def at(self, offset: int) -> Dsd:
        """Return a memory descriptor moved by `offset` elements."""
        if self.base is None:
            raise ProgramError(f"a {self.kind} descriptor has no base address to move")
        return dataclasses.replace(self, base=self.base + offset * self.base.words)

    @property
    def is_fabric(self) -> bool:
        """Whether it is a fabin or a fabout."""
        return self.queue is not None

    @property
    def is_memory(self) -> bool:
        """The descriptor is one that walks over a variable (mem1d, mem4d, circular)."""
        return self.kind in ("mem1d", "mem4d", "circular")

    @cached_property
    def elements(self) -> int | None:
        """The descriptor has so many elements: the product of the extents, None if not said."""
        return None if self.extent is None else math.prod(self.extent)

    def __str__(self) -> str:
        what = f" of {self.base.var.name!r}" if self.base is not None else ""
        if self.queue is not None:
            what = f" on {self.queue.kind} queue {self.queue.id}, color {self.queue.color}"
        return f"{self.kind}{what}"

    def __repr__(self) -> str:
        size = "x".join("endless" if n == ENDLESS else str(n) for n in self.extent or ())
        return (
            f"Dsd({', '.join([str(self), ' x '.join(part for part in (size, self.dtype) if part)]).removesuffix(', ')})"
        )


class Dsr:
    """A `Dsr` is a data structure register: `file` (dest, src0, src1), `id` (known after assembling if not chosen)."""

    def __init__(self, unit: Unit, file: str, id: int | None, name: str, at: SourcePlace | None) -> None:
        self.unit = unit
        self.file, self.number, self.name, self.at = file, id, name, at
        self.chosen = id is not None
        self.loads: list[Dsd] = []  # descriptors ever loaded
        self.group = self  # union-find: DSRs that must carry one number
        self.thread: int | None = None  # for those made by the assembler: class of number

    @property
    def id(self) -> int:
        """Number in its file; assembles the program if that has not happened."""
        return _assembled(self, "number") if self.number is None else self.number

    @property
    def root(self) -> Dsr:
        """This DSR stands for all those which must carry the same number."""
        dsr = self
        while dsr.group is not dsr:
            dsr = dsr.group
        return dsr

    def __str__(self) -> str:
        return f"{self.file} DSR {self.name or ('?' if self.number is None else self.number)}"

    def __repr__(self) -> str:
        return f"Dsr({self})"


@dataclass(frozen=True)
class Async:
    """Attributes of an asynchronous operation; see `Program.async_`."""

    priority: str = "medium"
    ut: int | None = None
    activate: object = None
    unblock: object = None


class Task:
    """A task: its body is what is emitted between its beginning and its end.

    Attributes
    ----------
    data, index : Reg
        R0 and R1: halves of the wavelet that started a data or control task.
    word : Reg
        R0 and R1 as a pair: all 32 bits.
    id : int
        Task id; known after assembling if not chosen.
    color : int or None
        Of a data task: that of the wavelets which start it.
    """

    data, index, word = Reg(0, 1, "data"), Reg(1, 1, "index"), Reg(0, 2, "word")

    def __init__(
        self, unit: Unit, name: str, kind: str, id: int | None, color: int | None, high: bool, at: SourcePlace | None
    ) -> None:
        self.unit = unit
        self.name, self.kind, self.number, self.high, self.at = name, kind, id, high, at
        self.color = color
        self.label: Label = Label(name)

    @property
    def id(self) -> int:
        """Task id; assembles the program if that has not happened."""
        return _assembled(self, "number") if self.number is None else self.number

    def __repr__(self) -> str:
        return f"Task({self.name!r}, {self.kind})"


def _assembled(thing: Var | Dsr | Task, key: str) -> int:
    """Assemble, and return the number that the assembler chose."""
    thing.unit.assemble()
    return getattr(thing, key)


def check_stride(var: Var, stride: int) -> None:
    """Refuse a stride that one-dimensional descriptors cannot have."""
    if not -128 <= stride <= 127:
        raise var.unit.error(
            f"stride {stride} of a one-dimensional descriptor is outside -128 .. 127",
            symbol=var.name,
            hint=var.unit.hint("stride"),
        )


def extent_of(value: Any, what: str) -> int:
    """Return `value` as an extent, or refuse it; `what` names it in the message."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 0 <= value <= 0xFFFF:
        raise ProgramError(
            f"{what} {value!r} is not a number of elements in 0 .. {0xFFFF}",
            hint=f"ENDLESS ({ENDLESS}) for an operation that never ends",
        )
    return int(value)


def is_number(value: object) -> TypeGuard[float | np.number]:
    """Whether `value` is a number of Python or numpy; truth values are none."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
