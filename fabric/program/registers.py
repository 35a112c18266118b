"""Who has which register: those of a task end with it, those of a function never overlap with anything."""

from __future__ import annotations

from fabric.asm.operands import Reg
from wse_core import isa

__all__ = ["RegisterUse"]


class RegisterUse:
    """Part of `fabric.program.program.Program`: allocation of registers."""

    def reg16(self, name=""):
        """Return a free 16-bit register; inside a task it is free again at the task's end."""
        return self._register(name, 1)

    def reg32(self, name=""):
        """Return a free even/odd pair of registers."""
        return self._register(name, 2)

    def regs(self, count, name=""):
        """Return `count` consecutive free 16-bit registers, for example three for `tsc`."""
        first = self._register(name, count, aligned=False)
        return tuple(Reg(first.id + k, 1, f"{name}[{k}]") for k in range(count))

    def pair(self, even):
        """Return the pair of registers `even` and `even` + 1.

        Raises
        ------
        ProgramError
            The number is odd.
        """
        if even % 2:
            raise self._error(f"register pair r{even}:r{even + 1}: the first register of a pair is even")
        return Reg(self.r[even].id, 2)

    def free(self, *regs):
        """Give registers of the task or function being written back before its end."""
        for reg in regs:
            if self._body is None or reg not in self._body.regs:
                raise self._error(f"{reg} is not a register of the task being written")
            self._body.regs.remove(reg)

    def _taken(self):
        """Return (registers that may not be handed out here, order of search)."""
        kind = self._body.kind if self._body else "global"
        own = {k for reg in (self._body.regs if self._body else ()) for k in range(reg.id, reg.id + max(1, reg.size))}
        if kind == "function":
            return self._global_regs | self._function_regs | self._task_regs | {0, 1}, range(isa.N_REGS - 1, -1, -1)
        if kind == "global":
            return self._global_regs | self._function_regs | self._task_regs | {0, 1}, range(2, isa.N_REGS)
        taken = self._global_regs | self._function_regs | own
        return (taken, (*range(2, isa.N_REGS), 0, 1)) if kind == "local" else (taken | {0, 1}, range(2, isa.N_REGS))

    def _register(self, name, size, aligned=True):
        self._changing()
        taken, order = self._taken()
        for first in order:
            ids = range(first, first + size)
            if (aligned and size == 2 and first % 2) or ids[-1] >= isa.N_REGS or any(k in taken for k in ids):
                continue
            reg = Reg(first, size, name)
            if self._body is None:
                self._global_regs.update(ids)
            else:
                self._body.regs.append(reg)
                (self._function_regs if self._body.kind == "function" else self._task_regs).update(ids)
            return reg
        raise self._error(
            f"no {size} free register{'s' * (size > 1)} for {name or 'a value'}; "
            f"taken: {', '.join(f'r{k}' for k in sorted(taken))}",
            hint="p.free(reg) gives one back; variables in SRAM hold what is not needed at once",
        )
