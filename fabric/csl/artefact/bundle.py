"""A compiled layout becomes what a machine and the host's side need, without any tree of the compiler."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fabric.csl.artefact.reach import check_reach
from fabric.csl.artefact.routes import Routing
from fabric.csl.compile import Compiled, CompiledProgram
from fabric.csl.comptime.values import FunctionValue, Value
from fabric.csl.diagnostics import Fault
from fabric.csl.rules import compiled
from fabric.csl.types import FnType, PointerType
from wse_core.errors import ConfigError
from wse_core.image import FabricSpec, ProgramImage, RouteTable
from wse_core.numbers import DEFAULT_PRESET
from wse_core.params import Machine
from wse_core.params import machine as default_machine

__all__ = ["Bundle", "HostName", "HostProgram", "bundle_of"]

MEMCPY = "<memcpy/memcpy>"
HIDDEN = ("call", "arguments", "unblocked", "x", "y")


@dataclass(frozen=True)
class HostName:
    """A `HostName` is a function or variable that the layout exports to the host.

    Attributes
    ----------
    name : str
    ident : int
    kind : str
        ``function``, ``pointer`` (a variable that holds an address) or ``value``.
    types : tuple of str
        Of the arguments of a function; else of the data.
    """

    name: str
    ident: int
    kind: str
    types: tuple[str, ...]


@dataclass
class HostProgram:
    """A `HostProgram` has the facts about one program that the host needs.

    Attributes
    ----------
    exports : dict
        Exported name to the symbol of the image; for functions an empty text.
    hidden : dict
        Hidden words by their purpose, as symbols of the image.
    records : list of (symbol, source, key)
        Buffers of <debug> and <simprint>.
    shapes : list
        Per number of a record its parts: (type, text or form).
    inputs, outputs : tuple of int
        Colors that the host streams to and from.
    places : dict
        Per code word file and line.
    """

    exports: dict[str, str]
    hidden: dict[str, str]
    records: list[tuple[str, str, str]] = field(default_factory=list)
    shapes: list[list[tuple[str, str | None]]] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    places: dict[int, tuple[str, int]] = field(default_factory=dict)


@dataclass
class Bundle:
    """A `Bundle` is a compiled layout as the host loads it: programs, where they run, routes, exported names.

    Attributes
    ----------
    programs : list of ProgramImage
    index : numpy.ndarray
        Per PE (y, x) the number of its program.
    routes : dict
        Per color an array of ROUTE_DTYPE.
    filters : numpy.ndarray or None
    inputs, outputs : tuple
        Edges to which the host is attached, as in `FabricSpec`; per place in `streams` the PE that each serves.
    streams : dict
        ``inputs`` and ``outputs``: per link (x, y, color) of the PE.
    names : list of HostName
    host : list of HostProgram
        Per program.
    settings : dict
        Params and colors of the command line, fabric, offsets.
    """

    programs: list[ProgramImage]
    index: np.ndarray
    routes: dict[int, np.ndarray]
    filters: np.ndarray | None
    inputs: tuple[tuple[int, int, int, int], ...]
    outputs: tuple[tuple[int, int, int, int], ...]
    streams: dict[str, list[tuple[int, int, int]]]
    names: list[HostName]
    host: list[HostProgram]
    settings: dict[str, Any]

    @property
    def width(self) -> int:
        """The rectangle has so many PEs along x."""
        return int(self.index.shape[1])

    @property
    def height(self) -> int:
        """The rectangle has so many PEs along y."""
        return int(self.index.shape[0])

    @cached_property
    def _tables(self) -> dict[int, RouteTable]:
        return {color: RouteTable.of(table) for color, table in self.routes.items()}

    @property
    def arch(self) -> str:
        """The program was compiled for this architecture; files of versions that had one only do not name it."""
        return str(self.settings.get("arch", DEFAULT_PRESET))

    def spec(self, machine: Machine | None = None) -> FabricSpec:
        """Return what an engine runs.

        Raises
        ------
        ConfigError
            The machine is another than the one that the program was compiled for.
        """
        own = compiled(default_machine(self.arch))
        if machine is not None and machine["task.by_queue"] != own["task.by_queue"]:
            what = f"the program is compiled for {self.arch}, and the machine is {machine.preset}"
            raise ConfigError(what, hint=f"cslc --arch={machine.preset}, or a machine of the preset {self.arch}")
        return FabricSpec(
            machine=own if machine is None else machine,
            width=self.width,
            height=self.height,
            programs=tuple(self.programs),
            program_index=self.index,
            routes=self._tables,
            filters=self.filters,
            inputs=self.inputs,
            outputs=self.outputs,
        )


def bundle_of(made: Compiled, colors: dict[str, int] | None = None) -> Bundle:
    """Return a compiled layout as a bundle.

    Raises
    ------
    CslError
        If a route can carry nothing.
    """
    checked = made.checked
    if checked.layout is None:
        index = np.zeros((1, 1), np.int16)
    else:
        index = np.array(checked.program_of, np.int16)[checked.layout.grid]
    index.setflags(write=False)
    host = [_host_program(program) for program in made.programs]
    images = [program.emitted.image for program in made.programs]
    routing = Routing(made, index, images, host)
    try:
        routing.all()
    except Fault as fault:
        checked.report.fault(fault)
        checked.report.check()
    streams = {color for program in host for color in (*program.inputs, *program.outputs)}
    check_reach(made, routing.routes, streams)
    names = [] if checked.layout is None else [_host_name(entry) for entry in checked.layout.names.values()]
    options = made.options
    return Bundle(
        images,
        index,
        routing.routes,
        routing.filters,
        tuple(routing.inputs),
        tuple(routing.outputs),
        routing.streams,
        names,
        host,
        {
            "params": {name: str(value) for name, value in options.params.items() if name not in (colors or {})},
            "colors": {name: str(value) for name, value in (colors or {}).items()},
            "fabric": list(options.fabric),
            "offsets": list(options.offsets),
            "fp16": options.fp16,
            "arch": options.arch,
            **({"beside": True} if checked.beside else {}),
        },
    )


def _host_name(entry: Any) -> HostName:
    kind = entry.type
    if isinstance(kind, FnType):
        return HostName(entry.name, entry.ident, "function", tuple(map(str, kind.params)))
    if isinstance(kind, PointerType):
        return HostName(entry.name, entry.ident, "pointer", (str(kind.target),))
    return HostName(entry.name, entry.ident, "value", (str(kind),))


def _host_program(program: CompiledProgram) -> HostProgram:
    lowering, image = program.lowering, program.emitted.image
    exports = {}
    for entry in lowering.checked.unit.exports:
        is_function = isinstance(entry.target, FunctionValue)
        exports[entry.name] = "" if is_function else entry.target.name
    hidden = {name: f".{name}" for name in HIDDEN if f".{name}" in image.symbols}
    records = [(memory.name, source, key) for memory, source, key in lowering.buffers.values()]
    shapes = [list(shape) for shape in lowering.shapes]
    inputs, outputs = _stream_colors(lowering.checked.unit.modules, image.data_tasks)
    places = {word: (place.file, place.line) for word, place in program.emitted.places.items()}
    return HostProgram(exports, hidden, records, shapes, inputs, outputs, places)


def _stream_colors(modules: list[Any], data_tasks: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the colors that the program gave to the streams of the host; that of launches is one in SDK 0.6, where a
    data task of the program takes their words.
    """
    found: dict[str, set[int]] = {"H2D": set(), "D2H": set()}
    for module in modules:
        if module.source.name != MEMCPY:
            continue
        for name, (value, _) in module.bindings.items():
            kind = name[len("MEMCPY") :].split("_")[0] if name.startswith("MEMCPY") else ""
            if not isinstance(value, Value) or not isinstance(value.data, int):
                continue
            if kind in found:
                found[kind].add(value.data)
            elif name == "LAUNCH" and data_tasks >> value.data & 1:
                found["H2D"].add(value.data)
    return tuple(sorted(found["H2D"])), tuple(sorted(found["D2H"]))
