"""What the CSL compiler makes of common expressions: the rules that all recipes share.

*Product with a constant*: a power of two is a shift; a sum or difference of two powers of two, two shifts and an
addition (the decomposition that LLVM makes without asking the target); anything else calls a routine, since the
machine multiplies numbers of 11 bits (IMUL11) and a product of 16 bits is put together from three of those; the
routine saves and restores the registers that it needs.

*Descriptors*: an operation whose descriptors are variables (DSDs) loads each into a DSR right before and adds the
offset that was computed for it; the destination and the first source have a DSR each, even where they are the same;
descriptors that were put into DSRs by hand stay there, and only their base is set.

*Loops* count up, compare and jump.  A loop with known bounds is unrolled if all its turns together are few enough
instructions, inner loops first; LLVM decides so, and allows more for a loop whose index arithmetic folds into
constants, which then costs nothing (`fabric.csl.rules` has the bounds).  A loop whose bounds are known only at run
time may have no turn: it compares at its top, and a jump leads back there.

*Asynchronous operations* have low priority (`PRIORITY`) where the program says nothing else.

*Functions* save and restore the registers that they use, in a frame on a stack: the stack pointer, a register (r7 of
the WSE-2, says the vendor's page on registers), moves down before the registers are stored and up after they are
loaded again.  A function that saves none has no frame.

*Registers* are taken by what is alive, so a value that is not needed any more leaves its register to others, such as
those of a time stamp.  No recipe has more alive at once than the machine has registers; nothing is spilled.

None of the rest is published; the instructions seen in public traces (shifts, IMUL11, DSR loads, compare and jump)
agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from fabric.asm.operands import Dsd, Dsr, Reg
from fabric.csl.rules import powers
from fabric.program.program import Program

__all__ = ["PRIORITY", "Multiplier", "Stack", "counted", "load_at"]

PRIORITY = "low"
"""Of an asynchronous operation that names none (CSL page on DSDs)."""


class Stack:
    """Where the functions of one program keep the registers that they need.

    Parameters
    ----------
    program : Program
    words : int
        Most registers that all functions which are active together save.
    """

    def __init__(self, program: Program, words: int = 16) -> None:
        self.p, self.words = program, words
        self.memory = program.array("stack", words, "u16")
        self.pointer = program.reg16("stack pointer")

    def begin(self) -> None:
        """Set the stack pointer; what is started with the program does so before anything else."""
        self.p.ldi(self.pointer, self.memory)
        self.p.add16(self.pointer, self.pointer, self.words)

    @contextmanager
    def saved(self, registers: Sequence[Reg]) -> Iterator[None]:
        """Keep 16-bit registers over the body of a function."""
        p, pointer = self.p, self.pointer
        p.sub16(pointer, pointer, len(registers))
        for k, register in enumerate(registers):
            p.st16(register, pointer, offset=k)
        yield
        for k, register in enumerate(registers):
            p.ld16(register, pointer, offset=k)
        p.add16(pointer, pointer, len(registers))


class Multiplier:
    """Products of registers with constants in one program.

    Parameters
    ----------
    program : Program
        If a constant needs it, `routine` adds the function ``multiply`` to the program, outside of tasks.
    constants : iterable of int
        All constants that will occur.
    scratch : tuple of two Reg, optional
        Registers that the routine uses besides, and preserves; default free ones.
    stack : Stack, optional
        Where it preserves them; default one of its own, if there is a routine.  `begin` sets it up.
    """

    def __init__(
        self,
        program: Program,
        constants: Iterable[int],
        scratch: tuple[Reg, Reg] | None = None,
        stack: Stack | None = None,
    ) -> None:
        self.p, self.scratch, self.stack = program, scratch, stack
        self.factors: tuple[Reg, Reg] | None = None
        if any(powers(constant) is None for constant in constants):
            self.factors = program.reg16("left factor"), program.reg16("right factor")
            self.stack = stack or Stack(program)

    def begin(self) -> None:
        """Set up the stack, if the routine needs one; before the first product."""
        if self.stack is not None:
            self.stack.begin()

    def emit(self, dst: Reg, src: Reg, constant: int) -> None:
        """Set register `dst` to `src` times `constant` modulo 2^16; `dst` is not `src`."""
        p, parts = self.p, powers(constant)
        if parts is None:
            assert self.factors is not None, "a constant that was not announced"
            left, right = self.factors
            p.mov16(left, src)
            p.ldi(right, constant)
            p.call("multiply")
            p.mov16(dst, left)
            return
        high, low, sign = parts
        if high == 0 and not sign:
            p.mov16(dst, src)
            return
        p.sll16(dst, src, high)
        if sign:
            other = src
            if low:
                other = p.reg16("part")
                p.sll16(other, src, low)
            (p.add16 if sign > 0 else p.sub16)(dst, dst, other)
            if low:
                p.free(other)

    def routine(self) -> None:
        """Write the function: a b = a0 b0 + 2^11 (a1 b0 + a0 b1) with 11 low and 5 high bits of each."""
        if self.factors is None or self.stack is None:
            return
        p, (left, right) = self.p, self.factors
        a1, b1 = self.scratch or (p.reg16("a1"), p.reg16("b1"))
        with p.function("multiply"), self.stack.saved((a1, b1)):
            p.slr16(a1, left, 11)
            p.slr16(b1, right, 11)
            p.and16(left, left, 0x7FF)
            p.and16(right, right, 0x7FF)
            p.mul16(a1, a1, right)
            p.mul16(b1, b1, left)
            p.mul16(left, left, right)
            p.add16(a1, a1, b1)
            p.sll16(a1, a1, 11)
            p.add16(left, left, a1)


def load_at(p: Program, dsrs: Iterable[Dsr], dsd: Dsd, offset: Reg | int | None = None) -> None:
    """Load a descriptor into DSRs, its base moved by the words in the register `offset`, or by a number of them."""
    for dsr in dsrs:
        p.load(dsr, dsd)
        if offset is not None:
            p.dsr_off(dsr, offset)


@contextmanager
def counted(p: Program, index: Reg, end: int) -> Iterator[None]:
    """Repeat the body with the register `index` = 0 .. `end` - 1 (a number, at least 1)."""
    p.ldi(index, 0)
    start = p.label()
    yield
    p.add16(index, index, 1)
    p.branch("ne", index, end, start, "16")
