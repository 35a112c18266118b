"""A decoder that stays on the wafer: the host sends a token and receives the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fabric.host.fabric import Fabric
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.prefill.reading import readings
from fabric.networks.inference.rows import Rows
from fabric.networks.inference.tiles import embedding_rows
from wse_core.errors import ConfigError, InternalError
from wse_core.formats import Bits

__all__ = ["Resident", "Resumed", "Step"]


@dataclass(frozen=True)
class Step:
    """What one token gave.

    Attributes
    ----------
    token : int
        The next token, the one with the largest logit.
    logits : ndarray of uint32, shape (vocabulary,)
        Bits of f32 numbers.
    begun, cycles : int
        The cycle in which the token begins to enter, and how many there are from then to that in which the next has
        left, hand-over to hand-over.
    hops : int
        Wavelet hops.
    """

    token: int
    logits: Bits
    begun: int
    cycles: int
    hops: int


@dataclass(frozen=True)
class Resumed:
    """What came of a prompt that another program read.

    Attributes
    ----------
    token, logits
        As of a `Step`.
    begun : int
        Cycle of the beginning.
    transition : int
        Cycles in which the last token's hidden features moved to where decoding has them.
    cycles : int
        From then on to the cycle in which the token has left.
    hops : int
        Wavelet hops of both.
    """

    token: int
    logits: Bits
    begun: int
    transition: int
    cycles: int
    hops: int


class Resident:
    """A decoder on a fabric.

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
    count : int
        Tokens taken so far.
    """

    def __init__(
        self,
        decode: Decode,
        weights: Mapping[str, ArrayLike],
        backend: str | None = None,
        tables: Mapping[str, Bits] | None = None,
        kept: Mapping[str, Bits] | None = None,
        fabric: Fabric | None = None,
    ) -> None:
        self.decode, self.place, self.weights = decode, decode.place, weights
        if (kept is None) != (decode.prompt is None):
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
        self.count = 0 if prompt is None else prompt.length
        counts = None if prompt is None else prompt.counts
        self.most = Rows.most(self.place.height, self.place.tokens_per_row, decode.policy, counts)

    def resume(self) -> Resumed:
        """Return the answer to a prompt that another program read; once, before any step.

        Raises
        ------
        ConfigError
            The logits are no numbers.
        """
        begun = self.fabric.cycle
        run = self.fabric.run(on_wait="return")
        found, cycle = self._left()
        logits, moved = self._checked(found), int(readings(self.fabric, "moved").max())
        return Resumed(int(found), logits, begun, moved - begun, cycle + 1 - moved, run.wavelet_hops)

    def step(self, token: int) -> Step:
        """Send a token and return what came back.

        Raises
        ------
        ConfigError
            No such token, the cache is full, or the logits are no numbers.
        """
        place, fabric = self.place, self.fabric
        if not 0 <= token < place.decoder.vocabulary:
            raise ConfigError(
                f"token {token} does not exist",
                where="decoder",
                hint=f"0 .. {place.decoder.vocabulary - 1}",
                value=token,
            )
        if self.count >= self.most:
            raise ConfigError(f"the cache is full: it has room for {self.most} tokens", where="decoder")
        rows = embedding_rows(place, self.decode.machine, self.weights, token)
        for stream, chunk in zip(self.decode.inputs, rows, strict=True):
            fabric.send(stream, chunk)
        run = fabric.run(on_wait="return")
        self.count += 1
        found, cycle = self._left()
        begin = int(fabric.entered(self.decode.inputs[0])[0])
        logits = self._checked(found)
        return Step(int(found), logits, begin, cycle + 1 - begin, run.wavelet_hops)

    def _left(self) -> tuple[float, int]:
        """Return the token that left the wafer, as a number, and the cycle in which it had left."""
        left = self.fabric.receive(self.decode.output)
        if len(left) != 2:
            raise InternalError(f"{len(left)} wavelets left the decoder instead of two")
        return float(left.values("f32")[0]), int(left.cycles[-1])

    def _checked(self, found: float) -> Bits:
        """Return the logits, or refuse a token or logits that are no numbers."""
        logits = self.logits()
        if not np.isfinite(found) or not np.isfinite(logits.view(np.float32)).all():
            raise ConfigError(
                f"logits of token {self.count - 1} are no finite numbers",
                where="decoder",
                hint="weights that overflow 16-bit numbers; cb16 has a larger range",
            )
        return logits

    def logits(self) -> Bits:
        """Return the bits of the logits of the last token, as the PEs of row 0 hold them."""
        found = self.fabric.read("logits", self.decode.column, 0, self.place.width, 1)[0].view(np.uint32)
        return found[self.place.ids >= 0]

    def stamps(self) -> np.ndarray:
        """Return when each part of the last step was done, per PE: int64 (parts, height, width); of a timed program."""
        return readings(self.fabric, "stamps")
