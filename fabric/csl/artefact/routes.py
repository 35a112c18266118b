"""The routes of a compiled layout are those that layout and programs say, and the ways of the host's streams.

A stream's color belongs to the host inside of the rectangle: the program only takes or sends its wavelets.  Where a PE
of the rectangle's edge uses it, the host's link is its outer side; a PE inside is reached in a straight line over PEs
that do not use the color, or, where PEs on all sides do, over its own ramp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.csl.compile import Compiled
from fabric.csl.comptime.colors import ColorConfig
from fabric.csl.diagnostics import Fault, Span
from wse_core import image as im
from wse_core.image import DIRS, STEP

__all__ = ["Routing"]

LETTER = {"NORTH": "N", "SOUTH": "S", "EAST": "E", "WEST": "W", "RAMP": "R"}
POPS = {"no_pop": 0, "always_pop": 1, "pop_on_advance": 2, "pop_on_header": 3}
RAMP = 1 << im.DIR_R
COUNTER = {"init_counter": "counter", "max_counter": "max", "limit1": "limit"}
SIDES = "WNES"


def bits_of(names: tuple[str, ...]) -> int:
    """Return directions as a set."""
    return sum(1 << DIRS.index(LETTER[name]) for name in names)


class Routing:
    """Makes the routes of a compiled layout."""

    def __init__(self, made: Compiled, index: np.ndarray, images: list[Any], host: list[Any]) -> None:
        self.made, self.index, self.images, self.host = made, index, images, host
        self.height, self.width = index.shape
        self.routes: dict[int, np.ndarray] = {}
        self.filters: np.ndarray | None = None
        self.inputs: list[tuple[int, int, int, int]] = []
        self.outputs: list[tuple[int, int, int, int]] = []
        self.streams: dict[str, list[tuple[int, int, int]]] = {"inputs": [], "outputs": []}
        self._filter_rows: dict[int, np.ndarray] = {}

    def all(self) -> None:
        """Make the routes, the host's streams and the filters, and check them."""
        layout = self.made.checked.layout
        if layout is not None:
            records = [self._record(config, layout.span) for config in layout.configs]
            for color, grid in layout.routes.items():
                for number, config in enumerate(layout.configs):
                    if (grid == number).any():
                        self._check(color, config, layout.span)
                    self._paint(color, grid == number, records[number], config)
        for number, program in enumerate(self.made.checked.programs):
            for color, (config, span) in program.unit.configs.items():
                self._check(color, config, span)
                self._paint(color, self.index == number, self._record(config, span), config)
        for image in self.images:
            for color in (*image.inq_color, *image.outq_color):
                if color >= 0:
                    self._table(color)
        self._streams()
        self._leaving()
        self._number_filters()
        for table in self.routes.values():
            table.setflags(write=False)

    def _table(self, color: int) -> np.ndarray:
        if color not in self.routes:
            self.routes[color] = np.zeros((self.height, self.width), im.ROUTE_DTYPE)
        return self.routes[color]

    def _check(self, color: int, config: ColorConfig, span: Span | None) -> None:
        """Refuse what the routers of the architecture do not have."""
        m = self.made.machine
        inputs = max(map(len, (config.rx, *(position.rx or () for position in config.positions))))
        if inputs > m["inputs.per_position"]:
            what = f"color {color} takes from {inputs} directions at once; on {m.preset} a position has one input"
            raise Fault(what, span, "switch positions take turns")
        if config.positions and color not in m["switch.colors"]:
            colors = ", ".join(map(str, sorted(m["switch.colors"])))
            raise Fault(f"color {color} has no switch on {m.preset}", span, f"colors with one: {colors}")
        if config.swap and not m["router.swap"]:
            raise Fault(f"{m.preset} has no color swap", span, "another color for the way on")

    def _paint(self, color: int, where: np.ndarray, record: np.ndarray, config: ColorConfig) -> None:
        self._table(color)[where] = record
        if config.filter is not None:
            rows = self._filter_rows.setdefault(color, np.zeros((self.height, self.width), im.FILTER_DTYPE))
            rows[where] = self._filter(config)

    def _record(self, config: ColorConfig, span: Span | None) -> np.ndarray:
        record = np.zeros((), im.ROUTE_DTYPE)
        rx, tx = bits_of(config.rx), bits_of(config.tx)
        record["rx"][0], record["tx"][0] = rx, tx
        # What a position does not say is as in the one before it: public programs (Cholesky) send from a position that
        # only changes rx, and their own wavelets do not come back to them, as the tx of position 0 would have it.
        for k, position in enumerate(config.positions, 1):
            rx = rx if position.rx is None else bits_of(position.rx)
            tx = tx if position.tx is None else bits_of(position.tx)
            record["rx"][k], record["tx"][k] = rx, tx
        valid = 1
        for k, position in enumerate(config.positions, 1):
            if position.rx is None and position.tx is None:
                break
            valid |= 1 << k
        record["valid"] = valid
        record["pos"], record["ring"], record["pop"] = config.current, config.ring, POPS[config.pop]
        record["teardown"] = config.teardown
        record["swap"] = config.swap
        return record

    def _filter(self, config: ColorConfig) -> np.ndarray:
        given = config.filter
        assert given is not None
        row = np.zeros((), im.FILTER_DTYPE)
        row["kind"] = im.FILTER_COUNTER if given.kind == "counter" else im.FILTER_RANGE
        row["count_data"] = 1
        for name, number in given.fields:
            if name == "fast_mode":
                continue
            row[COUNTER.get(name, name)] = number
        return row

    def _number_filters(self) -> None:
        """Give each color's filter its place among those of its PE: in the order of the colors."""
        if not self._filter_rows:
            return
        used = np.zeros((self.height, self.width), np.uint8)
        places: dict[int, np.ndarray] = {}
        for color in sorted(self._filter_rows):
            has = self._filter_rows[color]["kind"] > 0
            used += has
            places[color] = np.where(has, used, 0).astype(np.uint8)
        self.filters = np.zeros((self.height, self.width, int(used.max())), im.FILTER_DTYPE)
        for color, place in places.items():
            self.routes[color]["filter"] = place
            for k in range(self.filters.shape[2]):
                here = place == k + 1
                self.filters[here, k] = self._filter_rows[color][here]
        self.filters.setflags(write=False)

    # ---- the host's streams

    def _streams(self) -> None:
        inputs: set[int] = set()
        outputs: set[int] = set()
        for program in self.host:
            inputs.update(program.inputs)
            outputs.update(program.outputs)
        for color in sorted(inputs):
            self._stream(color, "inputs")
        for color in sorted(outputs):
            self._stream(color, "outputs")

    def _users(self, color: int, kind: str) -> np.ndarray:
        queues = "inq_color" if kind == "inputs" else "outq_color"
        uses = np.array([color in getattr(image, queues) for image in self.images] or [False])
        return np.where(self.index >= 0, uses[self.index], False)

    def _stream(self, color: int, kind: str) -> None:
        users = self._users(color, kind)
        table = self._table(color)
        for y, x in np.argwhere(users):
            y, x = int(y), int(x)
            found = None
            for side in SIDES:
                path = self._path(users, table, x, y, side)
                if path is not None and (found is None or len(path) < len(found[1])):
                    found = side, path
            if found is None:
                self._ramp(table, color, kind, x, y)
                continue
            side, path = found
            self._lay(table, color, kind, x, y, side, path)

    def _path(self, users: np.ndarray, table: np.ndarray, x: int, y: int, side: str) -> list[tuple[int, int]] | None:
        """Return the PEs between a PE and a side, None if one of them uses the color."""
        dx, dy = STEP[DIRS.index(side)]
        path = []
        x, y = x + dx, y + dy
        while 0 <= x < self.width and 0 <= y < self.height:
            if users[y, x] or table[y, x]["valid"]:
                return None
            path.append((x, y))
            x, y = x + dx, y + dy
        return path

    def _lay(
        self, table: np.ndarray, color: int, kind: str, x: int, y: int, side: str, path: list[tuple[int, int]]
    ) -> None:
        out = DIRS.index(side)
        back = out ^ 1
        at = (x, y)
        for (px, py), own in [((x, y), True), *((place, False) for place in path)]:
            if kind == "inputs":
                rx, tx = 1 << out, RAMP if own else 1 << back
            else:
                rx, tx = RAMP if own else 1 << back, 1 << out
            row = table[py, px]
            row["rx"][0], row["tx"][0] = rx, tx
            row["valid"] = 1
            at = (px, py)
        link = (*at, out, color)
        (self.inputs if kind == "inputs" else self.outputs).append(link)
        self.streams[kind].append((x, y, color))

    def _ramp(self, table: np.ndarray, color: int, kind: str, x: int, y: int) -> None:
        """Attach the host to the ramp of a PE; what the program itself does with the color there stays."""
        if table[y, x]["valid"]:
            return
        if kind == "outputs":
            table[y, x]["rx"][0], table[y, x]["valid"] = RAMP, 1
        (self.inputs if kind == "inputs" else self.outputs).append((x, y, im.DIR_R, color))
        self.streams[kind].append((x, y, color))

    def _leaving(self) -> None:
        """Attach the host where a route leaves the rectangle: the vendor's frame around it takes what comes."""
        known = set(self.outputs)
        for color, table in self.routes.items():
            tx = np.bitwise_or.reduce(table["tx"], axis=-1)
            edges = (
                (0, [(0, y) for y in range(self.height)]),
                (1, [(self.width - 1, y) for y in range(self.height)]),
                (2, [(x, 0) for x in range(self.width)]),
                (3, [(x, self.height - 1) for x in range(self.width)]),
            )
            for direction, places in edges:
                for x, y in places:
                    link = (x, y, direction, color)
                    if tx[y, x] >> direction & 1 and link not in known:
                        self.outputs.append(link)
                        self.streams["outputs"].append((-1, -1, color))
