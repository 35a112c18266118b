"""A compiled program on a fabric has hidden words, addresses per PE, streams and records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.csl.artefact import Bundle
from fabric.host.checks import MemoryChecks
from fabric.host.fabric import Fabric
from fabric.layout.rectangles import runs
from harness.sdk.log import SimulatorLog, asked_for
from harness.sdk.records import Records
from wse_core.errors import ConfigError, DeadlockError
from wse_core.params import Machine

__all__ = ["SYMBOLS", "SdkDevice", "checking_memory"]

SYMBOLS = "symbols.npz"
"""First values of variables, an array per region and variable, lie in this file beside a program."""
RPC = 28
"""The hidden task that does calls of the host has this id."""
LONGEST = 1 << 34
Goal = tuple[int, NDArray[Any], NDArray[np.uint16]]
"""It is the address of a program's count of ended commands, the PEs that have the program, and the count per PE."""


_CHECKED: ContextVar[list[MemoryChecks] | None] = ContextVar("wse checked memory", default=None)


@contextmanager
def checking_memory() -> Iterator[list[MemoryChecks]]:
    """Check the memory of every program that is loaded inside the block; give the list of their checks."""
    made: list[MemoryChecks] = []
    token = _CHECKED.set(made)
    try:
        yield made
    finally:
        _CHECKED.reset(token)


