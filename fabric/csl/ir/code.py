"""Functions of the intermediate form consist of blocks of operations on virtual registers.

A virtual register may be set more than once; one that is set once (`IrFunction.single`) is a value for the whole
function.  The operations:

============  ===============================================================================================
op            meaning
============  ===============================================================================================
ALU rows      ``dst = op(args)``, the names of `wse_core.isa`; an argument is a register, a number or a `Sym`
``const``     ``dst = args[0]``, a number or an address
``copy``      ``dst = args[0]``, a register of the same size
``low``       ``dst`` = low half of the pair ``args[0]``; ``high`` the other
``load``      ``dst`` = memory at ``data`` (a number or `Sym`) plus the register ``args[0]`` if there is one
``store``     memory at ``data`` plus ``args[1]`` if there is one = ``args[0]``
``entry``     sets the registers ``data``: parameters of a function, halves of a wavelet
``call``      calls the function ``data``; ``args`` lie in the registers that it wants them in
``dsr_*``     loads or edits the DSR ``data``; see `fabric.csl.ir.machine`
``vector``    a vector operation, ``data`` a `fabric.csl.ir.machine.Vector`; a running sum reads and sets ``dst``
``bits``      ``activate``, ``block``, ``unblock``, ``prng``, ``trap``, ``td_exit``...: machine ops on known numbers
``jmp``       to the block ``data``
``br``        ``data`` = (row of the op table, condition, block if it holds, block if not)
``tsc``       the cycle counter into the three registers ``data``
``ret``       the end of a function or task; ``args`` lie where results lie
``tail``      jumps to the function ``data``
============  ===============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fabric.csl.diagnostics import Span

__all__ = ["TERMINATORS", "BasicBlock", "Instr", "IrFunction", "Operand", "StaticMemory", "Sym", "Vreg", "signed"]

TERMINATORS = frozenset(("jmp", "br", "ret", "tail"))


def signed(value: int, bits: int) -> int:
    """Return bits as a signed number."""
    return value - (1 << bits) if value >> bits - 1 else value


class Vreg:
    """A virtual register of 1 or 2 words; `fixed` is the machine register that it stands for, if any."""

    __slots__ = ("fixed", "name", "number", "size")
    made = 0

    def __init__(self, size: int, name: str = "", fixed: int | None = None) -> None:
        Vreg.made += 1
        self.number = Vreg.made
        self.size, self.name, self.fixed = size, name, fixed

    def __repr__(self) -> str:
        at = f"=r{self.fixed}" if self.fixed is not None else ""
        return f"{'d' if self.size == 2 else 'v'}{self.number}{'.' + self.name if self.name else ''}{at}"


@dataclass(eq=False)
class StaticMemory:
    """A place in SRAM: `count` elements of a type of the assembler; `init` are its words at the start."""

    name: str
    count: int
    dtype: str
    init: np.ndarray | None = None
    align: int = 1
    const: bool = False
    relocations: dict[int, Sym] = field(default_factory=dict)
    """These words of `init` are addresses."""
    span: Span | None = None
    """The global is declared here; None for what the compiler adds."""
    apart: bool = False
    """Whether no pointer and no descriptor leads there: only loads and stores that name it reach it."""
    noted: bool = False
    """Whether it is a note of the compiler's for its own loads: where there are none, nothing is stored."""

    undefined: bool = False
    """Whether it is a variable of the program without an initial value."""

    @property
    def words(self) -> int:
        """The memory takes so many 16-bit words."""
        return self.count * (2 if self.dtype in ("f32", "i32", "u32") else 1)

    def __repr__(self) -> str:
        return f"@{self.name}"


@dataclass(frozen=True)
class Sym:
    """A `Sym` is the address `offset` words behind the beginning of a memory."""

    memory: StaticMemory
    offset: int = 0

    def __add__(self, words: int) -> Sym:
        return Sym(self.memory, self.offset + words)

    def __repr__(self) -> str:
        return f"{self.memory}{f'+{self.offset}' if self.offset else ''}"


Operand = Vreg | int | Sym


class Instr:
    """An `Instr` is one operation of the intermediate form."""

    __slots__ = ("args", "data", "dst", "op", "span")

    def __init__(
        self, op: str, dst: Vreg | None = None, args: tuple[Any, ...] = (), data: Any = None, span: Span | None = None
    ) -> None:
        self.op, self.dst, self.args, self.data, self.span = op, dst, args, data, span

    def uses(self) -> list[Vreg]:
        """Return the registers that it reads."""
        return [arg for arg in self.args if arg.__class__ is Vreg]

    def defs(self) -> list[Vreg]:
        """Return the registers that it sets."""
        if self.op in ("entry", "tsc"):
            return list(self.data)
        return [] if self.dst is None else [self.dst]


@dataclass(eq=False)
class BasicBlock:
    """Operations without a jump between them; the last one is a terminator. `depth` counts the loops around it."""

    number: int
    depth: int = 0
    code: list[Instr] = field(default_factory=list)

    def successors(self) -> list[BasicBlock]:
        """Return where it goes on."""
        if not self.code:
            return []
        last = self.code[-1]
        if last.op == "jmp":
            return [last.data]
        if last.op == "br":
            return [last.data[2], last.data[3]]
        return []

    @property
    def ended(self) -> bool:
        """Whether it has its terminator."""
        return bool(self.code) and self.code[-1].op in TERMINATORS

    def __repr__(self) -> str:
        return f"b{self.number}"


@dataclass(eq=False)
class IrFunction:
    """An `IrFunction` is a function or task in intermediate form.

    Attributes
    ----------
    name, kind : str
        `kind`: ``fn`` or ``task``.
    blocks : list of BasicBlock
        The first one is where it begins; the others in the order of the source.
    params : list of Vreg
    result : int
        Words of the result.
    clobbers : set of int
        Machine registers that it may change, its callees' included; known after allocation.
    places : list of int
        Machine registers in which parameters arrive; known after allocation.
    circle : bool
        Whether it is reached by jumps from functions that it jumps to: its registers are chosen beforehand.
    """

    name: str
    kind: str
    span: Span
    params: list[Vreg] = field(default_factory=list)
    result: int = 0
    blocks: list[BasicBlock] = field(default_factory=list)
    clobbers: set[int] = field(default_factory=set)
    places: list[int] = field(default_factory=list)
    circle: bool = False
    frame: list[StaticMemory] = field(default_factory=list)
    named: dict[Any, Any] = field(default_factory=dict)
    """Each DSR with a name in the whole program has here a descriptor of the memory that it leads to, None for several.
    """

    def instructions(self) -> Iterator[Instr]:
        """Yield every operation in order."""
        for block in self.blocks:
            yield from block.code

    def single(self) -> dict[Vreg, Instr]:
        """Return the registers that are set once, each with the operation that does it."""
        found: dict[Vreg, Instr] = {}
        twice: set[Vreg] = set()
        for instr in self.instructions():
            for reg in instr.defs():
                if reg in found:
                    twice.add(reg)
                found[reg] = instr
        return {reg: instr for reg, instr in found.items() if reg not in twice and reg.fixed is None}
