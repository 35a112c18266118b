"""The intermediate form as text: for people, for messages of broken promises, and for tests; `reader` reads it.

A text is complete: what it names stands in its head, and the same function always has the same text, since registers
are numbered by the order in which they were made and DSRs by their first place::

    @a = memory("u16", 8, apart=True)
    task job():
      b1:
        v1.n = load [@a+3]
        v2 = add16 v1.n, 5
        br v2, 0 [br16, ne, b2, b1]
      b2: depth 1
        dsr_load [src1#1, mem1d(base=@a, extents=(4,))]
        vector v2 [add16(dest:0, src1#1, 0)]
        ret

Registers are ``v`` of one word and ``d`` of two, with a name and a fixed machine register (``v1.n=r2``) if they have
them; ``src1#1`` is a DSR that the compiler chooses, ``src1#1.64`` with its thread, ``dest:0`` one of the program's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import MISSING, fields

from fabric.csl.ir.code import BasicBlock, Instr, IrFunction, StaticMemory, Sym, Vreg
from fabric.csl.ir.machine import AutoDsr, Ending, ExplicitDsr, Fifo, Template, Vector

__all__ = ["BARE", "LATER", "FunctionPrinter", "listing"]

BARE = re.compile(r"(?!None$|True$|False$|[vdb]\d+$)[a-z]\w*", re.ASCII)
"""Quotes are left out of strings that match."""
LATER = "later"
"""The ending of an asynchronous operation is called this."""


def listing(function: IrFunction) -> str:
    """Return a function as text."""
    return FunctionPrinter(function).text


class FunctionPrinter:
    """A `FunctionPrinter` prints one function of the intermediate form as text.

    Attributes
    ----------
    text : str
        All of it.
    """

    def __init__(self, function: IrFunction) -> None:
        self._registers = _ranks(function)
        self._names: dict[StaticMemory | IrFunction | AutoDsr | Fifo, str] = {}
        self._taken: set[str] = set()
        self._heads: list[str] = []
        self._pointers: list[str] = []
        self._frame = set(function.frame)
        body = [self._head(function)]
        for block in function.blocks:
            body.append(f"  {block}:" + (f" depth {block.depth}" if block.depth else ""))
            body += [f"    {self.line(instr)}" for instr in block.code]
        for memory in function.frame:
            self.value(memory)
        named = [f"{self.value(dsr)} = {self.value(held)}" for dsr, held in function.named.items()]
        self.text = "\n".join([*self._heads, *self._pointers, *named, *body])

    def line(self, instr: Instr) -> str:
        """Return one operation as a line of text."""
        left = f"{self.value(instr.dst)} = " if instr.dst is not None else ""
        right = f" {self._row(instr.args)}" if instr.args else ""
        data = instr.data
        if data is not None:
            right += f" [{self._parts(data) if data.__class__ is tuple else self.value(data)}]"
        return f"{left}{instr.op}{right}"

    def value(self, value: object) -> str:
        """Return an operand, or a part of what an operation names."""
        match value:
            case Vreg():
                return self._register(value)
            case str():
                return value if BARE.fullmatch(value) else json.dumps(value)
            case tuple():
                return f"({self._parts(value)})"
            case Sym():
                return self._memory(value.memory) + (f"{value.offset:+d}" if value.offset else "")
            case StaticMemory():
                return self._memory(value)
            case IrFunction():
                return self._function(value)
            case AutoDsr():
                return self._dsr(value)
            case Fifo():
                return self._fifo(value)
            case Template():
                return f"{value.kind}({', '.join(self._changed(value, 'kind'))})"
            case Ending():
                return f"{LATER}({', '.join(self._changed(value))})"
            case Vector():
                parts = [self.value(slot) for slot in value.slots]
                ending = [] if value.ending is None else [f"ending={self.value(value.ending)}"]
                return f"{value.op}({', '.join([*parts, *ending])})"
            case ExplicitDsr():
                return f"{value.file}:{value.number}"
            case None | bool() | int() | BasicBlock():
                return repr(value)
        raise TypeError(f"{value!r} has no place in a text")

    def _row(self, values: Iterable[object]) -> str:
        return ", ".join(map(self.value, values))

    def _parts(self, values: tuple[object, ...]) -> str:
        return self._row(values) + "," * (len(values) == 1)

    def _changed(self, value: Template | Ending | StaticMemory | Fifo, *without: str) -> list[str]:
        """Return the fields that are not as they would be by themselves."""
        found = []
        for part in fields(value):
            held = getattr(value, part.name)
            if part.name not in without and (part.default is MISSING or held != part.default):
                found.append(f"{part.name}={self.value(held)}")
        return found

    # ---- what has a name

    def _register(self, register: Vreg) -> str:
        number = self._registers[register]
        at = f"=r{register.fixed}" if register.fixed is not None else ""
        return f"{'d' if register.size == 2 else 'v'}{number}{'.' if register.name else ''}{register.name}{at}"

    def _head(self, function: IrFunction) -> str:
        parts = self._facts(function)
        return f"{function.kind} {function.name}({self._row(function.params)})" + "".join(f" {p}" for p in parts) + ":"

    def _facts(self, function: IrFunction) -> list[str]:
        parts = {
            "result": function.result or None,
            "places": tuple(function.places) or None,
            "clobbers": tuple(sorted(function.clobbers)) or None,
            "circle": function.circle or None,
        }
        return [f"{name}={self.value(held)}" for name, held in parts.items() if held is not None]

    def _free(self, name: str) -> str:
        """Return a name that nothing has yet."""
        made, k = name, 1
        while made in self._taken:
            k += 1
            made = f"{name}~{k}"
        self._taken.add(made)
        return made

    def _memory(self, memory: StaticMemory) -> str:
        known = self._names.get(memory)
        if known is None:
            known = self._names[memory] = self._free(f"@{memory.name}")
            parts = [self.value(memory.dtype), str(memory.count)]
            parts += self._changed(memory, "name", "count", "dtype", "init", "relocations", "span")
            parts += ["frame=True"] if memory in self._frame else []
            if memory.init is not None:
                parts.append(f"init={self.value(tuple(int(word) for word in memory.init))}")
            self._heads.append(f"{known} = memory({', '.join(parts)})")
            self._pointers += [f"{known}+{k} = {self.value(sym)}" for k, sym in memory.relocations.items()]
        return known

    def _function(self, function: IrFunction) -> str:
        known = self._names.get(function)
        if known is None:
            known = self._names[function] = self._free(f"&{function.name}")
            self._heads.append(f"{known} = function({', '.join([function.kind, *self._facts(function)])})")
        return known

    def _dsr(self, dsr: AutoDsr) -> str:
        known = self._names.get(dsr)
        if known is None:
            count = sum(isinstance(other, AutoDsr) and other.file == dsr.file for other in self._names)
            known = self._names[dsr] = f"{dsr.file}#{count + 1}{f'.{dsr.thread}' if dsr.thread >= 0 else ''}"
        return known

    def _fifo(self, fifo: Fifo) -> str:
        known = self._names.get(fifo)
        if known is None:
            known = self._names[fifo] = f"fifo#{sum(isinstance(other, Fifo) for other in self._names) + 1}"
            self._heads.append(f"{known} = storage({', '.join(self._changed(fifo))})")
        return known


def _ranks(function: IrFunction) -> dict[Vreg, int]:
    """Return the registers of a function, each with its place in the order in which they were made."""
    found = set(function.params)
    for instr in function.instructions():
        found.update(instr.uses(), instr.defs())
    return {register: k for k, register in enumerate(sorted(found, key=lambda entry: entry.number), 1)}
