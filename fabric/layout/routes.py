"""A color is routed by calls of `Layout.route`: what each says, checked, and which PE has which of these.

Painting works on one small number per PE and color, the number of a configuration, and so does what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fabric.layout.rectangles import Rect
from wse_core import image as im
from wse_core.errors import RouteError
from wse_core.image import DIR_R, DIRS
from wse_core.params import Machine

__all__ = ["Config", "Painting", "RouteCall", "frozen", "letters", "to_host", "union"]

_INJECT = {None: 0, False: 0, "low": 1, "high": 2}
_MAX_POSITIONS = im.ROUTE_DTYPE["rx"].shape[0]


@dataclass(frozen=True)
class Config:
    """A `Config` is the routing of one color as given by one call of `Layout.route`; tuples per position."""

    rx: tuple[int, ...]
    tx: tuple[int, ...]
    pos: int
    ring: bool
    pop: int
    teardown: bool
    swap: int
    inject: int
    has_filter: bool

    def row(self) -> np.ndarray:
        """Return it as one record of ROUTE_DTYPE."""
        record = np.zeros((), im.ROUTE_DTYPE)
        record["rx"][: len(self.rx)] = self.rx
        record["tx"][: len(self.tx)] = self.tx
        record["valid"] = (1 << len(self.rx)) - 1
        record["pos"], record["ring"], record["pop"] = self.pos, self.ring, self.pop
        record["teardown"], record["swap"], record["inject"] = self.teardown, self.swap, self.inject
        return record


@dataclass(frozen=True)
class RouteCall:
    """The arguments of one call of `Layout.route`; `config` checks them and returns a `Config`."""

    machine: Machine
    color: int
    rect: Rect
    rx: str = ""
    tx: str = ""
    switches: Sequence[Mapping[str, str]] | Mapping[str, str] = ()
    ring: bool = False
    pop: str = "no_pop"
    pos: int = 0
    teardown: bool = False
    swap: str = ""
    inject: str | None = None
    has_filter: bool = False

    def config(self) -> Config:
        """Return the configuration, or refuse what the machine cannot do."""
        self._check_color()
        self._check_words()
        sets = self._positions()
        if not self.teardown:
            self._check_directions(sets)
        if not 0 <= self.pos < len(sets):
            raise self._wrong(f"the start position {self.pos} is not one of the {len(sets)} positions")
        self._check_machine(sets)
        return Config(
            tuple(i for i, _ in sets),
            tuple(o for _, o in sets),
            int(self.pos),
            bool(self.ring),
            im.POP_MODES.index(self.pop),
            bool(self.teardown),
            ("x" in self.swap) | ("y" in self.swap) << 1,
            _INJECT[self.inject],
            self.has_filter,
        )

    def _wrong(self, what: str, hint: str | None = None) -> RouteError:
        return RouteError(what, x=self.rect.x, y=self.rect.y, color=self.color, hint=hint)

    def _check_color(self) -> None:
        color, m = self.color, self.machine
        if not isinstance(color, (int, np.integer)) or not 0 <= color < m["router.colors"]:
            needed = int(color) + 1 if isinstance(color, (int, np.integer)) else None
            raise RouteError(
                f"color {color!r} does not exist on {m.preset}",
                x=self.rect.x,
                y=self.rect.y,
                limit="routes",
                needed=needed,
                available=m["router.colors"],
                hint=f"colors 0 .. {m['router.colors'] - 1}",
            )

    def _check_words(self) -> None:
        if self.inject not in _INJECT:
            raise self._wrong(f"inject {self.inject!r} is unknown", 'None, "low" or "high"')
        if self.pop not in im.POP_MODES:
            raise self._wrong(f"pop mode {self.pop!r} is unknown", ", ".join(im.POP_MODES))
        if not set(self.swap) <= set("xy"):
            raise self._wrong(f"swap {self.swap!r} is unknown", '"x", "y" or "xy"')

    def _positions(self) -> list[tuple[int, int]]:
        """Return (inputs, outputs) of every switch position."""
        sets = [(self._directions(self.rx, "rx"), self._directions(self.tx, "tx"))]
        switches = [self.switches] if isinstance(self.switches, Mapping) else list(self.switches)
        if len(switches) >= _MAX_POSITIONS:
            raise self._wrong(f"{len(switches)} switch positions besides position 0; a router has {_MAX_POSITIONS - 1}")
        for number, change in enumerate(switches, 1):
            unknown = set(change) - {"rx", "tx"}
            if unknown or not change:
                raise self._wrong(
                    f"switch position {number}: {dict(change)!r} changes neither rx nor tx",
                    'dict(rx="E") or dict(tx="R")',
                )
            if self.machine["switch.one_direction"] and (len(change) > 1 or len(next(iter(change.values()))) != 1):
                raise self._wrong(
                    f"switch position {number}: {_describe(change)}; on {self.machine.preset} a position "
                    "changes one of rx or tx, to a single direction",
                    'dict(rx="E") or dict(tx="R")',
                )
            sets.append(
                (
                    self._directions(change["rx"], "rx") if "rx" in change else sets[0][0],
                    self._directions(change["tx"], "tx") if "tx" in change else sets[0][1],
                )
            )
        return sets

    def _directions(self, text: str, key: str) -> int:
        bits = 0
        for letter in text:
            if letter not in DIRS:
                raise self._wrong(f"{letter!r} in {key} is not a direction", "W, E, N, S or R (the ramp)")
            bits |= 1 << DIRS.index(letter)
        return bits

    def _check_directions(self, sets: list[tuple[int, int]]) -> None:
        for number, (inputs, outputs) in enumerate(sets):
            where = f"switch position {number}: " if number else ""
            if not inputs and not _INJECT[self.inject]:
                raise self._wrong(f"{where}rx is empty", "the directions that wavelets of this color come from")
            if not outputs and not inputs >> DIR_R & 1:
                raise self._wrong(f"{where}tx is empty", "the directions that wavelets of this color go to")

    def _check_machine(self, sets: list[tuple[int, int]]) -> None:
        """Refuse what the machine lacks."""
        m, color, inject = self.machine, self.color, _INJECT[self.inject]
        most = m["inputs.per_position"]
        if any(bin(inputs).count("1") > most for inputs, _ in sets):
            count = "one" if most == 1 else most
            what = f"rx {self.rx!r} has more than {count} direction{'s' * (most > 1)}, {m.preset} allows {count}"
            raise self._wrong(what, "a color per input")
        if len(sets) > 1 and color not in m["switch.colors"]:
            raise self._wrong(f"this color has no switch on {m.preset}", f"one of {sorted(m['switch.colors'])}")
        if self.swap and not m["router.swap"]:
            raise self._wrong(f"{m.preset} has no color swap")
        if inject and not m["router.injection"]:
            raise self._wrong(f"{m.preset} has no CE injection")
        if inject and color // 4 not in [k for k, depth in enumerate(self.machine["queue.out_depth"]) if depth]:
            raise self._wrong(
                f"CE injection of color {color} comes from output queue {color // 4}, which does not exist"
            )


class Painting:
    """A `Painting` says which configuration each PE of a layout has, per color."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.ids: dict[int, np.ndarray] = {}  # color -> number of the configuration per PE, 0 = none
        self.configs: dict[int, list[Config | None]] = {}

    def paint(self, color: int, rect: Rect, config: Config) -> None:
        """Give the PEs of a rectangle a configuration."""
        if color not in self.ids:
            self.ids[color] = np.zeros((self.height, self.width), np.uint8)
            self.configs[color] = [None]
        table = self.configs[color]
        if config not in table:
            if len(table) == 255:
                self.ids[color] = self.ids[color].astype(np.uint16)
            table.append(config)
        self.ids[color][rect.slices] = table.index(config)

    def of(self, color: int) -> list[Config]:
        """Return the configurations of a color."""
        return [c for c in self.configs.get(color, ()) if c is not None]

    def at(self, color: int, x: int, y: int) -> Config | None:
        """Return the configuration of a color at a PE."""
        return self.configs[color][self.ids[color][y, x]]

    def spread(self, color: int, function: Callable[[Config], int]) -> np.ndarray:
        """Return `function` of each configuration of a color, spread over the PEs (uint8)."""
        configs = self.configs.get(color)
        if configs is None:
            return np.zeros((self.height, self.width), np.uint8)
        values = np.array([0 if c is None else function(c) for c in configs], np.uint8)
        return np.take(values, self.ids[color])  # half the time of an index

    def table(self, color: int) -> im.RouteTable:
        """Return the routes of a color; what is painted later does not change them."""
        configs = self.configs.get(color, [None])
        kinds = np.zeros(len(configs), im.ROUTE_DTYPE)
        for k, config in enumerate(configs):
            if config is not None:
                kinds[k] = config.row()
        ids = self.ids.get(color)
        return im.RouteTable(kinds, np.zeros((self.height, self.width), np.uint8) if ids is None else ids.copy())

    def picture(self, color: int) -> str:
        """Return a text picture of a color; see `Layout.picture`."""
        if color not in self.ids:
            return f"color {color} has no route"
        cells = ["." if c is None else f"{letters(c.rx[0])}>{letters(c.tx[0])}" for c in self.configs[color]]
        wide = max(map(len, cells))
        return "\n".join(" ".join(cells[k].ljust(wide) for k in row).rstrip() for row in self.ids[color])


def union(sets: Iterable[int]) -> int:
    """Return the directions of all positions together."""
    bits = 0
    for value in sets:
        bits |= value
    return bits


def to_host(config: Config) -> bool:
    """Whether some position sends what comes from the CE nowhere: the host takes it, if it is attached to the ramp."""
    return not config.teardown and any(i >> DIR_R & 1 and not o for i, o in zip(config.rx, config.tx, strict=True))


def letters(bits: int) -> str:
    """Return directions as letters."""
    return "".join(letter for d, letter in enumerate(DIRS) if bits >> d & 1)


def frozen(array: np.ndarray) -> np.ndarray:
    """Return `array`, made read-only."""
    array.setflags(write=False)
    return array


def _describe(change: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in change.items())
