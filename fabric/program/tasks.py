"""Tasks and functions."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from fabric.asm.operands import Label, Task
from fabric.program.emission import Body, TaskRef
from wse_core import image as im

__all__ = ["Tasks"]


class Tasks:
    """Part of `fabric.program.program.Program`: tasks and functions."""

    @contextmanager
    def task(self, name, kind="local", id=None, color=None, priority="low"):
        """Write a task: its body is what is emitted inside the ``with``; it ends by itself.

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
        self._changing()
        where = self._where()
        if self._body is not None:
            raise self._error(f"task {name!r} begins inside {self._body.kind} {self._body.name!r}")
        if name in self._tasks or name in self._functions:
            raise self._error(f"two tasks or functions are called {name!r}")
        if kind not in ("local", "data", "control"):
            raise self._error(f"unknown kind of task {kind!r}", hint="local, data, control")
        if priority not in ("low", "high"):
            raise self._error(f"task {name!r}: unknown priority {priority!r}", hint="low, high")
        if (color is None) == (kind == "data"):
            raise self._error(f"task {name!r}: a data task, and no other, has a color")
        if kind == "data":
            if id not in (None, color):
                raise self._error(f"data task {name!r}: its id is its color {color}, not {id}")
            id = self._color(color, f"data task {name!r}")
        elif id is not None:
            top = im.N_CONTROL_IDS if kind == "control" else im.N_TASK_IDS
            if not isinstance(id, (int, np.integer)) or not 0 <= id < top or id == im.TASK_NULL:
                raise self._error(
                    f"{kind} task {name!r}: id {id!r} is outside 0 .. {top - 1} or is {im.TASK_NULL}, the id of none"
                )
        if id is not None:
            for other in self._tasks.values():
                if other._id == id and (other.kind == "control") == (kind == "control"):
                    raise self._error(f"tasks {other.name!r} and {name!r} have the same id {id}")
        task = self._tasks[name] = Task(self, name, kind, None if id is None else int(id), priority == "high", where)
        task.label = self._labels[name] = Label(name)
        task.label.at = len(self._ins)
        self._body = Body(name, kind, [])
        try:
            yield task
            self._emit("done")
        finally:
            self._body = None
            self._last_if = None

    @contextmanager
    def function(self, name):
        """Write a function, called by `call`; it returns at its end."""
        self._changing()
        if self._body is not None:
            raise self._error(f"function {name!r} begins inside {self._body.kind} {self._body.name!r}")
        if name in self._tasks or name in self._functions:
            raise self._error(f"two tasks or functions are called {name!r}")
        label = self._functions[name] = self._labels[name] = Label(name)
        label.at = len(self._ins)
        self._body = Body(name, "function", [])
        try:
            yield label
            self._emit("ret")
        finally:
            self._body = None
            self._last_if = None

    def done(self):
        """End the task (emitted by itself at the end of a task's body)."""
        self._emit("done")

    def ret(self):
        """Return from a function (emitted by itself at its end)."""
        self._emit("ret")

    def call(self, name):
        """Call a function by name; it may be written later.  At most eight calls deep."""
        self._emit("call", imm=name if isinstance(name, (str, Label)) else str(name))

    def activate(self, task):
        """Set the activated bit of a task (name, `Task` or id)."""
        self._emit("activate", a=TaskRef(task, "activate"))

    def block(self, task):
        """Set the blocked bit of a task (name, `Task` or id; a color is an id)."""
        self._emit("block", a=TaskRef(task, "block"))

    def unblock(self, task):
        """Clear the blocked bit of a task (name, `Task` or id; a color is an id)."""
        self._emit("unblock", a=TaskRef(task, "unblock"))

    def start(self, task):
        """Begin with `task` activated (CSL: activate at comptime)."""
        self._changing()
        self._starts.append((TaskRef(task, "start"), self._where()))

    def blocked(self, task):
        """Begin with `task` (or a color) blocked."""
        self._changing()
        self._blocks.append((TaskRef(task, "blocked"), self._where()))

    def unblocked(self, task):
        """Begin with a color unblocked although it has no data task, so that control wavelets on it start tasks."""
        self._changing()
        self._unblocks.append((TaskRef(task, "unblocked"), self._where()))
