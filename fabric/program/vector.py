"""Vector operations: descriptors become DSRs, lengths and packings are checked, microthreads are found."""

from __future__ import annotations

from fabric.asm.operands import Address, Dsd, Dsr, Reg, is_number
from fabric.asm.values import WORDS
from fabric.program.emission import LETTER_NAME, MOVES
from wse_core import image as im
from wse_core import isa
from wse_core.image import ENDLESS

__all__ = ["COMMUTE", "Vector"]

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
"""Operations whose first two sources may change places."""
LETTER = {"f16": "h", "cb16": "h", "i16": "i", "u16": "i", "f32": "s", "i32": "l", "u32": "l"}
"""Letter of the op table for each element type."""


class Vector:
    """Part of `fabric.program.program.Program`: vector operations."""

    def _vector(self, op, args, letters, async_):
        dst, *sources = args
        self._check_operands(op, dst, sources, letters, async_)
        b, c, scalar = [*sources, None, None][:3]
        if isinstance(b, Dsd) and b.kind == "fifo" and isinstance(c, (Dsd, Dsr)):
            if op.name not in COMMUTE or (isinstance(c, Dsd) and c.kind == "fifo"):
                raise self._error(f"{op.name}: a FIFO cannot be the first of two sources")
            b, c = c, b
        operands = [x for x in (b, c, dst) if isinstance(x, (Dsd, Dsr))]  # in the order that decides the length
        self._check_fabric(op, operands, dst, b)
        in_place = isinstance(b, Dsd) and b.kind != "fifo" and dst == b
        complete = dict(zip(map(id, operands), self._lengths(op, operands), strict=True))
        dst, b, c = (complete.get(id(x), x) for x in (dst, b, c))
        thread = self._thread(op, complete.values(), async_)

        held, loads, fields = [], [], []
        files = self._files(b, c, in_place)
        for k, source in enumerate((b, c, scalar)[: len(sources)]):
            if isinstance(source, Dsr):
                fields.append(source)
            elif isinstance(source, Dsd):
                fields.append(self._auto(files[k], source, thread, loads))
            elif isinstance(source, Reg):
                fields.append(self._reg_field(source, letters[k + 1], f"{op.name} source {k + 1}"))
            else:
                fields.append(self._held(source, letters[k + 1], op, held))
        if isinstance(dst, Reg):
            a = self._reg_field(dst, letters[0], f"{op.name} destination")
        elif isinstance(dst, Dsr):
            a = dst
        elif in_place and files[0] == "src0":
            a = fields[0]
        else:
            a = self._auto("dest", dst, thread, loads)
        for dsr, dsd in loads:
            self._emit("dsr_load", a=dsr, imm=(dsd, dsr))
        ins = self._emit(op.name, a, *fields, imm=async_)
        if self.machine["dsr.paired"]:
            self._pair(ins)
        self._release(held)

    @staticmethod
    def _files(b, c, in_place):
        """Return the DSR files for descriptors given as first and second source."""
        first = "src0" if c is not None or in_place else "src1"
        if (isinstance(c, Dsr) and c.file == "src0") or (isinstance(b, Dsd) and b.kind == "fifo"):
            first = "src1"
        return first, "src0" if isinstance(b, Dsr) and b.file == "src1" else "src1"

    def _check_operands(self, op, dst, sources, letters, async_):
        """Refuse operands that no vector operation has in these places."""
        what = op.name
        if not self.machine.lanes(op):
            raise self._error(
                f"{what} has no vector form on {self.machine.preset}", hint="write a loop of scalar instructions"
            )
        if len(sources) == 3 and isinstance(sources[2], (Dsd, Dsr)):
            raise self._error(f"{what}: the multiplier is a scalar, not {sources[2]}")
        for k, (arg, letter) in enumerate(zip((dst, *sources), letters, strict=True)):
            if isinstance(arg, Dsd):
                self._check_type(op, arg, letter, "destination" if k == 0 else f"source {k}")
            elif isinstance(arg, Dsr):
                self._own(arg)
        if (
            not isinstance(dst, (Dsd, Dsr, Reg))
            or (isinstance(dst, Dsd) and dst.kind == "fabin")
            or (isinstance(dst, Dsr) and dst.file == "src1")
        ):
            raise self._error(f"{what}: {dst} cannot be the destination")
        for k, source in enumerate(sources):
            if not (isinstance(source, (Dsd, Dsr, Reg, Address)) or is_number(source)):
                raise self._error(f"{what}: {source!r} cannot be a source")
            if isinstance(source, Dsd) and source.kind == "fabout":
                raise self._error(f"{what}: {source} cannot be a source")
            if isinstance(source, Dsr) and source.file == "dest":
                raise self._error(
                    f"{what}: {source} cannot be source {k + 1}", hint="a src0 DSR can be both source and destination"
                )
        if async_ is not None and isinstance(dst, Reg):
            raise self._error(
                f"{what}: an asynchronous operation cannot return into a register",
                hint="a destination in memory (stride 0 for a sum)",
            )
        fabric = [x.queue for x in sources if isinstance(x, Dsd) and x.is_fabric]
        if len(fabric) == 2 and fabric[0] == fabric[1]:
            raise self._error(f"{what}: both sources take wavelets from color {fabric[0].color}")

    def _auto(self, file, dsd, thread, loads):
        if dsd.flags & im.F_SAVE:
            raise self._error(
                f"{dsd}: save_address needs an explicit DSR, a loaded copy would be thrown away",
                hint=f'd = p.dsr("{file}"); p.load(d, ...)',
            )
        self._fits(dsd, file)
        dsr = Dsr(self, file, None, "", self._where())
        dsr.thread = thread
        dsr.loads.append(dsd)
        loads.append((dsr, dsd))
        return dsr

    def _check_type(self, op, dsd, letter, place):
        if dsd.dtype is None:
            return
        actual = LETTER[dsd.dtype]
        fits = WORDS[dsd.dtype] == isa.WORDS[letter] if op.name in MOVES else actual == letter
        if not fits:
            raise self._error(
                f"{op.name} {place}: {dsd} has elements of type {dsd.dtype}, the operation wants {LETTER_NAME[letter]}",
                hint="dtype=... of the descriptor gives a view of equal size"
                if WORDS[dsd.dtype] == isa.WORDS[letter]
                else None,
            )

    def _packing(self, dsd, letter):
        """Return whether a fabric operand of an op moves two elements per wavelet."""
        if isa.WORDS[letter] == 2:
            return False
        return True if dsd.packed is None else dsd.packed

    def _check_fabric(self, op, operands, dst, b):
        letters = {id(dst): op.types[0]}
        letters.setdefault(id(b), op.types[1])
        found = []
        for operand in operands:
            for dsd in operand.loads if isinstance(operand, Dsr) else [operand]:
                if dsd.is_fabric:
                    letter = letters.get(id(operand), op.types[2])
                    found.append((dsd, self._packing(dsd, letter)))
        if len({packed for _, packed in found}) > 1:
            text = ", ".join(
                f"{dsd}: {'two elements' if packed else 'one element'} per wavelet" for dsd, packed in found
            )
            raise self._error(
                f"{op.name}: fabric operands disagree on packing ({text})", hint="packed=False for the 16-bit operand"
            )
        if isinstance(dst, Dsd):
            if (
                dst.flags & im.F_ZERO
                and dst.kind == "fabout"
                and not (isinstance(b, Dsr) or (isinstance(b, Dsd) and b.is_memory))
            ):
                raise self._error(f"{op.name}: {dst} clears its first source, which must be in memory")
            if dst.kind == "mem1d" and dst.flags & im.F_INDEX:
                if isinstance(b, (Reg, Dsd)) and not found:
                    raise self._error(f"{op.name}: {dst} takes its offset from wavelets, but no source is fabric")
                if any(packed for _, packed in found):
                    raise self._error(f"{op.name}: packed wavelets have no index half for {dst}", hint="packed=False")

    def _lengths(self, op, operands):
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
            raise self._error(f"{op.name}: no operand says how many elements", hint="give one of them an extent")
        may_end = any(isinstance(x, Dsd) and x.on_control and x.on_control[0] & im.ON_TERMINATE for x in operands)
        result = []
        for k, operand in enumerate(operands):
            if isinstance(operand, Dsd) and operand.extent is None:
                if length < 0 and k == 0:
                    raise self._error(f"{op.name}: {operand} has no extent and comes first", hint="give it one")
                operand = operand.with_extent(length if length >= 0 else 1)
            elif (
                not may_end
                and isinstance(operand, Dsd)
                and operand.kind not in ("circular", "fifo")
                and not operand.flags & im.F_INDEX
                and length > operand.elements
                and operand.elements != ENDLESS
            ):
                raise self._error(
                    f"{op.name}: the operation has {'endless' if length == ENDLESS else length} elements "
                    f"(those of {operands[0]}), {operand} only {operand.elements}",
                    hint="stride=0 without an extent repeats one element" if operand.is_memory else None,
                )
            result.append(operand)
        return result

    def _thread(self, op, operands, async_, ins=None):
        """Return the microthread of an operation, -1 for the main thread; check what WSE-2 allows.

        A DSR that is loaded only further down in the code leaves the microthread open (8); `assemble` asks again.
        """
        if async_ is None:
            return -1
        is_open = any(isinstance(x, Dsr) and not x.loads for x in operands)
        fabric = [d for x in operands for d in (x.loads if isinstance(x, Dsr) else [x])]
        out = [d.queue.id for d in fabric if d.kind == "fabout"]
        into = [d.queue.id for d in fabric if d.kind == "fabin"]
        derived = (out or into or [None])[0]
        if derived is None and is_open:
            return 8 if async_.ut is None else async_.ut
        if derived is None and not any(d.kind == "fifo" for d in fabric):
            raise self._error(f"{op.name}: an asynchronous operation needs an operand on the fabric or a FIFO", ins=ins)
        if async_.ut is None:
            if derived is None:
                raise self._error(
                    f"{op.name}: without an operand on the fabric the microthread must be named",
                    ins=ins,
                    hint="ut=0 .. 7",
                )
            return derived
        if self.machine["ut.of_queue"] and derived is not None and async_.ut != derived:
            raise self._error(
                f"{op.name}: microthread {async_.ut} asked for, but {self.machine.preset} runs this operation on "
                f"microthread {derived}, the number of its queue",
                ins=ins,
                hint="leave ut out, or bind another queue",
            )
        return async_.ut

    def _pair(self, ins):
        """WSE-2: a dest DSR and a src0 DSR of one operation carry the same id."""
        dest = [x for x in (ins.a,) if isinstance(x, Dsr) and x.file == "dest"]
        src0 = [x for x in (ins.b, ins.c) if isinstance(x, Dsr) and x.file == "src0"]
        for left in dest:
            for right in src0:
                self._unite(left, right, ins)

    def _unite(self, left, right, ins):
        def root(dsr):
            while dsr.group is not dsr:
                dsr = dsr.group
            return dsr

        a, b = root(left), root(right)
        if a is b:
            return
        if a._id is not None and b._id is not None and a._id != b._id:
            raise self._error(
                f"{ins.op.name}: {left} and {right} are used together; on {self.machine.preset} a dest DSR and a src0 "
                "DSR of one operation must have the same id",
                ins=ins,
                hint=f'p.dsr("{right.file}", id={a._id}), or leave the choice to the assembler',
            )
        if (a._id is None and b._id is not None) or (a.thread is not None and b.thread is None):
            a, b = b, a
        b.group = a

    # --- special form -------------------------------------------------------------------------------------------------

    def dfilt(self, source, async_=True, **attributes):
        """Discard data wavelets of a fabin until its extent in control wavelets has been seen; asynchronous only."""
        if isinstance(source, Dsr):
            self._own(source)
        elif not isinstance(source, Dsd) or source.kind != "fabin":
            raise self._error(f"dfilt: {source} is not a fabin")
        if not async_:
            raise self._error("dfilt: asynchronous only", hint="async_=True")
        async_ = self.async_(**attributes) if async_ is True else async_
        loads = []
        thread = self._thread(isa.BY_NAME["dfilt"], [source], async_)
        b = source if isinstance(source, Dsr) else self._auto("src1", self._as_dsd(source), thread, loads)
        for dsr, dsd in loads:
            self._emit("dsr_load", a=dsr, imm=(dsd, dsr))
        self._emit("dfilt", b=b, imm=async_)
