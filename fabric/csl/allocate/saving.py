"""Functions keep the registers that they use, in a frame on a stack.

All registers but those of its result are after a call what they were before.  The stack pointer, r7 as on the machine,
moves down before registers are stored and up after they are loaded again; a function that saves none has no frame.  A
task that calls functions sets it at its begin.  Programs without calls have no stack.

Functions of a circle (`IrFunction.circle`) jump to each other and save nothing; who calls them saves what they change.

Why so: a sparse product by columns takes 53 cycles per column besides those per element in the vendor's simulator, one
by rows 47 to 56 per row: more than a loop and the test of two pointers need by twice eight registers.
"""

from __future__ import annotations

from fabric.csl.ir import Instr, IrFunction, StaticMemory, Sym, Vreg
from fabric.csl.rules import KEPT, ROUTINES

__all__ = ["POINTER", "Stack"]

POINTER = 7
"""The stack pointer lies in this register (the vendor's page on registers, WSE-2)."""


class Stack:
    """The `Stack` of one program holds the registers that its functions save while they run.

    Attributes
    ----------
    memory : StaticMemory or None
        None if no function is called.
    """

    def __init__(self, functions: list[IrFunction]) -> None:
        self.functions = functions
        called = any(instr.op == "call" for function in functions for instr in function.instructions())
        self.memory = StaticMemory(".stack", 0, "u16") if called else None
        self._saved: dict[IrFunction, int] = {}

    @property
    def reserved(self) -> frozenset[int]:
        """No value may lie in these registers."""
        return KEPT

    def save(self, function: IrFunction) -> None:
        """Let a function that has its registers keep those of its caller."""
        if self.memory is None or function.kind != "fn" or function.circle:
            return
        result = set(range(2, 2 + function.result))
        registers = sorted((function.clobbers | ROUTINES.get(function.name, set())) - result - {POINTER})
        function.clobbers = result
        self._saved[function] = len(registers)
        if not registers:
            return
        pointer, span = Vreg(1, "stack", POINTER), function.span
        values = [Vreg(1, "kept", number) for number in registers]
        first = function.blocks[0].code
        at = 1 if first[0].op == "entry" else 0
        first[at:at] = [
            Instr("sub16", pointer, (pointer, len(values)), None, span),
            *(Instr("store", None, (value, pointer), k, span) for k, value in enumerate(values)),
        ]
        for block in function.blocks:
            if block.code[-1].op == "ret":
                block.code[-1:-1] = [
                    *(Instr("load", value, (pointer,), k, span) for k, value in enumerate(values)),
                    Instr("add16", pointer, (pointer, len(values)), None, span),
                ]

    def finish(self) -> None:
        """Size the stack and let tasks set its pointer; after all functions have their registers."""
        if self.memory is None:
            return
        self.memory.count = max(1, *(self._depth(function) for function in self.functions))
        for function in self.functions:
            if function.kind == "task" and any(instr.op == "call" for instr in function.instructions()):
                code = function.blocks[0].code
                at = 1 if code[0].op == "entry" else 0
                top = Sym(self.memory, self.memory.count)
                code.insert(at, Instr("const", Vreg(1, "stack", POINTER), (top,), None, function.span))

    def _depth(self, function: IrFunction) -> int:
        """Return the words that a function and those that it calls save."""
        inner = [self._depth(instr.data) for instr in function.instructions() if instr.op == "call"]
        return self._saved.get(function, 0) + max(inner, default=0)
