"""Descriptors at run time: values, variables, edits, and what loads them into DSRs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.values import Dsd, Pointer, Struct, Value
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import AutoDsr, ExplicitDsr, Operand, Sym, Template, Vreg
from fabric.csl.lower.dsd import FIELDS, Descriptor, DsdVariable, Fixed, access_of, flag, numbers, plain_strides
from fabric.csl.lower.values import Expressions
from fabric.csl.types import ArrayType, PointerType, Type
from wse_core import image as im

__all__ = ["Chosen", "Descriptors", "Slot"]

PACKED = ("simd_32", "simd_64", "simd_32_or_64")


@dataclass(frozen=True)
class Chosen:
    """One of several descriptors that differ in more than numbers; `which` says at run time which one."""

    which: Vreg
    options: tuple[Descriptor, ...]


class Slot:
    """Where a function that is written in place keeps the descriptor that it returns."""

    held: Descriptor | None = None


class Descriptors(Expressions):
    """Descriptors; a mix-in of `fabric.csl.lower.function.FunctionLowering`."""

    # ---- values

    def descriptor(self, expr: Any) -> Descriptor:
        """Return the descriptor that an expression gives, one of a kind."""
        made = self.alternatives(expr)
        if isinstance(made, Chosen):
            raise Fault("these descriptors differ in more than numbers", self.span, "choose between operations instead")
        return made

    def alternatives(self, expr: Any) -> Descriptor | Chosen:
        """Return the descriptor that an expression gives, or those of which it gives one."""
        if isinstance(expr, tree.Const):
            expr = expr.value
        if isinstance(expr, Value):
            return self.known_descriptor(expr.data)
        self.span = expr.span
        if isinstance(expr, tree.Load):
            return self._loaded(expr.place)
        if isinstance(expr, tree.Select):
            which = self.value(expr.condition)
            return self.choice(which, (self.descriptor(expr.otherwise), self.descriptor(expr.then)))
        if isinstance(expr, tree.BuiltinCall):
            if expr.name == "@get_dsd":
                return self.described(str(expr.type), expr.options)
            return self.edited(self.descriptor(expr.arguments[0]), expr.name, expr.arguments[1:])
        if isinstance(expr, tree.Call):
            made = self.call_for_descriptor(expr)
            if made is not None:
                return made
        if isinstance(expr, tree.Convert):
            return self.descriptor(expr.value)
        raise Fault("the back end cannot follow this descriptor", expr.span, "choose between operations instead")

    def choice(self, which: Operand, options: tuple[Descriptor, ...]) -> Descriptor | Chosen:
        """Return one of some descriptors: with numbers in registers if nothing else is different."""
        if isinstance(which, int):
            return options[which]
        assert isinstance(which, Vreg)
        first = options[0]
        if any(option.fixed != first.fixed for option in options):
            return Chosen(which, options)
        moving = [
            name
            for name in FIELDS
            if any(getattr(option, name) is not getattr(first, name) for option in options)
            and all(getattr(option, name) is not None for option in options)
        ]
        registers = {name: self.new(1, name) for name in moving}

        def write(number: int) -> None:
            for name, register in registers.items():
                self.set(register, getattr(options[number], name))

        self.select(which, range(len(options)), write)
        return first.with_(**registers)

    def select(self, which: Vreg, numbers: Sequence[int], write: Callable[[int], object]) -> None:
        """Write code for each of some numbers, by its place among them; the last is chosen without a comparison."""
        done = self.new_block()
        for place, number in enumerate(numbers):
            after = self.new_block()
            if place < len(numbers) - 1:
                here = self.new_block()
                self.branch("br16", "eq", which, number, here, after)
                self.place(here)
            write(place)
            self.jump(done)
            self.place(after)
        self.jump(done)
        self.place(done)

    def keep(self, slot: Slot, node: tree.Return) -> None:
        """Keep the descriptor that a function returns; all that it returns are of one kind."""
        made = self.descriptor(node.value)
        if slot.held is None:
            slot.held = self._own(made)
            return
        self._same(slot.held.fixed, made.fixed, node)
        for name in FIELDS:
            goal, number = getattr(slot.held, name), getattr(made, name)
            if goal is not None and number is not None:
                self.set(goal, number)

    @abstractmethod
    def call_for_descriptor(self, expr: tree.Call) -> Descriptor | None:
        """Return the descriptor that a function gives."""

    def known_descriptor(self, dsd: Dsd) -> Descriptor:
        """Return a descriptor that the program wrote as a constant."""
        made = self.described(dsd.kind, dsd.fields)
        for name, arguments in dsd.edits:
            made = self.edited(made, name, arguments)
        return made

    def described(self, kind: str, fields: dict[str, Any]) -> Descriptor:
        """Return the descriptor of the fields of `@get_dsd`."""
        if kind in ("mem1d_dsd", "mem4d_dsd"):
            return self._memory(kind, fields)
        if kind == "fifo_dsd":
            return Descriptor(Fixed("fifo", fifo=self.program.fifo_of(fields, self.span)))
        if kind == "circbuf_dsd":
            base = self._pointer(fields["base_address"])
            length = self._number(fields.get("wraparound") or fields["extent"])
            if not isinstance(length, int):
                raise Fault("the length of a circular buffer must be known", self.span)
            return Descriptor(Fixed("circular", length=length), base, self._number(fields["extent"]), 1)
        return self._fabric(kind, fields)

    def _memory(self, kind: str, fields: dict[str, Any]) -> Descriptor:
        entry = fields.get("tensor_access")
        access = access_of(fields)
        if access is None and isinstance(getattr(entry, "data", None), Struct):
            fields = {**fields, **entry.data.fields}  # type: ignore[union-attr]
        indexed = flag(fields, "wavelet_index_offset")
        if access is not None:
            element = access.element.words or 1 if access.element is not None else 1
            offset = access.offset.data * element
            base = self._moved(self._pointer(access.base), offset) if access.base is not None else 0
            extents, strides = access.extents, access.strides
            if kind == "mem1d_dsd":
                return Descriptor(Fixed("mem1d", indexed=indexed), base, extents[0], strides[0] & 0xFFFF)
            return Descriptor(Fixed("mem4d", extents=extents, strides=strides), base)
        pointer = fields["base_address"]
        base = self._pointer(pointer)
        if "offset" in fields:
            words = _element_words(pointer.type)
            offset = self._number(fields["offset"])
            if isinstance(offset, int):
                base = self._moved(base, (offset - 0x10000 if offset & 0x8000 else offset) * words)
            else:
                base = self.alu("add16", self._times(offset, words), base)
        if kind == "mem1d_dsd":
            stride = self._number(fields["stride"]) if "stride" in fields else 1
            return Descriptor(Fixed("mem1d", indexed=indexed), base, self._number(fields["extent"]), stride)
        extents = numbers(fields["extent"], self.span)
        deltas = numbers(fields["stride"], self.span) if "stride" in fields else (1,) * len(extents)
        return Descriptor(Fixed("mem4d", extents=extents, strides=plain_strides(extents, deltas)), base)

    def _fabric(self, kind: str, fields: dict[str, Any]) -> Descriptor:
        color = fields.get("fabric_color")
        queue = fields.get("input_queue" if kind == "fabin_dsd" else "output_queue")
        mode = fields.get("simd_mode")
        packed = mode is not None and any(
            name in PACKED and bool(entry.data) for name, entry in mode.data.fields.items()
        )
        fixed = Fixed(
            "fabin" if kind == "fabin_dsd" else "fabout",
            color=None if color is None else self._id(color, "color"),
            queue=None if queue is None else self._id(queue, "queue"),
            packed=packed,
            control=flag(fields, "control"),
            advance=flag(fields, "advance_switch"),
            zero=fields.get("zero") is not None and any(flag(fields["zero"].data.fields, x) for x in _SOURCES),
            indexed=flag(fields, "wavelet_index_offset"),
        )
        return Descriptor(fixed, None, self._number(fields["extent"]))

    def _id(self, value: Any, what: str) -> int:
        if isinstance(value, tree.Const):
            value = value.value
        if isinstance(value, Value) and isinstance(value.data, int):
            return value.data
        raise Fault(f"the {what} of a descriptor must be known when it is compiled", self.span)

    def _number(self, value: Any) -> Operand:
        return self.value(value)

    def _pointer(self, value: Any) -> Operand:
        if isinstance(value, Value) and not isinstance(value.data, Pointer):
            raise Fault("a base address must point into memory", self.span)
        return self.value(value)

    def _moved(self, base: Operand, words: int) -> Operand:
        if words == 0:
            return base
        if isinstance(base, Vreg):
            return self.alu("add16", base, words & 0xFFFF)
        return base + words

    # ---- edits

    def edited(self, dsd: Descriptor, name: str, arguments: tuple[Any, ...]) -> Descriptor:
        """Return a descriptor after one of the builtins that change one."""
        if name == "@set_dsd_base_addr":
            return dsd.with_(base=self._pointer(arguments[0]))
        if name == "@set_dsd_length":
            return dsd.with_(extent=self._number(arguments[0]))
        if name == "@set_dsd_stride":
            return dsd.with_(stride=self._number(arguments[0]))
        if name != "@increment_dsd_offset":
            raise Fault(f"the back end has no {name}", self.span)
        count, kind = self._number(arguments[0]), arguments[1].type
        words = kind.words or 1
        base = dsd.base if dsd.base is not None else 0
        if isinstance(count, int):
            return dsd.with_(base=self._moved(base, (count - 0x10000 if count & 0x8000 else count) * words))
        return dsd.with_(base=self.alu("add16", self._times(count, words), base))

    # ---- variables

    def _loaded(self, place: tree.Place) -> Descriptor | Chosen:
        if isinstance(place, tree.Element) and isinstance(place.base, tree.VariablePlace):
            return self._of_array(place, place.base.variable)
        if not isinstance(place, tree.VariablePlace):
            raise Fault("a descriptor in a struct is not supported at run time", place.span)
        local = self.env.get(id(place.variable))
        if isinstance(local, (Chosen, Descriptor)):
            return local
        found: DsdVariable = self.program.dsd_variable(place.variable)
        values: dict[str, Operand] = {}
        for k, name in enumerate(found.fields):
            values[name] = self.load_at(None, Sym(found.memory, k), 1)
        return found.initial.with_(**values)

    def _of_array(self, place: tree.Element, variable: Any) -> Descriptor | Chosen:
        """Return an element of an array of descriptors that never changes."""
        known = getattr(variable, "initial", None)
        if known is None or self.program.is_assigned(variable) or len(place.subscripts) != 1:
            raise Fault("only arrays of descriptors that never change are supported", place.span)
        options = tuple(self.known_descriptor(entry) for entry in known.data)
        return self.choice(self.value(place.subscripts[0]), options)

    def declare_dsd(self, local: tree.Local, value: Any) -> None:
        """Begin a local descriptor."""
        if value is None:
            self.env[id(local)] = self._own(self.program.first_value(local, self))
            return
        made = self.alternatives(value)
        if isinstance(made, Chosen):
            if not local.const:
                raise Fault("a var cannot hold descriptors that differ in more than numbers", local.span, "use const")
            self.env[id(local)] = made
            return
        self.env[id(local)] = self._own(made) if self.program.is_assigned(local) else made

    def _own(self, dsd: Descriptor) -> Descriptor:
        """Return a descriptor with registers of its own, which assignments set."""
        changes = {}
        for name in FIELDS:
            number = getattr(dsd, name)
            if number is not None:
                changes[name] = self.copied(number, 1, name)
        return dsd.with_(**changes)

    def assign_dsd(self, node: tree.Assign) -> None:
        """Give a variable another descriptor."""
        if not isinstance(node.place, tree.VariablePlace):
            raise Fault("a descriptor in a struct or array cannot change", node.span)
        made = self.descriptor(node.value)
        target = self.env.get(id(node.place.variable))
        if isinstance(target, Descriptor):
            self._same(target.fixed, made.fixed, node)
            for name in FIELDS:
                goal, number = getattr(target, name), getattr(made, name)
                if goal is not None and number is not None and goal is not number:
                    self.set(goal, number)
            return
        found: DsdVariable = self.program.dsd_variable(node.place.variable)
        self._same(found.initial.fixed, made.fixed, node)
        for k, name in enumerate(found.fields):
            self.store_at(None, Sym(found.memory, k), getattr(made, name), 1)

    @staticmethod
    def _same(old: Fixed, new: Fixed, node: tree.Statement) -> None:
        if old != new:
            raise Fault(
                "the variable would hold descriptors that differ in more than base, length and stride",
                node.span,
                "a variable for each kind",
            )

    # ---- DSRs

    def template(self, dsd: Descriptor, on_control: tuple[int, int | None] = (0, None), save: bool = False) -> Template:
        """Return the fixed part of a descriptor, with what is known of its numbers."""
        f = dsd.fixed
        flags = (
            im.F_CONTROL * f.control
            | im.F_ADVANCE * f.advance
            | im.F_ZERO * f.zero
            | im.F_SAVE * save
            | im.F_TERMINATE * (f.fifo is not None and f.fifo.terminate)
        )
        base = dsd.base if isinstance(dsd.base, (int, Sym)) else 0
        if f.kind == "mem4d":
            extents, strides = f.extents, f.strides
        else:
            extent, stride = (x if isinstance(x, int) else d for x, d in ((dsd.extent, 0), (dsd.stride, 1)))
            extents, strides = (extent,), (stride - 0x10000 if stride & 0x8000 else stride,)
        return Template(
            f.kind, base, extents, strides, f.color, f.queue, f.packed, flags, None, on_control, f.fifo, f.length
        )

    def load_dsr(
        self,
        dsr: AutoDsr | ExplicitDsr,
        dsd: Descriptor,
        on_control: tuple[int, int | None] = (0, None),
        save: bool = False,
    ) -> None:
        """Load a descriptor into a DSR and set the numbers that are not known."""
        self.put("dsr_load", data=(dsr, self.template(dsd, on_control, save)))
        for op, number in (("dsr_base", dsd.base), ("dsr_len", dsd.extent), ("dsr_stride", dsd.stride)):
            if isinstance(number, Vreg):
                self.put(op, None, number, data=dsr)


_SOURCES = ("first_source", "second_source")


def _element_words(kind: Type) -> int:
    """Return the words of what a pointer or array holds."""
    if isinstance(kind, PointerType):
        kind = kind.target
    if isinstance(kind, ArrayType):
        kind = kind.element
    return kind.words or 1
