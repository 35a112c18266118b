"""Values of a block are numbered: folding, common subexpressions, cheaper operations, addresses, known loads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fabric.csl.ir import BasicBlock, Instr, IrFunction, Operand, Sym, Vreg, signed
from fabric.csl.optimise.fold import COMMUTE, PURE, folded, needs_register
from fabric.csl.optimise.memory import Contents, Place, Touched, templates
from fabric.csl.rules import powers

__all__ = ["number"]

Key = tuple[Any, ...]
NEUTRAL = frozenset(f"{op}{bits}" for op in ("add", "sub", "or", "xor", "sll", "slr", "sar") for bits in (16, 32))
"""These operations have no effect with a second source of 0."""


class ValueNumbering:
    """A `ValueNumbering` gives equal values of one block the same number (local value numbering)."""

    def __init__(self, block: BasicBlock, held: dict[Any, Any]) -> None:
        self.block, self.held = block, held
        self.next = 0
        self.of: dict[Vreg, int] = {}
        self.constants: dict[int, int | Sym] = {}
        self.holder: dict[int, Vreg] = {}
        self.known: dict[Key, int] = {}
        self.made: dict[int, Instr] = {}
        self.made_args: dict[int, tuple[Any, ...]] = {}
        self.memory = Contents()
        self.out: list[Instr] = []
        self.changed = False
        self.templates: dict[int, Instr] = {}

    def fresh(self) -> int:
        """Return a new number."""
        self.next += 1
        return self.next

    def value_of(self, operand: Operand) -> int | tuple[str, int | Sym]:
        """Return what stands for an operand in keys: its number, or the constant."""
        if not isinstance(operand, Vreg):
            return ("c", operand)
        found = self.of.get(operand)
        if found is None:
            found = self.of[operand] = self.fresh()
            self.holder[found] = operand
        if found in self.constants:
            return ("c", self.constants[found])
        return found

    def best(self, operand: Operand, place: int = 0, instr: Instr | None = None) -> Operand:
        """Return the simplest operand with the same value."""
        if not isinstance(operand, Vreg) or operand.fixed is not None:
            return operand
        value = self.value_of(operand)
        if isinstance(value, tuple):
            if instr is not None and needs_register(instr, place):
                return operand
            self.changed = True
            return value[1]
        holder = self.holder.get(value)
        if holder is not None and holder is not operand and self.of.get(holder) == value:
            self.changed = True
            return holder
        return operand

    def define(self, reg: Vreg, value: int) -> None:
        """Note that a register holds a value from here on."""
        self.of[reg] = value
        holder = self.holder.get(value)
        if reg.fixed is None and (holder is None or self.of.get(holder) != value):
            self.holder[value] = reg

    def run(self) -> bool:
        """Number the block; tell whether something changed."""
        for instr in self.block.code:
            self._step(instr)
        self.block.code = self.out
        return self.changed

    def _step(self, instr: Instr) -> None:
        if not (instr.op == "vector" and instr.dst in instr.args):
            instr.args = tuple(self.best(arg, k, instr) for k, arg in enumerate(instr.args))
        if instr.op in ("peek", "poke"):
            self._address(instr, int(instr.op == "poke"))
            if isinstance(instr.data, Sym):  # memory of the program, surely no register
                instr.op, self.changed = "load" if instr.op == "peek" else "store", True
        if instr.op in PURE and instr.dst is not None:
            self._pure(instr)
        elif instr.op == "load":
            self._load(instr)
        elif instr.op == "store":
            self._store(instr)
        else:
            self._other(instr)

    # ---- values

    def _pure(self, instr: Instr) -> None:
        assert instr.dst is not None
        self._simplify(instr)
        if instr.op in ("const", "copy"):
            operand = instr.args[0]
            value = self.value_of(operand)
            if isinstance(value, tuple):
                number = self.known.setdefault(value, 0) or self.fresh()
                self.known[value] = number
                self.constants[number] = value[1]
                value = number
                if instr.op == "copy":
                    instr.op, instr.args, self.changed = "const", (self.constants[number],), True
            if self.of.get(instr.dst) == value and instr.dst.fixed is None:
                self.changed = True
                return
            self.out.append(instr)
            self.define(instr.dst, value)
            return
        args = tuple(self.value_of(arg) for arg in instr.args)
        if instr.op in COMMUTE:
            args = tuple(sorted(args, key=repr))
        key = (instr.op, args)
        before = self.known.get(key)
        holder = self.holder.get(before) if before is not None else None
        if before is not None and holder is not None and self.of.get(holder) == before:
            self.changed = True
            self.out.append(Instr("copy", instr.dst, (holder,), None, instr.span))
            self.define(instr.dst, before)
            return
        number = self.known[key] = self.fresh()
        self.made[number], self.made_args[number] = instr, tuple(self.value_of(arg) for arg in instr.args)
        self.out.append(instr)
        self.define(instr.dst, number)

    def _simplify(self, instr: Instr) -> None:
        """Replace an operation by a cheaper one."""
        op, args = instr.op, instr.args
        made = folded(op, args)
        if made is not None:
            self._become(instr, "const", made)
            return
        if op in COMMUTE and len(args) == 2 and not isinstance(args[0], Vreg):
            instr.args = args = (args[1], args[0])
        if len(args) != 2 or not isinstance(args[1], int):
            return
        a, b = args
        bits = op[-2:]
        if b == 0 and op in NEUTRAL:
            self._become(instr, "copy", a)
        elif op in ("mul16", "mul32", "and16", "and32") and b == 0:
            self._become(instr, "const", 0)
        elif op in ("mul16", "mul32"):
            self._product(instr, a, b, bits)
        elif op in ("add16", "sub16"):
            self._sums(instr, a, b if op == "add16" else -b & 0xFFFF)

    def _become(self, instr: Instr, op: str, operand: Operand) -> None:
        instr.op = "const" if not isinstance(operand, Vreg) else op
        instr.args = (operand,)
        self.changed = True

    def _product(self, instr: Instr, a: Operand, b: int, bits: str) -> None:
        """Replace products with powers of two, and with sums and differences of two of them, by shifts."""
        if b == 1:
            self._become(instr, "copy", a)
            return
        parts = powers(b)
        if parts is None:
            return
        high, low, sign = parts
        self.changed = True
        if sign == 0:
            instr.op, instr.args = "sll" + bits, (a, high)
            return
        size = 1 if bits == "16" else 2
        first: Operand = 0  # what a shift by all bits leaves
        if high < int(bits):
            first = Vreg(size)
            self._pure(Instr("sll" + bits, first, (a, high), None, instr.span))
        second: Operand = a
        if low:
            second = Vreg(size)
            self._pure(Instr("sll" + bits, second, (a, low), None, instr.span))
        instr.op, instr.args = ("add" if sign > 0 else "sub") + bits, (self.best(first), self.best(second))

    def _sums(self, instr: Instr, a: Operand, b: int) -> None:
        """Join sums with constants."""
        inner = self._sum_of(a)
        if inner is not None and isinstance(inner[1], int):
            instr.op, instr.args, self.changed = "add16", (inner[0], inner[1] + b & 0xFFFF), True

    def _sum_of(self, operand: Operand) -> tuple[Vreg, int | Sym] | None:
        """Return register and constant whose sum an operand is."""
        if not isinstance(operand, Vreg):
            return None
        value = self.of.get(operand)
        made = self.made.get(value) if value is not None else None
        if made is None or made.op not in ("add16", "sub16") or not isinstance(made.args[0], Vreg):
            return None
        constant = made.args[1]
        if made.op == "sub16":
            if not isinstance(constant, int):
                return None
            constant = -constant & 0xFFFF
        if isinstance(constant, Vreg):
            return None
        inner = self.made_args[value][0]  # type: ignore[index]
        if isinstance(inner, tuple):
            return None
        holder = self.holder.get(inner)
        if holder is None or self.of.get(holder) != inner:
            return None
        return holder, constant

    # ---- memory

    def _address(self, instr: Instr, place: int) -> None:
        """Move constants of an address into the instruction."""
        while len(instr.args) > place:
            base = instr.args[place]
            if not isinstance(base, Vreg):
                total = _plus(instr.data, base)
                if total is None:
                    return
                instr.args, instr.data, self.changed = instr.args[:place], total, True
                return
            inner = self._sum_of(base)
            if inner is None:
                return
            total = _plus(instr.data, inner[1])
            if total is None:
                return
            instr.args, instr.data, self.changed = (*instr.args[:place], inner[0]), total, True

    def _place(self, instr: Instr, place: int, size: int) -> Place:
        base = self.value_of(instr.args[place]) if len(instr.args) > place else None
        if isinstance(instr.data, Sym):
            return instr.data.memory, base, instr.data.offset, size
        return None, base, instr.data, size

    def _load(self, instr: Instr) -> None:
        assert instr.dst is not None
        self._address(instr, 0)
        place = self._place(instr, 0, instr.dst.size)
        number = self.memory.get(place)
        if number is not None:
            if number in self.constants:
                self.changed = True
                self.out.append(Instr("const", instr.dst, (self.constants[number],), None, instr.span))
                self.define(instr.dst, number)
                return
            holder = self.holder.get(number)
            if holder is not None and self.of.get(holder) == number:
                self.changed = True
                self.out.append(Instr("copy", instr.dst, (holder,), None, instr.span))
                self.define(instr.dst, number)
                return
        number = self.fresh()
        self.memory.put(place, number)
        self.out.append(instr)
        self.define(instr.dst, number)

    def _store(self, instr: Instr) -> None:
        self._address(instr, 1)
        source = instr.args[0]
        size = source.size if isinstance(source, Vreg) else 0
        place = self._place(instr, 1, size)
        value = self.value_of(source)
        if isinstance(value, tuple):
            number = self.known.setdefault(value, 0) or self.fresh()
            self.known[value] = number
            self.constants[number] = value[1]
            value = number
        if size and self.memory.get(place) == value:
            self.changed = True
            return
        self.memory.store(place)
        if size:
            self.memory.put(place, value)
        self.out.append(instr)

    # ---- the rest

    def _other(self, instr: Instr) -> None:
        if instr.op.startswith("dsr_") and self._edit(instr):
            return
        if instr.op in ("call", "tail"):
            self.memory.forget(lambda memory: True)
        elif instr.op == "poke":
            self.memory.forget(lambda memory: memory is None or not memory.apart)
        elif instr.op == "vector":
            for slot in instr.data.slots:  # what it used is edited for others only
                self.templates.pop(id(slot), None)
            touched = Touched([instr], self.held)
            if touched.written:
                self.memory.forget(lambda memory: memory is None or touched.may_write(memory))
        self.out.append(instr)
        for reg in instr.defs():
            self.define(reg, self.fresh())

    def _edit(self, instr: Instr) -> bool:
        """Move a constant edit of a DSR into the descriptor that was just loaded into it.

        Not that of a base: it belongs to a variable that moves on (`fabric.csl.rules`).
        """
        if instr.op == "dsr_load":
            self.templates[id(instr.data[0])] = instr
            return False
        dsr = instr.data
        load = self.templates.get(id(dsr))
        if load is None or not instr.args:
            return False
        template, number = load.data[1], instr.args[0]
        if isinstance(number, Vreg):
            return self._offset(instr, load, number)
        if not isinstance(number, int):
            return False
        if instr.op == "dsr_len":
            template = replace(template, extents=(number,))
        elif instr.op == "dsr_stride":
            template = replace(template, strides=(signed(number, 16),))
        else:
            return False
        load.data = (dsr, template)
        self.changed = True
        return True

    def _offset(self, instr: Instr, load: Instr, base: Vreg) -> bool:
        """Let an offset follow the load of a known base, where the sum of both would be set as the base."""
        parts = self._sum_of(base) if instr.op == "dsr_base" else None
        if parts is not None and isinstance(parts[1], Sym):
            dsr, template = load.data
            load.data = (dsr, replace(template, base=parts[1]))
            instr.op, instr.args, self.changed = "dsr_off", (parts[0],), True
        return False


def _plus(a: int | Sym, b: Operand) -> int | Sym | None:
    if isinstance(a, Sym) and isinstance(b, int):
        return a + signed(b & 0xFFFF, 16)
    if isinstance(b, Sym) and isinstance(a, int):
        return b + signed(a & 0xFFFF, 16)
    if isinstance(a, int) and isinstance(b, int):
        return a + b & 0xFFFF
    return None


def number(function: IrFunction) -> bool:
    """Number the values of each block; tell whether something changed."""
    changed = False
    held = templates(function)
    for block in function.blocks:
        changed |= ValueNumbering(block, held).run()
    return changed
