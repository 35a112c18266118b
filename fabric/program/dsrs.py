"""Data structure registers can be loaded and changed by a program itself, with the methods in this file."""

from __future__ import annotations

from typing import Literal

from fabric.asm import checks, descriptors
from fabric.asm.operands import Address, Dsd, Dsr, Reg, Var
from fabric.asm.unit import Unit

__all__ = ["Dsrs"]


class Dsrs:
    """A `Dsrs` gives out the data structure registers of one program."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit

    def dsr(self, file: Literal["dest", "src0", "src1"], id: int | None = None, name: str = "") -> Dsr:
        """Reserve a data structure register.

        Parameters
        ----------
        file : {"dest", "src0", "src1"}
        id : int, optional
            Number in its file; default: the assembler's choice, the same for DSRs that must be paired.
        name : str
            For messages.

        Returns
        -------
        Dsr
        """
        return self.unit.dsr(file, id, name)

    def load(self, dsr: Dsr, dsd: Dsd | Var) -> None:
        """Load descriptor `dsd` into `dsr` (CSL: load_to_dsr); `dsd` may be a variable."""
        dsd = self.as_dsd(dsd)
        self.own(dsr)
        if dsd.extent is None:
            raise self.unit.error(
                f"{dsd} does not say how many elements",
                hint="give an extent; only a descriptor that is "
                "passed to an operation takes its length from the others",
            )
        checks.fits(self.unit, dsd, dsr.file)
        self.unit.emit("dsr_load", a=dsr, imm=(dsd, dsr))

    def dsr_base(self, dsr: Dsr, base: Var | Address | Reg | int) -> None:
        """Set the base word address of `dsr`: a variable, an element's address, a register or a number."""
        self._edit("dsr_base", dsr, base)

    def dsr_off(self, dsr: Dsr, words: Reg | int) -> None:
        """Move the base of `dsr` by signed `words`: a register or a number."""
        self._edit("dsr_off", dsr, words)

    def dsr_len(self, dsr: Dsr, extent: Reg | int) -> None:
        """Set the (outermost) extent of `dsr`: a register or a number."""
        self._edit("dsr_len", dsr, extent)

    def dsr_stride(self, dsr: Dsr, stride: Reg | int) -> None:
        """Set the (outermost) stride of `dsr` in elements: a register or a number."""
        self._edit("dsr_stride", dsr, stride)

    def _edit(self, op: str, dsr: Dsr, value: Var | Address | Reg | int) -> None:
        self.own(dsr)
        if isinstance(value, Reg):
            self.unit.emit(op, a=dsr, b=self.unit.register_field(value, "i", op))
        elif isinstance(value, (Var, Address)) and op == "dsr_base":
            self.unit.emit(op, a=dsr, imm=value if isinstance(value, Address) else Address(value))
        else:
            self.unit.emit(op, a=dsr, imm=self.unit.immediate(value, "i", op))

    def own(self, dsr: object) -> Dsr:
        """Return a DSR of this program, or refuse what is none."""
        if not isinstance(dsr, Dsr) or dsr.unit is not self.unit:
            raise self.unit.error(f"{dsr!r} is not a DSR of this program")
        return dsr

    def as_dsd(self, value: object) -> Dsd:
        """Return a descriptor of this program: one, or all of a variable."""
        if isinstance(value, Var):
            return descriptors.mem1d(self.unit, value)
        if not isinstance(value, Dsd):
            raise self.unit.error(f"{value!r} is not a descriptor")
        if value.base is not None and value.base.var.unit is not self.unit:
            raise self.unit.error(f"{value} belongs to program {value.base.var.unit.name!r}")
        if value.queue is not None and self.unit.queues[value.queue.kind].get(value.queue.id) is not value.queue:
            raise self.unit.error(f"{value} belongs to another program")
        return value
