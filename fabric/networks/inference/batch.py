"""A decoder may take tokens of several requests in one step; this is that decoder seen from the host.

A step takes a token in each of its *lanes*.  Each of `Placement.batch` requests has a cache and `Placement.ahead` lanes
beside each other; with one lane each, requests are told apart by their lanes.  With the embeddings the host says what
goes before each token: nothing, so that a request begins and its cache is empty; or a token of a lane, of the same
step or of the last one.  What the cache has behind that token is as if it had never come: tokens may be tried and taken
back.  A lane that has nothing to do repeats another one of its request, or begins a request that nobody reads.

`BatchOracle` has a plain oracle of one request for each lane, on the same mesh, that knows nothing of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fabric.host.engines import Backend
from fabric.host.fabric import Fabric
from fabric.networks.inference.angles import Angles
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.edge import Came, checked, refuse_token
from fabric.networks.inference.elementwise import LOCAL
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.prefill.reading import readings
from fabric.networks.inference.resident import lasting_names, with_room
from fabric.networks.inference.rows import Rows
from fabric.networks.inference.tiles import embedding_rows
from wse_core.errors import ConfigError, InternalError
from wse_core.formats import Arithmetic, Bits

__all__ = ["BatchOracle", "BatchResident", "BatchStep", "LaneToken"]


@dataclass(frozen=True)
class LaneToken:
    """A `LaneToken` is a token that a lane takes in a step.

    Attributes
    ----------
    token : int
    first : bool
        Whether a request begins with it.
    behind : int or None
        The lane of the token that goes before it, of the same request: of this step if it comes before, else of the
        last one; None: the lane itself in the last step.
    again : bool
        Whether the lane takes the token of the last step again, in its place.
    """

    token: int
    first: bool = False
    behind: int | None = None
    again: bool = False


NOBODY = LaneToken(0, True)
"""A lane without a request takes this token."""


@dataclass(frozen=True)
class BatchStep:
    """A `BatchStep` is what one step of a batch gave: tokens and logits of its lanes, cycles and hops.

    Attributes
    ----------
    came : list of Came or None
        Of each lane; None of one without a request.
    begun, cycles, hops : int
        When the step began, how long it took until the last token had left, and the wavelet hops.
    """

    came: list[Came | None]
    begun: int
    cycles: int
    hops: int


class BatchResident:
    """A `BatchResident` is a decoder of a batch that runs on a fabric.

    Parameters
    ----------
    decode : Decode
    weights : mapping
        Tensors by the hub's names.
    backend : {"compiled", "reference"}, optional
        Default as `fabric.host.fabric.Fabric`.
    tables : mapping, optional
        What `Decode.tables` made of the weights, if it is there already.

    Attributes
    ----------
    fabric : Fabric
    counts : list of int
        Tokens of its request up to that of each lane.
    """

    def __init__(
        self,
        decode: Decode,
        weights: Mapping[str, ArrayLike],
        backend: Backend | None = None,
        tables: Mapping[str, Bits] | None = None,
    ) -> None:
        self.decode, self.place, self.weights = decode, decode.place, weights
        self.fabric = Fabric(decode.layout(), backend)
        for symbol, bits in (decode.tables(weights) if tables is None else tables).items():
            self.fabric.write(symbol, bits)
        self.fabric.entered(decode.inputs[0])  # from now on it is noted when wavelets enter
        self.fabric.launch("token")
        self.counts = [0] * self.place.lanes
        self.most = Rows.most(self.place.height, self.place.tokens_per_row, decode.policy)

    def step(self, given: Sequence[LaneToken | None]) -> BatchStep:
        """Let each lane take a token, or none; return what came.

        Raises
        ------
        ConfigError
            Not a token for each lane, no such token, a full cache, or logits that are no numbers.
        """
        self._send(given)
        hops = self.fabric.run(on_wait="return").wavelet_hops
        left = self.fabric.receive(self.decode.output)
        if len(left.cycles) != 2 * self.place.lanes:
            raise InternalError("the decoder waits, and not all tokens have left it")
        begun = int(self.fabric.entered(self.decode.inputs[0])[0])
        values, ends = left.values("f32").reshape(-1, 2), left.cycles.reshape(-1, 2)[:, 1] + 1 - begun
        logits = self.logits()
        came: list[Came | None] = []
        for lane, each in enumerate(given):
            if each is None:
                came.append(None)
                continue
            checked(float(values[lane, 0]), logits[lane], self.counts[lane] - 1)
            came.append(Came(int(values[lane, 0]), logits[lane], begun, int(ends[lane])))
        return BatchStep(came, begun, int(ends[-1]), hops)

    def enter(self, lane: int, lasting: Mapping[str, Bits], count: int) -> None:
        """Give a lane what a decoder of one request has of `count` tokens (`Resident.lasting`); between two steps.

        The next token of the lane goes on behind them.  Of the lanes of a request it is the first.

        Raises
        ------
        ConfigError
            Not what the PEs of this decoder keep of a request.
        """
        place = self.place
        alone = dict(with_room(lasting, replace(place, batch=0, ahead=1)))
        if place.ahead > 1:  # tokens lie in their slots one behind the other, and positions are those of the last
            alone.pop("order", None)
            alone |= {name: bits for name, bits in self._angles(count - 1).items() if name in alone}
        if set(alone) != set(lasting_names(self.fabric.spec.programs)):
            raise ConfigError("not what the PEs of this decoder keep", where="batch", hint="a decoder of the same kind")
        for name, bits in alone.items():
            found = self.fabric.read(name, self.decode.column, 0, place.width, place.height)
            found = found.view(f"u{found.itemsize}")
            layers = place.decoder.layers if name == "cache" else 1
            each = place.ahead if name in ("cache", "numbers") else 1  # lanes that share one
            lanes = found.reshape(*found.shape[:2], layers, place.lanes // each, -1)
            lanes[..., lane // each, :] = bits.reshape(*found.shape[:2], layers, -1)
            self.fabric.write(name, lanes.reshape(found.shape), self.decode.column, 0, place.width, place.height)
        self.counts[lane] = count

    def _angles(self, position: int) -> dict[str, Bits]:
        """Return what the PEs have of the angles of a position, by symbol: (height, width, elements)."""
        place, found = self.place, dict[str, Bits]()
        for local in (False, True) if place.decoder.is_local else (False,):
            angles, end = Angles(place, self.decode.machine, local), LOCAL if local else ""
            state = angles.state(position)
            for name in ("fine", "coarse"):
                found[name + end] = np.broadcast_to(state[name], (place.height, *state[name].shape))
            found[f"passed{end}"] = np.full((place.height, place.width, 1), angles.passed(position), np.uint16)
        return found

    def cache(self, lane: int) -> Bits:
        """Return the bits of keys and values that all PEs have of the request of a lane, (height, width, words)."""
        place = self.place
        found = self.fabric.read("cache", self.decode.column, 0, place.width, place.height).view(np.uint16)
        caches = found.reshape(*found.shape[:2], place.decoder.layers, place.batch, -1)
        return caches[..., lane // place.ahead, :].reshape(*found.shape[:2], -1)

    def _send(self, given: Sequence[LaneToken | None]) -> None:
        """Send the embeddings of a step, and what goes before each token."""
        place, machine = self.place, self.decode.machine
        lanes, ahead = place.lanes, place.ahead
        if len(given) != lanes:
            raise ConfigError(f"{len(given)} tokens for {lanes} lanes", where="batch")
        tokens, behind, counts = [0] * lanes, [0] * lanes, list(self.counts)
        for lane, each in enumerate(given):
            home = lane - lane % ahead
            if each is None and lane > home:  # repeats the lane before it
                tokens[lane], behind[lane], counts[lane] = tokens[lane - 1], lanes + lane, counts[lane - 1]
                continue
            each = each or NOBODY
            if each.again:
                tokens[lane], behind[lane] = each.token, 1 + lanes + lane
                continue
            before = lane if each.behind is None else each.behind
            refuse_token(place, each.token)
            if not home <= before < home + ahead:
                raise ConfigError(f"lane {lane} goes on behind lane {before}, of another request", where="batch")
            if not each.first and counts[before] >= self.most:
                raise ConfigError(f"the cache is full: it has room for {self.most} tokens of a request", where="batch")
            tokens[lane], behind[lane] = each.token, 0 if each.first else 1 + before
            counts[lane] = 1 if each.first else counts[before] + 1
        told = np.zeros(place.told)
        told[:lanes] = behind
        bits = np.broadcast_to(Arithmetic.of(machine, place.dtype).encode(told), (place.height, place.told))
        at = [count - 1 for count in counts]
        rows = [embedding_rows(place, machine, self.weights, *each) for each in zip(tokens, at, strict=True)]
        for stream, chunk in zip(self.decode.inputs, np.concatenate([*rows, bits], axis=1), strict=True):
            self.fabric.send(stream, chunk)
        self.counts = counts

    def logits(self) -> Bits:
        """Return the bits of the logits of each lane's last token, as the PEs of row 0 hold them."""
        place = self.place
        found = self.fabric.read("logits", self.decode.column, 0, place.width, 1)[0].view(np.uint32)
        return found.reshape(place.width, place.lanes, -1).swapaxes(0, 1)[:, place.ids >= 0]

    def stamps(self) -> np.ndarray:
        """Return when each part of the last step was done, as `ResidentDecoder.stamps` does."""
        return readings(self.fabric, "stamps")


