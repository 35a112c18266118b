"""A decoder that stays on the wafer: the host sends a token and receives the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabric.host.engines import Backend
from fabric.host.fabric import Fabric
from fabric.networks.inference.decode import LASTING, Decode
from fabric.networks.inference.edge import Came, Edge
from fabric.networks.inference.elementwise import LOCAL
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill.reading import readings
from fabric.networks.inference.rows import Rows
from wse_core.errors import ConfigError, InternalError
from wse_core.formats import Bits
from wse_core.image import ProgramImage

__all__ = ["Counters", "DecodeStep", "ResidentDecoder", "Resumed", "added_counters", "lasting_names", "with_room"]

Counters = dict[str, tuple[NDArray[Any], str]]
"""`Counters` are those of all PEs: name -> (array, unit)."""


@dataclass(frozen=True)
class DecodeStep(Came):
    """A `DecodeStep` is what one token gave on a fabric: the next token, the logits, cycles and hops.

    Attributes
    ----------
    hops : int
        Wavelet hops.
    """

    hops: int


@dataclass(frozen=True)
class Resumed(DecodeStep):
    """What came of a prompt that another program read; it begins where the last token's hidden features are in place.

    Attributes
    ----------
    transition : int
        Cycles before, in which these features moved there.
    """

    transition: int


def added_counters(first: Counters, second: Counters) -> Counters:
    """Return counters of two programs together."""
    found = dict(first)
    for name, (values, unit) in second.items():
        found[name] = (values + found[name][0] if name in found else values, unit)
    return found


def lasting_names(images: Sequence[ProgramImage]) -> list[str]:
    """Return the names of what all of these programs keep from one step to the next."""
    names = [name + end for name in LASTING for end in ("", LOCAL)]
    return [name for name in names if all(name in image.symbols for image in images)]


class ResidentDecoder:
    """A `ResidentDecoder` is a decoder that runs on a fabric, its weights in the PEs.

    Parameters
    ----------
    decode : Decode
    weights : mapping
        Tensors by the hub's names.
    backend : {"compiled", "reference"}, optional
        Default as `fabric.host.fabric.Fabric`.
    tables : mapping, optional
        What `Decode.tables` made of the weights, if it is there already.
    fabric : Fabric, optional
        Where the decoder runs already, behind a prompt that came from another mesh.
    kept : mapping, optional
        What a program that read a prompt left in the PEs (`fabric.networks.inference.prefill.reading.Reading.kept`), of
        a decoder with such a prompt; instead of tables.

    Attributes
    ----------
    fabric : Fabric
    edge : Edge
        Where tokens go in and out.
    """

    def __init__(
        self,
        decode: Decode,
        weights: Mapping[str, ArrayLike],
        backend: Backend | None = None,
        tables: Mapping[str, Bits] | None = None,
        kept: Mapping[str, Bits] | None = None,
        fabric: Fabric | None = None,
    ) -> None:
        self.decode, self.place = decode, decode.place
        if (kept is None) != (decode.prompt is None and not decode.begun):
            raise InternalError("a decoder goes on behind a prompt if, and only if, one was read")
        prompt = decode.arrived[1] if decode.arrived else decode.prompt
        if fabric is None:
            tables = kept if kept is not None else decode.tables(weights) if tables is None else tables
            fabric = Fabric(decode.layout(), backend)
            for symbol, bits in tables.items():
                fabric.write(symbol, bits)
            fabric.entered(decode.inputs[0])  # from now on it is noted when wavelets enter
            fabric.launch("token")
        self.fabric = fabric
        counts = None if prompt is None else prompt.counts
        most = Rows.most(self.place.height, self.place.tokens_per_row, decode.policy, counts)
        self.edge = Edge(fabric, decode, decode, weights, most, decode.begun if prompt is None else prompt.length)
        self._before: Counters = {}

    @property
    def count(self) -> int:
        """The decoder has taken so many tokens so far."""
        return self.edge.sent

    def resume(self) -> Resumed:
        """Return the answer to a prompt that another program read; once, before any step.

        Raises
        ------
        ConfigError
            The logits are no numbers.
        """
        begun = self.fabric.cycle
        hops = self._run()
        moved = int(readings(self.fabric, "moved").max())
        return Resumed(**vars(self.edge.take(moved)), hops=hops, transition=moved - begun)

    def step(self, token: int) -> DecodeStep:
        """Send a token and return what came back.

        Raises
        ------
        ConfigError
            No such token, the cache is full, or the logits are no numbers.
        """
        self.edge.send(token)
        hops = self._run()
        return DecodeStep(**vars(self.edge.take()), hops=hops)

    def _run(self) -> int:
        """Run until the decoder waits for a token; return the wavelet hops."""
        hops = self.fabric.run(on_wait="return").wavelet_hops
        if not self.edge.has_left():
            raise InternalError("the decoder waits, and no token has left it")
        return hops

    def lasting(self) -> dict[str, Bits]:
        """Return what PEs keep from one step to the next: symbol -> bits of shape (height, width, elements)."""
        return {name: self._read(name) for name in lasting_names(self.fabric.spec.programs)}

    def go_on(self, lasting: Mapping[str, Bits], count: int) -> None:
        """Go on behind `count` tokens that a decoder of the same programs has taken; once, before any step.

        Its counters are those of the steps from here on.

        Parameters
        ----------
        lasting : mapping
            What that one had (`lasting`); it may have had room for fewer tokens, or for more.
        count : int

        Raises
        ------
        ConfigError
            Not what the PEs of this decoder keep.
        """
        self.fabric.run(on_wait="return")  # until the decoder waits; behind a prompt it answers nothing, of nothing
        own, lasting = self.lasting(), with_room(lasting, self.place)
        if {name: bits.shape for name, bits in own.items()} != {name: bits.shape for name, bits in lasting.items()}:
            raise ConfigError("not what the PEs of this decoder keep", where="decoder", hint="the same mesh and tokens")
        if int(lasting["held"].max()) > self.place.capacity:
            raise ConfigError("more tokens than its rows have room for", where="decoder", hint="a longer answer")
        for name, bits in lasting.items():
            self.fabric.write(name, bits, self.decode.column, 0, self.place.width, self.place.height)
        self.edge.go_on(count)
        self._before = self.fabric.all_counters()

    def counters(self) -> Counters:
        """Return the counters of all PEs since this decoder began, or went on."""
        found = self.fabric.all_counters()
        return {
            name: (values - self._before[name][0] if name in self._before else values, unit)
            for name, (values, unit) in found.items()
        }

    def cache(self) -> Bits:
        """Return the bits of keys and values of all PEs, (height, width, words)."""
        return self._read("cache")

    def _read(self, symbol: str) -> Bits:
        """Return the bits of a symbol of all PEs of the decoder, (height, width, elements)."""
        found = self.fabric.read(symbol, self.decode.column, 0, self.place.width, self.place.height)
        return found.view(f"u{found.itemsize}")

    def logits(self) -> Bits:
        """Return the bits of the logits of the last token."""
        return self.edge.logits()

    def stamps(self) -> np.ndarray:
        """Return when each part of the last step was done, per PE: int64 (parts, height, width); of a timed program."""
        return readings(self.fabric, "stamps")


def with_room(lasting: Mapping[str, Bits], place: DecoderPlacement) -> Mapping[str, Bits]:
    """Return what PEs keep where it lies with the room for tokens of a placement; slots are filled from the first on.

    Keys lie feature by feature, values token by token, so that either moves if there is room for more.
    """
    slots = lasting["order"].shape[-1] if "order" in lasting else place.capacity
    if slots == place.capacity or slots <= 0:
        return lasting

    def fitted(bits: Bits, axis: int) -> Bits:
        kept = np.take(bits, range(min(slots, place.capacity)), axis)
        wider = [(0, 0)] * bits.ndim
        wider[axis] = 0, place.capacity - kept.shape[axis]
        return np.pad(kept, wider)

    found = dict(lasting)
    for name in ("order", "numbers"):
        if name in found:
            found[name] = fitted(found[name], -1)
    cache = found["cache"]
    if cache.shape[-1] == place.decoder.layers * place.entry_words * slots:
        layers = cache.reshape(*cache.shape[:2], place.decoder.layers, -1)
        keys, values, exponents = np.split(layers, [place.kept_rows * slots, 2 * place.kept_rows * slots], axis=-1)
        shapes = (place.kept_rows, slots), (place.kv_heads, slots, place.kept_part), (-1, slots)
        parts = [
            fitted(bits.reshape(*layers.shape[:3], *shape), axis).reshape(*layers.shape[:3], -1)
            for bits, shape, axis in zip((keys, values, exponents), shapes, (-1, -2, -1), strict=True)
            if bits.size
        ]
        found["cache"] = np.concatenate(parts, axis=-1).reshape(*cache.shape[:2], -1)
    return found
