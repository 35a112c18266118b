"""The class `CSELFRunner` is the host's side of programs before SDK 0.9: tensors enter and leave at the edges.

A port map says for each element of a tensor the PE beside the program's rectangle from which it comes, or to which it
goes, and its place among the wavelets there (`harness.sdk.portmaps`).  Of a program compiled with ``--memcpy`` (0.5 and
0.6) it names the PEs themselves, whose streams take and give the wavelets.  Everything is said first; then one call
runs the program until all of its results have come, or several do, each with the tensors of some colors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.csl.artefact import Bundle, read_bundle
from harness.sdk.device import SdkDevice
from harness.sdk.log import leave_traces
from harness.sdk.portmaps import format_output_tensor, parsed
from harness.sdk.runtime import machine_for, meaningless
from harness.sdk.utils import input_array_to_u32
from wse_core.errors import ConfigError, DeadlockError
from wse_core.image import DIR_E, DIR_N, DIR_S, DIR_W

__all__ = ["CSELFRunner", "ELFLoader", "ELFMemory", "read_trace"]

ENTRY = 16
"""A control wavelet has the id of the task that it starts from this bit on."""
Link = tuple[int, int, int, int]
"""A link of the rectangle's edge has a PE (x, y), a direction and a color; the direction of a stream is `STREAM`."""
Wavelets = list[tuple[Link, NDArray[np.uint32], NDArray[np.bool_]]]
"""`Wavelets` has per link the payloads that enter, and which of them are control wavelets."""
STREAM = -1
"""The host's stream of a PE has this in place of a direction."""


@dataclass(frozen=True)
class ExpectedTensor:
    """An `ExpectedTensor` is one that the program sends: its port map, the type of its numbers, the links it takes."""

    port_map: str
    dtype: Any
    links: list[Link]
    count: int
    color: int


