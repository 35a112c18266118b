"""A layout block becomes classes of PEs: those that run the same file with equal params.

Nothing here is a Python object per PE: PEs are arrays of coordinates, and grids of small integers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fabric.csl.comptime.colors import ColorConfig
from fabric.csl.comptime.interpreter import Interpreter
from fabric.csl.comptime.session import CompilerSession
from fabric.csl.comptime.units import ColorEntry, ExportedName, LayoutUnit, TileEntry
from fabric.csl.comptime.values import Module, Struct, Value, frozen, integer
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n

__all__ = ["LayoutDescription", "PeClass", "bind_params", "evaluate", "layout_block"]


@dataclass(eq=False)
class PeClass:
    """A `PeClass` stands for the PEs of a layout with one file and equal params.

    Attributes
    ----------
    path : pathlib.Path
        The file.
    params : dict
        Values by name, each with the place where it was given.
    span : Span
        Where the layout says so first.
    count : int
        Number of PEs.
    """

    path: Path
    params: dict[str, tuple[Value, Span]]
    span: Span
    count: int = 0


@dataclass(eq=False)
class LayoutDescription:
    """A `LayoutDescription` is what the layout block of a program says: programs of PEs, routes, symbols for the host.

    Attributes
    ----------
    width, height : int
        The rectangle.
    classes : list of PeClass
    grid : numpy.ndarray
        Per PE (y, x) the index of its class.
    configs : list of ColorConfig
        The different configurations of colors.
    routes : dict
        Per color a grid (y, x) of indices into `configs`, -1 where the layout says nothing.
    names : dict
        The symbols for the host.
    span : Span
        The layout block.
    places : dict
        Per color and index into `configs` where that was first said.
    """

    width: int
    height: int
    classes: list[PeClass]
    grid: np.ndarray
    configs: list[ColorConfig] = field(default_factory=list)
    routes: dict[int, np.ndarray] = field(default_factory=dict)
    names: dict[str, ExportedName] = field(default_factory=dict)
    span: Span | None = None
    places: dict[tuple[int, int], Span] = field(default_factory=dict)

    def example(self, index: int) -> tuple[int, int]:
        """Return the coordinates of the first PE of a class."""
        y, x = np.unravel_index(int(np.argmax(self.grid == index)), self.grid.shape)
        return int(x), int(y)

    def filtered(self, index: int) -> frozenset[int] | None:
        """Return the colors to which the layout gives a filter at the PEs of a class; None if they differ in that."""
        here = self.grid == index
        colors = []
        for color, grid in self.routes.items():
            kinds = {number >= 0 and self.configs[number].filter is not None for number in np.unique(grid[here])}
            if len(kinds) > 1:
                return None
            colors += [color] if True in kinds else []
        return frozenset(colors)


def layout_block(tree: n.File) -> n.LayoutBlock | None:
    """Return the layout block of a file, or None."""
    return next((item for item in tree.items if isinstance(item, n.LayoutBlock)), None)


def bind_params(session: CompilerSession, module: Module) -> None:
    """Bind the params of the command line to the top module."""
    for name, number in session.options.params.items():
        entry = module.globals.get(name)
        at = Span(module.source, 0, 0)
        if entry is None or not isinstance(entry.decl, (n.ParamDecl, n.ColorDecl)):
            session.report.fault(Fault(f"there is no param '{name}' in {module.source.name}", at, "see --params"))
            continue
        module.bindings[name] = (integer(number), entry.decl.span)


def evaluate(session: CompilerSession, path: Path) -> LayoutDescription:
    """Return the layout of a file.

    Raises
    ------
    Fault
        Where it does not evaluate; further messages are in the session's report.
    """
    module = session.module(path, "", {})
    bind_params(session, module)
    blocks = [item for item in module.tree.items if isinstance(item, n.LayoutBlock)]
    if not blocks:
        raise Fault("the file has no layout block", Span(module.source, 0, 0))
    block, *others = blocks
    if others:
        raise Fault("the file has two layout blocks", others[0].span, None, (("the first one is here", block.span),))
    unit = LayoutUnit(session.options.lanes)
    interpreter = Interpreter(session, unit)
    assert module.scope is not None
    interpreter.block(block.body, module.scope)
    if unit.rectangle is None:
        raise Fault("the layout sets no rectangle", block.span, "@set_rectangle(width, height);")
    return _classes(session, unit, block.span)


def _classes(session: CompilerSession, unit: LayoutUnit, span: Span) -> LayoutDescription:
    """Return the layout of a log."""
    assert unit.rectangle is not None
    width, height = unit.rectangle
    grid = np.full((height, width), -1, np.int32)
    layout = LayoutDescription(width, height, [], grid, names=unit.names, span=span)
    known: dict[Any, int] = {}
    configs: dict[ColorConfig, int] = {}
    for entry in unit.log:
        if isinstance(entry, TileEntry):
            _enter_tiles(session, layout, entry, known)
        else:
            _enter_color(session, layout, entry, configs)
    empty = np.argwhere(grid < 0)
    if len(empty):
        y, x = map(int, empty[0])
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise Fault(f"PE ({x}, {y}){more} has no code", span, "call @set_tile_code for each PE of the rectangle")
    layout.configs = list(configs)
    return layout


def _duplicate(grid: np.ndarray, xs: np.ndarray, ys: np.ndarray) -> tuple[int, int] | None:
    """Return the first of some PEs that is taken already, by others or by one of themselves."""
    taken = np.flatnonzero(grid[ys, xs] >= 0)
    if taken.size:
        return int(xs[taken[0]]), int(ys[taken[0]])
    if len(xs) > 1:
        flat = ys.astype(np.int64) * grid.shape[1] + xs
        order = np.sort(flat)
        twice = np.flatnonzero(order[1:] == order[:-1])
        if twice.size:
            y, x = divmod(int(order[twice[0]]), grid.shape[1])
            return x, y
    return None


def _enter_tiles(session: CompilerSession, layout: LayoutDescription, entry: TileEntry, known: dict[Any, int]) -> None:
    taken = _duplicate(layout.grid, entry.xs, entry.ys)
    if taken is not None:
        session.report.fault(Fault(f"the code of PE ({taken[0]}, {taken[1]}) is set twice", entry.span))
        return
    arrays: list[np.ndarray] = []
    for value, _ in entry.params.values():
        _arrays(value, arrays)
    if not arrays:
        groups = [(0, np.arange(len(entry.xs)))]
    else:
        _, first, inverse = np.unique(np.stack(arrays, axis=1), axis=0, return_index=True, return_inverse=True)
        order = np.argsort(inverse.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(inverse.ravel()))[:-1]
        groups = [(int(at), lanes) for at, lanes in zip(first, np.split(order, ends), strict=True)]
    path = entry.path.resolve()
    for at, lanes in groups:
        params = {name: (_one(value, at), place) for name, (value, place) in entry.params.items()}
        key = (path, tuple(sorted((name, frozen(value)) for name, (value, _) in params.items())))
        index = known.setdefault(key, len(layout.classes))
        if index == len(layout.classes):
            layout.classes.append(PeClass(entry.path, params, entry.span))
        layout.grid[entry.ys[lanes], entry.xs[lanes]] = index
        layout.classes[index].count += len(lanes)


def _arrays(value: Value, found: list[np.ndarray]) -> None:
    """Collect the numbers per lane inside a param."""
    if value.data.__class__ is np.ndarray:
        found.append(value.data.astype(np.int64))
    elif value.data.__class__ is Struct:
        for entry in value.data.fields.values():
            _arrays(entry, found)


def _one(value: Value, lane: int) -> Value:
    """Return a param as one lane has it."""
    if value.data.__class__ is np.ndarray:
        return Value(value.type, value.data[lane].item())
    if value.data.__class__ is Struct:
        fields = {name: _one(entry, lane) for name, entry in value.data.fields.items()}
        return Value(value.type, Struct(fields, value.data.is_tuple))
    return value


def _enter_color(
    session: CompilerSession, layout: LayoutDescription, entry: ColorEntry, configs: dict[ColorConfig, int]
) -> None:
    grid = layout.routes.get(entry.color)
    if grid is None:
        grid = layout.routes[entry.color] = np.full((layout.height, layout.width), -1, np.int16)
    taken = _duplicate(grid, entry.xs, entry.ys)
    if taken is not None:
        what = f"color {entry.color} of PE ({taken[0]}, {taken[1]}) is configured twice"
        session.report.fault(Fault(what, entry.span))
        return
    number = configs.setdefault(entry.config, len(configs))
    layout.places.setdefault((entry.color, number), entry.span)
    grid[entry.ys, entry.xs] = number
