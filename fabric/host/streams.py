"""Wavelets at the edge are numbers of the host as payloads, and what arrived at an output stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fabric.asm.values import decode_array
from fabric.layout.streams import Stream
from wse_core.errors import LayoutError
from wse_core.image import FabricSpec

__all__ = ["Received", "cycles_at_edge", "payload", "stream_number"]


@dataclass(frozen=True, repr=False)
class Received:
    """A `Received` has the wavelets that arrived at an output stream: arrays of the same length."""

    cycles: np.ndarray
    payload: np.ndarray
    control: np.ndarray

    def __len__(self) -> int:
        return len(self.payload)

    def __repr__(self) -> str:
        if not len(self):
            return "Received(no wavelets)"
        control = int(np.count_nonzero(self.control))
        more = f", {control} control" if control else ""
        return f"Received({len(self)} wavelets, cycles {self.cycles[0]} .. {self.cycles[-1]}{more})"

    def values(self, dtype: str = "u32", packed: bool = True) -> np.ndarray:
        """Return the data wavelets as numbers.

        Parameters
        ----------
        dtype : str
            ``u32``, ``i32``, ``f32``, or a 16-bit type (cb16 stays uint16 bit patterns).
        packed : bool
            For 16-bit types: two per wavelet, else the low half of each.
        """
        words = np.ascontiguousarray(self.payload[~np.asarray(self.control, bool)]).astype("<u4").view("<u2")
        if dtype in ("u32", "i32", "f32") or packed:
            return decode_array(words, dtype)
        return decode_array(words[::2], dtype)


def stream_number(stream: Stream | int, kind: str, spec: FabricSpec) -> int:
    """Return the number of a stream of a kind (``input`` or ``output``), or refuse one that does not exist."""
    if isinstance(stream, Stream):
        if stream.kind != kind:
            raise LayoutError(f"an {stream.kind} stream given where an {kind} stream belongs", x=stream.x, y=stream.y)
        stream = stream.index
    if isinstance(stream, bool) or not isinstance(stream, (int, np.integer)):
        raise LayoutError(f"{stream!r} is no stream", hint=f"what Layout.{kind}_stream returned, or its number")
    known = spec.inputs if kind == "input" else spec.outputs
    if not 0 <= stream < len(known):
        raise LayoutError(f"{kind} stream {stream} does not exist; there are {len(known)}")
    return stream


def cycles_at_edge(at: ArrayLike, n: int | None, what: str) -> np.ndarray:
    """Return cycles at which something may pass the edge, uint64; `n`: as many as there are wavelets, one for all does.

    Raises
    ------
    LayoutError
        They are no whole numbers from 0 up, not in order, or not `n`.
    """
    try:
        cycles = np.atleast_1d(np.asarray(at))
    except ValueError as error:
        raise LayoutError(f"{what}: the cycles are no array: {error}") from None
    if cycles.ndim != 1 or cycles.dtype.kind not in "iu" or (cycles.size and int(cycles.min()) < 0):
        raise LayoutError(f"{what}: cycles are whole numbers from 0 up", hint="at=cycle, or an array with one for each")
    if np.any(cycles[1:] < cycles[:-1]):
        raise LayoutError(f"{what}: the cycles are not in order; wavelets of a stream pass one after the other")
    if n is not None and len(cycles) not in (1, n):
        raise LayoutError(f"{what}: {len(cycles)} cycles for {n} wavelets", hint="one for all, or one for each")
    return (cycles if n is None or len(cycles) == n else np.broadcast_to(cycles, (n,))).astype(np.uint64)


def payload(values: ArrayLike, packed: bool = True) -> np.ndarray:
    """Return numbers as the 32-bit payloads of wavelets; see `fabric.host.fabric.Fabric.send`."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise LayoutError(f"send: the values are no array: {error}") from None
    if array.dtype in (np.float16, np.uint16, np.int16):
        half = np.ascontiguousarray(array).ravel().view(np.uint16)
        if not packed:
            return half.astype(np.uint32)
        half = np.concatenate((half, np.zeros(len(half) % 2, np.uint16)))
        return half[::2].astype(np.uint32) | half[1::2].astype(np.uint32) << np.uint32(16)
    if array.dtype == np.uint32:
        return np.ascontiguousarray(array).ravel()
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(array.astype(np.float32)).ravel().view(np.uint32)
    if array.dtype.kind not in "iub":
        raise LayoutError(f"send: {array.dtype} is not a kind of number that a wavelet can hold")
    if array.size and not -(1 << 31) <= int(array.min()) <= int(array.max()) < 1 << 32:
        raise LayoutError("send: a value does not fit 32 bits")
    return (array.astype(np.int64).ravel() & 0xFFFFFFFF).astype(np.uint32)
