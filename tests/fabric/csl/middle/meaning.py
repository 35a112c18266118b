"""What a function of the intermediate form does, step by step: the slow and plain twin of everything behind it.

Memory is words by address, each memory at an address that its name decides; a register that is fixed is a place of the
sixteen, any other holds a number by itself, and reading one that was never set is an error.  A function without blocks
may do whatever a callee may: it changes every word that it may reach, the registers that it clobbers, and the DSRs that
the compiler chose for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fabric.csl.ir import AutoDsr, Instr, IrFunction, StaticMemory, Sym, Vreg, signed
from wse_core import isa
from wse_core.reference.alu import ALU, CONDITION
from wse_core.reference.numerics import Num

__all__ = ["Machine", "Outcome", "TooLong", "outcome", "world_of"]

NUM = Num()
MOST = 20_000
"""Operations that a run may do."""
APART = 32
"""Words between the first addresses of two memories."""


class TooLong(Exception):
    """The function does more than anybody wants to wait for."""


@dataclass(frozen=True)
class Outcome:
    """What can be seen of a run: the result, memory by name, and what happened outside in its order."""

    result: tuple[int, ...]
    memory: dict[str, list[int]]
    log: list[object]


@dataclass
class Descriptor:
    """What a DSR holds."""

    kind: str
    base: int
    length: int
    stride: int


@dataclass
class Machine:
    """One PE, as far as the intermediate form knows it."""

    addresses: dict[str, int] = field(default_factory=dict)
    words: dict[int, int] = field(default_factory=dict)
    memories: dict[str, StaticMemory] = field(default_factory=dict)
    registers: list[int] = field(default_factory=lambda: [0xA000 + k for k in range(16)])
    dsrs: dict[object, Descriptor] = field(default_factory=dict)
    log: list[object] = field(default_factory=list)
    reachable: list[str] = field(default_factory=list)
    """Memories that a callee may change."""
    own: frozenset[str] = frozenset()
    """Memories of the function itself; nobody says with what they begin, here with zeros."""
    arrived: int = 0
    done: int = 0

    # ---- memory

    def address(self, at: Sym | int) -> int:
        """Return an address as a number."""
        if isinstance(at, int):
            return at & 0xFFFF
        name = at.memory.name
        if name not in self.addresses:
            self.addresses[name] = 0x100 + APART * len(self.addresses)
        if name not in self.memories:
            self.memories[name] = at.memory
            for k in range(at.memory.words):
                init = at.memory.init
                value = (3 * k + ord(name[0])) * (name not in self.own) if init is None else int(init[k])
                self.words.setdefault(self.addresses[name] + k, value)
        return (self.addresses[name] + at.offset) & 0xFFFF

    def load(self, at: int, size: int) -> int:
        """Return a number of memory."""
        return sum(self.words.get(at + k & 0xFFFF, 0) << 16 * k for k in range(size))

    def store(self, at: int, value: int, size: int) -> None:
        """Set a number of memory."""
        for k in range(size):
            self.words[at + k & 0xFFFF] = value >> 16 * k & 0xFFFF

    # ---- functions

    def run(self, function: IrFunction, arguments: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Run a function; return the numbers of its result."""
        if not function.blocks:
            return self._anything(function, arguments)
        held: dict[Vreg, int] = {}
        block = function.blocks[0]
        while True:
            for instr in block.code:
                self.done += 1
                if self.done > MOST:
                    raise TooLong
                if instr.op == "ret":
                    return tuple(self.get(held, arg, 1) for arg in instr.args)
                if instr.op == "tail":
                    return self.run(instr.data, tuple(self.get(held, arg, 1) for arg in instr.args))
                if instr.op == "entry":
                    for register, value in zip(instr.data, arguments, strict=True):
                        self.set(held, register, value)
                    continue
                self.step(held, instr)
            last = block.code[-1]
            if last.op == "jmp":
                block = last.data
            else:
                row, condition, then, otherwise = last.data
                size = isa.WORDS[isa.BY_NAME[row].types[0]]
                a, b = (self.get(held, arg, size) for arg in last.args)
                block = then if CONDITION[row][condition](NUM, a, b) else otherwise

    def _anything(self, function: IrFunction, arguments: tuple[int, ...]) -> tuple[int, ...]:
        mixed = sum((k + 1) * value for k, value in enumerate(arguments)) + 7
        for name in self.reachable:
            for k in range(self.memories[name].words):
                at = self.addresses[name] + k
                self.words[at] = self.words[at] * 5 + mixed + at & 0xFFFF
        for number in function.clobbers:
            self.registers[number] = 0xDEA0 + number
        for key, held in self.dsrs.items():
            if isinstance(key, tuple):
                self.dsrs[key] = Descriptor(held.kind, held.base + 1, max(1, held.length - 1), held.stride)
        self.log.append((function.name, arguments))
        result = mixed * 0x1_2345 + len(self.log)
        self.registers[2:4] = result & 0xFFFF, result >> 16 & 0xFFFF
        return (result & (1 << 16 * max(1, function.result)) - 1,)

    # ---- registers

    def get(self, held: dict[Vreg, int], operand: Vreg | int | Sym, size: int) -> int:
        """Return an operand."""
        if isinstance(operand, Sym):
            return self.address(operand)
        if isinstance(operand, int):
            assert 0 <= operand < 1 << 16 * size, f"{operand} is no number of {size} words"
            return operand
        if operand.fixed is None or operand.fixed < 0:
            return held[operand]
        return sum(self.registers[operand.fixed + k] << 16 * k for k in range(operand.size))

    def set(self, held: dict[Vreg, int], register: Vreg, value: int) -> None:
        """Set a register."""
        assert 0 <= value < 1 << 16 * register.size, f"{value} does not fit into {register}"
        if register.fixed is None or register.fixed < 0:
            held[register] = value
            return
        for k in range(register.size):
            self.registers[register.fixed + k] = value >> 16 * k & 0xFFFF

    # ---- operations

    def step(self, held: dict[Vreg, int], instr: Instr) -> None:
        """Do one operation that does not end a block."""
        op, args, dst = instr.op, instr.args, instr.dst
        if op in ("jmp", "br"):
            return
        if op in ALU:
            letters = [letter for letter in isa.BY_NAME[op].types[1:] if letter != "-"]
            values = [self.get(held, arg, isa.WORDS[letter]) for arg, letter in zip(args, letters, strict=True)]
            self.set(held, dst, ALU[op](NUM, *values, *[0] * (3 - len(values))))
        elif op in ("const", "copy"):
            self.set(held, dst, self.get(held, args[0], dst.size))
        elif op in ("low", "high"):
            value = self.get(held, args[0], 2)
            self.set(held, dst, value & 0xFFFF if op == "low" else value >> 16)
        elif op == "load":
            at = self.address(instr.data) + (self.get(held, args[0], 1) if args else 0)
            self.set(held, dst, self.load(at & 0xFFFF, dst.size))
        elif op == "store":
            at = self.address(instr.data) + (self.get(held, args[1], 1) if len(args) > 1 else 0)
            size = args[0].size if isinstance(args[0], Vreg) else 1
            self.store(at & 0xFFFF, self.get(held, args[0], size), size)
        elif op == "call":
            found = self.run(instr.data, tuple(self.get(held, arg, 2) for arg in args))
            if dst is not None:
                self.set(held, dst, found[0])
        elif op == "vector":
            self._vector(held, instr)
        elif op.startswith("dsr_"):
            self._dsr(held, instr)
        elif op in ("rand16", "tsc"):
            self.arrived += 1
            for k, register in enumerate(instr.defs()):
                self.set(held, register, self.arrived * 8 + k)
        else:
            self.log.append((op, instr.data, tuple(self.get(held, arg, 1) for arg in args)))

    def _key(self, dsr: object) -> object:
        # All DSRs of one class have one number.
        return (dsr.file, dsr.thread) if isinstance(dsr, AutoDsr) else dsr

    def _dsr(self, held: dict[Vreg, int], instr: Instr) -> None:
        if instr.op == "dsr_load":
            dsr, template = instr.data
            assert template.kind in ("mem1d", "fabin", "fabout")
            base = self.address(template.base)
            self.dsrs[self._key(dsr)] = Descriptor(template.kind, base, template.extents[0], template.strides[0])
            return
        found, value = self.dsrs[self._key(instr.data)], self.get(held, instr.args[0], 1)
        if instr.op == "dsr_base":
            found.base = value
        elif instr.op == "dsr_off":
            found.base = found.base + value & 0xFFFF
        elif instr.op == "dsr_len":
            found.length = value
        else:
            assert instr.op == "dsr_stride"
            found.stride = signed(value, 16)

    def _vector(self, held: dict[Vreg, int], instr: Instr) -> None:
        vector = instr.data
        sizes = [isa.WORDS[letter] for letter in isa.BY_NAME[vector.op].types if letter != "-"]
        dsrs = [None if isinstance(slot, (int, str)) else self.dsrs[self._key(slot)] for slot in vector.slots]
        for k in range(next(dsr.length for dsr in dsrs if dsr is not None)):
            values = []
            for slot, dsr, size in list(zip(vector.slots, dsrs, sizes, strict=True))[1:]:
                if dsr is None:
                    values.append(self.get(held, instr.args[slot], size))
                elif dsr.kind == "fabin":
                    self.arrived += 1
                    values.append(self.arrived)
                else:
                    values.append(self.load(dsr.base + k * size * dsr.stride & 0xFFFF, size))
            result = ALU[vector.op](NUM, *values, *[0] * (3 - len(values)))
            goal = dsrs[0]
            if goal is None:
                self.set(held, instr.dst, result)
            elif goal.kind == "fabout":
                self.log.append(("sent", result))
            else:
                self.store(goal.base + k * sizes[0] * goal.stride & 0xFFFF, result, sizes[0])
        if vector.ending is not None:
            self.log.append((vector.op, vector.ending))


