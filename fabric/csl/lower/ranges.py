"""Loops over ranges: a range of any integer type gives ``start + k step`` as long as that lies before its stop.

Such a sum may pass the end of the type, and of the registers; then a loop must end, and not begin again at the other
end of the type.
"""

from __future__ import annotations

from collections.abc import Callable

from fabric.csl import tree
from fabric.csl.ir import BasicBlock, Operand, Vreg, signed
from fabric.csl.lower.constants import words_of_type
from fabric.csl.lower.statements import Exit, LoweredStatements
from fabric.csl.lower.wide import Halves, is_wide
from fabric.csl.types import IntType, Type

__all__ = ["Ranges"]


class Ranges(LoweredStatements):
    """`Ranges` writes loops over ranges; a mix-in of `fabric.csl.lower.function.FunctionLowering`."""

    def _write_ForRange(self, node: tree.ForRange) -> None:
        kind = node.item.type
        if is_wide(kind):
            self._wide_loop(node)
            return
        bits = 16 * words_of_type(kind, node.span)
        start, stop, step = (self._bound(part, kind) for part in (node.start, node.stop, node.step))
        if step == 0:  # where a function is written in place: perhaps behind a condition that keeps it from being done
            step = self.reg(0, bits // 16)
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
            turns = max(0, -(-(stop - start) // step))
            if turns == 0 or self.unrolled(node, turns, start, step):
                return
            item = self.copied(start & (1 << bits) - 1, bits // 16, node.item.name)
            end = start + turns * step & (1 << bits) - 1
            self._loop(node, item, step, None, lambda on, done: self._choose(bits, "ne", item, end, on, done))
            return
        start = start & (1 << bits) - 1 if isinstance(start, int) else start
        item = self.copied(start, bits // 16, node.item.name)
        # What the loop changes does not change its end.
        stop, step = (self.copied(x, x.size) if isinstance(x, Vreg) else x for x in (stop, step))
        if isinstance(step, int):
            self._known_step(node, item, stop, step)
        else:
            assert isinstance(step, Vreg)
            self._unknown_step(node, item, stop, step)

    def _bound(self, part: tree.Expr, kind: Type) -> Operand:
        """Return a bound or step of a range; a number if it is known, which may lie beyond the type."""
        if isinstance(part, tree.Const):
            return int(part.value.data)
        value = self.value(part)
        if isinstance(value, int) and isinstance(kind, IntType) and kind.signed:
            return signed(value, 16 * kind.words)
        return value

    def _known_step(self, node: tree.ForRange, item: Vreg, stop: Operand, step: int) -> None:
        """Write a loop with a known step: as long as `item` lies before `stop`.

        Where the sum behind the last turn could pass the end of the registers, what is compared is the item before the
        step is added, with where the last turn begins at the earliest: ``stop - step``, the type's first number if that
        lies before it.
        """
        bits, is_signed = 16 * item.size, isinstance(node.item.type, IntType) and node.item.type.signed
        first, last = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
        row, less = bits, "lt" if is_signed else "ltu"
        if step < 0:
            first, last = last, first
        forward = 1 if step > 0 else -1
        if isinstance(stop, int) and forward * (stop - first) <= 0:
            return

        def before(a: Operand, b: Operand, then: BasicBlock, otherwise: BasicBlock) -> None:
            one, other = (a, b) if step > 0 else (b, a)
            self._choose(row, less, one, other, then, otherwise)

        beyond = isinstance(stop, int) and forward * (stop - last) > 0
        if (abs(step) == 1 and not beyond) or (isinstance(stop, int) and forward * (stop - forward + step - last) <= 0):
            self._loop(node, item, step, lambda on, done: before(item, stop, on, done), None)
            return
        enough, done = self.new_block(), self.new_block()
        if not beyond:
            before(item, stop, enough, done)
        self.place(enough)
        limit: Operand
        if isinstance(stop, int):
            limit = max(stop - step, first) if step > 0 else min(stop - step, first)
        else:
            short, ready = self.new_block(), self.new_block()
            limit = self.alu(f"sub{bits}", stop, step & (1 << bits) - 1)
            edge = first & (1 << bits) - 1
            room = self.alu(f"sub{bits}", *((stop, edge) if step > 0 else (edge, stop)))
            self._choose(row, "ltu", room, abs(step), short, ready)
            self.place(short)
            self.set(limit, edge)
            self.place(ready)
        self._loop(node, item, step, None, None, lambda on, end: before(item, limit, on, end))
        self.place(done)

    def _unknown_step(self, node: tree.ForRange, item: Vreg, stop: Operand, step: Vreg) -> None:
        """Write a loop whose step is known at run time only, and in a signed type its direction too.

        What is left between the item and the last number before `stop` is counted down by the size of the step.
        """
        bits, kind = 16 * item.size, node.item.type
        is_signed = isinstance(kind, IntType) and kind.signed
        left, size = self.new(item.size), self.copied(step, item.size)
        rising, falling, up, down, ready, done = (self.new_block() for _ in range(6))
        if is_signed:
            self._choose(bits, "lt", step, 0, falling, rising)
        for way, go, a, b in ((rising, up, stop, item), (falling, down, item, stop)):
            if way is falling and not is_signed:
                break
            self.place(way)
            known = [x for x in (a, b) if isinstance(x, int)]
            if all(isinstance(kind, IntType) and kind.holds(x) for x in known):
                self._choose(bits, "lt" if is_signed else "ltu", b, a, go, done)
            elif (known[0] > 0) != (way is rising):
                self.jump(done)  # a stop beyond the other end of the type
            self.place(go)
            ends = (x & (1 << bits) - 1 if isinstance(x, int) else x for x in (a, b))
            self.put(f"sub{bits}", left, *ends)
            self.put(f"sub{bits}", left, left, 1)
            if way is falling:
                self.put(f"sub{bits}", size, 0, step)
            self.jump(ready)
        self.place(ready)

        def goes_on(on: BasicBlock, end: BasicBlock) -> None:
            more = self.new_block()
            self._choose(bits, "ltu", left, size, end, more)
            self.place(more)
            self.put(f"sub{bits}", left, left, size)
            self.jump(on)

        self._loop(node, item, step, None, None, goes_on)
        self.place(done)

    def _choose(
        self, bits: int, condition: str, a: Operand, b: Operand, then: BasicBlock, otherwise: BasicBlock
    ) -> None:
        """End the block with a choice; numbers that are known may be negative."""
        a, b = (x & (1 << bits) - 1 if isinstance(x, int) else x for x in (a, b))
        self.branch(f"br{bits}", condition, a, b, then, otherwise)

    def _loop(
        self,
        node: tree.ForRange,
        item: Vreg,
        step: Operand,
        at_top: Callable[[BasicBlock, BasicBlock], None] | None,
        at_end: Callable[[BasicBlock, BasicBlock], None] | None,
        before_step: Callable[[BasicBlock, BasicBlock], None] | None = None,
    ) -> None:
        """Write the turns of a loop; one of three decides, at its place, whether it goes on."""
        index = self.index(node.index)
        body, again, top, done = (self.new_block() for _ in range(4))
        bits = 16 * item.size

        def count() -> None:
            self.put(f"add{bits}", item, item, step & (1 << bits) - 1 if isinstance(step, int) else step)
            if index is not None:
                self.put("add16", index, index, 1)

        self.depth += 1
        if before_step is not None:  # the step stands in front of the body: a turn takes no jump
            self.jump(body)
            self.place(top)
            count()
        elif at_top is not None:
            self.place(top)
            at_top(body, done)
        self.place(body)
        self.bind(node.item, item)
        self._body_of(node, index, done, again)
        self.place(again)
        self.span = node.span
        if before_step is not None:
            before_step(top, done)
        else:
            count()
            if at_end is not None:
                at_end(body, done)
            else:
                self.jump(top)
        self.depth -= 1
        self.place(done)

    def _wide_loop(self, node: tree.ForRange) -> None:
        index = self.index(node.index)

        def turn(item: Halves, again: BasicBlock, done: BasicBlock) -> None:
            self.declare(node.item, item)
            self._body_of(node, index, done, again)

        self.wide_range(node, index, turn)

    def _body_of(self, node: tree.ForRange, index: Vreg | None, done: BasicBlock, again: BasicBlock) -> None:
        """Write the body of a loop, whose item is bound already."""
        if node.index is not None and index is not None:
            self.bind(node.index, index)
        self.exits.append(Exit(node.label, done, again))
        self.statements(node.body)
        self.exits.pop()

    def unrolled(self, node: tree.ForRange, turns: int, start: int, step: int) -> bool:
        """Write all turns one after the other if they are few enough; tell whether that was done."""
        if turns > 1 and not self.program.unrolls(node, turns):
            return False
        kind, done = node.item.type, self.new_block()
        assert isinstance(kind, IntType)
        for turn in range(turns):
            number = (start + turn * step) & (0xFFFFFFFF if kind.words == 2 else 0xFFFF)
            self.bind(node.item, number)
            if node.index is not None:
                self.bind(node.index, turn)
            again = self.new_block()
            self.exits.append(Exit(node.label, done, again))
            self.statements(node.body)
            self.exits.pop()
            self.place(again)
        self.place(done)
        return True
