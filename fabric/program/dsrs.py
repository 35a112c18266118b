"""Data structure registers that a program loads and changes itself."""

from __future__ import annotations

from fabric.asm.operands import Address, Dsd, Dsr, Reg, Var
from wse_core import isa

__all__ = ["DsrUse"]


class DsrUse:
    """Part of `fabric.program.program.Program`: DSRs."""

    def dsr(self, file, id=None, name=""):
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
        self._changing()
        if file not in isa.FILES[:3]:
            raise self._error(f"unknown DSR file {file!r}", hint=", ".join(isa.FILES[:3]))
        if id is not None:
            if not 0 <= id < self.machine["dsr.count"]:
                raise self._error(f"{file} DSR {id} does not exist", hint=f"0 .. {self.machine['dsr.count'] - 1}")
            if any(d.file == file and d._id == id for d in self._dsrs):
                raise self._error(f"{file} DSR {id} is reserved twice")
        dsr = Dsr(self, file, id, name, self._where())
        self._dsrs.append(dsr)
        return dsr

    def load(self, dsr, dsd):
        """Load descriptor `dsd` into `dsr` (CSL: load_to_dsr); `dsd` may be a variable."""
        dsd = self._as_dsd(dsd)
        self._own(dsr)
        if dsd.extent is None:
            raise self._error(
                f"{dsd} does not say how many elements",
                hint="give an extent; only a descriptor that is "
                "passed to an operation takes its length from the others",
            )
        self._fits(dsd, dsr.file)
        dsr.loads.append(dsd)
        self._emit("dsr_load", a=dsr, imm=(dsd, dsr))

    dsr_load = load

    def dsr_base(self, dsr, base):
        """Set the base word address of `dsr`: a variable, an element's address, a register or a number."""
        self._edit("dsr_base", dsr, base)

    def dsr_off(self, dsr, words):
        """Move the base of `dsr` by signed `words`: a register or a number."""
        self._edit("dsr_off", dsr, words)

    def dsr_len(self, dsr, extent):
        """Set the (outermost) extent of `dsr`: a register or a number."""
        self._edit("dsr_len", dsr, extent)

    def dsr_stride(self, dsr, stride):
        """Set the (outermost) stride of `dsr` in elements: a register or a number."""
        self._edit("dsr_stride", dsr, stride)

    def _edit(self, op, dsr, value):
        self._own(dsr)
        if isinstance(value, Reg):
            self._emit(op, a=dsr, b=self._reg_field(value, "i", op))
        elif isinstance(value, (Var, Address)) and op == "dsr_base":
            self._emit(op, a=dsr, imm=value if isinstance(value, Address) else Address(value))
        else:
            self._emit(op, a=dsr, imm=self._imm(value, "i", op))

    def _own(self, dsr):
        if not isinstance(dsr, Dsr) or dsr._program is not self:
            raise self._error(f"{dsr!r} is not a DSR of this program")

    def _fits(self, dsd, file):
        if dsd.kind == "fabout" and file != "dest":
            raise self._error(f"{dsd} can only be a destination, so it belongs into a dest DSR, not {file}")
        if dsd.kind == "fabin" and file == "dest":
            raise self._error(f"{dsd} can only be a source, so it belongs into a src0 or src1 DSR")
        if dsd.kind == "fifo" and file == "src0":
            raise self._error(f"{dsd}: a FIFO cannot be the first source", hint="a src1 or dest DSR")

    def _as_dsd(self, value):
        if isinstance(value, Var):
            return self.mem1d(value)
        if not isinstance(value, Dsd):
            raise self._error(f"{value!r} is not a descriptor")
        if value.base is not None and value.base.var._program is not self:
            raise self._error(f"{value} belongs to program {value.base.var._program.name!r}")
        if value.queue is not None and self._queues[value.queue.kind].get(value.queue.id) is not value.queue:
            raise self._error(f"{value} belongs to another program")
        return value
