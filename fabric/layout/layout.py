"""A layout is a rectangle of PEs: which program runs where, how each color is routed, what the host attaches.

A `Layout` is painted: `Layout.place` and `Layout.route` cover rectangles, later calls paint over earlier ones.
`Layout.build` checks the whole picture and returns the `wse_core.image.FabricSpec` that a machine is made from.

Painting and checking work on one small number per PE and color (the number of a configuration), so both cost a few
passes over an array of bytes per color, also for a whole wafer; what is built has the same numbers.

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fabric.layout.classes import occurring
from fabric.layout.filters import Filters
from fabric.layout.parameters import Write, writes_of
from fabric.layout.part import LayoutPart
from fabric.layout.rectangles import Rect, RectLike, rect_within
from fabric.layout.routes import Painting, RouteCall, frozen
from fabric.layout.streams import Side, Stream, Streams
from fabric.layout.validation import LayoutCheck
from fabric.program.program import Program
from wse_core.errors import LayoutError
from wse_core.image import DIRS, FabricSpec, ProgramImage
from wse_core.params import Machine
from wse_core.params import machine as _machine

__all__ = ["Layout"]


class Layout:
    """A layout says which programs and routes the PEs of a rectangle have.

    Parameters
    ----------
    width, height : int
        PEs along x (east) and y (south).
    machine : Machine, optional
        `wse_core.params.machine()`; default wse2.  Its ``fabric.width`` and ``fabric.height`` limit the size.

    Examples
    --------
    >>> from fabric import Layout, Program
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

    def __init__(self, width: int, height: int, machine: Machine | None = None) -> None:
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
        self._programs: list[Program | ProgramImage] = []
        self._index = np.full((self.height, self.width), -1, np.int16)
        self._painting = Painting(self.width, self.height)
        self._filters = Filters(self.width, self.height)
        self._streams = Streams(self.width, self.height, self.machine["router.colors"])
        self._params: list[tuple[str, ArrayLike, Rect]] = []
        self._spec: FabricSpec | None = None

    def __repr__(self) -> str:
        colors = sorted(self._painting.ids)
        return f"Layout({self.width} x {self.height}, {len(self._programs)} programs, colors {colors})"

    # --- rectangles -----------------------------------------------------------------------------------------------

    def rect(self, rect: RectLike | None, what: str = "rectangle") -> Rect:
        """Return `rect` as a `Rect`: (x, y), (x, y, w, h), (x, y, w, h, sx, sy), a `Rect`, or None for all PEs."""
        if rect is None:
            return Rect(0, 0, self.width, self.height)
        return rect_within(rect, self.width, self.height, what)

    def part(self, rect: RectLike) -> LayoutPart:
        """Return a rectangle of the layout that is painted as if it were a layout of its own.

        Parameters
        ----------
        rect : tuple
            See `rect`; without steps.

        Raises
        ------
        LayoutError
            The rectangle leaves the layout or has steps.
        """
        found = self.rect(rect, "part")
        if (found.sx, found.sy) != (1, 1):
            raise LayoutError(f"part {tuple(found)} has steps", hint="a rectangle (x, y, w, h)")
        return LayoutPart(self, found)

    def _changing(self) -> None:
        if self._spec is not None:
            raise LayoutError("the layout is built and cannot be changed any more", hint="build() last")

    def place(
        self, program: Program | ProgramImage, x: int | RectLike, y: int | None = None, w: int = 1, h: int = 1
    ) -> None:
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
        given: Any = x if y is None else (x, y, w, h)
        rect = self.rect(given, "place")
        region = self._index[rect.slices]
        if (region >= 0).any():
            row, column = np.argwhere(region >= 0)[0]
            self._overlap(program, int(rect.x + column * rect.sx), int(rect.y + row * rect.sy))
        region[...] = self._number(program)

    @property
    def programs(self) -> tuple[Program | ProgramImage, ...]:
        """These programs are placed, in the order in which the specification numbers them."""
        return tuple(self._programs)

    def place_each(self, programs: Sequence[Program | ProgramImage], which: np.ndarray, x: int = 0, y: int = 0) -> None:
        """Run ``programs[which[j, i]]`` on PE (x + i, y + j); none where the number is negative.

        Many programs that alternate are placed by one call and a few passes over the rectangle.

        Parameters
        ----------
        programs : sequence of Program or ProgramImage
        which : ndarray of int, shape (h, w)
            Numbers of programs from -1 on.
        x, y : int
            PE of the first number.

        Raises
        ------
        LayoutError
            As `place`.
        """
        self._changing()
        which = np.asarray(which)
        if which.ndim != 2 or which.dtype.kind not in "iu" or which.min(initial=-1) < -1:
            raise LayoutError("place_each takes a two-dimensional array of numbers of programs from -1 on")
        rect = self.rect((x, y, which.shape[1], which.shape[0]), "place_each")
        if which.max(initial=-1) >= len(programs):
            raise LayoutError(f"place_each: number {which.max()} of {len(programs)} programs", x=rect.x, y=rect.y)
        table = np.full(len(programs) + 1, -1, np.int16)  # the last one stands for -1
        region = self._index[rect.slices]
        taken = (region >= 0) & (which >= 0)
        if taken.any():
            row, column = np.argwhere(taken)[0]
            self._overlap(programs[which[row, column]], rect.x + int(column), rect.y + int(row))
        for k in occurring(which):
            if k >= 0:
                table[k] = self._number(programs[k])
        region[...] = np.where(which >= 0, table[which], region)

    def _number(self, program: Program | ProgramImage) -> int:
        """Return the number of a program, entering it if it is new; refuse one for another machine."""
        if (
            isinstance(program, Program)
            and program.machine is not self.machine
            and _seen_by_programs(program.machine) != _seen_by_programs(self.machine)
        ):
            raise LayoutError(
                f"program {program.name!r} is written for {program.machine!r}, the layout is one of {self.machine!r}",
                hint="Program(name, machine) with the layout's machine",
            )
        number = next((k for k, known in enumerate(self._programs) if known is program), None)
        if number is None:
            number = len(self._programs)
            self._programs.append(program)
        return number

    def _overlap(self, program: Program | ProgramImage, x: int, y: int) -> None:
        other = self._programs[self._index[y, x]]
        raise LayoutError(f"programs {other.name!r} and {program.name!r} overlap", x=x, y=y)

    # --- routes ---------------------------------------------------------------------------------------------------

    def route(
        self,
        color: int,
        rect: RectLike | None = None,
        rx: str = "",
        tx: str = "",
        switches: Sequence[Mapping[str, str]] | Mapping[str, str] = (),
        ring: bool = False,
        pop: Literal["no_pop", "always_pop", "pop_on_advance", "pop_on_advance_nop"] = "no_pop",
        pos: int = 0,
        teardown: bool = False,
        filter: Mapping[str, Any] | None = None,
        swap: str = "",
        inject: Literal["low", "high"] | None = None,
    ) -> None:
        """Paint the routing of a color over a rectangle.

        Parameters
        ----------
        color : int
        rect : tuple, optional
            See `rect`; default all PEs.
        rx, tx : str
            Input and output directions of position 0, letters of W E N S R.  An empty `tx` sends what the CE sends to
            the host (`output_stream` with side R).
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
        more = {"ring": ring, "pop": pop, "pos": pos, "teardown": teardown, "swap": swap, "inject": inject}
        self.route_each(color, [rect], rx, tx, switches, filter=filter, **more)

    def route_each(
        self,
        color: int,
        rects: Iterable[RectLike | None],
        rx: str = "",
        tx: str = "",
        switches: Sequence[Mapping[str, str]] | Mapping[str, str] = (),
        filter: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Paint the same routing of a color over many rectangles, in order; it is checked once.

        Parameters
        ----------
        color : int
        rects : iterable of tuple
            See `rect`.
        rx, tx, switches, filter, **more
            As `route`.

        Raises
        ------
        RouteError, LayoutError, UnsupportedError
        """
        self._changing()
        config = None
        for rect in rects:
            where = self.rect(rect, f"route of color {color}")
            if config is None:
                has_filter = filter is not None
                config = RouteCall(self.machine, color, where, rx, tx, switches, has_filter=has_filter, **more).config()
            if filter is not None:
                self._filters.paint(color, where, filter)
            self._painting.paint(color, where, config)

    # --- parameters and streams -----------------------------------------------------------------------------------

    def set_param(self, name: str, value: ArrayLike, rect: RectLike | None = None) -> None:
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

    def input_stream(self, x: int, y: int, side: Side, color: int) -> Stream:
        """Attach the host to a PE: it sends wavelets of `color` into PE (x, y) from a side.

        Parameters
        ----------
        x, y : int
        side : {"W", "E", "N", "S", "R"}
            W, E, N, S: a side at the edge of the layout, where a route takes the color from.  R: down the ramp of any
            PE, into the input queue that its program binds to the color; no route is needed.
        color : int

        Raises
        ------
        LayoutError, RouteError
        """
        self._changing()
        return self._streams.attach("input", x, y, side, color)

    def output_stream(self, x: int, y: int, side: Side, color: int) -> Stream:
        """Attach the host to a PE: it takes the wavelets of `color` that PE (x, y) sends to a side.

        Parameters
        ----------
        x, y : int
        side : {"W", "E", "N", "S", "R"}
            W, E, N, S: a side at the edge of the layout, to which a route leads.  R: the ramp of any PE; the host takes
            what its CE sends where the route has ``rx="R"`` and an empty `tx`.
        color : int

        Raises
        ------
        LayoutError, RouteError
        """
        self._changing()
        return self._streams.attach("output", x, y, side, color)

    # --- building -------------------------------------------------------------------------------------------------

    def build(self) -> FabricSpec:
        """Check everything and return the `FabricSpec`; the layout cannot be changed any more.

        Raises
        ------
        RouteError, LayoutError, ProgramError, UnsupportedError
        """
        if self._spec is None:
            self._spec = self._build()
        return self._spec

    def _build(self) -> FabricSpec:
        programs = tuple(p.assemble() if isinstance(p, Program) else p for p in self._programs)
        LayoutCheck(self.machine, self._painting, self._streams, programs, self._index).all()
        filters, slots = self._filters.build(self._painting, self.machine["router.filters"])
        routes = {}
        bound = {c for p in programs for c in (*p.inq_color, *p.outq_color) if c >= 0}
        for color in sorted(bound | set(self._painting.ids)):
            table = self._painting.table(color)
            routes[color] = table.filtered(slots[color]) if color in slots else table
        for name, value, rect in self._params:
            writes_of(programs, self._index, name, value, rect, self.machine["num.cb16_bias"])
        return FabricSpec(
            machine=self.machine,
            width=self.width,
            height=self.height,
            programs=programs,
            program_index=frozen(self._index),
            routes=routes,
            filters=filters,
            inputs=tuple((s.x, s.y, DIRS.index(s.side), s.color) for s in self._streams.inputs),
            outputs=tuple((s.x, s.y, DIRS.index(s.side), s.color) for s in self._streams.outputs),
        )

    def param_writes(self) -> Iterator[Write]:
        """Yield ``(address, words, x, y)`` with words of shape (h, w, n): what `set_param` puts into SRAM."""
        programs = self.build().programs
        for name, value, rect in self._params:
            yield from writes_of(programs, self._index, name, value, rect, self.machine["num.cb16_bias"])

    # --- pictures -------------------------------------------------------------------------------------------------

    def picture(self, color: int) -> str:
        """Return a text picture of a color: per PE ``inputs>outputs`` of position 0, ``.`` where it has no route."""
        return self._painting.picture(color)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: programs and the routes of each color, drawn."""
        from fabric.layout.picture import Scene, html

        names = [program.name for program in self._programs]
        return html(Scene(repr(self), names, self._index, self._painting, self._streams))


def _seen_by_programs(machine: Machine) -> tuple:
    """Return what of a machine a program is assembled for; timing and the size of the fabric are not."""
    parts = (
        "mem.words",
        "mem.banks",
        "dsr.",
        "ut.",
        "queue.",
        "num.cb16_bias",
        "router.colors",
        "router.filters",
        "lanes.",
    )
    return tuple(machine[key] for key in machine if key.startswith(parts))
