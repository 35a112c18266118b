"""A PE program as a whole: memory, tasks, calls of the host, which functions are written in place."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from fabric.csl import tree
from fabric.csl.check.order import calls_itself, circles
from fabric.csl.check.program import CheckedProgram as Checked
from fabric.csl.comptime.interpreter import Interpreter
from fabric.csl.comptime.session import CompilerSession
from fabric.csl.comptime.units import ProgramUnit
from fabric.csl.comptime.values import ComptimeVariable, Module, Pointer, Value
from fabric.csl.comptime.values import FunctionValue as FunctionValue
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.ir import IrFunction, StaticMemory, Sym, Vreg
from fabric.csl.ir.machine import IrProgram
from fabric.csl.lower.bytes import UPPER
from fabric.csl.lower.certain import certain
from fabric.csl.lower.constants import element_of, words_of, words_of_type
from fabric.csl.lower.dsd import Descriptor
from fabric.csl.lower.function import FunctionLowering
from fabric.csl.lower.runtime import Runtime
from fabric.csl.lower.size import turn, weight
from fabric.csl.lower.vectors import Attributes
from fabric.csl.lower.wide import is_wide
from fabric.csl.rules import unrolls
from fabric.csl.types import VOID, ArrayType, DsdType, StructType, is_byte, leads_to_bytes
from wse_core.encoding import N_COLORS
from wse_core.image import TASK_TEARDOWN

__all__ = ["START", "ProgramLowering", "lower"]

SMALL = 14
"""A function of at most so many nodes is written in place wherever it is called."""
DEEPEST = 7
"""Calls inside of each other that a task may make; the machine keeps eight addresses."""
MOST_NAMED = 3
"""The name of the task that does calls of the host has at most so many of them."""
RPC, START = 28, 27
"""The hidden tasks that do calls of the host, and what comes before anything else, have these ids."""
TEARDOWN = "<tile_config/teardown>"
EMPTY_OUTPUTS = 2
"""The question which output queues are empty has this number in q_state."""
FIRST, LAST, STACK = 2, 10, 7
"""Parameters lie in registers from the first to the last of these, without the third."""


class ProgramLowering(Attributes):
    """Makes the intermediate form of a checked program.

    Parameters
    ----------
    session : CompilerSession
        For the run-time library.
    checked : fabric.csl.check.program.CheckedProgram
    preset : str
        Of the machine that will run it.
    """

    def __init__(self, session: CompilerSession, checked: Checked, preset: str) -> None:
        super().__init__(checked, preset)
        self.session = session
        self.made = IrProgram()
        self._memories: dict[int, StaticMemory] = {}
        self._hidden: dict[str, StaticMemory] = {}
        self._functions: dict[int, IrFunction] = {}
        self._sites: dict[int, int] = {}
        self._in_place: dict[int, bool] = {}
        self._runtime: Runtime | None = None
        self._circles: dict[int, set[int]] = {}
        self._depths: dict[int, int] = {}
        self._recursive: dict[int, set[int]] = {}
        self._weights: dict[int, int] = {}
        self.by_address = session.by_address
        """Whether pointers may lead to registers, so that what they reach is read and written as the text says."""
        self.shapes: list[tuple[Any, ...]] = []
        self.buffers: dict[int, tuple[StaticMemory, str, str]] = {}
        self.entry_points: list[tuple[str, IrFunction, tuple[str, ...]]] = []
        for function in checked.functions:
            for call in function.sites:
                self._sites[id(call.function)] = self._sites.get(id(call.function), 0) + 1
        self._find_circles()

    # ---- the whole

    def lower(self) -> IrProgram:
        """Return the program in intermediate form: memories, tasks, calls of the host, functions."""
        checked, unit = self.checked, self.checked.unit
        for variable in _as_written(checked.variables):
            if variable.type.words and not isinstance(variable.type, DsdType):
                self.memory_of(variable)
        self._tasks()
        names = {entry.name: entry for entry in unit.exports}
        if any(isinstance(entry.target, FunctionValue) for entry in names.values()):
            self._reserve(RPC, "calls of the host")
            self._calls_of_the_host()
        if self.starts:
            self._reserve(START, "what happens before anything else")
            self._begin()
        if unit.teardown or unit.empty:
            self._teardown_task()
        self.made.functions = self._in_order()
        return self.made

    def _reserve(self, number: int, purpose: str) -> None:
        """Refuse a task of the program with an id that the compiler needs itself."""
        taken = self.checked.unit.tasks.get(("task", number))
        if taken is not None:
            raise Fault(f"the task id {number} is needed for {purpose}", taken[2], "choose another id")

    def _tasks(self) -> None:
        unit = self.checked.unit
        for (table, number), (kind, function, _) in unit.tasks.items():
            typed = self.checked.entries.get(id(function.decl))
            typed = self._root(function) or typed
            if typed is None:
                raise Fault(f"'{function.name}' was not checked", function.decl.span)
            high = number in self.high
            if unit.rotating and (table, number) in (("control", 0), *(("task", k) for k in unit.rotating)):
                made = self._rotating(typed, kind, unit.rotating.get(number) if table == "task" else None)
            else:
                made = self.task(typed, kind)
            self.made.tasks.append((kind, number, made, high and table != "control"))

    def _rotating(self, typed: tree.Function, kind: str, counter: tuple[int, int] | None) -> IrFunction:
        """Return a task that calls another, or, if its counter is at the limit, the one of control id 0.

        On the machine the picker counts; here the task does, in some ten cycles.
        """
        made = IrFunction(typed.name, "task", typed.span)
        node = tree.Function(typed.name, "task", typed.params, VOID, typed.span)
        code = FunctionLowering(self, node, made, kind)
        made.blocks[-1].code.pop()
        given = [code.env[id(param)] for param in typed.params]
        if counter is not None:
            word = self.hidden(f"rotates.{typed.name}")
            word.init = np.array([counter[0]], np.uint16)
            count = code.load_at(None, Sym(word), 1)
            other, after = code.new_block(), code.new_block()
            code.branch("br16", "eq", count, counter[1], other, after)
            code.place(other)
            code.store_at(None, Sym(word), 0, 1)
            _, function, _ = self.checked.unit.tasks["control", 0]
            instead = self._root(function) or self.checked.entries[id(function.decl)]
            code._called(self.function(instead), [self._low(code, given)] if instead.params else [], False)
            code.put("ret")
            code.place(after)
            code.store_at(None, Sym(word), code.alu("add16", count, 1), 1)
        code._called(self.function(typed), given, False)
        code.put("ret")
        return made

    @staticmethod
    def _low(code: FunctionLowering, given: list[Any]) -> Any:
        """Return the lower 16 bits of what came."""
        if not given or given[0].size == 1:
            return given[0] if given else 0
        low = code.new(1)
        code.put("low", low, given[0])
        return low

    def _root(self, function: FunctionValue) -> tree.Function | None:
        """Return the checked form of a task of a certain instance of its module."""
        for typed in self.checked.functions:
            if typed.module is function.module and typed.span is function.decl.span:
                return typed
        return None

    def _calls_of_the_host(self) -> None:
        """Add the task that does calls of the host: a number says which function, hidden words hold its arguments."""
        unit = self.checked.unit
        number = self.hidden("call")
        words = 1
        called = [entry.name for entry in unit.exports if isinstance(entry.target, FunctionValue)]
        title = f"host calls {', '.join(called[:MOST_NAMED])}{', ...' * (len(called) > MOST_NAMED)}"
        made = IrFunction(title, "task", next(iter(unit.exports)).span)
        node = tree.Function(title, "task", (), VOID, made.span)
        code = FunctionLowering(self, node, made, "local")
        made.blocks[-1].code.pop()
        which = code.load_at(None, Sym(number), 1)
        cases: list[tuple[Any, tree.Function]] = []
        for entry in unit.exports:
            if isinstance(entry.target, FunctionValue):
                typed = self._root(entry.target)
                if typed is not None and unit.names[entry.name]:
                    cases.append((unit.names[entry.name].ident, typed))
                    words = max(words, 1 + sum(2 if p.type.words == 2 else 1 for p in typed.params) * 2)
        memory = self.hidden("arguments", max(words, 2))
        for ident, typed in cases:
            here, after = code.new_block(), code.new_block()
            code.branch("br16", "eq", which, ident, here, after)
            code.place(here)
            arguments = []
            at = 0
            for param in typed.params:
                size = words_of_type(param.type, param.span)
                arguments.append(code.load_at(None, Sym(memory, at), size))
                at += 2
            code.span = typed.span
            if self.expands(typed):
                code.expand(typed, list(arguments))
            else:
                code._called(self.function(typed), list(arguments), False)
            code.put("ret")
            code.place(after)
        code.put("ret")
        self.made.tasks.append(("local", RPC, made, False))

    @property
    def starts(self) -> bool:
        """Whether something happens before anything else: DSRs are loaded, colors that begin in teardown are noted."""
        return bool(self.checked.unit.loads or self.watched)

    def _begin(self) -> None:
        made, code = self._hidden_task("start")
        for color in self.watched:
            code.store_at(None, self.held(color), code.in_teardown(color), 1)
        for dsr, dsd, options, span in self.checked.unit.loads:
            code.span = span
            known = code.known_descriptor(dsd.data)
            assert isinstance(known, Descriptor)
            code.load_explicit(code.explicit(dsr), known, options)
        code.put("ret")
        self.made.tasks.append(("local", START, made, True))

    @cached_property
    def certain(self) -> set[tuple[str, int]]:
        """The program surely comes to the calls of builtins at these places, (file, start)."""
        return certain(self.checked)

    # ---- teardown

    @cached_property
    def watched(self) -> tuple[int, ...]:
        """The program must know of these colors whether they entered teardown just now.

        The machine tells only that a color is in teardown, not that it entered it; a color that was held before must
        not call its handler when another one enters.  With one handler and no question there is nothing to confuse.
        """
        unit = self.checked.unit
        asks = any(f.span.source.name == TEARDOWN and f.name.endswith("get_pending") for f in self.checked.functions)
        if asks:
            return tuple(range(N_COLORS))
        return tuple(sorted(unit.teardown)) if len(unit.teardown) > 1 or unit.empty else ()

    def held(self, color: int) -> Sym:
        """Return where it is noted that the teardown of a color is known already."""
        return Sym(self.hidden("held", N_COLORS), color)

    def leaves_teardown(self, code: FunctionLowering, color: int) -> None:
        """Write the end of a color's teardown."""
        if color in self.watched:
            code.store_at(None, self.held(color), 0, 1)
        code.put("td_exit", None, data=color)

    def _teardown_task(self) -> None:
        self._reserve(TASK_TEARDOWN, "handlers of teardown and of empty queues")
        made, code = self._hidden_task("teardown")
        handlers = self.checked.unit.teardown
        for color, (function, span) in handlers.items():
            code.span = span
            typed = self._root(function)
            assert typed is not None
            after = code.new_block()
            if len(handlers) > 1 or self.checked.unit.empty:  # one alone knows what has happened
                entered, here = code.new_block(), code.new_block()
                code.branch("br16", "ne", code.in_teardown(color), 0, entered, after)
                code.place(entered)
                code.branch("br16", "eq", code.load_at(None, self.held(color), 1), 0, here, after)
                code.place(here)
                code.store_at(None, self.held(color), 1, 1)
            code._called(self.function(typed), [], False)
            code.place(after)
        self._empty_queues(code)
        code.put("ret")
        self.made.tasks.append(("local", TASK_TEARDOWN, made, False))

    # ---- queues that are flushed

    @property
    def handles_empty(self) -> bool:
        """Whether something happens when a queue that is flushed is empty."""
        return bool(self.checked.unit.empty) or ("task", TASK_TEARDOWN) in self.checked.unit.tasks

    def flush_word(self, queue: int) -> Sym:
        """Return where it is noted that an output queue is flushed."""
        return Sym(self.hidden(f"flush{queue}"))

    def color_word(self, key: tuple[str, int]) -> Sym:
        """Return where the color of a queue of the moment is noted."""
        memory = self.hidden(f"color_of_{key[0]}{key[1]}")
        memory.init = np.array([self.rebinding.colors[key][0]], np.uint16)
        return Sym(memory)

    def check_filter(self, color: Any, enable: Any, span: Span) -> None:
        """Refuse a filter that is not applied although the color has one, or the other way round."""
        if not isinstance(color, Value) or not isinstance(enable, Value):
            return
        config = self.checked.unit.configs.get(color.data)
        has = (config is not None and config[0].filter is not None) or color.data in (self.checked.unit.filters or ())
        if bool(enable.data) != has:
            what = f"color {color.data} has {'a' if has else 'no'} filter, and filter_enable is {str(not has).lower()}"
            raise Fault(what, span, "a color's filter is always applied here")

    def _empty_queues(self, code: FunctionLowering) -> None:
        """Write the part of task 29 that calls the handlers of queues that were flushed and are empty."""
        for (_, queue), (function, span) in self.checked.unit.empty.items():
            code.span = span
            typed = self._root(function)
            assert typed is not None
            flushed, here, after = code.new_block(), code.new_block(), code.new_block()
            code.branch("br16", "ne", code.load_at(None, self.flush_word(queue), 1), 0, flushed, after)
            code.place(flushed)
            empty = code.new(1)
            code.put("q_state", empty, data=EMPTY_OUTPUTS)
            code.branch("br16", "ne", code.alu("and16", empty, 1 << queue), 0, here, after)
            code.place(here)
            code._called(self.function(typed), [], False)
            code.jump(after)
            code.place(after)

    def _hidden_task(self, name: str) -> tuple[IrFunction, FunctionLowering]:
        functions, unit = self.checked.functions, self.checked.unit
        span = functions[0].span if functions else unit.loads[0][3]
        made = IrFunction(name, "task", span)
        code = FunctionLowering(self, tree.Function(name, "task", (), VOID, span), made, "local")
        made.blocks[-1].code.pop()
        return made, code

    def _in_order(self) -> list[IrFunction]:
        """Return all functions that were written, callees before callers."""
        found: list[IrFunction] = []
        seen: set[int] = set()
        stack: list[tuple[IrFunction, Iterator[IrFunction]]] = []
        for _, _, task, _ in self.made.tasks:
            if id(task) in seen:
                continue
            seen.add(id(task))
            stack.append((task, _callees(task)))
            while stack:
                here, rest = stack[-1]
                callee = next(rest, None)
                if callee is None:
                    stack.pop()
                    found.append(here)
                elif id(callee) not in seen:
                    seen.add(id(callee))
                    stack.append((callee, _callees(callee)))
        return found

    # ---- functions

    def task(self, node: tree.Function, kind: str) -> IrFunction:
        """Return a task, written."""
        made = self._functions.get(id(node))
        if made is None:
            made = self._functions[id(node)] = IrFunction(node.name, "task", node.span)
            FunctionLowering(self, node, made, kind)
        return made

    def function(self, node: tree.Function) -> IrFunction:
        """Return a function, written."""
        made = self._functions.get(id(node))
        if made is None:
            made = self._functions[id(node)] = IrFunction(node.name, "fn", node.span)
            made.params = [Vreg(words_of_type(p.type, p.span), p.name) for p in node.params]
            made.result = 0 if node.result == VOID else words_of_type(node.result, node.span)
            made.circle = id(node) in self._circles
            self._fix(made)
            FunctionLowering(self, node, made, "fn")
        return made

    @staticmethod
    def _fix(made: IrFunction) -> None:
        """Choose the registers of parameters: one after the other; if they are too many, the allocator chooses."""
        at, chosen = FIRST, []
        for param in made.params:
            at += at % 2 if param.size == 2 else 0
            while at <= STACK < at + param.size:
                at += param.size
            chosen.append(at)
            at += param.size
        if at > LAST + 1:
            if made.circle:
                raise Fault(f"'{made.name}' has too many parameters for a circle of calls", made.span)
            return
        for param, place in zip(made.params, chosen, strict=True):
            param.fixed = place
        made.places += chosen

    def circle_member(self, callee: tree.Function, caller: tree.Function) -> IrFunction | None:
        """Return the function that a caller of its own circle jumps to, None if they are not of one circle."""
        if id(callee) in self._circles.get(id(caller), ()):
            return self.function(callee)
        return None

    def _find_circles(self) -> None:
        """Find functions that reach themselves, and how deep calls nest below each function."""
        for circle in circles(self.checked.functions):
            members = set(map(id, circle))
            if calls_itself(circle):
                self._recursive.update(dict.fromkeys(members, members))
            elif len(circle) > 1 or circle[0] in circle[0].calls:
                self._circles.update(dict.fromkeys(members, members))
            for function in circle:
                below = [callee for callee in function.calls if callee.body is not None]
                self._depths[id(function)] = 1 + max((self._depths.get(id(callee), 0) for callee in below), default=-1)

    def recurs(self, node: tree.Function) -> bool:
        """Whether a function calls itself before it is done, perhaps through others."""
        return id(node) in self._recursive

    def recurs_with(self, node: tree.Function, callee: tree.Function) -> bool:
        """Whether a function that calls itself is in one circle with another, or is that."""
        return id(callee) in self._recursive.get(id(node), ())

    def expands(self, node: tree.Function) -> bool:
        """Whether a function is written in place of its calls."""
        known = self._in_place.get(id(node))
        if known is None:
            known = self._in_place[id(node)] = self._decide(node)
        return known

    def _decide(self, node: tree.Function) -> bool:
        if id(node) in self._circles or self.recurs(node):
            return False
        special = (DsdType, ArrayType, StructType)
        kinds = [*(param.type for param in node.params), node.result]
        if any(isinstance(kind, special) or is_wide(kind) for kind in kinds):
            return True
        if node.inline == "inline":
            return True
        if node.body is None:
            return False
        if self._depths.get(id(node), 0) >= DEEPEST:
            return True
        if node.inline is not None:
            return False
        return self._sites.get(id(node), 0) <= 1 or node.fact("weight", _weight) <= SMALL

    def unrolls(self, node: tree.ForRange, turns: int) -> bool:
        """Whether the turns of a loop are written one after the other."""
        return unrolls(turns, turn(node, self.expands, self._weights))

    def runtime(self, name: str, span: Span) -> tree.Function:
        """Return a function of the run-time library."""
        if self._runtime is None:
            self._runtime = Runtime(self.session)
        return self._runtime.function(name, span)

    # ---- memory

    def memory_of(self, variable: tree.Variable) -> StaticMemory:
        """Return where a global lies."""
        made = self._memories.get(id(variable))
        if made is None:
            count, dtype = element_of(variable.type)
            align = max(variable.type.align, (variable.align or 0) // 2)
            made = StaticMemory(variable.name, count, dtype, None, align, variable.const, span=variable.span)
            self._memories[id(variable)] = made
            self.made.memories.append(made)
            if variable.initial is not None:
                made.init, made.relocations = self.words_of(variable.initial, variable.span)
            made.undefined = variable.initial is None
        return made

    def words_of(self, value: Value, span: Span) -> tuple[np.ndarray, dict[int, Sym]]:
        """Return a known value as words of memory."""
        return words_of(value, span, self.address_of)

    def frame(self, function: IrFunction, local: tree.Local) -> StaticMemory:
        """Return memory for a local."""
        count, dtype = element_of(local.type)
        memory = StaticMemory(
            f"{function.name}:{local.name}#{len(self.made.memories)}", count, dtype, None, local.type.align
        )
        self.made.memories.append(memory)
        function.frame.append(memory)
        return memory

    def constant(self, value: Value, span: Span) -> StaticMemory:
        """Return memory with a known value."""
        count, dtype = element_of(value.type)
        init, relocations = self.words_of(value, span)
        name = f"constant#{len(self.made.memories)}"
        memory = StaticMemory(name, count, dtype, init, value.type.align, True, relocations)
        self.made.memories.append(memory)
        return memory

    def hidden(self, name: str, count: int = 1) -> StaticMemory:
        """Return a word that the program does not see; made when it is first asked for."""
        made = self._hidden.get(name)
        if made is None:
            made = self._hidden[name] = StaticMemory(f".{name}", count, "u16", None, 2 if count > 1 else 1)
            self.made.memories.append(made)
        return made

    def address_of(self, value: Value, span: Span) -> int | Sym:
        """Return the address that a known pointer holds; for a function its number among those that are pointed to."""
        pointer = value.data
        if isinstance(pointer, FunctionValue):
            return 1 + list(self.checked.unit.pointed).index((id(pointer.decl), id(pointer.module)))
        assert isinstance(pointer, Pointer)
        if isinstance(pointer.target, ComptimeVariable):
            raise Fault(f"'{pointer.target.name}' exists at compile time only", span)
        kind = pointer.target.type
        if isinstance(kind, ArrayType) and is_byte(kind.element):
            word, upper = divmod(pointer.offset or 0, 2)
            found = Sym(self.memory_of(pointer.target), word)
            return found + UPPER if upper and leads_to_bytes(value.type) else found
        words = (kind.element.words if isinstance(kind, ArrayType) else 1) or 1
        return Sym(self.memory_of(pointer.target), (pointer.offset or 0) * words)

    def task_id(self, function: FunctionValue, span: Span) -> int:
        """Return the id that a task is bound to."""
        for (table, number), (_, bound, _) in self.checked.unit.tasks.items():
            if table == "task" and bound.decl is function.decl and bound.module is function.module:
                return number
        raise Fault(f"'{function.name}' is not bound to an id", span)

    # ---- records for the host

    def buffer(self, module: Any, source: str) -> StaticMemory:
        """Return the buffer of records of an instance of <debug> or <simprint>."""
        known = self.buffers.get(id(module))
        if known is None:
            key, words = "", 512
            if source == "<debug>":
                key = str(self.param(module, "key")) or module.name
                words = max(8, int(self.param(module, "buffer_size")))
            memory = StaticMemory(f".records{len(self.buffers)}", words, "u16", np.array([1], np.uint16), 2)
            self.made.memories.append(memory)
            known = self.buffers[id(module)] = (memory, source, key)
        return known[0]

    def shape(self, parts: tuple[tuple[str, Any], ...]) -> int:
        """Return the number of a kind of record."""
        if parts not in self.shapes:
            self.shapes.append(parts)
        return self.shapes.index(parts)

    def param(self, module: Module, name: str) -> Any:
        """Return the value of a param of a module of the library."""
        interpreter = Interpreter(self.session, ProgramUnit())
        return interpreter.resolve(module.globals[name], module.globals[name].decl.span).data


def _weight(function: tree.Function) -> int:
    return weight(function.body)


def _as_written(variables: list[Any]) -> list[Any]:
    """Return globals in the order of the source, module after module, the program's own first.

    Programs choose the banks of arrays by it: an array lies where the one before ends.
    """
    modules = {"": 0}
    for variable in variables:
        modules.setdefault(variable.name.rpartition(".")[0], len(modules))
    return sorted(variables, key=lambda entry: (modules[entry.name.rpartition(".")[0]], entry.span.start))


def _callees(function: IrFunction) -> Iterator[IrFunction]:
    for instr in function.instructions():
        if instr.op in ("call", "tail"):
            yield instr.data


def lower(session: CompilerSession, checked: Checked, preset: str) -> ProgramLowering:
    """Return the intermediate form of a checked program, with what the host needs to know of it.

    Parameters
    ----------
    session : CompilerSession
    checked : fabric.csl.check.program.CheckedProgram
    preset : str
        Of the machine that will run it.

    Raises
    ------
    Fault
        For what the machine or this compiler cannot do.
    """
    lowering = ProgramLowering(session, checked, preset)
    lowering.lower()
    return lowering