class CSELFRunner:
    """A `CSELFRunner` runs a compiled program once, between tensors that go in and tensors that come out.

    Parameters
    ----------
    elf_paths : list of path
        Files in ``bin`` of what ``cslc -o`` wrote.
    cmaddr : str, optional
        Address of a machine; must be empty.
    """

    def __init__(self, elf_paths: Sequence[str | Path], cmaddr: str | None = None, **others: Any) -> None:
        if cmaddr:
            raise ConfigError("there is no machine at this address", where=cmaddr, hint="leave --cmaddr out")
        meaningless("CSELFRunner", others)
        self.directory = _directory(elf_paths)
        self.bundle: Bundle = read_bundle(self.directory)
        self.out_tensor_dict: dict[str, NDArray[Any]] = {}
        self._sent: dict[int, Wavelets] = {}
        self._ends: dict[str, list[Link]] = {"inputs": [], "outputs": []}
        self._sides: dict[int, str] = {}
        self._came: dict[Link, NDArray[np.uint32]] = {}
        self._results: dict[str, ExpectedTensor] = {}
        self._symbols: list[tuple[int, int, str, NDArray[Any]]] = []
        self._device: SdkDevice | None = None

    @property
    def device(self) -> SdkDevice:
        """The device is the machine on which the program has run."""
        if self._device is None:
            raise ConfigError("the program has not run", hint="runner.connect_and_run()")
        return self._device

    # ---- what goes in and what comes out

    def add_input_tensor(
        self, color: int, port_map: str | tuple[str, int], tensor: NDArray[Any] | None, sentinel: int | None = None,
        **others: Any,
    ) -> None:  # fmt: skip
        """Let a tensor enter on a color; with a sentinel a control wavelet for that task id follows at each PE, and the
        upper half of a 16-bit number is its place at its PE.

        Instead of a port map, ("WEST", 3) lets all of it enter at the west side of row 3, and the others alike.  What
        `prepare_input_tensor` gives later may be None here.
        """
        meaningless("add_input_tensor", others)
        if tensor is None:
            self._ends["inputs"] += self._links(parsed(str(port_map)).area, color)
            return
        made = self._wavelets(color, port_map, tensor, sentinel)
        self._sent[color] = [*self._sent.get(color, ()), *made]
        self._ends["inputs"] += [link for link, *_ in made]

    def prepare_input_tensor(self, color: int, port_map: str, tensor: NDArray[Any]) -> None:
        """Let a tensor be the one that enters on a color with the next batches."""
        self._sent[color] = self._wavelets(color, port_map, tensor, None)

    def _wavelets(
        self, color: int, port_map: str | tuple[str, int], tensor: NDArray[Any], sentinel: int | None
    ) -> Wavelets:
        """Return what enters where."""
        made = parsed(port_map if isinstance(port_map, str) else self._beside(*port_map, tensor.size))
        if tensor.size != len(made.places):
            raise ConfigError(f"the tensor has {tensor.size} elements, its port map {len(made.places)}")
        words = np.empty(tensor.size, np.uint32)
        words[made.places] = input_array_to_u32(tensor)
        if sentinel is not None and tensor.dtype.itemsize == 2:
            words |= (np.arange(words.size, dtype=np.uint32) % np.uint32(made.count)) << np.uint32(16)
        found: Wavelets = []
        for link, part in zip(self._links(made.area, color), words.reshape(-1, made.count), strict=True):
            values, control = part, np.zeros(part.size, bool)
            if sentinel is not None:
                values, control = np.append(part, np.uint32(sentinel << ENTRY)), np.append(control, True)
            found.append((link, values, control))
        return found

    def add_output_tensor(self, color: int, port_map: str, dtype: Any, **others: Any) -> None:
        """Expect a tensor that leaves on a color; `out_tensor_dict` has it under its name when the program has run."""
        meaningless("add_output_tensor", others)
        made = parsed(port_map)
        links = self._links(made.area, color)
        self._results[made.name] = ExpectedTensor(port_map, dtype, links, made.count, color)
        self._ends["outputs"] += links

    def add_input_array(
        self, name: str, color: int, side: str, array: NDArray[Any] | None, sentinel: int | None = None, **others: Any
    ) -> None:
        """Let an array enter at a side, "N", "S", "E" or "W": its first index is the PE there, from north or west.

        Streams of PEs take one by row, column and place.  What `prepare_input_array` gives later may be None here.
        """
        self._sides[color] = side
        if array is not None or not self._streams(color):
            self.add_input_tensor(color, self._along(name, color, side, array), array, sentinel, **others)

    def prepare_input_array(self, color: int, _: int, array: NDArray[Any]) -> None:
        """Let an array be the one that enters on a color with the next batches."""
        if color not in self._sides:
            raise ConfigError(f"no array enters on color {color}", hint="add_input_array")
        self.prepare_input_tensor(color, self._along("array", color, self._sides[color], array), array)

    def add_output_array(self, name: str, color: int, side: str, array: NDArray[Any], **others: Any) -> None:
        """Wait for an array of this shape and type that leaves at a side, as for `add_input_array`."""
        self.add_output_tensor(color, self._along(name, color, side, array), array.dtype, **others)

    def _streams(self, color: int) -> bool:
        """Whether the program has a stream of the host on a color."""
        return any(x >= 0 and c == color for places in self.bundle.streams.values() for x, _, c in places)

    def _along(self, name: str, color: int, side: str, array: Any) -> str:
        """Return the port map of an array at a side, or of one for the streams of all PEs."""
        if self._streams(color) and isinstance(array, np.ndarray) and array.ndim == 3:
            h, w, n = array.shape
            return f"{{ {name}[j=0:{h - 1}][i=0:{w - 1}][k=0:{n - 1}] -> [PE[i, j] -> index[k]] }}"
        where = {"N": "k, -1", "S": f"k, {self.bundle.height}", "W": "-1, k", "E": f"{self.bundle.width}, k"}
        if side not in where:
            raise ConfigError(f"there is no side {side!r}", hint=", ".join(where))
        if not isinstance(array, np.ndarray) or array.ndim < 1 or not array.size:
            raise ConfigError(f"'{name}' is no array; batches of several are not modelled")
        count = array.size // len(array)
        return f"{{ {name}[k=0:{len(array) - 1}][i=0:{count - 1}] -> [PE[{where[side]}] -> index[i]] }}"

    def _beside(self, side: str, place: int, size: int) -> str:
        """Return the port map of a tensor that enters at one PE of an edge."""
        where = {
            "WEST": (-1, place), "EAST": (self.bundle.width, place),
            "NORTH": (place, -1), "SOUTH": (place, self.bundle.height),
        }  # fmt: skip
        if side not in where:
            raise ConfigError(f"there is no side {side!r}", hint=", ".join(where))
        x, y = where[side]
        return f"{{ t[i=0:{size - 1}] -> [PE[{x}, {y}] -> index[i]] }}"

    def _links(self, area: tuple[int, int, int, int], color: int) -> list[Link]:
        """Return the links between the rectangle and PEs beside it, or its own streams, by row and column."""
        width, height = self.bundle.width, self.bundle.height
        found = []
        for y in range(area[1], area[1] + area[3]):
            for x in range(area[0], area[0] + area[2]):
                if x in (-1, width) and 0 <= y < height:
                    found.append((min(max(x, 0), width - 1), y, DIR_W if x < 0 else DIR_E, int(color)))
                elif 0 <= x < width and 0 <= y < height and self._streams(color):
                    found.append((x, y, STREAM, int(color)))
                elif y in (-1, height) and 0 <= x < width:
                    found.append((x, min(max(y, 0), height - 1), DIR_N if y < 0 else DIR_S, int(color)))
                else:
                    what = f"PE ({x}, {y}) of a port map does not lie beside the program's {width} x {height}"
                    raise ConfigError(what, hint="PE[-1, y] is beside the west edge")
        return found

    # ---- memory

    def set_symbol(self, col: int, row: int, name: str, value: Any) -> None:
        """Give a variable of a PE its values before the program starts; coordinates are those of the fabric."""
        x, y = self.bundle.settings["offsets"]
        self._symbols.append((col - x, row - y, name, np.ascontiguousarray(value)))

    def set_symbol_rect(self, name: str, values: NDArray[Any], offset: tuple[int, int] = (0, 0)) -> None:
        """Do the same for a rectangle of PEs; the array's first index is the column, the second one the row."""
        for column, rows in enumerate(values):
            for row, value in enumerate(rows):
                self.set_symbol(offset[0] + column, offset[1] + row, name, value)

    def get_symbol(self, col: int, row: int, name: str, dtype: Any) -> NDArray[Any]:
        """Return a variable of a PE when the program has run."""
        x, y = self.bundle.settings["offsets"]
        words = self.device.symbol(col - x, row - y, name)
        return np.ascontiguousarray(words, "<u2").view(np.dtype(dtype))

    def get_symbol_rect(self, rectangle: Any, name: str, dtype: Any) -> NDArray[Any]:
        """Return a variable of the PEs of ((column, row), (width, height)), or of (width, height) from 0, 0 on."""
        (col, row), (width, height) = rectangle if np.ndim(rectangle) == 2 else ((0, 0), rectangle)
        columns = [[self.get_symbol(col + i, row + j, name, dtype) for j in range(height)] for i in range(width)]
        return np.array(columns)

    # ---- the run

    def connect_and_run(self, *_: Any, **others: Any) -> None:
        """Run the program until nothing moves any more.

        Raises
        ------
        DeadlockError
            A result has not come in full by then.
        """
        meaningless("connect_and_run", others)
        self.load()
        self.run_batch([*self._sent, *(made.color for made in self._results.values())])
        self.stop()

    def load(self) -> None:
        """Put the program on the machine; all that enters or leaves at an edge must have been said."""
        edges = {
            kind: [*given, *dict.fromkeys(x for x in self._ends[kind] if x[2] != STREAM and x not in given)]
            for kind, given in (("inputs", self.bundle.inputs), ("outputs", self.bundle.outputs))
        }
        streams = {
            kind: [*places, *((-1, -1, link[3]) for link in edges[kind][len(places) :])]
            for kind, places in self.bundle.streams.items()
        }
        bundle = replace(self.bundle, inputs=tuple(edges["inputs"]), outputs=tuple(edges["outputs"]), streams=streams)
        self._device = device = SdkDevice(bundle, self.directory, machine_for(bundle.arch))
        for x, y, name, value in self._symbols:
            self._store(device, x, y, name, value)
        for link in dict.fromkeys(self._ends["outputs"]):
            device.fabric.accept(self._number("outputs", link), None)
        _LAST[str(self.directory.resolve())] = self

    def start(self) -> None:
        """Start the program: it has started when it was loaded."""

    def stop(self) -> None:
        """End the run and write what programs have printed."""
        self.device.write_log()
        leave_traces()

    def run_batch(self, colors: Sequence[int]) -> None:
        """Let tensors of some colors enter, run until nothing moves, and take the results of those colors.

        Raises
        ------
        DeadlockError
            A result has not come in full by then.
        """
        for color in dict.fromkeys(colors):
            for link, values, control in self._sent.get(color, ()):
                self.device.fabric.send(self._number("inputs", link), values, control)
        self.device.settle()
        for name, made in self._results.items():
            if made.color in colors:
                words = np.concatenate([self._taken(link, made.count) for link in made.links])
                self.out_tensor_dict[name] = format_output_tensor(made.port_map, made.dtype, words)

    def _number(self, kind: str, link: Link) -> int:
        """Return the number of a link, or of a stream, on the machine."""
        x, y, side, color = link
        if side == STREAM:
            return self.device.link(kind, color, x, y)
        ends: Sequence[Any] = self.device.bundle.inputs if kind == "inputs" else self.device.bundle.outputs
        return ends.index(link)

    def _taken(self, link: Link, count: int) -> NDArray[np.uint32]:
        """Return the next data wavelets that have left over a link."""
        came = self.device.fabric.receive(self._number("outputs", link))
        words = np.concatenate([self._came.get(link, np.empty(0, np.uint32)), came.payload[~came.control]])
        if len(words) < count:
            x, y, _, color = link
            what = (
                f"{len(words)} of {count} wavelets of color {color} have left PE ({x}, {y}), and nothing moves any more"
            )
            raise DeadlockError(what, cycle=self.device.fabric.cycle)
        self._came[link] = words[count:]
        return words[:count]

    @staticmethod
    def _store(device: SdkDevice, x: int, y: int, name: str, value: NDArray[Any]) -> None:
        """Give a variable of a PE its values."""
        have = device.symbol(x, y, name)
        words = np.ascontiguousarray(value.reshape(-1)).view("<u2")
        if len(words) != len(have):
            raise ConfigError(f"'{name}' of PE ({x}, {y}) has {len(have)} words, the values {len(words)}")
        image = device.bundle.programs[int(device.bundle.index[y, x])]
        device.engine.write_rect(image.symbols[name].address, words.reshape(1, 1, -1).astype(np.uint16), x, y)


