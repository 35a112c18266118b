"""An `EvaluatedUnit` is filled by builtins with effects: the layout of the wafer, or the program of a class of PEs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fabric.csl import tree
from fabric.csl.comptime.colors import ColorConfig
from fabric.csl.comptime.earlier import Earlier
from fabric.csl.comptime.values import FunctionValue, Module, Value
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.types import Type

__all__ = ["FILTERS", "ColorEntry", "EvaluatedUnit", "Export", "ExportedName", "LayoutUnit", "ProgramUnit", "TileEntry"]

FILTERS = "@filters"
"""Stands among the params that a program has read for the colors to which the layout gives filters."""


@dataclass(frozen=True, slots=True)
class TileEntry:
    """`@set_tile_code` for the PEs at `xs`, `ys`; a param may be a numpy array with one number per PE."""

    xs: np.ndarray
    ys: np.ndarray
    path: Path
    params: dict[str, tuple[Any, Span]]
    span: Span


@dataclass(frozen=True, slots=True)
class ColorEntry:
    """A `ColorEntry` is what one `@set_color_config` sets for the PEs at `xs`, `ys`."""

    xs: np.ndarray
    ys: np.ndarray
    color: int
    config: ColorConfig
    span: Span


@dataclass(frozen=True, slots=True)
class ExportedName:
    """`@export_name`: a symbol that the host may use; `ident` counts from 0."""

    name: str
    type: Type
    mutable: bool
    ident: int
    span: Span


@dataclass(frozen=True, slots=True)
class Export:
    """An `Export` is what a PE offers to the host under a name, by `@export_symbol`."""

    name: str
    target: tree.Variable | FunctionValue
    span: Span


class EvaluatedUnit:
    """An `EvaluatedUnit` has what the evaluator asks of a layout and of a program alike."""

    kind = ""
    lanes = False
    earlier: Earlier | None = None

    def mark(self) -> Any:
        """Return a point to which `rewind` can return."""
        return None

    def rewind(self, mark: Any) -> None:
        """Take back what was done since a point."""

    def meet(self, need: Any) -> None:
        """Note that something is needed."""


class LayoutUnit(EvaluatedUnit):
    """What a layout block says, as it was said; `fabric.csl.comptime.layout` makes classes of PEs of it."""

    kind = "layout"

    def __init__(self, lanes: bool) -> None:
        self.lanes = lanes
        self.rectangle: tuple[int, int] | None = None
        self.log: list[TileEntry | ColorEntry] = []
        self.names: dict[str, ExportedName] = {}

    def mark(self) -> int:
        return len(self.log)

    def rewind(self, mark: int) -> None:
        del self.log[mark:]


@dataclass(eq=False)
class ProgramUnit(EvaluatedUnit):
    """A `ProgramUnit` is what the comptime blocks of a PE program set up before it starts.

    Attributes
    ----------
    tasks : dict
        Per (table, id) kind, function and where that was said; table is ``task`` (``data`` and ``local`` share their
        ids) or ``control``.
    active, blocked : dict
        Ids with their initial bit, and where that was said.
    queues : dict
        Per (``input_queue`` or ``output_queue``, number) its configuration.
    configs : dict
        Per color its configuration at this PE.
    exports : list of Export
    loads : list
        DSRs loaded before the start: (dsr, DSD, options, span).
    teardown : dict
        Per color the handler.
    empty : dict
        Per (``input_queue`` or ``output_queue``, number) the handler of what happens when the queue is empty.
    rotating : dict
        Per id of a data task instead of which control task 0 starts at times: counter at the start, limit.
    tables : dict
        ``control`` if control tasks have a table of their own, and where that was said.
    pointed : dict
        Functions that are called through pointers, with their types; their order numbers them from 1 on.
    settings : list
        Other calls of library functions that configure the PE: (name, arguments, span).
    params_read : set of str
        Params of the top module that were needed: PEs that agree in those share a program.
    either : set of int
        Ids of data tasks that the program may activate too: those of `@bind_task`.
    names : dict
        Symbols that the layout exports.
    earlier : Earlier
        What programs of the same file that came before have found out; None for a program that stands alone.
    variables : list
        Globals that were needed, in the order in which they were.
    filters : frozenset of int
        Colors to which the layout gives a filter at these PEs; None if that differs from PE to PE.
    """

    kind = "program"
    names: dict[str, ExportedName] = field(default_factory=dict)
    tasks: dict[tuple[str, int], tuple[str, FunctionValue, Span]] = field(default_factory=dict)
    active: dict[int, Span] = field(default_factory=dict)
    blocked: dict[int, tuple[bool, Span]] = field(default_factory=dict)
    queues: dict[tuple[str, int], tuple[dict[str, Value], Span]] = field(default_factory=dict)
    configs: dict[int, tuple[ColorConfig, Span]] = field(default_factory=dict)
    exports: list[Export] = field(default_factory=list)
    loads: list[tuple[Value, Value, dict[str, Any], Span]] = field(default_factory=list)
    teardown: dict[int, tuple[FunctionValue, Span]] = field(default_factory=dict)
    empty: dict[tuple[str, int], tuple[FunctionValue, Span]] = field(default_factory=dict)
    rotating: dict[int, tuple[int, int]] = field(default_factory=dict)
    tables: dict[str, tuple[Span]] = field(default_factory=dict)
    settings: list[tuple[str, tuple[Any, ...], Span]] = field(default_factory=list)
    pointed: dict[tuple[int, int], tuple[Any, Any]] = field(default_factory=dict)
    modules: list[Module] = field(default_factory=list)
    ready: list[Module] = field(default_factory=list)
    variables: list[tree.Variable] = field(default_factory=list)
    params_read: set[str] = field(default_factory=set)
    either: set[int] = field(default_factory=set)
    rectangle: tuple[int, int] | None = None
    earlier: Earlier | None = None
    filters: frozenset[int] | None = frozenset()
    _met: set[Any] = field(default_factory=set)

    def check_activated(self, ident: int, span: Span) -> None:
        """Refuse to activate an id without a task, or with one that only a wavelet can start."""
        if ("task", ident) not in self.tasks:
            hint = f"@bind_local_task(..., @get_local_task_id({ident}))"
            raise Fault(f"no task is bound to the id {ident}, which is activated here", span, hint)
        kind, _, bound = self.tasks["task", ident]
        if kind == "data" and ident not in self.either:
            note = ("bound here", bound)
            raise Fault(f"the task of id {ident} takes wavelets: it cannot be activated", span, None, (note,))

    def filter_number(self, color: int, span: Span) -> int:
        """Return the number of a color's filter at this PE: filters are numbered in the order of their colors."""
        self.params_read.add(FILTERS)
        if self.filters is None:
            hint = "@set_local_color_config, or params that make them different programs"
            raise Fault("the layout gives filters to other colors from PE to PE of this program", span, hint)
        own = {number for number, (config, _) in self.configs.items() if config.filter is not None}
        colors = sorted(self.filters | own)
        if color not in colors:
            raise Fault(f"color {color} has no filter at this PE", span, ".filter = ... in the config of the color")
        return colors.index(color)

    def meet(self, need: Any) -> None:
        """Note that something is needed: a global with all that it was made of, a module, memory.

        Parameters
        ----------
        need : Global, Module or Variable, or a tuple with a Global
            The tuple asks for the memory of a ``const``.
        """
        if need in self._met:
            return
        self._met.add(need)
        if need.__class__ is tuple:
            self.meet(need[0])
            self.meet(need[0].variable)
        elif need.__class__ is Module:
            self.modules.append(need)
        elif need.__class__ is tree.Variable:
            self.variables.append(need)
        else:
            for other in need.needs:
                self.meet(other)
            if isinstance(need.decl, n.ParamDecl) and not need.module.name:
                self.params_read.add(need.name)
            if need.own:
                self.meet(need.variable)

    def once(self, table: dict[Any, Any], key: Any, entry: Any, what: str, span: Span) -> None:
        """Enter something that may be said once."""
        if key in table:
            raise Fault(what, span, None, (("the first time is here", table[key][-1]),))
        table[key] = entry
