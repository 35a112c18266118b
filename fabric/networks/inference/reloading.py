"""A mesh that has some layers of a decoder at a time, seen from the host: it loads a group, tokens pass, and so on.

Between two groups the host writes the weights of the next one into the PEs and, if another program comes, that program;
and what the group has kept of earlier tokens, its cache and its positions, which the host has read out behind the last
one.  All words that are written or read so are counted.  Nothing of it is done by the PEs: how long it takes is said by
the link to the wafer, of so many bytes per second, over which they go one after the other (`ReloadLink`).

A residual stream that goes in or comes out passes the west edge while the PEs work, and is in their cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fabric.host.engines import Backend
from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.edge import Came, checked
from fabric.networks.inference.groups import LayerGroups
from fabric.networks.inference.resident import Counters, added_counters, lasting_names
from wse_core.errors import InternalError
from wse_core.formats import Bits
from wse_core.image import ProgramImage
from wse_core.params import Machine

__all__ = ["Passed", "ReckonedWords", "ReloadLink", "ReloadedMesh", "image_words", "program_words", "reckoned"]

PROGRAM, WEIGHTS, CACHE_IN, CACHE_OUT = "program", "weights", "cache in", "cache out"
"""Words that are loaded are counted under these names."""


@dataclass(frozen=True)
class ReloadLink:
    """A `ReloadLink` is the way between the host and the wafer.

    Attributes
    ----------
    machine : Machine
        Its ``stream.rate`` and ``clock.ghz``.
    """

    machine: Machine

    def seconds(self, words: int) -> float:
        """Return how long so many words of 16 bits take."""
        return 2 * words / float(self.machine["stream.rate"])

    def cycles(self, words: int) -> int:
        """Return the cycles of the PEs' clock that so many words of 16 bits take."""
        return -(-2 * words * round(self.machine["clock.ghz"] * 1e9) // int(self.machine["stream.rate"]))


@dataclass(frozen=True)
class Passed:
    """A `Passed` is what a group gave of the tokens of a step.

    Attributes
    ----------
    states : list of ndarray of uint32, (height, hidden)
        Bits of the residual stream behind its layers, of each token.
    begun, cycles, hops : int
        When they began to enter, how long it took until the last of them had left, wavelet hops.
    """

    states: list[Bits]
    begun: int
    cycles: int
    hops: int


def image_words(image: ProgramImage) -> int:
    """Return the words of 16 bits of a PE's code and constants."""
    return 2 * len(image.code) + sum(len(words) for _, words in image.data)


def program_words(layout: Layout) -> int:
    """Return the words of 16 bits that make the programs of all PEs: code, constants, parameters."""
    spec = layout.build()
    each = np.array([image_words(image) for image in spec.programs])
    return int(each[spec.program_index].sum()) + sum(words.size for _, words, _, _ in layout.param_writes())


class ReckonedWords:
    """A `ReckonedWords` says, of a part of a model, how many words will be loaded, before anything is run.

    Parameters
    ----------
    decode : Decode
        Of a group of layers, or of a part of the output matrix.

    Attributes
    ----------
    program, weights : int
    state, cache : int
        What it keeps of earlier tokens, and the part of that which keys and values are.
    """

    def __init__(self, decode: Decode) -> None:
        place, pes = decode.place, decode.place.width * decode.place.height
        words = place.words()
        self.cache = pes * words.pop("cache")
        self.weights = pes * sum(words.values())
        every = decode.roles()
        columns, rows = Counter(every[0]), Counter(every[1])
        images = {(c, r): decode.program(c, r).assemble() for c in columns for r in rows}
        self.program = sum(columns[c] * rows[r] * image_words(image) for (c, r), image in images.items())
        self.program += sum(values.size * values.itemsize // 2 for _, values, _ in decode.parameters())
        known = next(iter(images.values())).symbols
        self.state = pes * sum(known[name].words for name in lasting_names(list(images.values())))


def reckoned(built: LayerGroups, passes: int, behind: bool = False) -> list[Counter[str]]:
    """Return the words that each of so many passes will load, as `ReloadedMesh.words` counts them.

    `behind`: the first of them goes on behind tokens that are there.
    """
    known: dict[Decode, ReckonedWords] = {}
    found, before = [], None
    for number in range(passes):
        words = Counter[str]()
        reads = not number and built.size > 1
        for decode in (
            *(built.readers if reads else (g.decode for g in built.groups)),
            *(h.decode for h in built.heads),
        ):
            if decode not in known:
                known[decode] = ReckonedWords(decode)
            each, other, last = known[decode], decode != before, number == passes - 1
            # What there is beside the cache.
            written = behind or number > int(built.size > 1) or not (other or reads)
            words[PROGRAM] += each.program * other
            words[WEIGHTS] += each.weights
            words[CACHE_IN] += each.cache * (behind or number > 0) + (each.state - each.cache) * written
            words[CACHE_OUT] += 0 if last else each.cache if reads else each.state
            before = decode
        found.append(words)
    return found


class ReloadedMesh:
    """A `ReloadedMesh` is a mesh into which groups of layers, and parts of the output matrix, are loaded in turn.

    Parameters
    ----------
    backend : {"compiled", "reference"}, optional
        Default as `fabric.host.fabric.Fabric`.

    Attributes
    ----------
    words : Counter
        Words that were written and read, by what they are.
    """

    def __init__(self, backend: Backend | None = None) -> None:
        self.backend, self.words = backend, Counter[str]()
        self._fabric: Fabric | None = None
        self._decode: Decode | None = None
        self._new: dict[str, Bits] = {}  # what the program keeps, before the first token
        self._counters: Counters = {}  # of programs before

    @property
    def fabric(self) -> Fabric:
        """The PEs are here, with the program that they have now."""
        if self._fabric is None:
            raise InternalError("nothing is loaded")
        return self._fabric

    def load(self, decode: Decode, tables: Mapping[str, Bits], kept: Mapping[str, Bits] | None = None) -> None:
        """Give the PEs a program of a group or of a part of the output matrix.

        Parameters
        ----------
        decode : Decode
        tables : mapping
            What `LayerGroup.tables` or `OutputPart.tables` made of the weights.
        kept : mapping, optional
            What it has of earlier tokens (`leave`); without it, none has come yet.
        """
        other = self._fabric is None or decode != self._decode
        if other:
            self._program(decode)
        for symbol, bits in tables.items():
            self._write(symbol, bits, WEIGHTS)
        state = dict(kept or {})
        if not other and not decode.place.batch:  # what the cache has of others is behind the tokens that are there
            state = {name: bits for name, bits in self._new.items() if name != "cache"} | state
        for symbol, bits in state.items():
            self._write(symbol, bits, CACHE_IN)
        if other:
            self.fabric.launch("token")
            self.fabric.run(on_wait="return")

    def _program(self, decode: Decode) -> None:
        """Give the PEs another program."""
        if self._fabric is not None:
            self._counters = added_counters(self._counters, self._fabric.all_counters())
        self._fabric = None  # its memory is free before there is another one
        layout = decode.layout()
        self._fabric, self._decode = Fabric(layout, self.backend), decode
        self.words[PROGRAM] += program_words(layout)
        self._fabric.entered(decode.inputs[0])  # from now on it is noted when wavelets enter
        names = lasting_names(self._fabric.spec.programs)
        self._new = {name: self._read(name) for name in names}

    def _write(self, symbol: str, bits: Bits, kind: str) -> None:
        self.fabric.write(symbol, bits)
        self.words[kind] += bits.size * bits.itemsize // 2

    def _read(self, symbol: str) -> Bits:
        found = self.fabric.read(symbol)
        return found.view(f"u{found.itemsize}")

    def leave(self, counted: bool = True) -> dict[str, Bits]:
        """Return what the group keeps of the tokens that it has taken, for when it is loaded again.

        Behind a program that takes a prompt in pieces that is the cache: the other one begins behind the prompt.
        Words are not `counted` if no pass comes that would load them, but a file is to have them.
        """
        assert self._decode is not None
        names = ["cache"] if self._decode.place.batch else list(self._new)
        found = {name: self._read(name) for name in names}
        self.words[CACHE_OUT] += sum(bits.size * bits.itemsize // 2 for bits in found.values()) * counted
        return found

    def cache(self) -> Bits:
        """Return the bits of keys and values of all PEs, (height, width, words); for those who compare."""
        return self._read("cache")

    def take(self, states: Sequence[Bits], first: bool = False) -> Passed:
        """Let the residual streams of a step's tokens through the layers that are here, (height, hidden) each.

        A step takes one token or, with a program that takes a prompt in pieces, as many as that takes, or fewer in the
        last step; `first`: the first of them begins the prompt.
        """
        assert self._decode is not None
        place = self._decode.place
        more = place.lanes - len(states)
        entering = [*states, *[states[-1]] * more]
        if place.batch:
            told = np.zeros(place.told, np.float32)
            told[: len(states)] = [place.ahead * (not first), *range(1, len(states))]
            told[len(states) : place.lanes] = place.lanes + np.arange(len(states), place.lanes)  # repeat others
            entering.append(np.broadcast_to(told.view(np.uint32), (place.height, place.told)))
        begun, hops = self._run(np.concatenate(entering, axis=1))
        left = [self.fabric.receive(stream) for stream in self._decode.outputs]
        found = np.array([each.payload for each in left])
        if found.shape != (place.height, place.lanes * place.hidden):
            raise InternalError("the group waits, and not all of the residual stream has left it")
        parts = np.split(found, place.lanes, axis=1)[: len(states)]
        return Passed(parts, begun, max(int(each.cycles[-1]) for each in left) + 1 - begun, hops)

    def answer(self, x: Bits, position: int) -> tuple[Came, int]:
        """Return what a part of the output matrix gives for the residual stream of a token, and the wavelet hops.

        Raises
        ------
        ConfigError
            The logits are no numbers.
        """
        begun, hops = self._run(x)
        assert self._decode is not None
        place, left = self._decode.place, self.fabric.receive(self._decode.output)
        if len(left.cycles) != 2:
            raise InternalError("the part waits, and no token has left it")
        logits = self.fabric.read("logits", 0, 0, place.width, 1)[0].view(np.uint32)[place.ids >= 0]
        checked(float(left.values("f32")[0]), logits, position)
        return Came(int(left.values("f32")[0]), logits, begun, int(left.cycles[1]) + 1 - begun), hops

    def _run(self, x: Bits) -> tuple[int, int]:
        """Let a residual stream enter, and run until all PEs wait; return when it began to enter, and the hops."""
        assert self._decode is not None
        for stream, chunk in zip(self._decode.inputs, x, strict=True):
            self.fabric.send(stream, chunk)
        hops = self.fabric.run(on_wait="return").wavelet_hops
        return int(self.fabric.entered(self._decode.inputs[0])[0]), hops

    def counters(self) -> Counters:
        """Return the counters of all PEs, of all programs that they had."""
        return self._counters if self._fabric is None else added_counters(self._counters, self._fabric.all_counters())
