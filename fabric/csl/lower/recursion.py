"""Functions that call themselves: a call keeps on a stack what its caller still needs, and jumps to the beginning.

The machine keeps eight addresses of returns, so such a function is one with a loop: where it would return, the top of
the stack says after which of its calls it goes on, or that it was called from elsewhere.  A call keeps the registers
that are read after it and all variables of the function that lie in memory.  Every frame has an even number of words,
the last of which is the number of its call, 0 for one from elsewhere.  Functions that call each other in a circle are
written one behind the other in the code of each of them that is called from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from fabric.csl import tree
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import BasicBlock, Operand, StaticMemory, Sym, Vreg
from fabric.csl.ir.liveness import live_out
from fabric.csl.lower.builder import Builder
from fabric.csl.lower.constants import words_of_type
from fabric.csl.types import VOID

__all__ = ["DEPTH", "Recursion"]

DEPTH = 1024
"""Words of the stack, of all functions of a program together (ours: the vendor's is not published)."""
MOST_KEPT = 64
"""A call may keep at most so many words of variables in memory."""


@dataclass
class CircleMember:
    """A `CircleMember` is a function of the circle: where it begins, what its parameters hold there, and its result."""

    function: tree.Function
    start: BasicBlock
    params: list[Vreg]
    result: Vreg | None


@dataclass
class Site:
    """A `Site` is a call of one of the functions in another or itself: the block that it ends, the one after it, its
    arguments and its result.
    """

    call: tree.Call
    callee: CircleMember
    before: BasicBlock
    after: BasicBlock
    arguments: list[Vreg]
    result: Vreg | None


class Recursion:
    """A `Recursion` writes what a function needs to call itself.

    Parameters
    ----------
    builder : Builder
        Writes the function.
    stack, top : StaticMemory
        The words that are kept, and how many there are.
    function : fabric.csl.tree.Function
        That which is called from elsewhere.
    params : list of Vreg
        What its parameters hold at the beginning of a call.
    """

    def __init__(
        self, builder: Builder, stack: StaticMemory, top: StaticMemory, function: tree.Function, params: list[Vreg]
    ) -> None:
        self.builder, self.stack, self.top = builder, stack, top
        self.end = builder.new_block()
        self.first = self.current = self._made(function, params)
        self.members = {id(function): self.first}
        self.others: list[CircleMember] = []
        self.sites: list[Site] = []

    def enter(self) -> None:
        """Begin a call from elsewhere."""
        put = self.builder
        at = self._loaded()
        put.put("store", None, put.reg(0, 1), at, data=Sym(self.stack, 1))
        put.put("store", None, put.alu("add16", at, 2), data=Sym(self.top))
        put.place(self.first.start)

    def other(self) -> CircleMember | None:
        """Begin another function of the circle that was called and not written yet, and return it."""
        if not self.others:
            return None
        self.current = self.others.pop(0)
        self.builder.place(self.current.start)
        return self.current

    def call(self, call: tree.Call, arguments: list[Operand]) -> Vreg | None:
        """Write a call; what it keeps is filled in by `finish`."""
        put = self.builder
        callee = self.members.get(id(call.function))
        if callee is None:
            params = [put.new(words_of_type(param.type, param.span), param.name) for param in call.function.params]
            callee = self.members[id(call.function)] = self._made(call.function, params)
            self.others.append(callee)
        given = [put.copied(value, param.size) for value, param in zip(arguments, callee.params, strict=True)]
        result = None if callee.result is None else put.new(callee.result.size, "result")
        before, after = put.block, put.new_block()
        if not before.ended:
            self.sites.append(Site(call, callee, before, after, given, result))
        put.jump(after)
        put.place(after)
        return result

    def leave(self, value: Operand | None) -> None:
        """End a call of a recursive function with its result."""
        if self.current.result is not None and value is not None:
            self.builder.set(self.current.result, value)
        self.builder.jump(self.end)

    def finish(self) -> Operand | None:
        """Write what calls keep and where they go on; return the result of a call from elsewhere."""
        put = self.builder
        kept_words = [Sym(memory, k) for memory in put.function.frame for k in range(memory.words)]
        if len(kept_words) > MOST_KEPT:
            largest = max(put.function.frame, key=lambda memory: memory.words)
            name = largest.name.rpartition(":")[2].partition("#")[0]
            what = f"'{put.function.name}' calls itself, and has more than {2 * MOST_KEPT} bytes of variables in memory"
            raise Fault(what, self.sites[0].call.span, f"a global array instead of '{name}'")
        put.place(self.end)
        out = live_out(put.function)
        needed = [self._kept(site, out[site.before]) for site in self.sites]
        at = self._loaded()
        number = put.new(1)
        put.put("load", number, at, data=Sym(self.stack, -1))
        base = put.new_block()
        for k, (site, registers) in enumerate(zip(self.sites, needed, strict=True), 1):
            here, other = put.new_block(), put.new_block()
            put.branch("br16", "eq", number, k, here, other)
            put.place(here)
            self._restore(site, registers, kept_words, at)
            put.place(other)
        put.jump(base)
        put.place(base)
        put.put("store", None, put.alu("sub16", at, 2), data=Sym(self.top))
        for k, (site, registers) in enumerate(zip(self.sites, needed, strict=True), 1):
            self._keep(k, site, registers, kept_words)
        put.block = base
        return self.first.result

    # ---- pieces

    def _made(self, function: tree.Function, params: list[Vreg]) -> CircleMember:
        size = 0 if function.result == VOID else words_of_type(function.result, function.span)
        return CircleMember(function, self.builder.new_block(), params, Vreg(size, "result") if size else None)

    def _loaded(self) -> Vreg:
        at = self.builder.new(1, "top")
        self.builder.put("load", at, data=Sym(self.top))
        return at

    @staticmethod
    def _kept(site: Site, live: set[Vreg]) -> list[Vreg]:
        """Return the registers that are read after a call, pairs first so that they lie at even places."""
        found = [reg for reg in live if reg is not site.result and reg.fixed is None]
        return sorted(found, key=lambda reg: (-reg.size, reg.number))

    @staticmethod
    def _size(registers: list[Vreg], words: list[Sym]) -> int:
        size = sum(reg.size for reg in registers) + len(words) + 1
        return size + size % 2

    def _keep(self, number: int, site: Site, registers: list[Vreg], words: list[Sym]) -> None:
        """Write what a call does before it jumps to the beginning."""
        put, span = self.builder, site.call.span
        size = self._size(registers, words)
        last = site.before.code.pop()
        assert last.op == "jmp"
        full, room = put.new_block(), put.new_block()
        put.block, put.span = site.before, span
        at = self._loaded()
        put.branch("br16", "leu", at, DEPTH - size, room, full)
        for block in (full, room):
            block.depth = site.before.depth
        place = put.function.blocks.index(site.before) + 1
        put.function.blocks[place:place] = [full, room]
        put.block = full
        put.put("trap", None, data=0)
        put.jump(room)
        put.block = room
        offset = 0
        for reg in registers:
            put.put("store", None, reg, at, data=Sym(self.stack, offset))
            offset += reg.size
        for sym in words:
            held = put.new(1)
            put.put("load", held, data=sym)
            put.put("store", None, held, at, data=Sym(self.stack, offset))
            offset += 1
        put.put("store", None, put.reg(number, 1), at, data=Sym(self.stack, size - 1))
        put.put("store", None, put.alu("add16", at, size), data=Sym(self.top))
        for param, value in zip(site.callee.params, site.arguments, strict=True):
            put.set(param, value)
        put.jump(site.callee.start)

    def _restore(self, site: Site, registers: list[Vreg], words: list[Sym], at: Vreg) -> None:
        """Write what follows the end of a call."""
        put = self.builder
        before = put.alu("sub16", at, self._size(registers, words))
        offset = 0
        for reg in registers:
            put.put("load", reg, before, data=Sym(self.stack, offset))
            offset += reg.size
        for sym in words:
            held = put.new(1)
            put.put("load", held, before, data=Sym(self.stack, offset))
            put.put("store", None, held, data=sym)
            offset += 1
        put.put("store", None, before, data=Sym(self.top))
        if site.result is not None:
            assert site.callee.result is not None
            put.set(site.result, site.callee.result)
        put.jump(site.after)
