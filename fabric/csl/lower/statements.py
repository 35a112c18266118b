"""Statements of the typed tree become operations of the intermediate form."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.builtins.operations import OPERATIONS
from fabric.csl.comptime.values import Value
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import BasicBlock, Operand, StaticMemory, Sym, Vreg
from fabric.csl.lower.bytes import is_byte_place
from fabric.csl.lower.constants import words_of_type
from fabric.csl.lower.descriptors import Descriptors, Slot
from fabric.csl.lower.values import acts, part_of_word
from fabric.csl.lower.wide import Halves, is_wide
from fabric.csl.types import ArrayType, DsdType, StructType, Type, is_byte, leads_to_bytes

__all__ = ["Exit", "LoweredStatements"]


@dataclass(eq=False)
class Exit:
    """An `Exit` says where `break` and `continue` of a loop or labelled block lead."""

    label: str | None
    after: BasicBlock
    again: BasicBlock | None
    result: Vreg | Halves | None = None
    """The value that a block gives goes to these registers."""


class LoweredStatements(Descriptors):
    """`LoweredStatements` writes blocks, branches, loops; a mix-in of `fabric.csl.lower.function.FunctionLowering`."""

    exits: list[Exit]
    ends: set[int]
    """After these calls (their identities) the function does nothing more."""
    returns: list[tuple[BasicBlock, Vreg | StaticMemory | Slot | None]]
    """Functions that are written where they are called have an end, and the register of the result, the memory of an
    array or struct, or where a descriptor is kept.
    """

    @abstractmethod
    def operation(self, expr: tree.BuiltinCall) -> None:
        """Write a vector operation."""

    def statements(self, block: tree.Block) -> None:
        """Write the statements of a block."""
        if block.label is None:
            for statement in block.body:
                self.statement(statement)
            return
        self._left(block, None)

    def given(self, block: tree.Block, result: Vreg | Halves) -> None:
        self._left(block, result)

    def _left(self, block: tree.Block, result: Vreg | Halves | None) -> None:
        """Write a block that `break` leaves."""
        after = self.new_block()
        self.exits.append(Exit(block.label, after, None, result))
        for statement in block.body:
            self.statement(statement)
        self.exits.pop()
        self.place(after)

    def statement(self, statement: tree.Statement) -> None:
        """Write a statement, by the method for its class."""
        self.span = statement.span
        getattr(self, f"_write_{statement.__class__.__name__}")(statement)

    def _write_Block(self, node: tree.Block) -> None:
        self.statements(node)

    # ---- variables

    def _write_Declare(self, node: tree.Declare) -> None:
        self.declare(node.local, node.value)

    def declare(self, local: tree.Local, value: Any) -> None:
        """Begin a local with a value, None for any."""
        kind = local.type
        if isinstance(kind, DsdType):
            self.declare_dsd(local, value)
        elif local.addressed or isinstance(kind, (ArrayType, StructType)):
            memory = self.program.frame(self.function, local)
            if value is not None:  # which may be a call of the same function, with a parameter of its own
                self.fill(None, Sym(memory), kind, value)
            self.env[id(local)] = memory
        elif is_wide(kind):
            self.env[id(local)] = self.wide_copy(Halves(0, 0) if value is None else self.halves(value), local.name)
        elif value is None:
            register = self.new(words_of_type(kind, local.span), local.name)
            self.env[id(local)] = register
            self.put("const", register, 0)
        else:
            self.env[id(local)] = self.copied(self.value(value), words_of_type(kind, local.span), local.name)

    def fill(self, base: Vreg | None, offset: int | Sym, kind: Type, value: Any) -> None:
        """Store a number, an array or a struct at an address."""
        if is_wide(kind):
            self.wide_store_at(base, offset, self.halves(value))
        elif not isinstance(kind, (ArrayType, StructType)):
            self.store_at(base, offset, self.value(value), words_of_type(kind, self.span))
        elif isinstance(value, tree.BuiltinCall) and value.name == "array":
            assert isinstance(kind, ArrayType)
            for k, item in enumerate(value.arguments):
                if is_byte(kind.element):
                    self.put_into(base, offset + k // 2, (8 * (k % 2), 8), self.value(item))
                    continue
                self.fill(base, offset + k * (kind.element.words or 0), kind.element, item)
        elif isinstance(value, tree.BuiltinCall) and value.name == "struct":
            assert isinstance(kind, StructType)
            for name, entry in value.options.items():
                if (shared := kind.bits_of(name)) is not None:
                    self.put_into(base, offset + kind.offset(name), shared, self.value(entry))
                else:
                    self.fill(base, offset + kind.offset(name), entry.type, entry)
        elif isinstance(value, tree.BuiltinCall) and value.name == "@constants":
            assert isinstance(kind, ArrayType)
            self.spread(base, offset, kind, self.value(value.arguments[0]))
        elif isinstance(value, (tree.Const, Value)):
            self._fill_known(base, offset, kind, value.value if isinstance(value, tree.Const) else value)
        elif isinstance(value, tree.Load):
            self._refuse_bytes_behind(value)
            self.copy_words((base, offset), self.address(value.place), kind.words or 0)
        elif isinstance(value, tree.Call):
            self.copy_words((base, offset), (None, Sym(self.call(value))), kind.words or 0)
        elif isinstance(value, tree.Select):
            then, otherwise, done = self.new_block(), self.new_block(), self.new_block()
            self.condition(value.condition, then, otherwise)
            self.place(then)
            self.fill(base, offset, kind, value.then)
            self.jump(done)
            self.place(otherwise)
            self.fill(base, offset, kind, value.otherwise)
            self.place(done)
        elif isinstance(value, tree.Convert) and value.kind == "bitcast":
            self.store_at(base, offset, self.value(value.value), kind.words or 0)
        else:
            raise Fault(f"the back end cannot make a {kind} of this", self.span)

    def _fill_known(self, base: Vreg | None, offset: int | Sym, kind: Type, value: Value) -> None:
        words = kind.words or 0
        data = value.data if isinstance(value.data, list) else None
        if isinstance(kind, ArrayType) and data and words > 4 and all(entry == data[0] for entry in data):
            self.spread(base, offset, kind, self.known(Value(kind.element, data[0]), self.span))
            return
        if words > 8:
            memory = self.program.constant(value, self.span)
            self.copy_words((base, offset), (None, Sym(memory)), words)
            return
        made, addresses = self.program.words_of(value, self.span)
        for k in range(words):
            self.store_at(base, offset + k, addresses.get(k, int(made[k])), 1)

    # ---- simple statements

    def _write_Assign(self, node: tree.Assign) -> None:
        kind = node.place.type
        if isinstance(kind, DsdType):
            self.assign_dsd(node)
            return
        if isinstance(kind, (ArrayType, StructType)):
            self._refuse_bytes_behind(node.place, node.value)
            if isinstance(node.value, tree.BuiltinCall) and reads_memory(node.value):
                # It may read what it replaces: {a, b} = {b, a}.
                goal = self.address(node.place)
                self.copy_words(goal, self.address(node.value), kind.words or 0)
            else:
                self.fill(*self.address(node.place), kind, node.value)
            return
        if is_wide(kind):
            self.wide_assign(node)
            return
        size = words_of_type(kind, node.span)
        held = self.env.get(id(node.place.variable)) if isinstance(node.place, tree.VariablePlace) else None
        right_acts = acts(node.value)
        if node.op == "=" and (isinstance(held, Vreg) or not (right_acts or acts(node.place))):
            value = self.value(node.value)
            self.store(node.place, value)
            return
        if isinstance(held, Vreg):
            made = self.binary(node.op[:-1], kind, held, self.value(node.value), node.value.type)
            self.set(held, made)
            return
        if is_byte_place(node.place):
            self._assign_byte(node)
            return
        base, offset = self.address(node.place)
        part = part_of_word(node.place)
        if node.op == "=":
            value = self.value(node.value)
        else:
            # In the order of the text; without effects, later: a register less is taken.
            right = None if right_acts or part is not None else self.value(node.value)
            old: Operand = self.load_at(base, offset, size if part is None else 1)
            if part is not None:
                assert isinstance(old, Vreg)
                old = self.taken_out(old, *part, kind)
            right = self.value(node.value) if right is None else right
            value = self.binary(node.op[:-1], kind, old, right, node.value.type)
        if part is not None:
            self.put_into(base, offset, part, value)
        else:
            self.store_at(base, offset, value, size)

    def _refuse_bytes_behind(self, *places: Any) -> None:
        """Refuse to copy a whole array of bytes through a pointer, which may lead to the middle of a word."""
        for place in places:
            place = place.place if isinstance(place, tree.Load) else place
            if isinstance(place, tree.Deref) and leads_to_bytes(place.type):
                hint = "copy its elements, or the words that they are in"
                raise Fault("an array of bytes behind a pointer is not copied as a whole", self.span, hint)

    def _assign_byte(self, node: tree.Assign) -> None:
        at = self.byte_at(node.place)
        if node.op == "=":
            self.store_byte(at, self.value(node.value))
            return
        old = self.load_byte(at, node.place.type)
        self.store_byte(
            at, self.binary(node.op[:-1], node.place.type, old, self.value(node.value), node.value.type)
        )  # fmt: skip

    def _write_Evaluate(self, node: tree.Evaluate) -> None:
        if isinstance(node.value, tree.Call):
            if not (id(node.value) in self.ends and not self.returns and self.tail_call(node.value)):
                self.call(node.value)
        elif isinstance(node.value, tree.PointerCall):
            self.pointer_call(node.value)
        elif isinstance(node.value, tree.BuiltinCall) and node.value.name in OPERATIONS:
            self.span = node.value.span
            self.operation(node.value)
        elif isinstance(node.value, tree.BuiltinCall):
            self.builtin(node.value)
        elif is_wide(node.value.type):
            self.halves(node.value)
        else:
            self.value(node.value)

    def _write_Return(self, node: tree.Return) -> None:
        if isinstance(node.value, tree.Call) and not self.returns and self.tail_call(node.value):
            return
        value: Operand | None = None
        kept = self.returns[-1][1] if self.returns else None
        if isinstance(kept, StaticMemory):
            assert node.value is not None
            self.fill(None, Sym(kept), node.value.type, node.value)
        elif isinstance(kept, Slot):
            self.keep(kept, node)
        elif node.value is not None:
            value = self.value(node.value)
        if self.returns:
            end, register = self.returns[-1]
            if isinstance(register, Vreg) and value is not None:
                self.set(register, value)
            self.jump(end)
        else:
            self.leave(value)

    @abstractmethod
    def leave(self, value: Operand | None) -> None:
        """End the function with a result, if there is one."""

    @abstractmethod
    def pointer_call(self, expr: tree.PointerCall) -> Operand | None:
        """Call a function through a pointer."""

    @abstractmethod
    def tail_call(self, expr: tree.Call) -> bool:
        """Jump to a function of the same circle instead of a call; tell whether it is one."""

    def _find(self, label: str | None, loop: bool) -> Exit:
        for found in reversed(self.exits):
            if (label is None and found.again is not None) or (label is not None and found.label == label):
                return found
        if label is None and not loop and self.exits:
            return self.exits[-1]
        raise Fault("this leads nowhere", self.span)

    def _write_Break(self, node: tree.Break) -> None:
        found = self._find(node.label, False)
        if node.value is not None and isinstance(found.result, Halves):
            self.wide_set(found.result, self.halves(node.value))
        elif node.value is not None and isinstance(found.result, Vreg):
            self.set(found.result, self.value(node.value))
        self.jump(found.after)

    def _write_Continue(self, node: tree.Continue) -> None:
        again = self._find(node.label, True).again
        assert again is not None
        self.jump(again)

    # ---- choices

    def _write_If(self, node: tree.If) -> None:
        then, done = self.new_block(), self.new_block()
        otherwise = self.new_block() if node.otherwise is not None else done
        self.condition(node.condition, then, otherwise)
        self.place(then)
        self.statements(node.then)
        if node.otherwise is not None:
            self.jump(done)
            self.place(otherwise)
            self.statements(node.otherwise)
        self.place(done)

    def _write_Switch(self, node: tree.Switch) -> None:
        kind = node.subject.type
        wide = self.halves(node.subject) if is_wide(kind) else None
        subject = self.value(node.subject) if wide is None else wide.low
        row = "br32" if kind.words == 2 else "br16"
        done = self.new_block()
        last: tree.Block | None = None
        for values, body in node.cases:
            if values is None:
                last = body
                continue
            here, following = self.new_block(), self.new_block()
            for k, entry in enumerate(values):
                rest = following if k == len(values) - 1 else self.new_block()
                if wide is not None:
                    self.wide_compare("==", kind, wide, entry, here, rest)
                else:
                    self.branch(row, "eq", subject, self.value(entry), here, rest)
                if k < len(values) - 1:
                    self.place(rest)
            self.place(here)
            self.statements(body)
            self.jump(done)
            self.place(following)
        if last is not None:
            self.statements(last)
        self.place(done)

    # ---- loops

    def _write_While(self, node: tree.While) -> None:
        top, body, step, done = (self.new_block() for _ in range(4))
        self.depth += 1
        self.place(top)
        if isinstance(node.condition, tree.Const):
            self.jump(body)
        else:
            self.condition(node.condition, body, done)
        self.place(body)
        self.exits.append(Exit(node.label, done, step))
        self.statements(node.body)
        self.exits.pop()
        self.place(step)
        if node.step is not None:
            self.statement(node.step)
        self.jump(top)
        self.depth -= 1
        self.place(done)

    def index(self, local: tree.Local | None) -> Vreg | None:
        return None if local is None else self.copied(0, 1, local.name)

    def bind(self, local: tree.Local, register: Operand) -> None:
        """Let a loop's variable stand for a register; in memory if its address is taken."""
        if local.addressed:
            memory = self.program.frame(self.function, local)
            self.env[id(local)] = memory
            self.store_at(None, Sym(memory), register, words_of_type(local.type, local.span))
        else:
            self.env[id(local)] = register

    def _write_ForArray(self, node: tree.ForArray) -> None:
        kind: Any = node.array.type
        place = node.array.place if isinstance(node.array, tree.Load) else node.array
        base, offset = self.address(place)
        words = 0 if is_byte(kind.element) else kind.element.words or 0
        at = self.copied(self.joined(base, offset), 1)
        left = self.copied(kind.count, 1)
        index = self.copied(0, 1) if not words else self.index(node.index)
        body, again, done = (self.new_block() for _ in range(3))
        self.depth += 1
        self.place(body)
        if index is not None and not words:
            self.bind(node.item, self.load_byte((at, index), kind.element))
        elif is_wide(kind.element) or isinstance(kind.element, StructType):
            self._begin_element(node.item, at)
        else:
            self.bind(node.item, self.load_at(at, 0, words_of_type(kind.element, node.span)))
        if node.index is not None and index is not None:
            self.bind(node.index, index)
        self.exits.append(Exit(node.label, done, again))
        self.statements(node.body)
        self.exits.pop()
        self.place(again)
        if words:
            self.put("add16", at, at, words)
        if index is not None:
            self.put("add16", index, index, 1)
        self.put("sub16", left, left, 1)
        self.branch("br16", "ne", left, 0, body, done)
        self.depth -= 1
        self.place(done)

    def _begin_element(self, item: tree.Local, at: Vreg) -> None:
        """Let a loop's variable hold a struct, or a number of 64 bits."""
        if is_wide(item.type):
            self.declare(item, Halves(self.load_at(at, 0, 2), self.load_at(at, 2, 2)))
            return
        memory = self.program.frame(self.function, item)
        self.copy_words((None, Sym(memory)), (at, 0), item.type.words or 0)
        self.env[id(item)] = memory


def reads_memory(value: Any) -> bool:
    """Whether a literal has parts that are read from memory."""
    return any(
        isinstance(node, (tree.Call, tree.PointerCall))
        or (isinstance(node, tree.Load) and not isinstance(getattr(node.place, "variable", None), tree.Local))
        for node in tree.nodes(value)
    )
