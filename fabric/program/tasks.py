"""A program has tasks and functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from fabric.asm.instruction import TaskRef
from fabric.asm.operands import Label, Queue, Task
from fabric.asm.unit import Unit
from fabric.program.blocks import Blocks
from fabric.program.registers import Registers

__all__ = ["ProgramTasks"]


class ProgramTasks:
    """A `ProgramTasks` has the tasks and functions of one program."""

    def __init__(self, unit: Unit, registers: Registers, blocks: Blocks) -> None:
        self.unit, self.registers, self.blocks = unit, registers, blocks

    @contextmanager
    def task(
        self,
        name: str,
        kind: Literal["local", "data", "control"] = "local",
        id: int | None = None,
        color: int | None = None,
        priority: Literal["low", "high"] = "low",
    ) -> Iterator[Task]:
        """Write a task: its body is what is emitted inside the ``with``; it ends by itself.

        An exception inside takes back all that was added to the program since the ``with``, here and in every other
        block, so that the corrected block can be written.

        Parameters
        ----------
        name : str
        kind : {"local", "data", "control"}
            Started by activation, by each data wavelet of `color`, or by a control wavelet with its id.
        id : int, optional
            Local: 0 .. 30, 29 = the teardown task.  Control: 0 .. 63 without 31.
        color : int
            Of a data task; an input queue is chosen if none is bound to it.
        priority : {"low", "high"}
            Of the picker; high before low.

        Yields
        ------
        Task
        """
        if priority not in ("low", "high"):
            raise self.unit.error(f"task {name!r}: unknown priority {priority!r}", hint="low, high")
        with self.blocks.whole():
            task = self.unit.begin_task(name, kind, id, color, priority == "high")
            self.registers.begin()
            yield task
            self.unit.end()

    @contextmanager
    def function(self, name: str) -> Iterator[Label]:
        """Write a function, called by `call`; it returns at its end."""
        with self.blocks.whole():
            label = self.unit.begin_function(name)
            self.registers.begin()
            yield label
            self.unit.end()

    def done(self) -> None:
        """End the task (emitted by itself at the end of a task's body)."""
        self.unit.emit("done")

    def ret(self) -> None:
        """Return from a function (emitted by itself at its end)."""
        self.unit.emit("ret")

    def call(self, name: str | Label) -> None:
        """Call a function by name; it may be written later.  At most eight calls deep."""
        self.unit.emit("call", imm=name if isinstance(name, (str, Label)) else str(name))

    def activate(self, task: Task | str | int) -> None:
        """Set the activated bit of a task (name, `Task` or id)."""
        self.unit.emit("activate", a=TaskRef(task, "activate"))

    def block(self, task: Task | Queue | str | int) -> None:
        """Set the blocked bit of a task: name, `Task`, id, or the `Queue` whose wavelets start it."""
        self.unit.emit("block", a=TaskRef(task, "block"))

    def unblock(self, task: Task | Queue | str | int) -> None:
        """Clear the blocked bit of a task: name, `Task`, id, or the `Queue` whose wavelets start it."""
        self.unit.emit("unblock", a=TaskRef(task, "unblock"))

    def start(self, task: Task | str | int) -> None:
        """Begin with `task` activated (CSL: activate at comptime)."""
        self.unit.start(task)

    def blocked(self, task: Task | Queue | str | int) -> None:
        """Begin with `task` blocked: name, `Task`, id, or the `Queue` whose wavelets start it."""
        self.unit.block(task)

    def unblocked(self, task: Task | Queue | str | int) -> None:
        """Begin with an input queue, or the id of its tasks, unblocked although it has no data task.

        Control wavelets of its color then start tasks.  On WSE-2 that id is the color, on WSE-3 the queue's number.
        """
        self.unit.unblock(task)