class BatchOracle:
    """A `BatchOracle` gives, bit by bit, what the lanes must give: an `Oracle` of a decoder of one request for each.

    Parameters
    ----------
    decode : Decode
        Of a batch.
    weights : mapping
    tables : mapping, optional
        What `Decode.tables` made of the weights, if it is there already.
    blocks : sequence of int, optional
        Of tokens with which lanes may begin (`enter`): how many each row has of those that were read together.
    """

    def __init__(
        self,
        decode: Decode,
        weights: Mapping[str, ArrayLike],
        tables: Mapping[str, Bits] | None = None,
        blocks: Sequence[int] | None = None,
    ) -> None:
        may = decode.answers
        place, blocks = replace(decode.place, batch=0, ahead=1), blocks or decode.blocks
        alone = Decode(decode.machine, place, decode.policy, answers=may, blocks=blocks)
        self.plain = Oracle(alone, weights, tables)
        self.alone = [self.plain.anew() for _ in range(decode.place.lanes)]

    def step(self, lane: int, given: LaneToken) -> tuple[int, Bits]:
        """Let a lane take a token; return (the next one, bits of the logits of all tokens)."""
        if given.first:
            self.alone[lane] = self.plain.anew()
        return self.alone[lane].step(given.token)

    def take_over(self, lane: int, cache: Bits, count: int) -> None:
        """Let a lane go on behind `count` tokens of its request with keys and values that PEs have."""
        self.alone[lane] = self.plain.anew()
        self.alone[lane].take_over(cache, count)

    def enter(self, lane: int, lasting: Mapping[str, Bits], count: int) -> None:
        """Let a lane begin with tokens as `BatchResident.enter`."""
        self.take_over(lane, with_room(lasting, self.plain.place)["cache"], count)
