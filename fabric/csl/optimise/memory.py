"""Operations read and write memory: here is told whether two of them may meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric.csl.ir import AutoDsr, ExplicitDsr, Instr, IrFunction, StaticMemory, Sym, Template
from fabric.csl.ir.machine import IrProgram

__all__ = ["ANYWHERE", "Contents", "Place", "Touched", "addresses", "name_apart", "set_apart", "templates"]

ANYWHERE = None
"""Stands for a memory that is not known."""
Place = tuple[StaticMemory | None, Any, int, int]
"""A `Place` is a memory, what its address is counted from, words beyond that, and how many words, 0 if that is not
known.
"""
LONGEST = 2
"""At most so many words are loaded or stored by an instruction."""


class Contents:
    """What is known to stand at places of memory, found without a look at all of them."""

    def __init__(self) -> None:
        self._held: dict[StaticMemory | None, dict[Any, dict[tuple[int, int], int]]] = {}

    def get(self, place: Place) -> int | None:
        """Return the number of the value at a place, None if it is not known."""
        memory, base, offset, size = place
        return self._held.get(memory, {}).get(base, {}).get((offset, size))

    def put(self, place: Place, number: int) -> None:
        """Note the number of the value at a place."""
        memory, base, offset, size = place
        self._held.setdefault(memory, {}).setdefault(base, {})[offset, size] = number

    def store(self, place: Place) -> None:
        """Forget what a store to a place may change; two places are apart for sure in known words from one base."""
        memory, base, offset, size = place
        for other in list(self._held) if memory is None else (memory, None):
            if other is not memory and any(one is not None and one.apart for one in (memory, other)):
                continue
            bases = self._held.get(other, {})
            same = bases.get(base) if other is memory and size else None
            if same is None:
                self._held.pop(other, None)
                continue
            self._held[other] = {base: same}
            for length in range(1, LONGEST + 1):
                for start in range(offset - length + 1, offset + size):
                    same.pop((start, length), None)

    def forget(self, is_changed: Callable[[StaticMemory | None], bool]) -> None:
        """Forget what stands in memories that are changed; None is any that a pointer leads to."""
        for memory in list(self._held):
            if is_changed(memory):
                del self._held[memory]


def addresses(instr: Instr) -> list[Sym]:
    """Return the addresses that an operation names."""
    found = [part for part in instr.args if part.__class__ is Sym]
    for part in instr.data if instr.data.__class__ is tuple else (instr.data,):
        if part.__class__ is Sym:
            found.append(part)
        elif part.__class__ is Template:
            if part.base.__class__ is Sym:
                found.append(part.base)
            if part.fifo is not None:
                found.append(Sym(part.fifo.memory))
    return found


def set_apart(program: IrProgram) -> None:
    """Note which memories no pointer and no descriptor leads to."""
    led_to = {sym.memory for memory in program.memories for sym in memory.relocations.values()}
    for function in program.functions:
        for instr in function.instructions():
            plain = instr.op in ("load", "store")
            led_to |= {sym.memory for sym in addresses(instr) if not (plain and sym is instr.data)}
    for memory in program.memories:
        memory.apart = memory not in led_to


def name_apart(program: IrProgram) -> None:
    """Note of the DSRs that the program names which one memory each of them leads to, in all that it is loaded with."""
    found: dict[ExplicitDsr, Template | None] = {}
    for function in program.functions:
        for instr in function.instructions():
            if instr.op == "dsr_load" and isinstance(instr.data[0], ExplicitDsr):
                dsr, template = instr.data
                known = found.setdefault(dsr, template)
                if known is not None and not _alike(known, template):
                    found[dsr] = None
            elif instr.op == "dsr_base" and isinstance(instr.data, ExplicitDsr):
                found[instr.data] = None
    for function in program.functions:
        function.named = found


def _alike(one: Template, other: Template) -> bool:
    return one.kind == other.kind and one.flags == other.flags and _place(one.base) is _place(other.base)


def templates(function: IrFunction) -> dict[AutoDsr | ExplicitDsr, Template | None]:
    """Return what DSRs hold; None for those whose base is known at run time only."""
    found: dict[AutoDsr | ExplicitDsr, Template | None] = dict(function.named)
    for instr in function.instructions():
        if instr.op == "dsr_load" and isinstance(instr.data[0], AutoDsr):
            dsr, template = instr.data
            found[dsr] = template if dsr not in found else None
        elif instr.op == "dsr_base" and isinstance(instr.data, AutoDsr):
            found[instr.data] = None
    return found


class Touched:
    """A `Touched` knows which memories some operations read or write.

    Attributes
    ----------
    read, written : set
        Memories; `ANYWHERE` among them if some are not known.
    calls : bool
        Whether a function is called, which may do anything.
    """

    def __init__(self, instructions: list[Instr], held: dict[AutoDsr | ExplicitDsr, Template | None]) -> None:
        self.read: set[StaticMemory | None] = set()
        self.written: set[StaticMemory | None] = set()
        self.calls = False
        for instr in instructions:
            if instr.op in ("load", "peek"):
                self.read.add(_place(instr.data))
            elif instr.op in ("store", "poke"):
                self.written.add(_place(instr.data))
            elif instr.op in ("call", "tail"):
                self.calls = True
            elif instr.op == "vector":
                self._vector(instr, held)

    def _vector(self, instr: Instr, held: dict[AutoDsr | ExplicitDsr, Template | None]) -> None:
        for place, slot in enumerate(instr.data.slots):
            if slot == "dst" or isinstance(slot, int):
                continue
            template = held.get(slot)
            if template is not None and template.kind in ("fabin", "fabout") and not template.flags:
                continue
            memory = _place(template.base) if template is not None else ANYWHERE
            self.read.add(memory)
            # A source may be cleared as it is sent (`zero`), so that only memory that is surely no target is left out.
            if place == 0 or template is None or template.flags or template.kind == "fifo":
                self.written.add(memory)

    def may_write(self, memory: StaticMemory) -> bool:
        """Whether the memory may change."""
        return self.calls or memory in self.written or (ANYWHERE in self.written and not memory.apart)

    def may_touch(self, memory: StaticMemory) -> bool:
        """Whether the memory may change or be read."""
        return self.may_write(memory) or memory in self.read or (ANYWHERE in self.read and not memory.apart)


def _place(address: object) -> StaticMemory | None:
    return address.memory if isinstance(address, Sym) else ANYWHERE
