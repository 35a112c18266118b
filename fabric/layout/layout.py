"""Rectangles of PEs: which program runs where, how each color is routed, what the host attaches; checked before a run.

A `Layout` is painted: `Layout.place` and `Layout.route` cover rectangles, later calls paint over earlier ones.
`Layout.build` checks the whole picture and returns the `wse_core.image.FabricSpec` that a machine is made from.

Painting and checking work on one small number per PE and color (the number of a configuration), so both cost a few
passes over an array of bytes per color, also for a whole wafer; only the result has a record per PE.

What is refused (`RouteError` unless said otherwise), each with the PE, color, direction and what to try:

* an unknown color or direction, an empty rx or tx, a fifth switch position, a switch position that changes more than
  one direction of one set on wse2 (arch §8.2), more than one input per position or a switch on a color without one on
  wse3 (arch §8.1, §8.2);
* an output that leaves the rectangle without a stream, or that leads to a neighbour without a route for that color from
  there: a wavelet would be stuck for ever;
* the ramp as an output without an input queue bound to that color, as an input without an output queue; CE injection
  without output queue color // 4, or on wse3;
* more filters than a PE has; color swap enabled on one color of a pair only (`UnsupportedError`);
* overlapping programs, a rectangle larger than the machine's fabric, a stream that is not at the edge (`LayoutError`).

A color that starts in teardown, or that the program of a PE rewrites with a ``route`` instruction, is configured at run
time: its rx and tx may be empty, and neighbours may send to it.

Timing: none.  Sources: arch §8 (routers), docs/machine.md, "Router".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fabric.program.program import Program, encode_array
from wse_core import image as im
from wse_core import isa
from wse_core.errors import LayoutError, RouteError, UnsupportedError
from wse_core.image import DIR_R, DIRS, FabricSpec
from wse_core.params import machine as _machine

__all__ = ["Layout", "Rect", "Stream"]

_NAMES = ("west", "east", "north", "south", "ramp")
_WSE3_SWITCHES = frozenset({*range(10), 12, 13, 16, 17, 20, 21})  # colors that can switch there (arch §8.2)
_INJECT = {None: 0, False: 0, "low": 1, "high": 2}
_MAX_POSITIONS = im.ROUTE_DTYPE["rx"].shape[0]


class Rect(NamedTuple):
    """A rectangle of PEs; `sx` and `sy` pick every sx-th column and sy-th row of it."""

    x: int
    y: int
    w: int = 1
    h: int = 1
    sx: int = 1
    sy: int = 1

    @property
    def slices(self):
        """Index of the rectangle in an array of shape (height, width)."""
        return slice(self.y, self.y + self.h, self.sy), slice(self.x, self.x + self.w, self.sx)

    @property
    def shape(self):
        """(rows, columns) that it picks."""
        return -(-self.h // self.sy), -(-self.w // self.sx)


@dataclass(frozen=True)
class Stream:
    """A link to the host at the edge: wavelets of `color` enter or leave PE (x, y) on its side `side`."""

    kind: str  # "input" or "output"
    index: int
    x: int
    y: int
    side: str
    color: int


@dataclass(frozen=True)
class _Config:
    """Routing of one color as given by one call of `Layout.route`; tuples per position."""

    rx: tuple
    tx: tuple
    pos: int
    ring: bool
    pop: int
    teardown: bool
    swap: int
    inject: int
    has_filter: bool

    def row(self):
        record = np.zeros((), im.ROUTE_DTYPE)
        record["rx"][: len(self.rx)] = self.rx
        record["tx"][: len(self.tx)] = self.tx
        record["valid"] = (1 << len(self.rx)) - 1
        record["pos"], record["ring"], record["pop"] = self.pos, self.ring, self.pop
        record["teardown"], record["swap"], record["inject"] = self.teardown, self.swap, self.inject
        return record


class Layout:
    """Programs and routes of a rectangle of PEs.

    Parameters
    ----------
    width, height : int
        PEs along x (east) and y (south).
    machine : Machine, optional
        `wse_core.params.machine()`; default wse2.  Its ``fabric.width`` and ``fabric.height`` limit the size.

    Examples
    --------
    >>> layout = Layout(4, 1)
    >>> p = Program("receive")
    >>> q = p.input_queue(0, 3)
    >>> layout.place(p, 3, 0)
    >>> layout.route(3, (0, 0, 3, 1), rx="W", tx="E")
    >>> layout.route(3, (3, 0), rx="W", tx="R")
    >>> stream = layout.input_stream(0, 0, "W", 3)
    >>> layout.build().routes[3]["tx"][0, :, 0].tolist()
    [2, 2, 2, 16]
    """

    def __init__(self, width, height, machine=None):
        self.machine = _machine() if machine is None else machine
        for key, size in (("width", width), ("height", height)):
            limit = self.machine[f"fabric.{key}"]
            if not isinstance(size, (int, np.integer)) or size < 1:
                raise LayoutError(f"{key} {size!r} is not a number of PEs")
            if size > limit:
                raise LayoutError(
                    f"{key} {size} exceeds the {limit} PEs of {self.machine.preset}",
                    hint=f"machine(..., {{'fabric.{key}': {size}}}) makes a larger fabric",
                    limit=key,
                    needed=int(size),
                    available=limit,
                )
        self.width, self.height = int(width), int(height)
        self._programs = []
        self._index = np.full((self.height, self.width), -1, np.int16)
        self._ids, self._configs, self._filters = {}, {}, {}
        self._inputs, self._outputs, self._attached = [], [], set()
        self._params = []
        self._spec = None

    def __repr__(self):
        return f"Layout({self.width} x {self.height}, {len(self._programs)} programs, colors {sorted(self._ids)})"

    # --- rectangles -----------------------------------------------------------------------------------------------

    def rect(self, rect, what="rectangle"):
        """Return `rect` as a `Rect`: (x, y), (x, y, w, h), (x, y, w, h, sx, sy), a `Rect`, or None for all PEs."""
        if rect is None:
            return Rect(0, 0, self.width, self.height)
        try:
            rect = Rect(*(int(v) for v in rect))
        except (TypeError, ValueError):
            raise LayoutError(f"{what} {rect!r} is not (x, y), (x, y, w, h) or (x, y, w, h, step x, step y)") from None
        if min(rect.w, rect.h, rect.sx, rect.sy) < 1:
            raise LayoutError(f"{what} {tuple(rect)} is empty", x=rect.x, y=rect.y)
        if rect.x < 0 or rect.y < 0 or rect.x + rect.w > self.width or rect.y + rect.h > self.height:
            raise LayoutError(
                f"{what} {tuple(rect)} reaches outside the {self.width} x {self.height} PEs of the layout",
                x=rect.x,
                y=rect.y,
            )
        return rect

    def _changing(self):
        if self._spec is not None:
            raise LayoutError("the layout is built and cannot be changed any more", hint="build() last")

    def place(self, program, x, y=None, w=1, h=1):
        """Run `program` on the PEs of a rectangle.

        Parameters
        ----------
        program : Program or ProgramImage
        x, y, w, h : int
            Rectangle; `x` may be a `Rect` or tuple instead, with steps.

        Raises
        ------
        LayoutError
            The rectangle leaves the layout or meets another program; the program is for another machine.
        """
        self._changing()
        rect = self.rect((x, y, w, h) if y is not None else x, "place")
        if isinstance(program, Program) and _seen_by_programs(program.machine) != _seen_by_programs(self.machine):
            raise LayoutError(
                f"program {program.name!r} is written for {program.machine!r}, the layout is one of {self.machine!r}",
                hint="Program(name, machine) with the layout's machine",
            )
        region = self._index[rect.slices]
        if (region >= 0).any():
            row, column = np.argwhere(region >= 0)[0]
            other = self._programs[region[row, column]]
            raise LayoutError(
                f"programs {other.name!r} and {program.name!r} overlap",
                x=int(rect.x + column * rect.sx),
                y=int(rect.y + row * rect.sy),
            )
        if not any(known is program for known in self._programs):
            self._programs.append(program)
        region[...] = next(k for k, known in enumerate(self._programs) if known is program)

    # --- routes ---------------------------------------------------------------------------------------------------

    def route(
        self,
        color,
        rect=None,
        rx="",
        tx="",
        switches=(),
        ring=False,
        pop="no_pop",
        pos=0,
        teardown=False,
        filter=None,
        swap="",
        inject=None,
    ):
        """Paint the routing of a color over a rectangle.

        Parameters
        ----------
        color : int
        rect : tuple, optional
            See `rect`; default all PEs.
        rx, tx : str
            Input and output directions of position 0, letters of W E N S R.
        switches : sequence of dict
            Positions 1 to 3, each ``dict(rx="E")`` or ``dict(tx="R")``; the rest is that of position 0.
        ring : bool
            After the last position comes position 0 again.
        pop : {"no_pop", "always_pop", "pop_on_advance", "pop_on_advance_nop"}
            When a router removes command 0 of a control wavelet.
        pos : int
            Position at the start.
        teardown : bool
            Begin in teardown: wavelets of the color are held.
        filter : dict, optional
            On delivery to the CE.  ``dict(kind="counter", max_counter=, limit1=, init_counter=0, count_data=True,
            count_control=False, filter_control=False)`` or ``dict(kind="range", min_idx=, max_idx=)``; a number may be
            an array of the rectangle's shape.
        swap : str
            Axes (``x``, ``y`` or both) on which the color and its partner (color xor 1) change places; both colors of
            the pair need it.
        inject : {"low", "high"}, optional
            The CE feeds the color besides rx, from output queue color // 4 (wse2).

        Raises
        ------
        RouteError, LayoutError, UnsupportedError
        """
        self._changing()
        rect = self.rect(rect, f"route of color {color}")
        config = self._config(color, rect, rx, tx, switches, ring, pop, pos, teardown, filter, swap, inject)
        if color not in self._ids:
            self._ids[color] = np.zeros((self.height, self.width), np.uint8)
            self._configs[color] = [None]
        table = self._configs[color]
        if config not in table:
            if len(table) == 255:
                self._ids[color] = self._ids[color].astype(np.uint16)
            table.append(config)
        self._ids[color][rect.slices] = table.index(config)
        if filter is not None:
            self._paint_filter(color, rect, filter)

    def _config(self, color, rect, rx, tx, switches, ring, pop, pos, teardown, filter, swap, inject):
        m = self.machine

        def wrong(what, hint=None):
            return RouteError(what, x=rect.x, y=rect.y, color=color, hint=hint)

        if not isinstance(color, (int, np.integer)) or not 0 <= color < m["router.colors"]:
            needed = int(color) + 1 if isinstance(color, (int, np.integer)) else None
            raise RouteError(
                f"color {color!r} does not exist on {m.preset}",
                x=rect.x,
                y=rect.y,
                limit="routes",
                needed=needed,
                available=m["router.colors"],
                hint=f"colors 0 .. {m['router.colors'] - 1}",
            )
        if inject not in _INJECT:
            raise wrong(f"inject {inject!r} is unknown", 'None, "low" or "high"')
        if pop not in im.POP_MODES:
            raise wrong(f"pop mode {pop!r} is unknown", ", ".join(im.POP_MODES))
        if not set(swap) <= set("xy"):
            raise wrong(f"swap {swap!r} is unknown", '"x", "y" or "xy"')
        sets = [(_directions(rx, "rx", wrong), _directions(tx, "tx", wrong))]
        switches = [switches] if isinstance(switches, dict) else list(switches)
        if len(switches) >= _MAX_POSITIONS:
            raise wrong(f"{len(switches)} switch positions besides position 0; a router has {_MAX_POSITIONS - 1}")
        for number, change in enumerate(switches, 1):
            unknown = set(change) - {"rx", "tx"}
            if unknown or not change:
                raise wrong(
                    f"switch position {number}: {dict(change)!r} changes neither rx nor tx",
                    'dict(rx="E") or dict(tx="R")',
                )
            if m.preset == "wse2" and (len(change) > 1 or len(next(iter(change.values()))) != 1):
                raise wrong(
                    f"switch position {number}: {_describe(change)}; on wse2 a position changes one of rx or "
                    "tx, to a single direction",
                    'dict(rx="E") or dict(tx="R")',
                )
            sets.append(
                (
                    _directions(change["rx"], "rx", wrong) if "rx" in change else sets[0][0],
                    _directions(change["tx"], "tx", wrong) if "tx" in change else sets[0][1],
                )
            )
        for number, (inputs, outputs) in enumerate(sets):
            if teardown:
                break
            where = f"switch position {number}: " if number else ""
            if not inputs and not _INJECT[inject]:
                raise wrong(f"{where}rx is empty", "the directions that wavelets of this color come from")
            if not outputs:
                raise wrong(f"{where}tx is empty", "the directions that wavelets of this color go to")
        if not 0 <= pos < len(sets):
            raise wrong(f"the start position {pos} is not one of the {len(sets)} positions")
        if m.preset == "wse3":
            if any(bin(inputs).count("1") > 1 for inputs, _ in sets):
                raise wrong(f"rx {rx!r} has more than one direction, wse3 allows one", "a color per input")
            if len(sets) > 1 and color not in _WSE3_SWITCHES:
                raise wrong("this color has no switch on wse3", f"one of {sorted(_WSE3_SWITCHES)}")
            if _INJECT[inject]:
                raise wrong("CE injection exists on wse2 only")
        elif _INJECT[inject] and color // 4 not in self._out_queues():
            raise wrong(f"CE injection of color {color} comes from output queue {color // 4}, which does not exist")
        return _Config(
            tuple(i for i, _ in sets),
            tuple(o for _, o in sets),
            int(pos),
            bool(ring),
            im.POP_MODES.index(pop),
            bool(teardown),
            ("x" in swap) | ("y" in swap) << 1,
            _INJECT[inject],
            filter is not None,
        )

    def _out_queues(self):
        return [k for k, depth in enumerate(self.machine["queue.out_depth"]) if depth]

    def _paint_filter(self, color, rect, given):
        given = dict(given)
        kind = given.pop("kind", None)
        if kind == "sparse_counter":
            raise UnsupportedError(
                "filters of kind sparse_counter are not modelled",
                feature="sparse_counter",
                where=f"color {color}",
                cause=isa.UNSUPPORTED["sparse_counter"],
            )
        counter = {
            "init_counter": ("counter", 0),
            "max_counter": ("max", None),
            "limit1": ("limit", None),
            "count_data": ("count_data", True),
            "count_control": ("count_control", False),
            "filter_control": ("filter_control", False),
        }
        spans = {"min_idx": ("min_idx", 0), "max_idx": ("max_idx", None)}
        fields = {"counter": counter, "range": spans}.get(kind)
        if fields is None:
            raise RouteError(
                f"unknown kind of filter {kind!r}", x=rect.x, y=rect.y, color=color, hint="counter or range"
            )
        if color not in self._filters:
            self._filters[color] = np.zeros((self.height, self.width), im.FILTER_DTYPE)
        region = self._filters[color][rect.slices]
        region[...] = np.zeros((), im.FILTER_DTYPE)
        region["kind"] = im.FILTER_COUNTER if kind == "counter" else im.FILTER_RANGE
        for key, (name, default) in fields.items():
            value = given.pop(key, default)
            if value is None:
                raise RouteError(f"{kind} filter without {key}", x=rect.x, y=rect.y, color=color)
            value = np.asarray(value)
            limit = 1 if im.FILTER_DTYPE[name] == np.uint8 else 0xFFFF
            if (
                value.shape not in ((), rect.shape)
                or value.dtype.kind not in "iub"
                or (value.size and not 0 <= value.min() <= value.max() <= limit)
            ):
                raise RouteError(
                    f"{kind} filter: {key} must be in 0 .. {limit}, one number or one per PE (shape {rect.shape})",
                    x=rect.x,
                    y=rect.y,
                    color=color,
                )
            region[name] = value
        if given:
            raise RouteError(
                f"{kind} filter: unknown key {next(iter(given))!r}",
                x=rect.x,
                y=rect.y,
                color=color,
                hint=", ".join(fields),
            )

    # --- parameters and streams -----------------------------------------------------------------------------------

    def set_param(self, name, value, rect=None):
        """Set a parameter (or any variable) of the programs in a rectangle before the run.

        Parameters
        ----------
        name : str
            Symbol.
        value : number or array_like
            One value for all PEs, an array of the variable's length for all, or one of shape (h, w) or (h, w, length).
        rect : tuple, optional
            Default: all PEs; those without a program that has the symbol are left out, unless none has it.
        """
        self._changing()
        self._params.append((name, value, self.rect(rect, f"set_param({name!r})")))

    def input_stream(self, x, y, side, color):
        """Attach the host to an edge: it sends wavelets of `color` into PE (x, y) from its side W, E, N or S."""
        return self._stream("input", x, y, side, color, self._inputs)

    def output_stream(self, x, y, side, color):
        """Attach the host to an edge: it takes the wavelets of `color` that PE (x, y) sends to its side."""
        return self._stream("output", x, y, side, color, self._outputs)

    def _stream(self, kind, x, y, side, color, streams):
        self._changing()
        if side not in DIRS[:4] or len(side) != 1:
            raise LayoutError(f"{kind} stream: side {side!r} is not W, E, N or S", x=x, y=y, color=color)
        if not isinstance(color, (int, np.integer)) or not 0 <= color < self.machine["router.colors"]:
            raise RouteError(
                f"{kind} stream: color {color!r} does not exist",
                x=x,
                y=y,
                hint=f"colors 0 .. {self.machine['router.colors'] - 1}",
            )
        if not 0 <= x < self.width or not 0 <= y < self.height:
            raise LayoutError(f"{kind} stream: outside the {self.width} x {self.height} PEs of the layout", x=x, y=y)
        d = DIRS.index(side)
        nx, ny = x + im.STEP[d][0], y + im.STEP[d][1]
        if 0 <= nx < self.width and 0 <= ny < self.height:
            raise LayoutError(
                f"{kind} stream: side {side} of this PE faces PE ({nx}, {ny}), not the outside", x=x, y=y, color=color
            )
        if (kind, x, y, side, color) in self._attached:
            raise LayoutError(f"two {kind} streams of one color on side {side}", x=x, y=y, color=color)
        self._attached.add((kind, x, y, side, color))
        stream = Stream(kind, len(streams), int(x), int(y), side, int(color))
        streams.append(stream)
        return stream

    # --- building -------------------------------------------------------------------------------------------------

    def build(self):
        """Check everything and return the `FabricSpec`; the layout cannot be changed any more.

        Raises
        ------
        RouteError, LayoutError, ProgramError, UnsupportedError
        """
        if self._spec is None:
            self._spec = self._build()
        return self._spec

    def _build(self):
        programs = tuple(p.assemble() if isinstance(p, Program) else p for p in self._programs)
        index = np.where(self._index < 0, len(programs), self._index)  # last row of the tables below: no program
        check = _Check(self, programs, index)
        for color in sorted(self._ids):
            check.ramp(color)
        for color in sorted(self._ids):
            check.links(color)
        check.streams()
        filters, slots = self._build_filters()
        routes = {}
        bound = {c for p in programs for c in (*p.inq_color, *p.outq_color) if c >= 0}
        for color in sorted(bound | set(self._ids)):
            if color not in self._ids:
                routes[color] = _frozen(np.zeros((self.height, self.width), im.ROUTE_DTYPE))
                continue
            table = np.zeros(len(self._configs[color]), im.ROUTE_DTYPE)
            for k, config in enumerate(self._configs[color]):
                if config is not None:
                    table[k] = config.row()
            routes[color] = table[self._ids[color]]
            if color in slots:
                routes[color]["filter"] = slots[color]
            _frozen(routes[color])
        for name, value, rect in self._params:
            self._param_writes(programs, name, value, rect)
        return FabricSpec(
            machine=self.machine,
            width=self.width,
            height=self.height,
            programs=programs,
            program_index=_frozen(self._index),
            routes=routes,
            filters=filters,
            inputs=tuple((s.x, s.y, DIRS.index(s.side), s.color) for s in self._inputs),
            outputs=tuple((s.x, s.y, DIRS.index(s.side), s.color) for s in self._outputs),
        )

    def _build_filters(self):
        """Return (filters, color -> 1-based slot per PE); slots are numbered in the order of the colors."""
        used = np.zeros((self.height, self.width), np.uint8)
        slots = {}
        for color in sorted(self._filters):
            has = np.array([c is not None and c.has_filter for c in self._configs[color]])[self._ids[color]]
            used += has
            slots[color] = np.where(has, used, 0).astype(np.uint8)
        most = int(used.max()) if slots else 0
        if most > self.machine["router.filters"]:
            y, x = np.argwhere(used == most)[0]
            raise RouteError(
                f"{most} colors have a filter here, a PE has {self.machine['router.filters']} filters",
                x=int(x),
                y=int(y),
                limit="filters",
                needed=most,
                available=self.machine["router.filters"],
            )
        if not most:
            return None, {}
        filters = np.zeros((self.height, self.width, most), im.FILTER_DTYPE)
        for color, slot in slots.items():
            for k in range(most):
                here = slot == k + 1
                filters[here, k] = self._filters[color][here]
        return _frozen(filters), slots

    def param_writes(self):
        """Yield ``(address, words, x, y)`` with words of shape (h, w, n): what `set_param` puts into SRAM."""
        programs = self.build().programs
        for name, value, rect in self._params:
            yield from self._param_writes(programs, name, value, rect)

    def _param_writes(self, programs, name, value, rect):
        index = self._index[rect.slices]
        have = [k for k in np.unique(index) if k >= 0 and name in programs[k].symbols]
        if not have:
            raise LayoutError(
                f"set_param: no program in the rectangle has the symbol {name!r}",
                x=rect.x,
                y=rect.y,
                hint=f"symbols: {', '.join(sorted({s for p in programs for s in p.symbols})) or 'none'}",
            )
        writes = []
        for k in have:
            symbol = programs[k].symbols[name]
            words = _spread(
                encode_array(value, symbol.dtype, self.machine["num.cb16_bias"], f"set_param {name!r}"),
                np.shape(value),
                symbol,
                rect,
            )
            for row, first, stop in runs(index == k):
                if rect.sx == 1 and rect.sy == 1:
                    writes.append(
                        (
                            symbol.address,
                            np.broadcast_to(words, (*rect.shape, symbol.words))[row[0] : row[1], first:stop],
                            rect.x + first,
                            rect.y + row[0],
                        )
                    )
                else:
                    full = np.broadcast_to(words, (*rect.shape, symbol.words))
                    for r in range(*row):
                        for c in range(first, stop):
                            writes.append(
                                (symbol.address, full[r : r + 1, c : c + 1], rect.x + c * rect.sx, rect.y + r * rect.sy)
                            )
        return writes

    # --- pictures -------------------------------------------------------------------------------------------------

    def picture(self, color):
        """Return a text picture of a color: per PE ``inputs>outputs`` of position 0, ``.`` where it has no route."""
        if color not in self._ids:
            return f"color {color} has no route"
        cells = ["." if c is None else f"{_letters(c.rx[0])}>{_letters(c.tx[0])}" for c in self._configs[color]]
        wide = max(map(len, cells))
        return "\n".join(" ".join(cells[k].ljust(wide) for k in row).rstrip() for row in self._ids[color])


class _Check:
    """Checks over whole arrays; each finds the first PE that breaks a rule."""

    def __init__(self, layout, programs, index):
        self.layout, self.programs, self.index = layout, programs, index
        self.m = layout.machine
        n = len(programs)
        colors = self.m["router.colors"]
        self.has_in = np.zeros((colors, n + 1), bool)
        self.has_out = np.zeros((colors, n + 1), bool)
        self.runtime = np.zeros((colors, n + 1), bool)
        for k, program in enumerate(programs):
            self.has_in[[c for c in program.inq_color if c >= 0], k] = True
            self.has_out[[c for c in program.outq_color if c >= 0], k] = True
            self.runtime[sorted(_rewritten(program)), k] = True
        self.masks = {}

    def table(self, color, function):
        """Return `function` of each configuration of a color, spread over the PEs (uint8)."""
        configs = self.layout._configs.get(color)
        if configs is None:
            return np.zeros(self.index.shape, np.uint8)
        values = np.array([0 if c is None else function(c) for c in configs], np.uint8)
        return values[self.layout._ids[color]]

    def cached(self, name, color, function):
        key = name, color
        if key not in self.masks:
            self.masks[key] = self.table(color, function)
        return self.masks[key]

    def rx(self, color):
        """Return the inputs of a color, all positions together."""
        return self.cached("rx", color, lambda c: _union(c.rx) | (c.inject > 0) << DIR_R)

    def tx(self, color):
        """Return the outputs of a color, all positions together."""
        return self.cached("tx", color, lambda c: _union(c.tx))

    def swap(self, color):
        """Return the axes on which a color swaps."""
        return self.cached("swap", color, lambda c: c.swap)

    def fail(self, bad, color, what, hint, lack=""):
        """Raise a `RouteError` for the first PE of `bad`; `lack` is what its program does not do."""
        if bad.any():
            y, x = divmod(int(np.argmax(bad)), bad.shape[1])
            k = self.index[y, x]
            if lack:
                what += ", but " + (
                    f"program {self.programs[k].name!r} there {lack}"
                    if k < len(self.programs)
                    else "no program runs there"
                )
            raise RouteError(what, x=x, y=y, color=color, hint=hint.format(x=x, y=y))

    def ramp(self, color):
        """Routes from and to the CE need queues; swap needs both colors; injection its one queue."""
        layout, partner = self.layout, color ^ 1
        configs = [c for c in layout._configs[color] if c is not None]
        if any(c.swap for c in configs):
            mine, theirs = self.swap(color), self.swap(partner)
            if (mine != theirs).any():
                y, x = divmod(int(np.argmax(mine != theirs)), mine.shape[1])
                raise UnsupportedError(
                    f"PE ({x}, {y}), color {color}: swap is enabled on one color of the pair {color}, {partner} only",
                    feature="swap_one_axis_one_color",
                    cause="what the vendor's router does then is not modelled",
                    hint=f"swap=... in the route of color {partner} as well",
                )
        tx = self.tx(color)
        if any(_union(c.tx) >> DIR_R & 1 for c in configs):
            missing = (tx >> DIR_R & 1).astype(bool) & ~self.has_in[color][self.index]
            self.fail(
                missing,
                color,
                "tx has R, the ramp to the CE",
                f"p.input_queue(q, {color}), a program on that PE, or no R in tx",
                "binds no input queue to the color: a wavelet would be stuck",
            )
        if any(_union(c.rx) >> DIR_R & 1 for c in configs):
            from_ce = self.has_out[color][self.index]
            if any(c.swap == 3 for c in configs):
                from_ce = np.where(self.swap(color) == 3, self.has_out[partner][self.index], from_ce)
            plain = self.table(color, lambda c: _union(c.rx) >> DIR_R & 1).astype(bool)
            self.fail(
                plain & ~from_ce,
                color,
                "rx has R, the ramp from the CE",
                f"p.output_queue(q, {color}), a program on that PE, or no R in rx",
                "binds no output queue to the color",
            )
        if any(c.inject for c in configs):
            queue = color // 4
            right = np.zeros(len(self.programs) + 1, bool)
            for k, program in enumerate(self.programs):
                right[k] = queue < len(program.outq_color) and program.outq_color[queue] == color
            inject = self.table(color, lambda c: c.inject > 0).astype(bool)
            self.fail(
                inject & ~right[self.index],
                color,
                "CE injection of a color comes from output queue color // 4",
                f"p.output_queue({queue}, {color})",
                f"does not bind output queue {queue} to it",
            )

    def accepts(self, color, port):
        """Return where a wavelet of `color` that lands in `port` can ever leave again, or is configured at run time."""
        key = color, port
        if key not in self.masks:
            partner, axis = color ^ 1, port // 2
            rx = self.rx(color)
            if any(c is not None and c.swap for c in self.layout._configs.get(color, ())):
                rx = np.where(self.swap(color) >> axis & 1, self.rx(partner), rx)
            ok = (rx >> port & 1).astype(bool)
            ok |= self.table(color, lambda c: c.teardown).astype(bool)
            if self.runtime[color].any():
                ok |= self.runtime[color][self.index]
            self.masks[key] = ok
        return self.masks[key]

    def links(self, color):
        """Every output that is a link leads to a stream or to a neighbour that takes the color from there."""
        layout, tx = self.layout, self.tx(color)
        for d in range(4):
            out = (tx >> d & 1).astype(bool)
            if not out.any():
                continue
            dx, dy = im.STEP[d]
            letter, came = DIRS[d], DIRS[d ^ 1]
            edge = {0: np.s_[:, :1], 1: np.s_[:, -1:], 2: np.s_[:1, :], 3: np.s_[-1:, :]}[d]
            leaving = np.zeros_like(out)
            leaving[edge] = out[edge]
            for s in layout._outputs:
                if s.color == color and s.side == letter:
                    leaving[s.y, s.x] = False
            self.fail(
                leaving,
                color,
                f"tx {letter} leaves the {layout.width} x {layout.height} PEs of the layout",
                hint=f"layout.output_stream({{x}}, {{y}}, {letter!r}, {color}), or another tx on the last PE",
            )
            inner = {
                0: (np.s_[:, 1:], np.s_[:, :-1]),
                1: (np.s_[:, :-1], np.s_[:, 1:]),
                2: (np.s_[1:, :], np.s_[:-1, :]),
                3: (np.s_[:-1, :], np.s_[1:, :]),
            }[d]
            stuck = np.zeros_like(out)
            stuck[inner[0]] = out[inner[0]] & ~self.accepts(color, d ^ 1)[inner[1]]
            if stuck.any():
                y, x = divmod(int(np.argmax(stuck)), stuck.shape[1])
                has = layout._configs[color][layout._ids[color][y + dy, x + dx]]
                from_ = "" if has is None else _letters(_union(has.rx))
                what = "has no route for it" if has is None else f"takes it from {from_ or 'nowhere'} only"
                raise RouteError(
                    f"tx {letter} leads to PE ({x + dx}, {y + dy}), which {what}: a wavelet would be "
                    "stuck in its router for ever",
                    x=x,
                    y=y,
                    color=color,
                    hint=f"rx with {came} ({_NAMES[d ^ 1]}) in the route of PE ({x + dx}, {y + dy}), or "
                    f"no {letter} in this tx",
                )

    def streams(self):
        for s in self.layout._inputs:
            port = DIRS.index(s.side)
            if s.color not in self.layout._ids or not self.accepts(s.color, port)[s.y, s.x]:
                raise RouteError(
                    f"input stream on side {s.side}: the PE has no route for the color with {s.side} in rx",
                    x=s.x,
                    y=s.y,
                    color=s.color,
                    hint=f'layout.route({s.color}, ({s.x}, {s.y}), rx="{s.side}", tx=...)',
                )
        for s in self.layout._outputs:
            sends = s.color in self.layout._ids and self.tx(s.color)[s.y, s.x] >> DIRS.index(s.side) & 1
            if not sends and not self.runtime[s.color][self.index[s.y, s.x]]:
                raise RouteError(
                    f"output stream on side {s.side}: the PE has no route for the color with {s.side} in tx",
                    x=s.x,
                    y=s.y,
                    color=s.color,
                    hint=f'layout.route({s.color}, ({s.x}, {s.y}), rx=..., tx="{s.side}")',
                )


def runs(mask):
    """Yield ``((row, stop row), column, stop column)``: disjoint rectangles that cover the true entries of `mask`."""
    if mask.all():
        yield (0, mask.shape[0]), 0, mask.shape[1]
        return
    row = 0
    while row < mask.shape[0]:
        stop = row + 1
        while stop < mask.shape[0] and (mask[stop] == mask[row]).all():
            stop += 1
        edges = np.flatnonzero(np.diff(np.concatenate(([0], mask[row].view(np.int8), [0]))))
        for first, last in edges.reshape(-1, 2):
            yield (row, stop), int(first), int(last)
        row = stop


def _spread(words, shape, symbol, rect):
    """Return `words` (encoded value of the given `shape`) so that it broadcasts to (h, w, symbol.words)."""
    per = symbol.words // symbol.count
    if len(shape) < 2:
        if len(words) not in (per, symbol.words):
            raise LayoutError(
                f"set_param: {len(words) // per} values for the {symbol.count} elements of {symbol.name!r}",
                x=rect.x,
                y=rect.y,
            )
        return np.tile(words, symbol.count) if len(words) < symbol.words else words
    if shape not in ((*rect.shape, symbol.count), rect.shape if symbol.count == 1 else None):
        raise LayoutError(
            f"set_param: values of shape {shape} for {symbol.name!r} with {symbol.count} elements on "
            f"{rect.shape[0]} rows of {rect.shape[1]} PEs",
            x=rect.x,
            y=rect.y,
            hint="one value, (h, w) for scalars, or (h, w, elements)",
        )
    return words.reshape(*rect.shape, symbol.words)


def _seen_by_programs(machine):
    """Return what of a machine a program is assembled for; timing and the size of the fabric are not."""
    parts = ("mem.words", "mem.banks", "dsr.", "ut.", "queue.", "num.cb16_bias", "router.colors", "router.filters")
    return machine.preset, tuple(machine[key] for key in machine if key.startswith(parts))


def _rewritten(image):
    """Return the colors whose routes the program sets at run time."""
    return {a for _, op, a, *_ in isa.decode(image.code) if op.name == "route"}


def _directions(text, key, wrong):
    bits = 0
    for letter in text:
        if letter not in DIRS:
            raise wrong(f"{letter!r} in {key} is not a direction", "W, E, N, S or R (the ramp)")
        bits |= 1 << DIRS.index(letter)
    return bits


def _union(sets):
    bits = 0
    for value in sets:
        bits |= value
    return bits


def _letters(bits):
    return "".join(letter for d, letter in enumerate(DIRS) if bits >> d & 1)


def _describe(change):
    return ", ".join(f"{key}={value!r}" for key, value in change.items())


def _frozen(array):
    array.setflags(write=False)
    return array