class SdkDevice:
    """A device is the machine with a program on it.

    Parameters
    ----------
    bundle : Bundle
    directory : path
        Where ``sim.log`` goes: into the working directory of the script.
    machine : Machine, optional
        Modelled numbers; those of the host are ``memcpy.*``.
    """

    def __init__(self, bundle: Bundle, directory: Path, machine: Machine | None = None) -> None:
        self.bundle, self.directory = bundle, directory
        self.fabric = Fabric(bundle.spec(machine))
        self.engine = self.fabric.engine
        if (checked := _CHECKED.get()) is not None:
            places = [{at: f"{file}:{line}" for at, (file, line) in host.places.items()} for host in bundle.host]
            checked.append(self.fabric.check(places=places))
        self.records = Records(self)
        self.log = SimulatorLog(self.fabric, *self._place(), asked_for())
        self._links = {
            kind: {tuple(place): k for k, place in enumerate(places) if place[0] >= 0}
            for kind, places in bundle.streams.items()
        }
        self._said: set[str] = set()
        self._sent: dict[int, int] = {}
        self._kept: dict[int, NDArray[np.uint32]] = {}
        for link in self._links["outputs"].values():
            self.fabric.accept(link, self._cycles(0))  # the host takes what a command asks for
        self._coordinates()

    # ---- programs and memory

    def programs(self, px: int = 0, py: int = 0, w: int | None = None, h: int | None = None) -> Iterator[Any]:
        """Yield number, image and mask of each program in a rectangle."""
        index = self.bundle.index[py : py + (h or self.bundle.height), px : px + (w or self.bundle.width)]
        for number in np.unique(index):
            if number >= 0:
                yield int(number), self.bundle.programs[number], index == number

    def _coordinates(self) -> None:
        """Tell each PE where it stands, if its program asks."""
        for number, image, mask in self.programs():
            for name, axis in (("x", 1), ("y", 0)):
                symbol = image.symbols.get(self.bundle.host[number].hidden.get(name, ""))
                if symbol is None:
                    continue
                for (row, stop), first, last in runs(mask):
                    shape = (stop - row, last - first)
                    start = first if axis == 1 else row
                    values = np.broadcast_to(
                        np.arange(start, start + shape[axis], dtype=np.uint16).reshape((1, -1) if axis else (-1, 1)),
                        shape,
                    )
                    self.engine.write_rect(symbol.address, np.ascontiguousarray(values[..., None]), first, row)

    def read_each(self, address: int, count: int, mask: NDArray[Any], px: int, py: int) -> NDArray[np.uint16]:
        """Return words of the PEs of a mask, shape (h, w, count); others are 0."""
        found = np.zeros((*mask.shape, count), np.uint16)
        for (row, stop), first, last in runs(mask):
            found[row:stop, first:last] = self.engine.read_rect(
                address, count, px + first, py + row, last - first, stop - row
            )
        return found

    def write_each(self, address: int, words: NDArray[np.uint16], mask: NDArray[Any], px: int, py: int) -> None:
        """Write words, shape (h, w, count), to the PEs of a mask."""
        for (row, stop), first, last in runs(mask):
            self.engine.write_rect(address, np.ascontiguousarray(words[row:stop, first:last]), px + first, py + row)

    def _places(
        self, name: Any, px: int, py: int, w: int, h: int, n: int, half: bool, reading: bool
    ) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the addresses of exported data in a rectangle, each with the mask of the PEs that have it there."""
        reached = np.zeros((h, w), bool)
        for number, image, mask in self.programs(px, py, w, h):
            symbol = image.symbols.get(self.bundle.host[number].exports.get(name.name, ""))
            if symbol is None:
                continue
            reached |= mask
            if name.kind == "value":
                self._within(name, number, symbol.address, n, half, reading)
                yield symbol.address, mask
                continue
            held = self.read_each(symbol.address, 1, mask, px, py)[..., 0]
            for address in np.unique(held[mask]):
                self._within(name, number, int(address), n, half, reading)
                yield int(address), mask & (held == address)
        if not reached.all():
            y, x = map(int, np.argwhere(~reached)[0])
            raise ConfigError(f"PE ({px + x}, {py + y}) does not export '{name.name}'")

    def _within(self, name: Any, number: int, address: int, n: int, half: bool, reading: bool) -> None:
        """Refuse to write beyond the array behind an exported name; reading beyond it is a warning.

        A public program (the 25-point stencil) reads six elements of an array of five, and does not look at the last.

        Raises
        ------
        ConfigError
            It names the array and how many elements it has from the address on.
        """
        words, size = n if half else 2 * n, 1 if half else 2
        image = self.bundle.programs[number]
        found = next((s for s in image.symbols.values() if s.address <= address < s.address + max(s.words, 1)), None)
        if found is None:
            odd = " (the upper half of a word)" if address >= 0x8000 else ""
            where = f"points to word {address:#06x} of {image.name}{odd}, where no array lies"
            raise ConfigError(f"the symbol '{name.name}' {where}", hint="does the program set the pointer elsewhere?")
        room = found.address + found.words - address
        if words > room:
            have = f"'{found.name}' of {image.name} has {room // size} of {16 * size} bits"
            what = (
                f"a copy of {n} elements of {16 * size} bits goes beyond the array of the symbol '{name.name}': {have}"
            )
            if not reading:
                raise ConfigError(what)
            if what not in self._said:
                self._said.add(what)
                print(f"warning: {what}", file=sys.stderr)

    def copy_in(self, name: Any, values: NDArray[np.uint32], px: int, py: int, half: bool) -> None:
        """Copy elements into exported data; `values` has the shape (h, w, n)."""
        h, w, n = values.shape
        words = _split(values, half)
        for address, mask in list(self._places(name, px, py, w, h, n, half, False)):  # all are checked first
            self.write_each(address, words, mask, px, py)

    def copy_out(self, name: Any, px: int, py: int, w: int, h: int, n: int, half: bool) -> NDArray[np.uint32]:
        """Return `n` elements of exported data per PE."""
        words = np.zeros((h, w, n if half else 2 * n), np.uint16)
        for address, mask in self._places(name, px, py, w, h, n, half, True):
            words[mask] = self.read_each(address, words.shape[2], mask, px, py)[mask]
        if half:
            return words.astype(np.uint32)
        return words[..., ::2].astype(np.uint32) | words[..., 1::2].astype(np.uint32) << np.uint32(16)

    def symbol(self, x: int, y: int, name: str) -> NDArray[np.uint16]:
        """Return the words of a global of one PE."""
        number = int(self.bundle.index[y, x])
        image = self.bundle.programs[number]
        found = image.symbols.get(name) or image.symbols.get(self.bundle.host[number].exports.get(name, ""))
        if found is None:
            raise ConfigError(f"PE ({x}, {y}) has no symbol '{name}'")
        return self.engine.read_words(x, y, found.address, found.words)

    def preset(self, path: Path) -> None:
        """Give variables the values of a file, if it is there: arrays named by first column, first row and symbol."""
        if not path.is_file():
            return
        for key, words in np.load(path).items():
            column, row, name = key.split(",", 2)
            h, w, count = words.shape
            for _, image, mask in self.programs(int(column), int(row), w, h):
                found = image.symbols.get(name)
                if found is None or found.words != count:
                    have = "is no variable" if found is None else f"has {found.words} words, not {count}"
                    raise ConfigError(f"'{name}' of {image.name} {have}", where="set_symbol_all")
                self.write_each(found.address, words, mask, int(column), int(row))

    # ---- running

    def settle(self) -> None:
        """Run until nothing moves any more; waiting for the host is no mistake."""
        self.fabric.run(LONGEST, on_limit="return", on_wait="return")

    def at_rest(self) -> None:
        """Run until nothing moves, for a while at most: a copy comes after what was handed over before it."""
        self.fabric.run(self.number("memcpy.rest"), on_limit="return", on_wait="return")

    def begin(self, streams: bool = False) -> None:
        """Wait until the commands before are over, and for the time that one takes to reach the PEs.

        Words that a command asks for come beside those that enter, if the program was written for that.
        """
        if not (streams and self.bundle.settings.get("beside")):
            self.entered()
        if latency := self.number("memcpy.command"):
            self.fabric.run(latency, on_limit="return", on_wait="return")

    def number(self, name: str) -> int:
        """Return a modelled number."""
        return int(self.fabric.machine[name])

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Run until a condition holds.

        Raises
        ------
        DeadlockError
            If nothing can move before it holds.
        """
        start = self.fabric.cycle
        while not done():
            spent = self.fabric.cycle - start
            pause = max(self.number("memcpy.poll"), int(spent * self.fabric.machine["memcpy.poll_share"]))
            result = self.fabric.run(pause, on_limit="return", on_wait="return")
            if result.status != "limit" and not done():
                self.fabric.run()
                raise DeadlockError(f"{what}, and nothing runs any more", cycle=self.fabric.cycle)

    def launch(self, name: str, ident: int, words: list[int]) -> None:
        """Do a call of the host on every PE that offers the function, and wait for all of them."""
        goals: list[Goal] = []
        for number, image, mask in self.programs():
            host = self.bundle.host[number]
            if name not in host.exports:
                continue
            call, arguments = (image.symbols[host.hidden[key]] for key in ("call", "arguments"))
            counter = image.symbols.get(host.hidden.get("unblocked", ""))
            if counter is None:
                raise ConfigError(
                    f"'{name}' of the program '{image.name}' never calls unblock_cmd_stream",
                    hint="the host would wait forever",
                )
            before = self.read_each(counter.address, 1, mask, 0, 0)[..., 0]
            goals.append((counter.address, mask, (before + np.uint16(1)).astype(np.uint16)))
            for (row, stop), first, last in runs(mask):
                shape = (stop - row, last - first)
                if words:
                    given = np.broadcast_to(np.array(words, np.uint16), (*shape, len(words)))
                    self.engine.write_rect(arguments.address, np.ascontiguousarray(given), first, row)
                self.engine.write_rect(call.address, np.full((*shape, 1), ident, np.uint16), first, row)
                self.engine.activate(RPC, first, row, shape[1], shape[0])

        self._unblocked(goals, f"'{name}' has not called unblock_cmd_stream on every PE")

    def launch_by_words(self, color: int, words: NDArray[np.uint32]) -> None:
        """Send every PE the words of a launch, which its program reads itself, and wait for all of them."""
        goals: list[Goal] = []
        for number, image, mask in self.programs():
            counter = image.symbols.get(self.bundle.host[number].hidden.get("unblocked", ""))
            if counter is not None:
                before = self.read_each(counter.address, 1, mask, 0, 0)[..., 0]
                goals.append((counter.address, mask, (before + np.uint16(1)).astype(np.uint16)))
        shape = (self.bundle.height, self.bundle.width, len(words))
        self.send(color, np.broadcast_to(words, shape), 0, 0)
        self._unblocked(goals, "the launch has not led to unblock_cmd_stream on every PE")

    def _unblocked(self, goals: list[Goal], what: str) -> None:
        """Run until programs have called `unblock_cmd_stream` so often as their goals say."""

        def done() -> bool:
            # To unblock what is not blocked does nothing, so programs that call it twice have called it.
            beyond = (
                self.read_each(address, 1, mask, 0, 0)[..., 0][mask] - goal[mask] for address, mask, goal in goals
            )
            return all(bool((calls.view(np.int16) >= 0).all()) for calls in beyond)

        self.until(done, what)

    # ---- streams

    def link(self, kind: str, color: int, x: int, y: int) -> int:
        """Return the number of the stream of a PE, of those that enter ("inputs") or leave ("outputs")."""
        found = self._links[kind].get((x, y, color))
        if found is None:
            what = "takes nothing from" if kind == "inputs" else "sends nothing to"
            raise ConfigError(
                f"PE ({x}, {y}) {what} the host's stream of color {color}",
                cause="its program does not use the color, or its routes lead the color elsewhere",
            )
        return found

    def send(self, color: int, values: NDArray[np.uint32], px: int, py: int) -> None:
        """Hand words to the PEs of a rectangle: one each `memcpy.word` cycles, as long as there is room."""
        for i in range(values.shape[0]):
            for j in range(values.shape[1]):
                link = self.link("inputs", color, px + j, py + i)
                self.fabric.entered(link)
                self._sent[link] = self._sent.get(link, 0) + values.shape[2]
                self.fabric.send(link, np.ascontiguousarray(values[i, j]), at=self._cycles(values.shape[2]))

    def entered(self) -> None:
        """Run until all words that were sent have entered the fabric."""

        def done() -> bool:
            for link in list(self._sent):
                self._sent[link] -= len(self.fabric.entered(link))
                if self._sent[link] <= 0:
                    del self._sent[link]
            return not self._sent

        self.until(done, "the PEs do not take what the host sends")

    def receive(self, color: int, px: int, py: int, w: int, h: int, n: int) -> NDArray[np.uint32]:
        """Return the next `n` words from each PE of a rectangle, shape (h, w, n); the host takes no word more."""
        links = {(i, j): self.link("outputs", color, px + j, py + i) for i in range(h) for j in range(w)}
        found, have = np.zeros((h, w, n), np.uint32), np.zeros((h, w), int)
        for link in links.values():
            self.fabric.accept(link, self._cycles(n))

        def done() -> bool:
            for place, link in links.items():
                if have[place] < n:
                    got = self.fabric.receive(link).payload
                    found[place][have[place] : have[place] + len(got)] = got
                    have[place] += len(got)
            return bool((have == n).all())

        self.until(done, "the PEs do not send what the host waits for")
        return found

    def open(self, color: int, x: int, y: int) -> None:
        """Let the host take whatever the stream of a PE brings, from now on."""
        self.fabric.accept(self.link("outputs", color, x, y), None)

    def collect(self, color: int, x: int, y: int, n: int) -> NDArray[np.uint32]:
        """Return the next `n` words of an open stream; control wavelets, which move switches, are no words of it."""
        self.until(lambda: self.came(color, x, y) >= n, "the PEs do not send what the host waits for")
        link = self.link("outputs", color, x, y)
        found, self._kept[link] = self._kept[link][:n], self._kept[link][n:]
        return found

    def came(self, color: int, x: int, y: int) -> int:
        """Return how many words of an open stream have come that were not collected."""
        link = self.link("outputs", color, x, y)
        new = self.fabric.receive(link)
        kept = self._kept.get(link, np.zeros(0, np.uint32))
        self._kept[link] = np.concatenate([kept, new.payload[~new.control]])
        return len(self._kept[link])

    def _cycles(self, n: int) -> NDArray[np.int64]:
        """Return the cycles from which on the words of a stream that begins now may pass."""
        return self.fabric.cycle + self.number("memcpy.word") * np.arange(n)

    def write_log(self) -> None:
        """Write what programs print into ``sim.log``, and what they do if that is asked for."""
        self.log.close(self.records.lines())

    def _place(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return where the program lies on the fabric, and the size of that."""
        settings = self.bundle.settings
        x, y = settings.get("offsets", (0, 0))
        width, height = settings.get("fabric", (x + self.bundle.width, y + self.bundle.height))
        return (x, y), (width, height)


def _split(values: NDArray[np.uint32], half: bool) -> NDArray[np.uint16]:
    """Return elements as words of memory: the low half, or both."""
    if half:
        return (values & np.uint32(0xFFFF)).astype(np.uint16)
    return np.ascontiguousarray(values, "<u4").view("<u2").astype(np.uint16).reshape(*values.shape[:2], -1)
