"""Routines need these things of the machine: time stamps, the router's configuration, records for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.values import DIRECTIONS, Struct, Value
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import Operand, Sym, Vreg
from fabric.csl.lower.operations import LoweredOperations
from fabric.csl.lower.registers import ColorRegisters, color_of_address
from fabric.csl.types import COMPTIME_FLOAT, COMPTIME_INT, COMPTIME_STRING, DIRECTION, F32, ArrayType, IntType
from wse_core.encoding import DIRS

__all__ = ["MachineRoutines"]

STAMPS = (4, 8, 0)
"""A time stamp takes three registers from one of these on; others for the next one, so that the one before may stay."""
FILTER_FIELDS = {"set_counter": 0, "set_max_counter": 1, "set_active_limit": 2}
IO_MODES = {"set_io_direction": "add", "clear_io_direction": "remove", "toggle_io_direction": "toggle"}
RING_MODES = {"set_ring_mode": True, "clear_ring_mode": False}
IO_ORDER = "WESNR"
"""Directions have the order of `fabric_io` in <tile_config/color_config>."""
BY_ADDRESS = ("reset_routes", *IO_MODES)
STRING, TIME = "string", "time"
FORMS = ("", "d", "D", "x", "X", "b", "f", "s")
"""These may stand between braces in a text of <simprint>."""


class MachineRoutines(LoweredOperations):
    """`MachineRoutines` writes instructions of the machine that no expression makes; a mix-in of `FunctionLowering`."""

    # ---- time

    _stamps = 0
    """The function took so many time stamps so far."""

    def timestamp(self, base: Vreg | None, offset: int | Sym) -> None:
        """Store the cycle counter as three words."""
        first = STAMPS[self._stamps % len(STAMPS)]
        self._stamps += 1
        fixed = tuple(Vreg(1, "tsc", first + k) for k in range(3))
        self.put("tsc", data=fixed)
        for k, register in enumerate(fixed):
            self.put("store", None, register, *(() if base is None else (base,)), data=offset + k)

    # ---- the router

    def in_teardown(self, color: int) -> Vreg:
        """Return 1 if a color is in teardown, else 0."""
        found = self.new(1)
        self.put("in_td", found, data=color)
        return found

    def pending(self) -> Vreg:
        """Return the set of colors that entered teardown since this was asked last, as 32 bits."""
        found = self.copied(0, 2, "pending")
        for color in self.program.watched:
            entered, fresh, after = self.new_block(), self.new_block(), self.new_block()
            self.branch("br16", "ne", self.in_teardown(color), 0, entered, after)
            self.place(entered)
            self.branch("br16", "eq", self.load_at(None, self.program.held(color), 1), 0, fresh, after)
            self.place(fresh)
            self.store_at(None, self.program.held(color), 1, 1)
            self.put("or32", found, found, 1 << color)
            self.jump(after)
            self.place(after)
        return found

    def configure(self, name: str, expr: tree.Call) -> None:
        """Write a function of <tile_config>."""
        known = expr.function.known
        arguments = [*expr.arguments]
        if name in FILTER_FIELDS:
            number, count = self._known_number(known, arguments, "id"), self.value(arguments[-1])
            if self.by_queue:  # a program of WSE-3 counts half wavelets
                count = self.alu("slr16", count, 1)
            self.put("flt_set", None, self.reg(count, 1), data=(number, FILTER_FIELDS[name]))
            return
        color = self._color(known, arguments, "where" if name in BY_ADDRESS else "c")
        if isinstance(color, ColorRegisters):
            self._by_address(name, color, known, arguments)
        elif name == "set_pop_mode":
            self._pop_mode(color, self._operand(known.get("mode") or arguments[-1]))
        elif name in RING_MODES:
            self._ring_mode(color, RING_MODES[name])
        elif name == "exit":
            self.program.leaves_teardown(self, color)
        elif name == "clear_current_position":
            self.put("sw_pos", None, data=(color, 0))
        elif name == "set_current_switch_position":
            self._switched(color, known.get("position") or arguments[-1])
        elif name == "reset_routes":
            value = known["routes"]
            self.put("route", None, data=(color, *_sets(value, self), 0, "set"))
        elif name == "set_invalid_for_all_switch_positions":
            for position in (1, 2, 3):
                self.put("route", None, data=(color, "", "", position, "off"))
        elif name in IO_MODES:
            self._io_direction(color, IO_MODES[name], known.get("io") or arguments[-1])
        elif name.startswith("set_rxtx"):
            self._switch_sides(color, int(name[-1]), [known.get(side) or arguments.pop(1) for side in ("rx", "tx")])
        else:
            side, position = name[4:6], int(name[-1])
            self._switch_side(color, side, position, known.get("d") or arguments[-1])

    @property
    def by_queue(self) -> bool:
        """Whether the architecture is one of queues, WSE-3."""
        return bool(self.program.session.machine["task.by_queue"])

    def _pop_mode(self, color: int, mode: Operand) -> None:
        """Set the pop mode of a color that is known."""
        if not self.by_queue:
            ColorRegisters(self, color).set_pop_mode(mode)
            return

        def write(number: int) -> None:
            self.put("route", None, data=(color, letters(number), DIRS[0], 0, "switch"))

        if isinstance(mode, int):
            write(mode)
        else:
            self.select(self.reg(mode, 1), range(4), write)

    def _ring_mode(self, color: int, ring: bool) -> None:
        """Set or clear the ring mode of a color that is known."""
        if not self.by_queue:
            ColorRegisters(self, color).set_ring_mode(ring)
            return
        self.put("route", None, data=(color, letters(ring << 2), DIRS[1], 0, "switch"))

    def _switch_sides(self, color: int, position: int, sides: list[Any]) -> None:
        """Give a position both its input and its output."""

        def write(rx: int) -> None:
            def whole(tx: int) -> None:
                sets = DIRECTIONS[rx][0], DIRECTIONS[tx][0]
                self.put("route", None, data=(color, *sets, position, "set"))

            self._each(sides[1], range(len(DIRECTIONS)), whole)

        self._each(sides[0], range(len(DIRECTIONS)), write)

    def _color(self, known: dict[str, Any], arguments: list[Any], name: str) -> int | ColorRegisters:
        """Return the color of a function of <tile_config>: its number, or its registers if that is not known."""
        found = known[name] if name in known else arguments[0]
        value = self._operand(found)
        is_address = isinstance(found.type, IntType)
        if isinstance(value, int):
            return color_of_address(value) if is_address else value
        return ColorRegisters(self, value, is_address)

    def _operand(self, value: Any) -> Operand:
        if isinstance(value, Value):
            return int(value.data)
        made: Operand = self.value(value)
        return made

    def _by_address(self, name: str, registers: ColorRegisters, known: dict[str, Any], arguments: list[Any]) -> None:
        """Write a function of <tile_config> for a color that is known at run time only."""

        def last(parameter: str) -> Operand:
            return self._operand(known.get(parameter) or arguments[-1])

        if name == "exit":
            raise Fault("'c' must be known when the program is compiled", self.span)
        if name in ("clear_current_position", "set_current_switch_position"):
            registers.set_position(0 if name.startswith("clear") else last("position"))
        elif name == "set_pop_mode":
            registers.set_pop_mode(last("mode"))
        elif name in RING_MODES:
            registers.set_ring_mode(RING_MODES[name])
        elif name == "reset_routes":
            registers.set_routes(*_sets(known["routes"], self))
        elif name == "set_invalid_for_all_switch_positions":
            registers.no_positions()
        elif name in IO_MODES:
            registers.change(IO_MODES[name], last("io"))
        else:
            registers.set_side(name[4:6], int(name[-1]), last("d"))

    def _switched(self, color: int, position: Any) -> None:
        """Set the switch position; the machine's instruction names it, so one known at run time only is compared."""
        self._each(position, range(4), lambda number: self.put("sw_pos", None, data=(color, number)))

    def _switch_side(self, color: int, side: str, position: int, direction: Any) -> None:
        def write(number: int) -> None:
            sets = (DIRECTIONS[number][0], "") if side == "rx" else ("", DIRECTIONS[number][0])
            self.put("route", None, data=(color, *sets, position, side))

        self._each(direction, range(len(DIRECTIONS)), write)

    def _io_direction(self, color: int, mode: str, io: Any) -> None:
        """Let a direction join or leave the sets of position 0: 0 to 4 are outputs, 5 to 9 inputs."""

        def write(number: int) -> None:
            letter = IO_ORDER[number % 5]
            self.put("route", None, data=(color, *(("", letter) if number < 5 else (letter, "")), 0, mode))

        self._each(io, range(10), write)

    def _each(self, value: Any, numbers: range, write: Callable[[int], object]) -> None:
        """Write code for a number that is known, or for each that it may be with a comparison before."""
        made = value.data if isinstance(value, Value) else self.value(value)
        if isinstance(made, int):
            write(made)
            return
        self.select(self.reg(made, 1), numbers, write)

    def _known_number(self, known: dict[str, Any], arguments: list[Any], name: str) -> int:
        value = known.get(name)
        if value is not None:
            return int(value.data)
        made = self.value(arguments[0])
        if not isinstance(made, int):
            raise Fault(f"'{name}' must be known when the program is compiled", self.span)
        return made

    # ---- records

    def record(self, source: str, name: str, expr: tree.Call) -> None:
        """Write words for the host to read after the run: a tag, then values; see `harness.sdk.records`."""
        module = expr.function.module
        known = expr.function.known
        if source == "<simprint>":
            if not self.program.param(module, "enable"):
                return
            parts = self._print_parts(name, expr, known)
            if any(kind == STRING and "\n" in text for kind, text, _ in parts):
                parts.insert(0, (TIME, None, None))  # when the line ends
        elif name == "trace_string":
            parts = [(STRING, known["text"].data, None)]
        elif name == "trace_timestamp":
            parts = [(TIME, None, None)]
        else:
            parts = [self._part(typed(known["value"] if "value" in known else expr.arguments[0]))]
        self._write(module, source, parts)

    def _part(self, value: Any) -> tuple[str, Any, Any]:
        return str(value.type), None, value

    def _print_parts(self, name: str, expr: tree.Call, known: dict[str, Any]) -> list[tuple[str, Any, Any]]:
        """Return what a function of <simprint> writes: text and values with the form in which they are shown."""
        if name == "print_string":
            return [(STRING, known["text"].data, None)]
        if name.startswith("print_"):
            value = typed(known["value"] if "value" in known else expr.arguments[0])
            form = name.rpartition("_")[2]
            return [(str(value.type), {"hex": "X", "binary": "b", "decimal": "d"}.get(form, "f"), value)]
        text = known["text"].data + ("" if name == "fmt_no_nl" else "\n")
        values = list(known["values"].data.fields.values())
        parts: list[tuple[str, Any, Any]] = []
        if name == "fmt_with_coords":
            parts.append((STRING, "\x00", None))
        while "{" in text:
            before, _, rest = text.partition("{")
            form, closed, rest = rest.partition("}")
            if not closed:
                break
            text = rest
            if before:
                parts.append((STRING, before, None))
            if not values:
                raise Fault("the text asks for more values than there are", expr.span)
            parts.append(_shown_part(values.pop(0), form, expr))
        if text:
            parts.append((STRING, text, None))
        return parts

    def _write(self, module: Any, source: str, parts: list[tuple[str, Any, Any]]) -> None:
        """Append a record to the buffer of a module; what does not fit any more is dropped."""
        buffer = self.program.buffer(module, source)
        full, done = self.new_block(), self.new_block()
        sizes = [0 if kind == STRING else 3 if kind == TIME else self._words_of(value) for kind, _, value in parts]
        words = 1 + sum(sizes)
        head = Sym(buffer)
        at = self.load_at(None, head, 1)
        room = self.new_block()
        self.branch("br16", "leu", at, buffer.words - words, room, full)
        self.place(room)
        shape = self.program.shape(tuple((kind, text) for kind, text, _ in parts))
        self.store_at(at, head, shape, 1)
        offset = 1
        for (kind, _, value), size in zip(parts, sizes, strict=True):
            if kind == TIME:
                self.timestamp(at, head + offset)
            elif size:
                self._store_words(at, head + offset, self.value(value), size)
            offset += size
        self.store_at(None, head, self.alu("add16", at, words), 1)
        self.jump(done)
        self.place(full)
        self.place(done)

    def _store_words(self, base: Vreg, offset: Sym, value: Operand, size: int) -> None:
        """Store a number word by word: records are packed, so that 32-bit numbers may lie at odd addresses."""
        if size == 1:
            self.store_at(base, offset, value, 1)
            return
        wide = self.reg(value, 2)
        for k, half in enumerate(("low", "high")):
            part = self.new(1)
            self.put(half, part, wide)
            self.store_at(base, offset + k, part, 1)

    def _words_of(self, value: Any) -> int:
        return value.type.words or 1


