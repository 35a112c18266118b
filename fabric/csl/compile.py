"""`compile_file` makes assembled programs and a layout of a file: all stages of the compiler one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric.csl.allocate import Stack
from fabric.csl.check.program import Compilation, check_file, room
from fabric.csl.comptime.session import CompilerSession, Options
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.emit import Emitted, emit
from fabric.csl.ir import IrFunction, StaticMemory
from fabric.csl.lower.program import START, ProgramLowering, lower
from fabric.csl.optimise.dead import remove_notes
from fabric.csl.optimise.frames import unused
from fabric.csl.optimise.memory import name_apart, set_apart
from fabric.csl.optimise.partners import settle_partners
from fabric.csl.optimise.products import ROUTINE, expand
from fabric.csl.recall import Recall
from wse_core.encoding import N_COLORS
from wse_core.params import Machine
from wse_core.params import machine as default_machine

__all__ = ["Compiled", "CompiledProgram", "compile_checked", "compile_file"]


@dataclass(eq=False)
class CompiledProgram:
    """A `CompiledProgram` is one program of a compilation: its image, and what the back end knows of it."""

    emitted: Emitted
    lowering: ProgramLowering


@dataclass(eq=False)
class Compiled:
    """A `Compiled` is a layout with its assembled programs, ready to be written out or run."""

    checked: Compilation
    options: Options
    machine: Machine
    programs: list[CompiledProgram] = field(default_factory=list)
    recall: Recall = field(init=False)

    def __post_init__(self) -> None:
        self.recall = Recall(self.options.optimise)


def compile_file(path: str | Path, options: Options | None = None, machine: Machine | None = None) -> Compiled:
    """Compile a layout file, or a file that is a program by itself.

    Raises
    ------
    CslError
        If there is a mistake; it has all messages.
    ConfigError
        If the file cannot be read.
    """
    options = options or Options()
    return compile_checked(check_file(path, options), options, machine)


def compile_checked(checked: Compilation, options: Options, machine: Machine | None = None) -> Compiled:
    """Compile what was checked.

    Raises
    ------
    CslError
        For what the machine or the back end cannot do.
    """
    made = Compiled(checked, options, machine or default_machine(options.arch))
    session = CompilerSession(options, checked.report)
    session.by_address = checked.by_address
    with room(checked.path):
        _compile(made, session)
    checked.report.check()
    return made


def _compile(made: Compiled, session: CompilerSession) -> None:
    """Lower, optimise, allocate and assemble each checked program."""
    checked, options, machine = made.checked, made.options, made.machine
    for number, program in enumerate(checked.programs):
        try:
            lowering = lower(session, program, machine.preset)
            _uninitialized(session, lowering)
            functions = _optimised(lowering, machine["dsr.count"], made.recall, options)
            stack = Stack(functions)
            for function in functions:
                made.recall.allocate(function, _Frame(lowering, function.name), stack.reserved)
                stack.save(function)
                for memory in unused(function):
                    lowering.made.memories.remove(memory)
            stack.finish()
            lowering.made.memories += [] if stack.memory is None else [stack.memory]
            top = program.unit.ready[0].source
            name = top.path.stem if top.path is not None else f"program{number}"
            emitted = emit(lowering.made, name, Span(top, 0, 0), machine, options.fp16, _initial(lowering))
            made.programs.append(CompiledProgram(emitted, lowering))
        except Fault as fault:
            checked.report.fault(fault)


def _uninitialized(session: CompilerSession, lowering: ProgramLowering) -> None:
    """Tell the dialect of fabric inputs whose queue no comptime block gives a color."""
    for function in lowering.made.functions:
        for instr in function.instructions():
            if instr.op == "dsr_load" and instr.data[1].kind == "fabin":
                queue, span = instr.data[1].queue, instr.span or function.span
                if queue is None or ("input_queue", queue) not in lowering.checked.unit.queues:
                    session.dialect.use("a fabric input whose queue is not initialized", span)


def _optimised(lowering: ProgramLowering, dsrs: int, recall: Recall, options: Options) -> list[IrFunction]:
    """Return the functions of a program after all passes that know no registers, callees before callers."""
    made = lowering.made
    set_apart(made)
    name_apart(made)
    settle_partners(made.functions)

    def routine() -> IrFunction:
        function = lowering.function(lowering.runtime(ROUTINE, made.functions[0].span))
        recall.optimise(function)
        return function

    for function in made.functions:
        recall.optimise(function)
    made.functions = expand(made.functions, routine, recall.forget)
    unread = remove_notes(made.functions, recall.forget) if options.optimise else set()
    made.memories = [memory for memory in made.memories if memory not in unread]
    return made.functions


class _Frame:
    """Makes memory for registers that are kept there."""

    def __init__(self, lowering: ProgramLowering, name: str) -> None:
        self.lowering, self.name = lowering, name

    def __call__(self, words: int) -> StaticMemory:
        memories = self.lowering.made.memories
        memory = StaticMemory(f"{self.name}:kept#{len(memories)}", 1, "u32" if words == 2 else "u16", None, words)
        memories.append(memory)
        return memory


def _initial(lowering: ProgramLowering) -> dict[str, Any]:
    """Return with what a program begins."""
    unit = lowering.checked.unit
    queues = {
        (kind.removesuffix("_queue"), number): fields["color"].data
        for (kind, number), (fields, _) in unit.queues.items()
        if "color" in fields
    }
    bound = {number for kind, number, _, _ in lowering.made.tasks if kind != "control"}
    blocked = [ident for ident, (state, _) in unit.blocked.items() if state]
    unblocked = [ident for ident, (state, _) in unit.blocked.items() if not state and ident not in bound]
    controlled = [(ident, unit.blocked[ident][1]) for ident in unblocked if ident < N_COLORS]
    if any(table == "control" for table, _ in unit.tasks):
        # A local task of a color's number lets the color's control wavelets in.
        controlled += [
            (color, unit.tasks["task", color][2])
            for color, (config, _) in unit.configs.items()
            if "RAMP" in config.tx and unit.tasks.get(("task", color), ("",))[0] == "local"
        ]
    if lowering.session.machine["task.by_queue"] and not unit.tables:
        for (table, number), (_, _, span) in unit.tasks.items():
            if table == "control" and ("task", number) in unit.tasks:
                other = (("the other one is here", unit.tasks["task", number][2]),)
                what = f"a control task and another have the id {number}"
                raise Fault(what, span, "@set_control_task_table() gives control tasks ids of their own", other)
    for ident, span in unit.active.items():
        unit.check_activated(ident, span)
    active = list(unit.active)
    if lowering.starts:
        active.append(START)
    return {
        "queues": queues, "controlled": controlled, "active": active, "blocked": blocked, "unblocked": unblocked,
        "rebound": {
            (kind.removesuffix("_queue"), k): (colors, lowering.rebinding.spans[kind, k])
            for (kind, k), colors in lowering.rebinding.colors.items()
        },
        "main": lowering.main, "by_address": lowering.by_address,
    }  # fmt: skip
