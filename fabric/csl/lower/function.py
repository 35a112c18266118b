"""One function or task is lowered: its frame, calls, builtins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric.csl import tree
from fabric.csl.check.order import tail_calls
from fabric.csl.comptime.builtins.operations import OPERATIONS
from fabric.csl.comptime.values import Value
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import IrFunction, Operand, Vreg
from fabric.csl.lower.constants import words_of_type
from fabric.csl.lower.descriptors import Slot
from fabric.csl.lower.dsd import Chosen, Descriptor
from fabric.csl.lower.kinds import FIFO_LENGTHS
from fabric.csl.lower.recursion import DEPTH, Recursion
from fabric.csl.lower.routines import ROUTINES
from fabric.csl.lower.routines.machine import MachineRoutines
from fabric.csl.lower.values import acts
from fabric.csl.lower.wide import is_wide
from fabric.csl.types import VOID, ArrayType, DsdType, StructType, Type
from wse_core.encoding import N_TASK_IDS

__all__ = ["FunctionLowering"]

RESULT = 2
"""A result of a function begins in this register."""
TO_COME = -1
"""An argument is in this register until the function that it is passed to has its registers."""


class Given:
    """A `Given` is an operand in place of an expression, for routines that stand where a function's body would be
    written.
    """

    def __init__(self, operand: Operand) -> None:
        self.operand = operand


class FunctionLowering(MachineRoutines):
    """A `FunctionLowering` turns one function of the typed tree into intermediate form.

    Parameters
    ----------
    program : fabric.csl.lower.program.ProgramLowering
    node : tree.Function
    made : IrFunction
        What is written.
    kind : str
        ``fn``, or ``local``, ``data``, ``control`` for a task.
    """

    def __init__(self, program: Any, node: tree.Function, made: IrFunction, kind: str) -> None:
        self.program, self.node = program, node
        self.env: dict[int, Any] = {}
        self.exits, self.returns = [], []
        self.ends = {id(call) for call in node.fact("ends", tail_calls)}
        self.begin(made)
        self.expanding = [node]
        self.recursion: Recursion | None = None
        self.arrived_index: Vreg | None = None
        self._enter(kind)
        if node.body is not None:
            self.statements(node.body)
        self.leave(None)
        if self.recursion is not None:
            while (other := self.recursion.other()) is not None:
                for param, value in zip(other.function.params, other.params, strict=True):
                    self.begin_param(param, value)
                assert other.function.body is not None
                self.statements(other.function.body)
                self.leave(None)
            recursion, self.recursion = self.recursion, None
            self.leave(recursion.finish())

    # ---- entry and end

    def _enter(self, kind: str) -> None:
        params = self.node.params
        if kind in ("data", "control"):
            arriving: list[Vreg] = []
            for k, param in enumerate(params):
                size = words_of_type(param.type, param.span)
                arriving.append(Vreg(size, param.name, 0 if size == 2 else k))
        else:
            arriving = self.function.params
        if arriving:
            self.put("entry", data=tuple(arriving))
        values = [self.copied(register, register.size, register.name) for register in arriving]
        if kind == "data" and len(values) == 2:
            self.arrived_index = values[1]
        if self.program.recurs(self.node):
            stack, top = self.program.hidden("recursion", DEPTH), self.program.hidden("recursion_top")
            self.recursion = Recursion(self, stack, top, self.node, values)
            self.recursion.enter()
            values = [self.copied(value, value.size, value.name) for value in values]
        for param, value in zip(params, values, strict=True):
            self.begin_param(param, value)

    def begin_param(self, param: tree.Local, value: Operand) -> None:
        """Let a parameter stand for a value."""
        self.bind(param, value)

    def leave(self, value: Operand | None) -> None:
        if self.block.ended:
            return
        if self.recursion is not None:
            self.recursion.leave(value)
            return
        if value is None:
            self.put("ret")
            return
        size = self.function.result
        fixed = Vreg(size, "result", RESULT)
        self.set(fixed, value)
        self.put("ret", None, fixed)

    # ---- calls

    def call(self, expr: tree.Call) -> Any:
        function = expr.function
        self.span = expr.span
        if function.body is None:
            return self._routine_of(expr)
        if self.program.expands(function):
            return self._expanded(function, expr)
        arguments = [self.value(entry) for entry in expr.arguments]
        if self.recursion is not None and self.program.recurs_with(self.node, function):
            return self.recursion.call(expr, arguments)
        return self._called(self.program.function(function), arguments, function.result != VOID)

    def _called(self, made: IrFunction, arguments: list[Operand], has_result: bool) -> Operand | None:
        sizes = [param.size for param in made.params]
        fixed = [Vreg(size, "argument", TO_COME) for size in sizes]
        for target, value in zip(fixed, arguments, strict=True):
            self.set(target, value)
        if not has_result:
            self.put("call", None, *fixed, data=made)
            return None
        arrived = Vreg(made.result, "result", RESULT)
        self.put("call", arrived, *fixed, data=made)
        return self.copied(arrived, made.result)

    def tail_call(self, expr: tree.Call) -> bool:
        made = self.program.circle_member(expr.function, self.node)
        if made is None or self.returns:
            return False
        arguments = [
            self.copied(self.value(entry), param.size) for entry, param in zip(expr.arguments, made.params, strict=True)
        ]
        fixed = []
        for value, place in zip(arguments, made.places, strict=True):
            target = Vreg(value.size, "argument", place)
            self.set(target, value)
            fixed.append(target)
        self.put("tail", None, *fixed, data=made)
        return True

    def _expanded(self, function: tree.Function, expr: tree.Call) -> Any:
        """Write a function's body in place of a call."""
        arguments: list[Any] = []
        ordered = len(expr.arguments) > 1 and any(map(acts, expr.arguments))
        for param, entry in zip(function.params, expr.arguments, strict=True):
            if isinstance(param.type, DsdType):
                arguments.append(self.alternatives(entry))
            elif is_wide(param.type):
                arguments.append(self.halves(entry))
            elif isinstance(param.type, (ArrayType, StructType)):
                arguments.append(self._settled(entry) if ordered else entry)
            else:
                arguments.append(self.value(entry))
        return self.expand(function, arguments)

    def _settled(self, value: tree.Expr) -> tree.Expr:
        """Return an array or struct as it is now, in memory of its own."""
        local = tree.Local("argument", value.type, True, value.span)
        self.declare(local, value)
        return tree.Load(value.type, value.span, tree.VariablePlace(value.type, value.span, local))

    def pointer_call(self, expr: tree.PointerCall) -> Operand | None:
        """Write a call through a pointer: what it holds is a number, which is compared with those of the functions."""
        which = self.reg(self.value(expr.pointer), 1)
        given: Any = tuple(Given(self.value(entry)) for entry in expr.arguments)
        result = None if expr.type == VOID else self.new(words_of_type(expr.type, expr.span))

        def write(place: int) -> None:
            call = expr.targets[place][1]
            made = self.call(tree.Call(call.type, call.span, call.function, given))
            if result is not None and made is not None:
                self.set(result, made)

        if not expr.targets:
            raise Fault("nothing in this program points to a function of this type", expr.span)
        self.select(which, [number for number, _ in expr.targets], write)
        return result

    def _value_PointerCall(self, expr: tree.PointerCall) -> Operand:
        result = self.pointer_call(expr)
        assert result is not None
        return result

    def expand(self, function: tree.Function, arguments: list[Any]) -> Any:
        """Write a function's body here; return its result: a number, the memory of an array or struct, a descriptor."""
        if function.body is None:
            given: Any = tuple(Given(operand) for operand in arguments)
            return self._routine_of(tree.Call(function.result, self.span, function, given))
        if function in self.expanding:
            raise Fault(f"'{function.name}' calls itself where its code is written in place", self.span)
        for param, value in zip(function.params, arguments, strict=True):
            if isinstance(param.type, DsdType):
                self.env[id(param)] = value
            elif _is_whole(param.type):
                self.declare(param, value)
            else:
                self.bind(param, value if not isinstance(value, Vreg) else self.copied(value, value.size, param.name))
        result: Any = None
        if isinstance(function.result, DsdType):
            result = Slot()
        elif _is_whole(function.result):
            result = self.program.frame(self.function, tree.Local("result", function.result, True, function.span))
        elif function.result != VOID:
            result = self.new(words_of_type(function.result, function.span))
        end = self.new_block()
        exits, self.exits = self.exits, []
        span = self.span
        self.returns.append((end, result))
        self.expanding.append(function)
        self.statements(function.body)
        self.expanding.pop()
        self.returns.pop()
        self.exits, self.span = exits, span
        self.place(end)
        return result.held if isinstance(result, Slot) else result

    def call_for_descriptor(self, expr: tree.Call) -> Descriptor | Chosen | None:
        if expr.function.body is None:
            raise Fault("this function gives no descriptor", expr.span)
        body = expr.function.body.body
        if len(body) == 1 and isinstance(body[0], tree.Return):  # no register needs to hold its numbers
            for param, entry in zip(expr.function.params, expr.arguments, strict=True):
                if isinstance(param.type, DsdType):
                    self.env[id(param)] = self.alternatives(entry)
                else:
                    self.bind(param, self.copied(self.value(entry), words_of_type(param.type, param.span)))
            return self.alternatives(body[0].value)
        return self._expanded(expr.function, expr)

    def value(self, expr: Any) -> Operand:
        return expr.operand if isinstance(expr, Given) else super().value(expr)

    def _routine_of(self, expr: tree.Call) -> Operand | None:
        """Do what a function of the library says that has no body there."""
        function = expr.function
        name = function.name.rpartition(".")[2]
        source = function.span.source.name
        found: Callable[..., Operand | None] | None = ROUTINES.get((source, name))
        if found is None:
            raise Fault(f"the back end has no {name} of {source}", expr.span)
        return found(self, expr)

    def routine(self, name: str, arguments: tuple[Operand, ...]) -> Operand | None:
        function = self.program.runtime(name, self.span)
        if self.program.expands(function):
            return self.expand(function, list(arguments))
        return self._called(self.program.function(function), list(arguments), function.result != VOID)

    # ---- builtins

    def builtin(self, expr: tree.BuiltinCall) -> Operand | None:
        self.span = expr.span
        name = expr.name
        if name in OPERATIONS:
            self.operation(expr)
            return self.has_finished()
        if name == "@map":
            self.map(expr)
            return None
        if name in FIFO_LENGTHS:
            self.set_fifo_length(expr)
            return None
        if name == "@dfilt":
            self.filtered(expr)
            return 1
        if name in ("@load_to_dsr", "@load_to_dsr_xdsr"):
            self.load_to_dsr(expr)
            return None
        if name == "@queue_flush":
            self.flush(expr)
            return None
        if name in ("@activate", "@block", "@unblock"):
            self._task_bit(name[1:], expr.arguments[0])
            return None
        if name == "@assert":
            self.assertion(expr.arguments[0])
            return None
        if name == "@random16":
            return self._drawn()
        if name == "@set_dsr_base_addr":
            base = self.value(expr.arguments[1])
            dsr = self.explicit(expr.arguments[0])
            self.put("dsr_base", None, base, data=dsr)
            self.program.fresh.pop(dsr, None)
            if self.program.is_mapped(dsr):
                self.store_at(None, self.program.held_number(dsr, "base"), base, 1)
            return None
        if name == "@set_active_prng":
            number = self.value(expr.arguments[0])
            if not isinstance(number, int):
                raise Fault("the number of the generator must be known", self.span)
            self.put("prng", None, data=number % 4)
            return None
        raise Fault(f"the back end has no {name}", expr.span)

    def _drawn(self) -> Vreg:
        dst = self.new(1)
        self.put("rand16", dst)
        return dst

    def _task_bit(self, op: str, value: Any) -> None:
        """Activate, block or unblock an id.  The machine's instruction names the id, so one that is known at run time
        only is compared with those that the program binds."""
        ident = value if isinstance(value, Value) else self.value(value)
        thread = str(value.type) == "ut_id"
        if thread and isinstance(ident, Vreg):
            raise Fault("the microthread must be known when the program is compiled", self.span, "@get_ut_id(n)")
        if not isinstance(ident, Vreg):
            number = self.task_of(value) + N_TASK_IDS * thread
            if op == "activate":
                self.program.checked.unit.check_activated(number, self.span)
            self.put("task", None, data=(op, number))
            return
        done = self.new_block()
        kinds = ("local",) if op == "activate" else ("local", "data")
        bound = {number for (_, number), (kind, *_) in self.program.checked.unit.tasks.items() if kind in kinds}
        for number in sorted(bound):
            here, after = self.new_block(), self.new_block()
            self.branch("br16", "eq", ident, number, here, after)
            self.place(here)
            self.put("task", None, data=(op, number))
            self.jump(done)
            self.place(after)
        self.jump(done)
        self.place(done)

    def task_of(self, value: Any) -> int:
        """Return an id that is known when the program is compiled."""
        value = value.value if isinstance(value, tree.Const) else value
        if isinstance(value, Value):
            made = self.known(value, self.span)
            if isinstance(made, int):
                return made
        if isinstance(value, tree.Expr):
            made = self.value(value)
            if isinstance(made, int):
                return made
        raise Fault("this id must be known when the program is compiled", self.span)

    def assertion(self, condition: Any) -> None:
        """Stop the machine unless a condition holds."""
        good, bad = self.new_block(), self.new_block()
        self.condition(condition, good, bad)
        self.place(bad)
        self.put("trap", None, data=self.span.line)
        self.place(good)


def _is_whole(kind: Type) -> bool:
    """Whether a value is passed in memory, or in more registers than one operand names."""
    return isinstance(kind, (ArrayType, StructType)) or is_wide(kind)