def world_of(function: IrFunction) -> dict[str, StaticMemory]:
    """Return the memories that a function names, by name."""
    found = {memory.name: memory for memory in function.frame}
    for instr in function.instructions():
        parts = [*instr.args, instr.data]
        if instr.op == "dsr_load":
            parts.append(instr.data[1].base)
        found |= {part.memory.name: part.memory for part in parts if isinstance(part, Sym)}
    return found


def outcome(
    function: IrFunction, arguments: tuple[int, ...], world: dict[str, StaticMemory], machine: Machine | None = None
) -> Outcome:
    """Return what a function does, seen from outside of it.

    Parameters
    ----------
    function : IrFunction
    arguments : tuple of int
    world : dict
        The memories of the program.  Those of them that are the function's own are not looked at afterwards.
    machine : Machine, optional
        On which it runs, if somebody wants to see that afterwards.
    """
    machine = machine or Machine()
    machine.own = frozenset(memory.name for memory in function.frame)
    for name in sorted(world):
        machine.address(Sym(world[name]))
    machine.reachable = [name for name in world if name not in machine.own]
    result = machine.run(function, arguments)
    seen = {
        name: [machine.words[machine.addresses[name] + k] for k in range(world[name].words)]
        for name in machine.reachable
        if not world[name].noted
    }
    return Outcome(result, seen, machine.log)
