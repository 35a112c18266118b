"""Vector operations: descriptors become DSRs, lengths and packings are checked, microthreads are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabric.asm import checks
from fabric.asm.instruction import SourcePlace
from fabric.asm.operands import Address, Async, Dsd, Dsr, Reg, is_number
from fabric.asm.unit import Unit
from fabric.program.dsrs import Dsrs
from fabric.program.registers import Registers
from wse_core import image as im
from wse_core import isa
from wse_core.image import ENDLESS

__all__ = ["COMMUTE", "Vectors"]

COMMUTE = frozenset(
    (
        "add16",
        "mul16",
        "and16",
        "or16",
        "xor16",
        "add32",
        "mul32",
        "and32",
        "or32",
        "xor32",
        "faddh",
        "fmulh",
        "fmaxh",
        "fminh",
        "fadds",
        "fmuls",
        "fmaxs",
        "fmins",
    )
)
"""The first two sources of these operations may change places."""


def _alike(unit: Unit, op: isa.Op, args: Sequence[Any]) -> tuple[object, ...] | None:
    """Return what synchronous operations on DSRs have in common that are allowed or refused alike; None for others.

    Functions of vectors consist of many operations on few DSRs, which `dsr_base` moves: they are checked once.
    """
    found: list[object] = [op.code, unit.undone]
    for arg in args:
        kind = type(arg)
        if kind is Dsd:
            return None
        found += (arg, len(arg.loads)) if kind is Dsr else (kind,)
    return tuple(found)


class Vectors:
    """A `Vectors` writes vector operations into one program."""

    def __init__(self, unit: Unit, registers: Registers, dsrs: Dsrs) -> None:
        self.unit, self.registers, self.dsrs = unit, registers, dsrs
        self.checked: set[tuple[object, ...]] = set()

    def emit(
        self, op: isa.Op, args: Sequence[Any], letters: Sequence[str], async_: Async | None, again: Reg | None = None
    ) -> None:
        """Emit an operation with at least one descriptor or DSR among its operands.

        Parameters
        ----------
        again : Reg, optional
            The operation is done as often as this register says.
        """
        unit, at = self.unit, self.unit.here()
        word: Async | int | None = async_
        if again is not None:
            word = isa.again_word(unit.register_field(again, "i", f"{op.name} count") & 15)
        alike = _alike(unit, op, args) if word is None else None
        if alike is not None and alike in self.checked:
            self._emit_known(op, args, letters, at)
            return
        dst, *sources = args
        b, c, scalar = [*sources, None, None][:3]
        self._check_operands(op, dst, sources, letters, async_)
        if isinstance(b, Dsd) and b.kind == "fifo" and isinstance(c, (Dsd, Dsr)):
            if op.name not in COMMUTE or (isinstance(c, Dsd) and c.kind == "fifo"):
                raise self.unit.error(f"{op.name}: a FIFO cannot be the first of two sources")
            b, c = c, b
        operands = [x for x in (b, c, dst) if isinstance(x, (Dsd, Dsr))]  # in the order that decides the length
        self._check_fabric(op, operands, dst, b)
        in_place = isinstance(b, Dsd) and b.kind != "fifo" and dst == b
        complete = dict(zip(map(id, operands), self._lengths(op, operands), strict=True))
        dst, b, c = (complete.get(id(x), x) for x in (dst, b, c))
        thread = checks.thread_of(unit, op, complete.values(), async_)
        if alike is not None:
            self.checked.add(alike)

        held: list[Reg] = []
        loads: list[tuple[Dsr, Dsd]] = []
        fields: list[Dsr | int] = []
        a: Dsr | int
        files = self._files(b, c, in_place)
        for k, source in enumerate((b, c, scalar)[: len(sources)]):
            if isinstance(source, Dsr):
                fields.append(source)
            elif isinstance(source, Dsd):
                fields.append(self._auto(files[k], source, thread, loads, at))
            elif isinstance(source, Reg):
                fields.append(self.unit.register_field(source, letters[k + 1], f"{op.name} source {k + 1}"))
            else:
                fields.append(self.registers.hold(source, letters[k + 1], op, held))
        if isinstance(dst, Reg):
            a = self.unit.register_field(dst, letters[0], f"{op.name} destination")
        elif isinstance(dst, Dsr):
            a = dst
        elif in_place and files[0] == "src0":
            a = fields[0]
        else:
            a = self._auto("dest", dst, thread, loads, at)
        for dsr, dsd in loads:
            self.unit.emit("dsr_load", a=dsr, imm=(dsd, dsr), at=at)
        checks.pair(unit, unit.emit(op.name, a, *fields, imm=word, at=at))
        self.registers.release(held)

    def _emit_known(self, op: isa.Op, args: Sequence[Any], letters: Sequence[str], at: SourcePlace | None) -> None:
        """Emit a synchronous operation on DSRs, registers and numbers that is like one which was checked."""
        unit, held = self.unit, list[Reg]()
        dst = args[0]
        fields = [dst if isinstance(dst, Dsr) else unit.register_field(dst, letters[0], f"{op.name} destination")]
        for k in range(1, len(args)):
            source = args[k]
            if isinstance(source, Dsr):
                fields.append(source)
            elif isinstance(source, Reg):
                fields.append(unit.register_field(source, letters[k], f"{op.name} source {k}"))
            else:
                fields.append(self.registers.hold(source, letters[k], op, held))
        checks.pair(unit, unit.emit(op.name, *fields, at=at))
        self.registers.release(held)

    @staticmethod
    def _files(b: object, c: object, in_place: bool) -> tuple[str, str]:
        """Return the DSR files for descriptors given as first and second source."""
        first = "src0" if c is not None or in_place else "src1"
        if (isinstance(c, Dsr) and c.file == "src0") or (isinstance(b, Dsd) and b.kind == "fifo"):
            first = "src1"
        return first, "src0" if isinstance(b, Dsr) and b.file == "src1" else "src1"

    def _check_operands(
        self, op: isa.Op, dst: Any, sources: Sequence[Any], letters: Sequence[str], async_: Async | None
    ) -> None:
        """Refuse operands that no vector operation has in these places."""
        what = op.name
        if not self.unit.machine.lanes(op):
            raise self.unit.error(
                f"{what} has no vector form on {self.unit.machine.preset}", hint="write a loop of scalar instructions"
            )
        if len(sources) == 3 and isinstance(sources[2], Dsd):
            raise self.unit.error(
                f"{what}: the multiplier is a scalar, not {sources[2]}",
                hint="a DSR that was loaded with it gives an element to each operation",
            )
        for k, (arg, letter) in enumerate(zip((dst, *sources), letters, strict=True)):
            if isinstance(arg, Dsd):
                checks.check_type(self.unit, op, arg, letter, "destination" if k == 0 else f"source {k}")
            elif isinstance(arg, Dsr):
                self.dsrs.own(arg)
        if (
            not isinstance(dst, (Dsd, Dsr, Reg))
            or (isinstance(dst, Dsd) and dst.kind == "fabin")
            or (isinstance(dst, Dsr) and dst.file == "src1")
        ):
            raise self.unit.error(f"{what}: {dst} cannot be the destination")
        for k, source in enumerate(sources):
            if not (isinstance(source, (Dsd, Dsr, Reg, Address)) or is_number(source)):
                raise self.unit.error(f"{what}: {source!r} cannot be a source")
            if isinstance(source, Dsd) and source.kind == "fabout":
                raise self.unit.error(f"{what}: {source} cannot be a source")
            if isinstance(source, Dsr) and source.file == "dest":
                raise self.unit.error(
                    f"{what}: {source} cannot be source {k + 1}", hint="a src0 DSR can be both source and destination"
                )
        if async_ is not None and isinstance(dst, Reg):
            raise self.unit.error(
                f"{what}: an asynchronous operation cannot return into a register",
                hint="a destination in memory (stride 0 for a sum)",
            )
        fabric = [x.queue for x in sources if isinstance(x, Dsd) and x.queue is not None]
        if len(fabric) == 2 and fabric[0] == fabric[1]:
            raise self.unit.error(f"{what}: both sources take wavelets from color {fabric[0].color}")

    def _auto(self, file: str, dsd: Dsd, thread: int, loads: list[tuple[Dsr, Dsd]], at: SourcePlace | None) -> Dsr:
        if dsd.flags & im.F_SAVE:
            raise self.unit.error(
                f"{dsd}: save_address needs an explicit DSR, a loaded copy would be thrown away",
                hint=f'd = p.dsr("{file}"); p.load(d, ...)',
            )
        checks.fits(self.unit, dsd, file)
        dsr = self.unit.automatic_dsr(file, thread, at)
        loads.append((dsr, dsd))
        return dsr

    def _check_fabric(self, op: isa.Op, operands: Sequence[Dsd | Dsr], dst: Any, b: Any) -> None:
        letters = {id(dst): op.types[0]}
        letters.setdefault(id(b), op.types[1])
        found = []
        for operand in operands:
            for dsd in operand.loads if isinstance(operand, Dsr) else [operand]:
                if dsd.is_fabric:
                    letter = letters.get(id(operand), op.types[2])
                    found.append((dsd, checks.packing(dsd, letter)))
        if len({packed for _, packed in found}) > 1:
            text = ", ".join(
                f"{dsd}: {'two elements' if packed else 'one element'} per wavelet" for dsd, packed in found
            )
            raise self.unit.error(
                f"{op.name}: fabric operands disagree on packing ({text})", hint="packed=False for the 16-bit operand"
            )
        if isinstance(dst, Dsd):
            if (
                dst.flags & im.F_ZERO
                and dst.kind == "fabout"
                and not (isinstance(b, Dsr) or (isinstance(b, Dsd) and b.is_memory))
            ):
                raise self.unit.error(f"{op.name}: {dst} clears its first source, which must be in memory")
            if dst.kind == "mem1d" and dst.flags & im.F_INDEX:
                if isinstance(b, (Reg, Dsd)) and not found:
                    raise self.unit.error(f"{op.name}: {dst} takes its offset from wavelets, but no source is fabric")
                if any(packed for _, packed in found):
                    raise self.unit.error(
                        f"{op.name}: packed wavelets have no index half for {dst}", hint="packed=False"
                    )

    def _lengths(self, op: isa.Op, operands: Sequence[Dsd | Dsr]) -> list[Dsd | Dsr]:
        """Return `operands` with the extents that were left open filled in, and refuse walks past their end."""
        length = None
        for operand in operands:
            if isinstance(operand, Dsr):
                known = {dsd.elements for dsd in operand.loads}
                length = known.pop() if len(known) == 1 else -1
            else:
                length = operand.elements
            if length is not None:
                break
        if length is None:
            raise self.unit.error(f"{op.name}: no operand says how many elements", hint="give one of them an extent")
        may_end = any(isinstance(x, Dsd) and x.on_control and x.on_control[0] & im.ON_TERMINATE for x in operands)
        result = []
        for k, operand in enumerate(operands):
            if isinstance(operand, Dsd) and operand.extent is None:
                if length < 0 and k == 0:
                    raise self.unit.error(f"{op.name}: {operand} has no extent and comes first", hint="give it one")
                operand = operand.with_extent(length if length >= 0 else 1)
            elif (
                not may_end
                and isinstance(operand, Dsd)
                and operand.kind not in ("circular", "fifo")
                and not operand.flags & im.F_INDEX
                and operand.elements not in (None, ENDLESS)
                and length > operand.elements
            ):
                raise self.unit.error(
                    f"{op.name}: the operation has {'endless' if length == ENDLESS else length} elements "
                    f"(those of {operands[0]}), {operand} only {operand.elements}",
                    hint="stride=0 without an extent repeats one element" if operand.is_memory else None,
                )
            result.append(operand)
        return result

    def dfilt(self, source: Dsd | Dsr, async_: Async) -> None:
        """Emit ``dfilt``; see `fabric.program.operations.Operations.dfilt`."""
        at = self.unit.here()
        if isinstance(source, Dsr):
            self.dsrs.own(source)
        elif not isinstance(source, Dsd) or source.kind != "fabin":
            raise self.unit.error(f"dfilt: {source} is not a fabin")
        loads: list[tuple[Dsr, Dsd]] = []
        thread = checks.thread_of(self.unit, isa.BY_NAME["dfilt"], [source], async_)
        b = source if isinstance(source, Dsr) else self._auto("src1", self.dsrs.as_dsd(source), thread, loads, at)
        for dsr, dsd in loads:
            self.unit.emit("dsr_load", a=dsr, imm=(dsd, dsr), at=at)
        self.unit.emit("dfilt", b=b, imm=async_, at=at)
