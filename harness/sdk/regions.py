"""An `SdkLayout` is made by the host's script of regions, ports and connections, without a layout block.

A region is a rectangle of PEs with one source file.  Colors are objects; `SdkLayout.compile` finds ways for
connections and streams, gives the colors their numbers (`harness.sdk.ways`), compiles each region and puts them
together on one fabric.  What the vendor leaves open is settled here: the shortest way is taken, a stream enters or
leaves at the edge of the fabric that is nearest to its port, without PEs of its own, and one column and row behind the
last region are part of the fabric.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.sdk.geometry import IntRectangle, IntVector
from harness.sdk.ways import Place
from wse_core.encoding import N_COLORS
from wse_core.errors import ConfigError, LayoutError, UnsupportedError

__all__ = [
    "CodeRegion",
    "Color",
    "Edge",
    "EdgeRouting",
    "Port",
    "RegionEdge",
    "Route",
    "RoutingPosition",
    "SdkCompileArtifacts",
    "SdkExtent",
    "get_edge_routing",
]


class Route(enum.IntEnum):
    """A `Route` is a direction of a router: the ramp, or a neighbour."""

    RAMP = 0
    EAST = 1
    WEST = 2
    NORTH = 3
    SOUTH = 4


class RegionEdge(enum.IntEnum):
    """A `RegionEdge` is a side of a region."""

    TOP = 0
    BOTTOM = 1
    LEFT = 2
    RIGHT = 3


SIDE = {
    RegionEdge.TOP: Route.NORTH,
    RegionEdge.BOTTOM: Route.SOUTH,
    RegionEdge.LEFT: Route.WEST,
    RegionEdge.RIGHT: Route.EAST,
}
"""This is the side of its region on which an edge is."""


class Color:
    """A `Color` is a name whose number is found when the layout is compiled, or given.

    Parameters
    ----------
    name : str
        That of the param which takes its number.
    value : int, optional
        The number; without one, the layout finds it.
    """

    def __init__(self, name: str, value: int | None = None, region: str = "") -> None:
        if value is not None and not 0 <= int(value) < N_COLORS:
            raise ConfigError(f"the color '{name}' has the value {value}; there are 0 to {N_COLORS - 1}")
        self.name, self.fixed, self.region = str(name), None if value is None else int(value), region
        self.value = self.fixed

    def __repr__(self) -> str:
        return f"Color({self.get_global_name()!r}, {self.value})"

    def get_global_name(self) -> str:
        """Return its name in the whole layout."""
        return f"{self.region}_{self.name}" if self.region else self.name

    def get_local_param_name(self) -> str:
        """Return the name of the param that takes its number."""
        return self.name

    def get_value(self) -> int:
        """Return its number, which is known once the layout is compiled.

        Raises
        ------
        ConfigError
            It is not known yet.
        """
        if self.value is None:
            raise ConfigError(f"the color '{self.name}' has no number before the layout is compiled")
        return self.value


class RoutingPosition:
    """A `RoutingPosition` is what a switch position takes from and sends to; its setters return it."""

    def __init__(self) -> None:
        self.inputs: tuple[Route, ...] = ()
        self.outputs: tuple[Route, ...] = ()

    def set_input(self, routes: Sequence[Route]) -> RoutingPosition:
        """Take from these directions."""
        self.inputs = _directions(routes)
        return self

    def set_output(self, routes: Sequence[Route]) -> RoutingPosition:
        """Send to these directions."""
        self.outputs = _directions(routes)
        return self

    def add_input(self, route: Route) -> RoutingPosition:
        """Take from this direction too."""
        return self.set_input([*self.inputs, route])

    def add_output(self, route: Route) -> RoutingPosition:
        """Send to this direction too."""
        return self.set_output([*self.outputs, route])

    def get_input(self) -> list[Route]:
        """Return the directions that it takes from."""
        return list(self.inputs)

    def get_output(self) -> list[Route]:
        """Return the directions that it sends to."""
        return list(self.outputs)


def _directions(routes: Sequence[Route]) -> tuple[Route, ...]:
    found = tuple(map(Route, [routes] if isinstance(routes, Route) else routes))
    if len(set(found)) < len(found):
        raise ConfigError(f"a direction stands twice in {[route.name for route in found]}")
    return found


@dataclass(frozen=True)
class EdgeRouting:
    """An `EdgeRouting` replaces, on the PEs of an edge, the positions of a color."""

    edge: RegionEdge
    positions: tuple[RoutingPosition, ...]


def get_edge_routing(edge: RegionEdge, positions: Sequence[RoutingPosition]) -> EdgeRouting:
    """Return positions of a color for the PEs of an edge."""
    return EdgeRouting(RegionEdge(edge), tuple(positions))


@dataclass(eq=False)
class Port:
    """A `Port` is an edge of a region, over which a color comes in or goes out.

    Attributes
    ----------
    region : CodeRegion
    color : Color
    edge : RegionEdge
    positions : tuple of RoutingPosition
        Their other half is the edge's direction.
    size : int
        Words of 32 bits that pass it, all its PEs together.
    name : str
    is_input : bool
    """

    region: CodeRegion
    color: Color
    edge: RegionEdge
    positions: tuple[RoutingPosition, ...]
    size: int
    name: str
    is_input: bool

    def places(self) -> list[Place]:
        """Return its PEs within the region, from the west or the north on."""
        return list(self.region.edge_places(self.edge))

    def filled(self) -> tuple[RoutingPosition, ...]:
        """Return its positions, both halves."""
        found = []
        for position in self.positions:
            made = RoutingPosition().set_input(position.inputs).set_output(position.outputs)
            given = position.inputs if self.is_input else position.outputs
            if given:
                half = "inputs" if self.is_input else "outputs"
                raise ConfigError(
                    f"the port {self.name} names {half}; they are those of its edge", hint="leave them out"
                )
            (made.set_input if self.is_input else made.set_output)([SIDE[self.edge]])
            found.append(made)
        return tuple(found)


@dataclass(eq=False)
class SdkExtent:
    """An `SdkExtent` is what `hstack` and `vstack` return: regions that move together."""

    regions: list[CodeRegion]
    x: int = 0
    y: int = 0
    width: int = 0
    height: int = 0

    def place(self, x: int, y: int) -> None:
        """Move its upper left PE to a place."""
        for region in self.regions:
            region.place(region.x + x - self.x, region.y + y - self.y)
        self.x, self.y = x, y


class CodeRegion:
    """A `CodeRegion` is a rectangle of PEs that run one source; `SdkLayout.create_code_region` makes it."""

    def __init__(self, source: str, name: str, width: int, height: int) -> None:
        self.source, self.name = Path(source), str(name)
        self.width, self.height = int(width), int(height)
        if min(self.width, self.height) < 1:
            raise ConfigError(f"the region '{name}' has {width} x {height} PEs")
        self.x = self.y = 0
        self.params: dict[Place, dict[str, int | Color]] = {place: {} for place in self.all_places()}
        self.paints: dict[tuple[Color, Place], tuple[RoutingPosition, ...]] = {}
        self.ports: list[Port] = []
        self.symbols: dict[str, NDArray[Any]] = {}
        self._colors: dict[str, Color] = {}

    def __repr__(self) -> str:
        return f"CodeRegion({self.name!r}, {self.width} x {self.height} PEs of {self.source} at ({self.x}, {self.y}))"

    # ---- places

    def all_places(self) -> Iterator[Place]:
        """Yield its PEs, row after row."""
        return ((x, y) for y in range(self.height) for x in range(self.width))

    def edge_places(self, edge: RegionEdge) -> Iterator[Place]:
        """Yield the PEs of an edge."""
        if edge in (RegionEdge.TOP, RegionEdge.BOTTOM):
            return ((x, 0 if edge == RegionEdge.TOP else self.height - 1) for x in range(self.width))
        return ((0 if edge == RegionEdge.LEFT else self.width - 1, y) for y in range(self.height))

    def _inside(self, rect: IntRectangle) -> list[Place]:
        a, b = rect.upper_left, rect.lower_right
        if not (0 <= a.x < b.x <= self.width and 0 <= a.y < b.y <= self.height):
            raise LayoutError(
                f"the rectangle from ({a.x}, {a.y}) to ({b.x}, {b.y}) is not inside of the region '{self.name}' of "
                f"{self.width} x {self.height} PEs",
                hint="the second corner is one past the last PE",
            )
        return [(x, y) for y in range(a.y, b.y) for x in range(a.x, b.x)]

    def _one(self, at: IntVector) -> list[Place]:
        return self._inside(IntRectangle(at, IntVector(at.x + 1, at.y + 1)))

    def place(self, x: int, y: int) -> None:
        """Put the upper left PE at a place of the fabric; without it, that is (0, 0)."""
        if min(x, y) < 0:
            raise LayoutError(f"the region '{self.name}' cannot lie at ({x}, {y})")
        self.x, self.y = int(x), int(y)

    # ---- colors and params

    def color(self, name: str, value: int | None = None) -> Color:
        """Return the color of a name of this region: the same one whenever it is asked for.

        Raises
        ------
        ConfigError
            It was made with another value.
        """
        made = self._colors.setdefault(str(name), Color(name, value, self.name))
        if value is not None and made.fixed != int(value):
            raise ConfigError(f"the color '{name}' of the region '{self.name}' has the value {made.fixed}, not {value}")
        return made

    def _set(self, places: Sequence[Place], *given: Any) -> None:
        value: int | Color
        if len(given) == 1 and isinstance(given[0], Color):
            name, value = given[0].name, given[0]
        elif len(given) == 2 and isinstance(given[1], (int, np.integer, Color)):
            name, value = str(given[0]), given[1] if isinstance(given[1], Color) else int(given[1])
        else:
            raise ConfigError("a param gets a color, or a name and a number or color", where=f"region '{self.name}'")
        for place in places:
            self.params[place][name] = value

    def set_param(self, at: IntVector, *given: Any) -> None:
        """Give a param of one PE a number or a color; a color alone goes to the param of its name."""
        self._set(self._one(at), *given)

    def set_param_all(self, *given: Any) -> None:
        """Give a param of all PEs a number or a color."""
        self._set(list(self.all_places()), *given)

    def set_param_range(self, rect: IntRectangle, *given: Any) -> None:
        """Give a param of the PEs of a rectangle a number or a color."""
        self._set(self._inside(rect), *given)

    # ---- routes

    def _paint(self, places: Sequence[Place], color: Color, positions: Sequence[RoutingPosition]) -> None:
        if not 1 <= len(positions) <= 4:
            raise ConfigError(f"{len(positions)} positions of the color '{color.name}'; a router has 1 to 4")
        for place in places:
            self.paints[color, place] = tuple(positions)

    def paint(self, at: IntVector, color: Color, positions: Sequence[RoutingPosition]) -> None:
        """Give a color its positions at one PE; what is painted later replaces what was."""
        self._paint(self._one(at), color, positions)

    def paint_all(
        self, color: Color, positions: Sequence[RoutingPosition], edges: Sequence[EdgeRouting] | None = None
    ) -> None:
        """Give a color its positions at all PEs, and others at the PEs of edges."""
        self._paint(list(self.all_places()), color, positions)
        for entry in edges or ():
            self._paint(list(self.edge_places(entry.edge)), color, entry.positions)

    def paint_range(self, rect: IntRectangle, color: Color, positions: Sequence[RoutingPosition]) -> None:
        """Give a color its positions at the PEs of a rectangle."""
        self._paint(self._inside(rect), color, positions)

    def _port(self, color: Color, edge: RegionEdge, routes: Any, size: int, prefix: str, is_input: bool) -> Port:
        kind = "in" if is_input else "out"
        name = f"{prefix}{self.name}_{color.name}_{RegionEdge(edge).name.lower()}_{kind}"
        if any(port.name == name for port in self.ports):
            raise ConfigError(f"there is a port {name} already", hint="prefix='...'")
        made = Port(self, color, RegionEdge(edge), tuple(routes), int(size), name, is_input)
        self._paint(made.places(), color, made.filled())
        self.ports.append(made)
        return made

    def create_input_port(self, color: Color, edge: RegionEdge, routes: Any, size: int, prefix: str = "") -> Port:
        """Let a color come in over an edge: its positions name outputs, `size` counts words of all PEs together."""
        return self._port(color, edge, routes, size, prefix, True)

    def create_output_port(self, color: Color, edge: RegionEdge, routes: Any, size: int, prefix: str = "") -> Port:
        """Let a color go out over an edge: its positions name inputs."""
        return self._port(color, edge, routes, size, prefix, False)

    # ---- memory

    def set_symbol_all(self, name: str, data: ArrayLike, width: int, height: int) -> None:
        """Give a global of all PEs its first values: equal tiles of a matrix of `height` rows and `width` columns."""
        array = np.ascontiguousarray(data)
        if array.dtype.kind not in "iuf" or array.dtype.itemsize not in (2, 4):
            raise UnsupportedError(f"values of type {array.dtype} for '{name}'", hint="16 or 32 bits")
        if array.size != width * height or width % self.width or height % self.height:
            raise ConfigError(
                f"'{name}' has {array.size} values; {height} x {width} of them do not make equal tiles for "
                f"{self.height} x {self.width} PEs"
            )
        self.symbols[str(name)] = array.reshape(height, width)

    def tiles(self, name: str) -> NDArray[np.uint16]:
        """Return the words of a symbol's tiles, shape (height, width, words)."""
        array = self.symbols[name]
        rows, columns = array.shape[0] // self.height, array.shape[1] // self.width
        tiles = array.reshape(self.height, rows, self.width, columns).swapaxes(1, 2)
        return np.ascontiguousarray(tiles).reshape(self.height, self.width, -1).view(np.uint16)


@dataclass
class SdkCompileArtifacts:
    """An `SdkCompileArtifacts` is what `SdkLayout.compile` leaves: a directory that a runtime loads.

    Attributes
    ----------
    directory : path
    colors : dict
        Global names of colors with their numbers.
    """

    directory: Path
    colors: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.directory)

    def __fspath__(self) -> str:
        return str(self.directory)

    def save_colors(self) -> None:
        """Write the numbers of the colors into ``colors.json``."""
        text = json.dumps(self.colors, indent=2, sort_keys=True)
        (self.directory / "colors.json").write_text(f"{text}\n", encoding="utf-8")


Edge = RegionEdge
"""This is the name under which scripts import it."""
