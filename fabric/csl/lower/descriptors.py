"""Descriptors are handled at run time: values, variables, edits, and what loads them into DSRs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.values import DsdValue, Pointer, Struct, Value
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import AutoDsr, ExplicitDsr, Operand, Sym, Template, Vreg
from fabric.csl.lower.dsd import (
    CHANGES,
    FIELDS,
    Chosen,
    Descriptor,
    DsdVariable,
    Fixed,
    access_of,
    fabric_kind,
    memory_kind,
)
from fabric.csl.lower.kinds import returned
from fabric.csl.lower.values import LoweredValues
from fabric.csl.types import ArrayType, PointerType, Type
from wse_core import image as im

__all__ = ["Descriptors", "Slot"]

BITS_OF_ID = 5
"""A color or queue has so many bits where the numbers of both tell what was chosen."""


class Slot:
    """A `Slot` keeps the descriptor that a function returns which is written in place of its call."""

    held: Descriptor | Chosen | None = None


class Descriptors(LoweredValues):
    """`Descriptors` writes what makes, edits and loads descriptors; a mix-in of
    `fabric.csl.lower.function.FunctionLowering`.
    """

    expanding: list[tree.Function]
    """The function at work stands first, then those that are written in place of calls, innermost last."""

    # ---- values

    def descriptor(self, expr: Any) -> Descriptor:
        """Return the descriptor that an expression gives, one of a kind."""
        made = self.alternatives(expr)
        if isinstance(made, Chosen):
            raise Fault("this takes descriptors of one kind only", self.span, "choose between operations instead")
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
            return self._either(which, expr)
        if isinstance(expr, tree.BuiltinCall):
            if expr.name == "@get_dsd":
                return self.described(str(expr.type), expr.options)
            return self.edited(self.alternatives(expr.arguments[0]), expr.name, expr.arguments[1:])
        if isinstance(expr, tree.Call):
            made = self.call_for_descriptor(expr)
            if made is not None:
                return made
        if isinstance(expr, tree.Convert):
            return self.alternatives(expr.value)
        raise Fault("the back end cannot follow this descriptor", expr.span, "choose between operations instead")

    def _either(self, which: Operand, expr: tree.Select) -> Descriptor | Chosen:
        """Return one of two descriptors; what makes them is done before it is chosen."""
        options = (self.alternatives(expr.otherwise), self.alternatives(expr.then))
        if isinstance(which, int):
            return options[which]
        assert isinstance(which, Vreg)
        plain = tuple(option for option in options if isinstance(option, Descriptor))
        if len(plain) == 2:
            return self.choice(which, plain)
        goal = self.fresh_choice(tuple(dict.fromkeys([*options[0].kinds, *options[1].kinds])), options[0])
        self.select(which, (0, 1), lambda number: self.give(goal, options[number]))
        return goal

    def choice(self, which: Operand, options: tuple[Descriptor, ...]) -> Descriptor | Chosen:
        """Return one of some descriptors: with numbers in registers if nothing else is different."""
        if isinstance(which, int):
            return options[which]
        assert isinstance(which, Vreg)
        first = options[0]
        if any(option.fixed != first.fixed for option in options):
            return Chosen(which, tuple(range(len(options))), options)
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

    def fresh_choice(self, kinds: tuple[Fixed, ...], like: Descriptor | Chosen) -> Chosen:
        """Return registers for a descriptor of one of some kinds, which have the numbers that another one has."""
        example = like.options[0] if isinstance(like, Chosen) else like
        numbers: dict[str, Any] = {name: self.new(1, name) for name in example.numbers}
        codes = tuple(map(self.program.kinds.number, kinds))
        return Chosen(self.new(1, "kind"), codes, tuple(Descriptor(kind, **numbers) for kind in kinds))

    def give(self, goal: Descriptor | Chosen, made: Descriptor | Chosen) -> None:
        """Set registers to a descriptor of one of their kinds."""
        if isinstance(made, Chosen):
            if isinstance(goal, Chosen) and (made.codes, made.options) == (goal.codes, goal.options):
                self.set(goal.which, made.which) if made.which is not goal.which else None
                return
            self.select(made.which, made.codes, lambda number: self.give(goal, made.options[number]))
            return
        target = goal
        if isinstance(goal, Chosen):
            target = next((option for option in goal.options if option.fixed == made.fixed), goal.options[0])
            self.set(goal.which, self.program.kinds.number(made.fixed))
        assert isinstance(target, Descriptor)
        if target.fixed != made.fixed:
            raise Fault("this descriptor is of a kind that was not foreseen", self.span)
        for name in FIELDS:
            register, number = getattr(target, name), getattr(made, name)
            if register is not None and number is not None and register is not number:
                self.set(register, number)

    def keep(self, slot: Slot, node: tree.Return) -> None:
        """Keep the descriptor that a function returns."""
        made = self.alternatives(node.value)
        if slot.held is None:
            kinds = self.program.kinds.of(returned(self.expanding[-1]), self.env)
            kinds = tuple(dict.fromkeys([*made.kinds, *kinds]))
            if len(kinds) == 1 and isinstance(made, Descriptor):
                slot.held = self._own(made)
                return
            slot.held = self.fresh_choice(kinds, made)
        self.give(slot.held, made)

    @abstractmethod
    def call_for_descriptor(self, expr: tree.Call) -> Descriptor | Chosen | None:
        """Return the descriptor that a function gives."""

    def known_descriptor(self, dsd: DsdValue) -> Descriptor | Chosen:
        """Return a descriptor that the program wrote as a constant."""
        made = self.described(dsd.kind, dsd.fields)
        for name, arguments in dsd.edits:
            made = self.edited(made, name, arguments)
        return made.with_(span=dsd.span)

    def described(self, kind: str, fields: dict[str, Any]) -> Descriptor | Chosen:
        """Return the descriptor of the fields of `@get_dsd`."""
        if kind in ("mem1d_dsd", "mem4d_dsd"):
            return self._memory(kind, fields)
        if kind == "fifo_dsd":
            return Descriptor(Fixed("fifo", fifo=self.program.fifo_of(fields, self.span)))
        if kind == "circbuf_dsd":
            fixed = memory_kind(kind, fields, self.span)
            return Descriptor(fixed, self._pointer(fields["base_address"]), self.value(fields["extent"]), 1)
        return self._fabric(kind, fields)

    def _memory(self, kind: str, fields: dict[str, Any]) -> Descriptor:
        entry = fields.get("tensor_access")
        access, fixed = access_of(fields), memory_kind(kind, fields, self.span)
        if access is None and isinstance(getattr(entry, "data", None), Struct):
            fields = {**fields, **entry.data.fields}  # type: ignore[union-attr]
        if access is not None:
            element = access.element.words or 1 if access.element is not None else 1
            offset = access.offset.data * element
            base = self._moved(self._pointer(access.base), offset) if access.base is not None else 0
            if kind == "mem1d_dsd":
                return Descriptor(fixed, base, access.extents[0], access.strides[0] & 0xFFFF)
            return Descriptor(fixed, base)
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
            return Descriptor(fixed, base, self._number(fields["extent"]), stride)
        return Descriptor(fixed, base)

    def _fabric(self, kind: str, fields: dict[str, Any]) -> Descriptor | Chosen:
        port = "input_queue" if kind == "fabin_dsd" else "output_queue"
        extent = self._number(fields["extent"])
        codes: list[tuple[int, int | None, int | None]] = [(0, None, None)]
        which: Operand = 0
        for place, (name, id_name) in enumerate((("fabric_color", "color"), (port, port))):
            ids = self.program.kinds.known_ids(fields.get(name), id_name)
            code = [0] * len(ids)
            if isinstance(fields.get(name), tree.Expr) and not isinstance(fields[name], tree.Const):
                if not ids:
                    raise Fault(f"no {id_name} that this could be is named in the program", self.span)
                ident = self.value(fields[name])
                if id_name in self.program.kinds.made and isinstance(ident, Vreg):
                    self._one_of(ident, ids)
                which = self._plus(self._times(which, 1 << BITS_OF_ID), ident)
                code = [ident or 0 for ident in ids]
                codes = [(number << BITS_OF_ID, color, queue) for number, color, queue in codes]
            codes = [
                (number + extra, ident, None) if place == 0 else (number + extra, color, ident)
                for number, color, _ in codes
                for extra, ident in zip(code, ids, strict=True)
            ]
        options = tuple(Descriptor(fabric_kind(kind, fields, *ids), None, extent) for _, *ids in codes)
        if isinstance(which, int):
            return options[0]
        assert isinstance(which, Vreg)
        return Chosen(which, tuple(code for code, *_ in codes), options)

    def _one_of(self, ident: Vreg, ids: tuple[int | None, ...]) -> None:
        """Stop the machine unless an id that was made of a number is one that the program names."""
        good = self.new_block()
        for known in ids:
            rest = self.new_block()
            self.branch("br16", "eq", ident, known or 0, good, rest)
            self.place(rest)
        self.put("trap", None, data=self.span.line)
        self.place(good)

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

    def edited(self, dsd: Descriptor | Chosen, name: str, arguments: tuple[Any, ...]) -> Descriptor | Chosen:
        """Return a descriptor after one of the builtins that change one."""
        if name not in CHANGES:
            raise Fault(f"the back end has no {name}", self.span)
        if name != "@increment_dsd_offset":
            number = self._pointer(arguments[0]) if name == "@set_dsd_base_addr" else self._number(arguments[0])
            return dsd.with_(**{CHANGES[name]: number})
        count, words = self._number(arguments[0]), arguments[1].type.words or 1
        moved: Operand
        if isinstance(count, int):
            moved = (count - 0x10000 if count & 0x8000 else count) * words
        else:
            moved = self._times(count, words)
        bases: dict[Any, Operand] = {}  # options that have one base go on having one

        def later(option: Descriptor) -> Descriptor:
            base = option.base if option.base is not None else 0
            if base not in bases:
                bases[base] = self._moved(base, moved) if isinstance(moved, int) else self.alu("add16", moved, base)
            return option.with_(base=bases[base])

        if isinstance(dsd, Chosen):
            return Chosen(dsd.which, dsd.codes, tuple(map(later, dsd.options)))
        return later(dsd)

    # ---- variables

    def _loaded(self, place: tree.Lvalue) -> Descriptor | Chosen:
        if isinstance(place, tree.Element) and isinstance(place.base, tree.VariablePlace):
            return self._of_array(place, place.base.variable)
        if not isinstance(place, tree.VariablePlace):
            raise Fault("a descriptor in a struct is not supported at run time", place.span)
        local = self.env.get(id(place.variable))
        if isinstance(local, (Chosen, Descriptor)):
            return local
        return self._held_in(self.program.dsd_variable(place.variable), None)

    def _held_in(self, found: DsdVariable, at: Vreg | None) -> Descriptor | Chosen:
        """Return the descriptor in a variable, or, in an array, that at some words behind its begin."""
        values: dict[str, Any] = {}
        for k, name in enumerate(found.fields):
            values[name] = self.load_at(at, Sym(found.memory, k), 1)
        if len(found.kinds) == 1:
            return found.initial.with_(**values)
        which = self.load_at(at, Sym(found.memory, len(found.fields)), 1)
        codes = tuple(map(self.program.kinds.number, found.kinds))
        return Chosen(which, codes, tuple(Descriptor(kind, **values) for kind in found.kinds))

    def _place_of(self, place: tree.Element, found: DsdVariable) -> Vreg | None:
        """Return how many words behind the begin of an array of descriptors an element lies."""
        kind: Any = place.base.type
        index: Operand = 0
        for size, subscript in zip(kind.dims, place.subscripts, strict=True):
            index = self._plus(self._times(index, size), self._subscript_of(subscript))
        return self.reg(self._times(index, found.words), 1)

    def _subscript_of(self, subscript: tree.Expr) -> Operand:
        value, more = self._subscript(subscript)
        return value if more == 0 else self._plus(value, more & 0xFFFF)

    def _of_array(self, place: tree.Element, variable: Any) -> Descriptor | Chosen:
        """Return an element of an array of descriptors."""
        known = getattr(variable, "initial", None)
        if self.program.is_assigned(variable):
            found = self.program.dsd_variable(variable)
            return self._held_in(found, self._place_of(place, found))
        if known is None or len(place.subscripts) != 1:
            raise Fault("this array of descriptors has no values", place.span)
        options = tuple(self.known_descriptor(entry) for entry in known.data)
        plain = tuple(option for option in options if isinstance(option, Descriptor))
        return self.choice(self._subscript_of(place.subscripts[0]), plain)

    def declare_dsd(self, local: tree.Local, value: Any) -> None:
        """Begin a local descriptor."""
        made = self.program.first_value(local, self) if value is None else self.alternatives(value)
        if value is not None and not self.program.is_assigned(local):
            self.env[id(local)] = made
            return
        kinds = self.program.kinds.of(local, self.env)
        kinds = tuple(dict.fromkeys([*(() if value is None and kinds else made.kinds), *kinds]))
        if len(kinds) == 1 and isinstance(made, Descriptor):
            self.env[id(local)] = self._own(made)
            return
        self.env[id(local)] = goal = self.fresh_choice(kinds, made)
        self.give(goal, made if made.kinds[0] in kinds else goal.options[0])

    def _own(self, dsd: Descriptor) -> Descriptor:
        """Return a descriptor with registers of its own, which assignments set."""
        return dsd.with_(**{name: self.copied(getattr(dsd, name), 1, name) for name in dsd.numbers})

    def assign_dsd(self, node: tree.Assign) -> None:
        """Give a variable another descriptor."""
        element = node.place if isinstance(node.place, tree.Element) else None
        place = node.place if element is None else element.base
        if not isinstance(place, tree.VariablePlace):
            raise Fault("a descriptor in a struct cannot change", node.span)
        target = self.env.get(id(place.variable))
        if isinstance(target, (Descriptor, Chosen)):
            self.give(target, self.alternatives(node.value))
            return
        found: DsdVariable = self.program.dsd_variable(place.variable)
        at = None if element is None else self._place_of(element, found)
        made = self.alternatives(node.value)
        fields, several = found.fields, len(found.kinds) > 1
        if several:
            goal = self.fresh_choice(found.kinds, made)
            self.give(goal, made)
            changed = self.program.changed(node.value, place.variable) if element is None else set(FIELDS)
            if changed < set(FIELDS):  # it stays what it is, with another number
                fields = tuple(name for name in fields if name in changed)
            else:
                self.store_at(at, Sym(found.memory, len(found.fields)), goal.which, 1)
            made = goal.options[0]
        assert isinstance(made, Descriptor)
        if made.fixed not in found.kinds:
            raise Fault("this descriptor is of a kind that was not foreseen", node.span)
        for name in fields:
            self.store_at(at, Sym(found.memory, found.fields.index(name)), getattr(made, name), 1)

    # ---- DSRs

    def template(self, dsd: Descriptor, on_control: tuple[int, int | None] = (0, None), save: bool = False) -> Template:
        """Return the fixed part of a descriptor, with what is known of its numbers."""
        f = dsd.fixed
        flags = (
            im.F_CONTROL * f.control
            | im.F_ADVANCE * f.advance
            | im.F_ZERO * f.zero
            | im.F_SAVE * save
            | im.F_TERMINATE * f.ends
            | im.F_FLUSH * f.flush
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


def _element_words(kind: Type) -> int:
    """Return the words of what a pointer or array holds."""
    if isinstance(kind, PointerType):
        kind = kind.target
    if isinstance(kind, ArrayType):
        kind = kind.element
    return kind.words or 1
