"""Registers have owners: those of a task end with it, those of a function never overlap with anything."""

from __future__ import annotations

from collections.abc import Iterable

from fabric.asm.operands import Reg
from fabric.asm.unit import Unit
from wse_core import isa
from wse_core.errors import ProgramError

__all__ = ["ByNumber", "Registers"]

ENTRY = 0b11
"""These registers hold the wavelet of a task, a bit each."""
UP, DOWN, ENTRY_LAST = range(2, isa.N_REGS), range(isa.N_REGS - 1, -1, -1), (*range(2, isa.N_REGS), 0, 1)
"""Free registers are looked for in one of these orders."""


class ByNumber:
    """An expression ``p.r[3]`` is a register by number."""

    def __getitem__(self, number: int) -> Reg:
        if not isinstance(number, int) or not 0 <= number < isa.N_REGS:
            raise ProgramError(f"register {number!r} does not exist", hint=f"p.r[0] .. p.r[{isa.N_REGS - 1}]")
        return Reg(number)


class Registers:
    """A `Registers` gives out the registers of one program.

    Attributes
    ----------
    by_number : ByNumber
        ``by_number[3]`` is register 3.
    """

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.by_number = ByNumber()
        self._global = 0  # a bit per register; so are the next two
        self._function = 0
        self._task = 0
        self._own: list[Reg] = []  # of the task or function that is being written

    def state(self) -> tuple[int, int, int, list[Reg]]:
        """Return who has what, for `restore`."""
        return self._global, self._function, self._task, list(self._own)

    def restore(self, state: tuple[int, int, int, list[Reg]]) -> None:
        """Make the registers what they were when `state` gave this."""
        self._global, self._function, self._task, self._own = state

    def begin(self) -> None:
        """Begin a task or function: it has no register yet."""
        self._own = []

    def reg16(self, name: str = "") -> Reg:
        """Return a free 16-bit register; inside a task it is free again at the task's end."""
        return self.take(name, 1)

    def reg32(self, name: str = "") -> Reg:
        """Return a free even/odd pair of registers."""
        return self.take(name, 2)

    def regs(self, count: int, name: str = "") -> tuple[Reg, ...]:
        """Return `count` consecutive free 16-bit registers, for example three for `tsc`."""
        first = self.take(name, count, aligned=False)
        return tuple(Reg(first.id + k, 1, f"{name}[{k}]") for k in range(count))

    def pair(self, even: int) -> Reg:
        """Return the pair of registers `even` and `even` + 1.

        Raises
        ------
        ProgramError
            The number is odd.
        """
        if even % 2:
            raise self.unit.error(f"register pair r{even}:r{even + 1}: the first register of a pair is even")
        return Reg(self.by_number[even].id, 2)

    def free(self, *regs: Reg) -> None:
        """Give registers of the task or function being written back before its end."""
        for reg in regs:
            if self.unit.body is None or reg not in self._own:
                raise self.unit.error(f"{reg} is not a register of the task being written")
            self._own.remove(reg)

    def _taken(self) -> tuple[int, Iterable[int]]:
        """Return (registers that may not be handed out here, a bit each, order of search)."""
        kind = self.unit.body.kind if self.unit.body else "global"
        taken = self._global | self._function
        if kind in ("function", "global"):
            return taken | self._task | ENTRY, DOWN if kind == "function" else UP
        for reg in self._own:
            taken |= (2 if reg.size < 2 else 1 << reg.size) - 1 << reg.id
        return (taken, ENTRY_LAST) if kind == "local" else (taken | ENTRY, UP)

    def take(self, name: str, size: int, aligned: bool = True) -> Reg:
        """Return `size` free registers, the first even if `aligned` and there are two."""
        self.unit.changing()
        taken, order = self._taken()
        run = (1 << size) - 1
        for first in order:
            if taken >> first & run or first + size > isa.N_REGS or (aligned and size == 2 and first % 2):
                continue
            reg = Reg(first, size, name)
            if self.unit.body is None:
                self._global |= run << first
            else:
                self._own.append(reg)
                if self.unit.body.kind == "function":
                    self._function |= run << first
                else:
                    self._task |= run << first
            return reg
        raise self.unit.error(
            f"no {size} free register{'s' * (size > 1)} for {name or 'a value'}; "
            f"taken: {', '.join(f'r{k}' for k in range(isa.N_REGS) if taken >> k & 1)}",
            hint="p.free(reg) gives one back; variables in SRAM hold what is not needed at once",
            limit="registers",
        )

    def hold(self, value: object, letter: str, op: isa.Op, held: list[Reg]) -> int:
        """Load an immediate into a register, add that to `held` for `release`, and return its operand field."""
        unit = self.unit
        imm = unit.immediate(value, unit.immediate_type(op, value, letter), f"{op.name} source")
        reg = self.take("", 1 if letter in "hi" else 2)
        unit.emit("ldi" if letter in "hi" else "ldi32", a=isa.FILE_REG << 4 | reg.id, imm=imm)
        held.append(reg)
        return isa.FILE_REG << 4 | reg.id

    def release(self, held: Iterable[Reg]) -> None:
        """Give back what `hold` or `take` took in the task or function that is being written."""
        for reg in held:
            self._own.remove(reg)

    def release_run(self, first: Reg, size: int) -> None:
        """Give back `size` consecutive registers from `first` on."""
        self.release([reg for reg in self._own if reg.id == first.id and reg.size == size])
