"""Vector operations are written: operands become DSRs, and one without a vector becomes scalar code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.builtins.operations import OPERATIONS
from fabric.csl.comptime.values import Value
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import AutoDsr, Ending, ExplicitDsr, Operand, Sym, Vector, Vreg
from fabric.csl.lower.dsd import Chosen, Descriptor, Fixed
from fabric.csl.lower.kinds import FIFO_LENGTHS
from fabric.csl.lower.mapping import HELD, Mapping
from fabric.csl.lower.vectors import saves_address
from fabric.csl.types import U16, DsdType, DsrType, PointerType, is_byte
from wse_core import isa
from wse_core.encoding import STATE_CUT
from wse_core.image import TASK_TEARDOWN

__all__ = ["LoweredOperations"]

FILES = {"dsr_dest": "dest", "dsr_src0": "src0", "dsr_src1": "src1", "dsr_fifo_dest": "dest", "dsr_fifo_src1": "src1"}


class LoweredOperations(Mapping):
    """`LoweredOperations` writes vector operations; a mix-in of `fabric.csl.lower.function.FunctionLowering`."""

    arrived_index: Vreg | None
    """A data task of two parameters has this second one."""
    cut_short: set[bool | None]
    """Of each form in which the operation was written last: whether a FIFO may have ended it; None: at times."""

    # ---- operands

    def is_vector(self, value: Any) -> bool:
        """Whether an operand is a descriptor or DSR."""
        return isinstance(value.type, (DsdType, DsrType))

    def explicit(self, value: Any) -> ExplicitDsr:
        """Return a DSR that the program names."""
        value = value.value if isinstance(value, tree.Const) else value
        if not isinstance(value, Value) or str(value.type) not in FILES:
            raise Fault("this DSR must be known when it is compiled", self.span)
        return ExplicitDsr(FILES[str(value.type)], value.data)

    def operation(self, expr: tree.BuiltinCall) -> None:
        """Write a vector operation."""
        name = expr.name[1:]
        self.cut_short = set()
        dest, *sources = expr.arguments
        if not any(self.is_vector(x) for x in (dest, *sources)):
            self._scalar(name, dest, sources)
            return
        if name == "faddhs" and self._is_f32(sources[0]):
            sources = sources[::-1]
        operands: list[Any] = []
        for value in (dest, *sources):
            if isinstance(value.type, DsdType):
                operands.append(self.alternatives(value))
            elif isinstance(value.type, DsrType):
                operands.append(self.explicit(value))
            else:
                given = self.env.get(id(getattr(getattr(value, "place", None), "variable", None)))
                operands.append(given if isinstance(given, (AutoDsr, ExplicitDsr)) else self.value(value))
        self._for_each(operands, lambda one: self._operate(expr, one))

    def has_finished(self) -> Operand:
        """Return whether the operation that was written last has done all of its elements: a FIFO may have ended it."""
        if len(self.cut_short) > 1 or None in self.cut_short:
            what = "whether a FIFO ended this operation cannot be told where its operand is one only sometimes"
            raise Fault(what, self.span, "an operation on each operand")
        if True not in self.cut_short:
            return 1
        left = self.new(1)
        self.put("q_state", left, data=STATE_CUT)
        return self.alu("xor16", self.as_bool(left, U16), 1)

    def _ends(self, value: Any) -> bool | None:
        """Whether a FIFO as this operand may end a synchronous operation; None where it depends."""
        if isinstance(value, ExplicitDsr):
            kinds = self.program.kinds_in(value)
            return "fifo_dsd" in kinds if len(kinds) == 1 or "fifo_dsd" not in kinds else None
        return isinstance(value, Descriptor) and value.fixed.ends

    def _for_each(self, operands: list[Any], write: Callable[[list[Any]], None]) -> None:
        """Write an operation once for each of the descriptors that an operand may be."""
        for place, value in enumerate(operands):
            if isinstance(value, Chosen):
                options = value.options

                def one(number: int, place: int = place, options: Any = options) -> None:
                    self._for_each([*operands[:place], options[number], *operands[place + 1 :]], write)

                self.select(value.which, value.codes, one)
                return
            key = self.program.rebinding.of(value)
            if key is not None:
                options = self.program.rebinding.options(value, key)
                which = self.reg(self.load_at(None, self.program.color_word(key), 1), 1)
                colors = tuple(option.fixed.color for option in options)
                self._for_each([*operands[:place], Chosen(which, colors, options), *operands[place + 1 :]], write)
                return
        write(operands)

    def flush(self, expr: tree.BuiltinCall) -> None:
        """Write a `@queue_flush`: an operation of no elements that ends when the queue is empty."""
        queue = self.program.rebinding.number(expr.arguments[0], self.span)
        if not self.program.handles_empty:
            hint = "@set_empty_queue_handler(f, queue), or a task with the id 29"
            raise Fault("nothing happens when this queue is empty", self.span, hint)
        self.store_at(None, self.program.flush_word(queue), 1, 1)
        thread = self.program.rebinding.flusher(queue)
        ending = Ending("low", TASK_TEARDOWN, None, thread)

        def write(operands: list[Any]) -> None:
            dsr = AutoDsr("dest")
            dsr.thread = thread
            self.load_dsr(dsr, operands[0])
            self.put("vector", None, self.reg(0, 2), data=Vector("mov32", (dsr, 0), ending))

        self._for_each([Descriptor(Fixed("fabout", queue=queue, flush=True), None, 0)], write)

    def _operate(self, expr: tree.BuiltinCall, operands: list[Any]) -> None:
        """Write a vector operation with these operands."""
        row, name, options, dest = OPERATIONS[expr.name], expr.name[1:], expr.options, expr.arguments[0]
        op = isa.BY_NAME[name]
        operands = list(operands)
        if "index" in options:
            operands = self._indexed(operands, self.value(options["index"]))
        elif self.arrived_index is not None:
            operands = [operands[0], *self._indexed(operands[1:], self.arrived_index)]  # as in SDK 0.4
        ending = self.program.ending(options, operands, self.span)
        if ending is not None and ending.thread is None and self.program.rebinding.colors:
            ending = self.program.on_its_queue(ending, operands)
        is_pointer = isinstance(dest.type, PointerType)
        if is_pointer and (ending is not None or row.pointer == "move"):
            operands[0] = Descriptor(Fixed("mem1d"), operands[0], 1, 0)
            is_pointer = False
        said = self._lengths(operands)
        self._packings(op, operands)
        for place, value in enumerate(operands):
            if isinstance(value, Descriptor) and value.fixed.fifo is not None:
                ends = value.fixed.fifo.ends(place > 0, ending is None)
                operands[place] = value.with_(fixed=replace(value.fixed, ends=ends))
        cuts = {self._ends(value) for value in operands} if ending is None else set()
        self.cut_short.add(True in cuts if None not in cuts else None)
        result: Vreg | None = None
        scalars: list[Operand] = []
        slots: list[Any] = []
        thread = self.program.thread_of(operands, ending, self.span)
        on_control = self.program.on_control(options, self.span)
        # A register that the program loads itself may say the length, and then another extent than its own counts.
        counted = not any(isinstance(value, ExplicitDsr) for value in operands)
        for place, value in enumerate(operands):
            if place == 0 and is_pointer:
                slots.append("dst")
            elif isinstance(value, Descriptor):
                if counted:
                    self._within(_as_far(value, operands), isa.WORDS[op.types[place]])
                dsr = AutoDsr(self._file(place, value, operands))
                dsr.thread = thread
                control = on_control if value.fixed.kind == "fabin" else (0, None)
                self.load_dsr(dsr, value, control)
                slots.append(dsr)
            elif isinstance(value, (ExplicitDsr, AutoDsr)):  # that of multipliers is no descriptor any more
                slots.append(value)
            elif is_pointer:  # a running sum: the machine reads and sets one register, element by element
                result = self.copied(value, isa.WORDS[op.types[place]])
                slots.append(len(scalars))
                scalars.append(result)
            else:
                slots.append(len(scalars))
                scalars.append(self.reg(value, isa.WORDS[op.types[place]]))
        if is_pointer and result is None:
            result = self.new(isa.WORDS[op.types[0]])
        if op.is_mac and ending is None and self.mapped == 0 and self.program.fills:
            self.put("idle", None, data=self.program.fills)
        self.put("vector", result, *scalars, data=Vector(name, tuple(slots), ending))
        if result is not None:
            base, offset = self._split(operands[0])
            self.store_at(base, offset, result, result.size)
        if said is not None:
            self._keep_rest(*said, True in cuts)

    def _within(self, value: Descriptor, words: int) -> None:
        """Refuse a descriptor that surely walks beyond the array that its base lies in."""
        reach = value.reach(words)
        if reach is None or not isinstance(value.base, Sym):
            return
        memory, first = value.base.memory, value.base.offset
        if first + reach[0] >= 0 and first + reach[1] < memory.words:
            return
        beyond = first + reach[1] if first + reach[0] >= 0 else first + reach[0]
        what = f"this walks over element {beyond // words} of '{memory.name}', which has {memory.words // words}"
        notes = (("it is used here", self.span),) if value.span is not None else ()
        raise Fault(what, value.span or self.span, "a smaller extent", notes)

    @staticmethod
    def _is_f32(value: Any) -> bool:
        return str(value.type) == "f32"

    @staticmethod
    def _file(place: int, value: Descriptor, operands: list[Any]) -> str:
        """Return the file of DSRs that a descriptor goes into."""
        if place == 0:
            return "dest"
        first_of_two = place == 1 and any(isinstance(x, (Descriptor, ExplicitDsr)) for x in operands[2:3])
        if value.fixed.kind == "fifo":
            return "src1"
        if first_of_two:
            other = operands[2]
            if isinstance(other, ExplicitDsr):
                return "src0" if other.file == "src1" else "src1"
            return "src0"
        if place == 2 and isinstance(operands[1], ExplicitDsr):
            return "src0" if operands[1].file == "src1" else "src1"
        return "src1"

    def _indexed(self, operands: list[Any], index: Operand) -> list[Any]:
        """Return operands with the offset of the option `index` added to those that ask for it."""
        found = []
        for value in operands:
            if isinstance(value, Descriptor) and value.fixed.indexed:
                if not value.fixed.is_memory:
                    raise Fault("the option 'index' of a fabout_dsd is not modelled", self.span)
                base = value.base if value.base is not None else 0
                base = self._moved(base, index) if isinstance(index, int) else self.alu("add16", index, base)
                value = value.with_(base=base)
            found.append(value)
        return found

    def set_fifo_length(self, expr: tree.BuiltinCall) -> None:
        """Note how many elements the next operation with a FIFO has."""
        fifo = self.alternatives(expr.arguments[0]).kinds[0].fifo
        word = self.program.fifo_length(fifo, FIFO_LENGTHS[expr.name])
        assert word is not None  # the program was looked through for it
        self.store_at(None, word, self.value(expr.arguments[1]), 1)

    def _said(self, order: list[Any], target: Any) -> tuple[Sym, Vreg] | None:
        """Return where the length lies that was set for a FIFO of an operation, and the length."""
        found = None
        for value in order:
            if isinstance(value, Descriptor) and value.fixed.fifo is not None:
                word = self.program.fifo_length(value.fixed.fifo, value is not target)
                if word is not None and value is not order[0]:
                    what = "a FIFO whose length is set must be the first source here, or the only vector"
                    raise Fault(what, self.span, "give the other operand the length: @set_dsd_length")
                found = None if word is None else (word, self.reg(self.load_at(None, word, 1), 1))
        return found

    def _keep_rest(self, word: Sym, length: Vreg, ends: bool) -> None:
        """Take what an operation has done off the length that was set; it was 0 if another operand had one."""
        if not ends:
            self.store_at(None, word, 0, 1)
            return
        was_set, after = self.new_block(), self.new_block()
        self.branch("br16", "ne", length, 0, was_set, after)
        self.place(was_set)
        self.put("q_state", left := self.new(1), data=STATE_CUT)
        self.store_at(None, word, left, 1)
        self.jump(after)
        self.place(after)

    def _lengths(self, operands: list[Any]) -> tuple[Sym, Vreg] | None:
        """Give FIFOs the length of the operand that decides; return one that was set, as `_said` does."""
        order = [*operands[1:3], operands[0]]
        known = [x for x in order if isinstance(x, Descriptor) and x.fixed.kind != "fifo"]
        vectors = [x for x in order if isinstance(x, (Descriptor, ExplicitDsr))]
        said = self._said(vectors, operands[0])
        for place, value in enumerate(operands):
            if isinstance(value, Descriptor) and value.fixed.kind == "fifo":
                if known and known[0].fixed.kind == "mem4d":
                    raise Fault("a FIFO with a mem4d_dsd is not supported", self.span)
                extent = value.extent if value.extent is not None else known[0].extent if known else 1
                if said is not None and extent is not None and value is vectors[0]:
                    extent = self._length_or(said[1], extent)
                operands[place] = value.with_(extent=extent)
        if isinstance(vectors[0], ExplicitDsr) and "fifo_dsd" in self.program.kinds_in(vectors[0]):
            self.put("dsr_len", None, self._length_beside(vectors), data=vectors[0])
        return said

    def _length_or(self, length: Vreg, other: Operand) -> Vreg:
        """Return a length, or another if that is 0."""
        found, none, done = self.copied(length, 1), self.new_block(), self.new_block()
        self.branch("br16", "ne", length, 0, done, none)
        self.place(none)
        self.put("copy" if isinstance(other, Vreg) else "const", found, other)
        self.jump(done)
        self.place(done)
        return found

    def _length_beside(self, vectors: list[Any]) -> Operand:
        """Return how many elements an operation has whose first operand is a DSR with a FIFO, which has no length."""
        others = [x for x in vectors[1:] if not (isinstance(x, Descriptor) and x.fixed.fifo is not None)]
        if not others:
            return 1
        other = others[0]
        dsd = self.program.loaded_before(other, self.block) if isinstance(other, ExplicitDsr) else other
        if dsd is None or dsd.extent is None or len(self.program.kinds_in(vectors[0])) > 1:
            what = f"how many elements this operation has is not known: {vectors[0]} may hold a FIFO"
            raise Fault(what, self.span, "give the operation the DSDs themselves")
        return dsd.extent

    @staticmethod
    def _packings(op: isa.Op, operands: list[Any]) -> None:
        """Wavelets of 32-bit elements hold one each."""
        for place, value in enumerate(operands):
            if isinstance(value, Descriptor) and value.fixed.packed and isa.WORDS[op.types[place]] == 2:
                operands[place] = value.with_(fixed=replace(value.fixed, packed=False))

    def _scalar(self, name: str, dest: Any, sources: list[Any]) -> None:
        """Write an operation on numbers whose result goes through a pointer."""
        base, offset = self._split(self.value(dest))
        made = self.alu(name, *(self.value(value) for value in sources))
        self.store_at(base, offset, made, made.size)

    def load_to_dsr(self, expr: tree.BuiltinCall) -> None:
        """Write the load of a DSR that a `@load_to_dsr` asks for."""
        dsr, made = self.explicit(expr.arguments[0]), self.alternatives(expr.arguments[-1])
        for option in made.options if isinstance(made, Chosen) else (made,):
            self._not_rebound(option)
        if isinstance(made, Chosen):
            self.program.note_choice(dsr)
        self._for_each([made], lambda one: self.load_explicit(dsr, one[0], expr.options))

    def _not_rebound(self, dsd: Descriptor) -> None:
        """Refuse a DSR with a queue that gets other colors: which one it has then is not known here."""
        key = self.program.rebinding.of(dsd)
        if key is not None:
            what = f"a DSR with {key[0]} {key[1]}, which gets another color while the program runs, is not modelled"
            raise Fault(what, self.span, "give the operation the DSD")

    def load_explicit(self, dsr: ExplicitDsr, dsd: Descriptor, options: dict[str, Any]) -> None:
        """Load a DSR that the program named; its options hold for the operations that use it."""
        save = saves_address(options)
        if self.program.is_mapped(dsr):
            for name in HELD:
                number = getattr(dsd, name)
                self.store_at(None, self.program.held_number(dsr, name), 0 if number is None else number, 1)
        if dsd.fixed.fifo is not None:
            if self.program.fifo_length(dsd.fixed.fifo, dsr.file != "dest") is not None:
                raise Fault(
                    "a DSR with a FIFO whose length is set is not modelled", self.span, "give it the FIFO itself"
                )
            run = options.get("async")
            ends = dsd.fixed.fifo.ends(dsr.file != "dest", run is None or not run.data)
            dsd = dsd.with_(fixed=replace(dsd.fixed, ends=ends))
        self.program.note_load(dsr, dsd, options, self.block, self.span)
        self.load_dsr(dsr, dsd, self.program.on_control(options, self.span), save)

    def filtered(self, expr: tree.BuiltinCall) -> None:
        """Write a `@dfilt` for each descriptor that its operand may be."""
        self._for_each([self.alternatives(expr.arguments[0])], lambda one: self._filter(expr, one[0]))

    def _filter(self, expr: tree.BuiltinCall, dsd: Descriptor) -> None:
        """Write a `@dfilt` with this descriptor."""
        ending = self.program.ending(expr.options, [dsd], self.span) or Ending()
        dsr = AutoDsr("src1")
        dsr.thread = self.program.thread_of([dsd], ending, self.span)
        self.load_dsr(dsr, dsd, self.program.on_control(expr.options, self.span))
        self.put("vector", None, data=Vector("dfilt", (dsr,), ending))

    # ---- memory

    def copy_words(
        self, target: tuple[Vreg | None, int | Sym], source: tuple[Vreg | None, int | Sym], words: int
    ) -> None:
        """Copy words of memory."""
        if words <= 4:
            for k in range(words):
                self.store_at(target[0], target[1] + k, self.load_at(source[0], source[1] + k, 1), 1)
            return
        dest, src = AutoDsr("dest"), AutoDsr("src1")
        self.load_dsr(dest, Descriptor(Fixed("mem1d"), self.joined(*target), words, 1))
        self.load_dsr(src, Descriptor(Fixed("mem1d"), self.joined(*source), words, 1))
        self.put("vector", None, data=Vector("mov16", (dest, src)))

    def spread(self, base: Vreg | None, offset: int | Sym, kind: Any, value: Operand) -> None:
        """Fill an array with one number."""
        size, count = kind.element.words, kind.count
        if is_byte(kind.element):
            value = self.alu("or16", self.alu("and16", value, 0xFF), self.alu("sll16", value, 8))
            count = kind.words
        dest = AutoDsr("dest")
        self.load_dsr(dest, Descriptor(Fixed("mem1d"), self.joined(base, offset), count, 1))
        op = "mov32" if size == 2 else "mov16"
        self.put("vector", None, self.reg(value, size), data=Vector(op, (dest, 0)))


def _as_far(value: Descriptor, operands: list[Any]) -> Descriptor:
    """Return a descriptor as far as an operation walks over it, which the first one of a source says, else the target.

    Where that is a number of the run, others have no extent.
    """
    first = next(
        (x for x in (*operands[1:3], operands[0]) if isinstance(x, Descriptor) and x.fixed.kind != "fifo"), value
    )
    if first is value or value.fixed.kind != "mem1d" or not isinstance(value.extent, int):
        return value
    extent = prod(first.fixed.extents) if first.fixed.kind == "mem4d" else first.extent
    return value.with_(extent=min(extent, value.extent) if isinstance(extent, int) else None)