_LAST: dict[str, CSELFRunner] = {}
"""The program of a directory was run last by this one."""


def read_trace(runner: CSELFRunner, col: int, row: int, name: str) -> list[Any]:
    """Return what <debug> recorded on a PE under the name of its import; coordinates are those of the fabric."""
    x, y = runner.bundle.settings["offsets"]
    return runner.device.records.trace(col - x, row - y, name)


class ELFLoader:
    """An `ELFLoader` has the memory of all PEs after a run.

    Parameters
    ----------
    elf_path : path
        As for `CSELFRunner`.
    core_path : path
        Means nothing: the run is the last one of the program in this script.
    """

    def __init__(self, elf_path: str | Path, core_path: str | Path = "") -> None:
        directory = _directory([elf_path])
        found = _LAST.get(str(directory.resolve()))
        if found is None:
            raise ConfigError("the program has not run in this script", where=str(directory), hint="connect_and_run()")
        self.runner = found

    def get_as_array(self, name: str, count: int, dtype: Any) -> NDArray[Any]:
        """Return a variable of all PEs, by column and row of the fabric; PEs without a program have zeros."""
        bundle = self.runner.bundle
        x, y = bundle.settings["offsets"]
        found = np.zeros((x + bundle.width, y + bundle.height, count), dtype)
        for column in range(bundle.width):
            for row in range(bundle.height):
                values = self.runner.get_symbol(x + column, y + row, name, dtype)
                if len(values) != count:
                    raise ConfigError(f"'{name}' has {len(values)} elements, not {count}")
                found[x + column, y + row] = values
        return found


class ELFMemory:
    """An `ELFMemory` says for which PEs there is a program.

    Parameters
    ----------
    *elf_paths : path
        As for `CSELFRunner`.
    """

    def __init__(self, *elf_paths: str | Path) -> None:
        self.bundle = read_bundle(_directory(elf_paths))

    def iter_coordinates(self) -> Iterator[tuple[int, int]]:
        """Yield column and row of each PE of the program, on the fabric."""
        x, y = self.bundle.settings["offsets"]
        yield from ((x + column, y + row) for column in range(self.bundle.width) for row in range(self.bundle.height))


def _directory(elf_paths: Sequence[str | Path]) -> Path:
    """Return what ``cslc -o`` wrote, of which scripts list the files in ``bin``."""
    if not elf_paths:
        raise ConfigError("no ELF file is given", hint="cslc writes DIR/bin/out_0_0.elf")
    return Path(elf_paths[0]).parent.parent