def typed(value: Any) -> Any:
    """Return a literal in the type that a variable without one would have, any other value as it is."""
    if isinstance(value, Value) and value.type == COMPTIME_INT:
        small = IntType(16, True).holds(value.data)
        return Value(IntType(16 if small else 32, value.data < 1 << 31), value.data)
    return Value(F32, value.data) if isinstance(value, Value) and value.type == COMPTIME_FLOAT else value


def _shown_part(value: Any, form: str, expr: tree.Call) -> tuple[str, Any, Any]:
    """Return a value of a line with the form in which it is shown; a string that is known is text."""
    text = isinstance(value, Value) and value.type == COMPTIME_STRING
    if form not in FORMS or (form == "s" and not text):
        what = (
            f"'{{{form}}}' is no form of a value" if form not in FORMS else f"'{{s}}' shows a string, not {value.type}"
        )
        raise Fault(what, expr.span, "{d}, {X}, {b}, {f}, or {s} for a string")
    if text:
        return STRING, value.data, None
    value = typed(value)
    return str(value.type), form, value


def letters(bits: int) -> str:
    """Return the directions whose bits are set in a number."""
    return "".join(letter for k, letter in enumerate(DIRS) if bits >> k & 1)


def _sets(value: Any, code: MachineRoutines) -> tuple[str, str]:
    """Return the directions of a struct with ``rx`` and ``tx`` as letters."""
    fields = value.data.fields
    return tuple(  # type: ignore[return-value]
        "".join(DIRECTIONS[number][0] for number in _directions(fields[name], code)) for name in ("rx", "tx")
    )


def _directions(value: Any, code: MachineRoutines) -> list[int]:
    if value.type == DIRECTION:
        return [value.data]
    if isinstance(value.type, ArrayType):
        return [entry.data if isinstance(entry, Value) else entry for entry in value.data]
    if isinstance(value.data, Struct):
        return [entry.data for entry in value.data.fields.values()]
    raise Fault("these are no directions", code.span)
