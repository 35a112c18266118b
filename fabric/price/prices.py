"""These are the records that `fabric.price` returns: what a price says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fabric.price.code import Meeting
from wse_core.errors import ProgramError

__all__ = ["ProgramPrice", "TaskPrice", "Unknown"]


@dataclass(frozen=True)
class Unknown:
    """An `Unknown` is something on which cycles depend and which is not known before a run.

    Attributes
    ----------
    what : str
        In words.
    where : str
        Place in the source, or the code word.
    task : str
        Name of the task; empty for a piece of code.
    """

    what: str
    where: str
    task: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class TaskPrice:
    """A `TaskPrice` has the cycles of a task, from the picker's choice to the next choice, or of a piece of code.

    A task that meets the fabric waits for other PEs.  Its price is cut there; who waits for whom is the business of
    `fabric.price.lines`.

    Attributes
    ----------
    before : float
        Cycles from the picker's choice to the first step of the first synchronous operation that meets the fabric; to
        the next choice, if the task has none.
    length : float
        Cycles of that operation's steps, if nothing has to be waited for; 0 without one.
    after : float
        Cycles from behind its last step to the next choice.
    meetings : tuple of Meeting
        All synchronous operations that meet the fabric, in their order.
    beside : float
        Cycles of the pipeline that asynchronous operations with the fabric take when their wavelets come; no part of
        the others.
    lines : mapping of str to float
        Cycles by source line; together they are `alone`.
    unknown : tuple of Unknown
        What keeps the price from being known.  If there is anything, the cycles are those of the shortest way that was
        found, and `alone` refuses (`ProgramError`).
    least, most : float
        Cycles of the shortest and of the longest way through branches that are not known; `most` is infinite if there
        may be more.
    """

    before: float
    length: float = 0
    after: float = 0.0
    meetings: tuple[Meeting, ...] = ()
    beside: float = 0
    lines: Mapping[str, float] = field(default_factory=dict)
    unknown: tuple[Unknown, ...] = ()
    least: float = 0
    most: float = 0

    @property
    def alone(self) -> float:
        """The task takes so many cycles if nothing has to be waited for; `ProgramError` is raised if they are not
        known.
        """
        if self.unknown:
            raise ProgramError(
                f"the cycles are not known before a run: {self.unknown[0].what}",
                where=self.unknown[0].where,
                hint="give the values of variables (given), or how often a branch is taken (odds)",
            )
        return self.before + self.length + self.after

    def without(self, start: float, end: float) -> TaskPrice:
        """Return the price of the code of a task without so many cycles of its start and of its end."""
        lines, first = dict(self.lines), next(iter(self.lines), None)
        if first is not None:
            lines[first] -= start
            lines[next(reversed(lines))] -= end
            lines = {line: cycles for line, cycles in lines.items() if cycles}
        cut: dict[str, Any] = {"least": self.least - start - end, "most": self.most - start - end, "lines": lines}
        meetings = tuple(one._replace(first=one.first - start) for one in self.meetings)
        if meetings:
            return replace(self, before=self.before - start, after=self.after - end, meetings=meetings, **cut)
        return replace(self, before=self.before - start - end, **cut)


@dataclass(frozen=True)
class ProgramPrice:
    """A `ProgramPrice` has the prices of all tasks of a program.

    Attributes
    ----------
    name : str
    tasks : dict[str, TaskPrice]
        By name, in the order of the code.
    """

    name: str
    tasks: dict[str, TaskPrice]

    @property
    def lines(self) -> dict[str, dict[str, float]]:
        """Each source line takes so many cycles, by task, for one run of each task whose price is known."""
        found: dict[str, dict[str, float]] = {}
        for name, task in self.tasks.items():
            for line, cycles in task.lines.items():
                found.setdefault(line, {})[name] = cycles
        return found

    @property
    def unknown(self) -> list[Unknown]:
        """These things are not known before a run, in the order of the tasks."""
        return [one for task in self.tasks.values() for one in task.unknown]

    def as_dict(self) -> dict[str, Any]:
        """Return the prices as plain data, for JSON."""
        return {
            "program": self.name,
            "tasks": {
                name: {
                    "cycles": None if task.unknown else task.alone,
                    "before": task.before,
                    "length": task.length,
                    "after": task.after,
                    "beside": task.beside,
                    "meetings": len(task.meetings),
                    "least": task.least,
                    "most": None if task.most == float("inf") else task.most,
                    "lines": dict(task.lines),
                    "unknown": [{"what": one.what, "where": one.where} for one in task.unknown],
                }
                for name, task in self.tasks.items()
            },
        }
