"""`SdkLayout`: regions are placed, connected, compiled one by one and put together on one fabric."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fabric.csl.artefact import Bundle, bundle_of, write_bundle
from fabric.csl.artefact.bundle import HostProgram
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.syntax import nodes
from fabric.csl.syntax.parser import parse, read
from fabric.layout.rectangles import runs
from harness.sdk.device import SYMBOLS
from harness.sdk.geometry import IntVector
from harness.sdk.regions import SIDE, CodeRegion, Color, Port, Route, SdkCompileArtifacts, SdkExtent
from harness.sdk.runtime import SdkPlatform, SdkTarget, meaningless, target_of
from harness.sdk.ways import Net, Place, WireWay, neighbour, numbered, way
from wse_core import image as im
from wse_core.encoding import N_COLORS
from wse_core.errors import ConfigError, LayoutError, UnsupportedError
from wse_core.image import DIRS, ProgramImage
from wse_core.params import machine

__all__ = ["FP16TYPE", "SdkLayout"]

LETTER = {Route.RAMP: "R", Route.EAST: "E", Route.WEST: "W", Route.NORTH: "N", Route.SOUTH: "S"}


class FP16TYPE:
    """The 16-bit float of a program is one of these."""

    F16, BF16, CB16 = "f16", "bf16", "cb16"


class SdkLayout:
    """An `SdkLayout` is a layout of regions that a host script makes.

    Parameters
    ----------
    platform : SdkPlatform or SdkTarget
        What `get_platform` returns, or an `SdkTarget`; it says the architecture.

    Raises
    ------
    ConfigError
        It is neither of them.
    """

    def __init__(self, platform: SdkPlatform | SdkTarget = SdkTarget.WSE3) -> None:
        self.arch = target_of(platform)
        self.regions: list[CodeRegion] = []
        self.connections: list[tuple[Port, Port]] = []
        self.streams: dict[str, tuple[Port, Place | None]] = {}

    # ---- what there is

    def create_code_region(self, source: str, name: str, width: int, height: int) -> CodeRegion:
        """Return a new rectangle of PEs that run a source file."""
        if any(region.name == name for region in self.regions):
            raise ConfigError(f"there is a region '{name}' already")
        region = CodeRegion(source, name, width, height)
        self.regions.append(region)
        return region

    def connect(self, one: Port, other: Port) -> None:
        """Let what leaves by an output port come in at an input port of as many PEs and words."""
        tx, rx = (other, one) if one.is_input else (one, other)
        if tx.is_input or not rx.is_input:
            raise ConfigError(f"{one.name} and {other.name} are no output port and input port")
        if len(tx.places()) != len(rx.places()):
            raise LayoutError(f"{tx.name} has {len(tx.places())} PEs, and {rx.name} has {len(rx.places())}")
        if tx.size != rx.size:
            raise LayoutError(f"{tx.name} has {tx.size} words, and {rx.name} has {rx.size}")
        self.connections.append((tx, rx))

    def _stream(self, port: Port, is_input: bool, io_loc: IntVector | None) -> str:
        if port.is_input is not is_input:
            kind = "input" if is_input else "output"
            raise ConfigError(f"{port.name} is no {kind} port, which a stream of this kind needs")
        if len(port.places()) != 1:
            raise UnsupportedError(
                f"a stream of the host at the port {port.name} of {len(port.places())} PEs", hint="a port of one PE"
            )
        self.streams[port.name] = (port, None if io_loc is None else (io_loc.x, io_loc.y))
        return port.name

    def create_input_stream(self, port: Port, io_loc: IntVector | None = None, io_buffer_size: int = 1024) -> str:
        """Let the host send to a port; return the name of the stream.

        `io_buffer_size` changes nothing: the modelled host holds any number of words.
        """
        return self._stream(port, True, io_loc)

    def create_output_stream(self, port: Port, io_loc: IntVector | None = None, io_buffer_size: int = 1024) -> str:
        """Let the host receive from a port; return the name of the stream; `io_buffer_size` changes nothing."""
        return self._stream(port, False, io_loc)

    def create_input_stream_from_loc(self, *_: Any, **__: Any) -> str:
        """Refuse a stream without a port, which is not modelled."""
        raise UnsupportedError("a stream of the host without a port", hint="create_input_stream(port)")

    def create_output_stream_from_loc(self, *_: Any, **__: Any) -> str:
        """Refuse a stream without a port, which is not modelled."""
        raise UnsupportedError("a stream of the host without a port", hint="create_output_stream(port)")

    def hstack(self, children: Sequence[CodeRegion | SdkExtent], origin: IntVector | None = None) -> SdkExtent:
        """Place regions, or stacks of them, from west to east side by side; return them as one."""
        return self._stack(children, origin, (1, 0))

    def vstack(self, children: Sequence[CodeRegion | SdkExtent], origin: IntVector | None = None) -> SdkExtent:
        """Place regions, or stacks of them, from north to south below each other; return them as one."""
        return self._stack(children, origin, (0, 1))

    def _stack(self, children: Sequence[CodeRegion | SdkExtent], origin: IntVector | None, step: Place) -> SdkExtent:
        x, y = (0, 0) if origin is None else (origin.x, origin.y)
        found = SdkExtent([], x, y)
        for child in children:
            child.place(x, y)
            found.regions += child.regions if isinstance(child, SdkExtent) else [child]
            found.width = max(found.width, x + child.width - found.x)
            found.height = max(found.height, y + child.height - found.y)
            x, y = x + step[0] * child.width, y + step[1] * child.height
        return found

    # ---- the whole

    def compile(
        self,
        out_prefix: str = "out",
        libs: Sequence[str] = (),
        cslc_prefix: str = "",
        save_port_map: bool = False,
        f16_type: str = FP16TYPE.F16,
        **others: Any,
    ) -> SdkCompileArtifacts:
        """Find ways and numbers of colors, compile all regions and write the result.

        Parameters
        ----------
        out_prefix : path
            Directory of the result.
        libs : sequence of path
            Where modules in angle brackets are looked for.
        cslc_prefix : str
            Ignored: the compiler is this project's own.
        save_port_map : bool
            Write ``port_map.json``: per port its color and its PEs.
        f16_type : str
            The 16-bit float of all programs.

        Raises
        ------
        LayoutError
            Regions overlap, a port cannot be reached, or no number is left for a color.
        CslError
            A source has a mistake.
        ConfigError
            A source cannot be read, or the 16-bit float is known at compile time only.
        """
        meaningless("SdkLayout.compile", others)
        owner = self._owners()
        if not owner:
            raise LayoutError("the layout has no region", hint="create_code_region(...)")
        size = max(x for x, _ in owner) + 2, max(y for _, y in owner) + 2
        wires = _Wires(self, owner, size)
        wires.all()
        self._number(wires)
        options = Options(import_paths=tuple(map(str, libs)), fp16=str(f16_type), arch=self.arch)
        directory = Path(out_prefix)
        merged = _merge(self, [_compiled(region, options) for region in self.regions], wires, size)
        write_bundle(merged, directory)
        found = SdkCompileArtifacts(directory, {c.get_global_name(): c.get_value() for c in self.colors()})
        found.save_colors()
        self._save_symbols(directory)
        if save_port_map:
            ports = {port.name: _described(port) for region in self.regions for port in region.ports}
            (directory / "port_map.json").write_text(f"{json.dumps(ports, indent=2)}\n", encoding="utf-8")
        return found

    def colors(self) -> list[Color]:
        """Return the colors that regions use, in the order in which they were named."""
        return list(self.uses())

    def uses(self) -> dict[Color, set[Place]]:
        """Return the PEs on which regions use each color, by a route or a param."""
        found: dict[Color, set[Place]] = {}
        for region in self.regions:
            used = list(region.paints)
            for place, params in region.params.items():
                used += [(value, place) for value in params.values() if isinstance(value, Color)]
            for color, (x, y) in used:
                found.setdefault(color, set()).add((region.x + x, region.y + y))
        return found

    def _owners(self) -> dict[Place, CodeRegion]:
        owner: dict[Place, CodeRegion] = {}
        for region in self.regions:
            for x, y in region.all_places():
                there = (region.x + x, region.y + y)
                if there in owner:
                    raise LayoutError(f"the regions '{owner[there].name}' and '{region.name}' overlap at {there}")
                owner[there] = region
        width, height = (machine(self.arch)[f"fabric.{name}"] for name in ("width", "height"))
        if any(x >= width or y >= height for x, y in owner):
            raise LayoutError(f"the layout is larger than the fabric of {width} x {height} PEs")
        return owner

    def _number(self, wires: _Wires) -> None:
        """Give each color its number."""
        net_of = {color: Net([color.get_global_name()], fixed=color.fixed) for color in wires.used}
        for tx, rx in self.connections:
            _join(net_of, tx.color, rx.color)
        for color, places in wires.used.items():
            net_of[color].places |= places
        for region in self.regions:
            for (color, _), positions in region.paints.items():
                net_of[color].switches |= len(positions) > 1
        numbers = numbered(list(dict.fromkeys(net_of.values())), range(N_COLORS), machine(self.arch)["switch.colors"])
        for color, net in net_of.items():
            color.value = numbers[net]

    def _save_symbols(self, directory: Path) -> None:
        found: dict[str, Any] = {
            f"{region.x},{region.y},{name}": region.tiles(name) for region in self.regions for name in region.symbols
        }
        with suppress(FileNotFoundError):
            (directory / SYMBOLS).unlink()
        if found:
            np.savez(directory / SYMBOLS, **found)


def _described(port: Port) -> dict[str, Any]:
    places = [[port.region.x + x, port.region.y + y] for x, y in port.places()]
    return {"color": port.color.get_value(), "edge": port.edge.name, "size": port.size, "pes": places}


def _join(net_of: dict[Color, Net], one: Color, other: Color) -> None:
    """Make one net of those of two colors."""
    a, b = net_of[one], net_of[other]
    if a is b:
        return
    if None not in (a.fixed, b.fixed) and a.fixed != b.fixed:
        raise LayoutError(
            f"the connected colors {a.names[0]} and {b.names[0]} have the fixed numbers {a.fixed} and {b.fixed}",
            hint="a router cannot change a color; leave one of them open",
        )
    a.names += b.names
    a.fixed = b.fixed if a.fixed is None else a.fixed
    for color, net in net_of.items():
        if net is b:
            net_of[color] = a


class _Wires:
    """Finds the ways of all connections and streams of a layout."""

    def __init__(self, layout: SdkLayout, owner: dict[Place, CodeRegion], size: Place) -> None:
        self.layout, self.owner, self.size = layout, owner, size
        self.used = layout.uses()
        """Each color is used on these PEs, by regions and by ways."""
        self.found: list[tuple[Color, WireWay]] = []
        self.links: dict[str, tuple[Place, str, Place]] = {}
        """Each stream has an edge of the fabric, as PE and side, and the PE that it serves."""

    def all(self) -> None:
        """Find the way of each connection and stream."""
        for tx, rx in self.layout.connections:
            for one, other in zip(_absolute(tx), _absolute(rx), strict=True):
                self._connect(tx, rx, one, other)
        for name, (port, goal) in self.layout.streams.items():
            self._attach(name, port, goal)

    def _add(self, color: Color, wire: WireWay) -> None:
        self.found.append((color, wire))
        self.used[color].update(wire.cells)

    def _connect(self, tx: Port, rx: Port, one: Place, other: Place) -> None:
        out, into = LETTER[SIDE[tx.edge]], LETTER[SIDE[rx.edge]]
        if neighbour(one, out) == other and neighbour(other, into) == one:
            return
        taken = self.used[tx.color] | self.used[rx.color]
        goal = neighbour(other, into)
        cells = way(neighbour(one, out), [goal], self.size, taken, self.owner)
        if cells is None:
            raise LayoutError(
                f"there is no way from PE {one} of {tx.name} to PE {other} of {rx.name}", hint="place the regions apart"
            )
        self._add(tx.color, WireWay(cells, _opposite(out), _opposite(into)))

    def _attach(self, name: str, port: Port, goal: Place | None) -> None:
        (here,) = _absolute(port)
        side = LETTER[SIDE[port.edge]]
        first = neighbour(here, side)
        if not (0 <= first[0] < self.size[0] and 0 <= first[1] < self.size[1]):
            self.links[name] = here, side, here
            return
        goals = [goal] if goal is not None else list(_rim(self.size))
        cells = way(first, goals, self.size, self.used[port.color], self.owner)
        if cells is None:
            raise LayoutError(f"there is no way from the edge of the fabric to {port.name}")
        outside = _outside(cells[-1], self.size)
        if outside is None:
            raise LayoutError(f"PE {cells[-1]} for the stream {name} is not at the edge of the fabric")
        path = tuple(reversed(cells)) if port.is_input else cells
        ends = (outside, _opposite(side)) if port.is_input else (_opposite(side), outside)
        self._add(port.color, WireWay(path, *ends))
        self.links[name] = cells[-1], outside, here


def _absolute(port: Port) -> list[Place]:
    return [(port.region.x + x, port.region.y + y) for x, y in port.places()]


def _opposite(side: str) -> str:
    return DIRS[DIRS.index(side) ^ 1]


def _rim(size: Place) -> Iterator[Place]:
    return ((x, y) for y in range(size[1]) for x in range(size[0]) if _outside((x, y), size) is not None)


def _outside(place: Place, size: Place) -> str | None:
    """Return the side of a PE that is an edge of the fabric, west first; None if there is none."""
    sides = {"W": place[0] == 0, "N": place[1] == 0, "E": place[0] == size[0] - 1, "S": place[1] == size[1] - 1}
    return next((side for side, there in sides.items() if there), None)


# ---- regions become programs


def _compiled(region: CodeRegion, options: Options) -> Bundle:
    """Return a region, compiled as a layout of its own, whose files are looked for beside the region's source.

    Raises
    ------
    ConfigError
        The source cannot be read.
    """
    source = region.source.resolve()
    text = read(source)
    tree = parse(text)
    kinds = {item.name: item.type for item in tree.items if isinstance(item, nodes.ParamDecl)}
    colors = {name for name, kind in kinds.items() if getattr(kind, "name", None) == "color"}
    with TemporaryDirectory(prefix="wse-layout-") as name:
        layout = Path(name, f"{source.name}.layout")  # not the name of the source, which is looked for here first
        layout.write_text(_layout_text(region, source, colors), encoding="utf-8")
        return bundle_of(compile_file(layout, replace(options, root=source.parent)))


def _layout_text(region: CodeRegion, source: Path, colors: set[str]) -> str:
    """Return a layout block for a region alone, with a loop for PEs that are alike."""
    alike: dict[str, np.ndarray] = {}

    def say(text: str, place: Place) -> None:
        alike.setdefault(text, np.zeros((region.height, region.width), bool))[place[1], place[0]] = True

    for place, params in region.params.items():
        given = ", ".join(f".{name} = {_number(value, name in colors)}" for name, value in params.items())
        say(f'@set_tile_code(x, y, "{source.name}", .{{ {given} }});', place)
    for (color, place), positions in region.paints.items():
        say(f"@set_color_config(x, y, @get_color({color.get_value()}), {_config(positions)});", place)
    lines = ["layout {", f"  @set_rectangle({region.width}, {region.height});"]
    for text, mask in alike.items():
        for rows, first, last in runs(mask):
            loops = (f"for (@range(i16, {a}, {b}, 1)) |{name}| {{" for name, a, b in (("y", *rows), ("x", first, last)))
            lines.append(f"  {' '.join(loops)} {text} }} }}")
    return "\n".join([*lines, "}", ""])


def _number(value: int | Color, is_color: bool) -> str:
    number = value.get_value() if isinstance(value, Color) else value
    return f"@get_color({number})" if is_color else str(number)


def _config(positions: Sequence[Any]) -> str:
    """Return the configuration of a color: later positions say what differs from the one before."""

    def sides(routes: Sequence[Route]) -> str:
        return f".{{ {', '.join(route.name for route in routes)} }}"

    first, *others = positions
    text = f".routes = .{{ .rx = {sides(first.inputs)}, .tx = {sides(first.outputs)} }}"
    switches, before = [], first
    for k, position in enumerate(others, 1):
        changed = [f".rx = {sides(position.inputs)}"] if position.inputs != before.inputs else []
        changed += [f".tx = {sides(position.outputs)}"] if position.outputs != before.outputs or not changed else []
        switches.append(f".pos{k} = .{{ {', '.join(changed)} }}")
        before = position
    return f".{{ {text}{', .switches = .{ ' + ', '.join(switches) + ' }' if switches else ''} }}"


# ---- one fabric of them


def _merge(layout: SdkLayout, bundles: list[Bundle], wires: _Wires, size: Place) -> Bundle:
    """Return regions and ways as one bundle; no layout block exports names to the host."""
    width, height = size
    index = np.full((height, width), -1, np.int16)
    routes: dict[int, np.ndarray] = {}
    programs: list[ProgramImage] = []
    host: list[HostProgram] = []
    deepest = max((0 if b.filters is None else b.filters.shape[2] for b in bundles), default=0)
    filters = np.zeros((height, width, deepest), im.FILTER_DTYPE) if deepest else None

    def table(color: int) -> np.ndarray:
        return routes.setdefault(color, np.zeros((height, width), im.ROUTE_DTYPE))

    for region, bundle in zip(layout.regions, bundles, strict=True):
        here = slice(region.y, region.y + region.height), slice(region.x, region.x + region.width)
        index[here] = np.where(bundle.index >= 0, bundle.index + len(programs), -1)
        for number, part in bundle.routes.items():
            table(number)[here] = part
        if bundle.filters is not None and filters is not None:
            filters[(*here, slice(0, bundle.filters.shape[2]))] = bundle.filters
        programs += bundle.programs
        host += bundle.host
    for color, wire in wires.found:
        for (x, y), begin, end in wire.steps():
            row = table(color.get_value())[y, x]
            row["rx"][0], row["tx"][0], row["valid"] = 1 << DIRS.index(begin), 1 << DIRS.index(end), 1
    found: dict[str, list[tuple[int, int, int, int]]] = {"inputs": [], "outputs": []}
    places: dict[str, list[tuple[int, int, int]]] = {"inputs": [], "outputs": []}
    ports = {}
    for name, ((x, y), side, served) in wires.links.items():
        port = layout.streams[name][0]
        kind = "inputs" if port.is_input else "outputs"
        found[kind].append((x, y, DIRS.index(side), port.color.get_value()))
        places[kind].append((*served, port.color.get_value()))
        ports[name] = [port.color.get_value(), *served]
    for array in (index, *routes.values(), *([] if filters is None else [filters])):
        array.setflags(write=False)
    settings = {**bundles[0].settings, "params": {}, "colors": {}, "fabric": [width, height], "offsets": [0, 0]}
    settings["ports"] = ports
    return Bundle(
        programs, index, routes, filters, tuple(found["inputs"]), tuple(found["outputs"]), places, [], host, settings
    )
