"""Each row of the op table has a method: scalar if all operands are registers and numbers, else a vector operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fabric.asm.operands import Async, Dsd, Dsr, Reg, Task, Var
from fabric.asm.unit import Unit
from fabric.program.dsrs import Dsrs
from fabric.program.registers import Registers
from fabric.program.vector import COMMUTE, Vectors
from wse_core import isa

__all__ = ["Operations"]

LETTERS = {op.types: op.types.replace("-", "") for op in isa.OPS}
"""An operation of such types has operands of these letters."""


class Operations:
    """An `Operations` writes operations of the op table into one program."""

    def __init__(self, unit: Unit, registers: Registers, dsrs: Dsrs) -> None:
        self.unit, self.registers, self.dsrs = unit, registers, dsrs
        self.vectors = Vectors(unit, registers, dsrs)

    def async_(
        self,
        priority: Literal["low", "medium", "high"] = "medium",
        ut: int | None = None,
        activate: Task | str | int | None = None,
        unblock: Task | str | int | None = None,
    ) -> Async:
        """Return attributes for the ``async_`` argument of an operation.

        Parameters
        ----------
        priority : {"low", "medium", "high"}
            Issue level of the microthread.
        ut : int, optional
            Microthread; default: the number of the output queue of a fabout destination, else of the input queue of
            the first fabin source.  WSE-2 knows no other for operations on the fabric.
        activate, unblock : task, optional
            Task (name, `Task`, or id; for `unblock` also a color) to activate or unblock on completion.
        """
        if priority not in isa.PRIORITIES:
            raise self.unit.error(f"priority {priority!r} is unknown", hint=", ".join(isa.PRIORITIES))
        if ut is not None and not 0 <= ut < self.unit.machine["ut.count"]:
            raise self.unit.error(f"microthread {ut} does not exist", hint=f"0 .. {self.unit.machine['ut.count'] - 1}")
        return Async(priority, ut, activate, unblock)

    def operation(
        self,
        op: isa.Op,
        args: Sequence[Any],
        async_: Async | bool | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Emit an ``alu`` op: scalar if all operands are registers and numbers, else a vector operation."""
        letters = LETTERS[op.types]
        if len(args) != len(letters):
            raise self.unit.error(f"{op.name} takes {len(letters)} operands, not {len(args)}")
        attributes = dict(attributes or {})
        again = attributes.pop("again", None)
        if again is not None and async_:
            raise self.unit.error(f"{op.name}: an asynchronous operation cannot be done again and again")
        if attributes:
            if async_ is None or async_ is False:
                raise self.unit.error(
                    f"{op.name}: {', '.join(attributes)} given to a synchronous operation", hint="async_=True"
                )
            if isinstance(async_, Async):
                raise self.unit.error(f"{op.name}: attributes both in async_ and beside it")
        if async_ is True:
            async_ = self.async_(**attributes)
        elif async_ is False:
            async_ = None
        vector, operands = False, []
        for arg in args:
            if isinstance(arg, (Var, Dsd)):
                operands.append(self.dsrs.as_dsd(arg))
                vector = True
            else:
                operands.append(arg)
                vector = vector or isinstance(arg, Dsr)
        if vector:
            self.vectors.emit(op, operands, letters, async_, again)
        elif again is not None:
            raise self.unit.error(f"{op.name}: a scalar instruction is not done again and again", hint="Program.loop")
        elif async_ is not None:
            raise self.unit.error(f"{op.name}: a scalar instruction cannot be asynchronous")
        else:
            self._scalar(op, operands, letters)

    def _scalar(self, op: isa.Op, args: Sequence[Any], letters: Sequence[str]) -> None:
        dst, *sources = args
        a = self.unit.register_field(dst, letters[0], f"{op.name} destination")
        if len(sources) > 1 and not isinstance(sources[0], Reg) and isinstance(sources[1], Reg) and op.name in COMMUTE:
            sources[:2] = sources[1], sources[0]
        if len(sources) == 1 and not isinstance(sources[0], Reg) and op.name in ("mov16", "mov32", "fmovh", "fmovs"):
            letter = self.unit.immediate_type(op, sources[0], letters[1])
            value = self.unit.immediate(sources[0], letter, f"{op.name} source")
            self.unit.emit("ldi" if letters[0] in "hi" else "ldi32", a=a, imm=value)
            return
        fields: list[int] = []
        imm: object = None
        held: list[Reg] = []
        for k, (source, letter) in enumerate(zip(sources, letters[1:], strict=True)):
            if isinstance(source, Reg):
                fields.append(self.unit.register_field(source, letter, f"{op.name} source {k + 1}"))
            elif k == 1:
                imm = self.unit.immediate(source, letter, f"{op.name} source 2")
                fields.append(isa.FILE_REG << 4)  # any register: the extension word takes its place
            else:
                fields.append(self.registers.hold(source, letter, op, held))
        self.unit.emit(op.name, a, *fields, imm=imm)
        self.registers.release(held)

    def emit(self, name: str, *args: Any) -> None:
        """Emit a synchronous operation by name."""
        self.operation(isa.BY_NAME[name], args)

    def dfilt(self, source: Dsd | Dsr, async_: Async | bool = True, **attributes: Any) -> None:
        """Discard data wavelets of a fabin until its extent in control wavelets has been seen; asynchronous only."""
        if not async_:
            raise self.unit.error("dfilt: asynchronous only", hint="async_=True")
        self.vectors.dfilt(source, self.async_(**attributes) if async_ is True else async_)
