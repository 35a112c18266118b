"""Operations have these things beside registers: descriptors, DSRs, FIFOs, tasks; last comes the whole program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fabric.csl.diagnostics import Span
from fabric.csl.ir.code import IrFunction, StaticMemory, Sym, Vreg

__all__ = [
    "LONE",
    "MULTIPLIERS",
    "AutoDsr",
    "Ending",
    "ExplicitDsr",
    "Fifo",
    "IrProgram",
    "NamedTask",
    "Template",
    "Vector",
]


@dataclass(frozen=True)
class NamedTask:
    """A `NamedTask` is the id of a local task, named by the function that is bound to it."""

    id: int


@dataclass(eq=False)
class Fifo:
    """A `Fifo` is a FIFO in memory: its storage, the tasks that a push and a pop activate, what happens at its ends."""

    memory: StaticMemory
    push: int | None = None
    pop: int | None = None
    actions: tuple[str, str] = ("test_or_suspend", "test_or_suspend")
    """An operation does the first if it finds the FIFO empty, and the second if it finds it full."""

    def ends(self, source: bool, synchronous: bool) -> bool:
        """Whether an operation ends that finds it empty, as a source, or full."""
        action = self.actions[0 if source else 1]
        return action == "terminate" or (action == "test_or_suspend" and synchronous)


@dataclass(frozen=True)
class Template:
    """A `Template` is a descriptor as the program's table holds it.

    `color` and `queue` say what a fabric descriptor is bound to; `on_control` is (bits, task) of `wse_core.image`.
    """

    kind: str
    base: Sym | int = 0
    extents: tuple[int, ...] = (0,)
    strides: tuple[int, ...] = (1,)
    color: int | None = None
    queue: int | None = None
    packed: bool = False
    flags: int = 0
    index: int | None = None
    on_control: tuple[int, int | None] = (0, None)
    fifo: Fifo | None = None
    length: int = 0


LONE = 40
"""Operations between memory and a FIFO have numbers from here on, one for each end of a FIFO: no queue gives them a
microthread."""


MULTIPLIERS = -2
"""The DSR from which the turns of a `@map` take their multipliers has this instead of a microthread."""


class AutoDsr:
    """A DSR that the compiler chooses; `thread` is the microthread of the operation that uses it, -1 for none."""

    __slots__ = ("file", "thread")

    def __init__(self, file: str) -> None:
        self.file = file
        self.thread = -1

    def __repr__(self) -> str:
        return f"{self.file}[auto{'' if self.thread < 0 else self.thread}]"


@dataclass(frozen=True)
class ExplicitDsr:
    """An `ExplicitDsr` is a DSR whose number the program chose."""

    file: str
    number: int

    def __repr__(self) -> str:
        return f"{self.file}[{self.number}]"


@dataclass(frozen=True)
class Ending:
    """Attributes of an asynchronous operation; `thread` is the microthread that the program names."""

    priority: str = "low"
    activate: int | None = None
    unblock: int | None = None
    thread: int | None = None


@dataclass(eq=False)
class Vector:
    """A `Vector` is a vector operation: per operand of its row a DSR, or the number of an argument, or ``dst`` for a
    register.
    """

    op: str
    slots: tuple[Any, ...]
    ending: Ending | None = None


@dataclass(eq=False)
class IrProgram:
    """An `IrProgram` is a PE program in intermediate form.

    Attributes
    ----------
    functions : list of IrFunction
        Callees before callers.
    memories : list of StaticMemory
        In the order in which they were declared.
    tasks : list of (kind, id, IrFunction, high priority)
    """

    functions: list[IrFunction] = field(default_factory=list)
    memories: list[StaticMemory] = field(default_factory=list)
    tasks: list[tuple[str, int, IrFunction, bool]] = field(default_factory=list)
    spans: dict[int, Span] = field(default_factory=dict)
    registers: list[Vreg] = field(default_factory=list)
